//! Sends one signed request and judges nothing: the answer is a status with the beginning of its body, or none.

use std::cell::Cell;
use std::error::Error;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, header};
use bytes::Bytes;
use deltaq_runtime::causes::with_causes;
use futures_util::future::BoxFuture;
use ipnet::IpNet;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy as Redirects;
use reqwest::{Client, ClientBuilder, Method, Proxy, Response};
use tokio::sync::Semaphore;
use tower::{Layer, Service};

use super::address::is_permitted;
use super::policy::{Endpoint, Policy};

/// How many bytes of an answer are read at most.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// How many more for each further key of the request, which the answer may name.
const KEY_ANSWER_BYTES: usize = 1 << 10;
/// How many bytes of an answer are kept, for the error of the key.
const EXCERPT_BYTES: usize = 500;
/// Maximum number of look-ups of names at once. One that is given up goes on, because it occupies a thread until it ends, and other parts of the server
/// need such threads as well.
const LOOKUPS_MAX: usize = 32;
/// How long a connection may be idle. Some servers close one after 5 s, and a request may not meet that.
const IDLE: Duration = Duration::from_secs(4);

/// Sends requests.
#[derive(Clone, Debug)]
pub struct Sender {
    client: Client,
    /// Opens a connection for each request.
    fresh: Client,
}

tokio::task_local! {
    /// Whether the request of this task has asked for a new connection.
    static CONNECTS: Cell<bool>;
}

/// Notes in [`CONNECTS`] that a request asks for a new connection.
#[derive(Clone)]
struct Noting<S>(S);

#[derive(Clone)]
struct NotingLayer;

impl<S> Layer<S> for NotingLayer {
    type Service = Noting<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Noting(inner)
    }
}

impl<S: Service<R>, R> Service<R> for Noting<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, target: R) -> Self::Future {
        // A connection that another request has opened meanwhile may have no such task.
        let _noted = CONNECTS.try_with(|connects| connects.set(true));
        self.0.call(target)
    }
}

/// A request.
#[derive(Debug)]
pub struct Call {
    /// Identifies the content: a receiver that has seen it may ignore the request.
    pub id: String,
    /// When the request is sent, in seconds since 1970.
    pub timestamp: u64,
    /// Further headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// The number of keys in it.
    pub keys: usize,
}

/// How an endpoint has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A whole answer.
    Status {
        /// The status.
        status: u16,
        /// The status and the beginning of the body, for people.
        text: String,
        /// The header `Retry-After`.
        retry_after: Option<String>,
        /// What may say something about single keys.
        json: Body,
    },
    /// No answer, or not a whole one.
    None {
        /// Why.
        why: String,
    },
}

/// The body of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// JSON.
    Json(Vec<u8>),
    /// JSON that is too long to be read.
    LongJson,
    /// No JSON.
    Other,
}

type Found = BoxFuture<'static, io::Result<Vec<SocketAddr>>>;
/// Finds the addresses of a name.
type Lookup = Arc<dyn Fn(String) -> Found + Send + Sync>;

/// Finds the addresses of a name that a request may go to. Each connection asks anew, so a name whose addresses change gains nothing.
struct Guarded {
    lookup: Lookup,
    networks: Arc<[IpNet]>,
    /// The host of the proxy, whose address the operator has chosen.
    proxy: Option<String>,
}

/// A name has no address that a request may go to.
#[derive(Debug, thiserror::Error)]
#[error("its address is not global, and not in push.allow_networks")]
struct Forbidden;

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let found = (self.lookup)(name.as_str().to_owned());
        if self.proxy.as_deref() == Some(name.as_str()) {
            return Box::pin(async move { Ok(Box::new(found.await?.into_iter()) as Addrs) });
        }
        Box::pin(permitted(found, self.networks.clone()))
    }
}

async fn permitted(found: Found, networks: Arc<[IpNet]>) -> Result<Addrs, Box<dyn Error + Send + Sync>> {
    let mut addresses = found.await?;
    addresses.retain(|address| is_permitted(address.ip(), &networks));
    if addresses.is_empty() {
        return Err(Forbidden.into());
    }
    Ok(Box::new(addresses.into_iter()))
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

impl Sender {
    /// A sender for the destinations of this policy.
    ///
    /// # Errors
    /// The certificates of the system can't be used.
    pub fn new(policy: &Policy) -> reqwest::Result<Self> {
        Self::looking_up(policy, bounded(|name| Ok((name, 0).to_socket_addrs()?.collect())))
    }

    fn looking_up(policy: &Policy, lookup: Lookup) -> reqwest::Result<Self> {
        // An error means that this process has already installed the provider.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let proxy = policy.proxy.as_ref();
        let resolver = Arc::new(Guarded {
            lookup,
            networks: policy.networks.as_slice().into(),
            proxy: proxy.and_then(|url| url.host_str()).map(str::to_owned),
        });
        let proxy = proxy.map(|url| Proxy::all(url.clone())).transpose()?;
        let builder = || -> ClientBuilder {
            let client = Client::builder()
                .http1_only()
                .redirect(Redirects::none())
                .no_proxy()
                .connector_layer(NotingLayer)
                .tcp_nodelay(true)
                .user_agent(concat!("deltaq/", env!("CARGO_PKG_VERSION")))
                .dns_resolver(resolver.clone());
            // `no_proxy` has switched off the proxies of the environment.
            let client = if let Some(proxy) = &proxy { client.proxy(proxy.clone()) } else { client };
            // A machine without certificates of authorities can use plain HTTP.
            if policy.has_encrypted() { client } else { client.tls_certs_only([]) }
        };
        let client = builder().pool_idle_timeout(IDLE).build()?;
        Ok(Self { client, fresh: builder().pool_max_idle_per_host(0).build()? })
    }

    /// Sends a request. `timeout` ends with the last byte of the answer.
    pub async fn send(&self, endpoint: &Endpoint, call: Call, timeout: Duration) -> Answer {
        match tokio::time::timeout(timeout, self.exchange(endpoint, call)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => Answer::None { why: with_causes(&error.without_url()) },
            Err(_) => Answer::None {
                why: format!("no whole answer within {}", deltaq_types::duration::format(timeout)),
            },
        }
    }

    /// Sends the validation request of CloudEvents webhooks. Returns the least time between two requests.
    ///
    /// # Errors
    /// Why the endpoint does not permit requests.
    pub async fn validate(&self, endpoint: &Endpoint, timeout: Duration) -> Result<Duration, String> {
        let mut headers = endpoint.headers.clone();
        insert_origin(&mut headers, endpoint);
        let no_body = Bytes::new();
        let response = self.begin(Method::OPTIONS, endpoint, &headers, &no_body);
        let response = match tokio::time::timeout(timeout, response).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(with_causes(&error.without_url())),
            Err(_) => return Err(format!("no answer within {}", deltaq_types::duration::format(timeout))),
        };
        if !response.status().is_success() {
            return Err(response.status().to_string());
        }
        permission(response.headers(), endpoint.origin.as_deref().unwrap_or_default())
    }

    async fn exchange(&self, endpoint: &Endpoint, call: Call) -> reqwest::Result<Answer> {
        let Call { id, timestamp, headers: own, body, keys } = call;
        let bytes_max = ANSWER_BYTES_MAX + KEY_ANSWER_BYTES * keys.saturating_sub(1);
        let mut headers = endpoint.headers.clone();
        headers.extend(own);
        let signatures: Vec<_> =
            endpoint.secrets.iter().map(|secret| secret.sign(&id, timestamp, &body)).collect();
        let mut insert = |name, text: &str| {
            if let Ok(value) = HeaderValue::from_str(text) {
                headers.insert(name, value);
            }
        };
        insert("webhook-id", &id);
        insert("webhook-timestamp", &timestamp.to_string());
        if !signatures.is_empty() {
            insert("webhook-signature", &signatures.join(" "));
        }
        insert_origin(&mut headers, endpoint);
        let mut response = self.begin(Method::POST, endpoint, &headers, &body).await?;
        let status = response.status();
        let retry_after = response.headers().get(header::RETRY_AFTER);
        let retry_after = retry_after.and_then(|text| text.to_str().ok()).map(str::to_owned);
        let is_json = is_json(response.headers());
        let mut kept = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            let room = bytes_max - kept.len();
            kept.extend_from_slice(chunk.get(..room.min(chunk.len())).unwrap_or_default());
            // Dropping the rest closes the connection.
            if kept.len() == bytes_max {
                break;
            }
        }
        let is_whole = kept.len() < bytes_max;
        // An endpoint that shows the headers that it got must not show a secret to whoever reads the queue.
        let kept = endpoint.hide(String::from_utf8_lossy(&kept).into_owned());
        let text = format!("{status}: {}", excerpt(kept.as_bytes()));
        let text = text.trim_end_matches([':', ' ']).to_owned();
        let json = match (is_json, is_whole) {
            (true, true) => Body::Json(kept.into_bytes()),
            (true, false) => Body::LongJson,
            (false, _) => Body::Other,
        };
        Ok(Answer::Status { status: status.as_u16(), text, retry_after, json })
    }

    /// Sends a request and waits for the head of its answer. An endpoint may close a kept connection at the moment at which a request arrives.
    /// Such a request is sent once more, on a new connection.
    async fn begin(
        &self,
        method: Method,
        endpoint: &Endpoint,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> reqwest::Result<Response> {
        let request = |client: &Client| {
            let request = client.request(method.clone(), endpoint.url.clone());
            request.headers(headers.clone()).body(body.clone()).send()
        };
        let sent = CONNECTS.scope(Cell::new(false), async {
            let sent = request(&self.client).await;
            (sent, CONNECTS.with(Cell::get))
        });
        match sent.await {
            (Err(_), false) => request(&self.fresh).await,
            (sent, _) => sent,
        }
    }
}

/// Requests name the origin that has asked for the permission.
fn insert_origin(headers: &mut HeaderMap, endpoint: &Endpoint) {
    if let Some(Ok(origin)) = endpoint.origin.as_deref().map(HeaderValue::from_str) {
        headers.insert("webhook-request-origin", origin);
    }
}

/// Reads the answer to a validation request. Returns the least time between two requests.
fn permission(headers: &HeaderMap, origin: &str) -> Result<Duration, String> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let allowed = text("webhook-allowed-origin");
    if !allowed.is_some_and(|allowed| allowed == "*" || allowed.eq_ignore_ascii_case(origin)) {
        return Err(format!("its webhook-allowed-origin is not {origin:?} or \"*\""));
    }
    match text("webhook-allowed-rate") {
        None | Some("*") => Ok(Duration::ZERO),
        Some(rate) => {
            let per_minute: Option<u32> = rate.parse().ok().filter(|rate| *rate > 0);
            let per_minute =
                per_minute.ok_or("its webhook-allowed-rate is no number of requests per minute")?;
            Ok(Duration::from_mins(1) / per_minute)
        }
    }
}

/// The start of a text of the endpoint, for errors, logs and terminals.
pub(super) fn excerpt(text: &[u8]) -> String {
    let start = text.get(..EXCERPT_BYTES.min(text.len())).unwrap_or_default();
    String::from_utf8_lossy(start).replace(char::is_control, " ").trim().to_owned()
}

/// Whether the body of an answer is JSON.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || kind.starts_with("application/") && kind.ends_with("+json")
}

impl fmt::Debug for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guarded")
    }
}

#[cfg(test)]
mod tests;
