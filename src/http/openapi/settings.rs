//! The schema of the body that changes the settings of a queue, derived from the schema of the settings.

use serde_json::{Map, Value, json};

/// Parts of the settings in which the server refuses unknown fields.
const PARTS: [&str; 5] = ["ItemExponential", "ItemFastSlow", "Bucket", "DetailedKeyPart", "Follow"];
/// Parts of the settings in which null stands for a default.
const NULLABLE: [&str; 2] = ["RateLimiter", "Retention"];

/// The schema of a PUT: any of the settings, or null for the default.
pub(super) fn patch(schemas: &mut Map<String, Value>) -> Value {
    for name in PARTS {
        if let Some(part) = schemas.get_mut(name).and_then(Value::as_object_mut) {
            part.insert("additionalProperties".to_owned(), false.into());
        }
    }
    if let Some(pointer) = schemas.get_mut("KeyPart").and_then(|part| part.pointer_mut("/oneOf/0")) {
        *pointer = super::reference::reference("JsonPointer");
    }
    for name in NULLABLE {
        let patch = schemas.get(name).map(patch_of);
        schemas.insert(format!("{name}Patch"), patch.unwrap_or_default());
    }
    let mut patch = schemas.get("QueueConfig").map(patch_of).unwrap_or_default();
    // A single pointer needs no list.
    if let Some(key) = patch.pointer_mut("/properties/key/oneOf").and_then(Value::as_array_mut) {
        key.push(super::reference::reference("JsonPointer"));
    }
    patch
}

/// The same properties, all optional and nullable.
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
        && let Some(name) = reference.as_str().and_then(|path| path.rsplit('/').next())
        && NULLABLE.contains(&name)
    {
        *reference = format!("#/components/schemas/{name}Patch").into();
    }
    let is_null = |one: &Value| one.get("type").and_then(Value::as_str) == Some("null");
    let one_of = property.get("oneOf").and_then(Value::as_array);
    let is_nullable =
        property.pointer("/type/1").is_some() || one_of.is_some_and(|some| some.iter().any(is_null));
    if is_nullable { property } else { json!({ "oneOf": [{ "type": "null" }, property] }) }
}
