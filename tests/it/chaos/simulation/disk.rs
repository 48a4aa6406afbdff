//! The store of a simulated node: a slow store in memory, and a record of all its events. The record has the histories of the views, and
//! judges the changes that followers have taken.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::event::{Appended, Event, EventKind, Origin};
use deltaq_engine::id::Rv;
use deltaq_engine::view::View;
use deltaq_engine::{Queue, Restore};
use deltaq_journal::TextId;
use deltaq_journal::record::Decoder;
use deltaq_journal::recovery::{self, Progress};
use deltaq_journal::store::{
    Epoch, Error, History, JournalRow, Position, QueueId, QueueRow, Reader, References, Referring, RunRow,
    Segment, SeriesRow, Size, Store, Writes,
};
use fastrand::Rng;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::Violation;
use crate::followers::{TakenChanges, TakenEvents};
use crate::store::fake::FakeStore;
use crate::view_history::{Change, NaiveView, ViewHistory};

/// A store whose steps take random times, by a seed. Clones are the same store.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    pub(super) memory: FakeStore,
    timing: Timing,
    twins: Arc<Mutex<Twins>>,
    /// What the next read waits for that finds no further rows of a journal.
    held_read: Arc<Mutex<Option<oneshot::Receiver<()>>>>,
}

/// The duration of the steps of a store.
#[derive(Clone, Debug)]
pub(super) enum Timing {
    /// Steps take no time.
    Instant,
    /// All steps take the same time.
    Steady(Duration),
    /// Steps take random times.
    Random(Arc<Mutex<Rng>>),
}

/// Every queue as of its last durable event, built from events alone, without checkpoints.
#[derive(Debug, Default)]
struct Twins {
    queues: BTreeMap<QueueId, Twin>,
    taken: TakenChanges,
    taken_events: TakenEvents,
    /// Number of changes that followers have taken.
    taken_count: u64,
    /// The first broken promise.
    failure: Option<Violation>,
}

#[derive(Debug)]
struct Twin {
    name: Arc<str>,
    incarnation: u32,
    queue: Queue,
    history: ViewHistory,
}

impl Disk {
    /// An empty store.
    pub(super) fn new(timing: Timing) -> Self {
        Self { memory: FakeStore::default(), timing, twins: Arc::default(), held_read: Arc::default() }
    }

    /// The store after a restart.
    pub(super) fn restarted(&self) -> Self {
        Self { memory: self.memory.restarted(), ..self.clone() }
    }

    /// The store as another node opens it, without faults.
    pub(super) fn for_another_node(&self) -> Self {
        Self { memory: self.memory.for_another_writer(), ..self.clone() }
    }

    /// Holds back the end of the next read of a whole journal, until the sender is used.
    pub(super) fn hold_read(&self) -> oneshot::Sender<()> {
        let (release, held) = oneshot::channel();
        *self.held_read.lock() = Some(held);
        release
    }

    /// Whether a read has come to the point where it is held back.
    pub(super) fn holds_read(&self) -> bool {
        self.held_read.lock().is_none()
    }

    async fn pass_time(&self) {
        let span = match &self.timing {
            Timing::Instant => return,
            Timing::Steady(span) => Some(*span),
            Timing::Random(rng) => span(&mut rng.lock()),
        };
        if let Some(span) = span {
            tokio::time::sleep(span).await;
        }
    }

    /// Applies all durable events to the twins.
    fn follow(&self) -> Result<(), Violation> {
        let mut twins = self.twins.lock();
        let rows = self.memory.queues().now_or_never().expect("memory does not wait");
        let rows = rows.expect("memory can be read");
        if twins.failure.is_none() {
            twins.failure = twins.follow(&rows, &self.memory).err();
        }
        twins.failure.clone().map_or(Ok(()), Err)
    }

    /// Checks that a restart at this moment would give the queues that the durable events give.
    pub(super) fn check_recovery(&self) -> Result<(), Violation> {
        self.follow()?;
        let store = self.memory.restarted();
        let failed = |error: recovery::Error| format!("a restart would fail: {error}");
        let contents = recovery::contents(&store).now_or_never().expect("memory does not wait");
        let twins = self.twins.lock();
        let mut names = BTreeSet::new();
        for row in contents.map_err(failed)?.live {
            if !names.insert(row.name.clone()) {
                return Err(format!("there are two queues {}", row.name));
            }
            let progress = Progress::default();
            let loaded = recovery::load(&store, &row, &progress).now_or_never();
            let loaded = loaded.expect("memory does not wait").map_err(failed)?;
            let twin = twins.queues.get(&row.id).ok_or("a queue that nobody created")?;
            same(&row.name, "recovered", &loaded.queue, &twin.queue)?;
        }
        Ok(())
    }

    /// Checks that a queue without undurable events equals the result of its durable events.
    pub(super) fn check_live(&self, incarnation: u32, live: &Queue) -> Result<(), Violation> {
        let twins = self.twins.lock();
        let twin = twins.queues.values().find(|twin| twin.incarnation == incarnation);
        match twin.filter(|twin| twin.queue.resource_version() == live.resource_version()) {
            Some(twin) => same(&incarnation.to_string(), "live", live, &twin.queue),
            None => Ok(()),
        }
    }

    /// Checks the history of a view of a queue, with all durable changes. A queue that was created and deleted by one commit has none.
    pub(super) fn check_history(
        &self,
        incarnation: u32,
        view: View,
        check: impl FnOnce(&NaiveView) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        self.follow()?;
        let twins = self.twins.lock();
        let twin = twins.queues.values().find(|twin| twin.incarnation == incarnation);
        twin.map_or(Ok(()), |twin| check(twin.history.of(view)))
    }

    /// Whether the journal has all events of a queue after this one.
    pub(super) fn has_events_after(&self, incarnation: u32, rv: Rv) -> Result<bool, Violation> {
        self.follow()?;
        let twins = self.twins.lock();
        let twin = twins.queues.iter().find(|(_, twin)| twin.incarnation == incarnation);
        let Some((id, twin)) = twin else { return Ok(false) };
        let rows = self.memory.journal(*id, rv, 1).now_or_never().expect("memory does not wait");
        let rows = rows.expect("memory can be read");
        Ok(rv >= twin.queue.resource_version() || rows.first().is_some_and(|row| row.prev_rv <= rv))
    }

    /// Number of changes that followers have taken.
    pub(super) fn taken(&self) -> u64 {
        self.twins.lock().taken_count
    }

    /// Number of events that followers in mode `events` have taken.
    pub(super) fn taken_events(&self) -> usize {
        self.twins.lock().taken_events.count
    }

    /// The newest durable event of a queue.
    pub(super) fn last_rv(&self, incarnation: u32) -> Option<Rv> {
        let twins = self.twins.lock();
        let twin = twins.queues.values().find(|twin| twin.incarnation == incarnation)?;
        Some(twin.queue.resource_version())
    }

    /// The queues that a restart would find: their names and incarnations.
    pub(super) fn live(&self) -> Vec<(Arc<str>, u32)> {
        let rows = self.memory.queues().now_or_never().expect("memory does not wait");
        let live = rows.expect("memory can be read").into_iter().filter(|row| !row.deleted);
        live.map(|row| (row.name, row.incarnation)).collect()
    }

    /// Applies durable events to the twins before the store trims these events.
    pub(super) fn catch_up(&self) -> Result<(), Violation> {
        self.follow()
    }
}

impl Twins {
    fn follow(&mut self, rows: &[QueueRow], memory: &FakeStore) -> Result<(), Violation> {
        let mut decoder = Decoder::default();
        for row in rows {
            if row.deleted || self.queues.contains_key(&row.id) {
                continue;
            }
            let record = decoder.queue(row).map_err(|error| error.to_string())?;
            let Some(state) = record.state else { continue };
            let queue = Restore::new(state).finish()?;
            let (name, incarnation) = (row.name.clone(), row.incarnation);
            self.queues.insert(row.id, Twin { name, incarnation, queue, history: ViewHistory::default() });
        }
        let (mut taken, mut events) = (Vec::new(), Vec::new());
        for (id, twin) in &mut self.queues {
            for row in memory.journal_rows_behind(*id, twin.queue.resource_version()) {
                for event in decoder.events(&row).map_err(|error| error.to_string())? {
                    twin.queue.apply(&event);
                    twin.history
                        .note(&event, &twin.queue)
                        .map_err(|found| format!("{}: {found}", twin.name))?;
                    self.taken_events.note_followed(twin.incarnation, &event);
                    let follow = twin.queue.config().follow.clone();
                    if twin.queue.config().rules().keeps_every_delta {
                        events
                            .extend(follow.clone().map(|follow| (*id, follow.prefix.clone(), event.clone())));
                    }
                    taken.extend(follow.filter(|_| is_taken(&event)).map(|follow| (*id, follow, event)));
                }
            }
        }
        for (id, follow, event) in taken {
            let followed = self.queues.values().filter(|twin| twin.name == follow.queue);
            let versions = |key: &str, object: &str| -> Vec<u64> {
                let changes = followed.flat_map(|twin| &twin.history.of(follow.view).changes);
                let is_this =
                    |change: &&Change| change.key.as_str() == key && change.object.as_deref() == Some(object);
                changes.filter(is_this).map(|change| change.rv.get()).collect()
            };
            self.taken_count += 1;
            self.taken.note(id, &event, versions)?;
        }
        for (id, prefix, event) in events {
            self.taken_events.note_follower(id, &prefix, &event)?;
        }
        Ok(())
    }
}

/// Whether a follower has taken a change by this event.
fn is_taken(event: &Event) -> bool {
    matches!(&event.kind, EventKind::Appended(Appended { origin, .. }) if *origin != Origin::Resync)
}

impl Timing {
    pub(super) fn random(seed: u64) -> Self {
        Self::Random(Arc::new(Mutex::new(Rng::with_seed(seed))))
    }
}

/// The duration of a step: mostly none or little, rarely very long.
fn span(rng: &mut Rng) -> Option<Duration> {
    let millis = match rng.u32(..100) {
        0..60 => return None,
        60..93 => rng.u64(1..4),
        93..99 => rng.u64(4..60),
        _ => rng.u64(60..3_000),
    };
    Some(Duration::from_millis(millis))
}

fn same(name: &str, what: &str, queue: &Queue, twin: &Queue) -> Result<(), Violation> {
    let (image, other) = (queue.image(), twin.image());
    if image == other {
        return Ok(());
    }
    let (image, other) = (format!("{image:#?}"), format!("{other:#?}"));
    let differs = image.lines().zip(other.lines()).take_while(|(one, two)| one == two).count();
    let near = |text: &str| {
        let lines = text.lines().skip(differs.saturating_sub(30)).take(60);
        lines.collect::<Vec<_>>().join("\n")
    };
    Err(format!("queue {name}: {what}\n{}\n\nby its events\n{}", near(&image), near(&other)))
}

impl Store for Disk {
    async fn write(&mut self, writes: Writes) -> Result<(), Error> {
        // The next write may trim the events of the last write, and change the row of a new queue.
        let followed = self.follow();
        self.pass_time().await;
        let written = self.memory.write(writes).await;
        self.pass_time().await;
        followed.map_err(|found| Error::Damaged { found })?;
        written
    }

    async fn has_rows(&mut self, queue: QueueId) -> Result<bool, Error> {
        self.memory.has_rows(queue).await
    }

    async fn references(
        &mut self,
        table: Referring,
        after: Position,
        limit: u32,
    ) -> Result<References, Error> {
        self.pass_time().await;
        self.memory.references(table, after, limit).await
    }

    async fn texts(&mut self, after: Option<TextId>, limit: u32) -> Result<Vec<(TextId, u64)>, Error> {
        self.pass_time().await;
        Store::texts(&mut self.memory, after, limit).await
    }

    async fn reopen(&mut self) -> Result<Epoch, Error> {
        self.pass_time().await;
        self.memory.reopen().await
    }

    async fn upkeep(&mut self) -> Result<Size, Error> {
        self.memory.upkeep().await
    }

    async fn close(self) {
        self.memory.close().await;
    }
}

impl Reader for Disk {
    fn queues(&self) -> BoxFuture<'_, Result<Vec<QueueRow>, Error>> {
        Box::pin(async move {
            self.pass_time().await;
            self.memory.queues().await
        })
    }

    fn runs(&self, queue: QueueId, numbers: Range<u64>) -> BoxFuture<'_, Result<Vec<RunRow>, Error>> {
        Box::pin(async move {
            self.pass_time().await;
            self.memory.runs(queue, numbers).await
        })
    }

    fn oldest_run(&self, queue: QueueId) -> BoxFuture<'_, Result<Option<u64>, Error>> {
        self.memory.oldest_run(queue)
    }

    fn journal(
        &self,
        queue: QueueId,
        after: Rv,
        bytes: usize,
    ) -> BoxFuture<'_, Result<Vec<JournalRow>, Error>> {
        Box::pin(async move {
            self.pass_time().await;
            let rows = self.memory.journal(queue, after, bytes).await?;
            let held = if rows.is_empty() { self.held_read.lock().take() } else { None };
            if let Some(held) = held {
                let _released = held.await;
            }
            Ok(rows)
        })
    }

    fn history(&self, queue: QueueId, from: Rv, bytes: usize) -> BoxFuture<'_, Result<History, Error>> {
        self.memory.history(queue, from, bytes)
    }

    fn segments(&self, queue: QueueId, bytes: u64) -> BoxFuture<'_, Result<Vec<Segment>, Error>> {
        self.memory.segments(queue, bytes)
    }

    fn series(&self, before: Option<(u32, QueueId)>) -> BoxFuture<'_, Result<Vec<SeriesRow>, Error>> {
        self.memory.series(before)
    }
}
