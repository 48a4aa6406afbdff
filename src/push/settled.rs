//! What the body of an answer says about single keys: the member `settled`, or `batchItemFailures` as AWS Lambda has it.

use std::time::Duration;

use deltaq_types::duration::DurationText;
use serde::Deserialize;
use serde_json::Value;

use super::sender::excerpt;

/// The longest wait that an answer can name.
const DELAY_MAX: Duration = Duration::from_hours(7 * 24);

/// What an answer says about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reported {
    /// The key is done.
    Ack,
    /// The key has failed.
    Nack {
        /// The wait.
        delay: Option<Duration>,
        /// Why.
        error: Option<String>,
    },
    /// The key never succeeds.
    Reject {
        /// Why.
        error: Option<String>,
    },
}

#[derive(Deserialize)]
struct Settled {
    key: String,
    #[serde(rename = "as")]
    how: How,
    #[serde(default)]
    delay: Option<DurationText>,
    #[serde(default)]
    error: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum How {
    Ack,
    Nack,
    Reject,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Failure {
    item_identifier: String,
}

/// What the body of a successful answer says about the key that was sent. A body that says nothing acknowledges it.
///
/// # Errors
/// What is malformed. A malformed answer must not acknowledge a key.
pub(super) fn read(body: &[u8], key: &str) -> Result<Reported, String> {
    let Ok(Value::Object(mut members)) = serde_json::from_slice(body) else { return Ok(Reported::Ack) };
    let mut member = |name| members.remove(name).filter(|value| !value.is_null());
    match (member("settled"), member("batchItemFailures")) {
        (None, None) => Ok(Reported::Ack),
        (Some(settled), None) => of_settled(settled, key),
        (None, Some(failures)) => of_failures(failures, key),
        (Some(_), Some(_)) => Err("it has settled and batchItemFailures; one of them is enough".to_owned()),
    }
}

fn of_settled(value: Value, key: &str) -> Result<Reported, String> {
    let list: Vec<Settled> =
        serde_json::from_value(value).map_err(|error| format!("settled is malformed: {error}"))?;
    let mut reported = None;
    for one in list {
        known(&one.key, key)?;
        if one.how != How::Nack && one.delay.is_some() {
            return Err("settled is malformed: delay goes with nack".to_owned());
        }
        let delay = one.delay.map(|delay| delay.get().min(DELAY_MAX));
        let error = one.error.map(|error| excerpt(error.as_bytes()));
        let one = match one.how {
            How::Ack => Reported::Ack,
            How::Nack => Reported::Nack { delay, error },
            How::Reject => Reported::Reject { error },
        };
        if reported.replace(one).is_some() {
            return Err("settled names the key twice".to_owned());
        }
    }
    Ok(reported.unwrap_or(Reported::Ack))
}

fn of_failures(value: Value, key: &str) -> Result<Reported, String> {
    let list: Vec<Failure> =
        serde_json::from_value(value).map_err(|error| format!("batchItemFailures is malformed: {error}"))?;
    for failure in &list {
        known(&failure.item_identifier, key)?;
    }
    Ok(if list.is_empty() { Reported::Ack } else { Reported::Nack { delay: None, error: None } })
}

fn known(named: &str, key: &str) -> Result<(), String> {
    if named == key { Ok(()) } else { Err("it names a key that was not sent".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_says_what_happens_to_the_key() {
        let nack = |seconds: Option<u64>, error: Option<&str>| Reported::Nack {
            delay: seconds.map(Duration::from_secs),
            error: error.map(str::to_owned),
        };
        for (body, reported) in [
            ("ok", Reported::Ack),
            ("[]", Reported::Ack),
            ("{}", Reported::Ack),
            (r#"{"settled":null,"batchItemFailures":null}"#, Reported::Ack),
            (r#"{"settled":[]}"#, Reported::Ack),
            (r#"{"settled":[{"key":"a","as":"ack","more":1}]}"#, Reported::Ack),
            (r#"{"settled":[{"key":"a","as":"nack"}]}"#, nack(None, None)),
            (
                r#"{"settled":[{"key":"a","as":"nack","delay":"5s","error":"late"}]}"#,
                nack(Some(5), Some("late")),
            ),
            (r#"{"settled":[{"key":"a","as":"nack","delay":"900d"}]}"#, nack(Some(7 * 86_400), None)),
            (r#"{"settled":[{"key":"a","as":"reject"}]}"#, Reported::Reject { error: None }),
            (r#"{"batchItemFailures":[]}"#, Reported::Ack),
            (r#"{"batchItemFailures":[{"itemIdentifier":"a"}]}"#, nack(None, None)),
        ] {
            assert_eq!(read(body.as_bytes(), "a"), Ok(reported), "{body}");
        }
    }

    #[test]
    fn the_error_of_a_key_is_cut_and_has_no_control_characters() {
        let long = format!(
            r#"{{"settled":[{{"key":"a","as":"reject","error":"\u001b[31m{}"}}]}}"#,
            "x".repeat(9_000)
        );
        let Ok(Reported::Reject { error: Some(error) }) = read(long.as_bytes(), "a") else {
            panic!("no error")
        };
        assert!(error.starts_with("[31mx") && error.len() < 600, "{error}");
    }

    #[test]
    fn a_malformed_body_acknowledges_nothing() {
        for body in [
            r#"{"settled":{}}"#,
            r#"{"settled":[{"key":"b","as":"ack"}]}"#,
            r#"{"settled":[{"key":"a","as":"release"}]}"#,
            r#"{"settled":[{"as":"ack"}]}"#,
            r#"{"settled":[{"key":"a","as":"nack","delay":5}]}"#,
            r#"{"settled":[{"key":"a","as":"ack","delay":"5s"}]}"#,
            r#"{"settled":[{"key":"a","as":"ack"},{"key":"a","as":"nack"}]}"#,
            r#"{"settled":[],"batchItemFailures":[]}"#,
            r#"{"batchItemFailures":[{"itemIdentifier":""}]}"#,
            r#"{"batchItemFailures":[{"itemIdentifier":null}]}"#,
            r#"{"batchItemFailures":[{}]}"#,
            r#"{"batchItemFailures":[{"itemIdentifier":"b"}]}"#,
        ] {
            assert!(read(body.as_bytes(), "a").is_err(), "{body}");
        }
    }
}
