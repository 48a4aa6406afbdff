//! Queues and their state.

use serde::Serialize;
use utoipa::ToSchema;

use super::admission::QueueSettings;
use super::{instant, millis};
use crate::config::queue::QueueDefaults;
use crate::engine::LastReplace;
use crate::engine::Status as EngineStatus;
use crate::service::{Document, Moment};

/// A queue.
#[derive(Debug, Serialize, ToSchema)]
pub struct QueueDocument {
    /// Its name.
    pub name: String,
    /// Which of the queues of this name it is.
    pub incarnation: String,
    /// Whether it came into being by a produce or pop and was never configured.
    pub auto_created: bool,
    /// When it came into being.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// Its settings, all of them.
    #[schema(value_type = QueueDefaults)]
    pub config: QueueSettings,
    /// Its state at a glance.
    pub status: QueueStatus,
}

/// A queue's state at a glance.
#[derive(Debug, Serialize, ToSchema)]
pub struct QueueStatus {
    /// Keys in line.
    pub ready: usize,
    /// Keys that wait for a delay or backoff.
    pub delayed: usize,
    /// Keys in the hands of workers.
    pub leased: usize,
    /// Keys out of circulation.
    pub parked: usize,
    /// Known objects.
    pub known: usize,
    /// Pops that wait.
    pub waiters: usize,
    /// Whether the initial list has been acknowledged.
    pub has_synced: bool,
    /// Keys of the initial list that are not acknowledged.
    pub initial_remaining: usize,
    /// The newest event.
    pub resource_version: u64,
    /// How long the first key has been in line.
    pub oldest_ready_age_ms: u64,
    /// No key is delivered.
    pub paused: bool,
    /// The queue drains.
    pub closed: bool,
    /// It is closed and nothing is ready, delayed or leased.
    pub drained: bool,
    /// The latest Replace, if there was one.
    #[schema(required = true)]
    pub last_replace: Option<LastReplaceDocument>,
}

/// How the latest Replace went.
#[derive(Debug, Serialize, ToSchema)]
pub struct LastReplaceDocument {
    /// Whose list it was.
    #[schema(required = true)]
    pub source: Option<String>,
    /// What it did.
    pub counts: ReplaceCounts,
    /// When it started.
    #[schema(format = DateTime)]
    pub started: String,
    /// When it ended; null while it runs.
    #[schema(required = true, format = DateTime)]
    pub ended: Option<String>,
    /// Whether it was cut off.
    pub aborted: bool,
}

/// What a Replace did.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct ReplaceCounts {
    /// Objects of the list that were queued.
    pub replaced: u64,
    /// Keys that were not in the list and were deleted.
    pub deleted: u64,
    /// Objects equal to the newest state, not queued.
    pub unchanged: u64,
    /// Objects whose key had a call since the Replace was accepted.
    pub skipped: u64,
    /// Keys that belonged to another source before.
    pub taken_over: u64,
}

impl From<crate::engine::event::ReplaceCounts> for ReplaceCounts {
    fn from(counts: crate::engine::event::ReplaceCounts) -> Self {
        Self {
            replaced: counts.replaced,
            deleted: counts.deleted,
            unchanged: counts.unchanged,
            skipped: counts.skipped,
            taken_over: counts.taken_over,
        }
    }
}

impl LastReplaceDocument {
    fn new(last: &LastReplace, moment: Moment) -> Self {
        let instant = |at| instant(moment.wall(at));
        Self {
            source: last.source.as_deref().map(str::to_owned),
            counts: last.counts.into(),
            started: instant(last.started),
            ended: last.ended.map(instant),
            aborted: last.aborted,
        }
    }
}

impl QueueStatus {
    fn new(status: &EngineStatus, waiters: usize, moment: Moment) -> Self {
        Self {
            ready: status.ready,
            delayed: status.delayed,
            leased: status.leased,
            parked: status.parked,
            known: status.known,
            waiters,
            has_synced: status.has_synced,
            initial_remaining: status.initial_remaining,
            resource_version: status.resource_version,
            oldest_ready_age_ms: status.oldest_ready_age.map_or(0, millis),
            paused: status.paused,
            closed: status.closed,
            drained: status.drained,
            last_replace: status.last_replace.as_ref().map(|last| LastReplaceDocument::new(last, moment)),
        }
    }
}

impl From<&Document> for QueueDocument {
    fn from(document: &Document) -> Self {
        Self {
            name: document.name.to_string(),
            incarnation: document.incarnation.to_string(),
            auto_created: document.auto_created,
            created_at: instant(document.created_at),
            config: document.config.as_ref().into(),
            status: QueueStatus::new(&document.status, document.waiters, document.moment),
        }
    }
}

/// What close answers.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClosedDocument {
    /// With drain: whether nothing is ready, delayed or leased any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drained: Option<bool>,
    /// The queue.
    #[serde(flatten)]
    pub queue: QueueDocument,
}

/// What a purge dropped.
#[derive(Debug, Serialize, ToSchema)]
pub struct PurgedDocument {
    /// Ready and delayed keys.
    pub keys: u64,
    /// Deltas, those behind leases included.
    pub deltas: u64,
}
