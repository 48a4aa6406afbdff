//! Commands that touch many keys: Resync, purge, redrive, discard and seed. Each runs in steps.
//!
//! Other calls run between two steps. A [`ScanCursor`] records the progress. A key with a new change since the beginning is
//! left alone where the command would lose that change.

use std::collections::HashSet;
use std::ops::Bound;
use std::vec::IntoIter;

use super::command::{Produced, Progress, Purged};
use super::delta::{DeltaKind, Provenance, Rv, Source};
use super::event::{Appended, EventKind, Origin};
use super::key::Key;
use super::object::Object;
use super::queue::Queue;
use super::refusal::Refusal;
use super::schedule::{Place, Slot};
use super::table::Entry;
use super::time::Time;
use super::trace::Trace;

/// The progress of a command over many keys: the last key, and the counts so far.
#[derive(Clone, Debug, Default)]
pub struct ScanCursor {
    after: Option<Key>,
    begun: Option<Rv>,
    done: Purged,
    trace: Option<Trace>,
    /// The provenance of the latest delta. Most later deltas have the same.
    provenance: Provenance,
}

impl ScanCursor {
    /// A cursor whose deltas belong to the trace of a call.
    #[must_use]
    pub fn traced(trace: Option<Trace>) -> Self {
        Self { trace, ..Self::default() }
    }

    /// Whether there are more keys to examine.
    pub(super) fn is_under_way(&self) -> bool {
        self.after.is_some()
    }
}

/// The calls since the beginning of a seed.
#[derive(Debug)]
pub(super) struct Seeding {
    pub(super) called: HashSet<Key>,
    pub(super) reserved: usize,
}

/// An object to seed: its key, the object, its owner.
pub type Seed = (Key, Object, Option<Source>);

impl Queue {
    /// Queues a `Sync` delta for every known key without waiting deltas, in key order.
    ///
    /// # Errors
    /// [`Refusal::WrongMode`] in mode keys.
    pub fn resync_step(
        &mut self,
        now: Time,
        cursor: &mut ScanCursor,
        budget: usize,
    ) -> Result<Progress<Produced>, Refusal> {
        let now = self.advance(now);
        self.check_resync()?;
        if self.known == 0 {
            return Ok(Progress::Done(self.resynced(cursor)));
        }
        let rests = |entry: &Entry| entry.known.is_some() && entry.waiting.is_empty() && idle(entry);
        for slot in self.next_slots(cursor, budget, rests) {
            let entry = self.entry(slot);
            let owner = entry.owner();
            let Some(known) = &entry.known else {
                panic!("key {} is to be resynced and has no known object", entry.key);
            };
            let object = known.object.clone();
            let appended = Appended {
                key: entry.key.clone(),
                delta: DeltaKind::Sync,
                final_state_unknown: false,
                origin: Origin::Resync,
                provenance: cursor.provenance.same_or_next(None, owner, cursor.trace.as_ref()),
                due: None,
                object,
            };
            self.emit_at(now, Some(slot), EventKind::Appended(appended));
            cursor.done.keys += 1;
        }
        Ok(if cursor.after.is_some() { Progress::More } else { Progress::Done(self.resynced(cursor)) })
    }

    /// Checks that the queue's mode has a Resync.
    ///
    /// # Errors
    /// [`Refusal::WrongMode`] in mode keys.
    pub fn check_resync(&self) -> Result<(), Refusal> {
        if !self.config.rules().has_objects {
            return Err(self.wrong_mode("resync", "a queue of mode keys knows no objects"));
        }
        Ok(())
    }

    fn resynced(&self, cursor: &ScanCursor) -> Produced {
        Produced { resource_version: self.rv, queued: cursor.done.keys, ignored: 0 }
    }

    /// Drops ready and delayed keys, and deltas that wait behind leases.
    pub fn purge_step(&mut self, now: Time, cursor: &mut ScanCursor, budget: usize) -> Progress<Purged> {
        let now = self.advance(now);
        let begun = *cursor.begun.get_or_insert(self.rv);
        let is_old = |entry: &Entry| waits(entry) && newest_work(entry) <= begun;
        for slot in self.next_slots(cursor, budget, is_old) {
            let entry = self.entry(slot);
            let key = entry.key.clone();
            cursor.done.deltas += entry.waiting.len() as u64;
            cursor.done.keys += u64::from(entry.schedule_state.lease().is_none());
            self.emit_at(now, Some(slot), EventKind::Removed { key });
        }
        if cursor.after.is_some() { Progress::More } else { Progress::Done(cursor.done) }
    }

    /// Makes parked keys ready: the given `keys`, which are consumed, or all in key order. Returns the number of keys.
    pub fn redrive_step(
        &mut self,
        now: Time,
        keys: Option<&mut IntoIter<Key>>,
        cursor: &mut ScanCursor,
        budget: usize,
    ) -> Progress<u64> {
        self.parked_step(now, keys, cursor, budget, |key| EventKind::Redriven { key })
    }

    /// Drops parked keys: the given `keys`, which are consumed, or all in key order. Returns the number of keys.
    pub fn discard_step(
        &mut self,
        now: Time,
        keys: Option<&mut IntoIter<Key>>,
        cursor: &mut ScanCursor,
        budget: usize,
    ) -> Progress<u64> {
        self.parked_step(now, keys, cursor, budget, |key| EventKind::Removed { key })
    }

    fn parked_step(
        &mut self,
        now: Time,
        keys: Option<&mut IntoIter<Key>>,
        cursor: &mut ScanCursor,
        budget: usize,
        event: impl Fn(Key) -> EventKind,
    ) -> Progress<u64> {
        let now = self.advance(now);
        let (batch, more) = match keys {
            Some(keys) => (keys.take(budget).collect(), keys.len() > 0),
            None => self.next_parked(cursor, budget),
        };
        for key in batch {
            let entry = self.table.get(key.as_str());
            if entry.is_some_and(|entry| entry.schedule_state.place == Place::Parked) {
                self.emit(now, event(key));
                cursor.done.keys += 1;
            }
        }
        if more { Progress::More } else { Progress::Done(cursor.done.keys) }
    }

    /// The next parked keys, and whether there may be more.
    fn next_parked(&self, cursor: &mut ScanCursor, budget: usize) -> (Vec<Key>, bool) {
        let after = cursor.after.take();
        let from = after.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(key.as_str()));
        let keys = self.schedule.parked_from(from).take(budget).map(|(key, _)| key.clone());
        let batch: Vec<Key> = keys.collect();
        cursor.after = batch.last().filter(|_| batch.len() == budget).cloned();
        (batch, cursor.after.is_some())
    }

    /// Checks that the queue can take known objects without deltas.
    ///
    /// # Errors
    /// [`Refusal::WrongMode`] without a store, [`Refusal::NotEmpty`] while anything waits,
    /// [`Refusal::ObjectTooLarge`], [`Refusal::QueueFull`].
    pub fn check_seed(&self, seeds: &[Seed]) -> Result<(), Refusal> {
        if !self.config.rules().has_objects || !self.config.known_objects {
            return Err(self.wrong_mode("seed", "the queue keeps no known objects"));
        }
        let schedule = &self.schedule;
        let waiting =
            schedule.ready_len() + schedule.delayed_len() + schedule.leased_len() + schedule.parked_len();
        if waiting > 0 || !self.replace_jobs.is_empty() || self.seeding.is_some() {
            return Err(Refusal::NotEmpty { waiting });
        }
        let limit = self.config.max_object_bytes;
        let too_large = |(_, (_, object, _)): &(usize, &Seed)| object.bytes() > limit;
        if let Some((index, (_, object, _))) = seeds.iter().enumerate().find(too_large) {
            return Err(Refusal::ObjectTooLarge { limit, bytes: object.bytes(), index });
        }
        self.check_room(seeds.iter().map(|(key, _, _)| key))
    }

    /// Begins to seed checked objects: from now on, calls for their keys are newer, and room for all of them is reserved.
    /// [`end_seed`](Self::end_seed) ends the seed.
    pub fn begin_seed(&mut self, seeds: &[Seed]) {
        self.seeding = Some(Seeding { called: HashSet::new(), reserved: seeds.len() });
    }

    /// Ends the seed.
    pub fn end_seed(&mut self) {
        self.seeding = None;
    }

    /// Makes checked objects known, except those of keys with a call since the beginning of the seed.
    pub fn seed_step(&mut self, now: Time, seeds: impl IntoIterator<Item = Seed>) {
        let now = self.advance(now);
        for (key, object, owner) in seeds {
            let mut is_called = false;
            if let Some(seeding) = &mut self.seeding {
                seeding.reserved = seeding.reserved.saturating_sub(1);
                is_called = seeding.called.contains(&key);
            }
            if !is_called {
                self.emit(now, EventKind::Seeded { key, object, owner });
            }
        }
    }

    /// The slots among the next `budget` entries for which `wanted` holds. The cursor has no last key when the scan is
    /// complete.
    pub(super) fn next_slots(
        &self,
        cursor: &mut ScanCursor,
        budget: usize,
        wanted: impl Fn(&Entry) -> bool,
    ) -> Vec<Slot> {
        let mut slots = Vec::new();
        let mut last = None;
        let mut seen = 0;
        for (slot, entry) in self.entries_after(cursor.after.as_ref().map(Key::as_str)).take(budget) {
            seen += 1;
            last = Some(&entry.key);
            if wanted(entry) {
                slots.push(slot);
            }
        }
        cursor.after = last.filter(|_| seen == budget).cloned();
        slots
    }
}

fn idle(entry: &Entry) -> bool {
    entry.schedule_state.place == Place::Idle
}

/// Whether a purge would drop something of the key.
fn waits(entry: &Entry) -> bool {
    match &entry.schedule_state.place {
        Place::Parked => false,
        Place::Ready(_) => true,
        Place::Idle => entry.schedule_state.delay().is_some(),
        Place::Leased(lease) => {
            !entry.waiting.is_empty() || lease.news.is_some() || entry.schedule_state.delay().is_some()
        }
    }
}

/// The newest event that gave the key work.
fn newest_work(entry: &Entry) -> Rv {
    let delta = entry.waiting.newest().map_or(0, |delta| delta.rv);
    let position = match &entry.schedule_state.place {
        Place::Ready(position) if entry.waiting.is_empty() => position.rv,
        _ => 0,
    };
    let delay = entry.schedule_state.delay().filter(|_| entry.waiting.is_empty()).map_or(0, |delay| delay.rv);
    delta.max(position).max(delay)
}
