//! The differences between two documents of settings: as lines for people, and as a merge patch (RFC 7396).

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

/// A setting that changes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Change {
    /// The name of the setting, with a dot before each member: `retention.age`.
    setting: String,
    before: Value,
    after: Value,
    /// Whether the file leaves the setting out, so that it gets its default.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    left_out: bool,
}

impl Change {
    /// A change to a value of the file.
    pub(super) fn new(setting: String, before: Value, after: Value) -> Self {
        Self { setting, before, after, left_out: false }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} -> {}", self.setting, self.before, self.after)?;
        if self.left_out { f.write_str(" (left out: the default)") } else { Ok(()) }
    }
}

/// The settings that differ. `given` are those of the file.
pub(super) fn changes(
    before: &Map<String, Value>,
    after: &Map<String, Value>,
    given: &Map<String, Value>,
) -> Vec<Change> {
    let mut changes = Vec::new();
    add_changes("", before, after, &mut changes);
    for change in &mut changes {
        let name = change.setting.split('.').next().unwrap_or_default();
        change.left_out = !given.contains_key(name);
    }
    changes
}

/// The members of both objects that differ: their name, and their values before and after.
fn differing<'m>(
    before: &'m Map<String, Value>,
    after: &'m Map<String, Value>,
) -> impl Iterator<Item = (&'m String, Option<&'m Value>, Option<&'m Value>)> {
    let removed = before.keys().filter(|name| !after.contains_key(*name));
    let names = after.keys().chain(removed);
    names.map(|name| (name, before.get(name), after.get(name))).filter(|(_, before, after)| before != after)
}

fn add_changes(
    path: &str,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
    changes: &mut Vec<Change>,
) {
    for (name, before, after) in differing(before, after) {
        let setting = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        if let (Some(Value::Object(before)), Some(Value::Object(after))) = (before, after) {
            add_changes(&setting, before, after, changes);
        } else {
            let value = |value: Option<&Value>| value.cloned().unwrap_or_default();
            changes.push(Change::new(setting, value(before), value(after)));
        }
    }
}

/// The patch that makes the settings `after` of those before.
pub(super) fn merge_patch(before: &Map<String, Value>, after: &Map<String, Value>) -> Map<String, Value> {
    let patch = |(name, before, after): (&String, Option<&Value>, Option<&Value>)| {
        let value = match (before, after) {
            // A PATCH replaces a schema as a whole, because null has a meaning in it.
            (Some(Value::Object(before)), Some(Value::Object(after))) if name != "schema" => {
                Value::Object(merge_patch(before, after))
            }
            (_, after) => after.cloned().unwrap_or_default(),
        };
        (name.clone(), value)
    };
    differing(before, after).map(patch).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        let Value::Object(members) = value else { panic!("{value}") };
        members
    }

    #[test]
    fn a_change_names_the_innermost_member() {
        let before = object(
            json!({"lease": "30s", "rate": {"per_second": 1.0, "burst": 2}, "order": null, "indexes": {"a": "/a"}}),
        );
        let after = object(
            json!({"lease": "1m", "rate": {"per_second": 1.0, "burst": 3}, "order": {"x": 1}, "indexes": {}}),
        );
        let given = object(json!({"lease": "60s", "rate": {}, "order": {}}));
        let lines: Vec<String> = changes(&before, &after, &given).iter().map(Change::to_string).collect();
        assert_eq!(
            lines,
            [
                r#"lease: "30s" -> "1m""#,
                "rate.burst: 2 -> 3",
                r#"order: null -> {"x":1}"#,
                r#"indexes.a: "/a" -> null (left out: the default)"#
            ]
        );
    }

    #[test]
    fn a_patch_has_what_differs_and_null_for_what_is_gone() {
        let before =
            object(json!({"a": 1, "b": {"c": 1, "d": 2}, "schema": {"x": 1, "y": {"z": 1}}, "e": {"f": 1}}));
        let after = object(json!({"a": 1, "b": {"d": 3}, "schema": {"y": {"z": 1}}, "e": null}));
        let patch = merge_patch(&before, &after);
        assert_eq!(
            Value::Object(patch),
            json!({"b": {"d": 3, "c": null}, "schema": {"y": {"z": 1}}, "e": null})
        );
        assert_eq!(merge_patch(&after, &after), Map::new());
    }
}
