//! How long to wait for a server: the wait that it asks for, and how often a page of a list is requested again.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use deltaq_client::Backoff;
use reqwest::StatusCode;
use reqwest::header::{AGE, DATE, HeaderMap, RETRY_AFTER};

use super::super::{Error, Output};

/// Maximum wait that a server may ask for. A longer one is a mistake of the server.
const RETRY_AFTER_MAX: Duration = Duration::from_hours(1);
/// Maximum time of all pauses for the pages of one list. At its end, the first page is that old.
const LIST_MAX: Duration = Duration::from_hours(1);
/// How often one page is requested again. If the server asks for no pauses, they take at most half a minute in total.
const REPEATS_MAX: u32 = 7;
/// The maximum pause before the first repetition of a page, and before any repetition. The wait that the server asks
/// for is added.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(8);
/// The maximum pause before a page is requested again that was refused because of a rate limit. How long the limit
/// lasts may be unknown, but it passes.
const LIMITED_PAUSE_MAX: Duration = Duration::from_mins(1);
/// A larger number of seconds is a point in time: seconds since 1970.
const SECONDS_MAX: f64 = 1e9;

/// The remaining patience with the pages of one list. Each pause is logged and counts as a failure; dropping the list
/// ends the pause.
#[derive(Debug)]
pub(in crate::source) struct Patience<'o> {
    output: &'o Output,
    left: Duration,
}

/// The remaining patience with one page.
#[derive(Debug)]
pub(super) struct OfPage<'p, 'o> {
    list: &'p mut Patience<'o>,
    backoff: Backoff,
    limited: Backoff,
}

impl<'o> Patience<'o> {
    /// The patience with a list whose events are sent to this output.
    pub(in crate::source) const fn new(output: &'o Output) -> Self {
        Self { output, left: LIST_MAX }
    }

    pub(super) const fn page(&mut self) -> OfPage<'_, 'o> {
        let backoff = Backoff::new(PAUSE_FIRST, PAUSE_MAX);
        OfPage { list: self, backoff, limited: Backoff::new(PAUSE_FIRST, LIMITED_PAUSE_MAX) }
    }
}

impl OfPage<'_, '_> {
    /// Waits before the page is requested again. Returns the error if it will not pass, or if the patience has ended.
    /// `is_cured` says that the next request no longer has the cause of this error.
    pub(super) async fn wait(&mut self, error: Error, is_cured: bool) -> Result<(), Error> {
        let Some(pause) = self.pause(&error, is_cured) else { return Err(error) };
        self.list.output.repeats(error, pause);
        tokio::time::sleep(pause).await;
        Ok(())
    }

    fn pause(&mut self, error: &Error, is_cured: bool) -> Option<Duration> {
        let is_limited = error.status() == Some(StatusCode::TOO_MANY_REQUESTS);
        let has_ended = !is_limited && self.backoff.failures() >= REPEATS_MAX;
        if !(error.is_repeatable() || is_cured) || has_ended {
            return None;
        }
        let backoff = if is_limited { &mut self.limited } else { &mut self.backoff };
        let pause = error.asked_wait().unwrap_or_default().saturating_add(backoff.pause());
        // The random part may exceed the remaining time, so that a server can ask for all of it.
        self.list.left = self.list.left.checked_sub(error.asked_wait().unwrap_or(pause))?;
        Some(pause)
    }
}

/// Whether a server that replies with this status may reply differently a little later.
pub(in crate::source) fn may_pass(status: StatusCode) -> bool {
    status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED
        || [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS]
            .contains(&status)
}

/// How long an unsuccessful reply asks to wait: by `Retry-After` or a header with a similar name, or until its rate
/// limit is reset. A point in time is compared with the clock of the server: its `Date`, plus the `Age` that a cache
/// adds. `now_us` is the clock of this machine.
pub(super) fn retry_after(status: StatusCode, headers: &HeaderMap, now_us: u64) -> Option<Duration> {
    let texts = |name: &str| headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let age = texts(AGE.as_str()).find_map(|text| text.trim().parse().ok()).unwrap_or_default();
    let date = texts(DATE.as_str()).find_map(|text| httpdate::parse_http_date(text).ok());
    let since = date.and_then(|date| date.duration_since(UNIX_EPOCH).ok());
    let since = since.and_then(|since| since.checked_add(Duration::from_secs(age)));
    let now_us = since.and_then(|since| u64::try_from(since.as_micros()).ok()).unwrap_or(now_us);
    let named = headers.iter().filter_map(|(name, value)| Some((plain(name.as_str()), value.to_str().ok()?)));
    let named: Vec<_> = named.collect();
    let asked = texts(RETRY_AFTER.as_str()).filter_map(|text| wait(text, now_us)).max();
    let similar = named.iter().filter(|(name, _)| name.contains("retryafter") && name != "retryafter");
    let similar = similar.filter_map(|(name, text)| match text.trim().parse() {
        Ok(ms) if name.ends_with("ms") => Some(Duration::from_millis(ms)),
        _ => wait(text, now_us),
    });
    // Other replies have these headers, too.
    let is_of_limit =
        |name: &str| name.contains("ratelimit") || name.contains("rate") && name.contains("reset");
    let is_used_up = |(name, text): &(String, &str)| {
        is_of_limit(name)
            && (name.ends_with("remaining") && text.trim() == "0"
                || part(text, &["remaining", "r"]) == Some("0"))
    };
    let is_limited = status == StatusCode::TOO_MANY_REQUESTS || named.iter().any(is_used_up);
    let resets = named.iter().filter(|(name, _)| is_of_limit(name)).filter_map(|(name, text)| {
        if name.contains("reset") { wait(text, now_us) } else { wait(part(text, &["reset", "t"])?, now_us) }
    });
    let reset = resets.max().filter(|_| is_limited);
    Some(asked.or_else(|| similar.max()).or(reset)?.min(RETRY_AFTER_MAX))
}

/// A name without its separators.
fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).collect()
}

/// The value of a part of a structured header, such as `limit=10, reset=30`.
fn part<'t>(text: &'t str, names: &[&str]) -> Option<&'t str> {
    let mut parts = text.split([',', ';']).filter_map(|part| part.trim().split_once('='));
    parts.find(|(name, _)| names.contains(name)).map(|(_, value)| value.trim())
}

/// The wait that a text asks for: a number of seconds, perhaps with a fraction or units, or a point in time. If
/// there are several values, the longest wait counts, because proxies join the headers of several servers with
/// commas.
fn wait(text: &str, now_us: u64) -> Option<Duration> {
    let text = text.trim().trim_matches('"');
    if let Some(date) = date(text) {
        let now = UNIX_EPOCH + Duration::from_micros(now_us);
        return Some(date.duration_since(now).unwrap_or_default());
    }
    text.split(',').filter_map(|text| seconds(text, now_us)).max()
}

/// A point in time, as HTTP, mails or RFC 3339 write it. Without an offset, it is in UTC.
fn date(text: &str) -> Option<SystemTime> {
    let text = [" UTC", " GMT", "Z", "z"].into_iter().find_map(|end| text.strip_suffix(end)).unwrap_or(text);
    // Of the signs in a date, only that of an offset follows a colon.
    let offset =
        text.rfind(['+', '-']).filter(|at| text.get(..*at).is_some_and(|before| before.contains(':')));
    let (time, offset) = offset.map_or((text, ""), |at| text.split_at(at));
    let date = httpdate::parse_http_date(&format!("{} GMT", time.trim()));
    let date = date.ok().or_else(|| httpdate::parse_http_date(time.trim()).ok());
    let date = date.or_else(|| humantime::parse_rfc3339_weak(time.trim()).ok())?;
    let digits: String = offset.chars().filter(char::is_ascii_digit).collect();
    let number =
        |at: usize| digits.get(at..at + 2).and_then(|part| part.parse::<u64>().ok()).unwrap_or_default();
    let offset_by = Duration::from_secs(number(0) * 3_600 + number(2) * 60);
    if offset.starts_with('-') { date.checked_add(offset_by) } else { date.checked_sub(offset_by) }
}

/// A number of seconds, such as `30`, `1m30s`, `PT30S` or `00:00:30`, or a point in time as a number.
fn seconds(text: &str, now_us: u64) -> Option<Duration> {
    let text = text.split([';', '(']).next().unwrap_or_default().trim().to_ascii_lowercase();
    let text = text.strip_prefix("pt").or_else(|| text.strip_prefix('+')).unwrap_or(&text);
    if let Ok(number) = text.parse::<f64>()
        && number > SECONDS_MAX
    {
        // Some APIs give the time in milliseconds, and others in microseconds.
        let unit = [1.0, 1e3, 1e6].into_iter().find(|unit| number / unit < SECONDS_MAX * 100.0)?;
        let at = Duration::try_from_secs_f64(number / unit).ok()?;
        return Some(at.saturating_sub(Duration::from_micros(now_us)));
    }
    if text.contains(':') {
        let parts = text.split(':').map(|part| part.parse::<u32>().ok()).collect::<Option<Vec<_>>>()?;
        return Some(Duration::from_secs(parts.into_iter().fold(0, |sum, part| sum * 60 + u64::from(part))));
    }
    let (mut total, mut rest) = (0.0, text);
    while !rest.is_empty() {
        let number = rest.trim_start_matches(|c: char| c.is_ascii_digit() || ['.', '-'].contains(&c));
        let unit = number.trim_start().trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let value = rest.strip_suffix(number)?.parse::<f64>().ok()?;
        total += value
            * match number.strip_suffix(unit)?.trim() {
                "" | "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
                "ms" => 0.001,
                "m" | "min" | "minute" | "minutes" => 60.0,
                "h" | "hour" | "hours" => 3_600.0,
                _ => return None,
            };
        rest = unit.trim_start();
    }
    (!text.is_empty()).then_some(())?;
    Duration::try_from_secs_f64(total.max(0.0)).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use deltaq_runtime::clock::Clock;
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;
    use crate::health::Health;
    use crate::heartbeat::Heartbeat;
    use crate::metrics::Metrics;
    use crate::source::Refusal;

    /// Sun, 06 Nov 1994 08:49:30 GMT.
    const NOW_US: u64 = 784_111_770_000_000;

    fn asked(status: u16, headers: &[(&'static str, &'static str)]) -> Option<Duration> {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let mut map = HeaderMap::new();
        headers.iter().map(pair).for_each(|(name, value)| {
            map.append(name, value);
        });
        retry_after(StatusCode::from_u16(status).unwrap(), &map, NOW_US)
    }

    #[test]
    fn a_server_asks_to_wait_in_many_forms() {
        for (text, expected) in [
            (" 7 ", Some(7.0)),
            ("4, 5", Some(5.0)),
            ("50,4", Some(50.0)),
            ("4.5", Some(4.5)),
            ("\"7\"", Some(7.0)),
            ("7s", Some(7.0)),
            ("30 seconds", Some(30.0)),
            ("1500ms", Some(1.5)),
            ("2m", Some(120.0)),
            ("-1", Some(0.0)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(7.0)),
            ("Sun, 06 Nov 1994 08:49:37 +0000", Some(7.0)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(7.0)),
            ("1994-11-06T08:49:37Z", Some(7.0)),
            ("Sun, 06 Nov 1994 08:40:00 GMT", Some(0.0)),
            ("Sat, 06 Nov 2094 08:40:00 GMT", Some(3_600.0)),
            ("soon", None),
            ("PT30S", Some(30.0)),
            ("pt1m30s", Some(90.0)),
            ("1m30s", Some(90.0)),
            ("1h 2m", Some(3_600.0)),
            ("00:00:30", Some(30.0)),
            ("30;", Some(30.0)),
            ("30 (seconds)", Some(30.0)),
            ("+30", Some(30.0)),
            ("30.", Some(30.0)),
            ("Sun, 06 Nov 1994 10:49:37 +0200", Some(7.0)),
            ("Sun, 06 Nov 1994 05:19:37 -0330", Some(7.0)),
            ("Sun, 06 Nov 1994 08:49:37", Some(7.0)),
            ("Sun Nov  6 08:49:37 1994", Some(7.0)),
            ("1994-11-06T10:49:37+02:00", Some(7.0)),
            ("1994-11-06 08:49:37", Some(7.0)),
            ("1994-11-06 08:49:37 UTC", Some(7.0)),
            ("PT", None),
            ("", None),
            ("NaN", None),
            ("inf", None),
        ] {
            let expected = expected.map(Duration::from_secs_f64);
            assert_eq!(asked(429, &[("retry-after", text)]), expected, "{text}");
        }
        assert_eq!(wait("1784111777", 1_784_111_770_000_000), Some(Duration::from_secs(7)));
        assert_eq!(asked(503, &[]), None);
        let two = [("retry-after", "2"), ("retry-after", "9")];
        assert_eq!(asked(503, &two), Some(Duration::from_secs(9)));
        assert_eq!(asked(429, &[("retry-after-ms", "250")]), Some(Duration::from_millis(250)));
    }

    #[test]
    fn a_time_is_measured_by_the_clock_of_the_server() {
        let seconds = |headers: &[_]| asked(429, headers).map(|wait| wait.as_secs());
        // The clock of this machine is years ahead, or behind.
        for (date, until, reset) in [
            ("Sat, 06 Nov 2010 08:49:30 GMT", "Sat, 06 Nov 2010 08:49:37 GMT", "1289033377"),
            ("Tue, 06 Nov 1990 08:49:30 GMT", "1990-11-06T08:49:37Z", "7"),
        ] {
            let date = ("date", date);
            assert_eq!(seconds(&[date, ("retry-after", until)]), Some(7), "{until}");
            assert_eq!(seconds(&[date, ("x-ratelimit-reset", reset)]), Some(7), "{reset}");
            assert_eq!(seconds(&[date, ("age", "5"), ("retry-after", until)]), Some(2));
            assert_eq!(seconds(&[date, ("age", "60"), ("retry-after", until)]), Some(0));
        }
        let until = ("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(seconds(&[("date", "now"), until]), Some(7));
    }

    #[test]
    fn a_rate_limit_says_when_it_begins_anew() {
        let seconds = |status, headers: &[_]| asked(status, headers).map(|wait| wait.as_secs());
        assert_eq!(seconds(429, &[("ratelimit-reset", "12")]), Some(12));
        for (name, value) in [
            ("ratelimit", "limit=10, remaining=0, reset=12"),
            ("ratelimit", "\"default\";r=0;t=12"),
            ("x-ratelimit-reset-after", "12"),
            ("x-ratelimit-reset-requests", "12s"),
            ("rate-limit-reset", "12"),
            ("x-rate-reset", "12"),
            ("x-retry-after", "12"),
            ("x-ratelimit-retry-after", "12"),
            ("x-rate-limit-retry-after-seconds", "12"),
            ("x-ms-retry-after-ms", "12000"),
        ] {
            assert_eq!(seconds(429, &[(name, value)]), Some(12), "{name}");
        }
        assert_eq!(seconds(403, &[("ratelimit", "limit=10, remaining=0, reset=12")]), Some(12));
        assert_eq!(seconds(403, &[("ratelimit", "limit=10, remaining=3, reset=12")]), None);
        let used_up = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "20")];
        assert_eq!((seconds(403, &used_up), seconds(403, &used_up[1..])), (Some(20), None));
        assert_eq!(seconds(429, &[("retry-after", "3"), ("x-ratelimit-reset", "60")]), Some(3));
    }

    #[test]
    fn a_page_is_repeated_for_a_bounded_time() {
        let mut metrics = Metrics::new();
        let health = Health::new("s", "q", Heartbeat::of_test(), metrics.add("s", "q"), Clock::system());
        let (output, _events) = Output::channel(Arc::new(health), &[]);
        let failure = |refusal, asked: Option<u64>| Error {
            refusal,
            ..Error::new("no").retry_after(asked.map(Duration::from_secs))
        };
        let (tls, broken) = (Some(Refusal::Tls), Some(Refusal::Broken));
        for (refusal, is_repeatable) in [
            (None, false),
            (tls, false),
            (broken, true),
            (Some(Refusal::NoConnection), true),
            (Some(Refusal::Status(StatusCode::NOT_FOUND)), false),
            (Some(Refusal::Status(StatusCode::NOT_IMPLEMENTED)), false),
            (Some(Refusal::Status(StatusCode::BAD_GATEWAY)), true),
        ] {
            assert_eq!(failure(refusal, None).is_repeatable(), is_repeatable, "{refusal:?}");
        }
        assert!(failure(Some(Refusal::Status(StatusCode::FORBIDDEN)), Some(1)).is_repeatable());
        let mut patience = Patience::new(&output);
        let mut page = patience.page();
        assert_eq!(page.pause(&failure(tls, None), false), None);
        assert!(page.pause(&failure(tls, None), true).is_some());
        let pauses: Vec<_> = std::iter::from_fn(|| page.pause(&failure(broken, Some(2)), false)).collect();
        assert_eq!(pauses.len(), 6);
        assert!(pauses.iter().all(|pause| *pause >= Duration::from_secs(2)), "{pauses:?}");
        // A rate limit passes, even if the server does not say when.
        let limit = failure(Some(Refusal::Status(StatusCode::TOO_MANY_REQUESTS)), None);
        let mut page = Patience::new(&output);
        let mut page = page.page();
        let pauses: Vec<_> = std::iter::from_fn(|| page.pause(&limit, false)).collect();
        let total: Duration = pauses.iter().sum();
        assert!(pauses.len() > 40 && total > Duration::from_mins(58), "{pauses:?}");
        assert!(pauses.iter().all(|pause| *pause <= Duration::from_mins(2)), "{pauses:?}");
        // The next page has its own repetitions, and what is left of the time.
        assert_eq!(patience.page().pause(&failure(broken, Some(3_600)), false), None);
        assert!(patience.page().pause(&failure(broken, Some(3_500)), false).is_some());
        assert_eq!(patience.page().pause(&failure(broken, Some(3_500)), false), None);
    }
}
