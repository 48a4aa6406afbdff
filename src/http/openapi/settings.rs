//! The settings of a queue in the document, and the document that changes them.

use serde_json::{Map, Value, json};

use crate::admission::limits::PRUNE_POINTERS_MAX;

/// Adds the settings that the settings file does not have, and the form of pointers.
pub(super) fn complete(schemas: &mut Map<String, Value>) {
    let properties = schemas.get_mut("QueueConfig").and_then(|schema| schema.get_mut("properties"));
    if let (Some(properties), Value::Object(admission)) =
        (properties.and_then(Value::as_object_mut), admission())
    {
        properties.extend(admission);
    }
    if let Some(part) =
        schemas.get_mut("DetailedKeyPart").and_then(|part| part.pointer_mut("/properties/pointer"))
    {
        merge(part, pointer());
    }
    if let Some(part) = schemas.get_mut("KeyPart").and_then(|part| part.pointer_mut("/oneOf/0")) {
        merge(part, pointer());
    }
}

/// What is asked of objects and done to them.
fn admission() -> Value {
    let mut pointers = json!({ "type": "string" });
    merge(&mut pointers, pointer());
    json!({
        "schema": {
            "type": "object",
            "additionalProperties": true,
            "description": "A JSON Schema that objects must satisfy, and whose defaults are filled in; unset is none.",
            "examples": [{ "required": ["price"], "properties": { "price": { "type": "number" } } }],
        },
        "prune": {
            "type": "array",
            "items": pointers,
            "maxItems": PRUNE_POINTERS_MAX,
            "description": "Pointers to the members that are removed from objects; unset is none.",
        },
    })
}

/// Any of the settings, or null for the default.
pub(super) fn patch(schemas: &mut Map<String, Value>) -> Value {
    for nested in ["RateLimiter", "Retention"] {
        let patch = schemas.get(nested).map(patch_of);
        schemas.insert(format!("{nested}Patch"), patch.unwrap_or_default());
    }
    schemas.get("QueueConfig").map(patch_of).unwrap_or_default()
}

/// RFC 6901, without the empty pointer.
fn pointer() -> Value {
    json!({ "pattern": "^/([^~]|~[01])*$" })
}

fn merge(schema: &mut Value, more: Value) {
    if let (Some(schema), Value::Object(more)) = (schema.as_object_mut(), more) {
        schema.remove("format");
        schema.extend(more);
    }
}

/// The same properties, each of them optional and null for its default.
fn patch_of(schema: &Value) -> Value {
    let properties = schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    let nullable = properties.into_iter().map(|(name, property)| (name, or_null(property)));
    json!({
        "type": "object",
        "properties": nullable.collect::<Map<String, Value>>(),
        "additionalProperties": false,
    })
}

fn or_null(mut property: Value) -> Value {
    if let Some(reference) = property.get_mut("$ref")
        && let Some(name @ ("RateLimiter" | "Retention")) =
            reference.as_str().and_then(|path| path.rsplit('/').next())
    {
        *reference = format!("#/components/schemas/{name}Patch").into();
    }
    let is_null = |one: &Value| one.get("type").and_then(Value::as_str) == Some("null");
    let one_of = property.get("oneOf").and_then(Value::as_array);
    let is_nullable =
        property.pointer("/type/1").is_some() || one_of.is_some_and(|some| some.iter().any(is_null));
    if is_nullable { property } else { json!({ "oneOf": [{ "type": "null" }, property] }) }
}
