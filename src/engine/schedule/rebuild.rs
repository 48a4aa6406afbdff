//! A schedule made from the standings of all keys, for recovery.

use super::{Delay, Place, Rv, Schedule, Slot, Standing};
use crate::engine::key::Key;
use crate::engine::time::Time;

/// Takes standings in any order. Sorting each index once at the end takes a fraction of what it takes
/// to insert millions of keys one after the other.
#[derive(Debug, Default)]
pub(in crate::engine) struct Rebuild {
    ready: Vec<(Rv, Slot)>,
    delayed: Vec<(Time, Rv, Slot)>,
    leases: Vec<(Time, Rv, Slot)>,
    tokens: Vec<(Rv, Slot)>,
    leased_since_us: u128,
    parked: Vec<(Key, Slot)>,
    memories: Vec<(Time, Rv, Slot)>,
    idle_delayed: usize,
    leased_with_news: usize,
}

impl Rebuild {
    /// Notes where a key stands.
    pub(in crate::engine) fn add(&mut self, slot: Slot, key: &Key, standing: &Standing) {
        match &standing.place {
            Place::Idle => {}
            Place::Ready(turn) => self.ready.push((turn.rv, slot)),
            Place::Leased(lease) => {
                self.leases.push((lease.deadline, lease.token, slot));
                self.tokens.push((lease.token, slot));
                self.leased_since_us += u128::from(lease.since.as_micros());
                self.leased_with_news += usize::from(lease.news.is_some());
            }
            Place::Parked => self.parked.push((key.clone(), slot)),
        }
        if let Some(Delay { due, rv }) = standing.delay() {
            self.delayed.push((due, rv, slot));
        }
        if let Some((at, rv)) = standing.memory() {
            self.memories.push((at, rv, slot));
        }
        self.idle_delayed += usize::from(standing.is_delayed());
    }

    /// The schedule of all keys that were noted.
    pub(in crate::engine) fn finish(self) -> Schedule {
        Schedule {
            ready: self.ready.into_iter().collect(),
            delayed: self.delayed.into_iter().collect(),
            leases: self.leases.into_iter().collect(),
            tokens: self.tokens.into_iter().collect(),
            leased_since_us: self.leased_since_us,
            parked: self.parked.into_iter().collect(),
            memories: self.memories.into_iter().collect(),
            idle_delayed: self.idle_delayed,
            leased_with_news: self.leased_with_news,
            adds: 0,
        }
    }
}
