//! The calls on a queue: commands, pops, and complex reads.

pub(crate) mod commands;
mod deliveries;
pub(crate) mod extend;
pub(crate) mod history;
pub(crate) mod indexes;
pub(crate) mod listed;
pub(crate) mod lists;
pub(crate) mod long_command;
pub(crate) mod parked;
pub(crate) mod pop;
pub(crate) mod reaching;
pub(crate) mod sources;
pub(crate) mod workers;
