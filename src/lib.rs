//! deltaq: a keyed, event-sourced queue service.
//!
//! `http` parses and answers, `service` holds one lock per queue and hands events to the journal,
//! `engine` decides. Data flows in that direction only; see `docs/architecture.md`.

pub mod clock;
pub mod duration;
pub mod engine;
pub mod journal;
pub mod lifecycle;
pub mod service;
