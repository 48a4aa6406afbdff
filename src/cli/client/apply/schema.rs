//! The JSON Schema of the file, made of the schemas of the API.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::thresholds::SOURCES;
use crate::http;

/// Where the description of the API has its schemas.
const PREFIX: &str = "#/components/schemas/";

/// The schema as text.
pub(super) fn text() -> String {
    format!("{:#}\n", schema())
}

fn schema() -> Value {
    let all = http::schemas();
    let mut named = BTreeMap::new();
    let mut queue = json!({ "$ref": format!("{PREFIX}GivenSettings") });
    let mut name = json!({ "$ref": format!("{PREFIX}QueueName") });
    let mut sources = sources();
    for part in [&mut queue, &mut name, &mut sources] {
        define(&all, part, &mut named);
    }
    // The settings refuse other members, so that of the sources has to be among them.
    let settings = named.get_mut("GivenSettings").and_then(|settings| settings.pointer_mut("/properties"));
    if let Some(settings) = settings.and_then(Value::as_object_mut) {
        settings.insert(SOURCES.to_owned(), sources);
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Queues of deltaq",
        "description": "The file of deltaq apply.",
        "type": "object",
        "properties": {
            "$schema": { "type": "string", "description": "The schema of this file, for editors." },
            "owner": {
                "description": "Who declares the queues. Each queue that the file creates remembers it, for --prune.",
                "$ref": "#/$defs/QueueName",
            },
            "queues": {
                "description": "The settings of each queue by its name. A setting that is left out gets its default.",
                "type": "object",
                "minProperties": 1,
                "propertyNames": name,
                "additionalProperties": { "oneOf": [{ "type": "null" }, queue] },
            },
        },
        "required": ["queues"],
        "additionalProperties": false,
        "$defs": named,
    })
}

/// The sources of a queue, which are no settings.
fn sources() -> Value {
    let source = json!({
        "type": "object",
        "properties": { "stale_after": { "oneOf": [{ "type": "null" }, { "$ref": format!("{PREFIX}Span") }] } },
        "additionalProperties": false,
    });
    json!({
        "description": "How long each source may be silent, by its name. Sources that the file does not name are left alone.",
        "type": ["object", "null"],
        "additionalProperties": { "oneOf": [{ "type": "null" }, source] },
    })
}

/// Lets the references of a schema point to `$defs`, and adds what they refer to.
fn define(all: &Map<String, Value>, schema: &mut Value, named: &mut BTreeMap<String, Value>) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::String(target)) = members.get_mut("$ref")
                && let Some(name) = target.strip_prefix(PREFIX).map(str::to_owned)
            {
                *target = format!("#/$defs/{name}");
                if !named.contains_key(&name) {
                    // The entry ends the recursion of a schema that contains itself.
                    named.insert(name.clone(), Value::Null);
                    let mut found = all.get(&name).cloned().unwrap_or_default();
                    define(all, &mut found, named);
                    named.insert(name, found);
                }
            }
            members.values_mut().for_each(|member| define(all, member, named));
        }
        Value::Array(elements) => elements.iter_mut().for_each(|element| define(all, element, named)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_has_its_definition() {
        let schema = schema();
        let text = schema.to_string();
        assert!(!text.contains(PREFIX), "{text}");
        for part in text.split("#/$defs/").skip(1) {
            let name = part.split('"').next().unwrap_or_default();
            assert!(schema["$defs"][name].is_object(), "{name}");
        }
        assert!(jsonschema::meta::is_valid(&schema));
    }

    #[test]
    fn it_knows_every_setting_and_refuses_other_names() {
        let validator = jsonschema::validator_for(&schema()).unwrap();
        let settings = serde_json::to_value(deltaq_engine::config::Config::default().document()).unwrap();
        assert!(validator.is_valid(&json!({"owner": "shop", "queues": {"a": settings, "b": null, "c": {}}})));
        let sources = json!({"erp": {"stale_after": "15m"}, "a": {"stale_after": null}, "b": null});
        assert!(validator.is_valid(&json!({"queues": {"a": {"sources": sources}}})));
        for wrong in [
            json!({}),
            json!({"queues": {"a": {"sources": {"erp": {"stale_for": "15m"}}}}}),
            json!({"queues": {}}),
            json!({"queues": {"A": {}}}),
            json!({"queues": {"a": {"leese": "1m"}}}),
            json!({"queues": {"a": {"retention": {"bits": 1}}}}),
            json!({"queues": {"a": {"mode": "newest"}}}),
            json!({"queues": {"a": {}}, "owner": 5}),
            json!({"queues": {"a": {}}, "queue": {}}),
        ] {
            assert!(!validator.is_valid(&wrong), "{wrong}");
        }
    }
}
