//! The progress of a follower.

use deltaq_engine::follow::FollowPhase;
use deltaq_service::{FollowReport, Obstacle};
use deltaq_types::{FollowReason, FollowState, FollowStatus};

use super::millis;
use crate::http::problem::Problem;

/// Converts the progress of a follower.
pub(super) fn status(report: &FollowReport) -> FollowStatus {
    let state = match (&report.obstacle, report.position.map(|position| position.phase)) {
        (Some(Obstacle::Full | Obstacle::HistoryLost | Obstacle::NotGranted { .. }), _) => {
            FollowState::Blocked
        }
        (Some(_), _) => FollowState::Waiting,
        (None, Some(FollowPhase::Changes)) => FollowState::Following,
        (None, _) => FollowState::Listing,
    };
    let (reason, detail) = report.obstacle.as_ref().map(why).unzip();
    FollowStatus {
        state,
        resource_version: report.position.map(|position| position.after.get()),
        lag_events: report.lag_events,
        lag_ms: millis(report.lag),
        reason,
        detail,
    }
}

/// Why a follower takes nothing.
fn why(obstacle: &Obstacle) -> (FollowReason, String) {
    match obstacle {
        Obstacle::Full => {
            let detail =
                "max_waiting or max_keys of the follower is reached, or in mode events a bound of a key";
            (FollowReason::Full, detail.to_owned())
        }
        Obstacle::Busy => {
            (FollowReason::Busy, "a Replace or a seed of the follower has not ended".to_owned())
        }
        Obstacle::HistoryLost => {
            let detail = "the followed queue no longer has all events that the follower lacks; to go on with a new \
                          list, set follow to null, and then set it again";
            (FollowReason::HistoryLost, detail.to_owned())
        }
        Obstacle::NotGranted { token } => {
            let detail = format!(
                "the token {token:?}, which has set up the follower, may not read the followed queue"
            );
            (FollowReason::NotGranted, detail)
        }
        Obstacle::Failed(error) => (FollowReason::Failed, Problem::from(error.clone()).detail().to_owned()),
    }
}
