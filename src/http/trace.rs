//! The trace that a request belongs to, by its header `traceparent` (W3C Trace Context).

use super::head::Header;
use crate::engine::trace::TraceContext;

/// Where in a trace a request was made, if its header says so. A header that is not valid, or that stands
/// twice, is passed over, as the standard wants it.
pub(super) fn context_of(traceparent: Header<'_>) -> Option<TraceContext> {
    let value = traceparent.first.filter(|_| !traceparent.stands_twice)?;
    TraceContext::parse(value.to_str().ok()?)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn one_valid_header_counts() {
        let read = |text, stands_twice| {
            let value = HeaderValue::from_static(text);
            context_of(Header { first: Some(&value), stands_twice }).map(|context| context.to_string())
        };
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(read(good, false).as_deref(), Some(good));
        assert_eq!(read(good, true), None, "it stands twice");
        assert_eq!(read("00-0", false), None);
        assert_eq!(context_of(Header::default()), None);
    }
}
