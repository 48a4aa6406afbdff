//! How much is answered at a time: reads, writes and waits apart, and the bytes of bodies.
//!
//! What is past a bound is refused at once, so that what is within it stays fast. Where there are tokens,
//! one of them gets at most as many places as are still free. So one that floods takes half, two take a
//! third each, and there is always room for the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use percent_encoding::percent_decode_str;

use super::problem::{Code, Problem};
use super::state::AppState;
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
struct Place<'a> {
    budgets: &'a Budgets,
    caller: Option<&'a Caller>,
    kind: Kind,
}

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

    fn place<'a>(&'a self, kind: Kind, caller: Option<&'a Caller>) -> Result<Place<'a>, Problem> {
        let budget = self.of(kind);
        if !budget.take(1) {
            let detail =
                format!("{} requests of this kind are being answered ({})", budget.limit, budget.setting);
            return Err(Problem::new(Code::TooManyRequests, detail).with("limit", budget.limit));
        }
        let place = Place { budgets: self, caller, kind };
        let Some(caller) = caller else { return Ok(place) };
        let own = kind.of(caller.held()).fetch_add(1, Ordering::Relaxed) + 1;
        let free = budget.limit.saturating_sub(budget.taken.load(Ordering::Relaxed)) + 1;
        if own > free {
            let detail = format!(
                "the token {:?} has {} requests of this kind that are being answered, and others need the rest of {} ({})",
                caller.name(),
                own - 1,
                budget.limit,
                budget.setting
            );
            return Err(Problem::new(Code::TooManyRequests, detail).with("limit", free));
        }
        Ok(place)
    }

    /// Counts bytes of a body that is read into memory; they stay counted until the visit ends.
    pub(super) fn reserve(&self, visit: &Visit, bytes: usize) -> Result<(), Problem> {
        let budget = &self.body_bytes;
        let own = visit.body_bytes.load(Ordering::Relaxed).saturating_add(bytes);
        if own > budget.limit {
            let detail = format!("the body has more than {} bytes ({})", budget.limit, budget.setting);
            return Err(Problem::new(Code::ObjectTooLarge, detail).with("limit", budget.limit));
        }
        if !budget.take(bytes) {
            let detail = format!("bodies of {} bytes are being read ({})", budget.limit, budget.setting);
            return Err(Problem::new(Code::TooManyRequests, detail).with("limit", budget.limit));
        }
        visit.body_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Gives back what was counted of the visit's body.
    pub(super) fn release(&self, visit: &Visit) {
        self.body_bytes.give(visit.body_bytes.swap(0, Ordering::Relaxed));
    }
}

impl Budget {
    fn take(&self, amount: usize) -> bool {
        let after = |taken: usize| taken.checked_add(amount).filter(|taken| *taken <= self.limit);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after).is_ok()
    }

    fn give(&self, amount: usize) {
        self.taken.fetch_sub(amount, Ordering::Relaxed);
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

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(caller) = self.caller {
            self.kind.of(caller.held()).fetch_sub(1, Ordering::Relaxed);
        }
        self.budgets.of(self.kind).give(1);
    }
}

/// Refuses what is past a bound, and ends what takes too long.
pub(super) async fn bound(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let Some(visit) = request.extensions().get::<Arc<Visit>>().cloned() else {
        return Problem::new(Code::Internal, "the request was not looked at").into_response();
    };
    let wait = wait_of(request.uri().query());
    let kind = match (wait.is_zero(), request.method()) {
        (false, _) => Kind::Wait,
        (true, &Method::GET | &Method::HEAD) => Kind::Read,
        (true, _) => Kind::Write,
    };
    // Whoever looks after an overloaded server must still get an answer.
    let is_watching = matches!(visit.route(), Some("/livez" | "/readyz" | "/metrics"));
    let place = if is_watching {
        None
    } else {
        Some(state.gate.budgets.place(kind, visit.caller.get().map(|caller| &**caller)))
    };
    let _place = match place.transpose() {
        Ok(place) => place,
        Err(problem) => return problem.into_response(),
    };
    let is_long = visit.route().is_some_and(|route| route.ends_with("/replace") || route.ends_with("/seed"));
    if is_long {
        return next.run(request).await;
    }
    let limit = state.limits.request_timeout;
    let time = limit.saturating_add(wait.min(state.limits.max_wait));
    tokio::time::timeout(time, next.run(request)).await.unwrap_or_else(|_| took_too_long(limit))
}

fn took_too_long(limit: Duration) -> Response {
    let limit = duration::format(limit);
    let detail = format!(
        "the request took longer than {limit} (server.request_timeout); whether it took effect is unknown, repeat it safely"
    );
    Problem::new(Code::Timeout, detail).with("limit", limit).into_response()
}

/// How long the request asks to wait; the handler refuses what is none.
fn wait_of(query: Option<&str>) -> Duration {
    let pairs = query.into_iter().flat_map(|query| query.split('&')).filter_map(|pair| pair.split_once('='));
    let text = |encoded| percent_decode_str(encoded).decode_utf8_lossy();
    let wait = pairs.filter(|(name, _)| text(name) == "wait").map(|(_, value)| text(value)).next();
    wait.and_then(|text| duration::parse(&text).ok()).unwrap_or_default()
}
