//! The members of an object that the API server owns: they are added to every object that is read, and taken out of every object that is
//! written. All other members keep their text.

use std::borrow::Cow;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The members of `metadata` that the server owns.
const OWNED: [&str; 3] = ["resourceVersion", "uid", "creationTimestamp"];
/// Members of `metadata` that the API server makes for every object, and that a queue does not keep.
const DROPPED: [&str; 5] =
    ["managedFields", "generation", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"];

/// The members of a JSON object in their order, each with its text.
pub(super) struct Members<'j>(Vec<(Cow<'j, str>, &'j RawValue)>);

impl<'j> Members<'j> {
    /// The members of a valid JSON object; none of any other text.
    pub(super) fn of(text: &'j str) -> Self {
        serde_json::from_str(text).unwrap_or(Self(Vec::new()))
    }

    /// The text of a member.
    pub(super) fn get(&self, name: &str) -> Option<&'j str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.get())
    }

    /// The texts of all members.
    pub(super) fn values(&self) -> impl Iterator<Item = &'j str> {
        self.0.iter().map(|(_, value)| value.get())
    }

    /// The value of a member that is a string.
    pub(super) fn string(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.get(name)?).ok()
    }

    /// The members of a member that is an object.
    pub(super) fn object(&self, name: &str) -> Members<'j> {
        self.get(name).map_or(Self(Vec::new()), Self::of)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::with_capacity(8);
        while let Some(Name(name)) = map.next_key()? {
            members.push((name, map.next_value()?));
        }
        Ok(Members(members))
    }
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

/// The name of a member, without a copy if it has no escapes.
#[derive(Deserialize)]
struct Name<'j>(#[serde(borrow)] Cow<'j, str>);

/// The members that the server owns, of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Owned {
    /// 0 if it has none yet.
    pub(super) resource_version: u64,
    pub(super) uid: String,
    /// The time of the entry into the view, as RFC 3339.
    pub(super) created: String,
}

/// Writes the `metadata` of an object.
pub(super) fn push_metadata(text: &mut String, metadata: &Members<'_>, owned: &Owned) {
    text.push('{');
    for (name, value) in metadata.0.iter().filter(|(name, _)| !OWNED.contains(&name.as_ref())) {
        push_member(text, name, value.get());
    }
    if !owned.uid.is_empty() {
        push_member(text, "uid", &quoted(&owned.uid));
    }
    if owned.resource_version > 0 {
        push_member(text, "resourceVersion", &quoted(itoa::Buffer::new().format(owned.resource_version)));
    }
    if !owned.created.is_empty() {
        push_member(text, "creationTimestamp", &quoted(&owned.created));
    }
    text.push('}');
}

/// Writes an object as its readers see it. `head` has the members `apiVersion` and `kind`.
pub(super) fn push_object(text: &mut String, head: &str, object: &str, owned: &Owned) {
    let members = Members::of(object);
    text.push_str(head);
    push_name(text, "metadata");
    push_metadata(text, &members.object("metadata"), owned);
    for (name, value) in &members.0 {
        if !matches!(name.as_ref(), "apiVersion" | "kind" | "metadata") {
            push_member(text, name, value.get());
        }
    }
    text.push('}');
}

/// The text to store for an object that a client has written: without the members that the server owns, unless the stored object has them
/// itself, as the mirror of a cluster does. Then it keeps its own. `edit` are the members of `metadata` that the server sets.
pub(super) fn stored(written: &str, before: Option<&str>, edit: &[(&str, &str)]) -> String {
    let (members, before) = (Members::of(written), Members::of(before.unwrap_or("{}")));
    let mut text = String::with_capacity(written.len());
    text.push('{');
    for name in ["apiVersion", "kind"] {
        if let Some(value) = before.get(name) {
            push_member(&mut text, name, value);
        }
    }
    push_name(&mut text, "metadata");
    text.push('{');
    let (metadata, own) = (members.object("metadata"), before.object("metadata"));
    let is_kept = |name: &str| OWNED.contains(&name) || DROPPED.contains(&name);
    for (name, value) in &metadata.0 {
        if !is_kept(name) && edit.iter().all(|(edited, _)| edited != name) {
            push_member(&mut text, name, value.get());
        }
    }
    for (name, value) in edit {
        push_member(&mut text, name, &quoted(value));
    }
    for (name, value) in own.0.iter().filter(|(name, _)| is_kept(name)) {
        push_member(&mut text, name, value.get());
    }
    text.push('}');
    for (name, value) in &members.0 {
        if !matches!(name.as_ref(), "apiVersion" | "kind" | "metadata") {
            push_member(&mut text, name, value.get());
        }
    }
    text.push('}');
    text
}

fn push_member(text: &mut String, name: &str, value: &str) {
    push_name(text, name);
    text.push_str(value);
}

/// Writes the name of the next member.
fn push_name(text: &mut String, name: &str) {
    if !text.ends_with('{') {
        text.push(',');
    }
    text.push_str(&quoted(name));
    text.push(':');
}

/// A string in JSON.
pub(super) fn quoted(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
    if text.bytes().all(is_plain) {
        return ["\"", text, "\""].concat();
    }
    serde_json::to_string(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = r#"{"apiVersion":"shop.example/v1","kind":"Price""#;

    fn shown(object: &str) -> String {
        let owned =
            Owned { resource_version: 7, uid: "0-1".to_owned(), created: "2026-01-02T03:04:05Z".to_owned() };
        let mut text = String::new();
        push_object(&mut text, HEAD, object, &owned);
        text
    }

    #[test]
    fn a_reader_sees_the_members_of_the_server_and_the_text_of_all_others() {
        let object = r#"{"spec":{"eur":1.10, "n":12345678901234567890},"kind":"Other","metadata":{"name":"a","uid":"own","labels":{"x":"y"}}}"#;
        assert_eq!(
            shown(object),
            r#"{"apiVersion":"shop.example/v1","kind":"Price","metadata":{"name":"a","labels":{"x":"y"},"uid":"0-1","resourceVersion":"7","creationTimestamp":"2026-01-02T03:04:05Z"},"spec":{"eur":1.10, "n":12345678901234567890}}"#
        );
    }

    #[test]
    fn what_a_reader_has_seen_is_stored_as_it_was() {
        for object in [
            r#"{"metadata":{"name":"a","labels":{"x":"y"}},"spec":{"eur":1.10}}"#,
            r#"{"apiVersion":"shop.example/v1","kind":"Price","metadata":{"name":"a","uid":"own","creationTimestamp":"2020-01-01T00:00:00Z","generation":3},"spec":{}}"#,
        ] {
            assert_eq!(stored(&shown(object), Some(object), &[]), object);
        }
    }

    #[test]
    fn the_members_of_the_server_are_not_stored() {
        let written = r#"{"apiVersion":"shop.example/v1","kind":"Price","metadata":{"name":"a","uid":"x","resourceVersion":"3","managedFields":[]},"spec":1}"#;
        assert_eq!(
            stored(written, None, &[("namespace", "sh\"op")]),
            r#"{"metadata":{"name":"a","namespace":"sh\"op"},"spec":1}"#
        );
    }
}
