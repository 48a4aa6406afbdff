//! Pop, settle, expiry, undelivered leases, extend.

use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::command::{HoldScope, How, Outcome};
use deltaq_engine::delta::DeltaKind;
use deltaq_engine::time::Time;

use super::produce::{cap, return_deltas};
use super::{
    Item, Label, Micros, Model, ModelCall, ModelDelta, ModelKnown, ModelLease, Name, Place, ReadyPosition,
    Refused, bytes_of, micros,
};

/// A delivered key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ModelItem {
    pub(crate) key: Name,
    pub(crate) token: u64,
    pub(crate) deadline: Micros,
    pub(crate) attempt: u32,
    pub(crate) failures: u32,
    pub(crate) is_in_initial_list: bool,
    pub(crate) deltas: Vec<ModelDelta>,
    pub(crate) known: Option<ModelKnown>,
    pub(crate) waited: Micros,
}

impl ModelItem {
    fn with_known(mut self, wanted: bool) -> Self {
        self.known = self.known.filter(|_| wanted);
        self
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ModelSettled {
    Ok { worked: Micros, failed: Option<(u32, Option<Micros>, bool)> },
    Held { worked: Micros, until: Micros },
    Extended { deadline: Micros, pending: usize, deleted: bool },
    Repeated,
    NotLeased,
    Stale(Outcome),
}

impl Model {
    pub(crate) fn outcome(&self, token: u64) -> Outcome {
        self.outcomes.get(&token).copied().unwrap_or(Outcome::Unknown)
    }

    pub(crate) fn leased_key(&self, token: u64) -> Option<Name> {
        let holds = |item: &Item| item.lease().is_some_and(|lease| lease.token == token);
        self.items.iter().find(|(_, item)| holds(item)).map(|(key, _)| *key)
    }

    /// The backoff of a key after its failure number `failures`.
    pub(super) fn backoff(&self, key: Name, failures: u32, now: Micros) -> Micros {
        let limiter = &self.config.rate_limiter;
        if limiter.bucket.is_some() || limiter.jitter > 0.0 {
            // The conformance tests compare these limiters with recorded tables.
            return micros(limiter.wait(key, failures, self.bucket, Time::from_micros(now)).0);
        }
        let mut wait = 0;
        if let Some(exponential) = &limiter.item_exponential {
            let doubled = u128::from(micros(exponential.base)) << (failures - 1).min(60);
            let max = u128::from(micros(exponential.max));
            wait = wait.max(u64::try_from(doubled.min(max)).unwrap_or(u64::MAX));
        }
        if let Some(fast_slow) = &limiter.item_fast_slow {
            let fast = failures <= fast_slow.max_fast;
            wait = wait.max(micros(if fast { fast_slow.fast } else { fast_slow.slow }));
        }
        limiter.max_wait.map_or(wait, |max| wait.min(micros(max)))
    }

    /// Takes a token from the bucket of the rate limiters, which all keys share.
    pub(super) fn take_token(&mut self, at: Micros) {
        self.bucket = self.config.rate_limiter.wait("", 1, self.bucket, Time::from_micros(at)).1;
        self.hit("the rate limiters are used");
    }

    pub(crate) fn pop(
        &mut self,
        now: Micros,
        (max, max_bytes, with_known): (usize, usize, bool),
        lease: Option<Duration>,
        (worker, id): (Label, Label),
        group: Label,
    ) -> Result<Vec<ModelItem>, Refused> {
        let now = self.advance(now);
        if let Some(id) = id {
            let mut again: Vec<(u64, Name)> = Vec::new();
            for (key, item) in &self.items {
                if let Some(lease) = item.lease()
                    && lease.pop_id == Some(id)
                {
                    again.push((lease.token, key));
                }
            }
            again.sort_unstable();
            if !again.is_empty() {
                self.hit("a pop is repeated by its id");
                for (_, key) in &again {
                    self.keep_lease(key);
                }
                let again =
                    again.into_iter().map(|(_, key)| ModelItem { waited: 0, ..self.delivered_item(key) });
                return Ok(again.map(|item| item.with_known(with_known)).collect());
            }
        }
        if self.ends_pops() {
            self.hit(if self.closes_at_once {
                "a pop of a queue closed at once"
            } else {
                "a pop of a closed and drained queue"
            });
            return Err(Refused::Closed);
        }
        let mut items = Vec::new();
        if self.paused {
            self.hit("a pop of a paused queue");
            return Ok(items);
        }
        let mut left = max_bytes;
        while let Some(key) = self.next_ready(group) {
            let item = &self.items[key];
            let known = item.known.filter(|_| with_known).map_or(0, |known| bytes_of(known.content));
            let delivered = if self.is_events() { 1 } else { item.waiting.len() };
            let deltas = item.waiting.iter().take(delivered);
            let size = known + deltas.map(|delta| bytes_of(delta.content)).sum::<usize>();
            if items.len() == max || (!items.is_empty() && size > left) {
                if items.len() < max {
                    self.hit("max_bytes ends a pop");
                }
                break;
            }
            if !self.delivers(now) {
                self.hit(match (self.held_until > now, self.is_full()) {
                    (true, _) => "a hold ends a pop",
                    (_, true) => "max_leased ends a pop",
                    _ => "the rate ends a pop",
                });
                break;
            }
            left = left.saturating_sub(size);
            self.lease(now, key, (lease, items.len(), group.is_some()), worker, id);
            items.push(self.delivered_item(key).with_known(with_known));
        }
        self.note_full_groups(items.len() < max);
        Ok(items)
    }

    fn lease(
        &mut self,
        now: Micros,
        key: Name,
        (lease, nth, is_dedicated): (Option<Duration>, usize, bool),
        worker: Option<&'static str>,
        pop_id: Option<&'static str>,
    ) {
        let deadline = now + micros(lease.unwrap_or(self.config.lease));
        let (token, at) = self.event(now);
        self.note_delivery(at);
        self.charge(token, key, (nth, is_dedicated), at);
        let (keys_mode, events) = (self.is_keys(), self.is_events());
        let item = self.item(key);
        let Place::Ready(former) = item.place else { panic!("{key} is not ready") };
        item.leased = if events { vec![item.waiting.remove(0)] } else { std::mem::take(&mut item.waiting) };
        item.attempt += 1;
        let dropped_delay = if keys_mode { None } else { item.delay.take() };
        let lease = ModelLease {
            token,
            deadline,
            since: at,
            length: deadline - at,
            worker,
            pop_id,
            former,
            dropped_delay,
            new_change: item.waiting.first().map(|delta| delta.queued_at),
            changes: if events { 1 } else { item.changes.len() },
            may_return: true,
            starts: item.starts.clone(),
        };
        item.place = Place::Leased(lease);
        self.tidy(key);
        if dropped_delay.is_some() {
            self.hit("delivery drops a delay");
        }
    }

    /// A leased key in the form that its worker gets.
    fn delivered_item(&self, key: Name) -> ModelItem {
        let item = &self.items[key];
        let lease = item.lease().expect("the key was delivered");
        ModelItem {
            key,
            token: lease.token,
            deadline: lease.deadline,
            attempt: item.attempt,
            failures: item.failures,
            is_in_initial_list: item.initial_pending.is_some() || !self.populated,
            deltas: item.leased.clone(),
            known: item.known,
            waited: lease.since.saturating_sub(lease.former.added),
        }
    }

    pub(crate) fn settle(&mut self, now: Micros, settles: &[(u64, How)]) -> Vec<ModelSettled> {
        let now = self.advance(now);
        settles.iter().map(|(token, how)| self.settle_one(now, *token, how)).collect()
    }

    pub(super) fn settle_one(&mut self, now: Micros, token: u64, how: &How) -> ModelSettled {
        if let How::Extend { lease } = how {
            return self.extend(now, token, *lease);
        }
        if let How::Part(part) = how {
            return self.settle_part(now, token, part);
        }
        let wanted = match how {
            How::Ack | How::Hold { acks: true, .. } => Outcome::Acked,
            How::Done { .. } => Outcome::Done,
            How::Nack { .. } => Outcome::Nacked,
            How::Release | How::Hold { acks: false, .. } => Outcome::Released,
            How::Reject { .. } => Outcome::Rejected,
            How::Extend { .. } | How::Part(_) => unreachable!("it ends no lease by itself"),
        };
        let Some(key) = self.leased_key(token) else {
            let outcome = self.outcome(token);
            if outcome == wanted {
                self.hit("a settle is repeated");
                return ModelSettled::Repeated;
            }
            self.hit("a settle of a stale lease");
            return ModelSettled::Stale(outcome);
        };
        let since = self.items[key].lease().map_or(0, |lease| lease.since);
        if let How::Done { delay: Some(delay) } = how {
            self.add_after(now, key, micros(*delay));
        }
        if wanted == Outcome::Acked {
            self.remember_acknowledged(now, key, self.items[key].leased.len());
        }
        let (group, key_held) = (self.charged_to(token, key), self.key_hold(how, now));
        let (rv, at) = self.event(now);
        self.discharge(token, at, true);
        match how {
            How::Ack | How::Hold { acks: true, .. } => self.ack(key, (rv, at), true),
            How::Done { .. } => self.ack(key, (rv, at), false),
            How::Nack { delay, floor, error } => {
                self.fail(key, (rv, at), now, (delay.map(micros), *floor), error.clone());
            }
            How::Release | How::Hold { acks: false, .. } => match key_held {
                Some(until) => self.hold_key(key, (rv, at), until),
                None => self.release(key, (rv, at)),
            },
            How::Reject { error } => self.reject(key, (rv, at), error.clone()),
            How::Extend { .. } | How::Part(_) => unreachable!("it ends no lease by itself"),
        }
        let is_failure = matches!(how, How::Nack { .. } | How::Reject { .. });
        let failed = self
            .get(key)
            .filter(|_| is_failure)
            .map(|item| (item.failures, item.due(), item.place == Place::Parked));
        self.tidy(key);
        self.outcomes.insert(token, wanted);
        let worked = at.saturating_sub(since);
        if let How::Hold { scope, length, .. } = how {
            let until = match (scope, group) {
                (HoldScope::Queue, _) => self.hold(now, micros(*length)),
                (HoldScope::Group, Some(group)) => self.hold_group(now, group, micros(*length)),
                (HoldScope::Key, _) if key_held.is_some() => key_held.unwrap_or_default(),
                (HoldScope::Group, None) | (HoldScope::Key, _) => return ModelSettled::Ok { worked, failed },
            };
            return ModelSettled::Held { worked, until };
        }
        ModelSettled::Ok { worked, failed }
    }

    /// The AddAfter before a Done.
    fn add_after(&mut self, now: Micros, key: Name, delay: Micros) {
        let call = ModelCall {
            kind: DeltaKind::Added,
            key,
            content: None,
            source: None,
            delay: Some(delay),
            debounce: Some((0, 0)),
            head_start: None,
            final_state_unknown: false,
            rate_limited: false,
            trace: None,
        };
        self.add_key(now, &call);
        self.hit("done adds the key again after a delay");
    }

    /// Ends the lease and applies the leased deltas to the known object.
    fn ack(&mut self, key: Name, stamp: (u64, Micros), forget: bool) {
        let (store, events) = (self.config.known_objects, self.is_events());
        let item = self.item(key);
        let Place::Leased(lease) = std::mem::take(&mut item.place) else { panic!("{key} is not leased") };
        let covered_rv = item.leased.last().filter(|_| events).map_or(lease.token, |delta| delta.rv);
        for delta in std::mem::take(&mut item.leased) {
            if !store || delta.is_deleted() {
                item.known = None;
            } else {
                item.known = Some(ModelKnown { content: delta.content, rv: stamp.0, owner: delta.owner });
            }
        }
        let (was_initial, covered) = (
            item.initial_pending.is_some(),
            item.initial_pending.is_some_and(|initial_pending| initial_pending <= covered_rv),
        );
        item.initial_pending = item.initial_pending.filter(|_| !covered);
        if forget || item.failures == 0 {
            item.changes.drain(..lease.changes);
        }
        if item.changes.is_empty() {
            // A delay from before the lease is left.
            item.changes.push(stamp);
        }
        if forget {
            item.attempt = 0;
            item.failures = 0;
            item.last_error = None;
        }
        let is_delayed = item.waiting.first().and_then(|delta| delta.due).is_some_and(|due| due > stamp.1);
        if events && is_delayed {
            self.go_on(key, stamp);
        } else if let Some(added) = lease.new_change {
            let rv = self.position(key, stamp.0);
            self.item(key).place = Place::Ready(ReadyPosition { rv, since: stamp.1, added });
        } else if self.window_is_over(key, stamp.1) {
            let added = self.items[key].debounced.first().map_or(stamp.1, |change| change.at);
            self.end_window(key, stamp, added);
        }
        let item = self.item(key);
        let has_delayed_change = item.place == Place::Idle && !item.waiting.is_empty();
        if was_initial {
            self.hit(if covered {
                "ack completes a key of the initial list"
            } else {
                "ack leaves a key of the initial list pending"
            });
        }
        self.hit(match (lease.new_change.is_some(), has_delayed_change) {
            (true, true) => "ack with a delayed new change",
            (true, _) => "ack with a new change: to the tail",
            (_, true) => "ack with a delayed new change",
            _ => "ack without newer deltas",
        });
    }

    /// A nack at `base`, or an expiry with its deadline as `base`.
    fn fail(
        &mut self,
        key: Name,
        stamp: (u64, Micros),
        base: Micros,
        (delay, floor): (Option<Micros>, bool),
        error: Option<Arc<str>>,
    ) {
        let (keys_mode, events) = (self.is_keys(), self.is_events());
        let max_failures = self.config.max_failures;
        let failures = self.items[key].failures + 1;
        // In mode events a newer delta can't be the fix of the delta that failed.
        let new_change = self.items[key].lease().and_then(|lease| lease.new_change).filter(|_| !events);
        // In a closed queue a window is over, and its changes wait for nothing but the lease.
        let debounced = self.items[key].has_window() && self.closed;
        let new_change = new_change.or(debounced.then_some(stamp.1));
        let has_new_change = new_change.is_some();
        let is_last = max_failures > 0 && failures >= max_failures;
        let window = self.items[key].window_due();
        let is_awaited = floor || if has_new_change { keys_mode } else { !is_last || window.is_some() };
        let uses_limiters = delay.is_none() && is_awaited;
        let wait = delay.unwrap_or_else(|| self.backoff(key, failures, base));
        let floor = (floor && wait > 0).then_some(base + wait);
        if uses_limiters {
            self.take_token(stamp.1);
        }
        let lease = self.take_lease(key);
        let (return_rule, merged) = self.return_deltas(key);
        let position = self.position(key, stamp.0);
        let item = self.item(key);
        item.failures = failures;
        item.last_error = error;
        // In mode keys the delay is itself an Add. In the other modes it belongs to waiting deltas.
        let has_delayed_change = item.delay.is_some();
        item.floor = floor;
        if let (Some(floor), Some(delay)) = (floor, &mut item.delay) {
            delay.due = delay.due.max(floor);
        }
        let rule = if let (Some(floor), true) = (floor, has_new_change) {
            item.back_off(floor, stamp.0);
            "failure with a floor and a new change: waits"
        } else if let Some(added) = new_change {
            item.place = Place::Ready(ReadyPosition { rv: stamp.0, since: stamp.1, added });
            item.debounced.clear();
            if keys_mode && wait > 0 {
                item.wait_until(base + wait, stamp.0);
            }
            "failure with a new change: to the tail"
        } else if window.is_some() {
            self.fail_behind_window(key, stamp, (base, wait))
        } else if is_last {
            if has_delayed_change {
                "too many failures with a delayed new change: delayed"
            } else {
                item.place = Place::Parked;
                if item.initial_pending.take().is_some() {
                    "too many failures: parked, leaves the initial list"
                } else {
                    "too many failures: parked"
                }
            }
        } else if wait == 0 {
            let added = lease.new_change.unwrap_or(stamp.1);
            item.place = Place::Ready(ReadyPosition { rv: position, since: stamp.1, added });
            "failure without a wait: to the tail"
        } else if has_delayed_change {
            item.back_off(base + wait, stamp.0);
            "failure with a delayed new change: the earlier of both"
        } else {
            item.back_off(base + wait, stamp.0);
            "failure: backoff or delay"
        };
        if merged > 0 {
            self.hit("the cap merges returned deltas");
        }
        self.hit(return_rule);
        self.hit(rule);
    }

    /// A failed key waits for its backoff and its window.
    fn fail_behind_window(
        &mut self,
        key: Name,
        stamp: (u64, Micros),
        (base, wait): (Micros, Micros),
    ) -> &'static str {
        if wait > 0 || !self.window_is_over(key, base) {
            self.item(key).back_off(base + wait, stamp.0);
            return "failure with a debounced change: waits";
        }
        self.end_window(key, stamp, stamp.1);
        "failure with a debounced change: to the tail"
    }

    /// Whether the key has a window that is over at this time.
    fn window_is_over(&self, key: Name, at: Micros) -> bool {
        let due = self.get(key).and_then(Item::window_due);
        due.is_some_and(|due| due <= at || self.closed)
    }

    /// Makes a key ready whose window was over before its lease ended.
    fn end_window(&mut self, key: Name, stamp: (u64, Micros), added: Micros) {
        self.item(key).debounced.clear();
        self.item(key).place = Place::Ready(ReadyPosition { rv: stamp.0, since: stamp.1, added });
    }

    pub(super) fn take_lease(&mut self, key: Name) -> ModelLease {
        let waited = self.items[key].has_waiting();
        let Place::Leased(lease) = std::mem::take(&mut self.item(key).place) else {
            panic!("{key} is not leased")
        };
        // What returns and what waits are delivered together.
        if !waited {
            self.item(key).starts.clear();
        }
        self.item(key).starts.extend(&lease.starts);
        lease
    }

    /// Returns the leased deltas of a key, and the number of merged ones.
    pub(super) fn return_deltas(&mut self, key: Name) -> (&'static str, u32) {
        let (mode, events) = (self.config.mode, self.is_events());
        let (deltas_max, bytes_max) = (self.config.max_deltas_per_key, self.config.max_bytes_per_key);
        let item = self.item(key);
        let rule = return_deltas(item, mode);
        (rule, if events { 0 } else { cap(&mut item.waiting, deltas_max, bytes_max) })
    }

    fn release(&mut self, key: Name, stamp: (u64, Micros)) {
        let lease = self.take_lease(key);
        let (return_rule, _) = self.return_deltas(key);
        let added = lease.new_change.unwrap_or(stamp.1);
        if self.items[key].has_window() && !self.window_is_over(key, stamp.1) {
            self.hit("release with a debounced change: waits");
            return;
        }
        let rv = self.position(key, stamp.0);
        self.end_window(key, (rv, stamp.1), added);
        self.hit(return_rule);
        self.hit("release");
    }

    fn reject(&mut self, key: Name, stamp: (u64, Micros), error: Option<Arc<str>>) {
        let (lease, events) = (self.take_lease(key), self.is_events());
        let (return_rule, _) = self.return_deltas(key);
        let item = self.item(key);
        item.last_error = error;
        // No worker has seen a change that waits behind the lease. In mode events the rejected delta holds it back.
        let rule = if let Some(added) = lease.new_change.filter(|_| !events) {
            item.place = Place::Ready(ReadyPosition { rv: stamp.0, since: stamp.1, added });
            "reject with a new change: to the tail"
        } else if item.has_window() {
            if self.window_is_over(key, stamp.1) {
                self.end_window(key, stamp, stamp.1);
            }
            "reject with a debounced change"
        } else if item.delay.is_some() {
            "reject with a delayed new change: delayed"
        } else {
            item.place = Place::Parked;
            item.initial_pending = None;
            if lease.new_change.is_some() { "reject with a newer event: parked" } else { "reject" }
        };
        self.hit(return_rule);
        self.hit(rule);
    }

    pub(super) fn expire(&mut self, key: Name) {
        let lease = self.items[key].lease().expect("only a lease expires").clone();
        let stamp = self.event(lease.deadline);
        self.discharge(lease.token, stamp.1, true);
        self.fail(key, stamp, lease.deadline, (None, false), Some("lease expired".into()));
        self.tidy(key);
        self.outcomes.insert(lease.token, Outcome::Expired);
        self.hit("a lease expires");
    }

    /// Undoes leases whose reply could not be delivered.
    pub(crate) fn return_undelivered(&mut self, now: Micros, tokens: &[u64]) {
        let now = now.max(self.last_at);
        for token in tokens {
            let Some(key) = self.leased_key(*token) else { continue };
            if !self.items[key].lease().is_some_and(|lease| lease.may_return) {
                self.hit("an undelivered lease stays with its worker");
                continue;
            }
            let (_, at) = self.event(now);
            self.discharge(*token, at, false);
            let lease = self.take_lease(key);
            self.return_deltas(key);
            let item = self.item(key);
            item.place = Place::Ready(lease.former);
            item.debounced.clear();
            item.attempt -= 1;
            if let Some(dropped) = lease.dropped_delay {
                item.wait_until(dropped.due, dropped.rv);
            }
            self.tidy(key);
            self.hit("an undelivered lease is returned");
        }
    }

    /// A repeated pop was answered with the lease, or this can't be known after a restart.
    fn keep_lease(&mut self, key: Name) {
        let Place::Leased(lease) = &mut self.item(key).place else { panic!("{key} is not leased") };
        lease.may_return = false;
    }

    /// After a restart, each lease lasts at least its full length from now on.
    pub(super) fn renew_leases(&mut self, now: Micros) {
        self.skip_worker_time(now);
        self.event(now);
        let mut leases: Vec<(u64, Name)> =
            self.items.iter().filter_map(|(key, item)| Some((item.lease()?.token, *key))).collect();
        leases.sort_unstable();
        for (_, key) in leases {
            self.keep_lease(key);
            let Place::Leased(lease) = &mut self.item(key).place else { panic!("{key} is not leased") };
            if lease.deadline < now + lease.length {
                lease.deadline = now + lease.length;
                self.event(now);
                self.hit("a restart renews a lease");
            }
        }
    }
}
