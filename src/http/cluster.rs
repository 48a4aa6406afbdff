//! Calls that involve several nodes: a call on a queue goes to the owner of the queue, and the lists of queues and of what
//! belongs to them cover all nodes.

pub(super) mod across;
pub(super) mod details;
pub(super) mod everywhere;
pub(super) mod forward;
pub(super) mod gather;
pub(super) mod queue_list;
pub(super) mod series_sums;

mod exchange;
mod limited_body;
