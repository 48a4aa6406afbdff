//! Schemas of documents of several kinds: one schema for each kind, and a member that identifies the kind.

use deltaq_types::{EventName, Members, RowType};
use serde_json::{Map, Value, json};

use super::reference::reference;

/// Replaces the schemas of rows and events with the schemas of their kinds.
pub(super) fn split_all(schemas: &mut Map<String, Value>) {
    let rows = RowType::ALL.iter().map(|kind| (kind.as_str(), kind.members()));
    split(schemas, "WatchRow", ("type", "Row"), &[], rows);
    let events = EventName::ALL.iter().map(|kind| (kind.as_str(), kind.members()));
    split(schemas, "EventDocument", ("event", "Event"), &["resource_version", "at"], events);
    // Each kind has exactly one word.
    schemas.remove("RowType");
    schemas.remove("EventName");
}

/// Replaces the schema `name`, which has the members of all kinds, with one schema for each kind.
fn split(
    schemas: &mut Map<String, Value>,
    name: &str,
    (tag, suffix): (&str, &str),
    common: &[&str],
    kinds: impl Iterator<Item = (&'static str, Members)>,
) {
    let whole = schemas.get(name).cloned().unwrap_or_default();
    let member = |name: &str| whole.pointer(&format!("/properties/{name}")).cloned().unwrap_or_default();
    let (mut one_of, mut mapping) = (Vec::new(), Map::new());
    for (word, members) in kinds {
        let mut properties = Map::new();
        properties.insert(tag.to_owned(), json!({ "type": "string", "enum": [word] }));
        for name in common.iter().chain(members.present) {
            properties.insert((*name).to_owned(), without_null(member(name)));
        }
        for name in members.nullable {
            properties.insert((*name).to_owned(), member(name));
        }
        let required: Vec<_> = properties.keys().cloned().collect();
        let kind = pascal_case(word) + suffix;
        let kind_reference = reference(&kind);
        mapping.insert(word.to_owned(), kind_reference.get("$ref").cloned().unwrap_or_default());
        one_of.push(kind_reference);
        schemas.insert(kind, json!({ "type": "object", "required": required, "properties": properties }));
    }
    let description = whole.get("description").cloned().unwrap_or_default();
    let discriminator = json!({ "propertyName": tag, "mapping": mapping });
    let kinds = json!({ "description": description, "oneOf": one_of, "discriminator": discriminator });
    schemas.insert(name.to_owned(), kinds);
}

/// The schema of a value without null.
fn without_null(mut schema: Value) -> Value {
    let is_null = |one: &Value| one.get("type").is_some_and(|kind| kind == "null");
    if let Some(alternatives) = schema.get("oneOf").and_then(Value::as_array) {
        return alternatives.iter().find(|one| !is_null(one)).cloned().unwrap_or_default();
    }
    if let Some(kind) = schema.get_mut("type")
        && let Some(first) = kind.get(0).cloned()
    {
        *kind = first;
    }
    schema
}

fn pascal_case(word: &str) -> String {
    let capital = |part: &str| {
        let mut letters = part.chars();
        letters.next().map(|first| first.to_ascii_uppercase().to_string() + letters.as_str())
    };
    word.split('_').filter_map(capital).collect()
}
