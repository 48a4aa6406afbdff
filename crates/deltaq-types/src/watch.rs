//! Rows of a watch.

use serde::ser::{SerializeMap as _, Serializer};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::kinds::Members;
use super::{ProblemDocument, RawObject, RowType};

// `RowType::members` says which members the rows of a type have.
/// A row of a watch: a change of a key, or a message about the watch. Its type determines its members.
#[derive(Clone, Debug, PartialEq, Deserialize, ToSchema)]
pub struct WatchRow {
    /// The type of the row.
    #[serde(rename = "type")]
    pub kind: RowType,
    /// The key.
    #[serde(default)]
    pub key: Option<String>,
    /// The version of the key in the view. In a `Bookmark`: the version up to which the watch has sent everything. In an `Expired`: the version
    /// after which the watch continues, or 0 if all keys follow.
    #[serde(default)]
    pub resource_version: Option<u64>,
    /// The object; for a deleted key, its last object.
    #[serde(default)]
    pub object: Option<RawObject>,
    /// The source that owns the key.
    #[serde(default)]
    pub source: Option<String>,
    /// For a deleted key: true if the object is absent or may be older than the key's last state.
    #[serde(default)]
    pub final_state_unknown: Option<bool>,
    /// True in the first `Bookmark` after the initial keys of the view.
    #[serde(default)]
    pub initial_events_end: Option<bool>,
    /// The problem that ends the watch; in an `Expired`, why the position can't be continued.
    #[serde(default)]
    pub problem: Option<ProblemDocument>,
}

impl RowType {
    /// The members of the rows of this type, in addition to `type`.
    #[must_use]
    pub const fn members(self) -> Members {
        let (present, nullable): (&[_], &[_]) = match self {
            Self::Added | Self::Updated => (&["key", "resource_version", "object"], &["source"]),
            Self::Deleted => (&["key", "resource_version", "final_state_unknown"], &["object", "source"]),
            Self::Bookmark => (&["resource_version", "initial_events_end"], &[]),
            Self::Error => (&["problem"], &[]),
            Self::Expired => (&["resource_version", "problem"], &[]),
            Self::Unrecognized => (&[], &[]),
        };
        Members { present, nullable }
    }
}

impl Serialize for WatchRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", &self.kind)?;
        for name in self.kind.members().names() {
            match name {
                "key" => map.serialize_entry(name, &self.key)?,
                "resource_version" => map.serialize_entry(name, &self.resource_version)?,
                "object" => map.serialize_entry(name, &self.object)?,
                "source" => map.serialize_entry(name, &self.source)?,
                "final_state_unknown" => map.serialize_entry(name, &self.final_state_unknown)?,
                "initial_events_end" => map.serialize_entry(name, &self.initial_events_end)?,
                "problem" => map.serialize_entry(name, &self.problem)?,
                _ => {}
            }
        }
        map.end()
    }
}
