//! This server as one of several nodes: its name, the secrets that the nodes share, and the client for calls to other nodes.
//!
//! A secret authenticates a node. A call with the secret needs no token, because the node that received the call from its client has
//! checked the permission.

pub(super) mod forwarded_leases;
pub(super) mod resources;

mod pulse;
mod secret;
mod tls;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::body::Body;
use axum::http::uri::{PathAndQuery, Uri};
use axum::http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use deltaq_runtime::causes::with_causes;
use deltaq_service::Peer;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use rustls::ClientConfig;
use tokio::time::Instant;

pub use self::secret::Error as SecretError;

use self::pulse::Pulses;
use self::resources::Resources;
use self::secret::Secrets;
use self::tls::Error as TlsError;
use self::tls::Files;
use super::head::Head;
use super::problem::{Code, Problem};
use crate::config::Cluster;

/// The header with the name of the node that sends a call.
pub(super) static FORWARDED: HeaderName = HeaderName::from_static("deltaq-forwarded");
/// The header with the secret of the nodes.
pub(super) static SECRET: HeaderName = HeaderName::from_static("deltaq-node-secret");
/// The header with the name of the client's token, in a forwarded call.
pub(super) static CALLER: HeaderName = HeaderName::from_static("deltaq-caller");
/// The header with the URL by which the client knows the node that forwards its call.
pub(super) static PUBLIC_URL: HeaderName = HeaderName::from_static("deltaq-public-url");
/// Marks a release whose leases did not reach the client.
pub(super) static UNDELIVERED: HeaderName = HeaderName::from_static("deltaq-undelivered");
/// The header with the URL of the node that owns the queue, in the reply to a client.
pub(super) static OWNER: HeaderName = HeaderName::from_static("deltaq-owner");
/// The header with the name of the replying node, in the reply to a node.
pub(super) static NAME: HeaderName = HeaderName::from_static("deltaq-node");
/// The header with the code of the problem, in the reply to a node.
pub(super) static OUTCOME: HeaderName = HeaderName::from_static("deltaq-outcome");
/// Marks a reply to a node that has leases.
pub(super) static LEASES: HeaderName = HeaderName::from_static("deltaq-leases");
/// The header with the partitions that a list covers, in the reply to a node.
pub(super) static PARTITIONS: HeaderName = HeaderName::from_static("deltaq-partitions");

/// Timeout for connecting to a node.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long an unused connection to a node is kept. This is usually shorter than `server.idle_timeout`, so that a
/// call rarely uses a connection that the other node is closing.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of unused connections to one node.
const IDLE_MAX: usize = 256;
/// If the peer of a connection acknowledges nothing for about this long, the connection is considered broken.
const KEEPALIVE: Duration = Duration::from_secs(3);
/// How long another node may take to answer the call that finds out whether it can be called.
const REACH_MAX: Duration = Duration::from_secs(2);
/// Minimum time between two log lines about failed calls of a node.
const REPORT_PERIOD: Duration = Duration::from_secs(10);

/// Why a server can't be a node.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The secret can't be used.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The certificates can't be used.
    #[error("can't set up TLS for calls between nodes")]
    Tls {
        /// The cause.
        #[from]
        source: TlsError,
    },
}

/// Why a call to another node has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallError {
    /// There is no connection, so the node has not received the call.
    Unreachable,
    /// The connection ended before the reply, so the outcome is unknown.
    Interrupted,
    /// The node does not accept the secret of this node.
    Refused,
    /// The reply is not from the node.
    NotTheNode,
}

/// Sends the calls to other nodes.
type HttpClient = Client<HttpsConnector<HttpConnector>, Body>;

/// This server as one of several nodes.
#[derive(Debug)]
pub struct Node {
    name: HeaderValue,
    secrets: ArcSwap<Secrets>,
    /// The file with the secrets; `None` if they come from elsewhere.
    secret_file: Option<PathBuf>,
    files: Files,
    client: ArcSwap<HttpClient>,
    /// When the last failed call of each node was logged.
    reported: Mutex<BTreeMap<String, Instant>>,
    pulses: Pulses,
    /// The resources of the Kubernetes API that other nodes have.
    pub(super) resources: Resources,
}

impl Node {
    /// Creates the node from the settings, reading the files that they name. `None` for a standalone server.
    ///
    /// # Errors
    /// [`NodeError`] names the setting.
    pub fn of(settings: &Cluster) -> Result<Option<Arc<Self>>, NodeError> {
        let (Some(name), Some(secret)) = (&settings.node_name, &settings.secret_file) else {
            return Ok(None);
        };
        let files = Files {
            authorities: settings.ca_file.clone(),
            own: settings.tls_cert.clone().zip(settings.tls_key.clone()),
        };
        let secrets = Secrets::read(secret)?;
        Self::with(name, secrets, Some(secret.clone()), files).map(Arc::new).map(Some)
    }

    /// Creates a node with this name and this secret. It calls other nodes without TLS, or with the system's
    /// certificate authorities.
    ///
    /// # Errors
    /// [`NodeError`].
    pub fn new(name: &str, secret: &str) -> Result<Self, NodeError> {
        Self::with(name, Secrets::new(secret)?, None, Files::default())
    }

    fn with(
        name: &str,
        secrets: Secrets,
        secret_file: Option<PathBuf>,
        files: Files,
    ) -> Result<Self, NodeError> {
        let client = ArcSwap::from_pointee(client(files.read()?));
        let name = HeaderValue::from_str(name).unwrap_or(HeaderValue::from_static("?"));
        let secrets = ArcSwap::from_pointee(secrets);
        Ok(Self {
            name,
            secrets,
            secret_file,
            files,
            client,
            reported: Mutex::default(),
            pulses: Pulses::default(),
            resources: Resources::default(),
        })
    }

    /// The name of this node.
    pub(super) fn name(&self) -> &str {
        self.name.to_str().unwrap_or_default()
    }

    /// The name of this node as a header.
    pub(super) fn header(&self) -> HeaderValue {
        self.name.clone()
    }

    /// Reads the secrets and the certificates again. Running calls are not affected. After an error, nothing has
    /// changed.
    ///
    /// # Errors
    /// [`NodeError`] names the setting.
    pub fn reload(&self) -> Result<(), NodeError> {
        let secrets = self.secret_file.as_deref().map(Secrets::read).transpose()?;
        self.client.store(Arc::new(client(self.files.read()?)));
        if let Some(secrets) = secrets {
            self.secrets.store(Arc::new(secrets));
        }
        Ok(())
    }

    /// The digests of the secrets that this node accepts, with a salt. The first one is of the secret that it sends.
    pub fn salted_secrets(&self, salt: &str) -> Vec<String> {
        self.secrets.load().salted(salt)
    }

    /// Calls another node at the URL that it advertises.
    ///
    /// # Errors
    /// Why the node can't be called, and what to do.
    pub async fn reach(&self, peer: &Peer) -> Result<(), &'static str> {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = Uri::from_static("/livez");
        let reply = tokio::time::timeout(REACH_MAX, self.send(peer, request)).await;
        match reply {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(CallError::Unreachable)) => {
                Err("no connection; is the node running, and is the URL right?")
            }
            Ok(Err(CallError::Interrupted)) => Err("the connection ended before the reply"),
            Ok(Err(CallError::Refused)) => Err(
                "it does not accept the secret; cluster.secret_file must have the same secret at all nodes",
            ),
            Ok(Err(CallError::NotTheNode)) => {
                Err("another server replies; the URL must lead to the node itself")
            }
            Err(_) => Err("no reply within 2 s"),
        }
    }

    /// Whether the request is a call from another node.
    ///
    /// # Errors
    /// The request has headers of a node but not the secret.
    pub(super) fn is_sender(&self, head: &Head<'_>) -> Result<bool, Problem> {
        if !head.has_node_headers {
            return Ok(false);
        }
        let secret = head.node_secret.first.filter(|_| !head.node_secret.is_repeated);
        if head.forwarded.first.is_some() && secret.is_some_and(|secret| self.secrets.load().have(secret)) {
            return Ok(true);
        }
        let detail = "the headers deltaq-forwarded, deltaq-node-secret, deltaq-caller, deltaq-public-url and deltaq-undelivered are for calls \
                      between nodes, and deltaq-node-secret is not a secret of the nodes (cluster.secret_file)";
        Err(Problem::new(Code::Forbidden, detail))
    }

    /// Sends a call to another node with its original path and headers. The returned reply has its head; its body may
    /// still be arriving.
    pub(super) async fn send(
        &self,
        peer: &Peer,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, CallError> {
        let Some(uri) = address(peer, request.uri()) else {
            tracing::error!(node = peer.name, url = peer.url, "the URL of a node can't be used");
            return Err(CallError::Unreachable);
        };
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(&FORWARDED, self.name.clone());
        headers.insert(&SECRET, self.secrets.load().header());
        let client = HttpClient::clone(&self.client.load());
        let reply = client.request(request).await.map_err(|error| {
            self.report(peer, &error);
            if error.is_connect() { CallError::Unreachable } else { CallError::Interrupted }
        })?;
        // If an owner itself refuses a call, it names the outcome. Without an outcome, the secret was refused.
        if reply.status() == StatusCode::FORBIDDEN && !reply.headers().contains_key(&OUTCOME) {
            self.report_reply(
                peer,
                "a node refuses the calls of this one: cluster.secret_file must have the same secret at all nodes",
            );
            return Err(CallError::Refused);
        }
        if reply.headers().get(&NAME).is_none_or(|name| *name != *peer.name) {
            self.report_reply(
                peer,
                "a reply is not from the node: its cluster.advertise must lead to itself",
            );
            return Err(CallError::NotTheNode);
        }
        self.pulses.of(peer).note();
        Ok(reply)
    }

    /// Waits until a node has not answered for some seconds. A call that waits for the node asks it whether it
    /// is there. TCP would not notice a proxy that accepts everything and passes nothing on, or a process that is frozen. Any reply
    /// counts: a node with too many connections refuses this one, and works on for the others.
    pub(super) async fn until_silent(&self, peer: &Peer) {
        let is_there = || async {
            let request = Request::get("/livez").body(Body::empty());
            let Ok(request) = request else { return false };
            let reply = self.send(peer, request).await;
            !matches!(reply, Err(CallError::Unreachable | CallError::Interrupted))
        };
        self.pulses.of(peer).until_silent(is_there).await;
    }

    /// Reports a reply that can't be used.
    fn report_reply(&self, peer: &Peer, problem: &str) {
        if self.is_to_report(peer) {
            tracing::warn!(node = peer.name, url = peer.url, "{problem}");
        }
    }

    /// Whether a failed call to this node should be logged: at most one per node and `REPORT_PERIOD`.
    fn is_to_report(&self, peer: &Peer) -> bool {
        let mut reported = self.reported.lock();
        let now = Instant::now();
        if reported.get(&peer.name).is_some_and(|last| now - *last < REPORT_PERIOD) {
            return false;
        }
        reported.insert(peer.name.clone(), now);
        true
    }

    /// Reports a failed call.
    fn report(&self, peer: &Peer, error: &(dyn std::error::Error + 'static)) {
        if !self.is_to_report(peer) {
            return;
        }
        let hint = if tls::is_refused(error) {
            "the certificate of the node is not accepted: see cluster.ca_file and the name in cluster.advertise"
        } else {
            "is the node running, and is its cluster.advertise right?"
        };
        tracing::warn!(
            node = peer.name,
            url = peer.url,
            error = with_causes(error),
            hint,
            "a call at a node failed"
        );
    }
}

fn client(tls: ClientConfig) -> HttpClient {
    let mut tcp = HttpConnector::new();
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE));
    tcp.set_keepalive_retries(Some(2));
    tcp.set_tcp_user_timeout(Some(KEEPALIVE));
    tcp.enforce_http(false);
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls);
    let connector = connector.https_or_http().enable_http1().wrap_connector(tcp);
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(IDLE_MAX)
        .build(connector)
}

/// The address of a path on a node. The path is passed on unchanged, because a URL parser would resolve dots in a
/// key.
fn address(peer: &Peer, uri: &Uri) -> Option<Uri> {
    let mut parts = peer.url.parse::<Uri>().ok()?.into_parts();
    let path = uri.path_and_query().cloned();
    parts.path_and_query = Some(path.unwrap_or(PathAndQuery::from_static("/")));
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_call_is_passed_on_byte_by_byte() {
        let peer = Peer { name: "b".to_owned(), url: "http://10.0.0.2:7070".to_owned() };
        for path in
            ["/v1/queues/q/items/a/../../secret/items", "/v1/queues/q/items/%2e%2e/x%2Fy?a=%20b&c=+", "/"]
        {
            let uri = address(&peer, &path.parse().unwrap()).unwrap();
            assert_eq!(uri.to_string(), format!("http://10.0.0.2:7070{path}"));
        }
    }
}
