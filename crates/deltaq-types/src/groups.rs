//! The setting `groups` of a queue, and the list of its groups.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::range;
use super::{DeliveryRate, Timestamp};

/// Maximum number of groups with settings of their own.
pub const GROUP_OVERRIDES_MAX: usize = 1_000;
/// Maximum length of the name of a group, in bytes.
pub const GROUP_BYTES_MAX: usize = 256;

/// Groups of keys that take turns: each gets its share of the workers' time, however many keys it has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Groups {
    /// What names the group of a key.
    #[serde(deserialize_with = "GroupBy::deserialize")]
    pub by: GroupBy,
    /// Maximum number of keys of each group that workers hold at once; null for no limit.
    #[serde(default, deserialize_with = "range::optional_whole::<1, 1_000_000_000, _, _>")]
    #[schema(required = true, minimum = 1, maximum = 1_000_000_000)]
    pub max_leased: Option<u64>,
    /// How many keys of each group are delivered per second; null for no limit.
    #[serde(default, deserialize_with = "range::optional_table")]
    #[schema(required = true)]
    pub rate: Option<DeliveryRate>,
    /// The settings of single groups, by name. The empty name is that of the group without a name.
    #[serde(default, deserialize_with = "overrides")]
    #[schema(required = true)]
    pub overrides: BTreeMap<String, GroupOverride>,
}

/// What names the group of a key: `"/tenant"`, `"source"`, or `{"key_prefix":"/"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum GroupBy {
    /// A JSON pointer to a string or a whole number in the newest object, or "source": the source of the newest change that names one.
    #[schema(examples("/tenant"))]
    Value(String),
    /// The beginning of the key.
    KeyPrefix(KeyPrefix),
}

/// The beginning of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyPrefix {
    /// The text that ends the beginning. A key without it belongs to the group without a name.
    #[schema(min_length = 1, max_length = 256, examples("/"))]
    pub key_prefix: String,
}

/// The settings of one group. Those that are null are as for all groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupOverride {
    /// The share of the group in relation to those of the others; null for 1.
    #[serde(default, deserialize_with = "range::optional_whole::<1, 1_000, _, _>")]
    #[schema(required = true, value_type = Option<u64>, minimum = 1, maximum = 1_000)]
    pub weight: Option<u32>,
    /// Maximum number of keys of the group that workers hold at once; null for the limit of all groups.
    #[serde(default, deserialize_with = "range::optional_whole::<1, 1_000_000_000, _, _>")]
    #[schema(required = true, minimum = 1, maximum = 1_000_000_000)]
    pub max_leased: Option<u64>,
    /// How many keys of the group are delivered per second; null for the rate of all groups.
    #[serde(default)]
    #[schema(required = true)]
    pub rate: Option<DeliveryRate>,
}

impl<'de> Deserialize<'de> for GroupBy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = r#"a JSON pointer such as "/tenant", "source", or {"key_prefix":"/"}"#;
        range::whole_value(deserializer, expected, |value| match value {
            serde_json::Value::String(text) => {
                (text == "source" || range::is_pointer(&text)).then_some(Self::Value(text))
            }
            table => {
                let KeyPrefix { key_prefix } = serde_json::from_value(table).ok()?;
                let is_allowed = (1..=GROUP_BYTES_MAX).contains(&key_prefix.len());
                is_allowed.then_some(Self::KeyPrefix(KeyPrefix { key_prefix }))
            }
        })
    }
}

fn overrides<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, GroupOverride>, D::Error> {
    let expected = format!(
        r#"at most {GROUP_OVERRIDES_MAX} names of at most {GROUP_BYTES_MAX} bytes, each with any of weight, max_leased and rate, such as {{"acme":{{"weight":5}}}}"#
    );
    let texts = range::whole_value(deserializer, &expected, |value| {
        let texts: BTreeMap<String, serde_json::Value> = serde_json::from_value(value).ok()?;
        let is_allowed =
            texts.len() <= GROUP_OVERRIDES_MAX && texts.keys().all(|name| name.len() <= GROUP_BYTES_MAX);
        is_allowed.then_some(texts)
    })?;
    let mut overrides = BTreeMap::new();
    for (name, text) in texts {
        let own = serde_json::from_value(text)
            .map_err(|error| D::Error::custom(format!("invalid settings of the group {name:?}: {error}")))?;
        overrides.insert(name, own);
    }
    Ok(overrides)
}

/// The groups of a queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GroupList {
    /// The first groups.
    pub groups: Vec<GroupDocument>,
    /// Number of all groups, including the one without a name.
    pub count: u64,
    /// The sum of the weights of all groups that a pop may get a key of. The share of such a group is its weight divided by this sum.
    pub weights: u64,
    /// The version of this answer.
    pub resource_version: u64,
}

/// One group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GroupDocument {
    /// The name; null for the group without a name, which has the keys that name no group.
    #[schema(required = true)]
    pub name: Option<String>,
    /// Number of ready keys.
    pub ready: u64,
    /// Number of leases that count for the group.
    pub leased: u64,
    /// How long the first ready key has been ready; null if none is.
    #[schema(required = true)]
    pub oldest_ready_age_ms: Option<u64>,
    /// The share of the group in relation to those of the others.
    pub weight: u64,
    /// Maximum number of leases; null for no limit.
    #[schema(required = true)]
    pub max_leased: Option<u64>,
    /// Whether workers hold as many keys of the group as they may.
    pub is_full: bool,
    /// Whether the group is paused.
    pub paused: bool,
    /// While a hold stops the delivery of the group: when it ends.
    #[schema(required = true)]
    pub held_until: Option<Timestamp>,
    /// How many keys of the group are delivered per second; null for no limit.
    #[schema(required = true)]
    pub rate: Option<DeliveryRate>,
    /// While the rate stops the delivery of the group: when it lets the next key through.
    #[schema(required = true)]
    pub next_delivery_at: Option<Timestamp>,
}
