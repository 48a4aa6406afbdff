//! The rules of every store, in one binary.

#![expect(clippy::expect_used, reason = "a failed expectation fails the test with its message")]
#![expect(clippy::indexing_slicing, reason = "an index out of range fails the test")]

mod fake;
mod sqlite;
#[expect(dead_code, reason = "the tests of the server use the rest")]
#[path = "store/suite.rs"]
mod store;
