//! The handlers, one file a resource.

pub(super) mod consume;
pub(super) mod history;
pub(super) mod look;
pub(super) mod operate;
pub(super) mod produce;
pub(super) mod queues;
pub(super) mod seed;

mod documents;
mod reading;

pub use self::seed::read_seed;
