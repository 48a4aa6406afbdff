//! The documents of deltaq's HTTP API, version 1: requests and replies as Rust types.
//!
//! The server, its command line, its tests and Rust clients share these types. Each type serializes to the JSON that
//! `docs/api.md` describes and deserializes from it. The crate has no server, no client and no rule of a queue.
//!
//! Requests refuse unknown fields, and arrays where an object is needed. In replies, unknown fields are ignored, and unknown
//! values of enums become `Unrecognized`, as the contract requires of clients.

#![warn(missing_docs, clippy::missing_errors_doc, clippy::must_use_candidate)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod duration;
mod groups;
mod hook;
pub mod name;
#[expect(clippy::missing_errors_doc, reason = "each function refuses the values that its name excludes")]
pub mod range;
pub mod strict;
pub mod terms;

mod cloud_events;
mod consume;
mod difference;
mod history;
mod kinds;
mod kubernetes;
mod order;
mod overview;
mod page;
mod problem;
mod produce;
mod push;
mod queue;
mod raw;
mod read;
mod reflector;
mod series;
mod server;
mod settings;
mod timestamp;
mod watch;
mod words;

#[cfg(test)]
mod tests;

pub use self::cloud_events::{CloudEvents, StoredPart};
pub use self::consume::{
    DeltaDocument, Hold, HoldScope, KeysBody, KeysFilter, LeaseDocument, LeasesBody, PauseBody, PopBody,
    Popped, PoppedItem, SelectedCount, SettleAs, SettleBody, SettleCall, SettledDocument, SettledList,
};
pub use self::difference::{DiffOperation, Difference};
pub use self::duration::SignedDuration;
pub use self::groups::{
    GROUP_BYTES_MAX, GROUP_OVERRIDES_MAX, GroupBy, GroupDocument, GroupList, GroupOverride, Groups, KeyPrefix,
};
pub use self::history::EventDocument;
pub use self::hook::{
    DeliveriesBody, DeliveriesCount, DeliveryDocument, DeliveryList, HOOK_SECRETS_MAX, Hook, HookAnswer,
    HookCondition, HookId, HookScheme, HookSignature, Redelivered, SignatureEncoding,
};
pub use self::kinds::Members;
pub use self::kubernetes::Kubernetes;
pub use self::order::{HeadStartOrder, Order, PriorityOrder};
pub use self::overview::{
    ActivityEntry, ActivityPage, Found, FoundKey, FoundSource, FoundWorker, QueueWorkerDocument, WorkerList,
};
pub use self::page::{Page, PageOfQueues};
pub use self::problem::{ProblemDocument, ViolationDocument};
pub use self::produce::{
    DeltaCall, DeltaCallType, FailedKey, ForgetBody, InvalidObject, KeysCount, Produced, Replaced, SeedCall,
    SourceChange, SourceReport, SourceThreshold, SourcesChange,
};
pub use self::push::{
    PUSH_HEADER_BYTES_MAX, PUSH_SECRETS_MAX, PUSH_URL_BYTES_MAX, Push, PushFormat, PushHeader, PushPayload,
    PushTestDocument, is_secret_name,
};
pub use self::queue::{
    FollowStatus, HookStatus, LastReplaceDocument, PurgedDocument, PushStatus, QueueDocument, QueuePage,
    QueueStatus, ReplaceCounts, UnavailableQueue,
};
pub use self::raw::{RawJson, RawObject};
pub use self::read::{
    ExplainDocument, IndexDocument, IndexValueDocument, ItemDocument, ObjectDocument, ParkedError,
    ParkedErrors, QueueSourceDocument, SourceDocument, SourceProblem, SyncedDocument, WorkerDocument,
};
pub use self::reflector::{HEARTBEAT_SECS, ReflectorDocument, ReflectorReport, ReflectorState};
pub use self::series::{
    DrainEstimate, ProcessingTime, SeriesCounts, SeriesDocument, SeriesGauges, SeriesPoint, SeriesRates,
};
pub use self::server::{
    Info, InfoCaller, InfoGrant, InfoLimits, InfoLinks, InfoNode, InfoStore, NodeDetails, NodeDocument,
    NodeList, OwnedPartition,
};
pub use self::settings::{
    Bucket, Debounce, DebouncedDeletes, DeliveryRate, DetailedKeyPart, DiffSettings, Follow, FollowedView,
    ItemExponential, ItemFastSlow, KeyPart, Mode, QueueSettings, RateLimiter, Retention, SettingsPlan,
    VersionTies,
};
pub use self::timestamp::{LAST_US, Timestamp};
pub use self::watch::WatchRow;
pub use self::words::{
    DeliveryReason, DeltaType, DiffOmission, DiffOp, DrainReason, Durability, EventName, ExpiredReason,
    FollowReason, FollowState, GrantVerb, HoldReason, IndexState, ItemState, LeaseOutcome, NodeStatus,
    PauseReason, PushState, RowType, SettleResult, StoreKind,
};
