//! Loads queues from rows: first the last checkpoint, then the journal after it, with the same `apply` as live
//! traffic.
//!
//! Damage is never skipped. A changed row, a gap between two rows or an unknown format ends the load with an error
//! that names the location.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use deltaq_engine::{Misfit, NoNumbers, Queue, Restore};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

use super::options::SEGMENT_BYTES;
use super::record::{self, Decoder, Identity, QueueRecord, RunEntry};
use super::runs::Runs;
use super::store::{self, Epoch, JournalRow, QueueId, QueueRow, Reader, Segment};

/// How many bytes of events are read at a time.
const PAGE_BYTES: usize = 4 << 20;

/// Why a queue can't be loaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store can't be read.
    #[error("the store can't be read")]
    Read(#[from] store::Error),
    /// A row is damaged.
    #[error(transparent)]
    Row(#[from] record::Error),
    /// Rows are missing.
    #[error(
        "the journal of queue {queue} has a gap: events {after} to {before} are missing before event {next}"
    )]
    Gap {
        /// The queue's name.
        queue: String,
        /// The first event that is missing.
        after: Rv,
        /// The last event that is missing.
        before: Rv,
        /// The first event after the gap.
        next: Rv,
    },
    /// An event does not fit the state that results from the previous rows.
    #[error("the journal row of queue {queue} from event {first_rv} on can't be replayed: {misfit}")]
    Event {
        /// The queue's name.
        queue: String,
        /// The first event of the row.
        first_rv: Rv,
        /// The event, and the rule that it breaks.
        misfit: Box<Misfit>,
    },
    /// The queue can't begin a new life.
    #[error("queue {queue} can't begin a life")]
    Numbers {
        /// The queue's name.
        queue: String,
        /// The last number of the queue.
        source: NoNumbers,
    },
    /// The rows do not fit together.
    #[error("the rows of queue {queue} contradict each other: {rule}")]
    Inconsistent {
        /// The queue's name.
        queue: String,
        /// The rule that does not hold.
        rule: String,
    },
}

/// The progress of a recovery.
#[derive(Debug, Default)]
pub struct Progress {
    /// Number of loaded queues.
    pub queues: AtomicU64,
    /// Number of queues in the store.
    pub queues_total: AtomicU64,
    /// Number of keys that were read.
    pub keys: AtomicU64,
    /// Number of events that were replayed.
    pub events: AtomicU64,
}

impl Progress {
    /// The counts of loaded queues, all queues, keys and events.
    #[must_use]
    pub fn counts(&self) -> [u64; 4] {
        [&self.queues, &self.queues_total, &self.keys, &self.events]
            .map(|count| count.load(Ordering::Relaxed))
    }
}

/// A queue that was loaded from the store.
#[derive(Debug)]
pub struct Loaded {
    /// Its identity.
    pub identity: Identity,
    /// Its state at its last event.
    pub queue: Queue,
    /// Its last event in the journal.
    pub last_rv: Rv,
    /// The event at which its checkpoint began.
    pub checkpoint_rv: Rv,
    /// The runs of its checkpoints.
    pub runs: Runs,
    /// The sizes of its retained journal.
    pub retained: Vec<Segment>,
}

/// The queues of a store.
#[derive(Debug, Default)]
pub struct Contents {
    /// The queues to load.
    pub live: Vec<QueueRow>,
    /// Deleted queues that may still have rows.
    pub deleted: Vec<QueueId>,
}

/// Reads the list of queues.
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

/// Runs `work` on its own thread, because it computes for a long time between its reads, and the threads of the
/// runtime serve requests. Dropping the future ends the work at its next read.
///
/// # Panics
/// If the work panics.
pub async fn on_own_thread<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let runtime = Handle::current();
    if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
        // A simulation orders all steps itself.
        return work.await;
    }
    let left = CancellationToken::new();
    let (_guard, left) = (left.clone().drop_guard(), left);
    let work = move || runtime.block_on(left.run_until_cancelled_owned(work));
    match tokio::task::spawn_blocking(work).await.map_err(JoinError::try_into_panic) {
        Ok(Some(done)) => done,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // This future is being dropped, or the runtime is shutting down.
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
    let (mut runs, removed, live_bytes) =
        read_runs(reader, row, &mut restore, &mut decoder, progress).await?;
    let mut queue = restore.finish().map_err(inconsistent)?;
    runs.measure(live_bytes, queue.live_bytes());
    let last_rv = replay(reader, row, &mut queue, &removed, &mut decoder, progress).await?;
    queue.check().map_err(inconsistent)?;
    let retained = reader.segments(row.id, SEGMENT_BYTES).await?;
    progress.queues.fetch_add(1, Ordering::Relaxed);
    Ok(Loaded { identity, queue, last_rv, checkpoint_rv, runs, retained })
}

/// Removed keys, with the events that removed them. The events of a key up to that event must not be replayed.
type Removed = HashMap<Key, Rv>;

/// Restores the keys of a queue from its runs, newest first. Also returns about how many bytes the entries of these keys have.
async fn read_runs(
    reader: &dyn Reader,
    row: &QueueRow,
    restore: &mut Restore,
    decoder: &mut Decoder,
    progress: &Progress,
) -> Result<(Runs, Removed, u64), Error> {
    let first = row.first_run;
    let mut runs = Runs::from(first);
    let mut live_bytes = 0;
    let mut removed = Removed::new();
    // The number of the run that was read last.
    let mut last: Option<u64> = None;
    let mut reading = Some(reader.runs(row.id, first..u64::MAX));
    while let Some(page) = reading {
        let page = page.await?;
        let before = page.last().map(|run| run.number).filter(|number| *number > first);
        // The next page is read while this one is restored.
        reading = before.map(|before| reader.runs(row.id, first..before));
        let restored = page.iter().try_for_each(|run| {
            match last {
                Some(last) if run.number + 1 != last => return Err(missing(row, last - 1)),
                Some(_) => {}
                None => runs.next = run.number + 1,
            }
            last = Some(run.number);
            runs.count(run.bytes());
            let entries = decoder.run(run)?;
            let (all, mut live) = (entries.len() as u64, 0);
            for entry in entries.into_iter().rev() {
                match entry {
                    RunEntry::Key(slot, state) => {
                        let is_newest = restore.key(slot, state);
                        live += u64::from(is_newest);
                    }
                    RunEntry::Removed(gone) => {
                        restore.removed(gone.slot);
                        if gone.rv > row.rv {
                            let removed_at: &mut Rv = removed.entry(gone.key).or_default();
                            *removed_at = gone.rv.max(*removed_at);
                        }
                    }
                }
            }
            progress.keys.fetch_add(live, Ordering::Relaxed);
            live_bytes += run.bytes() * live / all.max(1);
            Ok(())
        });
        if let Err(error) = restored {
            if let Some(next) = reading {
                // A reader with a single connection needs it back before the next read.
                let _ = next.await;
            }
            return Err(error);
        }
    }
    if runs.next < row.next_run {
        return Err(missing(row, row.next_run - 1));
    }
    if last.is_some_and(|last| last > first) {
        return Err(missing(row, first));
    }
    runs.oldest = reader.oldest_run(row.id).await?.unwrap_or(first);
    Ok((runs, removed, live_bytes))
}

fn missing(row: &QueueRow, number: u64) -> Error {
    Error::Inconsistent { queue: row.name.to_string(), rule: format!("run {number} is missing") }
}

/// Applies the events since the checkpoint. Returns the last event.
async fn replay(
    reader: &dyn Reader,
    row: &QueueRow,
    queue: &mut Queue,
    removed: &Removed,
    decoder: &mut Decoder,
    progress: &Progress,
) -> Result<Rv, Error> {
    let mut last_rv = queue.resource_version();
    let mut epoch = None;
    let mut reading = reader.journal(row.id, last_rv, PAGE_BYTES);
    loop {
        let page = reading.await?;
        let Some(last) = page.last() else { return Ok(last_rv) };
        // The next page is read while this one is replayed.
        reading = reader.journal(row.id, last.last_rv, PAGE_BYTES);
        let replay = |journal: &JournalRow| {
            check_link(row, journal, last_rv, epoch)?;
            epoch = Some(journal.epoch);
            let events = decoder.events(journal)?;
            progress.events.fetch_add(events.len() as u64, Ordering::Relaxed);
            for event in events.iter().filter(|event| event.rv > last_rv) {
                let removed_at =
                    event.kind.key().and_then(|key| removed.get(key)).copied().unwrap_or_default();
                queue.replay(event, removed_at).map_err(|misfit| Error::Event {
                    queue: row.name.to_string(),
                    first_rv: journal.first_rv,
                    misfit: Box::new(misfit),
                })?;
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

/// Checks that the row follows the previous events, and that its epoch is not lower than `before`, the epoch of the
/// previous row. The checkpoint may contain a part of the first row.
fn check_link(queue: &QueueRow, row: &JournalRow, last_rv: Rv, before: Option<Epoch>) -> Result<(), Error> {
    let queue = queue.name.to_string();
    if let Some(before) = before.filter(|before| row.epoch < *before) {
        let rule = format!(
            "the journal row from event {} on is of epoch {}, and the row before it of epoch {}",
            row.first_rv, row.epoch.0, before.0
        );
        return Err(Error::Inconsistent { queue, rule });
    }
    if row.prev_rv == last_rv || before.is_none() && row.prev_rv < last_rv {
        return Ok(());
    }
    if row.prev_rv > last_rv {
        return Err(Error::Gap { queue, after: last_rv.next(), before: row.prev_rv, next: row.first_rv });
    }
    let rule = format!("the journal row from event {} on goes back behind event {last_rv}", row.first_rv);
    Err(Error::Inconsistent { queue, rule })
}

#[cfg(test)]
mod tests {
    use deltaq_engine::time::Time;

    use super::*;

    #[test]
    fn a_row_follows_the_previous_events_and_the_previous_epoch() {
        let time = Time::from_micros(1);
        let queue = QueueRow {
            id: QueueId(1),
            version: 1,
            name: "q".into(),
            incarnation: 1,
            created_at: time,
            deleted: false,
            rv: Rv::new(3),
            first_run: 0,
            next_run: 0,
            state: String::new(),
            format: 1,
            checksum: 0,
        };
        let check = |prev_rv, epoch, last_rv, before: Option<u64>| {
            let (prev_rv, last_rv) = (Rv::new(prev_rv), Rv::new(last_rv));
            let (queue_id, epoch, events) = (QueueId(1), Epoch(epoch), String::new());
            let row = JournalRow {
                queue: queue_id,
                epoch,
                prev_rv,
                first_rv: prev_rv.next(),
                last_rv: prev_rv.plus(2),
                at: time,
                format: 1,
                texts: Vec::new(),
                text_bytes: 0,
                events,
                checksum: 0,
            };
            check_link(&queue, &row, last_rv, before.map(Epoch)).map_err(|error| error.to_string())
        };
        assert_eq!(check(5, 2, 5, None), Ok(()));
        assert_eq!(check(4, 2, 5, None), Ok(()), "the checkpoint contains a part of the first row");
        assert_eq!(check(5, 2, 5, Some(1)), Ok(()));
        for (prev_rv, epoch, before, wrong) in [
            (7, 2, None, "events 6 to 7 are missing before event 8"),
            (7, 2, Some(2), "events 6 to 7 are missing before event 8"),
            (4, 2, Some(2), "from event 5 on goes back behind event 5"),
            (5, 2, Some(3), "from event 6 on is of epoch 2, and the row before it of epoch 3"),
        ] {
            let found = check(prev_rv, epoch, 5, before).unwrap_err();
            assert!(found.contains(wrong), "{found}");
        }
    }
}
