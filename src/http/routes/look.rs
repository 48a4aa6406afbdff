//! What can be seen of a queue: items, known objects, whether it has synced.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use deltaq_types::{ItemDocument, KnownDocument, Page, SyncedDocument};
use serde::Serialize;

use crate::engine::Queue;
use crate::engine::delta::{Deltas, Rv};
use crate::engine::excerpt::Excerpt;
use crate::engine::id::Token;
use crate::engine::key::Key;
use crate::engine::schedule::Slot;
use crate::engine::time::Time;
use crate::http::call::ReadCall;
use crate::http::counted::Counted;
use crate::http::cursor::{self, List};
use crate::http::openapi::answers::{Always, NotAcceptable, OfQueue, Unprocessable};
use crate::http::openapi::params::{Conditional, InQueue, ItemsQuery, KnownQuery, OfKey, SyncedQuery};
use crate::http::openapi::terms::{ItemsAnswer, KnownAnswer};
use crate::http::params::{nearest, wrong};
use crate::http::problem::{Code, Problem};
use crate::http::state::AppState;
use crate::http::wire;
use crate::service::{Handle, Moment};

/// Entries of a page when the request does not say.
pub(super) const PAGE_DEFAULT: u64 = 500;
/// Most entries of a page.
pub(in crate::http) const PAGE_MAX: u64 = 5_000;
/// How many entries a page may look at under the queue's lock; a filter may leave it short.
const LOOK_MAX: usize = 20_000;

/// Most bytes of objects in a page, which may end before its limit; each delta counts for
/// [`DELTA_BYTES`] more.
pub(super) const PAGE_BYTES_MAX: usize = 8 << 20;
/// What a delta takes in an answer beside its object, about.
const DELTA_BYTES: usize = 256;

/// States of an item, in the order in which they are listed.
pub(in crate::http) const STATES: [&str; 4] = ["ready", "delayed", "leased", "parked"];

/// Whether a list is wanted as a stream of NDJSON.
pub(super) fn wants_lines(headers: &HeaderMap) -> Result<bool, Problem> {
    let lines = headers.get_all(header::ACCEPT).iter();
    let lines: Vec<_> = lines.map(|line| String::from_utf8_lossy(line.as_bytes())).collect();
    let accept = lines.join(",").to_ascii_lowercase();
    if accept.trim().is_empty() {
        return Ok(false);
    }
    let types: Vec<(&str, f32)> = accept.split(',').filter_map(wanted).collect();
    let weight = |name: &str| types.iter().find(|(kind, _)| *kind == name).map(|(_, weight)| *weight);
    let json = ["application/json", "application/*", "*/*"].into_iter().find_map(weight);
    // Lines are for those who name them.
    match (weight("application/x-ndjson"), json) {
        (Some(lines), json) if json.is_none_or(|json| lines >= json) => Ok(true),
        (_, Some(_)) => Ok(false),
        _ => {
            let detail =
                format!("accept {}: a list is application/json or application/x-ndjson", Excerpt(&accept));
            Err(Problem::new(Code::NotAcceptable, detail))
        }
    }
}

/// A type of Accept and its weight, unless that is none.
fn wanted(item: &str) -> Option<(&str, f32)> {
    let mut parts = item.split(';').map(str::trim);
    let kind = parts.next()?;
    let weight = parts.find_map(|part| part.strip_prefix("q=")).map_or(Some(1.0), |q| q.parse().ok())?;
    (weight > 0.0).then_some((kind, weight))
}

/// Streams a whole list, page by page, one entry a line. A request that is wrong is refused by its
/// first page, before anything is sent.
pub(super) async fn stream_pages<T, P, F>(
    state: AppState,
    after: Option<String>,
    page: P,
) -> Result<Response, Problem>
where
    T: Serialize + Send + 'static,
    P: Fn(Option<String>) -> F + Send + 'static,
    F: Future<Output = Result<Page<T>, Problem>> + Send + 'static,
{
    let first = lines_of(page(after).await?);
    let lines = futures_util::stream::unfold((Some(first), state, page), |(read, state, page)| async move {
        // A list that fails in the middle is an error of the stream, which cuts the connection: the
        // caller must not take a part for the whole.
        match read? {
            Ok((text, None)) => Some((Ok(text), (None, state, page))),
            Ok((text, next)) => {
                let read = page(next);
                let read = async { lines_of(read.await.map_err(|problem| problem.detail().to_owned())?) };
                let read = state.on_main_runtime(read).await;
                Some((Ok(text), (Some(read), state, page)))
            }
            Err(why) => Some((Err(std::io::Error::other(why)), (None, state, page))),
        }
    });
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response())
}

fn lines_of<T: Serialize>(page: Page<T>) -> Result<(Bytes, Option<String>), String> {
    let mut text = Vec::new();
    for item in &page.items {
        let start = text.len();
        serde_json::to_writer(&mut text, item).map_err(|error| error.to_string())?;
        // An object is given as it was sent, and may have been sent over many lines. A line break stands
        // between its members, where a space means the same: within a text JSON has it escaped.
        for byte in text.iter_mut().skip(start).filter(|byte| **byte == b'\n') {
            *byte = b' ';
        }
        text.push(b'\n');
    }
    Ok((text.into(), page.next))
}

/// List keys with waiting or leased deltas, or, with `key`, one of them.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/items", tag = "looking", operation_id = "list_items",
    params(InQueue, ItemsQuery),
    responses(
        (status = 200, description = "A page, or with key one item.", content((ItemsAnswer = "application/json"), (Vec<ItemDocument> = "application/x-ndjson"))),
        Always, OfQueue, NotAcceptable, Unprocessable,
    )
)]
pub(in crate::http) async fn items(call: ReadCall) -> Result<Response, Problem> {
    let handle = call.state.registry.get(&call.name()?)?;
    let ReadCall { state, params, headers, visit, .. } = call;
    if let Some(key) = params.key("key")? {
        return Ok(one_item(&handle, &key).await?.into_response());
    }
    let streams = wants_lines(&headers)?;
    let filter = ItemFilter {
        states: read_states(params.text("state").or_else(|| params.text("worker").map(|_| "leased")))?,
        worker: params.name("worker")?.map(str::to_owned),
    };
    let limit = params.count("limit", 1..=PAGE_MAX)?.unwrap_or(PAGE_DEFAULT);
    let after = params.text("continue").map(str::to_owned);
    let filter = Arc::new(filter);
    if streams {
        let page = move |after| item_page(handle.clone(), filter.clone(), after, PAGE_DEFAULT);
        return stream_pages(state, after, page).await;
    }
    Ok(Counted::of(&visit, item_page(handle, filter, after, limit).await?).into_response())
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
            let known =
                format!("{} is none of {}{}", Excerpt(name), STATES.join(", "), near.unwrap_or_default());
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
            List::Items,
            handle.incarnation(),
            &format!("{}:{}:{}:{key}", self.state, self.at.as_micros(), self.rv),
        )
    }

    fn decode(handle: &Handle, text: &str) -> Result<Self, Problem> {
        let position = cursor::decode(List::Items, handle.incarnation(), text)?;
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
        place.ok_or_else(cursor::expired)
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
    let page = handle.read(move |queue, moment| read_items(queue, &looker, &filter, from, limit, moment));
    Ok(page.await?)
}

fn read_items(
    queue: &Queue,
    handle: &Handle,
    filter: &ItemFilter,
    from: Place,
    limit: usize,
    moment: Moment,
) -> Page<ItemDocument> {
    let mut items = Vec::new();
    let (mut looked, mut bytes) = (0, 0);
    let (mut next, mut more) = (None, false);
    let mut from = Some(from);
    let first = from.as_ref().map_or(0, |from| from.state);
    'states: for state in filter.states.iter().copied().filter(|state| *state >= first) {
        let start = from.take().filter(|from| from.state == state).unwrap_or_else(|| Place::start(state));
        for (slot, place) in in_state(queue, &start) {
            more = items.len() == limit || looked == LOOK_MAX || bytes >= PAGE_BYTES_MAX;
            if more {
                break 'states;
            }
            looked += 1;
            if let Some(entry) = queue.table().at(slot) {
                let schedule_state = &entry.schedule_state;
                let worker = schedule_state.lease().and_then(|lease| lease.worker.as_deref());
                let wanted = filter.worker.as_deref().is_none_or(|wanted| worker == Some(wanted));
                if wanted && (state != 1 || schedule_state.is_delayed()) {
                    bytes += [&entry.waiting, &entry.leased].map(weight).iter().sum::<usize>();
                    items.push(wire::item(handle, entry, moment));
                }
            }
            next = Some(place);
        }
    }
    let next = next.filter(|_| more).map(|place| place.encode(handle));
    Page { items, next, resource_version: queue.resource_version() }
}

/// What the deltas take in an answer, about.
fn weight(deltas: &Deltas) -> usize {
    deltas.bytes() + deltas.len() * DELTA_BYTES
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
        2 => Box::new(
            schedule
                .leased_after((start.at, Token::new(start.rv)))
                .map(move |(at, token, slot)| timed(&(*at, token.rv(), *slot))),
        ),
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
    get, path = "/v1/queues/{queue}/items/{key}", tag = "looking", operation_id = "get_item",
    params(InQueue, OfKey),
    responses(
        (status = 200, description = "The key.", body = ItemDocument),
        Always, OfQueue, Unprocessable,
    )
)]
pub(in crate::http) async fn item(call: ReadCall) -> Result<Json<ItemDocument>, Problem> {
    let (name, key) = (call.name()?, call.key()?);
    one_item(&*call.state.registry.get(&name)?, &key).await
}

async fn one_item(handle: &Handle, key: &Key) -> Result<Json<ItemDocument>, Problem> {
    let item = handle.read(|queue, moment| {
        let entry = queue.table().get(key.as_str()).filter(|entry| wire::is_item(entry))?;
        Some(wire::item(handle, entry, moment))
    });
    item.await?.map(Json).ok_or_else(|| no_key(key, "nothing waits, is leased, parked or has failed"))
}

fn no_key(key: &Key, why: &str) -> Problem {
    Problem::new(Code::KeyNotFound, format!("of the key {} {why}", Excerpt(key.as_str())))
}

/// List known objects in key order, or, with `key`, one of them.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/known", tag = "looking", operation_id = "list_known",
    params(InQueue, KnownQuery, Conditional),
    responses(
        (status = 200, description = "A page, or with key one object.", content((KnownAnswer = "application/json"), (Vec<KnownDocument> = "application/x-ndjson"))),
        (status = 304, description = "With key: it is one that If-None-Match names.", headers(("etag" = String, description = "Changes with the object."))),
        Always, OfQueue, NotAcceptable, Unprocessable,
    )
)]
pub(in crate::http) async fn known_list(call: ReadCall) -> Result<Response, Problem> {
    let handle = call.state.registry.get(&call.name()?)?;
    let ReadCall { state, params, headers, visit, .. } = call;
    if let Some(key) = params.key("key")? {
        return one_known(&handle, &key, &headers).await;
    }
    let streams = wants_lines(&headers)?;
    let filter = Arc::new(KnownFilter {
        prefix: params.text("prefix").unwrap_or_default().to_owned(),
        source: params.name("source")?.map(str::to_owned),
    });
    let limit = params.count("limit", 1..=PAGE_MAX)?.unwrap_or(PAGE_DEFAULT);
    let after = params.text("continue").map(str::to_owned);
    if streams {
        let page = move |after| known_page(handle.clone(), filter.clone(), after, PAGE_DEFAULT);
        return stream_pages(state, after, page).await;
    }
    Ok(Counted::of(&visit, known_page(handle, filter, after, limit).await?).into_response())
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
    let after = after.map(|after| cursor::decode(List::Known, handle.incarnation(), &after)).transpose()?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let incarnation = handle.incarnation();
    let page = handle.read(move |queue, _| {
        let from = after.as_deref().map_or(Bound::Included(filter.prefix.as_str()), Bound::Excluded);
        let (mut items, mut last, mut more) = (Vec::new(), None, false);
        let (mut looked, mut bytes) = (0, 0);
        for (_, entry) in queue.table().from(from) {
            if !entry.key.as_str().starts_with(&filter.prefix) {
                break;
            }
            more = items.len() == limit || looked == LOOK_MAX || bytes >= PAGE_BYTES_MAX;
            if more {
                break;
            }
            looked += 1;
            last = Some(&entry.key);
            let document = wire::known(entry);
            let owned = |known: &KnownDocument| filter.source.is_none() || known.source == filter.source;
            if let Some(known) = document.filter(owned) {
                bytes += known.object.as_str().len() + DELTA_BYTES;
                items.push(known);
            }
        }
        let next = last.filter(|_| more).map(|key| cursor::encode(List::Known, incarnation, key.as_str()));
        Page { items, next, resource_version: queue.resource_version() }
    });
    Ok(page.await?)
}

/// One known object.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/known/{key}", tag = "looking", operation_id = "get_known",
    params(InQueue, OfKey, Conditional),
    responses(
        (status = 200, description = "The object.", body = KnownDocument, headers(("etag" = String, description = "Changes with the object."))),
        (status = 304, description = "It is one that If-None-Match names.", headers(("etag" = String, description = "Changes with the object."))),
        Always, OfQueue, Unprocessable,
    )
)]
pub(in crate::http) async fn known(call: ReadCall) -> Result<Response, Problem> {
    let (name, key) = (call.name()?, call.key()?);
    one_known(&*call.state.registry.get(&name)?, &key, &call.headers).await
}

async fn one_known(handle: &Handle, key: &Key, headers: &HeaderMap) -> Result<Response, Problem> {
    let known = handle.read(|queue, _| queue.table().get(key.as_str()).and_then(wire::known));
    let Some(known) = known.await? else { return Err(no_key(key, "no object is known")) };
    let etag = format!("\"{}-{}\"", handle.incarnation(), known.resource_version);
    let lines = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|line| line.to_str().ok());
    let mut tags = lines.flat_map(|line| line.split(',')).map(|tag| tag.trim().trim_start_matches("W/"));
    if tags.any(|tag| tag == "*" || tag == etag) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response());
    }
    Ok(([(header::ETAG, etag)], Json(known)).into_response())
}

/// Whether the initial list has been acknowledged; waits for it like WaitForCacheSync.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/synced", tag = "looking", operation_id = "get_synced",
    params(InQueue, SyncedQuery),
    responses(
        (status = 200, description = "Whether it has.", body = SyncedDocument),
        Always, OfQueue,
    )
)]
pub(in crate::http) async fn synced(call: ReadCall) -> Result<Json<SyncedDocument>, Problem> {
    let name = call.name()?;
    let ReadCall { state, params, .. } = call;
    let wait = params.duration("wait", Duration::ZERO..=state.limits.max_wait)?.unwrap_or_default();
    let (synced, remaining) = state.registry.get(&name)?.wait_synced(wait).await?;
    Ok(Json(SyncedDocument { synced, remaining: remaining as u64 }))
}
