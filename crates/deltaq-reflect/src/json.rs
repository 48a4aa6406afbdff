//! JSON as text: finds the objects of a list without changing them.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

/// What is wrong with a list.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The text is not JSON.
    #[error("it is not JSON")]
    Syntax(#[from] serde_json::Error),
    /// There is nothing at the pointer.
    #[error("it has nothing at the pointer {0:?}")]
    Absent(String),
    /// The value is neither an array nor, with `map_key`, an object.
    #[error("it is {found}{}; expected an array of objects{}", at(.pointer), advice(*.is_object))]
    NoList {
        /// The pointer to the list.
        pointer: String,
        /// The kind of the value.
        found: &'static str,
        /// Whether the value is an object.
        is_object: bool,
    },
    /// The object already has the member that was to contain its name, with another value.
    #[error("the object of {name:?} already has a member {member:?} with another value")]
    MemberTaken {
        /// The name of the object in the list.
        name: String,
        /// The member.
        member: String,
    },
    /// A line that is not JSON.
    #[error("line {line} is not a JSON object")]
    Line {
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        source: serde_json::Error,
    },
}

fn at(pointer: &str) -> String {
    if pointer.is_empty() { String::new() } else { format!(" at the pointer {pointer:?}") }
}

const fn advice(is_object: bool) -> &'static str {
    if is_object {
        "; the setting items leads to the array, and map_key takes the members of an object"
    } else {
        ""
    }
}

/// The members of an object, in their order.
struct Members<'j>(Vec<(String, &'j RawValue)>);

impl<'de> serde::Deserialize<'de> for Members<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;

        impl<'de> Visitor<'de> for Collect {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Collect)
    }
}

/// The members of an object.
pub(super) fn members(object: &RawValue) -> Result<Vec<(String, &RawValue)>, serde_json::Error> {
    let members: Members<'_> = serde_json::from_str(object.get())?;
    Ok(members.0)
}

/// The value at a JSON pointer.
pub(super) fn find<'j>(
    document: &'j RawValue,
    pointer: &str,
) -> Result<Option<&'j RawValue>, serde_json::Error> {
    let mut value = document;
    for token in pointer.split('/').skip(1) {
        let token = token.replace("~1", "/").replace("~0", "~");
        let inner = match kind(value) {
            "an object" => {
                let members: Members<'_> = serde_json::from_str(value.get())?;
                members.0.into_iter().rev().find(|(name, _)| *name == token).map(|(_, value)| value)
            }
            "an array" => {
                let elements: Vec<&RawValue> = serde_json::from_str(value.get())?;
                token.parse::<usize>().ok().and_then(|index| elements.get(index).copied())
            }
            _ => None,
        };
        let Some(inner) = inner else { return Ok(None) };
        value = inner;
    }
    Ok(Some(value))
}

/// The parts of an object's key as text, except those that are absent or empty. If the parts differ, so do the keys
/// of the queue.
pub(super) fn key(object: &RawValue, pointers: &[String]) -> Vec<String> {
    let part = |pointer: &String| find(object, pointer).ok().flatten().and_then(scalar);
    pointers.iter().filter_map(part).filter(|part| !part.is_empty()).collect()
}

/// The key of an object as the queue writes it: if there are several parts, each is percent-encoded.
pub(super) fn key_text(object: &RawValue, pointers: &[String]) -> String {
    match key(object, pointers).as_slice() {
        [part] if pointers.len() == 1 => part.clone(),
        parts => {
            let encoded = parts.iter().map(|part| part.replace('%', "%25").replace('/', "%2F"));
            encoded.collect::<Vec<_>>().join("/")
        }
    }
}

/// The objects of a list in a document. With `map_key`, the list may be an object, whose members are the objects; the
/// name of each is added to it as the member `map_key`. Elements that are not objects are left to the queue, which
/// leaves them out.
pub(super) fn list(
    document: &RawValue,
    pointer: &str,
    map_key: Option<&str>,
) -> Result<Vec<Box<RawValue>>, Error> {
    let list = find(document, pointer)?.ok_or_else(|| Error::Absent(pointer.to_owned()))?;
    let objects: Vec<Box<RawValue>> = match (kind(list), map_key) {
        ("an array", _) => {
            let elements: Vec<&RawValue> = serde_json::from_str(list.get())?;
            elements.into_iter().map(ToOwned::to_owned).collect()
        }
        ("an object", Some(member)) => {
            let members: Members<'_> = serde_json::from_str(list.get())?;
            let named = members.0.into_iter().map(|(name, value)| match kind(value) {
                "an object" => with_member(value, member, &name),
                _ => Ok(value.to_owned()),
            });
            named.collect::<Result<_, _>>()?
        }
        (found, _) => {
            let is_object = found == "an object";
            return Err(Error::NoList { pointer: pointer.to_owned(), found, is_object });
        }
    };
    Ok(objects)
}

/// The object of a line; `None` if the line is blank.
pub(super) fn line(number: usize, text: &str) -> Result<Option<Box<RawValue>>, Error> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    serde_json::from_str(text.trim()).map(Some).map_err(|source| Error::Line { line: number, source })
}

/// The kind of a value, determined by its first character.
pub(super) fn kind(value: &RawValue) -> &'static str {
    match value.get().trim_start().bytes().next() {
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b'"') => "a string",
        Some(b'n') => "null",
        Some(b't' | b'f') => "a boolean",
        _ => "a number",
    }
}

/// The text of a string, a number or a boolean; `None` for null, an array or an object. A number or a boolean keeps
/// its text.
pub(super) fn scalar(value: &RawValue) -> Option<String> {
    match kind(value) {
        "a string" => serde_json::from_str(value.get()).ok(),
        "a number" | "a boolean" => Some(value.get().trim().to_owned()),
        _ => None,
    }
}

/// The object with one more member at its beginning. The other members keep their text.
pub(super) fn with_member(object: &RawValue, member: &str, value: &str) -> Result<Box<RawValue>, Error> {
    let members: Members<'_> = serde_json::from_str(object.get())?;
    if let Some((_, present)) = members.0.iter().find(|(name, _)| name == member) {
        if scalar(present).as_deref() == Some(value) {
            return Ok(object.to_owned());
        }
        return Err(Error::MemberTaken { name: value.to_owned(), member: member.to_owned() });
    }
    let rest = object.get().trim_start().strip_prefix('{').unwrap_or_default();
    let separator = if members.0.is_empty() { "" } else { "," };
    let (member, value) = (serde_json::to_string(member)?, serde_json::to_string(value)?);
    Ok(RawValue::from_string(format!("{{{member}:{value}{separator}{rest}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        serde_json::from_str(text).unwrap()
    }

    fn texts(objects: &[Box<RawValue>]) -> Vec<&str> {
        objects.iter().map(|object| object.get()).collect()
    }

    #[test]
    fn the_objects_keep_their_text() {
        let document = raw("{\"a/b\": [{\"data\": [ {\"n\": 1.0e400 , \"m\":12345678901234567890} ,{}]}]}");
        let objects = list(&document, "/a~1b/0/data", None).unwrap();
        assert_eq!(texts(&objects), ["{\"n\": 1.0e400 , \"m\":12345678901234567890}", "{}"]);
    }

    #[test]
    fn a_key_is_written_as_the_queue_writes_it() {
        let object = raw("{\"a\":{\"b\":\"x/y%\"},\"n\":7,\"e\":\"\"}");
        let key = |pointers: &[&str]| {
            key_text(&object, &pointers.iter().map(|pointer| (*pointer).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!((key(&["/a/b"]), key(&["/n"])), ("x/y%".to_owned(), "7".to_owned()));
        assert_eq!(
            (key(&["/a/b", "/n"]), key(&["/absent", "/n"])),
            ("x%2Fy%25/7".to_owned(), "7".to_owned())
        );
        assert_eq!(key(&["/absent", "/a/b"]), "x%2Fy%25");
        assert_eq!((key(&["/e"]), key(&[])), (String::new(), String::new()));
    }

    #[test]
    fn the_members_of_an_object_get_their_names() {
        let document = raw("{\"a\":{\"price\":1},\"b\":{},\"c\":{\"key\":\"c\"}}");
        let objects = list(&document, "", Some("key")).unwrap();
        assert_eq!(texts(&objects), ["{\"key\":\"a\",\"price\":1}", "{\"key\":\"b\"}", "{\"key\":\"c\"}"]);
        let taken = list(&raw("{\"a\":{\"key\":\"b\"}}"), "", Some("key")).unwrap_err();
        assert_eq!(taken.to_string(), "the object of \"a\" already has a member \"key\" with another value");
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for (text, pointer, expected) in [
            ("{}", "/data", "it has nothing at the pointer \"/data\""),
            ("{\"error\":1}", "", "it is an object; expected an array of objects; the setting items"),
            ("{\"data\":null}", "/data", "it is null at the pointer \"/data\"; expected an array of objects"),
        ] {
            let error = list(&raw(text), pointer, None).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        assert_eq!(line(2, "{").unwrap_err().to_string(), "line 2 is not a JSON object");
        // The queue leaves out what is no object.
        assert_eq!(texts(&list(&raw("[{},null,3]"), "", None).unwrap()), ["{}", "null", "3"]);
        assert_eq!(texts(&list(&raw("{\"a\":null}"), "", Some("key")).unwrap()), ["null"]);
        assert_eq!(line(2, "[]").unwrap().unwrap().get(), "[]");
        assert!(line(1, " \r").unwrap().is_none());
    }
}
