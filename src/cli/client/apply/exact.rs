//! Values of JSON whose numbers keep their text.
//!
//! `serde_json::Value` rounds a number to 64 bits, or refuses it. A schema may have any number. So the file, the plans of the
//! server and the calls are values of this type.
//!
//! Two values are equal if they mean the same: `4.90` is `4.9`, and the order of members does not matter.
//!
//! Invariant: a value is nested at most [`DEPTH_MAX`] deep, because its functions call themselves.

mod number;

use std::collections::{HashMap, HashSet};
use std::fmt;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

pub(super) use self::number::Number;
use super::fault::Fault;

/// Maximum depth of a value. A schema of a queue in a file is within it.
pub(super) const DEPTH_MAX: usize = 192;

/// A value of JSON.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::cli::client) enum Exact {
    #[default]
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Exact>),
    Object(Members),
}

/// The members of an object in their order.
///
/// Invariant: no two have the same name.
#[derive(Debug, Clone, Default)]
pub(in crate::cli::client) struct Members(Vec<(String, Exact)>);

impl Exact {
    /// Reads a text of JSON.
    pub(super) fn parse(text: &str) -> Result<Self, Fault> {
        let reader = Reader { whole: text };
        let whole: &RawValue = serde_json::from_str(text).map_err(|error| reader.fault(text, &error))?;
        reader.value(whole.get(), 0)
    }

    /// The text, if it is one.
    pub(super) fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A member, if this is an object that has it.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => members.get(name),
            _ => None,
        }
    }
}

impl Members {
    /// The value of a member.
    pub(in crate::cli::client) fn get(&self, name: &str) -> Option<&Exact> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Whether there is a member with this name.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Sets a member, in the place of the one that has its name.
    pub(in crate::cli::client) fn insert(&mut self, name: &str, value: Exact) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, before)) => *before = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    /// Takes a member out.
    pub(in crate::cli::client) fn remove(&mut self, name: &str) -> Option<Exact> {
        let index = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(index).1)
    }

    /// Whether there is no member.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The members in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Exact)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The members by name.
    pub(super) fn by_name(&self) -> HashMap<&str, &Exact> {
        self.iter().collect()
    }
}

impl PartialEq for Members {
    fn eq(&self, other: &Self) -> bool {
        let others = other.by_name();
        self.0.len() == other.0.len() && self.iter().all(|(name, value)| others.get(name) == Some(&value))
    }
}

/// The names must differ.
impl FromIterator<(String, Exact)> for Members {
    fn from_iter<I: IntoIterator<Item = (String, Exact)>>(members: I) -> Self {
        Self(members.into_iter().collect())
    }
}

impl IntoIterator for Members {
    type Item = (String, Exact);
    type IntoIter = std::vec::IntoIter<(String, Exact)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// Reads the parts of a text. Their place in it tells the line of a fault.
struct Reader<'t> {
    whole: &'t str,
}

/// The members of an object, with their values as text.
struct Texts<'t>(Vec<(String, &'t RawValue)>);

impl<'t> Reader<'t> {
    fn value(&self, part: &'t str, depth: usize) -> Result<Exact, Fault> {
        let fault = |error| self.fault(part, &error);
        if depth > DEPTH_MAX {
            return Err(Fault::at(self.line(part), format!("it is nested deeper than {DEPTH_MAX} levels")));
        }
        Ok(match part.as_bytes().first() {
            Some(b'{') => {
                let Texts(texts) = serde_json::from_str(part).map_err(fault)?;
                let member = |(name, text): (String, &'t RawValue)| {
                    let value = self.value(text.get(), depth + 1).map_err(|fault| fault.inside(&name))?;
                    Ok((name, value))
                };
                Exact::Object(texts.into_iter().map(member).collect::<Result<_, Fault>>()?)
            }
            Some(b'[') => {
                let texts: Vec<&'t RawValue> = serde_json::from_str(part).map_err(fault)?;
                let element = |(index, text): (usize, &&'t RawValue)| {
                    self.value(text.get(), depth + 1).map_err(|fault| fault.inside(&index.to_string()))
                };
                Exact::List(texts.iter().enumerate().map(element).collect::<Result<_, Fault>>()?)
            }
            Some(b'"') => Exact::Text(serde_json::from_str(part).map_err(fault)?),
            Some(b't') => Exact::Bool(true),
            Some(b'f') => Exact::Bool(false),
            Some(b'n') => Exact::Null,
            _ => Exact::Number(Number::of_json(part)),
        })
    }

    /// The line at which a part begins.
    fn line(&self, part: &str) -> usize {
        let offset = part.as_ptr().addr().saturating_sub(self.whole.as_ptr().addr());
        self.whole.get(..offset).unwrap_or_default().matches('\n').count() + 1
    }

    /// A fault with its line in the whole text.
    fn fault(&self, part: &str, error: &serde_json::Error) -> Fault {
        let why = error.to_string();
        let place = format!(" at line {} column {}", error.line(), error.column());
        let why = why.strip_suffix(&place).unwrap_or(&why);
        Fault::at(self.line(part) + error.line().saturating_sub(1), why)
    }
}

impl<'de> Deserialize<'de> for Texts<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Texts<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Texts<'de>, A::Error> {
                let (mut texts, mut names) = (Vec::new(), HashSet::new());
                while let Some(name) = members.next_key::<String>()? {
                    if !names.insert(name.clone()) {
                        return Err(A::Error::custom(format!("{name:?} is there twice")));
                    }
                    texts.push((name, members.next_value()?));
                }
                Ok(Texts(texts))
            }
        }

        deserializer.deserialize_map(Object)
    }
}

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        Self::parse(text.get()).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Exact::deserialize(deserializer)? {
            Exact::Object(members) => Ok(members),
            _ => Err(D::Error::custom("an object is expected")),
        }
    }
}

impl Serialize for Exact {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Number(number) => number.serialize(serializer),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(elements) => serializer.collect_seq(elements),
            Self::Object(members) => members.serialize(serializer),
        }
    }
}

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

/// Writes JSON on one line.
impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

/// The members of a value that is written in a test.
#[cfg(test)]
pub(super) fn members(value: &serde_json::Value) -> Members {
    match Exact::parse(&value.to_string()).unwrap() {
        Exact::Object(members) => members,
        other => panic!("{other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_written_as_it_was_read() {
        for text in [
            r#"{"b":[1e400,12345678901234567890123,4.90,-0.0],"a":{"c":null,"d":[true,false]},"e":"x \" y"}"#,
            "{}",
            "[]",
            "null",
        ] {
            assert_eq!(Exact::parse(text).unwrap().to_string(), text);
            assert_eq!(serde_json::from_str::<Exact>(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn values_are_compared_by_their_meaning() {
        let value = |text: &str| Exact::parse(text).unwrap();
        assert_eq!(value(r#"{"a":4.90,"b":[1,{"c":1e400}]}"#), value(r#"{"b":[1.0,{"c":10e399}],"a":4.9}"#));
        for (one, other) in [
            (r#"{"a":1}"#, r#"{"a":1,"b":null}"#),
            (r#"{"a":1,"b":2}"#, r#"{"a":1,"c":2}"#),
            ("[1,2]", "[2,1]"),
            ("1e400", "1e401"),
            ("1", "\"1\""),
            ("null", "false"),
        ] {
            assert_ne!(value(one), value(other));
        }
    }

    #[test]
    fn a_fault_has_its_line() {
        for (text, expected) in [
            ("", "line 1: EOF while parsing a value"),
            ("{\n\"a\": {\n\"b\": 1,\n\"b\": 2}}", "line 4: a: \"b\" is there twice"),
            ("{\"a\":\n[1,\n\"\\ud800\"]}", "line 3: a.1: unexpected end of hex escape"),
            ("{\"a\":\n1 2}", "line 2: expected `,` or `}`"),
        ] {
            assert_eq!(Exact::parse(text).unwrap_err().to_string(), expected, "{text}");
        }
        let deep = "[".repeat(1_000) + &"]".repeat(1_000);
        assert!(Exact::parse(&deep).unwrap_err().to_string().contains("deeper than 192 levels"));
    }

    #[test]
    fn members_keep_their_order() {
        let mut object = members(&serde_json::json!({"b": 1, "a": 2, "c": 3}));
        object.insert("a", Exact::Null);
        object.insert("d", Exact::Bool(true));
        assert_eq!(object.remove("b"), Exact::parse("1").ok());
        assert_eq!(object.remove("b"), None);
        assert_eq!(Exact::Object(object).to_string(), r#"{"a":null,"c":3,"d":true}"#);
    }
}
