//! The sources of a queue: the keys that each owns, and its history.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::fairness::least_needed;
use super::id::{Sequence, Slot, Source};
use super::limits::SOURCES_MAX;
use super::line::Line;
use super::snapshot::{LastReplace, SourceHistory, SourceRecord, StaleAfter};
use super::time::Time;

/// Approximate size of a source's history in bytes, excluding its name.
const SOURCE_BYTES: usize = 256;

/// A source of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceState {
    /// The source's name.
    pub source: Source,
    /// Number of keys that the source owns.
    pub keys: usize,
    /// The history of the source; `None` if the queue does not remember it.
    pub history: Option<SourceHistory>,
}

/// The sources of a queue.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// Invariant: has the slots of the keys of each source that owns keys. New keys mostly have growing slots.
    owned: BTreeMap<Source, Line<Slot, ()>>,
    /// Invariant: at most [`SOURCES_MAX`] sources. Beyond this limit, one of the token with the most sources is dropped, so that a
    /// token does not push out the sources of others: of those without a threshold, or else of all, the one whose last contact is the
    /// oldest. A source with a sequence is never dropped, because its old calls would otherwise be applied again.
    histories: BTreeMap<Source, SourceHistory>,
    /// The length of the names in `histories`.
    name_bytes: usize,
    /// The token of the event that is being applied.
    caller: Option<Arc<str>>,
}

impl Sources {
    /// Approximate size of the histories in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.histories.len() * SOURCE_BYTES + self.name_bytes
    }

    /// The sources after the name `after`, in the order of names: at most `limit`.
    pub(super) fn after(&self, after: Option<&str>, limit: usize) -> Vec<SourceState> {
        let from = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let owners = self.owned.range::<str, _>(from).map(|(source, _)| source).take(limit);
        let callers = self.histories.range::<str, _>(from).map(|(source, _)| source).take(limit);
        let names: BTreeSet<&Source> = owners.chain(callers).collect();
        let state = |source: &Source| SourceState {
            source: source.clone(),
            keys: self.owned.get(source).map_or(0, Line::len),
            history: self.histories.get(source).cloned(),
        };
        names.into_iter().take(limit).map(state).collect()
    }

    /// The histories of the sources, by name.
    pub(super) fn histories(&self) -> impl Iterator<Item = (&Source, &SourceHistory)> {
        self.histories.iter()
    }

    /// The sources that own keys.
    pub(super) fn owners(&self) -> impl Iterator<Item = &Source> {
        self.owned.keys()
    }

    /// The slots of the keys of a source, in the order of the slots.
    pub(super) fn slots_of(&self, source: &Source) -> Vec<Slot> {
        self.owned.get(source).map_or_else(Vec::new, |slots| slots.iter().map(|(slot, ())| slot).collect())
    }

    /// Restores the histories of the sources from a checkpoint.
    pub(super) fn restore(&mut self, records: Vec<SourceRecord>) {
        self.histories = records.into_iter().map(|record| (record.source, record.history)).collect();
        self.name_bytes = self.histories.keys().map(|source| source.len()).sum();
    }

    /// Sets the token of the event that is applied next.
    #[inline]
    pub(super) fn set_caller(&mut self, by: Option<&Arc<str>>) {
        if (by.is_some() || self.caller.is_some()) && self.caller.as_ref() != by {
            self.caller = by.cloned();
        }
    }

    /// Records a call of a source.
    pub(super) fn called(&mut self, source: &Source, at: Time) {
        if let Some(history) = self.remembered(source) {
            history.last_call = at;
            history.last_contact = Some(at);
        }
    }

    /// Records the start of a source's list. Only its end is a contact, because the list may be refused.
    pub(super) fn began_list(&mut self, source: &Source, at: Time) {
        if let Some(history) = self.remembered(source) {
            history.last_contact = Some(history.contact().unwrap_or_default());
            history.last_call = at;
        }
    }

    /// Records a contact with a source.
    pub(super) fn reached(&mut self, source: &Source, at: Time) {
        if let Some(history) = self.remembered(source) {
            history.last_contact = history.contact().max(Some(at));
        }
    }

    /// Sets how long a source may be silent.
    pub(super) fn configure(&mut self, source: &Source, stale_after: Option<StaleAfter>) {
        if let Some(history) = self.remembered(source) {
            history.stale_after = stale_after;
        }
    }

    /// The history of a source, which begins now if there is none. `None` if no other source can be forgotten for it.
    fn remembered(&mut self, source: &Source) -> Option<&mut SourceHistory> {
        if !self.histories.contains_key(source) {
            if self.histories.len() >= SOURCES_MAX {
                let dropped = self.least_needed()?;
                self.histories.remove(&dropped);
                self.name_bytes -= dropped.len();
            }
            let history = SourceHistory { by: self.caller.clone(), ..SourceHistory::default() };
            self.histories.insert(source.clone(), history);
            self.name_bytes += source.len();
        }
        self.histories.get_mut(source)
    }

    /// The source that is dropped for a new one; `None` if each has a sequence.
    fn least_needed(&self) -> Option<Source> {
        let forgettable = self.histories.iter().filter(|(_, history)| history.sequence.is_none());
        let rank = |history: &SourceHistory| {
            let set = history.stale_after.map(|stale_after| stale_after.since);
            (set.is_some(), history.contact().max(set))
        };
        let entries = forgettable.map(|(source, history)| (source, history.by.as_deref(), rank(history)));
        least_needed(entries).cloned()
    }

    /// Whether all of these sources are remembered once a token has set their thresholds.
    pub(super) fn can_remember(
        &self,
        thresholds: &[(Source, Option<StaleAfter>)],
        by: Option<&Arc<str>>,
    ) -> bool {
        let (histories, name_bytes) = (self.histories.clone(), self.name_bytes);
        let mut trial = Self { histories, name_bytes, caller: by.cloned(), ..Self::default() };
        for (source, stale_after) in thresholds {
            trial.configure(source, *stale_after);
        }
        thresholds.iter().all(|(source, _)| trial.histories.contains_key(source))
    }

    /// The history of a source.
    pub(super) fn history_of(&self, source: &Source) -> Option<&SourceHistory> {
        self.histories.get(source)
    }

    /// The sequence number of the source's last call that had one.
    pub(super) fn sequence_of(&self, source: &Source) -> Option<u64> {
        self.histories.get(source)?.sequence
    }

    /// Number of sources that have a sequence.
    pub(super) fn with_sequence(&self) -> usize {
        self.histories.values().filter(|history| history.sequence.is_some()).count()
    }

    /// Records the sequence number of a call. Returns whether the number is larger than the last number of its
    /// source.
    pub(super) fn advance(&mut self, sequence: &Sequence, at: Time) -> bool {
        let Sequence { source, number } = sequence;
        if !self.histories.contains_key(source) {
            self.called(source, at);
        }
        let Some(history) = self.histories.get_mut(source) else { return false };
        let last = history.sequence.replace(*number);
        last.is_none_or(|last| last < *number)
    }

    /// Sets the last sequence number of a source that the queue remembers.
    pub(super) fn renumber(&mut self, source: &Source, sequence: Option<u64>) {
        if let Some(history) = self.histories.get_mut(source) {
            history.sequence = sequence;
        }
    }

    /// The source, if it owns keys or the queue remembers it.
    pub(super) fn state_of(&self, source: &Source) -> Option<SourceState> {
        let keys = self.owned.get(source).map_or(0, Line::len);
        let history = self.histories.get(source).cloned();
        (keys > 0 || history.is_some()).then(|| SourceState { source: source.clone(), keys, history })
    }

    /// Records the start or the end of a source's Replace.
    pub(super) fn replaced(&mut self, replace: &LastReplace) {
        let history = replace.source.as_ref().and_then(|source| self.histories.get_mut(source));
        let Some(history) = history else { return };
        history.last_replace = Some(replace.clone());
        if !replace.aborted && replace.ended.is_some() {
            history.last_replaced = replace.ended;
            history.last_contact = replace.ended;
        }
    }

    /// Records that the owner of the key at a slot changed.
    pub(super) fn key_moved(&mut self, slot: Slot, from: Option<&Source>, to: Option<&Source>) {
        if let Some(source) = from
            && let Some(slots) = self.owned.get_mut(source)
        {
            slots.remove(slot);
            if slots.len() == 0 {
                self.owned.remove(source);
            }
        }
        let Some(source) = to else { return };
        match self.owned.get_mut(source) {
            Some(slots) => {
                slots.insert(slot, ());
            }
            None => {
                self.owned.insert(source.clone(), Line::from_iter([(slot, ())]));
            }
        }
    }
}
