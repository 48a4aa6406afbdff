//! A stalled disk: the bytes that wait for it stay bounded, and a refused change has no effect.

use std::sync::Arc;
use std::time::Duration;

use deltaq::http::problem::Problem;
use deltaq_engine::command::Call;
use deltaq_engine::config::{Config, Follow};
use deltaq_engine::delta::DeltaKind;
use deltaq_engine::key::Key;
use deltaq_engine::object::Object;
use deltaq_engine::view::View;
use deltaq_journal::{self, WriterOptions};
use deltaq_runtime::clock::Clock;
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::{Author, Creator, Error, FirstCall, Handle, Name, on_behalf_of};

use crate::store::fake::FakeStore;
use futures_util::FutureExt as _;

use crate::node;

/// The bound on uncommitted bytes in these tests.
const LIMIT: usize = 64 << 10;
/// Bytes of the object in each call.
const OBJECT_BYTES: usize = 1 << 10;

fn call(key: &str) -> Call {
    Call {
        kind: DeltaKind::Added,
        key: Key::new(key).expect("a key"),
        object: Some(Object::from_valid(&format!("{{\"text\":\"{}\"}}", "x".repeat(OBJECT_BYTES)))),
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

/// Calls once and disconnects at once, as a client that times out. Returns the error if the call was refused.
fn call_and_leave(handle: &Arc<Handle>, key: &str) -> Option<Error> {
    let produced = handle.produce(&Config::default(), &[call(key)]).now_or_never()?;
    Some(produced.expect_err("nothing is committed"))
}

#[tokio::test]
async fn clients_that_time_out_and_retry_do_not_grow_what_waits_for_a_stalled_disk() {
    let (clock, shutdown) = (Clock::system(), Shutdown::manual(Duration::ZERO));
    let memory = FakeStore::default();
    let pace = WriterOptions { uncommitted_bytes_max: LIMIT, ..WriterOptions::default() };
    let node = node::start_on(memory.clone(), memory.opening(), &clock, &shutdown, pace).await;
    let registry = node.expect("the node starts").registry;
    let handle = registry
        .get_or_create(&Name::new("q").expect("a name"), FirstCall::Produce(&[], &[]), &Creator::default())
        .expect("it is created");
    handle.set_paused(false).await.expect("it is durable");
    let journal = registry.journal().expect("it has one");
    memory.hold();
    let refused = Error::Journal(deltaq_journal::Error::Backlog { limit: LIMIT });
    let mut accepted = Vec::new();
    for number in 0..1_000 {
        let key = format!("key-{number}");
        match call_and_leave(&handle, &key) {
            None => accepted.push(key),
            Some(error) => assert_eq!(error, refused),
        }
        tokio::task::yield_now().await;
        let bytes = journal.uncommitted_bytes();
        assert!(bytes <= LIMIT + 2 * OBJECT_BYTES, "{bytes} bytes wait after {number} calls");
    }
    assert!((LIMIT / OBJECT_BYTES / 2..LIMIT / OBJECT_BYTES).contains(&accepted.len()), "{accepted:?}");
    let other = registry.get_or_create(
        &Name::new("other").expect("a name"),
        FirstCall::Produce(&[], &[]),
        &Creator::default(),
    );
    assert_eq!(other.map(drop), Err(refused.clone()), "no queue is created either");
    assert_eq!(registry.delete(handle.name(), false).map(drop), Err(refused), "nor deleted");

    memory.release();
    let keys = handle.read(|queue, _| queue.keys()).await.expect("the journal goes on");
    assert_eq!(keys, accepted.len(), "a refused call has changed nothing");
    handle.produce(&Config::default(), &[call("after")]).await.expect("there is room again");
    assert_eq!(journal.uncommitted_bytes(), 0, "all that waited is committed");
}

#[tokio::test]
async fn followers_and_one_token_leave_room_for_others() {
    let (clock, shutdown) = (Clock::system(), Shutdown::manual(Duration::ZERO));
    let memory = FakeStore::default();
    let pace = WriterOptions { uncommitted_bytes_max: LIMIT, ..WriterOptions::default() };
    let node = node::start_on(memory.clone(), memory.opening(), &clock, &shutdown, pace).await;
    let registry = node.expect("the node starts").registry;
    let name = |text: &str| Name::new(text).expect("a name");
    let queue = |text: &str| {
        registry
            .get_or_create(&name(text), FirstCall::Produce(&[], &[]), &Creator::default())
            .expect("it is created")
    };
    let (parent, other) = (queue("parent"), queue("other"));
    let follow = Follow { queue: "parent".into(), view: View::Latest, prefix: "".into(), max_waiting: 1_000 };
    for number in 0..90 {
        let config = Config { follow: Some(Arc::new(follow.clone())), ..Config::default() };
        let follower = name(&format!("follower-{number}"));
        let (handle, _) =
            registry.create(&follower, Arc::new(config), &Creator::default()).expect("it is created");
        handle.read(|_, _| ()).await.expect("it is durable");
    }
    for number in 0..8 {
        let produced = parent.produce(&Config::default(), &[call(&format!("key-{number}"))]).await;
        produced.expect("it is durable");
    }
    let journal = registry.journal().expect("it has one");
    memory.hold();
    assert_eq!(call_and_leave(&parent, "held"), None);
    for _ in 0..10_000 {
        tokio::task::yield_now().await;
        let bytes = journal.uncommitted_bytes();
        assert!(bytes <= LIMIT / 2 + 16 * OBJECT_BYTES, "{bytes} bytes wait, mostly of followers");
    }
    let flood = Author { token: Some("flood".into()), is_follower: false };
    let calls = async { (0..1_000).find_map(|number| call_and_leave(&other, &format!("flood-{number}"))) };
    let refused = on_behalf_of(flood, calls).await.expect("the share of a token is limited");
    assert!(matches!(refused, Error::Journal(deltaq_journal::Error::BacklogOfToken { .. })), "{refused:?}");
    assert_eq!(call_and_leave(&other, "other"), None, "others have room");
    memory.release();
    other.produce(&Config::default(), &[call("after")]).await.expect("the journal goes on");
}

#[test]
fn the_refusal_names_the_limit_and_when_to_repeat() {
    let problem = Problem::from(Error::Journal(deltaq_journal::Error::Backlog { limit: LIMIT }));
    assert_eq!((problem.code().status(), problem.code().name()), (503, "journal-behind"));
    let detail = problem.detail();
    assert!(detail.contains("65536 bytes") && detail.contains("storage.max_uncommitted_bytes"), "{detail}");
    assert_eq!(problem.retry_after_seconds(), Some(1));
}
