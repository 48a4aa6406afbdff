//! The parameters of the operations: their descriptions, and their names.

use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::{Ref, Required};
use utoipa::{IntoParams, ToSchema};

use super::schemas::{
    Continue, Count, Delay, Duplicates, EntityTags, ErrorText, Fields, Flag, IndexName, IndexText, Key,
    Label, LastEventId, LeaseLength, ObjectFields, PageLimit, Percent, PopMax, Prefix, ProblemName,
    QueueFields, QueueName, ShardName, States, Traceparent, Version, VersionOrNow, ViewName, Wait, WaitFor,
    With,
};

/// The names of the parameters of an operation.
pub(in crate::http) trait Names {
    /// In the order of the document.
    const NAMES: &[&str];
}

macro_rules! parameters {
    ($($set:ident in $place:ident { $($name:literal $schema:ident $($must:ident)? $description:literal;)* })*) => {$(
        #[doc = concat!("Parameters in the ", stringify!($place), ".")]
        pub(in crate::http) struct $set;

        impl Names for $set {
            const NAMES: &[&str] = &[$($name),*];
        }

        impl IntoParams for $set {
            fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
                vec![$({
                    let known = parameter::<$schema>($name, ParameterIn::$place, $description);
                    $(let known = $must(known);)?
                    known.build()
                }),*]
            }
        }
    )*};
}

parameters! {
    InQueue in Path { "queue" QueueName "The queue's name."; }
    OfKey in Path { "key" Key "The key, percent-encoded; it may contain slashes."; }
    OfProblem in Path { "name" ProblemName "The problem's code."; }
    OfIndex in Path { "name" IndexName "The name of the index."; }
    ListQuery in Query {
        "prefix" Prefix "The start of the names.";
        "fields" QueueFields "The fields of each queue, such as `name,status`; default all.";
        "limit" PageLimit "Most entries of a page; default 500.";
        "continue" Continue "The `continue` of the previous page.";
    }
    DeleteQueueQuery in Query {
        "force" Flag "Detach the queues that follow this queue; otherwise a queue with followers is not deleted.";
    }
    CloseQuery in Query {
        "wait_for" WaitFor "What pops of the closed queue wait for: `leases` (the default) until no key is ready, delayed or leased; `none` only while keys are ready.";
        "drain" Flag "Reply when no key is ready, delayed or leased.";
        "wait" Wait "With drain=true only: the longest wait; default 0s.";
    }
    AddQuery in Query {
        "source" Label "The producer, who owns the keys from now on.";
        "sequence" Count "With source: the number of the call. A call whose number is not larger than the last one of its source changes nothing.";
        "delay" Delay "Time until the objects become ready.";
        "key" Key "The key of a single object that does not carry it. In mode keys the body may then be empty.";
        "rate_limited" Flag "Mode keys only, and not with delay: AddRateLimited.";
    }
    UpdateQuery in Query {
        "source" Label "The producer, who owns the keys from now on.";
        "sequence" Count "With source: the number of the call. A call whose number is not larger than the last one of its source changes nothing.";
        "delay" Delay "Time until the objects become ready.";
        "key" Key "The key of a single object that does not carry it.";
    }
    DeleteQuery in Query {
        "source" Label "The producer, who owns the keys from now on.";
        "sequence" Count "With source: the number of the call. A call whose number is not larger than the last one of its source changes nothing.";
        "key" Key "The key of a single object that does not carry it. The body may then be empty.";
    }
    DeltasQuery in Query {
        "source" Label "The producer of the entries that name none.";
        "sequence" Count "With source: the number of the call. A call whose number is not larger than the last one of its source changes nothing.";
        "skip_invalid" Flag "Leave out entries whose object is not valid, instead of refusing the call; the reply names them.";
    }
    ReplaceQuery in Query {
        "source" Label "The owner of the set.";
        "sequence" Count "With source: the number of the call. A call whose number is not larger than the last one of its source changes nothing.";
        "only_changed" Flag "Queue nothing for objects that have not changed.";
        "max_delete_percent" Percent "Refuse to delete more than this percentage of the source's keys.";
        "max_deletes" Count "Refuse to delete more than this many keys.";
        "allow_empty" Flag "Let an empty list delete everything of the source.";
        "duplicates" Duplicates "`last` keeps the last object of a key that the list names several times; without it such a list is refused.";
        "skip_invalid" Flag "Leave out objects that are not valid, instead of refusing the list; the reply names them. Their keys keep what they have. At most a tenth of the list, or one object.";
        "dry_run" Flag "Reply with the counts and change nothing.";
        "count" Count "The number of objects in the list. NDJSON needs it, or a last line {\"$end\":N}.";
    }
    PopQuery in Query {
        "wait" Wait "The longest wait for a key; default 0s.";
        "max" PopMax "Most keys; default 1.";
        "lease_duration" LeaseLength "The length of the leases; default: the setting of the queue.";
        "worker" Label "The name of the worker, shown with its leases.";
        "id" Label "The name of the pop: a repeat while its leases live returns the same leases.";
        "with" With "`known` adds the object that was acknowledged last.";
    }
    ItemsQuery in Query {
        "state" States "States, joined by commas; default all.";
        "worker" Label "Leased keys of this worker only.";
        "prefix" Prefix "The start of the keys.";
        "source" Label "Keys that this source owns.";
        "error" ErrorText "Keys whose last failure had exactly this error; the empty text means keys without an error.";
        "key" Key "Only this key.";
        "fields" Fields "The fields of each item, such as `key`; default all.";
        "limit" PageLimit "Most entries of a page; default 500.";
        "continue" Continue "The `continue` of the previous page.";
    }
    ViewQuery in Query {
        "prefix" Prefix "The start of the keys.";
        "source" Label "Objects that this source owns.";
        "shard" ShardName "One part of all keys, such as `0/4`: the keys whose CRC-32C modulo 4 is 0.";
        "key" Key "Only this key.";
        "fields" ObjectFields "The fields of each object, such as `key`; default all.";
        "limit" PageLimit "Most entries of a page; default 500.";
        "continue" Continue "The `continue` of the previous page.";
    }
    KnownQuery in Query {
        "index" IndexName "With value: only objects that have the value in this index.";
        "value" IndexText "With index: the value.";
        "wait" Wait "With index: the longest wait for an index that is being built, at most 10s; default 0s.";
        "prefix" Prefix "The start of the keys.";
        "source" Label "Objects that this source owns.";
        "shard" ShardName "One part of all keys, such as `0/4`: the keys whose CRC-32C modulo 4 is 0.";
        "key" Key "Only this key.";
        "fields" ObjectFields "The fields of each object, such as `key`; default all.";
        "limit" PageLimit "Most entries of a page; default 500.";
        "continue" Continue "The `continue` of the previous page.";
    }
    IndexQuery in Query {
        "prefix" Prefix "The start of the values.";
        "wait" Wait "The longest wait for an index that is being built, at most 10s; default 0s.";
        "limit" PageLimit "Most entries of a page; default 500.";
        "continue" Continue "The `continue` of the previous page.";
    }
    ObjectQuery in Query {
        "min_resource_version" Count "A version that the queue must have: a queue that does not, because a backup was restored or another queue has the name, refuses the read.";
    }
    ObjectOfQuery in Query {
        "view" ViewName "The view; default `latest`.";
        "key" Key required "The key.";
        "min_resource_version" Count "A version that the queue must have: a queue that does not, because a backup was restored or another queue has the name, refuses the read.";
    }
    WatchQuery in Query {
        "view" ViewName "The view; default `latest`.";
        "resource_version" Version "The watch sends what has changed since this version: of a list, of a row, `now`, or 0, the default, for all keys first.";
        "send_initial_events" Flag "Send all keys first, as `Added`, then a `Bookmark` with `initial_events_end`.";
        "prefix" Prefix "The start of the keys.";
        "shard" ShardName "One part of all keys, such as `0/4`: the keys whose CRC-32C modulo 4 is 0.";
        "bookmark" Delay "Streams only: the interval of bookmarks while nothing changes, from 1s to 1m; default 15s.";
        "wait" Wait "JSON only: the longest wait for a change; default 0s.";
        "limit" PageLimit "JSON only: most rows; default 500.";
        "continue" Continue "JSON only: the `continue` of the previous page of the initial keys.";
    }
    HistoryQuery in Query {
        "key" Key required "The key.";
        "limit" PageLimit "Most entries of a page; default 500.";
        "continue" Continue "The `continue` of the previous page.";
    }
    KeyQuery in Query { "key" Key required "The key."; }
    ParkedQuery in Query {
        "limit" PageLimit "Most entries of a page; default 500.";
        "continue" Continue "The `continue` of the previous page.";
    }
    IndexesQuery in Query {
        "limit" PageLimit "Most entries of a page; default 500.";
        "continue" Continue "The `continue` of the previous page.";
    }
    KeyHistoryQuery in Query {
        "limit" PageLimit "Most entries of a page; default 500.";
        "continue" Continue "The `continue` of the previous page.";
    }
    SourcesQuery in Query {
        "limit" PageLimit "Most entries of a page; default 500.";
        "continue" Continue "The `continue` of the previous page.";
    }
    WorkersQuery in Query {
        "limit" PageLimit "Most entries of a page; default 500.";
        "continue" Continue "The `continue` of the previous page.";
    }
    SyncedQuery in Query {
        "resource_version" VersionOrNow "Wait until every change up to this version is acknowledged, not for the initial list. `now` is the newest version.";
        "wait" Wait "The longest wait; default 0s.";
    }
    InTrace in Header { "traceparent" Traceparent "The trace of the call (W3C Trace Context), stored with each delta that the call queues. An invalid value is ignored."; }
    Resumed in Header { "last-event-id" LastEventId "Server-sent events only: the id of the last event that the caller has, instead of resource_version. A browser sends it by itself."; }
    Conditional in Header { "if-none-match" EntityTags "Entity tags of the caller's copies."; }
    Expected in Header {
        "if-match" EntityTags "Entity tags of the settings that the queue must have, or `*` for any; otherwise 412.";
        "if-none-match" EntityTags "`*`: the queue must not exist; otherwise 412.";
    }
}

/// Marks a parameter as required.
fn required(parameter: ParameterBuilder) -> ParameterBuilder {
    parameter.required(Required::True)
}

fn parameter<T: ToSchema>(name: &str, place: ParameterIn, description: &str) -> ParameterBuilder {
    let required = if place == ParameterIn::Path { Required::True } else { Required::False };
    ParameterBuilder::new()
        .name(name)
        .parameter_in(place)
        .required(required)
        .description(Some(description))
        .schema(Some(Ref::from_schema_name(T::name())))
}
