//! Keys, and how a key is read from an object.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smol_str::SmolStr;

use super::limits;
use super::pointer::{Cursor, Pointer, Value, find};
use super::shards::Shards;

/// The name of one resource in a queue: 1 to 1,024 bytes of text without control characters.
///
/// A key of up to 23 bytes is stored inline, so reading or cloning it touches no other memory. Most keys are that
/// short. Longer keys are shared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(SmolStr);

impl Key {
    /// Checks `text` against the rules of a key.
    ///
    /// # Errors
    /// [`KeyError`] names the rule that `text` breaks.
    pub fn new(text: &str) -> Result<Self, KeyError> {
        check(text)?;
        Ok(Self(text.into()))
    }

    /// Like [`new`](Self::new), but without copying a long text.
    ///
    /// # Errors
    /// Same as [`new`](Self::new).
    pub fn from_shared(text: Arc<str>) -> Result<Self, KeyError> {
        check(&text)?;
        Ok(Self(text.into()))
    }

    /// The key's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn check(text: &str) -> Result<(), KeyError> {
    if text.is_empty() {
        return Err(KeyError::Empty);
    }
    if text.len() > limits::KEY_BYTES_MAX {
        let begin = text.get(..text.floor_char_boundary(limits::KEY_BYTES_MAX)).unwrap_or_default();
        return Err(KeyError::TooLong { bytes: text.len(), begin: begin.into() });
    }
    // Most keys are ASCII, and checking bytes is faster than decoding characters.
    let has_control = if text.is_ascii() {
        text.bytes().any(|byte| byte.is_ascii_control())
    } else {
        text.chars().any(char::is_control)
    };
    if has_control { Err(KeyError::ControlCharacter { text: text.into() }) } else { Ok(()) }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(KeyVisitor)
    }
}

struct KeyVisitor;

impl Visitor<'_> for KeyVisitor {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Key, E> {
        Key::new(text).map_err(E::custom)
    }
}

/// A set of keys that may be large.
#[derive(Debug, Default)]
pub struct KeySet {
    keys: Shards<Key>,
    hasher: RandomState,
}

impl KeySet {
    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the set contains `key`.
    #[must_use]
    pub fn contains(&self, key: &Key) -> bool {
        self.keys.find(self.hasher.hash_one(key), |other| other == key).is_some()
    }

    /// Adds `key`.
    pub fn insert(&mut self, key: Key) {
        if !self.contains(&key) {
            let hasher = &self.hasher;
            self.keys.insert(hasher.hash_one(&key), key, |key| hasher.hash_one(key));
        }
    }
}

impl FromIterator<Key> for KeySet {
    fn from_iter<I: IntoIterator<Item = Key>>(keys: I) -> Self {
        let mut set = Self::default();
        keys.into_iter().for_each(|key| set.insert(key));
        set
    }
}

/// Why a key is refused, or why an object has no usable key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No part of the key has any text.
    #[error("the key is empty")]
    Empty,
    /// There is no value at a required pointer, or it is null or an empty string.
    #[error("no key at {pointer:?}: a key part must be a non-empty string or an integer")]
    Missing {
        /// The RFC 6901 pointer without a value.
        pointer: Arc<str>,
    },
    /// The value at a pointer is neither a string nor an integer.
    #[error("the key part at {pointer:?} is {found}; it must be a string or an integer")]
    NotText {
        /// The RFC 6901 pointer.
        pointer: Arc<str>,
        /// The kind of the value, with an article: `an array`.
        found: &'static str,
    },
    /// The key is longer than [`limits::KEY_BYTES_MAX`].
    #[error("the key has {bytes} bytes; at most {} are allowed", limits::KEY_BYTES_MAX)]
    TooLong {
        /// Bytes of the refused key.
        bytes: usize,
        /// Its first [`limits::KEY_BYTES_MAX`] bytes.
        begin: Arc<str>,
    },
    /// The key contains a control character.
    #[error("the key contains a control character")]
    ControlCharacter {
        /// The refused key.
        text: Arc<str>,
    },
    /// The explicit key differs from the key of the object.
    #[error("the explicit key {explicit:?} differs from the object's own, {own:?}")]
    Differs {
        /// The key that the call named.
        explicit: Arc<str>,
        /// The key of the object.
        own: Arc<str>,
    },
}

impl KeyError {
    /// Whether the key is absent, rather than present and wrong.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Empty | Self::Missing { .. })
    }

    /// The text that an object has as its key although no queue can have such a key; `None` if no key can be read. A
    /// text that is too long is cut off.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::TooLong { begin: text, .. } | Self::ControlCharacter { text } => Some(text),
            _ => None,
        }
    }

    /// The limit that was exceeded, if any.
    #[must_use]
    pub fn limit(&self) -> Option<usize> {
        matches!(self, Self::TooLong { .. }).then_some(limits::KEY_BYTES_MAX)
    }

    /// The pointer that the error refers to, if any.
    #[must_use]
    pub fn pointer(&self) -> Option<&str> {
        match self {
            Self::Missing { pointer } | Self::NotText { pointer, .. } => Some(pointer),
            _ => None,
        }
    }
}

/// The pointers whose values, joined by `/`, form the key of an object. With several pointers, `%` and `/` inside a value
/// are percent-encoded, so that different values have different keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpec {
    pointers: Vec<Pointer>,
}

impl KeySpec {
    /// A key made of `pointers`, in order.
    ///
    /// # Errors
    /// The text says why the list is refused.
    pub fn new(pointers: Vec<Pointer>) -> Result<Self, String> {
        if pointers.is_empty() {
            return Err("a key needs at least one pointer".to_owned());
        }
        if pointers.len() > limits::KEY_POINTERS_MAX {
            return Err(format!("a key has at most {} pointers", limits::KEY_POINTERS_MAX));
        }
        Ok(Self { pointers })
    }

    /// The pointers, in order.
    #[must_use]
    pub fn pointers(&self) -> &[Pointer] {
        &self.pointers
    }

    /// Whether the keys of Kubernetes' objects have a namespace; `None` if these are no keys of such objects.
    #[must_use]
    pub fn has_kubernetes_namespace(&self) -> Option<bool> {
        let parts: Vec<_> = self.pointers.iter().map(|part| (&*part.text, part.optional)).collect();
        match *parts {
            [("/metadata/name", false)] => Some(false),
            [("/metadata/namespace", true), ("/metadata/name", false)] => Some(true),
            _ => None,
        }
    }

    /// The key of a valid object.
    ///
    /// # Errors
    /// [`KeyError`] names the missing or wrong part.
    pub fn read(&self, object: &str) -> Result<Key, KeyError> {
        let mut key = String::new();
        for (pointer, found) in self.pointers.iter().zip(find(object, &self.pointers)) {
            let part = match found.and_then(Cursor::value) {
                Some(Value::Text(text)) => text,
                Some(Value::Number(text)) if is_integer(text) => Cow::Borrowed(text),
                None | Some(Value::Null) => Cow::Borrowed(""),
                Some(other) => {
                    return Err(KeyError::NotText { pointer: pointer.text.clone(), found: other.kind() });
                }
            };
            if part.is_empty() && pointer.optional {
                continue;
            }
            if part.is_empty() {
                return Err(KeyError::Missing { pointer: pointer.text.clone() });
            }
            if self.pointers.len() == 1 {
                return Key::new(&part);
            }
            if !key.is_empty() {
                key.push('/');
            }
            for character in part.chars() {
                match character {
                    '%' => key.push_str("%25"),
                    '/' => key.push_str("%2F"),
                    other => key.push(other),
                }
            }
        }
        Key::new(&key)
    }
}

fn is_integer(number: &str) -> bool {
    number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
}

impl Default for KeySpec {
    fn default() -> Self {
        let pointer = Pointer { text: "/key".into(), tokens: vec!["key".into()], optional: false };
        Self { pointers: vec![pointer] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_rules() {
        assert!(Key::new("sku/1 ü").is_ok());
        assert_eq!(Key::new(""), Err(KeyError::Empty));
        let text = |text: &str| Key::new(text).unwrap_err().text().map(str::to_owned);
        assert_eq!(text("a\nb").as_deref(), Some("a\nb"));
        assert_eq!(text(""), None);
        assert!(Key::new(&"x".repeat(1_024)).is_ok());
        let begin = "x".repeat(1_024).into();
        assert_eq!(Key::new(&"x".repeat(1_025)), Err(KeyError::TooLong { bytes: 1_025, begin }));
        assert_eq!(text(&"ü".repeat(600)).unwrap().len(), 1_024);
    }

    #[test]
    fn optional_parts_are_skipped() {
        let spec = KeySpec::new(vec![
            Pointer::parse("/ns", true).expect("valid"),
            Pointer::parse("/name", false).expect("valid"),
        ])
        .expect("valid");
        let read = |object| spec.read(object);
        assert_eq!(read(r#"{"ns":"a","name":"b"}"#).expect("key").as_str(), "a/b");
        assert_eq!(read(r#"{"name":"b"}"#).expect("key").as_str(), "b");
        assert_eq!(read(r#"{"name":"b","ns":""}"#).expect("key").as_str(), "b");
        assert!(matches!(read(r#"{"ns":"a","name":null}"#), Err(KeyError::Missing { .. })));
    }

    #[test]
    fn different_parts_have_different_keys() {
        let pointers = |optional| vec![Pointer::parse("/a", optional), Pointer::parse("/b", false)];
        let spec = |optional| {
            let pointers = pointers(optional).into_iter().collect::<Result<_, _>>().expect("valid");
            KeySpec::new(pointers).expect("valid")
        };
        let key = |a: &str, b: &str| {
            let key = spec(true).read(&serde_json::json!({"a": a, "b": b}).to_string());
            key.map(|key| key.as_str().to_owned())
        };
        for (a, b, expected) in [
            (
                "https://github.com/cloudevents/spec/pull",
                "A234",
                "https:%2F%2Fgithub.com%2Fcloudevents%2Fspec%2Fpull/A234",
            ),
            ("Codertocat/Hello-World", "2", "Codertocat%2FHello-World/2"),
            ("apps/v1", "Deployment", "apps%2Fv1/Deployment"),
            ("a", "b/c", "a/b%2Fc"),
            ("a/b", "c", "a%2Fb/c"),
            ("a%2Fb", "c", "a%252Fb/c"),
            ("", "a/b", "a%2Fb"),
            ("50%", "/", "50%25/%2F"),
            ("ü", "b", "ü/b"),
        ] {
            assert_eq!(key(a, b).as_deref(), Ok(expected));
        }
        let long = key("a", &"/".repeat(341)).unwrap_err();
        assert!(matches!(long, KeyError::TooLong { bytes: 1_025, .. }), "encoded bytes count");
        assert_eq!(key("a\n", "b").unwrap_err().text(), Some("a\n/b"));
        let single = KeySpec::new(vec![Pointer::parse("/a", false).expect("valid")]).expect("valid");
        assert_eq!(single.read(r#"{"a":"https://a/50%"}"#).expect("key").as_str(), "https://a/50%");
    }
}
