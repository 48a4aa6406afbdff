//! The order of ready keys.
//!
//! A ready key has a *turn*: its arrival minus its head start, and its number. The key with the smallest turn is delivered first, so a key
//! with a head start of ten minutes passes keys that came up to ten minutes before it, and none older. The order of two keys
//! that wait never changes by itself.
//!
//! Keys without a head start arrive in the order of their numbers. They are in a line of their own, and a queue without
//! head starts has only that line.

use std::ops::Bound;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Place, Schedule, ScheduleState};
use crate::id::{Rv, Slot};
use crate::line::Line;
use crate::time::Time;

/// The distance of two strict classes in microseconds: about 36 years, so no wait makes up for it.
const CLASS_US: i64 = 1 << 50;

/// How much earlier a key counts as arrived, in microseconds. Negative: how much later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HeadStart(i64);

impl HeadStart {
    /// No head start.
    pub const NONE: Self = Self(0);

    /// A head start of this length.
    #[must_use]
    pub fn of(length: Duration) -> Self {
        Self(i64::try_from(length.as_micros()).unwrap_or(CLASS_US).min(CLASS_US - 1))
    }

    /// A head start of this many microseconds.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// The head start of a strict class.
    #[must_use]
    pub const fn class(class: i64) -> Self {
        Self(class.saturating_mul(CLASS_US))
    }

    /// The head start in microseconds.
    #[must_use]
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// The strict class, and the head start inside it.
    #[must_use]
    pub const fn in_class(self) -> (i64, Self) {
        let class = self.0.saturating_add(CLASS_US / 2).div_euclid(CLASS_US);
        (class, Self(self.0.saturating_sub(class.saturating_mul(CLASS_US))))
    }

    /// Whether this is no head start.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.0 == 0
    }

    /// The head start in the other direction.
    #[must_use]
    pub const fn negative(self) -> Self {
        Self(self.0.saturating_neg())
    }
}

/// The place of a ready key in the order of delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    /// The arrival of the key minus its head start, in microseconds.
    pub arrival: i64,
    /// The number of the key's position.
    pub rv: Rv,
}

impl Turn {
    /// Before all turns.
    pub const START: Self = Self { arrival: i64::MIN, rv: Rv::ZERO };

    /// The turn of a key that arrived at `arrival`.
    #[must_use]
    pub fn new(arrival: Time, head_start: HeadStart, rv: Rv) -> Self {
        let arrival = i64::try_from(arrival.as_micros()).unwrap_or(i64::MAX);
        Self { arrival: arrival.saturating_sub(head_start.0), rv }
    }
}

/// Ready keys with a head start.
#[derive(Clone, Debug, Default)]
struct Ranked {
    by_turn: Line<Turn, Slot>,
    by_rv: Line<Rv, Slot>,
}

impl Ranked {
    fn len(&self) -> usize {
        self.by_turn.len()
    }

    fn insert(&mut self, turn: Turn, slot: Slot) {
        self.by_turn.insert(turn, slot);
        self.by_rv.insert(turn.rv, slot);
    }

    fn remove(&mut self, turn: Turn) {
        self.by_turn.remove(turn);
        self.by_rv.remove(turn.rv);
    }

    /// Collects keys in any order; `None` if there are none.
    fn collect(keys: Vec<(Turn, Slot)>) -> Option<Box<Self>> {
        let by_rv = keys.iter().map(|(turn, slot)| (turn.rv, *slot)).collect();
        (!keys.is_empty()).then(|| Box::new(Self { by_rv, by_turn: keys.into_iter().collect() }))
    }
}

impl ScheduleState {
    /// The head start of the changes that wait for the key.
    #[must_use]
    pub fn head_start(&self) -> HeadStart {
        self.backoff.as_deref().map_or(HeadStart::NONE, |backoff| backoff.head_start)
    }

    /// The turn of a ready key with a head start.
    #[must_use]
    pub(crate) fn turn(&self) -> Option<Turn> {
        self.backoff.as_deref()?.turn
    }

    /// Whether a change waits that no worker holds.
    #[must_use]
    pub fn has_waiting_change(&self) -> bool {
        match &self.place {
            Place::Ready(_) | Place::Parked => true,
            Place::Idle => self.waits(),
            Place::Leased(lease) => lease.new_change.is_some() || self.waits(),
        }
    }

    /// Sets the head start of the changes that wait. [`Schedule::take_turn`] then moves a ready key.
    pub(crate) fn set_head_start(&mut self, head_start: HeadStart) {
        if self.head_start() != head_start {
            self.set_backoff(|backoff| backoff.head_start = head_start);
        }
    }

    /// The turn that a key with this arrival must have in the order; `None` if it has no place among the keys with a head start.
    pub(crate) fn turn_of(&self, arrival: Time) -> Option<Turn> {
        let Place::Ready(position) = self.place else { return None };
        let head_start = self.head_start();
        (!head_start.is_none()).then(|| Turn::new(arrival, head_start, position.rv))
    }

    /// Gives a restored key the turn that the rebuilt order has for it.
    pub(crate) fn restore_turn(&mut self, arrival: Time) {
        if let Some(turn) = self.turn_of(arrival) {
            self.set_backoff(|backoff| backoff.turn = Some(turn));
        }
    }

    /// Whether a change with this head start may change that of the key.
    #[inline]
    pub(crate) fn may_join(&self, head_start: HeadStart) -> bool {
        !head_start.is_none() || self.backoff.is_some()
    }

    /// Whether the key is ready and may have a head start.
    #[inline]
    pub(crate) fn may_move(&self) -> bool {
        self.backoff.is_some() && matches!(self.place, Place::Ready(_))
    }

    /// Removes the turn.
    pub(crate) fn take_turn(&mut self) -> Option<Turn> {
        let turn = self.turn()?;
        self.set_backoff(|backoff| backoff.turn = None);
        Some(turn)
    }
}

/// Ready keys, in the order of their turns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    /// Keys without a head start.
    plain: Line<Rv, Slot>,
    /// Invariant: `None` if no key has a head start.
    ranked: Option<Box<Ranked>>,
}

impl Order {
    /// Collects keys in any order.
    pub(super) fn collect(plain: Vec<(Rv, Slot)>, ranked: Vec<(Turn, Slot)>) -> Self {
        Self { plain: plain.into_iter().collect(), ranked: Ranked::collect(ranked) }
    }

    /// Number of keys.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.plain.len() + self.ranked_len()
    }

    /// Number of keys without a head start.
    pub(super) fn plain_len(&self) -> usize {
        self.plain.len()
    }

    /// Number of keys with a head start.
    pub(super) fn ranked_len(&self) -> usize {
        self.ranked.as_deref().map_or(0, Ranked::len)
    }

    /// The key without a head start that arrived first.
    pub(crate) fn first_plain(&self) -> Option<(Rv, Slot)> {
        self.plain.first()
    }

    /// The first key with a head start.
    pub(crate) fn first_ranked(&self) -> Option<(Turn, Slot)> {
        self.ranked.as_deref()?.by_turn.first()
    }

    /// The key with the smallest number.
    pub(crate) fn first_by_rv(&self) -> Option<(Rv, Slot)> {
        let ranked = self.ranked.as_deref().and_then(|ranked| ranked.by_rv.first());
        self.plain.first().into_iter().chain(ranked).min_by_key(|(rv, _)| *rv)
    }

    /// Keys without a head start, beginning with the first one for which `is_before` does not hold.
    pub(crate) fn plain_from(&self, is_before: impl Fn(Slot) -> bool) -> impl Iterator<Item = (Rv, Slot)> {
        self.plain.starting_at(move |(_, slot)| !is_before(*slot))
    }

    /// Keys with a head start after this turn, in the order of their turns.
    pub(crate) fn ranked_after(&self, after: Turn) -> impl Iterator<Item = (Turn, Slot)> {
        self.ranked.iter().flat_map(move |ranked| ranked.by_turn.from(Bound::Excluded(after)))
    }

    /// Adds a key without a head start.
    #[inline]
    pub(super) fn insert_plain(&mut self, rv: Rv, slot: Slot) {
        self.plain.insert(rv, slot);
    }

    /// Adds a key at its turn; without a turn, by its number.
    pub(super) fn insert(&mut self, rv: Rv, turn: Option<Turn>, slot: Slot) {
        match turn {
            Some(turn) => self.ranked.get_or_insert_default().insert(turn, slot),
            None => self.insert_plain(rv, slot),
        }
    }

    /// Removes a key from its turn; without a turn, by its number.
    #[inline]
    pub(super) fn remove(&mut self, rv: Rv, turn: Option<Turn>) {
        match turn {
            Some(turn) => self.remove_ranked(turn),
            None => {
                self.plain.remove(rv);
            }
        }
    }

    #[inline(never)]
    fn remove_ranked(&mut self, turn: Turn) {
        if let Some(ranked) = &mut self.ranked {
            ranked.remove(turn);
            if ranked.len() == 0 {
                self.ranked = None;
            }
        }
    }

    /// Whether a key is where its turn says.
    pub(super) fn has(&self, slot: Slot, rv: Rv, turn: Option<Turn>) -> bool {
        match turn {
            Some(turn) => self.ranked.as_deref().is_some_and(|ranked| {
                turn.rv == rv && ranked.by_turn.get(turn) == Some(slot) && ranked.by_rv.get(rv) == Some(slot)
            }),
            None => self.plain.get(rv) == Some(slot),
        }
    }
}

impl Schedule {
    /// All ready keys, in the order of their turns.
    #[inline]
    pub(crate) fn order(&self) -> &Order {
        &self.order
    }

    /// Moves a ready key that arrived at `arrival` to the place that its head start gives it.
    #[inline(never)]
    pub(crate) fn take_turn(&mut self, slot: Slot, state: &mut ScheduleState, arrival: Time) {
        let Place::Ready(position) = state.place else { return };
        let (was, is) = (state.turn(), state.turn_of(arrival));
        if was == is {
            return;
        }
        self.leave_order(slot, state, position.rv);
        if is.is_some() {
            state.set_backoff(|backoff| backoff.turn = is);
        }
        self.enter_order(slot, position.rv, is);
    }

    /// Moves a ready key to the tail: it arrives anew.
    pub(crate) fn arrive_again(&mut self, slot: Slot, state: &mut ScheduleState, rv: Rv, at: Time) {
        let Place::Ready(position) = state.place else { return };
        self.leave_order(slot, state, position.rv);
        if let Place::Ready(position) = &mut state.place {
            (position.rv, position.since) = (rv, at);
        }
        self.enter_order(slot, rv, None);
    }

    /// Puts a ready key into the order.
    #[inline]
    pub(super) fn enter_order(&mut self, slot: Slot, rv: Rv, turn: Option<Turn>) {
        self.order.insert(rv, turn, slot);
        if let Some(groups) = &mut self.groups {
            groups.enter(slot, rv, turn);
        }
    }

    /// Takes a ready key out of the order.
    #[inline]
    pub(super) fn leave_order(&mut self, slot: Slot, state: &mut ScheduleState, rv: Rv) {
        // Few keys have a head start.
        let turn = if state.backoff.is_some() { state.take_turn() } else { None };
        self.order.remove(rv, turn);
        if let Some(groups) = &mut self.groups {
            groups.leave(slot, rv, turn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_and_a_head_start_inside_it_are_told_apart() {
        for class in [-100, -1, 0, 1, 100] {
            for inside in [-604_800_000_000, 0, 604_800_000_000] {
                let both = HeadStart(HeadStart::class(class).0 + inside);
                assert_eq!(both.in_class(), (class, HeadStart(inside)));
            }
        }
    }

    #[test]
    fn no_wait_makes_up_for_a_class() {
        let (old, new) = (Time::from_micros(1_000_000), Time::from_micros(1_000_000_000_000_000));
        let turn = |at, class| Turn::new(at, HeadStart::class(class), Rv::new(7));
        assert!(turn(new, 1) < turn(old, 0));
        assert!(turn(new, -99) < turn(old, -100));
        assert!(turn(old, 3) < turn(new, 3));
    }
}
