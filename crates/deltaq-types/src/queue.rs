//! Queues.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{FollowReason, FollowState, PauseReason, PushState, QueueSettings, Timestamp};

/// A queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct QueueDocument {
    /// The name of the queue.
    pub name: String,
    /// The id of the queue, which distinguishes it from earlier queues of the same name.
    pub incarnation: String,
    /// The id of the current life of the queue. A life begins each time a server loads the queue.
    pub life: String,
    /// Whether a produce call created the queue, and no PUT or PATCH has configured it since.
    pub auto_created: bool,
    /// When the queue was created.
    pub created_at: Timestamp,
    /// The settings, as PUT takes them.
    pub settings: QueueSettings,
    /// The state of the queue in numbers.
    pub status: QueueStatus,
    /// In the reply to `close?drain=true`: whether no key is ready, delayed or leased; null in other replies.
    #[serde(default)]
    #[schema(required = true)]
    pub drained: Option<bool>,
}

/// A page of the list of queues.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct QueuePage<D = QueueDocument> {
    /// The queues, in the order of their names.
    pub items: Vec<D>,
    /// The queues of this page that currently can't be read. They are not in `items`.
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

/// A queue that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnavailableQueue {
    /// The name of the queue.
    pub name: String,
    /// The code of the problem that a GET of the queue returns.
    pub code: String,
    /// What is wrong.
    pub detail: String,
    /// What to do.
    #[schema(required = true)]
    pub hint: Option<String>,
}

/// The state of a queue in numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueStatus {
    /// Ready keys.
    pub ready: u64,
    /// Keys that wait for a delay or backoff.
    pub delayed: u64,
    /// Keys that a worker holds.
    pub leased: u64,
    /// Parked keys.
    pub parked: u64,
    /// Known objects.
    pub known: u64,
    /// Bytes that the queue takes in memory (approximate).
    #[serde(default)]
    #[schema(required = true)]
    pub held_bytes: u64,
    /// Pops that wait.
    pub waiters: u64,
    /// Whether the initial list is processed.
    pub has_synced: bool,
    /// Keys of the initial list that are not processed.
    pub initial_remaining: u64,
    /// The number of the newest event.
    pub resource_version: u64,
    /// Deltas that were queued in the present life of the queue. The difference between two reads is the number of changes between them.
    #[serde(default)]
    #[schema(required = true)]
    pub changes: u64,
    /// How long the first ready key has waited.
    pub oldest_ready_age_ms: u64,
    /// How long the oldest change has waited for its acknowledgement. Parked keys do not count.
    pub oldest_unacknowledged_age_ms: u64,
    /// Whether delivery is stopped.
    pub paused: bool,
    /// When the hold that stops delivery ends; null without a hold.
    #[serde(default)]
    #[schema(required = true)]
    pub held_until: Option<Timestamp>,
    /// Why the queue has paused itself; null if it has not.
    #[serde(default)]
    #[schema(required = true)]
    pub pause_reason: Option<PauseReason>,
    /// Whether the queue is closed: pops drain it.
    pub closed: bool,
    /// Whether the queue is closed and no key is ready, delayed or leased.
    pub drained: bool,
    /// The names of the indexes that are being built.
    #[serde(default)]
    #[schema(required = true)]
    pub building_indexes: Vec<String>,
    /// Whether keys are being moved to other groups, because the setting `groups` names them in another way.
    #[serde(default)]
    #[schema(required = true)]
    pub building_groups: bool,
    /// The latest Replace, if there was one.
    #[schema(required = true)]
    pub last_replace: Option<LastReplaceDocument>,
    /// The progress of a follower; null for other queues.
    #[schema(required = true)]
    pub follow: Option<FollowStatus>,
    /// What the sender of a queue with the setting `push` does; null for other queues.
    #[serde(default)]
    #[schema(required = true)]
    pub push: Option<PushStatus>,
    /// What became of the deliveries of a queue with the setting `hook`; null for other queues.
    #[serde(default)]
    #[schema(required = true)]
    pub hook: Option<HookStatus>,
    /// The queues that follow this queue, in the order of their names.
    pub followers: Vec<String>,
}

/// The progress of a follower.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FollowStatus {
    /// What the follower does.
    pub state: FollowState,
    /// The version of the followed queue up to which the follower has everything; null before the list.
    #[schema(required = true)]
    pub resource_version: Option<u64>,
    /// Events of the followed queue after that version; 0 if none of them concerns the follower.
    pub lag_events: u64,
    /// How long the follower has been behind, in milliseconds; 0 if it has everything.
    pub lag_ms: u64,
    /// Why the follower takes nothing; null while it takes rows or has everything.
    #[schema(required = true)]
    pub reason: Option<FollowReason>,
    /// The reason in words.
    #[schema(required = true)]
    pub detail: Option<String>,
}

/// What the sender of a queue does. It begins anew when another server takes over the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PushStatus {
    /// What the sender does.
    pub state: PushState,
    /// Requests without an answer.
    pub in_flight: u64,
    /// How many requests the sender may have in flight now.
    pub allowed_in_flight: u64,
    /// When the endpoint last answered with a status from 200 to 299; null if it has not yet.
    #[schema(required = true)]
    pub last_success_at: Option<Timestamp>,
    /// The last failure since then.
    #[schema(required = true)]
    pub last_error: Option<String>,
}

/// What became of the deliveries of a hook. The instants begin anew when another server takes over the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HookStatus {
    /// Deliveries that are kept because they could not be applied, without those that `only` leaves out.
    pub kept: u64,
    /// When the last delivery was applied; null if none was.
    #[schema(required = true)]
    pub last_applied_at: Option<Timestamp>,
    /// When the last delivery was not applied, apart from those that `only` leaves out; null if there was none.
    #[schema(required = true)]
    pub last_rejected_at: Option<Timestamp>,
    /// Why it was not applied.
    #[schema(required = true)]
    pub last_rejected: Option<String>,
}

/// The latest Replace of a queue or of a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LastReplaceDocument {
    /// The source that sent the list.
    #[schema(required = true)]
    pub source: Option<String>,
    /// The counts of the Replace.
    pub counts: ReplaceCounts,
    /// When the Replace started.
    pub started_at: Timestamp,
    /// When the Replace ended; null while it runs.
    #[schema(required = true)]
    pub ended_at: Option<Timestamp>,
    /// Whether the server stopped before the Replace ended.
    pub aborted: bool,
}

/// The counts of a Replace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplaceCounts {
    /// Objects of the list that were queued.
    pub replaced: u64,
    /// Keys that were not in the list and got a tombstone.
    pub deleted: u64,
    /// Objects equal to the newest state of their key, which were not queued.
    pub unchanged: u64,
    /// Objects whose key had a produce call since the Replace was accepted.
    pub skipped: u64,
    /// Keys that another source owned.
    pub taken_over: u64,
    /// Objects that were not newer than the newest state of their key, by the setting `version`.
    pub stale: u64,
}

/// The reply to a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PurgedDocument {
    /// Ready and delayed keys that were dropped.
    pub keys: u64,
    /// Deltas that were dropped, including those that arrived during a lease.
    pub deltas: u64,
}
