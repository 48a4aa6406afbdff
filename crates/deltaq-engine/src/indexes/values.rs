//! The values that indexes find in an object.
//!
//! An accepted object is valid JSON, so the walk checks nothing. It passes values that no pointer leads to byte by byte, and
//! ends when each pointer has its value. In a text that is not JSON it finds some values or none, but it always ends.

use std::borrow::Cow;

use jiter::Peek;
use memchr::memchr2;
use smallvec::SmallVec;

use crate::key::Pointer;
use crate::limits::{INDEX_ARRAY_MAX, INDEX_VALUE_BYTES_MAX};
use crate::walk::Walk;

/// The values of an object in one index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Values<'j> {
    /// Sorted texts, each once.
    pub(super) texts: SmallVec<[Cow<'j, str>; 1]>,
    /// Number of values that exceed a limit of indexes, and so are in no index.
    pub(super) omitted: usize,
}

/// The values at each of `pointers`.
pub(super) fn values<'j>(text: &'j str, pointers: &[Pointer]) -> SmallVec<[Values<'j>; 2]> {
    let all = pointers.iter().enumerate().fold(0, |all, (index, _)| all | 1 << index);
    let found = SmallVec::from_elem(Values::default(), pointers.len());
    let mut finder = Finder { pointers, found, missing: all };
    // The walk also ends with `None` when all values are found.
    let _ended = finder.value(&mut Cursor { text, at: 0 }, all, 0);
    finder.found
}

/// A set of pointers: a bit for each.
type Live = u32;

struct Finder<'p, 'j> {
    pointers: &'p [Pointer],
    found: SmallVec<[Values<'j>; 2]>,
    /// The pointers without a value so far.
    missing: Live,
}

impl<'j> Finder<'_, 'j> {
    /// Walks a value. The first `depth` tokens of the pointers in `live` match the path to the value.
    fn value(&mut self, cursor: &mut Cursor<'j>, live: Live, depth: usize) -> Option<()> {
        let first = cursor.next_token()?;
        let mut longer = live;
        for (index, (pointer, found)) in self.pointers.iter().zip(&mut self.found).enumerate() {
            if live & 1 << index != 0 && pointer.tokens.len() == depth {
                *found = values_at(*cursor);
                self.missing &= !(1 << index);
                longer &= !(1 << index);
            }
        }
        if self.missing == 0 {
            return None;
        }
        match first {
            b'{' if longer != 0 => self.members(cursor, longer, depth),
            b'[' if longer != 0 => self.elements(cursor, longer, depth),
            _ => cursor.skip(),
        }
    }

    fn members(&mut self, cursor: &mut Cursor<'j>, live: Live, depth: usize) -> Option<()> {
        cursor.at += 1;
        while cursor.next_token()? == b'"' {
            let name = unescaped(cursor.string()?)?;
            self.child(cursor, self.with_token(live, depth, &name), depth)?;
        }
        cursor.at += 1;
        Some(())
    }

    fn elements(&mut self, cursor: &mut Cursor<'j>, live: Live, depth: usize) -> Option<()> {
        cursor.at += 1;
        let mut index = 0_usize;
        while cursor.next_token()? != b']' {
            self.child(cursor, self.with_token(live, depth, &index.to_string()), depth)?;
            index += 1;
        }
        cursor.at += 1;
        Some(())
    }

    fn child(&mut self, cursor: &mut Cursor<'j>, live: Live, depth: usize) -> Option<()> {
        if live == 0 { cursor.skip() } else { self.value(cursor, live, depth + 1) }
    }

    /// The pointers of `live` whose token at `depth` is `token`.
    fn with_token(&self, live: Live, depth: usize, token: &str) -> Live {
        let has_token = |pointer: &Pointer| pointer.tokens.get(depth).is_some_and(|own| **own == *token);
        let bit = |index: usize, pointer: &Pointer| Live::from(has_token(pointer)) << index;
        self.pointers.iter().enumerate().fold(0, |all, (index, pointer)| all | bit(index, pointer)) & live
    }
}

/// The values of an index whose pointer leads to the value at the cursor.
fn values_at(mut cursor: Cursor<'_>) -> Values<'_> {
    let mut values = Values::default();
    if cursor.next_token() == Some(b'[') {
        cursor.at += 1;
        let mut scalars = 0;
        while cursor.next_token().is_some_and(|first| first != b']') {
            if let Some(scalar) = cursor.scalar() {
                scalars += 1;
                values.add(scalar, scalars <= INDEX_ARRAY_MAX);
            }
            if cursor.skip().is_none() {
                break;
            }
        }
    } else if let Some(scalar) = cursor.scalar() {
        values.add(scalar, true);
    }
    values.texts.sort_unstable();
    values.texts.dedup();
    values
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

/// A position in a JSON text.
#[derive(Clone, Copy)]
struct Cursor<'j> {
    text: &'j str,
    at: usize,
}

impl<'j> Cursor<'j> {
    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Moves to the next byte that is neither white space nor a separator, and returns the byte.
    fn next_token(&mut self) -> Option<u8> {
        loop {
            match self.byte()? {
                b' ' | b'\t' | b'\n' | b'\r' | b',' | b':' => self.at += 1,
                other => return Some(other),
            }
        }
    }

    /// Passes a string. Returns its text with the quotes.
    fn string(&mut self) -> Option<&'j str> {
        let start = self.at;
        self.at += 1;
        loop {
            let rest = self.text.as_bytes().get(self.at..)?;
            let found = memchr2(b'"', b'\\', rest)?;
            let is_end = rest.get(found) == Some(&b'"');
            self.at += found + if is_end { 1 } else { 2 };
            if is_end {
                return self.text.get(start..self.at);
            }
        }
    }

    /// Passes a value.
    fn skip(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.next_token()? {
                b'"' => self.string().map(drop)?,
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    self.at += 1;
                }
                _ => self.word().map(drop)?,
            }
            if depth == 0 {
                return Some(());
            }
        }
    }

    /// Passes a number, `true`, `false` or `null`. Returns its text.
    fn word(&mut self) -> Option<&'j str> {
        let start = self.at;
        let rest = self.text.as_bytes().get(start..)?;
        let ends = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b',' | b']' | b'}');
        self.at += rest.iter().position(ends).unwrap_or(rest.len());
        self.text.get(start..self.at).filter(|word| !word.is_empty())
    }

    /// The text of the string, number or boolean at the cursor.
    fn scalar(mut self) -> Option<Cow<'j, str>> {
        match self.next_token()? {
            b'"' => unescaped(self.string()?),
            b'{' | b'[' | b'n' => None,
            _ => self.word().map(Cow::Borrowed),
        }
    }
}

/// The text of a JSON string with its quotes.
fn unescaped(quoted: &str) -> Option<Cow<'_, str>> {
    let plain = quoted.get(1..quoted.len().checked_sub(1)?)?;
    if memchr::memchr(b'\\', plain.as_bytes()).is_none() {
        return Some(Cow::Borrowed(plain));
    }
    let mut walk = Walk::new(quoted);
    let is_string = walk.peek().ok()? == Peek::String;
    is_string.then(|| walk.string().ok().map(|text| Cow::Owned(text.to_owned()))).flatten()
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
