//! Lists.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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
