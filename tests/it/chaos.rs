//! Tests that kill processes, and fail disks, databases and networks.

pub(crate) mod crash;
pub(crate) mod faults;
mod hooks;
mod pushing;
pub(crate) mod simulation;
