//! All integration tests, in one binary.

#![expect(clippy::expect_used, reason = "a test that can't go on stops, and says what it expected")]
#![expect(clippy::indexing_slicing, reason = "the same: a test that finds less than it expected has failed")]

mod bad_input;
mod conformance;
mod contract;
mod crash;
mod example;
mod faults;
mod harness;
mod metrics;
mod model;
mod node;
mod offline;
mod prometheus;
mod properties;
mod rules;
mod server;
mod simulation;
mod tidy;
