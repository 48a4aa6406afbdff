//! Enums of replies. A newer server may send other values, which become `Unrecognized`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

macro_rules! words {
    ($($(#[doc = $doc:literal])* $name:ident { $($(#[doc = $about:literal])* $variant:ident = $text:literal,)* })*) => {$(
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[doc = $about])* #[serde(rename = $text)] $variant,)*
            /// A word that this version of the crate does not know.
            #[serde(other)]
            Unrecognized,
        }

        impl $name {
            /// All known words.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The word in JSON.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                    Self::Unrecognized => "Unrecognized",
                }
            }
        }

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                ObjectBuilder::new()
                    .schema_type(Type::String)
                    .description(Some(concat!($($doc),*).trim()))
                    .enum_values(Some([$($text),*]))
                    .into()
            }
        }

        impl ToSchema for $name {
            fn name() -> Cow<'static, str> {
                stringify!($name).into()
            }
        }
    )*};
}

words! {
    /// Why nobody can say when no key is left.
    DrainReason {
        /// The server did not run for long enough to tell, or keys wait only since the last minute.
        Unknown = "unknown",
        /// Keys wait, and none of them was acknowledged.
        Stalled = "stalled",
        /// At least as many keys come as go.
        Growing = "growing",
    }
    /// The type of a row of a watch.
    RowType {
        /// The key entered the view after the watch's version.
        Added = "Added",
        /// The key has changed.
        Updated = "Updated",
        /// The key left the view.
        Deleted = "Deleted",
        /// The watch has sent everything up to a version.
        Bookmark = "Bookmark",
        /// The watch ends with a problem.
        Error = "Error",
        /// The position of an `EventSource` can't be continued. The watch continues from another position.
        Expired = "Expired",
    }
    /// The type of a delta.
    DeltaType {
        /// A producer added the object.
        Added = "Added",
        /// A producer changed the object.
        Updated = "Updated",
        /// A producer deleted the object, or a Replace did not list it.
        Deleted = "Deleted",
        /// A Replace listed the object.
        Replaced = "Replaced",
        /// A Resync repeats the known object.
        Sync = "Sync",
    }
    /// What an operation of a difference does.
    DiffOp {
        /// The value is new.
        Add = "add",
        /// The value is gone.
        Remove = "remove",
        /// The value has replaced another one.
        Replace = "replace",
    }
    /// Why a difference is left out.
    DiffOmission {
        /// It has more than 1,000 operations or is too large.
        TooLarge = "too_large",
    }
    /// The result of a settle or of an extension.
    SettleResult {
        /// The call took effect.
        Ok = "ok",
        /// The lease was settled in the same way before: equivalent to `Ok`.
        Repeated = "repeated",
        /// The lease had ended before.
        Stale = "stale",
        /// The lease has no delta with the number in `through`.
        NotLeased = "not_leased",
    }
    /// How a lease ended.
    LeaseOutcome {
        /// Acknowledged.
        Acked = "acked",
        /// Mode keys: done, and the failures are kept.
        Done = "done",
        /// Failed, as its worker reported.
        Nacked = "nacked",
        /// Released by its worker.
        Released = "released",
        /// Rejected by its worker: the key is parked, unless a newer change waited.
        Rejected = "rejected",
        /// The deadline passed.
        Expired = "expired",
        /// The delivery did not arrive, and the key returned to its former position.
        Returned = "returned",
        /// The lease never existed, or ended too long ago to be remembered.
        Unknown = "unknown",
    }
    /// Whether an index can be read.
    IndexState {
        /// It has all known objects.
        Ready = "ready",
        /// It is being built.
        Building = "building",
    }
    /// What a follower does.
    FollowState {
        /// The follower takes the list of all keys.
        Listing = "listing",
        /// The follower takes changes.
        Following = "following",
        /// The follower takes nothing, because it has too many keys, because events were lost, or because its token may
        /// not read the followed queue.
        Blocked = "blocked",
        /// The follower takes nothing, because the followed queue can't be read or the follower can't be changed.
        Waiting = "waiting",
    }
    /// Why a queue has paused itself.
    PauseReason {
        /// The endpoint of the setting `push` has answered 410: it is gone for good.
        EndpointGone = "endpoint_gone",
        /// The endpoint of the setting `push` has failed for as long as `disable_after`.
        EndpointFailing = "endpoint_failing",
    }
    /// Why a delivery of a webhook was not applied.
    DeliveryReason {
        /// Its signature is wrong. The delivery is not kept.
        Signature = "signature",
        /// It does not meet the conditions of `only`.
        Filtered = "filtered",
        /// Its body is not a JSON object.
        InvalidJson = "invalid_json",
        /// The body has no object at the pointer `object`.
        NoObject = "no_object",
        /// The object has no key.
        NoKey = "no_key",
        /// The key of the object is not valid.
        InvalidKey = "invalid_key",
        /// The settings of the queue refuse the object.
        InvalidObject = "invalid_object",
        /// The object is larger than `max_object_bytes`.
        ObjectTooLarge = "object_too_large",
    }
    /// What the sender of a queue with the setting `push` does.
    PushState {
        /// It sends.
        Sending = "sending",
        /// The endpoint has failed repeatedly. One request at a time tests whether it works again.
        Failing = "failing",
        /// It sends nothing, because the queue has paused itself.
        Disabled = "disabled",
        /// It sends nothing, because the server's settings do not permit the URL or have not the secrets.
        Refused = "refused",
    }
    /// Why a follower takes nothing.
    FollowReason {
        /// `max_waiting` or `max_keys` is reached, or in mode events a bound of a key.
        Full = "full",
        /// A Replace or a seed of the follower has not ended.
        Busy = "busy",
        /// The followed queue can't be read, or the follower can't be changed. The follower tries again.
        Failed = "failed",
        /// Mode events: the followed queue no longer has all events that the follower lacks.
        HistoryLost = "history_lost",
        /// The token that has set up the follower may not read the followed queue. The follower goes on when it may.
        NotGranted = "not_granted",
    }
    /// What an acknowledged change survives.
    Durability {
        /// Nothing: queues end with the process.
        Memory = "memory",
        /// The end of the process. A power loss may lose the last changes.
        Normal = "normal",
        /// A power loss.
        Full = "full",
    }
    /// Where changes are stored.
    StoreKind {
        /// Nowhere.
        Memory = "memory",
        /// A file of SQLite.
        Sqlite = "sqlite",
        /// A PostgreSQL database.
        Postgres = "postgres",
    }
    /// What a node does.
    NodeStatus {
        /// It takes no partitions until it and the other nodes have called each other.
        Joining = "joining",
        /// It serves its partitions.
        Serving = "serving",
        /// It is stopping.
        Leaving = "leaving",
        /// Its last heartbeat is older than two seconds.
        Late = "late",
    }
    /// What a grant of a token permits.
    GrantVerb {
        /// Read the state of the queues.
        Read = "read",
        /// Send objects to them.
        Produce = "produce",
        /// Pop from them, and settle leases.
        Consume = "consume",
        /// Configure, pause, purge, seed and delete them; redrive and discard parked keys.
        Admin = "admin",
    }
    /// The state of a key.
    ItemState {
        /// The key waits in the ready queue.
        Ready = "ready",
        /// The key waits for a delay or a backoff.
        Delayed = "delayed",
        /// A worker holds the key.
        Leased = "leased",
        /// The key is not delivered until a new change or a redrive; in mode events until a redrive or a discard.
        Parked = "parked",
    }
    /// Why a key is not delivered.
    HoldReason {
        /// A worker holds the key.
        Leased = "leased",
        /// The key waits for a delay.
        Delayed = "delayed",
        /// The key waits for a pause in its changes (the setting `debounce`).
        Debouncing = "debouncing",
        /// The key has failed and waits for its backoff.
        BackingOff = "backing_off",
        /// The key is parked.
        Parked = "parked",
        /// The key is ready, and the queue is paused.
        Paused = "paused",
        /// The key is ready, and a worker has asked that nothing is delivered for a time.
        Held = "held",
        /// The key is ready, and workers hold as many keys as the setting `max_leased` allows.
        QueueLimit = "queue_limit",
        /// The key is ready, and workers hold as many keys of its group as the setting `groups` allows.
        GroupLimit = "group_limit",
        /// The key is ready, and its group is paused.
        GroupPaused = "group_paused",
        /// The key is ready, and a worker has asked that nothing of its group is delivered for a time.
        GroupHeld = "group_held",
        /// A worker has asked that the key is not delivered for a time.
        KeyHeld = "key_held",
        /// The key is ready, and waits for the setting `rate`.
        RateLimited = "rate_limited",
        /// The key is ready, and waits for the rate of its group.
        GroupRateLimited = "group_rate_limited",
        /// The key is delayed, and the queue is closed, so the delay does not end.
        Closed = "closed",
        /// Other ready keys are ahead of the key.
        Queued = "queued",
        /// The key is delivered to the next pop.
        Next = "next",
        /// The key has no change that is not acknowledged.
        NothingWaits = "nothing_waits",
        /// The queue does not have the key.
        Unknown = "unknown",
    }
    /// Why a version or a `continue` token can't be continued.
    ExpiredReason {
        /// The version is above the newest one of the queue.
        Ahead = "ahead",
        /// The queue has forgotten which keys were deleted since.
        TooOld = "too_old",
        /// The version or the token is from a deleted queue, or from a history that the server has lost.
        Lost = "lost",
        /// The token belongs to another list.
        WrongList = "wrong_list",
    }
    /// The kind of an event in the history of a key.
    EventName {
        /// A delta was queued.
        Appended = "appended",
        /// Mode keys: the key was queued.
        Queued = "queued",
        /// Mode keys: a rate-limited add counted as a failure.
        Failed = "failed",
        /// The waiting deltas were dropped.
        Dropped = "dropped",
        /// The newest object was replaced; only ignored members differ.
        Refreshed = "refreshed",
        /// Another source owns the key from now on.
        TakenOver = "taken_over",
        /// The key was delivered to a worker.
        Leased = "leased",
        /// The lease got a new deadline.
        Extended = "extended",
        /// The older ones of the leased deltas were acknowledged. The lease continues with the others.
        Progressed = "progressed",
        /// The lease ended.
        Settled = "settled",
        /// A delay or backoff ended.
        DelayElapsed = "delay_elapsed",
        /// The failures were reset.
        Forgotten = "forgotten",
        /// The parked key became ready.
        Redriven = "redriven",
        /// The key was removed.
        Removed = "removed",
        /// The queue remembers a version that none of its objects has.
        VersionRemembered = "version_remembered",
        /// The object became known without a delta.
        Seeded = "seeded",
    }
}
