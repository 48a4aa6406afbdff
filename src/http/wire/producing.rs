//! What producers send and are told.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{ReplaceCounts, strict};
use crate::engine::command;
use crate::http::openapi::terms;

/// What a produce call did.
#[derive(Debug, Serialize, ToSchema)]
pub struct Produced {
    /// The queue's newest event after it.
    pub resource_version: u64,
    /// Calls that were accepted.
    pub queued: u64,
    /// Calls that were ignored.
    pub ignored: u64,
}

impl From<command::Produced> for Produced {
    fn from(produced: command::Produced) -> Self {
        let command::Produced { resource_version, queued, ignored } = produced;
        Self { resource_version, queued, ignored }
    }
}

/// What a Replace did, or would do.
#[derive(Debug, Serialize, ToSchema)]
pub struct Replaced {
    /// The queue's newest event after it.
    pub resource_version: u64,
    /// Deltas that were queued: `replaced` and `deleted` together.
    pub queued: u64,
    /// Always 0: what a Replace leaves alone is `unchanged` or `skipped`.
    pub ignored: u64,
    /// The counts.
    #[serde(flatten)]
    pub counts: ReplaceCounts,
}

impl From<command::Replaced> for Replaced {
    fn from(replaced: command::Replaced) -> Self {
        let counts = replaced.counts;
        Self {
            resource_version: replaced.resource_version,
            queued: counts.replaced + counts.deleted,
            ignored: 0,
            counts: counts.into(),
        }
    }
}

/// One entry of a mixed batch.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeltaCall<'a> {
    /// `Added`, `Updated` or `Deleted`.
    #[serde(rename = "type", deserialize_with = "strict::word")]
    pub kind: DeltaCallKind,
    /// The key; must equal the object's own if it carries one.
    #[serde(default)]
    #[schema(value_type = Option<terms::Key>)]
    pub key: Option<String>,
    /// The object; a Deleted with a key may leave it out.
    #[serde(borrow, default)]
    #[schema(value_type = Option<terms::RawObject>)]
    pub object: Option<&'a RawValue>,
    /// Who produces it.
    #[serde(default)]
    #[schema(value_type = Option<terms::Label>)]
    pub source: Option<String>,
    /// Time until the change may be delivered.
    #[serde(default)]
    #[schema(value_type = Option<terms::Delay>)]
    pub delay: Option<String>,
    /// With Deleted only: a deletion that was inferred.
    #[serde(default)]
    pub final_state_unknown: bool,
}

/// The kinds of delta that a producer may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
pub enum DeltaCallKind {
    /// It was added.
    Added,
    /// It was changed.
    Updated,
    /// It was deleted.
    Deleted,
}

/// A known object to put in place.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SeedCall<'a> {
    /// The key; must equal the object's own if it carries one.
    #[serde(default)]
    #[schema(value_type = Option<terms::Key>)]
    pub key: Option<String>,
    /// Who owns the key.
    #[serde(default)]
    #[schema(value_type = Option<terms::Label>)]
    pub source: Option<String>,
    /// The rv of an exported object; read and not used.
    #[serde(default, deserialize_with = "strict::whole")]
    #[schema(value_type = Option<terms::Count>)]
    pub resource_version: Option<u64>,
    /// The object.
    #[serde(borrow)]
    #[schema(value_type = terms::RawObject)]
    pub object: &'a RawValue,
}

/// Keys to forget.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForgetBody {
    /// The keys.
    #[serde(deserialize_with = "strict::texts")]
    #[schema(value_type = Vec<terms::Key>)]
    pub keys: Vec<String>,
}

/// How many keys a call touched.
#[derive(Debug, Serialize, ToSchema)]
pub struct KeysCount {
    /// Keys.
    pub keys: u64,
}
