//! The setting `hook` of a queue: the webhooks of a vendor that the queue takes as changes.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::Value;
use utoipa::ToSchema;

use super::DeliveryReason;
use super::push::is_secret_name;
use super::range::{self, WHOLE_MAX};
use super::strict::flag;
use super::terms::Count;
use super::timestamp::Timestamp;

/// Maximum number of names of secrets.
pub const HOOK_SECRETS_MAX: usize = 4;
/// Maximum number of conditions of `only`.
const CONDITIONS_MAX: usize = 8;
/// Maximum number of values of a condition.
const VALUES_MAX: usize = 64;
/// Maximum length of a value, a pointer and the name of a header, in bytes.
const TEXT_BYTES_MAX: usize = 256;
/// The beginning of an `id` that is in a header.
const HEADER: &str = "header:";

/// The webhooks that a queue takes as changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Hook {
    /// How the vendor signs a delivery.
    pub scheme: HookScheme,
    /// The names of the secrets, from the server's setting `hooks.secrets`, of which one has signed a delivery.
    #[serde(default, deserialize_with = "secrets")]
    #[schema(required = true, max_items = 4)]
    pub secrets: Vec<String>,
    /// Where the signature is; only with the scheme `hmac`.
    #[serde(default, deserialize_with = "range::optional_table")]
    #[schema(required = true)]
    pub signature: Option<HookSignature>,
    /// The JSON pointer to the stored object in the body of a delivery; `""` (the default) for the whole body.
    #[serde(default, deserialize_with = "pointer")]
    #[schema(required = true, max_length = 256, examples("/issue"))]
    pub object: String,
    /// Where a delivery has its id: `header:NAME`, or a JSON pointer into the body. Null for the place that the vendor uses.
    #[serde(default, deserialize_with = "id")]
    #[schema(required = true, max_length = 256, examples("header:x-delivery"))]
    pub id: Option<String>,
    /// A delivery is applied only if it meets all of these conditions.
    #[serde(default, deserialize_with = "conditions")]
    #[schema(required = true, max_items = 8)]
    pub only: Vec<HookCondition>,
    /// A delivery that meets this condition deletes its key; null if none does.
    #[serde(default, deserialize_with = "range::optional_table")]
    #[schema(required = true)]
    pub deleted: Option<HookCondition>,
    /// The source in whose name deliveries are applied, such as that of a list of the same objects; null for none.
    #[serde(default, deserialize_with = "source")]
    #[schema(required = true, min_length = 1, max_length = 256)]
    pub source: Option<String>,
    /// Whether a delivery that can't be applied gets 422; otherwise 202, and it is kept.
    #[serde(default, deserialize_with = "flag")]
    #[schema(required = true)]
    pub refuse: bool,
}

/// How a vendor signs its deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HookScheme {
    /// Standard Webhooks.
    Standard,
    /// `x-hub-signature-256`.
    Github,
    /// `stripe-signature`.
    Stripe,
    /// `x-shopify-hmac-sha256`.
    Shopify,
    /// `x-slack-signature`.
    Slack,
    /// The secret itself, in `x-gitlab-token`.
    Gitlab,
    /// The HMAC-SHA256 of the body, in the header that `signature` names.
    Hmac,
}

/// Where a delivery of the scheme `hmac` has its signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HookSignature {
    /// The header with the signature.
    #[serde(deserialize_with = "header")]
    #[schema(max_length = 256, examples("x-signature"))]
    pub header: String,
    /// The text before the signature in the header.
    #[serde(default, deserialize_with = "prefix")]
    #[schema(required = true, max_length = 256, examples("sha256="))]
    pub prefix: String,
    /// How the signature is written.
    #[serde(default)]
    #[schema(required = true)]
    pub encoding: SignatureEncoding,
    /// The header with the time of the delivery, in seconds since 1970; null if it has none. With a time, `TIME.BODY` is what is signed.
    #[serde(default, deserialize_with = "optional_header")]
    #[schema(required = true, max_length = 256)]
    pub timestamp_header: Option<String>,
}

/// How a signature is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SignatureEncoding {
    /// Hexadecimal digits.
    #[default]
    Hex,
    /// Base64.
    Base64,
}

/// A condition of a delivery: a header or a value of the body is one of `values`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HookCondition {
    /// The name of the header; either this or `pointer`.
    #[serde(default, deserialize_with = "optional_header")]
    #[schema(required = true, max_length = 256, examples("x-github-event"))]
    pub header: Option<String>,
    /// The JSON pointer into the body; either this or `header`.
    #[serde(default, deserialize_with = "optional_pointer")]
    #[schema(required = true, max_length = 256, examples("/action"))]
    pub pointer: Option<String>,
    /// The values. A number or a boolean of the body is compared as its JSON text.
    #[serde(deserialize_with = "values")]
    #[schema(min_items = 1, max_items = 64)]
    pub values: Vec<String>,
}

impl HookScheme {
    /// The scheme in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Github => "github",
            Self::Stripe => "stripe",
            Self::Shopify => "shopify",
            Self::Slack => "slack",
            Self::Gitlab => "gitlab",
            Self::Hmac => "hmac",
        }
    }

    /// Where deliveries of the vendor have their id.
    #[must_use]
    pub const fn default_id(self) -> Option<&'static str> {
        match self {
            Self::Standard => Some("header:webhook-id"),
            Self::Github => Some("header:x-github-delivery"),
            Self::Stripe => Some("/id"),
            Self::Shopify => Some("header:x-shopify-webhook-id"),
            Self::Slack => Some("/event_id"),
            Self::Gitlab => Some("header:idempotency-key"),
            Self::Hmac => None,
        }
    }
}

/// Where a delivery has its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookId<'h> {
    /// In the header of this name.
    Header(&'h str),
    /// At this pointer into the body.
    Pointer(&'h str),
}

impl Hook {
    /// Where a delivery has its id; `None` if it has none.
    #[must_use]
    pub fn id_place(&self) -> Option<HookId<'_>> {
        let text = self.id.as_deref().or(self.scheme.default_id())?;
        Some(text.strip_prefix(HEADER).map_or(HookId::Pointer(text), HookId::Header))
    }

    /// What is wrong between its members: the name of a member, and why.
    #[must_use]
    pub fn fault(&self) -> Option<(&'static str, &'static str)> {
        let is_one = |condition: &HookCondition| condition.header.is_some() != condition.pointer.is_some();
        if !self.only.iter().all(is_one) {
            return Some(("only", "each condition has a header or a pointer, and not both"));
        }
        if !self.deleted.iter().all(is_one) {
            return Some(("deleted", "it has a header or a pointer, and not both"));
        }
        if self.secrets.is_empty() {
            return Some((
                "secrets",
                "a delivery needs a secret, because its signature is its only credential",
            ));
        }
        match (self.scheme, &self.signature) {
            (HookScheme::Hmac, None) => {
                Some(("signature", "the scheme hmac needs it: {\"header\":\"x-signature\"}"))
            }
            (scheme, Some(_)) if scheme != HookScheme::Hmac => {
                Some(("signature", "it belongs to the scheme hmac; the other schemes know their header"))
            }
            (_, Some(signature)) if signature.timestamp_header.as_ref() == Some(&signature.header) => {
                Some(("signature", "timestamp_header is the header of the signature itself"))
            }
            _ => None,
        }
    }
}

/// The answer to a delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HookAnswer {
    /// Whether the delivery was applied, or had been applied before.
    pub accepted: bool,
    /// Whether a delivery with the same id had been applied.
    pub duplicate: bool,
    /// Whether the object is not newer than the newest state of its key.
    pub stale: bool,
    /// Why the delivery was not applied; null if it was.
    #[schema(required = true)]
    pub reason: Option<DeliveryReason>,
    /// The reason in words.
    #[schema(required = true)]
    pub detail: Option<String>,
    /// The version of the queue after the delivery; if it is kept, its number; 0 if it was left out and there was no room to keep it.
    pub resource_version: u64,
}

/// A delivery that is kept because it could not be applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeliveryDocument {
    /// The number of the delivery.
    pub number: u64,
    /// When it arrived.
    pub received_at: Timestamp,
    /// Why it could not be applied.
    pub reason: DeliveryReason,
    /// The reason in words.
    pub detail: String,
    /// The size of its body in bytes.
    pub bytes: u64,
    /// Its headers, without credentials; null in a list.
    #[schema(required = true)]
    pub headers: Option<BTreeMap<String, String>>,
    /// Its body; null in a list.
    #[schema(required = true)]
    pub body: Option<String>,
}

/// The kept deliveries of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeliveryList {
    /// The deliveries, the newest first.
    pub deliveries: Vec<DeliveryDocument>,
}

/// The kept deliveries that a call concerns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeliveriesBody {
    /// The numbers of the deliveries, at most 1,000; either this or `all`.
    #[serde(default, deserialize_with = "numbers")]
    #[schema(value_type = Option<Vec<Count>>, max_items = 1000)]
    pub numbers: Option<Vec<u64>>,
    /// Whether all kept deliveries are meant.
    #[serde(default, deserialize_with = "flag")]
    #[schema(value_type = Option<bool>)]
    pub all: bool,
}

/// What became of kept deliveries that were tried again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Redelivered {
    /// Deliveries that were applied, or had been applied, and are not kept any more.
    pub applied: u64,
    /// Deliveries that could not be applied again.
    pub kept: u64,
    /// Why the last of those could not be applied; null if all could.
    #[schema(required = true)]
    pub detail: Option<String>,
}

/// The number of deliveries that a call has discarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeliveriesCount {
    /// The number.
    pub deliveries: u64,
}

fn numbers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u64>>, D::Error> {
    #[derive(Deserialize)]
    struct Number(#[serde(deserialize_with = "range::whole::<0, WHOLE_MAX, _, _>")] u64);

    let numbers = Option::<Vec<Number>>::deserialize(deserializer)?;
    Ok(numbers.map(|numbers| numbers.into_iter().map(|Number(number)| number).collect()))
}

fn secrets<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let expected = format!("a list of at most {HOOK_SECRETS_MAX} different names such as [\"github\"]");
    range::whole_value(deserializer, &expected, |value| {
        let names: Vec<String> = serde_json::from_value(value).ok()?;
        let are_names = names.iter().all(|name| is_secret_name(name));
        let differ =
            names.iter().enumerate().all(|(at, name)| !names.iter().take(at).any(|other| other == name));
        (are_names && differ && names.len() <= HOOK_SECRETS_MAX).then_some(names)
    })
}

fn conditions<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<HookCondition>, D::Error> {
    let conditions = Vec::<HookCondition>::deserialize(deserializer)?;
    if conditions.len() > CONDITIONS_MAX {
        return Err(de::Error::custom(format!(
            "{} conditions, expected at most {CONDITIONS_MAX}",
            conditions.len()
        )));
    }
    Ok(conditions)
}

fn values<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let expected = format!(
        "a list of 1 to {VALUES_MAX} texts such as [\"opened\"], each at most {TEXT_BYTES_MAX} bytes long"
    );
    range::whole_value(deserializer, &expected, |value| {
        let values: Vec<String> = serde_json::from_value(value).ok()?;
        let are_short = values.iter().all(|value| value.len() <= TEXT_BYTES_MAX);
        (are_short && (1..=VALUES_MAX).contains(&values.len())).then_some(values)
    })
}

/// Whether the text is a JSON pointer, or empty for the whole body.
fn is_place(text: &str) -> bool {
    text.len() <= TEXT_BYTES_MAX && (text.is_empty() || range::is_pointer(text))
}

/// Headers that are credentials, or that belong to the connection or to the browser. One node may not pass them on to another.
const NOT_OF_HOOK: [&str; 8] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "host",
    "origin",
    "referer",
    "connection",
    "content-length",
];

fn is_header(text: &str) -> bool {
    if NOT_OF_HOOK.iter().any(|name| text.eq_ignore_ascii_case(name)) {
        return false;
    }
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    (1..=TEXT_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_token)
}

fn pointer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    range::text(deserializer, "a JSON pointer such as \"/issue\", or \"\" for the whole body", |text| {
        is_place(text).then(|| text.to_owned())
    })
}

fn optional_pointer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    range::whole_value(deserializer, "a JSON pointer such as \"/action\"", |value| match value {
        Value::Null => Some(None),
        Value::String(text) => (is_place(&text) && !text.is_empty()).then_some(Some(text)),
        _ => None,
    })
}

fn header<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    range::text(deserializer, HEADER_EXPECTED, |text| is_header(text).then(|| text.to_ascii_lowercase()))
}

fn optional_header<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    range::whole_value(deserializer, HEADER_EXPECTED, |value| match value {
        Value::Null => Some(None),
        Value::String(text) => is_header(&text).then(|| Some(text.to_ascii_lowercase())),
        _ => None,
    })
}

/// What a member with the name of a header takes.
const HEADER_EXPECTED: &str = "the name of a header such as \"x-signature\"";

fn prefix<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    range::text(deserializer, "visible ASCII characters such as \"sha256=\"", |text| {
        let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
        (is_visible && text.len() <= TEXT_BYTES_MAX).then(|| text.to_owned())
    })
}

fn source<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let expected = "the name of a source, 1 to 256 bytes long and without control characters";
    range::whole_value(deserializer, expected, |value| match value {
        Value::Null => Some(None),
        Value::String(text) => {
            let is_name = (1..=TEXT_BYTES_MAX).contains(&text.len()) && !text.contains(char::is_control);
            is_name.then_some(Some(text))
        }
        _ => None,
    })
}

fn id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    range::whole_value(deserializer, "\"header:x-delivery\" or a JSON pointer such as \"/id\"", |value| {
        match value {
            Value::Null => Some(None),
            Value::String(text) => match text.strip_prefix(HEADER) {
                Some(name) => is_header(name).then(|| Some(format!("{HEADER}{}", name.to_ascii_lowercase()))),
                None => (is_place(&text) && !text.is_empty()).then_some(Some(text)),
            },
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Hook, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_hook_names_where_its_vendor_puts_things() {
        let hook = read(r#"{"scheme":"github","secrets":["gh"]}"#).expect("a hook");
        assert_eq!(hook.id_place(), Some(HookId::Header("x-github-delivery")));
        assert_eq!((hook.object.as_str(), hook.fault()), ("", None));
        let hook = read(r#"{"scheme":"stripe","secrets":["s"],"object":"/data/object"}"#).expect("a hook");
        assert_eq!(hook.id_place(), Some(HookId::Pointer("/id")));
        let hook =
            read(r#"{"scheme":"hmac","secrets":["s"],"signature":{"header":"X-Sig"},"id":"header:X-Id"}"#);
        let hook = hook.expect("a hook");
        assert_eq!(hook.id_place(), Some(HookId::Header("x-id")));
        assert_eq!(hook.signature.expect("it is given").header, "x-sig");
    }

    #[test]
    fn wrong_members_are_named() {
        for text in [
            r#"{"scheme":"gitea","secrets":["a"]}"#,
            r#"{"scheme":"github","secrets":["A b"]}"#,
            r#"{"scheme":"github","secrets":["a","a"]}"#,
            r#"{"scheme":"github","secrets":["a"],"object":"issue"}"#,
            r#"{"scheme":"github","secrets":["a"],"id":"x-id"}"#,
            r#"{"scheme":"github","secrets":["a"],"id":"header:a b"}"#,
            r#"{"scheme":"github","secrets":["a"],"only":[{"header":"x","values":[]}]}"#,
            r#"{"scheme":"github","secrets":["a"],"only":[{"header":"x","values":[1]}]}"#,
            r#"{"scheme":"github","secrets":["a"],"later":1}"#,
            r#"{"scheme":"hmac","secrets":["a"],"signature":{"header":"Authorization"}}"#,
            r#"{"scheme":"github","secrets":["a"],"id":"header:cookie"}"#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        for (text, member) in [
            (r#"{"scheme":"github"}"#, "secrets"),
            (r#"{"scheme":"github","secrets":["a"],"signature":{"header":"x"}}"#, "signature"),
            (r#"{"scheme":"hmac","secrets":["a"]}"#, "signature"),
            (
                r#"{"scheme":"hmac","secrets":["a"],"signature":{"header":"x","timestamp_header":"X"}}"#,
                "signature",
            ),
            (r#"{"scheme":"github","secrets":["a"],"only":[{"values":["a"]}]}"#, "only"),
            (
                r#"{"scheme":"github","secrets":["a"],"deleted":{"header":"a","pointer":"/a","values":["a"]}}"#,
                "deleted",
            ),
        ] {
            assert_eq!(read(text).expect(text).fault().expect(text).0, member);
        }
    }
}
