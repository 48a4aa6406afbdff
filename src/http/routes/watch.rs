//! Watches: the changes of a view, as a stream of lines, as server-sent events, or page by page.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use deltaq_engine::excerpt::Excerpt;
use deltaq_engine::feed::{RowLimit, RowPage};
use deltaq_engine::id::Rv;
use deltaq_engine::lives::LifeId;
use deltaq_engine::view::View;
use deltaq_service::{self, Handle, KeyFilter, Shard, WatchFrom, Watcher};
use deltaq_types::{ExpiredReason, Page, WatchRow};
use futures_util::{StreamExt as _, stream};
use tokio::time::Instant;

use crate::http::gate::in_flight::ReplyBytes;
use crate::http::gate::limits::{BOOKMARK_DEFAULT, BOOKMARK_MAX, BOOKMARK_MIN, PAGE_BYTES_MAX, PAGE_DEFAULT};
use crate::http::gate::limits::{PAGE_MAX, STREAMED_PAGE_BYTES_MAX, WATCH_MIN, WATCH_SPREAD};
use crate::http::openapi::params::{InQueue, Resumed, WatchQuery};
use crate::http::openapi::responses::{Always, NotAcceptable, OfQueue};
use crate::http::problem::{Code, Problem};
use crate::http::request::accept::Accept;
use crate::http::request::call::ReadCall;
use crate::http::request::context::RequestContext;
use crate::http::request::cursor::{self, List};
use crate::http::request::params::{Params, digits, wrong};
use crate::http::wire;

/// How long a browser waits before it connects again, in milliseconds.
const RETRY_MS: u64 = 1_000;
/// Maximum number of rows per page of a stream.
const STREAMED_ROWS_MAX: usize = 1_000;

/// How the rows are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    /// A stream of NDJSON.
    Lines,
    /// A stream of server-sent events.
    Events,
    /// One JSON page.
    Page,
}

/// Watch a view: the changes since a version.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/watch", tag = "reading", operation_id = "watch",
    params(InQueue, WatchQuery, Resumed),
    responses(
        (status = 200, description = "The changes.", content((Page<WatchRow> = "application/json"), (Vec<WatchRow> = "application/x-ndjson"), (String = "text/event-stream"))),
        Always, OfQueue, NotAcceptable,
    )
)]
pub(in crate::http) async fn watch(call: ReadCall) -> Result<Response, Problem> {
    let handle = call.state.partitions.get(&call.name()?)?;
    let ReadCall { params, headers, context, .. } = call;
    let (transport, view) = (transport(&headers)?, view(&params)?);
    let from = from(&params, &headers, &handle, view, transport).inspect_err(|problem| {
        // The position refers to a life that the queue never had.
        if problem.code() == Code::Expired {
            handle.count_lost_watch();
        }
    })?;
    let filter = key_filter(&params)?;
    let bookmark = params.duration("bookmark", BOOKMARK_MIN..=BOOKMARK_MAX)?.unwrap_or(BOOKMARK_DEFAULT);
    let wait = params.duration("wait", Duration::ZERO..=context.state.limits.max_wait)?;
    let rows = params.count("limit", 1..=PAGE_MAX)?;
    if transport == Transport::Page {
        let rows = usize::try_from(rows.unwrap_or(PAGE_DEFAULT)).unwrap_or(usize::MAX);
        let watcher = handle.watch(view, from, filter).await?;
        let page = next_page(watcher, wait.unwrap_or_default(), rows).await?;
        return Ok(context.reply(page).into_response());
    }
    for (name, is_given) in [("wait", wait.is_some()), ("limit", rows.is_some())] {
        if is_given {
            return Err(
                wrong(name, "a stream has none").hint("send \"accept: application/json\" for a long poll")
            );
        }
    }
    let watcher = handle.watch(view, from, filter).await?;
    let now = Instant::now();
    let stream = Stream {
        watcher,
        context,
        transport,
        bookmark,
        next_bookmark: now + bookmark,
        // The streams of a restarted server all began at the same time, but should not all end at the same time.
        ends: now + WATCH_MIN + WATCH_SPREAD.mul_f64(fastrand::f64()),
        has_begun: false,
        has_ended: false,
        held: None,
    };
    let body = Body::from_stream(stream::unfold(stream, Stream::next).fuse());
    let kind = match transport {
        Transport::Events => "text/event-stream",
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

/// The transport that the client prefers. Among equal preferences, the first one counts. The default is NDJSON.
fn transport(headers: &HeaderMap) -> Result<Transport, Problem> {
    let accept = Accept::of(headers);
    if accept.is_absent() {
        return Ok(Transport::Lines);
    }
    let transport = |kind| match kind {
        "application/x-ndjson" | "*/*" | "application/*" => Some(Transport::Lines),
        "text/event-stream" | "text/*" => Some(Transport::Events),
        "application/json" => Some(Transport::Page),
        _ => None,
    };
    let transports = accept.types().filter_map(|(kind, weight)| Some((transport(kind)?, weight)));
    let preferred = transports.reduce(|best, next| if next.1 > best.1 { next } else { best });
    let offered = "a watch is application/x-ndjson, text/event-stream or application/json";
    preferred.map(|(transport, _)| transport).ok_or_else(|| accept.refused(offered))
}

fn view(params: &Params) -> Result<View, Problem> {
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

/// Where the watch starts.
fn from(
    params: &Params,
    headers: &HeaderMap,
    handle: &Handle,
    view: View,
    transport: Transport,
) -> Result<WatchFrom, Problem> {
    let last_id = headers.get("last-event-id").filter(|_| transport == Transport::Events);
    if let Some(id) = last_id.and_then(|id| id.to_str().ok()).filter(|id| !id.is_empty()) {
        return position(id, "Last-Event-ID", handle);
    }
    if let Some(token) = params.text("continue") {
        let position = cursor::decode(List::Watch(view), &handle.lives(), token)?;
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
        Some(text) => position(text, "resource_version", handle),
    }
}

/// Parses a position: a version, or the id of an event. An id consists of the life of a version and the version, as
/// in `6f2c01ab-246012345678337`. While the watch sends all keys, the id also has the version at which the watch
/// began, and the life is that of the newer version.
fn position(text: &str, parameter: &str, handle: &Handle) -> Result<WatchFrom, Problem> {
    let wrong_version = || wrong(parameter, &format!("{} is neither a version nor \"now\"", Excerpt(text)));
    let number = |text: &str| digits(text).map(Rv::new).ok_or_else(wrong_version);
    let Some((life, versions)) = text.split_once('-') else {
        return number(text).map(WatchFrom::After);
    };
    let life = LifeId::parse(life).ok_or_else(wrong_version)?;
    let from = match versions.split_once('-') {
        None => WatchFrom::After(number(versions)?),
        Some((after, since)) => WatchFrom::List { after: number(after)?, since: number(since)? },
    };
    let newest = match from {
        WatchFrom::After(after) => after,
        WatchFrom::List { after, since } => after.max(since),
        WatchFrom::Start | WatchFrom::Now => Rv::ZERO,
    };
    if !handle.lives().has(life, newest) {
        let detail = "the version belongs to a deleted queue of this name, or to a time that was lost";
        let problem = Problem::expired(ExpiredReason::Lost, detail).hint("list the view again");
        return Err(problem.with("parameter", parameter));
    }
    Ok(from)
}

/// The next page of a long poll. Waits until there is a row, but at most for the time that the client requested.
async fn next_page(mut watcher: Watcher, wait: Duration, rows: usize) -> Result<Page<WatchRow>, Problem> {
    let shutdown = watcher.handle().shutdown().clone();
    let limit = RowLimit { rows, bytes: PAGE_BYTES_MAX };
    let ends = Instant::now() + wait;
    let is_listing = watcher.listing_since().is_some();
    let mut items = Vec::new();
    loop {
        let page = watcher.read(limit).await?;
        items.extend(page.rows.iter().map(wire::watch_row));
        let ends_list = is_listing && watcher.listing_since().is_none();
        let is_over = ends_list || Instant::now() >= ends || shutdown.is_draining();
        if !items.is_empty() || page.is_last && is_over {
            let next = watcher.listing_since().map(|since| {
                let after = watcher.resource_version();
                let (list, lives) = (List::Watch(watcher.view()), watcher.handle().lives());
                cursor::encode(list, &lives, after.max(since), &format!("{after}:{since}"))
            });
            if is_listing && next.is_none() {
                items.push(wire::watch_bookmark(watcher.resource_version(), true));
            }
            return Ok(Page { items, next, resource_version: watcher.resource_version().get() });
        }
        if page.is_last {
            tokio::select! {
                () = watcher.changed() => {}
                () = tokio::time::sleep_until(ends) => {}
                () = shutdown.draining().cancelled() => {}
            }
        }
    }
}

/// A watch that is streamed.
struct Stream {
    watcher: Watcher,
    context: Arc<RequestContext>,
    transport: Transport,
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
        if !std::mem::replace(&mut self.has_begun, true) && self.transport == Transport::Events {
            text.extend_from_slice(format!("retry: {RETRY_MS}\n\n").as_bytes());
        }
        if let Err(problem) = self.fill(&mut text).await {
            self.has_ended = true;
            let row = wire::watch_error(&problem, &self.context.public_url(), &self.context.id);
            self.write(&mut text, &row, None);
        }
        Some((Ok(text.into()), self))
    }

    /// Waits for rows or for the time of a bookmark, and writes them.
    async fn fill(&mut self, text: &mut Vec<u8>) -> Result<(), Problem> {
        let shutdown = self.watcher.handle().shutdown().clone();
        let limit = RowLimit { rows: STREAMED_ROWS_MAX, bytes: STREAMED_PAGE_BYTES_MAX };
        loop {
            // The token may have been revoked since.
            self.context.authorize_again()?;
            let since = self.watcher.listing_since();
            let page = self.watcher.read(limit).await;
            // Another node now owns the queue. The rows up to the position of this watch were durable before the
            // queue moved.
            let has_moved = matches!(page, Err(deltaq_service::Error::NotOwner));
            let page = if has_moved { RowPage::default() } else { page? };
            for row in &page.rows {
                self.write(text, &wire::watch_row(row), since);
            }
            let now = Instant::now();
            let is_listing = self.watcher.listing_since().is_some();
            let ends_list = since.is_some() && !is_listing;
            self.has_ended = has_moved || shutdown.is_draining() || now >= self.ends && !is_listing;
            let is_due = ends_list || self.has_ended || page.is_last && now >= self.next_bookmark;
            // A bookmark guarantees that nothing is missing up to its version.
            if is_due && !is_listing {
                self.write(text, &wire::watch_bookmark(self.watcher.resource_version(), ends_list), None);
            }
            if !text.is_empty() || self.has_ended {
                self.next_bookmark = now + self.bookmark;
                self.held = self.context.reserve_reply(text.len())?;
                return Ok(());
            }
            if page.is_last {
                tokio::select! {
                    () = self.watcher.changed() => {}
                    () = tokio::time::sleep_until(self.next_bookmark.min(self.ends)) => {}
                    () = shutdown.draining().cancelled() => {}
                }
            }
        }
    }

    /// Writes a row. `since` is the version at which the watch began, while it sends all keys.
    fn write(&self, text: &mut Vec<u8>, row: &WatchRow, since: Option<Rv>) {
        if self.transport == Transport::Events {
            let kind = row.kind.as_str();
            if let Some(version) = row.resource_version {
                let newest = since.unwrap_or_default().max(Rv::new(version));
                let life = self.watcher.handle().lives().id_of(newest);
                let since = since.map(|since| format!("-{since}")).unwrap_or_default();
                text.extend_from_slice(format!("id: {life}-{version}{since}\n").as_bytes());
            }
            text.extend_from_slice(format!("event: {kind}\ndata: ").as_bytes());
        }
        if let Err(error) = wire::push_line(text, row) {
            tracing::error!(%error, "a row could not be encoded");
        }
        if self.transport == Transport::Events {
            text.push(b'\n');
        }
    }
}
