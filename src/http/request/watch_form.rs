//! The form in which a watch sends its rows.

use axum::http::HeaderMap;

use super::accept::Accept;
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
}

impl WatchForm {
    /// The form that the client prefers; the first one, if it prefers several equally. NDJSON if the client names no
    /// form.
    pub(in crate::http) fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let accept = Accept::of(headers);
        if accept.is_absent() {
            return Ok(Self::Lines);
        }
        let form = |kind| match kind {
            "application/x-ndjson" | "*/*" | "application/*" => Some(Self::Lines),
            "text/event-stream" | "text/*" => Some(Self::Events),
            "application/json" => Some(Self::Page),
            _ => None,
        };
        let forms = accept.types().filter_map(|(kind, weight)| Some((form(kind)?, weight)));
        let preferred = forms.reduce(|best, next| if next.1 > best.1 { next } else { best });
        let offered = "a watch is application/x-ndjson, text/event-stream or application/json";
        preferred.map(|(form, _)| form).ok_or_else(|| accept.refused(offered))
    }
}
