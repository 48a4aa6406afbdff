//! The workers of a queue: those with leases, and those that wait for keys.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use deltaq_engine::id::{Token, Worker};
use deltaq_engine::time::Time;

use super::lists::ListPage;
use crate::Error;
use crate::queue::{Handle, Locked, PART_KEYS, RecentLeases};

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
    /// The leases of the worker that have ended lately.
    pub recent: RecentLeases,
}

/// Collects the workers with the smallest names after a given name, while leases and waiting pops are visited. Pops
/// without a name count as one worker, whose name is empty.
#[derive(Debug)]
struct Workers {
    after: Option<String>,
    /// Maximum number of workers.
    limit: usize,
    by_name: BTreeMap<String, WorkerState>,
    /// The last lease that was visited.
    lease: Token,
    /// Whether all leases were visited.
    is_at_pops: bool,
    /// The position of the last pop that was visited.
    pop: u64,
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

    /// Visits the next leases, and after the last lease the next waiting pops. Breaks if there are no further pops.
    fn visit(&mut self, state: &Locked) -> ControlFlow<()> {
        if self.is_at_pops {
            return if self.visit_pops(state) < PART_KEYS {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            };
        }
        self.is_at_pops = self.visit_leases(state) < PART_KEYS;
        ControlFlow::Continue(())
    }

    /// Visits the next leases, and returns their number.
    fn visit_leases(&mut self, state: &Locked) -> usize {
        let mut visited = 0;
        for (token, slot) in state.queue.schedule().leased_behind(self.lease).take(PART_KEYS) {
            let lease = state.queue.table().at(slot).and_then(|entry| entry.schedule_state.lease());
            if let Some((lease, worker)) =
                lease.and_then(|lease| Some((lease, self.state(lease.worker.as_ref())?)))
            {
                worker.leased += 1;
                set_earlier(&mut worker.oldest_lease, lease.since);
                set_earlier(&mut worker.next_expiry, lease.deadline);
            }
            self.lease = token;
            visited += 1;
        }
        visited
    }

    /// Visits the next waiting pops, and returns their number.
    fn visit_pops(&mut self, state: &Locked) -> usize {
        let mut visited = 0;
        for (position, waiter) in state.waiters.after(self.pop).take(PART_KEYS) {
            if let Some(worker) = self.state(waiter.pop.worker.as_ref()) {
                worker.waiting += 1;
                set_earlier(&mut worker.waiting_since, waiter.since);
            }
            self.pop = position;
            visited += 1;
        }
        visited
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
        let start = || Workers {
            after: after.clone(),
            limit: limit.saturating_add(1),
            by_name: BTreeMap::new(),
            lease: Token::default(),
            is_at_pops: false,
            pop: 0,
        };
        let (workers, ()) = self.read_in_parts(start, Workers::visit).await?;
        let mut entries: Vec<_> = workers.by_name.into_iter().collect();
        let has_more = entries.len() > limit;
        entries.truncate(limit);
        let at = Duration::from_micros(self.clock().monotonic_us());
        for (name, state) in &mut entries {
            state.recent = self.worker_counts.of(name, at);
        }
        let next = entries.last().filter(|_| has_more).map(|(name, _)| name.clone());
        let (resource_version, moment) =
            self.read(|queue, moment| (queue.resource_version(), moment)).await?;
        Ok(ListPage { entries, next, resource_version, moment })
    }

    /// The age from which a lease of this queue is old.
    ///
    /// # Errors
    /// The same errors as reads.
    pub async fn slow_after(&self) -> Result<Duration, Error> {
        self.read_state(|state, _| state.work_times.slow_after(state.queue.config().lease)).await
    }
}
