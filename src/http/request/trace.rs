//! The trace of a request, from its header `traceparent` (W3C Trace Context).

use deltaq_engine::trace::TraceContext;

use crate::http::head::Header;

/// The trace context of a request. An invalid or repeated header is ignored, as the standard requires.
pub(in crate::http) fn context_of(traceparent: Header<'_>) -> Option<TraceContext> {
    let value = traceparent.first.filter(|_| !traceparent.is_repeated)?;
    TraceContext::parse(value.to_str().ok()?)
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderValue};

    use super::*;
    use crate::http::head::Head;

    #[test]
    fn one_valid_header_counts() {
        let read = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("traceparent", HeaderValue::from_static(value));
            }
            context_of(Head::of(&headers).traceparent).map(|context| context.to_string())
        };
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(read(&[good]).as_deref(), Some(good));
        assert_eq!(read(&[good, good]), None, "it occurs twice");
        assert_eq!(read(&["00-0"]), None);
        assert_eq!(read(&[]), None);
    }
}
