//! Reads a page of a list from each node.
//!
//! Each partition has one owner, and each owner lists what it has. If a partition is missing, the list is refused, because a
//! client must not mistake a part for the whole.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderValue, Request, StatusCode, header};
use deltaq_service::{self, Peer};
use deltaq_types::UnavailableQueue;
use futures_util::future::try_join_all;
use serde::de::DeserializeOwned;

use super::exchange;
use crate::http::node::{self, CallError, Node};
use crate::http::problem::{Code, Problem, REPEAT};
use crate::http::request::context::RequestContext;

/// Maximum size of a page from another node, in bytes.
const PAGE_BYTES_RECEIVED_MAX: usize = 256 << 20;

/// The page of this server, and the pages of the other nodes, which get the same call. For a call of another node, and on a
/// single server, there are no other pages.
pub(in crate::http) async fn gather<O, P: DeserializeOwned, F: Future<Output = O>>(
    context: &Arc<RequestContext>,
    path: &str,
    own: impl FnOnce() -> F,
) -> Result<(O, Vec<P>), Problem> {
    let node = context.state.node.as_ref().filter(|_| !context.is_from_node());
    let Some(node) = node else { return Ok((own().await, Vec::new())) };
    let partitions = &context.state.partitions;
    let owned = partitions.owned();
    let own = own().await;
    if owned != partitions.owned() {
        return Err(incomplete());
    }
    let asked = partitions.peers().into_iter().map(|peer| of_peer(context, node, peer, path));
    let (mut pages, mut listed) = (Vec::new(), owned);
    for (page, numbers) in try_join_all(asked).await? {
        pages.push(page);
        listed.extend(numbers);
    }
    listed.sort_unstable();
    // Each partition must be listed exactly once.
    if !listed.into_iter().eq(0..partitions.count()) {
        return Err(incomplete());
    }
    Ok((own, pages))
}

/// The page of another node, and the partitions that it has listed.
async fn of_peer<P: DeserializeOwned>(
    context: &RequestContext,
    node: &Node,
    peer: Arc<Peer>,
    path: &str,
) -> Result<(P, Vec<usize>), Problem> {
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
    let text = to_bytes(Body::new(body), PAGE_BYTES_RECEIVED_MAX).await;
    let text = text.map_err(|_| exchange::interrupted(&peer))?;
    let page = serde_json::from_slice(&text).map_err(|_| incomplete())?;
    Ok((page, numbers))
}

/// A queue that can't be read.
pub(super) fn unavailable(name: String, error: deltaq_service::Error) -> UnavailableQueue {
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
