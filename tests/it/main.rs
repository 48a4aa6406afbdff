//! All integration tests, in one binary.

#![expect(clippy::expect_used, reason = "a test that can't go on stops, and says what it expected")]

mod conformance;
mod model;
mod properties;
