//! The listeners and what a connection may cost: the section `[server]`.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::duration::DurationText;

/// The section `[server]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Where the API listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where `/metrics` is served; `None` (written as an empty text) is on the API's listener.
    #[serde(with = "address_or_empty")]
    pub metrics_listen: Option<SocketAddr>,
    /// Names that a request's `Host` may be, besides localhost and IP addresses.
    pub allowed_hosts: Vec<String>,
    /// How long a server that was told to stop says so at `/readyz` before it takes no more connections.
    pub drain_delay: DurationText,
    /// Longest time between the first signal and the cut.
    pub shutdown_timeout: DurationText,
    /// Longest time that a request's head may take to arrive.
    pub header_read_timeout: DurationText,
    /// Longest pause between two pieces of a request's body.
    pub body_read_timeout: DurationText,
    /// How long a connection without a request is kept.
    pub idle_timeout: DurationText,
    /// Longest request head, in bytes.
    pub max_header_bytes: usize,
    /// Longest request body, in bytes, unless it is NDJSON that streams.
    pub max_body_bytes: usize,
    /// Longest time from a request's head to its answer, besides the `wait` that it asks for.
    pub request_timeout: DurationText,
    /// Longest `wait` of a call.
    pub max_wait: DurationText,
    /// Most requests that look at something, answered at a time.
    pub max_reads_in_flight: usize,
    /// Most requests that change something, answered at a time.
    pub max_writes_in_flight: usize,
    /// Most lists, which are the requests that replace or seed, taken at a time.
    pub max_lists_in_flight: usize,
    /// Most requests that wait at a time.
    pub max_waits_in_flight: usize,
    /// Most bytes of bodies that are in memory at a time.
    pub max_body_bytes_in_flight: usize,
    /// Most connections open at a time.
    pub max_connections: usize,
    /// The file of the certificate, with those that it is signed by; `None` is without TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_cert: Option<PathBuf>,
    /// The file of the certificate's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<PathBuf>,
    /// The file of the certificates that a caller's own must be signed by; `None` asks for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_client_ca: Option<PathBuf>,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7070)),
            metrics_listen: Some(SocketAddr::from(([127, 0, 0, 1], 7071))),
            allowed_hosts: Vec::new(),
            drain_delay: DurationText::from_secs(0),
            shutdown_timeout: DurationText::from_secs(30),
            header_read_timeout: DurationText::from_secs(10),
            body_read_timeout: DurationText::from_secs(30),
            idle_timeout: DurationText::from_secs(75),
            max_header_bytes: 16_384,
            max_body_bytes: 64 << 20,
            request_timeout: DurationText::from_secs(60),
            max_wait: DurationText::from_secs(55),
            max_reads_in_flight: 512,
            max_writes_in_flight: 512,
            max_lists_in_flight: 64,
            max_waits_in_flight: 20_000,
            max_body_bytes_in_flight: 4 << 30,
            max_connections: 20_000,
            tls_cert: None,
            tls_key: None,
            tls_client_ca: None,
        }
    }
}

/// An address as text, none as the empty one.
mod address_or_empty {
    use std::net::SocketAddr;

    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    #[expect(clippy::ref_option, reason = "the signature is serde's")]
    pub(super) fn serialize<S: Serializer>(
        address: &Option<SocketAddr>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match address {
            None => serializer.serialize_str(""),
            Some(address) => serializer.collect_str(address),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<SocketAddr>, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(D::Error::custom) }
    }
}
