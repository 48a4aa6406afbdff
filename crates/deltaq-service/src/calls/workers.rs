//! The workers of a queue: those with leases, and those that wait for keys.

use std::collections::BTreeMap;

use deltaq_engine::id::{Token, Worker};
use deltaq_engine::time::Time;

use super::lists::ListPage;
use crate::Error;
use crate::queue::{Handle, Locked};

/// Maximum number of leases or waiting pops that are examined in one critical section.
const EXAMINED_MAX: usize = 5_000;

/// A worker of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerState {
    /// Number of leases that the worker holds.
    pub leased: usize,
    /// When the worker's oldest lease was created.
    pub oldest_lease: Option<Time>,
    /// When the first of the worker's leases expires.
    pub next_expiry: Option<Time>,
    /// Number of the worker's pops that wait for keys.
    pub waiting: usize,
    /// When the first of these pops arrived.
    pub waiting_since: Option<Time>,
}

/// Collects the workers with the smallest names after a given name, while leases and waiting pops are visited. Pops
/// without a name count as one worker, whose name is empty.
#[derive(Debug)]
struct Workers {
    after: Option<String>,
    /// Maximum number of workers.
    limit: usize,
    by_name: BTreeMap<String, WorkerState>,
}

impl Workers {
    /// The state of a worker; `None` if the worker is outside the wanted range. A worker that is left out stays out,
    /// because the largest wanted name only becomes smaller.
    fn state(&mut self, worker: Option<&Worker>) -> Option<&mut WorkerState> {
        let name = worker.map_or("", |worker| worker);
        if self.after.as_deref().is_some_and(|after| name <= after) {
            return None;
        }
        if !self.by_name.contains_key(name) {
            if self.by_name.len() == self.limit {
                let last = self.by_name.last_entry()?;
                if last.key().as_str() < name {
                    return None;
                }
                last.remove();
            }
            self.by_name.insert(name.to_owned(), WorkerState::default());
        }
        self.by_name.get_mut(name)
    }

    /// Visits leases after a token. Returns the last token, or `None` if there are no further leases.
    fn visit_leases(&mut self, state: &Locked, after: Token) -> Option<Token> {
        let mut examined = 0;
        for (token, slot) in state.queue.schedule().leased_behind(after) {
            let lease = state.queue.table().at(slot).and_then(|entry| entry.schedule_state.lease());
            if let Some((lease, worker)) =
                lease.and_then(|lease| Some((lease, self.state(lease.worker.as_ref())?)))
            {
                worker.leased += 1;
                set_earlier(&mut worker.oldest_lease, lease.since);
                set_earlier(&mut worker.next_expiry, lease.deadline);
            }
            examined += 1;
            if examined == EXAMINED_MAX {
                return Some(token);
            }
        }
        None
    }

    /// Visits waiting pops after a position. Returns the last position, or `None` if there are no further pops.
    fn visit_pops(&mut self, state: &Locked, after: u64) -> Option<u64> {
        let mut examined = 0;
        for (position, waiter) in state.waiters.after(after) {
            if let Some(worker) = self.state(waiter.pop.worker.as_ref()) {
                worker.waiting += 1;
                set_earlier(&mut worker.waiting_since, waiter.since);
            }
            examined += 1;
            if examined == EXAMINED_MAX {
                return Some(position);
            }
        }
        None
    }
}

/// Sets a time to `other` if the time is unset or later than `other`.
fn set_earlier(known: &mut Option<Time>, other: Time) {
    *known = Some(known.map_or(other, |known| known.min(other)));
}

impl Handle {
    /// The workers after the name `after`, by name. Pops without a worker name count under the empty name, which
    /// comes first.
    ///
    /// # Errors
    /// The same errors as reads.
    pub async fn workers(
        &self,
        after: Option<String>,
        limit: usize,
    ) -> Result<ListPage<(String, WorkerState), String>, Error> {
        let mut workers = Workers { after, limit: limit.saturating_add(1), by_name: BTreeMap::new() };
        let mut lease = Some(Token::default());
        while let Some(after) = lease {
            lease = self.read_state(|state, _| workers.visit_leases(state, after)).await?;
        }
        let mut pop = Some(0);
        while let Some(after) = pop {
            pop = self.read_state(|state, _| workers.visit_pops(state, after)).await?;
        }
        let mut entries: Vec<_> = workers.by_name.into_iter().collect();
        let has_more = entries.len() > limit;
        entries.truncate(limit);
        let next = entries.last().filter(|_| has_more).map(|(name, _)| name.clone());
        let (resource_version, moment) =
            self.read(|queue, moment| (queue.resource_version(), moment)).await?;
        Ok(ListPage { entries, next, resource_version, moment })
    }
}
