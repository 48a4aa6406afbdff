//! A queue: its state, its data that events do not determine, and the reads on it.

use std::sync::Arc;
use std::time::Duration;

use deltaq_types::PauseReason;

use super::apply::{Applied, Misfit, Scope};
use super::birth::Birth;
use super::births::Births;
use super::config::Config;
use super::delta::DeltaKind;
use super::effects::{Effects, LeaseEnd, Work};
use super::event::{Appended, Ending, Event, EventKind, ViewChanges};
use super::feed::Feeds;
use super::id::{Rv, Slot, Source, Token};
use super::indexes::Indexes;
use super::initial::InitialList;
use super::job::ReplaceJob;
use super::lives::{LifeId, Lives};
use super::schedule::{Groups, Schedule, Turn};
use super::settled::Outcome;
use super::snapshot::{CheckpointChunk, LastReplace, QueueState, SourceHistory};
use super::sources::SourceState;
use super::state::State;
use super::table::Table;
use super::time::Time;
use super::view::Passage;
use super::volatile::Volatile;

/// One queue. The modules of [`command`](super::command) implement its commands.
///
/// A command reads `state`, decides, and emits events. `emit` is the only way in which a command changes the state.
/// The field `state` is private to this module, so the compiler enforces this.
#[derive(Debug)]
pub struct Queue {
    state: State,
    pub(super) volatile: Volatile,
}

/// A summary of a queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Number of ready keys.
    pub ready: usize,
    /// Number of keys that wait for a delay or backoff.
    pub delayed: usize,
    /// Number of leased keys.
    pub leased: usize,
    /// Number of parked keys.
    pub parked: usize,
    /// Number of known objects.
    pub known: usize,
    /// See [`Queue::held_bytes`].
    pub held_bytes: usize,
    /// Whether the initial list has been acknowledged.
    pub has_synced: bool,
    /// Number of keys of the initial list that are not acknowledged.
    pub initial_remaining: usize,
    /// The newest event.
    pub resource_version: Rv,
    /// How long the first ready key has been ready.
    pub oldest_ready_age: Option<Duration>,
    /// How long the oldest unacknowledged change has waited. Parked keys do not count.
    pub oldest_unacknowledged_age: Option<Duration>,
    /// Whether delivery is paused.
    pub paused: bool,
    /// When the hold that stops delivery ends.
    pub held_until: Option<Time>,
    /// Why the queue has paused itself; `None` if it has not.
    pub pause_reason: Option<PauseReason>,
    /// Whether the queue is closed.
    pub closed: bool,
    /// Whether the queue is closed and has nothing left to deliver or settle.
    pub drained: bool,
    /// The names of the indexes that are being built.
    pub building_indexes: Vec<Arc<str>>,
    /// Whether keys are being moved to other groups.
    pub building_groups: bool,
    /// The latest Replace.
    pub last_replace: Option<LastReplace>,
}

/// What stops delivery: the switches of an operator, and the hold of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// Whether the queue is closed.
    pub closed: bool,
    /// Whether delivery is paused.
    pub paused: bool,
    /// When the hold that stops delivery ends.
    pub held_until: Option<Time>,
}

impl Queue {
    /// Creates an empty queue whose first event will be `last_rv + 1`.
    #[must_use]
    pub fn new(config: Arc<Config>, last_rv: Rv, now: Time) -> Self {
        Self::from_parts(State::new(config, last_rv, now), Volatile::default())
    }

    /// Sets the id of the life of a queue that has no events yet. Like the settings, the id precedes all events.
    #[must_use]
    pub fn in_life(mut self, id: LifeId) -> Self {
        self.state.lives = Lives::begin(id, self.state.rv);
        self
    }

    /// Records the name of the token that has set what a queue without events follows.
    #[must_use]
    pub fn with_follow_set_by(mut self, token: Option<Arc<str>>) -> Self {
        self.state.follow_set_by = token.filter(|_| self.state.config.follow.is_some());
        self
    }

    /// Marks a queue that has no events yet as created by a produce call. Like the settings, the mark precedes all
    /// events.
    #[must_use]
    pub fn auto_created(mut self) -> Self {
        self.state.auto_created = true;
        self
    }

    /// Names the token that creates a queue that has no events yet. Like the settings, the name precedes all events.
    #[must_use]
    pub fn created_by(mut self, creator: Option<Arc<str>>) -> Self {
        self.state.creator = creator;
        self
    }

    /// The name of the token that created the queue.
    #[must_use]
    pub fn creator(&self) -> Option<&Arc<str>> {
        self.state.creator.as_ref()
    }

    /// Creates a queue from its parts. Its indexes are not built unless it has no keys.
    pub(super) fn from_parts(state: State, volatile: Volatile) -> Self {
        let volatile = Volatile { indexes: Indexes::of(&state), ..volatile };
        Self { state, volatile }
    }

    /// The state, which commands only read.
    pub(super) fn state(&self) -> &State {
        &self.state
    }

    pub(super) fn feeds(&self) -> &Feeds {
        &self.volatile.feeds
    }

    /// The state, which a feed only reads, and the feeds.
    pub(super) fn state_and_feeds(&mut self) -> (&State, &mut Feeds) {
        (&self.state, &mut self.volatile.feeds)
    }

    /// The state, which an index only reads, and the indexes.
    pub(super) fn state_and_indexes(&mut self) -> (&State, &mut Indexes) {
        (&self.state, &mut self.volatile.indexes)
    }

    /// The number of the newest event.
    #[must_use]
    pub fn resource_version(&self) -> Rv {
        self.state.rv
    }

    /// The lives of the queue.
    #[must_use]
    pub fn lives(&self) -> &Lives {
        &self.state.lives
    }

    /// Ready keys after this turn, in the order of delivery.
    pub fn ready_after(&self, after: Turn) -> impl Iterator<Item = (Turn, Slot)> {
        self.state.ready_after(after)
    }

    /// When the newest event happened, or the queue was created.
    #[must_use]
    pub fn last_at(&self) -> Time {
        self.state.last_at
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &Arc<Config> {
        &self.state.config
    }

    /// Whether a produce call created the queue and it has not been configured since.
    #[must_use]
    pub fn is_auto_created(&self) -> bool {
        self.state.auto_created
    }

    /// Returns the effects of all commands since the last call. [`Effects`] describes what the caller must do with
    /// them.
    pub fn take_effects(&mut self) -> Effects {
        Effects {
            next_deadline: self.next_deadline(),
            has_synced: self.has_synced(),
            is_drained: self.is_drained(),
            ..std::mem::take(&mut self.volatile.effects)
        }
    }

    /// The age of the oldest lease.
    #[must_use]
    pub fn longest_lease(&self, now: Time) -> Option<Duration> {
        let slot = self.state.schedule.oldest_lease()?;
        Some(now.since(self.state.entry(slot).lease().since))
    }

    /// Sets the number up to which the journal has committed all events.
    pub fn set_committed(&mut self, rv: Rv) {
        self.volatile.committed = rv;
    }

    /// The token of the call that changes the queue.
    pub(super) const fn caller(&self) -> Option<&Arc<str>> {
        self.volatile.caller.as_ref()
    }

    /// Sets the token of the call that changes the queue from now on. Its events name the token; what becomes due by itself does not.
    pub fn set_caller(&mut self, token: Option<Arc<str>>) {
        self.volatile.caller = token;
    }

    /// Keys that count toward `max_keys`.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.state.keys()
    }

    /// Whether a pop gets a key at `now`.
    #[must_use]
    pub fn has_ready(&self, now: Time) -> bool {
        self.state.next_delivered(now.max(self.state.last_at)).is_some()
    }

    /// Whether the queue is closed and no key is ready, delayed or leased. A closed queue in mode keys does not wait for its
    /// delays, which are frozen.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.state.is_drained()
    }

    /// Whether pops are refused: the queue is closed and has nothing left to deliver.
    #[must_use]
    pub fn ends_pops(&self) -> bool {
        self.state.ends_pops()
    }

    /// Why the queue has paused itself; `None` if it has not.
    #[must_use]
    pub fn pause_reason(&self) -> Option<PauseReason> {
        self.state.pause_reason
    }

    /// Whether the queue is closed, whether it is paused, and whether it is held at `now`.
    #[must_use]
    pub fn switches(&self, now: Time) -> Switches {
        let State { closed, paused, .. } = self.state;
        Switches { closed, paused, held_until: self.state.hold_at(now) }
    }

    /// client-go's HasSynced, but based on acknowledgements instead of pops. It never becomes false again.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.state.initial == InitialList::Complete
            && self.state.initial_pending == 0
            && !self.volatile.replace_jobs.iter().any(ReplaceJob::may_be_first)
    }

    /// Bytes that the queue takes in memory (approximate): its keys, deltas, known objects and errors, its indexes, the deleted
    /// keys in its feeds, lists that are not applied yet, and the records of settled leases, sources, versions and
    /// deliveries.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let State { held_bytes, settled, sources, versions, deliveries, .. } = &self.state;
        let groups = self.state.schedule.groups.as_ref().map_or(0, |groups| groups.bytes());
        let births = self.state.births.as_ref().map_or(0, |_| Births::bytes(self.state.table.len()));
        let records =
            births + settled.bytes() + sources.bytes() + versions.bytes() + deliveries.bytes() + groups;
        let Volatile { feeds, indexes, .. } = &self.volatile;
        held_bytes + records + feeds.tombstone_bytes() + indexes.bytes() + self.volatile.listed_bytes()
    }

    /// Number of keys of the initial list that are not acknowledged.
    #[must_use]
    pub fn initial_remaining(&self) -> usize {
        self.state.initial_pending
    }

    /// A summary of the queue.
    #[must_use]
    pub fn status(&self, now: Time) -> Status {
        let State { schedule, .. } = &self.state;
        Status {
            ready: schedule.ready_len(),
            delayed: schedule.delayed_len(),
            leased: schedule.leased_len(),
            parked: schedule.parked_len(),
            known: self.state.known,
            held_bytes: self.held_bytes(),
            has_synced: self.has_synced(),
            initial_remaining: self.state.initial_pending,
            resource_version: self.state.rv,
            oldest_ready_age: self.state.oldest_ready().map(|since| now.since(since)),
            oldest_unacknowledged_age: self.state.oldest_change().map(|oldest| now.since(oldest.at)),
            paused: self.state.paused,
            held_until: self.state.hold_at(now),
            pause_reason: self.state.pause_reason,
            closed: self.state.closed,
            drained: self.is_drained(),
            building_indexes: self.volatile.indexes.building(),
            building_groups: self.must_regroup(),
            last_replace: self.state.last_replace.clone(),
        }
    }

    /// The sources after the name `after`, in the order of names: at most `limit`.
    #[must_use]
    pub fn sources_after(&self, after: Option<&str>, limit: usize) -> Vec<SourceState> {
        self.state.sources.after(after, limit)
    }

    /// How often the key has failed that has failed most often. Parked keys, and keys without work, do not count.
    #[must_use]
    pub fn highest_failures(&self) -> u32 {
        self.state.failing.highest()
    }

    /// The histories of the sources, by name.
    pub fn source_histories(&self) -> impl Iterator<Item = (&Source, &SourceHistory)> {
        self.state.sources.histories()
    }

    /// The history of a source; `None` if the queue does not remember it.
    #[must_use]
    pub fn source_history(&self, source: &Source) -> Option<&SourceHistory> {
        self.state.sources.history_of(source)
    }

    /// The keys with their deltas, known objects and schedule states.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.state.table
    }

    /// The schedule.
    #[must_use]
    pub fn schedule(&self) -> &Schedule {
        &self.state.schedule
    }

    /// How a lease ended; `Unknown` if the lease is live or there is no record of it.
    #[must_use]
    pub fn outcome(&self, token: Token) -> Outcome {
        self.state.settled.get(token)
    }

    /// When the next timer is due, the hold ends, or the rate lets a key through. A lease may then still have to wait for its commit; see
    /// [`due_uncommitted`](Self::due_uncommitted).
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let State { schedule, next_resync, .. } = &self.state;
        let lease = schedule.next_deadline().map(|(at, _, _)| at);
        let delay = self.state.next_delay().map(|(at, _, _)| at);
        let failure_expiry = schedule.next_failure_expiry().map(|(at, _, _)| at);
        // After that time the next pop gets a key, and there is nothing to wait for.
        let delivery = self.state.next_delivery(self.volatile.now);
        let wake = schedule.groups.as_deref().and_then(Groups::next_wake);
        [lease, delay, failure_expiry, *next_resync, delivery, wake].into_iter().flatten().min()
    }

    /// Whether a lease is past its deadline but not committed. Such a lease can't expire before
    /// [`set_committed`](Self::set_committed), whatever [`next_deadline`](Self::next_deadline) returns. The answer is valid
    /// after [`advance`](Self::advance).
    #[must_use]
    pub fn due_uncommitted(&self, now: Time) -> bool {
        let lease = self.state.schedule.next_deadline();
        lease.is_some_and(|(at, token, _)| at <= now && token.rv() > self.volatile.committed)
    }

    /// Puts a window that came first too early in its index at the time at which its key is due by now. Returns false if the key has
    /// none or is due. This changes no state: the positions of windows are lower bounds, which a restored queue has anew.
    pub(super) fn place_window_again(&mut self, slot: Slot) -> bool {
        let State { table, schedule, .. } = &mut self.state;
        table.at_mut(slot).is_some_and(|entry| schedule.place_again(slot, &mut entry.schedule_state))
    }

    pub(super) fn groups_mut(&mut self) -> Option<&mut Groups> {
        self.state.schedule.groups.as_deref_mut()
    }

    /// Creates, counts, applies and records an event.
    pub(super) fn emit(&mut self, now: Time, kind: EventKind) {
        let slot = kind.key().and_then(|key| self.state.table.find(key.as_str()));
        self.emit_at(now, slot, kind);
    }

    /// Like [`emit`](Self::emit), for an event whose key has this slot, or no slot yet. This saves the hash lookup,
    /// which often costs as much as the rest of the event.
    pub(super) fn emit_at(&mut self, now: Time, slot: Option<Slot>, kind: EventKind) {
        let rv = self.state.rv.next();
        self.emit_as(rv, now, slot, kind);
    }

    /// Like [`emit_at`](Self::emit_at), with a number that skips ahead for a new life.
    pub(super) fn emit_as(&mut self, rv: Rv, now: Time, slot: Option<Slot>, kind: EventKind) {
        self.count(now, slot, &kind);
        if !self.volatile.watched_leases.is_empty() {
            self.note_awaited(slot, &kind);
        }
        let (at, views) = (now.max(self.state.last_at), ViewChanges::default());
        let Volatile { sequence, caller, .. } = &mut self.volatile;
        let mut event = Event { rv, at, kind, views, sequence: sequence.take(), by: caller.clone() };
        let scope = slot.map_or(Scope::Key, Scope::Slot);
        let keys = self.state.keys();
        let slot = match self.apply_in(&event, scope) {
            Ok(counted) => {
                let counters = &mut self.volatile.effects.counters;
                counters.coalesced += u64::from(counted.merged);
                counters.adds += u64::from(counted.got_work);
                event.views = counted.views();
                if self.state.births.is_some() {
                    event.views.birth = self.birth_of_left(&counted);
                }
                counted.slot
            }
            Err(misfit) => panic!("{misfit}"),
        };
        if self.state.keys() < keys
            && let Some(left) = event.kind.key()
        {
            self.volatile.note_left(left);
        }
        self.volatile.effects.events.push(event);
        if self.state.schedule.groups.is_some() {
            self.regroup(now, slot);
        }
    }

    /// The birth of the key, if it has just left the view that clients of Kubernetes read.
    #[cold]
    #[inline(never)]
    fn birth_of_left(&self, applied: &Applied) -> Option<Birth> {
        let view = self.state.config.kubernetes_view()?;
        let has_left = applied.views().of(view) == Some(Passage::Left);
        applied.slot.filter(|_| has_left).and_then(|slot| self.state.birth(view, slot))
    }

    /// Moves the key of the event that was recorded last to the group that the event names.
    #[cold]
    #[inline(never)]
    fn regroup(&mut self, now: Time, slot: Option<Slot>) {
        let recorded = self.volatile.effects.events.last();
        if let (Some(event), Some(slot)) = (recorded, slot)
            && let Some(grouped) = self.state.regrouped(event, slot)
        {
            self.emit_at(now, Some(slot), grouped);
        }
    }

    /// Applies the next event of another queue, to make this queue equal to it.
    ///
    /// # Panics
    /// If the event does not fit the state of the queue. The state is then undefined.
    pub fn apply(&mut self, event: &Event) {
        if let Err(misfit) = self.apply_in(event, Scope::Key) {
            panic!("{misfit}");
        }
    }

    /// Applies the next event to a queue whose keys may be ahead of the queue itself. The event changes its key only
    /// if it is newer than both the key's row and `removed_at`, the newest removal of the key that the checkpoints
    /// recorded (or 0). The event always changes the queue itself.
    ///
    /// # Errors
    /// [`Misfit`] if the event does not fit the state of the queue. The state is then undefined.
    pub fn replay(&mut self, event: &Event, removed_at: Rv) -> Result<(), Misfit> {
        let key = event.kind.key().filter(|_| event.rv > removed_at);
        let scope = match key.map(|key| self.state.table.get(key.as_str())) {
            Some(None) => Scope::Key,
            Some(Some(entry)) if event.rv > entry.changed => Scope::Key,
            _ => Scope::Queue,
        };
        self.apply_in(event, scope).map(drop)
    }

    fn apply_in(&mut self, event: &Event, scope: Scope) -> Result<Applied, Misfit> {
        let last = self.volatile.feeds.before(&self.state, event);
        let known_before = self.volatile.indexes.before(&self.state, event, scope);
        let mut applied = self.state.apply(event, scope)?;
        let dropped = self.volatile.indexes.note(&self.state, event, &applied, known_before);
        self.volatile.effects.garbage.extend(dropped);
        if let Some(last) = last {
            self.volatile.feeds.note(&self.state, event, &applied, last);
        }
        let [latest, known] = &mut self.volatile.effects.changed_views;
        *latest |= applied.latest.before != applied.latest.after;
        *known |= applied.known.before != applied.known.after;
        if let Some((slot, key)) = applied.removed.take() {
            self.volatile.checkpoints.note_removed(key, slot, event.rv);
        }
        Ok(applied)
    }

    fn count(&mut self, now: Time, slot: Option<Slot>, kind: &EventKind) {
        let effects = &mut self.volatile.effects;
        match kind {
            EventKind::Appended(Appended { delta, .. }) => {
                let index = DeltaKind::ALL.iter().position(|other| other == delta).unwrap_or_default();
                if let Some(count) = effects.counters.deltas.get_mut(index) {
                    *count += 1;
                }
            }
            EventKind::Settled { ending, .. } => {
                let index = match ending {
                    Ending::Acked | Ending::Done => Some(0),
                    Ending::Nacked(_) => Some(1),
                    Ending::Released | Ending::Held { .. } => Some(2),
                    Ending::Rejected { .. } => Some(3),
                    Ending::Expired(_) => Some(4),
                    Ending::Undelivered => None,
                };
                let Some(index) = index else { return };
                effects.counters.parked += u64::from(ending.parks());
                if let Some(count) = effects.counters.settled.get_mut(index) {
                    *count += 1;
                }
                let entry = slot.and_then(|slot| self.state.table.at(slot));
                if let Some(lease) = entry.and_then(|entry| entry.schedule_state.lease()) {
                    let (lasted, worker) = (now.since(lease.since), lease.worker.clone());
                    effects.works.push(Work { lasted, worker, end: LeaseEnd::of(ending) });
                }
            }
            _ => {}
        }
    }

    /// Makes the queue record what checkpoints need from now on. A restored queue records it from the beginning.
    pub fn journaled(&mut self) {
        self.volatile.checkpoints.journaled = true;
    }

    /// The state of the queue without its keys.
    #[must_use]
    pub fn queue_state(&self) -> QueueState {
        self.state.without_keys()
    }

    /// Begins a checkpoint and returns the state of the queue. The store must write this state after all chunks of the
    /// checkpoint, because replay starts at the event of this state. A full checkpoint replaces all chunks before it.
    pub fn begin_checkpoint(&mut self, is_full: bool) -> QueueState {
        self.volatile.checkpoints.begin(&self.state, is_full);
        self.state.without_keys()
    }

    /// The next chunk of the running checkpoint: all keys that were removed since the last chunk, and up to `entries`
    /// keys, among up to `looks` slots. A key with many deltas counts as several entries, but a chunk can always contain
    /// one key.
    ///
    /// The store must keep the chunks in order, and must write them after the events that they contain. In a chunk, the
    /// removed keys come before the other keys.
    pub fn capture(&mut self, entries: usize, looks: usize) -> CheckpointChunk {
        self.volatile.checkpoints.capture(&self.state, entries, looks)
    }

    /// Ends the running checkpoint. The store has written all chunks and the state at the beginning.
    pub fn end_checkpoint(&mut self) {
        self.volatile.checkpoints.end();
    }

    /// Approximate size of a full checkpoint in bytes, as of the last completed checkpoint or of recovery.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.volatile.checkpoints.live_bytes(&self.state)
    }
}
