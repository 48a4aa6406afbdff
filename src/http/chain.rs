//! What becomes of a request on its way to its handler and back.
//!
//! It is one function, and what refuses a request is a plain function of its head: so little is spent on a refusal,
//! and there are the most of these when there is the least time.

use std::future::ready;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt as _;
use http_body::Body as _;

use super::access;
use super::budget::{self, Place};
use super::call::boxed;
use super::connection::body_drain::BodyDrain;
use super::head::Head;
use super::operations::{Answer, Operation, Target};
use super::origin::{self, Allowed};
use super::problem::{self, Code, Problem};
use super::state::AppState;
use super::telemetry::{self, Observed};
use super::visit::{Connection, Visit};

/// Answers a request, unless something speaks against it.
pub(super) async fn answer(
    state: AppState,
    target: Target,
    connection: Option<Connection>,
    request: Request,
) -> Response {
    let visit = Visit::of(&request, target, connection, state);
    let mut observed = Observed::begin(visit.clone());
    // A panic leaves nothing half done that anybody would see: a queue that is being changed closes itself.
    let response = AssertUnwindSafe(pass(&visit, request)).catch_unwind().await;
    observed.end(response.unwrap_or_else(|_| telemetry::rendered(&visit, telemetry::panicked(&visit))))
}

async fn pass(visit: &Arc<Visit>, request: Request) -> (Response, Option<Code>) {
    let place = match admit(visit, &request, &Head::of(request.headers())) {
        Ok(place) => place,
        Err(problem) => {
            let (response, code) = telemetry::rendered(visit, problem.into_response());
            return (BodyDrain::whole(request).finish(response).await, code);
        }
    };
    let wait = budget::wait_of(visit, request.uri().query());
    let is_head = request.method() == Method::HEAD;
    let (request, body_drain) = BodyDrain::watch(request);
    let response = budget::in_time(visit, wait, visit.run(dispatch(visit, request))).await;
    // A problem is written while the request still has its place.
    let (response, code) = telemetry::rendered(visit, response);
    let response = if is_head { without_body(response) } else { response };
    let kept = match place {
        Some(place) => place.keep(visit, response).map(|response| (response, code)),
        None => Ok((response, code)),
    };
    let (response, code) = kept.unwrap_or_else(|problem| telemetry::rendered(visit, problem.into_response()));
    (body_drain.finish(response).await, code)
}

/// Has the handler of the operation answer.
fn dispatch(visit: &Arc<Visit>, request: Request) -> Answer {
    if let Some(operation) = visit.operation() {
        return (operation.handler)(visit.clone(), request);
    }
    let Some(allow) = visit.allow().and_then(|allow| HeaderValue::from_str(allow).ok()) else {
        return boxed(ready(telemetry::not_found(request.uri().path())));
    };
    boxed(ready(([(header::ALLOW, allow)], problem::of_status(StatusCode::METHOD_NOT_ALLOWED))))
}

/// The reply to HEAD: that to GET, whose length it still names.
fn without_body(response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    if let Some(bytes) = body.size_hint().exact() {
        parts.headers.entry(header::CONTENT_LENGTH).or_insert(HeaderValue::from(bytes));
    }
    Response::from_parts(parts, Body::empty())
}

/// Refuses what is too large, comes from a foreign page, is not allowed to its caller, or is too much.
fn admit(visit: &Visit, request: &Request, head: &Head<'_>) -> Result<Option<Place>, Problem> {
    let state = &visit.state;
    origin::check_head(request.uri(), head, &state.limits)?;
    origin::check_site(request, head, visit.connection.is_some(), Allowed::of(&state.limits))?;
    access::authorize(visit, request.headers())?;
    let place = budget::place(visit)?;
    origin::check_recovered(state, visit.operation().is_some_and(Operation::needs_queues))?;
    Ok(place)
}
