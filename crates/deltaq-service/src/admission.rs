//! Admission: the processing of objects before a queue accepts them. Members are pruned, defaults are filled in, and
//! the result must satisfy a JSON Schema.
//!
//! Admission runs before the engine sees an object, so keys, sizes and comparisons refer to the result. It is
//! compiled from the settings of a queue when the first object needs it. It reads no file and no network. Unchanged
//! parts of an object keep their text.
//!
//! Invariant: admission is idempotent. To ensure this, defaults are filled in completely, also within values that
//! were filled in, and never where a member is pruned.

mod cost;
mod defaults;
mod document;
pub mod limits;
mod places;
mod prune;
mod schema;
#[cfg(test)]
mod tests;

use std::fmt;

use deltaq_engine::config::AdmissionText;
use deltaq_engine::key::KeySpec;
use deltaq_engine::limits::JSON_DEPTH_MAX;
use deltaq_engine::object::{self, Object};
use deltaq_engine::pointer::Pointer;

use self::defaults::Overflow;
use self::document::Document;
use self::limits::{
    DEFAULTS_BYTES_MAX, IN_PLACE_DEPTH_MAX, IN_PLACE_EVALUATIONS_MAX, PATTERNS_MAX, PRUNE_POINTERS_MAX,
    SCHEMA_BYTES_MAX, SUBSCHEMAS_MAX,
};
use self::prune::Paths;
pub use self::schema::{Schema, Violation};

/// The admission of a queue, compiled.
#[derive(Debug)]
pub struct Admission {
    schema: Option<Schema>,
    prune: Vec<Pointer>,
}

/// Why the settings are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The schema is longer than [`SCHEMA_BYTES_MAX`].
    #[error("it has {bytes} bytes; at most {SCHEMA_BYTES_MAX} are allowed")]
    SchemaTooLong {
        /// Length of the schema in bytes, without whitespace between its tokens.
        bytes: usize,
    },
    /// The text of the schema is not a JSON object.
    #[error("{0}")]
    SchemaText(#[from] object::SyntaxError),
    /// The schema is not valid.
    #[error("{}{detail}", place(.pointer))]
    Schema {
        /// The location in the schema; empty if it is unknown.
        pointer: String,
        /// What is wrong.
        detail: String,
    },
    /// The schema has more subschemas than [`SUBSCHEMAS_MAX`], or too many references by names with many targets.
    #[error("it has more than {SUBSCHEMAS_MAX} subschemas, or too many references to them")]
    TooManySubschemas,
    /// The schema applies subschemas to the same value in a chain longer than [`IN_PLACE_DEPTH_MAX`].
    #[error(
        "it applies subschemas to the same value in a chain of more than {IN_PLACE_DEPTH_MAX} (by $ref, allOf, anyOf and the like)"
    )]
    ChainTooLong,
    /// A subschema applies itself to the same value.
    #[error(
        "a subschema applies itself to the same value (by $ref, allOf, anyOf and the like), which has no end"
    )]
    Circle,
    /// The schema can evaluate one value more than [`IN_PLACE_EVALUATIONS_MAX`] times.
    #[error(
        "it could evaluate one value more than {IN_PLACE_EVALUATIONS_MAX} times (subschemas in $ref, allOf, anyOf and the like, multiplied out)"
    )]
    TooManyEvaluations,
    /// The schema has more regular expressions than [`PATTERNS_MAX`].
    #[error("it has {patterns} patterns; at most {PATTERNS_MAX} are allowed")]
    TooManyPatterns {
        /// Number of patterns.
        patterns: usize,
    },
    /// The defaults contain one another endlessly, or are too long.
    #[error(
        "its defaults, filled into one another and for each reference to them, have no end or more than {DEFAULTS_BYTES_MAX} bytes"
    )]
    Defaults,
    /// There are more pointers than [`PRUNE_POINTERS_MAX`].
    #[error("it has {pointers} pointers; at most {PRUNE_POINTERS_MAX} are allowed")]
    TooManyPointers {
        /// Number of pointers.
        pointers: usize,
    },
    /// A pointer is not valid.
    #[error("{0}")]
    Pointer(String),
    /// A pointer would remove the version.
    #[error("{pointer:?} would remove the version at {version:?}")]
    PrunesVersion {
        /// The pointer.
        pointer: String,
        /// The pointer to the version.
        version: String,
    },
    /// A pointer would remove the key.
    #[error("{pointer:?} would remove {key:?}, which is part of the key")]
    PrunesKey {
        /// The pointer.
        pointer: String,
        /// The key's pointer.
        key: String,
    },
}

impl Error {
    /// The setting that is wrong.
    #[must_use]
    pub const fn field(&self) -> &'static str {
        match self {
            Self::TooManyPointers { .. }
            | Self::Pointer(_)
            | Self::PrunesVersion { .. }
            | Self::PrunesKey { .. } => "prune",
            _ => "schema",
        }
    }

    /// The limit that was exceeded, if any.
    #[must_use]
    pub const fn limit(&self) -> Option<usize> {
        match self {
            Self::SchemaTooLong { .. } => Some(SCHEMA_BYTES_MAX),
            Self::TooManySubschemas => Some(SUBSCHEMAS_MAX),
            Self::ChainTooLong => Some(IN_PLACE_DEPTH_MAX),
            Self::TooManyEvaluations => Some(IN_PLACE_EVALUATIONS_MAX),
            Self::TooManyPatterns { .. } => Some(PATTERNS_MAX),
            Self::Defaults => Some(DEFAULTS_BYTES_MAX),
            Self::TooManyPointers { .. } => Some(PRUNE_POINTERS_MAX),
            _ => None,
        }
    }

    /// The location in the schema, if it is known.
    #[must_use]
    pub fn pointer(&self) -> Option<&str> {
        match self {
            Self::Schema { pointer, .. } if !pointer.is_empty() => Some(pointer),
            _ => None,
        }
    }
}

fn place(pointer: &str) -> String {
    if pointer.is_empty() { String::new() } else { format!("at {pointer:?}: ") }
}

/// Why an object is not admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// The object does not satisfy the schema.
    #[error("it does not satisfy the queue's schema: {}", summary(.0))]
    Invalid(Vec<Violation>),
    /// The object with its defaults is too long.
    #[error("with the defaults of the queue's schema it has more than {limit} bytes")]
    TooLarge {
        /// Maximum length of an object in bytes.
        limit: usize,
    },
    /// The object with its defaults is nested too deeply.
    #[error("with the defaults of the queue's schema it is nested deeper than {JSON_DEPTH_MAX} levels")]
    TooDeep,
    /// The object can't be read.
    #[error("it can't be read: {0}")]
    Unreadable(String),
}

fn summary(violations: &[Violation]) -> String {
    let Some(first) = violations.first() else { return String::new() };
    let more = violations.len() - 1;
    let rest = if more == 0 { String::new() } else { format!(" (and {more} more)") };
    let place = if first.pointer.is_empty() { "the object" } else { &first.pointer };
    format!("{place}: {}{rest}", first.detail)
}

/// Checks the pointers to pruned members, on their own and against the key and the version of a queue.
///
/// # Errors
/// [`Error::TooManyPointers`], [`Error::PrunesKey`] or [`Error::PrunesVersion`].
pub fn check_prune(prune: &[Pointer], key: &KeySpec, version: Option<&Pointer>) -> Result<(), Error> {
    if prune.len() > PRUNE_POINTERS_MAX {
        return Err(Error::TooManyPointers { pointers: prune.len() });
    }
    for pointer in prune {
        let removes = |place: &&Pointer| place.tokens.starts_with(&pointer.tokens);
        if let Some(key) = key.pointers().iter().find(removes) {
            let (pointer, key) = (pointer.text.to_string(), key.text.to_string());
            return Err(Error::PrunesKey { pointer, key });
        }
        if let Some(version) = version.filter(removes) {
            let (pointer, version) = (pointer.text.to_string(), version.text.to_string());
            return Err(Error::PrunesVersion { pointer, version });
        }
    }
    Ok(())
}

impl Admission {
    /// Compiles the rules of a queue. Does not check the cost of their schema, because it was checked when the rules
    /// were set.
    ///
    /// # Errors
    /// The schema can't be compiled.
    pub fn compile(rules: &AdmissionText) -> Result<Self, Error> {
        let schema = rules.schema_text().map(Schema::restore).transpose()?;
        Ok(Self { schema, prune: rules.prune.clone() })
    }

    /// Approximate size in memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.schema.as_ref().map_or(0, Schema::bytes)
    }

    /// The admitted object; `None` if admission does not change it. If `validates` is false, the object does not have
    /// to satisfy the schema. An object may have up to `bytes_max` bytes.
    ///
    /// # Errors
    /// Why the object is not admitted.
    pub fn admit(&self, object: &Object, validates: bool, bytes_max: usize) -> Result<Option<Object>, Unfit> {
        let unreadable = |error: &dyn fmt::Display| Unfit::Unreadable(error.to_string());
        let mut document = Document::parse(object.as_str()).map_err(|error| unreadable(&error))?;
        let pruned = Paths::of(&self.prune);
        document.remove(&pruned);
        if let Some(schema) = &self.schema {
            let filled = schema.fill(&mut document, &pruned, bytes_max);
            filled.map_err(|overflow| match overflow {
                Overflow::Bytes => Unfit::TooLarge { limit: bytes_max },
                Overflow::Depth => Unfit::TooDeep,
            })?;
            if validates {
                schema.check(&document).map_err(Unfit::Invalid)?;
            }
        }
        Ok(document.is_changed().then(|| Object::from_valid(&document.print())))
    }
}
