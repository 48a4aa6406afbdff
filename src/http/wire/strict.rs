//! Reading documents more strictly than serde does by itself: it would also take an array for a
//! struct, by the order of its fields, and an object for a word, by its only member.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A document that is an object.
#[derive(Debug)]
pub struct Named<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(members))
            }
        }

        deserializer.deserialize_map(Members(PhantomData)).map(Self)
    }
}

/// Reads a list of objects.
pub(super) fn objects<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let all = Vec::<Named<T>>::deserialize(deserializer)?;
    Ok(all.into_iter().map(|named| named.0).collect())
}

/// Reads one word of several.
pub(super) fn word<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    T::deserialize(String::deserialize(deserializer)?.into_deserializer())
}

/// Reads a whole number, also one that is written as a fraction, such as 5.0; JSON does not tell them apart.
pub(super) fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let Some(number) = Option::<serde_json::Number>::deserialize(deserializer)? else { return Ok(None) };
    let fraction = number.as_f64().filter(|number| number.fract() == 0.0 && *number >= 0.0);
    let text = || fraction.and_then(|number| format!("{number}").parse().ok());
    match number.as_u64().or_else(text) {
        Some(whole) => Ok(Some(whole)),
        None => Err(D::Error::custom(format!("invalid value: {number}, expected a whole number from 0"))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DeltaCall, PopBody};
    use super::*;

    fn error<'t, T: Deserialize<'t> + fmt::Debug>(text: &'t str) -> String {
        serde_json::from_str::<Named<T>>(text).expect_err(text).to_string()
    }

    #[test]
    fn only_objects_with_names_are_read() {
        assert!(error::<PopBody>("[]").contains("expected an object"));
        assert!(error::<PopBody>(r#"{"settle":[["1-1","ack"]]}"#).contains("expected an object"));
        assert!(error::<PopBody>(r#"{"settle":[{"lease":"1-1","as":{"ack":null}}]}"#).contains("a string"));
        assert!(error::<DeltaCall<'_>>(r#"{"type":{"Added":null},"object":{}}"#).contains("a string"));
        assert!(error::<DeltaCall<'_>>(r#"{"type":"Add","object":{}}"#).contains("expected one of `Added`"));
        let text = r#"{"settle":[{"lease":"1-1","as":"ack"}]}"#;
        let Named(body) = serde_json::from_str::<Named<PopBody>>(text).expect("right");
        assert_eq!(body.settle.len(), 1);
        let text = r#"{"type":"Added","object":{"n":1.10}}"#;
        let Named(call) = serde_json::from_str::<Named<DeltaCall<'_>>>(text).expect("right");
        assert_eq!(call.object.map(serde_json::value::RawValue::get), Some(r#"{"n":1.10}"#));
    }
}
