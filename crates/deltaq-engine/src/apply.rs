//! Applying events: the only way in which the state of a queue changes.
//!
//! `apply` makes no decisions: the event contains them all. Every event fits the state in which it happened. An event
//! that does not fit is a bug or damaged data, and is never skipped. In a command it causes a panic, and the queue is
//! loaded again from its journal. In a replay it returns [`Misfit`], and the load fails with an error that names the
//! row.

mod births;
mod groups;
mod measured;
mod misfit;
mod order;
mod remembered;
mod settle;
mod sources;

use std::num::NonZero;
use std::time::Duration;

use self::measured::Measured;
pub use self::misfit::Misfit;
use super::delta::{self, Delta, Deltas};
use super::event::{
    Appended, Due, Event, EventKind, Leased, Origin, Queued, ReplaceCounts, ReplaceEnded, ViewChanges,
};
use super::failing::{failures_before, failures_of};
use super::follow::{FollowPhase, FollowPosition};
use super::freshness::Changes;
use super::id::{Rv, Slot, Source, Token};
use super::initial::InitialList;
use super::key::Key;
use super::known::{Known, set_known};
use super::limits::FAILURE_EXPIRY_SECS;
use super::schedule::{EventId, HeadStart, Lease, Place};
use super::snapshot::LastReplace;
use super::state::State;
use super::table::key_bytes;
use super::time::Time;
use super::view::{VersionChange, View};

/// The part of the state that an event contradicts.
type Reason = &'static str;

/// The part of the state that an event changes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scope {
    /// The queue and the event's key. The key is looked up, and a new key gets an entry.
    Key,
    /// The queue and the event's key, whose slot is known.
    Slot(Slot),
    /// Only the queue, because the key's row is newer than the event, or because the key has been removed since.
    Queue,
}

/// The effects of an applied event, in addition to the new state.
#[derive(Debug, Default)]
pub(super) struct Applied {
    /// Number of pairs of deltas that the cap merged.
    pub(super) merged: u32,
    /// Whether the key got work (client-go's adds).
    pub(super) got_work: bool,
    /// The slot and the key that the event removed from the table.
    pub(super) removed: Option<(Slot, Key)>,
    /// The slot of the event's key, if the event was applied to the key.
    pub(super) slot: Option<Slot>,
    /// The key's version in the view `latest`.
    pub(super) latest: VersionChange,
    /// The key's version in the view `known`.
    pub(super) known: VersionChange,
}

impl Applied {
    fn work(got_work: bool) -> Self {
        Self { got_work, ..Self::default() }
    }

    /// The views that the key entered or left.
    pub(super) const fn views(&self) -> ViewChanges {
        ViewChanges { latest: self.latest.passage(), known: self.known.passage(), birth: None }
    }
}

impl State {
    /// Applies the next event. No other method changes the state.
    ///
    /// # Errors
    /// [`Misfit`] if the event does not fit the state. The state is then undefined.
    pub(super) fn apply(&mut self, event: &Event, scope: Scope) -> Result<Applied, Misfit> {
        self.try_apply(event, scope).map_err(|reason| Misfit::new(event, reason))
    }

    fn try_apply(&mut self, event: &Event, scope: Scope) -> Result<Applied, Reason> {
        let follows = match event.kind {
            EventKind::Recovered { life } => {
                self.recover_groups(event.rv, event.at);
                self.recover_births(event.rv);
                self.lives.next(self.rv, life, event.rv);
                event.rv > self.rv
            }
            _ => event.rv.follows(self.rv),
        };
        if !follows {
            return Err("its number does not follow that of the event before");
        }
        self.rv = event.rv;
        self.last_at = event.at;
        self.sources.set_caller(event.by.as_ref());
        if let Some(sequence) = &event.sequence {
            if !matches!(event.kind, EventKind::ReplaceEnded(_)) {
                self.sources.called(&sequence.source, event.at);
            }
            if !self.sources.advance(sequence, event.at) {
                return Err("the sequence of its source does not grow");
            }
        }
        self.apply_to_versions(&event.kind, event.at)?;
        self.apply_to_deliveries(&event.kind, event.at)?;
        self.apply_to_queue(&event.kind, event.at)?;
        if matches!(event.kind, EventKind::VersionRemembered { .. }) {
            return Ok(Applied::default());
        }
        let slot = match (scope, event.kind.key()) {
            (Scope::Slot(slot), Some(_)) => slot,
            (Scope::Key, Some(key)) => self.table.find_or_insert(key),
            (Scope::Queue, _) | (_, None) => return Ok(Applied::default()),
        };
        let id = EventId { rv: event.rv, at: event.at };
        let entry = self.table.at_mut(slot).ok_or(NO_ENTRY)?;
        if entry.changed == Rv::ZERO {
            self.held_bytes += key_bytes(&entry.key);
        }
        entry.changed = event.rv;
        let measured = Measured::of(&event.kind);
        let bytes = measured.bytes(entry);
        let (changes, owner) = (Changes::of(&entry.schedule_state), entry.owner().cloned());
        let failures = failures_before(&entry.schedule_state, &event.kind);
        let before = View::ALL.map(|view| entry.version_in(view));
        let mut applied = match &event.kind {
            EventKind::Appended(appended) => self.apply_appended(slot, appended, id)?,
            EventKind::Queued(queued) => self.apply_queued(slot, queued, id)?,
            EventKind::Leased(leased) => self.apply_leased(slot, leased, id)?,
            EventKind::Settled { token, ending, .. } => self.apply_settled(slot, *token, ending, id)?,
            EventKind::Removed { key, .. } => self.apply_removed(slot, key, id)?,
            EventKind::Progressed { token, through, .. } => {
                self.apply_progressed(slot, *token, *through, id)?
            }
            other => self.apply_to_key(slot, other, id)?,
        };
        self.track_changes(slot, changes, &event.kind, id);
        self.track_owner(slot, owner.as_ref());
        self.track_views(slot, before, event.rv, &mut applied)?;
        if self.births.is_some() {
            self.note_birth(slot, [applied.latest.passage(), applied.known.passage()], id);
        }
        if measured != Measured::Nothing {
            let after = measured.bytes(self.table.at(slot).ok_or(NO_ENTRY)?);
            self.held_bytes = self.held_bytes + after - bytes;
        }
        applied.removed = self.drop_if_unused(slot, id)?;
        self.track_failures(slot, failures);
        Ok(applied)
    }

    /// Records the failures of a key that had this many before an event.
    fn track_failures(&mut self, slot: Slot, before: Option<u32>) {
        if let Some(before) = before {
            let after = self.table.at(slot).map_or(0, |entry| failures_of(&entry.schedule_state));
            self.failing.change(before, after);
        }
    }

    /// Updates the place of the event's key in the order of ready keys, and its versions in the views.
    fn track_views(
        &mut self,
        slot: Slot,
        [latest, known]: [Option<Rv>; 2],
        rv: Rv,
        applied: &mut Applied,
    ) -> Result<(), Reason> {
        let rules = self.config.rules();
        let entry = self.table.at_mut(slot).ok_or(NO_ENTRY)?;
        // Few keys have a head start.
        if entry.schedule_state.may_move() {
            let arrival = entry.arrival(rules);
            self.schedule.take_turn(slot, &mut entry.schedule_state, arrival);
        }
        if latest.is_some() != entry.version_in(View::Latest).is_some() {
            entry.latest_rv = rv;
        }
        applied.slot = Some(slot);
        applied.latest = VersionChange { before: latest, after: entry.version_in(View::Latest) };
        applied.known = VersionChange { before: known, after: entry.version_in(View::Known) };
        Ok(())
    }

    /// Applies the event's effect on the queue as a whole, independently of its key.
    fn apply_to_queue(&mut self, kind: &EventKind, at: Time) -> Result<(), Reason> {
        match kind {
            EventKind::Appended(Appended { origin: Origin::Call, provenance, .. }) => {
                self.initial = self.initial.called();
                self.note_caller(provenance, at);
            }
            EventKind::Queued(Queued { rate_limited, .. }) => {
                self.initial = self.initial.called();
                self.take_from_bucket(*rate_limited, at);
            }
            EventKind::Refreshed { provenance, .. } => self.note_caller(provenance, at),
            EventKind::Failed { .. } => self.take_from_bucket(true, at),
            EventKind::Settled { token, ending, .. } => {
                if let Some(outcome) = ending.outcome() {
                    self.settled.record(*token, outcome, at);
                }
                let rate_limited = ending.failure().is_some_and(|failure| failure.rate_limited);
                self.take_from_bucket(rate_limited, at);
                self.settle_charge(*token, ending, at);
            }
            EventKind::Populated | EventKind::Dropped { origin: Origin::Call, .. } => {
                self.initial = self.initial.called();
            }
            EventKind::Configured { .. } => self.apply_configured(kind, at),
            EventKind::Regrouped => self.end_regrouping(),
            EventKind::Leased(leased) => {
                self.note_delivery(at);
                if let Some(charged) = &leased.charged {
                    self.charge(charged, at);
                }
            }
            EventKind::Paused
            | EventKind::PausedItself { .. }
            | EventKind::Resumed
            | EventKind::Held { .. } => self.apply_switch(kind),
            EventKind::GroupPaused { .. } | EventKind::GroupResumed { .. } | EventKind::GroupHeld { .. } => {
                self.switch_group(kind, at);
            }
            EventKind::Closed { at_once } => (self.closed, self.closes_at_once) = (true, *at_once),
            EventKind::Reopened => (self.closed, self.closes_at_once) = (false, false),
            EventKind::ResyncDue => {
                self.next_resync = self.config.resync_period.map(|period| at.plus(period));
            }
            EventKind::ReplaceStarted { source, first } => self.begin_replace(source.as_ref(), *first, at),
            EventKind::ReplaceEnded(ended) => self.apply_replace_ended(ended, at)?,
            EventKind::Followed { position } => self.apply_followed(*position),
            EventKind::Renumbered { .. }
            | EventKind::SourcesReached { .. }
            | EventKind::SourceConfigured { .. } => self.apply_to_sources(kind),
            EventKind::Appended(_)
            | EventKind::Dropped { .. }
            | EventKind::Recovered { .. }
            | EventKind::TakenOver { .. }
            | EventKind::Grouped { .. }
            | EventKind::Extended { .. }
            | EventKind::Progressed { .. }
            | EventKind::DelayElapsed { .. }
            | EventKind::Forgotten { .. }
            | EventKind::Redriven { .. }
            | EventKind::Removed { .. }
            | EventKind::VersionRemembered { .. }
            | EventKind::Seeded { .. }
            | EventKind::DeliveryReceived { .. }
            | EventKind::DeliveryKept { .. }
            | EventKind::DeliveryDropped { .. } => {}
        }
        Ok(())
    }

    /// Applies what stops delivery, or ends that.
    fn apply_switch(&mut self, kind: &EventKind) {
        match kind {
            EventKind::Paused => self.paused = true,
            EventKind::PausedItself { reason } => (self.paused, self.pause_reason) = (true, Some(*reason)),
            EventKind::Held { until } => self.held_until = *until,
            EventKind::Resumed => {
                (self.paused, self.pause_reason, self.held_until) = (false, None, Time::default());
            }
            _ => return,
        }
        self.stops = self.may_stop();
    }

    fn apply_configured(&mut self, kind: &EventKind, at: Time) {
        let EventKind::Configured { config, follow_set_by, regroups } = kind else { return };
        if self.config.resync_period != config.resync_period {
            self.next_resync = config.resync_period.map(|period| at.plus(period));
        }
        if self.config.rate_limiter.bucket != config.rate_limiter.bucket {
            self.bucket = None;
        }
        self.change_rate(config.rate, at);
        let follows_on = match (&self.config.follow, &config.follow) {
            (Some(before), Some(after)) => before.takes_the_same(after),
            _ => false,
        };
        if !follows_on {
            self.unfollow();
        }
        self.change_groups(config.groups.as_ref(), at);
        self.note_regrouping(*regroups);
        self.change_births(config, at);
        self.config = config.clone();
        self.stops = self.may_stop();
        self.follow_set_by.clone_from(follow_set_by);
        self.auto_created = false;
    }

    /// Applies a new position in the followed queue.
    fn apply_followed(&mut self, position: FollowPosition) {
        match position.phase {
            FollowPhase::Sweep { .. } | FollowPhase::List { .. } if self.initial.is_wanted() => {
                self.initial = self.initial.started();
            }
            FollowPhase::Changes => self.initial = self.initial.ended(false),
            _ => {}
        }
        self.followed = Some(position);
    }

    /// Clears the position in the followed queue. A list that was in progress is aborted.
    fn unfollow(&mut self) {
        let position = self.followed.take();
        if position.is_some() && matches!(self.initial, InitialList::Running { .. }) {
            self.initial = self.initial.ended(true);
        }
    }

    fn begin_replace(&mut self, source: Option<&Source>, first: bool, at: Time) {
        if first {
            self.initial = self.initial.started();
        }
        if let Some(source) = source {
            self.sources.began_list(source, at);
        }
        let (source, counts) = (source.cloned(), ReplaceCounts::default());
        let replace = LastReplace { source, counts, started: at, ended: None, aborted: false };
        self.sources.replaced(&replace);
        self.last_replace = Some(replace);
    }

    fn apply_replace_ended(&mut self, ended: &ReplaceEnded, at: Time) -> Result<(), Reason> {
        let ReplaceEnded { source, first, aborted, counts } = ended;
        let running = self.last_replace.as_mut().filter(|last| last.ended.is_none());
        let last = running.ok_or("no Replace is running")?;
        (last.source, last.counts, last.aborted) = (source.clone(), *counts, *aborted);
        last.ended = Some(at);
        self.sources.replaced(last);
        // Keys that an aborted Replace queued stay pending. They are not acknowledged yet, and the next Replace, if
        // it has `only_changed`, may not queue them again.
        if *first {
            self.initial = self.initial.ended(*aborted);
        } else if !aborted {
            self.initial = self.initial.called();
        }
        Ok(())
    }

    fn apply_appended(&mut self, slot: Slot, appended: &Appended, id: EventId) -> Result<Applied, Reason> {
        let Appended { key, delta, final_state_unknown, origin, provenance, due, head_start, object } =
            appended;
        let (rules, cap) = (self.config.rules(), self.config.cap());
        let entry = self.table.at_mut(slot).ok_or(NO_ENTRY)?;
        let waited = !entry.waiting.is_empty();
        let joins = entry.schedule_state.may_join(*head_start);
        let mut delta = Delta {
            rv: id.rv,
            queued_at: id.at,
            kind: *delta,
            final_state_unknown: *final_state_unknown,
            coalesced: 0,
            provenance: provenance.clone(),
            object: object.clone(),
        };
        // If the key already has a waiting delta, this delta waits for its turn.
        let (mut waits_for_turn, mut due) = (false, due.as_ref());
        let merged = if rules.keeps_every_delta {
            delta.provenance = delta.provenance.with_due(due.map(Due::time));
            waits_for_turn = !entry.waiting.is_empty();
            due = due.filter(|_| entry.leased.is_empty());
            entry.waiting.push(delta);
            0
        } else {
            match entry.waiting.append(delta, rules.only_newest_waits, cap) {
                delta::Appended::Queued { merged } => merged,
                delta::Appended::Swallowed => {
                    return Err("the key's newest delta is a deletion that makes this one superfluous");
                }
            }
        };
        // A Resync repeats the known object.
        if *origin != Origin::Resync {
            entry.latest_rv = id.rv;
        }
        if *origin == Origin::InitialReplace {
            let pending = entry.initial_pending.replace(NonZero::new(id.rv.get()).ok_or("its number is 0")?);
            self.initial_pending += usize::from(pending.is_none());
        }
        let got_work = !waits_for_turn && self.queue_work(slot, key, due, id)?;
        if joins {
            self.join(slot, *head_start, waited, id)?;
        }
        Ok(Applied { merged, got_work, ..Applied::default() })
    }

    fn apply_queued(&mut self, slot: Slot, queued: &Queued, id: EventId) -> Result<Applied, Reason> {
        let Queued { key, due, rate_limited, head_start } = queued;
        let schedule_state = &mut self.table.at_mut(slot).ok_or(NO_ENTRY)?.schedule_state;
        let waited = schedule_state.has_waiting_change();
        let joins = schedule_state.may_join(*head_start);
        if *rate_limited && schedule_state.place == Place::Parked {
            schedule_state.failures = 0;
        }
        let failures = if *rate_limited { schedule_state.failures.saturating_add(1) } else { 0 };
        let got_work = self.queue_work(slot, key, due.as_ref(), id)?;
        if joins {
            self.join(slot, *head_start, waited, id)?;
        }
        if *rate_limited {
            self.table.at_mut(slot).ok_or(NO_ENTRY)?.schedule_state.failures = failures;
        }
        Ok(Applied::work(got_work))
    }

    fn apply_leased(&mut self, slot: Slot, leased: &Leased, id: EventId) -> Result<Applied, Reason> {
        let Leased { key: _, deadline, worker, pop_id, charged: _ } = leased;
        let rules = self.config.rules();
        let entry = self.table.at_mut(slot).ok_or(NO_ENTRY)?;
        let schedule_state = &mut entry.schedule_state;
        let Place::Ready(former) = schedule_state.place else { return Err("the key is not ready") };
        entry.leased = if rules.leases_oldest_delta {
            entry.waiting.take_oldest()
        } else {
            std::mem::take(&mut entry.waiting)
        };
        let lease = Lease {
            token: Token::new(id.rv),
            deadline: *deadline,
            since: id.at,
            length: deadline.since(id.at),
            worker: worker.clone(),
            pop_id: pop_id.clone(),
            former,
            head_start: schedule_state.head_start(),
            dropped_delay: None,
            new_change: entry.waiting.oldest().map(|next| next.queued_at),
            later_change: None,
        };
        self.schedule.lease(slot, schedule_state, lease, rules.delays_are_adds);
        if !schedule_state.head_start().is_none() && !schedule_state.has_waiting_change() {
            schedule_state.set_head_start(HeadStart::NONE);
        }
        if let Some(pop_id) = pop_id {
            self.pops.add(pop_id, Token::new(id.rv));
        }
        Ok(Applied::default())
    }

    /// Applies a key event that has no separate method.
    fn apply_to_key(&mut self, slot: Slot, kind: &EventKind, id: EventId) -> Result<Applied, Reason> {
        let rules = self.config.rules();
        let entry = self.table.at_mut(slot).ok_or(NO_ENTRY)?;
        let position = entry.position(rules, id);
        let schedule_state = &mut entry.schedule_state;
        match kind {
            EventKind::Failed { .. } => {
                schedule_state.failures = schedule_state.failures.saturating_add(1);
                self.schedule.set_failure_expiry(slot, schedule_state, None);
            }
            EventKind::Dropped { key, .. } => {
                entry.waiting = Deltas::default();
                self.schedule.drop_waiting(slot, key, schedule_state);
                self.initial_pending -= usize::from(entry.initial_pending.take().is_some());
            }
            EventKind::Refreshed { provenance, object, .. } => {
                entry.latest_rv = id.rv;
                let owner = provenance.owner().cloned();
                let deltas =
                    [&mut entry.waiting, &mut entry.leased].into_iter().find(|deltas| !deltas.is_empty());
                if let Some(deltas) = deltas {
                    deltas.set_object(object.clone());
                    deltas.set_owner(owner);
                } else {
                    let known = entry.known.as_mut().ok_or("the key has no object that could be replaced")?;
                    **known = Known { object: object.clone(), rv: id.rv, owner };
                }
            }
            EventKind::TakenOver { owner, .. } => {
                let owner = Some(owner.clone());
                if !entry.waiting.is_empty() {
                    entry.waiting.set_owner(owner);
                } else if !entry.leased.is_empty() {
                    entry.leased.set_owner(owner);
                } else {
                    entry.known.as_mut().ok_or("the key has no object that could be owned")?.owner = owner;
                }
            }
            EventKind::Extended { deadline, .. } => {
                schedule_state.lease().ok_or(NO_LEASE)?;
                self.schedule.extend(slot, schedule_state, *deadline, id.at);
            }
            EventKind::Grouped { group, .. } => self.schedule.regroup(slot, schedule_state, group.as_ref()),
            EventKind::DelayElapsed { key } => {
                if !schedule_state.waits() {
                    return Err("the key has neither a delay nor a window");
                }
                return Ok(Applied::work(self.end_wait(slot, key, id)?));
            }
            EventKind::Forgotten { .. } => self.schedule.forget(slot, schedule_state),
            EventKind::Redriven { key } => {
                if schedule_state.place != Place::Parked {
                    return Err("the key is not parked");
                }
                return Ok(Applied::work(self.schedule.make_ready(slot, key, schedule_state, position)));
            }
            EventKind::Seeded { object, owner, .. } => {
                entry.latest_rv = id.rv;
                let known = Known { object: object.clone(), rv: id.rv, owner: owner.clone() };
                set_known(&mut entry.known, Some(known), &mut self.known);
            }
            _ => return Err("it is not about a key"),
        }
        Ok(Applied::default())
    }

    /// Ends the wait of a key: it is due, an operator promotes it, or its queue has closed. Returns whether the key got work.
    fn end_wait(&mut self, slot: Slot, key: &Key, id: EventId) -> Result<bool, Reason> {
        let rules = self.config.rules();
        let entry = self.table.at_mut(slot).ok_or(NO_ENTRY)?;
        let position = entry.position(rules, id);
        let schedule_state = &mut entry.schedule_state;
        let is_over = schedule_state.due().is_some_and(|due| due <= id.at);
        let has_window = schedule_state.has_idle_window();
        if self.closed && has_window && !is_over {
            // A window that its queue ends by closing is a change that waits no longer.
            return Ok(self.schedule.wake(slot, key, schedule_state, position));
        }
        let waits = rules.delays_are_adds || !entry.waiting.is_empty();
        // In mode keys a delay is an add of its own. A promote ends everything that the key waits for.
        let keeps_delay = rules.delays_are_adds && has_window && is_over;
        Ok(self.schedule.fire(slot, key, schedule_state, (waits, keeps_delay), position))
    }

    fn apply_removed(&mut self, slot: Slot, key: &Key, id: EventId) -> Result<Applied, Reason> {
        let rules = self.config.rules();
        let entry = self.table.at_mut(slot).ok_or(NO_ENTRY)?;
        let newest = entry.newest_object().cloned();
        if rules.leases_oldest_delta && entry.schedule_state.place == Place::Parked {
            drop(entry.waiting.take_oldest());
        } else {
            entry.waiting = Deltas::default();
        }
        if entry.newest_object() != newest.as_ref() {
            entry.latest_rv = id.rv;
        }
        let head_start = entry.schedule_state.head_start();
        self.schedule.drop_waiting(slot, key, &mut entry.schedule_state);
        let covered = entry.lease_covers(rules);
        if entry.initial_pending.is_some_and(|pending| covered.is_none_or(|rv| pending.get() > rv.get())) {
            entry.initial_pending = None;
            self.initial_pending -= 1;
        }
        if entry.waiting.is_empty() {
            return Ok(Applied::default());
        }
        entry.schedule_state.set_head_start(head_start);
        let (due, position) = (entry.next_due(rules, id.at), entry.position(rules, id));
        Ok(Applied::work(match due {
            Some(due) => {
                self.schedule.delay(slot, key, &mut entry.schedule_state, due, id.rv);
                false
            }
            None => self.schedule.wake(slot, key, &mut entry.schedule_state, position),
        }))
    }

    /// Removes an entry that is empty, or sets the time at which its failure count is dropped.
    fn drop_if_unused(&mut self, slot: Slot, id: EventId) -> Result<Option<(Slot, Key)>, Reason> {
        let entry = self.table.at_mut(slot).ok_or(NO_ENTRY)?;
        if entry.is_held() {
            return Ok(None);
        }
        if entry.schedule_state.failures == 0 {
            let entry = self.table.remove(slot).ok_or(NO_ENTRY)?;
            self.held_bytes -= entry.held_bytes();
            self.schedule.leave_group(slot);
            return Ok(Some((slot, entry.key)));
        }
        if entry.schedule_state.failure_expiry().is_none() {
            let until = id.at.plus(Duration::from_secs(FAILURE_EXPIRY_SECS));
            self.schedule.set_failure_expiry(slot, &mut entry.schedule_state, Some((until, id.rv)));
        }
        Ok(None)
    }
}

const NO_ENTRY: Reason = "the key has no entry";
const NO_LEASE: Reason = "the key does not have this lease";
