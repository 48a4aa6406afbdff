//! Conditional headers (RFC 9110, 13.1): for a read of something that the caller already has, and for a change that
//! must not overwrite another caller's change.
//!
//! A conditional header that a call does not support is refused, because a caller who sends it relies on it.

use axum::http::{HeaderMap, HeaderName, header};

use deltaq_engine::command::{Precondition, Versions};
use deltaq_engine::id::Rv;
use deltaq_engine::lives::Lives;

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
    Err(problem.hint(
        "leave it out; PUT and PATCH of a queue, add, update and delete take if-match and if-none-match",
    ))
}

/// The conditional headers of a request. Most requests have none, and the map of none takes no memory.
pub(in crate::http) fn of(headers: &HeaderMap) -> HeaderMap {
    let mut own = HeaderMap::new();
    for name in &CONDITIONAL {
        for value in headers.get_all(name) {
            own.append(name.clone(), value.clone());
        }
    }
    own
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

/// Whether the header names the entity tag.
fn names(headers: &HeaderMap, name: &HeaderName, etag: &str) -> bool {
    let own = etag.trim_matches('"');
    tags(headers, name).any(|tag| tag == "*" || is_tag(tag, own))
}

/// The entity tags of a header, without quotes. A proxy that compresses replies marks their tags as weak. Our tags change with the
/// content and not with its encoding, so a weak tag is accepted as well.
fn tags<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
    let tags = lines.flat_map(|line| line.split(',')).map(str::trim);
    tags.map(|tag| tag.strip_prefix("W/").unwrap_or(tag).trim_matches('"'))
}

/// Whether a tag is ours, or ours with what a proxy adds for its encoding, such as `-gzip` or `;br`.
fn is_tag(tag: &str, own: &str) -> bool {
    let suffix = tag.strip_prefix(own);
    suffix.is_some_and(|suffix| suffix.is_empty() || suffix.starts_with(['-', ';']))
}

/// The precondition that `If-Match` and `If-None-Match` set on the newest object of a key. A tag of another life of the queue names no
/// version. `None` if the request has neither header.
pub(in crate::http) fn of_object(
    headers: &HeaderMap,
    lives: Option<&Lives>,
    is_list: bool,
) -> Result<Option<Box<Precondition>>, Problem> {
    let versions = |name: HeaderName| {
        headers.contains_key(&name).then(|| {
            let mut tags = tags(headers, &name).peekable();
            match tags.peek() {
                Some(&"*") => Versions::Any,
                _ => Versions::Of(tags.filter_map(|tag| version_of(tag, lives?)).collect()),
            }
        })
    };
    let precondition =
        Precondition { matches: versions(header::IF_MATCH), matches_none: versions(header::IF_NONE_MATCH) };
    if precondition == Precondition::default() {
        return Ok(None);
    }
    if is_list {
        let detail = "if-match and if-none-match are about a single object, and the body has a list";
        return Err(Problem::new(Code::InvalidRequest, detail).hint("send expected_version in /deltas"));
    }
    Ok(Some(Box::new(precondition)))
}

/// The entity tag of an object: the life of the queue, and the version of the object.
pub(in crate::http) fn object_tag(lives: &Lives, version: Rv) -> String {
    format!("\"{}-{version}\"", lives.id_of(version))
}

/// The version in the tag of an object.
fn version_of(tag: &str, lives: &Lives) -> Option<Rv> {
    let digits = tag.split_once('-')?.1.split(['-', ';']).next()?;
    let version = Rv::new(digits.parse().ok()?);
    is_tag(tag, object_tag(lives, version).trim_matches('"')).then_some(version)
}
