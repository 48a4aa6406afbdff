//! What can be seen of a queue.

use serde::Serialize;
use utoipa::ToSchema;

use super::{DeltaDocument, RawObject, instant, millis};
use crate::engine::schedule::{Lease, Place};
use crate::engine::table::Entry;
use crate::http::openapi::terms;
use crate::service::{Handle, Moment};

/// Whether a queue has synced.
#[derive(Debug, Serialize, ToSchema)]
pub struct SyncedDocument {
    /// Whether the initial list has been acknowledged.
    pub synced: bool,
    /// Keys of it that are not.
    pub remaining: usize,
}

/// A known object.
#[derive(Debug, Serialize, ToSchema)]
pub struct KnownDocument {
    /// The key.
    pub key: String,
    /// Who owns the key.
    #[schema(required = true)]
    pub source: Option<String>,
    /// The version of the known object: the number of the ack or seed that made the object known.
    pub resource_version: u64,
    /// The object as it was sent.
    #[schema(value_type = terms::RawObject)]
    pub object: RawObject,
}

impl KnownDocument {
    /// The known object of `entry`, if it has one.
    #[must_use]
    pub fn of(entry: &Entry) -> Option<Self> {
        let known = entry.known.as_ref()?;
        Some(Self {
            key: entry.key.as_str().to_owned(),
            source: known.owner.as_deref().map(str::to_owned),
            resource_version: known.rv,
            object: RawObject(known.object.clone()),
        })
    }
}

/// The lease on a key, as a looker-on sees it.
#[derive(Debug, Serialize, ToSchema)]
pub struct ItemLease {
    /// What settles it.
    pub id: String,
    /// The fencing token.
    pub token: u64,
    /// Who holds it, if it said so.
    #[schema(required = true)]
    pub worker: Option<String>,
    /// When it expires.
    #[schema(format = DateTime)]
    pub expires_at: String,
    /// Milliseconds until then.
    pub expires_in_ms: u64,
}

impl ItemLease {
    fn new(handle: &Handle, lease: &Lease, moment: Moment) -> Self {
        Self {
            id: handle.lease_id(lease.token).to_string(),
            token: lease.token.rv(),
            worker: lease.worker.as_deref().map(str::to_owned),
            expires_at: instant(moment.wall(lease.deadline)),
            expires_in_ms: millis(lease.deadline.since(moment.now)),
        }
    }
}

/// A key and all that waits for it.
#[derive(Debug, Serialize, ToSchema)]
pub struct ItemDocument {
    /// The key.
    pub key: String,
    /// `leased`, else `parked`, else `ready`, else `delayed`; null for a key with failures only.
    #[schema(required = true)]
    pub state: Option<&'static str>,
    /// Deltas that wait.
    pub deltas: Vec<DeltaDocument>,
    /// Deltas in the hands of a worker.
    pub leased_deltas: Vec<DeltaDocument>,
    /// The lease.
    #[schema(required = true)]
    pub lease: Option<ItemLease>,
    /// Deliveries since the last acknowledgement.
    pub attempt: u32,
    /// Failures so far.
    pub failures: u32,
    /// What the worker said of the last failure.
    #[schema(required = true)]
    pub last_error: Option<String>,
    /// When its delay or backoff ends.
    #[schema(required = true, format = DateTime)]
    pub due_at: Option<String>,
    /// Who owns the key.
    #[schema(required = true)]
    pub owner: Option<String>,
}

impl ItemDocument {
    /// The key as of `moment`.
    #[must_use]
    pub fn new(handle: &Handle, entry: &Entry, moment: Moment) -> Self {
        let schedule_state = &entry.schedule_state;
        let state = match schedule_state.place {
            Place::Leased(_) => Some("leased"),
            Place::Parked => Some("parked"),
            Place::Ready(_) => Some("ready"),
            Place::Idle => schedule_state.delay().map(|_| "delayed"),
        };
        Self {
            key: entry.key.as_str().to_owned(),
            state,
            deltas: entry.waiting.iter().map(|delta| DeltaDocument::new(delta, moment)).collect(),
            leased_deltas: entry.leased.iter().map(|delta| DeltaDocument::new(delta, moment)).collect(),
            lease: schedule_state.lease().map(|lease| ItemLease::new(handle, lease, moment)),
            attempt: schedule_state.attempt,
            failures: schedule_state.failures,
            last_error: schedule_state.last_error().map(str::to_owned),
            due_at: schedule_state.delay().map(|delay| instant(moment.wall(delay.due))),
            owner: entry.owner().map(ToString::to_string),
        }
    }

    /// Whether there is something to tell of the entry: a key that is only known is no item.
    #[must_use]
    pub fn is_item(entry: &Entry) -> bool {
        let schedule_state = &entry.schedule_state;
        schedule_state.place != Place::Idle || schedule_state.delay().is_some() || schedule_state.failures > 0
    }
}

/// A page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub struct Page<T> {
    /// The entries.
    pub items: Vec<T>,
    /// Gets the next page; null on the last one.
    #[serde(rename = "continue")]
    #[schema(required = true)]
    pub next: Option<String>,
    /// The queue's newest event as the page was read.
    pub resource_version: u64,
}
