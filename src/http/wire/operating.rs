//! The server itself, and problems.

use serde::Serialize;
use utoipa::ToSchema;

use super::{ExtendedDocument, SettledDocument};
use crate::admission::Violation;

/// What this server is.
#[derive(Debug, Serialize, ToSchema)]
pub struct Info {
    /// Always `deltaq`.
    pub name: &'static str,
    /// The version of the binary.
    pub version: &'static str,
    /// Where events are kept: `memory`.
    pub durability: &'static str,
    /// How long the process has run, in milliseconds.
    pub uptime_ms: u64,
    /// Bounds that requests meet.
    pub limits: InfoLimits,
}

/// Bounds that requests meet.
#[derive(Debug, Serialize, ToSchema)]
pub struct InfoLimits {
    /// Longest key.
    pub key_bytes: usize,
    /// Deepest nesting of an object.
    pub json_depth: usize,
    /// Most keys in one pop.
    pub pop_max: u64,
    /// Longest wait of a pop; a duration.
    pub wait: String,
    /// Longest lease; a duration.
    pub lease: String,
    /// Largest page of a list.
    pub list_page: u64,
    /// Most objects in one produce call.
    pub batch: usize,
    /// Most objects in one Replace or seed.
    pub replace_objects: usize,
    /// Largest body that is not a stream.
    pub body_bytes: usize,
    /// Largest answer to a pop, in bytes of objects.
    pub reply_bytes: usize,
    /// Most queues.
    pub queues: usize,
    /// Most pops that wait at one queue.
    pub waiters: usize,
}

/// A place where an object does not satisfy the queue's schema.
#[derive(Debug, Serialize, ToSchema)]
pub struct ViolationDocument {
    /// Where in the object (RFC 6901).
    pub pointer: String,
    /// The keyword of the schema that says so (RFC 6901).
    pub schema_pointer: String,
    /// What is wrong, in at most 200 characters.
    pub detail: String,
}

impl From<Violation> for ViolationDocument {
    fn from(violation: Violation) -> Self {
        let Violation { pointer, schema_pointer, detail } = violation;
        Self { pointer, schema_pointer, detail }
    }
}

/// What a problem looks like; some carry more fields than these.
#[derive(Debug, Serialize, ToSchema)]
pub struct ProblemDocument {
    /// Where it is explained.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it is, in a few words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong, where, and what to do.
    pub detail: String,
    /// The name to program against.
    pub code: String,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// Leads to the request in the server's log.
    pub request_id: String,
    /// How long to wait before the request is repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The bound that was passed: a number, or a duration as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<serde_json::Value>,
    /// The queue of a list that can not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The parameter that is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameter: Option<String>,
    /// The field that is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The object of the list that is wrong, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    /// The line that is wrong, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The column that is wrong, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u64>,
    /// The key's pointer that leads to nothing usable, or the place in a schema that is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
    /// Where the object does not satisfy the queue's schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<Vec<ViolationDocument>>,
    /// What became of the settles of a pop or settle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled: Option<Vec<SettledDocument>>,
    /// What became of the leases of an extend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leases: Option<Vec<ExtendedDocument>>,
}
