//! The limits of a queue. The rate is kept as the theoretical arrival time of the next key, as the generic cell rate algorithm has it.

use super::{Item, Micros, Model};
use deltaq_engine::rate::Rate;

/// The time that a rate has for one key, in units of which a microsecond has as many as a thousand seconds have keys.
const KEY: u128 = 1_000_000_000;

impl Model {
    /// Whether a pop gets a key at `now`.
    pub(crate) fn delivers(&self, now: Micros) -> bool {
        self.count(Item::is_ready) > 0 && !self.paused && !self.is_full() && self.rate_lets_through() <= now
    }

    /// Whether workers hold as many keys as they may.
    pub(crate) fn is_full(&self) -> bool {
        self.config.max_leased.is_some_and(|most| self.count(Item::is_leased) as u64 >= most)
    }

    /// The first time at which the rate lets a key through.
    pub(crate) fn rate_lets_through(&self) -> Micros {
        let Some(rate) = self.config.rate else { return 0 };
        let tolerance = u128::from(rate.burst - 1) * KEY;
        let units = self.arrival.saturating_sub(tolerance).div_ceil(rate.per_1000_seconds.into());
        Micros::try_from(units).expect("a time")
    }

    /// When the rate lets the next key through, if a key waits only for that.
    pub(crate) fn next_delivery(&self) -> Option<Micros> {
        let at = self.rate_lets_through();
        let waits = self.count(Item::is_ready) > 0 && !self.paused && !self.is_full();
        (waits && at > self.now).then_some(at)
    }

    /// A key is delivered.
    pub(super) fn note_delivery(&mut self, at: Micros) {
        let Some(rate) = self.config.rate else { return };
        self.arrival = self.arrival.max(units(rate, at)) + KEY;
    }

    /// What the queue owes stays if its rate changes.
    pub(super) fn change_rate(&mut self, next: Option<Rate>, at: Micros) {
        if self.config.rate == next {
            return;
        }
        let owed = self.config.rate.map_or(0, |rate| self.arrival.saturating_sub(units(rate, at)));
        if owed > 0 {
            self.hit("a change of the rate of a queue with a debt");
        }
        self.arrival = next.map_or(0, |rate| units(rate, at) + owed);
    }
}

fn units(rate: Rate, at: Micros) -> u128 {
    u128::from(at) * u128::from(rate.per_1000_seconds)
}
