//! The state of one key in the schedule. Checkpoints store its serde form.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use super::{EventId, HeadStart, OpenWindow, Turn};
use crate::id::{Rv, Token, Worker};
use crate::omit::is_default;
use crate::time::{Time, micros};

/// The schedule's state of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleState {
    /// The place of the key.
    #[serde(default, skip_serializing_if = "is_default")]
    pub place: Place,
    /// Number of failures since the key was last acknowledged, forgotten or made ready after being parked.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failures: u32,
    /// Number of deliveries since the last acknowledgement.
    #[serde(default, skip_serializing_if = "is_default")]
    pub attempt: u32,
    /// Invariant: `None` if all fields have their defaults.
    #[serde(default, deserialize_with = "backoff", skip_serializing_if = "Option::is_none")]
    pub(super) backoff: Option<Box<Backoff>>,
}

/// The part of a [`ScheduleState`] that few keys need: those that failed or are delayed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// The earliest time at which a change is due by itself. A key in any place except `Parked` may have a delay. In mode keys,
    /// a backoff that a newer add has ended is such a delay.
    ///
    /// Invariant: it does not end before the floor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Delay>,
    /// What a failure of the key has set.
    ///
    /// Invariant: a ready or leased key has none, and a parked key only a floor.
    #[serde(alias = "floor", skip_serializing_if = "Option::is_none")]
    pub not_before: Option<NotBefore>,
    /// The open debounce window.
    ///
    /// Invariant: only an idle or leased key has one, and a leased key with a `new_change` has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<Box<OpenWindow>>,
    /// The error text of the last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<Arc<str>>,
    /// When the failure count of an otherwise unused key expires, and the event that set this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_expiry: Option<(Time, Rv)>,
    /// The oldest unacknowledged change, unless `place` already contains it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_change: Option<EventId>,
    /// The head start of the changes that wait.
    ///
    /// Invariant: a key without a waiting change has none.
    #[serde(default, skip_serializing_if = "HeadStart::is_none")]
    pub head_start: HeadStart,
    /// The event that parked the key. Invariant: only a parked key has one. A key that was parked before this was recorded has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked: Option<EventId>,
    /// The turn of a ready key with a head start. It follows from the rest of the key's state.
    #[serde(skip)]
    pub turn: Option<Turn>,
}

/// The place of a key. A key is in exactly one place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// The key waits for its delay, or the queue only keeps its known object or failure count.
    #[default]
    Idle,
    /// The key is in the ready queue.
    Ready(ReadyPosition),
    /// A worker holds the key.
    Leased(Box<Lease>),
    /// The key is not delivered until a new change arrives or an operator acts.
    Parked,
}

/// A position in the ready queue. Keys without a head start are ordered by `rv`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyPosition {
    /// The event that made the key ready. In mode events, the event that queued the key's oldest delta.
    pub rv: Rv,
    /// When the key became ready.
    pub since: Time,
    /// When the key's work arrived. Earlier than `since` if it arrived during a lease.
    pub added: Time,
}

/// When a delayed key becomes ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delay {
    /// The instant.
    pub due: Time,
    /// The event that set the delay.
    pub rv: Rv,
}

/// The wait of a key that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredNotBefore")]
pub struct NotBefore {
    /// When it ends.
    pub at: Time,
    /// The event that set it.
    pub rv: Rv,
    /// Whether it is a backoff: at its end the key is delivered again, or later if a debounce window outlasts it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub retries: bool,
    /// Whether it is a floor: until its end no change delivers the key.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_floor: bool,
    /// Whether the floor is a hold of the key.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_hold: bool,
}

/// The stored forms of a [`NotBefore`]. Older checkpoints have only the time of a floor.
#[derive(Deserialize)]
#[serde(untagged)]
enum StoredNotBefore {
    Complete {
        at: Time,
        rv: Rv,
        #[serde(default)]
        retries: bool,
        #[serde(default)]
        is_floor: bool,
        #[serde(default)]
        is_hold: bool,
    },
    Floor(Time),
}

impl From<StoredNotBefore> for NotBefore {
    fn from(stored: StoredNotBefore) -> Self {
        match stored {
            StoredNotBefore::Complete { at, rv, retries, is_floor, is_hold } => {
                Self { at, rv, retries, is_floor, is_hold }
            }
            StoredNotBefore::Floor(at) => {
                Self { at, rv: Rv::ZERO, retries: false, is_floor: true, is_hold: false }
            }
        }
    }
}

/// A worker's lease on a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The event that created the lease. It is the fencing token.
    pub token: Token,
    /// When the lease expires.
    pub deadline: Time,
    /// When the lease was created.
    pub since: Time,
    /// The full length of the lease, as of its creation or last extension.
    #[serde(rename = "length_us", with = "micros")]
    pub length: Duration,
    /// The worker's name, if the pop gave one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<Worker>,
    /// The id of the pop that created the lease, if the pop had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pop_id: Option<Arc<str>>,
    /// The key's position in the ready queue before the lease.
    pub former: ReadyPosition,
    /// The head start of the leased changes.
    #[serde(default, skip_serializing_if = "HeadStart::is_none")]
    pub head_start: HeadStart,
    /// The delay that the delivery removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped_delay: Option<Delay>,
    /// When the first change arrived that is neither part of the lease nor delayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_change: Option<Time>,
    /// The first change that is not part of the lease, whether or not it is delayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub later_change: Option<EventId>,
}

impl Backoff {
    /// The first one of the delay and the backoff to end. Of two that end at once it is the older one.
    pub(crate) fn first_end(&self) -> Option<Delay> {
        let backoff = self.not_before.filter(|not_before| not_before.retries);
        let backoff = backoff.map(|NotBefore { at, rv, .. }| Delay { due: at, rv });
        self.delay.into_iter().chain(backoff).min_by_key(|end| (end.due, end.rv))
    }
}

impl Place {
    /// The event that made the key ready, with the time at which the ready or leased work arrived.
    fn arrival(&self) -> Option<EventId> {
        let position = match self {
            Self::Ready(position) => *position,
            Self::Leased(lease) => lease.former,
            Self::Idle | Self::Parked => return None,
        };
        Some(EventId { rv: position.rv, at: position.added })
    }
}

impl ScheduleState {
    /// Creates a state from its parts.
    #[must_use]
    pub fn new(place: Place, failures: u32, attempt: u32, backoff: Backoff) -> Self {
        let mut state = Self { place, failures, attempt, backoff: None };
        state.set_backoff(|own| *own = backoff);
        state
    }

    /// The delay, backoff, window, last error, failure expiry and oldest change.
    #[must_use]
    pub fn backoff(&self) -> &Backoff {
        static NONE: Backoff = Backoff {
            delay: None,
            not_before: None,
            window: None,
            last_error: None,
            failure_expiry: None,
            oldest_change: None,
            head_start: HeadStart::NONE,
            parked: None,
            turn: None,
        };
        self.backoff.as_deref().unwrap_or(&NONE)
    }

    /// The earliest time at which a change is due by itself.
    #[must_use]
    pub fn delay(&self) -> Option<Delay> {
        self.backoff().delay
    }

    /// What a failure of the key has set.
    #[must_use]
    pub fn not_before(&self) -> Option<NotBefore> {
        self.backoff().not_before
    }

    /// The time before which no change delivers the key.
    #[must_use]
    pub fn floor(&self) -> Option<Time> {
        self.not_before().filter(|not_before| not_before.is_floor).map(|floor| floor.at)
    }

    /// Whether a worker has asked that the key is not delivered for a time.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.not_before().is_some_and(|not_before| not_before.is_hold)
    }

    /// When the key's backoff ends.
    #[must_use]
    pub fn backoff_end(&self) -> Option<Delay> {
        let backoff = self.not_before().filter(|not_before| not_before.retries);
        backoff.map(|NotBefore { at, rv, .. }| Delay { due: at, rv })
    }

    /// Whether the invariants of the delay and the backoff hold.
    pub(crate) fn keeps_not_before(&self) -> bool {
        let Some(NotBefore { at, retries, is_floor, .. }) = self.not_before() else { return true };
        match self.place {
            Place::Idle => (retries || is_floor) && (!is_floor || self.due().is_some_and(|due| due >= at)),
            Place::Ready(_) | Place::Leased(_) => false,
            Place::Parked => is_floor && !retries,
        }
    }

    /// When the failure count of an otherwise unused key expires, and the event that set this time.
    #[must_use]
    pub fn failure_expiry(&self) -> Option<(Time, Rv)> {
        self.backoff().failure_expiry
    }

    /// The oldest change that is not acknowledged, if the key has one.
    #[must_use]
    pub fn oldest_change(&self) -> Option<EventId> {
        self.backoff().oldest_change.or_else(|| self.place.arrival())
    }

    /// The number under which the key is in the schedule's `older_changes`.
    pub(crate) fn older_change(&self) -> Option<Rv> {
        let oldest = self.oldest_change().map(|oldest| oldest.rv);
        match self.place {
            Place::Parked => None,
            Place::Ready(position) => oldest.filter(|rv| *rv != position.rv),
            Place::Idle | Place::Leased(_) => oldest,
        }
    }

    /// Completes a state whose checkpoint has only the time of the oldest change.
    pub(crate) fn complete_oldest_change(&mut self, rv: Rv) {
        let incomplete = self.oldest_change().filter(|oldest| oldest.rv == Rv::ZERO || oldest.rv > rv);
        if let Some(EventId { at, .. }) = incomplete {
            self.set_oldest_change(Some(EventId { rv, at }));
        }
    }

    pub(super) fn set_oldest_change(&mut self, oldest: Option<EventId>) {
        let kept = oldest.filter(|_| oldest != self.place.arrival());
        if kept != self.backoff().oldest_change {
            self.set_backoff(|backoff| backoff.oldest_change = kept);
        }
    }

    /// Whether the key has a change that is not acknowledged.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.place != Place::Idle || self.waits()
    }

    /// Whether the key waits for the end of a delay, a backoff or a window.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.backoff.as_deref().is_some_and(|backoff| {
            let retries = backoff.not_before.is_some_and(|not_before| not_before.retries);
            backoff.delay.is_some() || retries || backoff.window.is_some()
        })
    }

    /// The error text of the last failure.
    #[must_use]
    pub fn last_error(&self) -> Option<&str> {
        self.backoff().last_error.as_deref()
    }

    /// The error text of the last failure, shared.
    #[must_use]
    pub fn shared_last_error(&self) -> Option<&Arc<str>> {
        self.backoff().last_error.as_ref()
    }

    /// Bytes of the last error, and of the names of the worker and the pop that hold the key.
    pub(crate) fn text_bytes(&self) -> usize {
        let error = self.backoff.as_ref().and_then(|backoff| backoff.last_error.as_ref());
        let names = match &self.place {
            Place::Leased(lease) => {
                lease.worker.as_ref().map_or(0, |worker| worker.len())
                    + lease.pop_id.as_ref().map_or(0, |pop_id| pop_id.len())
            }
            Place::Idle | Place::Ready(_) | Place::Parked => 0,
        };
        error.map_or(0, |error| error.len()) + names
    }

    /// The event that parked the key.
    #[must_use]
    pub fn parked(&self) -> Option<EventId> {
        self.backoff().parked
    }

    /// Sets the event that parked the key, or removes it when the key leaves its place.
    pub(super) fn set_parked(&mut self, parked: Option<EventId>) {
        if self.parked() != parked {
            self.set_backoff(|backoff| backoff.parked = parked);
        }
    }

    /// Sets the error text of the last failure.
    pub fn set_last_error(&mut self, error: Option<Arc<str>>) {
        if error.is_some() || self.backoff.is_some() {
            self.set_backoff(|backoff| backoff.last_error = error);
        }
    }

    pub(super) fn set_backoff(&mut self, change: impl FnOnce(&mut Backoff)) {
        let mut backoff = self.backoff.take().map(|backoff| *backoff).unwrap_or_default();
        change(&mut backoff);
        self.backoff = (backoff != Backoff::default()).then(|| Box::new(backoff));
    }

    /// Whether the key is in the state "delayed": it is idle and waits.
    #[must_use]
    pub fn is_delayed(&self) -> bool {
        self.waits() && self.place == Place::Idle
    }

    /// The lease, if the key is leased.
    #[must_use]
    pub fn lease(&self) -> Option<&Lease> {
        match &self.place {
            Place::Leased(lease) => Some(lease),
            _ => None,
        }
    }
}

fn backoff<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<Backoff>>, D::Error> {
    let backoff = Backoff::deserialize(deserializer)?;
    Ok((backoff != Backoff::default()).then(|| Box::new(backoff)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_of_an_older_checkpoint_is_a_floor() {
        let text = r#"{"place":"parked","backoff":{"floor":7}}"#;
        let state: ScheduleState = serde_json::from_str(text).expect("the form of older checkpoints");
        assert_eq!(state.floor(), Some(Time::from_micros(7)));
        assert!(state.keeps_not_before());
        let again = serde_json::to_string(&state).expect("it can be written");
        assert_eq!(serde_json::from_str::<ScheduleState>(&again).expect("the form of today"), state);
    }

    #[test]
    fn an_oldest_change_without_a_number_gets_that_of_the_oldest_delta() {
        let text = r#"{"place":"parked","backoff":{"oldest_change":7}}"#;
        let mut state: ScheduleState = serde_json::from_str(text).expect("the form of older checkpoints");
        assert_eq!(state.oldest_change(), Some(EventId { rv: Rv::ZERO, at: Time::from_micros(7) }));
        let complete = EventId { rv: Rv::new(5), at: Time::from_micros(7) };
        state.complete_oldest_change(Rv::new(5));
        assert_eq!(state.oldest_change(), Some(complete));
        state.complete_oldest_change(Rv::new(6));
        assert_eq!(state.oldest_change(), Some(complete), "an older change has been replaced");
    }
}
