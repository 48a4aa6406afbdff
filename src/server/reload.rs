//! What can change while the server runs: tokens and certificates, read again on SIGHUP. Requests that wait
//! and connections that are there go on as they are. What can't be read changes nothing.

use std::sync::Arc;

use tokio::signal::unix::Signal;
use tokio::task::JoinHandle;

use super::Error;
use crate::access::{Access, Tokens};
use crate::audit::{self, Audit};
use crate::causes::with_causes;
use crate::config::{self, Settings};
use crate::http::server::tls::{self, Tls};
use crate::http::{Budgets, Gate};
use crate::lifecycle::Shutdown;
use crate::service::Registry;
use crate::service::metrics::ReloadMetrics;
use crate::supervisor;

/// What is read again.
#[derive(Clone, Debug)]
pub struct Reloadable {
    pub(super) settings: config::Access,
    pub(super) gate: Arc<Gate>,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) audit: Audit,
}

impl Reloadable {
    /// As [`of`](Self::of), on a thread that may wait for the files, unless told to stop.
    pub(super) async fn read(
        settings: &Settings,
        shutdown: &Shutdown,
    ) -> Result<(Self, Option<audit::Writer>), Error> {
        let settings = settings.clone();
        let reading = tokio::task::spawn_blocking(move || Self::of(&settings));
        let read = shutdown.draining().run_until_cancelled(reading).await.ok_or(Error::Stopped)?;
        read.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }

    /// What the settings and their files say, and the task that must run for the audit log.
    fn of(settings: &Settings) -> Result<(Self, Option<audit::Writer>), Error> {
        let server = &settings.server;
        let tls = match (&server.tls_cert, &server.tls_key) {
            (Some(cert), Some(key)) => {
                let client_ca = server.tls_client_ca.clone();
                let tls = Tls::new(tls::Files { cert: cert.clone(), key: key.clone(), client_ca });
                Some(Arc::new(tls.map_err(|source| Error::Tls { source })?))
            }
            _ => None,
        };
        let gate = Gate {
            access: Access::new(read_tokens(&settings.access, &Tokens::default())?),
            demands_certificates: server.tls_client_ca.is_some(),
            budgets: Budgets::new(server),
        };
        let is_empty = gate.access.lets_everybody_in();
        if let Some(path) =
            settings.access.tokens_file.clone().filter(|_| is_empty && !settings.access.insecure)
        {
            return Err(Error::NoToken { path });
        }
        let (audit, writer) = Audit::open(&settings.audit).map_err(|source| Error::Audit { source })?;
        Ok((Self { settings: settings.access.clone(), gate: Arc::new(gate), tls, audit }, writer))
    }

    /// Whether there are no tokens.
    pub(super) fn lets_everybody_in(&self) -> bool {
        self.gate.access.lets_everybody_in()
    }

    /// Reads everything again. It waits for the files, so it is not for a thread that answers requests.
    ///
    /// # Errors
    /// What can't be read, all of it. It stays as it was, and the rest is read nonetheless.
    pub fn reload(&self) -> Result<(), Vec<Error>> {
        self.audit.reopen();
        let tls = self.tls.as_ref().map_or(Ok(()), |tls| tls.reload());
        let failed: Vec<Error> = [self.reload_tokens(), tls.map_err(|source| Error::Tls { source })]
            .into_iter()
            .filter_map(Result::err)
            .collect();
        if failed.is_empty() { Ok(()) } else { Err(failed) }
    }

    fn reload_tokens(&self) -> Result<(), Error> {
        let former = self.gate.access.tokens();
        let tokens = read_tokens(&self.settings, &former)?;
        if tokens.is_empty() && !former.is_empty() {
            return Err(Error::LastToken);
        }
        self.gate.access.replace(tokens);
        Ok(())
    }

    /// Reads everything again whenever the process is told to.
    ///
    /// Files may be on a disk that stands still: then one thread waits for them, and everything else goes on as it was.
    pub(super) async fn run(
        self,
        mut hangups: Signal,
        registry: Arc<Registry>,
        measured: ReloadMetrics,
        shutdown: Shutdown,
    ) {
        let (mut reading, mut again, mut is_told) = (None, false, false);
        loop {
            tokio::select! {
                Some(()) = hangups.recv() => {
                    if reading.is_none() {
                        // Who waits for the server to be ready must not hear so because it was told to reload.
                        is_told = registry.is_ready() && !shutdown.is_draining();
                        if is_told {
                            supervisor::reloading();
                        }
                        reading = Some(self.begin(&measured));
                    } else {
                        // It may have been moved away all the same, and is opened without waiting.
                        self.audit.reopen();
                        tracing::warn!("told to reload while a reload reads its files still; the next one follows it");
                        again = true;
                    }
                }
                () = ended(&mut reading) => {
                    reading = None;
                    if std::mem::take(&mut again) {
                        reading = Some(self.begin(&measured));
                    } else if is_told && !shutdown.is_draining() {
                        supervisor::ready();
                    }
                }
                () = shutdown.draining().cancelled() => return,
                else => return,
            }
        }
    }

    /// Has a thread read everything again.
    fn begin(&self, measured: &ReloadMetrics) -> JoinHandle<()> {
        let (own, measured) = (self.clone(), measured.clone());
        tokio::task::spawn_blocking(move || {
            let reloaded = own.reload();
            measured.ended(reloaded.is_ok());
            match reloaded {
                Ok(()) => tracing::info!(tokens = own.gate.access.tokens().len(), "reloaded"),
                Err(failed) => {
                    for error in failed {
                        tracing::error!(error = with_causes(&error), "could not reload");
                    }
                }
            }
        })
    }
}

/// Ends with the reload, if there is one.
async fn ended(reading: &mut Option<JoinHandle<()>>) {
    match reading {
        // A panic is in the log already, and what was not read stays as it was.
        Some(reading) => drop(reading.await),
        None => std::future::pending().await,
    }
}

/// The tokens of the settings, and of their file as it is now.
fn read_tokens(settings: &config::Access, former: &Tokens) -> Result<Tokens, Error> {
    let entries = settings.entries().map_err(|source| Error::Tokens { source })?;
    Tokens::new(&entries, former).map_err(|source| Error::Access { source })
}
