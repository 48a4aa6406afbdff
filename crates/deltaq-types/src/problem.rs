//! Problem documents (RFC 9457).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ExpiredReason, SettledDocument};

/// The reply to a refused or failed request. Some problems have further fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProblemDocument {
    /// The URL of the page that explains the problem; only its path if the server does not know its own URL.
    #[serde(rename = "type")]
    pub kind: String,
    /// The problem in a few words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong, and where.
    pub detail: String,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The name to program against.
    pub code: String,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// The id of the request in the server's log.
    pub request_id: String,
    /// How long to wait before the request is repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The exceeded limit: a number of bytes, objects, requests or the like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub limit: Option<serde_json::Number>,
    /// The exceeded limit, if it is a duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_ms: Option<u64>,
    /// For `expired`: why the position can't be continued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<ExpiredReason>,
    /// In the list of queues: a queue that can't be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The wrong parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameter: Option<String>,
    /// The wrong field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The index of the wrong object in the list, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    /// The wrong line, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The wrong column, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u64>,
    /// The pointer at which the object has no usable value, or the wrong place in a schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
    /// The places where the object violates the schema of its queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors: Option<Vec<ViolationDocument>>,
    /// The encodings of a body that the call accepts, as in the header `Accept-Encoding`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept_encoding: Option<String>,
    /// The results of the settles of a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<Vec<SettledDocument>>,
    /// The number of keys that a call with `expected_count` selects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// The number of leases that were not settled, because they had ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale: Option<u64>,
}

/// A place where an object violates the schema of its queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ViolationDocument {
    /// The place in the object (RFC 6901).
    pub pointer: String,
    /// The keyword of the schema that is violated (RFC 6901).
    pub schema_pointer: String,
    /// The violation, in at most 200 characters.
    pub detail: String,
}
