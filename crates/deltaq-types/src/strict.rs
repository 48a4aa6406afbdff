//! Strict deserialization. By default, serde also accepts an array for a struct, in the order of its fields, and an object with
//! one member for a unit variant of an enum.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{BorrowedStrDeserializer, MapAccessDeserializer, StrDeserializer};
use serde::de::{DeserializeSeed, Error, IgnoredAny, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::range::WHOLE_MAX;

/// Maximum length of a field's name, in bytes, and of an excerpt in an error message, in characters.
const EXCERPT_CHARS_MAX: usize = 200;

/// A document that must be a JSON object.
#[derive(Debug)]
pub struct Named<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Document<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Document<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(Members { members, name: String::new() }))
            }
        }

        deserializer.deserialize_map(Document(PhantomData)).map(Self)
    }
}

/// The members of a document. A name that is longer than any field's is refused before an error message repeats it. The error of
/// a value names its field.
struct Members<A> {
    members: A,
    /// The name of the last member.
    name: String,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Members<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        self.members.next_key_seed(ShortName { seed, read: &mut self.name })
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.members.next_value_seed(seed).map_err(|error| named(&self.name, error))
    }

    fn size_hint(&self) -> Option<usize> {
        self.members.size_hint()
    }
}

/// How the errors of values begin. In the errors of [`Named`], the name of the field and `: ` stand before them.
pub const VALUE_ERRORS: [&str; 3] = ["invalid type", "invalid value", "unknown variant"];

/// The error of a value with the name of its field, unless the error already names one.
fn named<E: Error>(name: &str, error: E) -> E {
    let text = error.to_string();
    let is_of_value = VALUE_ERRORS.iter().any(|kind| text.starts_with(kind));
    if is_of_value { E::custom(format_args!("{name}: {text}")) } else { error }
}

struct ShortName<'n, K> {
    seed: K,
    /// Receives the name.
    read: &'n mut String,
}

impl<K> ShortName<'_, K> {
    fn check<E: Error>(&mut self, name: &str) -> Result<(), E> {
        if name.len() <= EXCERPT_CHARS_MAX {
            name.clone_into(self.read);
            return Ok(());
        }
        Err(E::custom(format_args!("unknown field `{}...`", cut(name))))
    }
}

impl<'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for ShortName<'_, K> {
    type Value = K::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<K::Value, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl<'de, K: DeserializeSeed<'de>> Visitor<'de> for ShortName<'_, K> {
    type Value = K::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: Error>(mut self, name: &str) -> Result<K::Value, E> {
        self.check(name)?;
        self.seed.deserialize(StrDeserializer::new(name))
    }

    fn visit_borrowed_str<E: Error>(mut self, name: &'de str) -> Result<K::Value, E> {
        self.check(name)?;
        self.seed.deserialize(BorrowedStrDeserializer::new(name))
    }
}

/// Maximum number of stored entries of a list: one more than any list may have, so that the caller still sees that a list is
/// too long. Further entries are parsed and dropped.
const ENTRIES_KEPT: usize = 10_001;

/// Reads a list. Null is an empty list, because encoders such as Go's write an unset list as null.
fn bounded<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    struct Entries<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_unit<E: Error>(self) -> Result<Vec<T>, E> {
            Ok(Vec::new())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Vec<T>, A::Error> {
            let mut kept = Vec::new();
            while kept.len() < ENTRIES_KEPT
                && let Some(entry) = entries.next_element()?
            {
                kept.push(entry);
            }
            while kept.len() == ENTRIES_KEPT && entries.next_element::<IgnoredAny>()?.is_some() {}
            Ok(kept)
        }
    }

    deserializer.deserialize_any(Entries(PhantomData))
}

/// Reads a list of objects.
pub(crate) fn objects<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let all: Vec<Named<T>> = bounded(deserializer)?;
    Ok(all.into_iter().map(|named| named.0).collect())
}

/// Reads an object that may be absent or null.
pub(crate) fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Ok(Option::<Named<T>>::deserialize(deserializer)?.map(|named| named.0))
}

/// Reads a list of strings.
pub(crate) fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    bounded(deserializer)
}

/// Reads a list of strings that may be absent.
pub(crate) fn present_texts<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<String>>, D::Error> {
    texts(deserializer).map(Some)
}

/// Reads a text that may be absent. An empty text is absent, because encoders of typed languages write it for a member that is not set.
pub(crate) fn optional_text<'de, D: Deserializer<'de>, T: From<String>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.filter(|text| !text.is_empty()).map(T::from))
}

/// Reads a flag that may be absent.
pub(crate) fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Option::<bool>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Reads a flag for which false means the same as absent.
pub(crate) fn raised_flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    flag(deserializer).map(|flag| flag.then_some(true))
}

/// Reads the text of a duration that may be absent, as [`optional_text`] does.
pub(crate) fn duration_text<'de, D: Deserializer<'de>, T: From<String>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    struct Text;

    impl Visitor<'_> for Text {
        type Value = Option<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a duration such as \"30s\"")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
            Ok((!text.is_empty()).then(|| text.to_owned()))
        }

        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }
    }

    Ok(deserializer.deserialize_any(Text)?.map(T::from))
}

/// Reads a text that must be there.
pub(crate) fn text<'de, D: Deserializer<'de>, T: From<String>>(deserializer: D) -> Result<T, D::Error> {
    String::deserialize(deserializer).map(T::from)
}

/// Reads a variant of an enum from a string.
pub(crate) fn word<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    let word = String::deserialize(deserializer)?;
    T::deserialize(cut(&word).into_deserializer())
}

/// The part of a text that an error message may repeat.
fn cut(text: &str) -> &str {
    let end = text.char_indices().nth(EXCERPT_CHARS_MAX).map_or(text.len(), |(end, _)| end);
    text.get(..end).unwrap_or_default()
}

/// Reads a whole number. JSON does not distinguish 5.0 from 5.
pub(crate) fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let Some(number) = Option::<serde_json::Number>::deserialize(deserializer)? else { return Ok(None) };
    let fraction = number.as_f64().filter(|number| number.fract() == 0.0 && *number >= 0.0);
    let text = || fraction.and_then(|number| format!("{number}").parse().ok());
    let whole = number.as_u64().or_else(text).filter(|whole| *whole <= WHOLE_MAX);
    whole.map(Some).ok_or_else(|| {
        D::Error::custom(format!("invalid value: {number}, expected a whole number from 0 to {WHOLE_MAX}"))
    })
}

/// Reads a whole number that takes only a pointer where it is absent.
pub(crate) fn boxed_whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<u64>>, D::Error> {
    Ok(whole(deserializer)?.map(Box::new))
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;
    use crate::{DeltaCall, LeasesBody, PopBody};

    fn error<'t, T: Deserialize<'t> + Debug>(text: &'t str) -> String {
        serde_json::from_str::<Named<T>>(text).expect_err(text).to_string()
    }

    #[test]
    fn arrays_and_objects_do_not_replace_structs_and_words() {
        assert!(error::<PopBody>("[]").contains("expected an object"));
        assert!(error::<PopBody>(r#"{"settle":[["1-1","ack"]]}"#).contains("expected an object"));
        assert!(
            error::<PopBody>(r#"{"settle":[{"lease_id":"1-1","as":{"ack":null}}]}"#).contains("a string")
        );
        assert!(error::<DeltaCall<'_>>(r#"{"type":{"Added":null},"object":{}}"#).contains("a string"));
        assert!(error::<DeltaCall<'_>>(r#"{"type":"Add","object":{}}"#).contains("expected one of `Added`"));
        let number = error::<LeasesBody>(r#"{"lease_ids":[],"delay":5}"#);
        assert!(number.starts_with("delay: ") && number.contains("a duration such as \"30s\""), "{number}");
        let Named(none) =
            serde_json::from_str::<Named<LeasesBody>>(r#"{"lease_ids":[],"delay":null}"#).expect("right");
        assert_eq!(none.delay, None);
        let nested = error::<PopBody>(r#"{"settle":[{"lease_id":"1-1","as":"fail"}]}"#);
        assert!(
            nested.starts_with("as: unknown variant `fail`") && nested.ends_with(" column 41"),
            "{nested}"
        );
        let text = r#"{"settle":[{"lease_id":"1-1","as":"ack"}]}"#;
        let Named(body) = serde_json::from_str::<Named<PopBody>>(text).expect("right");
        assert_eq!(body.settle.len(), 1);
        let text = r#"{"type":"Added","object":{"n":1.10}}"#;
        let Named(call) = serde_json::from_str::<Named<DeltaCall<'_>>>(text).expect("right");
        assert_eq!(call.object.map(serde_json::value::RawValue::get), Some(r#"{"n":1.10}"#));
    }
}
