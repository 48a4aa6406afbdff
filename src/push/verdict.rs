//! What the answer of an endpoint means.

use std::time::{Duration, UNIX_EPOCH};

use deltaq_engine::limits::HOLD_SECS_MAX;
use deltaq_types::Push;

use super::sender::{Answer, Body};
use super::settled::{self, Outcome};

/// The shortest wait that an endpoint can ask for, so that one that says "now" is not asked without pause.
const WAIT_MIN: Duration = Duration::from_secs(1);

/// What the answer of an endpoint means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The endpoint works, and says what happens to each of the keys.
    Settled {
        /// For each key of the request.
        outcomes: Vec<Outcome>,
    },
    /// The endpoint has accepted the keys, and settles them later.
    Accepted,
    /// The endpoint never takes this request.
    Refused {
        /// The answer.
        error: String,
    },
    /// The endpoint asks for a pause.
    Waits {
        /// How long: from a second to an hour.
        length: Duration,
        /// The answer.
        error: String,
    },
    /// The endpoint is gone for good.
    EndpointGone {
        /// The answer.
        error: String,
    },
    /// The endpoint has answered, and has not taken the keys.
    Failed {
        /// The answer.
        error: String,
    },
    /// There was no whole answer.
    Unanswered {
        /// Why.
        why: String,
    },
}

impl Verdict {
    /// The meaning of the answer to the request for these keys, at this time in microseconds since 1970. The setting's `reject_statuses` come before
    /// the meaning that a status has otherwise.
    #[must_use]
    pub fn of(answer: Answer, keys: &[&str], setting: &Push, now_us: u64) -> Self {
        let (status, error, retry_after, json) = match answer {
            Answer::Status { status, text, retry_after, json } => (status, text, retry_after, json),
            Answer::None { why } => return Self::Unanswered { why },
        };
        let length = retry_after.and_then(|text| wait(&text, now_us));
        match (status, length) {
            (202, _) if setting.is_async => Self::Accepted,
            (200..=299, _) => {
                let read = match &json {
                    Body::Json(json) => settled::read(Some(json), keys, &error),
                    Body::LongJson => settled::read(None, keys, &error),
                    Body::Other => Ok(vec![Outcome::Ack; keys.len()]),
                };
                read.map_or_else(
                    |why| Self::Failed { error: format!("the answer can't be used: {why}") },
                    |outcomes| Self::Settled { outcomes },
                )
            }
            (status, _) if setting.reject_statuses.contains(&status) => Self::Refused { error },
            (410, _) => Self::EndpointGone { error },
            (429 | 503, Some(length)) => Self::Waits { length, error },
            _ => Self::Failed { error },
        }
    }
}

/// The wait that the header `Retry-After` asks for: seconds, or a date.
fn wait(text: &str, now_us: u64) -> Option<Duration> {
    let text = text.trim();
    let asked = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        Duration::from_secs(text.parse().unwrap_or(u64::MAX))
    } else {
        let now = UNIX_EPOCH + Duration::from_micros(now_us);
        httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default()
    };
    Some(asked.clamp(WAIT_MIN, Duration::from_secs(HOLD_SECS_MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-21 04:20:00 UTC.
    const NOW_US: u64 = 1_795_234_800_000_000;

    fn verdict(status: u16, retry_after: Option<&str>) -> Verdict {
        let retry_after = retry_after.map(str::to_owned);
        let answer = Answer::Status { status, text: "x".to_owned(), retry_after, json: Body::Other };
        Verdict::of(answer, &["a"], &setting(false), NOW_US)
    }

    fn taken() -> Verdict {
        Verdict::Settled { outcomes: vec![Outcome::Ack] }
    }

    fn setting(is_async: bool) -> Push {
        let setting =
            serde_json::json!({"url": "http://a", "reject_statuses": [422, 429], "async": is_async});
        serde_json::from_value(setting).unwrap()
    }

    #[test]
    fn a_202_is_a_promise_only_if_the_setting_says_so() {
        let answer =
            || Answer::Status { status: 202, text: "x".to_owned(), retry_after: None, json: Body::Other };
        assert_eq!(Verdict::of(answer(), &["a"], &setting(true), NOW_US), Verdict::Accepted);
        assert_eq!(Verdict::of(answer(), &["a"], &setting(false), NOW_US), taken());
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_and_bounded() {
        for (text, seconds) in [
            ("7", 7),
            (" 7 ", 7),
            ("0", 1),
            ("3601", 3_600),
            ("99999999999999999999999999", 3_600),
            ("Sat, 21 Nov 2026 04:21:30 GMT", 90),
            ("Saturday, 21-Nov-26 04:21:30 GMT", 90),
            ("Sat Nov 21 04:21:30 2026", 90),
            ("Sat, 21 Nov 2026 04:19:00 GMT", 1),
            ("Fri, 31 Dec 9999 23:59:59 GMT", 3_600),
        ] {
            assert_eq!(wait(text, NOW_US), Some(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "-1", "+1", "1.5", "1e3", "soon", "Sat, 99 Nov 2026 04:21:30 GMT"] {
            assert_eq!(wait(text, NOW_US), None, "{text}");
        }
    }

    #[test]
    fn a_status_has_one_meaning() {
        let error = || "x".to_owned();
        let length = Duration::from_secs(7);
        for (status, retry_after, expected) in [
            (200, None, taken()),
            (299, Some("7"), taken()),
            (302, None, Verdict::Failed { error: error() }),
            (410, None, Verdict::EndpointGone { error: error() }),
            (422, None, Verdict::Refused { error: error() }),
            (429, Some("7"), Verdict::Refused { error: error() }),
            (500, Some("7"), Verdict::Failed { error: error() }),
            (503, Some("7"), Verdict::Waits { length, error: error() }),
            (503, Some("soon"), Verdict::Failed { error: error() }),
            (503, None, Verdict::Failed { error: error() }),
        ] {
            assert_eq!(verdict(status, retry_after), expected, "{status} {retry_after:?}");
        }
    }
}
