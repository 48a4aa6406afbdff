//! All integration tests, in one binary.

#![expect(clippy::expect_used, reason = "a failed expectation fails the test with its message")]
#![expect(clippy::indexing_slicing, reason = "an index out of range fails the test")]

mod access;
mod audit;
mod bad_input;
mod browser;
mod calls;
mod cli;
mod clients;
mod compression;
mod conformance;
mod console;
mod contract;
mod crash;
mod documents;
mod example;
mod faults;
mod feeds;
mod followers;
mod forwarding;
mod harness;
mod indexes;
mod journal;
mod limits;
mod load;
mod memory;
mod metrics;
mod model;
mod node;
mod offline;
mod package;
mod postgres;
mod process;
mod prometheus;
mod properties;
mod proxied;
mod reflect;
mod rules;
mod server;
mod simulation;
mod spans;
mod store;
mod tidy;
mod view_history;
