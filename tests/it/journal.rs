//! The writer of the journal, on a fake store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use deltaq_engine::Queue;
use deltaq_engine::event::{Event, EventKind, ViewChanges};
use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use deltaq_engine::object::Object;
use deltaq_engine::time::Time;
use deltaq_journal::record::{Identity, SHARED_BYTES_MIN, journal_rows};
use deltaq_journal::recovery::Loaded;
use deltaq_journal::store::{
    Epoch, Error, Position, QueueId, Reader, References, Referring, SharedText, Size, Store, Writes,
};
use deltaq_journal::writer;
use deltaq_journal::{Author, Commit, Journal, Live, QueueMeta, Runs, TextId, WriterOptions};
use deltaq_runtime::clock::{Clock, ManualClock};
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::{Incarnation, Name};
use parking_lot::Mutex;

use crate::harness::eventually;
use crate::harness::within;
use crate::node::NoopObserver;
use crate::store::fake::FakeStore;

/// A queue that is released and loaded again right after a checkpoint has captured it.
#[derive(Debug)]
struct Reloaded {
    queue: Mutex<Queue>,
    journal: Journal,
    epoch: Epoch,
    /// The queue as it is loaded, and a large event of another queue.
    next: Mutex<Option<(Loaded, QueueId, Event)>>,
    captures: AtomicU32,
}

impl Live for Reloaded {
    fn with(&self, look: &mut dyn FnMut(&mut Queue)) -> bool {
        if self.captures.fetch_add(1, Ordering::Relaxed) > 1 {
            return false;
        }
        look(&mut self.queue.lock());
        if let Some((loaded, other, event)) = self.next.lock().take() {
            // The event fills the batch of the release, so the loaded queue is in a later batch.
            let _released = self.journal.release(loaded.identity.id, self.epoch);
            let _committed = self.journal.append(
                other,
                Rv::ZERO,
                vec![event],
                self.epoch,
                (&Author::default(), &Commit::done()),
            );
            let _resumed = self.journal.resume(&loaded, self.epoch);
        }
        true
    }

    fn lose(&self) {}
}

#[tokio::test]
async fn a_checkpoint_writes_nothing_that_it_captured_before_a_reload() {
    let (store, clock) = (FakeStore::default(), Clock::system());
    let opening = store.opening();
    let epoch = opening.epoch;
    let reader: Arc<dyn Reader> = Arc::new(store.clone());
    let options = WriterOptions { growth_bytes_min: 0, ..WriterOptions::default() };
    let shutdown = Shutdown::manual(Duration::ZERO);
    let opened = writer::open(
        (store.clone(), reader, opening),
        clock,
        Arc::new(NoopObserver),
        shutdown.cut().clone(),
        options,
    );
    let (journal, writer, _) = opened.await.expect("an empty store");
    let writing = shutdown.spawn_last("journal writer", writer.run());
    let created_at = Time::from_micros(1);
    let queue = || {
        let mut queue = Queue::new(Arc::default(), Rv::ZERO, created_at);
        queue.journaled();
        queue
    };
    let meta = |name: &str| {
        let name = Name::new(name).expect("a name");
        QueueMeta { name, incarnation: Incarnation(1), created_at }
    };
    let (id, _) = journal.create(meta("q"), queue().queue_state(), epoch);
    let (other, created) = journal.create(meta("other"), queue().queue_state(), epoch);
    created.wait().await.expect("a commit");
    let key = Key::new("k").expect("a key");
    let mut captured = queue();
    captured.seed_step(created_at, [(key.clone(), Object::from_valid("{}"), None)]);
    let events = captured.take_effects().events;
    let QueueMeta { name, incarnation, created_at } = meta("q");
    let identity = Identity { id, version: 1, name, incarnation, created_at };
    let loaded = Loaded {
        identity,
        queue: queue(),
        last_rv: Rv::new(1),
        checkpoint_rv: Rv::ZERO,
        runs: Runs::NONE,
        retained: Vec::new(),
    };
    let large = Object::from_valid(&format!("{{\"text\":\"{}\"}}", "x".repeat(2 << 20)));
    let large = Event {
        rv: Rv::new(1),
        at: created_at,
        kind: EventKind::Seeded { key, object: large, owner: None },
        views: ViewChanges::default(),
        sequence: None,
        by: None,
    };
    let live: Arc<dyn Live> = Arc::new(Reloaded {
        queue: Mutex::new(captured),
        journal: journal.clone(),
        epoch,
        next: Mutex::new(Some((loaded, other, large))),
        captures: AtomicU32::new(0),
    });
    journal.attach(id, Arc::downgrade(&live));
    journal
        .append(id, Rv::ZERO, events, epoch, (&Author::default(), &Commit::done()))
        .wait()
        .await
        .expect("a commit");
    eventually(async || !store.journal_rows_behind(other, Rv::ZERO).is_empty()).await;
    journal.close(epoch);
    within(writing).await.expect("the writer ends");
    assert!(store.runs(id, 0..9).await.expect("rows").is_empty());
}

/// A node that has lost its partition aborts the writer, which may be waiting for a database that never answers.
#[tokio::test]
async fn a_writer_that_is_aborted_leaves_no_commit_without_an_outcome() {
    for runs_before in [false, true] {
        let (store, clock) = (FakeStore::default(), Clock::system());
        let opening = store.opening();
        let epoch = opening.epoch;
        let reader: Arc<dyn Reader> = Arc::new(store.clone());
        let shutdown = Shutdown::manual(Duration::ZERO);
        let (observer, cut) = (Arc::new(NoopObserver), shutdown.cut().clone());
        let opened =
            writer::open((store.clone(), reader, opening), clock, observer, cut, WriterOptions::default());
        let (journal, writer, _) = opened.await.expect("an empty store");
        let writing = shutdown.spawn_last("journal writer", writer.run());
        let create = |name: &str| {
            let (name, created_at) = (Name::new(name).expect("a name"), Time::from_micros(1));
            let mut queue = Queue::new(Arc::default(), Rv::ZERO, created_at);
            queue.journaled();
            let meta = QueueMeta { name, incarnation: Incarnation(1), created_at };
            journal.create(meta, queue.queue_state(), epoch).1
        };
        if runs_before {
            // The first write marks the store as open.
            eventually(async || store.steps() > 0).await;
            store.hold();
        }
        let in_flight = create("a");
        if runs_before {
            tokio::task::yield_now().await;
        }
        let commits = [in_flight, create("b")];
        writing.abort();
        for commit in commits {
            within(commit.wait()).await.expect_err("nobody writes it");
        }
        within(create("c").wait()).await.expect_err("a later one as well");
    }
}

/// A store that takes one millisecond for a write, and ten to list references or texts.
#[derive(Debug)]
struct Slow {
    store: FakeStore,
    hand: ManualClock,
    /// Whether each of these operations wrote to the journal.
    is_write: Arc<Mutex<Vec<bool>>>,
}

impl Slow {
    fn lists(&self) {
        self.hand.advance(Duration::from_millis(10));
        self.is_write.lock().push(false);
    }
}

impl Store for Slow {
    async fn write(&mut self, writes: Writes) -> Result<(), Error> {
        if !writes.journal.is_empty() {
            self.hand.advance(Duration::from_millis(1));
            self.is_write.lock().push(true);
        }
        self.store.write(writes).await
    }

    async fn has_rows(&mut self, queue: QueueId) -> Result<bool, Error> {
        self.store.has_rows(queue).await
    }

    async fn references(
        &mut self,
        table: Referring,
        after: Position,
        limit: u32,
    ) -> Result<References, Error> {
        self.lists();
        self.store.references(table, after, limit).await
    }

    async fn texts(&mut self, after: Option<TextId>, limit: u32) -> Result<Vec<(TextId, u64)>, Error> {
        self.lists();
        Store::texts(&mut self.store, after, limit).await
    }

    async fn reopen(&mut self) -> Result<Epoch, Error> {
        self.store.reopen().await
    }

    async fn upkeep(&mut self) -> Result<Size, Error> {
        self.store.upkeep().await
    }

    async fn close(self) {
        self.store.close().await;
    }
}

fn seeded(rv: u64, bytes: usize) -> Event {
    let object = Object::from_valid(&format!("{{\"text\":\"{}\"}}", "x".repeat(bytes)));
    let kind = EventKind::Seeded { key: Key::new("k").expect("a key"), object, owner: None };
    let (rv, at) = (Rv::new(rv), Time::from_micros(1));
    Event { rv, at, kind, views: ViewChanges::default(), sequence: None, by: None }
}

/// A cleanup of texts reads all references to them. While commits wait, they get most of the writer's time.
#[tokio::test]
async fn a_cleanup_of_texts_yields_to_commits() {
    const COMMITS: u64 = 60;
    let (store, (clock, hand)) = (FakeStore::default(), Clock::manual(1));
    let mut rows = Writes::default();
    for rv in 1..=500 {
        let event = seeded(rv, SHARED_BYTES_MIN);
        rows.journal.extend(journal_rows(QueueId(9), Epoch(1), Rv::new(rv - 1), &[event], true));
    }
    let used = rows.journal.iter().flat_map(|row| row.texts.iter().cloned()).take(1);
    let unused = SharedText { id: TextId::of("unused"), text: "unused".into() };
    rows.texts = used.chain([unused]).collect();
    store.put(rows).expect("rows");
    let opening = store.opening();
    let epoch = opening.epoch;
    let is_write = Arc::<Mutex<Vec<bool>>>::default();
    let slow = Slow { store: store.clone(), hand: hand.clone(), is_write: is_write.clone() };
    let reader: Arc<dyn Reader> = Arc::new(store.clone());
    let shutdown = Shutdown::manual(Duration::ZERO);
    let (observer, cut) = (Arc::new(NoopObserver), shutdown.cut().clone());
    let opened = writer::open((slow, reader, opening), clock, observer, cut, WriterOptions::default());
    let (journal, writer, _) = opened.await.expect("a store in order");
    // A cleanup is due, and the commits wait. Each is too large to share a batch with another.
    hand.advance(Duration::from_hours(1));
    let (name, created_at) = (Name::new("q").expect("a name"), Time::from_micros(1));
    let mut queue = Queue::new(Arc::default(), Rv::ZERO, created_at);
    queue.journaled();
    let meta = QueueMeta { name, incarnation: Incarnation(1), created_at };
    let (id, mut commit) = journal.create(meta, queue.queue_state(), epoch);
    for rv in 1..=COMMITS {
        let events = vec![seeded(rv, 600_000)];
        commit = journal.append(id, Rv::new(rv - 1), events, epoch, (&Author::default(), &commit));
    }
    let writing = shutdown.spawn_last("journal writer", writer.run());
    commit.wait().await.expect("a commit");
    let mut until_last = is_write.lock().clone();
    until_last.truncate(until_last.iter().rposition(|is_write| *is_write).unwrap_or_default() + 1);
    let committed = until_last.iter().filter(|is_write| **is_write).count() as u64;
    let lists = until_last.len() as u64 - committed;
    // After a list of ten milliseconds, commits get at least three times as long.
    assert!(
        committed >= COMMITS && (1..=1 + committed / 30).contains(&lists),
        "{lists} lists, {committed} writes"
    );
    // It ends when there is time.
    eventually(async || {
        let texts = Store::texts(&mut store.clone(), None, 9).await.expect("texts");
        texts.len() == 1
    })
    .await;
    journal.close(epoch);
    within(writing).await.expect("the writer ends");
}
