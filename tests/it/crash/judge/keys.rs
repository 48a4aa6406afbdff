//! One key: what must be delivered, once and in order, until it is acknowledged.
//!
//! Leases and looks are seen in the order of their numbers. Each shows all deltas that the key has then,
//! so what one shows and nobody acknowledges, the next must show again, with newer deltas behind. Two
//! deletions side by side may become one, whichever; in a queue that keeps the newest delta alone, a
//! newer one takes the place of all before.

use std::collections::{BTreeMap, HashSet};

use super::super::history::{Act, Call, Delta, Key, KnownValue, Look, Rv, Us, What};
use super::leases::{Held, LeaseEnd, Leases};
use super::numbers::{Bounds, Numbers};
use super::states::Candidate;
use super::{Findings, Rule, Touch};

/// An expected known object: its value, and its version as far as the judge can tell. The version is the number of the ack,
/// which no reply shows before the object is listed; the ack is newer than the acknowledged deltas.
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

/// What is known of a key.
#[derive(Debug)]
pub(super) struct KeyBook {
    pub(super) is_latest: bool,
    /// What the key has, as far as it was shown and nobody has acknowledged it.
    base: Vec<Delta>,
    /// Up to this number, `base` is all that there is.
    horizon: Rv,
    /// The last lease that was seen, until it is known how it has ended.
    holder: Option<String>,
    /// Deliveries since the last acknowledgement, as the last lease told.
    attempt: u64,
    /// Whether a worker has seen what `base` holds.
    was_leased: bool,
    /// What the known object may be.
    known: Vec<Option<Expected>>,
    /// The newest delta that is known to be acknowledged.
    acked: Rv,
    /// What was answered in this epoch and not shown yet.
    owed: Vec<Owed>,
    /// What was shown in this epoch.
    met: HashSet<u64>,
    /// All deltas that were shown in this epoch, the last one before it, and whether each is a deletion.
    pub(super) seen: BTreeMap<Rv, bool>,
    /// Until when deletions may have happened, in this epoch.
    deletions: Vec<Us>,
    /// Calls that may have left the key in its newest state.
    pub(super) candidates: Vec<Candidate>,
}

/// An object that was answered with 2xx.
#[derive(Debug)]
struct Owed {
    value: u64,
    bounds: Bounds,
    start: Us,
}

impl KeyBook {
    pub(super) fn new(is_latest: bool) -> Self {
        Self {
            is_latest,
            base: Vec::new(),
            horizon: 0,
            holder: None,
            attempt: 0,
            was_leased: false,
            known: vec![None],
            acked: 0,
            owed: Vec::new(),
            met: HashSet::new(),
            seen: BTreeMap::new(),
            deletions: Vec::new(),
            candidates: vec![Candidate::settled(None, 0)],
        }
    }

    /// Begins an epoch: notes what the calls that touch the key owe it.
    pub(super) fn begin(&mut self, name: &Key, touches: &[Touch], calls: &[&Call], numbers: &Numbers) {
        for touch in touches {
            let What::Produce { changes, is_replace } = &calls[touch.call].what else { continue };
            let own = changes.iter().filter(|change| change.key == *name);
            let bounds = numbers.bounds(touch.call).filter(|_| touch.is_sure);
            // A Replace leaves a key alone that somebody else has said something of meanwhile.
            let is_skipped = *is_replace && touches.iter().any(|other| other.overlaps(touch));
            for change in own {
                match (change.act, bounds) {
                    (Act::Delete { .. }, _) => self.deletions.push(touch.end),
                    (Act::Put { value, may_be_unchanged: false, .. }, Some(bounds)) if !is_skipped => {
                        self.owed.push(Owed { value, bounds, start: touch.start });
                    }
                    _ => {}
                }
            }
        }
    }

    /// Sees a lease that was answered.
    pub(super) fn see_lease(&mut self, id: &str, leases: &Leases, found: &mut Findings) {
        let Some(held) = leases.get(id) else { return };
        if held.token < self.horizon {
            self.see_late_lease(id, held, found);
            return;
        }
        let shown = &held.deltas;
        let is_kept = self.settle_holder(leases, shown, false);
        if is_kept && held.attempt <= self.attempt {
            found.add(Rule::LostLease, format!("attempt {} after {}", held.attempt, self.attempt));
        }
        let at = held.token - 1;
        self.see(at, shown, found);
        self.check_owed(at, shown, found);
        if let Some(KnownValue(known)) = held.known
            && !self.known.iter().any(|expected| expected.map(|expected| expected.value) == known)
        {
            found.add(Rule::WrongKnown, format!("{id} shows {known:?}, not {:?}", self.known));
        }
        self.take_over(id, held);
        self.horizon = held.token;
    }

    /// Sees the key in the lists.
    pub(super) fn see_look(&mut self, name: &Key, look: &Look, leases: &Leases, found: &mut Findings) {
        let item = look.items.get(name);
        let shown = item.map_or(&[][..], |item| &item.deltas);
        let token = self.holder.as_ref().and_then(|id| leases.get(id)).map(|held| held.token);
        let still_leased = token.is_some() && token == item.and_then(|item| item.token);
        self.settle_holder(leases, shown, still_leased);
        self.see(look.rv, shown, found);
        // Whatever was answered is due, even if the numbers have gone back.
        self.check_owed(Rv::MAX, shown, found);
        if !still_leased {
            self.holder = None;
        }
        let known = look.known.get(name).copied();
        let fits = |expected: &Option<Expected>| match (expected, known) {
            (Some(expected), Some((value, rv))) => expected.fits(value, rv),
            (expected, known) => expected.is_none() && known.is_none(),
        };
        if !self.known.iter().any(fits) {
            found.add(Rule::WrongKnown, format!("known is {known:?}, not {:?}", self.known));
        }
        self.known = vec![known.map(|(value, rv)| Expected { value, rv, is_exact: true })];
        self.horizon = look.rv;
    }

    /// The state that the newest delta says, else the known object.
    pub(super) fn newest_state(&self) -> Option<u64> {
        let known = || self.known.first().copied().flatten().map(|expected| expected.value);
        self.base.last().map_or_else(known, Delta::state)
    }

    /// Ends the epoch, after which nothing of it is under way.
    pub(super) fn end(&mut self) {
        let last = self.seen.pop_last();
        self.seen.clear();
        self.seen.extend(last);
        self.met.clear();
        self.deletions.clear();
        self.owed.clear();
    }

    /// A lease whose answer was lost, and which a repeated pop has returned after the key was looked at:
    /// it must hold what was seen of it then.
    fn see_late_lease(&mut self, id: &str, held: &Held, found: &mut Findings) {
        let before: Vec<Delta> = self.base.iter().filter(|delta| delta.rv < held.token).cloned().collect();
        if before != held.deltas {
            found.add(Rule::LostDelta, format!("{id} has {:?}, the list showed {before:?}", held.deltas));
        }
        self.take_over(id, held);
    }

    fn take_over(&mut self, id: &str, held: &Held) {
        self.holder = Some(id.to_owned());
        self.attempt = held.attempt;
        self.was_leased = true;
    }

    /// Finds out how the last lease has ended; `shown` is what the key has now. Tells whether its
    /// deltas have surely come back.
    fn settle_holder(&mut self, leases: &Leases, shown: &[Delta], still_leased: bool) -> bool {
        let Some(held) = self.holder.as_ref().and_then(|id| leases.get(id)) else { return false };
        let end_of = self.holder.as_ref().map_or(LeaseEnd::Kept, |id| leases.end_of(id));
        let came_back = shown.iter().any(|delta| held.deltas.iter().any(|other| other.rv == delta.rv));
        match end_of {
            LeaseEnd::Kept => return true,
            LeaseEnd::Doubtful if still_leased => return false,
            LeaseEnd::Doubtful if came_back => return false,
            LeaseEnd::Doubtful if self.may_hide(held, shown) => {
                // It can't be told, and does not matter but for the known object.
                self.known.push(acknowledged(held));
                self.was_leased = false;
            }
            LeaseEnd::Acked | LeaseEnd::Doubtful => {
                self.known = vec![acknowledged(held)];
                self.acked = held.deltas.last().map_or(self.acked, |newest| newest.rv);
                self.was_leased = false;
            }
        }
        let token = held.token;
        self.base.retain(|delta| delta.rv > token);
        self.holder = None;
        false
    }

    /// Whether the deltas of a lease may have come back and be hidden by newer ones.
    fn may_hide(&self, held: &Held, shown: &[Delta]) -> bool {
        let only_deleted = held.deltas.iter().all(Delta::is_deleted);
        match shown.first() {
            Some(first) => self.is_latest || (only_deleted && first.is_deleted()),
            None => false,
        }
    }

    /// Sees all deltas that the key has at `at`.
    fn see(&mut self, at: Rv, shown: &[Delta], found: &mut Findings) {
        if !shown.is_sorted_by(|one, two| one.rv < two.rv) || shown.last().is_some_and(|last| last.rv > at) {
            found.add(Rule::Order, format!("as of {at} there is {shown:?}"));
        }
        for delta in shown {
            self.met.insert(delta.value);
            self.seen.insert(delta.rv, delta.is_deleted());
        }
        let is_new = if self.is_latest {
            self.check_newest(shown, found);
            shown.iter().filter(|delta| !self.base.iter().any(|old| old.rv == delta.rv)).collect()
        } else {
            self.check_all(shown, found)
        };
        for delta in is_new.into_iter().filter(|delta| delta.rv <= self.horizon) {
            let rule = if delta.rv <= self.acked { Rule::LostAck } else { Rule::Order };
            let (acked, horizon) = (self.acked, self.horizon);
            found.add(rule, format!("{delta:?} comes though {acked} is acked and {horizon} was seen"));
        }
        self.base = shown.to_vec();
    }

    /// Checks that everything in `base` is shown first. Returns what is shown behind it.
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

    /// The same where the newest delta takes the place of all others.
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

    /// In a queue that keeps the newest delta alone: whether a deletion after `start` explains what is
    /// shown. It drops a key that no worker has seen; and if a worker gives an older deletion back, that
    /// one stays of the two.
    fn is_gone(&self, shown: &[Delta], start: Us) -> bool {
        shown.last().is_none_or(Delta::is_deleted) && self.deletions.iter().any(|until| *until > start)
    }

    /// Checks that what was answered is there by now.
    fn check_owed(&mut self, at: Rv, shown: &[Delta], found: &mut Findings) {
        let due: Vec<Owed> = self.owed.extract_if(.., |owed| owed.bounds.until <= at).collect();
        for owed in due {
            let is_met = self.met.contains(&owed.value);
            let newest = shown.last().map_or(0, |newest| newest.rv).max(self.acked);
            let is_past = newest > owed.bounds.after || self.is_gone(shown, owed.start);
            let is_past = self.is_latest && is_past;
            if !is_met && !is_past {
                found.add(Rule::LostWrite, format!("{owed:?} is missing in {shown:?} as of {at}"));
            }
        }
    }
}

/// What is known once the deltas of a lease are acknowledged.
fn acknowledged(held: &Held) -> Option<Expected> {
    let newest = held.deltas.last()?;
    newest.state().map(|value| Expected { value, rv: newest.rv, is_exact: false })
}

/// Cuts deltas apart, but for deletions that stand side by side.
fn runs(deltas: &[Delta]) -> Vec<&[Delta]> {
    deltas.chunk_by(|one, two| one.is_deleted() && two.is_deleted()).collect()
}
