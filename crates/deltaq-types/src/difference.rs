//! The difference between the known and the newest object of a key.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

use super::{DiffOp, RawJson};

/// One operation of a JSON patch (RFC 6902), with the value that it replaces or removes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiffOperation {
    /// The operation.
    pub op: DiffOp,
    /// A JSON pointer (RFC 6901) to the value.
    pub path: String,
    /// The new value; absent from `remove`.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = RawJson)]
    pub value: Option<RawJson>,
    /// The value before; absent from `add`.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = RawJson)]
    pub old: Option<RawJson>,
}

/// The member `diff` of a key: the operations that turn the known object into the newest one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Difference {
    /// The call did not ask for it: the member is absent.
    #[default]
    Absent,
    /// There is none: the key has no known object, the newest change is a deletion, or it is too large. The member is null.
    Null,
    /// The operations, in their order.
    Operations(Vec<DiffOperation>),
}

impl Difference {
    /// Whether the member is absent.
    #[must_use]
    pub const fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// The operations, if there are any.
    #[must_use]
    pub fn operations(&self) -> Option<&[DiffOperation]> {
        if let Self::Operations(operations) = self { Some(operations) } else { None }
    }
}

impl Serialize for Difference {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.operations().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Difference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(deserializer)?.map_or(Self::Null, Self::Operations))
    }
}

/// A member that is present, also with the value null.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<RawJson>, D::Error> {
    RawJson::deserialize(deserializer).map(Some)
}
