//! `deltaq series`: what happened in each minute, drawn in the terminal.

use std::time::Duration;

use clap::Args;
use deltaq_types::duration::{self, DurationText};
use deltaq_types::name::Name;
use deltaq_types::{
    DrainEstimate, DrainReason, SeriesDocument, SeriesGauges, SeriesPoint, SeriesRates, Timestamp,
};

use super::failure::Failure;
use super::output::{
    Cell, Format, Output, Tone, chunks, counted, duration_text, largest, narrowed, sparkline,
};
use super::session::{Execute, Session};

/// The columns of a row that is not cut by the terminal.
const COLUMNS: usize = 61;
/// The fewest columns of a row.
const COLUMNS_MIN: usize = 10;
/// What stands beside the columns: the name of the row, and its numbers.
const BESIDE: usize = 42;
/// How many columns stand between two times.
const TIME_COLUMNS: usize = 12;
const MINUTE: Duration = Duration::from_mins(1);
/// The longest series.
const DAY: Duration = Duration::from_hours(24);

/// `deltaq series`.
#[derive(Debug, Clone, Args)]
pub struct Series {
    /// The queue [default: the sums over all queues].
    pub queue: Option<Name>,
    /// Where the series begins: how long ago, up to 24h, or an instant such as 2026-09-01T12:00:00Z.
    #[arg(long, value_name = "SINCE", default_value = "1h")]
    pub since: String,
    /// Where the series ends, like --since [default: the end of the last complete minute].
    #[arg(long, value_name = "UNTIL")]
    pub until: Option<String>,
    /// The length of a column in whole minutes [default: so that the series fits].
    #[arg(long, value_name = "DURATION")]
    pub step: Option<DurationText>,
}

/// A row of bars: its name, what it shows of a point, and how it writes a number.
type Drawn = (&'static str, fn(&SeriesPoint) -> Option<f64>, fn(f64) -> String);

const ROWS: [Drawn; 8] = [
    ("in", |point| rate(point, |rates| rates.changes), per_minute),
    ("out", |point| rate(point, |rates| rates.acks), per_minute),
    ("failures", |point| rate(point, |rates| rates.failures), per_minute),
    ("ready", |point| gauge(point, |gauges| gauges.ready), count),
    ("parked", |point| gauge(point, |gauges| gauges.parked), count),
    ("oldest change", |point| gauge(point, |gauges| gauges.oldest_unacknowledged_age_ms), time),
    ("p50", |point| point.processing.map(|processing| processing.p50_ms), time),
    ("p99", |point| point.processing.map(|processing| processing.p99_ms), time),
];

impl Execute for Series {
    const OPERATIONS: &'static [&'static str] = &["get_series", "get_all_series"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let columns = session.output.columns_beside(BESIDE, COLUMNS).max(COLUMNS_MIN);
        let call = match &self.queue {
            Some(queue) => session.on_queue("get_series", queue)?,
            None => session.call("get_all_series", "", "")?,
        };
        let step = self.step.or_else(|| self.fitting_step(columns, session.clock.wall_us()));
        let call = call.query("since", Some(&self.since)).query("until", self.until.as_ref());
        let call = call.query("step", step.map(|step| duration::format(step.into())));
        let (series, text) = session.fetch::<SeriesDocument>(call).await?;
        let name = series.queue.as_deref().unwrap_or_default();
        match session.output.format() {
            Format::Table => {
                let bars = session.output.table(drawn(&series, columns));
                Output::text(&format!("{}\n{bars}{}\n", title(&series, columns), estimate(&series.drain)))
            }
            _ => session.output.document(&text, name, Vec::new()),
        }
    }
}

impl Series {
    /// The length of a column with which the series fits. The server aligns the columns, which may take one more.
    fn fitting_step(&self, columns: usize, now_us: u64) -> Option<DurationText> {
        let since = |text: &str| {
            let at = text
                .parse::<Timestamp>()
                .map(|at| Duration::from_micros(now_us.saturating_sub(at.as_micros())));
            duration::parse(text).ok().or(at.ok())
        };
        let until = self.until.as_deref().map_or(Some(Duration::ZERO), since)?;
        let length = since(&self.since)?.min(DAY).saturating_sub(until);
        let minutes = length.as_micros().div_ceil(MINUTE.as_micros());
        let step = minutes.div_ceil(columns as u128 - 1).clamp(1, 24 * 60);
        Some(DurationText::from_us(u64::try_from(step * MINUTE.as_micros()).ok()?))
    }
}

/// What is drawn, and of when. A column has several points if they do not fit.
fn title(series: &SeriesDocument, columns: usize) -> String {
    let of = match &series.queue {
        Some(queue) => queue.clone(),
        None => counted(series.queues, "queue"),
    };
    let points = chunks(&series.points, columns).next().map_or(1, <[SeriesPoint]>::len) as u64;
    let step = duration::format(Duration::from_millis(series.step_ms * points));
    format!("{of}, {} to {}, {step} a column", series.from_at, series.until_at)
}

/// The rows of bars.
fn drawn(series: &SeriesDocument, columns: usize) -> Vec<Vec<Cell>> {
    let mut rows = vec![vec![
        Cell::new("UTC").tone(Tone::Heading),
        Cell::verbatim(times(&series.points, columns)).tone(Tone::Dim),
        Cell::new(""),
    ]];
    for (name, value, written) in ROWS {
        let values: Vec<_> = series.points.iter().map(value).collect();
        // Rows of what never happened say nothing.
        let Some(most) = largest(&values).filter(|most| *most > 0.0 || name == "in" || name == "out") else {
            continue;
        };
        let last = values.last().copied().flatten();
        let numbers = match last {
            Some(last) => format!("last {}, most {}", written(last), written(most)),
            None => format!("most {}", written(most)),
        };
        let bars = sparkline(&narrowed(&values, columns));
        rows.push(vec![
            Cell::new(name).tone(Tone::Heading),
            Cell::verbatim(bars),
            Cell::new(numbers).tone(Tone::Dim),
        ]);
    }
    rows
}

/// The times at which some columns begin, each above its column.
fn times(points: &[SeriesPoint], columns: usize) -> String {
    let first = chunks(points, columns).filter_map(<[SeriesPoint]>::first).step_by(TIME_COLUMNS);
    let time = |point: &SeriesPoint| {
        format!("{:TIME_COLUMNS$}", point.at.to_string().get(11..16).unwrap_or_default())
    };
    first.map(time).collect::<String>().trim_end().to_owned()
}

/// The estimate as a sentence.
pub(super) fn estimate(drain: &DrainEstimate) -> String {
    let waiting = counted(drain.waiting, "key");
    match (drain.empties_in_ms, drain.reason) {
        (Some(0), _) => "no key is ready or leased".to_owned(),
        (Some(ms), _) => format!("empty in about {} at this rate: {waiting} ready or leased", about(ms)),
        (_, Some(DrainReason::Growing)) => format!("not shrinking: {waiting} ready or leased"),
        (_, Some(DrainReason::Stalled)) => format!("nothing is acknowledged: {waiting} ready or leased"),
        _ => format!("the rate is not known yet: {waiting} ready or leased"),
    }
}

/// A duration with its largest units, and at least a minute.
fn about(ms: u64) -> String {
    let minutes = ms.div_ceil(60_000).max(1);
    if minutes < 60 { format!("{minutes} min") } else { duration_text(minutes * 60_000) }
}

fn rate(point: &SeriesPoint, of: fn(&SeriesRates) -> f64) -> Option<f64> {
    point.per_minute.as_ref().map(of)
}

#[expect(clippy::cast_precision_loss, reason = "a bar has 8 heights")]
fn gauge(point: &SeriesPoint, of: fn(&SeriesGauges) -> u64) -> Option<f64> {
    point.gauges.as_ref().map(|gauges| of(gauges) as f64)
}

fn per_minute(rate: f64) -> String {
    let digits = usize::from(rate < 10.0 && rate.fract() > 0.0);
    format!("{rate:.digits$}/min")
}

fn count(number: f64) -> String {
    format!("{number:.0}")
}

fn time(ms: f64) -> String {
    Duration::try_from_secs_f64(ms / 1_000.0)
        .map_or_else(|_| "-".to_owned(), |time| duration_text(duration::whole_ms(time)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_US: u64 = 1_796_000_400_000_000;

    #[test]
    fn the_estimate_is_a_sentence() {
        let of = |empties_in_ms, reason| {
            let drain = DrainEstimate {
                empties_in_ms,
                reason,
                waiting: 120,
                shrinks_per_minute: None,
                measured_minutes: 9,
            };
            estimate(&drain)
        };
        assert_eq!(
            of(Some(11 * 60_000 + 1), None),
            "empty in about 12 min at this rate: 120 keys ready or leased"
        );
        assert_eq!(
            of(Some(26 * 3_600_000), None),
            "empty in about 1d02h at this rate: 120 keys ready or leased"
        );
        assert_eq!(of(Some(0), None), "no key is ready or leased");
        assert_eq!(of(None, Some(DrainReason::Growing)), "not shrinking: 120 keys ready or leased");
        assert_eq!(
            of(None, Some(DrainReason::Unknown)),
            "the rate is not known yet: 120 keys ready or leased"
        );
    }

    #[test]
    fn the_title_has_the_length_of_a_column() {
        let text = r#"{"queue":"q","queues":1,"from_at":"2026-11-30T00:00:00Z","until_at":"2026-11-30T02:00:00Z","step_ms":60000,
            "complete_from_at":"2026-11-30T00:00:00Z","points":[],"drain":{"empties_in_ms":0,"reason":null,"waiting":0,
            "shrinks_per_minute":null,"measured_minutes":0}}"#;
        let mut series: SeriesDocument = serde_json::from_str(text).unwrap();
        let point = r#"{"at":"2026-11-30T00:00:00Z","minutes":0,"counts":null,"per_minute":null,"gauges":null,"processing":null}"#;
        series.points = (0..120).map(|_| serde_json::from_str(point).unwrap()).collect();
        assert!(title(&series, 60).ends_with(", 2m a column"), "{}", title(&series, 60));
        assert!(title(&series, 120).ends_with(", 1m a column"));
    }

    #[test]
    fn times_stand_above_their_columns() {
        let point = |minute: u64| SeriesPoint {
            at: Timestamp::from_micros(1_000_000 * 60 * (14 * 60 + 50 + minute)),
            minutes: 0,
            counts: None,
            per_minute: None,
            gauges: None,
            processing: None,
        };
        let points: Vec<_> = (0..30).map(point).collect();
        assert_eq!(times(&points, 60), "14:50       15:02       15:14");
        assert_eq!(times(&points, 15), "14:50       15:14", "two minutes a column");
        assert_eq!(times(&points[..3], 60), "14:50");
        assert_eq!(times(&[], 60), "");
    }

    #[test]
    fn a_column_is_as_long_as_it_takes_to_fit() {
        let of = |since: &str, until: Option<&str>| {
            let until = until.map(str::to_owned);
            let series = Series { queue: None, since: since.to_owned(), until, step: None };
            series.fitting_step(61, NOW_US).map(|step| duration::format(step.into()))
        };
        assert_eq!(of("1h", None).as_deref(), Some("1m"));
        assert_eq!(of("24h", None).as_deref(), Some("24m"));
        assert_eq!(of("3h", Some("2h")).as_deref(), Some("1m"));
        assert_eq!(of("2026-09-01T12:00:00Z", None).as_deref(), Some("24m"), "more than a day ago");
        assert_eq!(of("soon", None), None, "the server refuses it");
        let now = Timestamp::from_micros(NOW_US - 7_200_000_000).to_string();
        assert_eq!(of(&now, Some("1h")).as_deref(), Some("1m"));
    }
}
