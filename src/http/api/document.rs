//! The OpenAPI document, generated from the handlers and the types of `deltaq-types`.

use std::sync::LazyLock;

use axum::response::Response;
use bytes::Bytes;
use deltaq_types::{
    DeltaCall, EventDocument, IndexDocument, IndexValueDocument, ItemDocument, ObjectDocument, Page,
    PageOfQueues, ProblemDocument, QueueSettings, QueueSourceDocument, RawObject, ReflectorDocument,
    SeedCall, SourceDocument, WatchRow, WorkerDocument,
};
use serde_json::{Map, Value, json};
use utoipa::OpenApi;

use crate::http::openapi::responses::{self, Always};
use crate::http::openapi::schemas;
use crate::http::reply;
use crate::http::request::call::ReadCall;
use crate::http::routes::{
    activity, consume, everywhere, groups, history, hooks, indexes, items, overview, parked, produce, push,
    queues, series, server, settings, sources, views, watch,
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "deltaq",
        description = "A keyed, event-sourced queue service: DeltaFIFO, known objects and a rate-limited workqueue over plain HTTP.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    paths(
        settings::put, settings::patch, settings::get, settings::plan, queues::list, queues::get, queues::status, series::of_queue, series::of_all, queues::delete, queues::pause, queues::resume,
        queues::close, queues::reopen, queues::purge, push::test, hooks::receive, hooks::list, hooks::get, hooks::redeliver, hooks::discard,
        produce::add, produce::update, produce::delete, produce::replace, produce::deltas,
        produce::resync, produce::seed, produce::forget,
        consume::pop, consume::settle, consume::ack, consume::done, consume::nack, consume::release, consume::reject,
        consume::extend, parked::errors, parked::promote, parked::redrive, parked::discard,
        items::items, items::item_of, items::item, items::explain_of, items::explain, views::object, views::latest_list, views::latest, views::known_list, views::known, indexes::list, indexes::values, sources::sources, sources::report, sources::change, sources::change_several, sources::seen, overview::sources, sources::reflector, overview::reflectors, sources::workers, sources::synced, groups::groups, everywhere::workers, everywhere::find, activity::activity,
        watch::watch, history::history, history::of_key,
        server::livez, server::readyz, server::info, server::nodes, openapi_json, server::problem,
    ),
    components(schemas(
        ProblemDocument, DeltaCall<'static>, SeedCall<'static>, Page<ItemDocument>, Page<ObjectDocument>,
        Page<SourceDocument>, PageOfQueues<QueueSourceDocument>, PageOfQueues<ReflectorDocument>, Page<WorkerDocument>, Page<IndexDocument>, Page<IndexValueDocument>, Page<EventDocument>, Page<WatchRow>, QueueSettings, schemas::Wait, schemas::IndexName,
    )),
    tags(
        (name = "queues", description = "Queues and their settings."),
        (name = "producing", description = "Calls of producers."),
        (name = "consuming", description = "Calls of workers."),
        (name = "reading", description = "Items, known objects and the history of a queue."),
        (name = "server", description = "Health, metrics and the API description."),
    )
)]
struct Api;

/// The text of the document on a server without tokens. Computing the text takes a few milliseconds.
static OPEN: LazyLock<Bytes> = LazyLock::new(|| text(false));
/// The text of the document on a server with tokens.
static GUARDED: LazyLock<Bytes> = LazyLock::new(|| text(true));

fn text(has_tokens: bool) -> Bytes {
    format!("{}\n", document(has_tokens)).into()
}

/// This document.
#[utoipa::path(
    get, path = "/openapi.json", tag = "server", operation_id = "get_openapi",
    responses(
        (status = 200, description = "The API.", body = RawObject, content_type = "application/json"),
        Always,
    )
)]
pub(in crate::http) async fn openapi_json(ReadCall { state, .. }: ReadCall) -> Response {
    let text = if state.gate.access.is_open() { &OPEN } else { &GUARDED };
    reply::json(Bytes::clone(text).into())
}

/// The named schemas of the document.
pub(crate) fn schemas() -> Map<String, Value> {
    let mut document = document(false);
    let schemas = document.pointer_mut("/components/schemas").and_then(Value::as_object_mut);
    schemas.map(std::mem::take).unwrap_or_default()
}

/// The document of a server with or without tokens.
pub(in crate::http) fn document(has_tokens: bool) -> Value {
    let mut document = serde_json::to_value(Api::openapi()).unwrap_or_default();
    if let Some(components) = document.get_mut("components").and_then(Value::as_object_mut) {
        components.insert("headers".to_owned(), responses::headers());
        components.insert("securitySchemes".to_owned(), security_schemes());
        components.insert("responses".to_owned(), responses::shared().into());
        if let Some(schemas) = components.get_mut("schemas").and_then(Value::as_object_mut) {
            schemas::insert_all(schemas);
            schemas.sort_keys();
        }
    }
    if let Some(document) = document.as_object_mut() {
        let token = json!({ "token": [] });
        let security = if has_tokens { json!([token]) } else { json!([token, {}]) };
        document.insert("security".to_owned(), security);
    }
    let paths = document.get_mut("paths").and_then(Value::as_object_mut).into_iter().flatten();
    let operations = paths.filter_map(|(_, path)| path.as_object_mut()).flatten();
    for (_, operation) in operations {
        if let Some(body) = operation.get_mut("requestBody") {
            make_optional(body);
        }
        add_examples(operation);
        let responses = operation.get_mut("responses").and_then(Value::as_object_mut);
        if let Some(responses) = responses {
            responses.insert("default".to_owned(), json!({ "$ref": "#/components/responses/Problem" }));
            responses.values_mut().for_each(add_request_id);
        }
    }
    document
}

/// On a server with tokens, every call except the health checks needs one.
fn security_schemes() -> Value {
    json!({
        "token": {
            "type": "http",
            "scheme": "bearer",
            "description": "A token with a grant for the call. A server without tokens accepts calls without one.",
        },
    })
}

/// Examples by operation: `body` of the request, `reply` of the response 200.
static EXAMPLES: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../openapi/examples.json")).unwrap_or_default());

/// Adds the examples of an operation.
fn add_examples(operation: &mut Value) {
    let id = operation.get("operationId").and_then(Value::as_str).unwrap_or_default();
    let Some(examples) = EXAMPLES.get(id) else { return };
    for (name, place) in [("body", "/requestBody"), ("reply", "/responses/200")] {
        let content = operation.pointer_mut(&format!("{place}/content/application~1json"));
        if let (Some(example), Some(content)) = (examples.get(name), content.and_then(Value::as_object_mut)) {
            content.insert("example".to_owned(), example.clone());
        }
    }
}

/// utoipa describes an optional body as nullable. However, no body may be null; some may be absent.
fn make_optional(body: &mut Value) {
    let contents = body.get_mut("content").and_then(Value::as_object_mut).into_iter().flatten();
    let mut required = true;
    for (_, content) in contents {
        let is_null = content.pointer("/schema/oneOf/1/type").is_some_and(|kind| kind == "null");
        if let Some(schema) = content.get_mut("schema").filter(|_| is_null)
            && let Some(given) = schema.pointer_mut("/oneOf/0").map(Value::take)
        {
            required = false;
            *schema = given;
        }
    }
    if let Some(body) = body.as_object_mut() {
        body.insert("required".to_owned(), required.into());
    }
}

/// Adds the header with the id of the request. Shared responses already have it.
fn add_request_id(response: &mut Value) {
    let Some(response) = response.as_object_mut().filter(|response| !response.contains_key("$ref")) else {
        return;
    };
    let headers = response.entry("headers").or_insert_with(|| Map::new().into());
    if let Some(headers) = headers.as_object_mut() {
        headers.insert("x-request-id".to_owned(), json!({ "$ref": "#/components/headers/RequestId" }));
    }
}
