//! The settings of a queue: PUT replaces them, PATCH merges, GET shows the document that PUT takes.

use std::sync::Arc;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use deltaq_engine::config::Config;
use deltaq_service::{Document, Error, Handle, Registry};
use deltaq_types::name::Name;
use deltaq_types::{QueueDocument, QueueSettings, SettingsPlan};
use sha2::{Digest as _, Sha256};

use super::hooks;
use crate::access::hex;
use crate::config::access::Verb;
use crate::http::blocking::{COMPILATIONS, run_blocking};
use crate::http::openapi::params::{Conditional, Expected, InQueue, SettingsQuery};
use crate::http::openapi::responses::{
    Always, Conflict, Full, OfBody, OfQueue, PreconditionFailed, Unprocessable,
};
use crate::http::openapi::schemas::GivenSettings;
use crate::http::problem::{Code, Problem};
use crate::http::reply::Json;
use crate::http::request::body::Incoming;
use crate::http::request::call::{QueueCall, ReadCall};
use crate::http::request::conditional::Conditions;
use crate::http::request::context::RequestContext;
use crate::http::wire;
use crate::http::wire::settings::{Given, GivenDocument};
use crate::push::Refusal;

/// Number of hash bytes in an entity tag. This is enough to make collisions between two settings of a queue
/// practically impossible.
const ETAG_BYTES: usize = 16;

/// Create a queue, or replace all of its settings: one that is left out, or null, gets its default.
#[utoipa::path(
    put, path = "/v1/queues/{queue}", tag = "queues", operation_id = "put_queue",
    params(InQueue, SettingsQuery, Expected),
    request_body(content = Option<GivenSettings>),
    responses(
        (status = 200, description = "Replaced.", body = QueueDocument, headers(("etag" = String, description = "Changes with the settings."))),
        (status = 201, description = "Created.", body = QueueDocument, headers(("etag" = String, description = "Changes with the settings."))),
        Always, OfQueue, OfBody, Conflict, PreconditionFailed, Unprocessable, Full,
    )
)]
pub(in crate::http) async fn put(
    QueueCall { state, name, params, incoming, context, .. }: QueueCall,
    conditions: Conditions,
) -> Result<Response, Problem> {
    let forces = params.flag("force")?;
    let given = read(incoming).await?;
    let (registry, defaults) = (state.partitions.registry(&name)?, state.partitions.defaults());
    loop {
        let Some(handle) = registry.find(&name) else {
            conditions.check_settings(None)?;
            let fresh = given.created(defaults)?;
            check_caller(&context, &name, None, &fresh)?;
            let settings = fresh.document();
            let created = registry.create(&name, Arc::new(fresh), &context.creator());
            let (handle, created) = created.map_err(|error| context.shown(error))?;
            if created {
                let document = context.shown_document(registry.document(&handle).await?);
                return Ok(changed(StatusCode::CREATED, settings, &document));
            }
            continue;
        };
        let edit = |current: &Config| -> Result<Config, Problem> {
            conditions.check_settings(Some(&etag(&current.document())))?;
            let next = given.put_over(current, defaults)?;
            check_caller(&context, &name, Some(current), &next)?;
            Ok(next)
        };
        match configured((&context, &registry, &handle), forces, edit).await {
            // The queue was deleted after it was found, so the next round creates it.
            Err(problem) if problem.code() == Code::QueueDeleted => {}
            done => return done,
        }
    }
}

/// Change the named settings of a queue: objects are merged, null restores a default. A schema is replaced as a whole.
#[utoipa::path(
    patch, path = "/v1/queues/{queue}", tag = "queues", operation_id = "patch_queue",
    params(InQueue, SettingsQuery, Expected),
    request_body(content((GivenSettings = "application/json"), (GivenSettings = "application/merge-patch+json"))),
    responses(
        (status = 200, description = "Changed.", body = QueueDocument, headers(("etag" = String, description = "Changes with the settings."))),
        Always, OfQueue, OfBody, Conflict, PreconditionFailed, Unprocessable,
    )
)]
pub(in crate::http) async fn patch(
    QueueCall { state, name, params, incoming, context, .. }: QueueCall,
    conditions: Conditions,
) -> Result<Response, Problem> {
    let forces = params.flag("force")?;
    let given = read(incoming).await?;
    let (registry, defaults) = (state.partitions.registry(&name)?, state.partitions.defaults());
    let handle = registry.get(&name)?;
    let edit = |current: &Config| -> Result<Config, Problem> {
        conditions.check_settings(Some(&etag(&current.document())))?;
        let next = given.patched_onto(current, defaults)?;
        check_caller(&context, &name, Some(current), &next)?;
        Ok(next)
    };
    configured((&context, &registry, &handle), forces, edit).await
}

/// The settings of a queue, as PUT takes them.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/settings", tag = "queues", operation_id = "get_settings",
    params(InQueue, Conditional),
    responses(
        (status = 200, description = "The settings.", body = QueueSettings, headers(("etag" = String, description = "Changes with the settings."))),
        (status = 304, description = "If-None-Match names the entity tag of the settings.", headers(("etag" = String, description = "Changes with the settings."))),
        Always, OfQueue,
    )
)]
pub(in crate::http) async fn get(call: ReadCall) -> Result<Response, Problem> {
    let conditions = Conditions::of(&call.headers)?;
    let handle = call.state.partitions.get(&call.name()?)?;
    let settings = handle.document().await?.config.document();
    let etag = etag(&settings);
    if conditions.has_copy(&etag) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response());
    }
    Ok(([(header::ETAG, etag)], Json(settings)).into_response())
}

/// What a PUT of these settings would make of the queue. Nothing is changed. The plan does not check what depends on other queues, and it may
/// remove settings that a PUT must name.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/settings/plan", tag = "queues", operation_id = "plan_settings",
    params(InQueue),
    request_body(content = Option<GivenSettings>),
    responses(
        (status = 200, description = "The settings before and after.", body = SettingsPlan),
        Always, OfBody, Conflict, Unprocessable,
    )
)]
pub(in crate::http) async fn plan(
    QueueCall { state, name, incoming, context, .. }: QueueCall,
) -> Result<Json<SettingsPlan>, Problem> {
    let given = read(incoming).await?;
    let (registry, defaults) = (state.partitions.registry(&name)?, state.partitions.defaults());
    loop {
        let Some(handle) = registry.find(&name) else {
            let next = given.created(defaults)?;
            check_caller(&context, &name, None, &next)?;
            return Ok(Json(SettingsPlan { current: None, etag: None, planned: next.document() }));
        };
        let current = match handle.document().await {
            // The next round plans a queue that does not exist.
            Err(Error::QueueDeleted) => continue,
            document => document?.config,
        };
        let next = given.planned_over(&current, defaults)?;
        check_caller(&context, &name, Some(&current), &next)?;
        match handle.check_configure(&next).await {
            Err(Error::QueueDeleted) => continue,
            checked => checked?,
        }
        let current = current.document();
        let etag = Some(etag(&current));
        return Ok(Json(SettingsPlan { current: Some(current), etag, planned: next.document() }));
    }
}

/// The settings in a body.
async fn read(incoming: Incoming) -> Result<Given, Problem> {
    let caller = incoming.account().caller();
    let document = incoming.settings::<GivenDocument>().await?;
    if document.has_schema() {
        run_blocking(COMPILATIONS.permit(&caller).await, || document.compile()).await
    } else {
        document.compile()
    }
}

/// Checks that the caller still has its permission, because a schema may wait for its compilation. Checks what new settings need as well: a
/// caller that sets `follow` must be able to read the followed queue, and one that sets `push` to consume this queue.
fn check_caller(
    context: &RequestContext,
    name: &Name,
    current: Option<&Config>,
    next: &Config,
) -> Result<(), Problem> {
    context.authorize_again()?;
    if let Some(push) =
        next.push.as_ref().filter(|push| current.and_then(|current| current.push.as_ref()) != Some(*push))
    {
        // The endpoint gets the keys, as a worker would.
        context.authorize_on(Verb::Consume, name.as_str())?;
        context.state.push.endpoint(name.as_str(), push).map_err(not_permitted)?;
    }
    hooks::check_hook(context, name, current, next)?;
    let Some(follow) = &next.follow else { return Ok(()) };
    if current.is_some_and(|current| current.follow.as_ref() == Some(follow)) {
        return Ok(());
    }
    context.authorize_on(Verb::Read, &follow.queue)?;
    Ok(context.state.partitions.check_together(name, &follow.queue)?)
}

/// The server's settings do not permit what the queue would push.
pub(super) fn not_permitted(refusal: Refusal) -> Problem {
    let Refusal { member, why, hint } = refusal;
    Problem::invalid_setting(&format!("push.{member}"), &why).hint(hint)
}

/// Changes the settings of a queue. With `forces`, followers that the new settings do not support are detached. The
/// reply shows the settings that this call made, even if they have changed again since.
async fn configured(
    (context, registry, handle): (&RequestContext, &Registry, &Arc<Handle>),
    forces: bool,
    edit: impl Fn(&Config) -> Result<Config, Problem>,
) -> Result<Response, Problem> {
    let mut made = None;
    loop {
        let noting = |current: &Config| -> Result<Config, Refused> {
            let next = edit(current).map_err(Refused::ByCall)?;
            made = Some(next.document());
            Ok(next)
        };
        match registry.configure(handle, noting).await {
            Ok(()) => break,
            Err(Refused::ByService(Error::Followed { .. })) if forces => {
                registry.detach_followers(handle.name()).await?;
            }
            Err(refused) => return Err(refused.problem(context)),
        }
    }
    let document = context.shown_document(registry.document(handle).await?);
    Ok(changed(StatusCode::OK, made.unwrap_or_else(|| document.config.document()), &document))
}

/// Why the settings of a queue stay as they are, or the queue is not deleted.
pub(super) enum Refused {
    ByCall(Problem),
    ByService(Error),
}

impl Refused {
    pub(super) fn problem(self, context: &RequestContext) -> Problem {
        match self {
            Self::ByCall(problem) => problem,
            Self::ByService(error) => context.shown(error),
        }
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::ByService(error)
    }
}

/// The reply to a call that made these settings, with their entity tag.
fn changed(status: StatusCode, settings: QueueSettings, document: &Document) -> Response {
    let queue = QueueDocument { settings, ..wire::queue(document) };
    (status, [(header::ETAG, etag(&queue.settings))], Json(queue)).into_response()
}

/// The entity tag of settings: a hash of their text, so that it is the same on each node and after a restart.
pub(super) fn etag(settings: &QueueSettings) -> String {
    let text = serde_json::to_vec(settings).unwrap_or_default();
    let hash = hex(&Sha256::digest(text));
    format!("\"{}\"", hash.get(..2 * ETAG_BYTES).unwrap_or_default())
}
