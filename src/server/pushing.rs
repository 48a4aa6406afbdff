//! The task of a queue that pushes: a worker inside the owner of the queue.
//!
//! It pops, sends and settles like any other worker, so leases, failures, parking, pauses and rates apply unchanged. How many requests it
//! sends at once is up to the [`Breaker`]. It holds nothing that must survive: what was sent and not settled is sent again after its
//! lease.

use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::command::{HoldScope, How, Item, Pop, Settle};
use deltaq_engine::id::Worker;
use deltaq_runtime::clock::Clock;
use deltaq_service::{Error, Handle, PopAnswer, PopCall, PushReport, PushResult, Pusher};
use deltaq_types::{PauseReason, Push, PushPayload, PushState};
use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, OptionFuture};
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep_until};

use self::batches::{BATCH_BYTES, Batches};
use self::handshake::Handshake;
use self::request::{Bodies, Ended, Sent, Target, deliver};
use crate::push::{Breaker, Connector, Outcome, Policy, Sender, Verdict};
use crate::spans::Spans;

mod batches;
mod handshake;
mod request;

/// The name of the worker.
const WORKER: &str = "push";
/// How much longer than a request its lease is.
const LEASE_MARGIN: Duration = Duration::from_secs(5);
/// How long a pop waits.
const POP_WAIT: Duration = Duration::from_hours(1);
/// The wait after a pop without keys, such as that of a closed queue, and after a settle that failed.
const PAUSE: Duration = Duration::from_millis(500);
/// How often a settle is tried while the journal accepts no events. After that the lease expires.
const SETTLES: u32 = 10;
/// Maximum size of the objects of one pop, in bytes. One key always fits.
const POP_BYTES: usize = 16 << 20;
/// Maximum number of keys of one pop.
const POP_KEYS: usize = 1_000;
/// The jitter of the wait before a probe: 1 ± this.
const PROBE_JITTER: f64 = 0.2;
/// How many keys an open breaker remembers. It pops at most one more.
const PROBED_MAX: usize = 63;
/// Pushes the keys of all queues of this server.
#[derive(Debug)]
pub(super) struct Pushing {
    policy: Arc<Policy>,
    connector: Connector,
    clock: Clock,
    spans: Spans,
    bodies: Bodies,
}

impl Pushing {
    pub(super) fn new(policy: Arc<Policy>, connector: Connector, clock: Clock, spans: Spans) -> Self {
        Self { policy, connector, clock, spans, bodies: Bodies::new() }
    }
}

impl Pusher for Pushing {
    fn push(&self, handle: Arc<Handle>) -> BoxFuture<'static, ()> {
        let worker = Sending {
            policy: self.policy.clone(),
            connector: self.connector.clone(),
            clock: self.clock.clone(),
            spans: self.spans.clone(),
            bodies: self.bodies.of_queue(),
            handle,
            target: None,
            handshake: None,
            batches: Batches::default(),
            breaker: Breaker::new(1),
            probed: Vec::new(),
            fails_since: None,
            rests_until: None,
            is_disabled: false,
            requests: FuturesUnordered::new(),
            settles: FuturesUnordered::new(),
        };
        Box::pin(worker.run())
    }
}

/// The worker of one queue.
struct Sending {
    policy: Arc<Policy>,
    connector: Connector,
    clock: Clock,
    spans: Spans,
    bodies: Bodies,
    handle: Arc<Handle>,
    /// What new requests use; `None` if the settings of the server do not permit it.
    target: Option<Target>,
    /// The validation of the endpoint; `None` if the setting names no origin.
    handshake: Option<Handshake>,
    batches: Batches,
    breaker: Breaker,
    /// The keys that have tested the endpoint since it began to fail, so that each probe has another key.
    probed: Vec<String>,
    /// When the first request after the last success has failed.
    fails_since: Option<Instant>,
    /// Until then no request begins.
    rests_until: Option<Instant>,
    /// Whether the queue has paused itself, and no request has begun since.
    is_disabled: bool,
    requests: FuturesUnordered<BoxFuture<'static, Ended>>,
    settles: FuturesUnordered<BoxFuture<'static, ()>>,
}

/// A pop in progress.
type Popping = OptionFuture<BoxFuture<'static, PopAnswer>>;

impl Sending {
    async fn run(mut self) {
        let handle = self.handle.clone();
        let (task, draining) = (handle.push_task(), handle.shutdown().draining());
        let mut current = None;
        let (mut popping, mut popping_for) = (Popping::default(), 0);
        loop {
            let setting = handle.config().push.clone();
            let stops = setting.is_none() || draining.is_cancelled() || handle.has_ended();
            if stops && self.requests.is_empty() && self.settles.is_empty() {
                task.set(|report| (report.in_flight, report.allowed) = (0, 0));
                return;
            }
            if let Some(setting) = setting.filter(|setting| current.as_ref() != Some(setting)) {
                self.aim(&setting, current.as_ref());
                current = Some(setting);
                popping_for = 0;
            }
            let now = Instant::now();
            let rests = self.rests_until.is_some_and(|until| now < until);
            // Nothing begins before the queue has paused itself.
            let pauses = self.is_disabled && !self.settles.is_empty();
            let room = match &self.target {
                Some(_) if !stops && !rests && !pauses && self.is_permitted() => self.room(now),
                _ => 0,
            };
            // A pop that is dropped returns its keys, so one for fewer keys than there is room for goes on. One of former settings does not.
            if popping_for == 0 || room < popping_for {
                (popping, popping_for) = (self.pop(room), room);
            }
            self.report();
            let probes_at = self.breaker.probes_at().filter(|at| *at > now);
            let idle_until = self.target.as_ref().and_then(|target| target.sender.close_idle(now));
            let next =
                self.rests_until.filter(|_| rests).into_iter().chain(probes_at).chain(idle_until).min();
            let asks = !stops && !handle.has_paused_itself();
            let asking =
                OptionFuture::from(self.handshake.as_mut().filter(|_| asks).map(Handshake::answered));
            tokio::select! {
                biased;
                Some(ended) = self.requests.next() => self.judge(ended),
                Some(()) = self.settles.next() => {}
                Some(answer) = asking => self.note_handshake(answer),
                Some(answer) = &mut popping => {
                    (popping, popping_for) = (Popping::default(), 0);
                    let rest = if self.begin(answer) { self.interval() } else { PAUSE };
                    self.rests_until = Some(Instant::now() + rest);
                }
                () = task.woken() => {}
                () = draining.cancelled(), if !stops => {}
                () = sleep_until(next.unwrap_or(now)), if next.is_some() => {}
            }
        }
    }

    /// Uses a setting for new requests. A breaker belongs to its URL.
    fn aim(&mut self, setting: &Arc<Push>, former: Option<&Arc<Push>>) {
        let max_in_flight = usize::try_from(setting.max_in_flight).unwrap_or(usize::MAX);
        if former.is_some_and(|former| former.url == setting.url) {
            self.breaker.set_max_in_flight(max_in_flight);
        } else {
            self.rests_until = None;
            self.breaker = Breaker::new(max_in_flight);
            self.probed.clear();
            self.fails_since = None;
            // After a resume one request tests the endpoint.
            self.is_disabled = self.handle.has_paused_itself();
            if self.is_disabled {
                self.breaker.open(Instant::now());
            }
        }
        let queue = self.handle.name();
        // The requests that it has begun go on.
        if let Some(former) = self.target.take() {
            former.sender.retire();
        }
        self.target = match self.policy.endpoint(queue.as_str(), setting) {
            Ok(endpoint) => {
                let sender = Arc::new(Sender::new(self.connector.clone(), endpoint));
                let is_same = |former: &Arc<Push>| {
                    (&former.url, &former.handshake) == (&setting.url, &setting.handshake)
                };
                let is_granted = self.handshake.as_ref().is_some_and(Handshake::is_granted);
                if !is_granted || !former.is_some_and(is_same) {
                    self.handshake = Handshake::of(&sender, setting);
                }
                Some(Target { setting: setting.clone(), sender })
            }
            Err(refusal) => {
                let why = format!("push.{}: {}", refusal.member, refusal.why);
                tracing::warn!(%queue, why, "the queue pushes nothing, because the settings of the server do not permit it");
                self.handle.push_task().set(|report| report.last_error = Some(why.into()));
                self.handshake = None;
                None
            }
        };
    }

    /// How many requests may begin now. Those to an endpoint that has named a rate begin one by one. None begins while there is no room for its body.
    fn room(&self, now: Instant) -> usize {
        if !self.requests.is_empty() && self.bodies.are_full() {
            return 0;
        }
        let room = self.breaker.may_begin(self.requests.len(), now);
        if self.interval().is_zero() { room } else { room.min(1) }
    }

    /// Whether the endpoint has permitted requests, if it has to.
    fn is_permitted(&self) -> bool {
        self.handshake.as_ref().is_none_or(Handshake::is_granted)
    }

    /// The least time between two requests.
    fn interval(&self) -> Duration {
        self.handshake.as_ref().map_or(Duration::ZERO, Handshake::interval)
    }

    /// What the endpoint has answered to the validation request.
    fn note_handshake(&mut self, answer: Result<(), String>) {
        let queue = self.handle.name();
        match answer {
            Ok(()) => {
                tracing::info!(%queue, "the endpoint of the queue permits requests");
                // The refusals before say nothing of failures that may follow.
                self.fails_since = None;
            }
            Err(why) => {
                let why = format!("the endpoint does not permit requests: {why}");
                tracing::warn!(%queue, why, "the queue pushes nothing until its endpoint permits it");
                self.note_error(&why);
                self.fails_too_long(Instant::now());
            }
        }
    }

    /// A pop for this many requests.
    fn pop(&self, requests: usize) -> Popping {
        let Some(target) = self.target.as_ref().filter(|_| requests > 0) else { return Popping::default() };
        let max = if self.breaker.is_open() {
            self.probed.len() + 1
        } else {
            requests.saturating_mul(self.batches.keys_of_request(&target.setting)).min(POP_KEYS)
        };
        // What fits in no request would only return to the queue.
        let max_bytes = match target.setting.batch {
            1 => POP_BYTES,
            _ => requests.saturating_mul(BATCH_BYTES).min(POP_BYTES),
        };
        let pop = Pop {
            max,
            max_bytes,
            lease: Some(target.setting.timeout.get() + LEASE_MARGIN),
            worker: Some(Worker::from(WORKER)),
            id: None,
            with_known: target.setting.payload == PushPayload::Known,
            group: None,
        };
        let handle = self.handle.clone();
        let popping: BoxFuture<'static, PopAnswer> =
            Box::pin(async move { handle.pop(PopCall { pop, settles: Vec::new(), wait: POP_WAIT }).await });
        Some(popping).into()
    }

    /// Begins the requests for popped keys. Returns whether there are any.
    fn begin(&mut self, answer: PopAnswer) -> bool {
        let (Ok(mut delivered), Some(target)) = (answer.items, self.target.clone()) else { return false };
        let now = Instant::now();
        if !delivered.items.is_empty() && std::mem::take(&mut self.is_disabled) {
            // Other requests may have succeeded since the pause.
            self.breaker.open(now);
            self.fails_since = None;
        }
        // Keys that stay in `delivered` return when it is dropped.
        let batches = if self.breaker.is_open() && !delivered.items.is_empty() {
            vec![vec![self.probe(&mut delivered.items)]]
        } else {
            let room = self.room(now);
            if room == 0 {
                return true;
            }
            self.batches.take(&mut delivered.items, &target.setting, room)
        };
        let has_keys = !batches.is_empty();
        for batch in batches {
            self.breaker.begun();
            let parts = (self.handle.clone(), self.clock.clone(), self.spans.clone());
            self.requests.push(Box::pin(deliver(parts, self.bodies.clone(), batch, target.clone())));
        }
        has_keys
    }

    /// The first key that has not tested the endpoint yet, or the first of all. Otherwise a failing key with a head start or a higher class
    /// would be each probe, and no other key would show that the endpoint works.
    fn probe(&mut self, items: &mut Vec<Item>) -> Item {
        let at = items.iter().position(|item| !self.probed.iter().any(|key| key == item.key.as_str()));
        if at.is_none() || self.probed.len() >= PROBED_MAX {
            self.probed.clear();
        }
        let item = items.remove(at.unwrap_or(0));
        self.probed.push(item.key.as_str().to_owned());
        item
    }

    /// Settles the keys of a request by its answer.
    fn judge(&mut self, ended: Ended) {
        let Ended { keys, setting, answer, took } = ended;
        let is_former = is_former(&self.handle, &setting);
        let Some(answer) = answer else {
            if !is_former {
                self.breaker.withdrawn(Instant::now());
            }
            // As if the keys had never been popped.
            return self.handle.reclaim(keys.iter().map(|sent| sent.token));
        };
        let names: Vec<&str> = keys.iter().map(|sent| &*sent.key).collect();
        let verdict = Verdict::of(answer, &names, &setting, self.clock.wall_us());
        self.handle.push_task().count(result(&verdict), took);
        let hows = match verdict {
            Verdict::Settled { outcomes } if is_former => self.by_outcomes(outcomes, &keys, &setting),
            Verdict::Accepted if is_former => vec![self.for_long(); keys.len()],
            Verdict::Refused { error } if is_former => {
                self.whole(&keys, How::Reject { error: Some(error.into()) })
            }
            // The answer of a former URL says nothing of the present one.
            _ if is_former => vec![How::Release; keys.len()],
            verdict => self.apply(verdict, &keys, &setting),
        };
        self.settle(&keys, hows);
    }

    /// Draws the conclusions for the endpoint. Returns what happens to each key.
    fn apply(&mut self, verdict: Verdict, keys: &[Sent], setting: &Arc<Push>) -> Vec<How> {
        let now = Instant::now();
        let was_open = self.breaker.is_open();
        let succeeds =
            matches!(verdict, Verdict::Settled { .. } | Verdict::Accepted | Verdict::Refused { .. });
        if succeeds {
            self.breaker.succeeded();
            self.fails_since = None;
        }
        let is_gone = matches!(verdict, Verdict::EndpointGone { .. });
        let released = || vec![How::Release; keys.len()];
        let hows = match verdict {
            Verdict::Settled { outcomes } => {
                self.note_outcomes(&outcomes);
                self.by_outcomes(outcomes, keys, setting)
            }
            Verdict::Accepted => {
                self.note_success();
                vec![self.for_long(); keys.len()]
            }
            Verdict::Refused { error } => {
                self.note_error(&error);
                self.whole(keys, How::Reject { error: Some(error.into()) })
            }
            Verdict::Waits { length, error } => {
                self.note_error(&error);
                self.breaker.throttled(now);
                // One hold is enough for all.
                let mut hows = released();
                if let Some(first) = hows.first_mut() {
                    *first = How::Hold { scope: HoldScope::Queue, acks: false, length };
                }
                hows
            }
            Verdict::EndpointGone { error } => {
                self.note_error(&error);
                released()
            }
            Verdict::Failed { error } => {
                let counts = self.failed(keys, &error, now);
                let failures = keys.first().map_or(0, |sent| sent.failures);
                let how = self.key_failed(None, error, failures, setting);
                self.whole(keys, if counts { how } else { How::Release })
            }
            Verdict::Unanswered { why } => {
                self.failed(keys, &why, now);
                self.whole(keys, How::Release)
            }
        };
        if was_open && !self.breaker.is_open() {
            self.probed.clear();
            tracing::info!(queue = %self.handle.name(), "the endpoint of the queue takes requests again");
        }
        if is_gone {
            self.disable(PauseReason::EndpointGone, setting);
        } else if !succeeds {
            self.fails_since.get_or_insert(now);
            // One failure after a long rest says little about the endpoint.
            if was_open {
                self.fails_too_long(now);
            }
        }
        hows
    }

    /// What happens to the keys of a request that was not taken as a whole. With several keys nobody knows which one is to blame, so each is sent
    /// alone.
    fn whole(&mut self, keys: &[Sent], how: How) -> Vec<How> {
        if keys.len() > 1 {
            self.batches.send_alone(keys);
            return vec![How::Release; keys.len()];
        }
        vec![how; keys.len()]
    }

    fn by_outcomes(&self, outcomes: Vec<Outcome>, keys: &[Sent], setting: &Push) -> Vec<How> {
        let how = |(outcome, sent): (Outcome, &Sent)| match outcome {
            Outcome::Ack => How::Ack,
            Outcome::Nack { delay, error } => self.key_failed(delay, error, sent.failures, setting),
            Outcome::Reject { error } => How::Reject { error: Some(error.into()) },
        };
        outcomes.into_iter().zip(keys).map(how).collect()
    }

    fn note_outcomes(&self, outcomes: &[Outcome]) {
        if outcomes.contains(&Outcome::Ack) {
            self.note_success();
        }
        let error = outcomes.iter().find_map(|outcome| match outcome {
            Outcome::Ack => None,
            Outcome::Nack { error, .. } | Outcome::Reject { error } => Some(error),
        });
        if let Some(error) = error {
            self.note_error(error);
        }
    }

    fn note_success(&self) {
        let now_us = self.clock.wall_us();
        self.handle.push_task().set(|report| {
            report.last_success_us = Some(now_us);
            report.last_error = None;
        });
    }

    /// The lease goes on as one of a worker, because the receiver settles it.
    fn for_long(&self) -> How {
        How::Extend { lease: Some(self.handle.config().lease) }
    }

    /// The failure of a key that has failed this often before.
    fn key_failed(&self, delay: Option<Duration>, error: String, failures: u32, setting: &Push) -> How {
        let delay = delay.or_else(|| self.wait(setting, failures));
        How::Nack { delay, floor: false, error: Some(error.into()) }
    }

    /// Lets the queue pause itself if its endpoint has failed for as long as the setting permits.
    fn fails_too_long(&mut self, now: Instant) {
        let Some(setting) = self.target.as_ref().map(|target| target.setting.clone()) else { return };
        let since = *self.fails_since.get_or_insert(now);
        let after = setting.disable_after.get();
        if !after.is_zero() && now.duration_since(since) >= after {
            self.disable(PauseReason::EndpointFailing, &setting);
        }
    }

    /// Lets the queue pause itself. After a resume one request tests the endpoint.
    fn disable(&mut self, reason: PauseReason, setting: &Arc<Push>) {
        self.breaker.open(Instant::now());
        if std::mem::replace(&mut self.is_disabled, true) {
            return;
        }
        let (handle, setting) = (self.handle.clone(), setting.clone());
        self.settles.push(Box::pin(pause_itself(handle, setting, reason)));
    }

    /// Tells the breaker of a failure. Returns whether it counts for the key, if the endpoint has answered.
    fn failed(&mut self, keys: &[Sent], why: &str, now: Instant) -> bool {
        let names: Vec<&str> = keys.iter().map(|sent| &*sent.key).collect();
        let others = self.handle.ready() + self.requests.len();
        let jitter = 1.0 - PROBE_JITTER + 2.0 * PROBE_JITTER * fastrand::f64();
        let failed = self.breaker.failed(&names, others, now, jitter);
        self.note_error(why);
        if failed.opened {
            tracing::warn!(
                queue = %self.handle.name(),
                error = why,
                "the endpoint of the queue fails; from now on one request at a time tests it"
            );
        }
        failed.counts
    }

    fn note_error(&self, why: &str) {
        self.handle.push_task().set(|report| report.last_error = Some(why.into()));
    }

    /// The wait of a key that has failed this often before; `None` for that of the queue's rate limiter.
    fn wait(&self, setting: &Push, failures: u32) -> Option<Duration> {
        let at = usize::try_from(failures).unwrap_or(usize::MAX);
        let wait = setting.retry.get(at).or(setting.retry.last())?.get();
        let jitter = self.handle.config().rate_limiter.jitter * fastrand::f64();
        Some(wait.mul_f64(1.0 + jitter))
    }

    fn settle(&mut self, keys: &[Sent], hows: Vec<How>) {
        if let ([sent], [how]) = (keys, &*hows)
            && matches!(how, How::Ack | How::Extend { .. })
        {
            self.batches.was_taken(&sent.key);
        }
        let settle = |(sent, how): (&Sent, How)| Settle { token: sent.token, how };
        let settles: Vec<Settle> = keys.iter().zip(hows).map(settle).collect();
        let handle = self.handle.clone();
        self.settles.push(Box::pin(async move {
            for _ in 0..SETTLES {
                match handle.settle(&settles).await {
                    Ok(_) | Err(Error::QueueDeleted | Error::NotOwner) => return,
                    // The journal accepts no events at the moment.
                    Err(_) => tokio::time::sleep(PAUSE).await,
                }
            }
        }));
    }

    fn report(&self) {
        let is_permitted = self.is_permitted();
        let state = match &self.target {
            None => PushState::Refused,
            Some(_) if self.handle.has_paused_itself() => PushState::Disabled,
            Some(_) if self.breaker.is_open() || !is_permitted => PushState::Failing,
            Some(_) => PushState::Sending,
        };
        let allowed = if self.target.is_some() && is_permitted { self.breaker.allowed() } else { 0 };
        let in_flight = self.requests.len();
        self.handle.push_task().set(|report: &mut PushReport| {
            (report.state, report.in_flight, report.allowed) = (state, in_flight, allowed);
        });
    }
}

/// Whether requests of this setting go to an endpoint that the queue no longer has.
fn is_former(handle: &Handle, setting: &Push) -> bool {
    handle.config().push.as_ref().is_none_or(|present| present.url != setting.url)
}

/// Pauses the queue, unless it has another endpoint by then.
async fn pause_itself(handle: Arc<Handle>, setting: Arc<Push>, reason: PauseReason) {
    for _ in 0..SETTLES {
        if is_former(&handle, &setting) {
            return;
        }
        match handle.pause_itself(reason).await {
            Ok(()) => {
                tracing::warn!(
                    queue = %handle.name(),
                    reason = reason.as_str(),
                    error = handle.push_task().report().last_error.as_deref(),
                    "the queue has paused itself because of its endpoint; resume it when the endpoint works"
                );
                return;
            }
            Err(Error::QueueDeleted | Error::NotOwner) => return,
            // The journal accepts no events at the moment.
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
    tracing::error!(queue = %handle.name(), reason = reason.as_str(), "the queue could not pause itself because of its endpoint");
}

fn result(verdict: &Verdict) -> PushResult {
    match verdict {
        Verdict::Settled { outcomes } => {
            if outcomes.iter().any(|outcome| matches!(outcome, Outcome::Nack { .. })) {
                PushResult::Failed
            } else if outcomes.iter().any(|outcome| matches!(outcome, Outcome::Reject { .. })) {
                PushResult::Rejected
            } else {
                PushResult::Ok
            }
        }
        Verdict::Accepted => PushResult::Ok,
        Verdict::Refused { .. } => PushResult::Rejected,
        Verdict::Waits { .. } => PushResult::Held,
        Verdict::EndpointGone { .. } | Verdict::Failed { .. } => PushResult::Failed,
        Verdict::Unanswered { .. } => PushResult::NoAnswer,
    }
}
