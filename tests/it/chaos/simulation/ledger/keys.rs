//! The promises about one key.

use deltaq_engine::Queue;
use deltaq_engine::command::Item;
use deltaq_engine::id::{Rv, Token};
use deltaq_engine::schedule::Place;
use deltaq_types::Mode;

use super::{Acked, Call, Held, KeyHistory, Kind, Moment, carried, number};
use crate::chaos::simulation::Violation;

/// The content of a queue for one key.
#[derive(Debug, Default)]
pub(crate) struct View {
    /// Waiting and leased deltas: their calls and event numbers.
    objects: Vec<(u64, Rv)>,
    known: Option<u64>,
    /// Ready, leased, delayed or parked.
    busy: bool,
}

impl View {
    pub(crate) fn of(queue: &Queue, key: &str) -> Self {
        let Some(entry) = queue.table().get(key) else { return Self::default() };
        let deltas = entry.leased.iter().chain(entry.waiting.iter());
        Self {
            objects: deltas.filter_map(|delta| Some((carried(delta)?, delta.rv))).collect(),
            known: entry.known.as_ref().and_then(|known| number(known.object.as_str())),
            busy: entry.schedule_state.place != Place::Idle || entry.schedule_state.is_delayed(),
        }
    }
}

/// When a reply showed a key. Everything that was accepted before the call must be in the reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    pub(super) asked: Moment,
    pub(super) replied: Moment,
    pub(super) now_us: u64,
}

impl KeyHistory {
    /// Whether a lease with this call was acknowledged.
    fn consumed(&self, number: u64) -> Acked {
        self.leases.values().map(|held| held.consumed(number)).max().unwrap_or(Acked::No)
    }

    /// A reply contains a lease for the first time.
    pub(super) fn leased(&mut self, item: &Item, mode: Mode, shown: Shown) -> Result<(), Violation> {
        let token = item.token.rv();
        self.leases.insert(token, Held::of(item));
        let before = self.leases.range(..token).next_back().map(|(first, held)| (*first, held, token));
        let behind = self.leases.range(token.next()..).next();
        let own = behind.and_then(|(later, _)| Some((token, self.leases.get(&token)?, *later)));
        for (first, held, second) in before.into_iter().chain(own) {
            if !held.may_have_ended(shown.now_us) {
                return Err(format!("leases {first} and {second} hold the key at once: {held:?}"));
            }
        }
        let rvs: Vec<Rv> = item.deltas.iter().map(|delta| delta.rv).collect();
        if !rvs.is_sorted_by(|one, two| one < two) || rvs.last().is_some_and(|last| *last >= token) {
            return Err(format!("lease {token} has its deltas in the order {rvs:?}"));
        }
        let acked = self.leases.range(..token).rev().find(|(_, held)| held.acked == Acked::Yes);
        let first_of = |held: &Held| held.deltas.first().map_or(Rv::ZERO, |delta| delta.rv);
        let done = |(token, held): (&Rv, &Held)| if mode == Mode::Events { first_of(held) } else { *token };
        let parts = self.leases.range(..token).filter_map(|(_, held)| held.surely_through());
        if let (Some(acked), Some(first)) = (acked.map(done).into_iter().chain(parts).max(), rvs.first())
            && *first <= acked
        {
            return Err(format!("lease {token} has delta {first}, and {acked} is acknowledged"));
        }
        let objects: Vec<(u64, Rv)> =
            item.deltas.iter().filter_map(|delta| Some((carried(delta)?, delta.rv))).collect();
        let present: Vec<u64> = objects.iter().map(|(number, _)| *number).collect();
        if mode == Mode::Events {
            self.is_next(&rvs, &present)?;
            return self.seen(&objects, shown.replied);
        }
        if let Some(lost) = self.missing(&present, mode, shown.asked).filter(|_| mode != Mode::Keys) {
            return Err(format!("lease {token} brings {present:?} and lacks {lost}"));
        }
        self.seen(&objects, shown.replied)
    }

    /// Mode events: a lease has one delta, and every delta that was accepted before that was sent is acknowledged.
    fn is_next(&self, rvs: &[Rv], present: &[u64]) -> Result<(), Violation> {
        if rvs.len() != 1 {
            return Err(format!("a lease has the deltas {rvs:?}"));
        }
        let Some(sent) = present.first().and_then(|number| self.calls.get(number)).map(|call| call.sent)
        else {
            return Ok(());
        };
        match self.missing(present, Mode::Events, sent) {
            Some(skipped) => Err(format!("{present:?} is delivered before {skipped}")),
            None => Ok(()),
        }
    }

    /// A reply contains a lease again.
    pub(super) fn leased_again(&self, item: &Item) -> Result<(), Violation> {
        let before = self.leases.get(&item.token.rv()).ok_or("one token for two keys")?;
        let again = Held::of(item);
        if before.may_have(&again) {
            Ok(())
        } else {
            Err(format!("lease {} was answered with other deltas before", item.token))
        }
    }

    /// A read shows the key.
    pub(super) fn read(
        &mut self,
        view: &View,
        mode: Mode,
        knows: bool,
        shown: Shown,
    ) -> Result<(), Violation> {
        self.check(view, mode, knows, shown.asked)?;
        self.seen(&view.objects, shown.replied)
    }

    /// Objects in a reply are durable, in the order in which they were sent.
    fn seen(&mut self, objects: &[(u64, Rv)], replied: Moment) -> Result<(), Violation> {
        let mut last = 0;
        for (number, rv) in objects {
            let call = self.calls.get_mut(number).ok_or_else(|| format!("nobody sent {number}"))?;
            if call.refused {
                return Err(format!("{number} was refused, and is there"));
            }
            if *rv <= call.floor || call.rv.is_some_and(|before| before != *rv) {
                return Err(format!("{number} is event {rv}, before {:?}, above {}", call.rv, call.floor));
            }
            call.rv = Some(*rv);
            call.accepted.get_or_insert(replied);
            if call.kind == Kind::Put {
                if call.sent < last {
                    return Err(format!("{number} was sent before what it comes after: {objects:?}"));
                }
                last = call.sent;
            }
        }
        Ok(())
    }

    /// An object that was accepted before a moment, is not acknowledged, and is missing.
    fn missing(&self, present: &[u64], mode: Mode, as_of: Moment) -> Option<u64> {
        let due = |call: &Call| {
            call.kind != Kind::Delete && !call.excused && call.accepted.is_some_and(|moment| moment <= as_of)
        };
        let mut calls = self.calls.iter().filter(|(number, call)| due(call) && !present.contains(number));
        let lost = match mode {
            Mode::Delta | Mode::Events => calls.find(|(number, _)| self.consumed(**number) == Acked::No),
            // Only the newest delta of a key stays.
            Mode::Latest => calls.find(|(number, _)| {
                let is_newest = self.calls.range(**number + 1..).all(|(_, other)| other.refused);
                is_newest && self.consumed(**number) == Acked::No
            }),
            Mode::Keys => calls.find(|(_, call)| !self.acknowledged_behind(call.floor)),
        };
        lost.map(|(number, _)| *number)
    }

    /// Whether a lease behind `floor` may have been acknowledged.
    fn acknowledged_behind(&self, floor: Rv) -> bool {
        self.leases.range(floor.next()..).any(|(_, held)| held.acked != Acked::No)
    }

    /// Checks that leases that can't have ended are live.
    pub(super) fn check_leases(&self, now_us: u64, queue: &Queue) -> Result<(), Violation> {
        let is_live = |token: Rv| queue.schedule().leased_at(Token::new(token)).is_some();
        let mut held = self.leases.iter().filter(|(_, held)| held.ended.is_none());
        match held.find(|(token, held)| !held.may_have_ended(now_us) && !is_live(**token)) {
            Some((token, held)) => Err(format!("lease {token} was answered and is gone: {held:?}")),
            None => Ok(()),
        }
    }

    /// Checks the content of a queue for the key.
    pub(super) fn check(&self, view: &View, mode: Mode, knows: bool, as_of: Moment) -> Result<(), Violation> {
        let mut present: Vec<u64> = view.objects.iter().map(|(number, _)| *number).collect();
        if mode == Mode::Keys && view.busy {
            present.extend(self.calls.keys());
        }
        if let Some(lost) = self.missing(&present, mode, as_of) {
            return Err(format!("{lost} was answered and is lost; there is {view:?}"));
        }
        if mode == Mode::Keys {
            return Ok(());
        }
        let newest = self.leases.iter().rev().find(|(_, held)| held.results().is_sure);
        let sure = newest.and_then(|(_, held)| held.results().sure).filter(|_| knows);
        let behind = self.leases.range(newest.map_or(Rv::ZERO, |(token, _)| *token)..);
        let mut may_be = behind.filter(|_| knows).flat_map(|(_, held)| held.results().may_be);
        if view.known == sure || may_be.any(|result| result == view.known) {
            return Ok(());
        }
        Err(format!("known is {:?} and should be {sure:?}", view.known))
    }
}
