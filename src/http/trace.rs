//! The trace that a request belongs to, by its header `traceparent` (W3C Trace Context).

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName};

use super::visit::Visit;
use crate::engine::trace::{Trace, TraceContext};

static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Where in a trace a request was made, if its header says so. A header that is not valid, or that stands
/// twice, is passed over, as the standard wants it.
pub(in crate::http) fn context_of(headers: &HeaderMap) -> Option<TraceContext> {
    let mut values = headers.get_all(&TRACEPARENT).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    TraceContext::parse(value.to_str().ok()?)
}

/// The trace of a produce call, to be kept with what it queues.
#[derive(Debug)]
pub(in crate::http) struct Traced(pub(in crate::http) Option<Trace>);

impl<S: Sync> FromRequestParts<S> for Traced {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let visit: Option<&Arc<Visit>> = parts.extensions.get();
        Ok(Self(visit.and_then(|visit| visit.parent).map(Trace::new)))
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn one_valid_header_counts() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let mut headers = HeaderMap::new();
        assert_eq!(context_of(&headers), None);
        headers.insert(&TRACEPARENT, HeaderValue::from_static(good));
        assert_eq!(context_of(&headers).map(|context| context.to_string()).as_deref(), Some(good));
        headers.append(&TRACEPARENT, HeaderValue::from_static(good));
        assert_eq!(context_of(&headers), None, "it stands twice");
        headers.insert(&TRACEPARENT, HeaderValue::from_static("00-0"));
        assert_eq!(context_of(&headers), None);
    }
}
