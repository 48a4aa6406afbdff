//! Calls that read a queue: items, sources, synced.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use deltaq_engine::excerpt::Excerpt;
use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use deltaq_engine::limits::RV_MAX;
use deltaq_engine::time::Time;
use deltaq_service::{Handle, ItemFilter, ItemPosition, ListedState, PageLimit};
use deltaq_types::{ExplainDocument, ItemDocument, Page, SourceDocument, SyncedDocument, WorkerDocument};
use futures_util::{StreamExt as _, stream};
use serde::Serialize;

use crate::http::gate::in_flight::ReplyBytes;
use crate::http::gate::limits::{PAGE_BYTES_MAX, PAGE_DEFAULT, PAGE_MAX, STREAMED_PAGE_BYTES_MAX};
use crate::http::openapi::params::{
    ExplainQuery, InQueue, ItemsQuery, OfKey, SourcesQuery, SyncedQuery, WorkersQuery,
};
use crate::http::openapi::responses::{Always, NotAcceptable, OfQueue, Unprocessable};
use crate::http::problem::{Code, Problem};
use crate::http::reply::Json;
use crate::http::request::accept::Accept;
use crate::http::request::call::ReadCall;
use crate::http::request::context::RequestContext;
use crate::http::request::cursor::{self, List};
use crate::http::request::params::{Params, check_error, did_you_mean, digits, wrong};
use crate::http::wire::{self, Fields, STATES, Selected};

/// Whether the client wants a list as a stream of NDJSON.
pub(super) fn wants_lines(headers: &HeaderMap) -> Result<bool, Problem> {
    let accept = Accept::of(headers);
    if accept.is_absent() {
        return Ok(false);
    }
    let json = ["application/json", "application/*", "*/*"].into_iter().find_map(|kind| accept.weight(kind));
    // Only a client that names NDJSON gets it.
    match (accept.weight("application/x-ndjson"), json) {
        (Some(lines), json) if json.is_none_or(|json| lines >= json) => Ok(true),
        (_, Some(_)) => Ok(false),
        _ => Err(accept.refused("a list is application/json or application/x-ndjson")),
    }
}

/// The next page of a stream.
enum NextPage {
    /// It is rendered.
    Rendered(Result<RenderedPage, String>),
    /// It begins behind this position.
    Behind(String),
}

/// A page as lines, and the position behind it unless it is the last one.
type RenderedPage = (Bytes, Option<String>);

/// Streams a whole list, page by page, with one entry per line. The first page refuses a wrong request, before anything is
/// sent. A page is read when the connection has taken the page before it, which counts as a reply in memory until then.
pub(super) async fn stream_pages<T, P, F>(
    context: Arc<RequestContext>,
    after: Option<String>,
    page: P,
) -> Result<Response, Problem>
where
    T: Serialize + Send + 'static,
    P: Fn(Option<String>) -> F + Send + 'static,
    F: Future<Output = Result<Page<T>, Problem>> + Send + 'static,
{
    let first = lines_of(&page(after).await?);
    let held = context.reserve_reply(first.as_ref().map_or(0, |(text, _)| text.len()))?;
    let begin = (Some(NextPage::Rendered(first)), held, context, page);
    let lines = stream::unfold(begin, |(next, mut held, context, page)| async move {
        let rendered = match next? {
            NextPage::Rendered(first) => first,
            NextPage::Behind(position) => {
                drop(held.take());
                let rendered = render_next(&context, page(Some(position))).await;
                rendered.map(|(rendered, bytes)| {
                    held = bytes;
                    rendered
                })
            }
        };
        // A list that fails in the middle ends the connection, so that the caller does not take a part for the whole.
        Some(match rendered {
            Ok((text, next)) => (Ok(text), (next.map(NextPage::Behind), held, context, page)),
            Err(why) => (Err(std::io::Error::other(why)), (None, held, context, page)),
        })
    });
    // The compressor polls a stream again after its end.
    let lines = Body::from_stream(lines.fuse());
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], lines).into_response())
}

/// A page of one key as NDJSON.
pub(super) fn lines<T: Serialize>(page: &Page<T>) -> Result<Response, Problem> {
    let (text, _) = lines_of(page).map_err(|error| Problem::new(Code::Internal, error))?;
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], text).into_response())
}

/// Reads and renders a further page of a stream, and counts its bytes.
async fn render_next<T: Serialize>(
    context: &RequestContext,
    page: impl Future<Output = Result<Page<T>, Problem>> + Send + 'static,
) -> Result<(RenderedPage, Option<ReplyBytes>), String> {
    let refused = |problem: Problem| problem.detail().to_owned();
    // A slow client may read for hours, and its token may be revoked meanwhile.
    context.authorize_again().map_err(refused)?;
    let page = async move { lines_of(&page.await.map_err(refused)?) };
    let rendered = context.state.on_main_runtime(page).await?;
    let held = context.reserve_reply(rendered.0.len()).map_err(refused)?;
    Ok((rendered, held))
}

fn lines_of<T: Serialize>(page: &Page<T>) -> Result<RenderedPage, String> {
    let mut text = Vec::new();
    for item in &page.items {
        wire::push_line(&mut text, item).map_err(|error| error.to_string())?;
    }
    Ok((text.into(), page.next.clone()))
}

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
        return if streams { Ok(lines(&page)?) } else { Ok(context.reply(page).into_response()) };
    }
    let after = params.text("continue").map(str::to_owned);
    let filter = Arc::new(filter);
    if streams {
        let page = move |after| item_page(handle.clone(), filter.clone(), fields, after, limit);
        return stream_pages(context, after, page).await;
    }
    Ok(context.reply(item_page(handle, filter, fields, after, limit).await?).into_response())
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
    let ItemPosition { state, at, rv, key } = position;
    let state = ListedState::ALL.iter().position(|other| other == state).unwrap_or_default();
    let key = key.as_ref().map_or("", Key::as_str);
    let text = format!("{state}:{}:{rv}:{key}", at.as_micros());
    cursor::encode(List::Items, &handle.lives(), newest, &text)
}

/// The position in a `continue` token.
fn decode(handle: &Handle, text: &str) -> Result<ItemPosition, Problem> {
    let position = cursor::decode(List::Items, &handle.lives(), text)?;
    let mut parts = position.splitn(4, ':');
    let mut number = || parts.next().and_then(|part| part.parse::<u64>().ok());
    let (state, at, rv) = (number(), number(), number());
    let state = state.and_then(|state| ListedState::ALL.get(usize::try_from(state).ok()?).copied());
    let key = parts.next();
    let position = state.zip(at).zip(rv).zip(key).map(|(((state, at), rv), key)| ItemPosition {
        state,
        at: Time::from_micros(at),
        rv: Rv::new(rv),
        key: Key::new(key).ok(),
    });
    position.ok_or_else(cursor::of_another_list)
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

/// The limit of each page of a list. The parameter `limit` has no effect on a stream.
pub(super) fn page_limit(params: &Params, streams: bool) -> Result<PageLimit, Problem> {
    let wanted = params.count("limit", 1..=PAGE_MAX)?.unwrap_or(PAGE_DEFAULT);
    let (entries, bytes) =
        if streams { (PAGE_DEFAULT, STREAMED_PAGE_BYTES_MAX) } else { (wanted, PAGE_BYTES_MAX) };
    Ok(PageLimit { entries: usize::try_from(entries).unwrap_or(usize::MAX), bytes })
}

/// One key: its state, deltas, lease and failures.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/items/{key}", tag = "reading", operation_id = "get_item",
    params(InQueue, OfKey),
    responses(
        (status = 200, description = "The key.", body = ItemDocument),
        Always, OfQueue, Unprocessable,
    )
)]
pub(in crate::http) async fn item(call: ReadCall) -> Result<Json<ItemDocument>, Problem> {
    let (name, key) = (call.name()?, call.key()?);
    one_item(&*call.state.partitions.get(&name)?, &key).await
}

async fn one_item(handle: &Handle, key: &Key) -> Result<Json<ItemDocument>, Problem> {
    let (Some((item, moment)), _) = handle.item(key).await? else {
        return Err(no_key(key, "there is no delta, lease, parked entry or failure"));
    };
    Ok(Json(wire::item(handle, &item, moment)))
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
    let key = call.key()?;
    explanation(&call, &key).await
}

/// Why a key is not delivered, for keys that clients cannot put into a path.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/explain", tag = "reading", operation_id = "explain_key_of",
    params(InQueue, ExplainQuery),
    responses(
        (status = 200, description = "The reason.", body = ExplainDocument),
        Always, OfQueue, Unprocessable,
    )
)]
pub(in crate::http) async fn explain_of(call: ReadCall) -> Result<Json<ExplainDocument>, Problem> {
    let key = call.params.key("key")?.ok_or_else(|| wrong("key", "it is required"))?;
    explanation(&call, &key).await
}

async fn explanation(call: &ReadCall, key: &Key) -> Result<Json<ExplainDocument>, Problem> {
    let handle = call.state.partitions.get(&call.name()?)?;
    let (explanation, moment) = handle.explain(key).await?;
    Ok(Json(wire::explain(&handle, key, &explanation, moment)))
}

pub(super) fn no_key(key: &Key, why: &str) -> Problem {
    Problem::new(Code::KeyNotFound, format!("for the key {} {why}", Excerpt(key.as_str())))
}

/// A list of a queue that has no parameters of its own: a page, or all pages as lines.
pub(super) async fn reply_in_pages<T, F>(
    call: ReadCall,
    read: fn(Arc<Handle>, Option<String>, usize) -> F,
) -> Result<Response, Problem>
where
    T: Serialize + Send + 'static,
    F: Future<Output = Result<Page<T>, Problem>> + Send + 'static,
{
    let handle = call.state.partitions.get(&call.name()?)?;
    let streams = wants_lines(&call.headers)?;
    let limit = page_limit(&call.params, streams)?.entries;
    let after = call.params.text("continue").map(str::to_owned);
    let page = move |after| read(handle.clone(), after, limit);
    if streams {
        return stream_pages(call.context, after, page).await;
    }
    Ok(call.context.reply(page(after).await?).into_response())
}

/// List the sources by name, with the number of their keys and their last calls.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/sources", tag = "reading", operation_id = "list_sources",
    params(InQueue, SourcesQuery),
    responses(
        (status = 200, description = "A page.", content((Page<SourceDocument> = "application/json"), (Vec<SourceDocument> = "application/x-ndjson"))),
        Always, OfQueue, NotAcceptable, Unprocessable,
    )
)]
pub(in crate::http) async fn sources(call: ReadCall) -> Result<Response, Problem> {
    reply_in_pages(call, source_page).await
}

async fn source_page(
    handle: Arc<Handle>,
    after: Option<String>,
    limit: usize,
) -> Result<Page<SourceDocument>, Problem> {
    let after = after.map(|after| cursor::decode(List::Sources, &handle.lives(), &after)).transpose()?;
    let page = handle.sources(after, limit).await?;
    let items = page.entries.iter().map(|state| wire::source(state, page.moment)).collect();
    let (lives, rv) = (handle.lives(), page.resource_version);
    let next = page.next.map(|source| cursor::encode(List::Sources, &lives, rv, &source));
    Ok(Page { items, next, resource_version: page.resource_version.get() })
}

/// List the workers by name, with the leases that they hold and their pops that wait for keys.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/workers", tag = "reading", operation_id = "list_workers",
    params(InQueue, WorkersQuery),
    responses(
        (status = 200, description = "A page.", content((Page<WorkerDocument> = "application/json"), (Vec<WorkerDocument> = "application/x-ndjson"))),
        Always, OfQueue, NotAcceptable, Unprocessable,
    )
)]
pub(in crate::http) async fn workers(call: ReadCall) -> Result<Response, Problem> {
    reply_in_pages(call, worker_page).await
}

async fn worker_page(
    handle: Arc<Handle>,
    after: Option<String>,
    limit: usize,
) -> Result<Page<WorkerDocument>, Problem> {
    let after = after.map(|after| cursor::decode(List::Workers, &handle.lives(), &after)).transpose()?;
    let page = handle.workers(after, limit).await?;
    let items = page.entries.iter().map(|(name, state)| wire::worker(name, state, page.moment)).collect();
    let (lives, rv) = (handle.lives(), page.resource_version);
    let next = page.next.map(|worker| cursor::encode(List::Workers, &lives, rv, &worker));
    Ok(Page { items, next, resource_version: page.resource_version.get() })
}

/// Whether the initial list is processed, or everything up to a version is acknowledged; waits for it.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/synced", tag = "reading", operation_id = "get_synced",
    params(InQueue, SyncedQuery),
    responses(
        (status = 200, description = "Whether it is.", body = SyncedDocument),
        Always, OfQueue,
    )
)]
pub(in crate::http) async fn synced(call: ReadCall) -> Result<Json<SyncedDocument>, Problem> {
    let name = call.name()?;
    let ReadCall { state, params, .. } = call;
    let wait = params.duration("wait", Duration::ZERO..=state.limits.max_wait)?.unwrap_or_default();
    let version = match params.text("resource_version") {
        Some("now") => Some(None),
        Some(text) if digits::<u64>(text).is_none() => {
            return Err(wrong(
                "resource_version",
                &format!("{} is neither a version nor \"now\"", Excerpt(text)),
            ));
        }
        _ => params.count("resource_version", 0..=RV_MAX)?.map(|rv| Some(Rv::new(rv))),
    };
    let handle = state.partitions.get(&name)?;
    let Some(version) = version else {
        let (synced, remaining) = handle.wait_synced(wait).await?;
        return Ok(Json(wire::synced(synced, remaining, None)));
    };
    let acknowledged = handle.wait_acknowledged(version, wait).await?;
    let (synced, remaining) = handle.wait_synced(Duration::ZERO).await?;
    Ok(Json(wire::synced(synced, remaining, Some(acknowledged))))
}
