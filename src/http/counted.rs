//! JSON answers that tell the log how much they are about.

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::problem::{Code, Problem};
use super::visit::{Counts, Visit};
use super::wire::{ExtendedList, KeysCount, Page, Produced, PurgedDocument, Replaced, SettledList};

/// An answer of which the log knows how much it is about.
#[derive(Debug)]
pub(super) struct Counted<T>(T);

impl<T: Countable> Counted<T> {
    /// The answer to a request, which has its counts noted.
    pub(super) fn of(visit: &Visit, document: T) -> Self {
        visit.count(document.counts());
        Self(document)
    }
}

impl<T: Countable> IntoResponse for Counted<T> {
    fn into_response(self) -> Response {
        match self.0.text() {
            Ok(text) => json(text.into()),
            Err(error) => {
                tracing::error!(%error, "an answer could not be written");
                Problem::new(Code::Internal, "the answer could not be written").into_response()
            }
        }
    }
}

/// An answer of JSON.
pub(super) fn json(body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// What has counts.
pub(super) trait Countable: Serialize {
    /// How much it is about.
    fn counts(&self) -> Counts;

    /// It as JSON.
    fn text(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }
}

impl Countable for Produced {
    fn counts(&self) -> Counts {
        Counts { queued: Some((self.queued, self.ignored)), ..Counts::default() }
    }

    /// By hand, as there is one for each add: serde looks at each byte of a name, and takes three times as long.
    fn text(&self) -> serde_json::Result<String> {
        let Self { resource_version, queued, ignored } = self;
        let (mut rv, mut taken, mut left) = <(itoa::Buffer, itoa::Buffer, itoa::Buffer)>::default();
        let (rv, taken, left) = (rv.format(*resource_version), taken.format(*queued), left.format(*ignored));
        Ok(["{\"resource_version\":", rv, ",\"queued\":", taken, ",\"ignored\":", left, "}"].concat())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_by_hand_is_what_serde_writes() {
        for (resource_version, queued, ignored) in [(0, 0, 0), (u64::MAX, 12, 3)] {
            let produced = Produced { resource_version, queued, ignored };
            assert_eq!(produced.text().unwrap(), serde_json::to_string(&produced).unwrap());
        }
    }
}
