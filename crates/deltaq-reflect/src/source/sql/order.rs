//! Whether the values of the column `since` grow with time in the order of the database, in a column without a type for
//! times.
//!
//! A text of a time such as `2026-11-27T09:00:00Z` follows all texts such as `2026-11-27 10:00:00` of the same day, so the
//! next read would begin behind them. The same applies to offsets, to texts behind numbers, to other texts behind times, and
//! to numbers that are ordered as texts.

use super::Value;
use super::moment::seconds;

/// The time in seconds in which forms of times must not differ. Offsets are at most 14 hours.
const NEAR: f64 = 2.0 * 86_400.0;

/// The order of the values that were read so far.
#[derive(Debug, Default)]
pub(super) struct Order {
    last: Option<Kind>,
    /// The latest time at which the order was broken; infinite if it was not broken by a time.
    broken_at: Option<f64>,
    /// The last time that has passed.
    time: Option<f64>,
}

/// What a value is.
#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Number,
    Digits(String),
    /// The separator between date and time, and the offset from UTC, if the text has them.
    Time(f64, Option<(char, String)>),
    Other,
}

impl Kind {
    fn of(value: &Value) -> Self {
        let Value::Text(text) = value else { return Self::Number };
        if let Some(seconds) = seconds(text) {
            let time = text.get(10..).and_then(|time| {
                let (separator, rest) = (time.chars().next()?, time.get(1..)?);
                let offset = rest.trim_start_matches(|c: char| c.is_ascii_digit() || [':', '.'].contains(&c));
                Some((separator, offset.to_owned()))
            });
            return Self::Time(seconds, time);
        }
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Self::Other;
        }
        Self::Digits(text.trim_start_matches('0').to_owned())
    }
}

impl Order {
    /// Records the next value in the order of the database. `now` is the clock of the database.
    pub(super) fn note(&mut self, value: &Value, now: f64) {
        let kind = Kind::of(value);
        let never = Some(f64::INFINITY);
        let broken_at = match (self.last.as_ref(), &kind) {
            (Some(Kind::Number), Kind::Digits(_) | Kind::Time(..) | Kind::Other)
            | (Some(Kind::Time(..)), Kind::Digits(_) | Kind::Other) => never,
            (Some(Kind::Digits(one)), Kind::Digits(next)) if (next.len(), next) < (one.len(), one) => never,
            (Some(Kind::Time(one, form)), Kind::Time(next, next_form)) => {
                let differ = form.is_some() && next_form.is_some() && form != next_form;
                (next < one || differ && next - one < NEAR).then(|| next.max(*one))
            }
            _ => None,
        };
        if let Kind::Time(time, _) = kind {
            self.time = Some(time).filter(|time| *time <= now).or(self.time);
        }
        self.broken_at = broken_at.or(self.broken_at);
        self.last = Some(kind);
    }

    /// Whether a later row may have a smaller value. A form that was given up long ago does not matter.
    pub(super) fn is_scattered(&self) -> bool {
        self.broken_at.is_some_and(|at| self.time.is_none_or(|time| at + NEAR >= time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-27T10:00:00Z.
    const NOW: f64 = 1_795_773_600.0;

    fn is_scattered(values: &[Value]) -> bool {
        let mut order = Order::default();
        for value in values {
            order.note(value, NOW);
        }
        order.is_scattered()
    }

    fn texts(texts: &[&str]) -> bool {
        is_scattered(&texts.iter().map(|text| Value::Text((*text).to_owned())).collect::<Vec<_>>())
    }

    #[test]
    fn forms_of_times_that_are_near_have_no_order() {
        for mixed in [
            &["2026-11-27 08:00:00", "2026-11-27T00:00:01Z"][..],
            &["2026-11-27 08:00:00", "2026-11-27T09:00:00Z"],
            &["2026-11-27T08:00:00+00:00", "2026-11-27T14:00:00+05:30"],
            &["2026-11-27T08:00:00", "2026-11-27T08:00:00Z"],
            &["2026-11-27 08:00:00+00", "2026-11-27 08:00:01+00:00"],
            &["2026-11-27 08:00:00.1Z", "2026-11-27 08:00:00Z"],
            &["2026-11-27 08:00:00", "2026-11-27T09:00:00Z", "2199-01-01T00:00:00Z"],
            &["2026-11-27 08:00:00", "27.11.2026 09:00"],
            &["2026-11-27 08:00:00", "never"],
            &["10", "9"],
            &["1795773600", "999"],
        ] {
            assert!(texts(mixed), "{mixed:?}");
        }
    }

    #[test]
    fn values_of_one_form_are_in_order() {
        for ordered in [
            &["", "2026-11-27 08:00:00", "2026-11-27 08:00:00.5", "2026-11-27 08:00:01", "infinity"][..],
            &["2026-11-26", "2026-11-27", "2026-11-27 08:00:00"],
            // The form has changed long ago, and a time far ahead has another form.
            &["2024-01-01T08:00:00Z", "2024-01-02 08:00:00", "2026-11-27 08:00:00", "2199-01-01T00:00:00Z"],
            &["0009", "0010", "0011"],
            &["9", "a0", "b"],
            &["00c1", "1000", "10a0", "1e5", "2000"],
            &["019a0000-1111-7000", "01912345-1111-7000", "0192abcd-1111-7000"],
        ] {
            assert!(!texts(ordered), "{ordered:?}");
        }
        let numbers = [Value::Integer(-3), Value::Real(1.5), Value::Integer(9)];
        assert!(!is_scattered(&numbers));
        for text in ["", "2026-11-27 08:00:00", "9"] {
            let mixed = [Value::Integer(1_795_773_600), Value::Text(text.to_owned())];
            assert!(is_scattered(&mixed), "{text}");
        }
    }
}
