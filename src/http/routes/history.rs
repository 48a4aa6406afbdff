//! The history of a key, newest event first, as far back as the journal keeps it.

use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use deltaq_types::{EventDocument, Page};

use crate::http::gate::limits::{PAGE_DEFAULT, PAGE_MAX};
use crate::http::openapi::params::{HistoryQuery, InQueue, KeyHistoryQuery, OfKey};
use crate::http::openapi::responses::{Always, OfQueue, Unavailable, Unprocessable};
use crate::http::problem::Problem;
use crate::http::reply::Reply;
use crate::http::request::call::ReadCall;
use crate::http::request::cursor::{self, List};
use crate::http::wire;

/// The history of a key, newest event first.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/history/{key}", tag = "reading", operation_id = "get_history",
    params(InQueue, OfKey, KeyHistoryQuery),
    responses(
        (status = 200, description = "A page. A page may be empty although others follow.", body = Page<EventDocument>),
        Always, OfQueue, Unprocessable, Unavailable,
    )
)]
pub(in crate::http) async fn of_key(call: ReadCall) -> Result<Reply<Page<EventDocument>>, Problem> {
    page(&call, &call.key()?).await.map(|page| call.context.reply(page))
}

/// The history of a key, newest event first, for keys that clients cannot put into a path.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/history", tag = "reading", operation_id = "get_history_of",
    params(InQueue, HistoryQuery),
    responses(
        (status = 200, description = "A page. A page may be empty although others follow.", body = Page<EventDocument>),
        Always, OfQueue, Unprocessable, Unavailable,
    )
)]
pub(in crate::http) async fn history(call: ReadCall) -> Result<Reply<Page<EventDocument>>, Problem> {
    page(&call, &call.params.required_key()?).await.map(|page| call.context.reply(page))
}

async fn page(call: &ReadCall, key: &Key) -> Result<Page<EventDocument>, Problem> {
    let (handle, params) = (call.state.partitions.get(&call.name()?)?, &call.params);
    let limit = params.count("limit", 1..=PAGE_MAX)?.unwrap_or(PAGE_DEFAULT);
    let before = match params.text("continue") {
        Some(token) => {
            let position = cursor::decode(List::History, &handle.lives(), token)?;
            Some(position.parse::<Rv>().map_err(|_| cursor::of_another_list())?)
        }
        None => None,
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let history = handle.history(key, before, limit).await?;
    let moment = handle.moment();
    let next = history.next.map(|before| {
        cursor::encode(List::History, &handle.lives(), history.resource_version, &before.to_string())
    });
    Ok(Page {
        items: history.events.iter().filter_map(|event| wire::event(&handle, event, moment)).collect(),
        next,
        resource_version: history.resource_version.get(),
    })
}
