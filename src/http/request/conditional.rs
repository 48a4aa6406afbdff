//! Conditional headers (RFC 9110, 13.1): for a read of something that the caller already has, and for a change that
//! must not overwrite another caller's change.
//!
//! A conditional header that a call does not support is refused, because a caller who sends it relies on it.

use axum::http::{HeaderMap, HeaderName, header};
use deltaq_engine::command::{Expected, Versions};
use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use deltaq_engine::lives::Lives;

use super::entity_tags::{EntityTags, is_own};
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
    let hint = if operation.id == Some("deltas") {
        "leave it out; an entry of the batch takes expected_version"
    } else {
        "leave it out; PUT, PATCH and DELETE of a queue, add, update and delete take if-match and if-none-match, PATCH of its sources if-match"
    };
    Err(Problem::new(Code::InvalidRequest, detail).with("header", name.as_str()).hint(hint))
}

/// The conditions of a request: `If-Match` and `If-None-Match`.
#[derive(Clone, Debug, Default)]
pub(in crate::http) struct Conditions {
    if_match: Option<EntityTags>,
    if_none_match: Option<EntityTags>,
}

impl Conditions {
    /// The conditions in the headers of a request.
    pub(in crate::http) fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        Ok(Self {
            if_match: EntityTags::read(headers, &header::IF_MATCH)?,
            if_none_match: EntityTags::read(headers, &header::IF_NONE_MATCH)?,
        })
    }

    /// The name of a header of the request, if it has a condition.
    pub(in crate::http) fn header(&self) -> Option<&'static str> {
        let if_match = self.if_match.as_ref().map(|_| "if-match");
        if_match.or_else(|| self.if_none_match.as_ref().map(|_| "if-none-match"))
    }

    /// Whether `If-None-Match` names the entity tag.
    pub(in crate::http) fn has_copy(&self, etag: &str) -> bool {
        self.if_none_match.as_ref().is_some_and(|tags| tags.names(etag))
    }

    /// Checks the conditions of a change of settings against the current entity tag; `None` if there is no queue.
    pub(in crate::http) fn check_settings(&self, etag: Option<&str>) -> Result<(), Problem> {
        let has = |tags: &EntityTags| etag.is_some_and(|etag| tags.names(etag));
        let detail = if self.if_match.as_ref().is_some_and(|tags| !has(tags)) {
            if etag.is_some() {
                "if-match names other settings than those that the queue has now; nothing was changed"
            } else {
                "if-match needs a queue, and there is none; nothing was changed"
            }
        } else if self.if_none_match.as_ref().is_some_and(has) {
            "if-none-match names the settings that the queue has; nothing was changed"
        } else {
            return Ok(());
        };
        Err(Problem::new(Code::PreconditionFailed, detail)
            .hint("GET /v1/queues/{queue}/settings has the settings with their etag"))
    }

    /// What the conditions expect of the newest object of the key, in a queue with these lives. A tag of another life names
    /// no version, and without a queue no tag does.
    pub(in crate::http) fn of_object(&self, key: &Key, lives: Option<&Lives>) -> Expected {
        let versions = |tags: &EntityTags| match tags {
            EntityTags::Any => Versions::Any,
            EntityTags::Of(tags) => {
                Versions::Of(tags.iter().filter_map(|tag| version_of(tag, lives?)).collect())
            }
        };
        Expected {
            index: 0,
            key: key.clone(),
            matches: self.if_match.as_ref().map(versions),
            matches_none: self.if_none_match.as_ref().map(versions),
        }
    }
}

/// The entity tag of an object: the life of the queue, and the version of the object.
pub(in crate::http) fn object_tag(lives: &Lives, version: Rv) -> String {
    format!("\"{}-{version}\"", lives.id_of(version))
}

/// The version in the tag of an object.
fn version_of(tag: &str, lives: &Lives) -> Option<Rv> {
    let (_, version) = tag.split_once('-')?;
    let digits = version.split(|char: char| !char.is_ascii_digit()).next()?;
    let version = Rv::new(digits.parse().ok()?);
    is_own(tag, object_tag(lives, version).trim_matches('"')).then_some(version)
}

#[cfg(test)]
mod tests {
    use deltaq_engine::lives::LifeId;

    use super::*;

    #[test]
    fn a_tag_names_a_version_of_its_life_only() {
        let lives = Lives::begin(LifeId::new(0x6f2c), Rv::new(10));
        assert_eq!(object_tag(&lives, Rv::new(42)), "\"00006f2c-42\"");
        for own in ["00006f2c-42", "00006f2c-42-gzip", "00006f2c-42;br", "00006f2c-42--gzip"] {
            assert_eq!(version_of(own, &lives), Some(Rv::new(42)), "{own}");
        }
        let others = [
            "",
            "42",
            "-42",
            "6f2c-42",
            "00006f2d-42",
            "00006F2C-42",
            "00006f2c-",
            "00006f2c-042",
            "00006f2c-+42",
            "00006f2c-9",
            "00006f2c-42-7",
            "00006f2c-42-",
            "00006f2c-42gzip",
            "00006f2c-99999999999999999999",
        ];
        for other in others {
            assert_eq!(version_of(other, &lives), None, "{other}");
        }
    }
}
