//! The schemas of replies say everything in one way: words, instants, lengths, members, lists, examples.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// Words that the types of deltas and rows have from client-go.
const PASCAL_CASE: [&str; 8] =
    ["Added", "Updated", "Deleted", "Replaced", "Sync", "Bookmark", "Error", "Expired"];
/// The settings of a queue are the document that a caller sends: lengths are texts, and what is not set may be absent.
const SETTINGS: [&str; 16] = [
    "Bucket",
    "Debounce",
    "DeliveryRate",
    "DetailedKeyPart",
    "Follow",
    "FollowedView",
    "HeadStartOrder",
    "ItemExponential",
    "ItemFastSlow",
    "KeyPart",
    "Order",
    "PriorityOrder",
    "Push",
    "QueueSettings",
    "RateLimiter",
    "Retention",
];
/// Documents of which the parameter `fields` may leave out any member.
const SELECTABLE: [&str; 3] = ["ItemDocument", "ObjectDocument", "QueueDocument"];
/// Members that are absent without a value, which the items of a pop leave out, and those that only an extension or only the other settles
/// have.
const ABSENT: [(&str, &str); 18] = [
    ("DeltaDocument", "coalesced"),
    ("DeltaDocument", "final_state_unknown"),
    ("DeltaDocument", "source"),
    ("DeltaDocument", "traceparent"),
    ("DiffOperation", "old"),
    ("DiffOperation", "value"),
    ("Popped", "held_until"),
    ("PoppedItem", "diff"),
    ("PoppedItem", "diff_omitted"),
    ("PoppedItem", "known"),
    ("SettledDocument", "deleted"),
    ("SettledDocument", "due_at"),
    ("SettledDocument", "expires_at"),
    ("SettledDocument", "expires_in_ms"),
    ("SettledDocument", "held_until"),
    ("SettledDocument", "failures"),
    ("SettledDocument", "parked"),
    ("SettledDocument", "pending_deltas"),
];

fn document() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/openapi.json");
    serde_json::from_str(&std::fs::read_to_string(path).expect("the document is there")).expect("JSON")
}

/// The names of the schemas that a part of the document refers to.
fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Array(all) => all.iter().for_each(|one| references(one, found)),
        Value::Object(members) => {
            if let Some(Value::String(path)) = members.get("$ref") {
                found.extend(path.rsplit('/').next().map(str::to_owned));
            }
            members.values().for_each(|one| references(one, found));
        }
        _ => {}
    }
}

fn operations(document: &Value) -> impl Iterator<Item = &Value> {
    let paths = document["paths"].as_object().expect("paths").values();
    paths.flat_map(|path| path.as_object().expect("operations").values())
}

/// The schemas of all replies, by name.
fn replies(document: &Value) -> BTreeMap<String, Value> {
    let (mut open, mut replies) = (BTreeSet::new(), BTreeMap::new());
    references(&document["components"]["responses"], &mut open);
    operations(document).for_each(|operation| references(&operation["responses"], &mut open));
    while let Some(name) = open.pop_first() {
        let schema = &document["components"]["schemas"][&name];
        if !schema.is_null() && replies.insert(name, schema.clone()).is_none() {
            let mut within = BTreeSet::new();
            references(schema, &mut within);
            open.extend(within.into_iter().filter(|name| !replies.contains_key(name)));
        }
    }
    assert!(replies.len() > 50, "{:?}", replies.keys());
    replies
}

/// The members of all objects in the schemas of replies: the name of the schema, that of the member, and whether it is required.
fn members(schemas: &BTreeMap<String, Value>) -> Vec<(&str, &str, &Value, bool)> {
    let mut members = Vec::new();
    for (name, schema) in schemas {
        let alternatives = schema["allOf"].as_array().into_iter().flatten();
        for object in alternatives.chain([schema]) {
            let required = object["required"].as_array().cloned().unwrap_or_default();
            for (member, schema) in object["properties"].as_object().into_iter().flatten() {
                let is_required = required.contains(&json!(member));
                members.push((name.as_str(), member.as_str(), schema, is_required));
            }
        }
    }
    members
}

fn enumerations<'v>(schema: &'v Value, found: &mut Vec<&'v Value>) {
    match schema {
        Value::Array(all) => all.iter().for_each(|one| enumerations(one, found)),
        Value::Object(members) => {
            for (name, value) in members {
                if name == "enum" { found.push(value) } else { enumerations(value, found) }
            }
        }
        _ => {}
    }
}

fn is_word(text: &str, separator: u8) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == separator;
    text.bytes().next().is_some_and(|first| first.is_ascii_lowercase()) && text.bytes().all(is_allowed)
}

/// Readers of the document have no documents of Rust.
#[test]
fn no_text_has_a_link_into_the_code() {
    let text = document().to_string();
    for link in ["](crate", "](super", "](Self", "[`"] {
        assert!(!text.contains(link), "docs/openapi.json has {link:?}");
    }
}

#[test]
fn values_of_replies_are_in_snake_case_except_those_of_client_go_and_codes() {
    let document = document();
    for (name, schema) in &replies(&document) {
        let mut found = Vec::new();
        enumerations(schema, &mut found);
        for value in found.into_iter().flat_map(|values| values.as_array().expect("values")) {
            let value = value.as_str().expect("a text");
            let is_allowed = match name.as_str() {
                "ProblemName" => is_word(value, b'-'),
                _ => is_word(value, b'_') || PASCAL_CASE.contains(&value),
            };
            assert!(is_allowed, "{name}: {value}");
        }
    }
}

/// Lengths that a reply repeats as the text in which they were set.
const REPEATED: [(&str, &str); 2] = [("SourceDocument", "stale_after"), ("ReflectorDocument", "interval")];

#[test]
fn instants_end_in_at_and_lengths_in_ms() {
    let document = document();
    let schemas = replies(&document);
    let (mut instants, mut lengths) = (0, 0);
    for (name, member, schema, _) in members(&schemas) {
        let mut referred = BTreeSet::new();
        references(schema, &mut referred);
        if referred.contains("Timestamp") || schema["format"] == "date-time" {
            instants += 1;
            let is_named = ["at", "held_until"].contains(&member) || member.ends_with("_at");
            assert!(is_named, "{name}.{member} is an instant");
        }
        if SETTINGS.contains(&name) || REPEATED.contains(&(name, member)) {
            continue;
        }
        let formats = referred.iter().map(|name| &schemas[name]["format"]).chain([&schema["format"]]);
        for format in formats.filter_map(Value::as_str) {
            assert!(!format.starts_with("duration"), "{name}.{member} is a length as text");
        }
        let description = schema["description"].as_str().unwrap_or_default().to_lowercase();
        let tells = ["millisecond", "how long", "longest wait", "longest lease"];
        if tells.iter().any(|words| description.contains(words)) {
            lengths += 1;
            assert!(member.ends_with("_ms"), "{name}.{member} is a length");
        }
    }
    assert!(instants > 10 && lengths > 6, "{instants} instants and {lengths} lengths");
}

#[test]
fn every_member_of_a_reply_is_always_there() {
    let document = document();
    let schemas = replies(&document);
    for (name, member, _, is_required) in members(&schemas) {
        if name == "ProblemDocument" || SETTINGS.contains(&name) {
            continue;
        }
        let may_be_absent = SELECTABLE.contains(&name) || ABSENT.contains(&(name, member));
        assert_eq!(is_required, !may_be_absent, "{name}.{member}");
    }
}

#[test]
fn a_list_in_a_reply_is_never_null() {
    let document = document();
    let schemas = replies(&document);
    let mut lists = 0;
    for (name, member, schema, _) in members(&schemas) {
        let types = &schema["type"];
        if types == "array" {
            lists += 1;
        }
        // Each of these belongs to some problems, or to one kind of call, or is a list that is left out.
        let is_optional =
            name == "ProblemDocument" || member == "diff" || (name, member) == ("Produced", "keys");
        let is_nullable = types.as_array().is_some_and(|types| types.contains(&json!("array")));
        assert!(!is_nullable || is_optional, "{name}.{member} may be null");
    }
    assert!(lists > 10, "{lists} lists");
}

#[test]
fn lists_have_the_same_members_and_parameters() {
    let document = document();
    let mut lists = 0;
    for operation in operations(&document) {
        let content = &operation["responses"]["200"]["content"]["application/json"]["schema"];
        let name = content["$ref"].as_str().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
        let schema = &document["components"]["schemas"][name];
        if schema["properties"]["items"].is_null() || name == "Popped" {
            continue;
        }
        lists += 1;
        for member in ["items", "continue", "resource_version"] {
            assert!(
                schema["required"].as_array().expect("members").contains(&json!(member)),
                "{name}.{member}"
            );
        }
        let parameters: Vec<_> =
            operation["parameters"].as_array().expect("parameters").iter().map(|one| &one["name"]).collect();
        for parameter in ["limit", "continue"] {
            assert!(parameters.contains(&&json!(parameter)), "{}: {parameter}", operation["operationId"]);
        }
    }
    assert!(lists >= 12, "{lists} lists");
}

#[test]
fn rows_and_events_tell_their_kind() {
    let document = document();
    let schemas = &document["components"]["schemas"];
    for (name, tag) in [("WatchRow", "type"), ("EventDocument", "event")] {
        assert_eq!(schemas[name]["discriminator"]["propertyName"], tag);
        let mapping = schemas[name]["discriminator"]["mapping"].as_object().expect("a mapping");
        assert_eq!(Some(mapping.len()), schemas[name]["oneOf"].as_array().map(Vec::len));
        for (word, path) in mapping {
            let kind = &schemas[path.as_str().and_then(|path| path.rsplit('/').next()).expect("a name")];
            assert_eq!(kind["properties"][tag]["enum"], json!([word]));
        }
    }
}

#[test]
fn examples_satisfy_their_schemas() {
    let document = document();
    let mut examples = 0;
    for operation in operations(&document) {
        for part in [&operation["requestBody"], &operation["responses"]["200"]] {
            let content = &part["content"]["application/json"];
            let Some(example) = content.get("example") else { continue };
            examples += 1;
            let mut schema = content["schema"].clone();
            schema["components"] = document["components"].clone();
            let validator = jsonschema::validator_for(&schema).expect("a schema");
            let errors: Vec<String> = validator.iter_errors(example).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{}: {errors:?}", operation["operationId"]);
        }
    }
    assert!(examples > 30, "{examples} examples");
}
