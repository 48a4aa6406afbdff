//! The items of a queue, and why a key is not delivered.

use std::sync::Arc;

use axum::response::Response;
use deltaq_engine::excerpt::Excerpt;
use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use deltaq_engine::time::Time;
use deltaq_service::{Handle, ItemFilter, ItemPosition, ListedState, PageLimit};
use deltaq_types::{ExplainDocument, ItemDocument, Page};

use super::pages::{self, page_limit, wants_lines};
use crate::http::blocking::{RENDERINGS, run_blocking};
use crate::http::openapi::params::{InQueue, ItemQuery, ItemsQuery, KeyItemQuery, KeyQuery, OfKey};
use crate::http::openapi::responses::{Always, NotAcceptable, OfQueue, Unprocessable};
use crate::http::problem::{Code, Problem};
use crate::http::reply::Json;
use crate::http::request::call::ReadCall;
use crate::http::request::cursor::{self, List};
use crate::http::request::params::{check_error, did_you_mean, wrong};
use crate::http::wire::{self, Fields, STATES, Selected};

/// Objects of this many bytes together are compared on a thread for long computations.
const LARGE_COMPARISON_BYTES: usize = 256 << 10;

/// List the keys that are ready, delayed, leased or parked; with `key`, at most that key.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/items", tag = "reading", operation_id = "list_items",
    params(InQueue, ItemsQuery),
    responses(
        (status = 200, description = "A page.", content((Page<ItemDocument> = "application/json"), (Vec<ItemDocument> = "application/x-ndjson"))),
        Always, OfQueue, NotAcceptable, Unprocessable,
    )
)]
pub(in crate::http) async fn items(call: ReadCall) -> Result<Response, Problem> {
    let handle = call.state.partitions.get(&call.name()?)?;
    let ReadCall { params, headers, context, .. } = call;
    let fields = Fields::read::<ItemDocument>(params.text("fields"))?;
    let streams = wants_lines(&headers)?;
    let error = params.text_or_empty("error");
    error.map(check_error).transpose().map_err(|wrong| wrong.parameter("error"))?;
    let filter = ItemFilter {
        // Only leased keys have a worker.
        states: read_states(params.text("state").or_else(|| params.text("worker").map(|_| "leased")))?,
        worker: params.name("worker")?.map(str::to_owned),
        prefix: params.text("prefix").unwrap_or_default().to_owned(),
        source: params.name("source")?.map(str::to_owned),
        error: error.map(str::to_owned),
    };
    let limit = page_limit(&params, streams)?;
    if let Some(key) = params.key_alone()? {
        let page = item_page_of(&handle, &key, &filter, fields).await?;
        return pages::reply_alone(&context, streams, page);
    }
    let after = params.text("continue").map(str::to_owned);
    let filter = Arc::new(filter);
    let page = move |after| item_page(handle.clone(), filter.clone(), fields, after, limit);
    pages::reply(context, streams, after, page).await
}

fn read_states(text: Option<&str>) -> Result<Vec<ListedState>, Problem> {
    let Some(text) = text else { return Ok(ListedState::ALL.to_vec()) };
    let mut states = Vec::new();
    for name in text.split(',') {
        let mut named = STATES.into_iter().zip(ListedState::ALL);
        let Some((_, state)) = named.find(|(known, _)| *known == name) else {
            let known = format!("{} is none of {}", Excerpt(name), STATES.join(", "));
            return Err(wrong("state", &known).hint_some(did_you_mean(name, &STATES)));
        };
        states.push(state);
    }
    states.sort_unstable();
    states.dedup();
    Ok(states)
}

/// The `continue` token of an item's position, in a page of the version `newest`.
fn encode(handle: &Handle, newest: Rv, position: &ItemPosition) -> String {
    let ItemPosition { state, at, arrival, rv, key } = position;
    let at = if *state == ListedState::Ready { arrival.to_string() } else { at.as_micros().to_string() };
    let state = ListedState::ALL.iter().position(|other| other == state).unwrap_or_default();
    let key = key.as_ref().map_or("", Key::as_str);
    let text = format!("{state}:{at}:{rv}:{key}");
    cursor::encode(List::Items, &handle.lives(), newest, &text)
}

/// The position in a `continue` token.
fn decode(handle: &Handle, text: &str) -> Result<ItemPosition, Problem> {
    let position = cursor::decode(List::Items, &handle.lives(), text)?;
    let mut parts = position.splitn(4, ':');
    let mut read = || {
        let state = ListedState::ALL.get(parts.next()?.parse::<usize>().ok()?).copied()?;
        let mut position = ItemPosition::start(state);
        match (state, parts.next()?) {
            (ListedState::Ready, arrival) => position.arrival = arrival.parse().ok()?,
            (_, at) => position.at = Time::from_micros(at.parse().ok()?),
        }
        position.rv = Rv::new(parts.next()?.parse().ok()?);
        position.key = Key::new(parts.next()?).ok();
        Some(position)
    };
    read().ok_or_else(cursor::of_another_list)
}

async fn item_page(
    handle: Arc<Handle>,
    filter: Arc<ItemFilter>,
    fields: Fields,
    after: Option<String>,
    mut limit: PageLimit,
) -> Result<Page<Selected<ItemDocument>>, Problem> {
    let first = filter.states.first().copied().unwrap_or(ListedState::Ready);
    let after = after.map(|after| decode(&handle, &after)).transpose()?;
    let after = after.unwrap_or_else(|| ItemPosition::start(first));
    if !fields.has_objects::<ItemDocument>() {
        limit.bytes = usize::MAX;
    }
    let page = handle.items(&filter, after, limit).await?;
    let items = page.entries.iter().map(|key| fields.of(wire::item(&handle, key, page.moment))).collect();
    let next = page.next.map(|position| encode(&handle, page.resource_version, &position));
    Ok(Page { items, next, resource_version: page.resource_version.get() })
}

/// The page with one key, or none if the queue does not have the key or the filter excludes it.
async fn item_page_of(
    handle: &Handle,
    key: &Key,
    filter: &ItemFilter,
    fields: Fields,
) -> Result<Page<Selected<ItemDocument>>, Problem> {
    let (item, resource_version) = handle.listed_item(key, filter).await?;
    let item = item.map(|(item, moment)| fields.of(wire::item(handle, &item, moment)));
    Ok(Page { items: item.into_iter().collect(), next: None, resource_version: resource_version.get() })
}

/// One key: its state, deltas, lease and failures.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/items/{key}", tag = "reading", operation_id = "get_item",
    params(InQueue, OfKey, KeyItemQuery),
    responses(
        (status = 200, description = "The key.", body = ItemDocument),
        Always, OfQueue, Unprocessable,
    )
)]
pub(in crate::http) async fn item(call: ReadCall) -> Result<Json<ItemDocument>, Problem> {
    one_item(&call, &call.key()?).await
}

/// One key, for keys that clients cannot put into a path.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/item", tag = "reading", operation_id = "get_item_of",
    params(InQueue, ItemQuery),
    responses(
        (status = 200, description = "The key.", body = ItemDocument),
        Always, OfQueue, Unprocessable,
    )
)]
pub(in crate::http) async fn item_of(call: ReadCall) -> Result<Json<ItemDocument>, Problem> {
    one_item(&call, &call.params.required_key()?).await
}

async fn one_item(call: &ReadCall, key: &Key) -> Result<Json<ItemDocument>, Problem> {
    let with_diff = match call.params.text("with") {
        None => false,
        Some("diff") => true,
        Some(other) => return Err(wrong("with", &format!("it takes \"diff\", not {}", Excerpt(other)))),
    };
    let handle = call.state.partitions.get(&call.name()?)?;
    let (Some((item, moment)), _) = handle.item(key).await? else {
        return Err(no_key(key, "there is no delta, lease, parked entry or failure"));
    };
    let document = wire::item(&handle, &item, moment);
    if !with_diff {
        return Ok(Json(document));
    }
    let array_keys = handle.config().array_keys.clone();
    let is_large = wire::compared_bytes(&item) >= LARGE_COMPARISON_BYTES;
    let compare = move || wire::item_with_diff(document, &item, &array_keys);
    if !is_large {
        return Ok(Json(compare()));
    }
    let permit = RENDERINGS.permit(&call.context.creator()).await;
    Ok(Json(run_blocking(permit, compare).await))
}

/// Why a key is not delivered.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/explain/{key}", tag = "reading", operation_id = "explain_key",
    params(InQueue, OfKey),
    responses(
        (status = 200, description = "The reason.", body = ExplainDocument),
        Always, OfQueue, Unprocessable,
    )
)]
pub(in crate::http) async fn explain(call: ReadCall) -> Result<Json<ExplainDocument>, Problem> {
    explanation(&call, &call.key()?).await
}

/// Why a key is not delivered, for keys that clients cannot put into a path.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/explain", tag = "reading", operation_id = "explain_key_of",
    params(InQueue, KeyQuery),
    responses(
        (status = 200, description = "The reason.", body = ExplainDocument),
        Always, OfQueue, Unprocessable,
    )
)]
pub(in crate::http) async fn explain_of(call: ReadCall) -> Result<Json<ExplainDocument>, Problem> {
    explanation(&call, &call.params.required_key()?).await
}

async fn explanation(call: &ReadCall, key: &Key) -> Result<Json<ExplainDocument>, Problem> {
    let handle = call.state.partitions.get(&call.name()?)?;
    let (explanation, moment) = handle.explain(key).await?;
    Ok(Json(wire::explain(&handle, key, &explanation, moment)))
}

pub(super) fn no_key(key: &Key, why: &str) -> Problem {
    Problem::new(Code::KeyNotFound, format!("for the key {} {why}", Excerpt(key.as_str())))
}
