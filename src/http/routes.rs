//! The handlers, one file a resource.

pub(super) mod consume;
pub(super) mod look;
pub(super) mod operate;
pub(super) mod produce;
pub(super) mod queues;

mod reading;
