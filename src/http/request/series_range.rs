//! The parameters that select minutes of a series.

use std::time::Duration;

use deltaq_engine::excerpt::Excerpt;
use deltaq_engine::time::Time;
use deltaq_service::{Minute, SERIES_MINUTES, SeriesRange};
use deltaq_types::{Timestamp, duration};

use super::params::{Params, wrong};
use crate::http::problem::Problem;

const MINUTE: Duration = Duration::from_mins(1);
const LONGEST: Duration = Duration::from_mins(SERIES_MINUTES as u64);
/// The length of a series whose beginning is not given, in minutes.
const DEFAULT_MINUTES: u32 = 60;

/// The minutes that the parameters select. `now` is the minute up to which series are complete.
pub(in crate::http) fn series_range(params: &Params, now: Minute) -> Result<SeriesRange, Problem> {
    let step = step(params)?;
    let until = instant(params, "until", now)?.unwrap_or(now);
    let since = instant(params, "since", now)?;
    if since.is_some_and(|since| since > until) {
        return Err(wrong("since", "it is after the end of the series"));
    }
    let since = since.unwrap_or_else(|| until.minus(DEFAULT_MINUTES));
    let oldest = now.minus(SERIES_MINUTES);
    // Points begin at multiples of the step, so that they stay the same while time goes on.
    let from = since.max(oldest);
    let from = from.minus(from.0 % step);
    Ok(SeriesRange { from, until: until.min(now).max(from), step })
}

/// The range that another node has asked for, which it has derived from such parameters.
pub(in crate::http) fn range_of_node(params: &Params) -> Result<SeriesRange, Problem> {
    let minute =
        |name| instant(params, name, Minute::default())?.ok_or_else(|| wrong(name, "it is required"));
    let (from, until) = (minute("since")?, minute("until")?);
    if until < from || until > from.plus(2 * SERIES_MINUTES) {
        return Err(wrong("until", "the range is too long"));
    }
    Ok(SeriesRange { from, until, step: step(params)? })
}

/// The length of a point in minutes.
fn step(params: &Params) -> Result<u32, Problem> {
    let step = params.duration("step", MINUTE..=LONGEST)?.unwrap_or(MINUTE);
    if !step.as_micros().is_multiple_of(MINUTE.as_micros()) {
        return Err(wrong("step", &format!("{} is not a number of whole minutes", duration::format(step))));
    }
    Ok(minutes(step))
}

/// The minute of an instant, or the minute so long ago.
fn instant(params: &Params, name: &str, now: Minute) -> Result<Option<Minute>, Problem> {
    let Some(text) = params.text(name) else { return Ok(None) };
    if let Ok(at) = serde_json::from_value::<Timestamp>(text.into()) {
        return Ok(Some(Minute::of(Time::from_micros(at.as_micros()))));
    }
    let is_instant = text.get(4..5) == Some("-");
    if is_instant || duration::parse(text).is_err() {
        let detail = format!("{} is neither an instant nor a duration", Excerpt(text));
        return Err(wrong(name, &detail).hint("an instant is like 2026-09-01T12:00:00Z, a duration like 90m"));
    }
    Ok(params.duration(name, Duration::ZERO..=LONGEST)?.map(|ago| now.minus(minutes(ago))))
}

/// The minutes of a duration, a part of a minute counted as a whole one.
fn minutes(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros().div_ceil(MINUTE.as_micros())).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-30T02:03:00Z.
    const NOW: Minute = Minute(29_933_403);

    fn range(query: &str) -> Result<SeriesRange, String> {
        let params = Params::of(Some(query)).unwrap();
        series_range(&params, NOW).map_err(|problem| problem.detail().to_owned())
    }

    fn shown(query: &str) -> (i64, i64, u32) {
        let SeriesRange { from, until, step } = range(query).unwrap();
        let ago = |minute: Minute| i64::from(NOW.0) - i64::from(minute.0);
        (ago(from), ago(until), step)
    }

    #[test]
    fn a_range_is_given_by_instants_or_by_durations() {
        assert_eq!(NOW.begins_at(), Time::from_micros(1_796_004_180_000_000));
        assert_eq!(shown(""), (60, 0, 1));
        assert_eq!(shown("since=24h"), (1_440, 0, 1));
        assert_eq!(shown("since=90s"), (2, 0, 1));
        assert_eq!(shown("since=1h&step=5m"), (63, 0, 5), "points begin at multiples of the step");
        assert_eq!(shown("since=2026-11-30T01:00:30Z&until=2026-11-30T01:30:00.5Z"), (63, 33, 1));
        assert_eq!(shown("since=2h&until=1h"), (120, 60, 1));
        assert_eq!(shown("until=1h"), (120, 60, 1));
        assert_eq!(shown("since=2020-01-01T00:00:00Z"), (1_440, 0, 1), "nothing is older than a day");
        assert_eq!(shown("since=2026-11-30T02:00:00Z&until=2030-01-01T00:00:00Z"), (3, 0, 1));
        assert_eq!(shown("since=24h&step=24h"), (1_440 + 123, 0, 1_440));
        assert_eq!(range("since=24h").unwrap().points(), 1_440);
    }

    #[test]
    fn wrong_values_are_refused_with_their_reason() {
        for (query, why) in [
            ("since=yesterday", "parameter \"since\": \"yesterday\" is neither an instant nor a duration"),
            (
                "since=2026-13-01T00:00:00Z",
                "parameter \"since\": \"2026-13-01T00:00:00Z\" is neither an instant nor a duration",
            ),
            ("since=25h", "parameter \"since\": \"25h\" is not from 0s to 1d"),
            ("since=1h&until=2h", "parameter \"since\": it is after the end of the series"),
            ("since=2027-01-01T00:00:00Z", "parameter \"since\": it is after the end of the series"),
            ("step=90s", "parameter \"step\": 90s is not a number of whole minutes"),
            ("step=1s", "parameter \"step\": \"1s\" is not from 1m to 1d"),
            ("step=0", "parameter \"step\": "),
        ] {
            let detail = range(query).unwrap_err();
            assert!(detail.starts_with(why), "{query}: {detail}");
        }
    }
}
