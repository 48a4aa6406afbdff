//! Calls on queues: list, delete, pause, close, purge.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use deltaq_engine::config::Config;
use deltaq_engine::excerpt::Excerpt;
use deltaq_engine::limits::GROUP_BYTES_MAX;
use deltaq_service::{Handle, Registry};
use deltaq_types::{PauseBody, PurgedDocument, QueueDocument, QueuePage, QueueStatus};

use super::pages::{stream_pages, wants_lines};
use super::settings::{Refused, etag};
use crate::http::cluster::queue_list::{QueueList, complete};
use crate::http::gate::limits::{PAGE_DEFAULT, PAGE_MAX};
use crate::http::openapi::params::{CloseQuery, DeleteQueueQuery, ExpectedSettings, InQueue, ListQuery};
use crate::http::openapi::responses::{
    Always, Conflict, ExpiredToken, NotAcceptable, OfBody, OfQueue, PreconditionFailed, Unavailable,
};
use crate::http::problem::{Code, Problem};
use crate::http::reply::{Json, Reply};
use crate::http::request::call::{QueueCall, ReadCall};
use crate::http::request::conditional::Conditions;
use crate::http::request::context::RequestContext;
use crate::http::request::params::wrong;
use crate::http::wire::{self, Fields, Selected};

/// List the queues that the caller may read, in the order of their names.
#[utoipa::path(
    get, path = "/v1/queues", tag = "queues", operation_id = "list_queues",
    params(ListQuery),
    responses(
        (status = 200, description = "A page.", content((QueuePage = "application/json"), (Vec<QueueDocument> = "application/x-ndjson"))),
        Always, NotAcceptable, ExpiredToken, Unavailable,
    )
)]
pub(in crate::http) async fn list(
    ReadCall { params, headers, context, .. }: ReadCall,
) -> Result<Response, Problem> {
    let streams = wants_lines(&headers)?;
    let fields = Fields::read::<QueueDocument>(params.text("fields"))?;
    let queues = QueueList::new(&context, params.text("prefix").unwrap_or_default());
    let limit = params.count("limit", 1..=PAGE_MAX)?.unwrap_or(PAGE_DEFAULT);
    let after = params.text("continue").map(str::to_owned);
    if streams {
        let page = move |after| {
            let queues = queues.clone();
            async move { Ok(selected(queues.page(after, PAGE_DEFAULT).await.and_then(complete)?, fields)) }
        };
        return stream_pages(context, after, page).await;
    }
    let is_first = after.is_none();
    let mut listed = queues.page(after, limit).await?;
    // A client that ignores `unavailable` must not mistake an empty list for a server without queues.
    if is_first && listed.items.is_empty() && listed.next.is_none() {
        listed = complete(listed)?;
    }
    Ok(context.reply(selected(listed, fields)).into_response())
}

/// The page, with only these fields of each queue.
fn selected(page: QueuePage, fields: Fields) -> QueuePage<Selected<QueueDocument>> {
    let items = page.items.into_iter().map(|queue| fields.of(queue)).collect();
    QueuePage { items, unavailable: page.unavailable, next: page.next, resource_version: None }
}

/// One queue.
#[utoipa::path(
    get, path = "/v1/queues/{queue}", tag = "queues", operation_id = "get_queue",
    params(InQueue),
    responses(
        (status = 200, description = "The queue.", body = QueueDocument),
        Always, OfQueue,
    )
)]
pub(in crate::http) async fn get(call: ReadCall) -> Result<Json<QueueDocument>, Problem> {
    let name = call.name()?;
    let registry = call.state.partitions.registry(&name)?;
    document(&registry, &*registry.get(&name)?, &call.context).await
}

/// The counts and flags of a queue, without its settings.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/status", tag = "queues", operation_id = "get_status",
    params(InQueue),
    responses(
        (status = 200, description = "The state of the queue in numbers.", body = QueueStatus),
        Always, OfQueue,
    )
)]
pub(in crate::http) async fn status(call: ReadCall) -> Result<Json<QueueStatus>, Problem> {
    let name = call.name()?;
    let registry = call.state.partitions.registry(&name)?;
    let document = call.context.shown_document(registry.document(&*registry.get(&name)?).await?);
    Ok(Json(wire::status(&document)))
}

/// Delete a queue with all its contents. Waiting pops end with 410.
#[utoipa::path(
    delete, path = "/v1/queues/{queue}", tag = "queues", operation_id = "delete_queue",
    params(InQueue, DeleteQueueQuery, ExpectedSettings),
    responses(
        (status = 204, description = "Deleted."),
        Always, OfQueue, Conflict, PreconditionFailed,
    )
)]
pub(in crate::http) async fn delete(call: ReadCall) -> Result<StatusCode, Problem> {
    let name = call.name()?;
    let registry = call.state.partitions.registry(&name)?;
    let forces = call.params.flag("force")?;
    let conditions = Conditions::of(&call.headers)?;
    let check = |current: &Config| conditions.check_settings(Some(&etag(&current.document())));
    let gone = registry.delete_if(&name, forces, |current| check(current).map_err(Refused::ByCall));
    let gone = gone.map_err(|refused| refused.problem(&call.context))?;
    gone.wait().await.map_err(deltaq_service::Error::from)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Stop delivery, or that of one group, until resume. Waiting pops keep their position.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/pause", tag = "queues", operation_id = "pause_queue",
    params(InQueue),
    request_body(content = Option<PauseBody>),
    responses(
        (status = 200, description = "The queue.", body = QueueDocument),
        Always, OfQueue, OfBody,
    )
)]
pub(in crate::http) async fn pause(call: QueueCall) -> Result<Json<QueueDocument>, Problem> {
    pause_or_resume(call, true).await
}

/// Resume delivery, or that of one group.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/resume", tag = "queues", operation_id = "resume_queue",
    params(InQueue),
    request_body(content = Option<PauseBody>),
    responses(
        (status = 200, description = "The queue.", body = QueueDocument),
        Always, OfQueue, OfBody,
    )
)]
pub(in crate::http) async fn resume(call: QueueCall) -> Result<Json<QueueDocument>, Problem> {
    pause_or_resume(call, false).await
}

/// Open a closed queue again.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/reopen", tag = "queues", operation_id = "reopen_queue",
    params(InQueue),
    responses(
        (status = 200, description = "The queue.", body = QueueDocument),
        Always, OfQueue, OfBody,
    )
)]
pub(in crate::http) async fn reopen(call: QueueCall) -> Result<Json<QueueDocument>, Problem> {
    switch(call, async |handle| handle.reopen().await).await
}

/// Close the queue: pops get the remaining keys, and then 410.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/close", tag = "queues", operation_id = "close_queue",
    params(InQueue, CloseQuery),
    responses(
        (status = 200, description = "The queue; with drain also whether it is drained.", body = QueueDocument),
        Always, OfQueue, OfBody,
    )
)]
pub(in crate::http) async fn close(call: QueueCall) -> Result<Json<QueueDocument>, Problem> {
    let QueueCall { state, name, params, incoming, context, .. } = call;
    let drain = params.flag("drain")?;
    let wait = params.duration("wait", Duration::ZERO..=state.limits.max_wait)?;
    if wait.is_some() && !drain {
        return Err(wrong("wait", "it is allowed only with drain=true"));
    }
    let at_once = match params.text("wait_for") {
        None | Some("leases") => false,
        Some("none") => true,
        Some(other) => {
            return Err(wrong(
                "wait_for",
                &format!("it takes \"leases\" or \"none\", not {}", Excerpt(other)),
            ));
        }
    };
    incoming.nothing().await?;
    let registry = state.partitions.registry(&name)?;
    let handle = registry.get(&name)?;
    let drained = if drain {
        Some(handle.drain(at_once, wait.unwrap_or_default()).await?)
    } else {
        handle.close(at_once).await?;
        None
    };
    let Json(queue) = document(&registry, &handle, &context).await?;
    Ok(Json(QueueDocument { drained, ..queue }))
}

/// Drop ready and delayed keys, and deltas that arrived during a lease.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/purge", tag = "queues", operation_id = "purge_queue",
    params(InQueue),
    responses(
        (status = 200, description = "The dropped keys and deltas.", body = PurgedDocument),
        Always, OfQueue, OfBody,
    )
)]
pub(in crate::http) async fn purge(
    QueueCall { state, name, incoming, context, .. }: QueueCall,
) -> Result<Reply<PurgedDocument>, Problem> {
    incoming.nothing().await?;
    let handle = state.partitions.get(&name)?;
    let purged = handle.purge().await?;
    Ok(context.reply(PurgedDocument { keys: purged.keys, deltas: purged.deltas }))
}

/// Pauses or resumes the queue, or one of its groups.
async fn pause_or_resume(call: QueueCall, paused: bool) -> Result<Json<QueueDocument>, Problem> {
    let QueueCall { state, name, incoming, context, .. } = call;
    let PauseBody { group } = incoming.document().await?;
    let registry = state.partitions.registry(&name)?;
    let handle = registry.get(&name)?;
    match group {
        None => handle.set_paused(paused).await?,
        Some(group) => {
            let refused = |detail: String| Problem::new(Code::InvalidRequest, detail).with("field", "group");
            if group.len() > GROUP_BYTES_MAX {
                let detail = format!("the name of a group has at most {GROUP_BYTES_MAX} bytes");
                return Err(refused(detail).with("limit", GROUP_BYTES_MAX));
            }
            if handle.config().groups.is_none() {
                return Err(refused("the queue has no setting groups".to_owned()));
            }
            if !handle.set_group_paused(&group, paused).await? {
                return Err(refused("the queue has no room for another group".to_owned()));
            }
        }
    }
    document(&registry, &handle, &context).await
}

async fn switch(
    call: QueueCall,
    change: impl AsyncFnOnce(Arc<Handle>) -> Result<(), deltaq_service::Error>,
) -> Result<Json<QueueDocument>, Problem> {
    let QueueCall { state, name, incoming, context, .. } = call;
    incoming.nothing().await?;
    let registry = state.partitions.registry(&name)?;
    let handle = registry.get(&name)?;
    change(handle.clone()).await?;
    document(&registry, &handle, &context).await
}

async fn document(
    registry: &Registry,
    handle: &Handle,
    context: &RequestContext,
) -> Result<Json<QueueDocument>, Problem> {
    Ok(Json(wire::queue(&context.shown_document(registry.document(handle).await?))))
}
