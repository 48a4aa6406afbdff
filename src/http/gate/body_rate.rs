//! The minimum rate of a request body and of a reply, so that a client that sends or reads a few bytes now and then
//! can't hold its permits and the memory of its reply forever.

use std::time::Duration;

/// The limits on how slowly a body may arrive, and a reply may be read.
#[derive(Clone, Copy, Debug)]
pub struct BodyRateLimit {
    /// Minimum number of bytes per second.
    pub bytes_per_second: u64,
    /// Time that the server waits for the client before the minimum rate applies.
    pub grace: Duration,
}

/// Measures the rate of one body or reply. Only the time that the server spends waiting for the client counts. Each grace
/// period is measured separately, so that a fast beginning can't compensate for a slow rest.
#[derive(Clone, Copy, Debug)]
pub(in crate::http) struct BodyRate {
    limit: BodyRateLimit,
    /// Time spent waiting in the current period.
    waited: Duration,
    /// Number of bytes received or sent in the current period.
    bytes: u64,
}

/// The client is slower than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) struct TooSlow;

impl BodyRate {
    pub(in crate::http) fn new(limit: BodyRateLimit) -> Self {
        Self { limit, waited: Duration::ZERO, bytes: 0 }
    }

    /// Records a piece that arrived, or was accepted, after a wait.
    pub(in crate::http) fn passed(&mut self, waited: Duration, bytes: usize) -> Result<(), TooSlow> {
        self.waited = self.waited.saturating_add(waited);
        self.bytes = self.bytes.saturating_add(bytes as u64);
        if self.waited < self.limit.grace {
            return Ok(());
        }
        let required =
            u128::from(self.limit.bytes_per_second).saturating_mul(self.waited.as_millis()) / 1_000;
        if u128::from(self.bytes) < required {
            return Err(TooSlow);
        }
        *self = Self::new(self.limit);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: BodyRateLimit = BodyRateLimit { bytes_per_second: 256, grace: Duration::from_secs(10) };

    #[test]
    fn a_body_may_be_slow_for_the_grace_period() {
        let mut rate = BodyRate::new(LIMIT);
        assert_eq!(rate.passed(Duration::from_secs(9), 1), Ok(()));
        assert_eq!(rate.passed(Duration::from_secs(1), 1), Err(TooSlow));
    }

    #[test]
    fn a_fast_beginning_earns_no_credit() {
        let mut rate = BodyRate::new(LIMIT);
        assert_eq!(rate.passed(Duration::from_secs(10), 1 << 30), Ok(()));
        assert_eq!(rate.passed(Duration::from_secs(29), 1), Err(TooSlow));
    }

    #[test]
    fn a_steady_body_continues_and_zero_switches_the_limit_off() {
        let mut steady = BodyRate::new(LIMIT);
        let mut unlimited = BodyRate::new(BodyRateLimit { bytes_per_second: 0, ..LIMIT });
        for _ in 0..100 {
            assert_eq!(steady.passed(Duration::from_secs(1), 256), Ok(()));
            assert_eq!(unlimited.passed(Duration::from_secs(29), 1), Ok(()));
        }
    }
}
