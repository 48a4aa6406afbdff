//! The id of each request, its lines in the log and the audit log, its metrics and span, and its problem document.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use deltaq_engine::excerpt::Excerpt;
use deltaq_runtime::clock::whole_us;
use deltaq_types::Timestamp;
use tracing::Level;

use super::node;
use super::operation::{Class as Limit, Permission};
use super::problem::{self, Code, PassedOn, Problem};
use super::request::context::{Peer, REQUEST_ID, RequestContext};
use super::request_metrics::UNMATCHED;
use super::status;
use super::wire;
use crate::access;
use crate::audit::{Class, Line};
use crate::config::access::Verb;
use crate::spans;

/// Adds an empty `settled` to the problem of a pop that was refused before its handler ran. The problem of a pop that took too
/// long has no `settled`: the results of its settles are unknown.
fn with_settled(mut response: Response) -> Response {
    if let Some(problem) = problem::take(&mut response) {
        let is_unknown = problem.code() == Code::Timeout;
        let problem = if is_unknown { problem } else { problem.with_default("settled", Vec::<()>::new()) };
        response.extensions_mut().insert(problem);
    }
    response
}

/// The response with its problem document, and the code of the problem.
pub(super) fn rendered(context: &RequestContext, response: Response) -> (Response, Option<Code>) {
    if let Some(place) = context.kubernetes() {
        return status::rendered(place, response);
    }
    let is_pop = context.operation().is_some_and(|operation| operation.class == Limit::Pop);
    let mut response = if is_pop { with_settled(response) } else { response };
    if context.is_event_source
        && let Some(problem) = problem::take(&mut response)
    {
        // A queue that was deleted while it was watched may be created again.
        let was_there = context.resumes_events && problem.code() == Code::QueueNotFound;
        if was_there || problem.code().may_pass() {
            return (refused_events(context, &problem), Some(problem.code()));
        }
        response.extensions_mut().insert(problem);
    }
    problem::render(response, || context.public_url(), &context.id)
}

/// The response to an `EventSource` that is refused for now. It would never connect again after a status other than
/// 200.
fn refused_events(context: &RequestContext, problem: &Problem) -> Response {
    let text = wire::refused_events(problem, &context.public_url(), &context.id);
    ([(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"))], text).into_response()
}

/// The response of a handler that panicked. The log has the location of the panic, but never its text, which may
/// contain a part of an object.
pub(super) fn panicked(context: &RequestContext) -> Response {
    let route = context.route().unwrap_or(UNMATCHED);
    tracing::error!(request_id = context.id, route, method = context.method, "a request panicked");
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

/// The problem of an unknown path.
pub(super) fn not_found(path: &str, nearest: Option<String>) -> Problem {
    let instead = match (path, nearest) {
        ("/metrics", _) => "the metrics have a listener of their own, server.metrics_listen".to_owned(),
        (path, _) if path == "/apis" || path.starts_with("/apis/") => {
            "the setting kubernetes.enabled of the server switches the Kubernetes API on".to_owned()
        }
        // The path belongs to the API, but this is the listener of the metrics.
        (path, Some(nearest)) if path == nearest => {
            "the API has a listener of its own, server.listen".to_owned()
        }
        (_, Some(nearest)) => format!("did you mean {}?", Excerpt(&nearest)),
        _ => "/openapi.json lists the paths".to_owned(),
    };
    Problem::new(Code::NotFound, format!("no route has the path {}", Excerpt(path))).hint(instead)
}

/// Reports a request when it ends, even if the client disconnects and the handler is dropped.
pub(super) struct Observed {
    context: Arc<RequestContext>,
    is_reported: bool,
    /// Whether the reply is that of another node, which has carried out the call.
    is_passed_on: bool,
}

/// The refusals whose lines are limited together: those of a token do not hide those of others.
fn refusals(outcome: &str, who: Option<&str>) -> String {
    who.map_or_else(|| outcome.to_owned(), |who| format!("{outcome} of the token {who}"))
}

impl Observed {
    pub(super) fn begin(context: Arc<RequestContext>) -> Self {
        context.state.request_metrics.begin();
        Self { context, is_reported: false, is_passed_on: false }
    }

    /// Completes the response and reports the request.
    pub(super) fn end(&mut self, (mut response, code): (Response, Option<Code>)) -> Response {
        let context = &self.context;
        self.is_passed_on = response.extensions().get::<PassedOn>().is_some();
        let headers = response.headers_mut();
        if let Ok(value) = HeaderValue::from_str(&context.id) {
            headers.insert(&REQUEST_ID, value);
        }
        if let Some(code) = code.filter(|_| context.is_from_node()) {
            headers.insert(&node::OUTCOME, HeaderValue::from_static(code.name()));
        }
        if let Some(node) = context.state.node.as_ref().filter(|_| context.is_from_node()) {
            headers.insert(&node::NAME, node.header());
        }
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
        // An `EventSource` that is refused for now gets status 200, but the request is counted with the status of the
        // problem.
        let status = code.map_or(response.status().as_u16(), Code::status);
        self.report(Some(status), code.map_or("ok", Code::name));
        self.is_reported = true;
        response
    }

    fn report(&self, status: Option<u16>, outcome: &'static str) {
        let context = &self.context;
        let counts = context.counts();
        let took = context.state.clock.since(context.begun_us);
        let took_us = whole_us(took);
        let route = context.route().unwrap_or(UNMATCHED);
        if let Some(status) = status {
            context.state.request_metrics.answered(context.method, route, status, took);
        } else {
            context.state.request_metrics.client_disconnected(context.method, route);
        }
        let (queued, ignored) = counts.queued.unzip();
        let who = context.token_name();
        macro_rules! log_at {
            ($level:expr) => {
                tracing::event!(
                    $level,
                    method = context.method,
                    route,
                    status,
                    outcome,
                    took_us,
                    request_id = context.id,
                    queue = context.queue(),
                    who,
                    queued,
                    ignored,
                    items = counts.items,
                    leases = counts.leases,
                    keys = counts.keys,
                    "request"
                )
            };
        }
        // Probes, scrapes and successful calls are frequent, so they are logged at a lower level.
        if status.is_some_and(|status| status < 400) || self.is_check() {
            log_at!(Level::DEBUG);
        } else if context.state.refused_lines.admits(Some(&refusals(outcome, who))) {
            log_at!(Level::INFO);
        }
        if context.state.spans.are_sent() {
            let ended_us = context.state.clock.wall_us();
            context.state.spans.record(&spans::Request {
                method: context.method,
                route,
                at_us: (ended_us.saturating_sub(took_us), ended_us),
                parent: context.parent,
                links: context.links.get().map_or(&[], Vec::as_slice),
                id: &context.id,
                queue: context.queue(),
                status,
                outcome,
            });
        }
        let Some(class) = self.class(status) else { return };
        let keys = queued.map(|queued| queued + ignored.unwrap_or_default());
        context.state.audit.record(class, who, || Line {
            at: Timestamp::from_micros(context.state.clock.wall_us()),
            request_id: &context.id,
            who,
            from: context.peer().map(Peer::client),
            certificate: context.peer().and_then(|peer| peer.certificate).map(|digest| access::hex(&digest)),
            verb: context.authorization.verb.get().map(|verb| verb.as_str()),
            method: context.method,
            route,
            operation: self.operation_of_activity(class),
            queue: context.queue(),
            keys: keys.or(counts.items).or(counts.leases).or(counts.keys),
            outcome,
            status,
        });
    }

    /// The operation, if the call belongs into the activity. A plan changes nothing, and a call that was passed on is in the activity of
    /// the node that has carried it out.
    fn operation_of_activity(&self, class: Class) -> Option<&'static str> {
        let is_operators = match class {
            Class::Admin => true,
            Class::Call => self.sets_thresholds(),
            Class::Refusal => false,
        };
        let id = self.context.operation().and_then(|known| known.id).filter(|_| is_operators);
        id.filter(|id| *id != "plan_settings" && !self.is_passed_on)
    }

    fn sets_thresholds(&self) -> bool {
        self.context.authorization.sets_thresholds.load(Ordering::Relaxed)
    }

    /// Whether this is a call of `/livez` or `/readyz`, or a read of a console file.
    fn is_check(&self) -> bool {
        self.context.operation().is_some_and(|operation| operation.permission == Permission::Nothing)
    }

    /// The class of the line in the audit log, if there is one.
    fn class(&self, status: Option<u16>) -> Option<Class> {
        let context = &self.context;
        let is_refused = status.is_some_and(problem::refuses_caller);
        let is_admin = context.authorization.verb.get() == Some(&Verb::Admin)
            || context.authorization.needs_admin.load(Ordering::Relaxed);
        let is_recorded = context.state.audit.all || is_admin || is_refused || self.sets_thresholds();
        if self.is_check() || !is_recorded {
            return None;
        }
        // A part of the request may be forbidden although the operation is not.
        let is_forbidden = status == Some(Code::Forbidden.status());
        let is_authorized = context.authorization.is_granted.load(Ordering::Relaxed) && !is_forbidden;
        Some(if is_admin && is_authorized {
            Class::Admin
        } else if !is_authorized || status == Some(Code::TooManyRequests.status()) {
            Class::Refusal
        } else {
            Class::Call
        })
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        self.context.state.request_metrics.end();
        if !self.is_reported {
            self.report(None, "gone");
        }
    }
}
