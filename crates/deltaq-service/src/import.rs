//! `deltaq import`: adds known objects to a store, using the service that also implements `/seed`.
//!
//! The import is one commit, so that the store contains either all objects or none, regardless of how the command
//! ends.

use std::io::BufRead;
use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::Seed;
use deltaq_engine::config::Config;
use deltaq_engine::refusal::Refusal;
use deltaq_journal::WriterOptions;
use deltaq_journal::offline::{self, Location, stores};
use deltaq_journal::store::{Opening, Reader, Store};
use deltaq_journal::writer;
use deltaq_runtime::clock::Clock;
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_types::name::Name;
use tokio::task::JoinHandle;

use crate::admission::{self, Admission};
use crate::metrics::Metrics;
use crate::{Creator, FirstCall, Limits, Registry, WatchLimits};

/// Maximum number of bytes of a line in addition to its object.
const ENVELOPE_BYTES_MAX: usize = 16 << 10;
/// Timeout for the last checkpoint.
const CLOSING_MAX: Duration = Duration::from_hours(1);

/// Why an import fails.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store or the input is not usable. Nothing was imported.
    #[error(transparent)]
    Offline(#[from] offline::Error),
    /// The queue refuses the objects.
    #[error("queue {name}: {source}; nothing was imported")]
    Refused {
        /// The name of the queue.
        name: Name,
        /// The refusal.
        source: crate::Error,
    },
    /// The schema of the queue can't be compiled.
    #[error("queue {name}: its schema can't be compiled; nothing was imported")]
    Schema {
        /// The name of the queue.
        name: Name,
        /// What is wrong with the schema.
        source: admission::Error,
    },
    /// The write was not confirmed.
    #[error(
        "queue {name}: {source}; either all objects were imported or none: repeat the import, which is \
         safe"
    )]
    Unconfirmed {
        /// The name of the queue.
        name: Name,
        /// The journal's error.
        source: crate::Error,
    },
    /// The objects are imported, but the last checkpoint is missing.
    #[error("all objects were imported, but the store was not cleanly closed; the next start takes longer")]
    Closing,
    /// The metrics can't be set up.
    #[error("can't set up the metrics")]
    Metrics(#[source] metrics_exporter_prometheus::BuildError),
}

/// Reads a line, using the settings of a queue and its compiled admission rules.
pub type ReadSeed = fn(&str, &Config, Option<&Admission>) -> Result<Seed, String>;

/// The rules for creating a missing queue and for reading a line.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The settings of a new queue.
    pub defaults: Config,
    /// Maximum number of queues.
    pub max_queues: usize,
    /// Reads a line.
    pub read: ReadSeed,
}

/// Imports all of `input` into the queue. Returns the number of objects.
///
/// # Errors
/// After [`Error::Offline`] and [`Error::Refused`], the store is unchanged.
pub async fn import(
    at: &Location,
    name: &Name,
    rules: Rules,
    input: impl BufRead,
    clock: &Clock,
) -> Result<usize, Error> {
    let read = rules.read;
    let running = match at {
        Location::Folder(folder) => {
            match stores::check_folder(folder) {
                // Opening the store creates it.
                Err(offline::Error::Missing { .. } | offline::Error::Empty { .. }) => {}
                checked => checked?,
            }
            Running::start(stores::open_folder(folder).await.map_err(offline::Error::from)?, rules, clock)
                .await?
        }
        Location::Postgres(settings) => {
            Running::start(stores::open_database(settings).await?, rules, clock).await?
        }
    };
    let imported = seed(&running.registry, name, read, input).await;
    let closed = running.close().await;
    let count = imported?;
    if closed { Ok(count) } else { Err(Error::Closing) }
}

async fn seed(registry: &Registry, name: &Name, read: ReadSeed, input: impl BufRead) -> Result<usize, Error> {
    let refused = |source| Error::Refused { name: name.clone(), source };
    let config = match registry.find(name) {
        None => registry.defaults().clone(),
        Some(handle) => {
            // This is checked first, because reading the input may take a long time.
            handle.check_seed().await.map_err(refused)?;
            handle.config()
        }
    };
    let admission = config.admission.as_deref().map(Admission::compile).transpose();
    let admission = admission.map_err(|source| Error::Schema { name: name.clone(), source })?;
    let seeds = seeds(input, &config, admission.as_ref(), read)?;
    let count = seeds.len();
    let handle =
        registry.get_or_create(name, FirstCall::Seed(&seeds), &Creator::default()).map_err(refused)?;
    handle.seed_at_once(config, seeds).await.map_err(|source| match source {
        crate::Error::Journal(_) => Error::Unconfirmed { name: name.clone(), source },
        source => refused(source),
    })?;
    Ok(count)
}

fn seeds(
    mut input: impl BufRead,
    config: &Config,
    admission: Option<&Admission>,
    read: ReadSeed,
) -> Result<Vec<Seed>, offline::Error> {
    let mut seeds: Vec<Seed> = Vec::new();
    let mut number = 0;
    let bytes_max = config.max_object_bytes.saturating_add(ENVELOPE_BYTES_MAX);
    loop {
        let mut line = Vec::new();
        // One more byte for the line break, and one to detect a line that is too long.
        let mut bounded = std::io::Read::take(&mut input, bytes_max as u64 + 2);
        let got = bounded.read_until(b'\n', &mut line);
        let got = got.map_err(|source| offline::Error::Input { line: number, source })?;
        if got == 0 {
            return Ok(seeds);
        }
        number += 1;
        let wrong = |what| offline::Error::Line { line: number, what };
        line.pop_if(|last| *last == b'\n');
        if line.len() > bytes_max {
            return Err(wrong(format!("it has more than {bytes_max} bytes")));
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let text = std::str::from_utf8(&line)
            .map_err(|error| wrong(format!("the text is not UTF-8 at column {}", error.valid_up_to() + 1)))?;
        let seed = read(text, config, admission).map_err(wrong)?;
        let (limit, bytes) = (config.max_object_bytes, seed.1.bytes());
        if bytes > limit {
            return Err(wrong(Refusal::ObjectTooLarge { limit, bytes, index: seeds.len() }.to_string()));
        }
        seeds.push(seed);
    }
}

/// The service without HTTP.
struct Running {
    registry: Arc<Registry>,
    shutdown: Shutdown,
    writing: JoinHandle<writer::Ended>,
}

impl Running {
    async fn start(
        opened: (impl Store, Arc<dyn Reader>, Opening),
        rules: Rules,
        clock: &Clock,
    ) -> Result<Self, Error> {
        let metrics = Metrics::new(0).map_err(Error::Metrics)?;
        let shutdown = Shutdown::manual(CLOSING_MAX);
        let observer = Arc::new(metrics.of_journal());
        let cut = shutdown.cut().clone();
        let opened = writer::open(opened, clock.clone(), observer, cut, WriterOptions::default()).await;
        let (journal, writer, contents) = opened.map_err(offline::Error::Recovery)?;
        let writing = shutdown.spawn_last("journal writer", writer.run());
        let limits = Limits {
            auto_create: true,
            max_queues: rules.max_queues,
            max_waiters: 0,
            watch: WatchLimits::default(),
        };
        let (clock, journal) = (clock.clone(), Some(journal));
        let registry = Registry::new(limits, rules.defaults, clock, journal, shutdown.clone(), metrics);
        // No worker can reach the service, so leases must not expire.
        let registry = registry.without_tasks();
        let running = Self { registry: Arc::new(registry), shutdown, writing };
        // All queues are loaded, because the store is marked as cleanly closed only if every queue is intact.
        if let Err(error) = running.registry.recover(contents).await {
            writer::abandon(running.writing).await;
            return Err(offline::Error::Recovery(error).into());
        }
        Ok(running)
    }

    /// Stops the service like a server, but does not wait for a journal that is down.
    async fn close(self) -> bool {
        let Self { registry, shutdown, mut writing } = self;
        shutdown.signal();
        let Some(journal) = registry.journal() else { return false };
        let mut health = journal.health();
        let down = async {
            shutdown.join().await;
            registry.close();
            let _down = health.wait_for(|health| health.down.is_some()).await;
        };
        let ended = tokio::select! {
            ended = &mut writing => ended,
            () = down => {
                shutdown.signal();
                writing.await
            }
        };
        ended.is_ok() && journal.check().is_ok()
    }
}
