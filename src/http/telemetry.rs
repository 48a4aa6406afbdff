//! What every request gets: an id, a line in the log, its place in the metrics, and a problem
//! document if it failed without one.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use metrics::Label;

use super::problem::{self, Problem};
use super::state::AppState;

static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Longest request id that is taken over from the caller, in bytes.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// The outermost layer.
pub(super) async fn observe(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let begun_us = state.clock.now_us();
    let id = request_id(&request, &state);
    let method = method_label(request.method().as_str());
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let route = route.unwrap_or_else(|| "unmatched".to_owned());
    let in_flight = InFlight::new(&state);

    let response = next.run(request).await;
    drop(in_flight);

    let mut response = problem::render(response, &id);
    let status = response.status();
    let took = state.clock.since(begun_us);
    let metrics = state.registry.metrics();
    let route_label = Label::new("route", route.clone());
    let method_label = Label::from_static_parts("method", method);
    let status_label = Label::new("status", status.as_str().to_owned());
    metrics
        .counter("http_requests_total", vec![method_label.clone(), route_label.clone(), status_label])
        .increment(1);
    metrics
        .histogram("http_request_duration_seconds", vec![method_label, route_label])
        .record(took.as_secs_f64());
    let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    tracing::debug!(method, route, status = status.as_u16(), took_us, request_id = %id, "request");

    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&id) {
        headers.insert(&REQUEST_ID, value);
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Turns a panic into a 500 whose cause is in the log only.
#[expect(clippy::needless_pass_by_value, reason = "the panic layer calls it so")]
pub(super) fn on_panic(panic: Box<dyn Any + Send + 'static>) -> Response {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(panic = text.unwrap_or("of an unknown kind"), "a request panicked");
    axum::http::StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

/// A route that is not there.
pub(super) async fn not_found(request: Request) -> Problem {
    let path: String = request.uri().path().chars().take(200).collect();
    let detail = format!("no route has the path {path:?}; /openapi.json lists them");
    Problem::new(problem::Code::NotFound, detail)
}

/// A caller's own id is kept if it is harmless; else the process counts.
fn request_id(request: &Request, state: &AppState) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let given = request.headers().get(&REQUEST_ID).and_then(|value| value.to_str().ok());
    let harmless = |id: &&str| {
        (1..=REQUEST_ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
    };
    match given.filter(harmless) {
        Some(id) => id.to_owned(),
        None => format!("{:x}-{}", state.started_us, COUNT.fetch_add(1, Ordering::Relaxed)),
    }
}

/// Methods that no route takes are one label, so that callers can't make up new ones.
fn method_label(method: &str) -> &'static str {
    match method {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        _ => "other",
    }
}

/// Counts a request in flight; also when its caller has gone and the handler is dropped.
struct InFlight(metrics::Gauge);

impl InFlight {
    fn new(state: &AppState) -> Self {
        let gauge = state.registry.metrics().gauge("http_requests_in_flight", Vec::new());
        gauge.increment(1.0);
        Self(gauge)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}
