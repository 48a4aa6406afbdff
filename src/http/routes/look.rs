//! What can be seen of a queue: items, known objects, whether it has synced.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;

use crate::engine::Queue;
use crate::engine::delta::Rv;
use crate::engine::key::Key;
use crate::engine::schedule::Slot;
use crate::engine::time::Time;
use crate::http::cursor;
use crate::http::params::{Params, PathKey, QueueName, nearest, wrong};
use crate::http::problem::{Code, Problem};
use crate::http::state::AppState;
use crate::http::wire::{ItemDocument, KnownDocument, Page, ProblemDocument, SyncedDocument};
use crate::service::Handle;

/// Entries of a page when the request does not say.
pub(super) const PAGE_DEFAULT: u64 = 500;
/// Most entries of a page.
pub(super) const PAGE_MAX: u64 = 5_000;
/// How many entries a page may look at under the queue's lock; a filter may leave it short.
const LOOK_MAX: usize = 20_000;

/// States of an item, in the order in which they are listed.
const STATES: [&str; 4] = ["ready", "delayed", "leased", "parked"];

/// Whether the answer is wanted as a stream of NDJSON.
#[derive(Clone, Copy, Debug)]
pub(in crate::http) struct Streams(pub(super) bool);

impl<S: Sync> FromRequestParts<S> for Streams {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let Some(accept) = parts.headers.get(header::ACCEPT) else { return Ok(Self(false)) };
        let accept = accept.to_str().unwrap_or_default().to_ascii_lowercase();
        let mut types = accept.split(',').map(|item| item.split(';').next().unwrap_or_default().trim());
        if types.clone().any(|item| item == "application/x-ndjson") {
            return Ok(Self(true));
        }
        if types.any(|item| matches!(item, "application/json" | "application/*" | "*/*")) {
            return Ok(Self(false));
        }
        let detail = format!("accept {accept:?}: a list is application/json or application/x-ndjson");
        Err(Problem::new(Code::NotAcceptable, detail))
    }
}

/// Streams a whole list, page by page, one entry a line.
pub(super) fn stream_pages<T, P, F>(after: Option<String>, page: P) -> Response
where
    T: Serialize + Send + 'static,
    P: Fn(Option<String>) -> F + Send + 'static,
    F: Future<Output = Result<Page<T>, Problem>> + Send,
{
    let first = (Some(after), page);
    let lines = futures_util::stream::unfold(first, |(after, page)| async move {
        // A list that fails in the middle is an error of the stream, which cuts the connection: the
        // caller must not take a part for the whole.
        Some(match page(after?).await.map_err(|problem| problem.detail().to_owned()).and_then(lines_of) {
            Ok((text, next)) => (Ok(text), (next.map(Some), page)),
            Err(why) => (Err(std::io::Error::other(why)), (None, page)),
        })
    });
    ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
}

fn lines_of<T: Serialize>(page: Page<T>) -> Result<(Bytes, Option<String>), String> {
    let mut text = Vec::new();
    for item in &page.items {
        serde_json::to_writer(&mut text, item).map_err(|error| error.to_string())?;
        text.push(b'\n');
    }
    Ok((text.into(), page.next))
}

/// List keys with waiting or leased deltas, or, with `key`, one of them.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/items", tag = "looking",
    params(
        ("queue" = String, Path, description = "The queue's name."),
        ("state" = Option<String>, Query, description = "States, joined by commas: ready, delayed, leased, parked; default ready,delayed."),
        ("worker" = Option<String>, Query, description = "Leased keys of this worker only."),
        ("key" = Option<String>, Query, description = "One key: the answer is its document."),
        ("limit" = Option<u64>, Query, description = "Most entries of a page.", minimum = 1, maximum = 5000),
        ("continue" = Option<String>, Query, description = "Where a page before ended."),
    ),
    responses(
        (status = 200, description = "A page.", body = Page<ItemDocument>),
        (status = "4XX", description = "A problem.", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
pub(in crate::http) async fn items(
    State(state): State<AppState>,
    QueueName(name): QueueName,
    params: Params,
    streams: Streams,
) -> Result<Response, Problem> {
    let params = params.only(&["state", "worker", "key", "limit", "continue"])?;
    let handle = state.registry.get(&name)?;
    if let Some(key) = params.key("key")? {
        return Ok(one_item(&handle, &key).await?.into_response());
    }
    let filter = ItemFilter {
        states: read_states(params.text("state"))?,
        worker: params.name("worker")?.map(str::to_owned),
    };
    let limit = params.count("limit", 1..=PAGE_MAX)?.unwrap_or(PAGE_DEFAULT);
    let after = params.text("continue").map(str::to_owned);
    let filter = Arc::new(filter);
    if streams.0 {
        let page = move |after| item_page(handle.clone(), filter.clone(), after, PAGE_DEFAULT);
        return Ok(stream_pages(after, page));
    }
    Ok(Json(item_page(handle, filter, after, limit).await?).into_response())
}

struct ItemFilter {
    /// Indexes into [`STATES`], rising.
    states: Vec<usize>,
    worker: Option<String>,
}

fn read_states(text: Option<&str>) -> Result<Vec<usize>, Problem> {
    let Some(text) = text else { return Ok(vec![0, 1]) };
    let mut states = Vec::new();
    for name in text.split(',') {
        let Some(index) = STATES.iter().position(|state| *state == name) else {
            let near = nearest(name, &STATES).map(|near| format!("; did you mean {near:?}?"));
            let known = format!("{name:?} is none of {}{}", STATES.join(", "), near.unwrap_or_default());
            return Err(wrong("state", &known));
        };
        states.push(index);
    }
    states.sort_unstable();
    states.dedup();
    Ok(states)
}

/// Where a page of items ended: a state, and a place in its order.
struct Place {
    state: usize,
    at: Time,
    rv: Rv,
    key: Option<Key>,
}

impl Place {
    fn start(state: usize) -> Self {
        Self { state, at: Time::default(), rv: 0, key: None }
    }

    fn encode(&self, handle: &Handle) -> String {
        let key = self.key.as_ref().map_or("", Key::as_str);
        cursor::encode(
            handle.incarnation(),
            &format!("{}:{}:{}:{key}", self.state, self.at.as_micros(), self.rv),
        )
    }

    fn decode(handle: &Handle, text: &str) -> Result<Self, Problem> {
        let position = cursor::decode(handle.incarnation(), text)?;
        let mut parts = position.splitn(4, ':');
        let mut number = || parts.next().and_then(|part| part.parse::<u64>().ok());
        let (state, at, rv) = (number(), number(), number());
        let key = parts.next();
        let place = state.zip(at).zip(rv).zip(key).map(|(((state, at), rv), key)| Self {
            state: usize::try_from(state).unwrap_or(STATES.len()),
            at: Time::from_micros(at),
            rv,
            key: Key::new(key).ok(),
        });
        place.ok_or_else(|| wrong("continue", "it is not a token that this server gave"))
    }
}

async fn item_page(
    handle: Arc<Handle>,
    filter: Arc<ItemFilter>,
    after: Option<String>,
    limit: u64,
) -> Result<Page<ItemDocument>, Problem> {
    let first = filter.states.first().copied().unwrap_or_default();
    let from = after.map(|after| Place::decode(&handle, &after)).transpose()?;
    let from = from.unwrap_or_else(|| Place::start(first));
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let looker = handle.clone();
    let page = handle.read(move |queue, now| read_items(queue, &looker, &filter, from, limit, now));
    Ok(page.await?)
}

fn read_items(
    queue: &Queue,
    handle: &Handle,
    filter: &ItemFilter,
    from: Place,
    limit: usize,
    now: Time,
) -> Page<ItemDocument> {
    let mut items = Vec::new();
    let mut looked = 0;
    let mut next = None;
    let mut from = Some(from);
    let first = from.as_ref().map_or(0, |from| from.state);
    'states: for state in filter.states.iter().copied().filter(|state| *state >= first) {
        let start = from.take().filter(|from| from.state == state).unwrap_or_else(|| Place::start(state));
        for (slot, place) in in_state(queue, &start) {
            if items.len() == limit || looked == LOOK_MAX {
                break 'states;
            }
            looked += 1;
            if let Some(entry) = queue.table().at(slot) {
                let standing = &entry.standing;
                let worker = standing.lease().and_then(|lease| lease.worker.as_deref());
                let wanted = filter.worker.as_deref().is_none_or(|wanted| worker == Some(wanted));
                if wanted && (state != 1 || standing.is_delayed()) {
                    items.push(ItemDocument::new(handle, entry, now));
                }
            }
            next = Some(place);
        }
    }
    let full = items.len() == limit || looked == LOOK_MAX;
    let next = next.filter(|_| full).map(|place| place.encode(handle));
    Page { items, next, resource_version: queue.resource_version() }
}

/// The keys of a state behind `start`, in the state's order, with their places.
fn in_state<'q>(queue: &'q Queue, start: &'q Place) -> Box<dyn Iterator<Item = (Slot, Place)> + 'q> {
    let schedule = queue.schedule();
    let state = start.state;
    let timed =
        move |(at, rv, slot): &(Time, Rv, Slot)| (*slot, Place { state, at: *at, rv: *rv, key: None });
    match state {
        0 => {
            let ready = schedule.ready_after(start.rv);
            Box::new(ready.map(move |(rv, slot)| (slot, Place { rv, ..Place::start(state) })))
        }
        1 => Box::new(schedule.delayed_after((start.at, start.rv)).map(timed)),
        2 => Box::new(schedule.leased_after((start.at, start.rv)).map(timed)),
        _ => {
            let from = start.key.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(key.as_str()));
            let parked = schedule.parked_from(from);
            Box::new(
                parked
                    .map(move |(key, slot)| (slot, Place { key: Some(key.clone()), ..Place::start(state) })),
            )
        }
    }
}

/// One key: place, deltas, lease, failures.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/items/{key}", tag = "looking",
    params(
        ("queue" = String, Path, description = "The queue's name."),
        ("key" = String, Path, description = "The key, percent-encoded; it may contain slashes."),
    ),
    responses(
        (status = 200, description = "The key.", body = ItemDocument),
        (status = "4XX", description = "A problem.", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
pub(in crate::http) async fn item(
    State(state): State<AppState>,
    QueueName(name): QueueName,
    PathKey(key): PathKey,
    params: Params,
) -> Result<Json<ItemDocument>, Problem> {
    params.only(&[])?;
    one_item(&*state.registry.get(&name)?, &key).await
}

async fn one_item(handle: &Handle, key: &Key) -> Result<Json<ItemDocument>, Problem> {
    let item = handle.read(|queue, now| {
        let entry = queue.table().get(key.as_str()).filter(|entry| ItemDocument::is_item(entry))?;
        Some(ItemDocument::new(handle, entry, now))
    });
    item.await?.map(Json).ok_or_else(|| no_key(key, "nothing waits, is leased, parked or has failed"))
}

fn no_key(key: &Key, why: &str) -> Problem {
    Problem::new(Code::KeyNotFound, format!("of the key {:?} {why}", key.as_str()))
}

/// List known objects in key order, or, with `key`, one of them.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/known", tag = "looking",
    params(
        ("queue" = String, Path, description = "The queue's name."),
        ("prefix" = Option<String>, Query, description = "What the keys begin with."),
        ("source" = Option<String>, Query, description = "Objects that this source owns."),
        ("key" = Option<String>, Query, description = "One key: the answer is its document."),
        ("limit" = Option<u64>, Query, description = "Most entries of a page.", minimum = 1, maximum = 5000),
        ("continue" = Option<String>, Query, description = "Where a page before ended."),
    ),
    responses(
        (status = 200, description = "A page.", body = Page<KnownDocument>),
        (status = "4XX", description = "A problem.", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
pub(in crate::http) async fn known_list(
    State(state): State<AppState>,
    QueueName(name): QueueName,
    params: Params,
    streams: Streams,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let params = params.only(&["prefix", "source", "key", "limit", "continue"])?;
    let handle = state.registry.get(&name)?;
    if let Some(key) = params.key("key")? {
        return one_known(&handle, &key, &headers).await;
    }
    let filter = Arc::new(KnownFilter {
        prefix: params.text("prefix").unwrap_or_default().to_owned(),
        source: params.name("source")?.map(str::to_owned),
    });
    let limit = params.count("limit", 1..=PAGE_MAX)?.unwrap_or(PAGE_DEFAULT);
    let after = params.text("continue").map(str::to_owned);
    if streams.0 {
        let page = move |after| known_page(handle.clone(), filter.clone(), after, PAGE_DEFAULT);
        return Ok(stream_pages(after, page));
    }
    Ok(Json(known_page(handle, filter, after, limit).await?).into_response())
}

struct KnownFilter {
    prefix: String,
    source: Option<String>,
}

async fn known_page(
    handle: Arc<Handle>,
    filter: Arc<KnownFilter>,
    after: Option<String>,
    limit: u64,
) -> Result<Page<KnownDocument>, Problem> {
    let after = after.map(|after| cursor::decode(handle.incarnation(), &after)).transpose()?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let incarnation = handle.incarnation();
    let page = handle.read(move |queue, _| {
        let from = after.as_deref().map_or(Bound::Included(filter.prefix.as_str()), Bound::Excluded);
        let (mut items, mut last, mut looked) = (Vec::new(), None, 0);
        for (_, entry) in queue.table().from(from) {
            if !entry.key.as_str().starts_with(&filter.prefix) {
                last = None;
                break;
            }
            if items.len() == limit || looked == LOOK_MAX {
                break;
            }
            looked += 1;
            last = Some(&entry.key);
            let document = KnownDocument::of(entry);
            let owned = |known: &KnownDocument| filter.source.is_none() || known.source == filter.source;
            items.extend(document.filter(owned));
        }
        let full = items.len() == limit || looked == LOOK_MAX;
        let next = last.filter(|_| full).map(|key| cursor::encode(incarnation, key.as_str()));
        Page { items, next, resource_version: queue.resource_version() }
    });
    Ok(page.await?)
}

/// One known object.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/known/{key}", tag = "looking",
    params(
        ("queue" = String, Path, description = "The queue's name."),
        ("key" = String, Path, description = "The key, percent-encoded; it may contain slashes."),
    ),
    responses(
        (status = 200, description = "The object.", body = KnownDocument, headers(("etag" = String, description = "Changes with the object."))),
        (status = 304, description = "It is the one that If-None-Match names."),
        (status = "4XX", description = "A problem.", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
pub(in crate::http) async fn known(
    State(state): State<AppState>,
    QueueName(name): QueueName,
    PathKey(key): PathKey,
    params: Params,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    params.only(&[])?;
    one_known(&*state.registry.get(&name)?, &key, &headers).await
}

async fn one_known(handle: &Handle, key: &Key, headers: &HeaderMap) -> Result<Response, Problem> {
    let known = handle.read(|queue, _| queue.table().get(key.as_str()).and_then(KnownDocument::of));
    let Some(known) = known.await? else { return Err(no_key(key, "no object is known")) };
    let etag = format!("\"{}-{}\"", handle.incarnation(), known.resource_version);
    let wanted = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let matches = |wanted: &str| {
        let mut tags = wanted.split(',').map(|tag| tag.trim().trim_start_matches("W/"));
        tags.any(|tag| tag == "*" || tag == etag)
    };
    if wanted.is_some_and(matches) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response());
    }
    Ok(([(header::ETAG, etag)], Json(known)).into_response())
}

/// Whether the initial list has been acknowledged; waits for it like WaitForCacheSync.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/synced", tag = "looking",
    params(
        ("queue" = String, Path, description = "The queue's name."),
        ("wait" = Option<String>, Query, description = "How long to wait for it; a duration."),
    ),
    responses(
        (status = 200, description = "Whether it has.", body = SyncedDocument),
        (status = "4XX", description = "A problem.", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
pub(in crate::http) async fn synced(
    State(state): State<AppState>,
    QueueName(name): QueueName,
    params: Params,
) -> Result<Json<SyncedDocument>, Problem> {
    let params = params.only(&["wait"])?;
    let wait = params.duration("wait", Duration::ZERO..=state.limits.max_wait)?.unwrap_or_default();
    let (synced, remaining) = state.registry.get(&name)?.wait_synced(wait).await?;
    Ok(Json(SyncedDocument { synced, remaining }))
}
