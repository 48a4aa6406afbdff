//! Limits that no setting changes. Each name ends in its unit. The limits that an operator may set are in
//! [`Config`](super::config::Config).

/// Longest key, in bytes of UTF-8.
pub const KEY_BYTES_MAX: usize = 1_024;
/// Deepest nesting of an object's JSON, counted in open braces and brackets.
pub const JSON_DEPTH_MAX: usize = 128;
/// Maximum number of JSON pointers in a key.
pub const KEY_POINTERS_MAX: usize = deltaq_types::terms::KEY_POINTERS_MAX;
/// Maximum number of indexes of a queue.
pub const INDEXES_MAX: usize = 16;
/// Longest name of an index, in bytes.
pub const INDEX_NAME_BYTES_MAX: usize = 64;
/// Longest value in an index, in bytes of UTF-8. Longer values are in no index.
pub const INDEX_VALUE_BYTES_MAX: usize = 256;
/// Number of values of an array that are in an index. Later values of the array are in no index.
pub const INDEX_ARRAY_MAX: usize = 100;
/// Longest source, worker name or pop id, in bytes.
pub const NAME_BYTES_MAX: usize = 256;
/// Longest error text kept with a failed key, in bytes.
pub const ERROR_BYTES_MAX: usize = 4_096;
/// Maximum number of Replaces of a queue that run or wait. Each holds its whole list in memory.
pub const REPLACES_MAX: usize = 16;
/// Maximum number of followers of a queue.
pub const FOLLOWERS_MAX: usize = 1_000;
/// Number of sources of a queue whose calls are remembered.
pub const SOURCES_MAX: usize = 1_000;
/// Longest version of an object, in bytes of its number or its string.
pub const VERSION_BYTES_MAX: usize = 256;
/// Number of remembered versions of deleted keys in a queue.
pub const REMEMBERED_VERSIONS_MAX: usize = 100_000;
/// Approximate size of the remembered versions of a queue, in bytes.
pub const REMEMBERED_VERSIONS_BYTES_MAX: usize = 64 << 20;
/// Age of a remembered version, in seconds.
pub const REMEMBERED_VERSIONS_SECS: u64 = 24 * 60 * 60;
/// Number of settled leases per queue whose outcome is kept.
pub const SETTLED_LEASES_MAX: usize = 65_536;
/// Maximum number of leases, delays and failure counts that end before one command, because the command holds the queue's
/// lock meanwhile. The rest ends before the next command, or when the queue's timer fires. A million at once would block the
/// queue for a second, and the commits of all other queues for longer.
pub const DUE_AT_A_TIME: usize = 1_000;
/// How long an otherwise unused key keeps its failure count, in seconds.
pub const FAILURE_EXPIRY_SECS: u64 = 24 * 60 * 60;
/// The largest number of an event: the largest whole number that every language with floats as its only numbers keeps exact.
pub const RV_MAX: u64 = (1 << 53) - 1;
/// While the clock is behind the numbers of a queue, the least distance between the last number of a life and the first one of the next
/// life: more than the process can have used without journaling them.
pub const LIFE_SKIP_EVENTS: u64 = 1 << 20;
/// Number of lives of a queue that are remembered, the present one included.
pub const LIVES_MAX: usize = 256;
/// The smallest `max_deltas_per_key`: merging keeps the oldest and the newest delta.
pub const DELTAS_PER_KEY_MIN: usize = 2;

/// Longest other member of a document that contains an object, and longest text around the object of a line, in bytes.
pub const ENVELOPE_BYTES_MAX: usize = 16 << 10;

/// Fewest keys of a source for which a Replace without limits may delete at most half.
pub const HALF_KEYS_MIN: u64 = 10;
