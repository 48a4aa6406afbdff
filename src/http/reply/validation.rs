//! The answer to a validation request: a sender of CloudEvents asks whether it may send (the HTTP webhook specification of CloudEvents, section 4).

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, Method, header};
use axum::response::{IntoResponse as _, Response};

const ORIGIN: HeaderName = HeaderName::from_static("webhook-request-origin");
const ALLOWED_ORIGIN: HeaderName = HeaderName::from_static("webhook-allowed-origin");
const ALLOWED_RATE: HeaderName = HeaderName::from_static("webhook-allowed-rate");

/// The templates of the paths that take CloudEvents.
const PATHS: [&str; 4] =
    ["/v1/queues/{queue}/add", "/v1/queues/{queue}/update", "/v1/queues/{queue}/delete", "/v1/hooks/{queue}"];

/// Whether this is a validation request.
pub(in crate::http) fn is_validation(request: &Request) -> bool {
    request.method() == Method::OPTIONS && request.headers().contains_key(&ORIGIN)
}

/// The permission, if the operator permits the origin. It is the same whether the queue exists or not. `path` is the template of the path.
pub(in crate::http) fn permission(
    request: &Request,
    path: Option<&str>,
    origins: &[String],
) -> Option<Response> {
    path.filter(|path| is_validation(request) && PATHS.contains(path))?;
    let asked = request.headers().get(&ORIGIN)?;
    let text = asked.to_str().ok()?;
    origins.iter().find(|origin| *origin == "*" || origin.eq_ignore_ascii_case(text))?;
    let headers = [
        (header::ALLOW, HeaderValue::from_static("POST")),
        (ALLOWED_ORIGIN, asked.clone()),
        (ALLOWED_RATE, HeaderValue::from_static("*")),
    ];
    Some(headers.into_response())
}
