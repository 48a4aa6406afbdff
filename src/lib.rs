//! deltaq: a keyed, event-sourced queue service.
//!
//! `http` parses and answers, `service` holds one lock per queue and hands events to the journal,
//! `engine` decides. Data flows in that direction only; see `docs/architecture.md`.

pub mod access;
pub mod admission;
pub mod audit;
pub mod bench;
pub mod causes;
pub mod cli;
pub mod clock;
pub mod config;
pub mod engine;
pub mod http;
pub mod instant;
pub mod journal;
pub mod lifecycle;
pub mod name;
pub mod offline;
pub mod reflect;
pub mod retry;
pub mod server;
pub mod service;
pub mod spans;
pub mod supervisor;
pub mod telemetry;

pub use deltaq_types::duration;
