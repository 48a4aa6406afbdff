//! Decisions on the rows that a follower applies.

use super::{Call, Comparison};
use std::sync::Arc;

use crate::config::Quiet;
use crate::delta::{DeltaKind, Provenance};
use crate::event::{Appended, EventKind, Origin};
use crate::feed::{Row, RowKind};
use crate::follow::{FollowPhase, FollowPosition};
use crate::followed::{FollowedChange, FollowedDelta, FollowedEvent};
use crate::id::Rv;
use crate::initial::InitialList;
use crate::key::Key;
use crate::object::{Change, Object};
use crate::queue::Queue;
use crate::refusal::Refusal;
use crate::state::State;
use crate::table::Entry;
use crate::time::Time;

/// After this many events without a row for the follower, the follower records its position. A restart then does not
/// read those events again.
const QUIET_EVENTS: u64 = 10_000;

/// The result of taking rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// All rows were taken. This is the new position.
    All(FollowPosition),
    /// The queue took rows until one did not fit.
    Full,
    /// The queue is no longer at the caller's position, and has taken nothing.
    Moved,
}

/// The effect of a row on the follower.
#[derive(Clone, Copy, Debug)]
enum RowEffect {
    Nothing,
    /// The follower already has the listed object.
    Unchanged,
    /// The object differs in ignored members at most.
    Refresh,
    Delete,
    Append(DeltaKind),
}

impl Queue {
    /// The position of the queue in the followed queue. `None` if it follows no queue or has not begun the list.
    #[must_use]
    pub fn follow_position(&self) -> Option<FollowPosition> {
        self.state().followed
    }

    /// The name of the token that has set what the queue follows.
    #[must_use]
    pub fn follow_set_by(&self) -> Option<&Arc<str>> {
        self.state().follow_set_by.as_ref()
    }

    /// How many rows the queue may take before `max_waiting` keys wait. 0 if it follows no queue.
    #[must_use]
    pub fn follow_room(&self) -> usize {
        let State { config, schedule, .. } = self.state();
        let waiting = schedule.ready_len() + schedule.delayed_len();
        config.follow.as_ref().map_or(0, |follow| follow.max_waiting.saturating_sub(waiting))
    }

    /// Refuses a call of a producer.
    pub(crate) fn check_takes_calls(&self) -> Result<(), Refusal> {
        match &self.state().config.follow {
            Some(follow) => Err(Refusal::Follower { follows: follow.queue.clone() }),
            None => Ok(()),
        }
    }

    /// Begins the list of all keys of the followed queue. `None` if the queue can't begin, because it follows no
    /// queue or because an earlier Replace or seed has not ended.
    pub fn begin_follow_list(&mut self, now: Time, incarnation: u32, since: Rv) -> Option<FollowPosition> {
        let now = self.advance(now);
        let is_busy = !self.volatile.replace_jobs.is_empty() || self.volatile.seeding.is_some();
        if is_busy || self.state().config.follow.is_none() {
            return None;
        }
        let position = FollowPosition { incarnation, after: Rv::ZERO, phase: FollowPhase::Sweep { since } };
        self.emit(now, EventKind::Followed { position });
        Some(position)
    }

    /// Returns the listed objects that must be compared with those of the queue before it applies these rows.
    #[must_use]
    pub fn compare_rows(&self, phase: FollowPhase, rows: &[Row]) -> Comparison {
        let ignored = &self.state().config.ignored;
        let mut comparison = Comparison::new(ignored);
        let compares = matches!(phase, FollowPhase::List { .. }) || !ignored.is_empty();
        for row in rows.iter().filter(|_| compares) {
            let newest = self.state().table.get(row.key.as_str()).and_then(Entry::newest_object);
            if let (Some(newest), Some(listed)) = (newest, &row.object) {
                comparison.push(newest, listed);
            }
        }
        comparison
    }

    /// Applies rows. Moves the queue from position `from` to `to`. `comparison` is the result of
    /// [`compare_rows`](Self::compare_rows). An object that has changed since then counts as different.
    pub fn take_rows(
        &mut self,
        now: Time,
        from: FollowPosition,
        rows: &[Row],
        to: FollowPosition,
        comparison: &Comparison,
    ) -> Taken {
        let mut provenance = Provenance::default();
        let rows = rows.iter().map(|row| (row.rv, row));
        self.take(now, from, rows, (to, QUIET_EVENTS), |queue, now, row| {
            let effect = queue.effect_of(from.phase, row, comparison);
            match effect {
                RowEffect::Nothing => {}
                RowEffect::Unchanged => queue.volatile.effects.counters.ignored_unchanged += 1,
                RowEffect::Refresh => queue.refresh(now, &row.key, row.object.as_ref(), row.source.as_ref()),
                RowEffect::Delete => {
                    let (object, final_state_unknown) = (row.object.clone(), row.final_state_unknown);
                    let call = Call { object, final_state_unknown, ..queue.deletion(&row.key, from.phase) };
                    queue.delete(now, &call, &mut provenance);
                }
                RowEffect::Append(_) if !queue.has_room(&row.key, row.object.as_ref()) => return false,
                RowEffect::Append(delta) => queue.append_row(now, from.phase, row, delta, &mut provenance),
            }
            true
        })
    }

    /// Returns the objects that must be compared before the queue takes these events.
    #[must_use]
    pub fn compare_events(&self, events: &[FollowedEvent]) -> Comparison {
        self.compare_updates(events.iter().filter_map(|event| match &event.change {
            FollowedChange::Queued(delta) => Some((delta.kind, &event.key, Some(&delta.object))),
            FollowedChange::Left | FollowedChange::Dropped => None,
        }))
    }

    /// Mode `events`: takes events of the followed queue. Moves the queue from position `from` to `to`. `comparison` is the result
    /// of [`compare_events`](Self::compare_events). Without events it records the position only if `records` is set.
    pub fn take_events(
        &mut self,
        now: Time,
        from: FollowPosition,
        events: &[FollowedEvent],
        (to, records): (FollowPosition, bool),
        comparison: &Comparison,
    ) -> Taken {
        let mut provenance = Provenance::default();
        let events = events.iter().map(|event| (event.rv, event));
        let quiet_max = if records { 0 } else { QUIET_EVENTS };
        self.take(now, from, events, (to, quiet_max), |queue, now, FollowedEvent { key, change, .. }| {
            match change {
                FollowedChange::Left if !queue.has(key) => {}
                FollowedChange::Queued(FollowedDelta {
                    kind: DeltaKind::Updated,
                    object,
                    provenance,
                    ..
                }) if queue.changes_nothing(key, Some(object), Some(comparison)) => {
                    queue.refresh(now, key, Some(object), provenance.owner());
                }
                FollowedChange::Queued(delta) if !queue.has_room(key, Some(&delta.object)) => return false,
                FollowedChange::Queued(delta) => queue.append_delta(now, key, delta, &mut provenance),
                FollowedChange::Left => {
                    let call = queue.deletion(key, from.phase);
                    queue.delete(now, &call, &mut provenance);
                }
                FollowedChange::Dropped => {}
            }
            true
        })
    }

    /// Applies items until `apply` says that one does not fit. Each item has the event that it is from. Without items,
    /// the position is recorded after `quiet_max` events.
    fn take<T>(
        &mut self,
        now: Time,
        from: FollowPosition,
        items: impl ExactSizeIterator<Item = (Rv, T)>,
        (to, quiet_max): (FollowPosition, u64),
        mut apply: impl FnMut(&mut Self, Time, T) -> bool,
    ) -> Taken {
        let now = self.advance(now);
        if self.state().followed != Some(from) {
            return Taken::Moved;
        }
        let is_quiet = items.len() == 0;
        let mut after = from.after;
        for (rv, item) in items {
            if !apply(self, now, item) {
                if after != from.after {
                    self.emit(now, EventKind::Followed { position: FollowPosition { after, ..from } });
                }
                return Taken::Full;
            }
            after = rv;
        }
        let passed = to.after.get().saturating_sub(from.after.get());
        if is_quiet && from.phase == to.phase && passed <= quiet_max {
            return Taken::All(from);
        }
        self.emit(now, EventKind::Followed { position: to });
        Taken::All(to)
    }

    /// The effect of a row on the queue.
    fn effect_of(&self, phase: FollowPhase, row: &Row, comparison: &Comparison) -> RowEffect {
        let slot = self.state().table.find(row.key.as_str());
        let entry = slot.map(|slot| self.state().entry(slot)).filter(|entry| is_live(entry));
        let is_list = matches!(phase, FollowPhase::List { .. });
        match (row.kind, entry) {
            (RowKind::Deleted, Some(_)) => RowEffect::Delete,
            // A watch may send a row for a deleted key that the follower never had.
            (RowKind::Deleted, None) => RowEffect::Nothing,
            (_, Some(entry)) if is_list && self.has_object_of(entry, row, comparison) => RowEffect::Unchanged,
            (_, Some(_)) if self.changes_nothing(&row.key, row.object.as_ref(), Some(comparison)) => {
                RowEffect::Refresh
            }
            _ if is_list && self.state().config.emit_replaced => RowEffect::Append(DeltaKind::Replaced),
            _ if is_list => RowEffect::Append(DeltaKind::Sync),
            (RowKind::Added, None) => RowEffect::Append(DeltaKind::Added),
            // If the follower already has an added key, the key was deleted and added again without the follower
            // seeing the deletion.
            (RowKind::Added | RowKind::Updated, _) => RowEffect::Append(DeltaKind::Updated),
        }
    }

    /// Whether the newest object and the owner of the key are those of the row.
    fn has_object_of(&self, entry: &Entry, row: &Row, comparison: &Comparison) -> bool {
        let ignored = &self.state().config.ignored;
        let same = |newest, listed| comparison.result(ignored, newest, listed) == Some(Change::None);
        let newest = entry.newest_object();
        newest.zip(row.object.as_ref()).is_some_and(|(newest, listed)| same(newest, listed))
            && entry.owner() == row.source.as_ref()
    }

    /// Whether the key has a state that is not a deletion.
    fn has(&self, key: &Key) -> bool {
        self.state().table.get(key.as_str()).is_some_and(is_live)
    }

    /// Whether the queue has room for an object of the key.
    fn has_room(&self, key: &Key, object: Option<&Object>) -> bool {
        self.check_room(std::iter::once(key)).is_ok()
            && object.is_none_or(|object| self.check_bounds_of_item(key, object, 0).is_ok())
    }

    fn append_delta(&mut self, now: Time, key: &Key, delta: &FollowedDelta, last: &mut Provenance) {
        let FollowedDelta { kind, object, final_state_unknown, provenance, .. } = delta;
        let (source, owner, trace) = (provenance.source(), provenance.owner(), provenance.trace());
        let appended = Appended {
            key: key.clone(),
            delta: *kind,
            final_state_unknown: *final_state_unknown,
            origin: Origin::Call,
            // The delay of the delta in the followed queue is not copied.
            provenance: last.same_or_next(source, owner, trace),
            due: None,
            head_start: self.head_start_of_list(false, object),
            object: object.clone(),
        };
        self.emit(now, EventKind::Appended(appended));
    }

    fn append_row(
        &mut self,
        now: Time,
        phase: FollowPhase,
        row: &Row,
        delta: DeltaKind,
        provenance: &mut Provenance,
    ) {
        // Only the row of a deleted key may have no object.
        let Some(object) = row.object.clone() else { return };
        let is_initial = matches!(self.state().initial, InitialList::Running { .. });
        let slot = self.state().table.find(row.key.as_str());
        let due = if self.state().config.debounce.is_none() {
            None
        } else if phase == FollowPhase::Changes {
            self.due_of_call(now, slot, &Call { kind: delta, ..Call::of_key(row.key.clone(), None) }, None)
        } else {
            self.due_of_list(now, slot, delta)
        };
        // The row determines the owner of the key, even if there is none.
        let owner = row.source.as_ref();
        let appended = Appended {
            key: row.key.clone(),
            delta,
            final_state_unknown: false,
            origin: if phase == FollowPhase::Changes { Origin::Call } else { Origin::replace(is_initial) },
            provenance: provenance.same_or_next(owner, owner, None),
            due,
            head_start: self.head_start_of_list(is_initial && phase != FollowPhase::Changes, &object),
            object,
        };
        self.emit_at(now, slot, EventKind::Appended(appended));
    }

    /// The deletion of a key whose last object is unknown. Outside the phase of changes it is that of a list.
    fn deletion(&self, key: &Key, phase: FollowPhase) -> Call {
        let of_list = || self.quiet_of_list(DeltaKind::Deleted).unwrap_or(Quiet::NONE);
        let debounce = (phase != FollowPhase::Changes).then(of_list);
        let call = Call::of_key(key.clone(), None);
        Call { kind: DeltaKind::Deleted, final_state_unknown: true, debounce, ..call }
    }

    /// The keys among the next `budget` keys that the sweep must look up in the followed queue, and the last examined
    /// key. The last key is `None` if there are no more keys.
    #[must_use]
    pub fn keys_to_sweep(&self, after: Option<&Key>, budget: usize) -> (Vec<Key>, Option<Key>) {
        let (mut keys, mut last, mut seen) = (Vec::new(), None, 0);
        for (_, entry) in self.state().entries_after(after.map(Key::as_str)).take(budget) {
            seen += 1;
            last = Some(&entry.key);
            if is_live(entry) {
                keys.push(entry.key.clone());
            }
        }
        (keys, last.filter(|_| seen == budget).cloned())
    }

    /// Deletes keys that the followed queue does not have. Returns whether the queue is still at the position `from`.
    pub fn sweep_keys(&mut self, now: Time, from: FollowPosition, keys: &[Key]) -> bool {
        let now = self.advance(now);
        if self.state().followed != Some(from) {
            return false;
        }
        let mut provenance = Provenance::default();
        for key in keys {
            self.delete(now, &self.deletion(key, from.phase), &mut provenance);
        }
        true
    }

    /// Checks the invariants.
    pub(crate) fn check_follow(&self) -> Result<(), String> {
        let State { config, followed, follow_set_by, initial, .. } = self.state();
        match followed {
            _ if follow_set_by.is_some() && config.follow.is_none() => {
                Err(String::from("a token has set what the queue follows, but it follows none"))
            }
            Some(_) if config.follow.is_none() => {
                Err(String::from("a queue without followed queue has a position"))
            }
            Some(FollowPosition { phase: FollowPhase::Changes, .. })
                if !matches!(initial, InitialList::Complete) =>
            {
                Err(String::from("a follower takes changes before its list is complete"))
            }
            _ => Ok(()),
        }
    }
}

/// Whether the key has a state that is not a deletion.
fn is_live(entry: &Entry) -> bool {
    entry.has_state() && !entry.is_deleted()
}
