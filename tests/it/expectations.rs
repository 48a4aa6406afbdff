//! Writers on several threads that expect versions, without HTTP and without a journal.

use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::command::{Call, Expected};
use deltaq_engine::config::Config;
use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use deltaq_engine::object::Object;
use deltaq_engine::refusal::Refusal;
use deltaq_engine::view::View;
use deltaq_runtime::clock::Clock;
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::metrics::Metrics;
use deltaq_service::{Creator, Error, FirstCall, Handle, Limits, Name, Registry, WatchLimits};
use futures_util::future::join_all;
use serde_json::Value;

use crate::harness::spawn;

const WRITERS: u64 = 8;
const UPDATES: u64 = 500;

/// The number in the newest object of the key, and its version.
async fn newest(handle: &Handle, key: &Key) -> (u64, Rv) {
    let (found, _) = handle.view_object(View::Latest, key).await.expect("it can be read");
    let Some(found) = found else { return (0, Rv::ZERO) };
    let object: Value = serde_json::from_str(found.object.as_str()).expect("an object");
    (object["n"].as_u64().expect("a number"), found.rv)
}

/// Adds 1 to the number in the object, until nobody else has changed the object in between.
async fn increment(handle: &Arc<Handle>, key: &Key) {
    loop {
        let (n, version) = newest(handle, key).await;
        let object = Some(Object::from_valid(&format!("{{\"n\":{}}}", n + 1)));
        let call = Call { object, ..Call::of_key(key.clone(), None) };
        let expected = Expected::version(0, key.clone(), version);
        match handle.produce_and_read(&Config::default(), &[call], None, &[expected]).await {
            Ok(_) => return,
            Err(Error::Refused(Refusal::PreconditionFailed { .. })) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_update_of_writers_on_several_threads_is_lost() {
    let limits = Limits { auto_create: true, max_queues: 1, max_waiters: 0, watch: WatchLimits::default() };
    let metrics = Metrics::new(1).expect("metrics");
    let shutdown = Shutdown::manual(Duration::ZERO);
    let registry = Registry::new(limits, Config::default(), Clock::system(), None, shutdown, metrics);
    let name = Name::new("q").expect("a name");
    let created = registry.get_or_create(&name, FirstCall::Produce(&[], &[]), &Creator::default());
    let (handle, key) = (created.expect("it can be created"), Key::new("n").expect("a key"));
    let write = |_| {
        let (handle, key) = (handle.clone(), key.clone());
        spawn(async move {
            for _ in 0..UPDATES {
                increment(&handle, &key).await;
            }
        })
    };
    for writer in join_all((0..WRITERS).map(write)).await {
        writer.expect("a writer");
    }
    assert_eq!(newest(&handle, &key).await.0, WRITERS * UPDATES);
}
