//! Decisions on the rows that a follower takes.

use super::Call;
use crate::engine::delta::{DeltaKind, Provenance};
use crate::engine::event::{Appended, EventKind, Origin};
use crate::engine::feed::{Row, RowKind};
use crate::engine::follow::{FollowPhase, FollowPosition};
use crate::engine::id::{Rv, Slot};
use crate::engine::initial::InitialList;
use crate::engine::key::Key;
use crate::engine::object::Object;
use crate::engine::queue::Queue;
use crate::engine::refusal::Refusal;
use crate::engine::state::State;
use crate::engine::time::Time;

/// After this many events without a row for the follower, the follower records its position, so that a restart does not read all
/// these events again.
const QUIET_EVENTS: u64 = 10_000;

/// The result of taking rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// All rows were taken. This is the new position.
    All(FollowPosition),
    /// The queue has no room for one of the rows, and has taken the rows before.
    Full,
    /// The queue is no longer at the position of the caller, and has taken nothing.
    Moved,
}

impl Queue {
    /// How far the queue has got, if it follows another queue and has begun the list.
    #[must_use]
    pub fn follow_position(&self) -> Option<FollowPosition> {
        self.state().followed
    }

    /// How many rows the queue takes before too many keys wait. 0 if it follows no queue.
    #[must_use]
    pub fn follow_room(&self) -> usize {
        let State { config, schedule, .. } = self.state();
        let waiting = schedule.ready_len() + schedule.delayed_len();
        config.follow.as_ref().map_or(0, |follow| follow.max_waiting.saturating_sub(waiting))
    }

    /// Refuses a call of a producer.
    pub(in crate::engine) fn check_takes_calls(&self) -> Result<(), Refusal> {
        match &self.state().config.follow {
            Some(follow) => Err(Refusal::Follower { follows: follow.queue.clone() }),
            None => Ok(()),
        }
    }

    /// Begins the list of all keys of the followed queue. `None` while the queue can't begin: it follows no queue, or a Replace or a seed
    /// that was accepted before has not ended.
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

    /// Takes rows. The queue is at the position `from` and then has everything up to `to`.
    pub fn take_rows(&mut self, now: Time, from: FollowPosition, rows: &[Row], to: FollowPosition) -> Taken {
        let now = self.advance(now);
        if self.state().followed != Some(from) {
            return Taken::Moved;
        }
        let mut provenance = Provenance::default();
        let mut after = from.after;
        for row in rows {
            if !self.has_room(from.phase, row) {
                if after != from.after {
                    self.emit(now, EventKind::Followed { position: FollowPosition { after, ..from } });
                }
                return Taken::Full;
            }
            self.take_row(now, from.phase, row, &mut provenance);
            after = row.rv;
        }
        let quiet = to.after.get().saturating_sub(from.after.get());
        if rows.is_empty() && from.phase == to.phase && quiet < QUIET_EVENTS {
            return Taken::All(from);
        }
        self.emit(now, EventKind::Followed { position: to });
        Taken::All(to)
    }

    /// Whether the queue has room for the object of a row, or takes nothing from the row.
    fn has_room(&self, phase: FollowPhase, row: &Row) -> bool {
        let slot = self.state().table.find(row.key.as_str());
        let is_ignored = matches!(phase, FollowPhase::List { .. }) && self.has_newest(slot, row);
        row.kind == RowKind::Deleted
            || is_ignored
            || self.check_room(std::iter::once(&row.key)).is_ok()
                && row.object.iter().all(|object| self.check_bounds_of_item(&row.key, object, 0).is_ok())
    }

    fn take_row(&mut self, now: Time, phase: FollowPhase, row: &Row, provenance: &mut Provenance) {
        let is_list = matches!(phase, FollowPhase::List { .. });
        let slot = self.state().table.find(row.key.as_str());
        let kind = match row.kind {
            RowKind::Deleted => DeltaKind::Deleted,
            // The key was deleted and added again, and the follower has not seen the deletion.
            RowKind::Added if self.is_live(slot) => DeltaKind::Updated,
            RowKind::Added => DeltaKind::Added,
            RowKind::Updated => DeltaKind::Updated,
        };
        let call = Call {
            kind,
            key: row.key.clone(),
            object: row.object.clone(),
            source: row.source.clone(),
            delay: None,
            final_state_unknown: row.final_state_unknown,
            rate_limited: false,
            trace: None,
            version: None,
        };
        // Only the row of a deleted key may have no object.
        let Some(object) = row.object.clone().filter(|_| kind != DeltaKind::Deleted) else {
            // A watch may have a row of a deleted key that the follower never had.
            if self.is_live(slot) {
                self.delete(now, &call, provenance);
            }
            return;
        };
        if is_list && self.has_newest(slot, row) {
            self.volatile.effects.counters.ignored_unchanged += 1;
            return;
        }
        let (delta, origin) = match self.state().initial {
            _ if !is_list => (kind, Origin::Call),
            initial => (self.replace_kind(), Origin::replace(matches!(initial, InitialList::Running { .. }))),
        };
        // The row says who owns the key, also if nobody does.
        let owner = row.source.as_ref();
        let appended = Appended {
            key: row.key.clone(),
            delta,
            final_state_unknown: false,
            origin,
            provenance: provenance.same_or_next(owner, owner, None),
            due: None,
            object,
        };
        self.emit_at(now, slot, EventKind::Appended(appended));
    }

    /// The type of the deltas of a list.
    fn replace_kind(&self) -> DeltaKind {
        if self.state().config.emit_replaced { DeltaKind::Replaced } else { DeltaKind::Sync }
    }

    /// Whether the queue has a state of the key that is not a deletion.
    fn is_live(&self, slot: Option<Slot>) -> bool {
        slot.is_some_and(|slot| {
            let entry = self.state().entry(slot);
            entry.has_state() && !entry.is_deleted()
        })
    }

    /// Whether the newest object of the key is the object of the row, with the same owner.
    fn has_newest(&self, slot: Option<Slot>, row: &Row) -> bool {
        slot.filter(|slot| self.is_live(Some(*slot))).is_some_and(|slot| {
            let entry = self.state().entry(slot);
            let newest = entry.newest_object().map(Object::as_str);
            newest == row.object.as_ref().map(Object::as_str) && entry.owner() == row.source.as_ref()
        })
    }

    /// The keys among the next `budget` that the sweep must look for in the followed queue, and the last examined key; `None` if there
    /// are no more keys.
    #[must_use]
    pub fn keys_to_sweep(&self, after: Option<&Key>, budget: usize) -> (Vec<Key>, Option<Key>) {
        let (mut keys, mut last, mut seen) = (Vec::new(), None, 0);
        for (_, entry) in self.state().entries_after(after.map(Key::as_str)).take(budget) {
            seen += 1;
            last = Some(&entry.key);
            if entry.has_state() && !entry.is_deleted() {
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
            let call = Call {
                kind: DeltaKind::Deleted,
                final_state_unknown: true,
                ..Call::of_key(key.clone(), None)
            };
            self.delete(now, &call, &mut provenance);
        }
        true
    }

    /// Checks the invariants.
    pub(in crate::engine) fn check_follow(&self) -> Result<(), String> {
        let State { config, followed, initial, .. } = self.state();
        match followed {
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
