//! The critical section of a queue: lock, decide and apply, grant keys to waiting pops, push events to the journal,
//! unlock.
//!
//! A panic inside the critical section is treated like a failed commit. The state is lost, calls fail until the queue
//! is loaded from its journal again, and waiting pops keep their positions. Without a journal, the queue can't be
//! loaded and stays broken.

use std::hint::spin_loop;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::id::Rv;
use deltaq_engine::room::Room;
use deltaq_engine::time::Time;
use deltaq_engine::{Counters, Effects, Queue};
use deltaq_journal::store::QueueId;
use deltaq_journal::{self, Commit, Journal};
use parking_lot::MutexGuard;

use super::commits::Commits;
use super::contacts::Contacts;
use super::delivery::{Delivered, Delivery, Grant, Reply};
use super::lease_waits::LeaseWaits;
use super::leftovers::OpenLeftovers;
use super::waiters::Waiters;
use super::work_times::WorkTimes;
use super::{Error, Handle, drop_in_background};
use crate::author::author;
use crate::metrics::{Lag, QueueMetrics};
use crate::series::{Gauges, Minute, Since};

/// How often a thread tries to take the lock before it sleeps. Most changes take about a microsecond. The mutex alone
/// would call `sched_yield` much earlier, which with 64 connections costs a tenth of the throughput.
const LOCK_TRIES: usize = 500;

/// If a queue has at most this many keys, and little more than this many bytes, debug builds check all its invariants
/// after every change.
const CHECKED_KEYS_MAX: usize = 64;
const CHECKED_BYTES_MAX: usize = 1 << 20;

/// The state behind a queue's lock.
#[derive(Debug)]
pub(crate) struct Locked {
    pub(crate) queue: Queue,
    pub(crate) waiters: Waiters<Reply>,
    /// Workers that wait for a change behind their leases.
    pub(crate) lease_waits: LeaseWaits,
    /// Waiting pops that this change has granted keys. They are answered when the lock is released.
    pub(crate) grants: Vec<Grant>,
    /// Increases each time the queue is loaded from the journal again.
    pub(crate) generation: u64,
    /// Why all further calls on the queue fail: it was deleted, or another node owns it.
    pub(crate) ended: Option<Error>,
    pub(crate) commits: Commits,
    /// Why the state can no longer be used.
    pub(crate) lost: Option<Loss>,
    /// Whether the state was loaded from the journal since it was lost, while the journal takes no events. Reads use it. The
    /// queue is loaded once more before it changes.
    pub(crate) is_shown: bool,
    /// The deadline that the queue's task sleeps until.
    pub(crate) armed: Option<Time>,
    /// Whether a periodic Resync is due but the queue's task has not begun it.
    pub(crate) resync_due: bool,
    /// Counts of changes since `/metrics` was last read, and since the last minute ended.
    pub(crate) counters: Counters,
    /// Number of deltas that were queued since the queue was loaded.
    pub(crate) changes: u64,
    /// How long the leases lasted that have ended.
    pub(crate) work_times: WorkTimes,
    /// What happened since the last minute ended, without `counters`.
    pub(crate) since_minute: Since,
    /// The newest event that a follower in mode `events` may take is not newer than this one.
    pub(crate) last_change: Rv,
    /// Whether the task of a follower waits until the queue has room for rows.
    pub(crate) awaits_room: bool,
    /// Whether the queue was synced, and whether it was drained, after the last change.
    milestones: [bool; 2],
    /// The smallest version for which a caller waits until everything up to it is acknowledged.
    pub(crate) awaited: Option<Rv>,
    /// How often the queue was closed without a drain. Each such close ends waiting drains.
    pub(crate) closes: u64,
    /// Contacts with sources that are not durable yet.
    pub(crate) contacts: Contacts,
}

/// Why the state of a queue is not durable or not consistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// A commit failed.
    Commit(deltaq_journal::Error),
    /// A change panicked. The events that were passed to the journal before are consistent.
    Panic,
}

/// The part of a change's work that does not need the lock.
#[must_use]
pub(crate) struct Unlocked {
    grants: Vec<Grant>,
    commit: Commit,
    effects: Effects,
}

impl Handle {
    /// Takes the lock, regardless of the condition of the queue.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Locked> {
        for _ in 0..LOCK_TRIES {
            if let Some(state) = self.state.try_lock() {
                return state;
            }
            spin_loop();
        }
        self.state.lock()
    }

    /// Takes the lock if the queue has neither ended nor lost its state.
    pub(crate) fn open(&self) -> Result<MutexGuard<'_, Locked>, Error> {
        let mut state = self.lock();
        self.check(&mut state)?;
        Ok(state)
    }

    /// Takes the lock for a read. A queue that has lost its state can be read once its durable state is [shown](Self::show).
    ///
    /// # Errors
    /// [`Error::Reloading`] until then, and the errors of [`open`](Self::open).
    pub(crate) fn open_to_read(&self) -> Result<MutexGuard<'_, Locked>, Error> {
        self.open_or_shown().map_err(Error::of_read)
    }

    /// The same for a look at the state within a call that may have changed the queue.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub(crate) fn open_or_shown(&self) -> Result<MutexGuard<'_, Locked>, Error> {
        let mut state = self.lock();
        match self.check(&mut state) {
            Err(Error::Journal(_)) if state.is_shown => Ok(state),
            checked => checked.map(|()| state),
        }
    }

    /// Like [`open`](Self::open), but only if the journal accepts events. Also returns the token of the call.
    fn open_to_change(&self) -> Result<(MutexGuard<'_, Locked>, Option<Arc<str>>), Error> {
        let mut state = self.lock();
        // The journal is asked under the lock, before failed commits are looked for. So a later recovery runs after
        // this change and finds its lost events.
        let author = author();
        let epoch = self.journal().map(|(journal, _)| journal.admit(&author));
        self.check(&mut state)?;
        state.commits.epoch = epoch.transpose()?.unwrap_or_default();
        // What a follower takes over is no call.
        Ok((state, author.token.filter(|_| !author.is_follower)))
    }

    /// Refuses a queue that has ended or has lost its state, such as one whose last commits have failed.
    pub(crate) fn check(&self, state: &mut Locked) -> Result<(), Error> {
        if let Some(error) = &state.ended {
            return Err(error.clone());
        }
        let Locked { queue, commits, lost, .. } = state;
        if let Err(error) = commits.note_outcomes(queue) {
            *lost = Some(Loss::Commit(error));
        }
        lost.map_or(Ok(()), |loss| Err(self.error_of(loss)))
    }

    pub(crate) fn error_of(&self, loss: Loss) -> Error {
        match loss {
            Loss::Commit(error) => error.into(),
            Loss::Panic if self.journal().is_some() => deltaq_journal::Error::OutcomeUnknown.into(),
            Loss::Panic => Error::Broken,
        }
    }

    /// Changes the queue in one critical section, which first carries out the requests of destructors.
    pub(crate) fn change<T>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Locked, Time) -> T,
    ) -> Result<(T, Commit), Error> {
        self.change_and_unlock(change, |state| drop(state))
    }

    /// Like [`change`](Self::change), but for long commands: a thread that waits for the lock gets it next.
    pub(crate) fn change_fairly<T>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Locked, Time) -> T,
    ) -> Result<(T, Commit), Error> {
        self.change_and_unlock(change, |state| MutexGuard::unlock_fair(state))
    }

    fn change_and_unlock<T>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Locked, Time) -> T,
        unlock: fn(MutexGuard<'_, Locked>),
    ) -> Result<(T, Commit), Error> {
        let (mut state, token) = self.open_to_change()?;
        let now = self.now();
        let changed = catch_unwind(AssertUnwindSafe(|| {
            state.carry_out(self.leftovers.take(), now);
            state.queue.set_caller(token);
            let out = change(&mut state, now);
            (out, self.finish(&mut state, now))
        }));
        match changed {
            Ok((out, unlocked)) => {
                unlock(state);
                let commit = unlocked.commit.clone();
                self.dispatch(unlocked);
                Ok((out, commit))
            }
            Err(panic) => {
                self.lose_by_panic(state);
                resume_unwind(panic)
            }
        }
    }

    /// Ends each change, under the lock: grants ready keys and handles the effects that need the lock.
    pub(crate) fn finish(&self, state: &mut Locked, now: Time) -> Unlocked {
        self.grant(state, now);
        self.limit_indexes(state);
        let grants = std::mem::take(&mut state.grants);
        let effects = state.take_effects(self.journal());
        state.lease_waits.wake(&effects.overtaken);
        self.note_held(state);
        if effects.has_changes() {
            state.last_change = state.queue.resource_version();
        }
        let next = effects.next_deadline;
        if next.is_some_and(|next| state.armed.is_none_or(|armed| next < armed)) {
            state.armed = next;
            self.leftovers.wake();
        }
        if state.reaches([effects.has_synced, effects.is_drained]) {
            self.note_reached();
        }
        if !Arc::ptr_eq(&self.config.load(), state.queue.config()) {
            self.config.store(state.queue.config().clone());
            // The task builds new indexes.
            self.leftovers.wake();
            self.follow_task.wake.notify_one();
            self.push_task.wake.notify_one();
        }
        if state.awaits_room && state.queue.follow_room() > 0 {
            state.awaits_room = false;
            self.follow_task.wake.notify_one();
        }
        Unlocked { grants, commit: state.commits.newest.clone(), effects }
    }

    /// Records how much memory the queue holds.
    pub(crate) fn note_held(&self, state: &Locked) {
        self.held_bytes.set(self.held(&state.queue), || self.context.grants.are_several());
    }

    fn held(&self, queue: &Queue) -> usize {
        queue.held_bytes() + self.reflectors.bytes() + self.source_reports.bytes()
    }

    /// Drops indexes that have grown beyond the memory that there is.
    pub(crate) fn limit_indexes(&self, state: &mut Locked) {
        let room = |queue: &Queue| {
            self.held_bytes.set(self.held(queue), || self.context.grants.are_several());
            self.memory()
        };
        let Some(dropped) = state.queue.limit_indexes(room) else { return };
        self.note_held(state);
        drop_in_background(dropped);
        if let Some(times) = self.index_lines.admit(1, self.clock().monotonic_us()) {
            tracing::warn!(
                queue = %self.name(),
                times,
                "the indexes of the queue were dropped, because the queues hold as much memory as they may; \
                 they are built again when there is room for a quarter more"
            );
        }
        self.leftovers.wake();
    }

    /// Tells the engine how much memory there is.
    pub(crate) fn set_room(&self, queue: &mut Queue) {
        queue.set_room(self.memory());
    }

    /// The memory that there is for the queue.
    pub(crate) fn memory(&self) -> Room {
        self.held_bytes.room(self.context.grants.are_several())
    }

    /// Grants ready keys to waiting pops, unless the service is draining.
    pub(crate) fn grant(&self, state: &mut Locked, now: Time) {
        if !self.shutdown().is_draining() {
            state.grant_ready(now);
        }
        debug_assert!(is_large(&state.queue) || state.queue.check() == Ok(()));
    }

    /// Does the work that had to wait until the lock was released.
    pub(crate) fn dispatch(self: &Arc<Self>, unlocked: Unlocked) {
        let Unlocked { grants, commit, effects } = unlocked;
        for Grant { reply, items } in grants {
            let items = items.map(|items| Delivered::new(&self.leftovers, items));
            // If the caller has disconnected, this drops the delivery, and its keys return to the queue.
            drop(reply.send(Delivery { items, commit: commit.clone() }));
        }
        self.feed_readers.note(effects.changed_views, effects.has_changes(), self.clock());
        self.metrics().record(&effects.waits, &effects.delivered, &effects.works);
        if !effects.works.is_empty() {
            self.worker_counts.note(Duration::from_micros(self.clock().monotonic_us()), &effects.works);
        }
        self.log(&effects.counters);
        if !effects.garbage.is_empty() {
            drop_in_background(effects.garbage);
        }
    }

    /// Ready and leased keys.
    pub(crate) fn waiting(&self) -> u64 {
        let status = self.lock().queue.status(self.now());
        (status.ready + status.leased) as u64
    }

    /// Adds what happened in the minute that has just ended to its bucket. `lag` is that of a follower. Returns whether there is
    /// anything new in the hour of the minute.
    pub(crate) fn note_minute(&self, minute: Minute, lag: Option<&Lag>) -> bool {
        let (since, gauges) = {
            let mut state = self.lock();
            if state.ended.is_some() {
                return false;
            }
            state.count_into(&self.context.metrics);
            let status = state.queue.status(self.now());
            (std::mem::take(&mut state.since_minute), Gauges::of_queue(&status, lag))
        };
        self.worker_counts.drop_old(Duration::from_micros(self.clock().monotonic_us()));
        self.series.lock().note_all(minute, since, gauges)
    }

    /// Logs events that operators look for. Keys are not logged; the list of parked keys shows them.
    fn log(&self, counters: &Counters) {
        let [.., expired] = counters.settled;
        if expired > 0 {
            tracing::debug!(queue = %self.name(), leases = expired, "leases expired");
        }
        if let Some(keys) = self.parked_lines.admit(counters.parked, self.clock().monotonic_us()) {
            tracing::info!(queue = %self.name(), keys, "keys were parked");
        }
    }

    /// Marks the state as lost, because a change has panicked and the state may be inconsistent.
    pub(crate) fn lose_by_panic(&self, mut state: MutexGuard<'_, Locked>) {
        state.lost = Some(Loss::Panic);
        let error = self.error_of(Loss::Panic);
        let mut failed: Vec<_> = state.grants.drain(..).map(|grant| grant.reply).collect();
        let is_final = self.journal().is_none();
        if is_final {
            failed.extend(state.waiters.take_all().into_iter().map(|waiter| waiter.reply));
            state.lease_waits.wake_all();
        }
        drop(state);
        if is_final {
            self.note_reached();
        }
        for reply in failed {
            let _disconnected = reply.send(Delivery::at_once(Err(error.clone())));
        }
        tracing::error!(queue = %self.name(), "a change of the queue panicked; its state is lost");
        self.leftovers.wake();
        self.long_command_ended.notify_waiters();
        self.context.panicked.notify_one();
    }
}

/// Whether a check of the queue's invariants would take long.
fn is_large(queue: &Queue) -> bool {
    let table = queue.table();
    let known = table.from(Bound::Unbounded).filter_map(|(_, entry)| entry.known.as_ref());
    table.len() > CHECKED_KEYS_MAX
        || known.map(|known| known.object.bytes()).sum::<usize>() > CHECKED_BYTES_MAX
}

impl Locked {
    pub(super) fn new(queue: Queue, commits: Commits) -> Self {
        let queue_rv = queue.resource_version();
        Self {
            queue,
            waiters: Waiters::default(),
            grants: Vec::new(),
            generation: 0,
            ended: None,
            commits,
            lost: None,
            is_shown: false,
            armed: None,
            resync_due: false,
            counters: Counters::default(),
            changes: 0,
            work_times: WorkTimes::default(),
            since_minute: Since::default(),
            last_change: queue_rv,
            awaits_room: false,
            milestones: [false; 2],
            awaited: None,
            closes: 0,
            contacts: Contacts::default(),
            lease_waits: LeaseWaits::default(),
        }
    }

    /// Whether the queue has reached a state that callers may be waiting for.
    fn reaches(&mut self, milestones: [bool; 2]) -> bool {
        let former = std::mem::replace(&mut self.milestones, milestones);
        let acknowledged = self.awaited.is_some_and(|awaited| self.queue.acknowledged_up_to() >= awaited);
        if acknowledged {
            self.awaited = None;
        }
        acknowledged
            || milestones.into_iter().zip(former).any(|(is_reached, was_reached)| is_reached && !was_reached)
    }

    /// Takes the effects of this change from the engine and passes the events to the journal.
    pub(super) fn take_effects(&mut self, journal: Option<&(Journal, QueueId)>) -> Effects {
        let mut effects = self.queue.take_effects();
        let events = std::mem::take(&mut effects.events);
        if let Some((journal, id)) = journal.filter(|_| !events.is_empty()) {
            self.commits.push(journal, *id, events, self.queue.resource_version());
        }
        self.counters.add(&effects.counters);
        self.changes += effects.counters.deltas.iter().sum::<u64>();
        self.work_times.note(&effects.works);
        self.since_minute.note(effects.waits.len(), &effects.works);
        self.resync_due |= effects.resync_due;
        effects
    }

    /// Moves the counts to the metrics and to the series.
    pub(crate) fn count_into(&mut self, metrics: &QueueMetrics) {
        self.since_minute.counters.add(&self.counters);
        metrics.absorb(&mut self.counters);
    }

    /// Carries out the requests of destructors.
    fn carry_out(&mut self, requests: OpenLeftovers, now: Time) {
        for ticket in requests.disconnected {
            self.waiters.leave(ticket);
        }
        self.queue.return_undelivered(now, &requests.undelivered);
    }

    /// Leases ready keys to the pops that have waited longest. If the queue is closed and has nothing left to
    /// deliver, ends the wait of all pops.
    pub(crate) fn grant_ready(&mut self, now: Time) {
        self.queue.set_caller(None);
        self.queue.wake_groups(now);
        loop {
            let waiter = if self.queue.ends_pops() {
                self.waiters.next()
            } else if self.queue.has_ready(now) {
                self.waiters.next_of(&self.queue)
            } else {
                None
            };
            let Some(waiter) = waiter else { break };
            if !waiter.reply.is_closed() {
                self.queue.set_caller(waiter.caller);
                let items = self.queue.hand_out(now, &waiter.pop).map_err(Error::from);
                self.grants.push(Grant { reply: waiter.reply, items });
            }
        }
        self.queue.set_caller(None);
    }
}
