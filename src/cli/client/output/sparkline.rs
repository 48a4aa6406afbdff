//! A row of bars, one column per value.

use std::slice::Chunks;

/// From the smallest bar to the largest one.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The value 0.
const NOTHING: char = '.';
/// No value.
const GAP: char = ' ';

/// A bar for each value, relative to the largest one. A 0 is a dot, and a missing value a space.
#[expect(clippy::cast_precision_loss, reason = "there are 8 bars")]
pub(in crate::cli::client) fn sparkline(values: &[Option<f64>]) -> String {
    let largest = largest(values).unwrap_or_default();
    let bar = |value: &Option<f64>| match value {
        None => GAP,
        Some(value) if *value > 0.0 => {
            let part = (value / largest * BARS.len() as f64).ceil();
            let place = (1..=BARS.len()).rfind(|place| *place as f64 <= part).unwrap_or(1);
            BARS.get(place - 1).copied().unwrap_or(NOTHING)
        }
        Some(_) => NOTHING,
    };
    values.iter().map(bar).collect()
}

/// The largest value, if there is one.
pub(in crate::cli::client) fn largest(values: &[Option<f64>]) -> Option<f64> {
    values.iter().flatten().copied().reduce(f64::max)
}

/// At most `columns` values: each is the largest of some that follow each other.
pub(in crate::cli::client) fn narrowed(values: &[Option<f64>], columns: usize) -> Vec<Option<f64>> {
    chunks(values, columns).map(largest).collect()
}

/// The values of each column, if there are at most `columns`.
pub(in crate::cli::client) fn chunks<T>(values: &[T], columns: usize) -> Chunks<'_, T> {
    values.chunks(values.len().div_ceil(columns.max(1)).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_relative_to_the_largest_value() {
        let values = [Some(0.0), Some(1.0), Some(4.0), None, Some(8.0), Some(5.0)];
        assert_eq!(sparkline(&values), ".▁▄ █▅");
        assert_eq!(sparkline(&[Some(0.0), None]), ". ");
        assert_eq!(sparkline(&[Some(0.001)]), "█");
        assert_eq!(sparkline(&[]), "");
    }

    #[test]
    fn fewer_columns_show_the_largest_values() {
        let values: Vec<_> = (0..10).map(|value| Some(f64::from(value))).collect();
        assert_eq!(narrowed(&values, 4), [Some(2.0), Some(5.0), Some(8.0), Some(9.0)]);
        assert_eq!(narrowed(&values, 10), values);
        assert_eq!(narrowed(&[None, None, Some(1.0)], 2), [None, Some(1.0)]);
        assert_eq!(narrowed(&[], 5), []);
    }
}
