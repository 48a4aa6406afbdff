//! How leases end.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::omit::is_default;
use crate::settled::Outcome;
use crate::time::Time;

/// How a lease ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The worker acknowledged the key: its deltas become known, and its failures are reset.
    Acked,
    /// client-go's Done alone, without Forget.
    Done,
    /// The worker reported a failure.
    Nacked(Failure),
    /// The deadline passed.
    Expired(Failure),
    /// The worker released the key, which moved to the tail of the ready queue. This is not a failure.
    Released,
    /// The worker released the key and asked that it is not delivered for a time. This is not a failure.
    Held {
        /// The time before which the key is not delivered, even if newer changes arrive.
        until: Time,
    },
    /// The worker rejected the key. This is not a failure.
    Rejected {
        /// The worker's error.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<Arc<str>>,
        /// Where the key goes.
        #[serde(default, skip_serializing_if = "is_default")]
        disposition: Disposition,
    },
    /// The reply of the pop was never delivered. The key returned to its former position.
    Undelivered,
}

/// A failed delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The worker's error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Arc<str>>,
    /// Where the key goes.
    pub disposition: Disposition,
    /// Whether the rate limiters, including the token bucket, set the wait.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rate_limited: bool,
    /// The time before which the key is not delivered, even if newer changes arrive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<Time>,
}

impl Ending {
    /// The failure, if the lease ended with one.
    #[must_use]
    pub const fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Nacked(failure) | Self::Expired(failure) => Some(failure),
            Self::Acked
            | Self::Done
            | Self::Released
            | Self::Held { .. }
            | Self::Rejected { .. }
            | Self::Undelivered => None,
        }
    }

    /// Where the key goes; `None` if its work is done or if it returns to the ready queue.
    #[must_use]
    pub const fn disposition(&self) -> Option<Disposition> {
        match self {
            Self::Nacked(failure) | Self::Expired(failure) => Some(failure.disposition),
            Self::Rejected { disposition, .. } => Some(*disposition),
            Self::Held { until } => Some(Disposition::Wait { due: *until }),
            Self::Acked | Self::Done | Self::Released | Self::Undelivered => None,
        }
    }

    /// Whether the key is parked.
    #[must_use]
    pub fn parks(&self) -> bool {
        self.disposition() == Some(Disposition::Park)
    }

    /// The worker's error.
    #[must_use]
    pub fn error(&self) -> Option<&Arc<str>> {
        match self {
            Self::Nacked(Failure { error, .. })
            | Self::Expired(Failure { error, .. })
            | Self::Rejected { error, .. } => error.as_ref(),
            Self::Acked | Self::Done | Self::Released | Self::Held { .. } | Self::Undelivered => None,
        }
    }

    /// The outcome that a repeated settle of the lease gets. `None` if the lease was never delivered: it then counts as
    /// unknown.
    #[must_use]
    pub const fn outcome(&self) -> Option<Outcome> {
        match self {
            Self::Acked => Some(Outcome::Acked),
            Self::Done => Some(Outcome::Done),
            Self::Nacked(_) => Some(Outcome::Nacked),
            Self::Expired(_) => Some(Outcome::Expired),
            Self::Released | Self::Held { .. } => Some(Outcome::Released),
            Self::Rejected { .. } => Some(Outcome::Rejected),
            Self::Undelivered => None,
        }
    }
}

/// Where a key goes whose work is not done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Disposition {
    /// The key goes to the tail of the ready queue. In mode keys, it may also have a backoff.
    Tail {
        /// Mode keys: when the backoff ends.
        #[serde(skip_serializing_if = "Option::is_none")]
        due: Option<Time>,
    },
    /// The key backs off.
    Wait {
        /// When the key becomes ready, unless an earlier delay ends first or a debounce window ends later.
        due: Time,
    },
    /// The key waits for its existing delay or window.
    Delayed,
    /// The key is parked.
    #[default]
    Park,
}
