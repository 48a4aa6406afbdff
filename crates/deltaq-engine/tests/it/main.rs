//! The tests of the engine's rules, in one binary.

#![expect(clippy::expect_used, reason = "a failed expectation fails the test with its message")]
#![expect(clippy::indexing_slicing, reason = "an index out of range fails the test")]

mod conformance;
mod differences;
mod model;
mod properties;
mod rules;
mod scripts;
mod view_history;
