//! The changes in and the acks out of the last minutes.

use deltaq_types::{SeriesDocument, SeriesRates};
use ratatui::text::Line;

use crate::cli::client::output::{narrowed, sparkline};

/// Columns of the bars.
const BARS: usize = 30;
/// The fewest columns of the bars.
const BARS_MIN: usize = 8;
/// The columns of the names and the rates.
const TEXT: usize = 30;

/// Two rows of bars in one line; `None` if they do not fit, or if there is nothing to draw.
pub(super) fn line(series: &SeriesDocument, width: usize) -> Option<Line<'static>> {
    let bars = (width.checked_sub(TEXT)? / 2).min(BARS);
    if bars < BARS_MIN || series.points.is_empty() {
        return None;
    }
    let drawn = |name: &str, rate: fn(&SeriesRates) -> f64| {
        let values: Vec<_> = series.points.iter().map(|point| point.per_minute.as_ref().map(rate)).collect();
        let last = values.last().copied().flatten();
        let last = last.map_or_else(String::new, |last| format!(" {last:.0}/min"));
        format!("{name} {}{last}", sparkline(&narrowed(&values, bars)))
    };
    let (changes, acks) = (drawn("in", |rates| rates.changes), drawn("out", |rates| rates.acks));
    Some(Line::from(format!("{changes}  {acks}")))
}
