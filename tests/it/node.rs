//! A registry and a journal without HTTP, for tests of commits, faults and restarts.

use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::config::Config;
use deltaq_journal::recovery;
use deltaq_journal::store::{Opening, Reader, Store};
use deltaq_journal::writer;
use deltaq_journal::{Observer, WriterOptions};
use deltaq_runtime::clock::Clock;
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::metrics::Metrics;
use deltaq_service::{Limits, Registry, WatchLimits};

use crate::store::fake::FakeStore;
use tokio::task::JoinHandle;

/// An observer that ignores everything.
#[derive(Debug)]
pub(crate) struct NoopObserver;

impl Observer for NoopObserver {
    fn committed(&self, _events: usize, _took: Duration) {}
    fn checkpointed(&self, _took: Duration) {}
    fn sized(&self, _bytes: u64, _lag_events: u64) {}
}

/// A running node.
pub(crate) struct Node {
    pub(crate) registry: Arc<Registry>,
    pub(crate) writing: JoinHandle<writer::Ended>,
}

/// Loads the contents of `memory` and starts a node. A checkpoint begins when the journal has grown by `growth_bytes_min`.
pub(crate) async fn start(
    memory: &FakeStore,
    clock: &Clock,
    shutdown: &Shutdown,
    growth_bytes_min: u64,
) -> Result<Arc<Registry>, recovery::Error> {
    let options = WriterOptions { growth_bytes_min, ..WriterOptions::default() };
    let node = start_on(memory.clone(), memory.opening(), clock, shutdown, options).await?;
    Ok(node.registry)
}

/// Loads the contents of a store and starts a node.
pub(crate) async fn start_on<S: Store + Reader + Clone>(
    store: S,
    opening: Opening,
    clock: &Clock,
    shutdown: &Shutdown,
    options: WriterOptions,
) -> Result<Node, recovery::Error> {
    start_with(store, opening, clock, shutdown, options, WatchLimits::default()).await
}

/// As [`start_on`], with limits of the change feeds.
pub(crate) async fn start_with<S: Store + Reader + Clone>(
    store: S,
    opening: Opening,
    clock: &Clock,
    shutdown: &Shutdown,
    options: WriterOptions,
    watch: WatchLimits,
) -> Result<Node, recovery::Error> {
    let reader: Arc<dyn Reader> = Arc::new(store.clone());
    let opened = (store, reader, opening);
    let cut = shutdown.cut().clone();
    let (journal, writer, contents) =
        writer::open(opened, clock.clone(), Arc::new(NoopObserver), cut, options).await?;
    let writing = shutdown.spawn_last("journal writer", writer.run());
    let limits = Limits { auto_create: true, max_queues: 100, max_waiters: 100, watch };
    let metrics = Metrics::new(100).expect("metrics");
    let registry =
        Registry::new(limits, Config::default(), clock.clone(), Some(journal), shutdown.clone(), metrics);
    let registry = Arc::new(registry);
    registry.recover(contents).await?;
    registry.start_tasks();
    Ok(Node { registry, writing })
}
