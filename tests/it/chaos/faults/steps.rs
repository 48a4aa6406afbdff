//! The process ends at each of its writes and syncs in turn, during a scripted workload with a Replace, a last
//! checkpoint, trims and a deletion, and again while it recovers.
//!
//! The state after the restart must be that after the acknowledged requests, or that after these and the request
//! in flight. By default some of the steps are tried; `DELTAQ_ALL_STEPS=1` tries all.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{Plan, QUEUE, call, keys, place};
use crate::harness::blocking::Message;
use crate::harness::process::{deltaq, finished};
use crate::harness::server::{End, Spawned, Store};

/// Objects of the Replace.
const LIST: usize = 300;
/// The number of steps that are tried by default.
const TRIED: u64 = 24;
/// More steps than any workload has.
const STEPS_MAX: u64 = 100_000;

/// What later requests of the script need from earlier replies.
#[derive(Default)]
struct Known {
    leases: Vec<String>,
}

/// The script. Each request leaves a different state.
fn script() -> Vec<fn(&mut Known) -> Message> {
    vec![
        |_| put(&json!({"retention": {"bytes": 0}, "lease": "1h"})),
        |_| post("/add", &json!([{"key": "a"}, {"key": "b"}, {"key": "c"}, {"key": "d"}])),
        |_| post("/pop?max=3", &Value::Null),
        |known| post("/ack", &json!({"lease_ids": [known.leases.remove(0)]})),
        |known| post("/reject", &json!({"lease_ids": [known.leases.remove(0)], "error": "no"})),
        |_| post("/update", &json!({"key": "b", "n": 1})),
        |known| post("/nack", &json!({"lease_ids": [known.leases.remove(0)], "delay": "1h"})),
        |_| post("/replace?source=erp", &list()),
        |_| post("/delete?key=k7", &Value::Null),
        |_| post("/pop?max=200", &Value::Null),
        |known| post("/ack", &json!({"lease_ids": std::mem::take(&mut known.leases)})),
        |_| {
            post(
                "/replace?source=erp&only_changed=true&max_delete_percent=100",
                &json!([{"key": "k0"}, {"key": "k1"}]),
            )
        },
        |_| post("/purge", &Value::Null),
        |_| Message {
            method: "POST",
            path: "/v1/queues/gone/add".to_owned(),
            content_type: None,
            body: json!({"key": "x"}).to_string(),
        },
        |_| Message {
            method: "DELETE",
            path: "/v1/queues/gone".to_owned(),
            content_type: None,
            body: String::new(),
        },
    ]
}

fn put(body: &Value) -> Message {
    Message { method: "PUT", path: QUEUE.to_owned(), content_type: None, body: body.to_string() }
}

fn post(path: &str, body: &Value) -> Message {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    Message { method: "POST", path: format!("{QUEUE}{path}"), content_type: None, body }
}

fn list() -> Value {
    (0..LIST).map(|number| json!({"key": format!("k{number}"), "n": number})).collect()
}

/// The visible state of the queues that does not change by itself.
fn look(server: &Spawned) -> Value {
    let get = |path: &str| call(server, &Message::get(path.to_owned())).expect("an answer").1;
    let mut seen = json!({
        "gone": get("/v1/queues/gone")["name"],
        "config": get(QUEUE)["settings"],
        "known": get(&format!("{QUEUE}/known?limit=5000"))["items"],
        "items": get(&format!("{QUEUE}/items?limit=5000"))["items"],
    });
    plain(&mut seen);
    seen
}

/// Removes instants and event numbers, which differ after a restart.
fn plain(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|name, _| {
                !["resource_version", "queued_at", "due_at", "lease", "leased_at", "token"]
                    .contains(&name.as_str())
            });
            members.values_mut().for_each(plain);
        }
        Value::Array(values) => values.iter_mut().for_each(plain),
        _ => {}
    }
}

/// Runs the script from request `first` on until it ends or the server dies. Returns the number of acknowledged
/// requests and the state after each.
fn run(server: &Spawned, known: &mut Known, looks: bool) -> (usize, Vec<Value>) {
    let mut seen = Vec::new();
    for (index, request) in script().into_iter().enumerate() {
        let Ok((status, body)) = call(server, &request(known)) else { return (index, seen) };
        assert!((200..300).contains(&status), "request {index}: {status} {body}");
        let items = body["items"].as_array().into_iter().flatten();
        known.leases.extend(items.filter_map(|item| Some(item["lease"]["id"].as_str()?.to_owned())));
        if looks {
            seen.push(look(server));
        }
    }
    (script().len(), seen)
}

/// The state after each request of a run without faults, beginning with the empty state.
fn expected() -> Vec<Value> {
    let (store, ..) = place("steps-model");
    let server = Spawned::start(&store);
    let mut seen = vec![look(&server)];
    seen.extend(run(&server, &mut Known::default(), true).1);
    seen
}

/// Starts a server that dies at a step. `None` if it dies before it is ready.
fn doomed(store: &Store, folder: &Path, plan: Plan) -> Option<Spawned> {
    Spawned::try_start(store, deltaq(&[]), "127.0.0.1:0", |command| plan.set(command, folder, None)).ok()
}

/// Runs a server that dies at `step`, optionally a second one that dies at `again` during its recovery, then
/// checks the state. Returns whether the first server reached its step.
fn die_at(expected: &[Value], kind: &'static str, step: u64, again: Option<u64>) -> bool {
    let (store, folder, _) = place(&format!("steps-{kind}-{step}-{}", again.unwrap_or_default()));
    let plan = |from| Plan { kind, calls: "any", from, count: 1, errno: 0 };
    let mut done = 0;
    let mut came = true;
    if let Some(server) = doomed(&store, &folder, plan(step)) {
        done = run(&server, &mut Known::default(), false).0;
        if done == expected.len() - 1 {
            server.signal("TERM");
            came = server.ended().0 != Some(0);
        }
    }
    if let Some(again) = again {
        drop(doomed(&store, &folder, plan(again)));
    }
    let server = Spawned::start(&store);
    let found = look(&server);
    let is = |index: usize| expected.get(index).is_some_and(|state| *state == found);
    // An interrupted Replace has queued a part of its list, and its caller repeats it.
    let replaces = script().get(done).is_some_and(|request| {
        request(&mut Known { leases: vec![String::new(); 3] }).path.contains("/replace")
    });
    assert!(
        is(done) || is(done + 1) || replaces,
        "{kind} at step {step}, again at {again:?}: after {done} acknowledged requests there is\n{found}\nand not\n{}\nor\n{}",
        expected[done],
        expected.get(done + 1).unwrap_or(&Value::Null),
    );
    server.end(End::Kill);
    came
}

#[test]
fn the_process_ends_at_any_write() {
    #[expect(clippy::disallowed_methods, reason = "a test has no settings")]
    let all = std::env::var("DELTAQ_ALL_STEPS").is_ok_and(|value| value == "1");
    let expected = expected();
    let last =
        (1..STEPS_MAX).map(|power| 1 << power).find(|step| !die_at(&expected, "kill_before", *step, None));
    let last = last.expect("the workload ends");
    let stride = if all { 1 } else { (last / TRIED).max(1) };
    let mut step = 1;
    while step < last {
        let kind = if step % 2 == 0 { "kill_before" } else { "kill_after" };
        let again = (step % 3 == 0).then_some(1 + step % 11);
        if !die_at(&expected, kind, step, again) {
            break;
        }
        step += stride;
    }
    assert!(step > stride, "no step was tried");
}

/// A copy of a store with the key "kept".
fn backup() -> PathBuf {
    let (store, folder, backup) = place("backed-up");
    let server = Spawned::start(&store);
    assert_eq!(call(&server, &post("/add", &json!({"key": "kept"}))).expect("a reply").0, 200);
    let [from, to] = [&folder, &backup].map(|path| path.to_str().expect("UTF-8"));
    finished(deltaq(&["backup", "--data-dir", from, "--to", to]), "").ok();
    server.end(End::Kill);
    backup
}

/// Interrupts the creation of a store at each of its writes in turn, and checks that the next start completes it.
fn interrupt_first_start(kind: &'static str, count: u64, backup: Option<&Path>) {
    const ENOSPC: i32 = 28;
    let mut from = 1;
    loop {
        let (store, folder, _) = place(&format!("first-start-{kind}"));
        if let Some(backup) = backup {
            std::fs::copy(backup, folder.join("deltaq.db")).expect("a file");
        }
        let plan = Plan { kind, calls: "any", from, count, errno: ENOSPC };
        let is_complete = doomed(&store, &folder, plan).map(|server| server.end(End::Kill)).is_some();
        let server = Spawned::start(&store);
        assert_eq!(call(&server, &post("/add", &json!({"key": "new"}))).expect("a reply").0, 200);
        let expected: &[&str] = if backup.is_some() { &["kept", "new"] } else { &["new"] };
        assert!(keys(&server).iter().eq(expected), "{kind} from call {from} on");
        server.end(End::Kill);
        if is_complete {
            break;
        }
        from += 1;
    }
    assert!(from > 10, "{kind}: no call was hit");
}

// Three tests, so that they run at the same time.

#[test]
fn a_first_start_may_end_before_any_write() {
    interrupt_first_start("kill_before", 1, None);
}

#[test]
fn a_first_start_from_a_backup_may_end_after_any_write() {
    let backup = backup();
    interrupt_first_start("kill_after", 1, Some(&backup));
    std::fs::remove_file(&backup).expect("the copy");
}

#[test]
fn a_first_start_may_run_out_of_disk_space_at_any_write() {
    interrupt_first_start("fail", 4, None);
}
