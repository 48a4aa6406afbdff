//! What every process of deltaq needs: the clocks, tasks with an orderly end, and waits between attempts.
//!
//! This crate contains no rule of a queue, no HTTP and no SQL.
//!
//! Architecture invariants:
//! - only [`clock`] reads a clock;
//! - only [`lifecycle`] spawns tasks.

pub mod causes;
pub mod clock;
pub mod lifecycle;
pub mod retry;
