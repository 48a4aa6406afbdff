//! A CloudEvent in the binary mode of the HTTP binding: its attributes are headers, and the body is its data.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use deltaq_types::Timestamp;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// The characters that a value of a header has percent-encoded, besides those outside of ASCII.
const ENCODED: AsciiSet = CONTROLS.add(b' ').add(b'"').add(b'%');

/// The attributes of an event.
#[derive(Debug)]
pub struct CloudEvent<'a> {
    /// What happened, such as `deltaq.item.updated`.
    pub kind: &'a str,
    /// The queue.
    pub queue: &'a str,
    /// Identifies the content.
    pub id: &'a str,
    /// When it happened.
    pub time: Timestamp,
    /// The key and the version of its newest delta; `None` in a test.
    pub item: Option<(&'a str, u64)>,
    /// The trace of the call that made the newest change.
    pub traceparent: Option<&'a str>,
}

impl CloudEvent<'_> {
    /// Adds the attributes to headers.
    pub fn write(&self, headers: &mut HeaderMap) {
        let mut insert = |name: &'static str, text: &str| {
            if let Ok(value) = HeaderValue::from_str(&utf8_percent_encode(text, &ENCODED).to_string()) {
                headers.insert(HeaderName::from_static(name), value);
            }
        };
        insert("ce-specversion", "1.0");
        insert("ce-type", self.kind);
        insert("ce-source", &format!("/queues/{}", self.queue));
        insert("ce-id", self.id);
        insert("ce-time", &self.time.to_string());
        if let Some((key, version)) = self.item {
            insert("ce-subject", key);
            insert("ce-partitionkey", key);
            // With leading zeros, texts are in the order of the versions.
            insert("ce-sequence", &format!("{version:020}"));
        }
        if let Some(trace) = self.traceparent {
            insert("ce-traceparent", trace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_encoded_as_the_binding_says() {
        let mut headers = HeaderMap::new();
        let event = CloudEvent {
            kind: "deltaq.item.updated",
            queue: "prices",
            id: "7a1e0b52-42",
            time: Timestamp::from_micros(1_763_698_803_491_000),
            item: Some(("Euro € \"50 %\"\u{7f}/~", 42)),
            traceparent: None,
        };
        event.write(&mut headers);
        let texts: Vec<(&str, &str)> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().expect("visible ASCII")))
            .collect();
        let subject = "Euro%20%E2%82%AC%20%2250%20%25%22%7F/~";
        assert_eq!(
            texts,
            [
                ("ce-specversion", "1.0"),
                ("ce-type", "deltaq.item.updated"),
                ("ce-source", "/queues/prices"),
                ("ce-id", "7a1e0b52-42"),
                ("ce-time", "2025-11-21T04:20:03.491Z"),
                ("ce-subject", subject),
                ("ce-partitionkey", subject),
                ("ce-sequence", "00000000000000000042"),
            ]
        );
    }
}
