//! The differences between two documents of settings: as lines for people, and as a merge patch (RFC 7396).

use std::fmt;

use serde::Serialize;

use super::exact::{Exact, Members};

/// A setting that changes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Change {
    /// The name of the setting, with a dot before each member: `retention.age`.
    setting: String,
    before: Exact,
    after: Exact,
    /// Whether the file leaves the setting out, so that it gets its default.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    left_out: bool,
}

impl Change {
    /// A change to a value of the file.
    pub(super) fn new(setting: String, before: Exact, after: Exact) -> Self {
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
pub(super) fn changes(before: &Members, after: &Members, given: &Members) -> Vec<Change> {
    let mut changes = Vec::new();
    add_changes("", before, after, &mut changes);
    for change in &mut changes {
        let name = change.setting.split('.').next().unwrap_or_default();
        change.left_out = !given.contains(name);
    }
    changes
}

/// A member of two objects: its name, and its values before and after.
type Pair<'m> = (&'m str, Option<&'m Exact>, Option<&'m Exact>);

/// The members of both objects that differ.
fn differing<'m>(before: &'m Members, after: &'m Members) -> impl Iterator<Item = Pair<'m>> {
    let (values_before, values_after) = (before.by_name(), after.by_name());
    let stays = move |(name, value)| (name, values_before.get(name).copied(), Some(value));
    let gone = before.iter().filter(move |(name, _)| !values_after.contains_key(name));
    let all = after.iter().map(stays).chain(gone.map(|(name, value)| (name, Some(value), None)));
    all.filter(|(_, before, after)| before != after)
}

fn add_changes(path: &str, before: &Members, after: &Members, changes: &mut Vec<Change>) {
    for (name, before, after) in differing(before, after) {
        let setting = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        if let (Some(Exact::Object(before)), Some(Exact::Object(after))) = (before, after) {
            add_changes(&setting, before, after, changes);
        } else {
            let value = |value: Option<&Exact>| value.cloned().unwrap_or_default();
            changes.push(Change::new(setting, value(before), value(after)));
        }
    }
}

/// The patch that makes the settings `after` of those before.
pub(super) fn merge_patch(before: &Members, after: &Members) -> Members {
    let patch = |(name, before, after): Pair<'_>| {
        let value = match (before, after) {
            // A PATCH replaces a schema as a whole, because null has a meaning in it.
            (Some(Exact::Object(before)), Some(Exact::Object(after))) if name != "schema" => {
                Exact::Object(merge_patch(before, after))
            }
            (_, after) => after.cloned().unwrap_or_default(),
        };
        (name.to_owned(), value)
    };
    differing(before, after).map(patch).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::exact::members;
    use super::*;

    #[test]
    fn a_change_names_the_innermost_member() {
        let before = members(
            &json!({"lease": "30s", "rate": {"per_second": 1.0, "burst": 2}, "order": null, "indexes": {"a": "/a"}}),
        );
        let after = members(
            &json!({"lease": "1m", "rate": {"per_second": 1.0, "burst": 3}, "order": {"x": 1}, "indexes": {}}),
        );
        let given = members(&json!({"lease": "60s", "rate": {}, "order": {}}));
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
        let before = members(
            &json!({"a": 1, "b": {"c": 1, "d": 2}, "schema": {"x": 1, "y": {"z": 1}}, "e": {"f": 1}}),
        );
        let after = members(&json!({"a": 1, "b": {"d": 3}, "schema": {"y": {"z": 1}}, "e": null}));
        let patch = merge_patch(&before, &after);
        assert_eq!(patch, members(&json!({"b": {"d": 3, "c": null}, "schema": {"y": {"z": 1}}, "e": null})));
        assert_eq!(merge_patch(&after, &after), Members::default());
    }

    #[test]
    fn numbers_are_compared_by_their_values_and_sent_with_all_digits() {
        let object = |text: &str| serde_json::from_str::<Members>(text).unwrap();
        let before = object(r#"{"schema":{"maximum":4.90,"minimum":12345678901234567890123}}"#);
        let same = object(r#"{"schema":{"minimum":12345678901234567890123,"maximum":4.9}}"#);
        assert_eq!(changes(&before, &same, &same), []);
        let after = object(r#"{"schema":{"maximum":1e400,"minimum":12345678901234567890124}}"#);
        let patch = Exact::Object(merge_patch(&before, &after)).to_string();
        assert_eq!(patch, r#"{"schema":{"maximum":1e400,"minimum":12345678901234567890124}}"#);
        let lines: Vec<String> = changes(&before, &after, &after).iter().map(Change::to_string).collect();
        let expected = [
            "schema.maximum: 4.90 -> 1e400",
            "schema.minimum: 12345678901234567890123 -> 12345678901234567890124",
        ];
        assert_eq!(lines, expected);
    }
}
