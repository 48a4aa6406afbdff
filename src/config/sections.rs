//! The sections of the settings except `[queue_defaults]` and `[access]`: fields and ranges.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use deltaq_types::duration::DurationText;
use ipnet::IpNet;
use serde::Deserialize;

use super::range::{self, DAY, HOUR, MS_10};

/// The section `[server]`: listeners, timeouts, and the limits of connections and requests.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// The address of the API. Port 0 picks a free port.
    #[serde(deserialize_with = "range::address")]
    pub listen: SocketAddr,
    /// The address of `/metrics`; `None` (an empty text) serves it on the API's listener.
    #[serde(deserialize_with = "range::optional_address")]
    pub metrics_listen: Option<SocketAddr>,
    /// The address of the API over HTTP/2; `None` (an empty text) serves no HTTP/2.
    #[serde(deserialize_with = "range::optional_address")]
    pub http2_listen: Option<SocketAddr>,
    /// The URL of the server as its clients know it, without a trailing slash. `None` derives it from each request.
    #[serde(default, deserialize_with = "range::public_url")]
    pub public_url: Option<String>,
    /// Names that are allowed in `Host` on a server without tokens, in addition to localhost and IP addresses. `*`
    /// and `*.domain` are patterns.
    #[serde(deserialize_with = "range::hosts")]
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may call the server from a browser.
    #[serde(deserialize_with = "range::origins")]
    pub allowed_origins: Vec<String>,
    /// The origins of senders of CloudEvents whose validation requests get a permission; `*` for all.
    #[serde(deserialize_with = "range::event_origins")]
    pub event_origins: Vec<String>,
    /// Networks of proxies that are trusted to report the address of a client.
    #[serde(deserialize_with = "range::networks")]
    pub trusted_proxies: Vec<IpNet>,
    /// Whether connections of trusted proxies begin with a header of the PROXY protocol.
    pub proxy_protocol: bool,
    /// After the first signal, `/readyz` reports the shutdown for this long while connections are still accepted.
    #[serde(deserialize_with = "range::span::<0, HOUR, _>")]
    pub drain_delay: DurationText,
    /// Maximum time from the first signal until requests are cut off.
    #[serde(deserialize_with = "range::span::<0, HOUR, _>")]
    pub shutdown_timeout: DurationText,
    /// Maximum time for the head of a request to arrive.
    #[serde(deserialize_with = "range::span::<MS_10, HOUR, _>")]
    pub header_read_timeout: DurationText,
    /// Maximum pause between two pieces of a request body.
    #[serde(deserialize_with = "range::span::<MS_10, HOUR, _>")]
    pub body_read_timeout: DurationText,
    /// Minimum rate of a request body in bytes per second, while the server waits for the client. 0 means no limit.
    #[serde(deserialize_with = "range::whole::<0, { 1 << 30 }, _, _>")]
    pub min_body_bytes_per_second: u64,
    /// How long the server waits for a body before the minimum rate applies.
    #[serde(deserialize_with = "range::span::<MS_10, HOUR, _>")]
    pub min_body_rate_grace: DurationText,
    /// Maximum time that a connection without a request is kept open.
    #[serde(deserialize_with = "range::span::<MS_10, DAY, _>")]
    pub idle_timeout: DurationText,
    /// Maximum size of a request head in bytes.
    #[serde(deserialize_with = "range::whole::<8_192, { 1 << 20 }, _, _>")]
    pub max_header_bytes: usize,
    /// Maximum size of a request body in bytes, except for NDJSON, which is streamed.
    #[serde(deserialize_with = "range::whole::<1_024, { 16 << 30 }, _, _>")]
    pub max_body_bytes: usize,
    /// Maximum time from a request's head to its response, not including the `wait` of the request.
    #[serde(deserialize_with = "range::span::<MS_10, DAY, _>")]
    pub request_timeout: DurationText,
    /// Maximum `wait` of a request.
    #[serde(deserialize_with = "range::span::<0, HOUR, _>")]
    pub max_wait: DurationText,
    /// Maximum number of read requests in flight.
    #[serde(deserialize_with = "range::whole::<2, 1_000_000, _, _>")]
    pub max_reads_in_flight: usize,
    /// Maximum number of write requests in flight.
    #[serde(deserialize_with = "range::whole::<2, 1_000_000, _, _>")]
    pub max_writes_in_flight: usize,
    /// Maximum number of replace and seed requests in flight.
    #[serde(deserialize_with = "range::whole::<2, 1_000_000, _, _>")]
    pub max_lists_in_flight: usize,
    /// Maximum number of waiting requests in flight.
    #[serde(deserialize_with = "range::whole::<2, 1_000_000, _, _>")]
    pub max_waits_in_flight: usize,
    /// Maximum number of watches in flight.
    #[serde(deserialize_with = "range::whole::<2, 1_000_000, _, _>")]
    pub max_watches_in_flight: usize,
    /// Maximum size of all request bodies in memory, in bytes.
    #[serde(deserialize_with = "range::whole::<1_024, { 1 << 40 }, _, _>")]
    pub max_body_bytes_in_flight: usize,
    /// Maximum size of all large replies in memory that clients have not read, in bytes.
    #[serde(deserialize_with = "range::whole::<{ 1 << 20 }, { 1 << 40 }, _, _>")]
    pub max_reply_bytes_in_flight: usize,
    /// Maximum number of open connections.
    #[serde(deserialize_with = "range::whole::<1, 1_000_000, _, _>")]
    pub max_connections: usize,
    /// The file with the certificate chain; `None` turns TLS off.
    #[serde(default, deserialize_with = "range::path")]
    pub tls_cert: Option<PathBuf>,
    /// The file with the certificate's private key.
    #[serde(default, deserialize_with = "range::path")]
    pub tls_key: Option<PathBuf>,
    /// The file with the certificate authorities for client certificates; `None` does not request client
    /// certificates.
    #[serde(default, deserialize_with = "range::path")]
    pub tls_client_ca: Option<PathBuf>,
}

/// The section `[queues]`: limits across all queues.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queues {
    /// Whether the first produce call creates its queue.
    pub auto_create: bool,
    /// Maximum number of queues.
    #[serde(deserialize_with = "range::whole::<1, 1_000_000, _, _>")]
    pub max_queues: usize,
    /// Maximum size of all queues in memory, in bytes.
    #[serde(deserialize_with = "range::whole::<{ 1 << 20 }, { 1 << 50 }, _, _>")]
    pub max_held_bytes: usize,
    /// Maximum number of followers that one token may set up.
    #[serde(deserialize_with = "range::whole::<0, 1_000_000, _, _>")]
    pub max_followers_per_token: usize,
    /// Maximum number of waiting pops of one queue.
    #[serde(deserialize_with = "range::whole::<1, 10_000_000, _, _>")]
    pub max_waiters: usize,
    /// Maximum number of objects in one produce request other than replace and seed.
    #[serde(deserialize_with = "range::whole::<1, 10_000_000, _, _>")]
    pub max_batch: usize,
    /// Maximum number of objects in one replace or seed.
    #[serde(deserialize_with = "range::whole::<1, 1_000_000_000, _, _>")]
    pub max_replace_objects: usize,
    /// Maximum size of the objects in the response to a pop, in bytes. One key always fits.
    #[serde(deserialize_with = "range::whole::<1_024, { 1 << 30 }, _, _>")]
    pub max_reply_bytes: usize,
}

/// The section `[watch]`: the change feeds of the queues.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    /// How long the change feed of a view is kept without readers.
    #[serde(deserialize_with = "range::span::<0, DAY, _>")]
    pub idle: DurationText,
    /// Maximum number of deleted keys of a view that are remembered.
    #[serde(deserialize_with = "range::whole::<0, 100_000_000, _, _>")]
    pub tombstones: usize,
    /// Maximum size of the deleted keys and their last objects, in bytes.
    #[serde(deserialize_with = "range::whole::<0, { 1 << 40 }, _, _>")]
    pub tombstone_bytes: usize,
    /// Maximum time for which deleted keys are remembered in memory.
    #[serde(deserialize_with = "range::span::<0, DAY, _>")]
    pub tombstone_age: DurationText,
}

/// The section `[storage]`: the journal.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Storage {
    /// The directory of the journal.
    #[serde(deserialize_with = "range::path")]
    pub data_dir: PathBuf,
    /// The URL of the PostgreSQL database of the journal; `None` uses `data_dir`.
    #[serde(default, deserialize_with = "range::database_url")]
    pub store: Option<String>,
    /// Whether the server keeps no journal, so that queues end with the process.
    pub in_memory: bool,
    /// How durable a change in `data_dir` is when its response is sent.
    pub sync: Sync,
    /// Maximum size of the changes that wait to be committed, in bytes. Above it, changes are refused.
    #[serde(deserialize_with = "range::whole::<1_024, { 1 << 40 }, _, _>")]
    pub max_uncommitted_bytes: usize,
    /// Free bytes of the file system of `data_dir` below which changes are refused; 0 for none.
    #[serde(deserialize_with = "range::whole::<0, { 1 << 50 }, _, _>")]
    pub min_free_bytes: u64,
}

/// How durable a change is when its response is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sync {
    /// The disk has stored it. It survives a power loss.
    Full,
    /// The operating system has it. It survives the process, but a power loss may lose the most recent changes.
    Normal,
}

/// The section `[push]`: what queues may push, and to where.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Push {
    /// The destinations; empty if queues may not push.
    #[serde(deserialize_with = "range::destinations")]
    pub allow: Vec<String>,
    /// The networks of addresses that are not global and still permitted.
    #[serde(deserialize_with = "range::networks")]
    pub allow_networks: Vec<IpNet>,
    /// The proxy that all requests go through. `None` connects to the endpoints themselves.
    #[serde(default, deserialize_with = "range::proxy")]
    pub proxy: Option<String>,
    /// The secrets that sign requests, by name.
    #[serde(default)]
    pub secrets: BTreeMap<String, SecretFile>,
}

/// The section `[hooks]`: webhooks that queues take.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hooks {
    /// Maximum size of a delivery in bytes.
    #[serde(deserialize_with = "range::whole::<1_024, { 25 << 20 }, _, _>")]
    pub max_body_bytes: usize,
    /// Maximum number of deliveries in flight. One address may have a sixteenth of them.
    #[serde(deserialize_with = "range::whole::<16, 1_000_000, _, _>")]
    pub max_in_flight: usize,
    /// Maximum number of deliveries per second from one address.
    #[serde(deserialize_with = "range::whole::<1, 1_000_000, _, _>")]
    pub max_per_second: u32,
    /// The secrets that sign deliveries, by name.
    #[serde(default)]
    pub secrets: BTreeMap<String, SecretFile>,
}

/// A secret that signs requests or deliveries, or is the value of a header.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretFile {
    /// The file with the secret.
    #[serde(deserialize_with = "range::path")]
    pub file: PathBuf,
    /// Names of queues that may use it, in which `*` matches any text.
    pub queues: Vec<String>,
    /// Only `push`: whether these queues may send it in a header.
    #[serde(default)]
    pub headers: bool,
}

/// The section `[audit]`: the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Audit {
    /// Which requests are recorded.
    pub calls: AuditCalls,
    /// The file; `None` writes to the log.
    #[serde(default, deserialize_with = "range::path")]
    pub file: Option<PathBuf>,
}

/// Which requests the audit log records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditCalls {
    /// Requests that need `admin`, and refused requests.
    Admin,
    /// All requests except health checks.
    All,
}

/// The section `[metrics]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// Whether metrics are collected and served.
    pub enabled: bool,
    /// Maximum number of queues that have their own time series.
    #[serde(deserialize_with = "range::whole::<0, 1_000_000, _, _>")]
    pub max_queues: usize,
}

/// The section `[console]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Console {
    /// Whether `/console/` is served.
    pub enabled: bool,
    /// A dashboard that the pages link to; `{queue}` stands for the name of a queue.
    #[serde(default, deserialize_with = "range::link")]
    pub grafana_url: Option<String>,
    /// The folder of the documents that the pages link to, without a trailing slash.
    #[serde(default, deserialize_with = "range::public_url")]
    pub docs_url: Option<String>,
}

/// The section `[kubernetes]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kubernetes {
    /// Whether queues with the setting `kubernetes` are served as resources of the Kubernetes API.
    pub enabled: bool,
}

/// The section `[log]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// The format of a line.
    pub format: LogFormat,
    /// The least severe level that is logged.
    pub level: LogLevel,
}

/// The format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// `human` on a terminal, `json` elsewhere.
    Auto,
    /// Text for people.
    Human,
    /// One JSON object per line.
    Json,
}

/// The least severe level that is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// Failures that need attention.
    Error,
    /// Conditions that may become failures.
    Warn,
    /// Events that operators follow.
    Info,
    /// Events that developers follow.
    Debug,
    /// Everything.
    Trace,
}

/// The section `[trace]`: spans for a tracing system.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// The URL of a collector's OTLP endpoint (HTTP, protobuf). `None` sends no spans.
    #[serde(default, deserialize_with = "range::http_url")]
    pub otlp_endpoint: Option<String>,
    /// The sampled fraction of the traces that begin in this server.
    #[serde(deserialize_with = "range::number::<1, _>")]
    pub sample: f64,
}

impl LogLevel {
    /// The name in the file, the environment and flags. It is also a filter directive of `tracing`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}
