//! Commands of operators: settings, pause, close, forget, purge, promote, redrive and discard.

use std::sync::Arc;

use deltaq_types::PauseReason;

use super::selection::Waiting;
use super::{Progress, Purged, Selected, SelectedKeys};
use crate::config::Config;
use crate::event::EventKind;
use crate::id::Rv;
use crate::queue::Queue;
use crate::refusal::Refusal;
use crate::scan::ScanCursor;
use crate::schedule::Place;
use crate::table::Entry;
use crate::time::Time;

impl Queue {
    /// Changes the settings. `follow_set_by` is the name of the token that has set what the queue follows.
    ///
    /// # Errors
    /// [`Refusal::ImmutableConfig`] if the change is not possible while the queue holds keys.
    pub fn configure(
        &mut self,
        now: Time,
        config: Arc<Config>,
        follow_set_by: Option<Arc<str>>,
    ) -> Result<(), Refusal> {
        let now = self.advance(now);
        self.check_configure(&config)?;
        let follow_set_by = follow_set_by.filter(|_| config.follow.is_some());
        let is_same = *self.state().config == *config && self.state().follow_set_by == follow_set_by;
        if self.state().auto_created || !is_same {
            if self.state().config.version != config.version {
                // The versions of the calls and those of the list are no longer comparable.
                self.volatile.replace_jobs.iter_mut().for_each(|job| job.versions_decide = false);
            }
            let regroups = self.regroups_for(config.groups.as_deref());
            self.emit(now, EventKind::Configured { config, follow_set_by, regroups });
        }
        Ok(())
    }

    /// Checks that the queue may have these settings now.
    ///
    /// # Errors
    /// [`Refusal::ImmutableConfig`] if the change is not possible while the queue holds keys.
    pub fn check_configure(&self, config: &Config) -> Result<(), Refusal> {
        let has_keys = self.state().keys() > 0 || !self.volatile.replace_jobs.is_empty();
        match self.state().config.immutable_difference(config).filter(|_| has_keys) {
            Some(field) => Err(Refusal::ImmutableConfig { field, keys: self.state().keys() }),
            None => Ok(()),
        }
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
            && now.admission == read_by.admission
            && now.order == read_by.order;
        if same { Ok(()) } else { Err(Refusal::ConfigChanged) }
    }

    /// Pauses or resumes delivery. A resume also ends a hold.
    pub fn set_paused(&mut self, now: Time, paused: bool) {
        let now = self.advance(now);
        let is_held = !paused && self.state().hold_at(now).is_some();
        if self.state().paused != paused || is_held {
            self.emit(now, if paused { EventKind::Paused } else { EventKind::Resumed });
        }
    }

    /// Pauses delivery because the queue can't deliver. A queue that is paused already stays as it is.
    pub fn pause_itself(&mut self, now: Time, reason: PauseReason) {
        let now = self.advance(now);
        if !self.state().paused {
            self.emit(now, EventKind::PausedItself { reason });
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
            // The debounce windows of a closed queue are over.
            self.advance(now);
        }
    }

    /// Forgets the failures of `keys`. Returns how many of the keys had failures.
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

    /// Drops ready and delayed keys, and deltas that arrived during a lease.
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
    ///
    /// # Errors
    /// [`Refusal::CountChanged`], before anything has changed.
    pub fn promote_step(
        &mut self,
        now: Time,
        keys: &mut SelectedKeys,
        budget: usize,
    ) -> Result<Progress<Selected>, Refusal> {
        self.step_over(now, Waiting::Delayed, keys, budget, |_, entry| EventKind::DelayElapsed {
            key: entry.key.clone(),
        })
    }

    /// Makes parked keys ready. Returns the number of keys.
    ///
    /// # Errors
    /// [`Refusal::CountChanged`], before anything has changed.
    pub fn redrive_step(
        &mut self,
        now: Time,
        keys: &mut SelectedKeys,
        budget: usize,
    ) -> Result<Progress<Selected>, Refusal> {
        self.step_over(now, Waiting::Parked, keys, budget, |_, entry| EventKind::Redriven {
            key: entry.key.clone(),
        })
    }

    /// Drops parked keys. Returns the number of keys.
    ///
    /// # Errors
    /// [`Refusal::CountChanged`], before anything has changed.
    pub fn discard_step(
        &mut self,
        now: Time,
        keys: &mut SelectedKeys,
        budget: usize,
    ) -> Result<Progress<Selected>, Refusal> {
        self.step_over(now, Waiting::Parked, keys, budget, Self::removal)
    }
}

/// Whether a purge would drop the key's position in the ready queue, its delay or its deltas.
fn waits(entry: &Entry) -> bool {
    match &entry.schedule_state.place {
        Place::Parked => false,
        Place::Ready(_) => true,
        Place::Idle => entry.schedule_state.waits(),
        Place::Leased(lease) => {
            !entry.waiting.is_empty() || lease.new_change.is_some() || entry.schedule_state.waits()
        }
    }
}

/// The newest event that gave work to the key.
fn newest_work(entry: &Entry) -> Rv {
    let delta = entry.waiting.newest().map_or(Rv::ZERO, |delta| delta.rv);
    let position = match &entry.schedule_state.place {
        Place::Ready(position) if entry.waiting.is_empty() => position.rv,
        _ => Rv::ZERO,
    };
    let backoff = entry.schedule_state.backoff();
    let waits = [
        backoff.delay.map(|delay| delay.rv),
        backoff.not_before.map(|not_before| not_before.rv),
        backoff.window.as_ref().map(|open| open.rv),
    ];
    let wait = waits.into_iter().flatten().max().filter(|_| entry.waiting.is_empty());
    delta.max(position).max(wait.unwrap_or(Rv::ZERO))
}
