//! The state that the handlers share.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use deltaq_runtime::clock::Clock;
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::{Partitions, author, on_behalf_of};
use deltaq_types::{Durability, InfoLinks, StoreKind};
use tokio_util::task::AbortOnDropHandle;

use super::blocking::joined;
use super::gate::Gate;
use super::gate::body_rate::BodyRateLimit;
use super::gate::origin::host_name;
use super::node::Node;
use super::problem::{Code, Problem};
use super::request_metrics::RequestMetrics;
use crate::audit::Audit;
use crate::config::Settings;
use crate::push::{Connector, Policy};
use crate::secrets::Secrets;
use crate::spans::Spans;
use crate::suppression::Suppression;

/// The state that the handlers share. It is one pointer, because each handler gets a clone.
///
/// Each connection has its own state (`for_connection`). A request changes the reference count about ten times, and a
/// count shared by all connections would move between the processors each time.
#[derive(Clone)]
pub struct AppState(Arc<Own>);

impl fmt::Debug for AppState {
    /// Prints no content: the debug text of a request context includes the state.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AppState")
    }
}

/// The state of one connection.
#[derive(Debug)]
struct Own {
    /// The prefix of the ids that the server generates for requests.
    id_prefix: String,
    /// The number of ids generated so far.
    ids: AtomicU64,
    /// Whether the listener checks `Host` while there are no tokens.
    checks_hosts: bool,
    parts: Arc<Parts>,
}

impl AppState {
    /// The state for a connection.
    pub(super) fn for_connection(&self) -> Self {
        let prefix = format!("{}-", self.request_id());
        Self::new(prefix, self.0.checks_hosts, Arc::clone(&self.0.parts))
    }

    /// The state for the listener of the metrics, which clients may reach by any name.
    #[must_use]
    pub(super) fn without_host_check(&self) -> Self {
        Self::new(format!("{}-", self.request_id()), false, Arc::clone(&self.0.parts))
    }

    /// Whether `Host` must be a name of this server. With DNS rebinding, a web page can reach under the page's own name
    /// any server that its browser can reach. A server with tokens refuses such a page anyway.
    pub(super) fn checks_hosts(&self) -> bool {
        self.0.checks_hosts && self.gate.access.is_open()
    }

    /// Refuses a call that needs queues while there are none yet.
    pub(super) fn check_store(&self) -> Result<(), Problem> {
        if !self.store.is_awaited {
            return Ok(());
        }
        let detail = "the server waits for its database, which can't be reached or accepts no writes";
        Err(Problem::new(Code::Recovering, detail).hint("the log of the server has the cause"))
    }

    /// Generates an id for a request that has none.
    pub(super) fn request_id(&self) -> String {
        let number = self.0.ids.fetch_add(1, Ordering::Relaxed) + 1;
        [&*self.0.id_prefix, itoa::Buffer::new().format(number)].concat()
    }

    fn new(id_prefix: String, checks_hosts: bool, parts: Arc<Parts>) -> Self {
        Self(Arc::new(Own { id_prefix, ids: AtomicU64::new(0), checks_hosts, parts }))
    }

    /// Runs a task on the main runtime. A long computation on the thread of a connection would delay the other connections
    /// of the thread. The task ends when its caller is dropped.
    pub(super) async fn on_main_runtime<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> T {
        joined(AbortOnDropHandle::new(self.shutdown.spawn("request", on_behalf_of(author(), task)))).await
    }
}

impl From<Parts> for AppState {
    fn from(parts: Parts) -> Self {
        Self::new(format!("{:x}-", parts.started_us), true, Arc::new(parts))
    }
}

impl Deref for AppState {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0.parts
    }
}

/// The parts of an [`AppState`].
#[derive(Debug)]
pub struct Parts {
    /// All queues.
    pub partitions: Arc<Partitions>,
    /// The metrics of requests.
    pub request_metrics: RequestMetrics,
    /// The limits of the HTTP layer.
    pub limits: HttpLimits,
    /// Authorization and in-flight limits.
    pub gate: Arc<Gate>,
    /// The audit log.
    pub audit: Audit,
    /// The lines of the log about refused requests.
    pub refused_lines: Arc<Suppression>,
    /// What queues may push.
    pub push: Arc<Policy>,
    /// The secrets of deliveries.
    pub hook_secrets: Arc<Secrets>,
    /// Opens the connections of tests of endpoints.
    pub connector: Connector,
    /// The spans of requests.
    pub spans: Spans,
    /// The clock of the process.
    pub clock: Clock,
    /// The shutdown of the process.
    pub shutdown: Shutdown,
    /// When the process started, in microseconds since the Unix epoch.
    pub started_us: u64,
    /// Where changes are stored.
    pub store: StoreInfo,
    /// This server as one of several nodes; `None` for a standalone server.
    pub node: Option<Arc<Node>>,
    /// Whether the API listener also serves `/metrics`.
    pub serves_metrics: bool,
    /// Whether the server serves the console.
    pub serves_console: bool,
    /// The pages that the console links to.
    pub links: Arc<InfoLinks>,
    /// Whether the server serves the Kubernetes API.
    pub serves_kubernetes: bool,
}

/// Where changes are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreInfo {
    /// The kind.
    pub kind: StoreKind,
    /// What an acknowledged change survives.
    pub durability: Durability,
    /// Whether a standby has a change before it is acknowledged; `None` if the store can't have a standby.
    pub is_replicated: Option<bool>,
    /// Whether the server waits for the store and has no queues yet.
    pub is_awaited: bool,
}

impl StoreInfo {
    /// A server without a journal.
    pub const MEMORY: Self = Self {
        kind: StoreKind::Memory,
        durability: Durability::Memory,
        is_replicated: None,
        is_awaited: false,
    };
    /// A server that waits for its database. What a change will survive is not known yet.
    pub const AWAITED: Self = Self {
        kind: StoreKind::Postgres,
        durability: Durability::Normal,
        is_replicated: None,
        is_awaited: true,
    };
}

/// The limits of the HTTP layer; each is a setting.
#[derive(Clone, Debug)]
pub struct HttpLimits {
    /// The URL of the server as its clients know it. `None` derives it from each request.
    pub public_url: Option<String>,
    /// Names that `Host` may have in addition to `localhost` and IP addresses: those of `server.allowed_hosts`, and the hosts
    /// of the URLs of this server.
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may call the server.
    pub allowed_origins: Vec<String>,
    /// The origins whose validation requests get a permission.
    pub event_origins: Vec<String>,
    /// Maximum pause between two pieces of a body.
    pub body_read_timeout: Duration,
    /// Minimum rate of a body.
    pub min_body_rate: BodyRateLimit,
    /// Maximum size of a body that is not a stream of objects, in bytes.
    pub max_body_bytes: usize,
    /// Maximum size of a delivery of a webhook, in bytes.
    pub max_delivery_bytes: usize,
    /// Maximum size of all bodies in memory, in bytes.
    pub max_body_bytes_in_flight: usize,
    /// Maximum size of all large replies in memory, in bytes.
    pub max_reply_bytes_in_flight: usize,
    /// Maximum size of the changes that wait to be committed, in bytes.
    pub max_uncommitted_bytes: usize,
    /// Maximum size of the content of all queues, in bytes.
    pub max_held_bytes: usize,
    /// The memory from which default limits were derived, in bytes.
    pub memory_bytes: Option<u64>,
    /// Maximum size of the head of a request, in bytes.
    pub max_header_bytes: usize,
    /// Maximum time from the head of a request to its response, not including its `wait`.
    pub request_timeout: Duration,
    /// Maximum `wait`.
    pub max_wait: Duration,
    /// Maximum number of objects in one produce call.
    pub max_batch: usize,
    /// Maximum number of objects in one Replace or seed.
    pub max_replace_objects: usize,
    /// Maximum size of the objects in one reply to a pop, in bytes.
    pub max_reply_bytes: usize,
}

impl HttpLimits {
    /// Creates the limits from the settings.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        let (server, queues) = (&settings.server, &settings.queues);
        Self {
            public_url: server.public_url.clone(),
            allowed_hosts: allowed_hosts(settings),
            allowed_origins: server.allowed_origins.clone(),
            event_origins: server.event_origins.clone(),
            body_read_timeout: server.body_read_timeout.get(),
            min_body_rate: BodyRateLimit {
                bytes_per_second: server.min_body_bytes_per_second,
                grace: server.min_body_rate_grace.get(),
            },
            max_delivery_bytes: settings.hooks.max_body_bytes,
            max_body_bytes: server.max_body_bytes,
            max_body_bytes_in_flight: server.max_body_bytes_in_flight,
            max_reply_bytes_in_flight: server.max_reply_bytes_in_flight,
            max_uncommitted_bytes: settings.storage.max_uncommitted_bytes,
            max_held_bytes: queues.max_held_bytes,
            memory_bytes: settings.memory_bytes,
            max_header_bytes: server.max_header_bytes,
            request_timeout: server.request_timeout.get(),
            max_wait: server.max_wait.get(),
            max_batch: queues.max_batch,
            max_replace_objects: queues.max_replace_objects,
            max_reply_bytes: queues.max_reply_bytes,
        }
    }
}

/// The allowed names, and the hosts of the URLs by which clients and other nodes know this server.
fn allowed_hosts(settings: &Settings) -> Vec<String> {
    let urls = settings.server.public_url.iter().chain(&settings.cluster.advertise);
    let authority = |url: &String| Some(url.split_once("://")?.1.split('/').next()?.to_owned());
    let own = urls.filter_map(authority).filter_map(|authority| Some(host_name(&authority)?.to_owned()));
    settings.server.allowed_hosts.iter().cloned().chain(own).collect()
}
