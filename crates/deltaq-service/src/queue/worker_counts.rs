//! How many leases of each worker have ended lately, and how.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use deltaq_engine::effects::{LeaseEnd, Work};
use deltaq_engine::id::Worker;
use parking_lot::Mutex;

/// A lease counts if it ended in this minute or in the nine minutes before it.
const MINUTES: u64 = 10;
/// Maximum number of workers of a queue. Beyond it, the worker whose last lease ended first is dropped.
const WORKERS_MAX: usize = 256;

/// How many leases of a worker have ended in the last ten minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecentLeases {
    /// Leases that ended with an ack or a done.
    pub acked: u64,
    /// Leases that ended with a nack or a reject, or that expired.
    pub failed: u64,
}

/// The counts of the workers of a queue.
#[derive(Debug, Default)]
pub(crate) struct WorkerCounts(Mutex<ByWorker>);

#[derive(Debug, Default)]
struct ByWorker {
    named: HashMap<Worker, Minutes>,
    /// The leases of pops without the name of a worker.
    unnamed: Minutes,
}

/// The counts of a worker in each minute, oldest first. Invariant: the minutes ascend, and are less than [`MINUTES`] apart.
#[derive(Debug, Default)]
struct Minutes(VecDeque<(u64, RecentLeases)>);

impl WorkerCounts {
    /// Counts ended leases. `at` is the time since the process started.
    pub(crate) fn note(&self, at: Duration, works: &[Work]) {
        let minute = minute_of(at);
        let mut workers = self.0.lock();
        for Work { worker, end, .. } in works {
            if let Some(end) = end {
                workers.of(worker.as_ref()).note(minute, *end);
            }
        }
    }

    /// The counts of a worker; an empty name is that of pops without a name.
    pub(crate) fn of(&self, worker: &str, at: Duration) -> RecentLeases {
        let workers = self.0.lock();
        let minutes = if worker.is_empty() { Some(&workers.unnamed) } else { workers.named.get(worker) };
        minutes.map(|minutes| minutes.sum(minute_of(at))).unwrap_or_default()
    }

    /// Drops workers without a lease that has ended lately.
    pub(crate) fn drop_old(&self, at: Duration) {
        let minute = minute_of(at);
        let named = &mut self.0.lock().named;
        named.retain(|_, minutes| minutes.last() + MINUTES > minute);
        if named.is_empty() {
            *named = HashMap::new();
        }
    }
}

impl ByWorker {
    fn of(&mut self, worker: Option<&Worker>) -> &mut Minutes {
        let Some(worker) = worker else { return &mut self.unnamed };
        if self.named.len() == WORKERS_MAX && !self.named.contains_key(worker) {
            let first = self.named.iter().min_by_key(|(_, minutes)| minutes.last());
            if let Some(first) = first.map(|(worker, _)| worker.clone()) {
                self.named.remove(&first);
            }
        }
        self.named.entry(worker.clone()).or_default()
    }
}

impl Minutes {
    fn last(&self) -> u64 {
        self.0.back().map_or(0, |(minute, _)| *minute)
    }

    fn note(&mut self, minute: u64, end: LeaseEnd) {
        if self.0.back().is_none_or(|(last, _)| *last < minute) {
            while self.0.front().is_some_and(|(first, _)| first + MINUTES <= minute) {
                self.0.pop_front();
            }
            self.0.push_back((minute, RecentLeases::default()));
        }
        if let Some((_, leases)) = self.0.back_mut() {
            match end {
                LeaseEnd::Acked => leases.acked += 1,
                LeaseEnd::Failed => leases.failed += 1,
            }
        }
    }

    fn sum(&self, minute: u64) -> RecentLeases {
        let recent = self.0.iter().filter(|(of, _)| of + MINUTES > minute);
        recent.fold(RecentLeases::default(), |sum, (_, leases)| RecentLeases {
            acked: sum.acked + leases.acked,
            failed: sum.failed + leases.failed,
        })
    }
}

fn minute_of(at: Duration) -> u64 {
    at.as_secs() / 60
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn note(counts: &WorkerCounts, minute: u32, worker: &str, end: LeaseEnd) {
        let worker = Some(worker).filter(|name| !name.is_empty()).map(Worker::from);
        counts.note(minute * MINUTE, &[Work { lasted: Duration::ZERO, worker, end: Some(end) }]);
    }

    fn found(counts: &WorkerCounts, minute: u32, worker: &str) -> (u64, u64) {
        let leases = counts.of(worker, minute * MINUTE);
        (leases.acked, leases.failed)
    }

    #[test]
    fn the_leases_of_the_last_ten_minutes_count() {
        let counts = WorkerCounts::default();
        for (minute, end) in [
            (0, LeaseEnd::Acked),
            (0, LeaseEnd::Acked),
            (3, LeaseEnd::Acked),
            (3, LeaseEnd::Failed),
            (9, LeaseEnd::Acked),
        ] {
            note(&counts, minute, "a", end);
        }
        let at = |minute| found(&counts, minute, "a");
        assert_eq!(
            [at(9), at(10), at(12), at(13), at(18), at(19)],
            [(4, 1), (2, 1), (2, 1), (1, 0), (1, 0), (0, 0)]
        );
        note(&counts, 100, "a", LeaseEnd::Failed);
        assert_eq!(found(&counts, 100, "a"), (0, 1));
        assert_eq!(found(&counts, 100, "b"), (0, 0));
        note(&counts, 100, "", LeaseEnd::Acked);
        assert_eq!(found(&counts, 100, ""), (1, 0));
    }

    #[test]
    fn the_number_of_workers_is_limited() {
        let counts = WorkerCounts::default();
        note(&counts, 5, "old", LeaseEnd::Acked);
        note(&counts, 4, "older", LeaseEnd::Acked);
        for number in 2..=WORKERS_MAX {
            note(&counts, 6, &format!("w{number}"), LeaseEnd::Acked);
        }
        assert_eq!([found(&counts, 6, "older"), found(&counts, 6, "old")], [(0, 0), (1, 0)]);
        assert_eq!(counts.0.lock().named.len(), WORKERS_MAX);
        counts.drop_old(15 * MINUTE);
        assert_eq!(counts.0.lock().named.len(), WORKERS_MAX - 1);
        counts.drop_old(16 * MINUTE);
        assert_eq!(counts.0.lock().named.capacity(), 0);
    }
}
