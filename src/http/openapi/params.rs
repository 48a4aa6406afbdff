//! The parameters of the operations, with their descriptions.

use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::{Ref, Required};
use utoipa::{IntoParams, ToSchema};

use super::schemas::{
    Continue, Count, Delay, DeliveryNumber, Duplicates, EntityTags, ErrorText, Fields, Flag, GroupName,
    GroupSortName, HeadStart, IndexName, IndexText, Key, Label, LastEventId, LeaseLength, ObjectFields,
    PageLimit, Percent, PopMax, Prefix, ProblemName, QueueFields, QueueName, ShardName, Since, States, Step,
    Traceparent, Version, VersionOrNow, ViewName, Wait, WaitFor, With, WithDiff,
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
    OfSource in Path { "source" Label "The name of the source, percent-encoded; it may contain slashes."; }
    OfDelivery in Path { "number" DeliveryNumber "The number of the delivery."; }
    OfProblem in Path { "name" ProblemName "The problem's code."; }
    OfIndex in Path { "name" IndexName "The name of the index."; }
    ListQuery in Query {
        "prefix" Prefix "Only queues whose names begin with this text.";
        "fields" QueueFields "The fields of each queue, such as `name,status`; default all.";
        "limit" PageLimit "Maximum number of entries in a page, up to 5,000; default 500.";
        "continue" Continue "The `continue` of the previous page.";
    }
    SeriesQuery in Query {
        "since" Since "Where the series begins: an instant, or how long ago, up to 24h; default 1h.";
        "until" Since "Where the series ends: an instant, or how long ago; default: the end of the last complete minute.";
        "step" Step "The length of a point, in whole minutes from 1m to 24h; default 1m.";
    }
    SettingsQuery in Query {
        "force" Flag "Detach the queues that follow this queue if they can't follow it with the new settings; otherwise such a change is refused.";
    }
    DeleteQueueQuery in Query {
        "force" Flag "Detach the queues that follow this queue; otherwise a queue with followers is not deleted.";
    }
    CloseQuery in Query {
        "wait_for" WaitFor "When pops of the closed queue end: with `leases`, the default, once no key is ready, delayed or leased; with `none` once no key is ready.";
        "drain" Flag "Reply only once no key is ready, delayed or leased, or `wait` has passed.";
        "wait" Wait "Only with drain=true: the maximum wait; default 0s.";
    }
    AddQuery in Query {
        "source" Label "The producer, which becomes the owner of the keys.";
        "sequence" Count "With source: the sequence number of the call. If it is not larger than the last number of the source, the call changes nothing.";
        "delay" Delay "Time until the objects become ready.";
        "debounce" Delay "The time that the keys must be quiet before they are delivered, instead of the setting; 0s for none.";
        "max_wait" Delay "Only with debounce: the longest wait of the objects, at least debounce; default 10 times debounce.";
        "head_start" HeadStart "How much earlier than they did the objects count as arrived, instead of the setting order.";
        "key" Key "The key of a single object that does not contain it. In mode keys the body may then be empty.";
        "rate_limited" Flag "Only in mode keys, and without delay: the keys wait as after a failure, and the call counts as one (AddRateLimited).";
        "must_exist" Flag "Refuse the call with 404 `queue-not-found` if the queue does not exist, instead of creating it.";
    }
    UpdateQuery in Query {
        "source" Label "The producer, which becomes the owner of the keys.";
        "sequence" Count "With source: the sequence number of the call. If it is not larger than the last number of the source, the call changes nothing.";
        "delay" Delay "Time until the objects become ready.";
        "debounce" Delay "The time that the keys must be quiet before they are delivered, instead of the setting; 0s for none.";
        "max_wait" Delay "Only with debounce: the longest wait of the objects, at least debounce; default 10 times debounce.";
        "head_start" HeadStart "How much earlier than they did the objects count as arrived, instead of the setting order.";
        "key" Key "The key of a single object that does not contain it.";
        "must_exist" Flag "Refuse the call with 404 `queue-not-found` if the queue does not exist, instead of creating it.";
    }
    DeleteQuery in Query {
        "source" Label "The producer, which becomes the owner of the keys.";
        "sequence" Count "With source: the sequence number of the call. If it is not larger than the last number of the source, the call changes nothing.";
        "debounce" Delay "The time that the keys must be quiet before they are delivered, instead of the setting; 0s for none.";
        "max_wait" Delay "Only with debounce: the longest wait of the deletions, at least debounce; default 10 times debounce.";
        "head_start" HeadStart "How much earlier than they did the deletions count as arrived, instead of the setting order.";
        "key" Key "The key of a single object that does not contain it. The body may then be empty.";
        "must_exist" Flag "Refuse the call with 404 `queue-not-found` if the queue does not exist, instead of creating it.";
    }
    DeltasQuery in Query {
        "source" Label "The producer of the entries without a `source`.";
        "sequence" Count "With source: the sequence number of the call. If it is not larger than the last number of the source, the call changes nothing.";
        "skip_invalid" Flag "Leave out entries with an invalid object instead of refusing the call, however many they are. The reply names the first 10.";
        "must_exist" Flag "Refuse the call with 404 `queue-not-found` if the queue does not exist, instead of creating it.";
    }
    ReplaceQuery in Query {
        "source" Label "The source whose list this is. Without it, the call applies to the keys without an owner.";
        "sequence" Count "With source: the sequence number of the call. If it is not larger than the last number of the source, the call changes nothing.";
        "only_changed" Flag "Queue nothing for objects that have not changed.";
        "max_delete_percent" Percent "Refuse the list if it would delete more than this percentage of the source's keys, and more than max_deletes keys. If only one of the two is given, the other is 0.";
        "max_deletes" Count "Refuse the list if it would delete more than this many keys, and more than max_delete_percent of the source's keys. If only one of the two is given, the other is 0.";
        "allow_empty" Flag "Allow an empty list to delete all keys of the source.";
        "duplicates" Duplicates "`last`: if several objects have the same key, the last one is used. Without this parameter, such a list is refused.";
        "skip_invalid" Flag "Leave out invalid objects instead of refusing the list: at most a tenth of the list. A single invalid object in a list of several is always left out; a list whose only object is invalid is refused. The keys of these objects are neither changed nor deleted, and the reply names the first 10.";
        "dry_run" Flag "Reply with the counts and change nothing.";
        "count" Count "The number of objects in the list. An NDJSON list needs this parameter or a last line {\"$end\":N}.";
        "must_exist" Flag "Refuse the call with 404 `queue-not-found` if the queue does not exist, instead of creating it.";
    }
    PopQuery in Query {
        "wait" Wait "How long to wait for a key; default 0s.";
        "max" PopMax "Maximum number of keys, up to 1,000; default 1.";
        "lease_duration" LeaseLength "The length of the leases; default: the setting of the queue.";
        "worker" Label "The name of the worker, shown with its leases.";
        "id" Label "The id of the pop: a repeated pop with the same id returns the same leases while they are live.";
        "group" GroupName "Only keys of this group, outside its turns; the empty text is the group without a name.";
        "with" With "`known` adds to each item the object that was acknowledged last, and `diff` the difference from that object to the newest one. `known,diff` adds both.";
    }
    ExtendQuery in Query {
        "until_changed" Flag "Reply only once one of the leases has a newer change or has ended, or `wait` has passed.";
        "wait" Wait "Only with until_changed: the maximum wait; default 0s.";
    }
    ItemsQuery in Query {
        "state" States "States, joined by commas; default all.";
        "worker" Label "Only keys that this worker has leased.";
        "prefix" Prefix "Only keys that begin with this text.";
        "source" Label "Only keys that this source owns.";
        "error" ErrorText "Only keys whose last failure had exactly this error. The empty text selects keys without an error.";
        "key" Key "Only this key.";
        "fields" Fields "The fields of each item, such as `key`; default all.";
        "with" WithDiff "`diff` adds to each item the difference from the object that was acknowledged last to the newest one.";
        "limit" PageLimit "Maximum number of entries in a page, up to 5,000; default 500.";
        "continue" Continue "The `continue` of the previous page.";
    }
    ViewQuery in Query {
        "prefix" Prefix "Only keys that begin with this text.";
        "source" Label "Only objects that this source owns.";
        "shard" ShardName "One part of all keys, such as `0/4`: the keys whose CRC-32C modulo 4 is 0.";
        "key" Key "Only this key.";
        "fields" ObjectFields "The fields of each object, such as `key`; default all.";
        "limit" PageLimit "Maximum number of entries in a page, up to 5,000; default 500.";
        "continue" Continue "The `continue` of the previous page.";
    }
    KnownQuery in Query {
        "index" IndexName "With value: only objects that have the value in this index.";
        "value" IndexText "With index: the value.";
        "wait" Wait "With index: how long to wait for an index that is being built, at most 10s; default 0s.";
        "prefix" Prefix "Only keys that begin with this text.";
        "source" Label "Only objects that this source owns.";
        "shard" ShardName "One part of all keys, such as `0/4`: the keys whose CRC-32C modulo 4 is 0.";
        "key" Key "Only this key.";
        "fields" ObjectFields "The fields of each object, such as `key`; default all.";
        "limit" PageLimit "Maximum number of entries in a page, up to 5,000; default 500.";
        "continue" Continue "The `continue` of the previous page.";
    }
    IndexQuery in Query {
        "prefix" Prefix "Only values that begin with this text.";
        "wait" Wait "How long to wait for an index that is being built, at most 10s; default 0s.";
        "limit" PageLimit "Maximum number of entries in a page, up to 5,000; default 500.";
        "continue" Continue "The `continue` of the previous page.";
    }
    ObjectQuery in Query {
        "min_resource_version" Count "A version that the queue must have, from an earlier reply. Otherwise the read is refused, for example because a backup was restored or another queue now has the name.";
    }
    ObjectOfQuery in Query {
        "view" ViewName "The view; default `latest`.";
        "key" Key required "The key.";
        "min_resource_version" Count "A version that the queue must have: a queue that does not, because a backup was restored or another queue has the name, refuses the read.";
    }
    WatchQuery in Query {
        "view" ViewName "The view; default `latest`.";
        "resource_version" Version "The watch sends the changes after this version, which is that of a list, a row or another reply. `now` begins with the next change, and 0, the default, with all keys.";
        "send_initial_events" Flag "Send all keys first, as `Added`, then a `Bookmark` with `initial_events_end`.";
        "prefix" Prefix "Only keys that begin with this text.";
        "shard" ShardName "One part of all keys, such as `0/4`: the keys whose CRC-32C modulo 4 is 0.";
        "bookmark" Delay "Streams only: the interval of bookmarks while nothing changes, from 1s to 1m; default 15s.";
        "wait" Wait "JSON only: how long to wait for a change; default 0s.";
        "limit" PageLimit "JSON only: maximum number of rows; default 500.";
        "continue" Continue "JSON only: the `continue` of the previous page of the initial keys.";
    }
    HistoryQuery in Query {
        "key" Key required "The key.";
        "limit" PageLimit "Maximum number of entries in a page, up to 5,000; default 500.";
        "continue" Continue "The `continue` of the previous page.";
    }
    KeyQuery in Query { "key" Key required "The key."; }
    ItemQuery in Query {
        "key" Key required "The key.";
        "with" WithDiff "`diff` adds the difference from the object that was acknowledged last to the newest one.";
    }
    KeyItemQuery in Query {
        "with" WithDiff "`diff` adds the difference from the object that was acknowledged last to the newest one.";
    }
    ParkedQuery in Query {
        "limit" PageLimit "Maximum number of entries in a page, up to 5,000; default 500.";
        "continue" Continue "The `continue` of the previous page.";
    }
    IndexesQuery in Query {
        "limit" PageLimit "Maximum number of entries in a page, up to 5,000; default 500.";
        "continue" Continue "The `continue` of the previous page.";
    }
    KeyHistoryQuery in Query {
        "limit" PageLimit "Maximum number of entries in a page, up to 5,000; default 500.";
        "continue" Continue "The `continue` of the previous page.";
    }
    SourcesQuery in Query {
        "limit" PageLimit "Maximum number of entries in a page, up to 5,000; default 500.";
        "continue" Continue "The `continue` of the previous page.";
    }
    AllSourcesQuery in Query {
        "queue" QueueName "Only the sources of this queue.";
        "stale" Flag "Only sources that are stale.";
        "limit" PageLimit "Maximum number of entries in a page, up to 5,000; default 500.";
        "continue" Continue "The `continue` of the previous page.";
    }
    ReflectorsQuery in Query {
        "queue" QueueName "Only the reflectors of this queue.";
        "limit" PageLimit "Maximum number of entries in a page, up to 5,000; default 500.";
        "continue" Continue "The `continue` of the previous page.";
    }
    WorkersQuery in Query {
        "limit" PageLimit "Maximum number of entries in a page, up to 5,000; default 500.";
        "continue" Continue "The `continue` of the previous page.";
    }
    ActivityQuery in Query {
        "queue" QueueName "Only calls on this queue.";
        "by" Label "Only calls with the token of this name.";
        "operation" Label "Only calls of this operation, such as purge_queue.";
        "limit" PageLimit "Maximum number of calls in a page, up to 5,000; default 500.";
        "continue" Continue "The `continue` of the previous page.";
    }
    AllWorkersQuery in Query {
        "limit" PageLimit "Maximum number of workers, up to 5,000; default 500.";
    }
    FindQuery in Query {
        "text" Key required "The start of a key, or a part of the name of a queue, source or worker.";
    }
    GroupsQuery in Query {
        "sort" GroupSortName "What comes first: `wait`, the group whose first key has been ready longest (default); `ready` or `leased`, the group with the most ready keys or leases.";
    }
    SyncedQuery in Query {
        "resource_version" VersionOrNow "Check every change up to this version instead of the initial list: the reply says whether all of them are acknowledged. `now` is the newest version.";
        "wait" Wait "How long to wait until the list is processed or the changes are acknowledged; default 0s.";
    }
    InTrace in Header { "traceparent" Traceparent "The trace of the call (W3C Trace Context), stored with each delta that the call queues. An invalid value is ignored."; }
    Resumed in Header { "last-event-id" LastEventId "Server-sent events only: the id of the last event that the caller has received. It overrides resource_version. Browsers send it automatically."; }
    Conditional in Header { "if-none-match" EntityTags "Entity tags of the copies that the caller has. If one of them is current, the reply is 304."; }
    Expected in Header {
        "if-match" EntityTags "Change the queue only if its settings have one of these entity tags or, with `*`, only if it exists. Otherwise the reply is 412.";
        "if-none-match" EntityTags "`*`: only create the queue. If it exists, the reply is 412.";
    }
    ExpectedSettings in Header {
        "if-match" EntityTags "Make the change only if the settings of the queue have one of these entity tags. Otherwise the reply is 412.";
    }
    ExpectedObject in Header {
        "if-match" EntityTags "Only with a single object: change it only if the newest object of its key (`GET .../latest/{key}`) has one of these entity tags or, with `*`, if there is one. Otherwise the reply is 412.";
        "if-none-match" EntityTags "Only with a single object. `*`: only if there is no object of its key. Otherwise the reply is 412.";
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
