//! What other nodes know alone, as far as they reply.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use deltaq_service::Peer;
use deltaq_types::{NodeDetails, NodeList};
use futures_util::future::join_all;
use serde::de::DeserializeOwned;

use super::exchange;
use crate::http::node::Node;
use crate::http::request::context::RequestContext;

/// Maximum size of a reply of another node, in bytes.
const REPLY_BYTES_MAX: usize = 16 << 20;
/// How long another node may take to reply.
const REPLY_WAIT: Duration = Duration::from_secs(2);

/// What another node says of itself; `None` if it does not reply in time.
pub(in crate::http) async fn details_of(
    context: &RequestContext,
    node: &Node,
    peer: &Peer,
) -> Option<NodeDetails> {
    asked::<NodeList>(context, node, peer, "/v1/nodes").await.map(|list| list.this)
}

/// The replies of all other nodes to this call, also of those that own no partitions, and the names of those that do not reply in
/// time. For a call of another node, and on a single server, there are none.
pub(in crate::http) async fn all_others<T: DeserializeOwned>(
    context: &RequestContext,
    path: &str,
) -> (Vec<T>, Vec<String>) {
    let node = context.state.node.as_ref().filter(|_| !context.is_from_node());
    let Some(node) = node else { return (Vec::new(), Vec::new()) };
    let nodes = context.state.partitions.nodes();
    let others = nodes.nodes.iter().filter(|other| !other.is_this);
    let replies = join_all(others.map(async |other| {
        asked(context, node, &other.peer, path).await.ok_or_else(|| other.peer.name.clone())
    }));
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for reply in replies.await {
        match reply {
            Ok(reply) => found.push(reply),
            Err(name) => missing.push(name),
        }
    }
    (found, missing)
}

/// The reply of another node; `None` if it does not reply in time.
async fn asked<T: DeserializeOwned>(
    context: &RequestContext,
    node: &Node,
    peer: &Peer,
    path: &str,
) -> Option<T> {
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = path.parse().ok()?;
    let reply = async {
        let (parts, body) = node.send(peer, exchange::outgoing(context, request)).await.ok()?.into_parts();
        let text = to_bytes(Body::new(body), REPLY_BYTES_MAX).await.ok()?;
        (parts.status == StatusCode::OK).then(|| serde_json::from_slice(&text).ok()).flatten()
    };
    tokio::time::timeout(REPLY_WAIT, reply).await.ok().flatten()
}
