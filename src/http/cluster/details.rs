//! What another node says of itself.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, Uri};
use deltaq_service::Peer;
use deltaq_types::{NodeDetails, NodeList};

use super::exchange;
use crate::http::node::Node;
use crate::http::request::context::RequestContext;

/// Maximum size of what another node says of itself, in bytes.
const DETAILS_BYTES_MAX: usize = 16 << 20;
/// How long another node may take to say something of itself.
const DETAILS_WAIT: Duration = Duration::from_secs(2);

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
