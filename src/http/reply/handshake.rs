//! The answer to a sender of CloudEvents that asks whether it may send (the HTTP webhook specification of CloudEvents, section 4).

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, Method, header};
use axum::response::{IntoResponse as _, Response};

const ORIGIN: HeaderName = HeaderName::from_static("webhook-request-origin");
const ALLOWED_ORIGIN: HeaderName = HeaderName::from_static("webhook-allowed-origin");
const ALLOWED_RATE: HeaderName = HeaderName::from_static("webhook-allowed-rate");

/// The endings of the paths that take CloudEvents.
const PATHS: [&str; 3] = ["/add", "/update", "/delete"];

/// The permission, if the request asks for it and the operator permits its origin. It is the same whether the queue exists or not.
pub(in crate::http) fn permission(request: &Request<Body>, origins: &[String]) -> Option<Response> {
    let asked = request.headers().get(&ORIGIN).filter(|_| request.method() == Method::OPTIONS)?;
    let path = request.uri().path();
    let takes_events = path.starts_with("/v1/hooks/")
        || path.starts_with("/v1/queues/") && PATHS.iter().any(|end| path.ends_with(end));
    let text = asked.to_str().ok().filter(|_| takes_events)?;
    origins.iter().find(|origin| *origin == "*" || origin.eq_ignore_ascii_case(text))?;
    let headers = [
        (header::ALLOW, HeaderValue::from_static("POST")),
        (ALLOWED_ORIGIN, asked.clone()),
        (ALLOWED_RATE, HeaderValue::from_static("*")),
    ];
    Some(headers.into_response())
}
