//! Commands of operators: settings, pause, close, forget, purge, promote, redrive and discard.

use std::ops::Bound;
use std::sync::Arc;

use super::{KeySelection, Progress, Purged};
use crate::config::Config;
use crate::event::EventKind;
use crate::id::Rv;
use crate::key::Key;
use crate::queue::Queue;
use crate::refusal::Refusal;
use crate::scan::ScanCursor;
use crate::schedule::Place;
use crate::table::Entry;
use crate::time::Time;

impl Queue {
    /// Changes the settings.
    ///
    /// # Errors
    /// [`Refusal::ImmutableConfig`] if the change is not possible while the queue holds keys.
    pub fn configure(&mut self, now: Time, config: Arc<Config>) -> Result<(), Refusal> {
        let now = self.advance(now);
        if let Some(field) = self.state().config.immutable_difference(&config)
            && (self.state().keys() > 0 || !self.volatile.replace_jobs.is_empty())
        {
            return Err(Refusal::ImmutableConfig { field, keys: self.state().keys() });
        }
        if self.state().auto_created || *self.state().config != *config {
            if self.state().config.version != config.version {
                // The versions of the calls and of the list can't be compared any more.
                self.volatile.replace_jobs.iter_mut().for_each(|job| job.versions_decide = false);
            }
            self.emit(now, EventKind::Configured { config });
        }
        Ok(())
    }

    /// Checks that the settings have not changed since the objects of a command were read.
    ///
    /// # Errors
    /// [`Refusal::ConfigChanged`].
    pub fn check_config(&self, read_by: &Config) -> Result<(), Refusal> {
        let now = &self.state().config;
        let same = now.key == read_by.key
            && now.mode == read_by.mode
            && now.version == read_by.version
            && now.admission == read_by.admission;
        if same { Ok(()) } else { Err(Refusal::ConfigChanged) }
    }

    /// Pauses or resumes delivery.
    pub fn set_paused(&mut self, now: Time, paused: bool) {
        let now = self.advance(now);
        if self.state().paused != paused {
            self.emit(now, if paused { EventKind::Paused } else { EventKind::Resumed });
        }
    }

    /// Closes or reopens the queue. Pops of a closed queue wait until nothing is ready, delayed or leased.
    pub fn set_closed(&mut self, now: Time, closed: bool) {
        self.switch_closed(now, closed, false);
    }

    /// Closes the queue. Pops end as soon as no key is ready, as client-go's `Get` does after `ShutDown`.
    pub fn close_at_once(&mut self, now: Time) {
        self.switch_closed(now, true, true);
    }

    fn switch_closed(&mut self, now: Time, closed: bool, at_once: bool) {
        let now = self.advance(now);
        if (self.state().closed, self.state().closes_at_once) != (closed, at_once) {
            self.emit(now, if closed { EventKind::Closed { at_once } } else { EventKind::Reopened });
        }
    }

    /// Forgets the failures of `keys`. Returns how many of them had any.
    pub fn forget<'a>(&mut self, now: Time, keys: impl IntoIterator<Item = &'a str>) -> u64 {
        let now = self.advance(now);
        let mut forgotten = 0;
        for key in keys {
            let failed = self.state().table.get(key).filter(|entry| entry.schedule_state.failures > 0);
            if let Some(key) = failed.map(|entry| entry.key.clone()) {
                self.emit(now, EventKind::Forgotten { key });
                forgotten += 1;
            }
        }
        forgotten
    }

    /// Drops ready and delayed keys, and deltas that wait behind leases.
    pub fn purge_step(&mut self, now: Time, cursor: &mut ScanCursor, budget: usize) -> Progress<Purged> {
        let now = self.advance(now);
        let begun = *cursor.begun.get_or_insert(self.state().rv);
        let is_old = |entry: &Entry| waits(entry) && newest_work(entry) <= begun;
        for slot in cursor.next_slots(self.state(), budget, is_old) {
            let entry = self.state().entry(slot);
            let removal = self.removal(entry);
            cursor.deltas += entry.waiting.len() as u64;
            cursor.keys += u64::from(entry.schedule_state.lease().is_none());
            self.emit_at(now, Some(slot), removal);
        }
        if cursor.after.is_some() {
            Progress::More
        } else {
            Progress::Done(Purged { keys: cursor.keys, deltas: cursor.deltas })
        }
    }

    /// Makes delayed keys ready before they are due, unless the queue is closed and its delays are frozen. Returns the number of keys.
    pub fn promote_step(
        &mut self,
        now: Time,
        keys: &mut KeySelection,
        cursor: &mut ScanCursor,
        budget: usize,
    ) -> Progress<u64> {
        self.step_over(now, Waiting::Delayed, keys, cursor, budget, |_, entry| EventKind::DelayElapsed {
            key: entry.key.clone(),
        })
    }

    /// Makes parked keys ready. Returns the number of keys.
    pub fn redrive_step(
        &mut self,
        now: Time,
        keys: &mut KeySelection,
        cursor: &mut ScanCursor,
        budget: usize,
    ) -> Progress<u64> {
        self.step_over(now, Waiting::Parked, keys, cursor, budget, |_, entry| EventKind::Redriven {
            key: entry.key.clone(),
        })
    }

    /// Drops parked keys. Returns the number of keys.
    pub fn discard_step(
        &mut self,
        now: Time,
        keys: &mut KeySelection,
        cursor: &mut ScanCursor,
        budget: usize,
    ) -> Progress<u64> {
        self.step_over(now, Waiting::Parked, keys, cursor, budget, Self::removal)
    }

    fn step_over(
        &mut self,
        now: Time,
        waiting: Waiting,
        keys: &mut KeySelection,
        cursor: &mut ScanCursor,
        budget: usize,
        event: impl Fn(&Self, &Entry) -> EventKind,
    ) -> Progress<u64> {
        let now = self.advance(now);
        let (batch, more): (Vec<Key>, bool) = match keys {
            KeySelection::Named(keys) => (keys.take(budget).collect(), keys.len() > 0),
            KeySelection::All | KeySelection::WithError(_) => match waiting {
                Waiting::Parked => self.next_parked(cursor, budget),
                Waiting::Delayed => self.next_delayed(cursor, budget),
            },
        };
        let is_frozen = matches!(waiting, Waiting::Delayed) && self.state().freezes_delays();
        for key in batch {
            let entry = self.state().table.get(key.as_str()).filter(|_| !is_frozen);
            if let Some(entry) = entry.filter(|entry| waiting.has(entry) && keys.includes(entry)) {
                let event = event(self, entry);
                self.emit(now, event);
                cursor.keys += 1;
            }
        }
        if more { Progress::More } else { Progress::Done(cursor.keys) }
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
        let slots = cursor.next_slots(self.state(), budget, |entry| Waiting::Delayed.has(entry));
        let keys = slots.into_iter().map(|slot| self.state().entry(slot).key.clone());
        (keys.collect(), cursor.is_under_way())
    }
}

/// Why keys are not ready.
#[derive(Clone, Copy)]
enum Waiting {
    Parked,
    Delayed,
}

impl Waiting {
    fn has(self, entry: &Entry) -> bool {
        let state = &entry.schedule_state;
        match self {
            Self::Parked => state.place == Place::Parked,
            Self::Delayed => state.place == Place::Idle && state.delay().is_some(),
        }
    }
}

/// Whether a purge would drop a position, a delay or deltas of the key.
fn waits(entry: &Entry) -> bool {
    match &entry.schedule_state.place {
        Place::Parked => false,
        Place::Ready(_) => true,
        Place::Idle => entry.schedule_state.delay().is_some(),
        Place::Leased(lease) => {
            !entry.waiting.is_empty() || lease.new_change.is_some() || entry.schedule_state.delay().is_some()
        }
    }
}

/// The newest event that gave the key work.
fn newest_work(entry: &Entry) -> Rv {
    let delta = entry.waiting.newest().map_or(Rv::ZERO, |delta| delta.rv);
    let position = match &entry.schedule_state.place {
        Place::Ready(position) if entry.waiting.is_empty() => position.rv,
        _ => Rv::ZERO,
    };
    let delay =
        entry.schedule_state.delay().filter(|_| entry.waiting.is_empty()).map_or(Rv::ZERO, |delay| delay.rv);
    delta.max(position).max(delay)
}
