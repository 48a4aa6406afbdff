//! Reads over the queues of all nodes.
//!
//! Each partition has one owner, and each owner reads its own queues. The node that the client has called asks the others the same
//! question and merges the replies. If a partition is missing, the read is refused, because a client must not mistake a part for the whole.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderValue, Request, StatusCode, Uri, header};
use deltaq_service::Peer;
use deltaq_types::{NodeDetails, NodeList, UnavailableQueue};
use futures_util::future::try_join_all;
use serde::de::DeserializeOwned;

use super::exchange;
use crate::http::node::{self, CallError, Node};
use crate::http::problem::{Code, Problem, REPEAT};
use crate::http::request::context::RequestContext;

/// Maximum size of a reply of another node, in bytes.
const REPLY_BYTES_MAX: usize = 256 << 20;
/// Maximum size of what another node says of itself, in bytes.
const DETAILS_BYTES_MAX: usize = 16 << 20;
/// How long another node may take to say something of itself.
const DETAILS_WAIT: Duration = Duration::from_secs(2);

/// What this node has read of its queues, and the replies of the other nodes to the same request with this path.
pub(in crate::http) async fn of_all_nodes<O, T: DeserializeOwned>(
    context: &Arc<RequestContext>,
    path: &str,
    own: impl Future<Output = O>,
) -> Result<(O, Vec<T>), Problem> {
    let node = context.state.node.as_ref().filter(|_| !context.is_from_node());
    let Some(node) = node else { return Ok((own.await, Vec::new())) };
    let partitions = &context.state.partitions;
    let mut covered = partitions.owned();
    let own = own.await;
    if covered != partitions.owned() {
        return Err(incomplete());
    }
    let asked = partitions.peers().into_iter().map(|peer| ask(context, node, peer, path));
    let mut replies = Vec::new();
    for (reply, numbers) in try_join_all(asked).await? {
        replies.push(reply);
        covered.extend(numbers);
    }
    covered.sort_unstable();
    // Each partition must be covered exactly once.
    if covered.into_iter().eq(0..partitions.count()) { Ok((own, replies)) } else { Err(incomplete()) }
}

/// The reply of another node, and the partitions that it has read.
async fn ask<T: DeserializeOwned>(
    context: &RequestContext,
    node: &Node,
    peer: Arc<Peer>,
    path: &str,
) -> Result<(T, Vec<usize>), Problem> {
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = path.parse().map_err(|_| incomplete())?;
    request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    let reply = node.send(&peer, exchange::outgoing(context, request)).await;
    let reply = reply.map_err(|error| match error {
        CallError::Unreachable => exchange::unreachable(&peer),
        CallError::Interrupted => exchange::interrupted(&peer),
        CallError::Refused => exchange::refused(&peer),
        CallError::NotTheNode => exchange::not_the_node(&peer),
    })?;
    let (parts, body) = reply.into_parts();
    let numbers = parts.headers.get(&node::PARTITIONS).and_then(|value| value.to_str().ok());
    let Some(numbers) = numbers.filter(|_| parts.status == StatusCode::OK) else {
        return Err(incomplete());
    };
    let numbers = numbers.split(',').filter_map(|number| number.parse().ok()).collect();
    let text = to_bytes(Body::new(body), REPLY_BYTES_MAX).await;
    let text = text.map_err(|_| exchange::interrupted(&peer))?;
    Ok((serde_json::from_slice(&text).map_err(|_| incomplete())?, numbers))
}

/// What another node says of itself; `None` if it does not reply in time.
pub(in crate::http) async fn details_of(
    context: &RequestContext,
    node: &Node,
    peer: &Peer,
) -> Option<NodeDetails> {
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = Uri::from_static("/v1/nodes");
    let reply = async {
        let (parts, body) = node.send(peer, exchange::outgoing(context, request)).await.ok()?.into_parts();
        let text = to_bytes(Body::new(body), DETAILS_BYTES_MAX).await.ok()?;
        let list: NodeList = serde_json::from_slice(&text).ok()?;
        (parts.status == StatusCode::OK).then_some(list.this)
    };
    tokio::time::timeout(DETAILS_WAIT, reply).await.ok().flatten()
}

/// A queue that can't be read.
pub(in crate::http) fn unavailable(name: String, error: deltaq_service::Error) -> UnavailableQueue {
    let problem = Problem::from(error);
    UnavailableQueue {
        name,
        code: problem.code().name().to_owned(),
        detail: problem.detail().to_owned(),
        hint: problem.advice().map(str::to_owned),
    }
}

fn incomplete() -> Problem {
    Problem::new(Code::NotOwner, "the owners of some queues are changing, so the list would be incomplete")
        .hint(REPEAT)
}
