//! The sources and the workers of a queue, and whether the queue is synced.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use deltaq_engine::config::Config;
use deltaq_engine::excerpt::Excerpt;
use deltaq_engine::id::{Rv, Source};
use deltaq_engine::limits::{RV_MAX, SOURCES_MAX};
use deltaq_service::{Handle, SourceSettings};
use deltaq_types::{
    Page, ReflectorReport, SourceChange, SourceDocument, SourceReport, SourceThreshold, SourcesChange,
    SyncedDocument, WorkerDocument,
};

use super::pages::reply_in_pages;
use super::settings;
use crate::config::access::Verb;
use crate::http::openapi::params::{
    ExpectedSettings, InQueue, OfSource, SourcesQuery, SyncedQuery, WorkersQuery,
};
use crate::http::openapi::responses::{
    Always, Full, NotAcceptable, OfBody, OfQueue, PreconditionFailed, Unprocessable,
};
use crate::http::problem::{Code, Problem};
use crate::http::reply::Json;
use crate::http::request::call::{QueueCall, ReadCall};
use crate::http::request::conditional::Conditions;
use crate::http::request::cursor::{self, List};
use crate::http::request::params::{check_error, check_name, digits, path_source, wrong};
use crate::http::wire;

/// List the sources by name, with the number of their keys and their last calls.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/sources", tag = "reading", operation_id = "list_sources",
    params(InQueue, SourcesQuery),
    responses(
        (status = 200, description = "A page.", content((Page<SourceDocument> = "application/json"), (Vec<SourceDocument> = "application/x-ndjson"))),
        Always, OfQueue, NotAcceptable, Unprocessable,
    )
)]
pub(in crate::http) async fn sources(call: ReadCall) -> Result<Response, Problem> {
    reply_in_pages(call, source_page).await
}

async fn source_page(
    handle: Arc<Handle>,
    after: Option<String>,
    limit: usize,
) -> Result<Page<SourceDocument>, Problem> {
    let after = after.map(|after| cursor::decode(List::Sources, &handle.lives(), &after)).transpose()?;
    let page = handle.sources(after, limit).await?;
    let items = page.entries.iter().map(|source| wire::source(source, page.moment)).collect();
    let (lives, rv) = (handle.lives(), page.resource_version);
    let next = page.next.map(|source| cursor::encode(List::Sources, &lives, rv, &source));
    Ok(Page { items, next, resource_version: page.resource_version.get() })
}

/// Report whether the queue is in step with a source. The problem is shown with the source until the next report, or until the queue is loaded again.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/sources", tag = "producing", operation_id = "report_source",
    params(InQueue),
    request_body(content = SourceReport),
    responses(
        (status = 204, description = "The report has replaced that of the source."),
        Always, OfQueue, OfBody, Unprocessable, Full,
    )
)]
pub(in crate::http) async fn report(
    QueueCall { state, name, incoming, context, .. }: QueueCall,
) -> Result<StatusCode, Problem> {
    let SourceReport { source, problem } = incoming.document().await?;
    check_name(&source).map_err(|wrong| wrong.field("source"))?;
    let named = Source::from(&*source);
    context.sources_on(&name).check(Some(&named))?;
    context.authorize_change(&name, std::iter::once(Some(&named)))?;
    // A typed client writes an empty text for a member that it does not set.
    let problem = problem.filter(|problem| !problem.is_empty());
    problem.as_deref().map(check_error).transpose().map_err(|wrong| wrong.field("problem"))?;
    state.partitions.get(&name)?.report_source(Source::from(&*source), problem).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Send a heartbeat of a reflector. It is not stored. A reflector is silent a minute after its last heartbeat, and forgotten a day after it.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/reflectors", tag = "producing", operation_id = "report_reflector",
    params(InQueue),
    request_body(content = ReflectorReport),
    responses(
        (status = 204, description = "The heartbeat has replaced the one before."),
        Always, OfQueue, OfBody, Unprocessable, Full,
    )
)]
pub(in crate::http) async fn reflector(
    QueueCall { state, name, incoming, context, .. }: QueueCall,
) -> Result<StatusCode, Problem> {
    let report: ReflectorReport = incoming.document().await?;
    for (field, text) in [
        ("source", &report.source),
        ("instance", &report.instance),
        ("version", &report.version),
        ("kind", &report.kind),
    ] {
        check_name(text).map_err(|wrong| wrong.field(field))?;
    }
    report.last_error.as_deref().map(check_error).transpose().map_err(|wrong| wrong.field("last_error"))?;
    let named = Source::from(&*report.source);
    context.sources_on(&name).check(Some(&named))?;
    context.authorize_change(&name, std::iter::once(Some(&named)))?;
    state.partitions.get(&name)?.note_reflector(report).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Record that a source was reached and has no change, so that it does not count as stale.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/sources/{source}/seen", tag = "producing", operation_id = "seen_source",
    params(InQueue, OfSource),
    responses(
        (status = 204, description = "The contact is recorded."),
        Always, OfQueue,
    )
)]
pub(in crate::http) async fn seen(
    QueueCall { state, name, context, uri, .. }: QueueCall,
) -> Result<StatusCode, Problem> {
    let source = path_source(uri.path().strip_suffix("/seen").unwrap_or_default())?;
    context.sources_on(&name).check(Some(&source))?;
    context.authorize_change(&name, std::iter::once(Some(&source)))?;
    state.partitions.get(&name)?.reach_source(&source).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Set how long a source may be silent before it counts as stale, or its last sequence number. With null as the number, calls with smaller numbers are applied again.
#[utoipa::path(
    patch, path = "/v1/queues/{queue}/sources/{source}", tag = "queues", operation_id = "patch_source",
    params(InQueue, OfSource),
    request_body = SourceChange,
    responses(
        (status = 200, description = "The source.", body = SourceDocument),
        Always, OfQueue, OfBody, Full,
    )
)]
pub(in crate::http) async fn change(
    QueueCall { state, name, incoming, uri, context, .. }: QueueCall,
) -> Result<Json<SourceDocument>, Problem> {
    let source = path_source(uri.path())?;
    let SourceChange { sequence, stale_after, proposed } = incoming.document().await?;
    if sequence.is_none() && stale_after.is_none() {
        let detail = "the body has neither sequence nor stale_after, so there is nothing to change";
        return Err(Problem::new(Code::InvalidRequest, detail));
    }
    context.sources_on(&name).check(Some(&source))?;
    if sequence.is_some() {
        context.authorize_on(Verb::Admin, name.as_str())?;
    }
    context.authorize_change(&name, std::iter::once(Some(&source)))?;
    if stale_after.is_some() && !proposed {
        context.sets_thresholds();
    }
    let stale_after = stale_after.map(|threshold| threshold.map(Duration::from));
    let change = SourceSettings { sequence, stale_after, is_proposed: proposed };
    let changed = state.partitions.get(&name)?.change_source(&source, change).await?;
    let Some((source, moment)) = changed else {
        let detail = format!(
            "the queue {name:?} remembers no source {}",
            Excerpt(source.as_str()),
            name = name.as_str()
        );
        return Err(Problem::new(Code::SourceNotFound, detail));
    };
    Ok(Json(wire::source(&source, moment)))
}

/// Set how long several sources may be silent before they count as stale: all of them, or none. With If-Match, only while the queue has these settings.
#[utoipa::path(
    patch, path = "/v1/queues/{queue}/sources", tag = "queues", operation_id = "patch_sources",
    params(InQueue, ExpectedSettings),
    request_body = SourcesChange,
    responses(
        (status = 204, description = "The thresholds are set."),
        Always, OfQueue, OfBody, PreconditionFailed, Unprocessable, Full,
    )
)]
pub(in crate::http) async fn change_several(
    QueueCall { state, name, incoming, context, .. }: QueueCall,
    conditions: Conditions,
) -> Result<StatusCode, Problem> {
    let SourcesChange { sources } = incoming.settings().await?;
    context.sets_thresholds();
    let threshold = |(name, given): (String, SourceThreshold)| {
        check_name(&name).map_err(|wrong| wrong.field("sources"))?;
        Ok((Source::from(&*name), given.stale_after.map(Duration::from)))
    };
    let thresholds: Vec<_> = sources.into_iter().map(threshold).collect::<Result<_, Problem>>()?;
    let permitted = context.sources_on(&name);
    thresholds.iter().try_for_each(|(source, _)| permitted.check(Some(source)))?;
    context.authorize_change(&name, thresholds.iter().map(|(source, _)| Some(source)))?;
    let check = |config: &Config| conditions.check_settings(Some(&settings::etag(&config.document())));
    if state.partitions.get(&name)?.configure_sources(&thresholds, check).await?? {
        return Ok(StatusCode::NO_CONTENT);
    }
    let why = if thresholds.len() > SOURCES_MAX {
        "and the call names more"
    } else {
        "and can't forget those with sequence numbers"
    };
    let detail = format!("the queue remembers at most {SOURCES_MAX} sources, {why}; nothing was changed");
    Err(Problem::new(Code::TooManySequences, detail).with("limit", SOURCES_MAX))
}

/// List the workers by name, with the leases that they hold and their pops that wait for keys.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/workers", tag = "reading", operation_id = "list_workers",
    params(InQueue, WorkersQuery),
    responses(
        (status = 200, description = "A page.", content((Page<WorkerDocument> = "application/json"), (Vec<WorkerDocument> = "application/x-ndjson"))),
        Always, OfQueue, NotAcceptable, Unprocessable,
    )
)]
pub(in crate::http) async fn workers(call: ReadCall) -> Result<Response, Problem> {
    reply_in_pages(call, worker_page).await
}

async fn worker_page(
    handle: Arc<Handle>,
    after: Option<String>,
    limit: usize,
) -> Result<Page<WorkerDocument>, Problem> {
    let after = after.map(|after| cursor::decode(List::Workers, &handle.lives(), &after)).transpose()?;
    let page = handle.workers(after, limit).await?;
    let items = page.entries.iter().map(|(name, state)| wire::worker(name, state, page.moment)).collect();
    let (lives, rv) = (handle.lives(), page.resource_version);
    let next = page.next.map(|worker| cursor::encode(List::Workers, &lives, rv, &worker));
    Ok(Page { items, next, resource_version: page.resource_version.get() })
}

/// Whether the initial list is processed, or everything up to a version is acknowledged; waits for it.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/synced", tag = "reading", operation_id = "get_synced",
    params(InQueue, SyncedQuery),
    responses(
        (status = 200, description = "Whether it is.", body = SyncedDocument),
        Always, OfQueue,
    )
)]
pub(in crate::http) async fn synced(call: ReadCall) -> Result<Json<SyncedDocument>, Problem> {
    let name = call.name()?;
    let ReadCall { state, params, context, .. } = call;
    let wait = params.duration("wait", Duration::ZERO..=state.limits.max_wait)?.unwrap_or_default();
    let version = match params.text("resource_version") {
        Some("now") => Some(None),
        Some(text) if digits::<u64>(text).is_none() => {
            return Err(wrong(
                "resource_version",
                &format!("{} is neither a version nor \"now\"", Excerpt(text)),
            ));
        }
        _ => params.count("resource_version", 0..=RV_MAX)?.map(|rv| Some(Rv::new(rv))),
    };
    let handle = state.partitions.get(&name)?;
    let Some(version) = version else {
        let (synced, remaining) = tokio::select! {
            synced = handle.wait_synced(wait) => synced?,
            () = context.ended() => handle.wait_synced(Duration::ZERO).await?,
        };
        return Ok(Json(wire::synced(synced, remaining, None)));
    };
    let acknowledged = tokio::select! {
        acknowledged = handle.wait_acknowledged(version, wait) => acknowledged?,
        () = context.ended() => handle.wait_acknowledged(version, Duration::ZERO).await?,
    };
    let (synced, remaining) = handle.wait_synced(Duration::ZERO).await?;
    Ok(Json(wire::synced(synced, remaining, Some(acknowledged))))
}
