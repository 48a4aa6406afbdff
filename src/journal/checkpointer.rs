//! The checkpoint: every key that has changed, captured and written slice by slice while the queues run.
//!
//! It is fuzzy: each slice is of another instant. The queue's own row, written last, is as of the
//! instant when its checkpoint began; a replay starts there and leaves alone what a key's row knows.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::commit_queue::CommitQueue;
use super::grouped_batch::QueueLogs;
use super::store::{QueueId, QueueRow, Writes};
use super::{Live, WriterOptions, record};
use crate::engine::delta::Rv;
use crate::engine::schedule::Slot;
use crate::engine::snapshot::{KeyState, RemovedKey};

/// A slice is to take the writer about this long.
const SLICE: Duration = Duration::from_millis(5);
/// A row that is longer counts for several.
const ROW_BYTES: usize = 4_096;

/// A checkpoint that runs.
#[derive(Debug)]
pub(super) struct Checkpoint {
    begun_us: u64,
    pace: WriterOptions,
    /// Room of a slice, in short rows, so that writing it takes about as long as it should.
    rows: usize,
    todo: VecDeque<QueueId>,
    current: Option<Current>,
    /// What the slice that was taken last completes, once it is written.
    completed: Vec<Completed>,
}

/// A queue whose checkpoint is durable.
pub(super) struct Completed {
    pub(super) queue: QueueId,
    /// The event as of which it is.
    pub(super) rv: Rv,
    /// The size of the queue's state.
    pub(super) live_bytes: u64,
    live: Arc<dyn Live>,
}

/// The queue that is being written.
#[derive(Debug)]
struct Current {
    live: Arc<dyn Live>,
    row: QueueRow,
    gone: std::vec::IntoIter<RemovedKey>,
    keys: std::vec::IntoIter<(Slot, KeyState)>,
    captured_all: bool,
}

impl Checkpoint {
    pub(super) fn new(queues: VecDeque<QueueId>, begun_us: u64, pace: WriterOptions) -> Self {
        let rows = *pace.rows.start();
        Self { begun_us, pace, rows, todo: queues, current: None, completed: Vec::new() }
    }

    pub(super) fn begun_us(&self) -> u64 {
        self.begun_us
    }

    /// Whether nothing is left to write.
    pub(super) fn has_ended(&self) -> bool {
        self.current.is_none() && self.todo.is_empty()
    }

    /// Captures the next slice. It may only be written after all events that have gathered by now.
    pub(super) fn next(&mut self, logs: &QueueLogs, commit_queue: &CommitQueue) -> Writes {
        let mut writes = Writes::default();
        let mut room = self.rows;
        while room > 0 {
            let Some(mut current) = self.current.take().or_else(|| self.begin(logs, commit_queue)) else {
                break;
            };
            let Some(left) = current.fill(&mut writes, room, &self.pace) else { continue };
            room = left;
            if current.is_done() {
                room = room.saturating_sub(size(current.row.state.len()));
                self.complete(current, &mut writes);
            } else {
                self.current = Some(current);
            }
        }
        writes
    }

    /// The slice is durable, after the writer was busy with it for `took`.
    pub(super) fn wrote(&mut self, took: Duration) -> Vec<Completed> {
        let rows = if took > SLICE { self.rows / 2 } else { self.rows * 3 / 2 };
        self.rows = rows.clamp(*self.pace.rows.start(), *self.pace.rows.end());
        for done in &mut self.completed {
            let Completed { live, live_bytes, .. } = done;
            live.with(&mut |queue| {
                queue.end_checkpoint();
                *live_bytes = queue.live_bytes();
            });
        }
        std::mem::take(&mut self.completed)
    }

    /// The slice was not written. What was captured of the queues is lost, so they are loaded again.
    pub(super) fn lose(self) {
        let current = self.current.map(|current| current.live);
        for live in self.completed.into_iter().map(|completed| completed.live).chain(current) {
            live.lose();
        }
    }

    /// Forgets what was captured of a queue that is to be loaded again.
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
                return Some(Current { live, row, gone, keys, captured_all: false });
            }
        }
    }

    fn complete(&mut self, current: Current, writes: &mut Writes) {
        let Current { live, row, .. } = current;
        writes.outlived.push((row.id, row.rv));
        self.completed.push(Completed { queue: row.id, rv: row.rv, live_bytes: 0, live });
        writes.queues.push(row);
    }
}

/// How much of a slice's room a row takes that has so many bytes of text.
fn size(bytes: usize) -> usize {
    1 + bytes / ROW_BYTES
}

impl Current {
    /// Adds rows to a slice for which there is `room`; says how much room is left, none if the slice must end. None
    /// if the queue is gone.
    fn fill(&mut self, writes: &mut Writes, room: usize, pace: &WriterOptions) -> Option<usize> {
        let mut left = room;
        let mut has_keys = false;
        while left > 0 {
            if let Some(gone) = self.gone.next() {
                writes.tombstones.push(record::tombstone(self.row.id, &gone));
                left -= 1;
            } else if let Some((slot, state)) = self.keys.next() {
                let row = record::key_row(self.row.id, slot, &state);
                let object = row.known_object.as_ref().map_or(0, |object| object.len());
                left = left.saturating_sub(size(object + row.item.as_ref().map_or(0, String::len)));
                writes.keys.push(row);
                has_keys = true;
            } else if self.captured_all {
                break;
            } else {
                self.capture(pace)?;
                // A store removes what is gone before it writes keys. What is gone since the keys of
                // this slice were captured may be among them, so it has to come in another slice.
                if has_keys && self.gone.len() > 0 {
                    return Some(0);
                }
            }
        }
        Some(left)
    }

    fn capture(&mut self, pace: &WriterOptions) -> Option<()> {
        let mut slice = None;
        self.live.with(&mut |queue| slice = Some(queue.capture(pace.captured, pace.looked_at)));
        let slice = slice?;
        self.gone = slice.removed.into_iter();
        self.keys = slice.keys.into_iter();
        self.captured_all = slice.ended;
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
    use std::sync::{Mutex, PoisonError};

    use super::super::{QueueLog, record::Identity, store::Numbers};
    use super::*;
    use crate::engine::Queue;
    use crate::engine::key::Key;
    use crate::engine::object::Object;
    use crate::engine::time::Time;
    use crate::name::{Incarnation, Name};

    #[derive(Debug)]
    struct Running(Mutex<Queue>);

    impl Live for Running {
        fn with(&self, look: &mut dyn FnMut(&mut Queue)) -> bool {
            look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
            true
        }

        fn lose(&self) {}
    }

    /// However large the objects are, a slice must not hold up the commits between.
    #[test]
    fn a_slice_of_large_objects_has_few_of_them() {
        let mut queue = Queue::new(Arc::default(), 0, Time::from_micros(1));
        queue.journaled();
        let object = Object::from_valid(&format!("{{\"text\":\"{}\"}}", "x".repeat(100 * ROW_BYTES)));
        let seeds = (0..100).map(|key: u32| (Key::new(&key.to_string()).unwrap(), object.clone(), None));
        queue.seed_step(Time::from_micros(2), seeds);
        let id = QueueId(1);
        let (name, created_at) = (Name::new("q").unwrap(), Time::from_micros(1));
        let identity = Identity { id, version: 1, name, incarnation: Incarnation(1), created_at };
        let logs = QueueLogs::from([(id, QueueLog::new(identity, 0, queue.config().retention))]);
        let live: Arc<dyn Live> = Arc::new(Running(Mutex::new(queue)));
        let commit_queue = CommitQueue::new(Numbers::default(), usize::MAX);
        commit_queue.attach(id, Arc::downgrade(&live));
        let mut checkpoint =
            Checkpoint::new([id].into(), 0, WriterOptions { rows: 250..=250, ..WriterOptions::default() });
        let mut slices = Vec::new();
        while !checkpoint.has_ended() {
            slices.push(checkpoint.next(&logs, &commit_queue).keys.len());
            checkpoint.wrote(Duration::ZERO);
        }
        assert_eq!(slices.iter().sum::<usize>(), 100, "{slices:?}");
        assert!(slices.iter().all(|keys| *keys <= 3), "{slices:?}");
    }
}
