//! The events of each queue that were acknowledged, to detect their loss.
//!
//! A failover to a lagging replica loses acknowledged commits. Nothing else reveals the loss, because the remaining
//! rows are consistent. These records exist only in memory, so a loss is detected only while the process runs.

use std::collections::HashMap;

use deltaq_engine::id::Rv;
use sqlx::Row as _;
use sqlx::postgres::{PgConnection, PgRow};

use super::connect::{simple, simple_rows};
use super::error::database;
use super::{rows, sql};
use crate::store::{Error, QueueId, Writes};

/// Maximum number of queues that an error names.
const NAMED_MAX: usize = 20;

/// The newest events that this process has acknowledged.
#[derive(Debug, Default)]
pub(super) struct Acknowledged {
    /// The last event of each queue.
    events: HashMap<QueueId, Rv>,
    /// The largest version of a queue.
    version: u64,
}

/// What a write will acknowledge.
#[derive(Debug)]
pub(super) struct Pending {
    reached: Vec<(QueueId, Rv)>,
    forgotten: Vec<QueueId>,
    version: u64,
}

impl Pending {
    /// The events that `writes` acknowledge once they are committed.
    pub(super) fn of(writes: &Writes) -> Self {
        let reached = writes.journal.iter().map(|row| (row.queue, row.last_rv));
        let version = writes.queues.iter().map(|row| row.version).max().unwrap_or_default();
        Self { reached: reached.collect(), forgotten: writes.forgotten.clone(), version }
    }
}

/// A queue that lacks acknowledged events.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Loss {
    queue: QueueId,
    /// The name, if the queue still exists.
    name: Option<String>,
    /// The last event in the database.
    found: Rv,
    /// The last event that was acknowledged.
    acknowledged: Rv,
}

impl Acknowledged {
    /// Records a write that has succeeded.
    pub(super) fn record(&mut self, pending: Pending) {
        for (queue, rv) in pending.reached {
            let last = self.events.entry(queue).or_default();
            *last = rv.max(*last);
        }
        for queue in pending.forgotten {
            self.events.remove(&queue);
        }
        self.version = self.version.max(pending.version);
    }

    /// Fails if acknowledged events are missing from the database, and logs them.
    pub(super) async fn check(&self, connection: &mut PgConnection, partition: i16) -> Result<(), Error> {
        let doing = "look for acknowledged events";
        let failed = |error| database(doing, error);
        let queues: Vec<_> = self.events.keys().map(QueueId::to_string).collect();
        let found = simple_rows(connection, doing, sql::reached(partition, &queues)).await?;
        let read = |row: &PgRow| {
            Ok((rows::queue(row, 0)?, rows::rv(row, 1)?, row.try_get::<Option<Vec<u8>>, _>(2)?))
        };
        let found: Vec<_> = found.iter().map(read).collect::<Result<_, _>>().map_err(failed)?;
        let mut losses = Vec::new();
        for (queue, found, name) in found {
            let acknowledged = self.events.get(&queue).copied().unwrap_or_default();
            if found < acknowledged {
                let name = name.map(|name| String::from_utf8_lossy(&name).into_owned());
                losses.push(Loss { queue, name, found, acknowledged });
            }
        }
        let row = simple(connection, doing, sql::state(partition)).await?;
        let version = row.map(|row| rows::number(&row, 3)).transpose().map_err(failed)?;
        let versions = self.version.saturating_sub(version.unwrap_or_default());
        if losses.is_empty() && versions == 0 { Ok(()) } else { Err(report(&losses, versions)) }
    }
}

/// Logs the queues that lack events. `versions` changes of the list of queues are missing as well.
fn report(losses: &[Loss], versions: u64) -> Error {
    for Loss { queue, name, found, acknowledged } in losses.iter().take(NAMED_MAX) {
        tracing::error!(
            queue = name.as_deref(),
            id = %queue,
            first_lost = found.next().get(),
            last_lost = acknowledged.get(),
            "the database has lost acknowledged events"
        );
    }
    Error::RolledBack {
        found: format!(
            "events of {} queues and {versions} changes of the list of queues, as after a failover to a replica that lags",
            losses.len()
        ),
    }
}
