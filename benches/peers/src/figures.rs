//! Medians and targets.

use std::fmt;

/// A figure that was measured several times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Figure {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Figure {
    /// The figure of the values of all rounds. `None` if there are no values.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let half = values.len() / 2;
        let upper = *values.get(half)?;
        let median = if values.len() % 2 == 1 { upper } else { f64::midpoint(*values.get(half - 1)?, upper) };
        Some(Self { median, least, most })
    }
}

/// Written as `12,345 (11,800..12,600)`.
impl fmt::Display for Figure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", short(self.median))?;
        if self.least < self.most {
            write!(out, " ({}..{})", short(self.least), short(self.most))?;
        }
        Ok(())
    }
}

/// The target of a ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
    /// The ratio has no target.
    None,
}

impl Target {
    pub(crate) fn is_reached(self, value: f64) -> Option<bool> {
        match self {
            Self::AtLeast(bound) => Some(value >= bound),
            Self::AtMost(bound) => Some(value <= bound),
            Self::None => None,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(out, "≥ {}", bare(*bound)),
            Self::AtMost(bound) => write!(out, "≤ {}", bare(*bound)),
            Self::None => Ok(()),
        }
    }
}

/// A number of the table, with three significant digits if it is small, and otherwise with thousands separators.
pub(crate) fn short(value: f64) -> String {
    if value.abs() < 9.995 {
        return format!("{value:.2}");
    }
    if value.abs() < 99.95 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0
            && digit.is_ascii_digit()
            && (digits.len() - index).is_multiple_of(3)
            && !text.ends_with('-')
        {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A target's number without trailing zeros.
fn bare(value: f64) -> String {
    if value < 100.0 { value.to_string() } else { short(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        let of = |values: &[f64]| Figure::of(values.iter().copied());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[5.0, 1.0, 3.0]), Some(Figure { median: 3.0, least: 1.0, most: 5.0 }));
        assert_eq!(of(&[4.0, 1.0, 2.0, 9.0]).map(|figure| figure.median), Some(3.0));
    }

    #[test]
    fn targets_are_reached_or_not() {
        assert_eq!(Target::AtLeast(1.1).is_reached(1.1), Some(true));
        assert_eq!(Target::AtLeast(1.1).is_reached(1.09), Some(false));
        assert_eq!(Target::AtMost(1.5).is_reached(1.51), Some(false));
        assert_eq!(Target::None.is_reached(1.0), None);
        assert_eq!(Target::AtMost(1_000.0).to_string(), "≤ 1,000");
        assert_eq!(Target::AtLeast(0.85).to_string(), "≥ 0.85");
    }

    #[test]
    fn numbers_are_short() {
        let texts = [0.123, 9.996, 99.94, 99.96, 1_234.5, 1_234_567.0, -1_234.0].map(short);
        assert_eq!(texts, ["0.12", "10.0", "99.9", "100", "1,234", "1,234,567", "-1,234"]);
        let figure = Figure { median: 12_345.0, least: 11_800.0, most: 12_600.0 };
        assert_eq!(figure.to_string(), "12,345 (11,800..12,600)");
        assert_eq!(Figure { least: 12_345.0, most: 12_345.0, ..figure }.to_string(), "12,345");
    }
}
