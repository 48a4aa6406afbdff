//! Replies over all queues that the caller may read.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ItemState, Timestamp, UnavailableQueue};

/// The workers of all queues that the caller may read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerList {
    /// The workers: first those with a slow lease, then by the age of the oldest lease, then those that only wait.
    pub workers: Vec<QueueWorkerDocument>,
    /// The number of workers that the limit has left out.
    pub left_out: u64,
    /// Queues that can't be read.
    pub unavailable: Vec<UnavailableQueue>,
}

/// The last calls that needed the grant `admin` or set a threshold of a source, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActivityPage {
    /// The calls.
    pub items: Vec<ActivityEntry>,
    /// The `continue` parameter of the next page; null on the last page.
    #[serde(rename = "continue")]
    #[schema(required = true)]
    pub next: Option<String>,
    /// Always null, because each queue has its own numbers.
    #[serde(default)]
    #[schema(required = true)]
    pub resource_version: Option<u64>,
    /// The names of the nodes that have not replied within 2 s, so their calls are missing.
    #[serde(default)]
    #[schema(required = true)]
    pub missing_nodes: Vec<String>,
}

/// A call of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActivityEntry {
    /// When the call ended.
    pub at: Timestamp,
    /// The name of the token; null for a caller without a token.
    #[schema(required = true)]
    pub by: Option<String>,
    /// The operation, such as `purge_queue`.
    pub operation: String,
    /// The queue; null for a call that concerns no queue.
    #[schema(required = true)]
    pub queue: Option<String>,
    /// The number of keys that the call named or changed; null if it has none.
    #[schema(required = true)]
    pub keys: Option<u64>,
    /// `ok`, the code of the problem, or `gone` if the client disconnected before the reply.
    pub outcome: String,
    /// The status of the reply; null if the client disconnected before it.
    #[schema(required = true)]
    pub status: Option<u16>,
    /// The id of the request, which is also in the log and in the audit log.
    pub request_id: String,
}

/// A worker of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueWorkerDocument {
    /// The queue.
    pub queue: String,
    /// The name of the worker; null for all pops without a name.
    #[schema(required = true)]
    pub worker: Option<String>,
    /// Leases that the worker holds.
    pub leased: u64,
    /// When the oldest of these leases was created.
    #[schema(required = true)]
    pub oldest_leased_at: Option<Timestamp>,
    /// The age of the oldest of these leases, in milliseconds.
    #[schema(required = true)]
    pub oldest_lease_age_ms: Option<u64>,
    /// Whether the oldest lease is older than `slow_after_ms`.
    pub is_slow: bool,
    /// The age from which a lease is old for this queue, in milliseconds.
    pub slow_after_ms: u64,
    /// Milliseconds until the first of these leases expires.
    #[schema(required = true)]
    pub next_expires_in_ms: Option<u64>,
    /// Pops of the worker that wait for keys.
    pub waiting: u64,
    /// When the first of these pops arrived.
    #[schema(required = true)]
    pub oldest_waiting_at: Option<Timestamp>,
    /// Leases of the worker that ended with an ack or a done in the last ten minutes.
    #[serde(default)]
    #[schema(required = true)]
    pub recent_acks: u64,
    /// Leases of the worker that ended with a nack or a reject, or that expired, in the last ten minutes.
    #[serde(default)]
    #[schema(required = true)]
    pub recent_failures: u64,
}

/// What a text was found in, among the queues that the caller may read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Found {
    /// Queues whose names contain the text, by name.
    pub queues: Vec<String>,
    /// Keys that begin with the text: first those that equal it, then by key.
    pub keys: Vec<FoundKey>,
    /// Sources whose names contain the text, by name.
    pub sources: Vec<FoundSource>,
    /// Workers whose names contain the text, by name.
    pub workers: Vec<FoundWorker>,
    /// Whether there are more matches than these, of any kind.
    pub has_more: bool,
    /// The number of queues that can't be read and were not searched.
    pub unavailable: u64,
}

/// A key of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FoundKey {
    /// The queue.
    pub queue: String,
    /// The key.
    pub key: String,
    /// The state of the key; null if it has no work, so all of its changes are acknowledged.
    #[schema(required = true)]
    pub state: Option<ItemState>,
}

/// A source of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FoundSource {
    /// The queue.
    pub queue: String,
    /// The name of the source.
    pub source: String,
    /// The number of keys that the source owns.
    pub keys: u64,
}

/// A worker of a queue that holds leases or waits for keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FoundWorker {
    /// The queue.
    pub queue: String,
    /// The name of the worker.
    pub worker: String,
    /// Leases that the worker holds.
    pub leased: u64,
}
