//! How much is answered at a time: reads, writes, lists and waits apart, and the bytes of bodies.
//!
//! What is past a bound is refused at once, so that what is within it stays fast. Where there are tokens,
//! one of them gets at most three times as much as is still free. So one that floods takes three quarters,
//! two take three sevenths each, and there is always room for the next.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::thread::available_parallelism;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use percent_encoding::percent_decode_str;
use tokio::sync::Semaphore;

use super::connection::delivery::PIECE_BYTES;
use super::operations::{Class, Operation};
use super::problem::{Code, Problem};
use super::state::AppState;
use super::visit::Visit;
use crate::access::{Caller, InFlight};
use crate::{config, duration};

/// The bounds, and what is taken of them.
#[derive(Debug)]
pub struct Budgets {
    reads: Budget,
    writes: Budget,
    settles: Budget,
    lists: Budget,
    waits: Budget,
    scrapes: Budget,
    body_bytes: Budget,
    reply_bytes: Budget,
    /// Turns of those who read large bodies.
    pub(super) readers: Arc<Semaphore>,
}

#[derive(Debug)]
struct Budget {
    /// What is counted.
    what: &'static str,
    /// The setting that gives the limit.
    setting: &'static str,
    limit: usize,
    taken: AtomicUsize,
}

/// A place that is given back when it is dropped.
pub(super) struct Place {
    state: AppState,
    caller: Option<Arc<Caller>>,
    class: Class,
}

/// Marks a response whose body holds its [`ReplyBytes`].
#[derive(Clone, Copy, Debug)]
pub(super) struct CountedReply;

/// Bytes of a reply that the client has not read yet.
#[derive(Debug)]
pub(super) struct ReplyBytes {
    state: AppState,
    caller: Option<Arc<Caller>>,
    bytes: usize,
}

impl Drop for ReplyBytes {
    fn drop(&mut self) {
        let held = self.caller.as_ref().map(|caller| &caller.in_flight().reply_bytes);
        self.state.gate.budgets.reply_bytes.give(self.bytes, held);
    }
}

/// Most scrapes at a time: there are a few who scrape, and each page may be large.
const SCRAPES_MAX: usize = 8;
/// How many times as much as is free one token may have.
const SHARE: usize = 3;

impl Budgets {
    /// What the settings give; nothing is taken yet.
    #[must_use]
    pub fn new(settings: &config::Server) -> Self {
        let budget = |what, setting, limit| Budget { what, setting, limit, taken: AtomicUsize::new(0) };
        Self {
            reads: budget("requests that look", "server.max_reads_in_flight", settings.max_reads_in_flight),
            writes: budget(
                "requests that change",
                "server.max_writes_in_flight",
                settings.max_writes_in_flight,
            ),
            settles: budget(
                "requests that settle leases",
                "server.max_writes_in_flight",
                settings.max_writes_in_flight,
            ),
            lists: budget("lists", "server.max_lists_in_flight", settings.max_lists_in_flight),
            waits: budget("requests that wait", "server.max_waits_in_flight", settings.max_waits_in_flight),
            scrapes: budget("scrapes", "fixed", SCRAPES_MAX),
            body_bytes: budget(
                "bytes of bodies",
                "server.max_body_bytes_in_flight",
                settings.max_body_bytes_in_flight,
            ),
            reply_bytes: budget(
                "bytes of replies",
                "server.max_reply_bytes_in_flight",
                settings.max_reply_bytes_in_flight,
            ),
            readers: Arc::new(Semaphore::new(available_parallelism().map_or(1, usize::from))),
        }
    }

    /// None for what is not limited.
    const fn of(&self, class: Class) -> Option<&Budget> {
        match class {
            Class::Unlimited => None,
            Class::Read => Some(&self.reads),
            Class::Write => Some(&self.writes),
            Class::Settle => Some(&self.settles),
            Class::List => Some(&self.lists),
            Class::Pop | Class::Wait => Some(&self.waits),
            Class::Scrape => Some(&self.scrapes),
        }
    }

    /// Counts bytes of a body that is read into memory; they stay counted until the visit ends.
    pub(super) fn reserve(&self, visit: &Visit, bytes: usize) -> Result<(), Problem> {
        let budget = &self.body_bytes;
        let own = visit.body_bytes.load(Ordering::Relaxed).saturating_add(bytes);
        if own > budget.limit {
            let detail = format!("the body has more than {} bytes ({})", budget.limit, budget.setting);
            return Err(Problem::new(Code::ObjectTooLarge, detail).with("limit", budget.limit));
        }
        let caller = visit.caller.get().map(|caller| &**caller);
        budget.take(bytes, caller.map(|caller| (caller.name(), &caller.in_flight().body_bytes)))?;
        visit.body_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Counts the bytes of a reply until the result is dropped. A small reply is not counted: the buffer of the connection
    /// holds it.
    pub(super) fn reserve_reply(visit: &Visit, bytes: usize) -> Result<Option<ReplyBytes>, Problem> {
        if bytes <= PIECE_BYTES {
            return Ok(None);
        }
        let (state, caller) = (visit.state.clone(), visit.caller.get().cloned());
        let own = caller.as_ref().map(|caller| (caller.name(), &caller.in_flight().reply_bytes));
        state.gate.budgets.reply_bytes.take(bytes, own)?;
        Ok(Some(ReplyBytes { state, caller, bytes }))
    }

    /// Gives back some of what was counted of the visit's body.
    pub(super) fn release_bytes(&self, visit: &Visit, bytes: usize) {
        let taken = visit
            .body_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |own| Some(own.saturating_sub(bytes)));
        let bytes = taken.unwrap_or_default().min(bytes);
        self.body_bytes.give(bytes, visit.caller.get().map(|caller| &caller.in_flight().body_bytes));
    }

    /// Gives back what was counted of the visit's body.
    pub(super) fn release(&self, visit: &Visit) {
        let bytes = visit.body_bytes.swap(0, Ordering::Relaxed);
        self.body_bytes.give(bytes, visit.caller.get().map(|caller| &caller.in_flight().body_bytes));
    }
}

impl Budget {
    /// Takes so much, for somebody who has a name and holds some already.
    fn take(&self, amount: usize, own: Option<(&str, &AtomicUsize)>) -> Result<(), Problem> {
        let Self { what, setting, limit, taken } = self;
        let after = |taken: usize| taken.checked_add(amount).filter(|taken| taken <= limit);
        let before = taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after).map_err(|_| {
            let detail = format!("the server has {limit} {what} in hand ({setting})");
            Problem::new(Code::TooManyRequests, detail).with("limit", *limit)
        })?;
        let Some((name, held)) = own else { return Ok(()) };
        let share = limit.saturating_sub(before).saturating_mul(SHARE);
        let after = |held: usize| held.checked_add(amount).filter(|held| *held <= share);
        held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after).map(drop).map_err(|held| {
            taken.fetch_sub(amount, Ordering::Relaxed);
            let detail = format!(
                "the token {name:?} has {held} {what} in hand; others need the rest of {limit} ({setting})"
            );
            Problem::new(Code::TooManyRequests, detail).with("limit", share)
        })
    }

    fn give(&self, amount: usize, own: Option<&AtomicUsize>) {
        self.taken.fetch_sub(amount, Ordering::Relaxed);
        if let Some(held) = own {
            held.fetch_sub(amount, Ordering::Relaxed);
        }
    }
}

/// What a caller holds of the limit that a class counts in.
fn held_of(held: &InFlight, class: Class) -> &AtomicUsize {
    match class {
        Class::Unlimited | Class::Read => &held.reads,
        Class::Write => &held.writes,
        Class::Settle => &held.settles,
        Class::List => &held.lists,
        Class::Pop | Class::Wait => &held.waits,
        Class::Scrape => &held.scrapes,
    }
}

impl Place {
    fn take(state: &AppState, class: Class, caller: Option<&Arc<Caller>>) -> Result<Option<Self>, Problem> {
        let Some(budget) = state.gate.budgets.of(class) else { return Ok(None) };
        budget.take(1, caller.map(|caller| (caller.name(), held_of(caller.in_flight(), class))))?;
        Ok(Some(Self { state: state.clone(), caller: caller.cloned(), class }))
    }

    /// Keeps the place while the answer is not taken by its connection, unless it is short, or its bytes are counted:
    /// clients that do not read would otherwise keep all places.
    pub(super) fn keep(self, visit: &Visit, response: Response) -> Result<Response, Problem> {
        let bytes = response.body().size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
        let is_short = bytes.is_some_and(|bytes| bytes <= PIECE_BYTES);
        if is_short || response.extensions().get::<CountedReply>().is_some() {
            return Ok(response);
        }
        if let (Class::Read | Class::Scrape, Some(bytes)) = (self.class, bytes) {
            let held = Budgets::reserve_reply(visit, bytes)?;
            return Ok(response.map(|body| Body::new(Kept { body, rest: Bytes::new(), _held: held })));
        }
        Ok(response.map(|body| Body::new(Kept { body, rest: Bytes::new(), _held: self })))
    }
}

/// The body of a reply that holds a place or its bytes. It comes in pieces, and the connection takes the next piece when
/// most of the previous ones are written, so it holds them for as long as the reply takes memory.
struct Kept<H> {
    body: Body,
    rest: Bytes,
    _held: H,
}

impl<H: Unpin + Send + 'static> http_body::Body for Kept<H> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)).map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => self.rest = data,
                Some(Ok(Err(frame))) => return Poll::Ready(Some(Ok(frame))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        let piece = self.rest.len().min(PIECE_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, mut hint) = (self.rest.len() as u64, self.body.size_hint());
        // The upper bound first: it must never be below the lower one.
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let held = self.caller.as_ref().map(|caller| held_of(caller.in_flight(), self.class));
        if let Some(budget) = self.state.gate.budgets.of(self.class) {
            budget.give(1, held);
        }
    }
}

/// A place for a request; health checks need none. What leads to no operation counts as a read.
pub(super) fn place(visit: &Visit) -> Result<Option<Place>, Problem> {
    let class = visit.operation().map_or(Class::Read, |operation| operation.class);
    Place::take(&visit.state, class, visit.caller.get())
}

/// Ends what takes too long. A list that is streamed takes as long as it takes.
pub(super) async fn in_time(
    visit: &Visit,
    wait: Duration,
    answer: impl Future<Output = Response>,
) -> Response {
    if visit.operation().is_some_and(|operation| operation.class == Class::List) {
        return answer.await;
    }
    let limits = &visit.state.limits;
    let limit = limits.request_timeout;
    let time = limit.saturating_add(wait.min(limits.max_wait));
    tokio::time::timeout(time, answer).await.unwrap_or_else(|_| took_too_long(limit).into_response())
}

pub(super) fn took_too_long(limit: Duration) -> Problem {
    let limit = duration::format(limit);
    let detail = format!(
        "the request took longer than {limit} (server.request_timeout); whether it took effect is unknown, repeat it safely"
    );
    Problem::new(Code::Timeout, detail).with("limit", limit)
}

/// How long the request asks to wait; the handler refuses what is no duration.
pub(super) fn wait_of(visit: &Visit, query: Option<&str>) -> Duration {
    if !visit.operation().is_some_and(Operation::may_wait) {
        return Duration::ZERO;
    }
    let pairs = query.into_iter().flat_map(|query| query.split('&')).filter_map(|pair| pair.split_once('='));
    let text = |encoded| percent_decode_str(encoded).decode_utf8_lossy();
    let wait = pairs.filter(|(name, _)| text(name) == "wait").map(|(_, value)| text(value)).next();
    wait.and_then(|text| duration::parse(&text).ok()).unwrap_or_default()
}
