//! The middleware of every request: from the head to the handler and back.
//!
//! The middleware is one function, and each check is a plain function of the head. This makes refusals cheap, which
//! matters most on an overloaded server.

use std::future::ready;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, Method, Version, header};
use axum::response::{IntoResponse, Response};
use deltaq_engine::excerpt::Excerpt;
use deltaq_types::duration;
use futures_util::FutureExt as _;
use http_body::Body as _;

use super::api::operations;
use super::cluster::forward;
use super::gate::origin::{self, Allowed};
use super::head::Head;
use super::kubernetes;
use super::operation::{Class, Operation, Target};
use super::place::Place;
use super::problem::{Code, Problem};
use super::reply::validation::permission;
use super::request::body_drain::BodyDrain;
use super::request::call::{Handler, ResponseFuture, boxed};
use super::request::conditional;
use super::request::context::{Connection, RequestContext};
use super::request::params::{Params, Query};
use super::state::AppState;
use super::status;
use super::telemetry::{self, Observed};

/// A read or a pop that takes this long may have waited for a turn, so its token is checked again.
const SLOW_US: u64 = 100_000;

/// How long the body of a delivery of a webhook may take, in addition to the time of a request.
const DELIVERY_TIME: Duration = Duration::from_mins(1);

/// Answers a request.
pub(super) async fn answer(
    state: AppState,
    target: Target,
    handler: Option<Handler>,
    connection: Option<Connection>,
    request: Request,
) -> Response {
    let head = Head::of(request.headers());
    let sender = state.node.as_ref().map_or(Ok(false), |node| node.is_sender(&head));
    let is_from_node = matches!(sender, Ok(true));
    let place = if state.serves_kubernetes { Place::of(request.uri().path()) } else { None };
    let (target, found) = kubernetes::resolved(&state, place.as_ref(), is_from_node, target).await;
    let context = RequestContext::of(&request, &head, target, connection, state, is_from_node, place);
    let checked = match sender {
        Ok(true) => Ok(()),
        Ok(false) => check_head(&context, &request, &head),
        Err(problem) => Err(problem),
    };
    let checked = checked.and(found).and_then(|()| check_identity(&context, &request));
    let mut observed = Observed::begin(context.clone());
    // A panic can't leave a partial change: a queue whose change panics is loaded again.
    let response = AssertUnwindSafe(pass(&context, handler, request, checked)).catch_unwind().await;
    observed.end(response.unwrap_or_else(|_| telemetry::rendered(&context, telemetry::panicked(&context))))
}

async fn pass(
    context: &Arc<RequestContext>,
    handler: Option<Handler>,
    request: Request,
    checked: Result<(), Problem>,
) -> (Response, Option<Code>) {
    let origins = &context.state.limits.event_origins;
    if checked.is_ok()
        && let Some(permission) = permission(&request, context.path(), origins)
    {
        return (BodyDrain::whole(request).finish(permission).await, None);
    }
    if let Err(problem) = checked.and_then(|()| admit(context, &request)) {
        let (response, code) = telemetry::rendered(context, problem.into_response());
        return (BodyDrain::whole(request).finish(response).await, code);
    }
    let query = context.query(request.uri());
    let wait = query.as_ref().map_or(Duration::ZERO, |params| wait_of(context, params));
    let is_head = request.method() == Method::HEAD;
    let is_multiplexed = is_multiplexed(&request);
    let (request, body_drain) = BodyDrain::watch(request);
    let waits = query.as_ref().is_ok_and(|params| params.text("wait").is_some());
    let is_pop = context.operation().is_some_and(|operation| operation.class == Class::Pop);
    let hands_out = is_pop || is_head || request.method() == Method::GET;
    let began_us = context.state.clock.monotonic_us();
    let response = in_time(context, wait, context.run(dispatch(context, handler, request, query))).await;
    // The token may have been revoked while the call waited. Dropping the reply to a pop returns its keys.
    let has_lasted = context.state.clock.monotonic_us().saturating_sub(began_us) >= SLOW_US;
    let response = match context.authorize_again() {
        Err(problem) if waits || (hands_out && has_lasted) => problem.into_response(),
        _ => response,
    };
    // A problem is rendered while the request still has its permit.
    let (response, code) = telemetry::rendered(context, response);
    let response = if is_head { without_body(response) } else { response };
    let kept = match context.take_permit() {
        Some(permit) => permit.keep(response, is_multiplexed).map(|response| (response, code)),
        None => Ok((response, code)),
    };
    let (response, code) =
        kept.unwrap_or_else(|problem| telemetry::rendered(context, problem.into_response()));
    (body_drain.finish(response).await, code)
}

/// The response of the handler, or a refusal if the request has no handler.
fn dispatch(
    context: &Arc<RequestContext>,
    handler: Option<Handler>,
    request: Request,
    query: Query,
) -> ResponseFuture {
    if let Some(handler) = handler {
        let names_queue = context.operation().is_some_and(Operation::names_queue);
        if context.kubernetes().is_some() && names_queue && context.queue_name().is_none() {
            return boxed(ready(status::not_found()));
        }
        return match &context.state.node {
            None => handler(context.clone(), request, query),
            Some(node) => forward::answer(node, context.clone(), handler, request, query),
        };
    }
    let path = request.uri().path();
    if context.kubernetes().is_some() && context.path().is_none() {
        return boxed(ready(status::not_found()));
    }
    let Some(allow) = context.allow() else {
        return boxed(ready(telemetry::not_found(path, operations::nearest_path(path))));
    };
    let method = Excerpt(request.method().as_str()).to_string();
    let detail = format!("the path takes {}, not {}", allow.replace(',', ", "), method.trim_matches('"'));
    let problem = Problem::new(Code::MethodNotAllowed, detail).with("allow", allow);
    let allow = HeaderValue::from_str(allow).unwrap_or(HeaderValue::from_static(""));
    boxed(ready(([(header::ALLOW, allow)], problem)))
}

/// The reply to HEAD: the reply to GET without its body, but with its length.
fn without_body(response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    if let Some(bytes) = body.size_hint().exact() {
        parts.headers.entry(header::CONTENT_LENGTH).or_insert(HeaderValue::from(bytes));
    }
    Response::from_parts(parts, Body::empty())
}

/// Checks the size of the head, the origin and the conditional headers.
fn check_head(context: &RequestContext, request: &Request, head: &Head<'_>) -> Result<(), Problem> {
    let state = &context.state;
    origin::check_head(request.uri(), head, state.limits.max_header_bytes)?;
    let hosts = state.checks_hosts().then_some(&*state.limits.allowed_hosts);
    let allowed = Allowed { hosts, origins: &state.limits.allowed_origins };
    origin::check_site(request, head, context.connection.is_some(), allowed)?;
    match context.operation().filter(|_| head.is_conditional) {
        Some(operation) => conditional::check_supported(operation, request.headers()),
        None => Ok(()),
    }
}

/// Refuses a client of Kubernetes that acts for another user: with the permissions of its own token it would do what that user may not.
fn check_identity(context: &RequestContext, request: &Request) -> Result<(), Problem> {
    let acts_for_another =
        |name: &HeaderName| name.as_str().starts_with("impersonate-") && context.kubernetes().is_some();
    if request.headers().keys().any(acts_for_another) {
        let detail = "the headers impersonate-... are not supported";
        return Err(Problem::new(Code::Forbidden, detail).hint("use a token of the user"));
    }
    Ok(())
}

/// Checks the permission, the in-flight limit, and that the queues are loaded.
fn admit(context: &RequestContext, request: &Request) -> Result<(), Problem> {
    let state = &context.state;
    context.authorize(request.headers())?;
    if is_multiplexed(request) && context.operation().is_some_and(|operation| operation.class == Class::Pop) {
        return Err(no_pop());
    }
    context.acquire_permit()?;
    let needs_queues = context.operation().is_some_and(Operation::needs_queues);
    if needs_queues {
        state.check_store()?;
    }
    match state.partitions.loading() {
        // A node may be loading queues that the request does not need.
        Some(registry) if needs_queues && state.node.is_none() => {
            Err(Problem::recovering(registry.progress()))
        }
        _ => Ok(()),
    }
}

/// Whether the connection has other requests at the same time.
fn is_multiplexed(request: &Request) -> bool {
    request.version() == Version::HTTP_2
}

/// The problem of a pop over HTTP/2. A reply with leases must count as delivered only when the kernel has it, and the
/// flow control of HTTP/2 may hold its last piece back for any time.
fn no_pop() -> Problem {
    let detail = "there is no pop over HTTP/2 (server.http2_listen), because the server could not tell whether the client has the keys";
    Problem::new(Code::WrongListener, detail).hint("send it over HTTP/1.1 to the address of server.listen")
}

/// Ends a request that takes too long. A Replace or seed has no such limit, because its body may be long.
async fn in_time(
    context: &RequestContext,
    wait: Duration,
    response: impl Future<Output = Response>,
) -> Response {
    if context.operation().is_some_and(|operation| operation.class == Class::List) {
        return response.await;
    }
    let limits = &context.state.limits;
    let is_hook = context.operation().is_some_and(|operation| operation.class == Class::Hook);
    let limit = limits.request_timeout.saturating_add(if is_hook { DELIVERY_TIME } else { Duration::ZERO });
    let time = limit.saturating_add(wait.min(limits.max_wait));
    tokio::time::timeout(time, response).await.unwrap_or_else(|_| Problem::timed_out(limit).into_response())
}

/// The time that the request asks to wait. The handler refuses a wrong value.
fn wait_of(context: &RequestContext, params: &Params) -> Duration {
    let wait = params.text("wait").filter(|_| context.operation().is_some_and(Operation::may_wait));
    wait.and_then(|text| duration::parse(text).ok()).unwrap_or_default()
}
