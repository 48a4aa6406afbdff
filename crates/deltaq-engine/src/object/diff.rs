//! The difference between two objects: the operations of a JSON patch (RFC 6902), each with the old value.
//!
//! An array is replaced as a whole, unless its elements are identified by a pointer (see [`ArrayKeys`]).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::Object;
use super::tree::{Tree, Value, tree};
use crate::decimal::Decimal;
use crate::limits::ARRAY_KEYS_MAX;
use crate::pointer::Pointer;

/// The setting `diff.array_keys` of a queue: the pointer to each array whose elements are compared one by one, and the pointer
/// within an element to the string or number that identifies it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArrayKeys(Arc<[(Pointer, Pointer)]>);

impl ArrayKeys {
    /// Compiles the pointers.
    ///
    /// # Errors
    /// The text says which rule is broken.
    pub fn new(texts: &BTreeMap<String, String>) -> Result<Self, String> {
        if texts.len() > ARRAY_KEYS_MAX {
            return Err(format!(
                "a queue has at most {ARRAY_KEYS_MAX} arrays with keys, not {}",
                texts.len()
            ));
        }
        let pointers = |(array, identity): (&String, &String)| {
            Ok((Pointer::parse(array, false)?, Pointer::parse(identity, false)?))
        };
        Ok(Self(texts.iter().map(pointers).collect::<Result<_, String>>()?))
    }

    /// The texts of the pointers.
    #[must_use]
    pub fn texts(&self) -> BTreeMap<String, String> {
        let Self(all) = self;
        all.iter().map(|(array, identity)| (array.text.to_string(), identity.text.to_string())).collect()
    }

    /// The pointer to what identifies the elements of the array at `path`.
    fn identity_in(&self, path: &str) -> Option<&Pointer> {
        let Self(all) = self;
        all.iter().find(|(array, _)| &*array.text == path).map(|(_, identity)| identity)
    }
}

/// The size of an operation in JSON, without its path and its values.
const OPERATION_BYTES: usize = r#"{"op":"replace","path":"","value":,"old":},"#.len();

/// One operation of a difference. The texts of the values are those of the objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation<'j> {
    /// An RFC 6901 pointer to the value.
    pub path: String,
    /// The value that was removed or replaced.
    pub old: Option<&'j str>,
    /// The value that was added, or that replaces the old one.
    pub new: Option<&'j str>,
}

/// The limits of a difference.
#[derive(Clone, Copy, Debug)]
pub struct DiffLimits {
    /// Maximum number of operations.
    pub operations: usize,
    /// Maximum size of the operations, in bytes of JSON.
    pub bytes: usize,
}

/// A difference has more operations or more bytes than its limits allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

impl Object {
    /// The operations that turn this object into `newer` if they are applied in their order. Objects with the same content
    /// have no difference.
    ///
    /// # Errors
    /// [`TooLarge`] if the difference exceeds the limits.
    pub fn diff<'j>(
        &'j self,
        newer: &'j Self,
        array_keys: &ArrayKeys,
        limits: DiffLimits,
    ) -> Result<Vec<Operation<'j>>, TooLarge> {
        if self.as_str() == newer.as_str() {
            return Ok(Vec::new());
        }
        let mut diff = Diff { array_keys, left: limits, operations: Vec::new() };
        // An accepted object is valid JSON, so both have trees.
        if let (Ok(old), Ok(new)) = (tree(self.as_str()), tree(newer.as_str())) {
            diff.values(&mut String::new(), &old, &new)?;
        }
        Ok(diff.operations)
    }
}

struct Diff<'k, 'j> {
    array_keys: &'k ArrayKeys,
    /// What remains of the limits.
    left: DiffLimits,
    operations: Vec<Operation<'j>>,
}

impl<'j> Diff<'_, 'j> {
    fn push(&mut self, path: &str, old: Option<&'j str>, new: Option<&'j str>) -> Result<(), TooLarge> {
        let bytes = OPERATION_BYTES + json_bytes(path) + old.map_or(0, str::len) + new.map_or(0, str::len);
        self.left.operations = self.left.operations.checked_sub(1).ok_or(TooLarge)?;
        self.left.bytes = self.left.bytes.checked_sub(bytes).ok_or(TooLarge)?;
        self.operations.push(Operation { path: path.to_owned(), old, new });
        Ok(())
    }

    fn values(&mut self, path: &mut String, old: &Tree<'j>, new: &Tree<'j>) -> Result<(), TooLarge> {
        match (&old.value, &new.value) {
            (Value::Object(old), Value::Object(new)) => self.members(path, old, new),
            (Value::Array(known), Value::Array(newest)) => {
                if let Some(pairs) =
                    self.array_keys.identity_in(path).and_then(|identity| Pairs::of(known, newest, identity))
                {
                    self.elements(path, known, newest, &pairs)
                } else if known == newest {
                    Ok(())
                } else {
                    self.push(path, Some(old.text), Some(new.text))
                }
            }
            (of_old, of_new) if of_old == of_new => Ok(()),
            _ => self.push(path, Some(old.text), Some(new.text)),
        }
    }

    /// Compares the members of two objects. Both are in the order of their names.
    fn members(
        &mut self,
        path: &mut String,
        known: &[(String, Tree<'j>)],
        newest: &[(String, Tree<'j>)],
    ) -> Result<(), TooLarge> {
        let (mut known, mut newest) = (known.iter().peekable(), newest.iter().peekable());
        loop {
            let name = match (known.peek(), newest.peek()) {
                (Some((old, _)), Some((new, _))) => old.min(new),
                (Some((name, _)), None) | (None, Some((name, _))) => name,
                (None, None) => return Ok(()),
            };
            let old = known.next_if(|(old, _)| old == name).map(|(_, value)| value);
            let new = newest.next_if(|(new, _)| new == name).map(|(_, value)| value);
            let parent = path.len();
            push_token(path, name);
            match (old, new) {
                (Some(old), Some(new)) => self.values(path, old, new)?,
                (old, new) => self.push(path, old.map(|old| old.text), new.map(|new| new.text))?,
            }
            path.truncate(parent);
        }
    }

    /// Removes the old elements that are gone, from last to first, adds the new ones, from first to last, and compares
    /// the others, which then have the positions of the new array.
    fn elements(
        &mut self,
        path: &mut String,
        known: &[Tree<'j>],
        newest: &[Tree<'j>],
        pairs: &Pairs,
    ) -> Result<(), TooLarge> {
        let at = |index: usize| format!("{path}/{index}");
        for (index, old) in known.iter().enumerate().rev().filter(|(index, _)| !pairs.is_kept(*index)) {
            self.push(&at(index), Some(old.text), None)?;
        }
        for (index, (new, old)) in newest.iter().zip(&pairs.old_of_new).enumerate() {
            if old.is_none() {
                self.push(&at(index), None, Some(new.text))?;
            }
        }
        for (index, (new, old)) in newest.iter().zip(&pairs.old_of_new).enumerate() {
            if let Some(old) = old.and_then(|old| known.get(old)) {
                self.values(&mut at(index), old, new)?;
            }
        }
        Ok(())
    }
}

/// Which elements of two arrays are the same ones.
struct Pairs {
    /// The index of the old element, for each new element.
    old_of_new: Vec<Option<usize>>,
    /// Whether an old element is still there.
    kept: Vec<bool>,
}

impl Pairs {
    /// The pairs with the same identity. `None` if an element has no identity, if two have the same, or if the elements
    /// have another order: then the array is replaced.
    fn of(known: &[Tree<'_>], newest: &[Tree<'_>], identity: &Pointer) -> Option<Self> {
        let indexes = |elements: &[Tree<'_>]| {
            let mut indexes: HashMap<Identity, usize, RandomState> = HashMap::default();
            for (index, element) in elements.iter().enumerate() {
                if indexes.insert(identity_of(element, identity)?, index).is_some() {
                    return None;
                }
            }
            Some(indexes)
        };
        let of_known = indexes(known)?;
        indexes(newest)?;
        let old_of = |new| Some(of_known.get(&identity_of(new, identity)?).copied());
        let old_of_new: Vec<Option<usize>> = newest.iter().map(old_of).collect::<Option<_>>()?;
        if !old_of_new.iter().flatten().is_sorted() {
            return None;
        }
        let mut kept = vec![false; known.len()];
        for old in old_of_new.iter().flatten() {
            *kept.get_mut(*old)? = true;
        }
        Some(Self { old_of_new, kept })
    }

    fn is_kept(&self, old: usize) -> bool {
        self.kept.get(old).is_some_and(|kept| *kept)
    }
}

/// What identifies an element: a string, or the value of a number.
#[derive(PartialEq, Eq, Hash)]
enum Identity {
    Text(String),
    Number(Decimal),
}

fn identity_of(element: &Tree<'_>, identity: &Pointer) -> Option<Identity> {
    let mut value = element;
    for token in &identity.tokens {
        value = match &value.value {
            Value::Object(members) => {
                let index = members.binary_search_by(|(name, _)| name.as_str().cmp(token)).ok()?;
                &members.get(index)?.1
            }
            Value::Array(elements) => elements.get(token.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    match &value.value {
        Value::Text(text) => Some(Identity::Text(text.clone())),
        Value::Number(_) => Decimal::parse(value.text).map(Identity::Number),
        _ => None,
    }
}

/// The length of a text in JSON, without its quotes.
fn json_bytes(text: &str) -> usize {
    let bytes = |byte| match byte {
        b'"' | b'\\' => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(bytes).sum()
}

/// Appends a reference token to an RFC 6901 pointer.
fn push_token(path: &mut String, token: &str) {
    path.push('/');
    for c in token.chars() {
        match c {
            '~' => path.push_str("~0"),
            '/' => path.push_str("~1"),
            other => path.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    const LIMITS: DiffLimits = DiffLimits { operations: 1_000, bytes: 256 << 10 };

    /// The difference as a JSON patch.
    fn patch(old: &str, new: &str, array_keys: &ArrayKeys) -> Json {
        let (old, new) = (Object::from_valid(old), Object::from_valid(new));
        let operations = old.diff(&new, array_keys, LIMITS).expect("a small difference");
        let value =
            |text: Option<&str>| text.map(|text| serde_json::from_str::<Json>(text).expect("a value"));
        let operation = |Operation { path, old, new }: &Operation| match (value(*old), value(*new)) {
            (Some(old), None) => json!({"op": "remove", "path": path, "old": old}),
            (None, new) => json!({"op": "add", "path": path, "value": new}),
            (Some(old), new) => json!({"op": "replace", "path": path, "value": new, "old": old}),
        };
        operations.iter().map(operation).collect()
    }

    fn by_sku() -> ArrayKeys {
        let texts = [("/items".to_owned(), "/sku".to_owned())];
        ArrayKeys::new(&texts.into()).expect("pointers")
    }

    #[test]
    fn members_are_added_removed_and_replaced() {
        let old = r#"{"a": 1, "b": {"x": [1, 2], "y~/": null}, "same": 1.50, "gone": {}}"#;
        let new = r#"{"same": 15e-1, "b": {"y~/": "", "x": [2, 1]}, "\u0061": 1, "new": [1]}"#;
        let expected = json!([
            {"op": "replace", "path": "/b/x", "value": [2, 1], "old": [1, 2]},
            {"op": "replace", "path": "/b/y~0~1", "value": "", "old": null},
            {"op": "remove", "path": "/gone", "old": {}},
            {"op": "add", "path": "/new", "value": [1]},
        ]);
        assert_eq!(patch(old, new, &ArrayKeys::default()), expected);
        assert_eq!(
            patch(old, r#"{"gone":{},"same":1.5,"a":1.0,"b":{"y~/":null,"x":[1,2]}}"#, &ArrayKeys::default()),
            json!([])
        );
    }

    #[test]
    fn identified_elements_are_compared_one_by_one() {
        let items = |elements: &[&str]| format!("{{\"items\":[{}]}}", elements.join(","));
        let (a, b, c, d) = (r#"{"sku":"a","n":1}"#, r#"{"sku":"b"}"#, r#"{"sku":3}"#, r#"{"sku":"d"}"#);
        let other_a = r#"{"sku":"a","n":2}"#;
        let expected = json!([
            {"op": "remove", "path": "/items/2", "old": {"sku": 3}},
            {"op": "remove", "path": "/items/0", "old": {"sku": "b"}},
            {"op": "add", "path": "/items/0", "value": {"sku": "d"}},
            {"op": "replace", "path": "/items/1/n", "value": 2, "old": 1},
        ]);
        assert_eq!(patch(&items(&[b, a, c]), &items(&[d, other_a]), &by_sku()), expected);
        // In another order, with two of one identity, or with none, the array is replaced.
        for (old, new) in [(&[a, b][..], &[b, a][..]), (&[a], &[b, b]), (&[a, a], &[a]), (&[a], &["1"])] {
            let patch = patch(&items(old), &items(new), &by_sku());
            assert_eq!(
                (patch[0]["path"].as_str(), patch.as_array().map(Vec::len)),
                (Some("/items"), Some(1))
            );
        }
    }

    #[test]
    fn a_difference_has_a_limited_number_of_operations_and_bytes() {
        let old = Object::from_valid(r#"{"a":"1234","b":2}"#);
        let new = Object::from_valid(r#"{"a":"12345","b":3}"#);
        let diff = |operations, bytes| {
            old.diff(&new, &ArrayKeys::default(), DiffLimits { operations, bytes })
                .map(|operations| operations.len())
        };
        let bytes = patch(old.as_str(), new.as_str(), &ArrayKeys::default()).to_string().len() - 1;
        assert_eq!(diff(2, bytes), Ok(2));
        assert_eq!(diff(1, bytes), Err(TooLarge));
        assert_eq!(diff(2, bytes - 1), Err(TooLarge));
    }
}
