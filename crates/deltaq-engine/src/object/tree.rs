//! A JSON text as a tree, to compare it with another one.

use jiter::{JiterError, Peek};

use super::super::decimal::same_value;
use super::super::walk::Walk;

/// A JSON value. Two trees are equal if they have the same content, in whatever way it is written.
pub(super) struct Tree<'j> {
    /// The value as it is written.
    pub(super) text: &'j str,
    pub(super) value: Value<'j>,
}

#[derive(PartialEq)]
pub(super) enum Value<'j> {
    Null,
    Bool(bool),
    Number(Number<'j>),
    /// A string without its escapes.
    Text(String),
    Array(Vec<Tree<'j>>),
    /// The members in the order of their names, which are without escapes.
    Object(Vec<(String, Tree<'j>)>),
}

impl PartialEq for Tree<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

/// The text of a number, compared by its value.
pub(super) struct Number<'j>(&'j str);

impl PartialEq for Number<'_> {
    fn eq(&self, other: &Self) -> bool {
        same_value(self.0, other.0)
    }
}

pub(super) fn tree(text: &str) -> Result<Tree<'_>, JiterError> {
    let mut walk = Walk::new(text);
    let peek = walk.peek()?;
    subtree(text, &mut walk, peek)
}

fn subtree<'j>(text: &'j str, walk: &mut Walk<'j>, peek: Peek) -> Result<Tree<'j>, JiterError> {
    let start = walk.index();
    let value = match peek {
        Peek::Object => {
            let mut members = Vec::new();
            let mut next = walk.object()?.map(str::to_owned);
            while let Some(name) = next {
                let peek = walk.peek()?;
                members.push((name, subtree(text, walk, peek)?));
                next = walk.next_key()?.map(str::to_owned);
            }
            members.sort_by(|(a, _), (b, _)| a.cmp(b));
            Value::Object(members)
        }
        Peek::Array => {
            let mut elements = Vec::new();
            let mut next = walk.array()?;
            while let Some(peek) = next {
                elements.push(subtree(text, walk, peek)?);
                next = walk.array_step()?;
            }
            Value::Array(elements)
        }
        Peek::String => Value::Text(walk.string()?.to_owned()),
        Peek::True | Peek::False => Value::Bool(walk.boolean(peek)?),
        Peek::Null => {
            walk.null()?;
            Value::Null
        }
        number => {
            walk.number(number)?;
            Value::Number(Number(text.get(start..walk.index()).unwrap_or_default()))
        }
    };
    Ok(Tree { text: text.get(start..walk.index()).unwrap_or_default(), value })
}
