//! JSON pointers, and the values at them: the parts of a key, a version, the values of indexes.
//!
//! An accepted object is valid JSON, so the walk checks nothing. It skips values that no pointer selects byte by
//! byte, and ends when each pointer has its value. In a text that is not JSON it may find some values or none, but it
//! always terminates.

use std::borrow::Cow;
use std::sync::Arc;

use jiter::Peek;
use memchr::memchr2;
use smallvec::SmallVec;

use super::limits;
use super::walk::Walk;

/// Maximum number of bytes that JSON uses for one byte of text, as in `\u0000`.
const ESCAPE_BYTES_MAX: usize = 6;

/// A pointer into an object, for example to a part of a queue's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// The RFC 6901 text, for messages and for the queue document.
    pub text: Arc<str>,
    /// The unescaped reference tokens of `text`.
    pub tokens: Vec<Box<str>>,
    /// Whether an absent or empty value is skipped.
    pub optional: bool,
}

impl Pointer {
    /// Parses an RFC 6901 pointer below the document's root.
    ///
    /// # Errors
    /// The text says what is wrong with `text`.
    pub fn parse(text: &str, optional: bool) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix('/') else {
            return Err(format!("{text:?} is not a JSON pointer: it must begin with '/'"));
        };
        let tokens = rest.split('/').map(unescape).collect::<Option<Vec<_>>>();
        let Some(tokens) = tokens else {
            return Err(format!("{text:?} is not a JSON pointer: '~' must be followed by 0 or 1"));
        };
        if tokens.len() > limits::JSON_DEPTH_MAX {
            return Err(format!("{text:?} is deeper than {} levels", limits::JSON_DEPTH_MAX));
        }
        Ok(Self { text: text.into(), tokens, optional })
    }

    /// The text of the value at the pointer in a valid JSON text.
    #[must_use]
    pub fn text_in<'j>(&self, text: &'j str) -> Option<&'j str> {
        let mut cursor = find(text, std::slice::from_ref(self)).into_iter().next()??;
        cursor.next_token()?;
        let start = cursor.at;
        cursor.skip()?;
        text.get(start..cursor.at)
    }
}

fn unescape(token: &str) -> Option<Box<str>> {
    let mut plain = String::with_capacity(token.len());
    let mut chars = token.chars();
    while let Some(c) = chars.next() {
        match c {
            '~' => match chars.next() {
                Some('0') => plain.push('~'),
                Some('1') => plain.push('/'),
                _ => return None,
            },
            other => plain.push(other),
        }
    }
    Some(plain.into())
}

/// A value in a JSON text.
#[derive(Debug)]
pub(super) enum Value<'j> {
    Null,
    Boolean(&'j str),
    /// A number as it is written.
    Number(&'j str),
    /// A string without its quotes and escapes.
    Text(Cow<'j, str>),
    Array,
    Object,
}

impl Value<'_> {
    /// The kind of the value, with an article: `an array`.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::Text(_) => "a string",
            Self::Array => "an array",
            Self::Object => "an object",
        }
    }
}

/// The value at each of `pointers`.
pub(super) fn find<'j>(text: &'j str, pointers: &[Pointer]) -> SmallVec<[Option<Cursor<'j>>; 2]> {
    let all = pointers.iter().enumerate().fold(0, |all, (index, _)| all | 1 << index);
    let found = SmallVec::from_elem(None, pointers.len());
    let longest = pointers.iter().flat_map(|pointer| &pointer.tokens).map(|token| token.len()).max();
    let name_bytes_max = 2 + ESCAPE_BYTES_MAX * longest.unwrap_or_default();
    let mut finder = Finder { pointers, found, missing: all, name_bytes_max };
    // The walk also ends with `None` when all values have been found.
    let _ended = finder.value(&mut Cursor { text, at: 0 }, all, 0);
    finder.found
}

/// A set of pointers, one bit for each pointer.
type Live = u32;

struct Finder<'p, 'j> {
    pointers: &'p [Pointer],
    found: SmallVec<[Option<Cursor<'j>>; 2]>,
    /// The pointers without a value so far.
    missing: Live,
    /// Maximum length of a name that can match a token, as written, with quotes. A longer name is not read, because
    /// its unescaped copy would take as much memory again.
    name_bytes_max: usize,
}

impl<'j> Finder<'_, 'j> {
    /// Walks a value. The first `depth` tokens of the pointers in `live` match the path to the value.
    fn value(&mut self, cursor: &mut Cursor<'j>, live: Live, depth: usize) -> Option<()> {
        let first = cursor.next_token()?;
        let mut longer = live;
        for (index, (pointer, found)) in self.pointers.iter().zip(&mut self.found).enumerate() {
            if live & 1 << index != 0 && pointer.tokens.len() == depth {
                *found = Some(*cursor);
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
            let name = cursor.string()?;
            let may_match = name.len() <= self.name_bytes_max;
            let live = if may_match { self.with_token(live, depth, &unescaped(name)?) } else { 0 };
            self.child(cursor, live, depth)?;
        }
        cursor.at += 1;
        Some(())
    }

    fn elements(&mut self, cursor: &mut Cursor<'j>, live: Live, depth: usize) -> Option<()> {
        cursor.at += 1;
        let mut wanted = self.indexes(live, depth);
        let mut index = 0_usize;
        while cursor.next_token()? != b']' {
            let live = wanted.pop_if(|(next, _)| *next == index).map_or(0, |(_, live)| live);
            self.child(cursor, live, depth)?;
            index += 1;
        }
        cursor.at += 1;
        Some(())
    }

    fn child(&mut self, cursor: &mut Cursor<'j>, live: Live, depth: usize) -> Option<()> {
        if live == 0 { cursor.skip() } else { self.value(cursor, live, depth + 1) }
    }

    /// The elements of an array that pointers of `live` lead to, with these pointers, the first element last.
    fn indexes(&self, live: Live, depth: usize) -> Vec<(usize, Live)> {
        let mut wanted: Vec<(usize, Live)> = Vec::new();
        for (bit, pointer) in self.pointers.iter().enumerate().filter(|(bit, _)| live & 1 << bit != 0) {
            let index = pointer.tokens.get(depth).and_then(|token| index_of(token));
            wanted.extend(index.map(|index| (index, 1 << bit)));
        }
        wanted.sort_unstable_by(|one, other| other.cmp(one));
        wanted.dedup_by(|one, kept| {
            let is_same = one.0 == kept.0;
            kept.1 |= if is_same { one.1 } else { 0 };
            is_same
        });
        wanted
    }

    /// The pointers of `live` whose token at `depth` is `token`.
    fn with_token(&self, live: Live, depth: usize, token: &str) -> Live {
        let has_token = |pointer: &Pointer| pointer.tokens.get(depth).is_some_and(|own| **own == *token);
        let bit = |index: usize, pointer: &Pointer| Live::from(has_token(pointer)) << index;
        self.pointers.iter().enumerate().fold(0, |all, (index, pointer)| all | bit(index, pointer)) & live
    }
}

/// The index of an array's element that a token names.
fn index_of(token: &str) -> Option<usize> {
    let has_sign_or_zero = token.starts_with('+') || token.starts_with('0') && token.len() > 1;
    token.parse().ok().filter(|_| !has_sign_or_zero)
}

/// A position in a JSON text.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'j> {
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

    /// Skips a string. Returns its text with the quotes.
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

    /// Skips a value.
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

    /// Skips a number, `true`, `false` or `null`. Returns its text.
    fn word(&mut self) -> Option<&'j str> {
        let start = self.at;
        let rest = self.text.as_bytes().get(start..)?;
        let ends = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b',' | b']' | b'}');
        self.at += rest.iter().position(ends).unwrap_or(rest.len());
        self.text.get(start..self.at).filter(|word| !word.is_empty())
    }

    /// The value at the cursor; `None` if the text ends there.
    pub(super) fn value(mut self) -> Option<Value<'j>> {
        Some(match self.next_token()? {
            b'"' => Value::Text(unescaped(self.string()?)?),
            b'{' => Value::Object,
            b'[' => Value::Array,
            b'n' => Value::Null,
            b't' | b'f' => Value::Boolean(self.word()?),
            _ => Value::Number(self.word()?),
        })
    }

    /// The elements of the array at the cursor; none if no array is there.
    pub(super) fn elements(mut self) -> impl Iterator<Item = Self> {
        let mut is_array = self.next_token() == Some(b'[');
        self.at += usize::from(is_array);
        std::iter::from_fn(move || {
            is_array = is_array && self.next_token().is_some_and(|first| first != b']');
            let element = is_array.then_some(self)?;
            is_array = self.skip().is_some();
            Some(element)
        })
    }
}

/// Unescapes a JSON string that is given with its quotes.
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

    #[test]
    fn pointers_unescape_their_tokens() {
        let pointer = Pointer::parse("/a~1b/~0c/", false).expect("valid");
        let tokens: Vec<&str> = pointer.tokens.iter().map(AsRef::as_ref).collect();
        assert_eq!(tokens, ["a/b", "~c", ""]);
        assert!(Pointer::parse("a", false).is_err());
        assert!(Pointer::parse("/~2", false).is_err());
    }

    #[test]
    fn elements_are_found_by_canonical_indexes() {
        let found = |pointers: &[&str], text: &str| -> Vec<Option<String>> {
            let pointers: Vec<_> =
                pointers.iter().map(|text| Pointer::parse(text, false).expect("valid")).collect();
            let number = |found: Option<Cursor<'_>>| match found?.value()? {
                Value::Number(text) => Some(text.to_owned()),
                other => Some(other.kind().to_owned()),
            };
            find(text, &pointers).into_iter().map(number).collect()
        };
        let some = |texts: &[&str]| -> Vec<Option<String>> {
            texts.iter().map(|text| (*text != "-").then(|| (*text).to_owned())).collect()
        };
        let text = r#"{"a":[10,[20,21],{"0":30},13],"0":{"1":40}}"#;
        let pointers = ["/a/3", "/a/1/1", "/a/0", "/a/1/0", "/a/0", "/a/2/0", "/0/1", "/a/1"];
        assert_eq!(found(&pointers, text), some(&["13", "21", "10", "20", "10", "30", "40", "an array"]));
        let pointers = ["/a/00", "/a/+1", "/a/-0", "/a/4", "/a/99999999999999999999999", "/a/"];
        assert_eq!(found(&pointers, text), some(&["-"; 6]));
    }

    #[test]
    fn a_name_is_found_however_it_is_written() {
        let found = |pointer: &str, text: &str| {
            let pointers = [Pointer::parse(pointer, false).expect("valid")];
            find(text, &pointers).iter().all(Option::is_some)
        };
        assert!(found("/", r#"{"a":1,"":2}"#));
        assert!(found("/ab", r#"{"a":1,"\u0061\u0062":2}"#));
        assert!(found("/\u{1f600}", r#"{"\ud83d\ude00":1}"#));
        assert!(!found("/ab", r#"{"abc":1,"\u0061\u0062\u0063":2}"#));
    }
}
