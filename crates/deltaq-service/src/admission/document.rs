//! A JSON text in which parts can be changed while everything else keeps its text.
//!
//! This is not a full document model: numbers and strings are not parsed, and unchanged parts are printed as they
//! were. Changed containers are printed without whitespace.

use std::borrow::Cow;

use deltaq_engine::walk::Walk;
use jiter::{JiterError, Peek};
use serde_json::{Number, Value};

/// A value in a JSON text.
#[derive(Debug)]
pub(super) struct Document<'d> {
    /// The text of the value, if it is unchanged.
    text: &'d str,
    pub(super) kind: Kind<'d>,
    /// Whether the value, or a part of it, differs from the text.
    changed: bool,
}

/// The kind of a value.
#[derive(Debug)]
pub(super) enum Kind<'d> {
    /// Neither an array nor an object.
    Scalar,
    Array(Vec<Document<'d>>),
    Object(Vec<Member<'d>>),
}

/// A member of an object.
#[derive(Debug)]
pub(super) struct Member<'d> {
    pub(super) name: Cow<'d, str>,
    /// The name as the text writes it, with quotes.
    pub(super) quoted: &'d str,
    pub(super) value: Document<'d>,
}

impl<'d> Document<'d> {
    /// Parses a valid JSON text.
    pub(super) fn parse(text: &'d str) -> Result<Self, JiterError> {
        let mut walk = Walk::new(text);
        let peek = walk.peek()?;
        Self::value(text, &mut walk, peek)
    }

    fn value(text: &'d str, walk: &mut Walk<'d>, peek: Peek) -> Result<Self, JiterError> {
        let start = walk.index();
        let kind = match peek {
            Peek::Object => Kind::Object(members(text, walk)?),
            Peek::Array => {
                let mut elements = Vec::new();
                let mut next = walk.array()?;
                while let Some(peek) = next {
                    elements.push(Self::value(text, walk, peek)?);
                    next = walk.array_step()?;
                }
                Kind::Array(elements)
            }
            scalar => {
                walk.scalar(scalar)?;
                Kind::Scalar
            }
        };
        let text = text.get(start..walk.index()).unwrap_or_default();
        Ok(Self { text, kind, changed: false })
    }

    /// The original text.
    pub(super) fn text(&self) -> &'d str {
        self.text
    }

    /// Whether the value differs from its text.
    pub(super) fn is_changed(&self) -> bool {
        self.changed
    }

    /// Records that the value, or a part of it, differs from its text.
    pub(super) fn set_changed(&mut self) {
        self.changed = true;
    }

    /// The members of an object.
    pub(super) fn members(&self) -> Option<&[Member<'d>]> {
        match &self.kind {
            Kind::Object(members) => Some(members),
            _ => None,
        }
    }

    /// The elements of an array.
    pub(super) fn elements(&self) -> Option<&[Self]> {
        match &self.kind {
            Kind::Array(elements) => Some(elements),
            _ => None,
        }
    }

    /// The value of a member, if this is an object with that member.
    pub(super) fn member(&self, name: &str) -> Option<&Self> {
        let found = self.members()?.iter().find(|member| member.name == name);
        found.map(|member| &member.value)
    }

    /// The value of a string.
    pub(super) fn string(&self) -> Option<Cow<'d, str>> {
        self.text.starts_with('"').then(|| unquote(self.text))
    }

    /// The text of the changed value.
    pub(super) fn print(&self) -> String {
        let mut out = String::with_capacity(self.text.len());
        self.print_to(&mut out);
        out
    }

    fn print_to(&self, out: &mut String) {
        match &self.kind {
            Kind::Array(elements) if self.changed => {
                out.push('[');
                for (index, element) in elements.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    element.print_to(out);
                }
                out.push(']');
            }
            Kind::Object(members) if self.changed => {
                out.push('{');
                for (index, member) in members.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    out.push_str(member.quoted);
                    out.push(':');
                    member.value.print_to(out);
                }
                out.push('}');
            }
            _ => out.push_str(self.text),
        }
    }

    /// Converts the value for a validator, which computes with numbers. 64-bit integers are exact. All other numbers
    /// become the nearest f64, and numbers out of range become the largest or smallest f64.
    pub(super) fn to_value(&self) -> Value {
        match &self.kind {
            Kind::Array(elements) => Value::Array(elements.iter().map(Self::to_value).collect()),
            Kind::Object(members) => {
                let member = |member: &Member<'_>| (member.name.to_string(), member.value.to_value());
                Value::Object(members.iter().map(member).collect())
            }
            Kind::Scalar => match self.text {
                "null" => Value::Null,
                "true" => Value::Bool(true),
                "false" => Value::Bool(false),
                text if text.starts_with('"') => Value::String(unquote(text).into_owned()),
                number => Value::Number(nearest(number)),
            },
        }
    }
}

fn members<'d>(text: &'d str, walk: &mut Walk<'d>) -> Result<Vec<Member<'d>>, JiterError> {
    let mut members = Vec::new();
    let mut start = walk.index();
    let mut has_more = walk.object()?.is_some();
    while has_more {
        // Only whitespace, a brace or comma, and a colon surround the name.
        let around = text.get(start..walk.index()).unwrap_or_default();
        let ends = around.find('"').zip(around.rfind('"'));
        let quoted = ends.and_then(|(first, last)| around.get(first..=last)).unwrap_or_default();
        let peek = walk.peek()?;
        let value = Document::value(text, walk, peek)?;
        members.push(Member { name: unquote(quoted), quoted, value });
        start = walk.index();
        has_more = walk.next_key()?.is_some();
    }
    Ok(members)
}

/// The value of a valid JSON string.
fn unquote(quoted: &str) -> Cow<'_, str> {
    let inside = quoted.trim_matches('"');
    if quoted.contains('\\') {
        Cow::Owned(serde_json::from_str(quoted).unwrap_or_default())
    } else {
        Cow::Borrowed(inside)
    }
}

fn nearest(text: &str) -> Number {
    if let Ok(whole) = text.parse::<i64>() {
        return whole.into();
    }
    if let Ok(whole) = text.parse::<u64>() {
        return whole.into();
    }
    let number: f64 = text.parse().unwrap_or_default();
    Number::from_f64(number.clamp(f64::MIN, f64::MAX)).unwrap_or_else(|| 0.into())
}

/// The text without whitespace between its tokens.
pub(super) fn compact(text: &str) -> String {
    let mut compact = String::with_capacity(text.len());
    let (mut in_string, mut escaped) = (false, false);
    for c in text.chars() {
        if in_string || !c.is_ascii_whitespace() {
            compact.push(c);
        }
        in_string = in_string != (c == '"' && !escaped);
        escaped = in_string && c == '\\' && !escaped;
    }
    compact
}
