//! The schema of the body that sets or changes the settings of a queue, derived from the schema of the settings.

use serde_json::{Map, Value, json};

use super::reference::reference;

/// Objects inside the settings. In a request, all of their members are optional.
const PARTS: [&str; 19] = [
    "RateLimiter",
    "ItemExponential",
    "ItemFastSlow",
    "Bucket",
    "Debounce",
    "Order",
    "HeadStartOrder",
    "PriorityOrder",
    "DeliveryRate",
    "Groups",
    "Retention",
    "Follow",
    "Push",
    "Hook",
    "HookSignature",
    "HookCondition",
    "CloudEvents",
    "Kubernetes",
    "DiffSettings",
];

/// The schema of the settings in a request: all members are optional, and null means the default, also inside objects.
pub(super) fn given(schemas: &mut Map<String, Value>) -> Value {
    if let Some(part) = schemas.get_mut("DetailedKeyPart").and_then(Value::as_object_mut) {
        part.insert("additionalProperties".to_owned(), false.into());
    }
    if let Some(pointer) = schemas.get_mut("KeyPart").and_then(|part| part.pointer_mut("/oneOf/0")) {
        *pointer = reference("JsonPointer");
    }
    if let Some(value) =
        schemas.get_mut("GroupBy").and_then(|by| by.pointer_mut("/oneOf/0")).and_then(Value::as_object_mut)
    {
        value.insert("pattern".to_owned(), "^(source|(/([^/~]|~[01])*)+)$".into());
    }
    for name in PARTS {
        let given = schemas.get(name).map(given_of);
        schemas.insert(given_name(name), given.unwrap_or_default());
    }
    // A PATCH removes an entry of a table with null.
    for (part, table) in [("DiffSettings", "array_keys"), ("Push", "headers")] {
        let entry = format!("/properties/{table}/oneOf/1/additionalProperties");
        if let Some(value) = schemas.get_mut(&given_name(part)).and_then(|given| given.pointer_mut(&entry)) {
            *value = or_null(value.take());
        }
    }
    if let Some(own) = schemas
        .get_mut(&given_name("Groups"))
        .and_then(|given| given.pointer_mut("/properties/overrides/oneOf/1/additionalProperties"))
    {
        *own = or_null(own.take());
    }
    let mut given = schemas.get("QueueSettings").map(given_of).unwrap_or_default();
    // A single pointer needs no list.
    if let Some(key) = given.pointer_mut("/properties/key/oneOf").and_then(Value::as_array_mut) {
        key.push(reference("JsonPointer"));
    }
    // A PATCH removes an index with null.
    if let Some(pointer) = given.pointer_mut("/properties/indexes/oneOf/1/additionalProperties") {
        *pointer = or_null(pointer.take());
    }
    given
}

fn given_name(part: &str) -> String {
    format!("Given{part}")
}

/// The same properties, all optional and nullable.
fn given_of(schema: &Value) -> Value {
    let properties = schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    let nullable = properties.into_iter().map(|(name, property)| (name, or_null(property)));
    json!({
        "type": "object",
        "properties": nullable.collect::<Map<String, Value>>(),
        "additionalProperties": false,
    })
}

fn or_null(mut property: Value) -> Value {
    refer_to_given(&mut property);
    let is_null = |one: &Value| one.get("type").and_then(Value::as_str) == Some("null");
    let one_of = property.get("oneOf").and_then(Value::as_array);
    let is_nullable =
        property.pointer("/type/1").is_some() || one_of.is_some_and(|some| some.iter().any(is_null));
    if is_nullable { property } else { json!({ "oneOf": [{ "type": "null" }, property] }) }
}

/// Replaces the schema of an object in the settings with the schema for requests.
fn refer_to_given(property: &mut Value) {
    if let Some(target) = property.get_mut("$ref") {
        let name = target.as_str().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
        if PARTS.contains(&name) {
            *target = format!("#/components/schemas/{}", given_name(name)).into();
        }
    }
    if let Some(entry) = property.get_mut("items") {
        refer_to_given(entry);
    }
    let alternatives = property.get_mut("oneOf").and_then(Value::as_array_mut);
    alternatives.into_iter().flatten().for_each(refer_to_given);
}
