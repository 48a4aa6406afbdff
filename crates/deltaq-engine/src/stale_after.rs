//! The threshold of a source.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::omit::is_default;
use super::time::{Time, micros};

/// How long a source may be silent before it counts as stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaleAfter {
    /// The longest silence.
    #[serde(rename = "longest_us", with = "micros")]
    pub longest: Duration,
    /// When the threshold was set. The silence of a source that was never in contact begins here.
    pub since: Time,
    /// Whether the reader of the source has proposed it. A threshold that was set otherwise stays as it is when a reader proposes one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_proposed: bool,
}
