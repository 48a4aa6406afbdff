//! What the body of an answer says about single keys: the member `settled`, or `batchItemFailures` as AWS Lambda has it.

use std::collections::HashMap;
use std::time::Duration;

use deltaq_types::duration::DurationText;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::sender::excerpt;

/// The longest wait that an answer can name.
const DELAY_MAX: Duration = Duration::from_hours(7 * 24);

/// The mark that some programs write at the beginning of a text.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// What happens to a key that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The key is done.
    Ack,
    /// The key has failed.
    Nack {
        /// The wait.
        delay: Option<Duration>,
        /// Why.
        error: String,
    },
    /// The key never succeeds.
    Reject {
        /// Why.
        error: String,
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

/// The members that say something. All others are skipped, whatever they have.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body<'b> {
    #[serde(borrow, default)]
    settled: Option<&'b RawValue>,
    #[serde(borrow, default)]
    batch_item_failures: Option<&'b RawValue>,
}

/// What the body of a successful answer in JSON says about each of the keys that were sent. A key that it does not name is acknowledged. `answer`
/// is the error of a key whose error it does not say. `None` is a body that was too long to be read.
///
/// # Errors
/// Why the body can't be used. An object that can't be read might say that a key has failed, so it acknowledges none.
pub(super) fn read(body: Option<&[u8]>, keys: &[&str], answer: &str) -> Result<Vec<Outcome>, String> {
    let acknowledged = || vec![Outcome::Ack; keys.len()];
    let body = body.ok_or("it is too long")?;
    let body = body.strip_prefix(BOM).unwrap_or(body).trim_ascii_start();
    if !body.starts_with(b"{") {
        return Ok(acknowledged());
    }
    let Body { settled, batch_item_failures } =
        serde_json::from_slice(body).map_err(|error| format!("it is no JSON: {error}"))?;
    let is_there = |value: &&RawValue| value.get() != "null";
    let named = match (settled.filter(is_there), batch_item_failures.filter(is_there)) {
        (None, None) => return Ok(acknowledged()),
        (Some(settled), None) => of_settled(settled, answer)?,
        (None, Some(failures)) => of_failures(failures, answer)?,
        (Some(_), Some(_)) => {
            return Err("it has settled and batchItemFailures; one of them is enough".to_owned());
        }
    };
    let places: HashMap<&str, usize> = keys.iter().enumerate().map(|(at, key)| (*key, at)).collect();
    let mut outcomes: Vec<Option<Outcome>> = vec![None; keys.len()];
    for (key, outcome) in named {
        let place = places.get(&*key).and_then(|at| outcomes.get_mut(*at));
        let place = place.ok_or("it names a key that was not sent")?;
        if place.as_ref().is_some_and(|earlier| *earlier != outcome) {
            return Err("it says two things of a key".to_owned());
        }
        *place = Some(outcome);
    }
    Ok(outcomes.into_iter().map(|outcome| outcome.unwrap_or(Outcome::Ack)).collect())
}

fn of_settled(value: &RawValue, answer: &str) -> Result<Vec<(String, Outcome)>, String> {
    let list: Vec<Settled> =
        serde_json::from_str(value.get()).map_err(|error| format!("settled is malformed: {error}"))?;
    let outcome = |one: Settled| {
        if one.how != How::Nack && one.delay.is_some() {
            return Err("settled is malformed: delay goes with nack".to_owned());
        }
        let delay = one.delay.map(|delay| delay.get().min(DELAY_MAX));
        let error = one.error.map_or_else(|| answer.to_owned(), |error| excerpt(error.as_bytes()));
        let outcome = match one.how {
            How::Ack => Outcome::Ack,
            How::Nack => Outcome::Nack { delay, error },
            How::Reject => Outcome::Reject { error },
        };
        Ok((one.key, outcome))
    };
    list.into_iter().map(outcome).collect()
}

fn of_failures(value: &RawValue, answer: &str) -> Result<Vec<(String, Outcome)>, String> {
    let list: Vec<Failure> = serde_json::from_str(value.get())
        .map_err(|error| format!("batchItemFailures is malformed: {error}"))?;
    let failed =
        |failure: Failure| (failure.item_identifier, Outcome::Nack { delay: None, error: answer.to_owned() });
    Ok(list.into_iter().map(failed).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_one(body: &str) -> Result<Vec<Outcome>, String> {
        read(Some(body.as_bytes()), &["a"], "200 OK")
    }

    #[test]
    fn a_body_says_what_happens_to_the_key() {
        let nack = |seconds: Option<u64>, error: &str| Outcome::Nack {
            delay: seconds.map(Duration::from_secs),
            error: error.to_owned(),
        };
        for (body, outcome) in [
            ("ok", Outcome::Ack),
            ("", Outcome::Ack),
            ("[]", Outcome::Ack),
            ("\"ok\"", Outcome::Ack),
            (r#"{"more":1e999,"deep":[[[]]]}"#, Outcome::Ack),
            ("\u{feff} {\"settled\":[{\"key\":\"a\",\"as\":\"nack\"}]}", nack(None, "200 OK")),
            ("{}", Outcome::Ack),
            (r#"{"settled":null,"batchItemFailures":null}"#, Outcome::Ack),
            (r#"{"settled":[]}"#, Outcome::Ack),
            (r#"{"settled":[{"key":"a","as":"ack","more":1}]}"#, Outcome::Ack),
            (r#"{"settled":[{"key":"a","as":"nack"}]}"#, nack(None, "200 OK")),
            (r#"{"settled":[{"key":"a","as":"nack"},{"key":"a","as":"nack"}]}"#, nack(None, "200 OK")),
            (r#"{"settled":[{"key":"a","as":"nack","delay":"5s","error":"late"}]}"#, nack(Some(5), "late")),
            (r#"{"settled":[{"key":"a","as":"nack","delay":"900d"}]}"#, nack(Some(7 * 86_400), "200 OK")),
            (r#"{"settled":[{"key":"a","as":"reject"}]}"#, Outcome::Reject { error: "200 OK".to_owned() }),
            (r#"{"batchItemFailures":[]}"#, Outcome::Ack),
            (r#"{"batchItemFailures":[{"itemIdentifier":"a"}]}"#, nack(None, "200 OK")),
        ] {
            assert_eq!(read_one(body), Ok(vec![outcome]), "{body}");
        }
    }

    #[test]
    fn a_body_says_what_happens_to_each_of_several_keys() {
        let body = r#"{"settled":[{"key":"c","as":"nack","error":"late"},{"key":"a","as":"ack"}]}"#;
        let nack = |error: &str| Outcome::Nack { delay: None, error: error.to_owned() };
        let keys = ["a", "b", "c"];
        assert_eq!(
            read(Some(body.as_bytes()), &keys, "x"),
            Ok(vec![Outcome::Ack, Outcome::Ack, nack("late")])
        );
        let body = br#"{"batchItemFailures":[{"itemIdentifier":"b"}]}"#;
        assert_eq!(read(Some(body), &keys, "x"), Ok(vec![Outcome::Ack, nack("x"), Outcome::Ack]));
        let body = br#"{"batchItemFailures":[{"itemIdentifier":"b"},{"itemIdentifier":"d"}]}"#;
        assert!(read(Some(body), &keys, "x").is_err(), "one key that was not sent fails all");
    }

    #[test]
    fn the_error_of_a_key_is_cut_and_has_no_control_characters() {
        let long = format!(
            r#"{{"settled":[{{"key":"a","as":"reject","error":"\u001b[31m{}"}}]}}"#,
            "x".repeat(9_000)
        );
        let outcomes = read_one(&long).expect("outcomes");
        let [Outcome::Reject { error }] = &*outcomes else { panic!("no error") };
        assert!(error.starts_with("[31mx") && error.len() < 600, "{error}");
    }

    #[test]
    fn a_malformed_body_acknowledges_nothing() {
        for body in [
            "{",
            r#"{"settled":[{"key":"a","as":"nack"}],}"#,
            r#"{"settled":[{"key":"a","as":"na"#,
            r#"{"settled":[],"settled":[{"key":"a","as":"nack"}]}"#,
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
            assert!(read_one(body).is_err(), "{body}");
        }
        assert!(read(None, &["a"], "200 OK").is_err(), "what was not read might say that the key has failed");
    }
}
