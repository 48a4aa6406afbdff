//! Asks another node for its part of an answer about all queues.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderValue, Request, StatusCode, header};
use bytes::Bytes;
use deltaq_service::Peer;

use super::exchange;
use crate::http::node::{self, CallError, Node};
use crate::http::problem::{Code, Problem, REPEAT};
use crate::http::request::context::RequestContext;

/// Maximum size of a part from another node, in bytes.
const PART_BYTES_RECEIVED_MAX: usize = 256 << 20;

/// The answer of another node to a GET on behalf of the caller, and the partitions whose queues are in it.
pub(super) async fn ask(
    context: &Arc<RequestContext>,
    node: &Node,
    peer: &Arc<Peer>,
    path: &str,
) -> Result<(Bytes, Vec<usize>), Problem> {
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = path.parse().map_err(|_| incomplete())?;
    request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    let reply = node.send(peer, exchange::outgoing(context, request)).await;
    let reply = reply.map_err(|error| match error {
        CallError::Unreachable => exchange::unreachable(peer),
        CallError::Interrupted => exchange::interrupted(peer),
        CallError::Refused => exchange::refused(peer),
        CallError::NotTheNode => exchange::not_the_node(peer),
    })?;
    let (parts, body) = reply.into_parts();
    let numbers = parts.headers.get(&node::PARTITIONS).and_then(|value| value.to_str().ok());
    let Some(numbers) = numbers.filter(|_| parts.status == StatusCode::OK) else {
        return Err(incomplete());
    };
    let numbers = numbers.split(',').filter_map(|number| number.parse().ok()).collect();
    let text = to_bytes(Body::new(body), PART_BYTES_RECEIVED_MAX).await;
    Ok((text.map_err(|_| exchange::interrupted(peer))?, numbers))
}

/// Checks that the partitions of all parts are all partitions, each once.
pub(super) fn check_complete(mut listed: Vec<usize>, count: usize) -> Result<(), Problem> {
    listed.sort_unstable();
    if listed.into_iter().eq(0..count) { Ok(()) } else { Err(incomplete()) }
}

pub(super) fn incomplete() -> Problem {
    Problem::new(Code::NotOwner, "the owners of some queues are changing, so the list would be incomplete")
        .hint(REPEAT)
}
