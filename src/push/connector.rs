//! Opens connections to endpoints, and decides which addresses they may go to.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::vec;

use axum::http::uri::Scheme;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use ipnet::IpNet;
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;
use tower::{Service, ServiceExt as _};

use super::address::is_permitted;
use super::policy::{Endpoint, Policy};

/// Maximum number of look-ups of names at once. One that is given up goes on, because it occupies a thread until it ends, and other parts of the server
/// need such threads as well.
const LOOKUPS_MAX: usize = 32;

/// After how long a quiet connection is probed, and how long an answer may take.
const PROBE: Duration = Duration::from_secs(15);
/// After how many probes without an answer the peer is gone.
const PROBES: u32 = 3;

const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("deltaq/", env!("CARGO_PKG_VERSION")));

type Cause = Box<dyn std::error::Error + Send + Sync>;
type Tcp = HttpConnector<Resolver>;

/// Why no endpoint with TLS can be reached.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The machine has no list of authorities.
    #[error("the machine has no certificates of authorities (the package ca-certificates, or SSL_CERT_FILE)")]
    NoAuthorities {
        /// Why a list that it has can't be read.
        source: Option<rustls_native_certs::Error>,
    },
    /// TLS can't be used.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// No connection could be opened.
    #[error("can't connect")]
    Connect(#[source] Cause),
    /// The connection ended before an answer.
    #[error("the connection closed before an answer")]
    Closed,
    /// The request or its answer broke off.
    #[error(transparent)]
    Exchange(#[from] hyper::Error),
}

/// An open connection, for one request after the other. It closes when this is dropped.
pub(super) struct Connection {
    requests: SendRequest<Full<Bytes>>,
    task: AbortOnDropHandle<()>,
}

impl Connection {
    /// Sends a request and waits for the head of its answer.
    pub(super) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Failure> {
        tokio::select! {
            biased;
            answer = self.requests.send_request(request) => Ok(answer?),
            // A request that is sent at the moment at which the connection ends may stay in hyper's channel, without an answer.
            _ended = &mut self.task => Err(Failure::Closed),
        }
    }

    /// Whether the next request can be sent.
    pub(super) fn is_ready(&self) -> bool {
        self.requests.is_ready()
    }

    /// Waits until the next request can be sent. Returns whether one ever can.
    pub(super) async fn becomes_ready(&mut self) -> bool {
        self.requests.ready().await.is_ok()
    }

    /// Closes a connection that no request uses, with a goodbye if it has TLS.
    pub(super) fn close(self) {
        // The task ends because there will be no further request.
        self.task.detach();
    }
}

/// Opens connections to the endpoints that a policy permits.
#[derive(Clone)]
pub struct Connector {
    direct: HttpsConnector<Tcp>,
    proxy: Option<Proxy>,
}

/// The proxy that all requests go through.
#[derive(Clone)]
struct Proxy {
    uri: Uri,
    /// Opens connections with TLS, which the proxy can't read.
    tunnel: HttpsConnector<Tunnel<Tcp>>,
}

impl Connector {
    /// A connector for the endpoints of this policy.
    ///
    /// # Errors
    /// The policy permits TLS, which can't be used.
    pub fn new(policy: &Policy) -> Result<Self, Error> {
        Self::looking_up(policy, bounded(|name| Ok((name, 0).to_socket_addrs()?.collect())))
    }

    fn looking_up(policy: &Policy, lookup: Lookup) -> Result<Self, Error> {
        let resolver = Resolver {
            lookup,
            networks: policy.networks.as_slice().into(),
            proxy: policy.proxy.as_ref().and_then(Uri::host).map(Into::into),
        };
        let mut tcp = HttpConnector::new_with_resolver(resolver);
        // URLs with https are meant for this connector as well.
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // A request may wait for minutes, and its peer may be gone.
        tcp.set_keepalive(Some(PROBE));
        tcp.set_keepalive_interval(Some(PROBE));
        tcp.set_keepalive_retries(Some(PROBES));
        tcp.set_tcp_user_timeout(Some(PROBE * PROBES));
        let tls = tls(policy)?;
        let with_tls =
            || HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_or_http().enable_http1();
        let proxy = policy.proxy.clone().map(|uri| {
            let tunnel = with_tls().wrap_connector(Tunnel::new(uri.clone(), tcp.clone()));
            Proxy { uri, tunnel }
        });
        Ok(Self { direct: with_tls().wrap_connector(tcp), proxy })
    }

    /// Opens a connection to an endpoint.
    pub(super) async fn open(&self, endpoint: &Endpoint) -> Result<Connection, Failure> {
        let stream = match &self.proxy {
            None => self.direct.clone().oneshot(endpoint.uri.clone()).await,
            Some(proxy) if is_encrypted(endpoint) => proxy.tunnel.clone().oneshot(endpoint.uri.clone()).await,
            Some(proxy) => self.direct.clone().oneshot(proxy.uri.clone()).await,
        };
        let (requests, connection) = handshake(stream.map_err(Failure::Connect)?).await?;
        #[expect(clippy::disallowed_methods, reason = "the connection owns the task")]
        let task = tokio::spawn(async move {
            // A request in flight gets the error.
            let _ended = connection.await;
        });
        Ok(Connection { requests, task: AbortOnDropHandle::new(task) })
    }

    /// A request to an endpoint.
    pub(super) fn request(
        &self,
        method: Method,
        endpoint: &Endpoint,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Request<Full<Bytes>> {
        let uri = &endpoint.uri;
        let host = uri.authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
        headers.extend(host.map(|host| (header::HOST, host)));
        headers.insert(header::USER_AGENT, USER_AGENT);
        headers.entry(header::ACCEPT).or_insert(HeaderValue::from_static("*/*"));
        if let Some(Ok(origin)) = endpoint.origin.as_deref().map(HeaderValue::from_str) {
            headers.insert("webhook-request-origin", origin);
        }
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        // A proxy gets the whole URL, unless it only carries bytes.
        *request.uri_mut() = if self.proxy.is_some() && !is_encrypted(endpoint) {
            uri.clone()
        } else {
            uri.path_and_query().cloned().map(Uri::from).unwrap_or_default()
        };
        *request.headers_mut() = headers;
        request
    }
}

fn is_encrypted(endpoint: &Endpoint) -> bool {
    endpoint.uri.scheme() == Some(&Scheme::HTTPS)
}

/// How connections use TLS. A machine without certificates of authorities can use plain HTTP.
fn tls(policy: &Policy) -> Result<ClientConfig, Error> {
    let mut roots = RootCertStore::empty();
    if policy.has_encrypted() {
        let mut found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            return Err(Error::NoAuthorities { source: found.errors.pop() });
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

type Found = BoxFuture<'static, io::Result<Vec<SocketAddr>>>;
/// Finds the addresses of a name.
type Lookup = Arc<dyn Fn(String) -> Found + Send + Sync>;

/// Finds the addresses of a name that a request may go to. Each connection asks anew, so a name whose addresses change gains nothing.
#[derive(Clone)]
struct Resolver {
    lookup: Lookup,
    networks: Arc<[IpNet]>,
    /// The host of the proxy, whose address the operator has chosen.
    proxy: Option<Arc<str>>,
}

/// A name has no address that a request may go to.
#[derive(Debug, thiserror::Error)]
#[error("its address is not global, and not in push.allow_networks")]
struct Forbidden;

impl Service<Name> for Resolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = Cause;
    type Future = BoxFuture<'static, Result<Self::Response, Cause>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Cause>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let found = (self.lookup)(name.as_str().to_owned());
        let networks = self.networks.clone();
        let is_proxy = self.proxy.as_deref() == Some(name.as_str());
        Box::pin(async move {
            let mut addresses = found.await?;
            addresses.retain(|address| is_proxy || is_permitted(address.ip(), &networks));
            if addresses.is_empty() {
                return Err(Forbidden.into());
            }
            Ok(addresses.into_iter())
        })
    }
}

/// Looks up names on threads of their own, at most [`LOOKUPS_MAX`] at once.
fn bounded(find: fn(&str) -> io::Result<Vec<SocketAddr>>) -> Lookup {
    let places = Arc::new(Semaphore::new(LOOKUPS_MAX));
    Arc::new(move |name: String| -> Found {
        let places = places.clone();
        Box::pin(async move {
            let place = places.acquire_owned().await.map_err(io::Error::other)?;
            let look_up = move || {
                let _place = place;
                find(&name)
            };
            tokio::task::spawn_blocking(look_up).await.map_err(io::Error::other)?
        })
    })
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

#[cfg(test)]
mod tests;
