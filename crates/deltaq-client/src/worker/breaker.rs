//! Pauses a worker whose keys fail.
//!
//! When different keys fail in a row, the target of the handlers is probably down, and the keys are fine. The worker then
//! takes no keys for a time, and tries one key after that. A nack is a failure; ack, done and reject are successes; a
//! release is neither. Failures of one key count once.

use std::collections::HashSet;
use std::time::Duration;

use deltaq_types::SettleAs;
use tokio::time::Instant;

use super::leases::Slot;

/// The pauses: they double with each key that fails after a pause.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// The largest number of failures in a row: their keys are remembered.
pub(super) const LIMIT_MAX: usize = 1_000;

/// The state of one worker.
#[derive(Debug)]
pub(super) struct Breaker {
    /// `None` if nothing pauses the worker.
    limit: Option<usize>,
    /// The keys that have failed since the last success. There are fewer than the limit, and none during a pause.
    keys: HashSet<String>,
    /// The failures since the last success.
    failures: u32,
    pause: Option<Pause>,
}

#[derive(Debug)]
struct Pause {
    length: Duration,
    state: State,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// One key may be tried from this instant on.
    Until(Instant),
    /// The handler of this lease runs.
    Trying(Slot),
}

/// What the end of a handler has changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The worker pauses.
    Paused { failures: u32, pause: Duration },
    /// The key that was tried has succeeded.
    Resumed,
}

impl Breaker {
    pub(super) fn new(limit: Option<usize>) -> Self {
        Self { limit, keys: HashSet::new(), failures: 0, pause: None }
    }

    pub(super) const fn is_paused(&self) -> bool {
        self.pause.is_some()
    }

    /// Whether a handler may begin. During a pause, that is at most one.
    pub(super) fn may_start(&self, now: Instant) -> bool {
        self.pause.as_ref().is_none_or(|pause| matches!(pause.state, State::Until(until) if until <= now))
    }

    /// When a key may be tried; `None` if the worker does not wait for that.
    pub(super) fn next_at(&self, now: Instant) -> Option<Instant> {
        match self.pause.as_ref()?.state {
            State::Until(until) if until > now => Some(until),
            State::Until(_) | State::Trying(_) => None,
        }
    }

    /// A handler has begun, which [`Self::may_start`] has allowed.
    pub(super) const fn started(&mut self, slot: Slot) {
        if let Some(pause) = &mut self.pause {
            pause.state = State::Trying(slot);
        }
    }

    /// The handler of a key has ended. A lost lease counts as a release.
    pub(super) fn ended(&mut self, now: Instant, slot: Slot, key: &str, how: SettleAs) -> Option<Change> {
        let limit = self.limit?;
        // The handlers that began before the pause don't end it.
        if self.pause.as_ref().is_some_and(|pause| pause.state != State::Trying(slot)) {
            return None;
        }
        let last = self.pause.take().map(|pause| pause.length);
        if how == SettleAs::Release {
            self.pause = last.map(|length| Pause { length, state: State::Until(now + length) });
            return None;
        }
        if how != SettleAs::Nack {
            self.keys.clear();
            self.failures = 0;
            return last.map(|_| Change::Resumed);
        }
        self.failures = self.failures.saturating_add(1);
        self.keys.insert(key.to_owned());
        if last.is_none() && self.keys.len() < limit {
            return None;
        }
        self.keys.clear();
        let (first, max) = PAUSE;
        let length = last.map_or(first, |last| max.min(2 * last));
        self.pause = Some(Pause { length, state: State::Until(now + length) });
        Some(Change::Paused { failures: self.failures, pause: length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the limit 3. The key and the outcome of a handler end with `!` if a pause begins, and with `+` if the worker
    /// goes on. A number is the length of the pause in seconds, which passes.
    const SCRIPTS: [&str; 5] = [
        "a:nack b:nack c:nack! 1 d:nack! 2 e:nack! 4 f:ack+ a:nack b:nack c:nack! 1",
        "a:nack a:nack a:nack a:nack b:nack c:nack!",
        "a:nack b:nack c:ack a:nack b:nack c:done a:nack b:nack c:reject a:nack b:nack c:release d:nack!",
        "a:nack b:nack c:nack! 1 a:release 1 a:release 1 a:nack! 2 b:reject+ c:nack",
        "a:nack b:nack c:nack! 1 x:nack! 2 x:nack! 4 x:nack! 8 x:nack! 16 x:nack! 32 x:nack! 60 x:nack! 60 x:done+",
    ];

    fn how(text: &str) -> SettleAs {
        serde_json::from_value(text.into()).unwrap()
    }

    #[test]
    fn failures_of_different_keys_pause_and_a_success_resumes() {
        for script in SCRIPTS {
            let (mut breaker, mut now) = (Breaker::new(Some(3)), Instant::now());
            for (slot, step) in (1..).zip(script.split(' ')) {
                if let Ok(seconds) = step.parse() {
                    let end = now + Duration::from_secs(seconds);
                    assert!(
                        !breaker.may_start(now) && breaker.next_at(now) == Some(end),
                        "{script} at {step}"
                    );
                    now = end;
                    assert!(breaker.may_start(now) && breaker.next_at(now).is_none(), "{script} at {step}");
                    continue;
                }
                let (key, text) = step.trim_end_matches(['!', '+']).split_once(':').unwrap();
                assert!(breaker.may_start(now), "{script} at {step}");
                breaker.started(slot);
                assert_eq!(breaker.may_start(now), !breaker.is_paused(), "{script} at {step}");
                let change = breaker.ended(now, slot, key, how(text));
                let is_expected = match change {
                    Some(Change::Paused { .. }) => step.ends_with('!'),
                    Some(Change::Resumed) => step.ends_with('+'),
                    None => !step.ends_with(['!', '+']),
                };
                assert!(is_expected, "{script} at {step}: {change:?}");
            }
        }
    }

    #[test]
    fn handlers_that_began_before_a_pause_do_not_end_it() {
        let (mut breaker, now) = (Breaker::new(Some(1)), Instant::now());
        (1..4).for_each(|slot| breaker.started(slot));
        assert!(matches!(breaker.ended(now, 1, "a", SettleAs::Nack), Some(Change::Paused { .. })));
        assert_eq!(breaker.ended(now, 2, "b", SettleAs::Ack), None);
        breaker.started(4);
        assert_eq!(breaker.ended(now, 3, "c", SettleAs::Ack), None);
        assert!(breaker.is_paused());
        assert_eq!(breaker.ended(now, 4, "d", SettleAs::Ack), Some(Change::Resumed));
    }

    #[test]
    fn without_a_limit_nothing_pauses() {
        let (mut breaker, now) = (Breaker::new(None), Instant::now());
        assert!(
            (0..5_000).all(|number| breaker.ended(now, 1, &number.to_string(), SettleAs::Nack).is_none())
        );
    }
}
