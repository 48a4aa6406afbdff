//! A JSON Schema: validation of objects, and defaults.

use std::fmt::{self, Write};

use deltaq_engine::object;
use deltaq_types::RawObject;
use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, Retrieve, Uri, ValidationError, Validator};
use serde_json::Value;

use super::Error;
use super::cost::Cost;
use super::defaults::{Defaults, Overflow};
use super::document::{self, Document};
use super::limits::{
    FAULTS_MAX, PATTERN_BYTES_MAX, PATTERNS_BYTES_MAX, SCHEMA_BYTES_MAX, VIOLATION_CHARS_MAX, VIOLATIONS_MAX,
    VIOLATIONS_OBJECT_BYTES_MAX,
};
use super::prune::Paths;

/// A compiled schema.
pub struct Schema {
    text: RawObject,
    validator: Validator,
    cost: Cost,
    defaults: Option<Defaults>,
}

/// A violation: a location where an object does not satisfy a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The location in the object, as an RFC 6901 pointer.
    pub pointer: String,
    /// The violated keyword of the schema, as an RFC 6901 pointer.
    pub schema_pointer: String,
    /// What is wrong, in at most [`VIOLATION_CHARS_MAX`] characters.
    pub detail: String,
}

impl Schema {
    /// Compiles a schema. `$schema` names its dialect; the default is 2020-12. A schema can refer only to itself.
    ///
    /// # Errors
    /// What is wrong with the schema.
    pub fn compile(text: &str) -> Result<Self, Error> {
        Self::build(text, Cost::of)
    }

    /// Compiles a schema that was accepted earlier, without checking its cost, because a later version may compute
    /// the cost differently.
    ///
    /// # Errors
    /// What is wrong with the schema.
    pub fn restore(text: &str) -> Result<Self, Error> {
        Self::build(text, |document| Ok(Cost::of(document).unwrap_or_default()))
    }

    fn build(text: &str, cost: impl FnOnce(&Document<'_>) -> Result<Cost, Error>) -> Result<Self, Error> {
        object::check(text)?;
        let text = document::compact(text);
        if text.len() > SCHEMA_BYTES_MAX {
            return Err(Error::SchemaTooLong { bytes: text.len() });
        }
        let wrong = |detail: String| Error::Schema { pointer: String::new(), detail };
        let document = Document::parse(&text).map_err(|error| wrong(error.to_string()))?;
        let cost = cost(&document)?;
        let pattern_bytes = PATTERN_BYTES_MAX.min(PATTERNS_BYTES_MAX / cost.patterns.max(1));
        let patterns = PatternOptions::regex().size_limit(pattern_bytes).dfa_size_limit(pattern_bytes);
        let validator = jsonschema::options()
            .with_retriever(Nothing)
            .should_validate_formats(true)
            // A backtracking engine could run forever. This engine takes linear time.
            .with_pattern_options(patterns)
            .build(&document.to_value())
            .map_err(|error| Error::Schema {
                pointer: error.instance_path().as_str().to_owned(),
                detail: match error.kind() {
                    ValidationErrorKind::Format { format } if format == "regex" => {
                        shortened(&format_args!(
                            "{} can't be matched in linear time, or has more than {pattern_bytes} bytes once compiled",
                            error.instance()
                        ))
                    }
                    _ => shortened(&error),
                },
            })?;
        let defaults = Defaults::of(&document).map_err(|_endless| Error::Defaults)?;
        Ok(Self { text: RawObject::from_valid(text), validator, cost, defaults })
    }

    /// The text, without white space between its tokens.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.text.as_str()
    }

    /// The text as it is stored.
    #[must_use]
    pub fn into_text(self) -> RawObject {
        self.text
    }

    /// Fills in defaults that are not pruned, at most `bytes_max` bytes.
    pub(super) fn fill<'d>(
        &'d self,
        document: &mut Document<'d>,
        pruned: &Paths<'_>,
        bytes_max: usize,
    ) -> Result<(), Overflow> {
        self.defaults.as_ref().map_or(Ok(()), |defaults| defaults.fill(document, pruned, bytes_max))
    }

    /// Checks an object.
    ///
    /// # Errors
    /// The first [`VIOLATIONS_MAX`] violations; for a large object, only the first one.
    pub(super) fn check(&self, document: &Document<'_>) -> Result<(), Vec<Violation>> {
        let value = document.to_value();
        if self.validator.is_valid(&value) {
            return Ok(());
        }
        let is_simple = self.cost.faults(document) <= FAULTS_MAX;
        if !is_simple && self.cost.has_alternatives() {
            return Err(vec![Violation::anywhere()]);
        }
        if is_simple && document.print().len() <= VIOLATIONS_OBJECT_BYTES_MAX {
            let errors = self.validator.iter_errors(&value).take(VIOLATIONS_MAX);
            return Err(errors.map(|error| Violation::of(&error)).collect());
        }
        self.validator.validate(&value).map_err(|error| vec![Violation::of(&error)])
    }
}

/// Resolves references to other documents, all of which fail.
struct Nothing;

impl Retrieve for Nothing {
    fn retrieve(&self, _: &Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err("a schema can refer to itself only".into())
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Violation {
    /// A violation without a known location.
    fn anywhere() -> Self {
        let detail =
            "it does not hold; with alternatives that are nested so deep, the places are not looked for";
        Self { pointer: String::new(), schema_pointer: String::new(), detail: detail.to_owned() }
    }

    fn of(error: &ValidationError<'_>) -> Self {
        Self {
            pointer: error.instance_path().as_str().to_owned(),
            schema_pointer: error.schema_path().as_str().to_owned(),
            detail: shortened(error),
        }
    }
}

/// Truncates a message, which may contain a whole object.
fn shortened(message: &impl fmt::Display) -> String {
    struct Head {
        text: String,
        room: usize,
    }

    impl Write for Head {
        fn write_str(&mut self, more: &str) -> fmt::Result {
            let taken: String = more.chars().take(self.room).collect();
            self.room -= taken.chars().count();
            self.text.push_str(&taken);
            // Returning an error stops the formatting of the rest.
            if taken.len() < more.len() { Err(fmt::Error) } else { Ok(()) }
        }
    }

    let mut head = Head { text: String::new(), room: VIOLATION_CHARS_MAX - 1 };
    if write!(head, "{message}").is_err() {
        head.text.push('…');
    }
    head.text
}
