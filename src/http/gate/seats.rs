//! The connections of the listeners of the API, and which of them ends for a new one when `server.max_connections` are open.
//!
//! A connection is anonymous until a call on it was authorized. A new connection takes the seat of the oldest anonymous
//! one, whatever that one does, so clients without a token can't keep clients with a token out. Without tokens, every
//! client could be authorized, so the connection that has been idle for the longest time gives way, too. nginx also
//! closes idle connections when it lacks connections (`ngx_drain_connections`).
//!
//! Addresses do not matter: behind a proxy, all clients have the same one.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Since when a connection is idle; `None` while a call is in progress.
type IdleSince = Box<dyn Fn() -> Option<u64> + Send + Sync>;

/// The seats of the listeners of the API, or of that of the metrics. Clones share them.
#[derive(Clone, Debug)]
pub struct Seats(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    max: usize,
    taken: Mutex<Taken>,
}

/// The connections that have a seat.
///
/// Invariant: each is in one of the maps, and together they have at most `max`.
#[derive(Debug, Default)]
struct Taken {
    /// The number of the newest connection.
    last: u64,
    anonymous: BTreeMap<u64, Arc<Occupant>>,
    known: HashMap<u64, Arc<Occupant>>,
}

/// The seat of a connection. Dropping it frees it.
#[derive(Debug)]
pub(in crate::http) struct Seat(Arc<Occupant>);

/// A connection that has, or had, a seat.
pub(in crate::http) struct Occupant {
    number: u64,
    shared: Arc<Shared>,
    /// Whether a call was authorized.
    is_known: AtomicBool,
    /// Whether the seat went to another connection.
    is_displaced: AtomicBool,
    /// Tells the connection to end.
    closing: CancellationToken,
    /// Set by the thread of the connection.
    idle_since: OnceLock<IdleSince>,
}

impl fmt::Debug for Occupant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Occupant")
            .field("number", &self.number)
            .field("is_known", &self.is_known)
            .finish_non_exhaustive()
    }
}

impl Seats {
    /// So many seats.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self(Arc::new(Shared { max, taken: Mutex::default() }))
    }

    /// The seat of a new connection, and whether another connection has lost it; `None` if no connection gives way. The
    /// connection ends when `closing` is cancelled.
    pub(in crate::http) fn admit(&self, closing: CancellationToken, is_open: bool) -> Option<(Seat, bool)> {
        let mut taken = self.0.taken.lock();
        let is_full = taken.anonymous.len() + taken.known.len() >= self.0.max;
        let displaced = if is_full { Some(taken.displace(is_open)?) } else { None };
        taken.last += 1;
        let number = taken.last;
        let occupant = Arc::new(Occupant {
            number,
            shared: self.0.clone(),
            is_known: AtomicBool::new(false),
            is_displaced: AtomicBool::new(false),
            closing,
            idle_since: OnceLock::new(),
        });
        taken.anonymous.insert(number, occupant.clone());
        drop(taken);
        if let Some(displaced) = &displaced {
            displaced.is_displaced.store(true, Ordering::Release);
            displaced.closing.cancel();
        }
        Some((Seat(occupant), displaced.is_some()))
    }
}

impl Taken {
    /// Takes the seat of a connection.
    fn displace(&mut self, is_open: bool) -> Option<Arc<Occupant>> {
        if let Some((_, oldest)) = self.anonymous.pop_first() {
            return Some(oldest);
        }
        let idle = self.known.values().filter(|_| is_open);
        let idle = idle.filter_map(|occupant| Some((occupant.idle_since()?, occupant.number)));
        let (_, number) = idle.min()?;
        self.known.remove(&number)
    }

    fn remove(&mut self, number: u64) {
        if self.anonymous.remove(&number).is_none() {
            self.known.remove(&number);
        }
    }
}

impl Seat {
    /// The connection.
    pub(in crate::http) fn occupant(&self) -> Arc<Occupant> {
        self.0.clone()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.shared.taken.lock().remove(self.0.number);
    }
}

impl Occupant {
    /// Lets a new connection ask since when this one is idle.
    pub(in crate::http) fn report_idle(&self, since: impl Fn() -> Option<u64> + Send + Sync + 'static) {
        let _set_once = self.idle_since.set(Box::new(since));
    }

    fn idle_since(&self) -> Option<u64> {
        self.idle_since.get().and_then(|since| since())
    }

    /// Records that a call was authorized.
    pub(in crate::http) fn authorized(&self) {
        if self.is_known.load(Ordering::Relaxed) {
            return;
        }
        let mut taken = self.shared.taken.lock();
        self.is_known.store(true, Ordering::Relaxed);
        if let Some(occupant) = taken.anonymous.remove(&self.number) {
            taken.known.insert(self.number, occupant);
        }
    }

    /// Whether the connection has lost its seat and must end at once. A call that was authorized in the meantime is
    /// answered first.
    pub(in crate::http) fn must_leave(&self) -> bool {
        self.is_displaced.load(Ordering::Acquire)
            && (!self.is_known.load(Ordering::Relaxed) || self.idle_since().is_some())
    }

    /// Completes when the connection has lost its seat.
    pub(in crate::http) async fn displaced(&self) {
        self.closing.cancelled().await;
        if !self.is_displaced.load(Ordering::Acquire) {
            pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sit(seats: &Seats, is_open: bool) -> Option<(Seat, bool)> {
        seats.admit(CancellationToken::new(), is_open)
    }

    /// Fills the seats with connections that are idle since the given times.
    fn fill<const N: usize>(seats: &Seats, idle_since: [Option<u64>; N]) -> [Seat; N] {
        idle_since.map(|since| {
            let (seat, displaces) = sit(seats, true).unwrap();
            assert!(!displaces);
            seat.0.report_idle(move || since);
            seat
        })
    }

    fn gone<const N: usize>(seats: &[Seat; N]) -> [bool; N] {
        seats.each_ref().map(|seat| seat.0.closing.is_cancelled())
    }

    #[test]
    fn the_oldest_anonymous_connection_gives_way_whatever_it_does() {
        for is_open in [false, true] {
            let seats = Seats::new(3);
            let before = fill(&seats, [Some(9), None, Some(1)]);
            before[0].0.authorized();
            let (newest, displaces) = sit(&seats, is_open).unwrap();
            assert!(displaces && before[1].0.must_leave());
            assert_eq!(gone(&before), [false, true, false]);
            let _later = sit(&seats, is_open).unwrap();
            assert_eq!(gone(&before), [false, true, true]);
            assert!(!newest.0.closing.is_cancelled());
        }
    }

    #[test]
    fn known_connections_keep_their_seats_on_a_server_with_tokens() {
        let seats = Seats::new(2);
        let mut before = fill(&seats, [Some(1), Some(2)]).map(Some);
        for seat in before.iter().flatten() {
            seat.0.authorized();
        }
        assert!(sit(&seats, false).is_none());
        before[0] = None;
        assert!(sit(&seats, false).is_some_and(|(_, displaces)| !displaces), "a seat was freed");
    }

    #[test]
    fn the_longest_idle_connection_gives_way_on_a_server_without_tokens() {
        let seats = Seats::new(3);
        let before = fill(&seats, [Some(7), None, Some(3)]);
        for seat in &before {
            seat.0.authorized();
        }
        let newest = sit(&seats, true).unwrap().0;
        assert_eq!(gone(&before), [false, false, true]);
        newest.0.authorized();
        let last = sit(&seats, true).unwrap().0;
        assert_eq!(gone(&before), [true, false, true]);
        last.0.authorized();
        assert!(sit(&seats, true).is_none(), "a call is in progress on each connection");
    }

    #[test]
    fn a_call_that_was_authorized_in_the_last_moment_is_answered() {
        let seats = Seats::new(1);
        let before = fill(&seats, [None]);
        let _newest = sit(&seats, false).unwrap();
        assert!(before[0].0.must_leave());
        before[0].0.authorized();
        assert!(!before[0].0.must_leave());
        drop(before);
        assert!(sit(&seats, false).unwrap().1, "the seat belongs to the newest");
    }

    #[test]
    fn every_seat_is_freed_once() {
        let seats = Seats::new(2);
        for round in 0..10 {
            let (first, _) = sit(&seats, false).unwrap();
            let (second, _) = sit(&seats, false).unwrap();
            if round % 2 == 0 {
                first.0.authorized();
            }
            let (third, displaces) = sit(&seats, false).unwrap();
            assert!(displaces);
            drop((first, second, third));
            let taken = seats.0.taken.lock();
            assert_eq!((taken.anonymous.len(), taken.known.len()), (0, 0));
        }
    }
}
