//! The parked or delayed keys that an operator selects, and the commands on them, which run in steps.

use std::collections::HashSet;
use std::ops::Bound;
use std::vec::IntoIter;

use super::Progress;
use crate::event::EventKind;
use crate::id::{Rv, Slot, Source};
use crate::key::Key;
use crate::queue::Queue;
use crate::refusal::Refusal;
use crate::scan::ScanCursor;
use crate::schedule::Place;
use crate::state::State;
use crate::table::Entry;
use crate::time::Time;

/// The parked or delayed keys that a command concerns.
#[derive(Debug)]
pub enum KeySelection {
    /// All parked keys, or all delayed keys, in key order.
    All,
    /// These keys. The iterator is consumed.
    Named(IntoIter<Key>),
    /// The keys that have all of this.
    Matching(KeyMatch),
}

/// What the parked or delayed keys of a selection have in common. The default is true of all keys.
#[derive(Clone, Debug, Default)]
pub struct KeyMatch {
    /// The key begins with this text.
    pub prefix: String,
    /// The error of the last failure. The empty text is also true of keys without an error.
    pub error: Option<String>,
    /// The source that owns the key.
    pub source: Option<String>,
    /// The group of the key. The empty text is the group without a name.
    pub group: Option<String>,
    /// The oldest change that waits for the key was queued at this time or before.
    pub queued_before: Option<Time>,
    /// The key has been parked or delayed since this event or an older one.
    pub until: Option<Rv>,
}

/// A command on parked or delayed keys, between its steps.
#[derive(Debug)]
pub struct SelectedKeys {
    selection: KeySelection,
    /// The number of keys that the caller expects. `None` if the caller expects no number, or once the keys have been
    /// counted.
    expected_count: Option<u64>,
    /// Whether the keys are counted and not changed.
    dry_run: bool,
    cursor: ScanCursor,
}

/// What a command on parked or delayed keys has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selected {
    /// The number of keys that were changed, or would be.
    pub keys: u64,
    /// The newest event when the command began.
    pub begun: Rv,
}

/// Why a key waits.
#[derive(Clone, Copy)]
pub(super) enum Waiting {
    Parked,
    Delayed,
}

impl KeySelection {
    /// Selects these keys, or all keys if `None`.
    #[must_use]
    pub fn named(keys: Option<Vec<Key>>) -> Self {
        keys.map_or(Self::All, |keys| Self::Named(keys.into_iter()))
    }

    /// The keys whose last error is this text.
    #[must_use]
    pub fn with_error(error: String) -> Self {
        Self::Matching(KeyMatch { error: Some(error), ..KeyMatch::default() })
    }
}

impl SelectedKeys {
    /// A command on the keys of `selection`. The command is refused unless the selection has `expected_count` keys.
    #[must_use]
    pub fn new(selection: KeySelection, expected_count: Option<u64>) -> Self {
        Self { selection, expected_count, dry_run: false, cursor: ScanCursor::default() }
    }

    /// The same command, which only counts the keys.
    #[must_use]
    pub fn dry_run(self) -> Self {
        Self { dry_run: true, ..self }
    }
}

impl From<KeySelection> for SelectedKeys {
    fn from(selection: KeySelection) -> Self {
        Self::new(selection, None)
    }
}

impl KeyMatch {
    /// Whether this is true of a parked or delayed key.
    fn includes(&self, state: &State, slot: Slot, entry: &Entry, waiting: Waiting) -> bool {
        let Self { prefix, error, source, group, queued_before, until } = self;
        let is_one = |wanted: &Option<String>, text: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| wanted == text.unwrap_or_default())
        };
        let schedule = &entry.schedule_state;
        let oldest = schedule.oldest_change().map(|oldest| oldest.at);
        entry.key.as_str().starts_with(prefix)
            && is_one(error, schedule.last_error())
            && is_one(source, entry.owner().map(Source::as_str))
            && is_one(group, state.schedule.group_of(slot).map(AsRef::as_ref))
            && queued_before.is_none_or(|before| oldest.is_some_and(|oldest| oldest <= before))
            && until.is_none_or(|until| waiting.since(entry) <= until)
    }
}

impl Queue {
    /// Counts the keys in steps if the caller expects a certain count or changes nothing, then changes them in steps. The first change
    /// happens in the step that finishes the count.
    pub(super) fn step_over(
        &mut self,
        now: Time,
        waiting: Waiting,
        keys: &mut SelectedKeys,
        budget: usize,
        event: impl Fn(&Self, &Entry) -> EventKind,
    ) -> Result<Progress<Selected>, Refusal> {
        let now = self.advance(now);
        let begun = *keys.cursor.begun.get_or_insert(self.state().rv);
        if keys.dry_run || keys.expected_count.is_some() {
            let Some(count) = self.count_step(waiting, keys, budget) else { return Ok(Progress::More) };
            if let Some(expected) = keys.expected_count.filter(|expected| count != *expected) {
                return Err(Refusal::CountChanged { expected, count });
            }
            if keys.dry_run {
                return Ok(Progress::Done(Selected { keys: count, begun }));
            }
            let cursor = ScanCursor { begun: Some(begun), ..ScanCursor::default() };
            (keys.expected_count, keys.cursor) = (None, cursor);
        }
        let (batch, more): (Vec<Key>, bool) = match &mut keys.selection {
            KeySelection::Named(named) => (named.take(budget).collect(), named.len() > 0),
            KeySelection::All | KeySelection::Matching(_) => {
                self.next_waiting(waiting, &mut keys.cursor, budget)
            }
        };
        for key in batch {
            if let Some(entry) = self.selected(waiting, &keys.selection, key.as_str()) {
                let event = event(self, entry);
                self.emit(now, event);
                keys.cursor.keys += 1;
            }
        }
        let done = Selected { keys: keys.cursor.keys, begun };
        Ok(if more { Progress::More } else { Progress::Done(done) })
    }

    /// The number of keys that the command would change, once counting is complete.
    fn count_step(&self, waiting: Waiting, keys: &mut SelectedKeys, budget: usize) -> Option<u64> {
        let is_selected = |key: &&str| self.selected(waiting, &keys.selection, key).is_some();
        match &keys.selection {
            KeySelection::All => Some(self.count_all(waiting) as u64),
            KeySelection::Named(named) => {
                let unique: HashSet<&str> = named.as_slice().iter().map(Key::as_str).collect();
                Some(unique.iter().filter(|key| is_selected(key)).count() as u64)
            }
            KeySelection::Matching(_) => {
                let (batch, more) = self.next_waiting(waiting, &mut keys.cursor, budget);
                let selected = batch.iter().map(Key::as_str).filter(is_selected).count();
                keys.cursor.keys += selected as u64;
                (!more).then_some(keys.cursor.keys)
            }
        }
    }

    /// The entry of a key, if the command would change the key.
    fn selected(&self, waiting: Waiting, selection: &KeySelection, key: &str) -> Option<&Entry> {
        let state = self.state();
        let slot = state.table.find(key)?;
        let entry = state.entry(slot);
        let is_included = match selection {
            KeySelection::All | KeySelection::Named(_) => true,
            KeySelection::Matching(wanted) => wanted.includes(state, slot, entry, waiting),
        };
        (waiting.has(entry, state) && is_included).then_some(entry)
    }

    fn count_all(&self, waiting: Waiting) -> usize {
        let State { schedule, config, .. } = self.state();
        match waiting {
            Waiting::Parked => schedule.parked_len(),
            Waiting::Delayed if self.state().freezes_delays() => 0,
            Waiting::Delayed if config.rules().delays_are_adds => schedule.waiting_len(),
            Waiting::Delayed => schedule.delayed_len(),
        }
    }

    /// The next waiting keys, and whether there may be more.
    fn next_waiting(&self, waiting: Waiting, cursor: &mut ScanCursor, budget: usize) -> (Vec<Key>, bool) {
        match waiting {
            Waiting::Parked => self.next_parked(cursor, budget),
            Waiting::Delayed => self.next_delayed(cursor, budget),
        }
    }

    /// The next parked keys, and whether there may be more.
    fn next_parked(&self, cursor: &mut ScanCursor, budget: usize) -> (Vec<Key>, bool) {
        let after = cursor.after.take();
        let from = after.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(key.as_str()));
        let keys = self.state().schedule.parked_from(from).take(budget).map(|(key, _)| key.clone());
        let batch: Vec<Key> = keys.collect();
        cursor.after = batch.last().filter(|_| batch.len() == budget).cloned();
        (batch, cursor.after.is_some())
    }

    /// The delayed keys among the next entries, and whether there may be more.
    fn next_delayed(&self, cursor: &mut ScanCursor, budget: usize) -> (Vec<Key>, bool) {
        let is_delayed = |entry: &Entry| Waiting::Delayed.has(entry, self.state());
        let slots = cursor.next_slots(self.state(), budget, is_delayed);
        let keys = slots.into_iter().map(|slot| self.state().entry(slot).key.clone());
        (keys.collect(), cursor.is_under_way())
    }
}

impl Waiting {
    /// Whether a command on such keys changes this key. In mode keys, the delay of a ready or leased key is a
    /// separate add that is due later.
    fn has(self, entry: &Entry, state: &State) -> bool {
        let schedule_state = &entry.schedule_state;
        match self {
            Self::Parked => schedule_state.place == Place::Parked,
            Self::Delayed => {
                let delays_are_adds = state.config.rules().delays_are_adds;
                let is_delayed = schedule_state.is_delayed();
                let is_add = delays_are_adds && schedule_state.delay().is_some();
                (is_delayed || is_add) && !state.freezes_delays()
            }
        }
    }

    /// The event since which the key has waited; 0 for a key that was parked before this was recorded.
    fn since(self, entry: &Entry) -> Rv {
        let schedule_state = &entry.schedule_state;
        match self {
            Self::Parked => schedule_state.parked().map_or(Rv::ZERO, |parked| parked.rv),
            Self::Delayed => {
                let backoff = schedule_state.backoff();
                let delay = backoff.delay.map(|delay| delay.rv);
                let failure = backoff.not_before.map(|not_before| not_before.rv);
                let window = backoff.window.as_ref().map(|open| open.rv);
                [delay, failure, window].into_iter().flatten().max().unwrap_or(Rv::ZERO)
            }
        }
    }
}
