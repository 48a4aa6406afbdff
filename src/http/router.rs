//! The API as connections and tests call it.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use http_body::Body as _;

use super::api::operations::{Operations, Served};
use super::middleware;
use super::operation::Target;
use super::reply::layers;
use super::request::body::LARGE_BYTES;
use super::request::call::Handler;
use super::request::context::Connection;
use super::state::AppState;

/// The API of a listener.
#[derive(Clone, Debug)]
pub struct Api {
    state: AppState,
    operations: Arc<Operations>,
}

impl Api {
    /// All operations.
    #[must_use]
    pub fn new(state: AppState) -> Self {
        let served = Served {
            metrics: state.serves_metrics,
            console: state.serves_console,
            kubernetes: state.serves_kubernetes,
        };
        Self { operations: Arc::new(Operations::all(served)), state }
    }

    /// Only `/metrics`, for a separate listener.
    #[must_use]
    pub fn of_metrics(state: &AppState) -> Self {
        Self { state: state.without_host_check(), operations: Arc::new(Operations::of_metrics()) }
    }

    /// The same API, for one connection.
    pub(super) fn for_connection(&self) -> Self {
        Self { state: self.state.for_connection(), operations: self.operations.clone() }
    }

    /// Whether every caller may do everything, because there are no tokens.
    pub(super) fn is_open(&self) -> bool {
        self.state.gate.access.is_open()
    }

    /// Answers a request that came over a connection.
    ///
    /// A reply to a pop must not be compressed. Its leases count as delivered when its last byte is written, but a
    /// compressor would take the last byte long before that. The other quick operations have short replies.
    pub(super) async fn answer(&self, request: Request, connection: &Connection) -> Response {
        let (target, handler) = self.operations.find(&request);
        if target.operation.is_some_and(|operation| operation.is_quick) {
            return self.answer_quick(request, target, handler, connection).await;
        }
        let answer = |request| {
            let (state, target, connection) = (self.state.clone(), target.clone(), connection.clone());
            self.state.on_main_runtime(middleware::answer(state, target, handler, Some(connection), request))
        };
        layers::compressed(request, answer).await
    }

    /// Answers a quick operation with a short body on the thread of the connection. Any other request runs on the
    /// main runtime, because it may take a long time and the thread has other connections.
    async fn answer_quick(
        &self,
        request: Request,
        target: Target,
        handler: Option<Handler>,
        connection: &Connection,
    ) -> Response {
        let has_short_body =
            request.body().size_hint().exact().is_some_and(|bytes| bytes < LARGE_BYTES as u64);
        let answer =
            middleware::answer(self.state.clone(), target, handler, Some(connection.clone()), request);
        if has_short_body { answer.await } else { self.state.on_main_runtime(answer).await }
    }

    /// Answers a request that did not come over a connection.
    async fn answer_directly(self, request: Request) -> Response {
        let (target, handler) = self.operations.find(&request);
        middleware::answer(self.state, target, handler, None, request).await
    }

    fn into_router(self) -> Router {
        Router::new().fallback(move |request| self.clone().answer_directly(request))
    }
}

/// The API as an axum service, which needs no connection.
pub fn router(state: AppState) -> Router {
    Api::new(state).into_router()
}

#[cfg(test)]
mod tests;
