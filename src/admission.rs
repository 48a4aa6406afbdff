//! What a queue asks of objects before it takes them: members that are pruned, defaults that are
//! filled in, and a JSON Schema that they must satisfy.
//!
//! It runs before anything else is read of an object, so keys, sizes and comparisons see the result. It
//! is compiled once, with the settings that it is part of, and knows nothing but its own text: no file and
//! no network. What it does not touch of an object keeps its text.
//!
//! Invariant: what has been admitted is admitted again unchanged. Defaults are filled in to the end, into
//! filled values, too, and never where something is pruned.

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
use std::sync::Arc;

use self::defaults::Overflow;
use self::document::Document;
use self::limits::{
    DEFAULTS_BYTES_MAX, IN_PLACE_DEPTH_MAX, IN_PLACE_EVALUATIONS_MAX, PATTERNS_MAX, PRUNE_POINTERS_MAX,
    SCHEMA_BYTES_MAX, SUBSCHEMAS_MAX,
};
use self::prune::Paths;
pub use self::schema::{Schema, Violation};
use crate::engine::key::{KeySpec, Pointer};
use crate::engine::limits::JSON_DEPTH_MAX;
use crate::engine::object::{self, Object};

/// What is done to each object of a queue, and asked of it.
///
/// Invariant: there is a schema or something to prune.
#[derive(Clone, PartialEq, Eq)]
pub struct Admission {
    schema: Option<Arc<Schema>>,
    prune: Vec<Pointer>,
}

/// Why settings are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The schema is longer than [`SCHEMA_BYTES_MAX`].
    #[error("it has {bytes} bytes; at most {SCHEMA_BYTES_MAX} are allowed")]
    SchemaTooLong {
        /// Bytes of the schema, without blanks between its tokens.
        bytes: usize,
    },
    /// The text of the schema is no JSON object that could stand in a body.
    #[error("{0}")]
    SchemaText(#[from] object::SyntaxError),
    /// The schema is none.
    #[error("{}{detail}", place(.pointer))]
    Schema {
        /// Where in the schema; empty if that is not known.
        pointer: String,
        /// What is wrong there.
        detail: String,
    },
    /// The schema has more subschemas than [`SUBSCHEMAS_MAX`], or more references by names that stand for many.
    #[error("it has more than {SUBSCHEMAS_MAX} subschemas, or too many references to them")]
    TooManySubschemas,
    /// Subschemas apply others to the same value, and those do, more than [`IN_PLACE_DEPTH_MAX`] times.
    #[error(
        "it applies subschemas to the same value in a chain of more than {IN_PLACE_DEPTH_MAX} (by $ref, allOf, anyOf and the like)"
    )]
    ChainTooLong,
    /// A subschema applies itself to the same value.
    #[error(
        "a subschema applies itself to the same value (by $ref, allOf, anyOf and the like), which has no end"
    )]
    Circle,
    /// One value could be evaluated more than [`IN_PLACE_EVALUATIONS_MAX`] times.
    #[error(
        "it could evaluate one value more than {IN_PLACE_EVALUATIONS_MAX} times (subschemas in $ref, allOf, anyOf and the like, multiplied out)"
    )]
    TooManyEvaluations,
    /// The schema has more regular expressions than [`PATTERNS_MAX`].
    #[error("it has {patterns} patterns; at most {PATTERNS_MAX} are allowed")]
    TooManyPatterns {
        /// How many.
        patterns: usize,
    },
    /// The defaults of the schema bring others with them that have no end, or are too long.
    #[error(
        "its defaults, filled into one another and for each reference to them, have no end or more than {DEFAULTS_BYTES_MAX} bytes"
    )]
    Defaults,
    /// There are more pointers than [`PRUNE_POINTERS_MAX`].
    #[error("it has {pointers} pointers; at most {PRUNE_POINTERS_MAX} are allowed")]
    TooManyPointers {
        /// How many.
        pointers: usize,
    },
    /// A pointer can't be read.
    #[error("{0}")]
    Pointer(String),
    /// A pointer would remove what the key is read from.
    #[error("{pointer:?} would remove the key's {key:?}")]
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
            Self::TooManyPointers { .. } | Self::Pointer(_) | Self::PrunesKey { .. } => "prune",
            _ => "schema",
        }
    }

    /// The bound that was passed, if one was.
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

    /// Where in the schema it is wrong, if that is known.
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

/// Why an object is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// It does not satisfy the schema.
    #[error("it does not satisfy the queue's schema: {}", summary(.0))]
    Invalid(Vec<Violation>),
    /// The defaults that it would get are longer than an object may be.
    #[error("with the defaults of the queue's schema it has more than {limit} bytes")]
    TooLarge {
        /// Most bytes of an object.
        limit: usize,
    },
    /// The defaults that it would get are too deep.
    #[error("with the defaults of the queue's schema it is nested deeper than {JSON_DEPTH_MAX} levels")]
    TooDeep,
    /// It can't be read.
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

impl Admission {
    /// Pruning and then the schema; `None` if there is neither.
    ///
    /// # Errors
    /// What is wrong with the pointers, by themselves or for a queue with this `key`.
    pub fn new(
        schema: Option<Arc<Schema>>,
        prune: Vec<Pointer>,
        key: &KeySpec,
    ) -> Result<Option<Self>, Error> {
        if prune.len() > PRUNE_POINTERS_MAX {
            return Err(Error::TooManyPointers { pointers: prune.len() });
        }
        for pointer in &prune {
            let removed = key.pointers().iter().find(|key| key.tokens.starts_with(&pointer.tokens));
            if let Some(removed) = removed {
                let (pointer, key) = (pointer.text.to_string(), removed.text.to_string());
                return Err(Error::PrunesKey { pointer, key });
            }
        }
        let is_nothing = schema.is_none() && prune.is_empty();
        Ok((!is_nothing).then_some(Self { schema, prune }))
    }

    /// The schema, if there is one.
    #[must_use]
    pub fn schema(&self) -> Option<&Arc<Schema>> {
        self.schema.as_ref()
    }

    /// What is removed from objects.
    #[must_use]
    pub fn prune(&self) -> &[Pointer] {
        &self.prune
    }

    /// The object as it is to be stored; `None` if nothing of it changes. Without `validates` it need not
    /// satisfy the schema.
    ///
    /// # Errors
    /// Why it can't be stored; `bytes_max` is how long an object may be.
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

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.schema.as_ref().map(|schema| schema.as_str());
        let prune: Vec<_> = self.prune.iter().map(|pointer| &pointer.text).collect();
        f.debug_struct("Admission").field("schema", &schema).field("prune", &prune).finish()
    }
}
