//! Calls on parked keys: list their errors, redrive and discard; and on delayed keys: promote.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use deltaq_engine::command::{KeyMatch, KeySelection, Selected, SelectedKeys};
use deltaq_engine::id::Rv;
use deltaq_engine::time::Time;
use deltaq_service::{Handle, ParkedPosition};
use deltaq_types::{KeysBody, KeysFilter, ParkedError, ParkedErrors, SelectedCount};

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
use crate::http::wire;

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
        (status = 200, description = "The number of keys, and the version at which they were counted.", body = SelectedCount),
        Always, OfQueue, OfBody, Conflict, Unprocessable,
    )
)]
pub(in crate::http) async fn promote(call: QueueCall) -> Result<Reply<SelectedCount>, Problem> {
    let (handle, keys, reply) = selected_keys(call).await?;
    Ok(reply.of(handle.promote(keys).await?))
}

/// Make parked keys ready: some, those with one error, or all.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/parked/redrive", tag = "consuming", operation_id = "redrive_parked",
    params(InQueue),
    request_body(content = KeysBody),
    responses(
        (status = 200, description = "The number of keys, and the version at which they were counted.", body = SelectedCount),
        Always, OfQueue, OfBody, Conflict, Unprocessable,
    )
)]
pub(in crate::http) async fn redrive(call: QueueCall) -> Result<Reply<SelectedCount>, Problem> {
    let (handle, keys, reply) = selected_keys(call).await?;
    Ok(reply.of(handle.redrive(keys).await?))
}

/// Drop parked keys with their waiting deltas: some, those with one error, or all.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/parked/discard", tag = "consuming", operation_id = "discard_parked",
    params(InQueue),
    request_body(content = KeysBody),
    responses(
        (status = 200, description = "The number of keys, and the version at which they were counted.", body = SelectedCount),
        Always, OfQueue, OfBody, Conflict, Unprocessable,
    )
)]
pub(in crate::http) async fn discard(call: QueueCall) -> Result<Reply<SelectedCount>, Problem> {
    let (handle, keys, reply) = selected_keys(call).await?;
    Ok(reply.of(handle.discard_parked(keys).await?))
}

/// What the reply to a selection of keys needs.
struct CountReply {
    context: Arc<RequestContext>,
    /// What `older_than` means in this call.
    older_than_at: Option<Time>,
}

impl CountReply {
    fn of(&self, selected: Selected) -> Reply<SelectedCount> {
        self.context.reply(SelectedCount {
            keys: selected.keys,
            resource_version: selected.begun.get(),
            older_than_at: self.older_than_at.map(wire::timestamp),
        })
    }
}

async fn selected_keys(call: QueueCall) -> Result<(Arc<Handle>, SelectedKeys, CountReply), Problem> {
    let QueueCall { state, name, incoming, context, .. } = call;
    let body: KeysBody = incoming.document().await?;
    let handle = state.partitions.get(&name)?;
    let is_alone = body.keys.is_none() && !body.all && body.filter.is_none();
    // A typed client writes an empty text for a member that it does not set.
    let error = body.error.filter(|error| is_alone || !error.is_empty());
    let given = [body.keys.is_some(), error.is_some(), body.filter.is_some(), body.all];
    match given.into_iter().filter(|is_given| *is_given).count() {
        0 => {
            let detail = "the call selects no keys: give \"keys\", \"error\", \"filter\" or \"all\":true";
            return Err(Problem::new(Code::InvalidRequest, detail).with("field", "keys"));
        }
        1 => {}
        _ => {
            let fields = ["all", "filter", "error"].into_iter().zip([body.all, given[2], given[1]]);
            let field = fields.into_iter().find_map(|(field, is_given)| is_given.then_some(field));
            let detail = "fields \"keys\", \"error\", \"filter\" and \"all\": give one of them";
            return Err(Problem::new(Code::InvalidRequest, detail).with("field", field.unwrap_or("all")));
        }
    }
    let selection = if let Some(keys) = body.keys {
        KeySelection::Named(read_keys(&keys)?.into_iter())
    } else if let Some(error) = error {
        check_error(&error).map_err(|wrong| wrong.field("error"))?;
        KeySelection::with_error(error)
    } else if let Some(filter) = body.filter {
        KeySelection::Matching(key_match(&handle, filter)?)
    } else {
        KeySelection::All
    };
    let older_than_at = match &selection {
        KeySelection::Matching(matching) => matching.queued_before,
        _ => None,
    };
    let keys = SelectedKeys::new(selection, body.expected_count);
    let reply = CountReply { context, older_than_at };
    Ok((handle, if body.dry_run { keys.dry_run() } else { keys }, reply))
}

/// What the keys of a selection have in common.
fn key_match(handle: &Handle, filter: KeysFilter) -> Result<KeyMatch, Problem> {
    if filter == KeysFilter::default() {
        let detail = "the filter is empty: give one of its members, or \"all\":true for all keys";
        return Err(Problem::new(Code::InvalidRequest, detail).with("field", "filter"));
    }
    let KeysFilter { prefix, error, source, group, older_than, older_than_at, until } = filter;
    if older_than.is_some() && (older_than_at.is_some() || until.is_some()) {
        let detail =
            "older_than is measured anew in each call, so it does not select the keys of an earlier count";
        let problem = Problem::new(Code::InvalidRequest, detail).with("field", "filter.older_than");
        return Err(problem.hint("give the older_than_at of the count in its place"));
    }
    if let Some(error) = &error {
        check_error(error).map_err(|wrong| wrong.field("filter.error"))?;
    }
    // The reply has whole milliseconds.
    let age_began = older_than.map(|age| {
        let age_us = Duration::from(age).as_micros().try_into().unwrap_or(u64::MAX);
        Time::from_micros(handle.now().as_micros().saturating_sub(age_us) / 1_000 * 1_000)
    });
    Ok(KeyMatch {
        prefix: prefix.map(String::from).unwrap_or_default(),
        error: error.map(String::from),
        source: source.map(String::from),
        group: group.map(String::from),
        queued_before: older_than_at.map(|at| Time::from_micros(at.as_micros())).or(age_began),
        until: until.map(Rv::new),
    })
}
