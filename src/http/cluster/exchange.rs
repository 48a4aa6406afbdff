//! One call to another node: forwarding the request and returning the reply. Bodies are streamed both ways. The
//! exception is the reply to a pop, because this node must know its leases until its client has received them.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Version, header};
use axum::response::{IntoResponse, Response};
use deltaq_service::{Partitions, Peer};
use deltaq_types::name::Name;
use hyper::body::Incoming;
use tokio::sync::oneshot;

use super::limited_body::LimitedBody;
use crate::http::gate::in_flight::CountedReply;
use crate::http::node::forwarded_leases::{ForwardedLeases, ReturnPath};
use crate::http::node::{self, CallError, Node};
use crate::http::operation::Class;
use crate::http::problem::{Code, PassedOn, Problem, REPEAT, REPEAT_IF_SAFE};
use crate::http::reply::delivery::{DeliveryBody, Leases};
use crate::http::request::context::{REQUEST_ID, RequestContext};

/// How long this node waits for the reply to a pop after the client has disconnected.
const LATE_REPLY: Duration = Duration::from_secs(1);
/// How long a reply may still arrive after the queue has moved to another owner.
const LAST_REPLY: Duration = Duration::from_secs(1);
/// How long a waiting call goes on while this node stops. The owner ends the wait after its next heartbeat, which shows that this node is
/// stopping.
const LAST_WAIT: Duration = Duration::from_secs(1);
/// Headers of one connection (RFC 9110, 7.6.1).
static OF_CONNECTION: [HeaderName; 9] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];
/// Headers that concern only the first node: this node has authorized the client and has checked its origin.
static OF_FIRST_NODE: [HeaderName; 7] = [
    header::HOST,
    header::AUTHORIZATION,
    header::EXPECT,
    header::ORIGIN,
    header::REFERER,
    HeaderName::from_static("sec-fetch-site"),
    HeaderName::from_static("sec-fetch-mode"),
];

/// Sends the request to the owner of its queue, and returns the reply of the owner.
pub(in crate::http) async fn forwarded(
    node: Arc<Node>,
    context: Arc<RequestContext>,
    peer: Arc<Peer>,
    queue: Name,
    request: Request,
) -> Response {
    let request = outgoing(&context, request);
    let is_pop = context.operation().is_some_and(|operation| operation.class == Class::Pop);
    let shutdown = context.state.shutdown.clone();
    let metrics = context.state.request_metrics.clone();
    let over = over(&node, &context, &queue, &peer);
    let exchange = exchange(node, context, peer.clone(), queue, request);
    let exchange = async move {
        tokio::select! {
            reply = exchange => reply,
            () = over => Err(CallError::Interrupted),
        }
    };
    let reply = if is_pop {
        let (sender, receiver) = oneshot::channel();
        shutdown.spawn("forwarded pop", until_disconnected(exchange, sender));
        receiver.await.unwrap_or(Err(CallError::Interrupted))
    } else {
        exchange.await
    };
    let (result, response) = match reply {
        Ok(response) => ("answered", response),
        Err(CallError::Unreachable) => ("unreachable", unreachable(&peer).into_response()),
        Err(CallError::Interrupted) => ("interrupted", interrupted(&peer).into_response()),
        Err(CallError::Refused) => ("refused", refused(&peer).into_response()),
        Err(CallError::NotTheNode) => ("interrupted", not_the_node(&peer).into_response()),
    };
    metrics.forwarded(result);
    response
}

/// Runs the exchange of a pop, and drops it when the client has disconnected.
///
/// A reply that the owner has just sent is still received, so that its leases return to the queue. With a longer
/// wait, a pop without a client could take keys from others.
async fn until_disconnected(
    exchange: impl Future<Output = Result<Response, CallError>>,
    mut sender: oneshot::Sender<Result<Response, CallError>>,
) {
    let mut exchange = pin!(exchange);
    let reply = tokio::select! {
        reply = &mut exchange => Some(reply),
        () = sender.closed() => tokio::time::timeout(LATE_REPLY, exchange).await.ok(),
    };
    if let Some(reply) = reply {
        // If the client is gone, `send` drops the reply, and the drop returns the leases of the reply.
        let _without_client = sender.send(reply);
    }
}

async fn exchange(
    node: Arc<Node>,
    context: Arc<RequestContext>,
    peer: Arc<Peer>,
    queue: Name,
    request: Request,
) -> Result<Response, CallError> {
    let reply = node.send(&peer, request).await?;
    incoming(&node, &context, &peer, queue, reply).await
}

/// Waits until a reply of `peer` is no longer expected.
fn over(
    node: &Arc<Node>,
    context: &RequestContext,
    queue: &Name,
    peer: &Arc<Peer>,
) -> impl Future<Output = ()> + Send + use<> {
    let moved = moved(context.state.partitions.clone(), queue.clone(), peer.clone());
    let (node, peer, shutdown) = (node.clone(), peer.clone(), context.state.shutdown.clone());
    let waits = context.may_wait();
    async move {
        tokio::select! {
            () = moved => {}
            () = node.until_silent(&peer) => {}
            () = shutdown.draining().cancelled(), if waits => tokio::time::sleep(LAST_WAIT).await,
        }
    }
}

/// Waits until `peer` no longer owns the queue, and then for a reply that is already on its way. An owner that hangs
/// never replies.
async fn moved(partitions: Arc<Partitions>, queue: Name, peer: Arc<Peer>) {
    loop {
        partitions.until_moved(&queue, &peer).await;
        tokio::time::sleep(LAST_REPLY).await;
        // A removed node does not know any owner until its next heartbeat.
        if !partitions.is_owner(&queue, &peer) {
            return;
        }
    }
}

/// The problem of an owner that could not be called.
pub(in crate::http) fn unreachable(peer: &Peer) -> Problem {
    let detail = format!(
        "the node {:?}, which owns the queue, can't be reached; nothing of the request was applied",
        peer.name
    );
    Problem::new(Code::NotOwner, detail).hint(REPEAT)
}

/// The problem of an owner that has not replied before its connection ended, before the queue moved, or while it was silent.
pub(in crate::http) fn interrupted(peer: &Peer) -> Problem {
    let detail = format!(
        "the node {:?} owned the queue and did not reply; its connection has ended, it is silent, or the queue has moved; whether \
         the request took effect is unknown",
        peer.name
    );
    Problem::new(Code::NotOwner, detail).hint(REPEAT_IF_SAFE)
}

/// The problem of an owner that does not accept this node.
pub(in crate::http) fn refused(peer: &Peer) -> Problem {
    let detail = format!(
        "the node {:?}, which owns the queue, does not accept calls of this node; nothing of the request was applied",
        peer.name
    );
    Problem::new(Code::NotOwner, detail).hint(REPEAT)
}

/// The problem if a different server replies at the owner's URL.
pub(in crate::http) fn not_the_node(peer: &Peer) -> Problem {
    let detail = format!(
        "another server replies at the URL of the node {:?}, which owns the queue (cluster.advertise); whether the request took effect \
         is unknown",
        peer.name
    );
    Problem::new(Code::NotOwner, detail).hint(REPEAT_IF_SAFE)
}

/// The request as it is sent to another node.
pub(in crate::http) fn outgoing(context: &RequestContext, request: Request) -> Request {
    let (mut parts, body) = request.into_parts();
    let headers = &mut parts.headers;
    keep_end_to_end(headers);
    for name in &OF_FIRST_NODE {
        headers.remove(name);
    }
    if let Ok(id) = HeaderValue::from_str(&context.id) {
        headers.insert(&REQUEST_ID, id);
    }
    let caller = context.caller().and_then(|caller| HeaderValue::from_str(caller.name()).ok());
    if let Some(caller) = caller {
        headers.insert(&node::CALLER, caller);
    }
    if let Ok(url) = HeaderValue::from_str(&context.public_url()) {
        headers.insert(&node::PUBLIC_URL, url);
    }
    parts.version = Version::HTTP_11;
    parts.extensions.clear();
    Request::from_parts(parts, body)
}

/// Whether a header concerns the owner, even if the header `Connection` names it (RFC 9110, 7.6.1, forbids that).
/// Without it, the owner would read another request than this node.
fn is_for_owner(name: &HeaderName) -> bool {
    let name = name.as_str();
    let families = ["content-", "accept", "if-"];
    families.iter().any(|family| name.starts_with(family)) || matches!(name, "last-event-id" | "traceparent")
}

/// Removes the headers that apply only to the connection.
fn keep_end_to_end(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|names| names.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .filter(|name| !is_for_owner(name))
        .collect();
    for name in named.iter().chain(&OF_CONNECTION) {
        headers.remove(name);
    }
}

/// Keeps the connection of the client open. Never completes.
async fn kept_open(context: &RequestContext) {
    loop {
        tokio::time::sleep(context.keep_open()).await;
    }
}

/// The reply of the owner as it is returned to the client.
async fn incoming(
    node: &Arc<Node>,
    context: &Arc<RequestContext>,
    peer: &Arc<Peer>,
    queue: Name,
    reply: Response<Incoming>,
) -> Result<Response, CallError> {
    let (mut parts, body) = reply.into_parts();
    let headers = &mut parts.headers;
    keep_end_to_end(headers);
    headers.remove(&node::NAME);
    let outcome = headers.remove(&node::OUTCOME);
    let outcome = outcome.and_then(|code| code.to_str().ok().and_then(Code::named));
    let has_leases = headers.remove(&node::LEASES).is_some();
    if let Ok(url) = HeaderValue::from_str(&peer.url) {
        headers.insert(&node::OWNER, url);
    }
    parts.version = Version::HTTP_11;
    parts.extensions.clear();
    parts.extensions.insert(PassedOn(outcome));
    if !has_leases {
        let why = "the node that owned the queue is silent, or no longer owns it";
        let over = over(node, context, &queue, peer);
        // A watch of the Kubernetes API may be silent for hours at its owner.
        let is_quiet = context.kubernetes().is_some() && context.may_wait();
        let context = context.clone();
        let over = async move {
            tokio::select! {
                () = over => {}
                () = kept_open(&context), if is_quiet => {}
            }
        };
        let body = LimitedBody::new(body, over, || true, why);
        return Ok(Response::from_parts(parts, Body::new(body)));
    }
    let state = &context.state;
    let path = ReturnPath { node: node.clone(), peer: peer.clone(), shutdown: state.shutdown.clone(), queue };
    // The owner limits the reply to queues.max_reply_bytes. It takes back the leases if the connection ends before
    // the end of the reply.
    let text = to_bytes(Body::new(body), usize::MAX).await.map_err(|_| CallError::Interrupted)?;
    let leases = ForwardedLeases::new(text.clone(), path);
    // If there is no room, dropping the leases returns them.
    let reserved = match context.reserve_reply(text.len()) {
        Ok(reserved) => reserved,
        Err(problem) => return Ok(problem.into_response()),
    };
    if reserved.is_some() {
        parts.extensions.insert(CountedReply);
    }
    let outbox = context.connection.as_ref().map(|connection| connection.outbox.clone());
    let body = DeliveryBody::new(text, Leases::Forwarded(leases), outbox, reserved);
    Ok(Response::from_parts(parts, Body::new(body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_the_connection_are_removed() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Hop, Content-Type, If-None-Match"),
            ("x-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("content-type", "application/json"),
            ("if-none-match", "\"a\""),
        ] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        keep_end_to_end(&mut headers);
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["content-type", "if-none-match"]);
    }
}
