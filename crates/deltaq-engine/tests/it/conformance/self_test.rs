//! Tests of the replay itself: it detects each kind of difference, and accepts expected differences that the recordings lack.

use serde_json::{Value, json};

use super::engine::EngineFifo;
use super::fifo::{self, Trace};
use super::report::Report;

fn replay(trace: Value) -> Report {
    let trace: Trace = serde_json::from_value(trace).expect("a trace");
    fifo::replay(&[trace], EngineFifo::new)
}

fn trace(steps: &Value) -> Value {
    let options = json!({ "known_objects": true, "emit_replaced": true, "initial_known": [] });
    json!({ "name": "made by hand", "options": options, "steps": steps })
}

fn added(key: &str) -> Value {
    json!({ "type": "Added", "object": { "key": key }, "tombstone": null })
}

fn replaced(key: &str) -> Value {
    json!({ "type": "Replaced", "object": { "key": key }, "tombstone": null })
}

/// A first list of one key, an Add, and a pop of the first key.
fn short_trace() -> Value {
    let ok = json!({ "error": null });
    let (a, b) = (json!([replaced("a")]), json!([added("b")]));
    let popped = json!({
        "key": "a", "deltas": a, "error": null, "requeued": false, "is_in_initial_list": true,
        "events": [{ "event": "add", "is_in_initial_list": true, "new": { "key": "a" } }],
    });
    let state = |queue: Value, deltas: Value, known: Value, has_synced: bool| json!({ "queue": queue, "deltas": deltas, "known": known, "has_synced": has_synced });
    trace(&json!([
        { "op": "replace", "list": [{ "key": "a" }], "result": ok,
          "state": state(json!(["a"]), json!({ "a": a }), json!({}), false) },
        { "op": "add", "object": { "key": "b" }, "result": ok,
          "state": state(json!(["a", "b"]), json!({ "a": a, "b": b }), json!({}), false) },
        { "op": "pop", "result": popped,
          "state": state(json!(["b"]), json!({ "b": b }), json!({ "a": { "key": "a" } }), true) },
    ]))
}

#[test]
fn every_kind_of_difference_is_detected() {
    let untouched = replay(short_trace());
    assert_eq!((untouched.compared, untouched.wrong.len()), (3, 0), "{:?}", untouched.wrong);
    for (pointer, value) in [
        ("/steps/0/result/error", json!("refused")),
        ("/steps/0/state/has_synced", json!(true)),
        ("/steps/1/state/queue", json!(["b", "a"])),
        ("/steps/1/state/deltas/b/0/type", json!("Updated")),
        ("/steps/1/state/deltas/b", json!([added("b"), added("b")])),
        ("/steps/2/result/key", json!("b")),
        ("/steps/2/result/deltas/0/object", json!({ "key": "a", "rev": 1 })),
        ("/steps/2/result/is_in_initial_list", json!(false)),
        ("/steps/2/result/requeued", json!(true)),
        ("/steps/2/result/events", json!([])),
        ("/steps/2/result/events/0/is_in_initial_list", json!(false)),
        ("/steps/2/result/events/0/new", json!({})),
        ("/steps/2/result", json!({ "empty": true })),
        ("/steps/2/state/known", json!({})),
        ("/steps/2/state/has_synced", json!(false)),
    ] {
        let mut tampered = short_trace();
        *tampered.pointer_mut(pointer).expect("a value in the trace") = value.clone();
        let report = replay(tampered);
        assert_eq!(report.wrong.len(), 1, "{pointer} {value}");
        assert!(report.expected.is_empty(), "{pointer} {value}: {report}");
    }
}

/// In client-go the refused call marks the queue as populated, so the following Replace is not the initial list.
#[test]
fn a_refused_call_does_not_populate() {
    let list = json!([replaced("a")]);
    let popped = json!({
        "key": "a", "deltas": list, "error": null, "requeued": false, "is_in_initial_list": false,
        "events": [{ "event": "add", "is_in_initial_list": false, "new": { "key": "a" } }],
    });
    let nothing = json!({ "queue": [], "deltas": {}, "known": {}, "has_synced": true });
    let listed = json!({ "queue": ["a"], "deltas": { "a": list }, "known": {}, "has_synced": true });
    let done = json!({ "queue": [], "deltas": {}, "known": { "a": { "key": "a" } }, "has_synced": true });
    let report = replay(trace(&json!([
        { "op": "add", "object": { "rev": 1 }, "result": { "error": "object has no key" }, "state": nothing },
        { "op": "replace", "list": [{ "key": "a" }], "result": { "error": null }, "state": listed },
        { "op": "pop", "result": popped, "state": done },
    ])));
    assert_eq!(report.wrong, [""; 0]);
    // Four flags differ: has_synced after the first two steps, the pop's flag and the flag of its event.
    let counts = "3 steps compared, 0 ignored\n  4 times: 2. a refused call does not populate";
    assert_eq!(report.to_string(), counts);
}

/// A tombstone without object carries the object that was newest at that time.
#[test]
fn tombstones_without_object_carry_the_newest() {
    let object = |rev: u64| json!({ "key": "a", "rev": rev });
    let added = |rev: u64| json!({ "type": "Added", "object": object(rev), "tombstone": null });
    let tombstone = json!({ "key": "a", "object": null });
    let deleted = json!({ "type": "Deleted", "object": null, "tombstone": tombstone });
    let lists = [
        json!([added(1)]),
        json!([added(1), deleted]),
        json!([added(1), deleted, added(2)]),
        json!([added(1), deleted, added(2), deleted]),
    ];
    let calls = [
        json!({ "op": "add", "object": object(1) }),
        json!({ "op": "delete_tombstone", "object": tombstone }),
        json!({ "op": "add", "object": object(2) }),
        json!({ "op": "delete_tombstone", "object": tombstone }),
    ];
    let steps = calls.into_iter().zip(lists).map(|(mut step, list)| {
        step["result"] = json!({ "error": null });
        step["state"] = json!({ "queue": ["a"], "deltas": { "a": list }, "known": {}, "has_synced": true });
        step
    });
    let report = replay(trace(&steps.collect()));
    assert_eq!(report.wrong, [""; 0]);
    let counts =
        "4 steps compared, 0 ignored\n  4 times: 4. a tombstone without object carries the newest one";
    assert_eq!(report.to_string(), counts);
}
