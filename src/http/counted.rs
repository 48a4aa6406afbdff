//! JSON replies whose counts the log and the audit log show.

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use deltaq_types::{ExtendedList, KeysCount, Page, Produced, PurgedDocument, Replaced, SettledList};
use serde::Serialize;

use super::problem::{Code, Problem};
use super::visit::{Counts, Visit};

/// A JSON reply with counts.
#[derive(Debug)]
pub(super) struct Counted<T>(T);

impl<T: Countable> Counted<T> {
    /// The reply to a request. Its counts are noted for the log.
    pub(super) fn of(visit: &Visit, document: T) -> Self {
        visit.count(document.counts());
        Self(document)
    }
}

impl<T: Countable> IntoResponse for Counted<T> {
    fn into_response(self) -> Response {
        match serde_json::to_string(&self.0) {
            Ok(text) => json(text.into()),
            Err(error) => {
                tracing::error!(%error, "a reply could not be encoded");
                Problem::new(Code::Internal, "the reply could not be encoded").into_response()
            }
        }
    }
}

/// A JSON reply.
pub(super) fn json(body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A document that can be counted.
pub(super) trait Countable: Serialize {
    /// The counts for the log.
    fn counts(&self) -> Counts;
}

impl Countable for Produced {
    fn counts(&self) -> Counts {
        Counts { queued: Some((self.queued, self.ignored)), ..Counts::default() }
    }
}

impl Countable for Replaced {
    fn counts(&self) -> Counts {
        Counts { queued: Some((self.queued, self.ignored)), ..Counts::default() }
    }
}

impl Countable for SettledList {
    fn counts(&self) -> Counts {
        Counts { leases: Some(self.settled.len() as u64), ..Counts::default() }
    }
}

impl Countable for ExtendedList {
    fn counts(&self) -> Counts {
        Counts { leases: Some(self.leases.len() as u64), ..Counts::default() }
    }
}

impl Countable for KeysCount {
    fn counts(&self) -> Counts {
        Counts { keys: Some(self.keys), ..Counts::default() }
    }
}

impl<T: Serialize> Countable for Page<T> {
    fn counts(&self) -> Counts {
        Counts { items: Some(self.items.len() as u64), ..Counts::default() }
    }
}

impl Countable for PurgedDocument {
    fn counts(&self) -> Counts {
        Counts { keys: Some(self.keys), ..Counts::default() }
    }
}
