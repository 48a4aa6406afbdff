//! The series of queues that are all busy in every minute: memory, bytes in the store, how long the end of a minute takes, and
//! how long it takes to read sums.
//!
//! Targets for 10,000 queues: the memory stays below 64 MiB; the end of a minute takes less than a second; the sums over a day less
//! than a second. The benchmark prints its measurements and never fails because of them. Its arguments are the number of minutes
//! (default 90), which end now, the number of queues (default 10000), and a new folder in which the data stays, for a server that
//! starts with a day of series.

#![expect(clippy::expect_used, reason = "a failed step ends the benchmark with a message")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::command::{Call, How, Pop, Settle};
use deltaq_engine::config::Config;
use deltaq_engine::key::Key;
use deltaq_engine::object::Object;
use deltaq_journal::sqlite::{Sqlite, Sync};
use deltaq_journal::store::Reader;
use deltaq_journal::{Observer, WriterOptions, writer};
use deltaq_runtime::clock::Clock;
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::metrics::Metrics;
use deltaq_service::{
    Creator, Handle, Limits, Name, PopCall, Registry, SERIES_MINUTES, SeriesRange, SeriesSums, WatchLimits,
};
use futures_util::{StreamExt as _, stream};

const QUEUES_DEFAULT: usize = 10_000;
const MINUTES_DEFAULT: usize = 90;
/// Calls at the same time, which share commits.
const CALLS: usize = 256;
const MINUTE_US: u64 = 60_000_000;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(run());
}

async fn run() {
    // Cargo adds --bench.
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with('-'));
    let mut number = |default| arguments.next().map_or(default, |text| text.parse().expect("a number"));
    let (minutes, queues) = (number(MINUTES_DEFAULT), number(QUEUES_DEFAULT));
    let kept = arguments.next().map(PathBuf::from);
    let folder = kept.clone().unwrap_or_else(folder);
    let real = Clock::system();
    let now_us = real.wall_us() / MINUTE_US * MINUTE_US;
    let (clock, hand) = Clock::manual(now_us - u64::try_from(minutes).expect("few minutes") * MINUTE_US);
    let (registry, reader) = start(&folder, &clock, queues).await;
    let handles: Vec<Arc<Handle>> = (0..queues).map(|number| create(&registry, number)).collect();
    registry.measure();
    println!("{queues} queues, each with an add, a pop and an ack in each of {minutes} minutes");
    let mut longest = Duration::ZERO;
    for minute in 0..minutes {
        let calls = handles.iter().map(|handle| work(handle, minute));
        stream::iter(calls).buffer_unordered(CALLS).collect::<Vec<()>>().await;
        hand.advance(Duration::from_mins(1));
        let begun_us = real.monotonic_us();
        registry.measure();
        longest = longest.max(real.since(begun_us));
    }
    println!("  end of a minute  at most {:.0} ms (target < 1 s)", longest.as_secs_f64() * 1e3);
    println!("  memory           {:.1} MiB (target < 64 MiB)", mib(registry.series_bytes()));
    let until = registry.series_until();
    let range = SeriesRange { from: until.minus(SERIES_MINUTES), until, step: 5 };
    let begun_us = real.monotonic_us();
    let mut sums = SeriesSums::new(range);
    registry.add_series(&handles, &mut sums).await;
    let took = real.since(begun_us);
    let acks: u64 =
        sums.points.iter().map(|(_, sum)| sum.counts.numbers().get(6).copied().unwrap_or_default()).sum();
    println!("  sums over a day  {:.0} ms (target < 1 s), {acks} acks", took.as_secs_f64() * 1e3);
    let (rows, bytes) = stored(&registry, &*reader, queues * minutes.div_ceil(60)).await;
    let buckets = queues * minutes;
    println!(
        "  store            {rows} rows, {:.1} MiB: {:.1} bytes a bucket",
        mib(bytes),
        per(bytes, buckets)
    );
    println!("  memory           {:.1} bytes a bucket", per(registry.series_bytes(), buckets));
    if kept.is_none() {
        std::fs::remove_dir_all(folder).expect("the folder can be removed");
    }
}

async fn start(folder: &Path, clock: &Clock, max_queues: usize) -> (Arc<Registry>, Arc<dyn Reader>) {
    let opened = Sqlite::open(folder, Sync::Normal).await.expect("a store");
    let (store, reader, opening) = opened;
    let reader: Arc<dyn Reader> = reader;
    let shutdown = Shutdown::manual(Duration::ZERO);
    let options = WriterOptions::default();
    let opened = (store, reader.clone(), opening);
    let opened =
        writer::open(opened, clock.clone(), Arc::new(Ignored), shutdown.cut().clone(), options).await;
    let (journal, writer, contents) = opened.expect("a journal");
    let _writing = shutdown.spawn_on_own_thread("journal writer", writer.run()).expect("a thread");
    let limits = Limits { auto_create: true, max_queues, max_waiters: 1, watch: WatchLimits::default() };
    let metrics = Metrics::new(1).expect("metrics");
    let registry = Registry::new(limits, Config::default(), clock.clone(), Some(journal), shutdown, metrics);
    let registry = Arc::new(registry.without_tasks());
    registry.recover(contents).await.expect("an empty store");
    (registry, reader)
}

/// The measurements of the journal are not used.
#[derive(Debug)]
struct Ignored;

impl Observer for Ignored {
    fn committed(&self, _events: usize, _took: Duration) {}
    fn checkpointed(&self, _took: Duration) {}
    fn sized(&self, _bytes: u64, _lag_events: u64) {}
}

fn create(registry: &Registry, number: usize) -> Arc<Handle> {
    let name = Name::new(&format!("queue-{number:03}")).expect("a name");
    let created = registry.create(&name, Arc::new(Config::default()), &Creator::default());
    created.expect("a queue").0
}

async fn work(handle: &Arc<Handle>, minute: usize) {
    let object = Object::from_valid(&format!("{{\"key\":\"a\",\"n\":{minute}}}"));
    let call = Call { object: Some(object), ..Call::of_key(Key::new("a").expect("a key"), None) };
    handle.produce(&handle.config(), &[call]).await.expect("it is accepted");
    let pop = Pop {
        max: 1,
        max_bytes: usize::MAX,
        lease: None,
        worker: None,
        id: None,
        with_known: false,
        group: None,
    };
    let call = PopCall { pop, settles: Vec::new(), wait: Duration::ZERO };
    let mut delivered = handle.pop(call).await.items.expect("a key");
    delivered.confirm();
    let settles = delivered.items.iter().map(|item| Settle { token: item.token, how: How::Ack });
    let settles: Vec<Settle> = settles.collect();
    handle.settle(&settles).await.expect("it is settled");
}

/// The rows and bytes of series in the store, once all of them are written.
async fn stored(registry: &Registry, reader: &dyn Reader, expected: usize) -> (usize, usize) {
    loop {
        let (mut rows, mut bytes, mut before) = (0, 0, None);
        loop {
            let page = reader.series(before).await.expect("the store can be read");
            let Some(last) = page.last() else { break };
            before = Some((last.hour, last.queue));
            rows += page.len();
            bytes += page.iter().map(|row| row.content.len()).sum::<usize>();
        }
        if rows >= expected {
            return (rows, bytes);
        }
        registry.measure();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn folder() -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("series-{}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a folder");
    path
}

#[expect(clippy::cast_precision_loss, reason = "a size for people")]
fn mib(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[expect(clippy::cast_precision_loss, reason = "a size for people")]
fn per(bytes: usize, number: usize) -> f64 {
    bytes as f64 / number.max(1) as f64
}
