//! The threshold of a source.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::time::{Time, micros};

/// How long a source may be silent before it counts as stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaleAfter {
    /// The longest silence.
    #[serde(rename = "longest_us", with = "micros")]
    pub longest: Duration,
    /// When the threshold was set. The silence of a source that was never in contact begins here.
    pub since: Time,
}
