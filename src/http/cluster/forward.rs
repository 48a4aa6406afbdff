//! Calls on a server that is one of several nodes. Each call on a queue is answered by the owner of the queue.
//!
//! Any node accepts any call. The first node authorizes the client and counts the call in its limits; then it answers
//! the call itself or forwards it, at most once. An owner answers only while its ownership is certain. When the certainty ends, a call
//! that still waits is answered at once, because the database may never answer.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::HeaderValue;
use axum::response::{IntoResponse, Response};
use deltaq_service::{Owner, Registry};
use http_body::Body as _;

use super::exchange::forwarded;
use super::limited_body::LimitedBody;
use crate::http::node::{self, Node};
use crate::http::operation::{BodyKind, Operation};
use crate::http::problem::{Code, Problem, REPEAT, REPEAT_IF_SAFE};
use crate::http::request::call::{Handler, ResponseFuture, boxed};
use crate::http::request::context::RequestContext;
use crate::http::request::params::Query;

/// How long a call waits while its queue has no owner.
const OWNER_WAIT: Duration = Duration::from_secs(2);

/// The reply of the owner of the request's queue.
pub(in crate::http) fn answer(
    node: &Arc<Node>,
    context: Arc<RequestContext>,
    handler: Handler,
    request: Request,
    query: Query,
) -> ResponseFuture {
    if !context.operation().is_some_and(Operation::needs_queues) {
        return handler(context, request, query);
    }
    let Some(queue) = context.queue_name().cloned() else {
        // This is the list of queues, or a call with an invalid name.
        return boxed(own(context.clone(), None, handler(context, request, query)));
    };
    let node = node.clone();
    boxed(async move {
        let mut owner = context.state.partitions.owner(&queue);
        if matches!(*owner, Owner::Nobody) {
            owner = context.state.partitions.wait_for_owner(&queue, OWNER_WAIT).await;
            if let Err(problem) = context.authorize_again() {
                return problem.into_response();
            }
        }
        match &*owner {
            Owner::This(registry) if !registry.is_ready() => {
                Problem::recovering(registry.progress()).into_response()
            }
            Owner::This(registry) => {
                own(context.clone(), Some(registry), handler(context, request, query)).await
            }
            Owner::Other(peer) if !context.is_from_node() => {
                // The owner does not see the framing of this request.
                let reads_body =
                    context.operation().is_some_and(|operation| operation.body != BodyKind::Ignored);
                if let Some(problem) = context.body_head.as_ref().err().filter(|_| reads_body) {
                    return problem.clone().into_response();
                }
                let state = context.state.clone();
                state.on_main_runtime(forwarded(node, context, peer.clone(), queue, request)).await
            }
            Owner::Other(_) => {
                not_owner("this node does not own the queue; nothing of the request was applied", REPEAT)
            }
            Owner::Nobody => {
                context.state.request_metrics.forwarded("no_owner");
                not_owner("no node owns the queue at present; nothing of the request was applied", REPEAT)
            }
        }
    })
}

fn not_owner(detail: &'static str, hint: &'static str) -> Response {
    Problem::new(Code::NotOwner, detail).hint(hint).into_response()
}

/// The response of this node as the owner, if the ownership is still certain when the response is complete.
async fn own(
    context: Arc<RequestContext>,
    registry: Option<&Arc<Registry>>,
    response: ResponseFuture,
) -> Response {
    let state = &context.state;
    let partitions = if context.is_list_for_node() { Some(state.partitions.owned()) } else { None };
    let unsure = || {
        let detail = "this node can't be sure that it still owns the queue; whether the request took effect is unknown";
        not_owner(detail, REPEAT_IF_SAFE)
    };
    let response = tokio::select! {
        biased;
        response = response => response,
        () = state.partitions.until_unsure(&state.clock) => return unsure(),
    };
    // The commits of a partition that was given up have no outcome.
    let is_lost = response.status().is_server_error() && registry.is_some_and(|registry| registry.has_left());
    if is_lost || !state.partitions.is_sure(&state.clock) {
        return unsure();
    }
    let mut response = if response.body().size_hint().exact().is_some() {
        response
    } else {
        let [state, own] = [state, state].map(Clone::clone);
        let unsure = async move { state.partitions.until_unsure(&state.clock).await };
        let is_sure = move || own.partitions.is_sure(&own.clock);
        let why = "this node can't be sure that it still owns the queue";
        response.map(|body| Body::new(LimitedBody::new(body, unsure, is_sure, why)))
    };
    if let Some(partitions) = partitions {
        if partitions != state.partitions.owned() {
            return not_owner("the partitions of this node changed while it listed its queues", REPEAT);
        }
        let numbers: Vec<_> = partitions.iter().map(ToString::to_string).collect();
        if let Ok(value) = HeaderValue::from_str(&numbers.join(",")) {
            response.headers_mut().insert(&node::PARTITIONS, value);
        }
    }
    response
}
