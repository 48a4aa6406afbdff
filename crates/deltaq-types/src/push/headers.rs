//! The headers that a queue adds to its requests.

use std::collections::BTreeMap;

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::is_secret_name;

/// Maximum number of headers.
const COUNT_MAX: usize = 32;
/// Maximum size of all names and values, in bytes.
pub const PUSH_HEADER_BYTES_MAX: usize = 8 << 10;
/// Names that say what the request is. The server sets them.
const OWN: [&str; 5] = ["host", "user-agent", "accept-encoding", "traceparent", "tracestate"];
/// Beginnings of such names.
const OWN_PREFIXES: [&str; 4] = ["webhook-", "deltaq-", "ce-", "content-"];
/// Names that concern one connection, or where a request ends.
const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "expect",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];
/// Names whose values are credentials. Settings are shown to all who may read the queue, so the values are secrets of the server.
const CREDENTIALS: [&str; 2] = ["authorization", "cookie"];

/// The value of a header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged, deny_unknown_fields)]
pub enum PushHeader {
    /// A text.
    Text(String),
    /// The first line of a secret of the server.
    Secret {
        /// The name of the secret, from the server's setting `push.secrets`.
        secret: String,
        /// The text before the secret, such as `Bearer `.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        prefix: String,
    },
}

/// Why a value that is neither of the two is refused.
const EXPECTED: &str = "invalid value, expected names and values of headers such as {\"x-env\":\"prod\"} or {\"authorization\":{\"secret\":\"shop\",\"prefix\":\"Bearer \"}}";

/// The headers, with lowercase names.
pub(super) fn read<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, PushHeader>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let given: Option<BTreeMap<String, PushHeader>> = serde_json::from_value(value).ok();
    let given = given.ok_or_else(|| de::Error::custom(EXPECTED))?;
    checked(given).map_err(de::Error::custom)
}

fn checked(given: BTreeMap<String, PushHeader>) -> Result<BTreeMap<String, PushHeader>, String> {
    if given.len() > COUNT_MAX {
        return Err(format!("{} headers, expected at most {COUNT_MAX}", given.len()));
    }
    let bytes: usize = given.iter().map(|(name, value)| name.len() + value.text().len()).sum();
    if bytes > PUSH_HEADER_BYTES_MAX {
        return Err(format!(
            "the names and values have {bytes} bytes, expected at most {PUSH_HEADER_BYTES_MAX}"
        ));
    }
    let mut headers = BTreeMap::new();
    for (given_name, value) in given {
        let name = given_name.to_ascii_lowercase();
        if let Some(why) = wrong_name(&name).or_else(|| wrong_value(&name, &value)) {
            return Err(format!("{given_name:?} {why}"));
        }
        if headers.insert(name, value).is_some() {
            return Err(format!("{given_name:?} is there twice; upper and lower case are one name"));
        }
    }
    Ok(headers)
}

impl PushHeader {
    /// The part that whoever may read the queue sees.
    fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Secret { prefix: text, .. } => text,
        }
    }
}

/// Why a header may not have this value.
fn wrong_value(name: &str, value: &PushHeader) -> Option<&'static str> {
    let text = value.text();
    let is_visible = text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    match value {
        PushHeader::Text(_) if CREDENTIALS.contains(&name) => Some(
            "is a credential, and settings are shown to all who may read the queue; its value is a secret of the server, such as \
             {\"secret\":\"shop\",\"prefix\":\"Bearer \"}",
        ),
        PushHeader::Text(_) if !is_visible || text.trim() != text => {
            Some("has a wrong value: it may have visible ASCII characters, and spaces between them")
        }
        PushHeader::Secret { .. } if !is_visible || text.trim_start() != text => {
            Some("has a wrong prefix: it may have visible ASCII characters, and spaces behind them")
        }
        PushHeader::Secret { secret, .. } if !is_secret_name(secret) => {
            Some("has a wrong name of a secret: it may have up to 64 characters of a-z, 0-9, \"_\" and \"-\"")
        }
        PushHeader::Text(_) | PushHeader::Secret { .. } => None,
    }
}

/// Why a header may not have this name.
fn wrong_name(name: &str) -> Option<&'static str> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Some("is no name of a header");
    }
    if OWN.contains(&name) || OWN_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
        return Some("is set by the server");
    }
    if HOP_BY_HOP.contains(&name) {
        return Some("concerns the connection, which is the server's");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> PushHeader {
        PushHeader::Text(text.to_owned())
    }

    fn checked_one(name: &str, value: &str) -> Result<BTreeMap<String, PushHeader>, String> {
        checked([(name.to_owned(), text(value))].into())
    }

    fn parsed(json: &str) -> Result<BTreeMap<String, PushHeader>, serde_json::Error> {
        read(&mut serde_json::Deserializer::from_str(json))
    }

    #[test]
    fn a_credential_is_a_secret_of_the_server() {
        for good in [
            r#"{"Authorization":{"secret":"shop","prefix":"Bearer "}}"#,
            r#"{"cookie":{"secret":"shop"}}"#,
            r#"{"x-api-key":{"secret":"shop"}}"#,
        ] {
            parsed(good).expect(good);
        }
        for bad in [
            r#"{"authorization":"Bearer x"}"#,
            r#"{"authorization":{"secret":"Shop"}}"#,
            r#"{"authorization":{"secret":""}}"#,
            r#"{"authorization":{"prefix":"Bearer "}}"#,
            r#"{"authorization":{"secret":"shop","prefix":"a\r\nb"}}"#,
            r#"{"authorization":{"secret":"shop","suffix":"x"}}"#,
            r#"{"authorization":["shop"]}"#,
            r#"{"webhook-id":{"secret":"shop"}}"#,
            r#"{"proxy-authorization":{"secret":"shop"}}"#,
            r#"{"x-a":1}"#,
        ] {
            parsed(bad).expect_err(bad);
        }
    }

    #[test]
    fn names_are_lowercase_and_values_are_kept() {
        let headers = checked_one("X-Env", "prod (a, b); c=\"d\"").expect("a header");
        assert_eq!(headers, [("x-env".to_owned(), text("prod (a, b); c=\"d\""))].into());
        assert!(checked_one("x-empty", "").is_ok());
    }

    #[test]
    fn what_says_how_and_to_whom_a_request_is_sent_is_the_servers() {
        for name in [
            "Host",
            "webhook-id",
            "Webhook-Signature",
            "deltaq-key",
            "ce-id",
            "Content-Type",
            "content-length",
            "Transfer-Encoding",
            "TE",
            "Connection",
            "upgrade",
            "expect",
            "traceparent",
            "Authorization",
            "cookie",
            "Proxy-Authorization",
            "",
            "a b",
            "a:b",
            "a\r\nb",
            "\u{e9}",
        ] {
            let why = checked_one(name, "x").expect_err(name);
            assert!(why.contains(&format!("{name:?}")), "{why}");
        }
        for value in ["a\r\nhost: b", "a\nb", "a\0", " a", "a ", "a\t", "\u{e9}"] {
            assert!(checked_one("x-a", value).is_err(), "{value:?}");
        }
    }

    #[test]
    fn headers_are_bounded() {
        let many = |count: usize, length: usize| {
            (0..count).map(|number| (format!("x-{number:02}"), text(&"v".repeat(length)))).collect()
        };
        assert!(checked(many(32, 252)).is_ok());
        assert!(checked(many(32, 253)).expect_err("too large").contains("8192"));
        assert!(checked(many(33, 1)).expect_err("too many").contains("32"));
        let twice = [("X-A".to_owned(), text("1")), ("x-a".to_owned(), text("2"))];
        assert!(checked(twice.into()).expect_err("one name").contains("twice"));
    }
}
