//! The work that commands leave to the engine's caller.

use std::fmt;
use std::time::Duration;

use smallvec::SmallVec;

use super::event::{Ending, Event};
use super::id::{Token, Worker};
use super::time::Time;

/// Everything that a caller must do after commands on a queue. This is the contract between the engine and the service.
///
/// The engine performs no I/O. A caller holds the queue's lock, runs one or more commands at one instant, and then
/// calls [`Queue::take_effects`](super::Queue::take_effects) once, before it releases the lock. The rules for each
/// part:
///
/// - `events` have already been applied. The caller appends them to the journal in this order, without a gap between
///   the effects of successive calls. The result of a command (a reply, delivered items, a read of the state) leaves
///   the process only **after** its events are durable. The caller then reports the newest durable event with
///   [`set_committed`](super::Queue::set_committed); a lease expires only after that report. If the events can't be
///   made durable, the queue in memory holds changes that were never stored, so the caller drops the queue and loads
///   it again.
/// - `next_deadline` is when the caller must run [`advance`](super::Queue::advance), unless another command runs
///   first. It replaces the deadline of all earlier effects. A deadline in the past means that more timers are due
///   than one command processes.
/// - `resync_due` asks the caller to run a Resync. The request is made once; the caller remembers it.
/// - `has_synced` and `is_drained` describe the queue after the commands, to wake callers that wait for these states.
/// - `changed_views` wakes the readers of the views, once the events are durable.
/// - `counters`, `waits`, `delivered` and `works` are for metrics. A caller may drop them, because no rule depends on them.
/// - `overtaken` wakes the workers that wait for a change behind their leases.
/// - `garbage` takes a long time to drop. The caller drops it **after** releasing the lock.
///
/// The caller first passes the events to the journal, then sets the timer and sends the notifications. Without the
/// lock, it then handles metrics, garbage and replies that wait for the commit.
#[must_use = "events that are not appended to the journal are lost"]
#[derive(Debug, Default)]
pub struct Effects {
    /// New events, oldest first. Empty if the commands changed nothing.
    pub events: Vec<Event>,
    /// When the next timer is due; `None` if there are no timers.
    pub next_deadline: Option<Time>,
    /// Whether `resync_period` has passed since the last Resync.
    pub resync_due: bool,
    /// Whether the initial list has been acknowledged.
    pub has_synced: bool,
    /// Whether the queue is closed and has nothing left to deliver or settle.
    pub is_drained: bool,
    /// Whether each view has changed, in the order of [`View::ALL`](super::view::View::ALL).
    pub changed_views: [bool; 2],
    /// Counts of what the commands did.
    pub counters: Counters,
    /// For each delivered key, how long it waited before delivery.
    pub waits: Durations,
    /// The number of deltas of each delivered key that had more than one.
    pub delivered: Counts,
    /// The leases that have ended.
    pub works: SmallVec<[Work; 1]>,
    /// Leases that have got a newer change or have ended, if a caller has [waited](super::Queue::await_change) for this.
    pub overtaken: Vec<Token>,
    /// Large values that are no longer needed.
    pub garbage: Vec<Garbage>,
}

impl Effects {
    /// Whether the commands queued deltas or changed the view `latest`.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        let [latest, _] = self.changed_views;
        latest || self.counters.deltas.iter().any(|count| *count > 0)
    }
}

/// A lease that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// How long it lasted.
    pub lasted: Duration,
    /// The worker; `None` if the pop gave no name.
    pub worker: Option<Worker>,
    /// How it ended; `None` for a release.
    pub end: Option<LeaseEnd>,
}

/// How a lease has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseEnd {
    /// With an ack or a done.
    Acked,
    /// With a nack or a reject, or it has expired.
    Failed,
}

impl LeaseEnd {
    /// How a lease counts. A release is neither.
    pub(super) const fn of(ending: &Ending) -> Option<Self> {
        match ending {
            Ending::Acked | Ending::Done => Some(Self::Acked),
            Ending::Nacked(_) | Ending::Rejected { .. } | Ending::Expired(_) => Some(Self::Failed),
            Ending::Released | Ending::Held { .. } | Ending::Undelivered => None,
        }
    }
}

/// A list of durations. Most commands have one duration, which needs no allocation.
pub type Durations = SmallVec<[Duration; 1]>;

/// A list of counts. Most commands have one, which needs no allocation.
pub type Counts = SmallVec<[u32; 4]>;

/// Counts of what commands did. A replay of events does not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Queued deltas, by type in the order of [`DeltaKind::ALL`](super::delta::DeltaKind::ALL).
    pub deltas: [u64; 5],
    /// Deltas that the cap merged into newer ones.
    pub coalesced: u64,
    /// Number of Deletes of keys that are absent or already deleted.
    pub ignored_absent: u64,
    /// Number of Deletes that the dedup rule dropped.
    pub ignored_duplicate: u64,
    /// Number of objects that differed from the newest state of their key in ignored members at most, and of listed objects of a
    /// Replace that had not changed.
    pub ignored_unchanged: u64,
    /// Number of listed objects of a Replace whose key had a newer call.
    pub ignored_superseded: u64,
    /// Number of adds to a closed queue in mode keys.
    pub ignored_closed: u64,
    /// Number of calls and listed objects whose sequence number was not larger than the last number of their source.
    pub ignored_repeated: u64,
    /// Number of calls and listed objects that were not newer than the newest state of their key, according to the
    /// setting `version`.
    pub ignored_stale: u64,
    /// Number of changes that a debounce window has held back.
    pub debounced: u64,
    /// How often a key got work (client-go's adds).
    pub adds: u64,
    /// Number of requeues with a delay, even of zero, or by the rate limiter (client-go's retries).
    pub retries: u64,
    /// Ended leases, by ending: ack, nack, release, reject, expiry.
    pub settled: [u64; 5],
    /// Number of settles of leases that had already ended in another way.
    pub stale: u64,
    /// How often a key has been parked.
    pub parked: u64,
}

impl Counters {
    /// Adds the counts of later commands.
    pub fn add(&mut self, later: &Self) {
        let add_each = |sums: &mut [u64; 5], counts: &[u64; 5]| {
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        };
        add_each(&mut self.deltas, &later.deltas);
        add_each(&mut self.settled, &later.settled);
        self.coalesced += later.coalesced;
        self.ignored_absent += later.ignored_absent;
        self.ignored_duplicate += later.ignored_duplicate;
        self.ignored_unchanged += later.ignored_unchanged;
        self.ignored_superseded += later.ignored_superseded;
        self.ignored_closed += later.ignored_closed;
        self.ignored_repeated += later.ignored_repeated;
        self.ignored_stale += later.ignored_stale;
        self.debounced += later.debounced;
        self.adds += later.adds;
        self.retries += later.retries;
        self.stale += later.stale;
        self.parked += later.parked;
    }
}

/// A value that takes a long time to drop, such as the list of a million objects of a finished Replace.
pub struct Garbage(#[expect(dead_code, reason = "the value is only kept to be dropped")] Box<dyn Send>);

impl Garbage {
    pub(super) fn new(value: impl Send + 'static) -> Self {
        Self(Box::new(value))
    }
}

impl fmt::Debug for Garbage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Garbage")
    }
}
