//! Extracts the values of an object for indexes.

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::limits::{INDEX_ARRAY_MAX, INDEX_VALUE_BYTES_MAX};
use crate::pointer::{Cursor, Pointer, Value, find};

/// The values of an object in one index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Values<'j> {
    /// Sorted texts, each once.
    pub(super) texts: SmallVec<[Cow<'j, str>; 1]>,
    /// Number of values that are not indexed because they exceed a limit of the indexes.
    pub(super) omitted: usize,
}

/// The values at each of `pointers`.
pub(super) fn values<'j>(text: &'j str, pointers: &[Pointer]) -> SmallVec<[Values<'j>; 2]> {
    find(text, pointers).into_iter().map(|found| found.map(values_at).unwrap_or_default()).collect()
}

/// The values at the cursor, for one index: those of its elements if the cursor is at an array.
fn values_at(at: Cursor<'_>) -> Values<'_> {
    let mut values = Values::default();
    let elements = at.elements().filter_map(scalar).enumerate();
    elements.for_each(|(index, text)| values.add(text, index < INDEX_ARRAY_MAX));
    if let Some(text) = scalar(at) {
        values.add(text, true);
    }
    values.texts.sort_unstable();
    values.texts.dedup();
    values
}

/// The text of a string, a number or a boolean.
fn scalar(at: Cursor<'_>) -> Option<Cow<'_, str>> {
    match at.value()? {
        Value::Text(text) => Some(text),
        Value::Number(text) | Value::Boolean(text) => Some(Cow::Borrowed(text)),
        Value::Null | Value::Array | Value::Object => None,
    }
}

impl<'j> Values<'j> {
    fn add(&mut self, text: Cow<'j, str>, is_within: bool) {
        if is_within && text.len() <= INDEX_VALUE_BYTES_MAX {
            self.texts.push(text);
        } else {
            self.omitted += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointers(texts: &[&str]) -> Vec<Pointer> {
        texts.iter().map(|text| Pointer::parse(text, false).unwrap()).collect()
    }

    fn texts(object: &str, pointer: &str) -> Vec<String> {
        let found = values(object, &pointers(&[pointer]));
        assert_eq!(found[0].omitted, 0, "{object}");
        found[0].texts.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn strings_numbers_and_booleans_have_their_text() {
        for (value, expected) in [
            (r#""Berlin""#, vec!["Berlin"]),
            (r#""""#, vec![""]),
            (r#""a\"\u0062\\""#, vec!["a\"b\\"]),
            (r#""{,:]""#, vec!["{,:]"]),
            ("-1.50e3", vec!["-1.50e3"]),
            ("12345678901234567890123", vec!["12345678901234567890123"]),
            ("true", vec!["true"]),
            ("false", vec!["false"]),
            ("null", vec![]),
            ("{}", vec![]),
            (r#"{"a":1}"#, vec![]),
            ("[]", vec![]),
            (r#"[ "b" , 1, null, {"a":"x"}, ["y"], "a", "b", true ]"#, vec!["1", "a", "b", "true"]),
        ] {
            for (before, after) in [("", ""), (r#""x":[{"}":"]"}],"#, ""), ("", r#" , "z":"\\" "#)] {
                let object = format!("{{{before} \"v\" : {value}{after}}}");
                assert_eq!(texts(&object, "/v"), expected, "{object}");
            }
        }
        assert_eq!(texts(r#"{"w":1}"#, "/v"), Vec::<String>::new());
    }

    #[test]
    fn pointers_lead_through_members_and_elements() {
        let object = r#"{"a":{"b/c":[10,{"d":"x"}],"":"e"},"\u0061\\":1,"0":"m"}"#;
        for (pointer, expected) in [
            ("/a/b~1c/1/d", vec!["x"]),
            ("/a/b~1c/0", vec!["10"]),
            ("/a/b~1c/00", vec![]),
            ("/a/b~1c/2", vec![]),
            ("/a/b~1c", vec!["10"]),
            ("/a/", vec!["e"]),
            ("/a", vec![]),
            ("/a\\", vec!["1"]),
            ("/0", vec!["m"]),
            ("/0/x", vec![]),
        ] {
            assert_eq!(texts(object, pointer), expected, "{pointer}");
        }
        let found = values(object, &pointers(&["/a/b~1c/1/d", "/nowhere", "/a/b~1c", "/0", "/0"]));
        let found: Vec<usize> = found.iter().map(|values| values.texts.len()).collect();
        assert_eq!(found, [1, 0, 1, 1, 1]);
    }

    #[test]
    fn values_beyond_a_limit_are_omitted_and_counted() {
        let longest = "x".repeat(INDEX_VALUE_BYTES_MAX);
        let of = |value: String| {
            let object = format!(r#"{{"v":{value}}}"#);
            let found = values(&object, &pointers(&["/v"]));
            (found[0].texts.len(), found[0].omitted)
        };
        assert_eq!(of(format!("{longest:?}")), (1, 0));
        assert_eq!(of(format!("\"{longest}x\"")), (0, 1));
        assert_eq!(of(format!("[\"a\",\"{longest}x\",\"b\"]")), (2, 1));
        let many = |count: usize| format!("[null,{}]", vec!["0"; count].join(","));
        assert_eq!(of(many(INDEX_ARRAY_MAX)), (1, 0));
        assert_eq!(of(many(INDEX_ARRAY_MAX + 3)), (1, 3));
        let distinct = (0..=INDEX_ARRAY_MAX).map(|number| number.to_string()).collect::<Vec<_>>();
        assert_eq!(of(format!("[{}]", distinct.join(","))), (INDEX_ARRAY_MAX, 1));
    }

    #[test]
    fn a_text_that_is_not_json_ends_the_walk() {
        for text in
            ["", "{", "{\"v\"", "{\"v\":", "{\"v\":[", "{\"v\":[\"", "{\"v\":\"\\", "{\"x\":}", "]", "{]"]
        {
            let found = values(text, &pointers(&["/v", "/v/0/a"]));
            assert!(found.iter().all(|values| values.texts.is_empty()), "{text}");
        }
    }
}
