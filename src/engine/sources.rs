//! The sources of a queue: how many keys each owns, and what it did.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::id::Source;
use super::limits::SOURCES_MAX;
use super::snapshot::{LastReplace, SourceHistory};
use super::time::Time;

/// A source of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceState {
    /// The source's name.
    pub source: Source,
    /// Number of keys that the source owns.
    pub keys: usize,
    /// What the source did; `None` if the queue does not remember it.
    pub history: Option<SourceHistory>,
}

/// The sources of a queue.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// Invariant: the number of keys of each source that owns keys.
    owned: BTreeMap<Source, usize>,
    /// Invariant: at most [`SOURCES_MAX`]. Beyond that, the source whose last call is the oldest is forgotten.
    histories: BTreeMap<Source, SourceHistory>,
}

impl Sources {
    /// The sources behind `after`, by name: at most `limit`.
    pub(super) fn after(&self, after: Option<&str>, limit: usize) -> Vec<SourceState> {
        let from = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let owners = self.owned.range::<str, _>(from).map(|(source, _)| source).take(limit);
        let callers = self.histories.range::<str, _>(from).map(|(source, _)| source).take(limit);
        let names: BTreeSet<&Source> = owners.chain(callers).collect();
        let state = |source: &Source| SourceState {
            source: source.clone(),
            keys: self.owned.get(source).copied().unwrap_or_default(),
            history: self.histories.get(source).cloned(),
        };
        names.into_iter().take(limit).map(state).collect()
    }

    /// What the sources did, by name.
    pub(super) fn histories(&self) -> impl Iterator<Item = (&Source, &SourceHistory)> {
        self.histories.iter()
    }

    /// Number of keys of each source that owns keys.
    pub(super) fn owned(&self) -> &BTreeMap<Source, usize> {
        &self.owned
    }

    /// Sets what the sources did, as of a checkpoint.
    pub(super) fn restore(&mut self, histories: Vec<(Source, SourceHistory)>) {
        self.histories = histories.into_iter().collect();
    }

    /// Records a call of a source.
    pub(super) fn called(&mut self, source: &Source, at: Time) {
        if let Some(history) = self.histories.get_mut(source) {
            history.last_call = at;
            return;
        }
        if self.histories.len() >= SOURCES_MAX {
            let oldest = self.histories.iter().min_by_key(|(_, history)| history.last_call);
            if let Some(oldest) = oldest.map(|(source, _)| source.clone()) {
                self.histories.remove(&oldest);
            }
        }
        let history = SourceHistory { last_call: at, last_replace: None, last_replaced: None };
        self.histories.insert(source.clone(), history);
    }

    /// Records the start or the end of a Replace of its source.
    pub(super) fn replaced(&mut self, replace: &LastReplace) {
        let history = replace.source.as_ref().and_then(|source| self.histories.get_mut(source));
        let Some(history) = history else { return };
        history.last_replace = Some(replace.clone());
        if !replace.aborted {
            history.last_replaced = replace.ended.or(history.last_replaced);
        }
    }

    /// Records that a key has another owner.
    pub(super) fn key_moved(&mut self, from: Option<&Source>, to: Option<&Source>) {
        if let Some(keys) = from.and_then(|source| self.owned.get_mut(source)) {
            *keys -= 1;
        }
        if let Some(source) = from
            && self.owned.get(source) == Some(&0)
        {
            self.owned.remove(source);
        }
        let Some(source) = to else { return };
        match self.owned.get_mut(source) {
            Some(keys) => *keys += 1,
            None => {
                self.owned.insert(source.clone(), 1);
            }
        }
    }
}
