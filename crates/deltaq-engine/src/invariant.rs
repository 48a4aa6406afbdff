//! Checks the invariants of a queue across all of its parts.

use std::collections::BTreeMap;
use std::time::Duration;

use super::delta::{Delta, Deltas};
use super::failing::{Failing, failures_of};
use super::id::{Rv, Slot, Source};
use super::limits::HOLD_SECS_MAX;
use super::mode::ModeRules;
use super::queue::Queue;
use super::rate::RateDebt;
use super::schedule::{IndexSizes, Place};
use super::table::Entry;

impl Queue {
    /// Checks all invariants. The check examines every key, so it is meant for tests, recovery and debug builds.
    ///
    /// # Errors
    /// The text names the violated invariant and the key.
    pub fn check(&self) -> Result<(), String> {
        let mut sizes = IndexSizes::default();
        let (mut known, mut initial_pending, mut pops, mut held_bytes) = (0, 0, 0, 0);
        let mut failing = Failing::default();
        let mut owned: BTreeMap<&Source, Vec<Slot>> = BTreeMap::new();
        let mut last = None;
        let mut entries = 0;
        for (slot, entry) in self.state().entries_after(None) {
            entries += 1;
            if last >= Some(&entry.key) {
                return Err(format!("key {} is out of order", entry.key));
            }
            last = Some(&entry.key);
            self.check_entry(slot, entry).map_err(|rule| format!("key {}: {rule}", entry.key))?;
            count(entry, &mut sizes);
            if let Some(owner) = entry.owner() {
                owned.entry(owner).or_default().push(slot);
            }
            held_bytes += entry.held_bytes();
            known += usize::from(entry.known.is_some());
            initial_pending += usize::from(entry.initial_pending.is_some());
            failing.change(0, failures_of(&entry.schedule_state));
            pops += usize::from(entry.schedule_state.lease().is_some_and(|lease| lease.pop_id.is_some()));
        }
        for (what, counted, kept) in [
            ("keys", entries, self.state().table.len()),
            ("bytes", held_bytes, self.state().held_bytes),
            ("known objects", known, self.state().known),
            ("keys of the initial list", initial_pending, self.state().initial_pending),
            ("leases with a pop id", pops, self.state().pops.leases()),
        ] {
            if counted != kept {
                return Err(format!("{what}: {counted} counted, {kept} kept"));
            }
        }
        if failing != self.state().failing {
            return Err(format!("failures: {failing:?} counted, {:?} kept", self.state().failing));
        }
        let kept = self.state().schedule.index_sizes();
        if sizes != kept {
            return Err(format!("schedule: {sizes:?} counted, {kept:?} kept"));
        }
        let sources = &self.state().sources;
        let kept: BTreeMap<&Source, Vec<Slot>> =
            sources.owners().map(|source| (source, sources.slots_of(source))).collect();
        for slots in owned.values_mut() {
            slots.sort_unstable();
        }
        if owned != kept {
            return Err(format!("owners: {owned:?} found, {kept:?} kept"));
        }
        if !self.state().table.is_whole() {
            return Err(String::from("a slot is neither used nor free, or both"));
        }
        if self.state().is_drained() && self.state().schedule.has_windows() {
            return Err(String::from("a drained queue has debounce windows"));
        }
        self.check_groups()?;
        self.state().check_births()?;
        self.check_stops()?;
        self.state().versions.check()?;
        self.state().deliveries.check()?;
        self.state().lives.check_order(self.state().rv)?;
        if self.state().config.version.is_none() && self.state().versions.iter().next().is_some() {
            return Err(String::from("versions are remembered without the setting version"));
        }
        self.check_removed()?;
        self.check_follow()?;
        self.check_feeds()?;
        self.check_indexes()
    }

    fn check_groups(&self) -> Result<(), String> {
        let schedule = &self.state().schedule;
        if schedule.groups.is_some() != self.state().config.groups.is_some() {
            return Err(String::from("the queue has groups without the setting, or the reverse"));
        }
        if let Some(groups) = &schedule.groups {
            let is_ready = |entry: &Entry| matches!(entry.schedule_state.place, Place::Ready(_));
            let slots = self.state().entries_after(None).map(|(slot, entry)| (slot, is_ready(entry)));
            groups.check(slots, |token| schedule.leased_at(token).is_some())?;
        }
        Ok(())
    }

    fn check_stops(&self) -> Result<(), String> {
        if self.state().config.rate.is_none() && self.state().debt != RateDebt::default() {
            return Err(String::from("the queue has no rate, but a debt"));
        }
        if self.state().may_stop() && !self.state().stops {
            return Err(String::from("a pause, a hold or a limit is not asked for"));
        }
        if self.state().pause_reason.is_some() && !self.state().paused {
            return Err(String::from("the queue is not paused, but has a reason of a pause"));
        }
        if self.state().held_until > self.state().last_at.plus(Duration::from_secs(HOLD_SECS_MAX)) {
            return Err(String::from("the queue is held for too long"));
        }
        Ok(())
    }

    fn check_removed(&self) -> Result<(), String> {
        let removed = &self.volatile.checkpoints.removed;
        if !removed.is_empty() && !self.volatile.checkpoints.journaled {
            return Err(String::from("removed keys are recorded without a journal"));
        }
        if !removed.is_sorted_by(|a, b| a.rv < b.rv)
            || removed.last().is_some_and(|last| last.rv > self.state().rv)
        {
            return Err(String::from("removed keys are out of order"));
        }
        // The newest entry at that slot still belongs to the removed key.
        let is_stored = |slot| self.volatile.checkpoints.has_entry(slot);
        match removed.iter().find(|key| is_stored(key.slot)) {
            Some(removed) => Err(format!(
                "key {} is removed, but the new key at slot {} already has an entry",
                removed.key, removed.slot
            )),
            None => Ok(()),
        }
    }

    fn check_entry(&self, slot: Slot, entry: &Entry) -> Result<(), &'static str> {
        let schedule_state = &entry.schedule_state;
        let rules = self.state().config.rules();
        let rule = |holds: bool, text: &'static str| if holds { Ok(()) } else { Err(text) };
        rule(self.state().table.find(entry.key.as_str()) == Some(slot), "is not found by its hash")?;
        rule(
            self.state().schedule.holds(slot, &entry.key, schedule_state),
            "has a schedule state that differs from the indexes",
        )?;
        rule(entry.is_held() || schedule_state.failures > 0, "has an entry without content")?;
        rule(
            schedule_state.failure_expiry().is_none() || !entry.is_held(),
            "has a failure expiry but is in use",
        )?;
        rule(
            schedule_state.failure_expiry().is_some() || entry.is_held(),
            "has no failure expiry and is not in use",
        )?;
        let is_parked = schedule_state.place == Place::Parked;
        rule(!is_parked || !schedule_state.waits(), "is parked and waits")?;
        rule(is_parked || schedule_state.parked().is_none(), "is not parked and has what parked it")?;
        check_turn(rules, entry)?;
        rule(schedule_state.keeps_window(), "has a window that is not where it must wait")?;
        rule(schedule_state.window().is_none() || !rules.keeps_every_delta, "has a window in mode events")?;
        rule(
            schedule_state.keeps_not_before(),
            "may be delivered before its floor, or backs off in another place",
        )?;
        rule(
            schedule_state.backoff().oldest_change.is_none() || schedule_state.has_work(),
            "has an unacknowledged change but no work",
        )?;
        rule(
            entry.oldest_delta().is_none_or(|delta| {
                let oldest = schedule_state.oldest_change();
                oldest.is_some_and(|oldest| oldest.rv <= delta.rv && oldest.at <= delta.queued_at)
            }),
            "has a delta that is older than its oldest change",
        )?;
        rule(entry.changed <= self.state().rv, "has changed in the future")?;
        rule(newest_number(entry) <= entry.changed, "contains something newer than its last change")?;
        let (begun, has_entry) = (self.volatile.checkpoints.begun, self.volatile.checkpoints.has_entry(slot));
        rule(has_entry || entry.changed > begun, "has neither an entry nor an event behind the checkpoint")?;
        rule(!has_entry || self.volatile.checkpoints.journaled, "has an entry without a journal")?;
        let leased = schedule_state.lease();
        rule(leased.is_some() || entry.leased.is_empty(), "has leased deltas without a lease")?;
        if !rules.has_objects {
            return rule(!entry.has_state(), "has an object in mode keys");
        }
        rule(leased.is_none() || !entry.leased.is_empty(), "has a lease without deltas")?;
        rule(
            entry.known.is_none() || self.state().config.known_objects,
            "has a known object, but the queue stores none",
        )?;
        let waits = !entry.waiting.is_empty();
        match &schedule_state.place {
            Place::Idle => rule(
                waits == schedule_state.waits(),
                "is idle, but deltas wait without a delay or a delay without deltas",
            )?,
            Place::Ready(_) => rule(waits, "is ready with nothing to deliver")?,
            Place::Parked => rule(waits, "is parked with nothing to deliver")?,
            Place::Leased(lease) => {
                let has_reason = lease.new_change.is_some() || schedule_state.waits();
                rule(
                    waits == has_reason,
                    "is leased, but deltas wait without a new change or delay, or the reverse",
                )?;
            }
        }
        check_deltas(rules, entry)
    }
}

/// Checks the head start of the key, and its place in the order of ready keys.
fn check_turn(rules: ModeRules, entry: &Entry) -> Result<(), &'static str> {
    let state = &entry.schedule_state;
    if !state.head_start().is_none() && !state.has_waiting_change() {
        return Err("has a head start, but no change waits");
    }
    let turn = if state.may_move() { state.turn_of(entry.arrival(rules)) } else { None };
    if turn == state.turn() { Ok(()) } else { Err("has another turn than its head start gives it") }
}

fn check_deltas(rules: ModeRules, entry: &Entry) -> Result<(), &'static str> {
    let rule = |holds: bool, text: &'static str| if holds { Ok(()) } else { Err(text) };
    for deltas in [&entry.waiting, &entry.leased] {
        rule(*deltas == Deltas::from(deltas.to_vec()), "has a wrong sum of bytes")?;
    }
    let rvs: Vec<_> = entry.leased.iter().chain(entry.waiting.iter()).map(|delta| delta.rv).collect();
    rule(rvs.is_sorted_by(|a, b| a < b), "has deltas out of order")?;
    // The cap is not an invariant: after the cap is lowered, deltas are merged only at the next append.
    rule(
        !rules.only_newest_waits || entry.waiting.len() <= 1,
        "has more than one waiting delta in mode latest",
    )?;
    if rules.leases_oldest_delta { check_oldest_delta(entry) } else { Ok(()) }
}

/// Mode events: checks that the key's schedule follows its oldest delta.
fn check_oldest_delta(entry: &Entry) -> Result<(), &'static str> {
    let schedule_state = &entry.schedule_state;
    let rule = |holds: bool, text: &'static str| if holds { Ok(()) } else { Err(text) };
    rule(entry.leased.len() <= 1, "has more than one leased delta in mode events")?;
    rule(
        entry.oldest_delta().map(Delta::event) == schedule_state.oldest_change(),
        "has another oldest change than its oldest delta in mode events",
    )?;
    let is_delayed = schedule_state.delay().is_some();
    rule(schedule_state.place == Place::Idle || !is_delayed, "is delayed and not idle in mode events")?;
    let Place::Ready(position) = schedule_state.place else { return Ok(()) };
    let oldest = entry.waiting.oldest().map(|delta| delta.rv);
    rule(oldest == Some(position.rv), "is not ready at the position of its oldest delta")
}

/// The newest event that left a trace in the entry.
fn newest_number(entry: &Entry) -> Rv {
    let schedule_state = &entry.schedule_state;
    let place = match &schedule_state.place {
        Place::Idle | Place::Parked => Rv::ZERO,
        Place::Ready(position) => position.rv,
        Place::Leased(lease) => {
            let dropped = lease.dropped_delay.map_or(Rv::ZERO, |delay| delay.rv);
            lease.token.rv().max(lease.former.rv).max(dropped)
        }
    };
    let newest = |deltas: &Deltas| deltas.newest().map_or(Rv::ZERO, |delta| delta.rv);
    let numbers = [
        place,
        newest(&entry.waiting),
        newest(&entry.leased),
        entry.latest_rv,
        entry.known.as_ref().map_or(Rv::ZERO, |known| known.rv),
        entry.initial_pending.map_or(Rv::ZERO, |pending| Rv::new(pending.get())),
        schedule_state.delay().map_or(Rv::ZERO, |delay| delay.rv),
        schedule_state.not_before().map_or(Rv::ZERO, |not_before| not_before.rv),
        schedule_state.window().map_or(Rv::ZERO, |open| open.rv),
        schedule_state.failure_expiry().map_or(Rv::ZERO, |(_, rv)| rv),
    ];
    numbers.into_iter().max().unwrap_or_default()
}

fn count(entry: &Entry, sizes: &mut IndexSizes) {
    let schedule_state = &entry.schedule_state;
    let has_window = schedule_state.has_idle_window();
    sizes.delayed += usize::from(schedule_state.backoff().first_end().is_some() && !has_window);
    sizes.windows += usize::from(has_window);
    sizes.failure_expiries += usize::from(schedule_state.failure_expiry().is_some());
    sizes.older_changes += usize::from(schedule_state.older_change().is_some());
    sizes.idle_delayed += usize::from(schedule_state.is_delayed());
    match &schedule_state.place {
        Place::Idle => {}
        Place::Ready(_) if schedule_state.turn().is_some() => sizes.ranked += 1,
        Place::Ready(_) => sizes.ready += 1,
        Place::Parked => sizes.parked += 1,
        Place::Leased(lease) => {
            sizes.leases += 1;
            sizes.tokens += 1;
            sizes.leased_with_changes += usize::from(lease.new_change.is_some());
        }
    }
}
