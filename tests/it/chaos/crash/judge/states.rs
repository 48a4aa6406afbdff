//! The newest state of a key: the calls that can have been the last, and the deletions that must have taken effect.

use super::super::history::{Call, Effect, Rv, Us};
use super::super::queues::Mode;
use super::keys::KeyRecord;
use super::numbers::Numbers;
use super::{Findings, Rule, Touch};

/// A call that may have left the key in its newest state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    start: Us,
    end: Us,
    state: Option<u64>,
    /// Whether the call has taken effect; otherwise it may have.
    is_sure: bool,
}

impl Candidate {
    /// A state that was read at the quiet moment `at`.
    pub(super) fn settled(state: Option<u64>, at: Us) -> Self {
        Self { start: at, end: at, state, is_sure: true }
    }
}

impl KeyRecord {
    /// Checks the newest state at a quiet moment, and the deletions since the previous one.
    ///
    /// A call that ended before the start of another effective call can't be the last.
    pub(super) fn check_states(
        &mut self,
        touches: &[Touch],
        numbers: &Numbers,
        calls: &[&Call],
        at: Us,
        found: &mut Findings,
    ) {
        if self.mode != Mode::Latest {
            for touch in touches {
                self.check_deletion(touch, touches, numbers, calls, found);
            }
        }
        let of_touch = |touch: &Touch| {
            let Touch { start, end, last, is_sure, .. } = *touch;
            Candidate { start, end, state: last.state(), is_sure }
        };
        self.candidates.extend(touches.iter().map(of_touch));
        let sure = self.candidates.iter().filter(|candidate| candidate.is_sure);
        let newest_sure = sure.map(|candidate| candidate.start).max().unwrap_or_default();
        self.candidates.retain(|candidate| candidate.end >= newest_sure);
        let state = self.newest_state();
        if !self.candidates.iter().any(|candidate| candidate.state == state) {
            found.add(
                Rule::WrongState,
                format!("the state is {state:?}, which none of {:?} leaves", self.candidates),
            );
        }
        self.candidates = vec![Candidate::settled(state, at)];
    }

    /// Checks a deletion that has a reply and overlaps no other call on the key: the newest delta after it, if there is one,
    /// is a deletion (perhaps a newer one). An existing key belongs to the source of the Replace, because in this load
    /// sources share no keys.
    fn check_deletion(
        &self,
        touch: &Touch,
        touches: &[Touch],
        numbers: &Numbers,
        calls: &[&Call],
        found: &mut Findings,
    ) {
        let is_alone = !touches.iter().any(|other| other.overlaps(touch));
        let (true, true, Effect::Delete { .. }) = (touch.is_sure, is_alone, touch.last) else { return };
        let Some(bounds) = numbers.bounds(touch.call) else { return };
        let newest = self.seen.range(..=bounds.until).next_back();
        let next = self.seen.range(bounds.until + 1..).next();
        let is_deleted = |delta: Option<(&Rv, &bool)>| delta.is_some_and(|(_, is_deleted)| *is_deleted);
        if newest.is_some() && !is_deleted(newest) && !is_deleted(next) {
            let operation = &calls[touch.call].operation;
            found.add(
                Rule::MissingDeletion,
                format!("{newest:?} and {next:?} around {bounds:?} of {operation:?}"),
            );
        }
    }
}
