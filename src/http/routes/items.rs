//! The items of a queue, and why a key is not delivered.

use std::sync::Arc;

use axum::response::Response;
use deltaq_engine::excerpt::Excerpt;
use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use deltaq_engine::object::ArrayKeys;
use deltaq_engine::snapshot::KeyState;
use deltaq_engine::time::Time;
use deltaq_service::{Handle, ItemFilter, ItemPosition, ListedState, Moment, PageLimit};
use deltaq_types::{ExplainDocument, ItemDocument, Page};

use super::pages::{self, page_limit, wants_lines};
use crate::http::blocking::{RENDERINGS, run_blocking};
use crate::http::openapi::params::{InQueue, ItemQuery, ItemsQuery, KeyItemQuery, KeyQuery, OfKey};
use crate::http::openapi::responses::{Always, NotAcceptable, OfQueue, Unprocessable};
use crate::http::problem::{Code, Problem};
use crate::http::reply::Json;
use crate::http::request::call::ReadCall;
use crate::http::request::context::RequestContext;
use crate::http::request::cursor::{self, List};
use crate::http::request::params::{Params, check_error, did_you_mean, wrong};
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
    let shown =
        Arc::new(Shown { fields, diff: wants_diff(&params)?.then(|| handle.config().array_keys.clone()) });
    if let Some(key) = params.key_alone()? {
        let page = item_page_of(&handle, &key, &filter, &shown, &context).await?;
        return pages::reply_alone(&context, streams, page);
    }
    let after = params.text("continue").map(str::to_owned);
    let (filter, caller) = (Arc::new(filter), context.clone());
    let page =
        move |after| item_page(handle.clone(), filter.clone(), shown.clone(), caller.clone(), after, limit);
    pages::reply(context, streams, after, page).await
}

/// What a list shows of each key.
struct Shown {
    fields: Fields,
    /// The difference from the known object to the newest one, and which arrays it compares by element.
    diff: Option<ArrayKeys>,
}

impl Shown {
    /// What the list shows of these keys.
    async fn of(
        self: &Arc<Self>,
        handle: &Arc<Handle>,
        keys: Vec<KeyState>,
        moment: Moment,
        context: &RequestContext,
    ) -> Vec<Selected<ItemDocument>> {
        let bytes = if self.diff.is_some() { keys.iter().map(wire::compared_bytes).sum() } else { 0 };
        let (shown, handle) = (self.clone(), handle.clone());
        let render = move || {
            let document = |key| shown.fields.of(document(&handle, key, shown.diff.as_ref(), moment));
            keys.iter().map(document).collect()
        };
        rendered(bytes, context, render).await
    }
}

/// Whether the parameter `with` asks for differences.
fn wants_diff(params: &Params) -> Result<bool, Problem> {
    match params.text("with") {
        None => Ok(false),
        Some("diff") => Ok(true),
        Some(other) => Err(wrong("with", &format!("it takes \"diff\", not {}", Excerpt(other)))),
    }
}

fn document(handle: &Handle, key: &KeyState, diff: Option<&ArrayKeys>, moment: Moment) -> ItemDocument {
    let document = wire::item(handle, key, moment);
    match diff {
        Some(array_keys) => wire::item_with_diff(document, key, array_keys),
        None => document,
    }
}

/// Renders objects of which so many bytes are compared, on a thread for long computations if they are many.
async fn rendered<T: Send + 'static>(
    bytes: usize,
    context: &RequestContext,
    render: impl FnOnce() -> T + Send + 'static,
) -> T {
    if bytes < LARGE_COMPARISON_BYTES {
        return render();
    }
    let permit = RENDERINGS.permit(&context.creator()).await;
    run_blocking(permit, render).await
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
    shown: Arc<Shown>,
    context: Arc<RequestContext>,
    after: Option<String>,
    mut limit: PageLimit,
) -> Result<Page<Selected<ItemDocument>>, Problem> {
    let first = filter.states.first().copied().unwrap_or(ListedState::Ready);
    let after = after.map(|after| decode(&handle, &after)).transpose()?;
    let after = after.unwrap_or_else(|| ItemPosition::start(first));
    if shown.diff.is_none() && !shown.fields.has_objects::<ItemDocument>() {
        limit.bytes = usize::MAX;
    }
    let page = handle.items(&filter, after, limit).await?;
    let items = shown.of(&handle, page.entries, page.moment, &context).await;
    let next = page.next.map(|position| encode(&handle, page.resource_version, &position));
    Ok(Page { items, next, resource_version: page.resource_version.get() })
}

/// The page with one key, or none if the queue does not have the key or the filter excludes it.
async fn item_page_of(
    handle: &Arc<Handle>,
    key: &Key,
    filter: &ItemFilter,
    shown: &Arc<Shown>,
    context: &RequestContext,
) -> Result<Page<Selected<ItemDocument>>, Problem> {
    let (item, resource_version) = handle.listed_item(key, filter).await?;
    let items = match item {
        Some((item, moment)) => shown.of(handle, vec![item], moment, context).await,
        None => Vec::new(),
    };
    Ok(Page { items, next: None, resource_version: resource_version.get() })
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
    let with_diff = wants_diff(&call.params)?;
    let handle = call.state.partitions.get(&call.name()?)?;
    let (Some((item, moment)), _) = handle.item(key).await? else {
        return Err(no_key(key, "there is no delta, lease, parked entry or failure"));
    };
    let diff = with_diff.then(|| handle.config().array_keys.clone());
    let bytes = if with_diff { wire::compared_bytes(&item) } else { 0 };
    let render = move || document(&handle, &item, diff.as_ref(), moment);
    Ok(Json(rendered(bytes, &call.context, render).await))
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
