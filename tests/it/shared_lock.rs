//! Reads that visit many keys do so in parts: other calls on the queue, and other tasks of the thread, run in between.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use deltaq_engine::command::{Call, How, Pop, Settle};
use deltaq_engine::config::Config;
use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use deltaq_engine::object::Object;
use deltaq_runtime::clock::Clock;
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::{Creator, Error, FirstCall, Handle, Name, PopCall, Registry};
use futures_util::{FutureExt, poll};

use crate::harness::eventually;
use crate::node;
use crate::store::fake::FakeStore;

const KEYS: usize = 10_000;
/// A part visits at most this many keys.
const PART_KEYS: usize = 1_000;
const HOUR: Duration = Duration::from_hours(1);

fn pop(max: usize) -> Pop {
    let worker = Some("w".into());
    Pop { max, max_bytes: usize::MAX, lease: Some(HOUR), worker, id: None, with_known: false, group: None }
}

async fn add(handle: &Arc<Handle>, prefix: &str, count: usize) -> Rv {
    let call = |number: usize| Call {
        object: Some(Object::empty()),
        ..Call::of_key(Key::new(&format!("{prefix}{number}")).expect("a key"), None)
    };
    let calls: Vec<_> = (0..count).map(call).collect();
    handle.produce(&Config::default(), &calls).await.expect("they are added").resource_version
}

/// Runs a read step by step. Returns how often another task and another call ran in between.
async fn times_between<T>(handle: &Arc<Handle>, read: impl Future<Output = T>) -> (T, usize) {
    let mut read = pin!(read);
    let mut times = 0;
    loop {
        match poll!(read.as_mut()) {
            Poll::Ready(out) => return (out, times),
            Poll::Pending => {
                add(handle, "other", 1).await;
                times += 1;
            }
        }
    }
}

/// A new queue, and its registry.
async fn queue() -> (Arc<Registry>, Arc<Handle>) {
    let (clock, shutdown) = (Clock::system(), Shutdown::manual(HOUR));
    let registry = node::start(&FakeStore::default(), &clock, &shutdown, u64::MAX).await.expect("it starts");
    let name = Name::new("q").expect("a name");
    let created = registry.get_or_create(&name, FirstCall::Produce(&[], &[]), &Creator::default());
    let handle = created.expect("it can be created");
    (registry, handle)
}

#[tokio::test]
async fn a_read_of_many_keys_lets_others_run() {
    let (_registry, handle) = queue().await;
    let between = KEYS / PART_KEYS - 1;

    let version = add(&handle, "k", KEYS).await;
    let popped = handle.pop(PopCall { pop: pop(KEYS), settles: Vec::new(), wait: Duration::ZERO }).await;
    let mut popped = popped.items.expect("keys");
    popped.confirm();
    let (workers, times) = times_between(&handle, handle.workers(None, 10)).await;
    assert_eq!(workers.expect("workers").entries[0].1.leased, KEYS);
    assert!(times >= between, "{times} times between the parts of the workers");

    let reject = |token| Settle { token, how: How::Reject { error: Some("broken".into()) } };
    let rejects: Vec<_> = popped.items.iter().map(|item| reject(item.token)).collect();
    handle.settle(&rejects).await.expect("they are parked");
    let (errors, times) = times_between(&handle, handle.parked_errors(None, 10)).await;
    assert_eq!(errors.expect("errors").groups[0].keys, KEYS);
    assert!(times >= between, "{times} times between the parts of the errors");

    let (acknowledged, times) =
        times_between(&handle, handle.wait_acknowledged(Some(version), Duration::ZERO)).await;
    assert_eq!(acknowledged.expect("a count").parked, KEYS);
    assert!(times >= between, "{times} times between the parts of the count");
}

#[tokio::test]
async fn a_read_starts_again_if_its_queue_is_loaded_again() {
    let (_registry, handle) = queue().await;
    add(&handle, "k", KEYS).await;
    let popped = handle.pop(PopCall { pop: pop(KEYS), settles: Vec::new(), wait: Duration::ZERO }).await;
    popped.items.expect("keys").confirm();
    let mut read = pin!(handle.workers(None, 10));
    assert!(poll!(read.as_mut()).is_pending(), "it has read a part");

    let panics = |_: &Config| -> Result<Config, Error> { resume_unwind(Box::new("on purpose")) };
    assert!(AssertUnwindSafe(async { handle.configure(panics) }).catch_unwind().await.is_err());
    eventually(async || handle.read(|_, _| ()).await.is_ok()).await;
    assert_eq!(read.await.expect("workers").entries[0].1.leased, KEYS);
}
