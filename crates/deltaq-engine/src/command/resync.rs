//! Resync, which queues deltas from known objects, and seed, which adds known objects without deltas.
//!
//! Both run in steps, and other calls run between the steps. A seed skips a key that has had a call since the seed
//! began, because the call is newer.

use std::collections::HashSet;

use super::memory::new_bytes;
use super::{Produced, Progress};
use crate::delta::DeltaKind;
use crate::event::{Appended, EventKind, Origin};
use crate::id::Source;
use crate::job::Seeding;
use crate::key::Key;
use crate::object::Object;
use crate::queue::Queue;
use crate::refusal::Refusal;
use crate::scan::ScanCursor;
use crate::schedule::Place;
use crate::table::Entry;
use crate::time::Time;

/// An object to seed: its key, the object and its owner.
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
        if self.state().known == 0 {
            return Ok(Progress::Done(self.resynced(cursor)));
        }
        let rests = |entry: &Entry| entry.known.is_some() && entry.waiting.is_empty() && idle(entry);
        for slot in cursor.next_slots(self.state(), budget, rests) {
            let entry = self.state().entry(slot);
            let owner = entry.owner();
            let object = entry.known_object().clone();
            let appended = Appended {
                key: entry.key.clone(),
                delta: DeltaKind::Sync,
                final_state_unknown: false,
                origin: Origin::Resync,
                provenance: cursor.provenance.same_or_next(None, owner, cursor.trace.as_ref()),
                due: None,
                head_start: self.head_start_of_resync(&object),
                object,
            };
            self.emit_at(now, Some(slot), EventKind::Appended(appended));
            cursor.keys += 1;
        }
        Ok(if cursor.after.is_some() { Progress::More } else { Progress::Done(self.resynced(cursor)) })
    }

    /// Checks that the queue's mode supports a Resync.
    ///
    /// # Errors
    /// [`Refusal::WrongMode`] in mode keys.
    pub fn check_resync(&self) -> Result<(), Refusal> {
        if !self.state().config.rules().has_objects {
            return Err(self.wrong_mode("resync", "a queue of mode keys knows no objects"));
        }
        Ok(())
    }

    fn resynced(&self, cursor: &ScanCursor) -> Produced {
        Produced { resource_version: self.state().rv, queued: cursor.keys, ..Produced::default() }
    }

    /// Checks that the queue can take known objects without deltas.
    ///
    /// # Errors
    /// [`Refusal::WrongMode`] in mode keys, [`Refusal::NoKnownObjects`] without a store, [`Refusal::NotEmpty`] while
    /// keys are ready, delayed, leased or parked, [`Refusal::ObjectTooLarge`], [`Refusal::QueueFull`], [`Refusal::MemoryFull`].
    pub fn check_seed(&self, seeds: &[Seed]) -> Result<(), Refusal> {
        self.check_takes_calls()?;
        if !self.state().config.rules().has_objects {
            return Err(self.wrong_mode("seed", "a queue of mode keys has no objects"));
        }
        if !self.state().config.known_objects {
            return Err(Refusal::NoKnownObjects);
        }
        let schedule = &self.state().schedule;
        let waiting =
            schedule.ready_len() + schedule.delayed_len() + schedule.leased_len() + schedule.parked_len();
        if waiting > 0 || !self.volatile.replace_jobs.is_empty() || self.volatile.seeding.is_some() {
            return Err(Refusal::NotEmpty { waiting });
        }
        let limit = self.state().config.max_object_bytes;
        let too_large = |(_, (_, object, _)): &(usize, &Seed)| object.bytes() > limit;
        if let Some((index, (_, object, _))) = seeds.iter().enumerate().find(too_large) {
            return Err(Refusal::ObjectTooLarge { limit, bytes: object.bytes(), index });
        }
        self.check_room(seeds.iter().map(|(key, _, _)| key))?;
        self.check_memory_of_seed(seeds)
    }

    /// Begins to seed checked objects: from now on, calls for their keys are newer than the seed, and room for all of
    /// them is reserved. [`end_seed`](Self::end_seed) ends the seed.
    pub fn begin_seed(&mut self, seeds: &[Seed]) {
        let held_bytes = self.bytes_of_seed(seeds);
        self.volatile.seeding = Some(Seeding { called: HashSet::new(), reserved: seeds.len(), held_bytes });
    }

    /// Ends the seed.
    pub fn end_seed(&mut self) {
        self.volatile.seeding = None;
    }

    /// Makes checked objects known, except those of keys with a call since the beginning of the seed.
    pub fn seed_step(&mut self, now: Time, seeds: impl IntoIterator<Item = Seed>) {
        let now = self.advance(now);
        for (key, object, owner) in seeds {
            let mut is_called = false;
            if let Some(seeding) = &mut self.volatile.seeding {
                seeding.reserved = seeding.reserved.saturating_sub(1);
                seeding.held_bytes = seeding.held_bytes.saturating_sub(new_bytes(&key, Some(&object)));
                is_called = seeding.called.contains(&key);
            }
            if !is_called {
                self.emit(now, EventKind::Seeded { key, object, owner });
            }
        }
    }
}

fn idle(entry: &Entry) -> bool {
    entry.schedule_state.place == Place::Idle
}
