//! The backend of a server: its own journal, or its share of a database.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use deltaq_journal::postgres::{Join, Member, Membership};
use deltaq_journal::recovery::Contents;
use deltaq_journal::writer;
use deltaq_runtime::clock::Clock;
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::metrics::Metrics;
use deltaq_service::{Grants, Memory, Partitions, Pusher, Registry};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::cluster::{self, CLAIMS_MAX, Cluster, Ingredients, Replaced};
use super::journal::{self, Opened, Place};
use super::{Error, defaults, limits};
use crate::config::Settings;
use crate::http::{self, StoreInfo};

/// How often a draining server checks whether all leases are settled.
const DRAIN_CHECK_PERIOD: Duration = Duration::from_millis(20);

/// The parts of the server that the backend needs.
pub(super) struct Parts<'a> {
    pub(super) settings: &'a Settings,
    pub(super) clock: &'a Clock,
    pub(super) metrics: &'a Metrics,
    pub(super) grants: Arc<dyn Grants>,
    pub(super) pusher: Arc<dyn Pusher>,
    pub(super) shutdown: &'a Shutdown,
    /// The port of the API.
    pub(super) port: u16,
    /// This server as one of several nodes; `None` for a standalone server.
    pub(super) node: Option<Arc<http::Node>>,
}

/// The backend that stores the queues.
#[derive(Debug)]
pub(super) enum Backend {
    Alone(Box<Alone>),
    Node(Box<Node>),
}

/// A standalone server with its own journal, or without a journal.
#[derive(Debug)]
pub(super) struct Alone {
    registry: Arc<Registry>,
    /// The journal's writer.
    pub(super) writing: Option<JoinHandle<writer::Ended>>,
    /// The queues to load, and whether the store was not closed cleanly.
    contents: Option<Contents>,
    place: Option<Place>,
}

/// A node of several that share a database.
#[derive(Debug)]
pub(super) struct Node {
    /// The cluster task; `None` once the node is started.
    cluster: Option<Cluster>,
    task: Option<JoinHandle<Result<(), Replaced>>>,
    /// Cancelled when no connections are left.
    closed: CancellationToken,
}

/// A backend, and the parts of it that the API needs.
pub(super) struct Ready {
    pub(super) backend: Backend,
    pub(super) partitions: Arc<Partitions>,
    pub(super) store: StoreInfo,
    /// `None` without a journal.
    pub(super) place: Option<Place>,
}

/// Opens the store that the settings name. The queues are not loaded yet.
pub(super) async fn open(parts: &Parts<'_>) -> Result<Ready, Error> {
    match (&parts.settings.cluster.node_name, &parts.node) {
        (Some(name), Some(node)) => join(parts, name.clone(), node.clone()).await,
        _ => alone(parts).await,
    }
}

async fn alone(parts: &Parts<'_>) -> Result<Ready, Error> {
    let Parts { settings, clock, metrics, grants, pusher, shutdown, .. } = parts;
    let storage = &settings.storage;
    let opened = journal::open(journal::Parts { storage, clock, metrics, shutdown }).await?;
    let Opened { journal, writing, contents, place, store } = opened;
    let (clock, metrics) = ((*clock).clone(), (*metrics).clone());
    let (limits, defaults) = (limits(settings), defaults(settings)?);
    let registry = Registry::new(limits, defaults, clock, journal, (*shutdown).clone(), metrics)
        .with_tokens(grants.clone(), settings.queues.max_followers_per_token)
        .with_memory(Arc::new(Memory::new(settings.queues.max_held_bytes)))
        .with_pusher(pusher.clone());
    let registry = Arc::new(registry);
    let partitions = Arc::new(Partitions::single(registry.clone()));
    partitions.metrics().of_node(None, partitions.count()).owns(partitions.count());
    let contents = Some(contents);
    let backend = Backend::Alone(Box::new(Alone { registry, writing, contents, place: place.clone() }));
    Ok(Ready { backend, partitions, store, place })
}

async fn join(parts: &Parts<'_>, name: String, node: Arc<http::Node>) -> Result<Ready, Error> {
    let Parts { settings, clock, metrics, grants, pusher, shutdown, port, .. } = parts;
    let (database, place) = journal::database(&settings.storage)?;
    let url = settings.cluster.advertise.clone().unwrap_or_default();
    let url = url.strip_suffix(":0").map_or(url.clone(), |host| format!("{host}:{port}"));
    let secrets = |member: &Member| node.salted_secrets(&cluster::salt(member));
    let join = Join { name, url, partitions: settings.cluster.partitions, secrets: &secrets };
    let joined = Membership::join(database.clone(), join).await;
    let failed = |source| Error::Store { place: place.clone(), source };
    let (membership, protection) = joined.map_err(failed)?;
    let store = journal::in_postgres(&protection, &place);
    let count = usize::from(settings.cluster.partitions);
    let (limits, defaults) = (limits(settings), defaults(settings)?);
    let partitions = Partitions::new(count, limits.clone(), Arc::new(defaults.clone()), (*metrics).clone());
    let partitions = Arc::new(partitions);
    let ingredients = Ingredients {
        settings: database,
        node,
        limits,
        defaults,
        clock: (*clock).clone(),
        metrics: (*metrics).clone(),
        grants: grants.clone(),
        pusher: pusher.clone(),
        max_followers_per_token: settings.queues.max_followers_per_token,
        memory: Arc::new(Memory::new(settings.queues.max_held_bytes)),
        options: journal::writer_options(&settings.storage),
        claims: Semaphore::new(CLAIMS_MAX),
        shutdown: (*shutdown).clone(),
        issued: AtomicU64::new(0),
    };
    let closed = CancellationToken::new();
    let cluster = Some(Cluster::new(membership, partitions.clone(), ingredients, closed.clone()));
    let backend = Backend::Node(Box::new(Node { cluster, task: None, closed }));
    Ok(Ready { backend, partitions, store, place: Some(place) })
}

/// The error for a writer that has ended in this way; `None` means a panic.
fn error_of(ended: Option<writer::Ended>) -> Option<Error> {
    match ended {
        Some(writer::Ended::Closed) => None,
        Some(writer::Ended::Fenced) => Some(Error::TakenOver),
        Some(writer::Ended::RolledBack) => Some(Error::RolledBack),
        None => Some(Error::Writer),
    }
}

impl Backend {
    /// Loads the queues and starts their tasks. For a node, these are the queues of the partitions that it can claim
    /// immediately.
    pub(super) async fn load(&mut self, shutdown: &Shutdown) -> Result<(), Error> {
        match self {
            Self::Alone(alone) => {
                if let Some(contents) = alone.contents.take() {
                    let loaded = alone.registry.recover(contents).await;
                    // Without a journal there is nothing to load.
                    if let (Err(source), Some(place)) = (loaded, alone.place.clone()) {
                        return Err(Error::Recovery { place, source });
                    }
                }
                alone.registry.start_tasks();
            }
            Self::Node(node) => {
                let (started, has_started) = oneshot::channel();
                if let Some(cluster) = node.cluster.take() {
                    node.task = Some(shutdown.spawn_last("node", cluster.run(started)));
                }
                // If the task ends, it also ends this wait.
                let _ended = has_started.await;
            }
        }
        Ok(())
    }

    /// Aborts a start before all queues are loaded.
    pub(super) async fn abandon(self) {
        match self {
            Self::Alone(alone) => {
                if let Some(writing) = alone.writing {
                    writer::abandon(writing).await;
                }
            }
            Self::Node(node) => {
                if let Some(task) = node.task {
                    node.closed.cancel();
                    let _ended = task.await;
                }
            }
        }
    }

    /// Waits until nothing can be committed any more, because the journal's writer or the node has ended. Before the
    /// shutdown, this happens only after a panic or if another process has taken over. Never returns without a
    /// journal.
    pub(super) async fn ended(&mut self) -> Error {
        match self {
            Self::Alone(alone) => {
                let Some(writing) = &mut alone.writing else { return std::future::pending().await };
                let ended = writing.await;
                alone.writing = None;
                error_of(ended.ok()).unwrap_or(Error::TakenOver)
            }
            Self::Node(node) => {
                let Some(task) = &mut node.task else { return std::future::pending().await };
                let ended = task.await;
                node.task = None;
                if ended.is_ok() { Error::TakenOver } else { Error::Writer }
            }
        }
    }

    /// Without a journal, leases end with the process, so workers get time to settle them; otherwise the work would
    /// be done twice. With a journal, leases survive the process and get their full length again, so there is no need
    /// to wait.
    pub(super) async fn drain(&self, shutdown: &Shutdown) {
        let Self::Alone(alone) = self else { return };
        while alone.registry.journal().is_none()
            && alone.registry.leased() > 0
            && !shutdown.cut().is_cancelled()
        {
            tokio::select! {
                () = tokio::time::sleep(DRAIN_CHECK_PERIOD) => {}
                () = shutdown.cut().cancelled() => {}
            }
        }
    }

    /// Writes the last commits and releases the partitions of a node. Called when no connections are left.
    pub(super) async fn close(self, shutdown: &Shutdown) -> Result<(), Error> {
        let stalled = async {
            shutdown.cut_and_grace().await;
            tracing::error!(
                "the store did not complete the last writes in time; the next server that loads the queues replays the journal"
            );
        };
        match self {
            Self::Alone(alone) => {
                alone.registry.close();
                let Some(writing) = alone.writing else { return Ok(()) };
                tokio::select! {
                    biased;
                    done = writing => {
                        if done.is_err() {
                            tracing::error!("the journal's writer panicked before the last commit");
                        }
                        return error_of(done.ok()).map_or(Ok(()), Err);
                    }
                    () = stalled => {}
                }
            }
            Self::Node(node) => {
                node.closed.cancel();
                let Some(task) = node.task else { return Ok(()) };
                tokio::select! {
                    biased;
                    done = task => match done {
                        Ok(Ok(())) => {}
                        Ok(Err(Replaced)) => return Err(Error::TakenOver),
                        Err(_) => return Err(Error::Writer),
                    },
                    () = stalled => {}
                }
            }
        }
        Ok(())
    }
}
