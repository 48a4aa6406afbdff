//! Every route, and the chain around them.

use axum::Router;
use axum::extract::Request;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{get, post};
use http_body::Body as _;
use tower::ServiceExt as _;

use super::body::LARGE_BYTES;
use super::hot::Hot;
use super::routes::{consume, history, look, operate, produce, queues};
use super::state::AppState;
use super::visit::{Connection, Target};
use super::{chain, telemetry};

/// The API as connections call it.
#[derive(Clone, Debug)]
pub struct Api {
    state: AppState,
    router: Router,
    has_queues: bool,
}

impl Api {
    /// All of it.
    #[must_use]
    pub fn new(state: AppState) -> Self {
        Self { router: router(state.clone()), state, has_queues: true }
    }

    /// Only `/metrics`, for a listener of its own.
    #[must_use]
    pub fn of_metrics(state: AppState) -> Self {
        let router = Router::new().route("/metrics", get(operate::metrics));
        Self { router: with_chain(router, state.clone()), state, has_queues: false }
    }

    /// The same for a connection.
    pub(super) fn for_connection(&self) -> Self {
        Self { state: self.state.for_connection(), ..self.clone() }
    }

    /// Answers a request: one of the few that come by the thousands here, if it is short, and any other in the runtime of
    /// the process, as it may take long, and this thread has other connections.
    pub(super) async fn answer(&self, request: Request, connection: &Connection) -> Response {
        let (state, connection) = (self.state.clone(), connection.clone());
        let Some(hot) = Hot::of(&request).filter(|_| self.has_queues) else {
            return self.state.on_main_runtime(route(self.router.clone(), request, connection)).await;
        };
        let is_short = request.body().size_hint().exact().is_some_and(|bytes| bytes < LARGE_BYTES as u64);
        let answer = call(state, hot, request, connection);
        if is_short { answer.await } else { self.state.on_main_runtime(answer).await }
    }
}

async fn call(
    state: AppState,
    (hot, target): (Hot, Target),
    request: Request,
    connection: Connection,
) -> Response {
    let next = |visit, request| hot.answer(visit, request);
    chain::answer(state, target, Some(connection), request, next).await
}

async fn route(router: Router, mut request: Request, connection: Connection) -> Response {
    request.extensions_mut().insert(connection);
    router.oneshot(request).await.unwrap_or_else(|never| match never {})
}

/// The routes of the API.
pub fn router(state: AppState) -> Router {
    let mut router = Router::new()
        .route("/v1/queues", get(queues::list))
        .route("/v1/queues/{queue}", get(queues::get).put(queues::put).delete(queues::delete))
        .route("/v1/queues/{queue}/pause", post(queues::pause))
        .route("/v1/queues/{queue}/resume", post(queues::resume))
        .route("/v1/queues/{queue}/close", post(queues::close))
        .route("/v1/queues/{queue}/reopen", post(queues::reopen))
        .route("/v1/queues/{queue}/purge", post(queues::purge))
        .route("/v1/queues/{queue}/add", post(produce::add))
        .route("/v1/queues/{queue}/update", post(produce::update))
        .route("/v1/queues/{queue}/delete", post(produce::delete))
        .route("/v1/queues/{queue}/replace", post(produce::replace))
        .route("/v1/queues/{queue}/deltas", post(produce::deltas))
        .route("/v1/queues/{queue}/resync", post(produce::resync))
        .route("/v1/queues/{queue}/seed", post(produce::seed))
        .route("/v1/queues/{queue}/forget", post(produce::forget))
        .route("/v1/queues/{queue}/pop", post(consume::pop))
        .route("/v1/queues/{queue}/settle", post(consume::settle))
        .route("/v1/queues/{queue}/ack", post(consume::ack))
        .route("/v1/queues/{queue}/nack", post(consume::nack))
        .route("/v1/queues/{queue}/release", post(consume::release))
        .route("/v1/queues/{queue}/reject", post(consume::reject))
        .route("/v1/queues/{queue}/extend", post(consume::extend))
        .route("/v1/queues/{queue}/parked/redrive", post(consume::redrive))
        .route("/v1/queues/{queue}/parked/discard", post(consume::discard))
        .route("/v1/queues/{queue}/items", get(look::items))
        .route("/v1/queues/{queue}/items/{*key}", get(look::item))
        .route("/v1/queues/{queue}/known", get(look::known_list))
        .route("/v1/queues/{queue}/known/{*key}", get(look::known))
        .route("/v1/queues/{queue}/history", get(history::history))
        .route("/v1/queues/{queue}/history/{*key}", get(history::of_key))
        .route("/v1/queues/{queue}/synced", get(look::synced))
        .route("/v1/info", get(operate::info))
        .route("/livez", get(operate::livez))
        .route("/readyz", get(operate::readyz))
        .route("/openapi.json", get(operate::openapi_json))
        .route("/problems/{name}", get(operate::problem));
    if state.serves_metrics {
        router = router.route("/metrics", get(operate::metrics));
    }
    with_chain(router, state)
}

fn with_chain(router: Router<AppState>, state: AppState) -> Router {
    router
        .fallback(telemetry::not_found)
        .layer(from_fn_with_state(state.clone(), chain::layer))
        .with_state(state)
}

#[cfg(test)]
mod tests;
