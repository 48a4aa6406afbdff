//! What answers calls: the API over some partitions. While the database of a server is down, these are partitions without owners.

use std::sync::Arc;

use deltaq_runtime::causes::with_causes;
use deltaq_runtime::clock::Clock;
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::Partitions;
use deltaq_types::InfoLinks;
use tokio_util::sync::CancellationToken;

use super::backend::{self, Ready};
use super::listeners::{Listeners, Serving};
use super::reload::Reloadable;
use super::waiting::WAIT;
use super::{Error, defaults, journal, limits};

use crate::config::Settings;
use crate::http::connection::threads::Threads;
use crate::http::{AppState, HttpLimits, Parts, RequestMetrics, StoreInfo};
use crate::push::{Connector, Policy};
use crate::secrets::Secrets;
use crate::spans::Spans;
use crate::suppression::Suppression;

/// What the calls of the API need besides the queues.
pub(super) struct Face<'a> {
    pub(super) settings: &'a Settings,
    pub(super) clock: &'a Clock,
    pub(super) shutdown: &'a Shutdown,
    pub(super) reloadable: &'a Reloadable,
    pub(super) spans: &'a Spans,
    pub(super) request_metrics: RequestMetrics,
    pub(super) refused_lines: Arc<Suppression>,
    pub(super) push: Arc<Policy>,
    pub(super) hook_secrets: Arc<Secrets>,
    pub(super) connector: Connector,
    pub(super) threads: Arc<Threads>,
    pub(super) serves_metrics: bool,
}

impl Face<'_> {
    /// Serves the queues of these partitions until `closing` is cancelled.
    pub(super) fn serving(
        &self,
        partitions: Arc<Partitions>,
        store: StoreInfo,
        closing: &CancellationToken,
    ) -> Serving<'_> {
        let Self { settings, clock, shutdown, reloadable, spans, .. } = *self;
        let state = AppState::from(Parts {
            request_metrics: self.request_metrics.clone(),
            partitions,
            limits: HttpLimits::of(settings),
            gate: reloadable.gate.clone(),
            audit: reloadable.audit.clone(),
            refused_lines: self.refused_lines.clone(),
            push: self.push.clone(),
            hook_secrets: self.hook_secrets.clone(),
            connector: self.connector.clone(),
            spans: spans.clone(),
            started_us: clock.wall_us(),
            clock: clock.clone(),
            shutdown: shutdown.clone(),
            store,
            node: reloadable.node.clone(),
            serves_metrics: self.serves_metrics,
            serves_console: settings.console.enabled,
            links: Arc::new(InfoLinks {
                grafana: settings.console.grafana_url.clone(),
                docs: settings.console.docs_url.clone(),
            }),
            serves_kubernetes: settings.kubernetes.enabled,
        });
        let (threads, tls) = (self.threads.clone(), reloadable.tls.clone());
        Serving { settings: &settings.server, state, threads, tls, closing: closing.clone() }
    }

    /// Opens the store. While its database is down, the listeners answer that the server waits for it.
    pub(super) async fn open(
        &self,
        listeners: &Listeners,
        parts: &backend::Parts<'_>,
    ) -> Result<Ready, Error> {
        let (settings, awaited) = (self.settings, CancellationToken::new());
        let _ends_with_the_wait = awaited.clone().drop_guard();
        let mut serves = false;
        let mut serve = || {
            if !std::mem::replace(&mut serves, true) {
                let count = if parts.node.is_some() { settings.cluster.partitions } else { 1 };
                let defaults = Arc::new(defaults(settings)?);
                let partitions =
                    Partitions::new(count.into(), limits(settings), defaults, parts.metrics.clone());
                self.serving(Arc::new(partitions), StoreInfo::AWAITED, &awaited).start(listeners.again()?);
            }
            Ok(())
        };
        let mut wait = WAIT;
        loop {
            journal::until_reached(&settings.storage, &mut serve).await?;
            let error = match backend::open(parts).await {
                Err(error) if journal::is_lost(&settings.storage, &error).await => error,
                opened => return opened,
            };
            tracing::warn!(
                error = with_causes(&error),
                "the connection to the database was lost during the start"
            );
            tokio::time::sleep(wait.after_failure()).await;
        }
    }
}
