//! A list in a reply is always a list: it is never null, and never absent where it would be empty.

use std::collections::BTreeSet;

use serde_json::Value;

/// Lists that are absent for a reason other than being empty.
const WITHOUT: [(&str, &str); 4] = [
    // Only with rate_limited.
    ("Produced", "keys"),
    // Each belongs to some problems.
    ("ProblemDocument", "errors"),
    ("ProblemDocument", "settled"),
    ("ProblemDocument", "leases"),
];

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

fn is_list(schema: &Value) -> bool {
    let types = &schema["type"];
    types == "array" || types.as_array().is_some_and(|types| types.contains(&Value::from("array")))
}

#[test]
fn every_list_of_a_reply_is_required_and_not_null() {
    let text = include_str!("../../../docs/openapi.json");
    let document: Value = serde_json::from_str(text).expect("JSON");
    let operations = document["paths"].as_object().expect("paths").values();
    let operations = operations.flat_map(|path| path.as_object().expect("operations").values());
    let mut open = BTreeSet::new();
    references(&document["components"]["responses"], &mut open);
    operations.for_each(|operation| references(&operation["responses"], &mut open));
    let (mut replies, mut lists) = (BTreeSet::new(), 0);
    while let Some(name) = open.pop_first() {
        let schema = &document["components"]["schemas"][&name];
        if replies.insert(name.clone()) {
            let mut within = BTreeSet::new();
            references(schema, &mut within);
            open.extend(within.difference(&replies).cloned());
        }
        let Some(members) = schema["properties"].as_object() else { continue };
        for (member, _) in members.iter().filter(|(_, schema)| is_list(schema)) {
            lists += 1;
            let required = schema["required"].as_array().expect("required members");
            let may_be_absent = WITHOUT.contains(&(name.as_str(), member));
            assert_eq!(required.contains(&Value::from(member.as_str())), !may_be_absent, "{name}.{member}");
            assert!(members[member]["type"] == "array" || may_be_absent, "{name}.{member} may be null");
        }
    }
    assert!(lists > 10, "{lists} lists in {replies:?}");
}
