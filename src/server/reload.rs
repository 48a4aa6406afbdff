//! Reloading: SIGHUP reads the tokens, certificates and node secrets again and reopens the audit log, and so does a change
//! of the files with tokens and certificates. A reload never blocks requests, and running requests and open connections
//! continue. If a file can't be read, the old tokens or certificates stay in force.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use deltaq_runtime::causes::with_causes;
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::Partitions;
use deltaq_service::metrics::ReloadMetrics;
use parking_lot::Mutex;
use tokio::signal::unix::Signal;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::Error;
use crate::access::{Access, TokenChanges, Tokens};
use crate::audit::{self, Audit};
use crate::config::{self, Settings};
use crate::http::connection::tls::{self, Tls};
use crate::http::{Gate, HookAddresses, InFlightLimits, Node};
use crate::supervisor;

/// The parts of a server that a reload replaces.
#[derive(Clone, Debug)]
pub struct Reloadable {
    pub(super) settings: config::Access,
    pub(super) gate: Arc<Gate>,
    pub(super) tls: Option<Arc<Tls>>,
    /// `None` for a standalone server.
    pub(super) node: Option<Arc<Node>>,
    pub(super) audit: Audit,
    /// The files whose change causes a reload.
    watched: Vec<PathBuf>,
    /// Their state before they were first read.
    seen: Vec<FileState>,
    /// Wakes the task that reloads.
    changed: Arc<Notify>,
    /// Held while the files are read and their content is put in force, so that an older content can't win.
    reloading: Arc<Mutex<()>>,
}

/// How often the files are looked at. A poll sees every way to replace a file, also that of a volume of Kubernetes.
const WATCH_PERIOD: Duration = Duration::from_secs(1);

/// What distinguishes a file from a later one at its path; `None` if there is no file.
type FileState = Option<(u64, u64, u64, i64, i64, i64, i64)>;

fn file_state(path: &PathBuf) -> FileState {
    let file = fs::metadata(path).ok()?;
    let times = (file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec());
    Some((file.dev(), file.ino(), file.size(), times.0, times.1, times.2, times.3))
}

/// Reads the certificates of the server.
pub(super) fn read_tls(server: &config::Server) -> Result<Option<Arc<Tls>>, Error> {
    let (Some(cert), Some(key)) = (&server.tls_cert, &server.tls_key) else { return Ok(None) };
    let files = tls::Files { cert: cert.clone(), key: key.clone(), client_ca: server.tls_client_ca.clone() };
    Ok(Some(Arc::new(Tls::new(files).map_err(|source| Error::Tls { source })?)))
}

impl Reloadable {
    /// Like [`of`](Self::of), but on a blocking thread. A shutdown ends the wait.
    pub(super) async fn read(
        settings: &Settings,
        shutdown: &Shutdown,
    ) -> Result<(Self, Option<audit::Writer>), Error> {
        let settings = settings.clone();
        let reload_task = tokio::task::spawn_blocking(move || Self::of(&settings));
        let read = shutdown.draining().run_until_cancelled(reload_task).await.ok_or(Error::Stopped)?;
        read.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }

    /// Reads the files that the settings name. The returned writer must be run for the audit log to work.
    fn of(settings: &Settings) -> Result<(Self, Option<audit::Writer>), Error> {
        let (server, access) = (&settings.server, &settings.access);
        let files = [
            &access.tokens_file,
            &access.settings_file,
            &server.tls_cert,
            &server.tls_key,
            &server.tls_client_ca,
        ];
        let watched: Vec<PathBuf> = files.into_iter().flatten().cloned().collect();
        let seen = watched.iter().map(file_state).collect();
        let tls = read_tls(server)?;
        let gate = Gate {
            access: Access::new(read_tokens(&settings.access, &Tokens::default())?),
            demands_certificates: server.tls_client_ca.is_some(),
            in_flight: Arc::new(InFlightLimits::new(server, &settings.hooks)),
            hooks: HookAddresses::new(&settings.hooks),
        };
        let is_empty = gate.access.is_open();
        if let Some(path) =
            settings.access.tokens_file.clone().filter(|_| is_empty && !settings.access.insecure)
        {
            return Err(Error::NoToken { path });
        }
        let node = Node::of(&settings.cluster).map_err(|source| Error::Node { source })?;
        let (audit, writer) = Audit::open(&settings.audit).map_err(|source| Error::Audit { source })?;
        let own = Self {
            settings: settings.access.clone(),
            gate: Arc::new(gate),
            tls,
            node,
            audit,
            watched,
            seen,
            changed: Arc::default(),
            reloading: Arc::default(),
        };
        Ok((own, writer))
    }

    /// Whether there are no tokens, so that every caller may do everything.
    pub(super) fn is_open(&self) -> bool {
        self.gate.access.is_open()
    }

    /// Reads all files again. It blocks, so it must not run on a thread that serves requests.
    ///
    /// # Errors
    /// All files that can't be read. Their previous content stays in force. The other files are read.
    pub fn reload(&self) -> Result<Reloaded, Vec<Error>> {
        let _reloading = self.reloading.lock();
        self.audit.reopen();
        let tls = self.tls.as_ref().map_or(Ok(false), |tls| tls.reload());
        let node = self.node.as_ref().map_or(Ok(()), |node| node.reload());
        let node = node.map_err(|source| Error::Node { source });
        match (self.reload_tokens(), tls.map_err(|source| Error::Tls { source }), node) {
            (Ok(tokens), Ok(certificate_changed), Ok(())) => Ok(Reloaded { tokens, certificate_changed }),
            (tokens, tls, node) => Err(tokens.err().into_iter().chain(tls.err()).chain(node.err()).collect()),
        }
    }

    fn reload_tokens(&self) -> Result<TokenChanges, Error> {
        let previous = self.gate.access.tokens();
        let tokens = read_tokens(&self.settings, &previous)?;
        if tokens.is_empty() && !previous.is_empty() {
            return Err(Error::LastToken);
        }
        let changes = tokens.changes(&previous);
        self.gate.access.replace(tokens);
        Ok(changes)
    }

    /// Reloads when a file with tokens or certificates changes. A file that is changed while the server starts is read
    /// again, because the files are compared with their state before the start.
    pub(super) async fn watch(self, shutdown: Shutdown) {
        let mut before = self.seen.clone();
        while !self.watched.is_empty() {
            tokio::select! {
                () = tokio::time::sleep(WATCH_PERIOD) => {}
                () = shutdown.draining().cancelled() => return,
            }
            let watched = self.watched.clone();
            // The disk may be stalled.
            let now = tokio::task::spawn_blocking(move || watched.iter().map(file_state).collect()).await;
            if let Ok(now) = now
                && std::mem::replace(&mut before, now) != before
            {
                self.changed.notify_one();
            }
        }
    }

    /// Reloads on each SIGHUP and after each change of a watched file.
    ///
    /// The files may be on a stalled disk. In that case, only one blocking thread waits for them.
    pub(super) async fn run(
        self,
        mut hangups: Signal,
        partitions: Arc<Partitions>,
        metrics: ReloadMetrics,
        shutdown: Shutdown,
    ) {
        let (mut reload_task, mut is_repeated, mut is_reported) = (None, false, false);
        loop {
            tokio::select! {
                Some(()) = hangups.recv() => {
                    if reload_task.is_none() {
                        // A supervisor that is waiting for the first "ready" must not get it from a reload.
                        is_reported = partitions.loading().is_none() && !shutdown.is_draining();
                        if is_reported {
                            supervisor::reloading();
                        }
                        reload_task = Some(self.begin(&metrics));
                    } else {
                        // logrotate may have moved the audit log in the meantime. Reopening it does not block.
                        self.audit.reopen();
                        tracing::warn!("SIGHUP during a reload: another reload follows");
                        is_repeated = true;
                    }
                }
                () = self.changed.notified() => {
                    if reload_task.is_none() {
                        is_reported = false;
                        reload_task = Some(self.begin(&metrics));
                    } else {
                        is_repeated = true;
                    }
                }
                () = ended(&mut reload_task) => {
                    reload_task = None;
                    if std::mem::take(&mut is_repeated) {
                        reload_task = Some(self.begin(&metrics));
                    } else if is_reported && !shutdown.is_draining() {
                        supervisor::ready();
                    }
                }
                () = shutdown.draining().cancelled() => return,
                else => return,
            }
        }
    }

    /// Starts a reload on a blocking thread.
    fn begin(&self, metrics: &ReloadMetrics) -> JoinHandle<()> {
        let (own, metrics) = (self.clone(), metrics.clone());
        tokio::task::spawn_blocking(move || {
            let reloaded = own.reload();
            metrics.ended(reloaded.is_ok());
            match reloaded {
                Ok(Reloaded { tokens, certificate_changed }) => tracing::info!(
                    tokens = own.gate.access.tokens().len(),
                    added = tokens.added.join(","),
                    changed = tokens.changed.join(","),
                    removed = tokens.removed.join(","),
                    certificate_changed,
                    "reloaded"
                ),
                Err(failed) => {
                    for error in failed {
                        tracing::error!(error = with_causes(&error), "reload failed");
                    }
                }
            }
        })
    }
}

/// What a reload has changed.
#[derive(Debug)]
pub struct Reloaded {
    /// The tokens that differ.
    pub tokens: TokenChanges,
    /// Whether the server has another certificate.
    pub certificate_changed: bool,
}

/// Waits for the running reload. Never returns if no reload is running.
async fn ended(reload_task: &mut Option<JoinHandle<()>>) {
    match reload_task {
        // A panic is already in the log. The content of files that were not read stays in force.
        Some(reload_task) => drop(reload_task.await),
        None => std::future::pending().await,
    }
}

/// The tokens in the settings and in the token file.
fn read_tokens(settings: &config::Access, previous: &Tokens) -> Result<Tokens, Error> {
    let entries = settings.entries().map_err(|source| Error::Tokens { source })?;
    Tokens::new(&entries, previous).map_err(|source| Error::Access { source })
}
