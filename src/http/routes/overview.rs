//! Lists over all queues that the caller may read.

use axum::response::Response;
use deltaq_types::{PageOfQueues, QueueSourceDocument, ReflectorDocument};

use super::pages::{reply, wants_lines};
use crate::http::cluster::across::{Entry, Filter, page};
use crate::http::gate::limits::{PAGE_DEFAULT, PAGE_MAX};
use crate::http::openapi::params::{AllSourcesQuery, ReflectorsQuery};
use crate::http::openapi::responses::{Always, ExpiredToken, NotAcceptable, Unavailable};
use crate::http::problem::Problem;
use crate::http::request::call::ReadCall;

/// List the sources of all queues that the caller may read, by queue and name.
#[utoipa::path(
    get, path = "/v1/sources", tag = "reading", operation_id = "list_all_sources",
    params(AllSourcesQuery),
    responses(
        (status = 200, description = "A page.", content((PageOfQueues<QueueSourceDocument> = "application/json"), (Vec<QueueSourceDocument> = "application/x-ndjson"))),
        Always, NotAcceptable, ExpiredToken, Unavailable,
    )
)]
pub(in crate::http) async fn sources(call: ReadCall) -> Result<Response, Problem> {
    let stale = call.params.flag("stale")?;
    list::<QueueSourceDocument>(call, Filter { stale, ..Filter::default() }).await
}

async fn list<T: Entry + 'static>(call: ReadCall, filter: Filter) -> Result<Response, Problem> {
    let ReadCall { params, headers, context, .. } = call;
    let streams = wants_lines(&headers)?;
    let limit = params.count("limit", 1..=PAGE_MAX)?.filter(|_| !streams).unwrap_or(PAGE_DEFAULT);
    let filter = Filter { queue: params.queue()?.map(str::to_owned), ..filter };
    let after = params.text("continue").map(str::to_owned);
    let read = context.clone();
    reply(context, streams, after, move |after| page::<T>(read.clone(), filter.clone(), after, limit)).await
}

/// List the reflectors of all queues that the caller may read, by queue, source and instance.
#[utoipa::path(
    get, path = "/v1/reflectors", tag = "reading", operation_id = "list_reflectors",
    params(ReflectorsQuery),
    responses(
        (status = 200, description = "A page.", content((PageOfQueues<ReflectorDocument> = "application/json"), (Vec<ReflectorDocument> = "application/x-ndjson"))),
        Always, NotAcceptable, ExpiredToken, Unavailable,
    )
)]
pub(in crate::http) async fn reflectors(call: ReadCall) -> Result<Response, Problem> {
    list::<ReflectorDocument>(call, Filter::default()).await
}
