//! Requests.

use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use deltaq_types::duration::DurationText;
use futures_util::stream::{Stream, StreamExt as _, poll_fn};
use http::Method;
use reqwest::Url;
use serde::Serialize;
use tokio::sync::oneshot;

use crate::error::Error;

/// One request to a server.
#[derive(Debug)]
pub struct Call {
    pub(crate) method: Method,
    pub(crate) path: Vec<String>,
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Body,
    pub(crate) accept: Accept,
    pub(crate) wait: Duration,
    pub(crate) is_repeatable: bool,
}

/// The form of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accept {
    /// One document.
    Json,
    /// A stream with one document per line.
    Lines,
    /// Server-sent events.
    Events,
}

/// The body of a request.
#[derive(Debug, Default)]
pub enum Body {
    /// No body.
    #[default]
    Empty,
    /// A JSON document.
    Json(Bytes),
    /// Objects, one per line.
    Lines(Bytes),
    /// Objects, one per line, that are sent only once, however long that takes.
    Ndjson(Bytes),
    /// Objects, one per line, from a stream; created by [`Body::lines`].
    Pieces(Pieces),
}

/// Lines from a stream.
#[derive(Debug)]
pub struct Pieces {
    pub(crate) body: reqwest::Body,
    /// Notified when the connection has taken the last piece.
    pub(crate) ended: oneshot::Receiver<()>,
}

impl Body {
    /// Objects, one per line, that a stream yields in pieces. An error of the stream aborts the request.
    pub fn lines<S, E>(pieces: S) -> Self
    where
        S: Stream<Item = Result<Vec<u8>, E>> + Send + 'static,
        E: std::error::Error + Send + Sync + 'static,
    {
        let (said, ended) = oneshot::channel();
        let mut said = Some(said);
        let end = poll_fn(move |_| {
            // If nobody waits for the end of the body, the request has already ended.
            let _heard = said.take().map(|said| said.send(()));
            Poll::Ready(None)
        });
        Self::Pieces(Pieces { body: reqwest::Body::wrap_stream(pieces.chain(end)), ended })
    }

    /// A copy of the body, unless it is a stream.
    fn try_clone(&self) -> Option<Self> {
        match self {
            Self::Empty => Some(Self::Empty),
            Self::Json(text) => Some(Self::Json(text.clone())),
            Self::Lines(text) => Some(Self::Lines(text.clone())),
            Self::Ndjson(_) | Self::Pieces(_) => None,
        }
    }
}

impl Call {
    /// A request to a path, which is given as segments without percent-encoding. If a URL can't contain one of the
    /// segments, sending the request fails with [`Error::Segment`].
    pub fn new<S: Into<String>>(method: Method, path: impl IntoIterator<Item = S>) -> Self {
        let is_repeatable = method.is_safe();
        Self {
            method,
            path: path.into_iter().map(Into::into).collect(),
            query: Vec::new(),
            headers: Vec::new(),
            body: Body::Empty,
            accept: Accept::Json,
            wait: Duration::ZERO,
            is_repeatable,
        }
    }

    /// A request on a queue, with a path such as `["add"]` or `["items", "sku-1"]`, or an empty path for the queue
    /// itself.
    pub fn on_queue<'s>(method: Method, queue: &'s str, path: impl IntoIterator<Item = &'s str>) -> Self {
        Self::new(method, ["v1", "queues", queue].into_iter().chain(path))
    }

    /// Adds a query parameter, unless it is `None`.
    #[must_use]
    pub fn query(mut self, name: &'static str, value: Option<impl ToString>) -> Self {
        self.query.extend(value.map(|value| (name, value.to_string())));
        self
    }

    /// Adds the range of a series.
    pub(crate) fn series(self, since: Duration, step: Duration) -> Self {
        self.query("since", Some(DurationText::from(since))).query("step", Some(DurationText::from(step)))
    }

    /// Adds an item to a query parameter that is a list, if `is_wanted`.
    #[must_use]
    pub fn listed(mut self, name: &'static str, item: &str, is_wanted: bool) -> Self {
        match self.query.iter_mut().find(|(other, _)| *other == name) {
            _ if !is_wanted => {}
            Some((_, list)) => {
                list.push(',');
                list.push_str(item);
            }
            None => self.query.push((name, item.to_owned())),
        }
        self
    }

    /// Adds a query parameter that is a flag.
    #[must_use]
    pub fn switch(self, name: &'static str, is_on: bool) -> Self {
        self.query(name, is_on.then_some(true))
    }

    /// Adds a condition: a header such as `if-match`. A call with a condition is not repeated after a lost reply,
    /// because the first attempt may have changed what the condition checks.
    #[must_use]
    pub fn condition(self, name: &'static str, value: impl Into<String>) -> Self {
        self.header(name, value).not_repeatable()
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The call for the page after this one.
    pub(crate) fn continued(mut self, token: String) -> Self {
        self.query.retain(|(name, _)| *name != "continue");
        self.query.push(("continue", token));
        self
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
        self.body(Body::Json(text.into()))
    }

    /// Asks for a list as a stream of lines instead of pages.
    #[must_use]
    pub fn streamed(mut self) -> Self {
        self.accept = Accept::Lines;
        self
    }

    /// Asks for server-sent events.
    pub(crate) const fn events(mut self) -> Self {
        self.accept = Accept::Events;
        self
    }

    /// Allows the server this much more time for the reply.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Declares that the call has the same effect if the server receives it twice, so that it can be retried after a
    /// lost reply. Reads are always repeatable.
    #[must_use]
    pub fn repeatable(mut self) -> Self {
        self.is_repeatable = true;
        self
    }

    /// Declares that the call has another effect when it is repeated.
    pub(crate) const fn not_repeatable(mut self) -> Self {
        self.is_repeatable = false;
        self
    }

    /// A copy of the call, unless its body is a stream.
    pub(crate) fn try_clone(&self) -> Option<Self> {
        Some(Self {
            method: self.method.clone(),
            path: self.path.clone(),
            query: self.query.clone(),
            headers: self.headers.clone(),
            body: self.body.try_clone()?,
            ..*self
        })
    }

    /// The method.
    #[must_use]
    pub const fn method(&self) -> &Method {
        &self.method
    }

    /// What the call does, such as `add` or `pop`: the path behind that of the queue. It is empty for a call on the queue itself.
    #[must_use]
    pub fn name(&self) -> &str {
        match self.path.as_slice() {
            [version, queues, _, rest @ ..] if version == "v1" && queues == "queues" => {
                rest.first().map_or("", |name| name)
            }
            path => path.last().map_or("", |name| name),
        }
    }

    /// Whether the call has this header.
    #[must_use]
    pub fn has_header(&self, name: &str) -> bool {
        self.headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name))
    }

    /// The name of the queue, for a call on one.
    #[must_use]
    pub fn queue(&self) -> Option<&str> {
        match self.path.as_slice() {
            [version, queues, queue, ..] if version == "v1" && queues == "queues" => Some(queue),
            _ => None,
        }
    }

    /// The URL of the request on the server at `base`.
    pub(crate) fn url(&self, base: &Url) -> Result<Url, Error> {
        // `Url` drops these segments, and proxies remove them, so the path would name something else.
        let is_lost = |segment: &&String| segment.split('/').any(|part| matches!(part, "" | "." | ".."));
        if let Some(segment) = self.path.iter().find(is_lost) {
            return Err(Error::Segment { segment: segment.clone() });
        }
        let mut url = base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(&self.path);
        }
        if !self.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&self.query);
        }
        Ok(url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_and_parameters_are_encoded() {
        let call = Call::on_queue(Method::GET, "prices", ["items", "a/b c"]);
        let call = call.query("prefix", Some("x&y")).query("limit", None::<u64>).switch("dry_run", true);
        let url = call.url(&Url::parse("https://queues.example:8443").unwrap()).unwrap();
        let expected =
            "https://queues.example:8443/v1/queues/prices/items/a%2Fb%20c?prefix=x%26y&dry_run=true";
        assert_eq!(url.as_str(), expected);
    }

    #[test]
    fn a_segment_that_a_path_loses_is_refused() {
        let base = Url::parse("https://queues.example:8443/base/").unwrap();
        for name in ["", ".", "..", "a/../prices", "a//b", "/", "prices/."] {
            let calls = [
                Call::on_queue(Method::DELETE, name, []),
                Call::on_queue(Method::GET, "prices", ["indexes", name]),
            ];
            for call in calls {
                let error = call.url(&base).unwrap_err();
                assert!(
                    matches!(&error, Error::Segment { segment } if segment == name) && !error.is_retryable()
                );
            }
        }
        for (name, encoded) in
            [("...", "..."), ("%2e%2E", "%252e%252E"), ("a/..b", "a%2F..b"), (" .", "%20.")]
        {
            let url = Call::on_queue(Method::GET, name, ["status"]).url(&base).unwrap();
            assert_eq!(url.path(), format!("/base/v1/queues/{encoded}/status"));
        }
    }
}
