//! The state of the task that feeds a follower. The follower's queue holds this state.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deltaq_engine::follow::{FollowPhase, FollowPosition};
use deltaq_engine::id::Rv;
use deltaq_engine::time::Time;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::Error;

/// The state of the task that feeds a follower.
#[derive(Debug, Default)]
pub(crate) struct FollowTask {
    /// Whether the task is running.
    is_running: AtomicBool,
    /// Wakes the task when the queue has room again, has new settings, or has ended.
    pub(crate) wake: Notify,
    /// The current activity of the task.
    activity: Mutex<Activity>,
}

/// The current activity of a follower's task.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Why the follower takes no rows.
    pub(crate) obstacle: Option<Obstacle>,
    /// The follower has all rows up to this event. Its position may be smaller if none of the later events has a row.
    pub(crate) read: Rv,
    /// When the follower fell behind; `None` if it has all rows.
    pub(crate) behind_since: Option<Time>,
}

/// Why a follower takes no rows.
#[derive(Clone, Debug, PartialEq)]
pub enum Obstacle {
    /// Too many keys wait, or the follower holds its maximum of keys.
    Full,
    /// A Replace or a seed of the follower has not ended.
    Busy,
    /// The token that has set up the follower may not read the followed queue.
    NotGranted {
        /// The name of the token.
        token: Arc<str>,
    },
    /// Mode `events`: the journal of the followed queue no longer has all events after the position.
    HistoryLost,
    /// The followed queue can't be read, or the follower can't be changed.
    Failed(Error),
}

/// The progress of a follower.
#[derive(Clone, Debug, PartialEq)]
pub struct FollowReport {
    /// The position; `None` before the list.
    pub position: Option<FollowPosition>,
    /// Why the follower takes no rows.
    pub obstacle: Option<Obstacle>,
    /// Number of events of the followed queue after the position; 0 if the follower has all rows.
    pub lag_events: u64,
    /// How long the follower has been behind.
    pub lag: Duration,
}

impl FollowTask {
    pub(crate) fn set(&self, change: impl FnOnce(&mut Activity)) {
        change(&mut self.activity.lock());
    }

    /// Marks the task as running. Returns whether the caller must run it because it was not running.
    pub(crate) fn begins(&self) -> bool {
        !self.is_running.swap(true, Ordering::AcqRel)
    }

    /// Records that the task has ended. It is a swap, because the settings are read after it.
    pub(crate) fn ends(&self) {
        self.is_running.swap(false, Ordering::AcqRel);
    }

    /// The progress of the follower. `events_after` counts the events of the followed queue after a version.
    pub(crate) fn report(
        &self,
        position: Option<FollowPosition>,
        events_after: impl FnOnce(Rv) -> u64,
        now: Time,
    ) -> FollowReport {
        let activity = self.activity.lock();
        let position = position.map(|position| match position.phase {
            FollowPhase::Changes => FollowPosition { after: position.after.max(activity.read), ..position },
            _ => position,
        });
        let after = position.map_or(Rv::ZERO, |position| position.after);
        let lag_events = activity.behind_since.map_or(0, |_| events_after(after));
        let lag = activity.behind_since.map_or(Duration::ZERO, |since| now.since(since));
        FollowReport { position, obstacle: activity.obstacle.clone(), lag_events, lag }
    }
}
