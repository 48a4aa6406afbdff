//! The process: starts a server from its settings, runs it, and shuts it down.

mod auditing;
mod error;
mod listeners;
mod reload;
#[cfg(test)]
mod tests;

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::auditing::Auditing;
pub use self::error::Error;
pub use self::listeners::PassedSockets;
use self::listeners::{Listeners, Serving};
pub use self::reload::{Reloadable, Reloaded};
use crate::audit::Audit;
use crate::clock::Clock;
use crate::config::{self, Settings, Storage};
use crate::engine::feed::TombstoneLimits;
use crate::http::connection::threads::Threads;
use crate::http::wire::config::to_engine;
use crate::http::{AppState, Durability, HttpLimits, Parts, RequestMetrics};
use crate::journal::recovery::Contents;
use crate::journal::sqlite::{self, Sqlite};
use crate::journal::store::Reader;
use crate::journal::writer;
use crate::journal::{Journal, WriterOptions};
use crate::lifecycle::Shutdown;
use crate::service::metrics::Metrics;
use crate::service::{Limits, Registry, WatchLimits};
use crate::spans::Spans;
use crate::{supervisor, telemetry};

/// How often the buffers of the histograms are drained and lost log lines are counted.
const UPKEEP_PERIOD: Duration = Duration::from_secs(5);
/// How often a draining server checks whether all leases are settled.
const DRAIN_CHECK_PERIOD: Duration = Duration::from_millis(20);

/// A running server.
#[derive(Debug)]
pub struct Server {
    /// The address of the API.
    pub api: SocketAddr,
    /// The address of `/metrics`: that of the API unless the metrics have a listener.
    pub metrics: SocketAddr,
    /// All queues.
    pub registry: Arc<Registry>,
    /// The journal's writer.
    writing: Option<JoinHandle<writer::Ended>>,
    auditing: Auditing,
    spans: Spans,
    reloadable: Reloadable,
    drain_delay: Duration,
    shutdown: Shutdown,
    closing: DropGuard,
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

    /// As [`start`](Self::start), on sockets of the service manager.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_on(
        settings: &Settings,
        shutdown: Shutdown,
        sockets: PassedSockets,
    ) -> Result<Self, Error> {
        let clock = Clock::system();
        let defaults = to_engine(&settings.queue_defaults);
        let defaults = defaults.map_err(|problem| Error::Defaults(problem.detail().to_owned()))?;
        let metrics = metrics(&settings.metrics)?;
        // From here on a SIGHUP does not end the process.
        let hangups = signal(SignalKind::hangup()).map_err(|source| Error::Signal { source })?;
        let listeners = Listeners::bind(settings, sockets).await?;
        let (reloadable, audit_writer) = Reloadable::read(settings, &shutdown).await?;
        listeners.check(settings.access.insecure || !reloadable.is_open())?;
        let spans = Spans::new(&settings.trace).map_err(|source| Error::Spans { source })?;
        let threads = Threads::start().map_err(|source| Error::Thread { purpose: "connections", source })?;
        let unless_stopped = shutdown.draining().clone();
        let opened = unless_stopped.run_until_cancelled(open_journal(settings, &clock, &metrics, &shutdown));
        let opened = opened.await.ok_or(Error::Stopped)??;
        let registry = Registry::new(
            limits(settings),
            defaults,
            clock.clone(),
            opened.journal,
            shutdown.clone(),
            metrics,
        );
        let registry = Arc::new(registry);
        let closing = CancellationToken::new();
        let (api, metrics_address) = (listeners.api.address, listeners.metrics_address());
        let state = AppState::from(Parts {
            request_metrics: RequestMetrics::new(registry.metrics()),
            registry: registry.clone(),
            limits: HttpLimits::of(settings),
            gate: reloadable.gate.clone(),
            audit: reloadable.audit.clone(),
            spans: spans.clone(),
            started_us: clock.wall_us(),
            clock: clock.clone(),
            shutdown: shutdown.clone(),
            durability: durability(settings),
            serves_metrics: settings.metrics.enabled && listeners.metrics.is_none(),
        });
        let tls = reloadable.tls.clone();
        Serving { settings: &settings.server, state, threads, tls, closing: closing.clone() }
            .start(listeners);
        let auditing = Auditing::start(&reloadable.audit, audit_writer, &clock, &shutdown);
        start_background_tasks(&reloadable, hangups, &registry, &clock, &shutdown);
        let recovering = registry.recover(opened.contents, opened.unclean);
        let recovered = unless_stopped.run_until_cancelled(recovering).await;
        let folder = settings.storage.data_dir.clone();
        let recovered = recovered.map(|done| done.map_err(|source| Error::Recovery { folder, source }));
        if let Err(error) = recovered.unwrap_or(Err(Error::Stopped)) {
            closing.cancel();
            if let Some(writing) = opened.writing {
                writer::abandon(writing).await;
            }
            auditing.end().await;
            return Err(error);
        }
        registry.start_tasks();
        log_start(settings, api, metrics_address, &reloadable);
        Ok(Self {
            api,
            metrics: metrics_address,
            registry,
            writing: opened.writing,
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

    /// Writes the addresses as JSON. Readers see the whole file or none.
    ///
    /// # Errors
    /// [`Error::ReadyFile`].
    pub fn write_ready_file(&self, path: &Path) -> Result<(), Error> {
        let failed = |source| Error::ReadyFile { path: path.to_owned(), source };
        let text = serde_json::json!({ "api": self.api, "metrics": self.metrics }).to_string();
        write_whole(path, &(text + "\n")).map_err(failed)
    }

    /// Serves until the shutdown begins, then drains: connections end and the journal writes its last commits. Without a
    /// journal the leases end with the process, so workers get time to settle them.
    ///
    /// # Errors
    /// [`Error::Writer`] if the journal's writer has panicked, and [`Error::TakenOver`] if another process has taken over the
    /// store. Both end the server at once.
    pub async fn run(mut self) -> Result<(), Error> {
        let mut ended = self.until_shutdown_or_writer_ends().await;
        if let Err(error) = &ended {
            tracing::error!(%error, "nothing can be committed any more, so the server ends");
            self.writing = None;
            // Both stages: no call could succeed.
            self.shutdown.signal();
            self.shutdown.signal();
        }
        supervisor::stopping();
        tokio::select! {
            () = tokio::time::sleep(self.drain_delay) => {}
            () = self.shutdown.cut().cancelled() => {}
        }
        let keeps_leases = self.registry.journal().is_some();
        while !keeps_leases && self.registry.leased() > 0 && !self.shutdown.cut().is_cancelled() {
            tokio::select! {
                () = tokio::time::sleep(DRAIN_CHECK_PERIOD) => {}
                () = self.shutdown.cut().cancelled() => {}
            }
        }
        drop(self.closing);
        self.shutdown.join().await;
        self.registry.close();
        if let Some(writing) = self.writing {
            tokio::select! {
                biased;
                done = writing => match done {
                    Ok(writer::Ended::Closed) => {}
                    Ok(writer::Ended::Fenced) => ended = Err(Error::TakenOver),
                    Err(_) => {
                        tracing::error!("the journal's writer panicked before the last commit");
                        ended = Err(Error::Writer);
                    }
                },
                () = self.shutdown.cut_and_grace() => {
                    tracing::error!("the disk of the journal is stalled; the next start replays what the journal has");
                }
            }
        }
        self.auditing.end().await;
        self.spans.end(self.shutdown.cut()).await;
        tracing::info!("stopped");
        ended
    }

    /// Waits until the shutdown begins or the journal's writer ends. Before the shutdown the writer ends only by a panic, or
    /// because another process has taken over the store.
    async fn until_shutdown_or_writer_ends(&mut self) -> Result<(), Error> {
        let draining = self.shutdown.draining().clone();
        let Some(writing) = &mut self.writing else {
            draining.cancelled().await;
            return Ok(());
        };
        tokio::select! {
            biased;
            () = draining.cancelled() => Ok(()),
            ended = writing => Err(if ended.is_ok() { Error::TakenOver } else { Error::Writer }),
        }
    }
}

/// The open journal; `Opened::default` without one.
#[derive(Default)]
struct Opened {
    journal: Option<Journal>,
    writing: Option<JoinHandle<writer::Ended>>,
    contents: Contents,
    unclean: bool,
}

async fn open_journal(
    settings: &Settings,
    clock: &Clock,
    metrics: &Metrics,
    shutdown: &Shutdown,
) -> Result<Opened, Error> {
    if settings.storage.in_memory {
        return Ok(Opened::default());
    }
    let folder = &settings.storage.data_dir;
    let sync = match settings.storage.sync {
        config::Sync::Full => sqlite::Sync::Full,
        config::Sync::Normal => sqlite::Sync::Normal,
    };
    let opened = Sqlite::open(folder, sync).await;
    let (store, reader, opening) =
        opened.map_err(|source| Error::Store { folder: folder.clone(), source })?;
    let options = WriterOptions {
        uncommitted_bytes_max: settings.storage.max_uncommitted_bytes,
        ..WriterOptions::default()
    };
    let (observer, unclean) = (Arc::new(metrics.of_journal()), !opening.clean);
    let (opened, cut) = ((store, reader as Arc<dyn Reader>, opening), shutdown.cut().clone());
    let opened = writer::open(opened, clock.clone(), observer, cut, options).await;
    let (journal, writer, contents) =
        opened.map_err(|source| Error::Recovery { folder: folder.clone(), source })?;
    let writing = shutdown.spawn_on_own_thread("journal writer", writer.run());
    let writing = Some(writing.map_err(|source| Error::Thread { purpose: "the journal", source })?);
    Ok(Opened { journal: Some(journal), writing, contents, unclean })
}

fn metrics(settings: &config::Metrics) -> Result<Metrics, Error> {
    let metrics = Metrics::new(settings.max_queues).map_err(|source| Error::Metrics { source })?;
    Ok(metrics.switched(settings.enabled))
}

/// The one line of a start, with what an operator asks first.
fn log_start(settings: &Settings, api: SocketAddr, metrics: SocketAddr, reloadable: &Reloadable) {
    let Settings { server, storage, .. } = settings;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        %api,
        %metrics,
        data_dir = (!storage.in_memory).then(|| storage.data_dir.display().to_string()),
        durability = durability(settings).as_str(),
        tls = reloadable.tls.is_some(),
        tokens = reloadable.gate.access.tokens().len(),
        insecure = settings.access.insecure,
        max_connections = server.max_connections,
        max_body_bytes = server.max_body_bytes,
        max_queues = settings.queues.max_queues,
        "listening"
    );
}

fn durability(settings: &Settings) -> Durability {
    match settings.storage {
        Storage { in_memory: true, .. } => Durability::Memory,
        Storage { sync: config::Sync::Normal, .. } => Durability::Normal,
        Storage { sync: config::Sync::Full, .. } => Durability::Full,
    }
}

fn limits(settings: &Settings) -> Limits {
    Limits {
        auto_create: settings.queues.auto_create,
        max_queues: settings.queues.max_queues,
        created_by_pop_percent: settings.queues.created_by_pop_percent,
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
    registry: &Arc<Registry>,
    clock: &Clock,
    shutdown: &Shutdown,
) {
    let metrics = registry.metrics().clone();
    let reloads = metrics.of_reloads(clock.clone());
    let reloading = reloadable.clone().run(hangups, registry.clone(), reloads, shutdown.clone());
    shutdown.spawn("reload", reloading);
    shutdown.spawn("metrics upkeep", upkeep(metrics, reloadable.audit.clone(), shutdown.clone()));
}

fn upkeep(metrics: Metrics, audit: Audit, shutdown: Shutdown) -> impl Future<Output = ()> + Send {
    // Registered at once, so that the first page of metrics has them.
    let lines = metrics.of_lines();
    async move {
        loop {
            tokio::select! {
                () = tokio::time::sleep(UPKEEP_PERIOD) => {}
                () = shutdown.draining().cancelled() => return,
            }
            metrics.run_upkeep();
            lines.are(audit.lost(), audit.suppressed(), telemetry::dropped());
        }
    }
}

/// Writes a file so that readers see all of it or nothing. It follows no symbolic link: in a directory that others may
/// write to, a link could lead to any file of this user.
fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    let create = || OpenOptions::new().write(true).create_new(true).open(&draft);
    let mut file = match create() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(&draft)?;
            create()?
        }
        created => created?,
    };
    file.write_all(text.as_bytes())?;
    fs::rename(&draft, path)
}
