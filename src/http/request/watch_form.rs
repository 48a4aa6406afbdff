//! The form in which a watch sends its rows.

use axum::http::HeaderMap;

use super::accept::{Accept, CLOUD_EVENTS};
use crate::http::problem::Problem;

/// How the rows of a watch are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum WatchForm {
    /// A stream of NDJSON.
    Lines,
    /// A stream of server-sent events.
    Events,
    /// One JSON page.
    Page,
    /// One page as a list of CloudEvents.
    CloudEvents,
}

impl WatchForm {
    /// The form that the client prefers; the first one, if it prefers several equally. NDJSON if the client names no
    /// form.
    pub(in crate::http) fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let accept = Accept::of(headers);
        if accept.is_absent() {
            return Ok(Self::Lines);
        }
        let form = |kind: &str| match kind {
            "application/x-ndjson" | "*/*" | "application/*" => Some(Self::Lines),
            "text/event-stream" | "text/*" => Some(Self::Events),
            "application/json" => Some(Self::Page),
            CLOUD_EVENTS => Some(Self::CloudEvents),
            _ => None,
        };
        let offered = "a watch is application/x-ndjson, text/event-stream, application/json or application/cloudevents-batch+json";
        accept.preferred(form).ok_or_else(|| accept.refused(offered))
    }
}
