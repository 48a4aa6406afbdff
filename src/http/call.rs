//! A call on a queue, as its handler gets it.

use std::sync::Arc;

use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use axum::{Extension, RequestExt as _};

use super::body::Incoming;
use super::openapi::params::Names;
use super::params::{Params, queue_name};
use super::problem::Problem;
use super::state::AppState;
use super::visit::Visit;
use crate::name::Name;

/// All that a call on a queue says that takes a body, though it be empty. Its parts are taken together, so that the calls
/// that come most often need no router to be put together (`http/hot.rs`).
#[derive(Debug)]
pub(super) struct QueueCall {
    pub(super) state: AppState,
    pub(super) name: Name,
    pub(super) params: Params,
    pub(super) incoming: Incoming,
    pub(super) visit: Arc<Visit>,
}

impl QueueCall {
    /// What a request says.
    pub(super) fn of(visit: Arc<Visit>, request: Request) -> Result<Self, Problem> {
        let name = queue_name(visit.queue_name(), request.uri().path())?;
        let params = Params::of(request.uri().query())?;
        let incoming = Incoming::of(request, &visit)?;
        Ok(Self { state: visit.state.clone(), name, params, incoming, visit })
    }

    /// Refuses parameters that the call does not know, and those that stand twice.
    pub(super) fn only<Known: Names>(self) -> Result<Self, Problem> {
        Ok(Self { params: self.params.only::<Known>()?, ..self })
    }
}

impl FromRequest<AppState> for QueueCall {
    type Rejection = Response;

    async fn from_request(mut request: Request, _: &AppState) -> Result<Self, Response> {
        let visit = request.extract_parts().await;
        let Extension(visit) = visit.map_err(IntoResponse::into_response)?;
        Self::of(visit, request).map_err(IntoResponse::into_response)
    }
}
