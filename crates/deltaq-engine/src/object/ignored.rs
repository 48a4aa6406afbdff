//! Members whose change alone is no change: the setting `ignore`.

use std::sync::Arc;

use super::tree::{Tree, Value, tree};
use super::{Change, Object};
use crate::limits::IGNORED_POINTERS_MAX;
use crate::pointer::Pointer;

/// The member that a Kubernetes API server sets when an object begins to be deleted. It always counts.
const DELETION_TIMESTAMP: [&str; 2] = ["metadata", "deletionTimestamp"];

/// The pointers to the members of objects whose change alone is no change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ignored(Arc<[Pointer]>);

impl Ignored {
    /// The members at these pointers.
    ///
    /// # Errors
    /// The text names the rule that is broken.
    pub fn new(texts: &[String]) -> Result<Self, String> {
        if texts.len() > IGNORED_POINTERS_MAX {
            return Err(format!(
                "it has {} pointers; at most {IGNORED_POINTERS_MAX} are allowed",
                texts.len()
            ));
        }
        let pointers = texts.iter().map(|text| Pointer::parse(text, false));
        Ok(Self(pointers.collect::<Result<Vec<_>, _>>()?.into()))
    }

    /// The pointers, as text.
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        self.0.iter().map(|pointer| pointer.text.to_string()).collect()
    }

    /// Whether every change counts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Object {
    /// How `next` differs from this object.
    #[must_use]
    pub fn change_to(&self, next: &Self, ignored: &Ignored) -> Change {
        if self.is_shared_with(next) || self.0 == next.0 {
            return Change::None;
        }
        let (Ok(mut before), Ok(mut after)) = (tree(&self.0), tree(&next.0)) else { return Change::Relevant };
        if before == after {
            return Change::None;
        }
        if ignored.is_empty() || at(&before, &DELETION_TIMESTAMP) != at(&after, &DELETION_TIMESTAMP) {
            return Change::Relevant;
        }
        for pointer in ignored.0.iter() {
            blank(&mut before, &pointer.tokens);
            blank(&mut after, &pointer.tokens);
        }
        if before == after { Change::Ignored } else { Change::Relevant }
    }
}

/// The value below a tree at these names of members.
fn at<'t, 'j>(tree: &'t Tree<'j>, names: &[&str]) -> Option<&'t Tree<'j>> {
    let Some((name, rest)) = names.split_first() else { return Some(tree) };
    let Value::Object(members) = &tree.value else { return None };
    let place = members.binary_search_by(|(other, _)| other.as_str().cmp(name)).ok()?;
    at(&members.get(place)?.1, rest)
}

/// Removes the member at a pointer. An element of an array becomes null, so that the others keep their places.
fn blank(tree: &mut Tree<'_>, tokens: &[Box<str>]) {
    let Some((token, rest)) = tokens.split_first() else { return };
    match &mut tree.value {
        Value::Object(members) => {
            let place = members.binary_search_by(|(name, _)| name.as_str().cmp(token));
            match place {
                Ok(place) if rest.is_empty() => drop(members.remove(place)),
                Ok(place) => {
                    if let Some((_, member)) = members.get_mut(place) {
                        blank(member, rest);
                    }
                }
                Err(_) => {}
            }
        }
        Value::Array(elements) => {
            let is_index = token.as_bytes() == b"0" || !token.starts_with('0');
            let element = token.parse().ok().filter(|_| is_index);
            if let Some(element) = element.and_then(|index: usize| elements.get_mut(index)) {
                if rest.is_empty() {
                    element.value = Value::Null;
                } else {
                    blank(element, rest);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(before: &str, after: &str, ignored: &[&str]) -> Change {
        let ignored: Vec<String> = ignored.iter().map(|text| (*text).to_owned()).collect();
        let ignored = Ignored::new(&ignored).expect("pointers");
        let [before, after] = [before, after].map(Object::from_valid);
        let change = before.change_to(&after, &ignored);
        assert_eq!(after.change_to(&before, &ignored), change, "the other way round");
        change
    }

    #[test]
    fn only_what_is_not_ignored_counts() {
        use Change::{Ignored, None, Relevant};
        for (before, after, ignored, expected) in [
            (r#"{"a":1}"#, r#"{"a":1}"#, &[][..], None),
            (r#"{"a":1,"b":2}"#, r#"{ "b":2.0, "a":1 }"#, &["/a"], None),
            (r#"{"a":1}"#, r#"{"a":2}"#, &[], Relevant),
            (r#"{"a":1}"#, r#"{"a":2}"#, &["/a"], Ignored),
            (r#"{"a":1}"#, r#"{"a":2}"#, &["/b"], Relevant),
            (r#"{"a":1}"#, r#"{"a":{"b":[1]}}"#, &["/a"], Ignored),
            (r#"{"x":1}"#, r#"{"x":1,"a":null}"#, &["/a"], Ignored),
            (r#"{"x":1,"a":1}"#, r#"{"x":2,"a":2}"#, &["/a"], Relevant),
            (r#"{"m":{"v":1,"n":"x"}}"#, r#"{"m":{"v":2,"n":"x"}}"#, &["/m/v"], Ignored),
            (r#"{"m":{"v":1,"n":"x"}}"#, r#"{"m":{"v":2,"n":"y"}}"#, &["/m/v"], Relevant),
            // An absent parent is not an empty one.
            (r#"{"m":{"v":1}}"#, "{}", &["/m/v"], Relevant),
            (r#"{"m":{"v":1}}"#, r#"{"m":{}}"#, &["/m/v"], Ignored),
            (r#"{"m":{"v":1}}"#, r#"{"m":7}"#, &["/m/v"], Relevant),
            (r#"{"l":[{"t":1},{"t":2}]}"#, r#"{"l":[{"t":1},{"t":3}]}"#, &["/l/1/t"], Ignored),
            (r#"{"l":[1,2]}"#, r#"{"l":[5,2]}"#, &["/l/0"], Ignored),
            (r#"{"l":[1,2]}"#, r#"{"l":[1]}"#, &["/l/1"], Relevant),
            (r#"{"l":[1,2]}"#, r#"{"l":[1,3]}"#, &["/l/01"], Relevant),
            (r#"{"a~/b":1}"#, r#"{"a~/b":2}"#, &["/a~0~1b"], Ignored),
            (r#"{"é":1}"#, r#"{"\u00e9":2}"#, &["/é"], Ignored),
            (r#"{"a":1,"b":1}"#, r#"{"a":2,"b":2}"#, &["/a", "/b", "/a"], Ignored),
        ] {
            assert_eq!(change(before, after, ignored), expected, "{before} {after} {ignored:?}");
        }
    }

    #[test]
    fn the_beginning_of_a_deletion_always_counts() {
        let object = |deletion: &str| {
            format!(r#"{{"metadata":{{"resourceVersion":"{}"{deletion}}}}}"#, deletion.len())
        };
        let deleting = object(r#","deletionTimestamp":"2026-01-02T03:04:05Z""#);
        for ignored in ["/metadata", "/metadata/deletionTimestamp"] {
            let ignored = [ignored, "/metadata/resourceVersion"];
            assert_eq!(change(&object(""), &deleting, &ignored), Change::Relevant, "{ignored:?}");
        }
        assert_eq!(change(&object(""), &object(r#","labels":{}"#), &["/metadata"]), Change::Ignored);
    }

    #[test]
    fn a_wrong_pointer_is_refused() {
        let refused = |texts: Vec<String>| Ignored::new(&texts).expect_err("it is wrong");
        assert!(refused(vec!["status".to_owned()]).contains("must begin with '/'"));
        assert!(refused(vec!["/x".to_owned(); 101]).contains("at most 100"));
    }
}
