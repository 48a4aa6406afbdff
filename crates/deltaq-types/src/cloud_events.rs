//! The setting `cloudevents` of a queue: how CloudEvents become changes.

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::range;

/// Maximum number of endings.
const ENDINGS_MAX: usize = 16;
/// Maximum length of an ending in bytes.
const ENDING_BYTES_MAX: usize = 256;

/// How CloudEvents become changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CloudEvents {
    /// What of an event is stored.
    #[serde(default)]
    #[schema(required = true)]
    pub store: StoredPart,
    /// The endings of the types of events that delete their key, at most 16.
    #[serde(default = "deleted", deserialize_with = "endings")]
    #[schema(required = true, max_items = 16)]
    pub deleted: Vec<String>,
}

/// What of a CloudEvent is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StoredPart {
    /// The member `data`.
    #[default]
    Data,
    /// The whole event, in the form of `application/cloudevents+json`.
    Event,
}

impl Default for CloudEvents {
    fn default() -> Self {
        Self { store: StoredPart::Data, deleted: deleted() }
    }
}

fn deleted() -> Vec<String> {
    vec![".deleted".to_owned()]
}

fn endings<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let expected = format!("a list of at most {ENDINGS_MAX} endings of types such as [\".deleted\"]");
    range::whole_value(deserializer, &expected, |value| {
        let endings: Vec<String> = serde_json::from_value(value).ok()?;
        let are_texts = endings.iter().all(|ending| (1..=ENDING_BYTES_MAX).contains(&ending.len()));
        (are_texts && endings.len() <= ENDINGS_MAX).then_some(endings)
    })
}
