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

/// The first limit for the compiled regular expressions of a schema, in bytes.
const PATTERN_BYTES_FIRST: usize = 16 << 10;
/// Approximate size of a compiled schema for each byte of its text, without its regular expressions.
const BYTES_OF_A_BYTE: usize = 16;

/// A compiled schema.
pub struct Schema {
    text: RawObject,
    validator: Validator,
    cost: Cost,
    defaults: Option<Defaults>,
    /// Approximate size of the compiled regular expressions in bytes.
    pattern_bytes: usize,
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

/// Compiles a schema whose regular expressions take at most `bytes_max` bytes each. Returns also what each takes at most: nothing reports
/// their size, so smaller limits are tried first.
fn compiled(schema: &Value, bytes_max: usize) -> Result<(Validator, usize), ValidationError<'static>> {
    let mut limit = PATTERN_BYTES_FIRST.min(bytes_max);
    loop {
        // A backtracking engine could run forever. This engine takes linear time.
        let patterns = PatternOptions::regex().size_limit(limit).dfa_size_limit(limit);
        let options = jsonschema::options()
            .with_retriever(Nothing)
            .should_validate_formats(true)
            .with_pattern_options(patterns);
        match options.build(schema) {
            Ok(validator) => return Ok((validator, 2 * limit)),
            Err(error) if limit == bytes_max || !is_about_a_pattern(&error) => return Err(error),
            Err(_) => limit = bytes_max.min(8 * limit),
        }
    }
}

fn is_about_a_pattern(error: &ValidationError<'_>) -> bool {
    matches!(error.kind(), ValidationErrorKind::Format { format } if format == "regex")
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
        let bytes_max = PATTERN_BYTES_MAX.min(PATTERNS_BYTES_MAX / cost.patterns.max(1));
        let (validator, pattern_bytes) =
            compiled(&document.to_value(), bytes_max).map_err(|error| Error::Schema {
                pointer: error.instance_path().as_str().to_owned(),
                detail: if is_about_a_pattern(&error) {
                    shortened(&format_args!(
                        "{} can't be matched in linear time, or has more than {bytes_max} bytes once compiled",
                        error.instance()
                    ))
                } else {
                    shortened(&error)
                },
            })?;
        let defaults = Defaults::of(&document).map_err(|_endless| Error::Defaults)?;
        let pattern_bytes = pattern_bytes * cost.patterns;
        Ok(Self { text: RawObject::from_valid(text), validator, cost, defaults, pattern_bytes })
    }

    /// Approximate size in memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.text.as_str().len() * BYTES_OF_A_BYTE + self.pattern_bytes
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
