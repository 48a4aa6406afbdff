//! What is looked at of the headers of all requests, or of all that have a body.

use axum::http::{HeaderMap, HeaderValue};

/// What is known of the headers of a request after one look at each of them: that takes about as long as to ask their map for
/// two names, and there are nine.
#[derive(Debug, Default)]
pub(super) struct Head<'h> {
    /// Bytes of all names and values, and of what stands around them on the wire.
    pub(super) bytes: usize,
    pub(super) host: Header<'h>,
    pub(super) origin: Header<'h>,
    pub(super) request_id: Header<'h>,
    pub(super) traceparent: Header<'h>,
    pub(super) content_type: Header<'h>,
    pub(super) content_encoding: Header<'h>,
    pub(super) transfer_encoding: Header<'h>,
    /// Whether a browser says that a foreign page sent the request.
    pub(super) is_cross_site: bool,
    /// Whether the caller waits for leave to send the body.
    pub(super) expects: bool,
}

/// A header that has one value at most, if its caller means well.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Header<'h> {
    /// Its first value.
    pub(super) first: Option<&'h HeaderValue>,
    /// Whether there is another one.
    pub(super) stands_twice: bool,
}

impl<'h> Head<'h> {
    /// What the headers say.
    pub(super) fn of(headers: &'h HeaderMap) -> Self {
        let mut head = Self::default();
        for (name, value) in headers {
            let name = name.as_str();
            head.bytes += name.len() + value.len() + ": \r\n".len();
            match name {
                "host" => head.host.add(value),
                "origin" => head.origin.add(value),
                "x-request-id" => head.request_id.add(value),
                "traceparent" => head.traceparent.add(value),
                "content-type" => head.content_type.add(value),
                "content-encoding" => head.content_encoding.add(value),
                "transfer-encoding" => head.transfer_encoding.add(value),
                "sec-fetch-site" => {
                    head.is_cross_site |= value.as_bytes().eq_ignore_ascii_case(b"cross-site");
                }
                "expect" => head.expects = true,
                _ => {}
            }
        }
        head
    }
}

impl<'h> Header<'h> {
    fn add(&mut self, value: &'h HeaderValue) {
        self.stands_twice = self.first.is_some();
        self.first = self.first.or(Some(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_header_is_found_and_counted() {
        let mut headers = HeaderMap::new();
        let mut bytes = 0;
        for (name, value) in [
            ("host", "a"),
            ("origin", "b"),
            ("origin", "c"),
            ("origin", "c"),
            ("x-request-id", "d"),
            ("traceparent", "e"),
            ("content-type", "f"),
            ("content-encoding", "g"),
            ("transfer-encoding", "h"),
            ("sec-fetch-site", "Cross-Site"),
            ("sec-fetch-site", "same-origin"),
            ("expect", "100-continue"),
            ("x-other", ""),
        ] {
            headers.append(name, HeaderValue::from_static(value));
            bytes += format!("{name}: {value}\r\n").len();
        }
        let head = Head::of(&headers);
        let first =
            |header: Header<'_>| header.first.and_then(|value| value.to_str().ok().map(str::to_owned));
        let found = [
            head.host,
            head.origin,
            head.request_id,
            head.traceparent,
            head.content_type,
            head.content_encoding,
            head.transfer_encoding,
        ];
        assert_eq!(found.map(first), ["a", "b", "d", "e", "f", "g", "h"].map(|text| Some(text.to_owned())));
        assert_eq!(found.map(|header| header.stands_twice), [false, true, false, false, false, false, false]);
        assert_eq!((head.bytes, head.is_cross_site, head.expects), (bytes, true, true));
        let empty = HeaderMap::new();
        let none = Head::of(&empty);
        assert!(none.host.first.is_none() && none.bytes == 0 && !none.is_cross_site && !none.expects);
    }
}
