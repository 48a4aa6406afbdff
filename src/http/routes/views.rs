//! Lists and objects of the views of a queue: `latest` and `known`.

use std::sync::Arc;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use deltaq_engine::limits::RV_MAX;
use deltaq_engine::view::View;
use deltaq_service::{Handle, Lookup, PageLimit, ViewFilter};
use deltaq_types::{ObjectDocument, Page};

use super::indexes::lookup;
use super::items::no_key;
use super::pages::{self, page_limit, wants_lines};
use super::watch::{key_filter, view};
use crate::http::openapi::params::{
    Conditional, InQueue, KnownQuery, ObjectOfQuery, ObjectQuery, OfKey, ViewQuery,
};
use crate::http::openapi::responses::{Always, NotAcceptable, OfQueue, Unprocessable};
use crate::http::problem::Problem;
use crate::http::reply::Json;
use crate::http::request::call::ReadCall;
use crate::http::request::conditional::{Conditions, object_tag};
use crate::http::request::cursor::{self, List};
use crate::http::request::params::Params;
use crate::http::wire::{self, Fields, Selected};

/// List the newest accepted objects in key order; with `key`, at most that key.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/latest", tag = "reading", operation_id = "list_latest",
    params(InQueue, ViewQuery),
    responses(
        (status = 200, description = "A page.", content((Page<ObjectDocument> = "application/json"), (Vec<ObjectDocument> = "application/x-ndjson"))),
        Always, OfQueue, NotAcceptable, Unprocessable,
    )
)]
pub(in crate::http) async fn latest_list(call: ReadCall) -> Result<Response, Problem> {
    list(call, View::Latest).await
}

/// List the known objects in key order; with `key`, at most that key; with `index` and `value`, those that have the value in the index.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/known", tag = "reading", operation_id = "list_known",
    params(InQueue, KnownQuery),
    responses(
        (status = 200, description = "A page.", content((Page<ObjectDocument> = "application/json"), (Vec<ObjectDocument> = "application/x-ndjson"))),
        Always, OfQueue, NotAcceptable, Unprocessable,
    )
)]
pub(in crate::http) async fn known_list(call: ReadCall) -> Result<Response, Problem> {
    list(call, View::Known).await
}

/// The newest accepted object of a key.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/latest/{key}", tag = "reading", operation_id = "get_latest",
    params(InQueue, OfKey, ObjectQuery, Conditional),
    responses(
        (status = 200, description = "The object.", body = ObjectDocument, headers(("etag" = String, description = "Changes with the object."))),
        (status = 304, description = "If-None-Match names the entity tag of the object.", headers(("etag" = String, description = "Changes with the object."))),
        Always, OfQueue, Unprocessable,
    )
)]
pub(in crate::http) async fn latest(call: ReadCall) -> Result<Response, Problem> {
    one(&call, View::Latest, &call.key()?).await
}

/// One known object.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/known/{key}", tag = "reading", operation_id = "get_known",
    params(InQueue, OfKey, ObjectQuery, Conditional),
    responses(
        (status = 200, description = "The object.", body = ObjectDocument, headers(("etag" = String, description = "Changes with the object."))),
        (status = 304, description = "If-None-Match names the entity tag of the object.", headers(("etag" = String, description = "Changes with the object."))),
        Always, OfQueue, Unprocessable,
    )
)]
pub(in crate::http) async fn known(call: ReadCall) -> Result<Response, Problem> {
    one(&call, View::Known, &call.key()?).await
}

/// One object of a view, for keys that clients cannot put into a path.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/object", tag = "reading", operation_id = "get_object_of",
    params(InQueue, ObjectOfQuery, Conditional),
    responses(
        (status = 200, description = "The object.", body = ObjectDocument, headers(("etag" = String, description = "Changes with the object."))),
        (status = 304, description = "If-None-Match names the entity tag of the object.", headers(("etag" = String, description = "Changes with the object."))),
        Always, OfQueue, Unprocessable,
    )
)]
pub(in crate::http) async fn object(call: ReadCall) -> Result<Response, Problem> {
    one(&call, view(&call.params)?, &call.params.required_key()?).await
}

async fn list(call: ReadCall, view: View) -> Result<Response, Problem> {
    let handle = call.state.partitions.get(&call.name()?)?;
    let ReadCall { params, headers, context, .. } = call;
    let streams = wants_lines(&headers)?;
    let fields = Fields::read::<ObjectDocument>(params.text("fields"))?;
    let keys = key_filter(&params)?;
    let filter = Arc::new(ViewFilter { keys, source: params.name("source")?.map(str::to_owned) });
    let lookup = lookup(&params)?;
    let wanted = Wanted { view, lookup, filter };
    let mut limit = page_limit(&params, streams)?;
    if !fields.has_objects::<ObjectDocument>() {
        limit.bytes = usize::MAX;
    }
    if let Some(key) = params.key_alone()? {
        let (found, resource_version) = handle.view_object(view, &key).await?;
        let found = found.filter(|found| wanted.filter.includes(found));
        let items = found.iter().map(|found| fields.of(wire::object(found))).collect();
        let page = Page { items, next: None, resource_version: resource_version.get() };
        return pages::reply_alone(&context, streams, page);
    }
    let after = params.text("continue").map(str::to_owned);
    let page = move |after| page(handle.clone(), wanted.clone(), fields, after, limit);
    pages::reply(context, streams, after, page).await
}

/// The objects of a list.
#[derive(Clone)]
struct Wanted {
    view: View,
    lookup: Option<Arc<Lookup>>,
    filter: Arc<ViewFilter>,
}

async fn page(
    handle: Arc<Handle>,
    wanted: Wanted,
    fields: Fields,
    after: Option<String>,
    limit: PageLimit,
) -> Result<Page<Selected<ObjectDocument>>, Problem> {
    let Wanted { view, lookup, filter } = wanted;
    let list = match &lookup {
        Some(lookup) => List::WithValue { index: &lookup.index, value: &lookup.value },
        None => List::Objects(view),
    };
    let after = after.map(|after| cursor::decode(list, &handle.lives(), &after)).transpose()?;
    let page = match &lookup {
        Some(lookup) => handle.objects_with_value(lookup, &filter, after, limit).await?,
        None => handle.view_objects(view, &filter, after, limit).await?,
    };
    let items = page.entries.iter().map(|found| fields.of(wire::object(found))).collect();
    let encode = |key: Key| cursor::encode(list, &handle.lives(), page.resource_version, key.as_str());
    let next = page.next.map(encode);
    Ok(Page { items, next, resource_version: page.resource_version.get() })
}

async fn one(call: &ReadCall, view: View, key: &Key) -> Result<Response, Problem> {
    let conditions = Conditions::of(&call.headers)?;
    let handle = call.state.partitions.get(&call.name()?)?;
    check_version(&handle, &call.params)?;
    let (found, _) = handle.view_object(view, key).await?;
    let Some(found) = found else {
        let why = match view {
            View::Latest => "there is no object",
            View::Known => "there is no known object",
        };
        return Err(no_key(key, why));
    };
    let etag = object_tag(&handle.lives(), found.rv);
    if conditions.has_copy(&etag) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response());
    }
    Ok(([(header::ETAG, etag)], Json(wire::object(&found))).into_response())
}

/// Checks that the queue has the version that the request asks for. A read has all changes that were durable before the read, so it
/// has those up to the version.
fn check_version(handle: &Handle, params: &Params) -> Result<(), Problem> {
    match params.count("min_resource_version", 0..=RV_MAX)? {
        Some(version) => Ok(handle.check_version(Rv::new(version))?),
        None => Ok(()),
    }
}
