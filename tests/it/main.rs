//! The tests of the product, in one binary and three groups.
//!
//! - `system::` needs programs of the machine, such as PostgreSQL, Chromium and nginx; scripts/setup.sh lists them;
//! - `chaos::` kills processes, and fails disks, databases and networks;
//! - all others need nothing but this binary.

#![expect(clippy::expect_used, reason = "a failed expectation fails the test with its message")]
#![expect(clippy::indexing_slicing, reason = "an index out of range fails the test")]

mod access;
mod audit;
mod bad_input;
mod calls;
mod chaos;
mod compression;
mod conformance;
mod contract;
mod expectations;
mod feeds;
mod followers;
mod forwarding;
mod harness;
mod held_bytes;
mod indexes;
mod journal;
mod kubernetes;
mod limits;
mod load;
mod memory;
mod metrics;
mod node;
mod resources;
mod rules;
mod server;
mod shared_lock;
mod spans;
#[path = "../../crates/deltaq-journal/tests/it/store/suite.rs"]
mod store;
mod system;
mod tidy;
#[expect(dead_code, reason = "the tests of the engine use the rest")]
#[path = "../../crates/deltaq-engine/tests/it/view_history.rs"]
mod view_history;
