//! CloudEvents in a body: as one document, as a list, or as the data of an event whose attributes are headers.

use std::borrow::Cow;
use std::fmt::Write as _;

use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use deltaq_engine::deliveries::DeliveryId;
use deltaq_engine::object::{self, Objects};
use deltaq_engine::trace::{Trace, TraceContext};
use deltaq_types::{CloudEvents, StoredPart};
use percent_encoding::percent_decode;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::body::{Format, Incoming};
use super::params::check_name;
use super::received::BatchLimit;
use crate::hooks::hashed;
use crate::http::problem::{Code, Problem};

/// The beginning of the headers with the attributes of an event.
const PREFIX: &str = "ce-";

/// A CloudEvent.
#[derive(Debug)]
pub(in crate::http) struct ReceivedEvent {
    /// Whether its type says that its subject was deleted.
    pub(in crate::http) deletes: bool,
    /// What is stored; `None` for an event without data.
    pub(in crate::http) object: Option<String>,
    /// The key of an object that has none of its own.
    pub(in crate::http) subject: Option<String>,
    pub(in crate::http) source: String,
    pub(in crate::http) id: DeliveryId,
    pub(in crate::http) trace: Option<Trace>,
}

/// An event as a document.
#[derive(Deserialize)]
struct Event<'e> {
    #[serde(borrow)]
    specversion: Cow<'e, str>,
    #[serde(borrow)]
    id: Cow<'e, str>,
    #[serde(borrow)]
    source: Cow<'e, str>,
    #[serde(borrow, rename = "type")]
    kind: Cow<'e, str>,
    #[serde(default)]
    subject: Option<String>,
    #[serde(default)]
    traceparent: Option<String>,
    #[serde(borrow, default)]
    data: Option<&'e RawValue>,
    #[serde(default)]
    data_base64: Option<String>,
}

/// The events of a body, and whether it is a list.
pub(in crate::http) async fn events(
    incoming: Incoming,
    setting: &CloudEvents,
    most: BatchLimit,
) -> Result<(Vec<ReceivedEvent>, bool), Problem> {
    let (format, account) = (incoming.format, incoming.account());
    if format == Format::CloudEventData {
        let attributes = incoming.headers().map(attributes).transpose()?.unwrap_or_default();
        let data = incoming.text().await?;
        account.reserve_object(data.len())?;
        if !data.trim().is_empty() {
            object::check(&data)?;
        }
        return Ok((vec![event(&with_data(&attributes, data.trim()), setting)?], false));
    }
    let text = incoming.text().await?;
    if format == Format::CloudEvent {
        account.reserve_object(text.len())?;
        object::check(&text)?;
        return Ok((vec![event(&text, setting)?], false));
    }
    let mut objects = Objects::new(&text)?;
    if !objects.is_list() {
        let detail = "application/cloudevents-batch+json needs an array of events";
        return Err(Problem::new(Code::InvalidJson, detail));
    }
    let mut all = Vec::new();
    while objects.has_next() {
        most.check(all.len() + 1)?;
        let Some(raw) = objects.next_text()? else { break };
        account.reserve_object(raw.len())?;
        all.push(event(raw, setting).map_err(|problem| problem.in_item(all.len(), None))?);
    }
    Ok((all, true))
}

fn wrong(detail: impl Into<Cow<'static, str>>) -> Problem {
    Problem::new(Code::InvalidObject, detail)
}

/// Reads an event in the form of `application/cloudevents+json`. The text is a valid JSON object.
fn event(text: &str, setting: &CloudEvents) -> Result<ReceivedEvent, Problem> {
    let read: Event<'_> = serde_json::from_str(text).map_err(|error| {
        let said = error.to_string();
        let said = said.split(" at line ").next().unwrap_or_default().to_owned();
        wrong(format!("it is not a CloudEvent: {said}"))
            .hint("a CloudEvent has specversion, id, source and type, each a text")
    })?;
    if read.specversion != "1.0" {
        return Err(wrong("the specversion of a CloudEvent is 1.0").with("pointer", "/specversion"));
    }
    for (name, value) in [("id", &read.id), ("source", &read.source), ("type", &read.kind)] {
        if value.is_empty() {
            return Err(
                wrong(format!("the {name} of the CloudEvent is empty")).with("pointer", format!("/{name}"))
            );
        }
    }
    check_name(&read.source).map_err(|problem| {
        let why: Problem = problem.field("source");
        wrong(format!("the source of the CloudEvent: {}", why.detail())).with("pointer", "/source")
    })?;
    let data =
        match (read.data.map(RawValue::get), &read.data_base64) {
            (Some("null") | None, None) => None,
            (Some(data), None) => Some(data.to_owned()),
            (Some(_), Some(_)) => {
                return Err(wrong("a CloudEvent has data or data_base64, not both").with("pointer", "/data"));
            }
            (None, Some(encoded)) => {
                let decoded = STANDARD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
                Some(decoded.ok_or_else(|| {
                    wrong("data_base64 is not JSON in base64").with("pointer", "/data_base64")
                })?)
            }
        };
    if data.as_ref().is_some_and(|data| object::check(data).is_err()) {
        return Err(wrong("the data of the CloudEvent is not a JSON object").with("pointer", "/data"));
    }
    let object = match setting.store {
        StoredPart::Data => data,
        StoredPart::Event => Some(text.trim().to_owned()),
    };
    let context = read.traceparent.as_deref().and_then(TraceContext::parse);
    Ok(ReceivedEvent {
        deletes: setting.deleted.iter().any(|ending| read.kind.ends_with(ending.as_str())),
        object,
        subject: read.subject.filter(|subject| !subject.is_empty()),
        id: hashed(&[read.source.as_bytes(), read.id.as_bytes()]),
        source: read.source.into_owned(),
        trace: context.map(Trace::new),
    })
}

/// The attributes of an event that are headers, in their order. A value is percent-coded, as the HTTP binding says.
fn attributes(headers: &HeaderMap) -> Result<Vec<(String, String)>, Problem> {
    let mut attributes: Vec<(String, String)> = Vec::new();
    for (name, value) in headers {
        let Some(attribute) = name.as_str().strip_prefix(PREFIX) else { continue };
        let is_name = !attribute.is_empty() && attribute.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !is_name || attribute == "data" || attribute == "datacontenttype" {
            return Err(wrong(format!("{name} is not an attribute of a CloudEvent")));
        }
        if attributes.iter().any(|(earlier, _)| earlier == attribute) {
            return Err(wrong(format!("the header {name} occurs twice")));
        }
        let value = percent_decode(&unquoted(value.as_bytes())).decode_utf8().map(Cow::into_owned);
        let value =
            value.map_err(|_| wrong(format!("the header {name} is not UTF-8 after it is decoded")))?;
        attributes.push((attribute.to_owned(), value));
    }
    Ok(attributes)
}

/// The value of a header that may be in quotes, as older producers write it.
fn unquoted(value: &[u8]) -> Cow<'_, [u8]> {
    let Some(inside) = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")) else {
        return Cow::Borrowed(value);
    };
    let mut plain = Vec::with_capacity(inside.len());
    let mut bytes = inside.iter().copied();
    while let Some(byte) = bytes.next() {
        plain.push(if byte == b'\\' { bytes.next().unwrap_or(byte) } else { byte });
    }
    Cow::Owned(plain)
}

/// The event as one document.
fn with_data(attributes: &[(String, String)], data: &str) -> String {
    let mut text = String::from("{");
    for (name, value) in attributes {
        let value = serde_json::Value::from(value.as_str());
        let _infallible = write!(text, "\"{name}\":{value},");
    }
    text.push_str("\"datacontenttype\":\"application/json\"");
    if !data.is_empty() {
        let _infallible = write!(text, ",\"data\":{data}");
    }
    text.push('}');
    text
}
