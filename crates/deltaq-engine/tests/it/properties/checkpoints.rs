//! The checkpoints of one queue without a store: their entries, the state of the last completed checkpoint, and the order in which they
//! were written.

use std::collections::BTreeMap;

use deltaq_engine::event::Event;
use deltaq_engine::id::{Rv, Slot};
use deltaq_engine::key::Key;
use deltaq_engine::snapshot::{CheckpointChunk, KeyState, QueueState, RemovedKey};
use deltaq_engine::{Queue, Restore};

#[derive(Clone, Debug)]
enum Entry {
    Key(Slot, KeyState),
    Removed(RemovedKey),
}

/// One transaction. The events up to `as_of` are durable before it or with it.
#[derive(Debug, Default)]
struct Write {
    as_of: Rv,
    entries: Vec<Entry>,
    /// The state of a completed checkpoint, and the number of its first entry.
    completed: Option<(QueueState, u64)>,
}

/// What is stored after some of the transactions.
#[derive(Clone, Debug)]
struct Stored {
    queue: QueueState,
    /// Numbered, the oldest first.
    entries: Vec<(u64, Entry)>,
    next: u64,
}

/// The transactions of a queue's checkpoints, so that a crash can happen between any two.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    start: Stored,
    /// The event that `start` needs.
    needed: Rv,
    writes: Vec<Write>,
    running: Option<Running>,
    /// How many checkpoints have begun. Every third one is full.
    begun: u64,
    /// The number of the first entry of the last completed checkpoint.
    first: u64,
    /// The number of the next entry.
    next: u64,
    /// How often each case occurred.
    pub(crate) hits: BTreeMap<&'static str, u64>,
}

#[derive(Debug)]
struct Running {
    /// The state at the beginning.
    state: QueueState,
    /// The number of the first entry.
    first: u64,
    /// Whether all chunks are written.
    ended: bool,
}

impl Checkpoints {
    /// The checkpoints of a new queue, which is journaled from now on.
    pub(crate) fn new(queue: &mut Queue) -> Self {
        queue.journaled();
        let start = Stored { queue: queue.queue_state(), entries: Vec::new(), next: 0 };
        let (writes, hits) = (Vec::new(), BTreeMap::new());
        Self { start, needed: Rv::ZERO, writes, running: None, begun: 0, first: 0, next: 0, hits }
    }

    /// Runs the next part of a checkpoint: its beginning, a chunk in up to `pieces` transactions, or its end. Returns whether it was the
    /// end.
    pub(crate) fn part(&mut self, queue: &mut Queue, entries: usize, looks: usize, pieces: usize) -> bool {
        let as_of = queue.resource_version();
        match self.running.take() {
            None => {
                self.begun += 1;
                let is_full = self.begun.is_multiple_of(3);
                let first = if is_full { self.next } else { self.first };
                let state = queue.begin_checkpoint(is_full);
                self.running = Some(Running { state, first, ended: false });
            }
            Some(Running { state, first, ended: false }) => {
                let chunk = queue.capture(entries, looks);
                let ended = chunk.ended;
                self.write(as_of, chunk, pieces);
                self.running = Some(Running { state, first, ended });
            }
            Some(Running { state, first, ended: true }) => {
                self.writes.push(Write { as_of, completed: Some((state, first)), ..Write::default() });
                queue.end_checkpoint();
                self.hit(if first > self.first {
                    "a full checkpoint is completed"
                } else {
                    "a checkpoint is completed"
                });
                self.first = first;
                return true;
            }
        }
        false
    }

    /// Runs a whole checkpoint.
    pub(crate) fn checkpoint(&mut self, queue: &mut Queue) {
        while !self.part(queue, usize::MAX, usize::MAX, 1) {}
    }

    fn write(&mut self, as_of: Rv, chunk: CheckpointChunk, pieces: usize) {
        let keys = chunk.keys.into_iter().map(|(slot, state)| Entry::Key(slot, state));
        let entries: Vec<_> = chunk.removed.into_iter().map(Entry::Removed).chain(keys).collect();
        self.next += entries.len() as u64;
        for entries in entries.chunks(entries.len().div_ceil(pieces.max(1)).max(1)) {
            self.writes.push(Write { as_of, entries: entries.to_vec(), ..Write::default() });
        }
    }

    /// Number of transactions that need no events behind `rv`.
    pub(crate) fn written_by(&self, rv: Rv) -> usize {
        self.writes.iter().take_while(|write| write.as_of <= rv).count()
    }

    /// The event that the first transactions need.
    pub(crate) fn needs(&self, writes: usize) -> Rv {
        self.writes[..writes].last().map_or(self.needed, |write| write.as_of)
    }

    /// Number of transactions.
    pub(crate) fn len(&self) -> usize {
        self.writes.len()
    }

    /// The queue that the first transactions and `events` give. The events reach at least the event that these transactions need.
    pub(crate) fn recover(&mut self, writes: usize, events: &[Event]) -> Result<Queue, String> {
        let stored = self.stored(writes);
        let mut restore = Restore::new(stored.queue.clone());
        let (mut keys, mut removed) = (BTreeMap::<Key, Rv>::new(), BTreeMap::<Key, Rv>::new());
        for (_, entry) in stored.entries.into_iter().rev() {
            match entry {
                Entry::Key(slot, state) => {
                    let (key, rv) = (state.key.clone(), state.rv);
                    if restore.key(slot, state) {
                        keys.insert(key, rv);
                    } else {
                        self.hit("an entry is out of date");
                    }
                }
                Entry::Removed(gone) => {
                    restore.removed(gone.slot);
                    let removed_at = removed.entry(gone.key).or_default();
                    *removed_at = gone.rv.max(*removed_at);
                }
            }
        }
        let removed_at = |key: &Key| removed.get(key).copied().unwrap_or_default();
        if let Some((key, _)) = keys.iter().find(|(key, rv)| removed_at(key) > **rv) {
            return Err(format!("the entry of {key} outlives its removal"));
        }
        let mut queue = restore.finish()?;
        for event in events.iter().filter(|event| event.rv > stored.queue.rv) {
            let floor = event.kind.key().map_or(Rv::ZERO, removed_at);
            let hit = match event.kind.key() {
                None => "an event of the queue is replayed",
                Some(_) if event.rv <= floor => "an event of a key that was gone is ignored",
                Some(key) if keys.get(key).is_some_and(|rv| event.rv <= *rv) => {
                    "an event that an entry has seen is ignored"
                }
                Some(_) if floor > Rv::ZERO => "a key that was gone comes back",
                Some(_) => "an event of a key is replayed",
            };
            self.hit(hit);
            queue.replay(event, floor).expect("the event fits");
        }
        queue.check().map_err(|rule| format!("recovered: {rule}"))?;
        Ok(queue)
    }

    /// The process ended: only the first transactions were committed.
    pub(crate) fn cut(&mut self, writes: usize) {
        if self.running.take().is_some() {
            self.hit("a checkpoint is cut off");
        }
        self.needed = self.needs(writes);
        self.start = self.stored(writes);
        self.first = self.start.entries.first().map_or(self.start.next, |(number, _)| *number);
        self.next = self.start.next;
        self.writes.clear();
    }

    fn stored(&self, writes: usize) -> Stored {
        let mut stored = self.start.clone();
        for write in &self.writes[..writes] {
            for entry in &write.entries {
                stored.entries.push((stored.next, entry.clone()));
                stored.next += 1;
            }
            if let Some((state, first)) = &write.completed {
                stored.entries.retain(|(number, _)| number >= first);
                stored.queue = state.clone();
            }
        }
        stored
    }

    fn hit(&mut self, what: &'static str) {
        *self.hits.entry(what).or_default() += 1;
    }
}
