//! Sends one signed request and judges nothing: the answer is a status with the beginning of its body, or none.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue};
use bytes::Bytes;
use deltaq_runtime::causes::with_causes;
use futures_util::future::BoxFuture;
use ipnet::IpNet;
use reqwest::Client;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy as Redirects;

use super::address::is_permitted;
use super::policy::{Endpoint, Policy};

/// How many bytes of an answer are read at most.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// How many bytes of an answer are kept, for the error of the key.
const EXCERPT_BYTES: usize = 500;
/// How long a connection may be idle. Some servers close one after 5 s, and a request may not meet that.
const IDLE: Duration = Duration::from_secs(4);

/// Sends requests.
#[derive(Clone, Debug)]
pub struct Sender {
    client: Client,
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
    },
    /// No answer, or not a whole one.
    None {
        /// Why.
        why: String,
    },
}

type Found = BoxFuture<'static, io::Result<Vec<SocketAddr>>>;
/// Finds the addresses of a name.
type Lookup = Arc<dyn Fn(String) -> Found + Send + Sync>;

/// Finds the addresses of a name that a request may go to. Each connection asks anew, so a name whose addresses change gains nothing.
struct Guarded {
    lookup: Lookup,
    networks: Arc<[IpNet]>,
}

/// A name has no address that a request may go to.
#[derive(Debug, thiserror::Error)]
#[error("its address is not global, and not in push.allow_networks")]
struct Forbidden;

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(permitted((self.lookup)(name.as_str().to_owned()), self.networks.clone()))
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

impl Sender {
    /// A sender for the destinations of this policy.
    ///
    /// # Errors
    /// The certificates of the system can't be used.
    pub fn new(policy: &Policy) -> reqwest::Result<Self> {
        let lookup = |name: String| -> Found {
            Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.collect()) })
        };
        Self::looking_up(policy, Arc::new(lookup))
    }

    fn looking_up(policy: &Policy, lookup: Lookup) -> reqwest::Result<Self> {
        // An error means that this process has already installed the provider.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let mut client = Client::builder()
            .http1_only()
            .redirect(Redirects::none())
            .no_proxy()
            .pool_idle_timeout(IDLE)
            .tcp_nodelay(true)
            .user_agent(concat!("deltaq/", env!("CARGO_PKG_VERSION")))
            .dns_resolver(Guarded { lookup, networks: policy.networks.as_slice().into() });
        if !policy.has_encrypted() {
            // A machine without certificates of authorities can use plain HTTP.
            client = client.tls_certs_only([]);
        }
        Ok(Self { client: client.build()? })
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

    async fn exchange(&self, endpoint: &Endpoint, call: Call) -> reqwest::Result<Answer> {
        let Call { id, timestamp, mut headers, body } = call;
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
        let request = self.client.post(endpoint.url.clone()).headers(headers).body(body);
        let mut response = request.send().await?;
        let status = response.status();
        let (mut read, mut excerpt) = (0, Vec::new());
        while let Some(chunk) = response.chunk().await? {
            let room = EXCERPT_BYTES.saturating_sub(excerpt.len());
            excerpt.extend_from_slice(chunk.get(..room.min(chunk.len())).unwrap_or_default());
            read += chunk.len();
            // Dropping the rest closes the connection.
            if read >= ANSWER_BYTES_MAX {
                break;
            }
        }
        // The text is for logs and terminals, too.
        let body = String::from_utf8_lossy(&excerpt).replace(char::is_control, " ");
        let text = format!("{status}: {}", body.trim());
        Ok(Answer::Status { status: status.as_u16(), text: text.trim_end_matches([':', ' ']).to_owned() })
    }
}

impl fmt::Debug for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guarded")
    }
}

#[cfg(test)]
mod tests;
