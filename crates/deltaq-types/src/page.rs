//! Lists.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::UnavailableQueue;

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    /// The entries.
    pub items: Vec<T>,
    /// The `continue` parameter of the next page; null on the last page.
    #[serde(rename = "continue")]
    #[schema(required = true)]
    pub next: Option<String>,
    /// The number of the queue's newest event when the page was read.
    pub resource_version: u64,
}

/// A page of a list over all queues that the caller may read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PageOfQueues<T> {
    /// The entries, in the order of the names of their queues, then of their own names.
    pub items: Vec<T>,
    /// The queues of this page that currently can't be read. Their entries are not in `items`.
    pub unavailable: Vec<UnavailableQueue>,
    /// The `continue` parameter of the next page; null on the last page.
    #[serde(rename = "continue")]
    #[schema(required = true)]
    pub next: Option<String>,
    /// Always null, because each queue has its own numbers.
    #[serde(default)]
    #[schema(required = true)]
    pub resource_version: Option<u64>,
}
