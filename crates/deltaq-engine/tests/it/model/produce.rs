//! Add, Update and Delete, and the list of deltas of a key.

use std::collections::BTreeSet;

use deltaq_engine::delta::DeltaKind;
use deltaq_types::Mode;

use super::micros;
use super::versions::may_merge_deletion;
use super::{
    Content, Debounced, Item, Label, Micros, Model, ModelDelta, Name, Place, Refused, Start, Traced, UNKNOWN,
    bytes_of, same_without_v,
};

#[derive(Clone, Debug)]
pub(crate) struct ModelCall {
    pub(crate) kind: DeltaKind,
    pub(crate) key: Name,
    pub(crate) content: Option<Content>,
    pub(crate) source: Label,
    pub(crate) delay: Option<Micros>,
    /// The quiet time and the longest wait of the call.
    pub(crate) debounce: Option<(Micros, Micros)>,
    pub(crate) head_start: Option<i64>,
    pub(crate) final_state_unknown: bool,
    pub(crate) rate_limited: bool,
    pub(crate) trace: Traced,
}

/// A delta to append.
pub(super) struct New {
    pub(super) kind: DeltaKind,
    pub(super) content: Content,
    pub(super) source: Label,
    pub(super) owner: Label,
    pub(super) final_state_unknown: bool,
    pub(super) due: Option<Micros>,
    /// The quiet time, the longest wait and the delay of a change that is debounced unless its key is ready.
    pub(super) debounce: Option<(Micros, Micros, Micros)>,
    pub(super) start: Start,
    pub(super) trace: Traced,
}

impl Model {
    /// Applies all calls in order, or none. Returns the numbers of accepted, merged, ignored and stale calls, and whether the sequence
    /// number had been applied.
    pub(crate) fn produce(
        &mut self,
        now: Micros,
        calls: &[ModelCall],
        sequence: Option<(&'static str, u64)>,
    ) -> Result<(u64, u64, u64, u64, bool), Refused> {
        let now = self.advance(now);
        if let Some((source, number)) = sequence {
            if self.has_applied(source, number) {
                self.hit("a repeated call");
                return Ok((0, 0, 0, 0, true));
            }
            self.check_sequence(source)?;
        }
        let are_stale: Vec<bool> = (0..calls.len()).map(|index| self.is_stale(calls, index)).collect();
        self.may_produce(calls, &are_stale)?;
        let (mut queued, mut merged, mut ignored, mut stale) = (0, 0, 0, 0);
        let before = self.rv;
        for (call, is_stale) in calls.iter().zip(are_stale) {
            if is_stale {
                stale += 1;
                self.hit(if self.get(call.key).is_some() {
                    "a stale call"
                } else {
                    "a stale call of an absent key"
                });
                self.populate(now);
                continue;
            }
            let version = call.content.and_then(|content| self.version_of(content));
            for job in &mut self.jobs {
                job.note_call(call.key, call.source.is_some(), version.is_some());
            }
            let is_bare = call.delay.unwrap_or_default() == 0 && !call.rate_limited;
            let is_ready = self.get(call.key).is_some_and(|item| matches!(item.place, Place::Ready(_)));
            let accepted = if self.is_keys() { self.add_key(now, call) } else { self.call(now, call) };
            match accepted {
                true if self.is_keys() && is_ready && is_bare => merged += 1,
                true => queued += 1,
                false => ignored += 1,
            }
        }
        if let Some((source, number)) = sequence {
            if self.rv == before {
                self.event(now);
                self.populated = true;
                self.hit("a call that changes nothing has a sequence number");
            }
            self.note_source(Some(source));
            self.sources.entry(source).or_default().sequence = Some(number);
        }
        Ok((queued, merged, ignored, stale, false))
    }

    pub(super) fn has_applied(&self, source: &str, number: u64) -> bool {
        self.sources.get(source).and_then(|source| source.sequence).is_some_and(|last| number <= last)
    }

    /// Refuses while a Replace of the source with a sequence number has not ended.
    pub(super) fn check_sequence(&mut self, source: &str) -> Result<(), Refused> {
        let number = self.jobs.iter().find_map(|job| job.sequence().filter(|(other, _)| *other == source));
        match number {
            None => Ok(()),
            Some((_, number)) => {
                self.hit("a Replace with a sequence number has not ended");
                Err(Refused::SequenceBusy { number })
            }
        }
    }

    fn may_produce(&mut self, calls: &[ModelCall], are_stale: &[bool]) -> Result<(), Refused> {
        for (index, call) in calls.iter().enumerate() {
            if if self.is_keys() { call.kind != DeltaKind::Added } else { call.rate_limited } {
                return Err(Refused::WrongMode);
            }
            if call.debounce.is_some() && self.is_events() {
                return Err(Refused::WrongMode);
            }
            if call.content.is_some_and(|content| bytes_of(content) > self.config.max_object_bytes) {
                return Err(Refused::TooLarge { index });
            }
        }
        if self.is_shut_down() {
            return Ok(());
        }
        let events = self.is_events();
        let fresh: Vec<(usize, &ModelCall)> =
            calls.iter().enumerate().filter(|(index, _)| !are_stale[*index]).collect();
        let deletes_add = self.delivers_absent();
        let adds = fresh.iter().filter(|(_, call)| deletes_add || call.kind != DeltaKind::Deleted);
        let adds: Vec<Name> = adds.map(|(_, call)| call.key).collect();
        self.check_capacity(adds.into_iter())?;
        if events { self.check_bounds(&fresh) } else { Ok(()) }
    }

    /// Refuses if the new keys among `keys` would exceed `max_keys`.
    pub(super) fn check_capacity(&mut self, keys: impl Iterator<Item = Name>) -> Result<(), Refused> {
        let held = self.held();
        let wanted = keys.filter(|key| !held.contains(key)).collect::<BTreeSet<_>>().len();
        let keys = held.len() + self.reserved();
        if wanted > 0 && keys + wanted > self.config.max_keys {
            self.hit(if self.reserved() > 0 { "reserved capacity refuses" } else { "max_keys refuses" });
            return Err(Refused::Full { keys, wanted });
        }
        Ok(())
    }

    /// Whether the queue ignores the member `v`, and at most this member of the newest object changes.
    pub(super) fn ignores(&self, item: &Item, content: Content) -> bool {
        let is_live = !self.config.ignored.is_empty() && !item.newest_is_deleted();
        is_live && item.newest_content().is_some_and(|newest| same_without_v(newest, content))
    }

    /// Replaces the newest object of a key.
    pub(super) fn refresh(&mut self, now: Micros, key: Name, content: Content, source: Label) {
        let item = self.get(key).cloned().unwrap_or_default();
        if item.newest_content() == Some(content) {
            if source.is_some() && item.owner() != source {
                self.take_over(now, key, source, "a key with an ignored change is taken over");
            }
            return;
        }
        let (rv, _) = self.event(now);
        self.note_source(source);
        let item = self.item(key);
        item.set_owner(source.or(item.owner()));
        if let Some(newest) = item.waiting.last_mut().or(item.leased.last_mut()) {
            newest.content = content;
        } else if let Some(known) = &mut item.known {
            (known.content, known.rv) = (content, rv);
        }
    }

    pub(super) fn take_over(&mut self, now: Micros, key: Name, source: Label, rule: &'static str) {
        self.event(now);
        self.item(key).set_owner(source);
        self.hit(rule);
    }

    /// Add, Update or Delete in the modes with deltas.
    fn call(&mut self, now: Micros, call: &ModelCall) -> bool {
        let empty = Item::default();
        let item = self.get(call.key).unwrap_or(&empty).clone();
        let due = call.delay.filter(|delay| *delay > 0).map(|delay| now + delay);
        let debounce = self.debounce_of(call);
        if let (DeltaKind::Updated, Some(content)) = (call.kind, call.content)
            && self.ignores(&item, content)
        {
            self.hit("an update of ignored members");
            self.refresh(now, call.key, content, call.source);
            self.populate(now);
            return false;
        }
        if call.kind != DeltaKind::Deleted {
            let owner = call.source.or(item.owner());
            let content = call.content.expect("an Add or Update carries an object");
            let (kind, source, trace) = (call.kind, call.source, call.trace);
            let start = self.start_of_call(call, Some(content));
            let new =
                New { kind, content, source, owner, final_state_unknown: false, due, debounce, start, trace };
            self.append(now, call.key, &new, true);
            self.note_source(source);
            self.populated = true;
            return true;
        }
        let has_waiting = !item.waiting.is_empty();
        let is_absent = !has_waiting && !item.is_leased() && !item.is_parked() && item.known.is_none();
        let is_duplicate = !has_waiting && item.leased.last().is_some_and(ModelDelta::is_deleted);
        let is_ignored = if is_absent { !self.delivers_absent() } else { is_duplicate && !self.is_events() };
        if is_ignored {
            self.hit(if is_absent {
                "Delete of an absent key"
            } else {
                "Delete of a key whose leased deltas end with Deleted"
            });
            self.remember_deletion(now, call.key, call.content);
            self.populate(now);
            return false;
        }
        if self.drops_unseen(&item) {
            self.remember_deletion(now, call.key, call.content);
            self.drop_unseen(now, call.key);
            self.populated = true;
            return true;
        }
        let is_unversioned = call.content.is_some_and(|content| self.version_of(content).is_none());
        if is_unversioned || may_merge_deletion(&item) {
            self.remember_deletion(now, call.key, call.content);
        }
        if is_absent && self.is_latest() {
            self.hit("mode latest delivers the Delete of an absent key");
        }
        let by_key = call.content.is_none();
        let content = call.content.or(item.newest_content()).unwrap_or(UNKNOWN);
        if content == UNKNOWN {
            self.hit("a deletion has no object");
        }
        let final_state_unknown = by_key || call.final_state_unknown;
        let (kind, source, trace) = (call.kind, call.source, call.trace);
        let start = self.start_of_call(call, Some(content));
        let new =
            New { kind, content, source, owner: None, final_state_unknown, due, debounce, start, trace };
        if self.append(now, call.key, &new, true) {
            self.note_source(source);
            self.populated = true;
        } else {
            self.end_window_of_deletion(now, call, due, start);
            self.populate(now);
        }
        true
    }

    /// A Delete that adds nothing behind a debounced one, but that does not wait itself.
    fn end_window_of_deletion(&mut self, now: Micros, call: &ModelCall, due: Option<Micros>, start: Start) {
        let is_debounced = self.debounce_of(call).is_some() && !self.closed;
        if !self.items[call.key].has_window() || (is_debounced && self.items[call.key].takes_debounced(now)) {
            return;
        }
        let stamp = self.event(now);
        self.item(call.key).starts.push(start);
        match due {
            Some(due) => self.item(call.key).wait_until(due, stamp.0),
            None => self.item(call.key).wake(stamp),
        }
        self.populated = true;
        self.tidy(call.key);
        self.hit("a Delete that is not debounced ends a window");
    }

    /// The quiet time, the longest wait and the delay of a call that is debounced.
    pub(super) fn debounce_of(&self, call: &ModelCall) -> Option<(Micros, Micros, Micros)> {
        if call.rate_limited || (self.is_keys() && call.delay.is_some_and(|delay| delay > 0)) {
            return None;
        }
        let is_exempt = call.kind == DeltaKind::Deleted
            && self.config.debounce.is_some_and(|setting| setting.delivers_deletes_now);
        let setting = self.config.debounce.filter(|_| !is_exempt).map(|setting| setting.times());
        let setting = setting.map(|times| (micros(times.quiet), micros(times.max_wait)));
        let (quiet, max_wait) = call.debounce.or(setting).filter(|(quiet, _)| *quiet > 0)?;
        Some((quiet, max_wait, call.delay.unwrap_or(0)))
    }

    /// The same for a change of a list.
    pub(super) fn debounce_of_list(&self, kind: DeltaKind) -> Option<(Micros, Micros, Micros)> {
        let setting = self.config.debounce.filter(|setting| {
            setting.debounces_lists && (kind != DeltaKind::Deleted || !setting.delivers_deletes_now)
        })?;
        let times = setting.times();
        (!times.quiet.is_zero()).then(|| (micros(times.quiet), micros(times.max_wait), 0))
    }

    /// Whether the Delete of an absent key is delivered: in mode events, and in mode latest if the queue can't tell what
    /// a worker has seen.
    fn delivers_absent(&self) -> bool {
        self.is_events() || (self.is_latest() && !self.config.known_objects)
    }

    /// Marks the queue as populated, with an event if it was not.
    pub(super) fn populate(&mut self, now: Micros) {
        if !self.populated {
            self.event(now);
            self.populated = true;
            self.hit("an ignored Delete populates the queue");
        }
    }

    /// Mode latest: whether a deletion drops the key because no consumer can have seen it.
    pub(super) fn drops_unseen(&self, item: &Item) -> bool {
        self.is_latest()
            && self.config.known_objects
            && item.known.is_none()
            && item.attempt == 0
            && !item.waiting.is_empty()
    }

    pub(super) fn drop_unseen(&mut self, now: Micros, key: Name) {
        self.event(now);
        let item = self.item(key);
        item.waiting.clear();
        item.place = Place::Idle;
        item.delay = None;
        item.backoff = None;
        item.debounced.clear();
        item.starts.clear();
        item.floor = None;
        item.initial_pending = None;
        item.failures = 0;
        item.last_error = None;
        self.tidy(key);
        self.hit("mode latest drops an unseen key");
    }

    /// Appends a delta by the dedup rule, and makes the key ready if the delta is a new change. Returns false if the rule kept the
    /// older delta.
    pub(super) fn append(&mut self, now: Micros, key: Name, new: &New, new_change: bool) -> bool {
        let both_deleted = new.kind == DeltaKind::Deleted
            && !self.is_events()
            && self.get(key).and_then(|item| item.waiting.last()).is_some_and(ModelDelta::is_deleted);
        let older_is_tombstone = both_deleted
            && self
                .get(key)
                .and_then(|item| item.waiting.last())
                .is_some_and(|last| last.final_state_unknown);
        if both_deleted && !older_is_tombstone {
            self.hit("dedup keeps the older deletion");
            return false;
        }
        let (latest, deltas_max, bytes_max) =
            (self.is_latest(), self.config.max_deltas_per_key, self.config.max_bytes_per_key);
        let (rv, at) = self.event(now);
        let events = self.is_events();
        let delta = ModelDelta {
            kind: new.kind,
            content: new.content,
            rv,
            queued_at: at,
            source: new.source,
            owner: new.owner,
            final_state_unknown: new.final_state_unknown,
            coalesced: 0,
            trace: new.trace,
            due: new.due.filter(|_| events),
        };
        let closed = self.closed;
        let item = self.item(key);
        let before = item.clone();
        let debounce = new.debounce.filter(|_| !closed && item.takes_debounced(at));
        let is_repeated = new.kind == DeltaKind::Deleted
            && before.has_window()
            && before.waiting.last().is_some_and(ModelDelta::is_deleted);
        let debounce = debounce.map(|(quiet, max_wait, delay)| Debounced { at, quiet, max_wait, delay });
        item.changes.push((rv, at));
        if latest {
            item.waiting = vec![delta];
        } else {
            if both_deleted {
                item.waiting.pop();
            }
            item.waiting.push(delta);
        }
        let merged = if events { 0 } else { cap(&mut item.waiting, deltas_max, bytes_max) };
        match new.due.filter(|_| !events || !before.is_leased()) {
            // A Delete behind another one adds nothing.
            _ if debounce.is_some() && is_repeated => {}
            _ if debounce.is_some() => item.debounce(debounce.expect("it is debounced"), rv),
            // Behind another delta of its key, the delta waits for its turn.
            _ if events && !before.waiting.is_empty() => {}
            Some(due) => item.wait_until(due, rv),
            None => item.wake((rv, at)),
        }
        self.join(key, new.start, &before, (rv, at));
        self.regroup(at, key, new.content, new.source.or(new.owner));
        if debounce.is_some() {
            self.hit(match before.place {
                Place::Leased(_) => "a debounced change during a lease",
                Place::Parked => "a debounced change of a parked key",
                _ if before.backoff.is_some() => "a debounced change of a key in backoff",
                _ if before.has_window() => "a debounced change prolongs a window",
                _ => "a debounced change opens a window",
            });
        }
        self.tidy(key);
        if before.floor.is_some_and(|floor| floor > at) {
            self.hit("a floor holds back a change");
        }
        self.count_append(&before, new, new_change, both_deleted, merged);
        true
    }

    fn count_append(&mut self, before: &Item, new: &New, new_change: bool, both_deleted: bool, merged: u32) {
        if both_deleted {
            self.hit("dedup keeps the newer deletion");
        }
        if merged > 0 {
            self.hit("the cap merges");
        }
        if !new_change {
            return;
        }
        let old_owner = before.owner();
        if new.source.is_some() && old_owner.is_some() && old_owner != new.source {
            self.hit("a call takes over a key");
        }
        let failed = before.failures > 0;
        let backs_off = before.delay.is_some() || before.backoff.is_some();
        self.hit(match (&before.place, new.due.is_some()) {
            (Place::Leased(_), false) => "new change during a lease",
            (Place::Leased(_), true) => "delayed new change during a lease",
            (Place::Parked, false) => "new change for a parked key",
            (Place::Parked, true) => "delayed new change for a parked key",
            (Place::Ready(_), false) => "new change for a ready key",
            (Place::Ready(_), true) => "delayed new change for a ready key",
            (Place::Idle, false) if backs_off && failed => "new change for a key in backoff",
            (Place::Idle, false) if before.delay.is_some() => "new change for a delayed key",
            (Place::Idle, true) if backs_off && failed => "delayed new change for a key in backoff",
            (Place::Idle, true) if before.delay.is_some() => "delayed new change for a delayed key",
            (Place::Idle, false) => "new change for an idle key",
            (Place::Idle, true) => "delayed new change for an idle key",
        });
    }

    /// Add in mode keys.
    pub(super) fn add_key(&mut self, now: Micros, call: &ModelCall) -> bool {
        if self.is_shut_down() {
            let room = self.items.len() < self.config.max_keys || self.items.contains_key(call.key);
            if call.rate_limited && room {
                self.event(now);
                self.item(call.key).failures += 1;
                self.item(call.key).failure_expiry = None;
                self.tidy(call.key);
                self.take_token(self.last_at);
                self.hit("a closed queue counts an ignored AddRateLimited");
            }
            self.hit("a closed queue of mode keys ignores an add");
            return false;
        }
        let mut delay = call.delay.unwrap_or(0);
        let dirty = match &self.item(call.key).place {
            Place::Ready(_) => true,
            Place::Leased(lease) => lease.new_change.is_some(),
            _ => false,
        };
        if dirty && delay == 0 && !call.rate_limited {
            self.add_dirty(now, call);
            return true;
        }
        let start = self.start_of_call(call, None);
        let (rv, at) = self.event(now);
        let before = self.item(call.key).clone();
        self.item(call.key).changes.push((rv, at));
        self.populated = true;
        if call.rate_limited {
            if self.item(call.key).is_parked() {
                self.item(call.key).failures = 0;
            }
            self.item(call.key).failures += 1;
            let failures = self.item(call.key).failures;
            delay = self.backoff(call.key, failures, now);
            self.take_token(at);
            self.hit("AddRateLimited");
        }
        let failures = self.item(call.key).failures;
        let debounce = self.debounce_of(call);
        let item = self.item(call.key);
        let debounce = debounce.filter(|_| item.takes_debounced(at));
        if let Some((quiet, max_wait, delay)) = debounce {
            item.debounce(Debounced { at, quiet, max_wait, delay }, rv);
        } else if delay > 0 {
            item.wait_until(now + delay, rv);
        } else {
            item.wake((rv, at));
        }
        if call.rate_limited {
            item.failures = failures;
        }
        self.join(call.key, start, &before, (rv, at));
        self.tidy(call.key);
        self.hit(match (before.place, delay > 0) {
            _ if debounce.is_some() => "a debounced Add",
            (Place::Leased(_), true) => "AddAfter during a lease",
            (Place::Leased(_), false) => "Add during a lease: dirty",
            (Place::Ready(_), true) => "AddAfter of a ready key",
            (Place::Ready(_), false) => "AddRateLimited without wait of a ready key",
            (Place::Parked, _) => "Add of a parked key",
            (Place::Idle, true) => "AddAfter",
            (Place::Idle, false) => "Add",
        });
        true
    }
}

/// Merges the second and third oldest delta of a list until it is within the cap. Returns the number of merges.
pub(super) fn cap(list: &mut Vec<ModelDelta>, deltas_max: usize, bytes_max: usize) -> u32 {
    let mut merged = 0;
    let bytes = |list: &[ModelDelta]| list.iter().map(|delta| bytes_of(delta.content)).sum::<usize>();
    while list.len() > 2 && (list.len() > deltas_max || bytes(list) > bytes_max) {
        let second = list.remove(1);
        list[1].coalesced += second.coalesced + 1;
        merged += 1;
    }
    merged
}

/// Returns the leased deltas to the front of the waiting ones.
pub(super) fn return_deltas(item: &mut Item, mode: Mode) -> &'static str {
    let latest = mode == Mode::Latest;
    let mut older = std::mem::take(&mut item.leased);
    let mut newer = std::mem::take(&mut item.waiting);
    let return_rule = match (older.last(), newer.first()) {
        (Some(last), Some(first)) if mode != Mode::Events && last.is_deleted() && first.is_deleted() => {
            if last.final_state_unknown {
                older.pop();
            } else {
                newer.remove(0);
            }
            "adjacent deletions after a return"
        }
        (Some(_), Some(_)) => "deltas return before newer ones",
        _ => "deltas return without newer ones",
    };
    older.append(&mut newer);
    if latest && older.len() > 1 {
        older.drain(..older.len() - 1);
    }
    item.waiting = older;
    return_rule
}
