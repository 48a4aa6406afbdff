//! The setting `order` of a queue.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::duration::{DurationText, SignedDuration};
use super::range::{self, HOUR};
use super::terms::{HeadStart, JsonPointer, Span};

/// Which ready key is delivered first: the one with the earliest arrival minus its head start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Order {
    /// The objects have their head start; null if they have none.
    #[serde(default, deserialize_with = "range::optional_table")]
    #[schema(required = true)]
    pub head_start: Option<HeadStartOrder>,
    /// The objects have a priority; null if they have none. Not together with `head_start`.
    #[serde(default, deserialize_with = "range::optional_table")]
    #[schema(required = true)]
    pub priority: Option<PriorityOrder>,
    /// The head start of the objects of the initial list, from -7d to 7d; null for that of each object.
    #[serde(default, deserialize_with = "range::optional_head_start")]
    #[schema(required = true, value_type = Option<HeadStart>)]
    pub initial_list: Option<SignedDuration>,
    /// The head start of a Resync, from -7d to 7d; null for that of each object.
    #[serde(default, deserialize_with = "range::optional_head_start")]
    #[schema(required = true, value_type = Option<HeadStart>)]
    pub resync: Option<SignedDuration>,
}

/// Where an object has its head start: how much earlier than it did it counts as arrived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeadStartOrder {
    /// The JSON pointer to a duration from -7d to 7d.
    #[schema(value_type = JsonPointer, examples("/urgent_for"))]
    pub pointer: String,
    /// The head start of an object without one.
    #[serde(default, deserialize_with = "range::head_start")]
    #[schema(required = true, value_type = HeadStart)]
    pub default: SignedDuration,
}

/// Where an object has its priority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PriorityOrder {
    /// The JSON pointer to a whole number from -100 to 100; an object without one has 0.
    #[schema(value_type = JsonPointer, examples("/priority"))]
    pub pointer: String,
    /// The head start for each unit of the priority, at most 1h; null if a key waits until no key with a higher priority is ready.
    #[serde(default, deserialize_with = "range::optional_span::<1, HOUR, _>")]
    #[schema(required = true, value_type = Option<Span>)]
    pub step: Option<DurationText>,
}
