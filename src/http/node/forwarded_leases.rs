//! The leases of a pop that this node has forwarded. They return to their queue if the client does not get them.
//!
//! The owner of the queue treats the leases as delivered once this node has the reply. So this node notifies the
//! owner if its own client disconnects before the reply is written. Only the node that granted the leases knows
//! whether the client has repeated the pop. So if that node can't be reached, or has loaded the queue again, the
//! leases run to their deadline.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Request, header};
use bytes::Bytes;
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::Peer;
use deltaq_types::name::Name;
use serde::Deserialize;

use super::{Node, UNDELIVERED};

/// Number of attempts to return leases.
const TRIES: usize = 3;
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_secs(1);

/// The data that is needed to return leases.
#[derive(Clone, Debug)]
pub(in crate::http) struct ReturnPath {
    pub(in crate::http) node: Arc<Node>,
    /// The node that granted the leases.
    pub(in crate::http) peer: Arc<Peer>,
    pub(in crate::http) shutdown: Shutdown,
    pub(in crate::http) queue: Name,
}

/// The leases in the reply to a forwarded pop. If they are dropped without [`confirm`](Self::confirm), they return to
/// the queue.
#[derive(Debug)]
pub(in crate::http) struct ForwardedLeases {
    /// The reply, which contains the leases.
    reply: Option<Bytes>,
    path: ReturnPath,
}

/// A popped key. Only its lease is read.
#[derive(Deserialize)]
struct Leased {
    lease: Lease,
}

#[derive(Deserialize)]
struct Lease {
    id: String,
}

/// A popped key as a CloudEvent.
#[derive(Deserialize)]
struct LeasedEvent {
    deltaqlease: String,
}

#[derive(Deserialize)]
struct Reply {
    items: Vec<Leased>,
}

/// The leases in a reply to a pop. Objects are skipped and not read, because they may have numbers that fit in no type.
fn leases_of(reply: &[u8]) -> Option<Vec<String>> {
    if reply.starts_with(b"[") {
        let events: Vec<LeasedEvent> = serde_json::from_slice(reply).ok()?;
        return Some(events.into_iter().map(|event| event.deltaqlease).collect());
    }
    let Reply { items } = serde_json::from_slice(reply).ok()?;
    Some(items.into_iter().map(|item| item.lease.id).collect())
}

impl ForwardedLeases {
    /// The leases of this reply.
    pub(in crate::http) fn new(reply: Bytes, path: ReturnPath) -> Self {
        Self { reply: Some(reply), path }
    }

    /// Whether dropping this returns leases.
    pub(in crate::http) fn holds_leases(&self) -> bool {
        self.reply.is_some()
    }

    /// Records that the leases have reached the client, as far as this node can tell.
    pub(in crate::http) fn confirm(&mut self) {
        self.reply = None;
    }
}

impl Drop for ForwardedLeases {
    fn drop(&mut self) {
        if let Some(reply) = self.reply.take() {
            let path = self.path.clone();
            self.path.shutdown.spawn("return of leases", async move { path.send_back(&reply).await });
        }
    }
}

impl ReturnPath {
    async fn send_back(self, reply: &[u8]) {
        let Some(leases) = leases_of(reply) else { return };
        if leases.is_empty() {
            return;
        }
        for _ in 0..TRIES {
            if self.are_sent_back(&leases).await {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
        tracing::debug!(queue = self.queue.as_str(), "leases of an undelivered reply could not be returned");
    }

    /// Whether the node that granted the leases has received them.
    async fn are_sent_back(&self, leases: &[String]) -> bool {
        let body = serde_json::json!({ "lease_ids": leases }).to_string();
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = axum::http::Method::POST;
        let Ok(uri) = format!("/v1/queues/{}/release", self.queue.as_str()).parse() else { return true };
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(&UNDELIVERED, HeaderValue::from_static("true"));
        let reply = self.node.send(&self.peer, request).await;
        reply.is_ok_and(|reply| !reply.status().is_server_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_read_beside_any_object() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for object in ["1e400", "123456789012345678901234567890", &deep] {
            let items = format!(
                r#"{{"items":[{{"key":"a","lease":{{"id":"1-2"}},"deltas":[{{"object":{{"n":{object}}}}}]}}]}}"#
            );
            let events = format!(r#"[{{"subject":"a","deltaqlease":"1-2","data":{{"n":{object}}}}}]"#);
            for reply in [items, events] {
                assert_eq!(leases_of(reply.as_bytes()), Some(vec!["1-2".to_owned()]), "{reply}");
            }
        }
    }
}
