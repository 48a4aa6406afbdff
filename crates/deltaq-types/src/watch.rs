//! Rows of a watch.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ProblemDocument, RawObject, RowType};

/// A row of a watch: a change of a key, or a message about the watch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WatchRow {
    /// `Added`, `Updated` or `Deleted` for a key, else `Bookmark` or `Error`.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    pub kind: RowType,
    /// The key; absent in `Bookmark` and `Error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The version of the key in the view or, in a `Bookmark`, up to which the watch has sent everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<u64>,
    /// The object; of a deleted key the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<RawObject>,
    /// The source that owns the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Of a deleted key: true if the object is absent or may be older than the key's last state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_state_unknown: Option<bool>,
    /// True in the `Bookmark` that follows the keys which the view had at the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_events_end: Option<bool>,
    /// The problem that ends the watch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ProblemDocument>)]
    pub problem: Option<ProblemDocument>,
}
