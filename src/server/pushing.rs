//! The task of a queue that pushes: a worker inside the owner of the queue.
//!
//! It pops, sends and settles like any other worker, so leases, failures, parking, pauses and rates apply unchanged. How many requests it
//! sends at once is up to the [`Breaker`]. It holds nothing that must survive: what was sent and not settled is sent again after its
//! lease.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use deltaq_engine::command::{HoldScope, How, Item, Pop, Settle};
use deltaq_engine::id::{Token, Worker};
use deltaq_runtime::clock::Clock;
use deltaq_service::{Error, Handle, LeaseId, PopAnswer, PopCall, PushReport, PushResult, Pusher};
use deltaq_types::{PauseReason, Push, PushFormat, PushPayload, PushState};
use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, OptionFuture};
use futures_util::stream::FuturesUnordered;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout};

use crate::http::wire::{pushed, pushed_bytes};
use crate::push::{Answer, Breaker, Call, CloudEvent, Endpoint, Policy, Sender, Verdict};

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
/// Maximum size of the bodies of all queues that are being sent, in KiB. One body always fits.
const BODIES_KIB: usize = 128 << 10;
/// The jitter of the wait before a probe: 1 ± this.
const PROBE_JITTER: f64 = 0.2;
/// How many keys an open breaker remembers. It pops at most one more.
const PROBED_MAX: usize = 63;
/// The characters of a key that its header has unchanged.
const UNRESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

const KEY: HeaderName = HeaderName::from_static("deltaq-key");
const TYPE: HeaderName = HeaderName::from_static("deltaq-type");
const VERSION: HeaderName = HeaderName::from_static("deltaq-resource-version");
const TOKEN: HeaderName = HeaderName::from_static("deltaq-token");
const LEASE: HeaderName = HeaderName::from_static("deltaq-lease");
const ATTEMPT: HeaderName = HeaderName::from_static("deltaq-attempt");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Pushes the keys of all queues of this server.
#[derive(Debug)]
pub(super) struct Pushing {
    policy: Arc<Policy>,
    sender: Sender,
    clock: Clock,
    bodies: Arc<Semaphore>,
}

impl Pushing {
    pub(super) fn new(policy: Arc<Policy>, sender: Sender, clock: Clock) -> Self {
        Self { policy, sender, clock, bodies: Arc::new(Semaphore::new(BODIES_KIB)) }
    }
}

impl Pusher for Pushing {
    fn push(&self, handle: Arc<Handle>) -> BoxFuture<'static, ()> {
        let worker = Sending {
            policy: self.policy.clone(),
            sender: self.sender.clone(),
            clock: self.clock.clone(),
            bodies: self.bodies.clone(),
            handle,
            target: None,
            breaker: Breaker::new(1),
            probed: Vec::new(),
            fails_since: None,
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
    sender: Sender,
    clock: Clock,
    bodies: Arc<Semaphore>,
    handle: Arc<Handle>,
    /// What new requests use; `None` if the settings of the server do not permit it.
    target: Option<Target>,
    breaker: Breaker,
    /// The keys that have tested the endpoint since it began to fail, so that each probe has another key.
    probed: Vec<String>,
    /// When the first request after the last success has failed.
    fails_since: Option<Instant>,
    /// Whether the queue has paused itself, and no request has begun since.
    is_disabled: bool,
    requests: FuturesUnordered<BoxFuture<'static, Ended>>,
    settles: FuturesUnordered<BoxFuture<'static, ()>>,
}

#[derive(Clone)]
struct Target {
    setting: Arc<Push>,
    endpoint: Endpoint,
}

/// A request that has ended. Without an answer it was not sent.
struct Ended {
    key: String,
    token: Token,
    failures: u32,
    setting: Arc<Push>,
    answer: Option<Answer>,
    took: Duration,
}

/// A pop in progress.
type Popping = OptionFuture<BoxFuture<'static, PopAnswer>>;

impl Sending {
    async fn run(mut self) {
        let handle = self.handle.clone();
        let (task, draining) = (handle.push_task(), handle.shutdown().draining());
        let mut current = None;
        let mut rests_until = None;
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
            let rests = rests_until.is_some_and(|until| now < until);
            // Nothing begins before the queue has paused itself.
            let pauses = self.is_disabled && !self.settles.is_empty();
            let room = match &self.target {
                Some(_) if !stops && !rests && !pauses => self.breaker.may_begin(self.requests.len(), now),
                _ => 0,
            };
            // A pop that is dropped returns its keys, so one for fewer keys than there is room for goes on. One of former settings does not.
            if popping_for == 0 || room < popping_for {
                (popping, popping_for) = (self.pop(room), room);
            }
            self.report();
            let probes_at = self.breaker.probes_at().filter(|at| *at > now);
            let next = rests_until.filter(|_| rests).into_iter().chain(probes_at).min();
            tokio::select! {
                biased;
                Some(ended) = self.requests.next() => self.judge(ended),
                Some(()) = self.settles.next() => {}
                Some(answer) = &mut popping => {
                    (popping, popping_for) = (Popping::default(), 0);
                    if !self.begin(answer) {
                        rests_until = Some(Instant::now() + PAUSE);
                    }
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
        self.target = match self.policy.endpoint(queue.as_str(), setting) {
            Ok(endpoint) => Some(Target { setting: setting.clone(), endpoint }),
            Err(refusal) => {
                let why = format!("push.{}: {}", refusal.member, refusal.why);
                tracing::warn!(%queue, why, "the queue pushes nothing, because the settings of the server do not permit it");
                self.handle.push_task().set(|report| report.last_error = Some(why.into()));
                None
            }
        };
    }

    /// A pop for this many keys.
    fn pop(&self, max: usize) -> Popping {
        let Some(target) = self.target.as_ref().filter(|_| max > 0) else { return Popping::default() };
        let max = if self.breaker.is_open() { self.probed.len() + 1 } else { max };
        let pop = Pop {
            max,
            max_bytes: POP_BYTES,
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
        if !delivered.items.is_empty() && std::mem::take(&mut self.is_disabled) {
            // Other requests may have succeeded since the pause.
            self.breaker.open(Instant::now());
            self.fails_since = None;
        }
        let items = if self.breaker.is_open() && !delivered.items.is_empty() {
            // The other keys return when `delivered` is dropped.
            vec![self.probe(&mut delivered.items)]
        } else {
            delivered.confirm();
            std::mem::take(&mut delivered.items)
        };
        let has_keys = !items.is_empty();
        for item in items {
            self.breaker.begun();
            let parts = (self.handle.clone(), self.sender.clone(), self.clock.clone(), self.bodies.clone());
            self.requests.push(Box::pin(deliver(parts, item, target.clone())));
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

    /// Settles the key of a request by its answer.
    fn judge(&mut self, ended: Ended) {
        let Ended { key, token, failures, setting, answer, took } = ended;
        let is_former = is_former(&self.handle, &setting);
        let Some(answer) = answer else {
            if !is_former {
                self.breaker.withdrawn(Instant::now());
            }
            return self.settle(token, How::Release);
        };
        let verdict = Verdict::of(answer, &key, &setting, self.clock.wall_us());
        self.handle.push_task().count(result(&verdict), took);
        let how = match verdict {
            Verdict::Taken if is_former => How::Ack,
            Verdict::Accepted if is_former => self.for_long(),
            Verdict::Refused { error } if is_former => How::Reject { error: Some(error.into()) },
            Verdict::KeyFailed { delay, error } if is_former => {
                self.key_failed(delay, error, failures, &setting)
            }
            // The answer of a former URL says nothing of the present one.
            _ if is_former => How::Release,
            verdict => self.apply(verdict, &key, failures, &setting),
        };
        self.settle(token, how);
    }

    /// Draws the conclusions for the endpoint. Returns what happens to the key.
    fn apply(&mut self, verdict: Verdict, key: &str, failures: u32, setting: &Arc<Push>) -> How {
        let now = Instant::now();
        let was_open = self.breaker.is_open();
        let succeeds = matches!(
            verdict,
            Verdict::Taken | Verdict::Accepted | Verdict::Refused { .. } | Verdict::KeyFailed { .. }
        );
        if succeeds {
            self.breaker.succeeded();
            self.fails_since = None;
        }
        let is_gone = matches!(verdict, Verdict::EndpointGone { .. });
        let how = match verdict {
            Verdict::Taken | Verdict::Accepted => {
                let now_us = self.clock.wall_us();
                self.handle.push_task().set(|report| {
                    report.last_success_us = Some(now_us);
                    report.last_error = None;
                });
                if verdict == Verdict::Taken { How::Ack } else { self.for_long() }
            }
            Verdict::Refused { error } => {
                self.note_error(&error);
                How::Reject { error: Some(error.into()) }
            }
            Verdict::KeyFailed { delay, error } => {
                self.note_error(&error);
                self.key_failed(delay, error, failures, setting)
            }
            Verdict::Waits { length, error } => {
                self.note_error(&error);
                self.breaker.throttled(now);
                How::Hold { scope: HoldScope::Queue, acks: false, length }
            }
            Verdict::EndpointGone { error } => {
                self.note_error(&error);
                How::Release
            }
            Verdict::Failed { error } if self.failed(key, &error, now) => {
                self.key_failed(None, error, failures, setting)
            }
            Verdict::Failed { .. } => How::Release,
            Verdict::Unanswered { why } => {
                self.failed(key, &why, now);
                How::Release
            }
        };
        if was_open && !self.breaker.is_open() {
            self.probed.clear();
            tracing::info!(queue = %self.handle.name(), "the endpoint of the queue takes requests again");
        }
        if is_gone {
            self.disable(PauseReason::EndpointGone, setting);
        } else if !succeeds {
            let since = *self.fails_since.get_or_insert(now);
            let after = setting.disable_after.get();
            // One failure after a long rest says little about the endpoint.
            if was_open && !after.is_zero() && now.duration_since(since) >= after {
                self.disable(PauseReason::EndpointFailing, setting);
            }
        }
        how
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
    fn failed(&mut self, key: &str, why: &str, now: Instant) -> bool {
        let others = self.handle.ready() + self.requests.len();
        let jitter = 1.0 - PROBE_JITTER + 2.0 * PROBE_JITTER * fastrand::f64();
        let failed = self.breaker.failed(key, others, now, jitter);
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

    fn settle(&self, token: Token, how: How) {
        let handle = self.handle.clone();
        self.settles.push(Box::pin(async move {
            for _ in 0..SETTLES {
                match handle.settle(&[Settle { token, how: how.clone() }]).await {
                    Ok(_) | Err(Error::QueueDeleted | Error::NotOwner) => return,
                    // The journal accepts no events at the moment.
                    Err(_) => tokio::time::sleep(PAUSE).await,
                }
            }
        }));
    }

    fn report(&self) {
        let state = match &self.target {
            None => PushState::Refused,
            Some(_) if self.handle.has_paused_itself() => PushState::Disabled,
            Some(_) if self.breaker.is_open() => PushState::Failing,
            Some(_) => PushState::Sending,
        };
        let (in_flight, allowed) = (self.requests.len(), self.breaker.allowed());
        let allowed = if self.target.is_some() { allowed } else { 0 };
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

const fn result(verdict: &Verdict) -> PushResult {
    match verdict {
        Verdict::Taken | Verdict::Accepted => PushResult::Ok,
        Verdict::Refused { .. } => PushResult::Rejected,
        Verdict::Waits { .. } => PushResult::Held,
        Verdict::KeyFailed { .. } | Verdict::EndpointGone { .. } | Verdict::Failed { .. } => {
            PushResult::Failed
        }
        Verdict::Unanswered { .. } => PushResult::NoAnswer,
    }
}

/// Sends a key.
async fn deliver(
    (handle, sender, clock, bodies): (Arc<Handle>, Sender, Clock, Arc<Semaphore>),
    item: Item,
    target: Target,
) -> Ended {
    let Target { setting, endpoint } = target;
    let began = Instant::now();
    let kib = (pushed_bytes(&item, &setting) / 1_024 + 1).min(BODIES_KIB);
    let kib = u32::try_from(kib).unwrap_or(u32::MAX);
    let mut answer = None;
    // The commit of the lease may have taken long. A request must not outlive its lease.
    let lasts = || item.deadline.since(handle.moment().now) >= setting.timeout.get();
    if let Ok(Ok(_permit)) = timeout(LEASE_MARGIN / 2, bodies.acquire_many(kib)).await
        && lasts()
        && let Some(call) = call_of(&handle, &item, &setting, &clock)
    {
        answer = Some(sender.send(&endpoint, call, setting.timeout.get()).await);
    }
    let key = item.key.as_str().to_owned();
    Ended { key, token: item.token, failures: item.failures, setting, answer, took: began.elapsed() }
}

/// The request for a key. `None` for a key without deltas.
fn call_of(handle: &Handle, item: &Item, setting: &Push, clock: &Clock) -> Option<Call> {
    let pushed = pushed(&handle.lives(), item, setting, handle.moment())?;
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let mut insert = |name, text: String| {
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.insert(name, value);
        }
    };
    insert(KEY, utf8_percent_encode(item.key.as_str(), &UNRESERVED).to_string());
    insert(TOKEN, item.token.rv().get().to_string());
    insert(ATTEMPT, item.attempt.to_string());
    if setting.is_async {
        let life = handle.lives().id_of(item.token.rv());
        insert(LEASE, LeaseId { life, token: item.token }.to_string());
    }
    let trace = item.deltas.last().and_then(|delta| delta.provenance.trace()).map(ToString::to_string);
    if let Some(trace) = &trace {
        insert(TRACEPARENT, trace.clone());
    }
    let id = format!("{}-{}", handle.incarnation(), pushed.version);
    match setting.format {
        PushFormat::Standard => {}
        PushFormat::Raw => {
            insert(TYPE, pushed.kind.to_owned());
            insert(VERSION, pushed.version.to_string());
        }
        PushFormat::Cloudevents => CloudEvent {
            kind: pushed.kind,
            queue: handle.name().as_str(),
            id: &id,
            time: pushed.time,
            item: Some((item.key.as_str(), pushed.version)),
            traceparent: trace.as_deref(),
        }
        .write(&mut headers),
    }
    Some(Call { id, timestamp: clock.wall_us() / 1_000_000, headers, body: pushed.body.into() })
}
