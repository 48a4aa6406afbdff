//! The progress of a follower.

use deltaq_engine::follow::FollowPhase;
use deltaq_service::{FollowReport, Obstacle};
use deltaq_types::{FollowState, FollowStatus};

use super::millis;
use crate::http::problem::Problem;

/// Converts the progress of a follower.
pub(super) fn status(report: &FollowReport) -> FollowStatus {
    let state = match (&report.obstacle, report.position.map(|position| position.phase)) {
        (Some(Obstacle::Full), _) => FollowState::Blocked,
        (Some(_), _) => FollowState::Waiting,
        (None, Some(FollowPhase::Changes)) => FollowState::Following,
        (None, _) => FollowState::Listing,
    };
    let detail = report.obstacle.as_ref().map(|obstacle| match obstacle {
        Obstacle::Full => {
            "max_waiting or max_keys of the follower is reached, or in mode events a bound of a key"
                .to_owned()
        }
        Obstacle::Busy => "a Replace or a seed of the follower has not ended".to_owned(),
        Obstacle::Failed(error) => Problem::from(error.clone()).detail().to_owned(),
    });
    FollowStatus {
        state,
        resource_version: report.position.map(|position| position.after.get()),
        lag_events: report.lag_events,
        lag_ms: millis(report.lag),
        detail,
    }
}
