//! Where spans go: the section `[trace]`.

use serde::{Deserialize, Serialize};

/// The section `[trace]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// The URL of a collector's OTLP over HTTP; `None` makes no spans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otlp_endpoint: Option<String>,
    /// The part of the traces that begin here of which spans are made.
    pub sample: f64,
}

impl Default for Trace {
    fn default() -> Self {
        Self { otlp_endpoint: None, sample: 1.0 }
    }
}
