//! Bounds that no setting changes. Each is named with its unit; what an operator may tune is in
//! [`Config`](super::config::Config) instead.

/// Longest key, in bytes of UTF-8.
pub const KEY_BYTES_MAX: usize = 1_024;
/// Deepest nesting of an object's JSON, counted in open braces and brackets.
pub const JSON_DEPTH_MAX: usize = 128;
/// Most JSON pointers that may make up a key.
pub const KEY_POINTERS_MAX: usize = 8;
/// Longest JSON Schema of a queue, in bytes without blanks between its tokens.
pub const SCHEMA_BYTES_MAX: usize = 256 << 10;
/// Most bytes that the defaults of a schema may come to, each filled in as far as they fill in one another.
pub const DEFAULTS_BYTES_MAX: usize = 4 << 20;
/// Most subschemas of a schema.
pub const SUBSCHEMAS_MAX: usize = 20_000;
/// Most evaluations of one value by a schema: of its subschemas, each time that they are applied to it.
pub const IN_PLACE_EVALUATIONS_MAX: usize = 10_000;
/// Longest chain of subschemas, each of which applies the next to the same value.
pub const IN_PLACE_DEPTH_MAX: usize = 64;
/// Most regular expressions of a schema.
pub const PATTERNS_MAX: usize = 1_000;
/// Largest regular expression of a schema, in bytes of what it is compiled to.
pub const PATTERN_BYTES_MAX: usize = 1 << 20;
/// Bytes that the regular expressions of a schema share: of many, each may be the smaller.
pub const PATTERNS_BYTES_MAX: usize = 32 << 20;
/// Most calls on a queue whose objects are admitted at the same time; each takes a thread.
pub const ADMISSIONS_MAX: usize = 2;
/// Most that wait for their turn.
pub const ADMISSIONS_WAITING_MAX: usize = 128;
/// Most pointers to what is pruned from objects.
pub const PRUNE_POINTERS_MAX: usize = 100;
/// Most places at which an object is said not to satisfy its schema.
pub const VIOLATIONS_MAX: usize = 20;
/// Longest object of which more than the first such place is looked for, in bytes: the list of all is
/// made before it is cut.
pub const VIOLATIONS_OBJECT_BYTES_MAX: usize = 64 << 10;
/// Most faults that are looked for in an object to name such places; one that may have more has none named.
pub const FAULTS_MAX: u64 = 200_000;
/// Longest text on such a place, in characters.
pub const VIOLATION_CHARS_MAX: usize = 300;
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
pub const FAILURE_MEMORY_SECS: u64 = 24 * 60 * 60;
/// How many numbers of events are skipped after an unclean stop: more than can have been given out
/// without having come into the journal.
pub const RECOVERY_SKIP_EVENTS: u64 = 1 << 20;
/// The smallest `max_deltas_per_key`: merging needs an oldest and a newest delta that stay.
pub const DELTAS_PER_KEY_MIN: usize = 2;
