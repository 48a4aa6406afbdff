//! Waits between attempts of a failing operation.

use std::time::Duration;

/// The waits between attempts: each is twice as long as the one before, up to a maximum.
#[derive(Clone, Copy, Debug)]
pub struct RetryWait {
    first: Duration,
    max: Duration,
    next: Duration,
}

impl RetryWait {
    /// Creates waits that begin with `first`.
    #[must_use]
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self { first, max, next: first }
    }

    /// The wait after one more failed attempt.
    pub fn after_failure(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(self.max);
        wait
    }

    /// Starts over with the first wait.
    pub const fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wait_is_twice_as_long_up_to_the_maximum() {
        let mut wait = RetryWait::new(Duration::from_secs(1), Duration::from_secs(5));
        assert_eq!([0; 5].map(|_| wait.after_failure().as_secs()), [1, 2, 4, 5, 5]);
        wait.reset();
        assert_eq!(wait.after_failure(), Duration::from_secs(1));
    }
}
