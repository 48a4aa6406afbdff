//! The documents that go over the wire, apart from the engine's types so that each can change alone.

pub mod config;

use std::time::Duration;

use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use utoipa::{PartialSchema, ToSchema};

use crate::config::queue::QueueDefaults;
use crate::engine::LastReplace;
use crate::engine::Status as EngineStatus;
use crate::engine::command::{self, Extended, Item, Outcome, Settled};
use crate::engine::delta::Delta;
use crate::engine::object::Object;
use crate::engine::schedule::{Lease, Place};
use crate::engine::table::Entry;
use crate::engine::time::Time;
use crate::service::{Document, Handle};

/// An object exactly as it was sent.
#[derive(Clone, Debug)]
pub struct RawObject(pub Object);

impl Serialize for RawObject {
    /// Writes the text as it is. `serde_json` knows raw text by the name of this struct, which is how
    /// its own `RawValue` is written; going through `RawValue` would parse every object once more.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const TOKEN: &str = "$serde_json::private::RawValue";
        let mut raw = serializer.serialize_struct(TOKEN, 1)?;
        raw.serialize_field(TOKEN, self.0.as_str())?;
        raw.end()
    }
}

impl PartialSchema for RawObject {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder};
        ObjectBuilder::new()
            .description(Some("A JSON object, exactly as it was sent."))
            .additional_properties(Some(AdditionalProperties::FreeForm(true)))
            .into()
    }
}

impl ToSchema for RawObject {}

/// An instant as RFC 3339 with milliseconds.
#[must_use]
pub fn instant(at: Time) -> String {
    // The last instant that RFC 3339 can write: the end of the year 9999.
    let micros = at.as_micros().min(253_402_300_799_999_999);
    let since_epoch = Duration::from_micros(micros);
    humantime::format_rfc3339_millis(std::time::UNIX_EPOCH + since_epoch).to_string()
}

/// Whole milliseconds.
#[must_use]
pub fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

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
    pub config: QueueDefaults,
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
    /// Nothing is handed out.
    pub paused: bool,
    /// The queue drains.
    pub closed: bool,
    /// It is closed and nothing is ready, delayed or leased.
    pub drained: bool,
    /// The latest Replace, if there was one.
    pub last_replace: Option<LastReplaceDocument>,
}

/// How the latest Replace went.
#[derive(Debug, Serialize, ToSchema)]
pub struct LastReplaceDocument {
    /// Whose list it was.
    pub source: Option<String>,
    /// What it did.
    #[serde(flatten)]
    pub counts: ReplaceCounts,
    /// When it started.
    #[schema(format = DateTime)]
    pub started: String,
    /// When it ended; null while it runs.
    #[schema(format = DateTime)]
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

impl From<&LastReplace> for LastReplaceDocument {
    fn from(last: &LastReplace) -> Self {
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
    fn new(status: &EngineStatus, waiters: usize) -> Self {
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
            last_replace: status.last_replace.as_ref().map(LastReplaceDocument::from),
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
            config: config::of_engine(&document.config),
            status: QueueStatus::new(&document.status, document.waiters),
        }
    }
}

/// What close answers when it waits for drained.
#[derive(Debug, Serialize, ToSchema)]
pub struct DrainedDocument {
    /// Whether nothing is ready, delayed or leased any more.
    pub drained: bool,
    /// The queue.
    #[serde(flatten)]
    pub queue: QueueDocument,
}

/// What a produce call did.
#[derive(Debug, Serialize, ToSchema)]
pub struct Produced {
    /// The queue's newest event after it.
    pub resource_version: u64,
    /// Calls that were accepted.
    pub queued: u64,
    /// Calls that were ignored.
    pub ignored: u64,
}

impl From<command::Produced> for Produced {
    fn from(produced: command::Produced) -> Self {
        let command::Produced { resource_version, queued, ignored } = produced;
        Self { resource_version, queued, ignored }
    }
}

/// What a Replace did, or would do.
#[derive(Debug, Serialize, ToSchema)]
pub struct Replaced {
    /// The queue's newest event after it.
    pub resource_version: u64,
    /// Deltas that were queued: `replaced` and `deleted` together.
    pub queued: u64,
    /// Always 0: what a Replace leaves alone is `unchanged` or `skipped`.
    pub ignored: u64,
    /// The counts.
    #[serde(flatten)]
    pub counts: ReplaceCounts,
}

impl From<command::Replaced> for Replaced {
    fn from(replaced: command::Replaced) -> Self {
        let counts = replaced.counts;
        Self {
            resource_version: replaced.resource_version,
            queued: counts.replaced + counts.deleted,
            ignored: 0,
            counts: counts.into(),
        }
    }
}

/// One entry of a mixed batch.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeltaCall<'a> {
    /// `Added`, `Updated` or `Deleted`.
    #[serde(rename = "type")]
    pub kind: DeltaCallKind,
    /// The key; must equal the object's own if it carries one.
    #[serde(default)]
    pub key: Option<String>,
    /// The object; a Deleted may leave it out.
    #[serde(borrow, default)]
    #[schema(value_type = Option<Object>)]
    pub object: Option<&'a RawValue>,
    /// Who produces it.
    #[serde(default)]
    pub source: Option<String>,
    /// How long it waits before it is handed out; a duration.
    #[serde(default)]
    pub delay: Option<String>,
    /// A deletion that was inferred.
    #[serde(default)]
    pub final_state_unknown: bool,
}

/// The kinds of delta that a producer may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
pub enum DeltaCallKind {
    /// It was added.
    Added,
    /// It was changed.
    Updated,
    /// It was deleted.
    Deleted,
}

/// A known object to put in place.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SeedCall<'a> {
    /// The key; must equal the object's own if it carries one.
    #[serde(default)]
    pub key: Option<String>,
    /// Who owns the key.
    #[serde(default)]
    pub source: Option<String>,
    /// The rv of an exported object; read and not used.
    #[serde(default)]
    pub resource_version: Option<u64>,
    /// The object.
    #[serde(borrow)]
    #[schema(value_type = Object)]
    pub object: &'a RawValue,
}

/// A delta as it is handed out.
#[derive(Debug, Serialize, ToSchema)]
pub struct DeltaDocument {
    /// `Added`, `Updated`, `Deleted`, `Replaced` or `Sync`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The event that queued it.
    pub resource_version: u64,
    /// When it was queued.
    #[schema(format = DateTime)]
    pub queued_at: String,
    /// The object as it was sent.
    pub object: RawObject,
    /// A tombstone: the deletion was inferred, the object may be older than the last state.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub final_state_unknown: bool,
    /// Who sent it, if it said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// How many older deltas the key's cap merged into this one.
    #[serde(skip_serializing_if = "is_zero")]
    pub coalesced: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl From<&Delta> for DeltaDocument {
    fn from(delta: &Delta) -> Self {
        Self {
            kind: delta.kind.as_str(),
            resource_version: delta.rv,
            queued_at: instant(delta.queued_at),
            object: RawObject(delta.object.clone()),
            final_state_unknown: delta.final_state_unknown,
            source: delta.source.as_deref().map(str::to_owned),
            coalesced: delta.coalesced,
        }
    }
}

/// A lease as the worker that holds it sees it.
#[derive(Debug, Serialize, ToSchema)]
pub struct LeaseDocument {
    /// What settles it.
    pub id: String,
    /// The fencing token: it grows with every lease of the queue.
    pub token: u64,
    /// When it expires.
    #[schema(format = DateTime)]
    pub expires_at: String,
    /// Milliseconds until then, computed as the answer is written.
    pub expires_in_ms: u64,
}

/// A key that was handed out.
#[derive(Debug, Serialize, ToSchema)]
pub struct PoppedItem {
    /// The key.
    pub key: String,
    /// The lease on it.
    pub lease: LeaseDocument,
    /// Deliveries since the last acknowledgement, this one included.
    pub attempt: u32,
    /// Failures so far.
    pub failures: u32,
    /// Whether the key belongs to the initial list.
    pub is_in_initial_list: bool,
    /// What happened since the last acknowledgement, oldest first; empty in mode keys.
    pub deltas: Vec<DeltaDocument>,
    /// The object that was acknowledged last, with `with=known`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known: Option<RawObject>,
}

impl PoppedItem {
    /// The item as of `now`.
    #[must_use]
    pub fn new(handle: &Handle, item: &Item, now: Time) -> Self {
        Self {
            key: item.key.as_str().to_owned(),
            lease: LeaseDocument {
                id: handle.lease_id(item.token).to_string(),
                token: item.token,
                expires_at: instant(item.deadline),
                expires_in_ms: millis(item.deadline.since(now)),
            },
            attempt: item.attempt,
            failures: item.failures,
            is_in_initial_list: item.is_in_initial_list,
            deltas: item.deltas.iter().map(DeltaDocument::from).collect(),
            known: item.known.as_ref().map(|known| RawObject(known.object.clone())),
        }
    }
}

/// The answer to a pop.
#[derive(Debug, Serialize, ToSchema)]
pub struct Popped {
    /// The keys; empty when the wait ended.
    pub items: Vec<PoppedItem>,
    /// What became of the settles that came with the pop.
    pub settled: Vec<SettledDocument>,
}

/// Leases to settle.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SettleBody {
    /// Each lease is settled for itself.
    #[serde(default)]
    pub settle: Vec<SettleCall>,
}

/// One lease to settle.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SettleCall {
    /// The lease's id.
    pub lease: String,
    /// In which way.
    #[serde(rename = "as")]
    pub how: SettleHow,
    /// With nack: how long the key waits, instead of the rate limiter's wait; a duration.
    #[serde(default)]
    pub delay: Option<String>,
    /// With nack and reject: why.
    #[serde(default)]
    pub error: Option<String>,
}

/// The ways to settle a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SettleHow {
    /// Done: what was handed out is known now.
    Ack,
    /// Failed: it comes back later.
    Nack,
    /// Given back to the tail; no failure.
    Release,
    /// Parked at once.
    Reject,
}

/// Leases to settle all in one way.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeasesBody {
    /// The leases' ids.
    pub leases: Vec<String>,
    /// With nack: how long the keys wait; a duration.
    #[serde(default)]
    pub delay: Option<String>,
    /// With nack and reject: why.
    #[serde(default)]
    pub error: Option<String>,
}

/// What became of one settle.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SettledDocument {
    /// The lease's id.
    pub lease: String,
    /// In which way it was to be settled.
    #[serde(rename = "as")]
    pub how: SettleHow,
    /// `ok`, `repeated` or `stale`.
    pub result: &'static str,
    /// What became of a stale lease: acked, nacked, released, rejected, expired, unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<&'static str>,
}

impl SettledDocument {
    /// What became of `call`.
    #[must_use]
    pub fn new(lease: &str, how: SettleHow, settled: Settled) -> Self {
        let (result, outcome) = match settled {
            Settled::Ok { .. } => ("ok", None),
            Settled::Repeated => ("repeated", None),
            Settled::Stale { outcome } => ("stale", Some(outcome.as_str())),
        };
        Self { lease: lease.to_owned(), how, result, outcome }
    }
}

/// The answer to a settle.
#[derive(Debug, Serialize, ToSchema)]
pub struct SettledList {
    /// In the order of the request.
    pub settled: Vec<SettledDocument>,
}

/// Leases to extend.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtendBody {
    /// The leases' ids.
    pub leases: Vec<String>,
    /// From now on, instead of the queue's setting; a duration.
    #[serde(default)]
    pub lease: Option<String>,
}

/// What became of one extension.
#[derive(Debug, Serialize, ToSchema)]
pub struct ExtendedDocument {
    /// The lease's id.
    pub lease: String,
    /// `ok` or `stale`.
    pub result: &'static str,
    /// When it expires now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
    /// Milliseconds until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
    /// Deltas that came since the lease was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_deltas: Option<usize>,
    /// Whether the key's newest delta is a deletion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted: Option<bool>,
    /// What became of a stale lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<&'static str>,
}

impl ExtendedDocument {
    /// What became of the extension of `lease`, as of `now`.
    #[must_use]
    pub fn new(lease: &str, extended: Extended, now: Time) -> Self {
        let stale = |outcome: Outcome| Self {
            lease: lease.to_owned(),
            result: "stale",
            expires_at: None,
            expires_in_ms: None,
            pending_deltas: None,
            deleted: None,
            outcome: Some(outcome.as_str()),
        };
        match extended {
            Extended::Stale { outcome } => stale(outcome),
            Extended::Ok { deadline, pending_deltas, deleted } => Self {
                result: "ok",
                expires_at: Some(instant(deadline)),
                expires_in_ms: Some(millis(deadline.since(now))),
                pending_deltas: Some(pending_deltas),
                deleted: Some(deleted),
                outcome: None,
                ..stale(Outcome::Unknown)
            },
        }
    }
}

/// The answer to an extend.
#[derive(Debug, Serialize, ToSchema)]
pub struct ExtendedList {
    /// In the order of the request.
    pub leases: Vec<ExtendedDocument>,
}

/// Keys to forget, redrive or discard.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeysBody {
    /// The keys; for redrive and discard all parked keys when it is left out.
    #[serde(default)]
    pub keys: Option<Vec<String>>,
}

/// How many keys a call touched.
#[derive(Debug, Serialize, ToSchema)]
pub struct KeysCount {
    /// Keys.
    pub keys: u64,
}

/// What a purge dropped.
#[derive(Debug, Serialize, ToSchema)]
pub struct PurgedDocument {
    /// Ready and delayed keys.
    pub keys: u64,
    /// Deltas, those behind leases included.
    pub deltas: u64,
}

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
    pub source: Option<String>,
    /// The delta, or the seed, that it came with.
    pub resource_version: u64,
    /// The object as it was sent.
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
    pub worker: Option<String>,
    /// When it expires.
    #[schema(format = DateTime)]
    pub expires_at: String,
    /// Milliseconds until then.
    pub expires_in_ms: u64,
}

impl ItemLease {
    fn new(handle: &Handle, lease: &Lease, now: Time) -> Self {
        Self {
            id: handle.lease_id(lease.token).to_string(),
            token: lease.token,
            worker: lease.worker.as_deref().map(str::to_owned),
            expires_at: instant(lease.deadline),
            expires_in_ms: millis(lease.deadline.since(now)),
        }
    }
}

/// A key and all that waits for it.
#[derive(Debug, Serialize, ToSchema)]
pub struct ItemDocument {
    /// The key.
    pub key: String,
    /// `leased`, else `parked`, else `ready`, else `delayed`; null for a key with failures or an
    /// object only.
    pub state: Option<&'static str>,
    /// Deltas that wait.
    pub deltas: Vec<DeltaDocument>,
    /// Deltas in the hands of a worker.
    pub leased_deltas: Vec<DeltaDocument>,
    /// The lease.
    pub lease: Option<ItemLease>,
    /// Deliveries since the last acknowledgement.
    pub attempt: u32,
    /// Failures so far.
    pub failures: u32,
    /// What the worker said of the last failure.
    pub last_error: Option<String>,
    /// When its delay or backoff ends.
    #[schema(format = DateTime)]
    pub due_at: Option<String>,
    /// Who owns the key.
    pub owner: Option<String>,
}

impl ItemDocument {
    /// The key as of `now`.
    #[must_use]
    pub fn new(handle: &Handle, entry: &Entry, now: Time) -> Self {
        let standing = &entry.standing;
        let state = match standing.place {
            Place::Leased(_) => Some("leased"),
            Place::Parked => Some("parked"),
            Place::Ready(_) => Some("ready"),
            Place::Idle => standing.delay.map(|_| "delayed"),
        };
        Self {
            key: entry.key.as_str().to_owned(),
            state,
            deltas: entry.waiting.iter().map(DeltaDocument::from).collect(),
            leased_deltas: entry.leased.iter().map(DeltaDocument::from).collect(),
            lease: standing.lease().map(|lease| ItemLease::new(handle, lease, now)),
            attempt: standing.attempt,
            failures: standing.failures,
            last_error: standing.last_error.as_deref().map(str::to_owned),
            due_at: standing.delay.map(|delay| instant(delay.due)),
            owner: entry.owner().map(ToString::to_string),
        }
    }

    /// Whether there is something to tell of the entry: a key that is only known is no item.
    #[must_use]
    pub fn is_item(entry: &Entry) -> bool {
        let standing = &entry.standing;
        standing.place != Place::Idle || standing.delay.is_some() || standing.failures > 0
    }
}

/// A page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub struct Page<T> {
    /// The entries.
    pub items: Vec<T>,
    /// Gets the next page; null on the last one.
    #[serde(rename = "continue")]
    pub next: Option<String>,
    /// The queue's newest event as the page was read.
    pub resource_version: u64,
}

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

/// What a problem looks like; some carry more fields.
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
}
