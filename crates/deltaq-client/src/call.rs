//! Requests.

use std::time::Duration;

use futures_util::Stream;
use reqwest::{Method, Url};
use serde::Serialize;

/// One request to a server.
#[derive(Debug)]
pub struct Call {
    pub(crate) method: Method,
    pub(crate) path: Vec<String>,
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) body: Body,
    pub(crate) streams: bool,
    pub(crate) wait: Duration,
}

/// The body of a request.
#[derive(Debug, Default)]
pub enum Body {
    /// No body.
    #[default]
    Empty,
    /// A JSON document.
    Json(Vec<u8>),
    /// Objects, one per line.
    Ndjson(reqwest::Body),
}

impl Body {
    /// Objects, one per line, that a stream gives piece by piece. An error of the stream breaks the request off.
    pub fn lines<S, E>(pieces: S) -> Self
    where
        S: Stream<Item = Result<Vec<u8>, E>> + Send + 'static,
        E: std::error::Error + Send + Sync + 'static,
    {
        Self::Ndjson(reqwest::Body::wrap_stream(pieces))
    }
}

impl Call {
    /// A request to a path, given as segments that are not percent-encoded.
    pub fn new<S: Into<String>>(method: Method, path: impl IntoIterator<Item = S>) -> Self {
        Self {
            method,
            path: path.into_iter().map(Into::into).collect(),
            query: Vec::new(),
            body: Body::Empty,
            streams: false,
            wait: Duration::ZERO,
        }
    }

    /// A request on a queue, such as `["add"]` or `["items", "sku-1"]`; no segments for the queue itself.
    pub fn on_queue<'s>(method: Method, queue: &'s str, path: impl IntoIterator<Item = &'s str>) -> Self {
        Self::new(method, ["v1", "queues", queue].into_iter().chain(path))
    }

    /// Adds a query parameter, unless it is `None`.
    #[must_use]
    pub fn query(mut self, name: &'static str, value: Option<impl ToString>) -> Self {
        self.query.extend(value.map(|value| (name, value.to_string())));
        self
    }

    /// Adds a query parameter that is a switch.
    #[must_use]
    pub fn switch(self, name: &'static str, is_on: bool) -> Self {
        self.query(name, is_on.then_some(true))
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: Body) -> Self {
        self.body = body;
        self
    }

    /// Sets a JSON document as the body.
    #[must_use]
    pub fn json(self, document: &impl Serialize) -> Self {
        let text = serde_json::to_vec(document).unwrap_or_default();
        self.body(Body::Json(text))
    }

    /// Asks for a list as a stream of lines instead of pages.
    #[must_use]
    pub fn streamed(mut self) -> Self {
        self.streams = true;
        self
    }

    /// The server may take this much longer to answer.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// The URL of the request on the server at `base`.
    pub(crate) fn url(&self, base: &Url) -> Url {
        let mut url = base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(&self.path);
        }
        if !self.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&self.query);
        }
        url
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_and_parameters_are_encoded() {
        let call = Call::on_queue(Method::GET, "prices", ["items", "a/b c"]);
        let call = call.query("prefix", Some("x&y")).query("limit", None::<u64>).switch("dry_run", true);
        let url = call.url(&Url::parse("https://queues.example:8443").unwrap());
        let expected =
            "https://queues.example:8443/v1/queues/prices/items/a%2Fb%20c?prefix=x%26y&dry_run=true";
        assert_eq!(url.as_str(), expected);
    }
}
