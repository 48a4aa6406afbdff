//! deltaq: a keyed, event-sourced queue service.
//!
//! `http` parses and answers, `service` holds one lock per queue and passes events to the journal, and `engine`
//! decides. Calls go only in that direction; see `docs/architecture.md`.

pub mod access;
pub mod audit;
pub mod bench;
pub mod cli;
pub mod config;
pub mod hooks;
pub mod http;
pub mod instant;
mod private_file;
pub mod push;
pub mod secrets;
pub mod server;
pub mod spans;
pub mod supervisor;
pub mod suppression;
pub mod telemetry;
