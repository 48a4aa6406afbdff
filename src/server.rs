//! The process: starts a server from its settings, runs it, and shuts it down.

mod auditing;
mod backend;
mod certificate;
mod cluster;
mod disk;
mod error;
mod face;
mod grants;
mod journal;
mod listeners;
mod pushing;
mod ready_file;
mod reload;
#[cfg(test)]
mod tests;
mod waiting;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::config::Config;
use deltaq_engine::feed::TombstoneLimits;
use deltaq_runtime::clock::Clock;
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::metrics::Metrics;
use deltaq_service::{Limits, Partitions, WatchLimits};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::auditing::Auditing;
use self::backend::{Backend, Ready};
pub use self::error::Error;
use self::face::Face;
use self::grants::CurrentGrants;
pub use self::journal::Place;
use self::listeners::Listeners;
pub use self::listeners::PassedSockets;
pub use self::ready_file::ReadyFile;
pub use self::reload::{Reloadable, Reloaded};

use crate::audit::Audit;
use crate::config::Settings;
use crate::http::connection::threads::Threads;
use crate::http::{Node, RequestMetrics, StoreInfo};
use crate::push::{Connector, Policy};
use crate::secrets::{Secrets, Use};
use crate::spans::Spans;
use crate::suppression::Suppression;
use crate::{supervisor, telemetry};

/// How often the buffers of the histograms are drained, lost log lines are counted, and the lines about refused requests
/// that were left out are reported.
const UPKEEP_PERIOD: Duration = Duration::from_secs(5);

/// A running server.
#[derive(Debug)]
pub struct Server {
    /// The address of the API.
    pub api: SocketAddr,
    /// The address of `/metrics`. It is the API's address unless the metrics have their own listener.
    pub metrics: SocketAddr,
    /// The address of the API over HTTP/2.
    pub http2: Option<SocketAddr>,
    backend: Backend,
    auditing: Auditing,
    spans: Spans,
    reloadable: Reloadable,
    drain_delay: Duration,
    shutdown: Shutdown,
    closing: DropGuard,
}

/// What queues may push, and the secrets of the deliveries that they take.
fn webhooks(settings: &Settings) -> Result<(Arc<Policy>, Arc<Secrets>), Error> {
    let policy = Policy::read(&settings.push).map_err(|source| Error::Push { source })?;
    let secrets = Secrets::read(Use::Hooks, &settings.hooks.secrets);
    let secrets = secrets.map_err(|source| Error::Hooks { source })?;
    Ok((Arc::new(policy), Arc::new(secrets)))
}

/// Reads the certificates and secrets that the settings name, as a start does.
///
/// # Errors
/// [`Error`] names the setting that is wrong.
pub fn check_files(settings: &Settings) -> Result<(), Error> {
    reload::read_tls(&settings.server)?;
    Node::of(&settings.cluster).map_err(|source| Error::Node { source })?;
    let (policy, _) = webhooks(settings)?;
    Connector::new(&policy).map_err(|source| Error::Connector { source })?;
    Ok(())
}

impl Server {
    /// Binds the listeners, loads the queues, and serves until the first stage of the shutdown. While the queues load,
    /// `/readyz` reports the progress.
    ///
    /// # Errors
    /// [`Error`] names the setting that is wrong.
    pub async fn start(settings: &Settings, shutdown: Shutdown) -> Result<Self, Error> {
        Self::start_on(settings, shutdown, PassedSockets::default()).await
    }

    /// Like [`start`](Self::start), but on sockets from the service manager.
    ///
    /// # Errors
    /// Same as [`start`](Self::start).
    pub async fn start_on(
        settings: &Settings,
        shutdown: Shutdown,
        sockets: PassedSockets,
    ) -> Result<Self, Error> {
        let clock = Clock::system();
        let metrics = metrics(settings)?;
        // From here on, SIGHUP does not end the process.
        let hangups = signal(SignalKind::hangup()).map_err(|source| Error::Signal { source })?;
        let listeners = Listeners::bind(settings, sockets).await?;
        let (reloadable, audit_writer) = Reloadable::read(settings, &shutdown).await?;
        listeners.check(settings.access.insecure || !reloadable.is_open())?;
        let (policy, hook_secrets) = webhooks(settings)?;
        let connector = Connector::new(&policy).map_err(|source| Error::Connector { source })?;
        let spans = Spans::new(&settings.trace).map_err(|source| Error::Spans { source })?;
        let threads = Threads::start().map_err(|source| Error::Thread { purpose: "connections", source })?;
        let unless_stopped = shutdown.draining().clone();
        let face = Face {
            settings,
            clock: &clock,
            shutdown: &shutdown,
            reloadable: &reloadable,
            spans: &spans,
            request_metrics: RequestMetrics::new(&metrics),
            refused_lines: Arc::default(),
            push: policy.clone(),
            hook_secrets,
            connector: connector.clone(),
            threads: Arc::new(threads),
            serves_metrics: settings.metrics.enabled && listeners.metrics.is_none(),
        };
        let port = listeners.api.address.port();
        let node = reloadable.node.clone();
        let grants = Arc::new(CurrentGrants { gate: reloadable.gate.clone(), clock: clock.clone() });
        let pusher = Arc::new(pushing::Pushing::new(policy, connector, clock.clone(), spans.clone()));
        let parts = backend::Parts {
            settings,
            clock: &clock,
            metrics: &metrics,
            grants,
            pusher,
            shutdown: &shutdown,
            port,
            node,
        };
        let opened = unless_stopped.run_until_cancelled(Box::pin(face.open(&listeners, &parts))).await;
        let Ready { mut backend, partitions, store, place } = opened.ok_or(Error::Stopped)??;
        let closing = CancellationToken::new();
        let (api, metrics_address) = (listeners.api.address, listeners.metrics_address());
        let http2 = listeners.http2.as_ref().map(|http2| http2.address);
        face.serving(partitions.clone(), store.clone(), &closing).start(listeners);
        let auditing = Auditing::start(&reloadable.audit, audit_writer, &clock, &shutdown);
        let refused_lines = face.refused_lines.clone();
        start_background_tasks(&reloadable, hangups, (&partitions, refused_lines), &clock, &shutdown);
        let loading = unless_stopped.run_until_cancelled(backend.load(&shutdown)).await;
        if let Err(error) = loading.unwrap_or(Err(Error::Stopped)) {
            closing.cancel();
            backend.abandon().await;
            auditing.end().await;
            return Err(error);
        }
        log_start(settings, (api, http2, metrics_address), &reloadable, (place.as_ref(), &store));
        Ok(Self {
            api,
            metrics: metrics_address,
            http2,
            backend,
            auditing,
            spans,
            reloadable,
            drain_delay: settings.server.drain_delay.get(),
            shutdown,
            closing: closing.drop_guard(),
        })
    }

    /// The parts that a reload replaces.
    #[must_use]
    pub fn reloadable(&self) -> &Reloadable {
        &self.reloadable
    }

    /// Reloads when a file with tokens or certificates changes.
    pub fn watch_files(&self) {
        self.shutdown.spawn("file watch", self.reloadable.clone().watch(self.shutdown.clone()));
    }

    /// Serves until the shutdown begins, then drains: connections end and the journal writes its last commits.
    /// Without a journal, leases end with the process, so workers get time to settle them.
    ///
    /// # Errors
    /// [`Error::Writer`] if the journal's writer has panicked, and [`Error::TakenOver`] if another process has taken over the
    /// store. Both end the server at once.
    pub async fn run(mut self) -> Result<(), Error> {
        let draining = self.shutdown.draining().clone();
        let failed = tokio::select! {
            biased;
            () = draining.cancelled() => None,
            error = self.backend.ended() => Some(error),
        };
        if let Some(error) = &failed {
            tracing::error!(%error, "nothing can be committed any more, so the server ends");
            // Starts both stages, because no call could succeed.
            self.shutdown.signal();
            self.shutdown.signal();
        }
        supervisor::stopping();
        tokio::select! {
            () = tokio::time::sleep(self.drain_delay) => {}
            () = self.shutdown.cut().cancelled() => {}
        }
        self.backend.drain(&self.shutdown).await;
        drop(self.closing);
        self.shutdown.join().await;
        let closed = self.backend.close(&self.shutdown).await;
        self.auditing.end().await;
        self.spans.end(self.shutdown.cut()).await;
        tracing::info!("stopped");
        failed.map_or(closed, Err)
    }
}

fn metrics(settings: &Settings) -> Result<Metrics, Error> {
    let metrics = Metrics::new(settings.metrics.max_queues).map_err(|source| Error::Metrics { source })?;
    let metrics = metrics.switched(settings.metrics.enabled);
    metrics.set_memory_limits(settings.memory_bytes, settings.queues.max_held_bytes);
    Ok(metrics)
}

/// Logs the line of a start, with the facts that operators need first.
fn log_start(
    settings: &Settings,
    (api, http2, metrics): (SocketAddr, Option<SocketAddr>, SocketAddr),
    reloadable: &Reloadable,
    (place, store): (Option<&Place>, &StoreInfo),
) {
    let data_dir = place.filter(|place| matches!(place, Place::Folder(_)));
    let database = place.filter(|place| matches!(place, Place::Database(_)));
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        %api,
        http2 = http2.map(tracing::field::display),
        %metrics,
        data_dir = data_dir.map(Place::name),
        database = database.map(Place::name),
        durability = store.durability.as_str(),
        tls = reloadable.tls.is_some(),
        tokens = reloadable.gate.access.tokens().len(),
        insecure = settings.access.insecure,
        max_connections = settings.server.max_connections,
        max_body_bytes = settings.server.max_body_bytes,
        max_body_bytes_in_flight = settings.server.max_body_bytes_in_flight,
        max_reply_bytes_in_flight = settings.server.max_reply_bytes_in_flight,
        max_uncommitted_bytes = settings.storage.max_uncommitted_bytes,
        memory_bytes = settings.memory_bytes,
        max_held_bytes = settings.queues.max_held_bytes,
        max_queues = settings.queues.max_queues,
        "listening"
    );
}

/// The settings of new queues.
fn defaults(settings: &Settings) -> Result<Config, Error> {
    Config::compile(&settings.queue_defaults).map_err(Error::Defaults)
}

fn limits(settings: &Settings) -> Limits {
    Limits {
        auto_create: settings.queues.auto_create,
        max_queues: settings.queues.max_queues,
        max_waiters: settings.queues.max_waiters,
        watch: WatchLimits {
            idle: settings.watch.idle.get(),
            tombstones: TombstoneLimits {
                count: settings.watch.tombstones,
                bytes: settings.watch.tombstone_bytes,
                age: settings.watch.tombstone_age.get(),
            },
        },
    }
}

/// Starts the tasks that do not serve requests.
fn start_background_tasks(
    reloadable: &Reloadable,
    hangups: Signal,
    (partitions, refused_lines): (&Arc<Partitions>, Arc<Suppression>),
    clock: &Clock,
    shutdown: &Shutdown,
) {
    let metrics = partitions.metrics().clone();
    let reloads = metrics.of_reloads(clock.clone());
    let reloading = reloadable.clone().run(hangups, partitions.clone(), reloads, shutdown.clone());
    shutdown.spawn("reload", reloading);
    let certificate = metrics.of_certificate();
    match reloadable.tls.clone() {
        None => certificate.expires(None),
        Some(tls) => {
            let watch = certificate::watch(tls, certificate, clock.clone(), shutdown.clone());
            shutdown.spawn("certificate watch", watch);
        }
    }
    let upkeep = upkeep(metrics, reloadable.audit.clone(), refused_lines, shutdown.clone());
    shutdown.spawn("metrics upkeep", upkeep);
}

fn upkeep(
    metrics: Metrics,
    audit: Audit,
    refused_lines: Arc<Suppression>,
    shutdown: Shutdown,
) -> impl Future<Output = ()> + Send {
    // Registered immediately, so that the first page of metrics includes them.
    let lines = metrics.of_lines();
    async move {
        loop {
            tokio::select! {
                () = tokio::time::sleep(UPKEEP_PERIOD) => {}
                () = shutdown.draining().cancelled() => return,
            }
            metrics.run_upkeep();
            lines.are(audit.lost(), audit.suppressed(), telemetry::dropped());
            for (outcome, left_out) in refused_lines.take() {
                tracing::info!(outcome, left_out, "lines about refused requests were left out");
            }
        }
    }
}
