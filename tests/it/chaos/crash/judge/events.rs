//! A key of mode events: each accepted call is a delta of its own, and a lease has only the oldest one. So no delta may be missing, also no
//! deletion, and none may be delivered before an older one is acknowledged.

use super::super::history::{Delta, Effect, Rv, Us};
use super::super::queues::Mode;
use super::keys::{KeyRecord, PendingWrite};
use super::numbers::Bounds;
use super::{Findings, Rule};

impl KeyRecord {
    /// Records a deletion, which has a delta of its own. `bounds` are those of its call, unless that has no reply or is a Replace.
    pub(super) fn note_deletion(&mut self, effect: Effect, bounds: Option<Bounds>, start: Us) {
        match (effect, bounds.filter(|_| self.mode == Mode::Events)) {
            (Effect::Delete { value: Some(value) }, Some(bounds)) => {
                self.pending.push(PendingWrite { value, bounds, start });
            }
            (Effect::Delete { value: None }, Some(bounds)) => self.deletes_by_key.push(bounds),
            _ => {}
        }
    }

    /// Reads the delta of a lease. All older deltas of the key are acknowledged, so all older writes were read.
    pub(super) fn read_event(&mut self, at: Rv, shown: &[Delta], found: &mut Findings) {
        let [delta] = shown else {
            found.add(Rule::Order, format!("a lease has {shown:?}, and not one delta"));
            return;
        };
        if delta.rv > at {
            found.add(Rule::Order, format!("{delta:?} was leased at {at}"));
        }
        if let Some(oldest) = self.base.first().filter(|oldest| oldest.rv < delta.rv) {
            found.add(Rule::Order, format!("{delta:?} is delivered before {oldest:?}"));
        }
        self.note_seen(shown);
        let new = self.not_in_base(shown);
        self.check_new(&new, found);
        if !new.is_empty() {
            self.base.insert(0, delta.clone());
            self.base.sort_by_key(|delta| delta.rv);
        }
        self.complete = self.complete.max(delta.rv);
        self.check_pending(delta.rv, shown, found);
    }

    /// Checks that all deltas that are not acknowledged are in the state of the queue.
    pub(super) fn check_each(&self, shown: &[Delta], found: &mut Findings) {
        for old in self.base.iter().filter(|old| !shown.iter().any(|delta| delta.rv == old.rv)) {
            found.add(Rule::LostDelta, format!("{old:?} is not acked and missing in {shown:?}"));
        }
    }

    /// Checks that each Delete by key had a tombstone of its own, after all deltas of the epoch were read.
    pub(super) fn check_deletes_by_key(&mut self, found: &mut Findings) {
        let mut deletes = std::mem::take(&mut self.deletes_by_key);
        deletes.sort_by_key(|bounds| bounds.until);
        for bounds in deletes {
            let tombstone = self.tombstones.range(bounds.after + 1..).next().copied();
            match tombstone.filter(|rv| *rv <= bounds.until) {
                Some(rv) => drop(self.tombstones.remove(&rv)),
                None => found.add(Rule::LostWrite, format!("a Delete by key has no tombstone in {bounds:?}")),
            }
        }
    }
}
