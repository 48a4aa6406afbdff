//! A JSON text that is taken apart only where it is looked into.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::numbers;

/// A value. Texts are valid JSON without white space around them.
#[derive(Clone, Debug)]
pub(super) enum Node<'t> {
    Object(Vec<Member<'t>>),
    Array(Vec<Node<'t>>),
    /// Any value as its text, which may be an object or an array as well.
    Raw(&'t str),
}

/// A member of an object.
#[derive(Clone, Debug)]
pub(super) struct Member<'t> {
    /// The name as JSON: as it was written.
    pub(super) key: Cow<'t, str>,
    pub(super) name: Cow<'t, str>,
    pub(super) value: Node<'t>,
}

impl<'t> Member<'t> {
    /// A member with a name that is in no text.
    pub(super) fn named(name: String, value: Node<'t>) -> Self {
        let key = serde_json::Value::from(name.as_str()).to_string();
        Self { key: Cow::Owned(key), name: Cow::Owned(name), value }
    }
}

/// The value of a text, if that is JSON.
pub(super) fn root(text: &str) -> Option<Node<'_>> {
    valid(text).map(Node::Raw)
}

/// The text without white space around it, if it is JSON.
pub(super) fn valid(text: &str) -> Option<&str> {
    serde_json::from_str::<&RawValue>(text).ok().map(RawValue::get)
}

/// What a JSON text is, in the words of Go.
pub(super) fn kind(text: &str) -> &'static str {
    match text.bytes().next() {
        Some(b'{') => "object",
        Some(b'[') => "array",
        Some(b'"') => "string",
        Some(b't' | b'f') => "bool",
        Some(b'n') => "null",
        _ => "number",
    }
}

/// The members of the text of an object, each with its value as text. None for another text, or for a name that is no
/// Unicode.
pub(super) fn members(object: &str) -> Option<Vec<Member<'_>>> {
    serde_json::Deserializer::from_str(object).deserialize_map(Members).ok()
}

/// The elements of the text of an array.
pub(super) fn elements(array: &str) -> Option<Vec<&str>> {
    let raw: Vec<&RawValue> = serde_json::from_str(array).ok()?;
    Some(raw.into_iter().map(RawValue::get).collect())
}

/// A JSON string as text.
pub(super) fn string(text: &str) -> Option<Cow<'_, str>> {
    match text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(plain) if !plain.contains('\\') => Some(Cow::Borrowed(plain)),
        _ => serde_json::from_str(text).ok().map(Cow::Owned),
    }
}

struct Members;

impl<'t> Visitor<'t> for Members {
    type Value = Vec<Member<'t>>;

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("an object")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some((key, value)) = map.next_entry::<&'t RawValue, &'t RawValue>()? {
            let name = string(key.get()).ok_or_else(|| serde::de::Error::custom("a name is no Unicode"))?;
            members.push(Member { key: Cow::Borrowed(key.get()), name, value: Node::Raw(value.get()) });
        }
        Ok(members)
    }
}

impl Node<'_> {
    pub(super) fn is_object(&self) -> bool {
        match self {
            Node::Object(_) => true,
            Node::Array(_) => false,
            Node::Raw(text) => kind(text) == "object",
        }
    }

    /// Takes the text of an object or an array apart, by one level. Other values stay as they are.
    pub(super) fn open(&mut self) {
        let Node::Raw(text) = *self else { return };
        let opened = match kind(text) {
            "object" => members(text).map(Node::Object),
            "array" => elements(text).map(|values| Node::Array(values.into_iter().map(Node::Raw).collect())),
            _ => None,
        };
        if let Some(opened) = opened {
            *self = opened;
        }
    }

    /// How many levels are taken apart, and into how many values.
    pub(super) fn extent(&self) -> (usize, usize) {
        let below = |(depth, values): (usize, usize), value: &Node<'_>| {
            let (deeper, more) = value.extent();
            (depth.max(deeper + 1), values + more)
        };
        match self {
            Node::Raw(_) => (0, 1),
            Node::Object(members) => members.iter().map(|member| &member.value).fold((1, 1), below),
            Node::Array(values) => values.iter().fold((1, 1), below),
        }
    }

    /// The length of [`Node::text`].
    pub(super) fn bytes(&self) -> usize {
        match self {
            Node::Raw(text) => text.len(),
            Node::Object(members) => {
                let each = members.iter().map(|member| member.key.len() + 1 + member.value.bytes());
                each.sum::<usize>() + members.len().saturating_sub(1) + 2
            }
            Node::Array(values) => {
                values.iter().map(Node::bytes).sum::<usize>() + values.len().saturating_sub(1) + 2
            }
        }
    }

    /// The value as JSON.
    pub(super) fn text(&self) -> String {
        let mut text = String::with_capacity(self.bytes());
        self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) {
        match self {
            Node::Raw(raw) => text.push_str(raw),
            Node::Object(members) => {
                let mut separator = '{';
                for Member { key, value, .. } in members {
                    text.push(separator);
                    text.push_str(key);
                    text.push(':');
                    value.write(text);
                    separator = ',';
                }
                text.push_str(if members.is_empty() { "{}" } else { "}" });
            }
            Node::Array(values) => {
                let mut separator = '[';
                for value in values {
                    text.push(separator);
                    value.write(text);
                    separator = ',';
                }
                text.push_str(if values.is_empty() { "[]" } else { "]" });
            }
        }
    }
}

/// Whether two values have the same content: members in any order, numbers by value. None if that would have to look
/// deeper than `depth` levels, or take more than `steps`, which is what is left of them afterwards.
pub(super) fn is_equal(one: &Node<'_>, other: &Node<'_>, depth: usize, steps: &mut usize) -> Option<bool> {
    if let (Node::Raw(one), Node::Raw(other)) = (one, other) {
        if one == other {
            return Some(true);
        }
        if kind(one) != kind(other) {
            return Some(false);
        }
        match kind(one) {
            "object" | "array" => {}
            "string" => return Some(string(one).is_some_and(|one| string(other) == Some(one))),
            "number" => return Some(numbers::is_equal(one, other)),
            _ => return Some(false),
        }
    }
    let depth = depth.checked_sub(1)?;
    match (&*opened(one, steps)?, &*opened(other, steps)?) {
        (Node::Array(ones), Node::Array(others)) if ones.len() == others.len() => {
            all_equal(ones.iter().zip(others), depth, steps)
        }
        (Node::Object(ones), Node::Object(others)) if ones.len() == others.len() => {
            let (ones, others) = (sorted(ones), sorted(others));
            if ones.iter().zip(&others).any(|(one, other)| one.name != other.name) {
                return Some(false);
            }
            all_equal(ones.iter().zip(&others).map(|(one, other)| (&one.value, &other.value)), depth, steps)
        }
        _ => Some(false),
    }
}

/// The node taken apart by one level, for as many steps as that reads bytes or finds values.
fn opened<'n, 't>(node: &'n Node<'t>, steps: &mut usize) -> Option<Cow<'n, Node<'t>>> {
    let cost = match node {
        Node::Raw(text) => text.len(),
        Node::Object(members) => members.len(),
        Node::Array(values) => values.len(),
    };
    *steps = steps.checked_sub(cost)?;
    let Node::Raw(text) = node else { return Some(Cow::Borrowed(node)) };
    let mut opened = Node::Raw(text);
    opened.open();
    Some(Cow::Owned(opened))
}

fn sorted<'n, 't>(members: &'n [Member<'t>]) -> Vec<&'n Member<'t>> {
    let mut sorted: Vec<_> = members.iter().collect();
    sorted.sort_by(|one, other| one.name.cmp(&other.name));
    sorted
}

fn all_equal<'n, 't: 'n>(
    mut pairs: impl Iterator<Item = (&'n Node<'t>, &'n Node<'t>)>,
    depth: usize,
    steps: &mut usize,
) -> Option<bool> {
    let first_unequal = pairs.find_map(|(one, other)| match is_equal(one, other, depth, steps) {
        Some(true) => None,
        other => Some(other),
    });
    first_unequal.unwrap_or(Some(true))
}
