//! The setting `push` of a queue: the endpoint that gets its keys as requests.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::duration::DurationText;
use super::range::{self, CENTURY, HOUR, SEC};
use super::strict::flag;
use super::terms::Span;

mod headers;

pub use self::headers::{PUSH_HEADER_BYTES_MAX, PushHeader};

/// Maximum length of the URL in bytes.
pub const PUSH_URL_BYTES_MAX: usize = 2_048;
/// Maximum number of names of secrets.
pub const PUSH_SECRETS_MAX: usize = 4;
/// Maximum number of waits.
const RETRIES_MAX: usize = 32;
/// Maximum number of statuses that park a key.
const STATUSES_MAX: usize = 32;
/// Maximum number of keys in a request.
const BATCH_MAX: u64 = 1_000;
/// Maximum length of the origin of a handshake, in bytes.
const ORIGIN_BYTES_MAX: usize = 253;
/// Maximum length of a secret's name.
const SECRET_NAME_BYTES_MAX: usize = 64;
/// The longest wait, in microseconds.
const RETRY_US_MAX: u64 = 7 * 24 * HOUR;
/// The waits that Standard Webhooks recommends, in seconds, without the first attempt.
const RETRY_SECONDS: [u64; 9] = [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400];

/// The endpoint that gets the keys of a queue as requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Push {
    /// The URL of the endpoint. The server's setting `push.allow` must permit it.
    #[serde(deserialize_with = "url")]
    #[schema(max_length = 2_048, examples("https://shop.example/hooks/prices"))]
    pub url: String,
    /// The form of a request: `standard` (the default), `raw` or `cloudevents`.
    #[serde(default)]
    #[schema(required = true)]
    pub format: PushFormat,
    /// What the body of a request has: `full` (the default), `known` or `thin`.
    #[serde(default)]
    #[schema(required = true)]
    pub payload: PushPayload,
    /// The names of the secrets, from the server's setting `push.secrets`, that sign a request.
    #[serde(default, deserialize_with = "secrets")]
    #[schema(required = true, max_items = 4)]
    pub secrets: Vec<String>,
    /// The longest time from the start of a request to the last byte of its answer, from 1s to 5m.
    #[serde(default = "timeout", deserialize_with = "range::span::<SEC, { 300 * SEC }, _>")]
    #[schema(required = true, value_type = Span)]
    pub timeout: DurationText,
    /// Maximum number of requests at once.
    #[serde(default = "max_in_flight", deserialize_with = "range::whole::<1, 256, _, _>")]
    #[schema(required = true, minimum = 1, maximum = 256)]
    pub max_in_flight: u64,
    /// Maximum number of keys in a request, up to 1000. With more than 1, the body of each request is a list.
    #[serde(default = "batch", deserialize_with = "range::whole::<1, BATCH_MAX, _, _>")]
    #[schema(required = true, minimum = 1, maximum = 1_000)]
    pub batch: u64,
    /// The wait of a key after each of its failures, at most 7d; the last one repeats. An empty list means the queue's `rate_limiter`.
    #[serde(default = "retry", deserialize_with = "waits")]
    #[schema(required = true, value_type = Vec<Span>, max_items = 32)]
    pub retry: Vec<DurationText>,
    /// The statuses, from 400 to 499, after which a key is parked at once.
    #[serde(default = "reject_statuses", deserialize_with = "statuses")]
    #[schema(required = true, value_type = Vec<u64>, max_items = 32)]
    pub reject_statuses: Vec<u16>,
    /// How long the endpoint may fail without a success before the queue pauses itself; 0s for any time.
    #[serde(default = "disable_after", deserialize_with = "range::span::<0, CENTURY, _>")]
    #[schema(required = true, value_type = Span)]
    pub disable_after: DurationText,
    /// The origin in whose name the server asks the endpoint for its permission (the `OPTIONS` request of CloudEvents webhooks) before it sends keys,
    /// such as `deltaq.example`. Null asks nothing.
    #[serde(default, deserialize_with = "origin")]
    #[schema(required = true, max_length = 253, examples("deltaq.example"))]
    pub handshake: Option<String>,
    /// Further headers of each request: at most 32, with 8 KiB in names and values. A value is a text, which whoever may read the queue sees, or a
    /// secret of the server.
    #[serde(default, deserialize_with = "headers::read")]
    #[schema(required = true)]
    pub headers: BTreeMap<String, PushHeader>,
    /// Whether a 202 means that the receiver settles the key later, with the lease id of the header `deltaq-lease`. The lease then lasts as
    /// long as the `lease` of the queue.
    #[serde(rename = "async", default, deserialize_with = "flag")]
    #[schema(required = true)]
    pub is_async: bool,
}

/// The form of a pushed request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PushFormat {
    /// Standard Webhooks: a type, a timestamp, and the key in `data`.
    #[default]
    Standard,
    /// The newest object is the body.
    Raw,
    /// CloudEvents 1.0 in binary mode: attributes in headers, and the newest object as the body.
    Cloudevents,
}

/// What the body of a pushed request has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PushPayload {
    /// The key with its deltas, as a pop returns it.
    #[default]
    Full,
    /// The same, with the acknowledged object.
    Known,
    /// The key, the type of its newest delta and the version.
    Thin,
}

/// What an endpoint has answered to a test request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PushTestDocument {
    /// The status; null without a whole answer.
    #[schema(required = true)]
    pub status: Option<u16>,
    /// The time from the start of the request to the last byte of its answer, in milliseconds.
    pub duration_ms: u64,
    /// The status with the first 500 bytes of the body, or why there is no answer.
    pub answer: String,
}

const fn timeout() -> DurationText {
    DurationText::from_secs(15)
}

const fn max_in_flight() -> u64 {
    16
}

const fn batch() -> u64 {
    1
}

fn retry() -> Vec<DurationText> {
    RETRY_SECONDS.map(DurationText::from_secs).into()
}

fn reject_statuses() -> Vec<u16> {
    vec![400, 422]
}

const fn disable_after() -> DurationText {
    DurationText::from_secs(5 * 24 * 3_600)
}

fn url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let expected = "a URL such as \"https://shop.example/hooks\", at most 2048 bytes of visible ASCII";
    range::text(deserializer, expected, |text| {
        let is_url = text.starts_with("http://") || text.starts_with("https://");
        let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
        (is_url && is_visible && text.len() <= PUSH_URL_BYTES_MAX).then(|| text.to_owned())
    })
}

fn origin<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let expected = format!(
        "a name such as \"deltaq.example\" of at most {ORIGIN_BYTES_MAX} visible ASCII characters, or null"
    );
    range::whole_value(deserializer, &expected, |value| {
        let origin: Option<String> = serde_json::from_value(value).ok()?;
        let is_name = |text: &String| {
            (1..=ORIGIN_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
        };
        origin.as_ref().is_none_or(is_name).then_some(origin)
    })
}

fn secrets<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let expected = format!("a list of at most {PUSH_SECRETS_MAX} different names such as [\"shop\"]");
    range::whole_value(deserializer, &expected, |value| {
        let names: Vec<String> = serde_json::from_value(value).ok()?;
        let are_names = names.iter().all(|name| is_secret_name(name));
        let differ =
            names.iter().enumerate().all(|(at, name)| !names.iter().take(at).any(|other| other == name));
        (are_names && differ && names.len() <= PUSH_SECRETS_MAX).then_some(names)
    })
}

/// Whether a secret may have this name.
#[must_use]
pub fn is_secret_name(name: &str) -> bool {
    let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
    (1..=SECRET_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_allowed)
}

fn waits<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<DurationText>, D::Error> {
    let expected = format!("a list of at most {RETRIES_MAX} durations up to 7d such as [\"5s\", \"5m\"]");
    range::whole_value(deserializer, &expected, |value| {
        let waits: Vec<DurationText> = serde_json::from_value(value).ok()?;
        let are_short = waits.iter().all(|wait| wait.as_us() <= RETRY_US_MAX);
        (are_short && waits.len() <= RETRIES_MAX).then_some(waits)
    })
}

fn statuses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u16>, D::Error> {
    let expected = format!("a list of at most {STATUSES_MAX} statuses from 400 to 499 such as [400, 422]");
    range::whole_value(deserializer, &expected, |value| {
        let statuses: Vec<u16> = serde_json::from_value(value).ok()?;
        let are_of_client = statuses.iter().all(|status| (400..500).contains(status));
        (are_of_client && statuses.len() <= STATUSES_MAX).then_some(statuses)
    })
}
