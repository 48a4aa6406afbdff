//! The rate of a queue, or of a group: how many keys are delivered per second.
//!
//! This is the generic cell rate algorithm, kept as a debt: a delivery adds one key to it, and time pays it off. Keys are delivered while
//! one more key fits into its burst. The numbers are whole, so nothing is lost by rounding, and the debt follows from the events that
//! deliver keys.

use deltaq_types::DeliveryRate;
use serde::{Deserialize, Serialize};

use super::time::{Time, whole_us};

/// One key, in the parts in which a debt is counted: a rate of one key in a thousand seconds pays one part in a microsecond.
const KEY: u64 = 1_000_000_000;

/// How many keys are delivered per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Keys in a thousand seconds.
    pub per_1000_seconds: u64,
    /// Keys that are delivered at once after a pause.
    pub burst: u64,
}

/// What a queue or a group owes to its rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateDebt {
    /// The debt at `at`, in parts of a key.
    pub owed: u64,
    /// When the debt was computed.
    pub at: Time,
}

impl Rate {
    /// The rate of a number of keys per second; `None` if the number has more than three decimal places.
    #[must_use]
    #[expect(
        clippy::float_cmp,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the text of a number with three decimal places is read as the nearest float, and so is this quotient"
    )]
    pub fn new(per_second: f64, burst: u64) -> Option<Self> {
        let thousandfold = (per_second * 1_000.0).round();
        let is_kept = thousandfold / 1_000.0 == per_second && (1.0..=1e9).contains(&thousandfold);
        is_kept.then_some(Self { per_1000_seconds: thousandfold as u64, burst })
    }

    /// Keys per second.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "at most 10^9")]
    pub fn per_second(&self) -> f64 {
        self.per_1000_seconds as f64 / 1_000.0
    }

    /// The debt at `now`.
    pub(super) fn pay(self, debt: RateDebt, now: Time) -> RateDebt {
        let paid = whole_us(now.since(debt.at)).saturating_mul(self.per_1000_seconds);
        RateDebt { owed: debt.owed.saturating_sub(paid), at: now.max(debt.at) }
    }

    /// The debt after a delivery.
    pub(super) fn deliver(self, debt: RateDebt, now: Time) -> RateDebt {
        let RateDebt { owed, at } = self.pay(debt, now);
        RateDebt { owed: owed.saturating_add(KEY), at }
    }

    /// When the debt is paid.
    pub(super) fn paid_at(self, debt: RateDebt) -> Time {
        Time::from_micros(debt.at.as_micros().saturating_add(debt.owed.div_ceil(self.per_1000_seconds)))
    }

    /// When a key is delivered, if from `now` on `ahead` others are delivered before it as soon as they may be.
    pub(super) fn next(self, debt: RateDebt, ahead: u64, now: Time) -> Time {
        let debt = self.pay(debt, now);
        let most = self.burst.saturating_sub(1).saturating_mul(KEY);
        let excess = ahead.saturating_mul(KEY).saturating_add(debt.owed).saturating_sub(most);
        Time::from_micros(debt.at.as_micros().saturating_add(excess.div_ceil(self.per_1000_seconds)))
    }
}

impl TryFrom<DeliveryRate> for Rate {
    type Error = String;

    fn try_from(document: DeliveryRate) -> Result<Self, String> {
        let DeliveryRate { per_second, burst } = document;
        Self::new(per_second, burst).ok_or_else(|| format!("{per_second} has more than 3 decimal places"))
    }
}

impl From<Rate> for DeliveryRate {
    fn from(rate: Rate) -> Self {
        Self { per_second: rate.per_second(), burst: rate.burst }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_rate_has_at_most_three_decimal_places() {
        for (per_second, thousandfold) in
            [(0.001, 1), (0.1, 100), (0.333, 333), (1.005, 1_005), (299.999, 299_999), (1e6, 1_000_000_000)]
        {
            let rate = Rate::new(per_second, 1).expect("it is kept");
            assert_eq!((rate.per_1000_seconds, rate.per_second()), (thousandfold, per_second));
        }
        for per_second in [0.0, 0.0004, 0.0011, 0.333_3, 1_000_000.001, -1.0, f64::NAN] {
            assert_eq!(Rate::new(per_second, 1), None, "{per_second}");
        }
    }

    /// The keys that a queue delivers until `end` if a pop always waits, and the time of the last one.
    fn delivered(rate: Rate, end: u64) -> (u64, u64) {
        let (mut debt, mut count, mut now) = (RateDebt::default(), 0, 0);
        loop {
            let next = rate.next(debt, 0, Time::from_micros(now)).as_micros();
            if next >= end {
                return (count, now);
            }
            now = next;
            debt = rate.deliver(debt, Time::from_micros(now));
            count += 1;
        }
    }

    #[test]
    fn a_rate_is_neither_passed_nor_left_short() {
        let second = 1_000_000;
        // The burst, and then one key each time that the rate has paid for one.
        assert_eq!(delivered(Rate::new(300.0, 300).expect("a rate"), 10 * second), (300 + 2_999, 9_996_667));
        assert_eq!(delivered(Rate::new(0.001, 1).expect("a rate"), 3_000 * second), (3, 2_000 * second));
        assert_eq!(delivered(Rate::new(1.0, 1).expect("a rate"), 10 * second), (10, 9 * second));
        // A rate above one key in a microsecond is reached by several keys in each.
        assert_eq!(delivered(Rate::new(1e6, 5).expect("a rate"), second).0, second + 4);
    }

    #[test]
    fn after_a_pause_exactly_the_burst_comes_at_once() {
        let rate = Rate::new(2.0, 3).expect("a rate");
        let mut debt = RateDebt::default();
        for now in [1_000_000, 60_000_000, 600_000_000].map(Time::from_micros) {
            for _ in 0..3 {
                assert_eq!(rate.next(debt, 0, now), now);
                debt = rate.deliver(debt, now);
            }
            assert_eq!(rate.next(debt, 0, now).since(now).as_millis(), 500);
            assert_eq!(rate.next(debt, 2, now).since(now).as_millis(), 1_500);
            let later = now.plus(Duration::from_millis(1_200));
            assert_eq!(rate.next(debt, 0, later), later);
            assert_eq!(rate.next(debt, 3, later).since(now).as_millis(), 2_000);
        }
    }

    #[test]
    fn a_debt_of_long_ago_is_paid() {
        let rate = Rate::new(0.001, 1_000_000).expect("a rate");
        let debt = RateDebt { owed: u64::MAX, at: Time::default() };
        assert_eq!(rate.pay(debt, Time::from_micros(u64::MAX)).owed, 0);
        assert!(rate.next(debt, u64::MAX, Time::default()) > Time::default());
    }
}
