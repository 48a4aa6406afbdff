//! Parts of replies that several commands read.

use deltaq_types::{Timestamp, UnavailableQueue};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::failure::Failure;

/// Reads a part of a reply.
pub(super) fn parse<T: DeserializeOwned>(text: &RawValue) -> Result<T, Failure> {
    serde_json::from_str(text.get()).map_err(|source| Failure::Client(deltaq_client::Error::Reply { source }))
}

/// The reply to a pop, with the texts of the items.
#[derive(Debug, Deserialize)]
pub(super) struct PoppedTexts {
    pub(super) items: Vec<Box<RawValue>>,
    #[serde(default)]
    pub(super) closed: bool,
    #[serde(default)]
    pub(super) paused: bool,
    #[serde(default)]
    pub(super) held_until: Option<Timestamp>,
}

/// A page of a list, with its entries as text.
#[derive(Debug, Deserialize)]
pub(super) struct PageTexts {
    pub(super) items: Vec<Box<RawValue>>,
    #[serde(rename = "continue")]
    pub(super) next: Option<String>,
    /// Only in the list of queues.
    #[serde(default)]
    pub(super) unavailable: Vec<UnavailableQueue>,
    /// Only in the activity: nodes whose entries are missing.
    #[serde(default)]
    pub(super) missing_nodes: Vec<String>,
}
