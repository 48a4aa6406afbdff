//! Bounds that no setting changes. Each is named with its unit; what an operator may tune is in
//! [`Config`](super::config::Config) instead.

/// Longest key, in bytes of UTF-8.
pub const KEY_BYTES_MAX: usize = 1_024;
/// Deepest nesting of an object's JSON, counted in open braces and brackets.
pub const JSON_DEPTH_MAX: usize = 128;
/// Most JSON pointers that may make up a key.
pub const KEY_POINTERS_MAX: usize = 8;
/// Longest source, worker name or pop id, in bytes.
pub const NAME_BYTES_MAX: usize = 256;
/// Longest error text kept with a failed key, in bytes.
pub const ERROR_BYTES_MAX: usize = 4_096;
/// Most Replaces of a queue that run or wait for their turn; each holds its whole list.
pub const REPLACES_MAX: usize = 16;
/// How many settled leases of a queue are remembered with their outcome.
pub const SETTLED_LEASES_MAX: usize = 65_536;
/// Most leases, delays and memories of failures that end before a command, which has the queue to itself meanwhile. What is
/// due besides follows before the next one, or by the queue's timer.
pub const DUE_AT_A_TIME: usize = 1_000;
/// How long a key that waits for nothing keeps its failure count, in seconds.
pub const FAILURE_EXPIRY_SECS: u64 = 24 * 60 * 60;
/// How many numbers of events are skipped after an unclean stop: more than can have been given out
/// without having come into the journal.
pub const RECOVERY_SKIP_EVENTS: u64 = 1 << 20;
/// The smallest `max_deltas_per_key`: merging needs an oldest and a newest delta that stay.
pub const DELTAS_PER_KEY_MIN: usize = 2;

/// Longest member beside the object in a document that holds one, and longest text beside the object of a line, in bytes.
pub const ENVELOPE_BYTES_MAX: usize = 16 << 10;
