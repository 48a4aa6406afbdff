//! The header `Accept`.

use axum::http::{HeaderMap, header};
use deltaq_engine::excerpt::Excerpt;

use crate::http::problem::{Code, Problem};

/// A list of CloudEvents.
pub(in crate::http) const CLOUD_EVENTS: &str = "application/cloudevents-batch+json";

/// The media types that a client accepts, in lower case.
pub(in crate::http) struct Accept(String);

impl Accept {
    /// All `Accept` headers of a request.
    pub(in crate::http) fn of(headers: &HeaderMap) -> Self {
        let lines = headers.get_all(header::ACCEPT).iter();
        let lines: Vec<_> = lines.map(|line| String::from_utf8_lossy(line.as_bytes())).collect();
        Self(lines.join(",").to_ascii_lowercase())
    }

    /// Whether the client does not name any type.
    pub(in crate::http) fn is_absent(&self) -> bool {
        self.0.trim().is_empty()
    }

    /// The accepted types with their weights, in the order of the header.
    pub(in crate::http) fn types(&self) -> impl Iterator<Item = (&str, f32)> {
        self.0.split(',').filter_map(accepted)
    }

    /// The weight of a type, if the client accepts this type.
    pub(in crate::http) fn weight(&self, name: &str) -> Option<f32> {
        self.types().find(|(kind, _)| *kind == name).map(|(_, weight)| weight)
    }

    /// The value for the type that the client prefers; the first one, if it prefers several equally.
    pub(in crate::http) fn preferred<T>(&self, known: impl Fn(&str) -> Option<T>) -> Option<T> {
        let found = self.types().filter_map(|(kind, weight)| Some((known(kind)?, weight)));
        found.reduce(|best, next| if next.1 > best.1 { next } else { best }).map(|(value, _)| value)
    }

    /// Whether the client prefers a list of CloudEvents.
    pub(in crate::http) fn prefers_events(&self) -> bool {
        self.preferred(|kind| Some(kind == CLOUD_EVENTS)).unwrap_or_default()
    }

    /// The problem for a request that accepts none of the reply's types.
    pub(in crate::http) fn refused(&self, offered: &str) -> Problem {
        Problem::new(Code::NotAcceptable, format!("accept {}: {offered}", Excerpt(&self.0)))
    }
}

/// A media type and its weight, if the weight is positive.
fn accepted(item: &str) -> Option<(&str, f32)> {
    let mut parts = item.split(';').map(str::trim);
    let kind = parts.next()?;
    let weight = parts.find_map(|part| part.strip_prefix("q=")).map_or(Some(1.0), |q| q.parse().ok())?;
    (weight > 0.0).then_some((kind, weight))
}
