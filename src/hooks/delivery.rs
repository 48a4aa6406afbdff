//! What a delivery with a valid signature changes.

use axum::http::HeaderMap;
use deltaq_engine::deliveries::DeliveryId;
use deltaq_engine::delta::DeltaKind;
use deltaq_engine::object;
use deltaq_engine::pointer::Pointer;
use deltaq_types::{DeliveryReason, Hook, HookCondition, HookId, HookScheme};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Maximum number of headers that are kept with a delivery.
const HEADERS_MAX: usize = 32;
/// Maximum length of the value of such a header, in bytes.
const HEADER_BYTES_MAX: usize = 1_024;
/// The beginnings of the names of headers that say what a delivery is.
const KEPT_PREFIXES: [&str; 8] =
    ["x-github-", "x-gitlab-", "x-shopify-", "x-slack-", "stripe-", "webhook-", "svix-", "ce-"];
/// Headers that are credentials or signatures.
const CREDENTIALS: [&str; 7] = [
    "webhook-signature",
    "svix-signature",
    "x-hub-signature-256",
    "stripe-signature",
    "x-shopify-hmac-sha256",
    "x-slack-signature",
    "x-gitlab-token",
];

/// What a delivery is.
#[derive(Debug, PartialEq)]
pub enum Reading {
    /// It changes a key.
    Change(Change),
    /// The vendor asks whether the URL is right. The answer has this challenge.
    Challenge(String),
    /// It can't be applied.
    Unapplied(Unapplied),
}

/// The change of a key.
#[derive(Debug, PartialEq)]
pub struct Change {
    /// `Updated` or `Deleted`.
    pub kind: DeltaKind,
    /// The object, as it was sent.
    pub object: String,
}

/// Why a delivery can't be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unapplied {
    /// The reason as a word.
    pub reason: DeliveryReason,
    /// The reason as a sentence.
    pub detail: String,
}

/// Reads a delivery. `body` is `None` if it is not UTF-8.
#[must_use]
pub fn read(hook: &Hook, headers: &HeaderMap, body: Option<&str>) -> Reading {
    let unapplied = |reason, detail: String| Reading::Unapplied(Unapplied { reason, detail });
    let Some(body) = body else {
        return unapplied(DeliveryReason::InvalidJson, "the body is not UTF-8".to_owned());
    };
    if let Err(error) = object::check(body) {
        return unapplied(DeliveryReason::InvalidJson, format!("the body is not a JSON object: {error}"));
    }
    if hook.scheme == HookScheme::Slack
        && text_at(body, "/type").as_deref() == Some("url_verification")
        && let Some(challenge) = text_at(body, "/challenge")
    {
        return Reading::Challenge(challenge);
    }
    if let Some(unmet) = hook.only.iter().find(|condition| !meets(condition, headers, body)) {
        let place = unmet.header.as_ref().or(unmet.pointer.as_ref()).map_or("", String::as_str);
        let detail = format!("the value of {place} is not one of hook.only");
        return unapplied(DeliveryReason::Filtered, detail);
    }
    let Some(object) = value_at(body, &hook.object).filter(|value| value.starts_with('{')) else {
        return unapplied(DeliveryReason::NoObject, format!("the body has no object at {:?}", hook.object));
    };
    let is_deletion = hook.deleted.as_ref().is_some_and(|condition| meets(condition, headers, body));
    let kind = if is_deletion { DeltaKind::Deleted } else { DeltaKind::Updated };
    Reading::Change(Change { kind, object: object.to_owned() })
}

/// The id of a delivery; `None` if it has none.
#[must_use]
pub fn id_of(hook: &Hook, headers: &HeaderMap, body: Option<&str>) -> Option<DeliveryId> {
    let text = match hook.id_place()? {
        HookId::Header(name) => {
            let other = headers.get("svix-id").filter(|_| name == "webhook-id");
            headers.get(name).or(other)?.to_str().ok()?.to_owned()
        }
        HookId::Pointer(pointer) => {
            // A boolean would make all deliveries repeats of one.
            let is_boolean = value_at(body?, pointer).is_some_and(|value| value.starts_with(['t', 'f']));
            text_at(body?, pointer).filter(|_| !is_boolean)?
        }
    };
    (!text.is_empty()).then(|| hashed(&[text.as_bytes()]))
}

/// The id of a delivery with these parts.
#[must_use]
pub fn hashed(parts: &[&[u8]]) -> DeliveryId {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let all = hash.finalize();
    DeliveryId::new(all.iter().take(16).fold(0, |number, byte| number << 8 | u128::from(*byte)))
}

/// The headers that are kept with a delivery: those that the hook names, and others that say what it is, without credentials. The first value
/// of a header counts, as in the conditions.
#[must_use]
pub fn kept_headers(hook: &Hook, headers: &HeaderMap) -> Vec<(String, String)> {
    let conditions =
        hook.only.iter().chain(&hook.deleted).filter_map(|condition| condition.header.as_deref());
    let id = hook.id_place().and_then(|place| match place {
        HookId::Header(name) => Some(name),
        HookId::Pointer(_) => None,
    });
    let named: Vec<&str> = conditions.chain(id).chain(["content-type", "traceparent"]).collect();
    let signature = hook.signature.as_ref().map(|signature| signature.header.as_str());
    let is_kept = |name: &str| {
        (named.contains(&name) || KEPT_PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
            && !CREDENTIALS.contains(&name)
            && signature != Some(name)
    };
    let texts = headers.keys().filter(|name| is_kept(name.as_str()));
    let texts = texts.filter_map(|name| Some((name.as_str(), headers.get(name)?.to_str().ok()?)));
    let (mut kept, others): (Vec<_>, Vec<_>) = texts.partition(|(name, _)| named.contains(name));
    let room = HEADERS_MAX.saturating_sub(kept.len());
    kept.extend(others.into_iter().filter(|(_, value)| value.len() <= HEADER_BYTES_MAX).take(room));
    kept.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Whether a delivery meets a condition.
fn meets(condition: &HookCondition, headers: &HeaderMap, body: &str) -> bool {
    let has = |value: &str| condition.values.iter().any(|one| one == value);
    if let Some(name) = &condition.header {
        return headers.get(name).and_then(|value| value.to_str().ok()).is_some_and(has);
    }
    condition.pointer.as_ref().and_then(|pointer| text_at(body, pointer)).is_some_and(|value| has(&value))
}

/// The JSON text of the value at a pointer into a valid JSON text.
fn value_at<'j>(text: &'j str, pointer: &str) -> Option<&'j str> {
    if pointer.is_empty() {
        return Some(text.trim());
    }
    Pointer::parse(pointer, false).ok()?.text_in(text)
}

/// The value at a pointer: a string without quotes and escapes, a number or a boolean as JSON. `None` for other values.
fn text_at(text: &str, pointer: &str) -> Option<String> {
    let value = value_at(text, pointer)?;
    match value.as_bytes().first()? {
        b'"' => match serde_json::from_str(value) {
            Ok(Value::String(text)) => Some(text),
            _ => None,
        },
        b'{' | b'[' | b'n' => None,
        _ => Some(value.to_owned()),
    }
}

#[cfg(test)]
mod tests;
