//! What can change while the server runs: tokens and certificates, read again on SIGHUP. Requests that wait
//! and connections that are there go on as they are. What can't be read changes nothing.

use std::sync::Arc;

use tokio::signal::unix::Signal;

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
    /// What the settings and their files say, and the task that must run for the audit log.
    pub(super) fn of(settings: &Settings) -> Result<(Self, Option<audit::Writer>), Error> {
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
            budgets: Budgets::new(
                server.max_reads_in_flight,
                server.max_writes_in_flight,
                server.max_waits_in_flight,
                server.max_body_bytes_in_flight,
            ),
        };
        let is_empty = gate.access.tokens().is_empty();
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
        self.gate.access.tokens().is_empty()
    }

    /// Reads everything again.
    ///
    /// # Errors
    /// What can't be read first. It stays as it was, and the rest is read nonetheless.
    pub fn reload(&self) -> Result<(), Error> {
        self.audit.reopen();
        let tls = self.tls.as_ref().map_or(Ok(()), |tls| tls.reload());
        self.reload_tokens()?;
        tls.map_err(|source| Error::Tls { source })
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
    pub(super) async fn run(
        self,
        mut hangups: Signal,
        registry: Arc<Registry>,
        measured: ReloadMetrics,
        shutdown: Shutdown,
    ) {
        loop {
            tokio::select! {
                Some(()) = hangups.recv() => {}
                () = shutdown.draining().cancelled() => return,
                else => return,
            }
            // Who waits for the server to be ready must not hear so because it was told to reload.
            let is_ready = registry.is_ready() && !shutdown.is_draining();
            if is_ready {
                supervisor::reloading();
            }
            let reloaded = self.reload();
            measured.ended(reloaded.is_ok());
            match reloaded {
                Ok(()) => tracing::info!(tokens = self.gate.access.tokens().len(), "reloaded"),
                Err(error) => tracing::error!(error = with_causes(&error), "could not reload"),
            }
            if is_ready && !shutdown.is_draining() {
                supervisor::ready();
            }
        }
    }
}

/// The tokens of the settings, and of their file as it is now.
fn read_tokens(settings: &config::Access, former: &Tokens) -> Result<Tokens, Error> {
    let entries = settings.entries().map_err(|source| Error::Tokens { source })?;
    Tokens::new(&entries, former).map_err(|source| Error::Access { source })
}
