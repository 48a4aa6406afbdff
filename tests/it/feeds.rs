//! Change feeds without HTTP and without a journal: feeds that begin, scan and end while their queue changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deltaq_engine::command::Call;
use deltaq_engine::config::Config;
use deltaq_engine::delta::DeltaKind;
use deltaq_engine::feed::{Row, RowLimit, TombstoneLimits};
use deltaq_engine::key::Key;
use deltaq_engine::object::Object;
use deltaq_engine::view::View;
use deltaq_runtime::clock::Clock;
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::metrics::Metrics;
use deltaq_service::{
    Author, Creator, FirstCall, Handle, KeyFilter, Limits, Name, PageForm, Registry, WatchFrom, WatchLimits,
    Watcher, on_behalf_of,
};
use futures_util::FutureExt as _;

use crate::harness::spawn;

/// A page that no test exceeds.
const LIMIT: RowLimit = RowLimit { rows: 1_000, bytes: 1 << 20 };

fn registry(clock: Clock) -> Registry {
    let limits = Limits {
        auto_create: true,
        max_queues: 100,
        max_waiters: 0,
        watch: WatchLimits {
            idle: Duration::from_mins(10),
            tombstones: TombstoneLimits { count: 1_000, bytes: 1 << 20, age: Duration::from_hours(1) },
        },
    };
    let metrics = Metrics::new(100).expect("metrics");
    Registry::new(limits, Config::default(), clock, None, Shutdown::manual(Duration::ZERO), metrics)
}

fn queue(registry: &Registry, name: &str) -> Arc<Handle> {
    let name = Name::new(name).expect("a name");
    registry.get_or_create(&name, FirstCall::Produce(&[], &[]), &Creator::default()).expect("it is created")
}

fn call(key: &str) -> Call {
    Call {
        kind: DeltaKind::Added,
        key: Key::new(key).expect("a key"),
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

async fn add(handle: &Arc<Handle>, key: &str) {
    handle.produce(&Config::default(), &[call(key)]).await.expect("it is added");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_watch_has_all_changes_behind_the_version_at_which_it_begins() {
    let registry = registry(Clock::system());
    for number in 0..1_000 {
        let handle = queue(&registry, "q");
        add(&handle, "key").await;
        let is_over = Arc::new(AtomicBool::new(false));
        let producer = spawn({
            let (handle, is_over) = (handle.clone(), is_over.clone());
            async move {
                while !is_over.load(Ordering::Relaxed) {
                    add(&handle, "key").await;
                    tokio::task::yield_now().await;
                }
            }
        });
        while handle.read(|queue, _| queue.resource_version().get()).await.expect("a version") < 3 {
            tokio::task::yield_now().await;
        }
        let from = [WatchFrom::Now, WatchFrom::Start][number % 2];
        let begun = handle.watch(View::Latest, from, KeyFilter::default()).await;
        is_over.store(true, Ordering::Relaxed);
        producer.await.expect("the producer ends");
        assert_eq!(begun.map(drop), Ok(()), "watch {number}");
        registry.delete(handle.name(), false).expect("it is deleted");
    }
}

#[tokio::test]
async fn a_reader_without_rows_lets_other_connections_run() {
    let registry = registry(Clock::system());
    let handle = queue(&registry, "q");
    let calls: Vec<Call> = (0..50_000).map(|number| call(&format!("key-{number}"))).collect();
    handle.produce(&Config::default(), &calls).await.expect("they are added");
    let filter = KeyFilter { prefix: "other".to_owned(), shard: None };
    let mut watcher = handle.watch(View::Latest, WatchFrom::Start, filter).await.expect("a watcher");
    assert_eq!(watcher.read(LIMIT).now_or_never(), None, "a page of ignored keys takes long");
    let mut pages = 1;
    while !watcher.read(LIMIT).await.expect("a page").is_last {
        pages += 1;
    }
    assert_eq!(pages, 25);
    assert_eq!(watcher.listing_since(), None);
}

#[tokio::test]
async fn a_token_has_one_reader_at_a_time_whose_filter_skips_all_keys() {
    let registry = registry(Clock::system());
    let handle = queue(&registry, "q");
    let calls: Vec<Call> = (0..20_000).map(|number| call(&format!("key-{number}"))).collect();
    handle.produce(&Config::default(), &calls).await.expect("they are added");
    let watch = async |prefix: &str| {
        let filter = KeyFilter { prefix: prefix.to_owned(), shard: None };
        handle.watch(View::Latest, WatchFrom::Start, filter).await.expect("a watcher")
    };
    let of = |token: &str| Author { token: Some(token.into()), is_follower: false };
    let mut first = watch("none").await;
    assert!(on_behalf_of(of("a"), first.read(LIMIT)).await.expect("a page").rows.is_empty());
    let (mut second, mut other, mut useful) =
        (watch("none").await, watch("none").await, watch("key-1").await);
    assert!(!on_behalf_of(of("a"), useful.read(LIMIT)).await.expect("a page").rows.is_empty());
    assert!(on_behalf_of(of("b"), other.read(LIMIT)).await.expect("a page").rows.is_empty());
    let mut waiting = Box::pin(on_behalf_of(of("a"), second.read(LIMIT)));
    for _ in 0..100 {
        assert_eq!(waiting.as_mut().now_or_never(), None, "the first reader of the token goes on");
        tokio::task::yield_now().await;
    }
    while !on_behalf_of(of("a"), first.read(LIMIT)).await.expect("a page").is_last {}
    assert!(waiting.await.expect("a page").rows.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_feed_without_readers_ends_while_another_view_always_changes() {
    let (clock, hand) = Clock::manual(0);
    let registry = registry(clock);
    let handle = queue(&registry, "q");
    add(&handle, "key").await;
    let known = handle.watch(View::Known, WatchFrom::Now, KeyFilter::default()).await.expect("a watcher");
    drop(known);
    let mut latest =
        handle.watch(View::Latest, WatchFrom::Now, KeyFilter::default()).await.expect("a watcher");
    for _ in 0..200 {
        hand.advance(Duration::from_secs(5));
        tokio::time::sleep(Duration::from_secs(5)).await;
        add(&handle, "key").await;
        assert_eq!(latest.read(LIMIT).await.expect("a page").rows.len(), 1);
    }
    let has_feed =
        handle.read(|queue, _| View::ALL.map(|view| queue.has_feed(view))).await.expect("the queue");
    assert_eq!(has_feed, [true, false], "nobody has read the view known for a quarter of an hour");
}

/// A reader of all keys as text, and what it has.
struct TextReader {
    watcher: Watcher,
    copy: BTreeMap<String, u64>,
}

impl TextReader {
    async fn begin(handle: &Arc<Handle>, copy: BTreeMap<String, u64>) -> Self {
        let watcher =
            handle.watch(View::Latest, WatchFrom::Now, KeyFilter::default()).await.expect("a watcher");
        Self { watcher, copy }
    }

    /// Reads a page. Returns whether there are no more rows, and counts the rows that this reader has encoded and those that it has taken.
    async fn read(&mut self, counts: &mut [usize; 2]) -> bool {
        let after = self.watcher.resource_version();
        let encode = |rows: &[Row]| {
            counts[0] += rows.len();
            let line = |row: &Row| format!("{:?} {} {}\n", row.kind, row.key.as_str(), row.rv);
            rows.iter().map(line).collect::<String>().into()
        };
        let (text, is_last) = self.watcher.read_text(PageForm::Rows, LIMIT, encode).await.expect("a page");
        let mut newest = after.get();
        for line in str::from_utf8(&text).expect("text").lines() {
            let [kind, key, rv] = *line.split(' ').collect::<Vec<_>>() else { panic!("{line}") };
            let rv = rv.parse().expect("a version");
            assert!(rv > newest, "{line} after {newest}");
            newest = rv;
            counts[1] += 1;
            let before =
                if kind == "Deleted" { self.copy.remove(key) } else { self.copy.insert(key.to_owned(), rv) };
            // A deletion may be that of a key that has come and gone since the last page.
            assert!(kind != "Updated" || before.is_some(), "{line}, but the reader has no such key");
        }
        assert!(newest <= self.watcher.resource_version().get());
        is_last
    }
}

#[tokio::test]
async fn readers_of_all_keys_share_pages_wherever_they_began() {
    let registry = registry(Clock::system());
    let handle = queue(&registry, "q");
    let mut rng = fastrand::Rng::with_seed(7);
    let (mut readers, mut counts, mut present) = (Vec::<TextReader>::new(), [0; 2], BTreeMap::new());
    for step in 0..4_000 {
        let key = format!("key-{}", rng.usize(..20));
        let delta =
            if present.contains_key(&key) && rng.bool() { DeltaKind::Deleted } else { DeltaKind::Added };
        handle.produce(&Config::default(), &[Call { kind: delta, ..call(&key) }]).await.expect("a change");
        let rv = handle.read(|queue, _| queue.resource_version().get()).await.expect("a version");
        match delta {
            DeltaKind::Deleted => present.remove(&key),
            _ => present.insert(key, rv),
        };
        if readers.len() < 8 && step % 100 == 0 {
            readers.push(TextReader::begin(&handle, present.clone()).await);
        }
        let is_quiet = rng.u8(..4) == 0;
        for reader in &mut readers {
            // While nothing changes, all readers come to the newest version, wherever they began.
            while is_quiet && !reader.read(&mut counts).await {}
            if rng.u8(..4) == 0 {
                reader.read(&mut counts).await;
            }
        }
    }
    for reader in &mut readers {
        while reader.copy != present {
            // A shared page may lack the newest changes. They wake the reader.
            if reader.read(&mut counts).await && reader.copy != present {
                let woken = tokio::time::timeout(Duration::from_mins(1), reader.watcher.changed());
                woken.await.expect("the reader is woken");
            }
        }
    }
    let [encoded, taken] = counts;
    assert!(encoded * 2 < taken, "{encoded} of {taken} rows were encoded");
}
