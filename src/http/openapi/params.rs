//! The parameters of the calls: what the document says of them, and the names that a call knows.

use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::{Ref, Required};
use utoipa::{IntoParams, ToSchema};

use super::schemas::{
    Continue, Count, Delay, EntityTags, Flag, Key, Label, LeaseLength, PageLimit, Percent, PopMax, Prefix,
    ProblemName, QueueName, States, Traceparent, Wait, With,
};

/// The names of the parameters of a call.
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
    ListQuery in Query {
        "prefix" Prefix "What the names begin with.";
        "limit" PageLimit "Most entries of a page; default 500.";
        "continue" Continue "Where the page before ended.";
    }
    CloseQuery in Query {
        "drain" Flag "ResponseFuture when nothing is ready, delayed or leased any more.";
        "wait" Wait "With drain=true only: how long at most; default 0s.";
    }
    AddQuery in Query {
        "source" Label "Who produces.";
        "delay" Delay "Time until the objects may be delivered.";
        "key" Key "The key of a single object that does not carry it. In mode keys the body may then be empty.";
        "rate_limited" Flag "Mode keys only, and not with delay: AddRateLimited.";
    }
    UpdateQuery in Query {
        "source" Label "Who produces.";
        "delay" Delay "Time until the objects may be delivered.";
        "key" Key "The key of a single object that does not carry it.";
    }
    DeleteQuery in Query {
        "source" Label "Who produces.";
        "key" Key "The key of a single object that does not carry it. The body may then be empty.";
    }
    ReplaceQuery in Query {
        "source" Label "Whose set it is.";
        "only_changed" Flag "Queue nothing for objects that have not changed.";
        "max_delete_percent" Percent "Refuse to delete more than this percentage of the source's keys.";
        "max_deletes" Count "Refuse to delete more than this many keys.";
        "dry_run" Flag "Only tell what would happen.";
        "count" Count "How many objects the list has. NDJSON needs it, or a last line {\"$end\":N}.";
    }
    PopQuery in Query {
        "wait" Wait "How long to wait for a key; default 0s.";
        "max" PopMax "Most keys; default 1.";
        "lease" LeaseLength "How long the leases last; default is the queue's setting.";
        "worker" Label "Who asks.";
        "id" Label "Names the pop: repeated while its leases live, it returns the same leases.";
        "with" With "`known` adds the object that was acknowledged last.";
    }
    ItemsQuery in Query {
        "state" States "States, joined by commas; default ready,delayed, with worker leased.";
        "worker" Label "Leased keys of this worker only.";
        "key" Key "One key: the answer is its document.";
        "limit" PageLimit "Most entries of a page; default 500.";
        "continue" Continue "Where the page before ended.";
    }
    KnownQuery in Query {
        "prefix" Prefix "What the keys begin with.";
        "source" Label "Objects that this source owns.";
        "key" Key "One key: the answer is its document.";
        "limit" PageLimit "Most entries of a page; default 500.";
        "continue" Continue "Where the page before ended.";
    }
    HistoryQuery in Query {
        "key" Key required "The key.";
        "limit" PageLimit "Most entries of a page; default 500.";
        "continue" Continue "Where the page before ended.";
    }
    KeyHistoryQuery in Query {
        "limit" PageLimit "Most entries of a page; default 500.";
        "continue" Continue "Where the page before ended.";
    }
    SyncedQuery in Query { "wait" Wait "How long to wait for it; default 0s."; }
    InTrace in Header { "traceparent" Traceparent "The trace that the call belongs to (W3C Trace Context); kept with each delta that it queues. A value that is not valid is ignored."; }
    Conditional in Header { "if-none-match" EntityTags "Entity tags that the caller has."; }
}

/// Says that a call without the parameter is refused.
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
