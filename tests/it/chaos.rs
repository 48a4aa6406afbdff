//! Tests that kill processes, and fail disks, databases and networks.

pub(crate) mod crash;
pub(crate) mod faults;
pub(crate) mod simulation;
