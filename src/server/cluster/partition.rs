//! A partition from its claim to its release.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use deltaq_engine::config::Config;
use deltaq_engine::id::Rv;
use deltaq_journal::postgres::{Member, Postgres, Settings};
use deltaq_journal::store::Reader;
use deltaq_journal::{WriterOptions, writer};
use deltaq_runtime::causes::with_causes;
use deltaq_runtime::clock::Clock;
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::metrics::Metrics;
use deltaq_service::{Grants, Limits, Memory, Pusher, Registry};
use futures_util::FutureExt as _;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::http::Node;

/// How long calls may take to finish on their own when their partition is released. After this time, they fail.
const CALLS_MAX: Duration = Duration::from_secs(3);

/// Maximum number of partitions that a node loads at the same time.
pub(in crate::server) const CLAIMS_MAX: usize = 4;

/// The parts that are needed to build the registry of a partition.
#[derive(Debug)]
pub(in crate::server) struct Ingredients {
    pub(in crate::server) settings: Settings,
    /// This server as one of several nodes, which calls the others.
    pub(in crate::server) node: Arc<Node>,
    pub(in crate::server) limits: Limits,
    pub(in crate::server) defaults: Config,
    pub(in crate::server) clock: Clock,
    pub(in crate::server) metrics: Metrics,
    pub(in crate::server) grants: Arc<dyn Grants>,
    pub(in crate::server) pusher: Arc<dyn Pusher>,
    pub(in crate::server) max_followers_per_token: usize,
    /// The memory that the queues of all partitions share.
    pub(in crate::server) memory: Arc<Memory>,
    pub(in crate::server) options: WriterOptions,
    /// Limits the number of partitions that are loaded at the same time, and so the number of connections to the
    /// database.
    pub(in crate::server) claims: Semaphore,
    /// The shutdown of the process.
    pub(in crate::server) shutdown: Shutdown,
    /// The largest number of the partitions that this node has had. The next life of a queue begins above it, also if a failover of the
    /// database has lost the number, and the clock of its new server is behind.
    pub(in crate::server) issued: AtomicU64,
}

/// A partition of this node.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) registry: Arc<Registry>,
    /// Whether the former owner had released the partition.
    pub(super) was_released: bool,
    writing: JoinHandle<writer::Ended>,
    shutdown: Shutdown,
    from: Arc<Ingredients>,
}

impl Partition {
    /// Claims a partition and loads its queues. Returns `None` if another node owns it.
    ///
    /// # Errors
    /// The cause, for the log.
    pub(super) async fn claim(
        from: Arc<Ingredients>,
        number: i16,
        member: Member,
    ) -> Result<Option<Self>, String> {
        let Ok(_permit) = from.claims.acquire().await else { return Ok(None) };
        let claimed = Postgres::claim(from.settings.clone(), number, &member).boxed();
        let Some((store, reader, opening)) = claimed.await.map_err(|error| with_causes(&error))? else {
            return Ok(None);
        };
        let shutdown = from.shutdown.part();
        let observer = Arc::new(from.metrics.of_partition(number));
        let (clock, cut) = (from.clock.clone(), shutdown.cut().clone());
        let opened = (store, reader.clone() as Arc<dyn Reader>, opening);
        let opened = writer::open(opened, clock.clone(), observer, cut, from.options.clone()).await;
        let (journal, writer, contents) = opened.map_err(|error| with_causes(&error))?;
        let writing = shutdown.spawn_on_own_thread("journal writer", writer.run());
        let writing = writing.map_err(|error| format!("can't start a thread: {error}"))?;
        let (limits, defaults) = (from.limits.clone(), from.defaults.clone());
        let metrics = from.metrics.clone();
        let registry = Registry::new(limits, defaults, clock, Some(journal), shutdown.clone(), metrics)
            .with_tokens(from.grants.clone(), from.max_followers_per_token)
            .with_memory(from.memory.clone())
            .with_pusher(from.pusher.clone())
            .above(Rv::new(from.issued.load(Ordering::Acquire)));
        let registry = Arc::new(registry);
        let partition = Self { registry, was_released: opening.clean, writing, shutdown, from: from.clone() };
        let loaded = partition.registry.recover(contents).boxed().await;
        if let Err(error) = loaded {
            partition.abandon();
            return Err(with_causes(&error));
        }
        // Loading reads a lot, but after that there are hardly any reads.
        reader.close().await;
        partition.registry.start_tasks();
        Ok(Some(partition))
    }

    /// Whether the partition's writer has ended, because of a panic or because another node has claimed the partition.
    pub(super) fn has_ended(&self) -> bool {
        self.writing.is_finished()
    }

    /// Whether the partition's writer has ended because the database has lost acknowledged changes.
    pub(super) fn is_rolled_back(&mut self) -> bool {
        matches!((&mut self.writing).now_or_never(), Some(Ok(writer::Ended::RolledBack)))
    }

    /// Ends waiting calls, writes the last events, and releases the partition.
    pub(super) async fn release(self) {
        self.shutdown.drain();
        if tokio::time::timeout(CALLS_MAX, self.shutdown.join()).await.is_err() {
            tracing::info!("calls on a released partition did not end in time; they fail from now on");
        }
        // The journal is closed first. Then the writer tries once more to reopen a store that has failed, to write
        // the last events and to release the partition. The cut ends the checkpoint, because the partition has no
        // owner in the meantime, and the next owner reads the last events faster than the checkpoint would write
        // them.
        self.registry.close();
        self.note_numbers();
        self.shutdown.cut().cancel();
        if self.writing.await.is_err() {
            tracing::error!("the writer of a partition panicked before the last commit");
        }
        self.registry.leave();
    }

    fn note_numbers(&self) {
        self.from.issued.fetch_max(self.registry.last_number().get(), Ordering::AcqRel);
    }

    /// Gives up a partition without any further write, because another node owns it or because it can't be loaded.
    pub(super) fn abandon(self) {
        self.note_numbers();
        self.registry.leave();
        self.shutdown.drain();
        self.shutdown.cut().cancel();
        self.writing.abort();
    }
}
