//! Deltas: the changes of a key, with their dedup rule and cap.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

use super::id::{Rv, Source};
use super::limits::DELTA_BYTES;
use super::object::Object;
use super::omit::is_default;
use super::schedule::EventId;
use super::time::Time;
use super::trace::{Trace, TraceContext};

#[cfg(test)]
mod tests;

/// The type of a delta, with client-go's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DeltaKind {
    /// A producer added the object.
    Added,
    /// A producer changed the object.
    Updated,
    /// A producer deleted the object, or a Replace did not list it.
    Deleted,
    /// A Replace listed the object.
    Replaced,
    /// A Resync repeats the known object, or a Replace listed it with `emit_replaced = false`.
    Sync,
}

impl DeltaKind {
    /// All types, in the order of their declaration.
    pub const ALL: [Self; 5] = [Self::Added, Self::Updated, Self::Deleted, Self::Replaced, Self::Sync];

    /// The name in the API and in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "Added",
            Self::Updated => "Updated",
            Self::Deleted => "Deleted",
            Self::Replaced => "Replaced",
            Self::Sync => "Sync",
        }
    }
}

/// One change of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delta {
    /// The event that queued the delta.
    pub rv: Rv,
    /// When the delta was queued.
    #[serde(rename = "at")]
    pub queued_at: Time,
    /// The delta's type.
    #[serde(rename = "delta")]
    pub kind: DeltaKind,
    /// Whether the delta is a tombstone: the deletion was inferred, so the object may be older than the last state.
    #[serde(default, skip_serializing_if = "is_default")]
    pub final_state_unknown: bool,
    /// How many older deltas the cap merged into this one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub coalesced: u32,
    /// The delta's producer, and the owner of the key as of this delta.
    #[serde(default, skip_serializing_if = "is_default")]
    pub provenance: Provenance,
    /// The object as the producer sent it, or the newest one known for a tombstone.
    pub object: Object,
}

/// The optional facts about a delta's origin: its source, the owner of the key as of this delta, and the trace of the
/// call.
///
/// Most deltas have no facts, or the same facts as the previous delta, so each delta holds only a pointer to shared
/// facts. To record a new fact about producers, add an optional field to `Facts`. Events, deltas and their records
/// then carry it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Provenance(Option<Arc<Facts>>);

/// Invariant: at least one of the fields is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Facts {
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<Source>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<Source>,
    #[serde(rename = "traceparent", skip_serializing_if = "Option::is_none")]
    trace: Option<Trace>,
    /// Mode events: before this time the delta is not delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    due: Option<Time>,
}

impl<'de> Deserialize<'de> for Provenance {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Facts { source, owner, trace, due } = Facts::deserialize(deserializer)?;
        Ok(Self::new(source, owner, trace).with_due(due))
    }
}

impl Provenance {
    /// Creates a provenance from its parts.
    #[must_use]
    pub fn new(source: Option<Source>, owner: Option<Source>, trace: Option<Trace>) -> Self {
        let is_nothing = source.is_none() && owner.is_none() && trace.is_none();
        Self((!is_nothing).then(|| Arc::new(Facts { source, owner, trace, due: None })))
    }

    /// The same provenance, with the time before which the delta is not delivered.
    #[must_use]
    pub fn with_due(self, due: Option<Time>) -> Self {
        if due.is_none() {
            return self;
        }
        let (source, owner, trace) = (self.source().cloned(), self.owner().cloned(), self.trace().cloned());
        Self(Some(Arc::new(Facts { source, owner, trace, due })))
    }

    /// The source of the delta, if the producer named one.
    #[must_use]
    pub fn source(&self) -> Option<&Source> {
        self.0.as_ref()?.source.as_ref()
    }

    /// The owner of the key as of this delta.
    #[must_use]
    pub fn owner(&self) -> Option<&Source> {
        self.0.as_ref()?.owner.as_ref()
    }

    /// The trace of the call that queued the delta, if the producer named one.
    #[must_use]
    pub fn trace(&self) -> Option<&Trace> {
        self.0.as_ref()?.trace.as_ref()
    }

    /// Mode events: the time before which the delta is not delivered, if its call had a delay.
    #[must_use]
    pub fn due(&self) -> Option<Time> {
        self.0.as_ref()?.due
    }

    /// Bytes that the provenance takes in memory.
    fn bytes(&self) -> usize {
        let Some(Facts { source, owner, trace, .. }) = self.0.as_deref() else { return 0 };
        provenance_bytes([source.as_ref(), owner.as_ref()], trace.is_some())
    }

    /// Returns a provenance with these facts. If the facts differ from those of `self`, creates a new provenance and
    /// stores it in `self`. Successive deltas usually have the same facts, so they share them.
    #[must_use]
    pub fn same_or_next(
        &mut self,
        source: Option<&Source>,
        owner: Option<&Source>,
        trace: Option<&Trace>,
    ) -> Self {
        if (source, owner, trace) == (None, None, None) {
            return Self::default();
        }
        if (source, owner, trace) != (self.source(), self.owner(), self.trace()) {
            *self = Self::new(source.cloned(), owner.cloned(), trace.cloned());
        }
        self.clone()
    }
}

/// Bytes that a provenance with these names takes in memory.
pub(super) fn provenance_bytes(names: [Option<&Source>; 2], has_trace: bool) -> usize {
    let text: usize = names.into_iter().flatten().map(|name| name.len()).sum();
    let trace = if has_trace { size_of::<TraceContext>() } else { 0 };
    if text + trace == 0 { 0 } else { size_of::<Facts>() + text + trace }
}

impl Delta {
    /// The event that queued the delta.
    pub(super) fn event(&self) -> EventId {
        EventId { rv: self.rv, at: self.queued_at }
    }

    fn is_deleted(&self) -> bool {
        self.kind == DeltaKind::Deleted
    }
}

/// The cap of a list of deltas.
#[derive(Clone, Copy, Debug)]
pub struct Cap {
    /// Maximum number of waiting deltas.
    pub deltas: usize,
    /// Maximum size of the waiting objects in bytes.
    pub bytes: usize,
}

/// The result of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// The delta was appended.
    Queued {
        /// Number of pairs of deltas that the cap merged.
        merged: u32,
    },
    /// The dedup rule kept the older delta.
    Swallowed,
}

/// The deltas of one key, oldest first.
///
/// Every key has two such lists, and most of them are empty, so an empty list is a null pointer.
///
/// Invariant: no two neighbouring deltas are both `Deleted`, unless the cap merged away the delta between them or the
/// list keeps every delta ([`push`](Self::push)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deltas(Option<Box<List>>);

/// A list that is not empty. The oldest delta has its own field because the cap never merges it, and because most
/// lists have only one delta.
#[derive(Clone, Debug, PartialEq, Eq)]
struct List {
    oldest: Delta,
    newer: Option<Box<Newer>>,
}

/// The deltas after the oldest one. A deque, because the cap removes the second oldest delta, which in a vector would
/// move all later ones.
///
/// Invariant: `bytes` is the sum of the objects' bytes, `provenance_bytes` that of the provenances, and `deltas` is not empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Newer {
    deltas: VecDeque<Delta>,
    bytes: usize,
    provenance_bytes: usize,
}

impl Deltas {
    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Number of deltas.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |list| list.len())
    }

    /// Bytes of all objects in the list.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |list| list.bytes())
    }

    /// Bytes that the deltas take in memory.
    pub(super) fn held_bytes(&self) -> usize {
        let Some(list) = &self.0 else { return 0 };
        let newer = list
            .newer
            .as_ref()
            .map_or(0, |newer| newer.bytes + newer.provenance_bytes + newer.deltas.len() * DELTA_BYTES);
        DELTA_BYTES + list.oldest.object.bytes() + list.oldest.provenance.bytes() + newer
    }

    /// The oldest delta.
    #[must_use]
    pub fn oldest(&self) -> Option<&Delta> {
        self.0.as_ref().map(|list| &list.oldest)
    }

    /// The newest delta.
    #[must_use]
    pub fn newest(&self) -> Option<&Delta> {
        self.0.as_ref().map(|list| list.newest())
    }

    /// Changes the owner of the key as of the newest delta.
    pub fn set_owner(&mut self, owner: Option<Source>) {
        if let Some(list) = &mut self.0 {
            let newest = list.newest();
            let Delta { provenance, .. } = newest;
            let (source, trace, due) = (provenance.source(), provenance.trace(), provenance.due());
            let provenance = Provenance::new(source.cloned(), owner, trace.cloned()).with_due(due);
            list.replace_newest(Delta { provenance, ..newest.clone() });
        }
    }

    /// Replaces the object of the newest delta.
    pub(super) fn set_object(&mut self, object: Object) {
        if let Some(list) = &mut self.0 {
            let newest = list.newest().clone();
            list.replace_newest(Delta { object, ..newest });
        }
    }

    /// All deltas, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Delta> {
        self.0.iter().flat_map(|list| std::iter::once(&list.oldest).chain(list.newer()))
    }

    /// Whether [`append`](Self::append) would keep the older of two deletions and drop the new one.
    #[must_use]
    pub fn would_swallow(&self, kind: DeltaKind) -> bool {
        kind == DeltaKind::Deleted
            && self.newest().is_some_and(|last| last.is_deleted() && !last.final_state_unknown)
    }

    /// Adds a delta at the end. Of two neighbouring deletions, the newer is kept if the older is a tombstone;
    /// otherwise the older is kept (client-go's `dedupDeltas`). With `latest_only`, the list holds only the newest
    /// delta.
    pub fn append(&mut self, delta: Delta, latest_only: bool, cap: Cap) -> Appended {
        if self.would_swallow(delta.kind) {
            return Appended::Swallowed;
        }
        let merged = match &mut self.0 {
            Some(list) if !latest_only => list.append(delta, cap),
            _ => {
                *self = Self::one(delta);
                0
            }
        };
        Appended::Queued { merged }
    }

    /// Adds a delta at the end, without the dedup rule and the cap.
    pub fn push(&mut self, delta: Delta) {
        match &mut self.0 {
            Some(list) => list.push(delta),
            None => *self = Self::one(delta),
        }
    }

    /// Removes the oldest delta and returns it as a list.
    #[must_use]
    pub fn take_oldest(&mut self) -> Self {
        match self.0.as_mut().and_then(|list| list.replace_oldest()) {
            Some(oldest) => Self::one(oldest),
            None => std::mem::take(self),
        }
    }

    /// Removes the deltas up to one of them, which is not the newest, and returns them.
    pub(super) fn take_through(&mut self, through: Rv) -> Option<Self> {
        let place = self.iter().position(|delta| delta.rv == through)? + 1;
        if place == self.len() {
            return None;
        }
        let mut all = std::mem::take(self).into_queue();
        let rest = all.split_off(place);
        *self = rest.into();
        Some(all.into())
    }

    /// Puts a delta that [`take_oldest`](Self::take_oldest) removed back at the front.
    pub fn put_oldest_back(&mut self, taken: Self) {
        let newer = std::mem::replace(self, taken);
        let (Some(list), Some(newer)) = (&mut self.0, newer.0) else { return };
        let List { oldest: second, newer } = *newer;
        let mut newer = newer.unwrap_or_default();
        newer.count(&second);
        newer.deltas.push_front(second);
        list.newer = Some(newer);
    }

    /// Puts the deltas of a failed lease in front of the newer deltas, with the dedup rule between the two lists. Returns the
    /// number of pairs that the cap merged.
    pub fn put_back(&mut self, leased: Self, latest_only: bool, cap: Cap) -> u32 {
        let (mut all, mut waiting) = (leased.into_queue(), std::mem::take(self).into_queue());
        let neighbours = all.back().zip(waiting.front());
        let deletions = neighbours.filter(|(older, newer)| older.is_deleted() && newer.is_deleted());
        match deletions.map(|(older, _)| older.final_state_unknown) {
            Some(true) => drop(all.pop_back()),
            Some(false) => drop(waiting.pop_front()),
            None if latest_only && !waiting.is_empty() => all.clear(),
            None => {}
        }
        all.append(&mut waiting);
        *self = all.into();
        self.0.as_mut().map_or(0, |list| list.merge(cap))
    }

    /// The newest delta of a list that is no longer needed.
    pub(super) fn into_newest(self) -> Option<Delta> {
        let List { oldest, newer } = *self.0?;
        newer.and_then(|mut newer| newer.deltas.pop_back()).or(Some(oldest))
    }

    /// A copy of all deltas, oldest first.
    pub(super) fn to_vec(&self) -> Vec<Delta> {
        self.iter().cloned().collect()
    }

    fn one(delta: Delta) -> Self {
        Self(Some(Box::new(List { oldest: delta, newer: None })))
    }

    fn into_queue(self) -> VecDeque<Delta> {
        let Some(list) = self.0 else { return VecDeque::new() };
        let List { oldest, newer } = *list;
        let mut all = newer.map(|newer| newer.deltas).unwrap_or_default();
        all.push_front(oldest);
        all
    }
}

impl List {
    fn len(&self) -> usize {
        1 + self.newer.as_ref().map_or(0, |newer| newer.deltas.len())
    }

    fn bytes(&self) -> usize {
        self.oldest.object.bytes() + self.newer.as_ref().map_or(0, |newer| newer.bytes)
    }

    fn newer(&self) -> impl Iterator<Item = &Delta> {
        self.newer.iter().flat_map(|newer| &newer.deltas)
    }

    fn newest(&self) -> &Delta {
        self.newer.as_ref().and_then(|newer| newer.deltas.back()).unwrap_or(&self.oldest)
    }

    fn replace_newest(&mut self, delta: Delta) {
        let Some(newer) = self.newer.as_mut() else {
            self.oldest = delta;
            return;
        };
        newer.count(&delta);
        if let Some(newest) = newer.deltas.back_mut() {
            let replaced = std::mem::replace(newest, delta);
            newer.uncount(&replaced);
        }
    }

    fn push(&mut self, delta: Delta) {
        let newer = self.newer.get_or_insert_default();
        newer.count(&delta);
        newer.deltas.push_back(delta);
    }

    /// Removes the oldest delta of a list that has more deltas.
    fn replace_oldest(&mut self) -> Option<Delta> {
        let newer = self.newer.as_mut()?;
        let second = newer.deltas.pop_front()?;
        newer.uncount(&second);
        if newer.deltas.is_empty() {
            self.newer = None;
        }
        Some(std::mem::replace(&mut self.oldest, second))
    }

    /// Adds a delta at the end, or replaces a tombstone that it supersedes.
    fn append(&mut self, delta: Delta, cap: Cap) -> u32 {
        if delta.is_deleted() && self.newest().is_deleted() {
            self.replace_newest(delta);
        } else {
            self.push(delta);
        }
        self.merge(cap)
    }

    /// Merges the second and third oldest deltas until the list is within its cap.
    fn merge(&mut self, cap: Cap) -> u32 {
        let oldest_bytes = self.oldest.object.bytes();
        let Some(newer) = self.newer.as_deref_mut() else { return 0 };
        let mut merged = 0;
        while newer.deltas.len() > 1
            && (1 + newer.deltas.len() > cap.deltas || oldest_bytes + newer.bytes > cap.bytes)
        {
            let Some(second) = newer.deltas.pop_front() else { break };
            newer.uncount(&second);
            if let Some(third) = newer.deltas.front_mut() {
                third.coalesced = third.coalesced.saturating_add(second.coalesced).saturating_add(1);
            }
            merged += 1;
        }
        merged
    }
}

impl Newer {
    fn count(&mut self, delta: &Delta) {
        self.bytes += delta.object.bytes();
        self.provenance_bytes += delta.provenance.bytes();
    }

    fn uncount(&mut self, delta: &Delta) {
        self.bytes -= delta.object.bytes();
        self.provenance_bytes -= delta.provenance.bytes();
    }
}

impl From<VecDeque<Delta>> for Deltas {
    fn from(mut all: VecDeque<Delta>) -> Self {
        let Some(oldest) = all.pop_front() else { return Self::default() };
        let mut newer = Newer::default();
        for delta in &all {
            newer.count(delta);
        }
        newer.deltas = all;
        let newer = (!newer.deltas.is_empty()).then(|| Box::new(newer));
        Self(Some(Box::new(List { oldest, newer })))
    }
}

impl From<Vec<Delta>> for Deltas {
    fn from(all: Vec<Delta>) -> Self {
        VecDeque::from(all).into()
    }
}
