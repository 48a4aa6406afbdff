//! How many requests an endpoint gets at once: adaptive concurrency, down to none and one probe at a time.
//!
//! It is pure: time and jitter are arguments.
//!
//! ```text
//! allowed 1 --success--> 2 ... max_in_flight          each failure halves it, down to 1
//!     ^                        |
//!     |                        | failures in a row, of several keys
//! success                      v
//!     '------ probing <--- failing                    a probe that fails doubles the wait
//! ```
//!
//! Invariant: while the breaker is open, at most one request is in flight that began after it had opened.

use std::time::Duration;

use tokio::time::Instant;

/// Failures in a row after which the breaker opens.
const FAILURES: u32 = 5;
/// The failures must be of this many keys, or of all that the endpoint can get. Otherwise one key that always fails would stop the others.
const KEYS: usize = 3;
/// Failures in a row after which the breaker opens in any case, so that an endpoint that is down is not asked without pause.
const FAILURES_MAX: u32 = 20;
/// The wait before the first probe. It doubles with each probe.
const WAIT: Duration = Duration::from_secs(1);
/// The longest wait before a probe.
const WAIT_MAX: Duration = Duration::from_mins(5);

/// How many requests an endpoint gets at once.
#[derive(Debug)]
pub struct Breaker {
    max_in_flight: usize,
    state: State,
    /// Failures since the last success.
    failures: u32,
    /// Different keys among these failures, at most [`KEYS`].
    keys: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed {
        allowed: usize,
    },
    /// `probes` have failed since the breaker opened.
    Open {
        probes: u32,
        until: Instant,
    },
    Probing {
        probes: u32,
    },
}

/// What a failure has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Whether the failure counts for the key, if the endpoint has answered: the breaker was not open.
    pub counts: bool,
    /// Whether the failure has opened the breaker.
    pub opened: bool,
}

impl Breaker {
    /// A breaker that allows one request.
    pub fn new(max_in_flight: usize) -> Self {
        Self { max_in_flight, state: State::Closed { allowed: 1 }, failures: 0, keys: Vec::new() }
    }

    /// Changes the maximum.
    pub fn set_max_in_flight(&mut self, max_in_flight: usize) {
        self.max_in_flight = max_in_flight;
        if let State::Closed { allowed } = &mut self.state {
            *allowed = (*allowed).min(max_in_flight);
        }
    }

    /// How many requests may be in flight.
    pub const fn allowed(&self) -> usize {
        match self.state {
            State::Closed { allowed } => allowed,
            State::Open { .. } => 0,
            State::Probing { .. } => 1,
        }
    }

    /// How many requests may begin now.
    pub fn may_begin(&self, in_flight: usize, now: Instant) -> usize {
        match self.state {
            State::Closed { allowed } => allowed.saturating_sub(in_flight),
            State::Open { until, .. } => usize::from(in_flight == 0 && now >= until),
            State::Probing { .. } => 0,
        }
    }

    /// Whether the breaker is open.
    pub const fn is_open(&self) -> bool {
        !matches!(self.state, State::Closed { .. })
    }

    /// When the next probe may begin.
    pub const fn probes_at(&self) -> Option<Instant> {
        match self.state {
            State::Open { until, .. } => Some(until),
            State::Closed { .. } | State::Probing { .. } => None,
        }
    }

    /// Opens the breaker: the next request is a probe.
    pub fn open(&mut self, now: Instant) {
        self.state = State::Open { probes: 0, until: now };
        self.failures = 0;
        self.keys.clear();
    }

    /// A request has begun.
    pub const fn begun(&mut self) {
        if let State::Open { probes, .. } = self.state {
            self.state = State::Probing { probes };
        }
    }

    /// A request has ended without a result, because its key was not sent.
    pub const fn withdrawn(&mut self, now: Instant) {
        if let State::Probing { probes } = self.state {
            self.state = State::Open { probes, until: now };
        }
    }

    /// The endpoint has asked for a pause. That is no failure, but it gets fewer requests at once.
    pub fn throttled(&mut self, now: Instant) {
        match &mut self.state {
            State::Closed { allowed } => *allowed = (*allowed / 2).max(1),
            State::Open { .. } | State::Probing { .. } => self.withdrawn(now),
        }
    }

    /// The endpoint has answered as agreed.
    pub fn succeeded(&mut self) {
        self.failures = 0;
        self.keys.clear();
        self.state = match self.state {
            State::Closed { allowed } => State::Closed { allowed: (allowed + 1).min(self.max_in_flight) },
            State::Open { .. } | State::Probing { .. } => State::Closed { allowed: 1 },
        };
    }

    /// A request for these keys has failed. `others` are the keys that the endpoint could get besides them. `jitter` is a factor of
    /// the wait.
    pub fn failed(&mut self, keys: &[&str], others: usize, now: Instant, jitter: f64) -> Failed {
        match self.state {
            State::Closed { allowed } => {
                self.failures += 1;
                for key in keys {
                    if self.keys.len() < KEYS && !self.keys.iter().any(|failed| failed == key) {
                        self.keys.push((*key).to_owned());
                    }
                }
                let are_several = self.keys.len() >= KEYS || self.keys.len() > others;
                let opened = self.failures >= FAILURES && (are_several || self.failures >= FAILURES_MAX);
                self.state = if opened {
                    State::Open { probes: 0, until: now + wait(0, jitter) }
                } else {
                    State::Closed { allowed: (allowed / 2).max(1) }
                };
                Failed { counts: true, opened }
            }
            State::Open { .. } => Failed { counts: false, opened: false },
            State::Probing { probes } => {
                let probes = probes.saturating_add(1);
                self.state = State::Open { probes, until: now + wait(probes, jitter) };
                Failed { counts: false, opened: false }
            }
        }
    }
}

fn wait(probes: u32, jitter: f64) -> Duration {
    WAIT.saturating_mul(1_u32.checked_shl(probes).unwrap_or(u32::MAX)).min(WAIT_MAX).mul_f64(jitter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(now: Instant) -> Breaker {
        let mut breaker = Breaker::new(16);
        for key in ["a", "b", "c", "d", "e"] {
            breaker.failed(&[key], 9, now, 1.0);
        }
        assert!(breaker.is_open());
        breaker
    }

    #[test]
    fn each_success_allows_one_more_and_each_failure_half() {
        let now = Instant::now();
        let mut breaker = Breaker::new(4);
        assert_eq!((breaker.allowed(), breaker.may_begin(0, now), breaker.may_begin(1, now)), (1, 1, 0));
        for allowed in [2, 3, 4, 4] {
            breaker.succeeded();
            assert_eq!(breaker.allowed(), allowed);
        }
        for allowed in [2, 1, 1] {
            assert!(breaker.failed(&["a"], 9, now, 1.0).counts);
            assert_eq!(breaker.allowed(), allowed);
        }
        assert_eq!(breaker.may_begin(4, now), 0, "more are in flight than are allowed");
    }

    #[test]
    fn failures_of_several_keys_open_it_and_those_of_one_key_do_not() {
        let now = Instant::now();
        let mut breaker = Breaker::new(16);
        for _ in 0..4 {
            assert!(!breaker.failed(&["a"], 9, now, 1.0).opened);
        }
        assert!(!breaker.failed(&["a"], 9, now, 1.0).opened, "other keys may succeed");
        assert!(!breaker.failed(&["b"], 9, now, 1.0).opened);
        assert_eq!(breaker.failed(&["c"], 9, now, 1.0), Failed { counts: true, opened: true });
        assert_eq!(breaker.allowed(), 0);

        let mut single = Breaker::new(16);
        for _ in 0..4 {
            assert!(!single.failed(&["a"], 0, now, 1.0).opened);
        }
        assert!(single.failed(&["a"], 0, now, 1.0).opened, "there is no other key");

        let mut stuck = Breaker::new(16);
        let opened = (1..=99).find(|_| stuck.failed(&["a"], 9, now, 1.0).opened);
        assert_eq!(opened, Some(20), "it does not ask without pause");

        let mut mixed = Breaker::new(16);
        for _ in 0..50 {
            assert!(!mixed.failed(&["a"], 9, now, 1.0).opened, "others succeed");
            mixed.succeeded();
        }
    }

    #[test]
    fn one_probe_at_a_time_tests_an_open_breaker() {
        let now = Instant::now();
        let mut breaker = open(now);
        let mut at = now;
        for seconds in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            let until = breaker.probes_at().expect("a probe");
            assert_eq!(until - at, Duration::from_secs(seconds));
            assert_eq!(
                (breaker.may_begin(0, until - Duration::from_millis(1)), breaker.may_begin(0, until)),
                (0, 1)
            );
            assert_eq!(breaker.may_begin(1, until), 0, "an earlier request is in flight");
            breaker.begun();
            assert_eq!((breaker.may_begin(0, until), breaker.may_begin(1, until)), (0, 0));
            assert_eq!(breaker.failed(&["x"], 9, until, 1.0), Failed { counts: false, opened: false });
            at = until;
        }
        breaker.begun();
        breaker.succeeded();
        assert_eq!(breaker.allowed(), 1);
        assert!(breaker.failed(&["x"], 9, at, 1.0).counts, "the failures in a row begin anew");
        assert!(!breaker.is_open());
    }

    #[test]
    fn a_pause_that_the_endpoint_asks_for_is_no_failure() {
        let now = Instant::now();
        let mut breaker = Breaker::new(16);
        (0..3).for_each(|_| breaker.succeeded());
        for allowed in [2, 1, 1, 1, 1, 1] {
            breaker.throttled(now);
            assert_eq!((breaker.allowed(), breaker.is_open()), (allowed, false));
        }
        breaker.open(now);
        breaker.begun();
        breaker.throttled(now);
        assert_eq!(
            (breaker.is_open(), breaker.probes_at()),
            (true, Some(now)),
            "the next one is a probe again"
        );
    }

    #[test]
    fn a_probe_that_was_not_sent_is_none() {
        let now = Instant::now();
        let mut breaker = open(now);
        breaker.begun();
        breaker.withdrawn(now);
        assert_eq!(breaker.may_begin(0, now), 1);
        assert_eq!(breaker.failed(&["late"], 9, now, 1.0), Failed { counts: false, opened: false });
        assert_eq!(breaker.probes_at(), Some(now), "a request from before does not move it");
        breaker.succeeded();
        assert_eq!(breaker.allowed(), 1);
    }
}
