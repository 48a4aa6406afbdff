//! Requests and replies of workers.

use serde::ser::{SerializeMap as _, SerializeStruct as _};
use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;

use super::duration::DurationText;
use super::range::{self, CENTURY};
use super::terms::Span;
use super::{
    DeltaType, DiffOmission, DiffOperation, Difference, LeaseOutcome, RawObject, SettleResult, Timestamp,
    strict, terms,
};

/// A delta. In the reply to a pop, each of the last four members is absent if it is null, false or 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeltaDocument {
    /// The type.
    #[serde(rename = "type")]
    pub kind: DeltaType,
    /// The number of the event that queued the delta.
    pub resource_version: u64,
    /// When the delta was queued.
    pub queued_at: Timestamp,
    /// The object as it was sent.
    pub object: RawObject,
    /// A tombstone: the deletion was inferred, and the object may be older than the last state.
    #[serde(default)]
    pub final_state_unknown: bool,
    /// The producer, if the call named one.
    #[serde(default)]
    pub source: Option<String>,
    /// The number of older deltas that the cap of the key merged into this one.
    #[serde(default)]
    pub coalesced: u32,
    /// The trace of the call that queued the delta, if the call named one (W3C Trace Context).
    #[serde(default)]
    pub traceparent: Option<String>,
}

/// A delta in the reply to a pop.
struct PoppedDelta<'d>(&'d DeltaDocument);

impl Serialize for PoppedDelta<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(delta) = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", &delta.kind)?;
        map.serialize_entry("resource_version", &delta.resource_version)?;
        map.serialize_entry("queued_at", &delta.queued_at)?;
        map.serialize_entry("object", &delta.object)?;
        if delta.final_state_unknown {
            map.serialize_entry("final_state_unknown", &true)?;
        }
        if let Some(source) = &delta.source {
            map.serialize_entry("source", source)?;
        }
        if delta.coalesced > 0 {
            map.serialize_entry("coalesced", &delta.coalesced)?;
        }
        if let Some(trace) = &delta.traceparent {
            map.serialize_entry("traceparent", trace)?;
        }
        map.end()
    }
}

fn popped_deltas<S: Serializer>(deltas: &[DeltaDocument], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(deltas.iter().map(PoppedDelta))
}

/// A lease of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeaseDocument {
    /// The id of the lease. Other documents call it `lease_id`.
    pub id: String,
    /// The fencing token, which increases with every lease of the queue.
    pub token: u64,
    /// The worker, if the pop named one.
    #[schema(required = true)]
    pub worker: Option<String>,
    /// When the lease expires.
    pub expires_at: Timestamp,
    /// Milliseconds until the lease expires, computed when the reply is written.
    pub expires_in_ms: u64,
}

/// A delivered key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoppedItem {
    /// The key.
    pub key: String,
    /// The lease on the key.
    pub lease: LeaseDocument,
    /// Deliveries since the last ack, including this one.
    pub attempt: u32,
    /// Failures since the last ack.
    pub failures: u32,
    /// Whether the key belongs to the initial list.
    pub is_in_initial_list: bool,
    /// Every change since the last ack, oldest first. In mode events only the oldest change; in mode keys empty.
    #[serde(serialize_with = "popped_deltas")]
    pub deltas: Vec<DeltaDocument>,
    /// With `with=known`: the object that was acknowledged last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<RawObject>,
    /// With `with=diff`: the operations that turn the object that was acknowledged last into the newest one. It is null if
    /// there is no acknowledged object, if the newest change is a deletion, and if the difference is too large.
    #[serde(default, skip_serializing_if = "Difference::is_absent")]
    #[schema(value_type = Option<Vec<DiffOperation>>)]
    pub diff: Difference,
    /// With `with=diff`: why a difference is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff_omitted: Option<DiffOmission>,
}

/// The reply to a pop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Popped {
    /// The delivered keys; empty when `wait` has passed.
    pub items: Vec<PoppedItem>,
    /// The results of the settles in the request.
    pub settled: Vec<SettledDocument>,
    /// The queue is closed: pops drain it.
    pub closed: bool,
    /// The queue is paused: nothing is delivered.
    pub paused: bool,
    /// While a hold stops delivery: when it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_until: Option<Timestamp>,
}

/// The body of a pop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PopBody {
    /// Leases to settle before the pop, each in its own way.
    #[serde(default, deserialize_with = "strict::objects", skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Option<Vec<SettleCall>>)]
    pub settle: Vec<SettleCall>,
}

/// The leases of a settle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SettleBody {
    /// Leases to settle, each in its own way. A lease may appear only once.
    #[serde(deserialize_with = "strict::objects")]
    #[schema(value_type = Option<Vec<SettleCall>>, required = true)]
    pub settle: Vec<SettleCall>,
}

/// Declares the options of the calls that settle leases, each with the ways to settle that accept it. A call may have thousands of entries, so the
/// rare options are pointers.
macro_rules! settle_options {
    ($($(#[doc = $doc:literal])* $option:ident: $type:ty as $schema:ty, $read:literal goes with $($how:ident)+;)*) => {
        /// The body of a call that settles all its leases in one way: exactly one of `lease_id` and `lease_ids`, and options.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
        #[serde(deny_unknown_fields)]
        pub struct LeasesBody {
            /// The id of the lease.
            #[serde(default, deserialize_with = "strict::optional_text", skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Option<terms::LeaseId>)]
            pub lease_id: Option<String>,
            /// The ids of several leases. A lease may appear only once.
            #[serde(default, deserialize_with = "strict::present_texts", skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Option<Vec<terms::LeaseId>>, max_items = 10_000)]
            pub lease_ids: Option<Vec<String>>,
            $(
                $(#[doc = $doc])*
                #[serde(default, deserialize_with = $read, skip_serializing_if = "Option::is_none")]
                #[schema(value_type = Option<$schema>)]
                pub $option: Option<$type>,
            )*
        }

        /// Leases to settle in one way: exactly one of `lease_id` and `lease_ids`, the way, and its options.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
        #[serde(deny_unknown_fields)]
        pub struct SettleCall {
            /// The id of the lease.
            #[serde(default, deserialize_with = "strict::optional_text", skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Option<terms::LeaseId>)]
            pub lease_id: Option<String>,
            /// The ids of several leases.
            #[serde(default, deserialize_with = "strict::present_texts", skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Option<Vec<terms::LeaseId>>, max_items = 10_000)]
            pub lease_ids: Option<Vec<String>>,
            /// How the leases are settled.
            #[serde(rename = "as", deserialize_with = "strict::word")]
            pub how: SettleAs,
            $(
                $(#[doc = $doc])*
                #[serde(default, deserialize_with = $read, skip_serializing_if = "Option::is_none")]
                #[schema(value_type = Option<$schema>)]
                pub $option: Option<$type>,
            )*
        }

        impl LeasesBody {
            /// The entry of a list of settles that has the same effect.
            #[must_use]
            pub fn settled_as(self, how: SettleAs) -> SettleCall {
                let Self { lease_id, lease_ids, $($option),* } = self;
                SettleCall { lease_id, lease_ids, how, $($option),* }
            }
        }

        impl SettleCall {
            /// A settle of one lease without options.
            #[must_use]
            pub fn new(lease_id: impl Into<String>, how: SettleAs) -> Self {
                LeasesBody { lease_id: Some(lease_id.into()), ..LeasesBody::default() }.settled_as(how)
            }

            /// The first option that this way to settle does not accept, and the ways that accept it.
            #[must_use]
            pub fn misplaced_option(&self) -> Option<(&'static str, &'static [SettleAs])> {
                $(
                    let ways = &[$(SettleAs::$how),+];
                    if self.$option.is_some() && !ways.contains(&self.how) {
                        return Some((stringify!($option), ways));
                    }
                )*
                None
            }
        }
    };
}

settle_options! {
    /// Only with nack and done. With nack: how long the keys wait, instead of their backoff. With done: the time after which the
    /// keys are added again.
    delay: Box<str> as terms::Delay, "strict::duration_text" goes with Nack Done;
    /// Only with nack: true if a new change must not shorten the wait, which is `delay` or, without it, the backoff. False is the
    /// same as absent.
    floor: bool as bool, "strict::raised_flag" goes with Nack;
    /// Only with nack and reject: the reason.
    error: Box<str> as terms::Failure, "strict::optional_text" goes with Nack Reject;
    /// Only with ack and release: nothing of the queue is delivered for a time, because the target of the work asks for it.
    hold: Box<Hold> as Hold, "strict::object" goes with Ack Release;
    /// Only with ack, nack and release, in mode delta and with one lease: the number of a leased delta. The deltas up to it are acknowledged, and only the others are
    /// settled in the given way; with ack they are delivered again at once.
    through: Box<u64> as terms::Count, "strict::boxed_whole" goes with Ack Nack Release;
    /// Only with ack and `through`: true if the lease continues with the other deltas. False is the same as absent.
    keep: bool as bool, "strict::raised_flag" goes with Ack;
    /// Only with extend: the time from now to the new deadlines; by default the queue's setting.
    lease_duration: Box<str> as terms::LeaseLength, "strict::duration_text" goes with Extend;
}

/// A time in which nothing is delivered. Of several holds the one that ends last counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({ "scope": "queue", "for": "30s" })))]
pub struct Hold {
    /// What is not delivered.
    #[serde(deserialize_with = "strict::word")]
    pub scope: HoldScope,
    /// How long it is not delivered. More than 1h counts as 1h, and 0s is no hold.
    #[serde(rename = "for", deserialize_with = "strict::text")]
    #[schema(value_type = terms::HoldLength)]
    pub length: Box<str>,
}

impl From<String> for Box<Hold> {
    /// A hold of the queue for a duration.
    fn from(length: String) -> Self {
        Self::new(length.into())
    }
}

/// What a hold concerns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HoldScope {
    /// All keys of the queue.
    #[default]
    Queue,
    /// The keys of the group that the lease counts for.
    Group,
    /// The key of the lease.
    Key,
}

impl From<String> for Hold {
    /// A hold of the queue for a duration.
    fn from(length: String) -> Self {
        Self { scope: HoldScope::Queue, length: length.into() }
    }
}

/// The ways to settle a lease. All of them except extend end the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SettleAs {
    /// Done: the deltas of the lease are applied to the known objects.
    Ack,
    /// Mode keys: done, and the failures of the key stay, as after client-go's Done without Forget.
    Done,
    /// Failed: the key is delivered again later.
    Nack,
    /// Returned to the tail of the ready queue, without a failure.
    Release,
    /// Parked at once. A key with a newer change is delivered again instead.
    Reject,
    /// The lease continues. Its new deadline is the current time plus a length, and may be earlier than the old one.
    Extend,
}

impl SettleAs {
    /// The word in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::Done => "done",
            Self::Nack => "nack",
            Self::Release => "release",
            Self::Reject => "reject",
            Self::Extend => "extend",
        }
    }
}

/// The result of the settle of one lease.
///
/// In JSON, the result of an extension has `expires_at` and the members after it; every other result has `failures`, `due_at` and `parked`
/// instead. A member without a value is null. Only the result of a settle with `hold` has `held_until`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, ToSchema)]
pub struct SettledDocument {
    /// The id of the lease.
    pub lease_id: String,
    /// How the request settles the lease.
    #[serde(rename = "as")]
    pub how: SettleAs,
    /// `ok`, `repeated`, `stale` or `not_leased`.
    pub result: SettleResult,
    /// How a stale lease ended: acked, done, nacked, released, rejected, expired or unknown.
    #[serde(default)]
    #[schema(required = true)]
    pub outcome: Option<LeaseOutcome>,
    /// After a nack or reject: failures since the last ack.
    #[serde(default)]
    pub failures: Option<u32>,
    /// After a nack: when the delay or backoff of the key ends; null if the key is ready or parked.
    #[serde(default)]
    pub due_at: Option<Timestamp>,
    /// After a nack or reject: whether the key is parked.
    #[serde(default)]
    pub parked: Option<bool>,
    /// After a settle with `hold`: when the hold of the queue or of its group ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_until: Option<Timestamp>,
    /// After an extension: when the lease expires now.
    #[serde(default)]
    pub expires_at: Option<Timestamp>,
    /// After an extension: milliseconds until the lease expires.
    #[serde(default)]
    pub expires_in_ms: Option<u64>,
    /// After an extension: deltas that have arrived since the key was leased.
    #[serde(default)]
    pub pending_deltas: Option<u64>,
    /// After an extension: whether the newest delta of the key is a deletion.
    #[serde(default)]
    pub deleted: Option<bool>,
}

impl SettledDocument {
    /// A result without further values.
    #[must_use]
    pub const fn new(lease_id: String, how: SettleAs, result: SettleResult) -> Self {
        Self {
            lease_id,
            how,
            result,
            outcome: None,
            failures: None,
            due_at: None,
            parked: None,
            held_until: None,
            expires_at: None,
            expires_in_ms: None,
            pending_deltas: None,
            deleted: None,
        }
    }
}

impl Serialize for SettledDocument {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let is_extension = self.how == SettleAs::Extend;
        let members = if is_extension { 8 } else { 7 } + usize::from(self.held_until.is_some());
        let mut row = serializer.serialize_struct("SettledDocument", members)?;
        row.serialize_field("lease_id", &self.lease_id)?;
        row.serialize_field("as", &self.how)?;
        row.serialize_field("result", &self.result)?;
        row.serialize_field("outcome", &self.outcome)?;
        if is_extension {
            row.serialize_field("expires_at", &self.expires_at)?;
            row.serialize_field("expires_in_ms", &self.expires_in_ms)?;
            row.serialize_field("pending_deltas", &self.pending_deltas)?;
            row.serialize_field("deleted", &self.deleted)?;
        } else {
            row.serialize_field("failures", &self.failures)?;
            row.serialize_field("due_at", &self.due_at)?;
            row.serialize_field("parked", &self.parked)?;
        }
        if let Some(until) = &self.held_until {
            row.serialize_field("held_until", until)?;
        }
        row.end()
    }
}

/// The reply to a call that settles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SettledList {
    /// One result for each lease, in the order of the request.
    pub settled: Vec<SettledDocument>,
    /// The number of leases that were not settled, because they had ended.
    pub stale: u64,
}

/// What to pause or to resume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({ "group": "acme" })))]
pub struct PauseBody {
    /// Only this group; the empty text is the group without a name. By default the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, max_length = 256)]
    pub group: Option<Box<str>>,
}

/// Parked keys to redrive or to discard, or delayed keys to promote: exactly one of `keys`, `error`, `filter` and `all`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({ "keys": ["sku-1"] }), json!({ "error": "timeout", "expected_count": 39 }), json!({ "all": true })))]
pub struct KeysBody {
    /// These keys. Null is the empty list, because a client that sends a null list is unlikely to mean all keys.
    #[serde(default, deserialize_with = "strict::present_texts", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<terms::Key>>)]
    pub keys: Option<Vec<String>>,
    /// The keys with exactly this last error. The empty text selects the keys without an error; with `keys` or `all` it counts as absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<terms::ErrorText>)]
    pub error: Option<String>,
    /// The keys that have all of this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<KeysFilter>,
    /// True: all parked or all delayed keys.
    #[serde(default, deserialize_with = "strict::flag", skip_serializing_if = "std::ops::Not::not")]
    #[schema(value_type = Option<bool>)]
    pub all: bool,
    /// Change nothing unless exactly this many keys are selected.
    #[serde(default, deserialize_with = "strict::whole", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<terms::Count>)]
    pub expected_count: Option<u64>,
    /// Count the keys and change nothing.
    #[serde(default, deserialize_with = "strict::flag", skip_serializing_if = "std::ops::Not::not")]
    #[schema(value_type = Option<bool>)]
    pub dry_run: bool,
}

/// What parked or delayed keys have in common. At least one member must be given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(examples(json!({ "prefix": "eu-", "error": "timeout", "older_than": "1h" })))]
pub struct KeysFilter {
    /// The key begins with this text.
    #[serde(default, deserialize_with = "strict::optional_text", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub prefix: Option<Box<str>>,
    /// The last error is exactly this text. The empty text selects the keys without an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<terms::ErrorText>)]
    pub error: Option<Box<str>>,
    /// This source owns the key.
    #[serde(default, deserialize_with = "strict::optional_text", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub source: Option<Box<str>>,
    /// The key is in this group; the empty text is the group without a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, max_length = 256)]
    pub group: Option<Box<str>>,
    /// The oldest change that waits for the key is at least this old.
    #[serde(
        default,
        deserialize_with = "range::optional_span::<0, CENTURY, _>",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Span>)]
    pub older_than: Option<DurationText>,
    /// The oldest change that waits for the key was queued at this instant or before. It is the `older_than_at` of a count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older_than_at: Option<Timestamp>,
    /// The key has been parked or delayed since this event or an older one. It is the `resource_version` of a count.
    #[serde(default, deserialize_with = "strict::whole", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub until: Option<u64>,
}

/// The parked or delayed keys that a call has changed, or with `dry_run` would change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SelectedCount {
    /// The number of keys.
    pub keys: u64,
    /// The newest event when the call began. As `until` of a filter it leaves out keys that were parked or delayed later.
    pub resource_version: u64,
    /// The instant that the age of the filter means now; null without an age. In the place of `older_than`, it leaves out keys that get that age later.
    #[serde(default)]
    #[schema(required = true)]
    pub older_than_at: Option<Timestamp>,
}
