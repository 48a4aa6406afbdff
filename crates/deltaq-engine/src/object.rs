//! Objects: the raw JSON that a producer sent, scanned once for validity and key, then shared.
//!
//! An object is not a document model: a tree is built only to compare two objects with different texts. Numbers are
//! never converted, so a number that is too long for an f64 keeps all its digits, and its text is stored as it was sent.

mod diff;
mod ignored;
mod names;
mod tree;

use std::fmt;
use std::sync::Arc;

use jiter::{JiterError, JiterErrorType, JsonErrorType, Peek};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::value::RawValue;

pub use self::diff::{ArrayKeys, DiffLimits, Operation, TooLarge};
pub use self::ignored::Ignored;
use self::names::{Names, quote_behind, shared};
use super::key::{Key, KeyError, KeySpec};
use super::limits::{ENVELOPE_BYTES_MAX, JSON_DEPTH_MAX};
use super::walk::Walk;

#[cfg(test)]
mod tests;

/// One JSON object, exactly as the producer sent it. Clones share the text.
#[derive(Clone, PartialEq, Eq)]
pub struct Object(Arc<str>);

/// How an object differs from the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// They have the same content: the same members in any order, with numbers compared by their value.
    None,
    /// Only ignored members differ.
    Ignored,
    /// They differ.
    Relevant,
}

impl Object {
    /// Wraps a text that is known to be one valid JSON object, such as a result of [`scan`].
    #[must_use]
    pub fn from_valid(text: &str) -> Self {
        Self(text.into())
    }

    /// An object without members. It is used for a deletion by key if the queue has no object for the key.
    #[must_use]
    pub fn empty() -> Self {
        Self::from_valid("{}")
    }

    /// Like [`from_valid`](Self::from_valid), but without copying the text.
    #[must_use]
    pub fn from_shared(text: Arc<str>) -> Self {
        Self(text)
    }

    /// The JSON text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The JSON text, shared.
    #[must_use]
    pub fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }

    /// Length of the JSON text in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// Whether both objects share one text, as clones do.
    pub(super) fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The address of the text.
    pub(super) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Object {
    /// Writes the text as it is. `serde_json` recognises raw text by the name of this struct, which is also how its
    /// own `RawValue` is written. Using `RawValue` here would parse every object once more.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const TOKEN: &str = "$serde_json::private::RawValue";
        let mut raw = serializer.serialize_struct(TOKEN, 1)?;
        raw.serialize_field(TOKEN, self.as_str())?;
        raw.end()
    }
}

impl<'de> Deserialize<'de> for Object {
    /// Takes the text unchanged. Only its beginning is checked, because the text was validated when it was accepted. A
    /// stored record may have a reference to the object instead, which is a string; its reader replaces it.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(deserializer)?.get();
        if text.starts_with(['{', '"']) {
            Ok(Self::from_valid(text))
        } else {
            Err(de::Error::custom("the object is not a JSON object"))
        }
    }
}

/// An object, and its key or why it has none.
#[derive(Debug)]
pub struct Scanned {
    /// The object's text.
    pub object: Object,
    /// The key at the queue's pointers.
    pub key: Result<Key, KeyError>,
}

impl Scanned {
    fn of(object: &str, spec: &KeySpec) -> Self {
        Self { object: Object::from_valid(object), key: spec.read(object) }
    }
}

/// Why a text is refused as JSON. Lines and columns start at 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason} at line {line}, column {column}")]
pub struct SyntaxError {
    /// What is wrong.
    pub reason: String,
    /// Line of the text, from 1.
    pub line: usize,
    /// Column in bytes, from 1.
    pub column: usize,
    /// Whether the text is JSON, but not an object.
    pub not_an_object: bool,
    /// Index of the object in its array, from 0.
    pub index: Option<usize>,
    /// The limit that was exceeded, if any.
    pub limit: Option<usize>,
}

/// Scans one JSON object that fills all of `text`.
///
/// # Errors
/// [`SyntaxError`] with the position: wrong grammar, more than 128 levels, a duplicate member, or a value that is not an
/// object.
pub fn scan(text: &str, spec: &KeySpec) -> Result<Scanned, SyntaxError> {
    let mut reader = Reader::new(text);
    let object = reader.object()?;
    reader.finish()?;
    Ok(Scanned::of(object, spec))
}

/// Checks one JSON object that fills all of `text`.
///
/// # Errors
/// Same as [`scan`].
pub fn check(text: &str) -> Result<(), SyntaxError> {
    Reader::new(text).only_object()
}

/// Checks a document that contains an object as a member and may therefore be nested one level deeper.
///
/// # Errors
/// Same as [`scan`].
pub fn check_envelope(text: &str) -> Result<(), SyntaxError> {
    Reader::of_envelopes(text).only_object()
}

/// The objects of a text that is one JSON object or an array of objects, read one at a time, so that a caller can
/// stop at the first limit that is exceeded. Null is an empty array, because encoders such as Go's write an unset
/// list as null.
pub struct Objects<'j> {
    reader: Reader<'j>,
    /// Whether the text is an array or null.
    is_list: bool,
    /// The first character of the next value; `None` if the text has ended.
    next: Option<Peek>,
    /// Number of objects that have been read.
    read: usize,
}

impl<'j> Objects<'j> {
    /// Begins to read `text`.
    ///
    /// # Errors
    /// [`SyntaxError`] if no JSON value begins there.
    pub fn new(text: &'j str) -> Result<Self, SyntaxError> {
        Self::begin(Reader::new(text))
    }

    /// Like [`new`](Self::new), for documents that contain an object as a member and may therefore be nested one
    /// level deeper.
    ///
    /// # Errors
    /// Same as [`new`](Self::new).
    pub fn of_envelopes(text: &'j str) -> Result<Self, SyntaxError> {
        Self::begin(Reader::of_envelopes(text))
    }

    fn begin(mut reader: Reader<'j>) -> Result<Self, SyntaxError> {
        let first = reader.peek()?;
        let next = match first {
            Peek::Array => reader.walk.array().map_err(|error| reader.syntax_error(&error))?,
            Peek::Null => {
                reader.value(first, 1)?;
                None
            }
            _ => Some(first),
        };
        let is_list = matches!(first, Peek::Array | Peek::Null);
        let mut objects = Self { reader, is_list, next, read: 0 };
        if objects.next.is_none() {
            objects.reader.finish()?;
        }
        Ok(objects)
    }

    /// Whether the text is an array or null.
    #[must_use]
    pub fn is_list(&self) -> bool {
        self.is_list
    }

    /// Whether another value follows. The text before it is valid.
    #[must_use]
    pub fn has_next(&self) -> bool {
        self.next.is_some()
    }

    /// The next object and its key by `spec`; `None` at the end of the text.
    ///
    /// # Errors
    /// Same as [`scan`].
    pub fn next_object(&mut self, spec: &KeySpec) -> Result<Option<Scanned>, SyntaxError> {
        self.step(|reader, _| reader.object().map(|object| Scanned::of(object, spec)))
    }

    /// The text of the next value, of any type; `None` at the end of the text.
    ///
    /// # Errors
    /// Same as [`scan`].
    pub fn next_text(&mut self) -> Result<Option<&'j str>, SyntaxError> {
        self.step(|reader, peek| {
            let start = reader.walk.index();
            reader.value(peek, 1)?;
            Ok(reader.text.get(start..reader.walk.index()).unwrap_or_default())
        })
    }

    fn step<T>(
        &mut self,
        read: impl FnOnce(&mut Reader<'j>, Peek) -> Result<T, SyntaxError>,
    ) -> Result<Option<T>, SyntaxError> {
        let Some(peek) = self.next else { return Ok(None) };
        let index = self.is_list.then_some(self.read);
        let value = read(&mut self.reader, peek).map_err(|error| SyntaxError { index, ..error })?;
        self.read += 1;
        self.next = if self.is_list {
            self.reader.walk.array_step().map_err(|error| self.reader.syntax_error(&error))?
        } else {
            None
        };
        if self.next.is_none() {
            self.reader.finish()?;
        }
        Ok(Some(value))
    }
}

struct Reader<'j> {
    text: &'j str,
    walk: Walk<'j>,
    /// Maximum number of open containers.
    depth_max: usize,
    /// Whether the text is a document that has an object as its member `object`.
    is_envelope: bool,
}

impl<'j> Reader<'j> {
    fn new(text: &'j str) -> Self {
        Self { text, walk: Walk::new(text), depth_max: JSON_DEPTH_MAX, is_envelope: false }
    }

    fn of_envelopes(text: &'j str) -> Self {
        Self { depth_max: JSON_DEPTH_MAX + 1, is_envelope: true, ..Self::new(text) }
    }

    /// Refuses a member outside the object that is longer than any field may be, because an error message would
    /// repeat it.
    fn check_beside(&self, start: usize) -> Result<(), SyntaxError> {
        let limit = ENVELOPE_BYTES_MAX;
        if self.walk.index() - start <= limit {
            return Ok(());
        }
        let reason = format!("a member beside the object has more than {limit} bytes");
        Err(SyntaxError { limit: Some(limit), ..self.error_at(start, reason) })
    }

    fn peek(&mut self) -> Result<Peek, SyntaxError> {
        self.walk.peek().map_err(|error| self.syntax_error(&error))
    }

    fn finish(&mut self) -> Result<(), SyntaxError> {
        self.walk.finish().map_err(|error| self.syntax_error(&error))
    }

    fn syntax_error(&self, error: &JiterError) -> SyntaxError {
        let reason = reason(&error.error_type);
        self.error_at(error.index, reason)
    }

    fn error_at(&self, index: usize, reason: String) -> SyntaxError {
        let position = self.walk.position(index);
        let (line, column) = (position.line, position.column.max(1));
        SyntaxError { reason, line, column, not_an_object: false, index: None, limit: None }
    }

    /// Walks an object that makes up the rest of the text.
    fn only_object(&mut self) -> Result<(), SyntaxError> {
        self.object()?;
        self.finish()
    }

    /// Walks one object. Returns its text.
    fn object(&mut self) -> Result<&'j str, SyntaxError> {
        let peek = self.peek()?;
        let start = self.walk.index();
        self.value(peek, 1)?;
        if peek != Peek::Object {
            let mut error = self.error_at(start, format!("expected a JSON object, found {}", kind_of(peek)));
            error.not_an_object = true;
            return Err(error);
        }
        Ok(self.text.get(start..self.walk.index()).unwrap_or_default())
    }

    /// Walks one value. `depth` is the number of open containers, including this value if it is one.
    fn value(&mut self, peek: Peek, depth: usize) -> Result<(), SyntaxError> {
        match peek {
            Peek::Object | Peek::Array if depth > self.depth_max => {
                let reason = format!("nested deeper than {JSON_DEPTH_MAX} levels");
                let error = self.error_at(self.walk.index(), reason);
                return Err(SyntaxError { limit: Some(JSON_DEPTH_MAX), ..error });
            }
            Peek::Object => return self.members(depth),
            Peek::Array => return self.elements(depth),
            Peek::String => self.walk.string().map(drop),
            scalar => self.walk.scalar(scalar),
        }
        .map_err(|error| self.syntax_error(&error))
    }

    fn members(&mut self, depth: usize) -> Result<(), SyntaxError> {
        let mut seen = Names::default();
        let mut start = self.walk.index();
        let mut next = self.walk.object();
        loop {
            let is_beside;
            match next {
                Ok(Some(name)) => {
                    is_beside = self.is_envelope && depth == 1 && name != "object";
                    let is_too_long = is_beside && name.len() > ENVELOPE_BYTES_MAX;
                    let name = shared(self.text, name);
                    if is_too_long {
                        self.check_beside(start)?;
                    }
                    if let Err(reason) = seen.insert(self.text, start, name) {
                        return Err(self.error_at(quote_behind(self.text, start), reason));
                    }
                }
                Ok(None) => return Ok(()),
                Err(error) => return Err(self.syntax_error(&error)),
            }
            let peek = self.peek()?;
            let value_start = self.walk.index();
            self.value(peek, depth + 1)?;
            if is_beside {
                self.check_beside(value_start)?;
            }
            start = self.walk.index();
            next = self.walk.next_key();
        }
    }

    fn elements(&mut self, depth: usize) -> Result<(), SyntaxError> {
        let mut next = self.walk.array();
        while let Some(peek) = next.map_err(|error| self.syntax_error(&error))? {
            self.value(peek, depth + 1)?;
            next = self.walk.array_step();
        }
        Ok(())
    }
}

fn kind_of(peek: Peek) -> &'static str {
    match peek {
        Peek::Object => "an object",
        Peek::Array => "an array",
        Peek::String => "a string",
        Peek::True | Peek::False => "a boolean",
        Peek::Null => "null",
        _ => "a number",
    }
}

/// Why the parser refuses a text, in the wording of the API.
fn reason(error: &JiterErrorType) -> String {
    let JiterErrorType::JsonError(json) = error else { return error.to_string() };
    let reason = match json {
        JsonErrorType::KeyMustBeAString => "the name of a member must be a string in double quotes",
        JsonErrorType::EofWhileParsingList => "the text ends inside a list",
        JsonErrorType::EofWhileParsingObject => "the text ends inside an object",
        JsonErrorType::EofWhileParsingString => "the text ends inside a string",
        JsonErrorType::EofWhileParsingValue => "the text ends where a value is expected",
        json => return json.to_string(),
    };
    reason.to_owned()
}
