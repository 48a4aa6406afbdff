//! A follower: a queue that takes its objects from a view of another queue, as client-go's shared informer feeds each of its listeners.
//!
//! A follower begins with the list of all keys. The list works like a Replace. First, a sweep deletes the keys that
//! the followed queue does not have, which makes room. Then each listed object is queued unless the follower already
//! has it. After the list, the follower applies changes. It reads rows of the change feed, so a follower that lags
//! gets each key once, with its newest object. A follower in mode `events` reads the events of the followed queue from
//! its journal instead, so that it gets every change.
//!
//! The event [`EventKind::Followed`](super::event::EventKind) stores the position of the follower. It is committed
//! together with the deltas of the rows, so a crash neither loses nor repeats a row.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::id::Rv;
use super::view::View;

/// The setting `follow`: what a follower takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follow {
    /// The name of the followed queue.
    pub queue: Arc<str>,
    /// The view.
    pub view: View,
    /// Only keys with this prefix are taken.
    pub prefix: Arc<str>,
    /// While this many keys are ready or delayed, the follower accepts no more rows.
    pub max_waiting: usize,
}

impl Follow {
    /// Whether both settings select the same rows.
    #[must_use]
    pub fn takes_the_same(&self, other: &Self) -> bool {
        (&self.queue, self.view, &self.prefix) == (&other.queue, other.view, &other.prefix)
    }
}

/// The position of a follower in the followed queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowPosition {
    /// The incarnation of the followed queue.
    pub incarnation: u32,
    /// The follower has all rows up to this event of the followed queue.
    pub after: Rv,
    /// What the follower does next.
    pub phase: FollowPhase,
}

/// What a follower does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FollowPhase {
    /// The follower deletes the keys that the followed queue does not have.
    Sweep {
        /// The newest event of the followed queue when the list began.
        since: Rv,
    },
    /// The follower takes the list of all keys, and the deletions since the list began.
    List {
        /// The newest event of the followed queue when the list began.
        since: Rv,
    },
    /// The follower takes changes.
    Changes,
}
