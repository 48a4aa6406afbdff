//! The checkpoints of one queue without a store: rows by slot, removed keys, the state of the last completed checkpoint, and the order in
//! which they were written.

use std::collections::BTreeMap;

use deltaq_engine::event::Event;
use deltaq_engine::id::{Rv, Slot};
use deltaq_engine::snapshot::{CheckpointChunk, KeyState, QueueState, RemovedKey};
use deltaq_engine::{Queue, Restore};

/// One transaction. The events up to `as_of` are durable before it or with it.
#[derive(Debug, Default)]
struct Write {
    as_of: Rv,
    gone: Vec<RemovedKey>,
    keys: Vec<(Slot, KeyState)>,
    completed: Option<QueueState>,
}

/// The rows after some of the transactions.
#[derive(Clone, Debug)]
struct Rows {
    queue: QueueState,
    keys: BTreeMap<Slot, KeyState>,
    graves: Vec<RemovedKey>,
}

/// The transactions of a queue's checkpoints, so that a crash can happen between any two.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    start: Rows,
    /// The event that `start` needs.
    needed: Rv,
    writes: Vec<Write>,
    /// The state at the beginning of the running checkpoint, and whether all of its chunks are written.
    running: Option<(QueueState, bool)>,
    /// How often each case occurred.
    pub(crate) hits: BTreeMap<&'static str, u64>,
}

impl Checkpoints {
    /// The checkpoints of a new queue, which is journaled from now on.
    pub(crate) fn new(queue: &mut Queue) -> Self {
        queue.journaled();
        let start = Rows { queue: queue.queue_state(), keys: BTreeMap::new(), graves: Vec::new() };
        Self { start, needed: Rv::ZERO, writes: Vec::new(), running: None, hits: BTreeMap::new() }
    }

    /// Runs the next part of a checkpoint: its beginning, a chunk in up to `pieces` transactions each for the removed and the changed
    /// keys, or its end. Returns whether it was the end.
    pub(crate) fn part(&mut self, queue: &mut Queue, rows: usize, looks: usize, pieces: usize) -> bool {
        let as_of = queue.resource_version();
        match self.running.take() {
            None => self.running = Some((queue.begin_checkpoint(), false)),
            Some((state, false)) => {
                let slice = queue.capture(rows, looks);
                let ended = slice.ended;
                self.write(as_of, &slice, pieces);
                self.running = Some((state, ended));
            }
            Some((state, true)) => {
                self.writes.push(Write { as_of, completed: Some(state), ..Write::default() });
                queue.end_checkpoint();
                self.hit("a checkpoint is completed");
                return true;
            }
        }
        false
    }

    /// Runs a whole checkpoint.
    pub(crate) fn checkpoint(&mut self, queue: &mut Queue) {
        while !self.part(queue, usize::MAX, usize::MAX, 1) {}
    }

    fn write(&mut self, as_of: Rv, slice: &CheckpointChunk, pieces: usize) {
        let size = |all: usize| all.div_ceil(pieces.max(1)).max(1);
        let (gone_size, key_size) = (size(slice.removed.len()), size(slice.keys.len()));
        for gone in slice.removed.chunks(gone_size) {
            self.writes.push(Write { as_of, gone: gone.to_vec(), ..Write::default() });
        }
        let mut keys = slice.keys.chunks(key_size);
        // The last removed keys may share a transaction with the first changed keys.
        if pieces == 1
            && !slice.removed.is_empty()
            && let Some(last) = self.writes.last_mut()
        {
            last.keys = keys.next().unwrap_or_default().to_vec();
        }
        for keys in keys {
            self.writes.push(Write { as_of, keys: keys.to_vec(), ..Write::default() });
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
        let rows = self.rows(writes)?;
        let mut restore = Restore::new(rows.queue.clone());
        let floor = |key: &str| {
            let of_key = rows.graves.iter().filter(|gone| gone.key.as_str() == key);
            of_key.map(|gone| gone.rv).max().unwrap_or_default()
        };
        for (slot, state) in &rows.keys {
            if floor(state.key.as_str()) > state.rv {
                return Err(format!("the row of {} outlives its tombstone row", state.key));
            }
            restore.key(*slot, state.clone())?;
        }
        let mut queue = restore.finish()?;
        let is_behind = |event: &&Event| event.rv > rows.queue.rv;
        for event in events.iter().filter(is_behind) {
            let floor = event.kind.key().map_or(Rv::ZERO, |key| floor(key.as_str()));
            let row = event.kind.key().and_then(|key| rows.keys.values().find(|row| row.key == *key));
            let hit = match event.kind.key() {
                None => "an event of the queue is replayed",
                Some(_) if event.rv <= floor => "an event of a key that was gone is ignored",
                Some(_) if row.is_some_and(|row| event.rv <= row.rv) => {
                    "an event that a row has seen is ignored"
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
    pub(crate) fn cut(&mut self, writes: usize) -> Result<(), String> {
        if self.running.take().is_some() {
            self.hit("a checkpoint is cut off");
        }
        self.needed = self.needs(writes);
        self.start = self.rows(writes)?;
        self.writes.clear();
        Ok(())
    }

    fn rows(&mut self, writes: usize) -> Result<Rows, String> {
        let mut rows = self.start.clone();
        for write in &self.writes[..writes] {
            for gone in &write.gone {
                let row = rows.keys.remove(&gone.slot);
                if row.is_some_and(|row| row.key != gone.key) {
                    return Err(format!("the tombstone row of {} removes another key's row", gone.key));
                }
                rows.graves.push(gone.clone());
            }
            for (slot, state) in &write.keys {
                let other = rows.keys.iter().find(|(other, row)| *other != slot && row.key == state.key);
                if let Some((other, _)) = other {
                    return Err(format!("{} has a row in slot {other} and in slot {slot}", state.key));
                }
                if let Some(old) = rows.keys.insert(*slot, state.clone())
                    && old.key != state.key
                {
                    return Err(format!("the row of {} takes the place of {}", state.key, old.key));
                }
            }
            if let Some(state) = &write.completed {
                rows.graves.retain(|gone| gone.rv > state.rv);
                rows.queue = state.clone();
            }
        }
        Ok(rows)
    }

    fn hit(&mut self, what: &'static str) {
        *self.hits.entry(what).or_default() += 1;
    }
}
