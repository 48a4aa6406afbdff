//! Calls that concern several nodes: a call on a queue goes to the owner of the queue, and the list of the queues is that of all nodes.

pub(super) mod forward;
pub(super) mod queue_list;

mod exchange;
