//! The limits of a queue. The rate is kept as the theoretical arrival time of the next key, as the generic cell rate algorithm has it.

use super::groups::Groups;
use super::{Item, Micros, Model};
use deltaq_engine::config::Config;
use deltaq_engine::rate::Rate;
use deltaq_types::PauseReason;

const HOUR: Micros = 3_600_000_000;
/// The time that a rate has for one key, in units of which a microsecond has as many as a thousand seconds have keys.
const KEY: u128 = 1_000_000_000;

impl Model {
    /// Whether a pop gets a key at `now`.
    pub(crate) fn delivers(&self, now: Micros) -> bool {
        let from = self.rate_lets_through().max(self.held_until);
        self.next_ready(None).is_some() && !self.paused && !self.is_full() && from <= now
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

    /// When the hold ends and the rate lets the next key through, if a key waits only for that.
    pub(crate) fn next_delivery(&self) -> Option<Micros> {
        let at = self.rate_lets_through().max(self.held_until);
        let waits = self.next_ready(None).is_some() && !self.paused && !self.is_full();
        (waits && at > self.now).then_some(at)
    }

    /// A worker has asked that nothing is delivered for a time: at most an hour, and not less than others have asked for.
    pub(super) fn hold(&mut self, now: Micros, length: Micros) -> Micros {
        let until = now + length.min(HOUR);
        self.hit(match (length, self.held_until) {
            (0, _) => "a hold of no length",
            (_, held) if held >= until => "a hold that ends before another one",
            (_, held) if held > now => "a hold prolongs another one",
            _ => "a hold of a queue",
        });
        if until > self.held_until && until > now {
            self.event(now);
            self.held_until = until;
        }
        self.held_until.max(until)
    }

    /// An operator stops delivery, or ends what stops it.
    pub(crate) fn set_paused(&mut self, now: Micros, paused: bool) {
        let now = self.advance(now);
        let ends_hold = !paused && self.held_until > now;
        if ends_hold {
            self.hit("a resume ends a hold");
        }
        if self.paused != paused || ends_hold {
            self.event(now);
            self.paused = paused;
        }
        if !paused {
            (self.pause_reason, self.held_until) = (None, 0);
        }
    }

    pub(crate) fn pause_itself(&mut self, now: Micros, reason: PauseReason) {
        let now = self.advance(now);
        if !self.paused {
            self.event(now);
            (self.paused, self.pause_reason) = (true, Some(reason));
        }
    }

    /// A key is delivered.
    pub(super) fn note_delivery(&mut self, at: Micros) {
        let Some(rate) = self.config.rate else { return };
        self.arrival = self.arrival.max(units(rate, at)) + KEY;
    }

    /// The limits and the groups change.
    pub(super) fn change_limits(&mut self, config: &Config, at: Micros) {
        self.change_rate(config.rate, at);
        if config.groups.is_none() {
            self.groups = Groups::default();
        }
    }

    /// What the queue owes stays if its rate changes.
    fn change_rate(&mut self, next: Option<Rate>, at: Micros) {
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
