//! What becomes of a request on its way to its handler and back.
//!
//! It is one function, and what refuses a request is a plain function of its head: so little is spent on a refusal,
//! and there are the most of these when there is the least time.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt as _;

use super::access;
use super::budget::{self, Place};
use super::connection::body_drain::BodyDrain;
use super::head::Head;
use super::origin::{self, Allowed};
use super::problem::Problem;
use super::state::AppState;
use super::telemetry::{self, Observed};
use super::visit::{Connection, Target, Visit};

/// The layer around all routes of a router.
pub(super) async fn layer(State(state): State<AppState>, mut request: Request, next: Next) -> Response {
    let connection = request.extensions_mut().remove();
    let (target, request) = Target::routed(request).await;
    answer(state, target, connection, request, |visit, mut request| {
        request.extensions_mut().insert(visit);
        next.run(request)
    })
    .await
}

/// Answers a request by `next`, unless something speaks against it.
pub(super) async fn answer<F: Future<Output = Response>>(
    state: AppState,
    target: Target,
    connection: Option<Connection>,
    request: Request,
    next: impl FnOnce(Arc<Visit>, Request) -> F,
) -> Response {
    let visit = Visit::of(&request, target, connection, state);
    let mut observed = Observed::begin(visit.clone());
    // A panic leaves nothing half done that anybody would see: a queue that is being changed closes itself.
    let response = AssertUnwindSafe(pass(&visit, request, next)).catch_unwind().await;
    observed.end(response.unwrap_or_else(|_| telemetry::panicked(&visit)))
}

async fn pass<F: Future<Output = Response>>(
    visit: &Arc<Visit>,
    request: Request,
    next: impl FnOnce(Arc<Visit>, Request) -> F,
) -> Response {
    let wait = budget::wait_of(request.uri().query());
    let admitted = admit(visit, &request, &Head::of(request.headers()), wait);
    let place = match admitted {
        Ok(place) => place,
        Err(problem) => return BodyDrain::whole(request).finish(problem.into_response()).await,
    };
    let (request, body_drain) = BodyDrain::watch(request);
    let response = budget::in_time(visit, wait, visit.run(next(visit.clone(), request))).await;
    let response = match place {
        Some(place) => place.keep(visit, response),
        None => response,
    };
    body_drain.finish(response).await
}

/// Refuses what is too large, comes from a foreign page, is not allowed to its caller, or is too much.
fn admit(
    visit: &Visit,
    request: &Request,
    head: &Head<'_>,
    wait: Duration,
) -> Result<Option<Place>, Problem> {
    let state = &visit.state;
    origin::check_head(request.uri(), head, &state.limits)?;
    origin::check_site(request, head, visit.connection.is_some(), Allowed::of(&state.limits))?;
    access::authorize(visit, request.headers())?;
    let place = budget::place(visit, request.method(), wait)?;
    origin::check_recovered(state, request.uri())?;
    Ok(place)
}
