//! Calls that involve several nodes: a call on a queue goes to the owner of the queue, and the list of queues covers
//! all nodes.

pub(super) mod forward;
pub(super) mod queue_list;
pub(super) mod series_sums;

mod exchange;
mod limited_body;
mod peer_call;
