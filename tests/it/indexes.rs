//! Indexes without HTTP: reads while an index is built, and settings that change while workers acknowledge.

use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::command::{Call, How, Pop, Settle};
use deltaq_engine::config::Config;
use deltaq_engine::delta::DeltaKind;
use deltaq_engine::index_settings::IndexSettings;
use deltaq_engine::key::Key;
use deltaq_engine::object::Object;
use deltaq_runtime::clock::Clock;
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::metrics::Metrics;
use deltaq_service::{
    Creator, Error, Handle, KeyFilter, Limits, Lookup, Name, PageLimit, PopCall, Registry, ViewFilter,
    WatchLimits,
};
use fastrand::Rng;
use futures_util::FutureExt as _;

use crate::harness::spawn;

const WAIT: Duration = Duration::from_mins(1);
const LIMIT: PageLimit = PageLimit { entries: 100_000, bytes: usize::MAX };

fn queue() -> (Registry, Arc<Handle>) {
    let limits = Limits { auto_create: true, max_queues: 100, max_waiters: 0, watch: WatchLimits::default() };
    let metrics = Metrics::new(100).expect("metrics");
    let shutdown = Shutdown::manual(Duration::ZERO);
    let registry = Registry::new(limits, Config::default(), Clock::system(), None, shutdown, metrics);
    let name = Name::new("q").expect("a name");
    let (handle, _created) =
        registry.create(&name, Arc::new(Config::default()), &Creator::default()).expect("it is created");
    (registry, handle)
}

fn key(number: usize) -> Key {
    Key::new(&format!("k{number:06}")).expect("a key")
}

fn object(a: usize, b: usize) -> Object {
    Object::from_valid(&format!(r#"{{"a":{a},"b":["{b}","x"]}}"#))
}

async fn configure(handle: &Arc<Handle>, indexes: &[(&str, &str)]) {
    let indexes = IndexSettings::new(indexes.iter().copied()).expect("valid settings");
    let edit = |config: &Config| Ok::<_, Error>(Config { indexes, ..config.clone() });
    let (configured, commit) = handle.configure(edit);
    configured.expect("the settings change");
    commit.wait().await.expect("the commit");
}

async fn count(handle: &Handle, index: &str, value: &str, wait: Duration) -> Result<usize, Error> {
    let lookup = Lookup { index: index.into(), value: value.to_owned(), wait };
    let filter = ViewFilter { keys: KeyFilter::default(), source: None };
    let page = handle.objects_with_value(&lookup, &filter, None, LIMIT).await?;
    Ok(page.entries.len())
}

#[tokio::test]
async fn a_read_of_an_index_that_is_built_waits_or_is_refused() {
    let (_registry, handle) = queue();
    let seeds = (0..5_000).map(|number| (key(number), object(number % 2, number), None)).collect();
    handle.seed(handle.config(), seeds, ()).await.expect("they are known");
    configure(&handle, &[("a", "/a")]).now_or_never().expect("nothing to wait for");
    // The task of the queue, which builds the index, has not run yet.
    let building = Err(Error::IndexBuilding { index: "a".to_owned() });
    assert_eq!(count(&handle, "a", "1", Duration::ZERO).await, building);
    let status = handle.document().await.expect("the queue").status;
    assert_eq!(status.building_indexes, [Arc::from("a")]);
    assert!(!handle.indexes(None, 10).await.expect("the indexes").entries[0].is_ready);
    let values = handle.index_values("a", "", None, 10, Duration::ZERO).await;
    assert_eq!(values.err(), building.err());
    assert_eq!(count(&handle, "a", "1", WAIT).await, Ok(2_500));
    let status = handle.document().await.expect("the queue").status;
    assert!(status.building_indexes.is_empty());

    // A read that waits learns that its index is removed.
    configure(&handle, &[("a", "/b")]).now_or_never().expect("nothing to wait for");
    let waiting = spawn({
        let handle = handle.clone();
        async move { count(&handle, "a", "1", WAIT).await }
    });
    tokio::task::yield_now().await;
    configure(&handle, &[]).now_or_never().expect("nothing to wait for");
    let removed = Err(Error::NoIndex { index: "a".to_owned(), names: Vec::new() });
    assert_eq!(waiting.await.expect("it ends"), removed);
}

/// Changes the objects of random keys, and acknowledges the changes.
async fn work(handle: &Arc<Handle>, rng: &mut Rng, keys: usize) {
    let calls: Vec<Call> = (0..100)
        .map(|_| {
            let is_deleted = rng.u8(..10) == 0;
            Call {
                kind: if is_deleted { DeltaKind::Deleted } else { DeltaKind::Updated },
                key: key(rng.usize(..keys)),
                object: (!is_deleted).then(|| object(rng.usize(..3), rng.usize(..1_000))),
                source: None,
                delay: None,
                debounce: None,
                head_start: None,
                final_state_unknown: false,
                rate_limited: false,
                trace: None,
                version: None,
            }
        })
        .collect();
    handle.produce(&handle.config(), &calls).await.expect("they are accepted");
    let pop = Pop {
        max: 100,
        max_bytes: usize::MAX,
        lease: None,
        worker: None,
        id: None,
        with_known: false,
        group: None,
    };
    let call = PopCall { pop, settles: Vec::new(), wait: Duration::ZERO };
    let mut popped = handle.pop(call).await.items.expect("the queue is open");
    popped.confirm();
    let settles: Vec<Settle> =
        popped.items.iter().map(|item| Settle { token: item.token, how: How::Ack }).collect();
    handle.settle(&settles).await.expect("they are settled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn indexes_are_right_after_settings_changed_while_workers_acknowledged() {
    const KEYS: usize = 6_000;
    const SETTINGS: [&[(&str, &str)]; 4] =
        [&[("a", "/a"), ("b", "/b")], &[("a", "/b"), ("b", "/b")], &[], &[("first", "/b/0"), ("a", "/a")]];
    let (_registry, handle) = queue();
    let seeds = (0..KEYS).map(|number| (key(number), object(number % 3, number), None)).collect();
    handle.seed(handle.config(), seeds, ()).await.expect("they are known");
    let mut rng = Rng::with_seed(240);
    for round in 0..40 {
        let indexes = SETTINGS[round % SETTINGS.len()];
        configure(&handle, indexes).await;
        for _ in 0..rng.usize(1..12) {
            work(&handle, &mut rng, KEYS).await;
        }
        // Every second round changes the settings while the indexes are built.
        if round % 2 == 0 {
            for (index, _) in indexes {
                count(&handle, index, "1", WAIT).await.expect("the index is built");
            }
            work(&handle, &mut rng, KEYS).await;
        }
        let checked = handle.read(|queue, _| queue.check()).await.expect("the queue");
        assert_eq!(checked, Ok(()), "round {round}");
    }
    configure(&handle, SETTINGS[0]).await;
    let found = count(&handle, "a", "1", WAIT).await.expect("the index is built");
    let checked = handle.read(|queue, _| (queue.check(), queue.table().len())).await.expect("the queue");
    assert_eq!(checked.0, Ok(()));
    assert!((KEYS / 5..KEYS / 2).contains(&found), "{found} of {}", checked.1);
}
