//! Calls that involve several nodes: a call on a queue goes to the owner of the queue, and the list of queues covers
//! all nodes.

pub(super) mod details;
pub(super) mod everywhere;
pub(super) mod forward;
pub(super) mod queue_list;

mod exchange;
mod gather;
mod limited_body;
