//! The fake store: rows in memory and planned faults, for tests of everything above a store. It passes the same
//! rules as a real store.

use deltaq_engine::id::Rv;
use std::collections::{BTreeMap, HashSet};
use std::ops::{Bound, Range};
use std::sync::Arc;

use deltaq_journal::TextId;
use deltaq_journal::store::{
    Epoch, Error, History, JournalRow, Numbers, Opening, PAGE_RUNS, Position, QueueId, QueueRow,
    REMOVED_BYTES_MAX, REMOVED_ROWS_MAX, REMOVED_RUNS_MAX, Reader, References, Referring, RunRow,
    SERIES_ROWS_MAX, Segment, SeriesRow, SharedText, Size, Store, Writes,
};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{Owner, Place};

/// The rows and the planned faults. Clones share one store.
#[derive(Clone, Debug)]
pub(crate) struct FakeStore {
    disk: Arc<Mutex<Disk>>,
    plan: Arc<Mutex<Plan>>,
    held: watch::Sender<bool>,
    dark: watch::Sender<bool>,
}

/// A fault of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing is written, and the step fails.
    Refused,
    /// Nothing is written, because the disk is full.
    Full,
    /// Everything is written, but the step fails.
    Doubted,
    /// The store panics.
    Panic,
    /// The power fails before anything is written: the step never ends.
    CrashBefore,
    /// The power fails after everything is written: the step never ends.
    CrashAfter,
}

#[derive(Clone, Debug, Default)]
struct Disk {
    /// By queue and `prev_rv`.
    journal: BTreeMap<(QueueId, Rv), JournalRow>,
    queues: BTreeMap<QueueId, QueueRow>,
    /// By queue and number.
    runs: BTreeMap<(QueueId, u64), RunRow>,
    /// Rows do not have the texts to which they refer.
    texts: BTreeMap<TextId, Arc<str>>,
    /// The numbers of queues whose rows were removed.
    numbers: Numbers,
    epoch: Epoch,
    dirty: bool,
    /// By hour and queue.
    series: BTreeMap<(u32, QueueId), Vec<u8>>,
}

#[derive(Debug, Default)]
struct Plan {
    /// Number of writes and reopenings so far.
    steps: u64,
    faults: BTreeMap<u64, Fault>,
    /// While set, every step has this fault.
    broken: Option<Fault>,
    /// The fault of a write that follows from its rows.
    by_rows: Option<fn(&Writes) -> Option<Fault>>,
    /// Whether a step has failed since the last reopening.
    failed: bool,
    /// The epoch of this writer.
    epoch: Epoch,
    /// The last event of each queue in the writes that have succeeded.
    acknowledged: BTreeMap<QueueId, Rv>,
}

impl Default for FakeStore {
    fn default() -> Self {
        Self {
            disk: Arc::default(),
            plan: Arc::default(),
            held: watch::Sender::new(false),
            dark: watch::Sender::new(false),
        }
    }
}

impl FakeStore {
    /// A copy of the present rows as a separate store: what a restart finds.
    pub(crate) fn restarted(&self) -> Self {
        let copy = self.disk.lock().clone();
        Self { disk: Arc::new(Mutex::new(copy)), ..Self::default() }
    }

    /// The same rows for another writer, whose steps have no faults yet. Its opening fences this writer.
    pub(crate) fn for_another_writer(&self) -> Self {
        Self { disk: self.disk.clone(), ..Self::default() }
    }

    /// The rows as they are now, for [`roll_back`](Self::roll_back).
    pub(crate) fn saved(&self) -> SavedRows {
        SavedRows(self.disk.lock().clone())
    }

    /// Takes the rows back, as a failover to a replica that lags does. The next step of the writer fails, because its connection
    /// has ended.
    pub(crate) fn roll_back(&self, saved: SavedRows) {
        *self.disk.lock() = saved.0;
        self.fault_at(self.steps() + 1, Fault::Refused);
    }

    /// Opens the store in a new epoch.
    pub(crate) fn opening(&self) -> Opening {
        let mut disk = self.disk.lock();
        let epoch = disk.next_epoch();
        self.plan.lock().epoch = epoch;
        Opening { clean: !disk.dirty, numbers: disk.numbers(), epoch, wall: None }
    }

    /// Holds back all steps until [`release`](Self::release).
    pub(crate) fn hold(&self) {
        self.held.send_replace(true);
    }

    /// Lets steps proceed again.
    pub(crate) fn release(&self) {
        self.held.send_replace(false);
    }

    /// Gives every step this fault until [`repair`](Self::repair), including a step that is held back.
    pub(crate) fn break_by(&self, fault: Fault) {
        self.plan.lock().broken = Some(fault);
        self.release();
    }

    /// Removes all faults, including the planned ones.
    pub(crate) fn repair(&self) {
        let mut plan = self.plan.lock();
        plan.broken = None;
        plan.faults.clear();
    }

    /// Plans a fault for the step with this number. Writes and reopenings count, from 1.
    pub(crate) fn fault_at(&self, step: u64, fault: Fault) {
        self.plan.lock().faults.insert(step, fault);
    }

    /// Lets the rows of each write decide its fault.
    pub(crate) fn fault_by_rows(&self, fault: fn(&Writes) -> Option<Fault>) {
        self.plan.lock().by_rows = Some(fault);
    }

    /// Number of writes and reopenings so far.
    pub(crate) fn steps(&self) -> u64 {
        self.plan.lock().steps
    }

    /// All journal rows, by queue, oldest first.
    pub(crate) fn journal_rows(&self) -> Vec<JournalRow> {
        let disk = self.disk.lock();
        disk.loaded(disk.journal.values())
    }

    /// The journal rows of a queue behind this event, oldest first.
    pub(crate) fn journal_rows_behind(&self, queue: QueueId, rv: Rv) -> Vec<JournalRow> {
        let disk = self.disk.lock();
        disk.loaded(disk.journal.range((queue, rv)..=(queue, Rv::MAX)).map(|(_, row)| row))
    }

    /// Changes rows without the writer, in any epoch.
    ///
    /// # Errors
    /// If the rows contradict each other.
    pub(crate) fn put(&self, writes: Writes) -> Result<(), Error> {
        self.disk.lock().apply(writes)
    }

    /// All rows of series.
    pub(crate) fn series_rows(&self) -> Vec<SeriesRow> {
        let disk = self.disk.lock();
        let row = |((hour, queue), content): (&(u32, QueueId), &Vec<u8>)| SeriesRow {
            hour: *hour,
            queue: *queue,
            content: content.clone(),
        };
        disk.series.iter().map(row).collect()
    }

    /// Removes all runs.
    pub(crate) fn remove_runs(&self) {
        self.disk.lock().runs.clear();
    }

    /// Waits until a planned fault has cut the power.
    pub(crate) async fn crashed(&self) {
        // The sender is part of `self`, so the wait can't fail.
        let _dark = self.dark.subscribe().wait_for(|dark| *dark).await.is_ok();
    }

    async fn crash<T>(&self) -> T {
        self.dark.send_replace(true);
        std::future::pending().await
    }

    /// Waits while steps are held back, then returns the fault of the next step.
    async fn step(&self, writes: &Writes) -> Option<Fault> {
        // The sender is part of `self`, so the wait can't fail.
        let mut held = self.held.subscribe();
        let _released = held.wait_for(|held| !held).await.is_ok();
        let mut plan = self.plan.lock();
        plan.steps += 1;
        let step = plan.steps;
        let fault = plan.faults.remove(&step).or(plan.broken).or_else(|| plan.by_rows?(writes));
        plan.failed |= fault.is_some();
        fault
    }
}

/// Rows at an earlier time.
pub(crate) struct SavedRows(Disk);

fn failed(doing: &str) -> Error {
    Error::Failed { doing: doing.to_owned(), source: None }
}

impl Store for FakeStore {
    async fn write(&mut self, writes: Writes) -> Result<(), Error> {
        if self.plan.lock().failed {
            return Err(failed("write before it was opened again"));
        }
        let fault = self.step(&writes).await;
        assert_ne!(fault, Some(Fault::Panic), "the store panics");
        let reached: Vec<_> = writes.journal.iter().map(|row| (row.queue, row.last_rv)).collect();
        if matches!(fault, None | Some(Fault::Doubted | Fault::CrashAfter))
            && let Err(error) = self.disk.lock().apply_in_epoch(writes)
        {
            self.plan.lock().failed = true;
            return Err(error);
        }
        match fault {
            None => {
                self.plan.lock().acknowledged.extend(reached);
                Ok(())
            }
            Some(Fault::Refused | Fault::Doubted | Fault::Panic) => Err(failed("write")),
            Some(Fault::Full) => Err(Error::Full { source: None }),
            Some(Fault::CrashBefore | Fault::CrashAfter) => self.crash().await,
        }
    }

    async fn has_rows(&mut self, queue: QueueId) -> Result<bool, Error> {
        let disk = self.disk.lock();
        Ok(disk.journal_of(queue).next().is_some() || disk.runs_of(queue, 0..u64::MAX).next().is_some())
    }

    async fn references(
        &mut self,
        table: Referring,
        after: Position,
        limit: u32,
    ) -> Result<References, Error> {
        let disk = self.disk.lock();
        let position = |queue: QueueId, at: u64| (queue.0.into(), at.cast_signed());
        let all: References = match table {
            Referring::Journal => {
                let rows = disk.journal.values();
                rows.map(|row| (position(row.queue, row.prev_rv.get()), row.texts.clone())).collect()
            }
            Referring::Runs => {
                let rows = disk.runs.values();
                rows.map(|row| (position(row.queue, row.number), row.texts.clone())).collect()
            }
        };
        let next = all.into_iter().filter(|(at, texts)| *at > after && !texts.is_empty());
        Ok(next.take(limit as usize).collect())
    }

    async fn texts(&mut self, after: Option<TextId>, limit: u32) -> Result<Vec<(TextId, u64)>, Error> {
        let disk = self.disk.lock();
        let next = disk.texts.iter().filter(|(id, _)| after.is_none_or(|after| **id > after));
        Ok(next.map(|(id, text)| (*id, text.len() as u64)).take(limit as usize).collect())
    }

    async fn reopen(&mut self) -> Result<Epoch, Error> {
        match self.step(&Writes::default()).await {
            None => {
                let (mut disk, mut plan) = (self.disk.lock(), self.plan.lock());
                if let Some(found) = disk.lost_of(&plan.acknowledged) {
                    return Err(Error::RolledBack { found });
                }
                disk.check_epoch(plan.epoch)?;
                plan.failed = false;
                plan.epoch = disk.next_epoch();
                Ok(plan.epoch)
            }
            Some(Fault::Full) => Err(Error::Full { source: None }),
            Some(Fault::CrashBefore | Fault::CrashAfter) => self.crash().await,
            Some(_) => Err(failed("open the store")),
        }
    }

    async fn upkeep(&mut self) -> Result<Size, Error> {
        let disk = self.disk.lock();
        disk.check_epoch(self.plan.lock().epoch)?;
        Ok(Size { bytes: disk.bytes(), free: 0 })
    }

    async fn close(self) {}
}

impl Disk {
    /// Fails if another writer has begun an epoch.
    fn check_epoch(&self, own: Epoch) -> Result<(), Error> {
        if own == self.epoch { Ok(()) } else { Err(Error::Fenced { own, found: self.epoch }) }
    }

    /// Applies all changes, or none: nothing of an earlier epoch.
    fn apply_in_epoch(&mut self, writes: Writes) -> Result<(), Error> {
        self.check_epoch(writes.epoch)?;
        self.apply(writes)
    }

    /// The queues that lack acknowledged events. A deleted queue has none, and its row says how far it had come.
    fn lost_of(&self, acknowledged: &BTreeMap<QueueId, Rv>) -> Option<String> {
        let reached = |queue: QueueId| {
            let row = self.queues.get(&queue).map(|row| row.rv);
            self.journal_of(queue).map(|row| row.last_rv).chain(row).max()
        };
        let is_lost = |(queue, rv): &(&QueueId, &Rv)| {
            let is_forgotten = self.numbers.queue >= queue.0 && !self.queues.contains_key(queue);
            !is_forgotten && reached(**queue).unwrap_or_default() < **rv
        };
        let lost: Vec<_> = acknowledged.iter().filter(is_lost).map(|(queue, _)| queue.to_string()).collect();
        (!lost.is_empty()).then(|| format!("events of the queues {}", lost.join(", ")))
    }

    /// Applies all changes, or none.
    fn apply(&mut self, writes: Writes) -> Result<(), Error> {
        let mut fresh = HashSet::new();
        for row in &writes.journal {
            let id = (row.queue, row.prev_rv);
            if self.journal.contains_key(&id) || !fresh.insert(id) {
                return Err(failed("write two rows behind one event"));
            }
        }
        for row in &writes.runs {
            if self.runs.contains_key(&(row.queue, row.number)) {
                return Err(failed("write two runs of one number"));
            }
        }
        let mut queues = self.queues.clone();
        queues.extend(writes.queues.into_iter().map(|row| (row.id, row)));
        let mut names = HashSet::new();
        if !queues.values().filter(|row| !row.deleted).all(|row| names.insert(row.name.clone())) {
            return Err(failed("write a second queue of one name"));
        }
        self.queues = queues;
        for shared in writes.texts {
            self.texts.insert(shared.id, shared.text);
        }
        for mut row in writes.journal {
            unload(&mut row.texts);
            self.journal.insert((row.queue, row.prev_rv), row);
        }
        for mut row in writes.runs {
            unload(&mut row.texts);
            self.runs.insert((row.queue, row.number), row);
        }
        for (queue, numbers) in writes.removed_runs {
            let end = numbers.end.min(numbers.start.saturating_add(REMOVED_RUNS_MAX.into()));
            self.runs.retain(|(of, number), _| *of != queue || !(numbers.start..end).contains(number));
        }
        for (queue, rv) in writes.trimmed {
            self.remove_journal(queue, rv, REMOVED_ROWS_MAX, REMOVED_BYTES_MAX);
        }
        for (queue, rows) in writes.emptied {
            self.empty(queue, rows);
        }
        self.numbers = self.numbers();
        for queue in writes.forgotten {
            if self.queues.get(&queue).is_some_and(|row| row.deleted) {
                self.queues.remove(&queue);
            }
        }
        for id in writes.unused_texts {
            self.texts.remove(&id);
        }
        self.series.extend(writes.series.into_iter().map(|row| ((row.hour, row.queue), row.content)));
        if let Some(hours) = writes.series_hours {
            self.series.retain(|(hour, _), _| hours.contains(hour));
        }
        if let Some(clean) = writes.clean {
            self.dirty = !clean;
        }
        Ok(())
    }

    /// Loads the texts to which rows refer. A text that is missing or damaged stays empty.
    fn load<'a>(&self, texts: impl Iterator<Item = &'a mut SharedText>) {
        for shared in texts {
            let text = self.texts.get(&shared.id).filter(|text| TextId::of(text) == shared.id);
            shared.text = text.cloned().unwrap_or_default();
        }
    }

    /// Rows with the texts to which they refer.
    fn loaded<'a>(&self, rows: impl Iterator<Item = &'a JournalRow>) -> Vec<JournalRow> {
        let mut rows: Vec<_> = rows.cloned().collect();
        self.load(rows.iter_mut().flat_map(|row| &mut row.texts));
        rows
    }

    fn next_epoch(&mut self) -> Epoch {
        self.epoch.0 += 1;
        self.epoch
    }

    fn numbers(&self) -> Numbers {
        self.queues.values().fold(self.numbers, |numbers, row| Numbers {
            queue: numbers.queue.max(row.id.0),
            version: numbers.version.max(row.version),
            floor: if row.deleted { numbers.floor.max(row.rv) } else { numbers.floor },
        })
    }

    /// The journal of a queue, oldest first.
    fn journal_of(&self, queue: QueueId) -> impl DoubleEndedIterator<Item = &JournalRow> {
        self.journal.range((queue, Rv::ZERO)..=(queue, Rv::MAX)).map(|(_, row)| row)
    }

    /// The runs of a queue with these numbers, oldest first.
    fn runs_of(&self, queue: QueueId, numbers: Range<u64>) -> impl DoubleEndedIterator<Item = &RunRow> {
        self.runs.range((queue, numbers.start)..(queue, numbers.end)).map(|(_, row)| row)
    }

    /// Removes the oldest rows of a queue up to an event, up to both bounds.
    fn remove_journal(&mut self, queue: QueueId, rv: Rv, rows: u32, bytes: u64) {
        let mut removed = 0;
        let within = |row: &&JournalRow| {
            let goes_too = removed <= bytes;
            removed += row.events.len() as u64;
            goes_too
        };
        let oldest = self.journal_of(queue).take_while(|row| row.last_rv <= rv).take(rows as usize);
        for prev_rv in oldest.take_while(within).map(|row| row.prev_rv).collect::<Vec<_>>() {
            self.journal.remove(&(queue, prev_rv));
        }
    }

    fn empty(&mut self, queue: QueueId, rows: u32) {
        self.remove_journal(queue, Rv::MAX, rows.min(REMOVED_ROWS_MAX), u64::MAX);
        let runs = self.runs_of(queue, 0..u64::MAX).map(|row| row.number);
        for number in runs.take(rows.min(REMOVED_RUNS_MAX) as usize).collect::<Vec<_>>() {
            self.runs.remove(&(queue, number));
        }
    }

    /// Bytes of all texts.
    fn bytes(&self) -> u64 {
        let events = self.journal.values().map(|row| row.events.len());
        let entries = self.runs.values().map(|row| row.entries.len());
        let texts = self.texts.values().map(|text| text.len());
        events.chain(entries).chain(texts).map(|bytes| bytes as u64).sum()
    }
}

fn ready<T: Send + 'static>(value: T) -> BoxFuture<'static, Result<T, Error>> {
    Box::pin(std::future::ready(Ok(value)))
}

fn unload(texts: &mut [SharedText]) {
    for shared in texts {
        shared.text = Arc::default();
    }
}

impl Reader for FakeStore {
    fn queues(&self) -> BoxFuture<'_, Result<Vec<QueueRow>, Error>> {
        ready(self.disk.lock().queues.values().cloned().collect())
    }

    fn runs(&self, queue: QueueId, numbers: Range<u64>) -> BoxFuture<'_, Result<Vec<RunRow>, Error>> {
        let disk = self.disk.lock();
        let mut rows: Vec<_> = disk.runs_of(queue, numbers).rev().take(PAGE_RUNS).cloned().collect();
        disk.load(rows.iter_mut().flat_map(|row| &mut row.texts));
        ready(rows)
    }

    fn oldest_run(&self, queue: QueueId) -> BoxFuture<'_, Result<Option<u64>, Error>> {
        ready(self.disk.lock().runs_of(queue, 0..u64::MAX).next().map(|row| row.number))
    }

    fn journal(
        &self,
        queue: QueueId,
        after: Rv,
        bytes: usize,
    ) -> BoxFuture<'_, Result<Vec<JournalRow>, Error>> {
        let disk = self.disk.lock();
        let rows = disk.journal_of(queue).filter(|row| row.last_rv > after);
        let mut left = bytes;
        let mut page: Vec<JournalRow> = Vec::new();
        for row in rows {
            let bytes = usize::try_from(row.bytes()).unwrap_or(usize::MAX);
            if !page.is_empty() && bytes > left {
                break;
            }
            left = left.saturating_sub(bytes);
            page.push(row.clone());
        }
        disk.load(page.iter_mut().flat_map(|row| &mut row.texts));
        ready(page)
    }

    fn history(&self, queue: QueueId, from: Rv, bytes: usize) -> BoxFuture<'_, Result<History, Error>> {
        let disk = self.disk.lock();
        let rows = disk.journal_of(queue).rev().filter(|row| row.first_rv <= from);
        let mut left = bytes;
        let mut page: Vec<JournalRow> = Vec::new();
        let mut next = None;
        for row in rows {
            if page.len() >= 2 && left == 0 {
                next = page.last().map(|row| row.first_rv);
                break;
            }
            left = left.saturating_sub(usize::try_from(row.bytes()).unwrap_or(usize::MAX));
            page.push(row.clone());
        }
        disk.load(page.iter_mut().flat_map(|row| &mut row.texts));
        ready((page, next))
    }

    fn segments(&self, queue: QueueId, bytes: u64) -> BoxFuture<'_, Result<Vec<Segment>, Error>> {
        let disk = self.disk.lock();
        let mut all: Vec<Segment> = Vec::new();
        for row in disk.journal_of(queue) {
            let next = Segment { last_rv: row.last_rv, at: row.at, bytes: row.bytes() };
            match all.last_mut() {
                Some(last) if last.bytes + next.bytes <= bytes => {
                    *last = Segment { bytes: last.bytes + next.bytes, ..next };
                }
                _ => all.push(next),
            }
        }
        ready(all)
    }

    fn series(&self, before: Option<(u32, QueueId)>) -> BoxFuture<'_, Result<Vec<SeriesRow>, Error>> {
        let disk = self.disk.lock();
        let before = before.map_or(Bound::Unbounded, Bound::Excluded);
        let rows = disk.series.range((Bound::Unbounded, before)).rev().take(SERIES_ROWS_MAX);
        let row = |((hour, queue), content): (&(u32, QueueId), &Vec<u8>)| SeriesRow {
            hour: *hour,
            queue: *queue,
            content: content.clone(),
        };
        ready(rows.map(row).collect())
    }
}

impl Place for FakeStore {
    type Store = Self;

    async fn open(&self) -> (Owner<Self>, Arc<dyn Reader>, Opening) {
        let opening = self.opening();
        (Owner::new(self.clone(), &opening), Arc::new(self.clone()), opening)
    }
}
