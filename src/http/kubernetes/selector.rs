//! The label and field selectors of Kubernetes: which texts are selectors, and which objects they select.
//!
//! Texts are accepted and refused as apimachinery does (`labels.Parse`, `fields.ParseSelector`), with its messages, so
//! that a client sees the same answer as from a cluster. Nothing here knows queues or HTTP.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use self::lexer::{Token, tokens};

mod lexer;
mod names;

/// The operators between a key and its values, as messages list them.
const BINARY_OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

/// A `labelSelector`: requirements on labels, all of which have to hold.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Above(i64),
    Below(i64),
}

impl LabelSelector {
    /// Reads a selector; the error is the message for the client. An empty text selects everything.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { tokens: tokens(text).into_iter(), next: None };
        let mut requirements = Vec::new();
        loop {
            match parser.peek() {
                Token::Word(_) | Token::In | Token::NotIn | Token::Not => {
                    let requirement = parser
                        .requirement()
                        .map_err(|error| format!("unable to parse requirement: {error}"))?;
                    requirements.push(requirement);
                    match parser.take() {
                        Token::End => return Ok(Self { requirements }),
                        Token::Comma if parser.peek().begins_requirement() => {}
                        Token::Comma => {
                            let found = parser.peek();
                            return Err(format!("found '{found}', expected: identifier after ','"));
                        }
                        other => return Err(format!("found '{other}', expected: ',' or 'end of string'")),
                    }
                }
                Token::End => return Ok(Self { requirements }),
                other => return Err(format!("found '{other}', expected: !, identifier, or 'end of string'")),
            }
        }
    }

    /// Whether every object is selected.
    pub(super) fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether an object with these labels is selected.
    pub(super) fn matches(&self, labels: &[(String, String)]) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = labels.iter().find(|(key, _)| *key == requirement.key).map(|(_, value)| value);
            match &requirement.test {
                Test::Exists => value.is_some(),
                Test::Absent => value.is_none(),
                Test::In(values) => value.is_some_and(|value| values.contains(value)),
                Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                Test::Above(bound) => number(value).is_some_and(|value| value > *bound),
                Test::Below(bound) => number(value).is_some_and(|value| value < *bound),
            }
        })
    }
}

fn number(value: Option<&String>) -> Option<i64> {
    value?.parse().ok()
}

/// The recursive descent of apimachinery's parser, with one token of lookahead.
struct Parser<T> {
    tokens: T,
    next: Option<Token>,
}

impl<T: Iterator<Item = Token>> Parser<T> {
    fn peek(&mut self) -> &Token {
        self.next.get_or_insert_with(|| self.tokens.next().unwrap_or(Token::End))
    }

    fn take(&mut self) -> Token {
        self.next.take().or_else(|| self.tokens.next()).unwrap_or(Token::End)
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let mut first = self.take();
        let is_negated = first == Token::Not;
        if is_negated {
            first = self.take();
        }
        let Some(key) = first.word() else {
            return Err(format!("found '{first}', expected: identifier"));
        };
        names::check_key(&key)?;
        if is_negated {
            return Ok(Requirement { key, test: Test::Absent });
        }
        if matches!(self.peek(), Token::End | Token::Comma) {
            return Ok(Requirement { key, test: Test::Exists });
        }
        let test = match self.take() {
            Token::In => Test::In(self.values(&key)?),
            Token::NotIn => Test::NotIn(self.values(&key)?),
            Token::Equals | Token::DoubleEquals => Test::In(BTreeSet::from([self.checked_value(&key)?])),
            Token::NotEquals => Test::NotIn(BTreeSet::from([self.checked_value(&key)?])),
            Token::Greater => Test::Above(self.bound(&key)?),
            Token::Less => Test::Below(self.bound(&key)?),
            other => return Err(format!("found '{other}', expected: {BINARY_OPERATORS}")),
        };
        Ok(Requirement { key, test })
    }

    /// What follows `in` and `notin`. Between commas and in `()` there may be nothing: the empty value.
    fn values(&mut self, key: &str) -> Result<BTreeSet<String>, String> {
        match self.take() {
            Token::Open => {}
            other => return Err(format!("found '{other}' expected: '('")),
        }
        let values = match self.peek() {
            Token::Word(_) | Token::In | Token::NotIn | Token::Comma => self.list()?,
            Token::Close => BTreeSet::from([String::new()]),
            other => return Err(format!("found '{other}', expected: ',', ')' or identifier")),
        };
        // The list ends before its parenthesis.
        self.take();
        let errors: Vec<_> = values
            .iter()
            .enumerate()
            .filter_map(|(index, value)| names::check_value(key, index, value).err())
            .collect();
        names::joined(&errors)?;
        Ok(values)
    }

    fn list(&mut self) -> Result<BTreeSet<String>, String> {
        let mut values = BTreeSet::new();
        loop {
            let token = self.take();
            if token == Token::Comma {
                if values.is_empty() || *self.peek() == Token::Comma {
                    values.insert(String::new());
                }
                if *self.peek() == Token::Close {
                    values.insert(String::new());
                    return Ok(values);
                }
            } else if let Some(value) = token.word() {
                values.insert(value);
                match self.peek() {
                    Token::Comma => {}
                    Token::Close => return Ok(values),
                    other => return Err(format!("found '{other}', expected: ',' or ')'")),
                }
            } else {
                return Err(format!("found '{token}', expected: ',', or identifier"));
            }
        }
    }

    /// The value after `=`, `!=`, `<` and `>`; there may be none, which is the empty value.
    fn value(&mut self) -> Result<String, String> {
        if matches!(self.peek(), Token::End | Token::Comma) {
            return Ok(String::new());
        }
        let token = self.take();
        token.word().ok_or_else(|| format!("found '{token}', expected: identifier"))
    }

    fn checked_value(&mut self, key: &str) -> Result<String, String> {
        let value = self.value()?;
        names::check_value(key, 0, &value)?;
        Ok(value)
    }

    fn bound(&mut self, key: &str) -> Result<i64, String> {
        let value = self.value()?;
        let bound = value.parse().map_err(|_| {
            format!(
                "values[0]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
            )
        });
        let errors = [bound.as_ref().err().cloned(), names::check_value(key, 0, &value).err()];
        names::joined(&errors.into_iter().flatten().collect::<Vec<_>>())?;
        bound
    }
}

/// Why a label is none that a selector can name.
pub(super) fn check_label(key: &str, value: &str) -> Result<(), String> {
    names::check_key(key)?;
    names::check_value(key, 0, value)
}

/// The labels of an object: the members of `metadata.labels` that are texts. Anything of another form has none.
///
/// Reads no further than the metadata, and builds nothing else.
pub(super) fn labels_of(object: &str) -> Vec<(String, String)> {
    let Some(labels) = member(object, "metadata").and_then(|metadata| member(metadata, "labels")) else {
        return Vec::new();
    };
    serde_json::Deserializer::from_str(labels).deserialize_map(Labels).unwrap_or_default()
}

/// The text of a member of a JSON object, or none if the text is no object or has no such member.
fn member<'t>(object: &'t str, name: &str) -> Option<&'t str> {
    let mut found = None;
    // The visitor stops at the member with an error, to leave the rest unread.
    let _ = serde_json::Deserializer::from_str(object).deserialize_map(Member { name, found: &mut found });
    found
}

struct Member<'a, 't> {
    name: &'a str,
    found: &'a mut Option<&'t str>,
}

impl<'t> Visitor<'t> for Member<'_, 't> {
    type Value = ();

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("an object")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(is_it) = map.next_key_seed(Is(self.name))? {
            if is_it {
                *self.found = Some(map.next_value::<&'t RawValue>()?.get());
                return Err(A::Error::custom("found"));
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

/// Whether a text is this one, without a copy of it.
struct Is<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for Is<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Is<'_> {
    type Value = bool;

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("a text")
    }

    fn visit_str<E>(self, text: &str) -> Result<bool, E> {
        Ok(text == self.0)
    }
}

struct Labels;

impl<'t> Visitor<'t> for Labels {
    type Value = Vec<(String, String)>;

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("an object")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut labels = Vec::new();
        while let Some((key, value)) = map.next_entry::<String, &'t RawValue>()? {
            if let Ok(value) = serde_json::from_str(value.get()) {
                labels.push((key, value));
            }
        }
        Ok(labels)
    }
}

/// A `fieldSelector`: requirements on the name and the namespace, all of which have to hold.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FieldSelector {
    requirements: Vec<FieldRequirement>,
}

#[derive(Debug, PartialEq, Eq)]
struct FieldRequirement {
    field: Field,
    is_equal: bool,
    value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    Namespace,
}

impl FieldSelector {
    /// Reads a selector; the error is the message for the client. An empty text selects everything. Only objects with
    /// namespaces have the field `metadata.namespace`.
    pub(super) fn parse(text: &str, is_namespaced: bool) -> Result<Self, String> {
        let mut terms = terms(text);
        // The order in which apimachinery looks at them decides which error is reported.
        terms.sort_unstable();
        let mut read = Vec::new();
        for term in terms.into_iter().filter(|term| !term.is_empty()) {
            let (field, is_equal, value) = split(term)
                .ok_or_else(|| format!("invalid selector: '{text}'; can't understand '{term}'"))?;
            read.push((field, is_equal, unescaped(value)?));
        }
        let known = |(name, is_equal, value)| match name {
            "metadata.name" => Ok(FieldRequirement { field: Field::Name, is_equal, value }),
            "metadata.namespace" if is_namespaced => {
                Ok(FieldRequirement { field: Field::Namespace, is_equal, value })
            }
            _ => Err(format!("field label not supported: {name}")),
        };
        Ok(Self { requirements: read.into_iter().map(known).collect::<Result<_, _>>()? })
    }

    /// Whether every object is selected.
    pub(super) fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether the object with this name is selected; the namespace of an object without one is empty.
    pub(super) fn matches(&self, namespace: &str, name: &str) -> bool {
        self.requirements.iter().all(|requirement| {
            let field = match requirement.field {
                Field::Name => name,
                Field::Namespace => namespace,
            };
            (field == requirement.value) == requirement.is_equal
        })
    }

    /// The only name that can be selected, if a requirement gives it. Other requirements may exclude this one as well.
    pub(super) fn only_name(&self) -> Option<&str> {
        self.requirements
            .iter()
            .find(|requirement| requirement.is_equal && requirement.field == Field::Name)
            .map(|requirement| requirement.value.as_str())
    }
}

/// The terms between commas; an escaped comma belongs to its term.
fn terms(text: &str) -> Vec<&str> {
    let mut is_escaped = false;
    text.split(|symbol| {
        let is_end = symbol == ',' && !is_escaped;
        is_escaped = symbol == '\\' && !is_escaped;
        is_end
    })
    .collect()
}

/// The field, whether it has to be equal, and the value as it is written.
fn split(term: &str) -> Option<(&str, bool, &str)> {
    for (at, _) in term.char_indices() {
        let (field, rest) = term.split_at(at);
        if let Some(value) = rest.strip_prefix("!=") {
            return Some((field, false, value));
        }
        if let Some(value) = rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')) {
            return Some((field, true, value));
        }
    }
    None
}

fn unescaped(value: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(value.len());
    let mut symbols = value.chars();
    while let Some(symbol) = symbols.next() {
        match symbol {
            '\\' => match symbols.next() {
                Some(escaped @ ('\\' | ',' | '=')) => plain.push(escaped),
                other => {
                    let other = other.map(String::from).unwrap_or_default();
                    return Err(format!("invalid field selector: invalid escape sequence: \\{other}"));
                }
            },
            // Apimachinery tells the number of the character.
            ',' | '=' => {
                let number = u32::from(symbol);
                return Err(format!("invalid field selector: unescaped character in value: {number}"));
            }
            _ => plain.push(symbol),
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests;
