//! One key: the deltas that must be delivered, in order, until they are acknowledged.
//!
//! The judge reads leases and states in the order of their numbers. Each contains all deltas that the key has at that number.
//! So deltas that are not acknowledged must be in the next one too, before newer deltas. Of two adjacent deletions either may
//! remain. In mode latest a newer delta replaces all older deltas. In mode events a lease has only the oldest delta, see `events`.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::super::history::{Call, Delta, Effect, Key, KnownValue, Operation, Rv, Snapshot, Us};
use super::super::queues::Mode;
use super::leases::{LeaseEnd, LeaseRecord, Leases};
use super::numbers::{Bounds, Numbers};
use super::states::Candidate;
use super::{Findings, Rule, Touch};

/// An expected known object: its value, and a bound of its version. The version is the number of the ack, which no reply has
/// before the object is listed; the ack is newer than the acknowledged deltas.
#[derive(Clone, Copy, Debug)]
struct Expected {
    value: u64,
    rv: Rv,
    is_exact: bool,
}

impl Expected {
    fn fits(self, value: u64, rv: Rv) -> bool {
        value == self.value && if self.is_exact { rv == self.rv } else { rv >= self.rv }
    }
}

/// The knowledge about a key.
#[derive(Debug)]
pub(super) struct KeyRecord {
    pub(super) mode: Mode,
    /// The unacknowledged deltas that were read.
    pub(super) base: Vec<Delta>,
    /// Leases and states were read up to this number.
    horizon: Rv,
    /// Up to this number, `base` is complete.
    pub(super) complete: Rv,
    /// The last lease, until its end is known.
    holder: Option<String>,
    /// The number of deliveries since the last acknowledgement, from the last lease.
    attempt: u64,
    /// Whether `base` was leased.
    was_leased: bool,
    /// The possible known objects.
    known: Vec<Option<Expected>>,
    /// The newest acknowledged delta.
    acked: Rv,
    /// The writes of this epoch that have a reply and were not read yet.
    pub(super) pending: Vec<PendingWrite>,
    /// Mode events: the Deletes by key of this epoch that have a reply, and the tombstones that were read.
    pub(super) deletes_by_key: Vec<Bounds>,
    pub(super) tombstones: BTreeSet<Rv>,
    /// The values that were read in this epoch.
    seen_values: HashSet<u64>,
    /// The deltas that were read in this epoch, and the last delta before it; each with whether it is a deletion.
    pub(super) seen: BTreeMap<Rv, bool>,
    /// The ends of the deletions of this epoch.
    deletions: Vec<Us>,
    /// The calls that may have left the key in its newest state.
    pub(super) candidates: Vec<Candidate>,
}

/// An object of a call with a 2xx reply.
#[derive(Debug)]
pub(super) struct PendingWrite {
    pub(super) value: u64,
    pub(super) bounds: Bounds,
    pub(super) start: Us,
}

impl KeyRecord {
    pub(super) fn new(mode: Mode) -> Self {
        Self {
            mode,
            base: Vec::new(),
            horizon: 0,
            complete: 0,
            holder: None,
            attempt: 0,
            was_leased: false,
            known: vec![None],
            acked: 0,
            pending: Vec::new(),
            deletes_by_key: Vec::new(),
            tombstones: BTreeSet::new(),
            seen_values: HashSet::new(),
            seen: BTreeMap::new(),
            deletions: Vec::new(),
            candidates: vec![Candidate::settled(None, 0)],
        }
    }

    /// Begins an epoch: records the writes of the calls that touch the key.
    pub(super) fn begin(&mut self, name: &Key, touches: &[Touch], calls: &[&Call], numbers: &Numbers) {
        for touch in touches {
            let Operation::Produce { changes, is_replace } = &calls[touch.call].operation else { continue };
            let own = changes.iter().filter(|change| change.key == *name);
            let bounds = numbers.bounds(touch.call).filter(|_| touch.is_sure);
            // A Replace skips a key that another call produces meanwhile.
            let is_skipped = *is_replace && touches.iter().any(|other| other.overlaps(touch));
            for change in own {
                self.note_deletion(change.effect, bounds.filter(|_| !is_replace), touch.start);
                match (change.effect, bounds) {
                    (Effect::Delete { .. }, _) => self.deletions.push(touch.end),
                    (Effect::Put { value, may_be_unchanged: false, .. }, Some(bounds)) if !is_skipped => {
                        self.pending.push(PendingWrite { value, bounds, start: touch.start });
                    }
                    _ => {}
                }
            }
        }
    }

    /// Reads a lease of a reply.
    pub(super) fn read_lease(&mut self, id: &str, leases: &Leases, found: &mut Findings) {
        let Some(held) = leases.get(id) else { return };
        if held.token < self.horizon {
            self.read_late_lease(id, held, found);
            return;
        }
        let shown = &held.deltas;
        let is_kept = self.settle_holder(leases, shown, false);
        if is_kept && held.attempt <= self.attempt {
            found.add(Rule::LostLease, format!("attempt {} after {}", held.attempt, self.attempt));
        }
        let at = held.token - 1;
        if self.mode == Mode::Events {
            self.read_event(at, shown, found);
        } else {
            self.read_deltas(at, shown, found);
            self.check_pending(at, shown, found);
            self.complete = held.token;
        }
        if let Some(KnownValue(known)) = held.known
            && !self.known.iter().any(|expected| expected.map(|expected| expected.value) == known)
        {
            found.add(Rule::WrongKnown, format!("{id} shows {known:?}, not {:?}", self.known));
        }
        self.take_over(id, held);
        self.horizon = held.token;
    }

    /// Reads the key in the state of the queue.
    pub(super) fn read_snapshot(
        &mut self,
        name: &Key,
        snapshot: &Snapshot,
        leases: &Leases,
        found: &mut Findings,
    ) {
        let item = snapshot.items.get(name);
        let shown = item.map_or(&[][..], |item| &item.deltas);
        let token = self.holder.as_ref().and_then(|id| leases.get(id)).map(|held| held.token);
        let is_still_leased = token.is_some() && token == item.and_then(|item| item.token);
        self.settle_holder(leases, shown, is_still_leased);
        self.read_deltas(snapshot.rv, shown, found);
        // Every write with a reply is due, even if the numbers have decreased.
        self.check_pending(Rv::MAX, shown, found);
        self.check_deletes_by_key(found);
        if !is_still_leased {
            self.holder = None;
        }
        let known = snapshot.known.get(name).copied();
        let fits = |expected: &Option<Expected>| match (expected, known) {
            (Some(expected), Some((value, rv))) => expected.fits(value, rv),
            (expected, known) => expected.is_none() && known.is_none(),
        };
        if !self.known.iter().any(fits) {
            found.add(Rule::WrongKnown, format!("known is {known:?}, not {:?}", self.known));
        }
        self.known = vec![known.map(|(value, rv)| Expected { value, rv, is_exact: true })];
        self.horizon = snapshot.rv;
        self.complete = snapshot.rv;
    }

    /// The state after the newest delta; without a delta, the known object.
    pub(super) fn newest_state(&self) -> Option<u64> {
        let known = || self.known.first().copied().flatten().map(|expected| expected.value);
        self.base.last().map_or_else(known, Delta::state)
    }

    /// Ends the epoch. No call of it is still running.
    pub(super) fn end(&mut self) {
        let last = self.seen.pop_last();
        self.seen.clear();
        self.seen.extend(last);
        self.seen_values.clear();
        self.deletions.clear();
        self.pending.clear();
        self.tombstones.clear();
    }

    /// Reads a lease whose first reply was lost, and which a repeated pop has returned after the state was read. It must have
    /// the deltas of that state.
    fn read_late_lease(&mut self, id: &str, held: &LeaseRecord, found: &mut Findings) {
        let most = if self.mode == Mode::Events { 1 } else { usize::MAX };
        let before: Vec<Delta> =
            self.base.iter().filter(|delta| delta.rv < held.token).take(most).cloned().collect();
        if before != held.deltas {
            found.add(Rule::LostDelta, format!("{id} has {:?}, the list had {before:?}", held.deltas));
        }
        self.take_over(id, held);
    }

    fn take_over(&mut self, id: &str, held: &LeaseRecord) {
        self.holder = Some(id.to_owned());
        self.attempt = held.attempt;
        self.was_leased = true;
    }

    /// Finds out how the last lease has ended; `shown` are its present deltas. Returns whether its deltas must have been
    /// returned.
    fn settle_holder(&mut self, leases: &Leases, shown: &[Delta], is_still_leased: bool) -> bool {
        let Some(held) = self.holder.as_ref().and_then(|id| leases.get(id)) else { return false };
        let end_of = self.holder.as_ref().map_or(LeaseEnd::Kept, |id| leases.end_of(id));
        let are_returned = shown.iter().any(|delta| held.deltas.iter().any(|other| other.rv == delta.rv));
        match end_of {
            LeaseEnd::Kept => return true,
            LeaseEnd::Doubtful if is_still_leased => return false,
            LeaseEnd::Doubtful if are_returned => return false,
            LeaseEnd::Doubtful if self.may_hide(held, shown) => {
                // Whether the ack took effect is unknown, and matters only for the known object.
                self.known.push(acknowledged(held));
                self.was_leased = false;
            }
            LeaseEnd::Acked | LeaseEnd::Doubtful => {
                self.known = vec![acknowledged(held)];
                self.acked = held.deltas.last().map_or(self.acked, |newest| newest.rv);
                self.was_leased = false;
            }
        }
        let newest = held.deltas.iter().map(|delta| delta.rv).max().unwrap_or(held.token);
        self.base.retain(|delta| delta.rv > newest);
        self.holder = None;
        false
    }

    /// Whether the deltas of a lease may have been returned and then replaced by newer deltas.
    fn may_hide(&self, held: &LeaseRecord, shown: &[Delta]) -> bool {
        let only_deleted = held.deltas.iter().all(Delta::is_deleted);
        match shown.first() {
            Some(first) => match self.mode {
                Mode::Delta => only_deleted && first.is_deleted(),
                Mode::Latest => true,
                Mode::Events => false,
            },
            None => false,
        }
    }

    /// Reads all deltas that the key has at `at`.
    fn read_deltas(&mut self, at: Rv, shown: &[Delta], found: &mut Findings) {
        if !shown.is_sorted_by(|one, two| one.rv < two.rv) || shown.last().is_some_and(|last| last.rv > at) {
            found.add(Rule::Order, format!("at {at} the deltas are {shown:?}"));
        }
        self.note_seen(shown);
        let is_new = match self.mode {
            Mode::Delta => self.check_all(shown, found),
            Mode::Latest => {
                self.check_newest(shown, found);
                self.not_in_base(shown)
            }
            Mode::Events => {
                self.check_each(shown, found);
                self.not_in_base(shown)
            }
        };
        self.check_new(&is_new, found);
        self.base = shown.to_vec();
    }

    pub(super) fn note_seen(&mut self, shown: &[Delta]) {
        for delta in shown {
            self.seen_values.insert(delta.value);
            self.seen.insert(delta.rv, delta.is_deleted());
            if delta.tombstone {
                self.tombstones.insert(delta.rv);
            }
        }
    }

    pub(super) fn not_in_base<'a>(&self, shown: &'a [Delta]) -> Vec<&'a Delta> {
        shown.iter().filter(|delta| !self.base.iter().any(|old| old.rv == delta.rv)).collect()
    }

    /// Checks that each delta that is read for the first time is newer than all deltas that were read before.
    pub(super) fn check_new(&self, new: &[&Delta], found: &mut Findings) {
        for delta in new.iter().filter(|delta| delta.rv <= self.complete) {
            let rule = if delta.rv <= self.acked { Rule::LostAck } else { Rule::Order };
            let (acked, complete) = (self.acked, self.complete);
            found.add(rule, format!("{delta:?} is new although {acked} is acked and {complete} was read"));
        }
    }

    /// Checks that `shown` begins with `base`. Returns the deltas after it.
    fn check_all<'a>(&self, shown: &'a [Delta], found: &mut Findings) -> Vec<&'a Delta> {
        let mut rest = runs(shown);
        rest.reverse();
        for run in runs(&self.base) {
            let same = |next: &&&[Delta]| match (run, next) {
                ([one, ..], [other, ..]) if one.is_deleted() => other.is_deleted(),
                ([one, ..], [other, ..]) => one.rv == other.rv,
                _ => false,
            };
            if rest.last().as_ref().is_some_and(same) {
                rest.pop();
            } else {
                found.add(Rule::LostDelta, format!("{run:?} is not acked and missing in {shown:?}"));
            }
        }
        rest.into_iter().rev().flatten().collect()
    }

    /// Like [`check_all`](Self::check_all), in a queue that keeps only the newest delta.
    fn check_newest(&self, shown: &[Delta], found: &mut Findings) {
        let Some(old) = self.base.last() else { return };
        let is_there = match shown.last() {
            Some(new) => new.rv >= old.rv || (new.is_deleted() && old.is_deleted()) || self.is_gone(shown, 0),
            None => !self.was_leased && self.is_gone(shown, 0),
        };
        if !is_there {
            found.add(Rule::LostDelta, format!("{old:?} is not acked and missing in {shown:?}"));
        }
    }

    /// In a queue that keeps only the newest delta: whether a deletion after `start` explains `shown`. A deletion drops a key
    /// that was never leased; and of a returned older deletion and a newer one, the older stays.
    fn is_gone(&self, shown: &[Delta], start: Us) -> bool {
        shown.last().is_none_or(Delta::is_deleted) && self.deletions.iter().any(|until| *until > start)
    }

    /// Checks that every write that is due was read.
    pub(super) fn check_pending(&mut self, at: Rv, shown: &[Delta], found: &mut Findings) {
        let due: Vec<PendingWrite> =
            self.pending.extract_if(.., |pending| pending.bounds.until <= at).collect();
        for pending in due {
            let is_met = self.seen_values.contains(&pending.value);
            let newest = shown.last().map_or(0, |newest| newest.rv).max(self.acked);
            let is_past = newest > pending.bounds.after || self.is_gone(shown, pending.start);
            let is_past = self.mode == Mode::Latest && is_past;
            if !is_met && !is_past {
                found.add(Rule::LostWrite, format!("{pending:?} is missing in {shown:?} at {at}"));
            }
        }
    }
}

/// The known object after the deltas of a lease are acknowledged.
fn acknowledged(held: &LeaseRecord) -> Option<Expected> {
    let newest = held.deltas.last()?;
    newest.state().map(|value| Expected { value, rv: newest.rv, is_exact: false })
}

/// Splits deltas into single deltas and runs of adjacent deletions.
fn runs(deltas: &[Delta]) -> Vec<&[Delta]> {
    deltas.chunk_by(|one, two| one.is_deleted() && two.is_deleted()).collect()
}
