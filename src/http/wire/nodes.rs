//! A node as a document.

use std::time::Duration;

use deltaq_service::NodeState;
use deltaq_types::{NodeDetails, NodeDocument, NodeStatus};

use super::millis;

/// A node whose last heartbeat is older than this is shown as late. Nodes send a heartbeat every half second.
const LATE: Duration = Duration::from_secs(2);

/// The document of a node that was read this long ago, with what it says of itself.
pub fn node(state: &NodeState, since: Duration, details: Option<NodeDetails>) -> NodeDocument {
    let heartbeat_age = state.heartbeat_age.saturating_add(since);
    NodeDocument {
        name: state.peer.name.clone(),
        url: state.peer.url.clone(),
        this: state.is_this,
        state: if heartbeat_age >= LATE {
            NodeStatus::Late
        } else if state.is_leaving {
            NodeStatus::Leaving
        } else if state.has_joined {
            NodeStatus::Serving
        } else {
            NodeStatus::Joining
        },
        partitions: state.partitions as u64,
        queues: state.queues,
        heartbeat_age_ms: millis(heartbeat_age),
        clock_ahead_ms: state.clock_ahead_ms,
        details,
    }
}
