//! The limits of a queue. The rate is kept as the theoretical arrival time of the next key, as the generic cell rate algorithm has it.

use super::{Item, Micros, Model, Name, micros};
use deltaq_engine::command::{HoldScope, How};
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
        lets_through(self.config.rate, self.arrival)
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

    /// When the hold of a key ends that a settle asks for. A closed queue in mode keys waits for no delay, and holds no key.
    pub(super) fn key_hold(&self, how: &How, now: Micros) -> Option<Micros> {
        let How::Hold { scope: HoldScope::Key, acks: false, length } = how else { return None };
        let waits_for_no_delay = self.closed && self.is_keys();
        (!length.is_zero() && !waits_for_no_delay).then(|| now + micros(*length).min(HOUR))
    }

    /// A worker has released a key and asked that it is not delivered for a time.
    pub(super) fn hold_key(&mut self, key: Name, stamp: (u64, Micros), until: Micros) {
        self.take_lease(key);
        let (return_rule, _) = self.return_deltas(key);
        let item = self.item(key);
        item.floor = Some(until);
        if let Some(delay) = &mut item.delay {
            delay.due = delay.due.max(until);
        }
        item.back_off(until, stamp.0);
        self.hit(return_rule);
        self.hit("a hold of a key");
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
        self.arrival = arrival_after(self.config.rate, self.arrival, at);
    }

    /// The limits and the groups change.
    pub(super) fn change_limits(&mut self, config: &Config, at: Micros) {
        self.change_rate(config.rate, at);
        self.change_group_rates(config, at);
    }

    /// What the queue owes stays if its rate changes.
    fn change_rate(&mut self, next: Option<Rate>, at: Micros) {
        if self.config.rate == next {
            return;
        }
        if self.config.rate.is_some_and(|rate| self.arrival > units(rate, at)) {
            self.hit("a change of the rate of a queue with a debt");
        }
        self.arrival = arrival_at(self.config.rate, next, self.arrival, at);
    }
}

/// The first time at which a rate lets a key through.
pub(super) fn lets_through(rate: Option<Rate>, arrival: u128) -> Micros {
    let Some(rate) = rate else { return 0 };
    let tolerance = u128::from(rate.burst - 1) * KEY;
    let units = arrival.saturating_sub(tolerance).div_ceil(rate.per_1000_seconds.into());
    Micros::try_from(units).expect("a time")
}

/// The theoretical arrival of the next key after a delivery.
pub(super) fn arrival_after(rate: Option<Rate>, arrival: u128, at: Micros) -> u128 {
    rate.map_or(arrival, |rate| arrival.max(units(rate, at)) + KEY)
}

/// The theoretical arrival of the next key after a change of the rate: what is owed stays.
pub(super) fn arrival_at(before: Option<Rate>, next: Option<Rate>, arrival: u128, at: Micros) -> u128 {
    if before == next {
        return arrival;
    }
    let owed = before.map_or(0, |rate| arrival.saturating_sub(units(rate, at)));
    next.map_or(0, |rate| units(rate, at) + owed)
}

fn units(rate: Rate, at: Micros) -> u128 {
    u128::from(at) * u128::from(rate.per_1000_seconds)
}
