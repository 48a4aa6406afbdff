//! Conditional headers (RFC 9110, 13.1): for a read of something that the caller already has, and for a change that
//! must not overwrite another caller's change.
//!
//! A conditional header that a call does not support is refused, because a caller who sends it relies on it.

use axum::http::{HeaderMap, HeaderName, header};

use crate::http::operation::Operation;
use crate::http::problem::{Code, Problem};

/// All conditional headers.
static CONDITIONAL: [HeaderName; 5] = [
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
    header::IF_RANGE,
];

/// Refuses a header that the operation does not support. This applies only to the API: a health check or a file
/// ignores such headers.
pub(in crate::http) fn check_supported(operation: &Operation, headers: &HeaderMap) -> Result<(), Problem> {
    let supported = operation.conditional_headers();
    let is_refused = |name: &&HeaderName| headers.contains_key(*name) && !supported.contains(*name);
    let Some(name) = CONDITIONAL.iter().find(is_refused) else { return Ok(()) };
    if !operation.path.starts_with("/v1/") {
        return Ok(());
    }
    let detail = format!("the call does not support the header {name}, and to ignore it would be wrong");
    let problem = Problem::new(Code::InvalidRequest, detail).with("header", name.as_str());
    Err(problem.hint("leave it out; PUT and PATCH of a queue take if-match and if-none-match"))
}

/// The expectations of the caller of a change.
#[derive(Debug)]
pub(in crate::http) struct Preconditions(HeaderMap);

impl Preconditions {
    /// The headers of a request.
    pub(in crate::http) const fn of(headers: HeaderMap) -> Self {
        Self(headers)
    }

    /// Checks the preconditions against the current entity tag; `None` if there is no queue.
    pub(in crate::http) fn check(&self, etag: Option<&str>) -> Result<(), Problem> {
        let has = |name: &HeaderName| etag.is_some_and(|etag| names(&self.0, name, etag));
        let detail = if self.0.contains_key(header::IF_MATCH) && !has(&header::IF_MATCH) {
            if etag.is_some() {
                "if-match names other settings than those that the queue has now; nothing was changed"
            } else {
                "if-match needs a queue, and there is none; nothing was changed"
            }
        } else if has(&header::IF_NONE_MATCH) {
            "if-none-match names the settings that the queue has; nothing was changed"
        } else {
            return Ok(());
        };
        Err(Problem::new(Code::PreconditionFailed, detail)
            .hint("GET /v1/queues/{queue}/settings has the settings with their etag"))
    }
}

/// Whether `If-None-Match` names the entity tag.
pub(in crate::http) fn has_copy(headers: &HeaderMap, etag: &str) -> bool {
    names(headers, &header::IF_NONE_MATCH, etag)
}

/// Whether the header names the entity tag. A proxy that compresses replies marks their tags as weak. The tags change
/// with the content, so a weak tag is accepted as well.
fn names(headers: &HeaderMap, name: &HeaderName, etag: &str) -> bool {
    let lines = headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
    let mut tags = lines.flat_map(|line| line.split(',')).map(|tag| tag.trim().trim_start_matches("W/"));
    tags.any(|tag| tag == "*" || tag == etag)
}
