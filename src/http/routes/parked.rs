//! Calls on parked keys: list their errors, redrive and discard; and on delayed keys: promote.

use std::sync::Arc;

use axum::response::Response;
use deltaq_engine::command::{KeySelection, SelectedKeys};
use deltaq_service::{Handle, ParkedPosition};
use deltaq_types::{KeysBody, KeysCount, ParkedError, ParkedErrors};

use super::consume::read_keys;
use super::pages::{self, page_limit, wants_lines};
use crate::http::openapi::params::{InQueue, ParkedQuery};
use crate::http::openapi::responses::{Always, Conflict, NotAcceptable, OfBody, OfQueue, Unprocessable};
use crate::http::problem::{Code, Problem};
use crate::http::reply::Reply;
use crate::http::request::call::{QueueCall, ReadCall};
use crate::http::request::context::RequestContext;
use crate::http::request::cursor::{self, List};
use crate::http::request::params::check_error;

/// List the errors of the parked keys, with the number of keys of each.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/parked/errors", tag = "consuming", operation_id = "list_parked_errors",
    params(InQueue, ParkedQuery),
    responses(
        (status = 200, description = "The errors, those with the most keys first.", content((ParkedErrors = "application/json"), (Vec<ParkedError> = "application/x-ndjson"))),
        Always, OfQueue, NotAcceptable,
    )
)]
pub(in crate::http) async fn errors(call: ReadCall) -> Result<Response, Problem> {
    let handle = call.state.partitions.get(&call.name()?)?;
    let streams = wants_lines(&call.headers)?;
    let limit = page_limit(&call.params, streams)?.entries;
    let after = call.params.text("continue").map(str::to_owned);
    let page = move |after| error_page(handle.clone(), after, limit);
    pages::reply(call.context, streams, after, page).await
}

async fn error_page(
    handle: Arc<Handle>,
    after: Option<String>,
    limit: usize,
) -> Result<ParkedErrors, Problem> {
    let list = List::ParkedErrors;
    let after = after.map(|after| cursor::decode(list, &handle.lives(), &after)).transpose()?;
    let after =
        after.map(|text| ParkedPosition::parse(&text).ok_or_else(cursor::of_another_list)).transpose()?;
    let found = handle.parked_errors(after, limit).await?;
    let items = found.groups.into_iter().map(|group| ParkedError {
        error: group.error.to_string(),
        keys: group.keys as u64,
        first_key: group.first_key.as_str().to_owned(),
    });
    Ok(ParkedErrors {
        items: items.collect(),
        next: found.next.map(|position| {
            cursor::encode(list, &handle.lives(), found.resource_version, &position.to_string())
        }),
        other_keys: found.other_keys as u64,
        resource_version: found.resource_version.get(),
    })
}

/// Make delayed keys ready before they are due: some, those with one error, or all.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/delayed/promote", tag = "consuming", operation_id = "promote_delayed",
    params(InQueue),
    request_body(content = KeysBody),
    responses(
        (status = 200, description = "The number of keys.", body = KeysCount),
        Always, OfQueue, OfBody, Conflict, Unprocessable,
    )
)]
pub(in crate::http) async fn promote(call: QueueCall) -> Result<Reply<KeysCount>, Problem> {
    let (handle, keys, context) = selected_keys(call).await?;
    Ok(context.reply(KeysCount { keys: handle.promote(keys).await? }))
}

/// Make parked keys ready: some, those with one error, or all.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/parked/redrive", tag = "consuming", operation_id = "redrive_parked",
    params(InQueue),
    request_body(content = KeysBody),
    responses(
        (status = 200, description = "The number of keys.", body = KeysCount),
        Always, OfQueue, OfBody, Conflict, Unprocessable,
    )
)]
pub(in crate::http) async fn redrive(call: QueueCall) -> Result<Reply<KeysCount>, Problem> {
    let (handle, keys, context) = selected_keys(call).await?;
    Ok(context.reply(KeysCount { keys: handle.redrive(keys).await? }))
}

/// Drop parked keys with their waiting deltas: some, those with one error, or all.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/parked/discard", tag = "consuming", operation_id = "discard_parked",
    params(InQueue),
    request_body(content = KeysBody),
    responses(
        (status = 200, description = "The number of keys.", body = KeysCount),
        Always, OfQueue, OfBody, Conflict, Unprocessable,
    )
)]
pub(in crate::http) async fn discard(call: QueueCall) -> Result<Reply<KeysCount>, Problem> {
    let (handle, keys, context) = selected_keys(call).await?;
    Ok(context.reply(KeysCount { keys: handle.discard_parked(keys).await? }))
}

async fn selected_keys(call: QueueCall) -> Result<(Arc<Handle>, SelectedKeys, Arc<RequestContext>), Problem> {
    let QueueCall { state, name, incoming, context, .. } = call;
    let body: KeysBody = incoming.document().await?;
    let is_alone = body.keys.is_none() && !body.all;
    // A typed client writes an empty text for a member that it does not set.
    let error = body.error.filter(|error| is_alone || !error.is_empty());
    let selection = match (body.keys, error, body.all) {
        (Some(keys), None, false) => KeySelection::Named(read_keys(&keys)?.into_iter()),
        (None, Some(error), false) => {
            check_error(&error).map_err(|wrong| wrong.field("error"))?;
            KeySelection::WithError(error)
        }
        (None, None, true) => KeySelection::All,
        (None, None, false) => {
            let detail = "the call selects no keys: give \"keys\", \"error\" or \"all\":true";
            return Err(Problem::new(Code::InvalidRequest, detail).with("field", "keys"));
        }
        (_, _, all) => {
            let field = if all { "all" } else { "error" };
            let detail = "fields \"keys\", \"error\" and \"all\": give one of them";
            return Err(Problem::new(Code::InvalidRequest, detail).with("field", field));
        }
    };
    Ok((state.partitions.get(&name)?, SelectedKeys::new(selection, body.expected_count), context))
}
