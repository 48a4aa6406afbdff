//! Lists: one page as JSON, or all pages as a stream of NDJSON.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use deltaq_service::{Handle, PageLimit, author, on_behalf_of};
use deltaq_types::Page;
use futures_util::{StreamExt as _, stream};
use serde::Serialize;

use crate::http::gate::in_flight::ReplyBytes;
use crate::http::gate::limits::{PAGE_BYTES_MAX, PAGE_DEFAULT, PAGE_MAX, STREAMED_PAGE_BYTES_MAX};
use crate::http::problem::{Code, Problem};
use crate::http::reply::ListPage;
use crate::http::request::accept::Accept;
use crate::http::request::call::ReadCall;
use crate::http::request::context::RequestContext;
use crate::http::request::params::Params;
use crate::http::wire;

/// Whether the client wants a list as a stream of NDJSON.
pub(super) fn wants_lines(headers: &HeaderMap) -> Result<bool, Problem> {
    let accept = Accept::of(headers);
    if accept.is_absent() {
        return Ok(false);
    }
    let json = ["application/json", "application/*", "*/*"].into_iter().find_map(|kind| accept.weight(kind));
    // A client gets NDJSON only if it names it explicitly.
    match (accept.weight("application/x-ndjson"), json) {
        (Some(lines), json) if json.is_none_or(|json| lines >= json) => Ok(true),
        (_, Some(_)) => Ok(false),
        _ => Err(accept.refused("a list is application/json or application/x-ndjson")),
    }
}

/// The limit of each page of a list. The parameter `limit` has no effect on a stream.
pub(super) fn page_limit(params: &Params, streams: bool) -> Result<PageLimit, Problem> {
    let wanted = params.count("limit", 1..=PAGE_MAX)?.unwrap_or(PAGE_DEFAULT);
    let (entries, bytes) =
        if streams { (PAGE_DEFAULT, STREAMED_PAGE_BYTES_MAX) } else { (wanted, PAGE_BYTES_MAX) };
    Ok(PageLimit { entries: usize::try_from(entries).unwrap_or(usize::MAX), bytes })
}

/// A list of a queue without additional parameters: a page, or all pages as lines.
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
    reply(call.context, streams, after, page).await
}

/// A list: the page after a position, or all pages from there as lines.
pub(super) async fn reply<L, P, F>(
    context: Arc<RequestContext>,
    streams: bool,
    after: Option<String>,
    page: P,
) -> Result<Response, Problem>
where
    L: ListPage + Send + 'static,
    P: Fn(Option<String>) -> F + Send + 'static,
    F: Future<Output = Result<L, Problem>> + Send + 'static,
{
    if streams {
        return stream_pages(context, after, page).await;
    }
    Ok(context.reply(page(after).await?).into_response())
}

/// Streams a whole list, page by page, with one entry per line. The first page is read before anything is sent, so
/// that a wrong request is refused. A page is read when the connection has taken the previous page, which counts as a
/// reply in memory until then.
pub(super) async fn stream_pages<L, P, F>(
    context: Arc<RequestContext>,
    after: Option<String>,
    page: P,
) -> Result<Response, Problem>
where
    L: ListPage + Send + 'static,
    P: Fn(Option<String>) -> F + Send + 'static,
    F: Future<Output = Result<L, Problem>> + Send + 'static,
{
    let author = author();
    let page = move |after| on_behalf_of(author.clone(), page(after));
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
        // A list that fails in the middle ends the connection, so that the caller does not mistake a part for the
        // whole.
        Some(match rendered {
            Ok((text, next)) => (Ok(text), (next.map(NextPage::Behind), held, context, page)),
            Err(why) => (Err(std::io::Error::other(why)), (None, held, context, page)),
        })
    });
    // The compressor polls a stream again after its end.
    let lines = Body::from_stream(lines.fuse());
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], lines).into_response())
}

/// A list of one page.
pub(super) fn reply_alone<T: Serialize>(
    context: &RequestContext,
    streams: bool,
    page: Page<T>,
) -> Result<Response, Problem> {
    if !streams {
        return Ok(context.reply(page).into_response());
    }
    let (text, _) = lines_of(&page).map_err(|error| Problem::new(Code::Internal, error))?;
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], text).into_response())
}

/// The next page of a stream.
enum NextPage {
    /// The page is already rendered.
    Rendered(Result<RenderedPage, String>),
    /// The page begins after this position.
    Behind(String),
}

/// A page as lines, and the position after it unless it is the last page.
type RenderedPage = (Bytes, Option<String>);

/// Reads and renders a further page of a stream, and counts its bytes.
async fn render_next<L: ListPage>(
    context: &RequestContext,
    page: impl Future<Output = Result<L, Problem>> + Send + 'static,
) -> Result<(RenderedPage, Option<ReplyBytes>), String> {
    let refused = |problem: Problem| problem.detail().to_owned();
    // A slow client may read for hours, and its token may be revoked in the meantime.
    context.authorize_again().map_err(refused)?;
    let page = async move { lines_of(&page.await.map_err(refused)?) };
    let rendered = context.state.on_main_runtime(page).await?;
    let held = context.reserve_reply(rendered.0.len()).map_err(refused)?;
    Ok((rendered, held))
}

fn lines_of<L: ListPage>(page: &L) -> Result<RenderedPage, String> {
    let mut text = Vec::new();
    let (items, next) = page.entries();
    for item in items {
        wire::push_line(&mut text, item).map_err(|error| error.to_string())?;
    }
    Ok((text.into(), next.map(str::to_owned)))
}
