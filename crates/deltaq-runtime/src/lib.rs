//! Basics for every deltaq process: clocks, tasks with an orderly shutdown, and waits between attempts.
//!
//! This crate contains no rules of a queue, no HTTP and no SQL.
//!
//! Architecture invariants:
//! - only [`clock`] reads a clock;
//! - only [`lifecycle`] spawns tasks.

pub mod causes;
pub mod clock;
pub mod lifecycle;
pub mod retry;
