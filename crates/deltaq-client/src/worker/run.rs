//! A running worker: one task that owns the leases, and a task for each handler.

use std::collections::VecDeque;
use std::future::{Future, pending};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use deltaq_types::{LeaseOutcome, Popped, SettleAs, SettleCall, SettleResult, SettledDocument};
use futures_util::FutureExt as _;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::breaker::{Breaker, Change};
use super::calls::{Extended, Pop, is_without_queue};
use super::job::{Job, Loss, Outcome};
use super::leases::{Held, Leases, Slot};
use super::logged::Failed;
use super::{LAST_CALLS, Notice, POP_MAX, Worker, WorkerReport};
use crate::error::Error;
use crate::panic;
use crate::retry::Backoff;

/// Maximum number of settles in one call.
const SETTLE_MAX: usize = 1_000;
/// Timeout of an extension. Other leases wait for its end.
const EXTEND_MAX: Duration = Duration::from_secs(10);
/// The minimum and the maximum of the limit of the random pause before an extension is tried again.
const EXTEND_PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

type Calling<'w, T> = Pin<Box<dyn Future<Output = T> + Send + 'w>>;
/// A running pop.
type Popping<'w> = (Arc<Pop>, Calling<'w, Result<(Popped, Instant), Error>>);
/// A call that settles a number of leases.
type Settling<'w> = (usize, Calling<'w, Result<Vec<SettledDocument>, Error>>);

/// A running worker.
pub(super) struct Run<'w, H> {
    worker: &'w Worker,
    handler: Arc<H>,
    leases: Leases,
    /// Keys whose handlers have not begun.
    waiting: VecDeque<(Slot, Job)>,
    handlers: JoinSet<Ended>,
    /// Settles that no call contains yet.
    settles: Vec<SettleCall>,
    pop: Option<Popping<'w>>,
    settle: Option<Settling<'w>>,
    extend: Option<Calling<'w, Extended>>,
    extend_backoff: Backoff,
    breaker: Breaker,
    failed: Failed,
    /// Whether keys may have become ready since the last pop found none.
    may_have_keys: bool,
    stopping: Option<Stopping>,
    report: WorkerReport,
}

/// How a handler ended.
struct Ended {
    slot: Slot,
    outcome: Result<Outcome, String>,
}

/// The state of a worker that is stopping.
struct Stopping {
    /// At this instant, handlers that are still running are aborted.
    abort_at: Instant,
    has_aborted: bool,
    /// The error that stopped the worker.
    error: Option<Error>,
}

impl<'w, H, F> Run<'w, H>
where
    H: Fn(Job) -> F + Send + Sync + 'static,
    F: Future + Send + 'static,
    F::Output: Into<Outcome>,
{
    pub(super) fn new(worker: &'w Worker, handler: Arc<H>) -> Self {
        let (first, max) = EXTEND_PAUSE;
        Self {
            worker,
            handler,
            leases: Leases::default(),
            waiting: VecDeque::new(),
            handlers: JoinSet::new(),
            settles: Vec::new(),
            pop: None,
            settle: None,
            extend: None,
            extend_backoff: Backoff::new(first, max),
            breaker: Breaker::new(worker.breaker),
            failed: Failed::default(),
            may_have_keys: true,
            stopping: None,
            report: WorkerReport::default(),
        }
    }

    pub(super) async fn run(mut self, stop: CancellationToken) -> Result<WorkerReport, Error> {
        loop {
            self.start_handlers();
            if let Err(error) = self.start_calls() {
                self.stop(Some(error));
            }
            if self.is_done() {
                break;
            }
            let (next_lease, end) = (self.leases.next_at(), self.next_end());
            let next_try = self.breaker.next_at(Instant::now());
            tokio::select! {
                biased;
                () = stop.cancelled(), if self.stopping.is_none() => self.stop(None),
                () = until(next_lease) => self.attend_leases(),
                Some(ended) = self.handlers.join_next() => self.handlers_ended(ended.ok()),
                popped = calling(self.pop.as_mut().map(|(_, call)| call)) => self.popped(popped),
                settled = calling(self.settle.as_mut().map(|(_, call)| call)) => self.settled(settled),
                extended = calling(self.extend.as_mut()) => self.extended(extended),
                () = until(next_try) => {}
                () = until(end) => {
                    if self.end_of_grace() {
                        break;
                    }
                }
            }
        }
        self.report.unconfirmed += self.settles.len() as u64;
        self.report.unconfirmed += self.settle.as_ref().map_or(0, |(settles, _)| *settles as u64);
        match self.stopping.and_then(|stopping| stopping.error) {
            Some(error) if error.code() != Some("queue-closed") => Err(error),
            _ => Ok(self.report),
        }
    }

    fn start_handlers(&mut self) {
        while self.handlers.len() < self.worker.concurrency && self.breaker.may_start(Instant::now()) {
            let Some((slot, job)) = self.waiting.pop_front() else { return };
            if !self.leases.is_held(slot) {
                continue;
            }
            self.breaker.started(slot);
            let handler = self.handler.clone();
            let has_deltas = job.newest().is_some();
            let work = async move {
                let outcome: Outcome = handler(job).await.into();
                outcome.suited(has_deltas)
            };
            self.handlers.spawn(async move {
                let outcome = AssertUnwindSafe(work).catch_unwind().await;
                Ended { slot, outcome: outcome.map_err(|panic| panic::message(&*panic)) }
            });
        }
    }

    /// Starts a pop if a handler is free for its keys. Settles are sent with the pop, or else alone.
    fn start_calls(&mut self) -> Result<(), Error> {
        let worker = self.worker;
        let free = worker.concurrency.saturating_sub(self.handlers.len());
        let has_room = self.waiting.is_empty() && free > 0 && self.breaker.may_start(Instant::now());
        let may_have_keys = self.may_have_keys || !worker.until_empty;
        if self.stopping.is_none() && self.pop.is_none() && has_room && may_have_keys {
            let room = if self.breaker.is_paused() { 1 } else { POP_MAX };
            let pop = if worker.settles_at_once {
                Pop::new(room.min(free as u64), Vec::new())?
            } else {
                Pop::new(room.min(worker.keys_of_pop()), self.next_settles())?
            };
            let pop = Arc::new(pop);
            self.may_have_keys = false;
            let popping = pop.clone();
            let call = async move { worker.pop(&popping).await };
            self.pop = Some((pop, Box::pin(call)));
        }
        if self.settle.is_none() && !self.settles.is_empty() {
            let settles = self.next_settles();
            self.settle = Some((settles.len(), Box::pin(worker.settle(settles))));
        }
        Ok(())
    }

    fn next_settles(&mut self) -> Vec<SettleCall> {
        let rest = self.settles.split_off(self.settles.len().min(SETTLE_MAX));
        std::mem::replace(&mut self.settles, rest)
    }

    /// Handles the end of handlers: the given one, and all others that have ended in the meantime.
    fn handlers_ended(&mut self, first: Option<Ended>) {
        let mut next = first;
        loop {
            if let Some(ended) = next {
                self.handler_ended(ended);
            }
            match self.handlers.try_join_next() {
                Some(ended) => next = ended.ok(),
                None => return,
            }
        }
    }

    fn handler_ended(&mut self, ended: Ended) {
        let Some(held) = self.leases.take(ended.slot) else {
            self.attend_breaker(ended.slot, "", &Outcome::Release.settle(String::new()));
            return;
        };
        let has_panicked = ended.outcome.is_err();
        let outcome = ended.outcome.unwrap_or_else(|message| {
            self.report.panics += 1;
            self.worker.panicked(&held, &message);
            Outcome::nack(format!("panic: {message}"))
        });
        let settle = outcome.settle(held.lease_id.clone());
        self.failed.ended(self.worker, &held, &settle, has_panicked);
        self.attend_breaker(ended.slot, &held.key, &settle);
        self.settles.push(settle);
    }

    /// Notes how a handler has ended. If the worker pauses, it returns the keys whose handlers have not begun.
    fn attend_breaker(&mut self, slot: Slot, key: &str, settle: &SettleCall) {
        let notice = match self.breaker.ended(Instant::now(), slot, key, settle.how) {
            None => return,
            Some(Change::Resumed) => Notice::Resumed,
            Some(Change::Paused { failures, pause }) => {
                self.report.pauses += 1;
                self.release_waiting(0);
                Notice::Paused { failures, pause, error: settle.error.as_deref() }
            }
        };
        self.worker.notice(&notice);
    }

    fn popped(&mut self, popped: Result<(Popped, Instant), Error>) {
        let pop = self.pop.take().map(|(pop, _)| pop);
        let (popped, received_at) = match popped {
            Ok(popped) => popped,
            Err(error) => {
                let results = error.problem().and_then(|problem| problem.settled.clone());
                match (results, pop) {
                    (Some(results), _) => self.count(&results),
                    (None, Some(pop)) => self.settles.extend(pop.settle.iter().cloned()),
                    (None, None) => {}
                }
                return self.stop(Some(error));
            }
        };
        self.count(&popped.settled);
        self.may_have_keys |= !popped.items.is_empty();
        let slots = self.leases.add(&popped.items, received_at);
        let queue = self.worker.queue.shared_name();
        let job = |(item, (slot, lost))| (slot, Job { queue: queue.clone(), item, lost });
        let jobs = popped.items.into_iter().zip(slots).map(job);
        self.waiting.extend(jobs);
        if self.stopping.is_some() {
            self.release_waiting(0);
        } else if self.breaker.is_paused() {
            // A pop that began before the pause may have brought several keys.
            self.release_waiting(usize::from(self.breaker.may_start(Instant::now())));
        }
    }

    fn settled(&mut self, settled: Result<Vec<SettledDocument>, Error>) {
        let settles = self.settle.take().map_or(0, |(settles, _)| settles);
        self.may_have_keys = true;
        match settled {
            Ok(results) => self.count(&results),
            Err(error) => {
                self.report.unconfirmed += settles as u64;
                self.stop(Some(error));
            }
        }
    }

    fn count(&mut self, results: &[SettledDocument]) {
        for result in results {
            self.worker.notice(&Notice::Settled(result));
            self.failed.settled(self.worker, result);
            *match result.how {
                _ if result.result == SettleResult::Stale => &mut self.report.lost,
                SettleAs::Ack | SettleAs::Done => &mut self.report.acknowledged,
                SettleAs::Nack => &mut self.report.nacked,
                SettleAs::Reject => &mut self.report.rejected,
                SettleAs::Release => &mut self.report.released,
                SettleAs::Extend => continue,
            } += 1;
        }
    }

    /// Extends the leases that are due, and gives up those that count as lost.
    fn attend_leases(&mut self) {
        let now = Instant::now();
        for (held, loss) in self.leases.expire(now) {
            self.lose(&held, loss);
        }
        if let Some((lease_ids, stop_at)) = self.leases.due(now) {
            // This leaves time for another attempt after a silent one.
            let patience = (stop_at.saturating_duration_since(now) / 2).min(EXTEND_MAX);
            self.extend = Some(Box::pin(self.worker.extend(lease_ids, patience)));
        }
    }

    fn extended(&mut self, extended: Extended) {
        self.extend = None;
        let error = match extended.result {
            Ok(list) => {
                self.extend_backoff.reset();
                self.worker.extended();
                for (held, loss) in self.leases.extended(&list, extended.sent_at) {
                    self.lose(&held, loss);
                }
                return;
            }
            Err(error) => error,
        };
        let is_temporary = error.is_temporary();
        // If the queue was deleted, its leases are lost. After other permanent errors, the leases expire.
        let pause = self.extend_backoff.after_failure(&error);
        let failures = self.extend_backoff.failures();
        self.worker.not_extended(&error);
        self.worker.notice(&Notice::Retry { error: &error, failures, pause });
        self.leases.not_extended(Instant::now() + pause);
        if !is_temporary && !is_without_queue(&error) {
            self.stop(Some(error));
        }
    }

    fn lose(&mut self, held: &Held, loss: Loss) {
        self.report.lost += 1;
        let _once = held.lost.set(loss);
        self.worker.notice(&Notice::LeaseLost { key: &held.key, lease_id: &held.lease_id, loss });
    }

    /// Begins to stop: waiting keys are released, including those of a pop whose reply has not been read.
    fn stop(&mut self, error: Option<Error>) {
        if let Some(stopping) = &mut self.stopping {
            stopping.error = stopping.error.take().or(error);
            return;
        }
        self.stopping =
            Some(Stopping { abort_at: Instant::now() + self.worker.grace, has_aborted: false, error });
        self.release_waiting(0);
        let last = self.pop.take().map(|(pop, _)| pop);
        if let Some(pop) = last.as_ref().filter(|pop| !pop.may_be_applied()) {
            // No server has received this pop, so it has leased nothing, and settled nothing.
            self.settles.extend(pop.settle.iter().cloned());
        } else if let Some(pop) = last {
            let (worker, popping) = (self.worker, pop.clone());
            let again = async move { worker.last_pop(&popping).await };
            self.pop = Some((pop, Box::pin(again)));
        }
    }

    /// Returns the keys whose handlers have not begun, except some.
    fn release_waiting(&mut self, kept: usize) {
        for (slot, _) in self.waiting.split_off(kept.min(self.waiting.len())) {
            if let Some(held) = self.leases.take(slot) {
                self.settles.push(Outcome::Release.settle(held.lease_id));
            }
        }
    }

    fn is_done(&self) -> bool {
        let is_calling = self.pop.is_some() || self.settle.is_some();
        let will_try = self.breaker.is_paused() && self.may_have_keys;
        (self.stopping.is_some() || (self.worker.until_empty && !will_try))
            && self.handlers.is_empty()
            && !is_calling
            && self.settles.is_empty()
    }

    /// When a stopping worker no longer waits for its handlers or, without handlers, for its last calls.
    fn next_end(&mut self) -> Option<Instant> {
        let stopping = self.stopping.as_mut()?;
        if self.handlers.is_empty() {
            stopping.abort_at = stopping.abort_at.min(Instant::now() + LAST_CALLS);
        }
        Some(stopping.abort_at)
    }

    /// Aborts the handlers and releases their keys. Returns true if the worker waits for nothing any more, neither
    /// for the replies to the last calls nor for a handler that blocks its thread.
    fn end_of_grace(&mut self) -> bool {
        let Some(stopping) = self.stopping.as_mut().filter(|stopping| !stopping.has_aborted) else {
            return true;
        };
        if self.handlers.is_empty() {
            return true;
        }
        stopping.has_aborted = true;
        stopping.abort_at = Instant::now() + LAST_CALLS;
        self.handlers.abort_all();
        for held in self.leases.take_all() {
            let _once = held.lost.set(Loss::Ended(LeaseOutcome::Released));
            self.settles.push(Outcome::Release.settle(held.lease_id));
        }
        false
    }
}

/// The result of a call. Without a call, this never completes.
async fn calling<T>(call: Option<&mut Calling<'_, T>>) -> T {
    match call {
        Some(call) => call.await,
        None => pending().await,
    }
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => pending().await,
    }
}
