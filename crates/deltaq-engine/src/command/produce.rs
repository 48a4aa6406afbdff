//! Decisions on Add, Update and Delete.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::order::improves;
use super::version::{StaleCalls, may_merge_deletion};
use super::{Call, Comparison, Expected, Produced};
use crate::delta::{DeltaKind, Provenance};
use crate::event::{Appended, Due, EventKind, Origin, Queued};
use crate::id::{Sequence, Source};
use crate::key::Key;
use crate::object::{Change, Object};
use crate::queue::Queue;
use crate::refusal::Refusal;
use crate::schedule::Place;
use crate::table::Entry;
use crate::time::Time;

/// The effect of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// The call counts as a delta or as an add of a key. This includes a call that changes nothing because its effect
    /// is already queued, except for `Merged`.
    Queued,
    /// Mode keys: the key was already ready and not leased.
    Merged,
    /// The call had nothing to change.
    Ignored,
}

impl Queue {
    /// Applies all `calls` in order, or none of them.
    ///
    /// # Errors
    /// [`Refusal::WrongMode`], [`Refusal::ObjectTooLarge`], [`Refusal::QueueFull`], [`Refusal::MemoryFull`] or
    /// [`Refusal::KeyFull`].
    pub fn produce(&mut self, now: Time, calls: &[Call]) -> Result<Produced, Refusal> {
        self.produce_once(now, calls, None, &[])
    }

    /// Like [`produce`](Self::produce), but does nothing if the queue has already applied the number of `sequence`,
    /// or a larger number of the same source. All of `expected` must hold before the first call is applied.
    ///
    /// # Errors
    /// Same as [`produce`](Self::produce); also [`Refusal::PreconditionFailed`], [`Refusal::SequenceBusy`] or
    /// [`Refusal::TooManySequences`].
    pub fn produce_once(
        &mut self,
        now: Time,
        calls: &[Call],
        sequence: Option<&Sequence>,
        expected: &[Expected],
    ) -> Result<Produced, Refusal> {
        let comparison = self.volatile.comparison.take();
        let now = self.advance(now);
        if let Some(sequence) = sequence {
            if self.has_applied(sequence) {
                self.volatile.effects.counters.ignored_repeated += calls.len() as u64;
                let resource_version = self.state().rv;
                return Ok(Produced { resource_version, duplicate: true, ..Produced::default() });
            }
            self.check_sequence(sequence)?;
        }
        self.check_expected(expected)?;
        let stale = self.stale_calls(calls);
        self.check_fresh_calls(calls, &stale)?;
        self.volatile.sequence = sequence.cloned();
        let has_objects = self.state().config.rules().has_objects;
        // The deltas of one command usually have the same source, so they share one provenance.
        let mut provenance = Provenance::default();
        let mut produced = Produced::default();
        for (index, call) in calls.iter().enumerate() {
            if stale.contains(index) {
                self.volatile.effects.counters.ignored_stale += 1;
                produced.stale += 1;
                self.populate(now);
                continue;
            }
            let effect = match call.kind {
                _ if !has_objects => self.add_key(now, call),
                DeltaKind::Updated
                    if self.changes_nothing(&call.key, call.object.as_ref(), comparison.as_deref()) =>
                {
                    self.refresh(now, &call.key, call.object.as_ref(), call.source.as_ref());
                    self.populate(now);
                    Effect::Ignored
                }
                DeltaKind::Deleted => self.delete(now, call, &mut provenance),
                _ => self.append(now, call, &mut provenance),
            };
            match effect {
                Effect::Queued => produced.queued += 1,
                Effect::Merged => produced.merged += 1,
                Effect::Ignored => produced.ignored += 1,
            }
            self.note_call(call);
        }
        // A call with nothing to change has not emitted an event yet.
        if self.volatile.sequence.is_some() {
            self.emit(now, EventKind::Populated);
        }
        produced.resource_version = self.state().rv;
        Ok(produced)
    }

    /// Checks that [`produce_once`](Self::produce_once) would accept the calls.
    ///
    /// # Errors
    /// Same as [`produce_once`](Self::produce_once).
    pub fn check_calls(&self, calls: &[Call], expected: &[Expected]) -> Result<(), Refusal> {
        self.check_expected(expected)?;
        self.check_fresh_calls(calls, &self.stale_calls(calls))
    }

    /// Like [`check_calls`](Self::check_calls), but skips stale calls: a stale call changes nothing, so it needs no
    /// room.
    fn check_fresh_calls(&self, calls: &[Call], stale: &StaleCalls) -> Result<(), Refusal> {
        self.check_takes_calls()?;
        let rules = self.state().config.rules();
        let limit = self.state().config.max_object_bytes;
        for (index, call) in calls.iter().enumerate() {
            if !rules.has_objects && call.kind != DeltaKind::Added {
                let name = if call.kind == DeltaKind::Deleted { "delete" } else { "update" };
                return Err(self.wrong_mode(name, "a queue of mode keys has no objects, only add"));
            }
            self.check_debounce(call)?;
            if rules.has_objects && call.rate_limited {
                return Err(self.wrong_mode("rate_limited", "only a queue of mode keys has AddRateLimited"));
            }
            if let Some(bytes) = call.object.as_ref().map(Object::bytes).filter(|bytes| *bytes > limit) {
                return Err(Refusal::ObjectTooLarge { limit, bytes, index });
            }
        }
        if rules.stops_when_closed && self.state().closed {
            return Ok(());
        }
        let fresh = calls.iter().enumerate().filter(|(index, _)| !stale.contains(*index));
        let deletes_add = self.state().config.delivers_deletes_of_absent_keys();
        let is_add = |call: &Call| call.kind != DeltaKind::Deleted || deletes_add;
        self.check_room(fresh.clone().filter(|(_, call)| is_add(call)).map(|(_, call)| &call.key))?;
        self.check_memory(fresh.clone().map(|(_, call)| call))?;
        self.check_bounds(fresh)
    }

    /// The pairs of objects that [`produce`](Self::produce) compares, if the queue ignores members.
    #[must_use]
    pub fn compare_calls(&self, calls: &[Call]) -> Comparison {
        self.compare_updates(calls.iter().map(|call| (call.kind, &call.key, call.object.as_ref())))
    }

    /// If the queue ignores members: the new object of each update, and the one before it.
    pub(super) fn compare_updates<'c>(
        &'c self,
        changes: impl Iterator<Item = (DeltaKind, &'c Key, Option<&'c Object>)>,
    ) -> Comparison {
        let ignored = &self.state().config.ignored;
        let mut comparison = Comparison::new(ignored);
        if ignored.is_empty() {
            return comparison;
        }
        let mut newest: HashMap<&Key, Option<&Object>> = HashMap::new();
        for (kind, key, object) in changes {
            let before = newest.insert(key, object);
            let before = before.unwrap_or_else(|| self.state().table.get(key.as_str())?.newest_object());
            if let (DeltaKind::Updated, Some(before), Some(object)) = (kind, before, object) {
                comparison.push_update(before, object);
            }
        }
        comparison
    }

    /// Sets the comparison that the next [`produce`](Self::produce) uses. Without one, every update counts as a change.
    pub fn set_comparison(&mut self, comparison: Arc<Comparison>) {
        self.volatile.comparison = Some(comparison);
    }

    /// Whether the queue ignores members, and an update of the key changes at most those.
    pub(super) fn changes_nothing(
        &self,
        key: &Key,
        object: Option<&Object>,
        comparison: Option<&Comparison>,
    ) -> bool {
        if self.state().config.ignored.is_empty() {
            return false;
        }
        let entry = self.state().table.get(key.as_str()).filter(|entry| !entry.is_deleted());
        let newest = entry.and_then(Entry::newest_object).zip(object);
        let ignored = &self.state().config.ignored;
        let change = newest.and_then(|(newest, object)| comparison?.result(ignored, newest, object));
        matches!(change, Some(Change::None | Change::Ignored))
    }

    /// Replaces the newest object of a key by one of which only ignored members differ. If `source` is some, it owns the key from
    /// now on.
    pub(super) fn refresh(&mut self, now: Time, key: &Key, object: Option<&Object>, source: Option<&Source>) {
        self.volatile.effects.counters.ignored_unchanged += 1;
        let (Some(entry), Some(object)) = (self.state().table.get(key.as_str()), object) else { return };
        if entry.newest_object() == Some(object) {
            return self.take_over(now, source, key.clone());
        }
        let provenance = Provenance::new(source.cloned(), source.or(entry.owner()).cloned(), None);
        self.emit(now, EventKind::Refreshed { key: key.clone(), provenance, object: object.clone() });
    }

    /// Refuses new keys if the queue has no room for them.
    pub(crate) fn check_room<'a>(&self, keys: impl Iterator<Item = &'a Key> + Clone) -> Result<(), Refusal> {
        let (held, limit) = (self.state().keys() + self.volatile.reserved(), self.state().config.max_keys);
        if keys.clone().count() <= limit.saturating_sub(held) {
            return Ok(());
        }
        let wanted = keys.filter(|key| !self.state().holds(key)).collect::<HashSet<_>>().len();
        if wanted > limit.saturating_sub(held) {
            return Err(Refusal::QueueFull { limit, keys: held, wanted });
        }
        Ok(())
    }

    pub(crate) fn wrong_mode(&self, call: &'static str, reason: &'static str) -> Refusal {
        Refusal::WrongMode { call, reason, mode: self.state().config.mode }
    }

    /// Mode keys: adds a key. A closed queue ignores adds.
    pub(super) fn add_key(&mut self, now: Time, call: &Call) -> Effect {
        let key = call.key.clone();
        if self.state().closed && self.state().config.rules().stops_when_closed {
            self.volatile.effects.counters.ignored_closed += 1;
            // Ignored adds are not checked for room, so the number of failure counts is bounded here. An ignored
            // AddRateLimited still takes a token from the bucket, as in client-go's `When`.
            let has_room = self.state().table.len() < self.state().config.max_keys
                || self.state().table.find(key.as_str()).is_some();
            if call.rate_limited && has_room {
                self.emit(now, EventKind::Failed { key });
            }
            return Effect::Ignored;
        }
        // As in client-go, a delay of zero counts, and so does a delay of a key that is already ready.
        self.volatile.effects.counters.retries += u64::from(call.delay.is_some() || call.rate_limited);
        let mut wait = call.delay;
        if call.rate_limited {
            // A parked key starts over with one failure.
            let schedule_state = self.state().table.get(key.as_str()).map(|entry| &entry.schedule_state);
            let failures = schedule_state.filter(|schedule_state| schedule_state.place != Place::Parked);
            let failures = failures.map_or(0, |schedule_state| schedule_state.failures);
            let limiter = &self.state().config.rate_limiter;
            wait = Some(limiter.wait(key.as_str(), failures.saturating_add(1), self.state().bucket, now).0);
        }
        let slot = self.state().table.find(key.as_str());
        let due = self.due_of_call(now, slot, call, wait);
        let head_start = self.head_start_of_call(call, None);
        let mut effect = Effect::Queued;
        if due.is_none()
            && !call.rate_limited
            && let Some(entry) = slot.map(|slot| self.state().entry(slot))
        {
            // In client-go, such a key is in the dirty set and will be delivered anyway.
            let is_queued = match &entry.schedule_state.place {
                Place::Ready(_) => {
                    effect = Effect::Merged;
                    true
                }
                Place::Leased(lease) => lease.new_change.is_some(),
                Place::Idle | Place::Parked => false,
            };
            if is_queued && !improves(entry, head_start) {
                return effect;
            }
        }
        let queued = Queued { key, due, rate_limited: call.rate_limited, head_start };
        self.emit_at(now, slot, EventKind::Queued(queued));
        effect
    }

    /// Queues the delta of a call that has an object.
    pub(super) fn append(&mut self, now: Time, call: &Call, provenance: &mut Provenance) -> Effect {
        let Some(object) = &call.object else {
            panic!("the call {:?} of key {} has no object", call.kind, call.key);
        };
        self.volatile.effects.counters.retries += u64::from(call.delay.is_some());
        let slot = self.state().table.find(call.key.as_str());
        let due = self.due_of_call(now, slot, call, call.delay);
        let inherited = || slot.and_then(|slot| self.state().entry(slot).owner()).cloned();
        let owner = call.source.clone().or_else(inherited).filter(|_| call.kind != DeltaKind::Deleted);
        let appended = Appended {
            key: call.key.clone(),
            delta: call.kind,
            final_state_unknown: call.final_state_unknown,
            origin: Origin::Call,
            provenance: provenance.same_or_next(call.source.as_ref(), owner.as_ref(), call.trace.as_ref()),
            due,
            head_start: self.head_start_of_call(call, Some(object)),
            object: object.clone(),
        };
        self.emit_at(now, slot, EventKind::Appended(appended));
        Effect::Queued
    }

    pub(super) fn delete(&mut self, now: Time, call: &Call, provenance: &mut Provenance) -> Effect {
        if self.state().config.rules().keeps_every_delta {
            return self.append_deletion(now, call, provenance);
        }
        let known_only = |entry: &&Entry| entry.has_state();
        let Some(entry) = self.state().table.get(call.key.as_str()).filter(known_only) else {
            return if self.state().config.delivers_deletes_of_absent_keys() {
                self.append_deletion(now, call, provenance)
            } else {
                self.ignore_delete(now, call)
            };
        };
        if entry.waiting.is_empty() && entry.is_deleted() {
            return self.ignore_delete(now, call);
        }
        if self.state().drops(entry) {
            self.remember_deletion(now, &call.key, call.version.as_ref());
            self.emit(now, EventKind::Dropped { key: call.key.clone(), origin: Origin::Call });
            return Effect::Queued;
        }
        if entry.waiting.would_swallow(DeltaKind::Deleted) {
            self.remember_deletion(now, &call.key, call.version.as_ref());
            self.volatile.effects.counters.ignored_duplicate += 1;
            self.end_window_of_deletion(now, call);
            self.populate(now);
            return Effect::Queued;
        }
        self.append_deletion(now, call, provenance)
    }

    /// A repeated Delete adds no delta, but if it is not debounced, it ends the wait of the one that is.
    fn end_window_of_deletion(&mut self, now: Time, call: &Call) {
        let slot = self.state().table.find(call.key.as_str());
        if slot.is_none_or(|slot| self.state().entry(slot).schedule_state.window().is_none()) {
            return;
        }
        let due = self.due_of_call(now, slot, call, call.delay);
        if !matches!(due, Some(Due::Window(_))) {
            let newest = slot.and_then(|slot| self.state().entry(slot).newest_object());
            let head_start = self.head_start_of_call(call, call.object.as_ref().or(newest));
            let queued = Queued { key: call.key.clone(), due, rate_limited: false, head_start };
            self.emit_at(now, slot, EventKind::Queued(queued));
        }
    }

    /// Queues a deletion. A Delete by key alone gets the newest object of the queue, or an empty one if the queue has none.
    fn append_deletion(&mut self, now: Time, call: &Call, provenance: &mut Provenance) -> Effect {
        let entry = self.state().table.get(call.key.as_str());
        let newest = entry.and_then(Entry::newest_object).cloned();
        let is_unversioned = call.object.is_some() && call.version.is_none();
        if is_unversioned || entry.is_some_and(may_merge_deletion) {
            self.remember_deletion(now, &call.key, call.version.as_ref());
        }
        let final_state_unknown = call.final_state_unknown || call.object.is_none();
        // A deletion that repeats the newest object shares its text.
        let repeated = newest.filter(|newest| call.object.as_ref().is_none_or(|object| object == newest));
        let object = repeated.or(call.object.clone()).unwrap_or_else(Object::empty);
        let call = Call { object: Some(object), final_state_unknown, ..call.clone() };
        self.append(now, &call, provenance)
    }

    /// Handles a Delete that has nothing to delete. Its version is remembered, because a later call may carry an
    /// object older than the deletion.
    fn ignore_delete(&mut self, now: Time, call: &Call) -> Effect {
        self.volatile.effects.counters.ignored_absent += 1;
        self.remember_deletion(now, &call.key, call.version.as_ref());
        self.populate(now);
        Effect::Ignored
    }

    /// Marks the queue as populated, for a call that queues nothing.
    fn populate(&mut self, now: Time) {
        if !self.state().initial.is_populated() {
            self.emit(now, EventKind::Populated);
        }
    }
}
