//! From rows to queues: the last checkpoint, then the journal behind it, by the same `apply` as live.
//!
//! Damage is never skipped: a row that is not what was written, a gap between two rows or an unknown
//! format ends it with a message that names the place.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

use super::SEGMENT_BYTES;
use super::record::{self, Decoder, Identity, QueueRecord};
use super::store::{self, JournalRow, QueueId, QueueRow, Reader, Segment};
use crate::engine::delta::Rv;
use crate::engine::key::Key;
use crate::engine::{Misfit, Queue, Restore};

/// Keys that are read at a time.
const PAGE_KEYS: usize = 1_024;
/// Bytes of events that are read at a time.
const PAGE_BYTES: usize = 4 << 20;

/// Why a queue can't be loaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store can't be read.
    #[error("the store can't be read")]
    Read(#[from] store::Error),
    /// A row is not what was written.
    #[error(transparent)]
    Row(#[from] record::Error),
    /// Rows are missing.
    #[error(
        "the journal of queue {queue} has a gap: events {after} to {before} are missing before row {row}"
    )]
    Gap {
        /// The queue's name.
        queue: String,
        /// The first event that is missing.
        after: Rv,
        /// The last event that is missing.
        before: Rv,
        /// The row behind the gap.
        row: u64,
    },
    /// An event does not fit the state that the rows before it give.
    #[error("journal row {row} can't be replayed: {misfit}")]
    Event {
        /// The row.
        row: u64,
        /// The event, and what it contradicts.
        misfit: Misfit,
    },
    /// The rows do not fit together.
    #[error("the rows of queue {queue} contradict each other: {rule}")]
    Inconsistent {
        /// The queue's name.
        queue: String,
        /// What does not hold.
        rule: String,
    },
}

/// How far a recovery is.
#[derive(Debug, Default)]
pub struct Progress {
    /// Queues that are loaded.
    pub queues: AtomicU64,
    /// Queues that there are.
    pub queues_total: AtomicU64,
    /// Keys that were read.
    pub keys: AtomicU64,
    /// Events that were replayed.
    pub events: AtomicU64,
}

impl Progress {
    /// Queues, all queues, keys and events.
    #[must_use]
    pub fn counts(&self) -> [u64; 4] {
        [&self.queues, &self.queues_total, &self.keys, &self.events]
            .map(|count| count.load(Ordering::Relaxed))
    }
}

/// A queue as the store has it.
#[derive(Debug)]
pub struct Loaded {
    /// Who it is.
    pub identity: Identity,
    /// Its state as of its last event.
    pub queue: Queue,
    /// Its last event in the journal.
    pub last_rv: Rv,
    /// The event as of which its checkpoint is.
    pub checkpoint_rv: Rv,
    /// How much of its journal is kept.
    pub kept: Vec<Segment>,
}

/// What a store holds, at a glance.
#[derive(Debug, Default)]
pub struct Contents {
    /// Queues to load.
    pub live: Vec<QueueRow>,
    /// Deleted queues that have left rows.
    pub deleted: Vec<QueueId>,
}

/// Reads which queues there are.
///
/// # Errors
/// [`Error`] if a row is damaged.
pub async fn contents(reader: &dyn Reader) -> Result<Contents, Error> {
    let mut contents = Contents::default();
    let mut decoder = Decoder::default();
    for row in reader.queues().await? {
        let record = decoder.queue(&row)?;
        if record.state.is_some() {
            contents.live.push(row);
        } else {
            contents.deleted.push(row.id);
        }
    }
    Ok(contents)
}

/// Runs work that computes for long between its reads, such as a load, on a thread of its own: the threads
/// of the runtime serve requests. It ends at its next read if nobody waits for it any more.
///
/// # Panics
/// If the work does.
pub async fn on_own_thread<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let runtime = Handle::current();
    if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
        // As in a simulation, which orders all steps itself.
        return work.await;
    }
    let left = CancellationToken::new();
    let (_guard, left) = (left.clone().drop_guard(), left);
    let work = move || runtime.block_on(left.run_until_cancelled_owned(work));
    match tokio::task::spawn_blocking(work).await.map_err(JoinError::try_into_panic) {
        Ok(Some(done)) => done,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // Nobody waits, or the runtime ends.
        Ok(None) | Err(Err(_)) => std::future::pending().await,
    }
}

/// Loads one queue.
///
/// # Errors
/// [`Error`] names the row and what is wrong with it.
pub async fn load(reader: &dyn Reader, row: &QueueRow, progress: &Progress) -> Result<Loaded, Error> {
    let mut decoder = Decoder::default();
    let inconsistent = |rule| Error::Inconsistent { queue: row.name.to_string(), rule };
    let QueueRecord { identity, state, .. } = decoder.queue(row)?;
    let state = state.ok_or_else(|| inconsistent("it is deleted".to_owned()))?;
    let checkpoint_rv = state.rv;
    let mut restore = Restore::new(state);
    let floors = floors(reader, row.id, &mut decoder).await?;
    let read = |slot| reader.keys(row.id, slot, PAGE_KEYS);
    let mut reading = Some(read(0));
    while let Some(page) = reading {
        let page = page.await?;
        let next = page.last().filter(|_| page.len() == PAGE_KEYS).and_then(|row| row.slot.checked_add(1));
        // It is read while this page is restored.
        reading = next.map(read);
        progress.keys.fetch_add(page.len() as u64, Ordering::Relaxed);
        let restored = page.iter().try_for_each(|row| {
            let (slot, state) = decoder.key(row)?;
            if floors.get(&state.key).is_none_or(|floor| *floor < state.rv) {
                restore.key(slot, state).map_err(inconsistent)?;
            }
            Ok::<(), Error>(())
        });
        if let Err(error) = restored {
            if let Some(next) = reading {
                // A reader of one connection needs it back whole. What is read there can't help any more.
                let _ = next.await;
            }
            return Err(error);
        }
    }
    let mut queue = restore.finish().map_err(inconsistent)?;
    let last_rv = replay(reader, row, &mut queue, &floors, &mut decoder, progress).await?;
    queue.check().map_err(inconsistent)?;
    let kept = reader.segments(row.id, SEGMENT_BYTES).await?;
    progress.queues.fetch_add(1, Ordering::Relaxed);
    Ok(Loaded { identity, queue, last_rv, checkpoint_rv, kept })
}

/// For each key that is gone, up to which event its past must not be replayed.
async fn floors(
    reader: &dyn Reader,
    queue: QueueId,
    decoder: &mut Decoder,
) -> Result<HashMap<Key, Rv>, Error> {
    let mut floors = HashMap::new();
    for row in reader.tombstones(queue).await? {
        let gone = decoder.tombstone(&row)?;
        let floor: &mut Rv = floors.entry(gone.key).or_default();
        *floor = gone.rv.max(*floor);
    }
    Ok(floors)
}

/// Applies what happened since the checkpoint; answers the last event.
async fn replay(
    reader: &dyn Reader,
    row: &QueueRow,
    queue: &mut Queue,
    floors: &HashMap<Key, Rv>,
    decoder: &mut Decoder,
    progress: &Progress,
) -> Result<Rv, Error> {
    let mut last_rv = queue.resource_version();
    let mut is_first = true;
    let mut reading = reader.journal(row.id, last_rv, PAGE_BYTES);
    loop {
        let page = reading.await?;
        let Some(last) = page.last() else { return Ok(last_rv) };
        // It is read while this page is replayed.
        reading = reader.journal(row.id, last.last_rv, PAGE_BYTES);
        let replay = |journal: &JournalRow| {
            check_link(row, journal, last_rv, is_first)?;
            is_first = false;
            let events = decoder.events(journal)?;
            progress.events.fetch_add(events.len() as u64, Ordering::Relaxed);
            for event in events.iter().filter(|event| event.rv > last_rv) {
                let floor = event.kind.key().and_then(|key| floors.get(key)).copied().unwrap_or_default();
                queue.replay(event, floor).map_err(|misfit| Error::Event { row: journal.id, misfit })?;
            }
            last_rv = journal.last_rv;
            Ok::<(), Error>(())
        };
        if let Err(error) = page.iter().try_for_each(replay) {
            let _ = reading.await;
            return Err(error);
        }
    }
}

/// The row must follow the events that are there. The checkpoint may know a part of the first.
fn check_link(queue: &QueueRow, row: &JournalRow, last_rv: Rv, is_first: bool) -> Result<(), Error> {
    if row.prev_rv == last_rv || is_first && row.prev_rv < last_rv {
        return Ok(());
    }
    let queue = queue.name.to_string();
    if row.prev_rv > last_rv {
        return Err(Error::Gap { queue, after: last_rv + 1, before: row.prev_rv, row: row.id });
    }
    let rule = format!("journal row {} goes back behind event {last_rv}", row.id);
    Err(Error::Inconsistent { queue, rule })
}
