//! The headers that the middleware and the body parser use.

use axum::http::{HeaderMap, HeaderValue};

/// The headers of a request after one pass over them. One pass takes about as long as two lookups by name, and
/// a dozen names are needed.
#[derive(Debug, Default)]
pub(super) struct Head<'h> {
    /// Bytes of all header lines.
    pub(super) bytes: usize,
    pub(super) host: Header<'h>,
    pub(super) origin: Header<'h>,
    pub(super) referer: Header<'h>,
    pub(super) request_id: Header<'h>,
    pub(super) traceparent: Header<'h>,
    pub(super) content_type: Header<'h>,
    pub(super) ce_specversion: Header<'h>,
    pub(super) content_encoding: Header<'h>,
    pub(super) transfer_encoding: Header<'h>,
    pub(super) forwarded: Header<'h>,
    pub(super) node_secret: Header<'h>,
    pub(super) caller: Header<'h>,
    pub(super) public_url: Header<'h>,
    /// Whether there is a header of calls between nodes.
    pub(super) has_node_headers: bool,
    /// Whether a node returns leases that did not reach their client.
    pub(super) is_undelivered: bool,
    /// `Sec-Fetch-Site: cross-site`: whether a page of another site caused the request.
    pub(super) is_cross_site: bool,
    /// Whether there is a conditional header.
    pub(super) is_conditional: bool,
    /// `Sec-Fetch-Mode: navigate`: whether a browser follows a link. Only its user sees the response.
    pub(super) is_navigation: bool,
}

/// A header that should occur once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Header<'h> {
    /// The first value.
    pub(super) first: Option<&'h HeaderValue>,
    /// Whether the header occurs more than once.
    pub(super) is_repeated: bool,
}

impl<'h> Head<'h> {
    /// Reads the headers.
    pub(super) fn of(headers: &'h HeaderMap) -> Self {
        let mut head = Self::default();
        for (name, value) in headers {
            let name = name.as_str();
            head.bytes += name.len() + value.len() + ": \r\n".len();
            match name {
                "host" => head.host.add(value),
                "origin" => head.origin.add(value),
                "referer" => head.referer.add(value),
                "x-request-id" => head.request_id.add(value),
                "traceparent" => head.traceparent.add(value),
                "ce-specversion" => head.ce_specversion.add(value),
                "content-type" => head.content_type.add(value),
                "content-encoding" => head.content_encoding.add(value),
                "transfer-encoding" => head.transfer_encoding.add(value),
                "deltaq-forwarded" => head.forwarded.add(value),
                "deltaq-node-secret" => head.node_secret.add(value),
                "deltaq-caller" => head.caller.add(value),
                "deltaq-public-url" => head.public_url.add(value),
                "deltaq-undelivered" => head.is_undelivered = true,
                "sec-fetch-site" => {
                    head.is_cross_site |= value.as_bytes().eq_ignore_ascii_case(b"cross-site");
                }
                "if-match" | "if-none-match" | "if-modified-since" | "if-unmodified-since" | "if-range" => {
                    head.is_conditional = true;
                }
                "sec-fetch-mode" => {
                    head.is_navigation = value.as_bytes().eq_ignore_ascii_case(b"navigate");
                }
                _ => {}
            }
        }
        head.has_node_headers = head.forwarded.first.is_some()
            || head.node_secret.first.is_some()
            || head.caller.first.is_some()
            || head.public_url.first.is_some()
            || head.is_undelivered;
        head
    }
}

impl<'h> Header<'h> {
    fn add(&mut self, value: &'h HeaderValue) {
        self.is_repeated = self.first.is_some();
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
            ("sec-fetch-mode", "navigate"),
            ("referer", "i"),
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
            head.referer,
        ];
        assert_eq!(
            found.map(first),
            ["a", "b", "d", "e", "f", "g", "h", "i"].map(|text| Some(text.to_owned()))
        );
        assert_eq!(
            found.map(|header| header.is_repeated),
            [false, true, false, false, false, false, false, false]
        );
        assert_eq!((head.bytes, head.is_cross_site, head.is_navigation), (bytes, true, true));
        let empty = HeaderMap::new();
        let none = Head::of(&empty);
        assert!(none.host.first.is_none() && none.bytes == 0 && !none.is_cross_site && !none.is_navigation);
    }
}
