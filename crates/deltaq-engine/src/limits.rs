//! Fixed limits. Each name ends in its unit. The limits that an operator can set are in
//! [`Config`](super::config::Config).

/// Maximum number of arrays in the setting `diff.array_keys` of a queue.
pub const ARRAY_KEYS_MAX: usize = 16;
/// Maximum length of a key, in bytes of UTF-8.
pub const KEY_BYTES_MAX: usize = 1_024;
/// Maximum nesting depth of an object's JSON, counted in open braces and brackets.
pub const JSON_DEPTH_MAX: usize = 128;
/// Maximum number of JSON pointers in a key.
pub const KEY_POINTERS_MAX: usize = deltaq_types::terms::KEY_POINTERS_MAX;
/// Maximum number of pointers to members whose change alone is no change.
pub const IGNORED_POINTERS_MAX: usize = 100;
/// Maximum number of indexes of a queue.
pub const INDEXES_MAX: usize = 16;
/// Maximum length of an index's name, in bytes.
pub const INDEX_NAME_BYTES_MAX: usize = 64;
/// Maximum length of a value in an index, in bytes of UTF-8. Longer values are not indexed.
pub const INDEX_VALUE_BYTES_MAX: usize = 256;
/// Maximum number of values of an array in an index. Later values of the array are not indexed.
pub const INDEX_ARRAY_MAX: usize = 100;
/// Maximum length of the name of a source or worker, and of a pop id, in bytes.
pub const NAME_BYTES_MAX: usize = 256;
/// Maximum length of the error text that is kept with a failed key, in bytes.
pub const ERROR_BYTES_MAX: usize = 4_096;
/// Length of the part of an error text that is kept if there is no memory for all of it, in bytes.
pub const ERROR_START_BYTES: usize = 256;
/// Maximum number of running and waiting Replaces of a queue.
pub const REPLACES_MAX: usize = 16;
/// Maximum number of followers of a queue.
pub const FOLLOWERS_MAX: usize = 1_000;
/// Maximum number of sources of a queue whose calls are remembered.
pub const SOURCES_MAX: usize = 1_000;
/// Maximum length of an object's version, in bytes of its number or string.
pub const VERSION_BYTES_MAX: usize = 256;
/// Maximum number of groups with a name of a queue. Keys of further groups belong to the group without a name.
pub const GROUPS_MAX: usize = 10_000;
/// Maximum number of groups of a queue that have settings of their own.
pub const GROUP_OVERRIDES_MAX: usize = deltaq_types::GROUP_OVERRIDES_MAX;
/// Maximum length of the name of a group, in bytes.
pub const GROUP_BYTES_MAX: usize = deltaq_types::GROUP_BYTES_MAX;
/// Maximum number of remembered versions of deleted keys in a queue.
pub const REMEMBERED_VERSIONS_MAX: usize = 100_000;
/// Maximum size of the remembered versions of a queue, in bytes (approximate).
pub const REMEMBERED_VERSIONS_BYTES_MAX: usize = 64 << 20;
/// Maximum age of a remembered version, in seconds.
pub const REMEMBERED_VERSIONS_SECS: u64 = 24 * 60 * 60;
/// Maximum number of remembered ids of deliveries in a queue.
pub const DELIVERY_IDS_MAX: usize = 100_000;
/// Maximum age of a remembered id of a delivery, in seconds.
pub const DELIVERY_IDS_SECS: u64 = 24 * 60 * 60;
/// Maximum number of deliveries that a queue keeps because it could not apply them.
pub const KEPT_DELIVERIES_MAX: usize = 1_000;
/// Maximum size of the kept deliveries of a queue, in bytes (approximate).
pub const KEPT_DELIVERIES_BYTES_MAX: usize = 8 << 20;
/// What a key takes in memory without its text, deltas and known object, in bytes (approximate).
pub const KEY_BYTES: usize = 384;
/// What a delta or a known object takes in memory without its text, in bytes (approximate).
pub const DELTA_BYTES: usize = 96;
/// Maximum number of settled leases per queue whose outcome is kept.
pub const SETTLED_LEASES_MAX: usize = 65_536;
/// How long the outcome of a settled lease is kept at least, in seconds, unless newer ones exceed the maximum number.
pub const SETTLED_LEASES_SECS: u64 = 24 * 60 * 60;
/// Maximum number of leases, delays and failure counts that one command ends, because they end under the queue's
/// lock. The rest end at the next command or when the queue's timer fires. Ending a million at once would block the
/// queue for a second, and the commits of all other queues for longer.
pub const DUE_AT_A_TIME: usize = 1_000;
/// The longest hold of a queue, in seconds. A worker that asks for a longer one gets this one.
pub const HOLD_SECS_MAX: u64 = deltaq_types::terms::HOLD_SECS_MAX;
/// The longest wait of a debounced change as a multiple of `quiet`, unless it is set.
pub const DEBOUNCE_MAX_WAITS: u32 = 10;
/// How long the failure count of an otherwise unused key is kept, in seconds.
pub const FAILURE_EXPIRY_SECS: u64 = 24 * 60 * 60;
/// The largest event number: the largest integer that a 64-bit float represents exactly, because some languages have
/// only floats.
pub const RV_MAX: u64 = (1 << 53) - 1;
/// The minimum distance between the last number of a life and the first number of the next life, if the clock is
/// behind the queue's numbers. The distance is larger than the count of numbers that a process can use without
/// journaling them.
pub const LIFE_SKIP_EVENTS: u64 = 1 << 20;
/// Maximum number of lives of a queue that are remembered, including the current one.
pub const LIVES_MAX: usize = 256;
/// The minimum of `max_deltas_per_key`, because merging keeps the oldest and the newest delta.
pub const DELTAS_PER_KEY_MIN: usize = 2;

/// In a document that contains an object, the maximum length of any other member. In a line, the maximum length of
/// the text around the object. Both in bytes.
pub const ENVELOPE_BYTES_MAX: usize = 16 << 10;

/// The default limit, which lets a Replace delete at most half of a source's keys, applies only to sources with at
/// least this many keys.
pub const HALF_KEYS_MIN: u64 = 10;
