//! Replies: JSON with counts for the log and the audit log, the delivery of pops, and compression.

pub(super) mod delivery;
pub(super) mod layers;
pub(super) mod validation;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use deltaq_types::{
    KeysCount, Page, PageOfQueues, ParkedError, ParkedErrors, Produced, PurgedDocument, QueuePage, Replaced,
    SettledList,
};
use serde::Serialize;

use super::problem::{Code, Problem};

/// A JSON reply with counts, which are stored in the context of the request.
#[derive(Debug)]
pub(super) struct Reply<T>(pub(super) T);

impl<T: ReplyCounts> IntoResponse for Reply<T> {
    fn into_response(self) -> Response {
        rendered(&self.0)
    }
}

/// A JSON reply without counts.
#[derive(Debug)]
pub(super) struct Json<T>(pub(super) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        rendered(&self.0)
    }
}

/// The reply with this document. It ends with a line break, so that a terminal shows the next prompt on its own line.
fn rendered(document: &impl Serialize) -> Response {
    match serde_json::to_string(document) {
        Ok(text) => json((text + "\n").into()),
        Err(error) => {
            tracing::error!(%error, "a reply could not be encoded");
            Problem::new(Code::Internal, "the reply could not be encoded").into_response()
        }
    }
}

/// A JSON reply.
pub(super) fn json(body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The counts of a request, for the log and the audit log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestCounts {
    /// Number of deltas that were queued, and of Deletes that were ignored.
    pub(super) queued: Option<(u64, u64)>,
    /// Number of keys or documents in the reply.
    pub(super) items: Option<u64>,
    /// Number of leases of a settle or extend, regardless of their results.
    pub(super) leases: Option<u64>,
    /// Number of keys that any other call changed.
    pub(super) keys: Option<u64>,
}

/// A document with counts.
pub(super) trait ReplyCounts: Serialize {
    /// The counts for the log.
    fn counts(&self) -> RequestCounts;
}

impl ReplyCounts for Produced {
    fn counts(&self) -> RequestCounts {
        RequestCounts { queued: Some((self.queued, self.ignored)), ..RequestCounts::default() }
    }
}

impl ReplyCounts for Replaced {
    fn counts(&self) -> RequestCounts {
        RequestCounts { queued: Some((self.queued, self.ignored)), ..RequestCounts::default() }
    }
}

impl ReplyCounts for SettledList {
    fn counts(&self) -> RequestCounts {
        RequestCounts { leases: Some(self.settled.len() as u64), ..RequestCounts::default() }
    }
}

impl ReplyCounts for KeysCount {
    fn counts(&self) -> RequestCounts {
        RequestCounts { keys: Some(self.keys), ..RequestCounts::default() }
    }
}

/// A page of a list.
pub(super) trait ListPage: Serialize {
    /// An entry of the list.
    type Item: Serialize;

    /// The entries of the page, and the `continue` parameter of the next one.
    fn entries(&self) -> (&[Self::Item], Option<&str>);
}

impl<T: Serialize> ListPage for Page<T> {
    type Item = T;

    fn entries(&self) -> (&[T], Option<&str>) {
        (&self.items, self.next.as_deref())
    }
}

impl<T: Serialize> ListPage for QueuePage<T> {
    type Item = T;

    fn entries(&self) -> (&[T], Option<&str>) {
        (&self.items, self.next.as_deref())
    }
}

impl<T: Serialize> ListPage for PageOfQueues<T> {
    type Item = T;

    fn entries(&self) -> (&[T], Option<&str>) {
        (&self.items, self.next.as_deref())
    }
}

impl ListPage for ParkedErrors {
    type Item = ParkedError;

    fn entries(&self) -> (&[ParkedError], Option<&str>) {
        (&self.items, self.next.as_deref())
    }
}

impl<P: ListPage> ReplyCounts for P {
    fn counts(&self) -> RequestCounts {
        RequestCounts { items: Some(self.entries().0.len() as u64), ..RequestCounts::default() }
    }
}

impl ReplyCounts for PurgedDocument {
    fn counts(&self) -> RequestCounts {
        RequestCounts { keys: Some(self.keys), ..RequestCounts::default() }
    }
}
