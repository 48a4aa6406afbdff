//! This server as one of several nodes: its name, the secret that the nodes share, and the client for calls to other nodes.
//!
//! The secret authenticates a node. A call with the secret needs no token, because the node that received the call from its client has
//! checked the permission.

mod secret;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::uri::{PathAndQuery, Uri};
use axum::http::{HeaderName, HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

pub use self::secret::Error as SecretError;
use self::secret::Secret;
use super::head::Head;
use super::problem::{Code, Problem};
use crate::causes::with_causes;
use crate::config::Cluster;
use crate::service::Peer;

/// The name of the node that sends a call.
pub(super) static FORWARDED: HeaderName = HeaderName::from_static("deltaq-forwarded");
/// The secret of the nodes.
pub(super) static SECRET: HeaderName = HeaderName::from_static("deltaq-node-secret");
/// The name of the token of the client whose call a node forwards.
pub(super) static CALLER: HeaderName = HeaderName::from_static("deltaq-caller");
/// Marks a release whose leases did not reach the client.
pub(super) static UNDELIVERED: HeaderName = HeaderName::from_static("deltaq-undelivered");
/// The URL of the node that owns the queue, in the reply to a client.
pub(super) static OWNER: HeaderName = HeaderName::from_static("deltaq-owner");
/// The code of the problem, in the reply to a node.
pub(super) static OUTCOME: HeaderName = HeaderName::from_static("deltaq-outcome");
/// Marks a reply to a node that has new leases.
pub(super) static LEASES: HeaderName = HeaderName::from_static("deltaq-leases");
/// The partitions that a list covers, in the reply to a node.
pub(super) static PARTITIONS: HeaderName = HeaderName::from_static("deltaq-partitions");

/// Longest time to connect to a node.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long an unused connection to a node is kept. It is shorter than `server.idle_timeout` usually is, so that a call seldom
/// meets a connection that the other node closes.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Most unused connections to one node.
const IDLE_MAX: usize = 256;
/// A connection whose peer acknowledges nothing for about this long has ended.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// Why a server can't be a node.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The secret can't be used.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The authorities of the nodes can't be read.
    #[error("can't read the certificates of cluster.ca_file, {}", path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: rustls::pki_types::pem::Error,
    },
    /// TLS can't be set up.
    #[error("can't set up TLS for calls between nodes")]
    Tls {
        /// The cause.
        source: rustls::Error,
    },
}

/// Why a call at another node has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallError {
    /// There is no connection, so the node has not received the call.
    Unreachable,
    /// The connection ended before the reply, so the outcome is unknown.
    Interrupted,
}

/// This server as one of several nodes.
#[derive(Debug)]
pub struct Node {
    name: HeaderValue,
    secret: Secret,
    client: Client<HttpsConnector<HttpConnector>, Body>,
}

impl Node {
    /// The node of the settings; none if the server is alone. Reads the files that the settings name.
    ///
    /// # Errors
    /// [`NodeError`] names the setting.
    pub fn of(settings: &Cluster) -> Result<Option<Arc<Self>>, NodeError> {
        let (Some(name), Some(secret)) = (&settings.node_name, &settings.secret_file) else {
            return Ok(None);
        };
        Self::with(name, Secret::read(secret)?, settings.ca_file.as_deref()).map(Arc::new).map(Some)
    }

    /// A node with this name and this secret, which calls other nodes without TLS or by the authorities of the system.
    ///
    /// # Errors
    /// [`NodeError`].
    pub fn new(name: &str, secret: &str) -> Result<Self, NodeError> {
        Self::with(name, Secret::new(secret)?, None)
    }

    fn with(name: &str, secret: Secret, ca_file: Option<&Path>) -> Result<Self, NodeError> {
        let mut tcp = HttpConnector::new();
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEPALIVE));
        tcp.set_keepalive_interval(Some(KEEPALIVE));
        tcp.set_keepalive_retries(Some(2));
        tcp.enforce_http(false);
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls(ca_file)?);
        let connector = connector.https_or_http().enable_http1().wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(IDLE_MAX)
            .build(connector);
        let name = HeaderValue::from_str(name).unwrap_or(HeaderValue::from_static("?"));
        Ok(Self { name, secret, client })
    }

    /// Whether the request is a call of another node.
    ///
    /// # Errors
    /// A request that has headers of a node, but not the secret.
    pub(super) fn is_sender(&self, head: &Head<'_>) -> Result<bool, Problem> {
        if !head.has_node_headers {
            return Ok(false);
        }
        let secret = head.node_secret.first.filter(|_| !head.node_secret.is_repeated);
        if head.forwarded.first.is_some() && secret.is_some_and(|secret| self.secret.is(secret)) {
            return Ok(true);
        }
        let detail = "the headers deltaq-forwarded, deltaq-node-secret, deltaq-caller and deltaq-undelivered are for calls \
                      between nodes, and deltaq-node-secret is not the secret of the nodes (cluster.secret_file)";
        Err(Problem::new(Code::Forbidden, detail))
    }

    /// Sends a call to another node, with its own path and headers. The reply is the head; its body follows.
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
        headers.insert(&SECRET, self.secret.header());
        self.client.request(request).await.map_err(|error| {
            let failed = if error.is_connect() { CallError::Unreachable } else { CallError::Interrupted };
            tracing::debug!(
                node = peer.name,
                url = peer.url,
                error = with_causes(&error),
                "a call at a node failed"
            );
            failed
        })
    }
}

/// The address of a path at a node. The path is passed on byte by byte: a parser of URLs would resolve the dots of a key.
fn address(peer: &Peer, uri: &Uri) -> Option<Uri> {
    let mut parts = peer.url.parse::<Uri>().ok()?.into_parts();
    let path = uri.path_and_query().cloned();
    parts.path_and_query = Some(path.unwrap_or(PathAndQuery::from_static("/")));
    Uri::from_parts(parts).ok()
}

fn tls(ca_file: Option<&Path>) -> Result<ClientConfig, NodeError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca_file {
        let failed = |source| NodeError::Authorities { path: path.to_owned(), source };
        for certificate in CertificateDer::pem_file_iter(path).map_err(failed)? {
            roots.add(certificate.map_err(failed)?).map_err(|source| NodeError::Tls { source })?;
        }
        if roots.is_empty() {
            let source = io::Error::new(io::ErrorKind::InvalidData, "the file has no certificate");
            return Err(failed(rustls::pki_types::pem::Error::Io(source)));
        }
    } else {
        // A machine without authorities can use plain HTTP.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|source| NodeError::Tls { source })?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
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
