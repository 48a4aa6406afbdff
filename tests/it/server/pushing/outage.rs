//! What an endpoint gets after an outage, and on a connection that it has closed.

use std::collections::HashMap;

use super::*;

/// Number of keys, and of changes of each.
const KEYS: usize = 100;
const CHANGES: u64 = 100;

/// Takes this many requests at once and answers them, step by step, and checks that no further request comes.
pub(super) async fn ramps_up(service: &Service, receiver: &mut Receiver, steps: &[usize]) -> Vec<Value> {
    let mut bodies = Vec::new();
    for at_once in steps {
        let mut hooks = Vec::new();
        for _ in 0..*at_once {
            hooks.push(receiver.next().await);
        }
        assert_eq!(status(service, "push").await["in_flight"], json!(at_once));
        assert!(receiver.is_silent());
        for hook in hooks {
            bodies.push(hook.json());
            hook.answer(200, "").await;
        }
    }
    bodies
}

#[tokio::test]
async fn after_an_outage_each_changed_key_is_sent_once() {
    let (service, _folder) = service().await;
    let mut receiver = Receiver::start().await;
    pushing(&service, &receiver, json!({})).await;
    service.call("PATCH", QUEUE, &json!({"mode": "latest"})).await.ok();
    let change =
        |n: u64| -> Value { (0..KEYS).map(|key| json!({"key": format!("k{key}"), "n": n})).collect() };
    service.post(&format!("{QUEUE}/add"), &change(0)).await.ok();
    for _ in 0..5 {
        drop(receiver.next().await);
    }
    reaches(&service, "/push/state", json!("failing")).await;
    for n in 1..=CHANGES {
        service.post(&format!("{QUEUE}/update"), &change(n)).await.ok();
        while !receiver.is_silent() {
            drop(receiver.next().await);
        }
    }
    // A probe may have begun before the last change.
    let last = loop {
        let hook = receiver.next().await;
        if hook.json()["data"]["deltas"][0]["object"]["n"] == CHANGES {
            break hook;
        }
    };
    let mut seen = HashMap::new();
    let mut note = |body: &Value| {
        let data = &body["data"];
        assert_eq!(data["deltas"][0]["object"]["n"], CHANGES, "only the newest state");
        *seen.entry(data["key"].to_string()).or_insert(0) += 1;
    };
    note(&last.json());
    last.answer(200, "").await;
    ramps_up(&service, &mut receiver, &[1, 2, 4]).await.iter().for_each(&mut note);
    for _ in 8..KEYS {
        let hook = receiver.next().await;
        note(&hook.json());
        hook.answer(200, "").await;
    }
    reaches(&service, "/known", json!(KEYS)).await;
    assert!(receiver.is_silent());
    assert_eq!(seen.len(), KEYS);
    assert!(seen.values().all(|requests| *requests == 1), "{seen:?}");
    assert_eq!(status(&service, "parked").await, 0);
}

#[tokio::test]
async fn a_request_that_meets_the_end_of_a_kept_connection_is_sent_again_and_counts_nothing() {
    let (service, _folder) = service().await;
    let mut receiver = Receiver::start().await;
    pushing(&service, &receiver, json!({})).await;
    let mut sent = 0;
    let mut kept = None;
    // The sender keeps a connection for a short time.
    let broken = loop {
        service.post(&format!("{QUEUE}/add"), &object(&format!("k{sent}"))).await.ok();
        let hook = receiver.next().await;
        if kept == Some(hook.peer) {
            break hook;
        }
        kept = Some(hook.peer);
        hook.answer_and_stay(200, "").await;
        sent += 1;
        reaches(&service, "/known", json!(sent)).await;
    };
    let names = ["webhook-id", "deltaq-token", "deltaq-attempt"];
    let identity = |hook: &Hook| names.map(|name| hook.header(name).to_owned());
    let expected = identity(&broken);
    drop(broken);
    let again = receiver.next().await;
    assert_eq!(identity(&again), expected);
    assert_ne!(Some(again.peer), kept);
    let push = status(&service, "push").await;
    assert_eq!((&push["in_flight"], &push["last_error"]), (&json!(1), &Value::Null));
    // The new connection has broken as well: that is a failure.
    drop(again);
    let third = receiver.next().await;
    assert!(third.number("deltaq-token") > expected[1].parse().expect("a number"));
    assert_eq!(results(&service, "no_answer").await, "1");
    third.answer(200, "").await;
    reaches(&service, "/known", json!(sent + 1)).await;
    assert_eq!(results(&service, "ok").await, (sent + 1).to_string());
}
