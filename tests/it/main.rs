//! All integration tests, in one binary.

#![expect(clippy::expect_used, reason = "a test that can't go on stops, and says what it expected")]
#![expect(clippy::indexing_slicing, reason = "the same: a test that finds less than it expected has failed")]

mod access;
mod audit;
mod bad_input;
mod conformance;
mod contract;
mod crash;
mod example;
mod faults;
mod harness;
mod limits;
mod load;
mod metrics;
mod model;
mod node;
mod offline;
mod process;
mod prometheus;
mod properties;
mod rules;
mod server;
mod simulation;
mod spans;
mod tidy;
