//! How much is answered at a time: reads, writes and waits apart, and the bytes of bodies.
//!
//! What is past a bound is refused at once, so that what is within it stays fast. Where there are tokens,
//! one of them gets at most three times as much as is still free. So one that floods takes three quarters,
//! two take three sevenths each, and there is always room for the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use http_body::Body as _;
use percent_encoding::percent_decode_str;

use super::problem::{Code, Problem};
use super::state::{AppState, Gate};
use super::visit::Visit;
use crate::access::{Caller, Held};
use crate::duration;

/// The bounds, and what is taken of them.
#[derive(Debug)]
pub struct Budgets {
    reads: Budget,
    writes: Budget,
    waits: Budget,
    body_bytes: Budget,
}

#[derive(Debug)]
struct Budget {
    /// The setting that gives the limit.
    setting: &'static str,
    limit: usize,
    taken: AtomicUsize,
}

/// What kind of place a request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Wait,
}

/// A place that is given back when it is dropped.
pub(super) struct Place {
    gate: Arc<Gate>,
    caller: Option<Arc<Caller>>,
    kind: Kind,
}

/// How many times as much as is free one token may have.
const SHARE: usize = 3;

impl Budgets {
    /// Nothing is taken yet.
    #[must_use]
    pub const fn new(reads: usize, writes: usize, waits: usize, body_bytes: usize) -> Self {
        const fn budget(setting: &'static str, limit: usize) -> Budget {
            Budget { setting, limit, taken: AtomicUsize::new(0) }
        }
        Self {
            reads: budget("server.max_reads_in_flight", reads),
            writes: budget("server.max_writes_in_flight", writes),
            waits: budget("server.max_waits_in_flight", waits),
            body_bytes: budget("server.max_body_bytes_in_flight", body_bytes),
        }
    }

    const fn of(&self, kind: Kind) -> &Budget {
        match kind {
            Kind::Read => &self.reads,
            Kind::Write => &self.writes,
            Kind::Wait => &self.waits,
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
        budget.take(
            bytes,
            caller.map(|caller| (caller.name(), &caller.held().body_bytes)),
            "bytes of bodies",
        )?;
        visit.body_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Gives back what was counted of the visit's body.
    pub(super) fn release(&self, visit: &Visit) {
        let bytes = visit.body_bytes.swap(0, Ordering::Relaxed);
        self.body_bytes.give(bytes, visit.caller.get().map(|caller| &caller.held().body_bytes));
    }
}

impl Budget {
    /// Takes so much, for somebody who has a name and holds some already.
    fn take(&self, amount: usize, own: Option<(&str, &AtomicUsize)>, what: &str) -> Result<(), Problem> {
        let Self { setting, limit, taken } = self;
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

impl Kind {
    fn of(self, held: &Held) -> &AtomicUsize {
        match self {
            Self::Read => &held.reads,
            Self::Write => &held.writes,
            Self::Wait => &held.waits,
        }
    }
}

impl Place {
    fn take(gate: &Arc<Gate>, kind: Kind, caller: Option<&Arc<Caller>>) -> Result<Self, Problem> {
        let own = caller.map(|caller| (caller.name(), kind.of(caller.held())));
        gate.budgets.of(kind).take(1, own, "requests of this kind")?;
        Ok(Self { gate: Arc::clone(gate), caller: caller.cloned(), kind })
    }

    /// Keeps the place until the answer is made: a list whose length is not known is made while it is sent.
    pub(super) fn keep(self, response: Response) -> Response {
        if response.body().size_hint().exact().is_some() {
            return response;
        }
        response.map(|body| {
            let pieces = body.into_data_stream().inspect(move |_| {
                // The place goes with the stream that it was moved into.
                let _kept = &self;
            });
            Body::from_stream(pieces)
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let held = self.caller.as_ref().map(|caller| self.kind.of(caller.held()));
        self.gate.budgets.of(self.kind).give(1, held);
    }
}

/// A place for a request; none for those of who looks after an overloaded server and must still get an answer.
pub(super) fn place(
    state: &AppState,
    visit: &Visit,
    method: &Method,
    wait: Duration,
) -> Result<Option<Place>, Problem> {
    if matches!(visit.route(), Some("/livez" | "/readyz" | "/metrics")) {
        return Ok(None);
    }
    let kind = match (wait.is_zero(), method) {
        (false, _) => Kind::Wait,
        (true, &Method::GET | &Method::HEAD) => Kind::Read,
        (true, _) => Kind::Write,
    };
    Place::take(&state.gate, kind, visit.caller.get()).map(Some)
}

/// Ends what takes too long. A list that is streamed takes as long as it takes.
pub(super) async fn in_time(
    state: &AppState,
    visit: &Visit,
    wait: Duration,
    answer: impl Future<Output = Response>,
) -> Response {
    let is_long = visit.route().is_some_and(|route| route.ends_with("/replace") || route.ends_with("/seed"));
    if is_long {
        return answer.await;
    }
    let limit = state.limits.request_timeout;
    let time = limit.saturating_add(wait.min(state.limits.max_wait));
    tokio::time::timeout(time, answer).await.unwrap_or_else(|_| took_too_long(limit))
}

fn took_too_long(limit: Duration) -> Response {
    let limit = duration::format(limit);
    let detail = format!(
        "the request took longer than {limit} (server.request_timeout); whether it took effect is unknown, repeat it safely"
    );
    Problem::new(Code::Timeout, detail).with("limit", limit).into_response()
}

/// How long the request asks to wait; the handler refuses what is none.
pub(super) fn wait_of(query: Option<&str>) -> Duration {
    let pairs = query.into_iter().flat_map(|query| query.split('&')).filter_map(|pair| pair.split_once('='));
    let text = |encoded| percent_decode_str(encoded).decode_utf8_lossy();
    let wait = pairs.filter(|(name, _)| text(name) == "wait").map(|(_, value)| text(value)).next();
    wait.and_then(|text| duration::parse(&text).ok()).unwrap_or_default()
}
