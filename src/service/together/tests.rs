use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Wake};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join3;

use super::*;
use crate::clock::Clock;
use crate::engine::command::{Call, How, Pop};
use crate::engine::config::Config;
use crate::engine::delta::DeltaKind;
use crate::engine::key::Key;
use crate::engine::object::Object;
use crate::lifecycle::Shutdown;
use crate::service::metrics::Metrics;
use crate::service::{Limits, Name, PopCall, Registry};

fn registry() -> Registry {
    let limits = Limits { auto_create: true, max_queues: 10, max_waiters: 10 };
    let shutdown = Shutdown::manual(Duration::ZERO);
    Registry::new(limits, Config::default(), Clock::system(), None, shutdown, Metrics::new(10).unwrap())
}

fn queue(registry: &Registry, name: &str) -> Arc<Handle> {
    registry.get_or_create(&Name::new(name).unwrap()).unwrap()
}

/// A change of nothing that tells when it is made.
async fn note(handle: &Arc<Handle>, notes: &Arc<Mutex<Vec<String>>>, name: &str) -> Result<(), Error> {
    let (made, text) = (notes.clone(), format!("{name} is made"));
    let done = handle.together(1, move |_, _, _| made.lock().unwrap().push(text), |(), _| {}).await;
    notes.lock().unwrap().push(format!("{name} is told"));
    done.map(|((), _)| ())
}

fn call(key: &str) -> Call {
    Call {
        kind: DeltaKind::Added,
        key: Key::new(key).unwrap(),
        object: Some(Object::from_valid(&format!("{{\"key\":\"{key}\"}}"))),
        source: None,
        delay: None,
        final_state_unknown: false,
        rate_limited: false,
        trace: None,
    }
}

async fn add(handle: &Arc<Handle>, key: &str) {
    handle.produce(Arc::default(), vec![call(key)]).await.unwrap();
}

fn pop() -> PopCall {
    let pop = Pop { max: 1, max_bytes: 1 << 20, lease: None, worker: None, id: None, with_known: false };
    PopCall { pop, settles: Vec::new(), wait: Duration::ZERO }
}

#[tokio::test]
async fn those_who_come_together_are_made_together_in_their_order() {
    let (registry, notes) = (registry(), Arc::default());
    let (here, other) = (queue(&registry, "here"), queue(&registry, "other"));
    {
        let _gathering = gather_here();
        let all = join3(note(&here, &notes, "a"), note(&other, &notes, "x"), note(&here, &notes, "b")).await;
        assert_eq!(all, (Ok(()), Ok(()), Ok(())));
    }
    let told = ["a is made", "b is made", "a is told", "x is made", "x is told", "b is told"];
    assert_eq!(*notes.lock().unwrap(), told);
    notes.lock().unwrap().clear();
    join3(note(&here, &notes, "a"), note(&other, &notes, "x"), note(&here, &notes, "b")).await.0.unwrap();
    let told = ["a is made", "a is told", "x is made", "x is told", "b is made", "b is told"];
    assert_eq!(*notes.lock().unwrap(), told, "a thread that gathers nothing");
}

#[tokio::test]
async fn who_leaves_lets_nobody_wait() {
    let (registry, notes) = (registry(), Arc::default());
    let handle = queue(&registry, "q");
    let _gathering = gather_here();
    let mut first = Box::pin(note(&handle, &notes, "a"));
    let mut follows = pin!(note(&handle, &notes, "b"));
    assert!((&mut first).now_or_never().is_none() && (&mut follows).now_or_never().is_none());
    assert!(notes.lock().unwrap().is_empty());
    drop(first);
    assert_eq!(*notes.lock().unwrap(), ["a is made", "b is made"]);
    assert_eq!(follows.now_or_never(), Some(Ok(())));
}

#[tokio::test]
async fn nobody_waits_for_the_turn_of_another() {
    let (registry, notes) = (registry(), Arc::default());
    let handle = queue(&registry, "q");
    let _gathering = gather_here();
    let mut first = pin!(note(&handle, &notes, "a"));
    let mut second = pin!(note(&handle, &notes, "b"));
    assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
    assert_eq!(second.now_or_never(), Some(Ok(())));
    assert_eq!(*notes.lock().unwrap(), ["a is made", "b is made", "b is told"]);
    assert_eq!(first.now_or_never(), Some(Ok(())));
}

#[tokio::test]
async fn what_was_handed_out_to_one_who_has_left_comes_back() {
    let registry = registry();
    let handle = queue(&registry, "q");
    add(&handle, "a").await;
    let _gathering = gather_here();
    let notes = Arc::default();
    let mut first = pin!(note(&handle, &notes, "a"));
    let mut leaves = Box::pin(handle.pop(pop()));
    assert!((&mut first).now_or_never().is_none() && (&mut leaves).now_or_never().is_none());
    drop(leaves);
    first.await.unwrap();
    let status = handle.read(|queue, moment| queue.status(moment.now)).await.unwrap();
    assert_eq!((status.ready, status.leased), (1, 0));
}

#[tokio::test]
async fn who_waits_is_served_between_changes() {
    let registry = registry();
    let handle = queue(&registry, "q");
    let mut waits = pin!(handle.pop(PopCall { wait: Duration::from_mins(1), ..pop() }));
    assert!((&mut waits).now_or_never().is_none());
    let _gathering = gather_here();
    // Were both made before anybody is served, the pop would find a waiter in line, and go without.
    let ((), (), late) = join3(add(&handle, "a"), add(&handle, "b"), handle.pop(pop())).await;
    let keys = |answer: crate::service::PopAnswer| -> Vec<String> {
        answer.items.unwrap().items.iter().map(|item| item.key.as_str().to_owned()).collect()
    };
    assert_eq!((keys(waits.await), keys(late)), (vec!["a".to_owned()], vec!["b".to_owned()]));
}

#[tokio::test]
async fn all_hear_that_the_queue_has_gone() {
    let (registry, notes) = (registry(), Arc::default());
    let handle = queue(&registry, "q");
    let _gathering = gather_here();
    let mut first = pin!(note(&handle, &notes, "a"));
    let mut follows = pin!(note(&handle, &notes, "b"));
    assert!((&mut first).now_or_never().is_none() && (&mut follows).now_or_never().is_none());
    handle.delete(0).unwrap();
    assert_eq!(first.await, Err(Error::QueueDeleted));
    assert_eq!(follows.await, Err(Error::QueueDeleted));
    assert_eq!(*notes.lock().unwrap(), ["a is told", "b is told"]);
}

#[tokio::test]
async fn a_panic_is_for_whose_change_it_was_and_closes_the_queue() {
    let (registry, notes) = (registry(), Arc::default());
    let handle = queue(&registry, "q");
    let mut waits = pin!(handle.pop(PopCall { wait: Duration::from_mins(1), ..pop() }));
    let mut synced = pin!(handle.wait_synced(Duration::from_mins(1)));
    assert!((&mut waits).now_or_never().is_none() && (&mut synced).now_or_never().is_none());
    let _gathering = gather_here();
    let mut first = pin!(note(&handle, &notes, "a"));
    let panics = handle.together(1, |_, _, _| panic!("on purpose"), |(), _| {});
    let mut panics = Box::pin(AssertUnwindSafe(panics).catch_unwind());
    let mut follows = pin!(note(&handle, &notes, "b"));
    assert!((&mut first).now_or_never().is_none() && (&mut panics).now_or_never().is_none());
    assert!((&mut follows).now_or_never().is_none());
    assert_eq!(first.await, Err(Error::Broken));
    assert!(matches!(waits.await.items, Err(Error::Broken)), "who was in line is told, too");
    assert_eq!(synced.now_or_never(), Some(Err(Error::Broken)));
    assert!(panics.await.is_err());
    assert_eq!(follows.await, Err(Error::Broken));
    assert_eq!(note(&handle, &notes, "c").await, Err(Error::Broken));
}

/// What takes the queue's lock when it is dropped.
struct TakesLock(Arc<Handle>);

impl Drop for TakesLock {
    fn drop(&mut self) {
        let _broken = self.0.with_inner(|_, _| {});
    }
}

#[tokio::test]
async fn a_panic_behind_a_change_drops_what_came_of_it_when_the_lock_is_free() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("on purpose");
        }
    }
    for gathers in [false, true] {
        let registry = registry();
        let handle = queue(&registry, "q");
        let mut drained = pin!(handle.wait_drained(Duration::from_mins(1)));
        assert!(drained.as_mut().poll(&mut Context::from_waker(&Arc::new(Panics).into())).is_pending());
        let mut waits = pin!(handle.pop(PopCall { wait: Duration::from_mins(1), ..pop() }));
        assert!((&mut waits).now_or_never().is_none());
        let _gathering = gathers.then(gather_here);
        let closes = |handle: &Arc<Handle>, inner: &mut Inner, now| {
            inner.queue.produce(now, &[call("a")]).unwrap();
            handle.serve(inner, now);
            let token = inner.served[0].1.as_ref().unwrap()[0].token;
            inner.queue.settle(now, &[Settle { token, how: How::Ack }]);
            inner.queue.set_closed(now, true);
            TakesLock(handle.clone())
        };
        let ended = AssertUnwindSafe(handle.together(1, closes, |_, _| {})).catch_unwind().await;
        assert!(ended.is_err(), "gathers: {gathers}");
        assert!(matches!(waits.await.items, Err(Error::Broken)), "the key was on its way to this one");
    }
}

#[tokio::test]
async fn no_more_than_some_keys_are_changed_together() {
    let (registry, notes) = (registry(), Arc::default());
    let handle = queue(&registry, "q");
    let _gathering = gather_here();
    let mut first = pin!(note(&handle, &notes, "a"));
    let fills = handle.together(MOST_KEYS - 1, |_, _, _| (), |(), _| {});
    let mut later = pin!(note(&handle, &notes, "b"));
    assert!((&mut first).now_or_never().is_none());
    assert!(fills.now_or_never().is_some_and(|made| made.is_ok()));
    assert_eq!(*notes.lock().unwrap(), ["a is made"]);
    assert!((&mut later).now_or_never().is_none());
    assert_eq!((first.await, later.await), (Ok(()), Ok(())));
}

#[tokio::test]
async fn a_call_counts_as_many_keys_as_it_names() {
    let registry = registry();
    let handle = queue(&registry, "q");
    let _gathering = gather_here();
    let calls = |count| vec![call("a"); count];
    let settles = |count| vec![Settle { token: 1, how: How::Ack }; count];
    let pops = |max, settles| {
        let pop = PopCall { settles, ..pop() };
        handle.pop(PopCall { pop: Pop { max, ..pop.pop }, ..pop })
    };
    assert!(handle.produce(Arc::default(), calls(MOST_KEYS)).now_or_never().is_some());
    assert!(handle.settle(settles(MOST_KEYS)).now_or_never().is_some());
    assert!(pops(MOST_KEYS - 1, settles(1)).now_or_never().is_some());
    assert!(handle.produce(Arc::default(), calls(MOST_KEYS - 1)).now_or_never().is_none());
    assert!(handle.settle(settles(MOST_KEYS - 1)).now_or_never().is_none());
    assert!(pops(MOST_KEYS - 2, settles(1)).now_or_never().is_none());
}

#[tokio::test]
async fn after_one_with_which_nobody_came_some_are_made_at_once() {
    let (registry, notes) = (registry(), Arc::default());
    let handle = queue(&registry, "q");
    let _gathering = gather_here();
    let mut waits = Vec::new();
    for _ in 0..11 {
        let mut change = pin!(note(&handle, &notes, "a"));
        let at_once = (&mut change).now_or_never();
        waits.push(at_once.is_none());
        if at_once.is_none() {
            change.await.unwrap();
        }
    }
    let (t, f) = (true, false);
    assert_eq!(waits, [t, f, f, f, f, f, f, f, f, t, f]);
}
