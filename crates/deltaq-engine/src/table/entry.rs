//! One key of a queue.

use std::num::NonZero;

use crate::delta::{Delta, DeltaKind, Deltas};
use crate::id::{Rv, Source};
use crate::key::Key;
use crate::known::Known;
use crate::limits::KEY_BYTES;
use crate::mode::ModeRules;
use crate::object::Object;
use crate::schedule::{EventId, Lease, Place, ReadyPosition, ScheduleState};
use crate::time::Time;

/// One key and everything that the queue holds for it. A queue may have millions of entries, so the parts that many
/// keys lack are boxed.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Key,
    /// Deltas that are not leased.
    pub waiting: Deltas,
    /// Deltas that a worker holds. Invariant: empty unless the key is leased.
    pub leased: Deltas,
    /// The last acknowledged object.
    pub known: Option<Box<Known>>,
    /// The schedule's state of the key.
    pub schedule_state: ScheduleState,
    /// The number of the delta of the initial list that is not acknowledged yet, if the key has one.
    pub initial_pending: Option<NonZero<u64>>,
    /// The newest event of the key.
    pub changed: Rv,
    /// The newest event that changed the key's newest object or its absence: its version in the view `latest`.
    pub latest_rv: Rv,
}

impl Entry {
    pub(super) fn new(key: Key) -> Self {
        Self {
            key,
            waiting: Deltas::default(),
            leased: Deltas::default(),
            known: None,
            schedule_state: ScheduleState::default(),
            initial_pending: None,
            changed: Rv::ZERO,
            latest_rv: Rv::ZERO,
        }
    }

    /// The position of a ready key.
    pub(crate) fn ready_position(&self) -> ReadyPosition {
        match self.schedule_state.place {
            Place::Ready(position) => position,
            ref other => panic!("key {} is not ready: its place is {other:?}", self.key),
        }
    }

    /// When a ready key arrived: when it became ready or, in mode events, when its oldest delta was queued.
    pub(crate) fn arrival(&self, rules: ModeRules) -> Time {
        let oldest = self.waiting.oldest().filter(|_| rules.leases_oldest_delta);
        oldest.map_or_else(|| self.ready_position().since, |delta| delta.queued_at)
    }

    /// The known object of a known key.
    pub(crate) fn known_object(&self) -> &Object {
        let Some(known) = &self.known else { panic!("key {} has no known object", self.key) };
        &known.object
    }

    /// The lease of a leased key.
    pub(crate) fn lease(&self) -> &Lease {
        match &self.schedule_state.place {
            Place::Leased(lease) => lease,
            other => panic!("key {} has no lease: its place is {other:?}", self.key),
        }
    }

    /// The oldest delta that is not acknowledged.
    pub(crate) fn oldest_delta(&self) -> Option<&Delta> {
        self.leased.oldest().or_else(|| self.waiting.oldest())
    }

    /// Size in bytes of the objects in the next lease.
    pub(crate) fn next_bytes(&self, rules: ModeRules) -> usize {
        if rules.leases_oldest_delta {
            self.waiting.oldest().map_or(0, |delta| delta.object.bytes())
        } else {
            self.waiting.bytes()
        }
    }

    /// The position that the key gets in the ready queue if the event `id` makes it ready.
    pub(crate) fn position(&self, rules: ModeRules, id: EventId) -> EventId {
        let oldest = self.waiting.oldest().filter(|_| rules.leases_oldest_delta);
        EventId { rv: oldest.map_or(id.rv, |delta| delta.rv), ..id }
    }

    /// The newest event whose delta the live lease covers.
    pub(crate) fn lease_covers(&self, rules: ModeRules) -> Option<Rv> {
        let lease = self.schedule_state.lease()?;
        let leased = self.leased.newest().filter(|_| rules.leases_oldest_delta);
        Some(leased.map_or(lease.token.rv(), |delta| delta.rv))
    }

    /// Mode events: when the oldest waiting delta is due, if that is after `now`.
    pub(crate) fn next_due(&self, rules: ModeRules, now: Time) -> Option<Time> {
        let oldest = self.waiting.oldest().filter(|_| rules.leases_oldest_delta)?;
        oldest.provenance.due().filter(|due| *due > now)
    }

    /// The owner of the key's newest state: waiting, else leased, else known.
    #[must_use]
    pub fn owner(&self) -> Option<&Source> {
        match self.waiting.newest().or_else(|| self.leased.newest()) {
            Some(delta) => delta.provenance.owner(),
            None => self.known.as_ref().and_then(|known| known.owner.as_ref()),
        }
    }

    /// Whether the key's newest state is a deletion.
    pub(crate) fn is_deleted(&self) -> bool {
        let newest = self.waiting.newest().or_else(|| self.leased.newest());
        newest.is_some_and(|delta| delta.kind == DeltaKind::Deleted)
    }

    /// Whether the key's newest waiting delta is a deletion.
    pub(crate) fn waits_as_deleted(&self) -> bool {
        self.waiting.newest().is_some_and(|delta| delta.kind == DeltaKind::Deleted)
    }

    /// The newest object of the key: waiting, else leased, else known.
    pub(crate) fn newest_object(&self) -> Option<&Object> {
        match self.waiting.newest().or_else(|| self.leased.newest()) {
            Some(delta) => Some(&delta.object),
            None => self.known.as_ref().map(|known| &known.object),
        }
    }

    /// Bytes that the entry takes in memory. A text counts wherever it is, because texts that are shared now may be separate
    /// after a restart.
    pub(crate) fn held_bytes(&self) -> usize {
        key_bytes(&self.key) + self.content_bytes()
    }

    /// Bytes that the deltas, the known object, the last error and the names of the lease take in memory.
    pub(crate) fn content_bytes(&self) -> usize {
        let known = self.known.as_ref().map_or(0, |known| known.held_bytes());
        self.waiting.held_bytes() + self.leased.held_bytes() + known + self.schedule_state.text_bytes()
    }

    /// Whether the queue holds anything for the key other than a failure count.
    pub(crate) fn is_held(&self) -> bool {
        self.has_state() || self.schedule_state.has_work()
    }

    /// Whether the key has waiting or leased deltas or a known object.
    pub(crate) fn has_state(&self) -> bool {
        !self.waiting.is_empty() || !self.leased.is_empty() || self.known.is_some()
    }
}

/// Bytes that a key takes in memory without its [content](Entry::content_bytes).
pub(crate) fn key_bytes(key: &Key) -> usize {
    KEY_BYTES + key.as_str().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_the_table_is_small() {
        assert_eq!(size_of::<Option<Entry>>(), 120);
    }
}
