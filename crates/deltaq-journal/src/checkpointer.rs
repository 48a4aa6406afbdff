//! The checkpoint: captures every changed key and writes it in runs while the queues run.
//!
//! The checkpoint is fuzzy: each run shows several instants. The queue's own row is written last and shows the instant at
//! which its checkpoint began. A replay starts at that instant and skips events that a key's entry already contains.
//!
//! Runs are only added. A checkpoint usually adds the changed keys to the runs that exist. Once most of their bytes are
//! out of date, it contains all keys, and then the runs before it are obsolete.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::id::{Rv, Slot};
use deltaq_engine::snapshot::{KeyState, QueueState, RemovedKey};

use super::commit_queue::CommitQueue;
use super::grouped_batch::QueueLogs;
use super::hooks::Live;
use super::options::WriterOptions;
use super::record::{self, Identity, NewRun};
use super::runs::Runs;
use super::store::{QueueId, QueueRow, Writes};

/// Target time for writing a chunk.
const CHUNK_TIME: Duration = Duration::from_millis(5);
/// A row counts as this many bytes more than it has.
const ROW_BYTES: usize = 1_024;

/// A running checkpoint.
#[derive(Debug)]
pub(super) struct Checkpoint {
    begun_us: u64,
    options: WriterOptions,
    /// The size of a chunk in bytes. It adapts so that a chunk takes about [`CHUNK_TIME`].
    bytes: usize,
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
    is_full: bool,
    /// Its runs.
    pub(super) runs: Runs,
    /// The size of the queue's state.
    pub(super) live_bytes: u64,
    live: Arc<dyn Live>,
}

/// The queue whose keys are being written.
#[derive(Debug)]
struct Current {
    live: Arc<dyn Live>,
    identity: Identity,
    state: QueueState,
    /// Whether the checkpoint contains all keys.
    is_full: bool,
    runs: Runs,
    run: NewRun,
    removed: std::vec::IntoIter<RemovedKey>,
    keys: std::vec::IntoIter<(Slot, KeyState)>,
    captured_all: bool,
    /// Whether the queue's rows share large objects.
    shares: bool,
}

impl Checkpoint {
    pub(super) fn new(queues: VecDeque<QueueId>, begun_us: u64, options: WriterOptions) -> Self {
        let bytes = *options.chunk_bytes.start();
        Self { begun_us, options, bytes, todo: queues, current: None, completed: Vec::new() }
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
        let mut room = self.bytes;
        while room > 0 {
            let Some(mut current) = self.current.take().or_else(|| self.begin(logs, commit_queue)) else {
                break;
            };
            let Some(left) = current.fill(&mut writes, room, &self.options) else { continue };
            room = left;
            if current.is_done() {
                let row = self.complete(current);
                room = room.saturating_sub(row.state.len() + ROW_BYTES);
                writes.queues.push(row);
            } else {
                self.current = Some(current);
            }
        }
        writes
    }

    /// Records that the chunk is durable; writing it took `took`.
    pub(super) fn wrote(&mut self, took: Duration) -> Vec<Completed> {
        let bytes = if took > CHUNK_TIME { self.bytes / 2 } else { self.bytes * 3 / 2 };
        self.bytes = bytes.clamp(*self.options.chunk_bytes.start(), *self.options.chunk_bytes.end());
        for done in &mut self.completed {
            let Completed { live, live_bytes, is_full, runs, .. } = done;
            live.with(&mut |queue| {
                queue.end_checkpoint();
                *live_bytes = queue.live_bytes();
            });
            if *is_full {
                runs.measure(runs.bytes, *live_bytes);
            }
        }
        std::mem::take(&mut self.completed)
    }

    /// Records that the chunk could not be written. The captured parts of its queues are lost, so these queues must
    /// be reloaded. Returns them.
    pub(super) fn lose(self) -> Vec<QueueId> {
        let current = self.current.map(|current| (current.identity.id, current.live));
        let completed = self.completed.into_iter().map(|completed| (completed.queue, completed.live));
        let lost = completed.chain(current).map(|(queue, live)| {
            live.lose();
            queue
        });
        lost.collect()
    }

    /// Drops the captured parts of a queue that is about to be loaded again.
    pub(super) fn release(&mut self, queue: QueueId) {
        self.current.take_if(|current| current.identity.id == queue);
        self.completed.retain(|completed| completed.queue != queue);
    }

    fn begin(&mut self, logs: &QueueLogs, commit_queue: &CommitQueue) -> Option<Current> {
        loop {
            let queue = self.todo.pop_front()?;
            let Some((log, live)) = logs.get(&queue).zip(commit_queue.live(queue)) else { continue };
            let (mut state, mut runs, mut is_full) = (None, log.runs, false);
            live.with(&mut |queue| {
                if queue.resource_version() > log.checkpoint_rv {
                    is_full = runs.has_much_garbage(queue.live_bytes(), self.options.state_bytes_min);
                    if is_full {
                        runs.begin_again();
                    }
                    state = Some(queue.begin_checkpoint(is_full));
                }
            });
            if let Some(state) = state {
                return Some(Current {
                    live,
                    identity: log.identity.clone(),
                    state,
                    is_full,
                    runs,
                    run: NewRun::default(),
                    removed: Vec::new().into_iter(),
                    keys: Vec::new().into_iter(),
                    captured_all: false,
                    shares: log.shares,
                });
            }
        }
    }

    /// Returns the row of the queue.
    fn complete(&mut self, current: Current) -> QueueRow {
        let Current { live, identity, state, is_full, runs, .. } = current;
        let (queue, rv) = (identity.id, state.rv);
        self.completed.push(Completed { queue, rv, is_full, runs, live_bytes: 0, live });
        record::queue_row(&identity, &state, runs.numbers())
    }
}

impl Current {
    /// Adds runs to a chunk that has `room` bytes. Returns the remaining room, which is 0 if the chunk must end here, or
    /// `None` if the queue is deleted.
    fn fill(&mut self, writes: &mut Writes, room: usize, options: &WriterOptions) -> Option<usize> {
        let mut left = room;
        while left > 0 {
            if let Some(removed) = self.removed.next() {
                self.run.add_removed(&removed);
            } else if let Some((slot, state)) = self.keys.next() {
                self.run.add_key(slot, &state, self.shares);
            } else if !self.captured_all {
                self.capture(options)?;
            } else if !self.run.is_empty() {
                left = left.saturating_sub(self.close_run(writes));
            } else {
                break;
            }
            if self.run.is_full(options.run_bytes) {
                left = left.saturating_sub(self.close_run(writes));
            }
        }
        Some(left)
    }

    /// Adds the run to a chunk. Returns its size.
    fn close_run(&mut self, writes: &mut Writes) -> usize {
        let row = std::mem::take(&mut self.run).close(self.identity.id, self.runs.next);
        let bytes = row.bytes();
        self.runs.add(bytes);
        writes.runs.push(row);
        usize::try_from(bytes).unwrap_or(usize::MAX).saturating_add(ROW_BYTES)
    }

    fn capture(&mut self, options: &WriterOptions) -> Option<()> {
        let mut chunk = None;
        self.live.with(&mut |queue| chunk = Some(queue.capture(options.captured, options.examined)));
        let chunk = chunk?;
        self.removed = chunk.removed.into_iter();
        self.keys = chunk.keys.into_iter();
        self.captured_all = chunk.ended;
        Some(())
    }

    fn is_done(&self) -> bool {
        self.captured_all && self.removed.len() == 0 && self.keys.len() == 0 && self.run.is_empty()
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
    use super::super::record::Decoder;
    use super::super::store::{Epoch, Numbers, RunRow};
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

    /// A queue with its log.
    struct Bench {
        live: Arc<Running>,
        logs: QueueLogs,
        commit_queue: CommitQueue,
    }

    const ID: QueueId = QueueId(1);

    impl Bench {
        fn new(config: Config) -> Self {
            let mut queue = Queue::new(Arc::new(config), Rv::ZERO, Time::from_micros(1));
            queue.journaled();
            let logs = QueueLogs::from([(ID, QueueLog::new(identity(ID), Rv::ZERO, queue.config()))]);
            let live = Arc::new(Running(Mutex::new(queue)));
            let registered: Arc<dyn Live> = live.clone();
            let commit_queue = CommitQueue::new(Numbers::default(), Epoch::default(), usize::MAX);
            commit_queue.attach(ID, Arc::downgrade(&registered));
            Self { live, logs, commit_queue }
        }

        fn seed(&self, round: u64, keys: std::ops::Range<u32>, object: &str) {
            let object = Object::from_valid(object);
            let seeds = keys.map(|key| (Key::new(&key.to_string()).unwrap(), object.clone(), None));
            self.live.with(&mut |queue| {
                queue.seed_step(Time::from_micros(1 + round), seeds.clone());
                let _effects = queue.take_effects();
            });
        }

        /// Writes a checkpoint. Returns the runs of each chunk, and the row of the queue.
        fn checkpoint(&mut self, options: WriterOptions) -> (Vec<Vec<RunRow>>, QueueRow) {
            let mut checkpoint = Checkpoint::new([ID].into(), 0, options);
            let (mut chunks, mut row) = (Vec::new(), None);
            while !checkpoint.has_ended() {
                let writes = checkpoint.next_chunk(&self.logs, &self.commit_queue);
                chunks.push(writes.runs);
                row = writes.queues.into_iter().next().or(row);
                for done in checkpoint.wrote(Duration::ZERO) {
                    let log = self.logs.get_mut(&ID).unwrap();
                    (log.checkpoint_rv, log.runs) = (done.rv, done.runs);
                }
            }
            (chunks, row.unwrap())
        }
    }

    fn keys_of(run: &RunRow) -> usize {
        Decoder::new().run(run).unwrap().len()
    }

    /// Commits wait for a chunk, so a chunk must stay short however large the objects are.
    #[test]
    fn a_chunk_of_large_objects_has_few_keys() {
        const LARGE: usize = 400 << 10;
        let mut bench = Bench::new(Config::default());
        bench.seed(1, 0..100, &format!("{{\"text\":\"{}\"}}", "x".repeat(LARGE)));
        let (chunks, _) =
            bench.checkpoint(WriterOptions { chunk_bytes: 1 << 20..=1 << 20, ..WriterOptions::default() });
        let keys: Vec<usize> = chunks.iter().map(|runs| runs.iter().map(keys_of).sum()).collect();
        assert_eq!(keys.iter().sum::<usize>(), 100, "{keys:?}");
        assert!(keys.iter().all(|keys| *keys <= 3), "{keys:?}");
    }

    #[test]
    fn runs_are_full_and_numbered_without_gaps() {
        let mut bench = Bench::new(Config::default());
        bench.seed(1, 0..1_000, "{}");
        let (chunks, row) =
            bench.checkpoint(WriterOptions { chunk_bytes: 1..=1, ..WriterOptions::default() });
        let runs = chunks.concat();
        assert_eq!(runs.iter().map(keys_of).collect::<Vec<_>>(), [128, 128, 128, 128, 128, 128, 128, 104]);
        assert!(runs.iter().map(|run| run.number).eq(0..8));
        assert_eq!((row.first_run, row.next_run), (0, 8));
        bench.seed(2, 7..8, "{\"a\":1}");
        let (chunks, row) = bench.checkpoint(WriterOptions::default());
        assert_eq!(
            chunks.concat().iter().map(|run| (run.number, keys_of(run))).collect::<Vec<_>>(),
            [(8, 1)]
        );
        assert_eq!((row.first_run, row.next_run), (0, 9));
    }

    /// Otherwise the store would grow with every change.
    #[test]
    fn runs_become_obsolete_once_most_of_their_bytes_are_outdated() {
        let mut bench = Bench::new(Config::default());
        let options = WriterOptions { state_bytes_min: 1, ..WriterOptions::default() };
        let (mut full, mut bytes_max) = (0, 0);
        for round in 1..=20 {
            bench.seed(round, 0..1_000, &format!("{{\"text\":\"{}\",\"round\":{round}}}", "x".repeat(200)));
            let next = bench.logs[&ID].runs.next;
            let (chunks, row) = bench.checkpoint(options.clone());
            assert_eq!(chunks.concat().iter().map(keys_of).sum::<usize>(), 1_000);
            full += usize::from(row.first_run == next && round > 1);
            bytes_max = bytes_max.max(bench.logs[&ID].runs.bytes);
        }
        assert!((5..=10).contains(&full), "{full} of 20 checkpoints are full");
        assert!(bytes_max < 4 * 1_000 * 300, "{bytes_max} bytes");
        // A checkpoint of the whole state does not depend on what has changed.
        bench.seed(21, 0..1, "{\"a\":1}");
        let runs = bench.logs.get_mut(&ID).map(|log| &mut log.runs).unwrap();
        runs.bytes = u64::MAX;
        let (chunks, _) = bench.checkpoint(options);
        assert_eq!(chunks.concat().iter().map(keys_of).sum::<usize>(), 1_000);
    }

    /// Entries of removed keys must not accumulate.
    #[test]
    fn removed_keys_disappear() {
        const KEYS: usize = 1_000;
        let mut bench = Bench::new(Config { known_objects: false, ..Config::default() });
        let options = WriterOptions { state_bytes_min: 64 << 10, ..WriterOptions::default() };
        for round in 0..20 {
            bench.live.with(&mut |queue| {
                let pop = pop_of(KEYS);
                let leased = queue.pop(Time::from_micros(1), &pop).unwrap();
                let acks: Vec<_> =
                    leased.iter().map(|item| Settle { token: item.token, how: How::Ack }).collect();
                queue.settle(Time::from_micros(1), &acks);
                let adds: Vec<_> = (0..KEYS).map(|key| add(&format!("{round}-{key}"))).collect();
                queue.produce(Time::from_micros(1), &adds).unwrap();
                let _effects = queue.take_effects();
            });
            bench.checkpoint(options.clone());
            let bytes = bench.logs[&ID].runs.bytes;
            assert!(bytes < 4 * 400 * KEYS as u64, "{bytes} bytes in round {round}");
        }
    }

    fn pop_of(max: usize) -> Pop {
        Pop {
            max,
            max_bytes: usize::MAX,
            lease: None,
            worker: None,
            id: None,
            with_known: false,
            group: None,
        }
    }

    fn add(key: &str) -> Call {
        Call {
            kind: DeltaKind::Added,
            key: Key::new(key).unwrap(),
            object: Some(Object::from_valid("{}")),
            source: None,
            delay: None,
            debounce: None,
            head_start: None,
            final_state_unknown: false,
            rate_limited: false,
            trace: None,
            version: None,
        }
    }
}
