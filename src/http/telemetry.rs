//! What every request gets: an id, a line in the log and in the audit, its place in the metrics, and a
//! problem document if it failed without one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use deltaq_types::Timestamp;

use super::operations::{Class as Limit, Permission};
use super::problem::{self, Code, Problem};
use super::request_metrics::UNMATCHED;
use super::visit::{Peer, REQUEST_ID, Visit};
use crate::access;
use crate::audit::{Class, Line};
use crate::config::access::Verb;
use crate::engine::excerpt::Excerpt;
use crate::spans;

/// A pop that is refused before it is looked at has settled nothing, and says so in the words of all others. Of one
/// that took too long it is not known what it has settled: its problem says nothing of it.
fn with_settled(mut response: Response) -> Response {
    let status = response.status();
    if (status.is_client_error() || status.is_server_error()) && status != Code::Timeout.status() {
        let problem = response.extensions_mut().remove::<Problem>();
        let problem = problem.unwrap_or_else(|| problem::of_status(status));
        let settled = problem.with_default("settled", Vec::<()>::new());
        response.extensions_mut().insert(settled);
    }
    response
}

/// The answer with its problem written out, if it is one; and which.
pub(super) fn rendered(visit: &Visit, response: Response) -> (Response, Option<Code>) {
    let is_pop = visit.operation().is_some_and(|operation| operation.class == Limit::Pop);
    let response = if is_pop { with_settled(response) } else { response };
    problem::render(response, &visit.id)
}

/// The answer of a handler that has panicked. Where it did is in the log already; the text of a panic is nowhere, for it may hold
/// a piece of an object.
pub(super) fn panicked(visit: &Visit) -> Response {
    let route = visit.route().unwrap_or(UNMATCHED);
    tracing::error!(request_id = visit.id, route, method = visit.method, "a request panicked");
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

/// The problem of a path that no operation has.
pub(super) fn not_found(path: &str) -> Problem {
    let instead = match path {
        "/metrics" => "metrics are at the address that server.metrics_listen names",
        _ => "/openapi.json lists them",
    };
    let detail = format!("no route has the path {}; {instead}", Excerpt(path));
    Problem::new(Code::NotFound, detail)
}

/// A request in flight. It is told also when its caller has gone and the handler is dropped.
pub(super) struct Observed {
    visit: Arc<Visit>,
    is_told: bool,
}

impl Observed {
    pub(super) fn begin(visit: Arc<Visit>) -> Self {
        visit.state.request_metrics.begin();
        Self { visit, is_told: false }
    }

    /// Completes the answer and tells what it is.
    pub(super) fn end(&mut self, (mut response, code): (Response, Option<Code>)) -> Response {
        let visit = &self.visit;
        let headers = response.headers_mut();
        if let Ok(value) = HeaderValue::from_str(&visit.id) {
            headers.insert(&REQUEST_ID, value);
        }
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
        self.tell(Some(response.status().as_u16()), code.map_or("ok", Code::name));
        self.is_told = true;
        response
    }

    fn tell(&self, status: Option<u16>, outcome: &'static str) {
        let visit = &self.visit;
        let counts = visit.counts();
        let took = visit.state.clock.since(visit.begun_us);
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let route = visit.route().unwrap_or(UNMATCHED);
        if let Some(status) = status {
            visit.state.request_metrics.answered(visit.method, route, status, took);
        } else {
            visit.state.request_metrics.client_disconnected(visit.method, route);
        }
        let (queued, ignored) = counts.queued.unzip();
        let who = visit.shown_name();
        tracing::info!(
            method = visit.method,
            route,
            status,
            outcome,
            took_us,
            request_id = visit.id,
            queue = visit.queue(),
            who,
            queued,
            ignored,
            items = counts.items,
            leases = counts.leases,
            keys = counts.keys,
            "request"
        );
        if visit.state.spans.are_sent() {
            let ended_us = visit.state.clock.wall_us();
            visit.state.spans.record(&spans::Request {
                method: visit.method,
                route,
                at_us: (ended_us.saturating_sub(took_us), ended_us),
                parent: visit.parent,
                links: visit.links.get().map_or(&[], Vec::as_slice),
                id: &visit.id,
                queue: visit.queue(),
                status,
                outcome,
            });
        }
        let Some(class) = self.class(status) else { return };
        let keys = queued.map(|queued| queued + ignored.unwrap_or_default());
        visit.state.audit.record(class, who, || Line {
            time: Timestamp::from_micros(visit.state.clock.wall_us()).to_string(),
            request_id: &visit.id,
            who,
            from: visit.peer().map(Peer::client),
            certificate: visit.peer().and_then(|peer| peer.certificate).map(|digest| access::hex(&digest)),
            verb: visit.verb.get().map(|verb| verb.as_str()),
            method: visit.method,
            route,
            queue: visit.queue(),
            keys: keys.or(counts.items).or(counts.leases).or(counts.keys),
            outcome,
            status,
        });
    }

    /// How it is written down, if it is.
    fn class(&self, status: Option<u16>) -> Option<Class> {
        let visit = &self.visit;
        let is_check = visit.operation().is_some_and(|operation| operation.permission == Permission::Nothing);
        let is_refused = status.is_some_and(problem::refuses_caller);
        let is_admin = visit.verb.get() == Some(&Verb::Admin);
        if is_check || !(visit.state.audit.all || is_admin || is_refused) {
            return None;
        }
        let is_let_in = visit.is_let_in.load(Ordering::Relaxed);
        Some(if is_admin && is_let_in {
            Class::Admin
        } else if !is_let_in || status == Some(Code::TooManyRequests.status()) {
            Class::Refusal
        } else {
            Class::Call
        })
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        self.visit.state.request_metrics.end();
        if !self.is_told {
            self.tell(None, "gone");
        }
    }
}
