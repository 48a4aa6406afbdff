//! A CloudEvent: in the binary mode of the HTTP binding, where its attributes are headers and the body is its data, and as JSON.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use deltaq_types::Timestamp;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde::Serialize;

/// The characters that a value of a header has percent-encoded, besides those outside of ASCII.
const ENCODED: AsciiSet = CONTROLS.add(b' ').add(b'"').add(b'%');

/// The attributes of an event.
#[derive(Clone, Copy, Debug)]
pub struct CloudEvent<'a> {
    /// What happened, such as `deltaq.item.updated`.
    pub kind: &'a str,
    /// The queue.
    pub queue: &'a str,
    /// Identifies the content.
    pub id: &'a str,
    /// When it happened, if that is known.
    pub time: Option<Timestamp>,
    /// The key and the version of its newest delta; `None` in a test.
    pub item: Option<(&'a str, u64)>,
    /// The trace of the call that made the newest change.
    pub traceparent: Option<&'a str>,
}

/// What an event says of the lease of its key. In the binary mode these are the headers of every pushed request.
#[derive(Clone, Copy, Debug)]
pub struct EventLease<'a> {
    /// The fencing token.
    pub token: u64,
    /// The number of deliveries.
    pub attempt: u64,
    /// The id, if the receiver may settle the key.
    pub id: Option<&'a str>,
}

/// The attributes in JSON. Whole numbers of CloudEvents have 32 bits, so those of deltaq are texts.
#[derive(Serialize)]
struct Attributes<'a> {
    specversion: &'static str,
    #[serde(rename = "type")]
    kind: &'a str,
    source: String,
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partitionkey: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deltaqtoken: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deltaqattempt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deltaqlease: Option<&'a str>,
    datacontenttype: &'static str,
}

impl CloudEvent<'_> {
    fn source(&self) -> String {
        format!("/queues/{}", self.queue)
    }

    /// The event as JSON with this data, which is JSON as well.
    #[must_use]
    pub fn json(&self, lease: Option<EventLease<'_>>, data: &str) -> String {
        let attributes = Attributes {
            specversion: "1.0",
            kind: self.kind,
            source: self.source(),
            id: self.id,
            time: self.time,
            subject: self.item.map(|(key, _)| key),
            partitionkey: self.item.map(|(key, _)| key),
            sequence: self.item.map(|(_, version)| sequence(version)),
            traceparent: self.traceparent,
            deltaqtoken: lease.map(|lease| lease.token.to_string()),
            deltaqattempt: lease.map(|lease| lease.attempt.to_string()),
            deltaqlease: lease.and_then(|lease| lease.id),
            datacontenttype: "application/json",
        };
        let text = serde_json::to_string(&attributes).unwrap_or_default();
        format!("{},\"data\":{data}}}", text.trim_end_matches('}'))
    }

    /// Adds the attributes to headers.
    pub fn write(&self, headers: &mut HeaderMap) {
        let mut insert = |name: &'static str, text: &str| {
            if let Ok(value) = HeaderValue::from_str(&utf8_percent_encode(text, &ENCODED).to_string()) {
                headers.insert(HeaderName::from_static(name), value);
            }
        };
        insert("ce-specversion", "1.0");
        insert("ce-type", self.kind);
        insert("ce-source", &self.source());
        insert("ce-id", self.id);
        if let Some(time) = self.time {
            insert("ce-time", &time.to_string());
        }
        if let Some((key, version)) = self.item {
            insert("ce-subject", key);
            insert("ce-partitionkey", key);
            insert("ce-sequence", &sequence(version));
        }
        if let Some(trace) = self.traceparent {
            insert("ce-traceparent", trace);
        }
    }
}

/// With leading zeros, texts are in the order of the versions.
fn sequence(version: u64) -> String {
    format!("{version:020}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_json_with_its_data_unchanged() {
        let event = CloudEvent {
            kind: "deltaq.item.deleted",
            queue: "prices",
            id: "7a1e0b52-42",
            time: Some(Timestamp::from_micros(1_763_698_803_491_000)),
            item: Some(("a\"}", 42)),
            traceparent: None,
        };
        let lease = EventLease { token: 7, attempt: 1, id: None };
        let text = event.json(Some(lease), r#"{"n":1.50}"#);
        let expected = r#"{"specversion":"1.0","type":"deltaq.item.deleted","source":"/queues/prices","id":"7a1e0b52-42","time":"2025-11-21T04:20:03.491Z","subject":"a\"}","partitionkey":"a\"}","sequence":"00000000000000000042","deltaqtoken":"7","deltaqattempt":"1","datacontenttype":"application/json","data":{"n":1.50}}"#;
        assert_eq!(text, expected);
    }

    #[test]
    fn values_are_encoded_as_the_binding_says() {
        let mut headers = HeaderMap::new();
        let event = CloudEvent {
            kind: "deltaq.item.updated",
            queue: "prices",
            id: "7a1e0b52-42",
            time: Some(Timestamp::from_micros(1_763_698_803_491_000)),
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
