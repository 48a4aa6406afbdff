//! The setting `follow` of a queue, and how far a follower has got.

use std::sync::Arc;

use deltaq_engine::config::{Config, Follow};
use deltaq_engine::excerpt::shortened;
use deltaq_engine::follow::FollowPhase;
use deltaq_engine::limits::KEY_BYTES_MAX;
use deltaq_engine::view::View;
use deltaq_service::{FollowReport, Obstacle};
use deltaq_types::name::Name;
use deltaq_types::{FollowState, FollowStatus, FollowedView};
use serde_json::Value;

use super::super::problem::Problem;
use super::millis;

/// The largest `max_waiting`.
const MAX_WAITING_MAX: u64 = 1_000_000_000;

/// The change of the setting by a PUT.
#[derive(Debug, Default)]
pub(super) enum FollowPatch {
    /// No change.
    #[default]
    Keep,
    /// The queue follows no queue from now on.
    Detach,
    Set(Arc<Follow>),
}

impl FollowPatch {
    /// The setting after the change.
    pub(super) fn applied(&self, current: Option<&Arc<Follow>>) -> Option<Arc<Follow>> {
        match self {
            Self::Keep => current.cloned(),
            Self::Detach => None,
            Self::Set(follow) => Some(follow.clone()),
        }
    }
}

/// The setting in a PUT.
pub(super) fn read(value: Value) -> Result<FollowPatch, Problem> {
    if value.is_null() {
        return Ok(FollowPatch::Detach);
    }
    let document: deltaq_types::Follow = serde_json::from_value(value).map_err(|error| {
        Problem::invalid_setting("follow", &shortened(&error.to_string()))
            .hint("it is like {\"queue\":\"prices\"}, or null to detach the queue")
    })?;
    let deltaq_types::Follow { queue, view, prefix, max_waiting } = document;
    Name::new(&queue).map_err(|why| Problem::invalid_setting("follow.queue", &why.to_string()))?;
    if prefix.len() > KEY_BYTES_MAX {
        let why = format!("it has {} bytes; a key has at most {KEY_BYTES_MAX}", prefix.len());
        return Err(Problem::invalid_setting("follow.prefix", &why).with("limit", KEY_BYTES_MAX));
    }
    if !(1..=MAX_WAITING_MAX).contains(&max_waiting) {
        let why = format!("it takes 1 to {MAX_WAITING_MAX}, not {max_waiting}");
        return Err(Problem::invalid_setting("follow.max_waiting", &why).with("limit", MAX_WAITING_MAX));
    }
    Ok(FollowPatch::Set(Arc::new(Follow {
        queue: queue.into(),
        view: match view {
            FollowedView::Latest => View::Latest,
            FollowedView::Known => View::Known,
        },
        prefix: prefix.into(),
        max_waiting: usize::try_from(max_waiting).unwrap_or(usize::MAX),
    })))
}

/// The setting in a reply.
pub(super) fn document(follow: &Follow) -> deltaq_types::Follow {
    deltaq_types::Follow {
        queue: follow.queue.to_string(),
        view: match follow.view {
            View::Latest => FollowedView::Latest,
            View::Known => FollowedView::Known,
        },
        prefix: follow.prefix.to_string(),
        max_waiting: follow.max_waiting as u64,
    }
}

/// Refuses settings that a follower can't have.
pub(super) fn check(config: &Config) -> Result<(), Problem> {
    let Some(follow) = &config.follow else { return Ok(()) };
    if !config.rules().has_objects {
        let why = "a queue of mode keys has no objects, so it can't follow";
        return Err(Problem::invalid_setting("follow", why).hint("use mode latest"));
    }
    if !config.known_objects {
        let why = "a follower needs known_objects, because they tell which keys were deleted";
        return Err(Problem::invalid_setting("follow", why));
    }
    if config.admission.is_some() || config.version.is_some() {
        let queue = &follow.queue;
        let why = format!("a follower takes objects as {queue:?} has accepted them");
        let problem = Problem::invalid_setting("follow", &why);
        return Err(problem.hint(format!("set schema, prune and version of {queue:?}")));
    }
    Ok(())
}

/// How far a follower has got.
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
