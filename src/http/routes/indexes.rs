//! Indexes of known objects: the list of indexes, the values of an index, and lookups.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use deltaq_engine::limits::INDEX_VALUE_BYTES_MAX;
use deltaq_service::{Handle, Lookup};
use deltaq_types::{IndexDocument, IndexValueDocument, Page};

use super::pages::{self, page_limit, reply_in_pages, wants_lines};
use crate::http::gate::limits::INDEX_WAIT_MAX;
use crate::http::openapi::params::{InQueue, IndexQuery, IndexesQuery, OfIndex};
use crate::http::openapi::responses::{Always, NotAcceptable, OfQueue};
use crate::http::problem::Problem;
use crate::http::request::call::ReadCall;
use crate::http::request::cursor::{self, List};
use crate::http::request::params::{Params, path_index, wrong};
use crate::http::wire;

/// List the indexes of the queue, in the order of their names.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/indexes", tag = "reading", operation_id = "list_indexes",
    params(InQueue, IndexesQuery),
    responses(
        (status = 200, description = "A page.", content((Page<IndexDocument> = "application/json"), (Vec<IndexDocument> = "application/x-ndjson"))),
        Always, OfQueue, NotAcceptable,
    )
)]
pub(in crate::http) async fn list(call: ReadCall) -> Result<Response, Problem> {
    reply_in_pages(call, index_page).await
}

async fn index_page(
    handle: Arc<Handle>,
    after: Option<String>,
    limit: usize,
) -> Result<Page<IndexDocument>, Problem> {
    let after = after.map(|after| cursor::decode(List::Indexes, &handle.lives(), &after)).transpose()?;
    let page = handle.indexes(after, limit).await?;
    let items = page.entries.iter().map(wire::index).collect();
    let next =
        page.next.map(|name| cursor::encode(List::Indexes, &handle.lives(), page.resource_version, &name));
    Ok(Page { items, next, resource_version: page.resource_version.get() })
}

/// List the values of an index in the order of their bytes, with the number of keys of each.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/indexes/{name}", tag = "reading", operation_id = "list_index_values",
    params(InQueue, OfIndex, IndexQuery),
    responses(
        (status = 200, description = "A page.", content((Page<IndexValueDocument> = "application/json"), (Vec<IndexValueDocument> = "application/x-ndjson"))),
        Always, OfQueue, NotAcceptable,
    )
)]
pub(in crate::http) async fn values(call: ReadCall) -> Result<Response, Problem> {
    let handle = call.state.partitions.get(&call.name()?)?;
    let index: Arc<str> = path_index(call.uri.path())?.into();
    let ReadCall { params, headers, context, .. } = call;
    let streams = wants_lines(&headers)?;
    let prefix: Arc<str> = params.text("prefix").unwrap_or_default().into();
    let limit = page_limit(&params, streams)?.entries;
    let wait = wait(&params)?;
    let after = params.text("continue").map(str::to_owned);
    let page = move |after| value_page(handle.clone(), index.clone(), prefix.clone(), after, limit, wait);
    pages::reply(context, streams, after, page).await
}

async fn value_page(
    handle: Arc<Handle>,
    index: Arc<str>,
    prefix: Arc<str>,
    after: Option<String>,
    limit: usize,
    wait: Duration,
) -> Result<Page<IndexValueDocument>, Problem> {
    let list = List::IndexValues { index: &index };
    let after = after.map(|after| cursor::decode(list, &handle.lives(), &after)).transpose()?;
    let page = handle.index_values(&index, &prefix, after, limit, wait).await?;
    let next = page.next.map(|value| cursor::encode(list, &handle.lives(), page.resource_version, &value));
    let items = page.entries.into_iter();
    let items =
        items.map(|found| IndexValueDocument { value: found.value, keys: found.keys as u64 }).collect();
    Ok(Page { items, next, resource_version: page.resource_version.get() })
}

/// The lookup of a list of known objects, if it has one.
pub(super) fn lookup(params: &Params) -> Result<Option<Arc<Lookup>>, Problem> {
    let wait = wait(params)?;
    let (index, value) = match (params.text("index"), params.text_or_empty("value")) {
        (Some(index), Some(value)) => (index.into(), value.to_owned()),
        (Some(_), None) => return Err(wrong("index", "it needs value")),
        (None, Some(_)) => return Err(wrong("value", "it needs index")),
        (None, None) if params.text("wait").is_some() => return Err(wrong("wait", "it needs index")),
        (None, None) => return Ok(None),
    };
    if params.text("key").is_some() {
        return Err(wrong("key", "a list of the keys with a value has no key"));
    }
    if value.len() > INDEX_VALUE_BYTES_MAX {
        let why = format!(
            "it has {} bytes; longer values than {INDEX_VALUE_BYTES_MAX} are in no index",
            value.len()
        );
        return Err(wrong("value", &why).with("limit", INDEX_VALUE_BYTES_MAX));
    }
    Ok(Some(Arc::new(Lookup { index, value, wait })))
}

fn wait(params: &Params) -> Result<Duration, Problem> {
    Ok(params.duration("wait", Duration::ZERO..=INDEX_WAIT_MAX)?.unwrap_or_default())
}
