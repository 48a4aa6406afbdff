//! Connection timeouts: how long the head of a request may take, and how long a connection may be idle.
//!
//! hyper has a single timer for both, which is reset for every request. This timer is armed once, and checks the
//! state of the connection only when the connection does something. The timer is necessary because a client that
//! stops in the middle of a head, or stops reading, would otherwise hold its connection forever.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use deltaq_runtime::clock::Clock;
use tokio::time::{Instant, sleep};

/// How often the timer fires while a connection is in phase `BUSY`.
const BUSY_CHECK_PERIOD: Duration = Duration::from_mins(10);

/// The server is reading a body or computing a response, so no timeout applies to the client.
const BUSY: u8 = 0;
/// The server is waiting for the rest of a head.
const HEAD: u8 = 1;
/// The server is waiting for a request, or for the client to read a response.
const IDLE: u8 = 2;

/// The timeouts of one connection. Clones share its state.
#[derive(Clone, Debug)]
pub(in crate::http) struct Timeouts {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    header_read_timeout: Duration,
    idle_timeout: Duration,
    phase: AtomicU8,
    /// When the phase began, or when bytes were last sent in it, in microseconds since the Unix epoch.
    since_us: AtomicU64,
    /// Whether the server is stopping.
    is_closing: AtomicBool,
}

impl Timeouts {
    /// Creates the timeouts of a new connection, which must send its first head.
    pub(super) fn new(clock: Clock, header_read_timeout: Duration, idle_timeout: Duration) -> Self {
        let since_us = AtomicU64::new(clock.monotonic_us());
        let phase = AtomicU8::new(HEAD);
        let is_closing = AtomicBool::new(false);
        let shared = Shared { clock, header_read_timeout, idle_timeout, phase, since_us, is_closing };
        Self { shared: Arc::new(shared) }
    }

    /// The clock of the connection.
    pub(super) fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// When the phase began, or when bytes were last sent in it.
    pub(super) fn since_us(&self) -> u64 {
        self.shared.since_us.load(Ordering::Relaxed)
    }

    /// Records that bytes have arrived.
    pub(super) fn received(&self) {
        if self.shared.phase.load(Ordering::Relaxed) == IDLE {
            self.enter(HEAD);
        }
    }

    /// Records that the peer has accepted bytes.
    pub(super) fn sent(&self) {
        if self.shared.phase.load(Ordering::Relaxed) == IDLE {
            self.enter(IDLE);
        }
    }

    /// Records that the connection is in use, although the server has nothing to send. Returns when to record it again.
    pub(in crate::http) fn keep_open(&self) -> Duration {
        self.sent();
        self.shared.idle_timeout / 3
    }

    /// Records that the head of a request is complete.
    pub(super) fn request(&self) {
        self.shared.phase.store(BUSY, Ordering::Relaxed);
    }

    /// Records that the response exists. It may still have to be sent.
    pub(super) fn answered(&self) {
        self.enter(IDLE);
    }

    /// Records that the server is stopping. From now on, the header timeout also limits how long a client may take to
    /// read.
    pub(super) fn close(&self) {
        self.shared.is_closing.store(true, Ordering::Relaxed);
        self.sent();
    }

    /// Whether the server is stopping.
    pub(super) fn are_closing(&self) -> bool {
        self.shared.is_closing.load(Ordering::Relaxed)
    }

    /// Completes when the client has exceeded a timeout.
    pub(super) async fn stalled(&self) {
        let mut timer = std::pin::pin!(sleep(self.shared.header_read_timeout));
        let mut armed_in = HEAD;
        poll_fn(|context| {
            loop {
                // Within one kind of phase the deadline only moves later, and `BUSY` has no deadline, so no clock is
                // read here.
                let phase = self.shared.phase.load(Ordering::Relaxed);
                if (phase == armed_in || phase == BUSY) && timer.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                armed_in = phase;
                let left = self.left();
                if left == Some(Duration::ZERO) {
                    return Poll::Ready(());
                }
                let now = Instant::now();
                let deadline = now + left.unwrap_or(BUSY_CHECK_PERIOD);
                if timer.is_elapsed() || deadline < timer.deadline() {
                    timer.as_mut().reset(deadline);
                }
            }
        })
        .await;
    }

    /// The time that the client has left; `None` in phase `BUSY`.
    fn left(&self) -> Option<Duration> {
        let limit = match self.shared.phase.load(Ordering::Relaxed) {
            HEAD => self.shared.header_read_timeout,
            IDLE => self.reading_limit(),
            _ => return None,
        };
        let since_us = self.shared.since_us.load(Ordering::Relaxed);
        Some(limit.saturating_sub(self.shared.clock.since(since_us)))
    }

    /// How long a client may take to read something.
    pub(super) fn reading_limit(&self) -> Duration {
        let Shared { header_read_timeout, idle_timeout, .. } = &*self.shared;
        if self.are_closing() { *header_read_timeout.min(idle_timeout) } else { *idle_timeout }
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
    fn each_phase_has_its_own_timeout() {
        let (clock, hand) = Clock::manual(0);
        let (head, idle) = (Duration::from_secs(10), Duration::from_secs(75));
        let timeouts = Timeouts::new(clock, head, idle);
        hand.advance(Duration::from_secs(4));
        timeouts.received();
        assert_eq!(
            timeouts.left(),
            Some(Duration::from_secs(6)),
            "more bytes of a head do not extend its time"
        );
        timeouts.request();
        assert_eq!(timeouts.left(), None);
        timeouts.answered();
        hand.advance(Duration::from_secs(70));
        timeouts.sent();
        assert_eq!(timeouts.left(), Some(idle), "a connection that sends a response is not idle");
        timeouts.received();
        hand.advance(Duration::from_secs(11));
        assert_eq!(timeouts.left(), Some(Duration::ZERO));
    }

    #[test]
    fn a_client_has_less_time_to_read_while_the_server_stops() {
        let (clock, hand) = Clock::manual(0);
        let (head, idle) = (Duration::from_secs(10), Duration::from_secs(75));
        let timeouts = Timeouts::new(clock, head, idle);
        timeouts.request();
        timeouts.answered();
        hand.advance(Duration::from_secs(70));
        timeouts.close();
        assert_eq!(timeouts.left(), Some(head), "the time begins when the server stops");
        hand.advance(Duration::from_secs(4));
        timeouts.sent();
        assert_eq!(timeouts.left(), Some(head), "a client that reads is not cut off");
        timeouts.request();
        assert_eq!(timeouts.left(), None);
    }
}
