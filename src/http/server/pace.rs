//! How fast a connection is: bounds the time that the head of a request may take, and the time that
//! a connection may be idle.
//!
//! hyper's own timer counts both as one and starts anew for every request; this one is armed once
//! and only looked at when the connection does something.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::clock::Clock;

/// How often a connection that answers a request is looked at all the same.
const BUSY_LOOK: Duration = Duration::from_mins(10);

/// A connection waits for nothing of the caller: it reads a body or answers.
const BUSY: u8 = 0;
/// A connection waits for the rest of a head.
const HEAD: u8 = 1;
/// A connection waits for a request.
const IDLE: u8 = 2;

/// The pace of one connection. Clones are the same connection.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    header_read_timeout: Duration,
    idle_timeout: Duration,
    phase: AtomicU8,
    /// When the phase began, or something was sent in it, in microseconds since the Unix epoch.
    since_us: AtomicU64,
}

impl Pace {
    /// A new connection: it has to send its first head.
    pub(super) fn new(clock: Clock, header_read_timeout: Duration, idle_timeout: Duration) -> Self {
        let since_us = AtomicU64::new(clock.monotonic_us());
        let phase = AtomicU8::new(HEAD);
        Self { shared: Arc::new(Shared { clock, header_read_timeout, idle_timeout, phase, since_us }) }
    }

    /// Bytes have come in.
    pub(super) fn received(&self) {
        if self.shared.phase.load(Ordering::Relaxed) == IDLE {
            self.enter(HEAD);
        }
    }

    /// Bytes have gone out.
    pub(super) fn sent(&self) {
        if self.shared.phase.load(Ordering::Relaxed) == IDLE {
            self.enter(IDLE);
        }
    }

    /// A request's head is complete.
    pub(super) fn request(&self) {
        self.shared.phase.store(BUSY, Ordering::Relaxed);
    }

    /// The request has its answer, which may still be on its way.
    pub(super) fn answered(&self) {
        self.enter(IDLE);
    }

    /// Ends when the connection has been too slow.
    pub(super) async fn too_slow(&self) {
        let mut alarm = std::pin::pin!(sleep(self.shared.header_read_timeout));
        let mut set_in = HEAD;
        poll_fn(|context| {
            loop {
                // In the same phase, or in one more of its kind, the end has at most moved away, and while nothing is expected
                // there is none: no clock is read then.
                let phase = self.shared.phase.load(Ordering::Relaxed);
                if (phase == set_in || phase == BUSY) && alarm.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                set_in = phase;
                let left = self.left();
                if left == Some(Duration::ZERO) {
                    return Poll::Ready(());
                }
                let now = Instant::now();
                let wanted = now + left.unwrap_or(BUSY_LOOK);
                if alarm.is_elapsed() || wanted < alarm.deadline() {
                    alarm.as_mut().reset(wanted);
                }
            }
        })
        .await;
    }

    /// How long the caller still has; `None` if nothing is expected of it.
    fn left(&self) -> Option<Duration> {
        let limit = match self.shared.phase.load(Ordering::Relaxed) {
            HEAD => self.shared.header_read_timeout,
            IDLE => self.shared.idle_timeout,
            _ => return None,
        };
        let since_us = self.shared.since_us.load(Ordering::Relaxed);
        Some(limit.saturating_sub(self.shared.clock.since(since_us)))
    }

    fn enter(&self, phase: u8) {
        self.shared.since_us.store(self.shared.clock.monotonic_us(), Ordering::Relaxed);
        self.shared.phase.store(phase, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phase_has_its_limit() {
        let (clock, hand) = Clock::manual(0);
        let (head, idle) = (Duration::from_secs(10), Duration::from_secs(75));
        let pace = Pace::new(clock, head, idle);
        hand.advance(Duration::from_secs(4));
        pace.received();
        assert_eq!(pace.left(), Some(Duration::from_secs(6)), "more bytes of a head win no time");
        pace.request();
        assert_eq!(pace.left(), None);
        pace.answered();
        hand.advance(Duration::from_secs(70));
        pace.sent();
        assert_eq!(pace.left(), Some(idle), "an answer that is still being sent is not idle");
        pace.received();
        hand.advance(Duration::from_secs(11));
        assert_eq!(pace.left(), Some(Duration::ZERO));
    }
}
