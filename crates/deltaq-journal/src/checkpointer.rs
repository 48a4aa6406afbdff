//! The checkpoint: captures every changed key and writes it in chunks while the queues run.
//!
//! The checkpoint is fuzzy: each chunk shows a different instant. The queue's own row is written last and shows the
//! instant at which its checkpoint began. A replay starts at that instant and skips events that a key's row already
//! contains.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::id::{Rv, Slot};
use deltaq_engine::snapshot::{KeyState, RemovedKey};

use super::commit_queue::CommitQueue;
use super::grouped_batch::QueueLogs;
use super::hooks::Live;
use super::options::WriterOptions;
use super::record;
use super::store::{QueueId, QueueRow, Writes};

/// Target time for writing a chunk.
const CHUNK_TIME: Duration = Duration::from_millis(5);
/// A row with more bytes counts as several rows.
const ROW_BYTES: usize = 4_096;
/// A tombstone counts as this many short rows, because an older tombstone is removed along with it. So a chunk never
/// adds more tombstones than one write removes ([`REMOVED_ROWS_MAX`](super::store::REMOVED_ROWS_MAX)).
const TOMBSTONE_ROWS: usize = 2;

/// A running checkpoint.
#[derive(Debug)]
pub(super) struct Checkpoint {
    begun_us: u64,
    options: WriterOptions,
    /// The size of a chunk, in short rows. It adapts so that a chunk takes about [`CHUNK_TIME`].
    rows: usize,
    todo: VecDeque<QueueId>,
    current: Option<Current>,
    /// The queues whose checkpoint the last chunk completes, once the chunk is written.
    completed: Vec<Completed>,
}

/// A queue whose checkpoint is complete and durable.
pub(super) struct Completed {
    pub(super) queue: QueueId,
    /// The event at which the checkpoint began.
    pub(super) rv: Rv,
    /// The size of the queue's state.
    pub(super) live_bytes: u64,
    live: Arc<dyn Live>,
}

/// The queue whose keys are being written.
#[derive(Debug)]
struct Current {
    live: Arc<dyn Live>,
    row: QueueRow,
    /// The event at which the queue's previous checkpoint began: its tombstones up to here have expired.
    previous_rv: Rv,
    gone: std::vec::IntoIter<RemovedKey>,
    keys: std::vec::IntoIter<(Slot, KeyState)>,
    captured_all: bool,
    /// Whether the queue's rows share large objects.
    shares: bool,
}

impl Checkpoint {
    pub(super) fn new(queues: VecDeque<QueueId>, begun_us: u64, options: WriterOptions) -> Self {
        let rows = *options.rows.start();
        Self { begun_us, options, rows, todo: queues, current: None, completed: Vec::new() }
    }

    pub(super) fn begun_us(&self) -> u64 {
        self.begun_us
    }

    /// Whether nothing is left to write.
    pub(super) fn has_ended(&self) -> bool {
        self.current.is_none() && self.todo.is_empty()
    }

    /// Captures the next chunk. It must be written after all batches that are waiting now.
    pub(super) fn next_chunk(&mut self, logs: &QueueLogs, commit_queue: &CommitQueue) -> Writes {
        let mut writes = Writes::default();
        let mut room = self.rows;
        while room > 0 {
            let Some(mut current) = self.current.take().or_else(|| self.begin(logs, commit_queue)) else {
                break;
            };
            let Some(left) = current.fill(&mut writes, room, &self.options) else { continue };
            room = left;
            if current.is_done() {
                room = room.saturating_sub(size(current.row.state.len()));
                self.complete(current, &mut writes);
            } else {
                if writes.tombstones.last().is_some_and(|last| last.queue == current.row.id) {
                    writes.expired_tombstones.push((current.row.id, current.previous_rv));
                }
                self.current = Some(current);
            }
        }
        writes
    }

    /// Records that the chunk is durable; writing it took `took`.
    pub(super) fn wrote(&mut self, took: Duration) -> Vec<Completed> {
        let rows = if took > CHUNK_TIME { self.rows / 2 } else { self.rows * 3 / 2 };
        self.rows = rows.clamp(*self.options.rows.start(), *self.options.rows.end());
        for done in &mut self.completed {
            let Completed { live, live_bytes, .. } = done;
            live.with(&mut |queue| {
                queue.end_checkpoint();
                *live_bytes = queue.live_bytes();
            });
        }
        std::mem::take(&mut self.completed)
    }

    /// Records that the chunk could not be written. The captured parts of its queues are lost, so these queues must
    /// be reloaded.
    pub(super) fn lose(self) {
        let current = self.current.map(|current| current.live);
        for live in self.completed.into_iter().map(|completed| completed.live).chain(current) {
            live.lose();
        }
    }

    /// Drops the captured parts of a queue that is about to be loaded again.
    pub(super) fn release(&mut self, queue: QueueId) {
        self.current.take_if(|current| current.row.id == queue);
        self.completed.retain(|completed| completed.queue != queue);
    }

    fn begin(&mut self, logs: &QueueLogs, commit_queue: &CommitQueue) -> Option<Current> {
        loop {
            let queue = self.todo.pop_front()?;
            let Some((log, live)) = logs.get(&queue).zip(commit_queue.live(queue)) else { continue };
            let mut state = None;
            live.with(&mut |queue| {
                if queue.resource_version() > log.checkpoint_rv {
                    state = Some(queue.begin_checkpoint());
                }
            });
            if let Some(state) = state {
                let row = record::queue_row(&log.identity, &state);
                let (gone, keys) = (Vec::new().into_iter(), Vec::new().into_iter());
                let previous_rv = log.checkpoint_rv;
                let shares = log.shares;
                return Some(Current { live, row, previous_rv, gone, keys, captured_all: false, shares });
            }
        }
    }

    fn complete(&mut self, current: Current, writes: &mut Writes) {
        let Current { live, row, .. } = current;
        writes.expired_tombstones.push((row.id, row.rv));
        self.completed.push(Completed { queue: row.id, rv: row.rv, live_bytes: 0, live });
        writes.queues.push(row);
    }
}

/// How many short rows a row with this many bytes of text counts as.
fn size(bytes: usize) -> usize {
    1 + bytes / ROW_BYTES
}

impl Current {
    /// Adds rows to a chunk that has `room`. Returns the remaining room, which is 0 if the chunk must end here, or
    /// `None` if the queue is deleted.
    fn fill(&mut self, writes: &mut Writes, room: usize, options: &WriterOptions) -> Option<usize> {
        let mut left = room;
        let mut has_keys = false;
        while left > 0 {
            if let Some(gone) = self.gone.next() {
                writes.tombstones.push(record::tombstone(self.row.id, &gone));
                left = left.saturating_sub(TOMBSTONE_ROWS);
            } else if let Some((slot, state)) = self.keys.next() {
                let row = record::key_row(self.row.id, slot, &state, self.shares);
                let object = row.known_object.as_ref().map_or(0, |object| object.len());
                let texts: usize = row.texts.iter().map(|shared| shared.text.len()).sum();
                let item = row.item.as_ref().map_or(0, String::len);
                left = left.saturating_sub(size(object + item + texts));
                writes.keys.push(row);
                has_keys = true;
            } else if self.captured_all {
                break;
            } else {
                self.capture(options)?;
                // A store writes tombstones before keys. A key of this chunk may have been removed after its
                // capture, so its tombstone must go into the next chunk.
                if has_keys && self.gone.len() > 0 {
                    return Some(0);
                }
            }
        }
        Some(left)
    }

    fn capture(&mut self, options: &WriterOptions) -> Option<()> {
        let mut chunk = None;
        self.live.with(&mut |queue| chunk = Some(queue.capture(options.captured, options.examined)));
        let chunk = chunk?;
        self.gone = chunk.removed.into_iter();
        self.keys = chunk.keys.into_iter();
        self.captured_all = chunk.ended;
        Some(())
    }

    fn is_done(&self) -> bool {
        self.captured_all && self.gone.len() == 0 && self.keys.len() == 0
    }
}

impl fmt::Debug for Completed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Completed({} as of {})", self.queue, self.rv)
    }
}

#[cfg(test)]
mod tests {
    use deltaq_engine::Queue;
    use deltaq_engine::command::{Call, How, Pop, Settle};
    use deltaq_engine::config::Config;
    use deltaq_engine::delta::DeltaKind;
    use deltaq_engine::key::Key;
    use deltaq_engine::object::Object;
    use deltaq_engine::time::Time;
    use deltaq_types::name::{Incarnation, Name};
    use parking_lot::Mutex;

    use super::super::queue_log::QueueLog;
    use super::super::record::Identity;
    use super::super::store::{Epoch, Numbers, REMOVED_ROWS_MAX};
    use super::*;

    #[derive(Debug)]
    struct Running(Mutex<Queue>);

    impl Live for Running {
        fn with(&self, look: &mut dyn FnMut(&mut Queue)) -> bool {
            look(&mut self.0.lock());
            true
        }

        fn lose(&self) {}
    }

    fn identity(id: QueueId) -> Identity {
        let (name, created_at) = (Name::new("q").unwrap(), Time::from_micros(1));
        Identity { id, version: 1, name, incarnation: Incarnation(1), created_at }
    }

    /// Commits wait for a chunk, so a chunk must stay short however large the objects are.
    #[test]
    fn a_chunk_of_large_objects_has_few_rows() {
        let mut queue = Queue::new(Arc::default(), Rv::ZERO, Time::from_micros(1));
        queue.journaled();
        let object = Object::from_valid(&format!("{{\"text\":\"{}\"}}", "x".repeat(100 * ROW_BYTES)));
        let seeds = (0..100).map(|key: u32| (Key::new(&key.to_string()).unwrap(), object.clone(), None));
        queue.seed_step(Time::from_micros(2), seeds);
        let id = QueueId(1);
        let logs = QueueLogs::from([(id, QueueLog::new(identity(id), Rv::ZERO, queue.config()))]);
        let live: Arc<dyn Live> = Arc::new(Running(Mutex::new(queue)));
        let commit_queue = CommitQueue::new(Numbers::default(), Epoch::default(), usize::MAX);
        commit_queue.attach(id, Arc::downgrade(&live));
        let mut checkpoint =
            Checkpoint::new([id].into(), 0, WriterOptions { rows: 250..=250, ..WriterOptions::default() });
        let mut chunks = Vec::new();
        while !checkpoint.has_ended() {
            chunks.push(checkpoint.next_chunk(&logs, &commit_queue).keys.len());
            checkpoint.wrote(Duration::ZERO);
        }
        assert_eq!(chunks.iter().sum::<usize>(), 100, "{chunks:?}");
        assert!(chunks.iter().all(|keys| *keys <= 3), "{chunks:?}");
    }

    /// A store removes a bounded number of tombstones in one write, so that commits do not wait for long.
    #[test]
    fn tombstones_of_short_lived_keys_do_not_accumulate() {
        const KEYS: usize = 3 * REMOVED_ROWS_MAX as usize;
        let config = Config { known_objects: false, ..Config::default() };
        let mut queue = Queue::new(Arc::new(config), Rv::ZERO, Time::from_micros(1));
        queue.journaled();
        let id = QueueId(1);
        let live = Arc::new(Running(Mutex::new(queue)));
        let registered: Arc<dyn Live> = live.clone();
        let commit_queue = CommitQueue::new(Numbers::default(), Epoch::default(), usize::MAX);
        commit_queue.attach(id, Arc::downgrade(&registered));
        let mut logs = QueueLogs::from([(id, QueueLog::new(identity(id), Rv::ZERO, &Config::default()))]);
        let mut stored: Vec<Rv> = Vec::new();
        for round in 0..6 {
            live.with(&mut |queue| {
                let pop = pop_of(KEYS);
                let leased = queue.pop(Time::from_micros(1), &pop).unwrap();
                let acks: Vec<_> =
                    leased.iter().map(|item| Settle { token: item.token, how: How::Ack }).collect();
                queue.settle(Time::from_micros(1), &acks);
                let adds: Vec<_> = (0..KEYS).map(|key| add(&format!("{round}-{key}"))).collect();
                queue.produce(Time::from_micros(1), &adds).unwrap();
                let _effects = queue.take_effects();
            });
            let mut checkpoint = Checkpoint::new([id].into(), 0, WriterOptions::default());
            while !checkpoint.has_ended() {
                let writes = checkpoint.next_chunk(&logs, &commit_queue);
                stored.extend(writes.tombstones.iter().map(|stone| stone.rv));
                for (_, rv) in writes.expired_tombstones {
                    let expired = stored.iter().take_while(|stone| **stone <= rv).count();
                    stored.drain(..expired.min(REMOVED_ROWS_MAX as usize));
                }
                for done in checkpoint.wrote(Duration::ZERO) {
                    logs.get_mut(&id).unwrap().checkpoint_rv = done.rv;
                }
            }
            assert!(stored.len() <= 2 * KEYS, "{} tombstones in round {round}", stored.len());
        }
    }

    fn pop_of(max: usize) -> Pop {
        Pop { max, max_bytes: usize::MAX, lease: None, worker: None, id: None, with_known: false }
    }

    fn add(key: &str) -> Call {
        Call {
            kind: DeltaKind::Added,
            key: Key::new(key).unwrap(),
            object: Some(Object::from_valid("{}")),
            source: None,
            delay: None,
            final_state_unknown: false,
            rate_limited: false,
            trace: None,
            version: None,
        }
    }
}
