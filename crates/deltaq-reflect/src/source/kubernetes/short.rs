//! Watches that end early without an event. A server may end them without a reason because it does not have the
//! version. But a proxy may also cut every connection after some seconds, although nothing is wrong. So the watch is
//! continued at once, and lists are read at growing intervals.

use std::time::Duration;

use tokio::time::Instant;

/// A watch that ends before this time without an event has failed.
pub(super) const AT_ONCE: Duration = Duration::from_secs(1);
/// A watch that ends before this time without an event has ended early.
const EARLY: Duration = Duration::from_secs(10);
/// Number of consecutive early ends after which a list is read.
const EARLY_MAX: u32 = 3;
/// Minimum time between two such lists. It doubles with each list.
const LIST_EVERY: Duration = Duration::from_secs(15);
/// Maximum number of doublings, for a time of about an hour.
const DOUBLINGS_MAX: u32 = 8;

/// The early ends since the last event.
#[derive(Debug, Default)]
pub(super) struct Short {
    in_a_row: u32,
    lists: u32,
    listed_at: Option<Instant>,
}

impl Short {
    /// Records that a watch has sent an event, so the server has the version.
    pub(super) fn had_event(&mut self) {
        *self = Self::default();
    }

    /// Whether a list must be read after the end of a watch.
    pub(super) fn needs_list(&mut self, lived: Duration, had_event: bool) -> bool {
        self.in_a_row = if had_event || lived >= EARLY { 0 } else { self.in_a_row + 1 };
        let pause = LIST_EVERY * 2_u32.pow(self.lists.min(DOUBLINGS_MAX)) / 2;
        if self.in_a_row < EARLY_MAX || self.listed_at.is_some_and(|at| at.elapsed() < pause) {
            return false;
        }
        (self.in_a_row, self.lists, self.listed_at) = (0, self.lists + 1, Some(Instant::now()));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn early_ends_lead_to_lists_at_growing_intervals() {
        let mut short = Short::default();
        let mut lists = Vec::new();
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(200) {
            tokio::time::advance(Duration::from_secs(5)).await;
            if short.needs_list(Duration::from_secs(5), false) {
                lists.push(began.elapsed().as_secs());
            }
        }
        assert_eq!(lists, [15, 30, 60, 120]);
        short.had_event();
        for (seconds, had_event) in
            [(5, false), (5, false), (5, true), (5, false), (11, false), (5, false), (5, false)]
        {
            assert!(!short.needs_list(Duration::from_secs(seconds), had_event));
        }
        assert!(short.needs_list(Duration::from_secs(5), false));
    }
}
