//! The queues under load, and their keys.

use serde_json::{Value, json};

use super::history::Key;

/// Limits of the deltas and bytes that wait for a key, so high that no deltas are merged.
const DELTAS: u64 = 1_000_000;
const BYTES: u64 = 1 << 30;

/// What a pop delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// All deltas of a key.
    Delta,
    /// The newest delta.
    Latest,
    /// The oldest delta. No delta is merged.
    Events,
}

/// A queue under load.
#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    pub(crate) mode: Mode,
    /// The sources. A key always belongs to the same source.
    pub(crate) sources: &'static [Option<&'static str>],
    /// Number of keys of each source: few, so that calls collide, and so few in all that a debug build checks every invariant
    /// of a queue after every change.
    keys: usize,
    max_failures: u64,
}

/// All queues under load. The last has few keys and gets few objects, so that pops often find it empty. The queue of mode events before it gets
/// fewer objects than the others, because an ack takes only one delta from it.
pub(crate) const QUEUES: &[Spec] = &[
    Spec { name: "plain", mode: Mode::Delta, sources: &[None], keys: 24, max_failures: 0 },
    Spec { name: "latest", mode: Mode::Latest, sources: &[None], keys: 24, max_failures: 0 },
    Spec {
        name: "sources",
        mode: Mode::Delta,
        sources: &[Some("erp"), Some("shop")],
        keys: 24,
        max_failures: 0,
    },
    Spec { name: "events", mode: Mode::Events, sources: &[None], keys: 24, max_failures: 0 },
    Spec { name: "parking", mode: Mode::Delta, sources: &[None], keys: 5, max_failures: 2 },
];

impl Spec {
    /// The path of a call.
    pub(crate) fn path(&self, rest: &str) -> String {
        format!("/v1/queues/{}{rest}", self.name)
    }

    /// The keys of a source.
    pub(crate) fn keys(&self, source: Option<&str>) -> Vec<Key> {
        let prefix = source.unwrap_or("key");
        (0..self.keys).map(|number| format!("{prefix}-{number}").into()).collect()
    }

    /// The settings. Leases and waits are short, so that they end within the test.
    pub(crate) fn config(&self) -> Value {
        json!({
            "mode": match self.mode {
                Mode::Delta => "delta",
                Mode::Latest => "latest",
                Mode::Events => "events",
            },
            "lease": "1s",
            "max_failures": self.max_failures,
            "rate_limiter": { "item_exponential": { "base": "5ms", "max": "80ms" } },
            "max_deltas_per_key": DELTAS,
            "max_bytes_per_key": BYTES,
        })
    }
}
