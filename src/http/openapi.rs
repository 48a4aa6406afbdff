//! The OpenAPI document, generated from the handlers and the documents that they take and give.

use std::sync::OnceLock;

use utoipa::OpenApi;

use super::routes::{consume, look, operate, produce, queues};
use super::wire;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "deltaq",
        description = "A keyed, event-sourced queue service: DeltaFIFO, known objects and a rate-limited workqueue over plain HTTP.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    paths(
        queues::put, queues::list, queues::get, queues::delete, queues::pause, queues::resume,
        queues::close, queues::reopen, queues::purge,
        produce::add, produce::update, produce::delete, produce::replace, produce::deltas,
        produce::resync, produce::seed, produce::forget,
        consume::pop, consume::settle, consume::ack, consume::nack, consume::release, consume::reject,
        consume::extend, consume::redrive, consume::discard,
        look::items, look::item, look::known_list, look::known, look::synced,
        operate::livez, operate::readyz, operate::info, operate::openapi_json, operate::problem,
    ),
    components(schemas(wire::ProblemDocument)),
    tags(
        (name = "queues", description = "Queues themselves."),
        (name = "producing", description = "What producers send."),
        (name = "consuming", description = "What workers do."),
        (name = "looking", description = "What can be seen of a queue."),
        (name = "operating", description = "The server itself."),
    )
)]
struct Api;

/// The document.
#[must_use]
pub fn document() -> utoipa::openapi::OpenApi {
    Api::openapi()
}

/// The document's text.
pub fn text() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| document().to_pretty_json().unwrap_or_default())
}
