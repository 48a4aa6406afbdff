//! The type of handlers, and their arguments: the query, path and body of a request, each read once.

use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use deltaq_engine::key::Key;
use deltaq_types::name::Name;
use futures_util::FutureExt as _;

use super::body::Incoming;
use super::conditional::Conditions;
use super::context::RequestContext;
use super::params::{Params, Query, path_key, queue_name};
use crate::http::operation::Operation;
use crate::http::place::Place;
use crate::http::problem::Problem;
use crate::http::state::AppState;

/// The handler of an operation.
pub(in crate::http) type Handler = fn(Arc<RequestContext>, Request, Query) -> ResponseFuture;

/// The response of a handler.
pub(in crate::http) type ResponseFuture = Pin<Box<dyn Future<Output = Response> + Send>>;

/// A call on a queue with a body, which may be empty.
#[derive(Debug)]
pub(in crate::http) struct QueueCall {
    pub(in crate::http) state: AppState,
    pub(in crate::http) name: Name,
    pub(in crate::http) params: Params,
    pub(in crate::http) incoming: Incoming,
    pub(in crate::http) context: Arc<RequestContext>,
    pub(in crate::http) uri: Uri,
}

/// A call without a body.
#[derive(Debug)]
pub(in crate::http) struct ReadCall {
    pub(in crate::http) state: AppState,
    pub(in crate::http) params: Params,
    pub(in crate::http) headers: HeaderMap,
    pub(in crate::http) context: Arc<RequestContext>,
    pub(in crate::http) uri: Uri,
}

impl QueueCall {
    fn of(context: Arc<RequestContext>, request: Request, query: Query) -> Result<Self, Problem> {
        let name = queue_name(context.queue_name(), request.uri().path())?;
        let params = query?;
        let uri = request.uri().clone();
        let incoming = Incoming::of(request, &context)?;
        Ok(Self { state: context.state.clone(), name, params, incoming, context, uri })
    }
}

impl ReadCall {
    fn of(context: Arc<RequestContext>, request: Request, query: Query) -> Result<Self, Problem> {
        if context.operation().is_some_and(Operation::names_queue) {
            queue_name(context.queue_name(), request.uri().path())?;
        }
        let params = query?;
        let (parts, _body) = request.into_parts();
        Ok(Self { state: context.state.clone(), params, headers: parts.headers, context, uri: parts.uri })
    }

    /// The queue that the path names.
    pub(in crate::http) fn name(&self) -> Result<Name, Problem> {
        queue_name(self.context.queue_name(), self.uri.path())
    }

    /// What the path of a call of the Kubernetes API names.
    pub(in crate::http) fn place(&self) -> Place {
        self.context.place()
    }

    /// The key at the end of the path.
    pub(in crate::http) fn key(&self) -> Result<Key, Problem> {
        path_key(self.uri.path())
    }
}

/// The response of a handler to a call with a body.
pub(in crate::http) fn with_body<T: IntoResponse + 'static, F: Future<Output = T> + Send + 'static>(
    context: Arc<RequestContext>,
    request: Request,
    query: Query,
    handler: impl FnOnce(QueueCall) -> F,
) -> ResponseFuture {
    match QueueCall::of(context, request, query) {
        Ok(call) => boxed(handler(call)),
        Err(problem) => boxed(ready(problem)),
    }
}

/// The response of a handler to a call with a body, which also gets the conditions of the request.
pub(in crate::http) fn conditional<T: IntoResponse + 'static, F: Future<Output = T> + Send + 'static>(
    context: Arc<RequestContext>,
    request: Request,
    query: Query,
    handler: impl FnOnce(QueueCall, Conditions) -> F,
) -> ResponseFuture {
    match Conditions::of(request.headers()) {
        Ok(conditions) => with_body(context, request, query, |call| handler(call, conditions)),
        Err(problem) => boxed(ready(problem)),
    }
}

/// The response of a handler to a call with a body, which also gets the headers.
pub(in crate::http) fn with_headers<T: IntoResponse + 'static, F: Future<Output = T> + Send + 'static>(
    context: Arc<RequestContext>,
    request: Request,
    query: Query,
    handler: impl FnOnce(QueueCall, HeaderMap) -> F,
) -> ResponseFuture {
    let headers = request.headers().clone();
    with_body(context, request, query, |call| handler(call, headers))
}

/// The response of a handler to a call without a body.
pub(in crate::http) fn without_body<T: IntoResponse + 'static, F: Future<Output = T> + Send + 'static>(
    context: Arc<RequestContext>,
    request: Request,
    query: Query,
    handler: impl FnOnce(ReadCall) -> F,
) -> ResponseFuture {
    match ReadCall::of(context, request, query) {
        Ok(call) => boxed(handler(call)),
        Err(problem) => boxed(ready(problem)),
    }
}

/// Puts the future on the heap. The future is large, and copying it into the enclosing futures took 2,200 of the
/// 30,000 instructions of an add.
pub(in crate::http) fn boxed<T: IntoResponse + 'static>(
    answer: impl Future<Output = T> + Send + 'static,
) -> ResponseFuture {
    Box::pin(answer.map(IntoResponse::into_response))
}
