//! The writes that were acknowledged, to detect their loss.
//!
//! A failover to a lagging replica loses acknowledged commits. Nothing else reveals the loss, because the remaining
//! rows are consistent. The loss may consist of checkpoints alone. A writer that continued after that would write only later
//! changes of the keys, and remove the journal from which the lost rows can be restored. These records exist only in memory, so a
//! loss is detected only while the process runs.

use std::collections::HashMap;

use deltaq_engine::id::Rv;
use sqlx::Row as _;
use sqlx::postgres::{PgConnection, PgRow};

use super::connect::{simple, simple_rows};
use super::error::database;
use super::{rows, sql};
use crate::store::{Error, JournalRow, QueueId, QueueRow, Writes};

/// Maximum number of queues that an error names.
const NAMED_MAX: usize = 20;

/// The newest writes that this process has acknowledged.
#[derive(Debug, Default)]
pub(super) struct Acknowledged {
    queues: HashMap<QueueId, Reached>,
    /// The largest version of a queue.
    version: u64,
}

/// How far the rows of a queue reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reached {
    /// The last event.
    event: Rv,
    /// The event of the checkpoint.
    checkpoint: Rv,
}

/// What a write will acknowledge.
#[derive(Debug)]
pub(super) struct Pending {
    reached: Vec<(QueueId, Reached)>,
    forgotten: Vec<QueueId>,
    version: u64,
}

impl Pending {
    /// The events that `writes` acknowledge once they are committed.
    pub(super) fn of(writes: &Writes) -> Self {
        let event = |row: &JournalRow| (row.queue, Reached { event: row.last_rv, ..Reached::default() });
        let checkpoint = |row: &QueueRow| (row.id, Reached { event: row.rv, checkpoint: row.rv });
        let reached = writes.journal.iter().map(event).chain(writes.queues.iter().map(checkpoint));
        let version = writes.queues.iter().map(|row| row.version).max().unwrap_or_default();
        Self { reached: reached.collect(), forgotten: writes.forgotten.clone(), version }
    }
}

/// A queue that lacks acknowledged writes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Loss {
    queue: QueueId,
    /// The name, if the queue still exists.
    name: Option<String>,
    /// What the database has.
    found: Reached,
    acknowledged: Reached,
}

impl Reached {
    /// The larger number of each kind.
    fn max(self, other: Self) -> Self {
        Self { event: self.event.max(other.event), checkpoint: self.checkpoint.max(other.checkpoint) }
    }
}

impl Acknowledged {
    /// Records a write that has succeeded.
    pub(super) fn record(&mut self, pending: Pending) {
        for (queue, reached) in pending.reached {
            let last = self.queues.entry(queue).or_default();
            *last = reached.max(*last);
        }
        for queue in pending.forgotten {
            self.queues.remove(&queue);
        }
        self.version = self.version.max(pending.version);
    }

    /// Fails if acknowledged writes are missing from the database, and logs their queues.
    pub(super) async fn check(&self, connection: &mut PgConnection, partition: i16) -> Result<(), Error> {
        let doing = "look for acknowledged writes";
        let failed = |error| database(doing, error);
        let queues: Vec<_> = self.queues.keys().map(QueueId::to_string).collect();
        let found = simple_rows(connection, doing, sql::reached(partition, &queues)).await?;
        let read = |row: &PgRow| {
            let found = Reached { event: rows::rv(row, 1)?, checkpoint: rows::rv(row, 2)? };
            Ok((rows::queue(row, 0)?, found, row.try_get::<Option<Vec<u8>>, _>(3)?))
        };
        let found: Vec<_> = found.iter().map(read).collect::<Result<_, _>>().map_err(failed)?;
        let mut losses = Vec::new();
        for (queue, found, name) in found {
            let acknowledged = self.queues.get(&queue).copied().unwrap_or_default();
            if found != found.max(acknowledged) {
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

/// Logs each queue that has lost acknowledged writes. `versions` is the number of lost changes to the list of queues.
fn report(losses: &[Loss], versions: u64) -> Error {
    for Loss { queue, name, found, acknowledged } in losses.iter().take(NAMED_MAX) {
        tracing::error!(
            queue = name.as_deref(),
            id = %queue,
            lost_events = found.event < acknowledged.event,
            last_event = found.event.get(),
            last_acknowledged = acknowledged.event.get(),
            "the database has lost acknowledged writes"
        );
    }
    Error::RolledBack {
        found: format!(
            "writes of {} queues and {versions} changes of the list of queues, as after a failover to a replica that lags",
            losses.len()
        ),
    }
}
