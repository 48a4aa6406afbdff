//! The headers that a queue adds to its requests.

use std::collections::BTreeMap;

use serde::Deserialize as _;
use serde::de::{self, Deserializer};
use serde_json::Value;

/// Maximum number of headers.
const COUNT_MAX: usize = 32;
/// Maximum size of all names and values, in bytes.
const BYTES_MAX: usize = 8 << 10;
/// Names that say what the request is. The server sets them.
const OWN: [&str; 5] = ["host", "user-agent", "accept-encoding", "traceparent", "tracestate"];
/// Beginnings of such names.
const OWN_PREFIXES: [&str; 4] = ["webhook-", "deltaq-", "ce-", "content-"];
/// Names that concern one connection, or where a request ends.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "expect",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];
/// Names whose values are credentials. Settings are shown to all who may read the queue.
const CREDENTIALS: [&str; 3] = ["authorization", "proxy-authorization", "cookie"];

/// The headers, with lowercase names.
pub(super) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let given: Option<BTreeMap<String, String>> = serde_json::from_value(value).ok();
    let given = given.ok_or_else(|| {
        de::Error::custom(r#"invalid value, expected names and values of headers such as {"x-env":"prod"}"#)
    })?;
    checked(given).map_err(de::Error::custom)
}

fn checked(given: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, String> {
    if given.len() > COUNT_MAX {
        return Err(format!("{} headers, expected at most {COUNT_MAX}", given.len()));
    }
    let bytes: usize = given.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > BYTES_MAX {
        return Err(format!("the names and values have {bytes} bytes, expected at most {BYTES_MAX}"));
    }
    let mut headers = BTreeMap::new();
    for (given_name, value) in given {
        let name = given_name.to_ascii_lowercase();
        if let Some(why) = wrong_name(&name) {
            return Err(format!("{given_name:?} {why}"));
        }
        if !is_value(&value) {
            return Err(format!(
                "the value of {given_name:?} may have visible ASCII characters, and spaces between them"
            ));
        }
        if headers.insert(name, value).is_some() {
            return Err(format!("{given_name:?} is there twice; upper and lower case are one name"));
        }
    }
    Ok(headers)
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
    CREDENTIALS.contains(&name).then_some(
        "is a credential, and settings are shown to all who may read the queue; the secrets sign the requests",
    )
}

fn is_value(value: &str) -> bool {
    value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) && value.trim() == value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked_one(name: &str, value: &str) -> Result<BTreeMap<String, String>, String> {
        checked([(name.to_owned(), value.to_owned())].into())
    }

    #[test]
    fn names_are_lowercase_and_values_are_kept() {
        let headers = checked_one("X-Env", "prod (a, b); c=\"d\"").expect("a header");
        assert_eq!(headers, [("x-env".to_owned(), "prod (a, b); c=\"d\"".to_owned())].into());
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
            (0..count).map(|number| (format!("x-{number:02}"), "v".repeat(length))).collect()
        };
        assert!(checked(many(32, 252)).is_ok());
        assert!(checked(many(32, 253)).expect_err("too large").contains("8192"));
        assert!(checked(many(33, 1)).expect_err("too many").contains("32"));
        let twice = [("X-A".to_owned(), "1".to_owned()), ("x-a".to_owned(), "2".to_owned())];
        assert!(checked(twice.into()).expect_err("one name").contains("twice"));
    }
}
