//! Watches: the changes of a resource as a stream of events.

mod initial;
mod selected;

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use deltaq_engine::feed::{Row, RowLimit};
use deltaq_engine::time::Time;
use deltaq_service::{Author, ListedState, PageForm, WatchFrom, Watcher, author, on_behalf_of};
use futures_util::{StreamExt as _, stream};
use tokio::time::Instant;

use self::initial::Initial;
use self::selected::{Seen, Selected};
use super::accept::Form;
use super::list::{reached, show_of};
use super::options::{WatchBegin, WatchOptions};
use super::table::{Show, Shown, bookmark};
use crate::http::gate::in_flight::ReplyBytes;
use crate::http::gate::limits::{STREAMED_PAGE_BYTES_MAX, WATCH_MIN, WATCH_SPREAD};
use crate::http::place::Place;
use crate::http::problem::{Code, Problem};
use crate::http::request::call::ReadCall;
use crate::http::request::context::RequestContext;
use crate::http::status::{Refused, Status};

/// Maximum number of rows that are read at a time.
const ROWS_AT_A_TIME: usize = 1_000;
/// The counted size of a selection grows in steps of this many bytes.
const SELECTION_SLACK_BYTES: usize = 64 << 10;
/// Interval of the bookmarks.
const BOOKMARK_PERIOD: Duration = Duration::from_mins(1);
/// A watch does not end within this time: clients take a shorter one for a failure.
const TIME_MIN: Duration = Duration::from_secs(1);
/// The longest watch.
const TIME_MAX: Duration = Duration::from_hours(24);

/// The changes of the objects of a resource, or of one of its namespaces.
pub(in crate::http) async fn watch(call: ReadCall) -> Result<Response, Refused> {
    let show = show_of(&call)?;
    let options = WatchOptions::of(&call.params, show.resource.is_namespaced)?;
    let (place, context) = (call.place(), call.context.clone());
    let now = Instant::now();
    // The streams of a restarted server all began at the same time, but should not all end at the same time.
    let time = options.timeout.unwrap_or_else(|| WATCH_MIN + WATCH_SPREAD.mul_f64(fastrand::f64()));
    let (source, failed) = match begin(&call.headers, &show, &options, &place).await? {
        Ok(source) => (Some(source), None),
        Err(status) => (None, Some(status)),
    };
    let since = source.as_ref().and_then(|(watcher, _)| watcher.listing_since());
    let stream = Stream {
        source,
        initial: since.map(|_| Initial::default()),
        failed,
        show,
        options,
        place,
        context,
        author: author(),
        next_bookmark: now + BOOKMARK_PERIOD,
        ends: now + time.clamp(TIME_MIN, TIME_MAX),
        has_columns: true,
        held: None,
        selection: (None, 0),
    };
    let body = Body::from_stream(stream::unfold(Some(stream), Stream::next).fuse());
    // Go's clients choose the decoder by exactly this type.
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private")),
        (header::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    Ok((headers, body).into_response())
}

/// Begins a watch, or says what its stream has instead of changes.
async fn begin(
    headers: &HeaderMap,
    show: &Show,
    options: &WatchOptions,
    place: &Place,
) -> Result<Result<Source, Status>, Refused> {
    // The handshake of a WebSocket. fabric8 goes over to a plain watch at once if the reply is 200 and ends. It repeats a 503 for 20 s,
    // and gives up after any other status. `Upgrade` does not tell: it ends at a proxy, and at the node that passes the request on.
    if headers.contains_key(header::SEC_WEBSOCKET_KEY) {
        return Ok(Err(Status::bad_request("WebSocket is not supported: watch without it")));
    }
    match source(show, options, place).await {
        Ok(source) => Ok(Ok(source)),
        // A client begins again only if it reads this in the stream.
        Err(refused) => match refused.status(place) {
            status if matches!(status.outcome(), Code::Expired | Code::Timeout) => Ok(Err(status)),
            status => Err(status.into()),
        },
    }
}

/// The reader of a watch, and the objects that it has selected by their labels.
async fn source(show: &Show, options: &WatchOptions, place: &Place) -> Result<Source, Refused> {
    let (handle, view) = (&show.resource.handle, show.resource.view());
    let from = match options.from {
        WatchBegin::All(version) => {
            reached(handle, version).await?;
            WatchFrom::Start
        }
        WatchBegin::After(version) => {
            show.resource.check_version(version).await?;
            WatchFrom::Exact(version)
        }
        WatchBegin::Now => WatchFrom::Now,
    };
    let keys = show.resource.keys(place, options.selectors.fields.only_name());
    let watcher = handle.watch(view, from, keys.clone()).await.map_err(too_old)?;
    let selected = if options.selectors.labels.is_empty() {
        None
    } else {
        let after = (from != WatchFrom::Start).then(|| watcher.resource_version());
        Some(Selected::begin(&show.resource, &options.selectors, &keys, after).await?)
    };
    Ok((watcher, selected))
}

/// A version that can't be continued ends the watch with an event of code 410.
fn too_old(error: deltaq_service::Error) -> Refused {
    let problem = Problem::from(error);
    if problem.code() == Code::Expired {
        return Status::expired(format!("too old resource version: {problem}")).into();
    }
    problem.into()
}

/// The reader of a watch, and the objects that it has selected.
type Source = (Watcher, Option<Selected>);

/// A watch that is streamed.
struct Stream {
    /// The changes; `None` if the watch could not begin.
    source: Option<Source>,
    /// The initial events, until the client has caught up.
    initial: Option<Initial>,
    /// Why the watch could not begin.
    failed: Option<Status>,
    show: Show,
    options: WatchOptions,
    place: Place,
    context: Arc<RequestContext>,
    author: Author,
    next_bookmark: Instant,
    ends: Instant,
    /// Whether the next table has the columns.
    has_columns: bool,
    /// The counted bytes of the last piece, until the connection has taken it.
    held: Option<ReplyBytes>,
    /// The counted bytes of the selection, and how many they are.
    selection: (Option<ReplyBytes>, usize),
}

/// A piece of the stream, and whether the stream ends behind it.
struct Piece {
    text: Bytes,
    is_last: bool,
}

type Unfolded = Option<(Result<Bytes, Infallible>, Option<Stream>)>;

impl Stream {
    /// The next piece of the stream.
    async fn next(stream: Option<Self>) -> Unfolded {
        let mut stream = stream?;
        stream.held = None;
        let author = stream.author.clone();
        let piece = match stream.failed.take() {
            Some(status) => Err(Refused::from(status)),
            None => on_behalf_of(author, stream.read()).await,
        };
        match piece {
            Ok(Piece { text, is_last: true }) if text.is_empty() => None,
            Ok(Piece { text, is_last }) => Some((Ok(text), Some(stream).filter(|_| !is_last))),
            Err(refused) => {
                let status = refused.status(&stream.place).document();
                Some((Ok(event("ERROR", &status).into()), None))
            }
        }
    }

    /// Waits for changes, for the time of a bookmark, or for the end.
    async fn read(&mut self) -> Result<Piece, Refused> {
        loop {
            // The token may have been revoked since.
            self.context.authorize_again()?;
            let Some((watcher, _)) = &self.source else {
                return Ok(Piece { text: Bytes::new(), is_last: true });
            };
            let shutdown = watcher.handle().shutdown().clone();
            let was_listing = self.initial.as_ref().is_some_and(|initial| !initial.is_complete);
            if !self.show.resource.is_current() {
                // The versions of this resource are not those of another one, so there is no bookmark.
                return Ok(Piece { text: Bytes::new(), is_last: true });
            }
            let page = self.rows().await;
            // Another node now owns the queue. The events so far are complete.
            let has_moved =
                matches!(&page, Err(Refused::Problem(problem)) if problem.code() == Code::NotOwner);
            let (mut text, is_caught_up) = if has_moved { (Bytes::new(), false) } else { page? };
            self.count_selection()?;
            let Some((watcher, _)) = &mut self.source else { continue };
            let is_listing = self.initial.as_ref().is_some_and(|initial| !initial.is_complete);
            let reached = watcher.resource_version();
            let version = self.initial.as_ref().map_or(reached, |initial| initial.version(reached)).get();
            let is_behind = self.initial.as_ref().is_some_and(|initial| !initial.is_over());
            let now = Instant::now();
            let is_stopping = shutdown.is_draining() || self.context.is_ended();
            let is_last = has_moved || is_stopping || now >= self.ends && !is_listing;
            let ends_initial = was_listing && !is_listing && self.options.marks_end;
            let is_due = (is_last || is_caught_up && now >= self.next_bookmark) && !is_behind;
            if ends_initial || is_due && self.options.has_bookmarks {
                let object = bookmark(&self.show, version, ends_initial, self.has_columns);
                self.has_columns = false;
                text = [text, event("BOOKMARK", &object).into()].concat().into();
                self.next_bookmark = now + BOOKMARK_PERIOD;
            }
            if !is_behind {
                self.initial = None;
            }
            if !text.is_empty() || is_last {
                self.held = self.context.reserve_reply(text.len())?;
                return Ok(Piece { text, is_last });
            }
            if is_caught_up && !is_behind {
                let open = self.context.keep_open();
                let wakes = if self.options.has_bookmarks { self.next_bookmark } else { self.ends };
                let wakes = now.checked_add(open).map_or(wakes, |open| open.min(wakes));
                tokio::select! {
                    () = watcher.changed() => {}
                    () = tokio::time::sleep_until(wakes.min(self.ends)) => {}
                    () = shutdown.draining().cancelled() => {}
                    () = self.context.ended() => {}
                }
            }
        }
    }

    /// Counts the selection like a reply that the client has not read yet.
    fn count_selection(&mut self) -> Result<(), Problem> {
        let Some((_, Some(selected))) = &self.source else { return Ok(()) };
        let bytes = selected.bytes();
        if bytes > self.selection.1 {
            let bytes = bytes + SELECTION_SLACK_BYTES;
            self.selection = (None, 0);
            self.selection = (self.context.reserve_reply(bytes)?, bytes);
        }
        Ok(())
    }

    /// The next events, and whether there are no more at present.
    async fn rows(&mut self) -> Result<(Bytes, bool), Refused> {
        let Self { source, initial, show, options, has_columns, .. } = self;
        let Some((watcher, selected)) = source else { return Ok((Bytes::new(), true)) };
        let limit = RowLimit { rows: ROWS_AT_A_TIME, bytes: STREAMED_PAGE_BYTES_MAX };
        if show.form == Form::Objects && options.selectors.are_empty() && initial.is_none() {
            let now = watcher.handle().now();
            let encode = |rows: &[Row]| events(show, rows.iter().map(Seen::of), &[], now, &mut false);
            return watcher
                .read_text(PageForm::Kubernetes(show.resource.number()), limit, encode)
                .await
                .map_err(too_old);
        }
        let (rows, is_last) = if let Some(late) = initial.as_mut().and_then(Initial::late) {
            (late, false)
        } else {
            let page = watcher.read(limit).await.map_err(too_old)?;
            let rows = match initial {
                Some(initial) => initial.note(page.rows, page.is_last),
                None => page.rows,
            };
            (rows, page.is_last)
        };
        let rows = rows.iter().filter(|row| options.selectors.include_key(&show.resource, &row.key));
        let seen: Vec<Seen<'_>> = match selected {
            None => rows.map(Seen::of).collect(),
            Some(selected) => {
                let rows: Vec<&Row> = rows.collect();
                selected.note(&show.resource, &options.selectors, &rows, is_last).await?
            }
        };
        let states = if show.form == Form::Table {
            watcher.handle().states(seen.iter().map(|seen| seen.key)).await?
        } else {
            Vec::new()
        };
        let now = watcher.handle().now();
        Ok((events(show, seen.into_iter(), &states, now, has_columns), is_last))
    }
}

/// The events of rows.
fn events<'r>(
    show: &Show,
    rows: impl Iterator<Item = Seen<'r>>,
    states: &[Option<ListedState>],
    now: Time,
    has_columns: &mut bool,
) -> Bytes {
    let mut text = String::new();
    for (index, seen) in rows.enumerate() {
        let shown = Shown {
            key: seen.key,
            version: seen.version.get(),
            birth: seen.birth,
            object: seen.object.unwrap_or("{}"),
            state: states.get(index).copied().flatten(),
        };
        let _never_fails = write!(text, r#"{{"type":"{}","object":"#, seen.kind);
        let start = text.len();
        if show.form == Form::Table {
            show.push_table(&mut text, &shown, now, std::mem::take(has_columns));
        } else {
            show.push_item(&mut text, &shown, now);
        }
        unbroken(&mut text, start);
        text.push_str("}\n");
    }
    text.into()
}

/// An object may contain line breaks, because its text is kept as it was sent. They occur only between tokens, where a space has the same
/// meaning, because JSON escapes line breaks in strings.
fn unbroken(text: &mut String, start: usize) {
    let has_breaks = text.as_bytes().iter().skip(start).any(|byte| matches!(byte, b'\n' | b'\r'));
    if has_breaks {
        let object = text.split_off(start).replace(['\n', '\r'], " ");
        text.push_str(&object);
    }
}

/// An event.
fn event(kind: &str, object: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}
