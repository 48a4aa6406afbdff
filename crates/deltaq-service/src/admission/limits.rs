//! Fixed limits of admission. Each name ends in its unit.

/// Maximum length of a queue's JSON Schema, in bytes without whitespace between its tokens.
pub const SCHEMA_BYTES_MAX: usize = 256 << 10;
/// Maximum size of a schema's defaults in bytes, after they are filled into one another.
pub const DEFAULTS_BYTES_MAX: usize = 4 << 20;
/// Maximum number of subschemas in a schema.
pub const SUBSCHEMAS_MAX: usize = 20_000;
/// Maximum number of times that a schema may evaluate one value, counting each application of each subschema.
pub const IN_PLACE_EVALUATIONS_MAX: usize = 10_000;
/// Maximum length of a chain of subschemas that apply one another to the same value.
pub const IN_PLACE_DEPTH_MAX: usize = 64;
/// Maximum number of regular expressions in a schema.
pub const PATTERNS_MAX: usize = 1_000;
/// Maximum size of one compiled regular expression, in bytes.
pub const PATTERN_BYTES_MAX: usize = 1 << 20;
/// Maximum size of all compiled regular expressions of a schema, in bytes. The expressions share this size evenly.
pub const PATTERNS_BYTES_MAX: usize = 32 << 20;
/// Maximum number of pointers to pruned members.
pub const PRUNE_POINTERS_MAX: usize = 100;
/// Maximum number of schema violations that are reported for an object.
pub const VIOLATIONS_MAX: usize = 20;
/// Maximum size of an object for which more than the first violation is reported, in bytes. All violations are
/// collected before the list is truncated, which is too expensive for larger objects.
pub const VIOLATIONS_OBJECT_BYTES_MAX: usize = 64 << 10;
/// Maximum number of faults that are collected to report violations. For an object that may have more faults, no
/// violation is named.
pub const FAULTS_MAX: u64 = 200_000;
/// Maximum length of the text about a violation, in characters.
pub const VIOLATION_CHARS_MAX: usize = 200;
/// Maximum number of calls on one queue whose objects are admitted concurrently. Each occupies a thread.
pub const ADMISSIONS_MAX: usize = 2;
/// Maximum number of calls on one queue that wait for admission.
pub const ADMISSIONS_WAITING_MAX: usize = 128;
