//! Watches: the changes of a view, as a stream of lines, as server-sent events, or page by page.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use deltaq_engine::excerpt::Excerpt;
use deltaq_engine::feed::{Row, RowLimit};
use deltaq_engine::id::Rv;
use deltaq_engine::lives::LifeId;
use deltaq_engine::view::View;
use deltaq_service::{
    self, Author, Handle, KeyFilter, PageForm, Shard, WatchFrom, Watcher, author, on_behalf_of,
};
use deltaq_types::{ExpiredReason, Page, RowType, WatchRow};
use futures_util::{StreamExt as _, stream};
use tokio::time::Instant;

use crate::http::gate::in_flight::ReplyBytes;
use crate::http::gate::limits::{BOOKMARK_DEFAULT, BOOKMARK_MAX, BOOKMARK_MIN, PAGE_BYTES_MAX, PAGE_DEFAULT};
use crate::http::gate::limits::{PAGE_MAX, STREAMED_PAGE_BYTES_MAX, WATCH_MIN, WATCH_SPREAD};
use crate::http::openapi::params::{InQueue, Resumed, WatchQuery};
use crate::http::openapi::responses::{Always, NotAcceptable, OfQueue};
use crate::http::problem::{Code, Problem};
use crate::http::reply::RequestCounts;
use crate::http::request::accept::CLOUD_EVENTS;
use crate::http::request::call::ReadCall;
use crate::http::request::context::RequestContext;
use crate::http::request::cursor::{self, List};
use crate::http::request::params::{Params, digits, wrong};
use crate::http::request::watch_form::WatchForm;
use crate::http::wire;

/// Maximum number of rows per page of a stream.
const STREAMED_ROWS_MAX: usize = 1_000;

/// The version that a page of CloudEvents reaches.
const RESOURCE_VERSION: HeaderName = HeaderName::from_static("deltaq-resource-version");
/// The rest of the list of all keys, behind a page of CloudEvents.
const CONTINUE: HeaderName = HeaderName::from_static("deltaq-continue");

/// Watch a view: the changes since a version.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/watch", tag = "reading", operation_id = "watch",
    params(InQueue, WatchQuery, Resumed),
    responses(
        (status = 200, description = "The changes.", content((Page<WatchRow> = "application/json"), (Vec<WatchRow> = "application/x-ndjson"), (String = "text/event-stream"), (Vec<Value> = "application/cloudevents-batch+json"))),
        Always, OfQueue, NotAcceptable,
    )
)]
pub(in crate::http) async fn watch(call: ReadCall) -> Result<Response, Problem> {
    let handle = call.state.partitions.get(&call.name()?)?;
    let ReadCall { params, headers, context, .. } = call;
    let (form, view) = (WatchForm::of(&headers)?, view(&params)?);
    let filter = key_filter(&params)?;
    let bookmark = params.duration("bookmark", BOOKMARK_MIN..=BOOKMARK_MAX)?.unwrap_or(BOOKMARK_DEFAULT);
    let wait = params.duration("wait", Duration::ZERO..=context.state.limits.max_wait)?;
    let rows = params.count("limit", 1..=PAGE_MAX)?;
    if matches!(form, WatchForm::Page | WatchForm::CloudEvents) {
        let rows = usize::try_from(rows.unwrap_or(PAGE_DEFAULT)).unwrap_or(usize::MAX);
        let watcher = handle.watch(view, from(&params, &handle, view)?, filter).await?;
        let page = next_page(watcher, &context, wait.unwrap_or_default(), rows).await?;
        return Ok(match form {
            WatchForm::CloudEvents => {
                let items = u64::try_from(page.rows.len()).ok();
                context.count(RequestCounts { items, ..RequestCounts::default() });
                page.events(&handle)
            }
            _ => context.reply(page.document()).into_response(),
        });
    }
    for (name, is_given) in [("wait", wait.is_some()), ("limit", rows.is_some())] {
        if is_given {
            return Err(
                wrong(name, "a stream has none").hint("send \"accept: application/json\" for a long poll")
            );
        }
    }
    let (watcher, expired) = match form {
        WatchForm::Events => events(&params, &headers, &handle, view, filter).await?,
        _ => (handle.watch(view, from(&params, &handle, view)?, filter).await?, None),
    };
    let now = Instant::now();
    let stream = Stream {
        watcher,
        expired,
        context,
        author: author(),
        form,
        bookmark,
        next_bookmark: now + bookmark,
        // The streams of a restarted server all began at the same time, but should not all end at the same time.
        ends: now + WATCH_MIN + WATCH_SPREAD.mul_f64(fastrand::f64()),
        has_begun: false,
        has_ended: false,
        held: None,
    };
    let body = Body::from_stream(stream::unfold(stream, Stream::next).fuse());
    let kind = match form {
        WatchForm::Events => "text/event-stream",
        _ => "application/x-ndjson",
    };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        // With this header, nginx passes on each row at once.
        (header::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    Ok((headers, body).into_response())
}

pub(super) fn view(params: &Params) -> Result<View, Problem> {
    match params.text("view") {
        None => Ok(View::Latest),
        Some(name) => View::ALL
            .into_iter()
            .find(|view| view.as_str() == name)
            .ok_or_else(|| wrong("view", &format!("{} is neither latest nor known", Excerpt(name)))),
    }
}

/// The keys that the parameters `prefix` and `shard` select.
pub(super) fn key_filter(params: &Params) -> Result<KeyFilter, Problem> {
    let prefix = params.text("prefix").unwrap_or_default().to_owned();
    Ok(KeyFilter { prefix, shard: params.text("shard").map(shard).transpose()? })
}

/// The shard in a text like `0/4`.
fn shard(text: &str) -> Result<Shard, Problem> {
    let parts = text.split_once('/').and_then(|(index, count)| Some((digits(index)?, digits(count)?)));
    let shard = parts.map(|(index, count)| Shard { index, count }).filter(|shard| shard.index < shard.count);
    shard.ok_or_else(|| {
        wrong("shard", &format!("{} is not I/N with I from 0 to N - 1, such as 0/4", Excerpt(text)))
    })
}

/// The watch of an `EventSource`. It sends the id of its last event without asking the page, and it never connects
/// again after a refusal. The positions are tried in this order: the id of the last event, the version in the URL,
/// all keys. The problem is that of the first position.
async fn events(
    params: &Params,
    headers: &HeaderMap,
    handle: &Arc<Handle>,
    view: View,
    filter: KeyFilter,
) -> Result<(Watcher, Option<Problem>), Problem> {
    let mut expired = None;
    for position in last_event(headers, handle).into_iter().chain([from(params, handle, view)]) {
        let begun = match position {
            Ok(from) => handle.watch(view, from, filter.clone()).await.map_err(Problem::from),
            Err(problem) => Err(problem),
        };
        match begun {
            Err(problem) if problem.code() == Code::Expired => expired = expired.or(Some(problem)),
            begun => return begun.map(|watcher| (watcher, expired)),
        }
    }
    Ok((handle.watch(view, WatchFrom::Start, filter).await?, expired))
}

/// The position in `Last-Event-ID`. A text that is not a position does not come from this queue.
fn last_event(headers: &HeaderMap, handle: &Handle) -> Option<Result<WatchFrom, Problem>> {
    const NAME: &str = "Last-Event-ID";
    let id = headers.get("last-event-id").filter(|id| !id.is_empty())?;
    let position = id.to_str().ok().and_then(|id| position(id, NAME, handle));
    Some(position.unwrap_or_else(|| Err(lost(NAME, handle))))
}

/// Where the parameters say that the watch begins.
fn from(params: &Params, handle: &Handle, view: View) -> Result<WatchFrom, Problem> {
    if let Some(token) = params.text("continue") {
        let position = cursor::decode(List::Watch(view), &handle.lives(), token);
        let position = position.inspect_err(|problem| {
            if problem.code() == Code::Expired {
                handle.count_lost_watch();
            }
        })?;
        let numbers = position.split_once(':');
        let numbers = numbers.and_then(|(after, since)| Some((after.parse().ok()?, since.parse().ok()?)));
        let (after, since) = numbers.ok_or_else(cursor::of_another_list)?;
        return Ok(WatchFrom::List { after: Rv::new(after), since: Rv::new(since) });
    }
    if params.flag("send_initial_events")? {
        return Ok(WatchFrom::Start);
    }
    match params.text("resource_version") {
        None | Some("0") => Ok(WatchFrom::Start),
        Some("now") => Ok(WatchFrom::Now),
        Some(text) => position(text, "resource_version", handle).unwrap_or_else(|| {
            Err(wrong("resource_version", &format!("{} is neither a version nor \"now\"", Excerpt(text))))
        }),
    }
}

/// Parses a position: a version, or the id of an event; `None` if the text is neither. An id consists of the life of a
/// version and the version, as in `6f2c01ab-246012345678337`. While the watch sends all keys, the id also has the version
/// at which the watch began, and the life is that of the newer version.
fn position(text: &str, parameter: &str, handle: &Handle) -> Option<Result<WatchFrom, Problem>> {
    let number = |text: &str| digits(text).map(Rv::new);
    let Some((life, versions)) = text.split_once('-') else {
        return number(text).map(|after| Ok(WatchFrom::After(after)));
    };
    let life = LifeId::parse(life)?;
    let (from, newest) = match versions.split_once('-') {
        None => {
            let after = number(versions)?;
            (WatchFrom::After(after), after)
        }
        Some((after, since)) => {
            let (after, since) = (number(after)?, number(since)?);
            (WatchFrom::List { after, since }, after.max(since))
        }
    };
    Some(if handle.lives().has(life, newest) { Ok(from) } else { Err(lost(parameter, handle)) })
}

/// The problem of a position in a life that the queue never had.
fn lost(parameter: &str, handle: &Handle) -> Problem {
    handle.count_lost_watch();
    let detail = "the version belongs to a deleted queue of this name, or to changes that it has lost";
    Problem::expired(ExpiredReason::Lost, detail).hint("list the view again").with("parameter", parameter)
}

/// A page of a long poll.
struct Polled {
    rows: Vec<Row>,
    /// The rest of the list of all keys.
    next: Option<String>,
    version: Rv,
    /// Whether the page ends the list of all keys.
    ends_list: bool,
}

impl Polled {
    fn document(self) -> Page<WatchRow> {
        let mut items: Vec<WatchRow> = self.rows.iter().map(wire::watch_row).collect();
        if self.ends_list {
            items.push(wire::watch_bookmark(self.version, true));
        }
        Page { items, next: self.next, resource_version: self.version.get() }
    }

    /// The rows as CloudEvents. The position, which is no event, is in headers.
    fn events(self, handle: &Handle) -> Response {
        let incarnation = handle.incarnation().to_string();
        let body = wire::watched_events(handle.name().as_str(), &incarnation, &self.rows);
        let mut response =
            ([(header::CONTENT_TYPE, HeaderValue::from_static(CLOUD_EVENTS))], body).into_response();
        let headers = response.headers_mut();
        headers.insert(RESOURCE_VERSION, self.version.get().into());
        if let Some(Ok(next)) = self.next.map(HeaderValue::try_from) {
            headers.insert(CONTINUE, next);
        }
        response
    }
}

/// The next page of a long poll. Waits until there is a row, but at most for the time that the client requested.
async fn next_page(
    mut watcher: Watcher,
    context: &RequestContext,
    wait: Duration,
    rows: usize,
) -> Result<Polled, Problem> {
    let shutdown = watcher.handle().shutdown().clone();
    let limit = RowLimit { rows, bytes: PAGE_BYTES_MAX };
    let ends = Instant::now() + wait;
    let is_listing = watcher.listing_since().is_some();
    let mut items = Vec::new();
    loop {
        let page = watcher.read(limit).await?;
        items.extend(page.rows);
        let ends_list = is_listing && watcher.listing_since().is_none();
        let is_over = ends_list || Instant::now() >= ends || shutdown.is_draining() || context.is_ended();
        if !items.is_empty() || page.is_last && is_over {
            let next = watcher.listing_since().map(|since| {
                let after = watcher.resource_version();
                let (list, lives) = (List::Watch(watcher.view()), watcher.handle().lives());
                cursor::encode(list, &lives, after.max(since), &format!("{after}:{since}"))
            });
            let ends_list = is_listing && next.is_none();
            return Ok(Polled { rows: items, next, version: watcher.resource_version(), ends_list });
        }
        if page.is_last {
            tokio::select! {
                () = watcher.changed() => {}
                () = tokio::time::sleep_until(ends) => {}
                () = shutdown.draining().cancelled() => {}
                () = context.ended() => {}
            }
        }
    }
}

/// A watch that is streamed.
struct Stream {
    watcher: Watcher,
    /// Why the position that the client had can't be continued.
    expired: Option<Problem>,
    context: Arc<RequestContext>,
    author: Author,
    form: WatchForm,
    bookmark: Duration,
    next_bookmark: Instant,
    ends: Instant,
    has_begun: bool,
    has_ended: bool,
    /// The counted bytes of the last piece, until the connection has taken it.
    held: Option<ReplyBytes>,
}

impl Stream {
    /// The next piece of the stream.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        self.held = None;
        if self.has_ended {
            return None;
        }
        let mut text = Vec::new();
        if !std::mem::replace(&mut self.has_begun, true) && self.form == WatchForm::Events {
            text.extend_from_slice(wire::retry_line(wire::RETRY).as_bytes());
        }
        if let Some(problem) = self.expired.take() {
            let (url, version) = (self.context.public_url(), self.watcher.resource_version());
            self.write(&mut text, &wire::watch_expired(&problem, &url, &self.context.id, version), None);
        }
        match on_behalf_of(self.author.clone(), self.fill(&mut text)).await {
            Ok(rows) if text.is_empty() => return Some((Ok(rows), self)),
            Ok(_) => {}
            Err(problem) => {
                self.has_ended = true;
                let row = wire::watch_error(&problem, &self.context.public_url(), &self.context.id);
                self.write(&mut text, &row, None);
            }
        }
        Some((Ok(text.into()), self))
    }

    /// Waits for rows or for the time of a bookmark. Returns the rows, or adds them to `text` if there is more to send.
    async fn fill(&mut self, text: &mut Vec<u8>) -> Result<Bytes, Problem> {
        let shutdown = self.watcher.handle().shutdown().clone();
        let limit = RowLimit { rows: STREAMED_ROWS_MAX, bytes: STREAMED_PAGE_BYTES_MAX };
        loop {
            // The token may have been revoked since.
            self.context.authorize_again()?;
            let since = self.watcher.listing_since();
            let page = self.read(limit, since).await;
            // Another node now owns the queue. The rows up to the position of this watch were durable before the
            // queue moved.
            let has_moved = matches!(page, Err(deltaq_service::Error::NotOwner));
            let (rows, is_last) = if has_moved { (Bytes::new(), false) } else { page? };
            self.held = self.context.reserve_reply(text.len() + rows.len())?;
            let now = Instant::now();
            let is_listing = self.watcher.listing_since().is_some();
            let ends_list = since.is_some() && !is_listing;
            let is_stopping = shutdown.is_draining() || self.context.is_ended();
            self.has_ended = has_moved || is_stopping || now >= self.ends && !is_listing;
            let is_due = ends_list || self.has_ended || is_last && now >= self.next_bookmark;
            if !text.is_empty() || is_due && !rows.is_empty() {
                text.extend_from_slice(&rows);
            }
            // A bookmark guarantees that nothing is missing up to its version.
            if is_due && !is_listing {
                self.write(text, &wire::watch_bookmark(self.watcher.resource_version(), ends_list), None);
            }
            if !text.is_empty() || !rows.is_empty() || self.has_ended {
                self.next_bookmark = now + self.bookmark;
                return Ok(rows);
            }
            if is_last {
                tokio::select! {
                    () = self.watcher.changed() => {}
                    () = tokio::time::sleep_until(self.next_bookmark.min(self.ends)) => {}
                    () = shutdown.draining().cancelled() => {}
                    () = self.context.ended() => {}
                }
            }
        }
    }

    /// The next rows as text, and whether there are no more.
    async fn read(
        &mut self,
        limit: RowLimit,
        since: Option<Rv>,
    ) -> Result<(Bytes, bool), deltaq_service::Error> {
        // The ids of events differ between watches.
        if self.form == WatchForm::Events {
            let page = self.watcher.read(limit).await?;
            let mut text = Vec::with_capacity(page.rows.iter().map(wire::row_bytes_max).sum());
            for row in &page.rows {
                self.write(&mut text, &wire::watch_row(row), since);
            }
            return Ok((exact(text), page.is_last));
        }
        self.watcher.read_text(PageForm::Rows, limit, lines).await
    }

    /// Writes a row. `since` is the version at which the watch began, while it sends all keys.
    fn write(&self, text: &mut Vec<u8>, row: &WatchRow, since: Option<Rv>) {
        let encoded = if self.form == WatchForm::Events {
            let id = match (row.kind, row.resource_version) {
                // The browser forgets the id that has expired.
                (RowType::Expired, _) => Some(String::new()),
                (_, version) => version.map(|version| self.event_id(Rv::new(version), since)),
            };
            wire::push_event(text, id.as_deref(), row)
        } else {
            wire::push_line(text, row)
        };
        report(encoded);
    }

    /// The id of the event with this version, see [`position`].
    fn event_id(&self, version: Rv, since: Option<Rv>) -> String {
        let life = self.watcher.handle().lives().id_of(version.max(since.unwrap_or_default()));
        let since = since.map(|since| format!("-{since}")).unwrap_or_default();
        format!("{life}-{version}{since}")
    }
}

/// The rows as lines.
fn lines(rows: &[Row]) -> Bytes {
    let mut text = Vec::with_capacity(rows.iter().map(wire::row_bytes_max).sum());
    for row in rows {
        report(wire::push_line(&mut text, &wire::watch_row(row)));
    }
    exact(text)
}

/// A text that takes as much memory as the limit of replies counts: its bytes.
fn exact(mut text: Vec<u8>) -> Bytes {
    text.shrink_to_fit();
    text.into()
}

fn report(encoded: serde_json::Result<()>) {
    if let Err(error) = encoded {
        tracing::error!(%error, "a row could not be encoded");
    }
}
