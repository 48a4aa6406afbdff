//! All kinds of load on a healthy server. Failures in it are rare or soon repaired.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::harness::blocking::{Connection, Message};

/// The queues that the dashboard shows.
pub(super) const QUEUES: [&str; 7] = ["mixed", "bulk", "asleep", "copy", "pushed", "hooked", "fed"];
/// The secret of the hook.
pub(super) const HOOK_SECRET: &str = "a-secret-of-gitlab";
/// The tasks that are repeated, each by its own caller.
pub(super) const TASKS: [fn(&mut Caller, usize); 7] = [mixed, bulk, poll, watch, push, hook, feed];

/// Bytes and number of large objects: together enough for a checkpoint.
const LARGE_BYTES: usize = 900_000;
const LARGE_OBJECTS: usize = 90;
/// Rounds between two rare events.
const RARE: usize = 20;
/// Rounds until a lease of a second has expired. A round takes at least a tenth of a second.
const EXPIRED: usize = 15;

/// A persistent connection, and the state of the tasks.
pub(super) struct Caller {
    address: SocketAddr,
    connection: Connection,
    /// Connections with a call in progress.
    busy: Vec<Connection>,
    settled: usize,
    /// A lease that is not settled in time.
    forgotten: Value,
    /// The settles of the next pop.
    settle: Value,
}

impl Caller {
    pub(super) fn new(address: SocketAddr) -> Self {
        let connection = Connection::open(address).expect("the server listens");
        Self { address, connection, busy: Vec::new(), settled: 0, forgotten: Value::Null, settle: json!({}) }
    }

    /// Makes a call. Returns status and body of the reply. `body` is JSON; `Null` is no body.
    pub(super) fn call(&mut self, method: &'static str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let message = Message { method, path: path.to_owned(), content_type: None, body };
        let answer = self.connection.call(&message).expect("an answer");
        (answer.status().unwrap_or_default(), serde_json::from_slice(&answer.body).unwrap_or_default())
    }

    /// Makes a call that must succeed, and returns the body of the reply.
    pub(super) fn ok(&mut self, method: &'static str, path: &str, body: &Value) -> Value {
        let (status, answer) = self.call(method, path, body);
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        answer
    }

    /// Opens connections with a call in progress until one is refused. An idle connection would give way.
    pub(super) fn fill(&mut self, round: usize) {
        if round == 0 {
            self.ok("PUT", "/v1/queues/watched", &json!({}));
        }
        loop {
            let mut connection = Connection::open(self.address).expect("the server listens");
            // A connection without a call gives way to the monitor.
            let Ok(reply) = connection.call(&Message::get("/livez".to_owned())) else { continue };
            if reply.status() == Some(503) {
                // A monitor that was cut off can connect again until the next call.
                self.busy.pop();
                return;
            }
            connection
                .send(b"GET /v1/queues/watched/watch HTTP/1.1\r\nHost: localhost\r\n\r\n")
                .expect("the server reads");
            self.busy.push(connection);
        }
    }

    /// Sends a request and disconnects before its reply.
    fn disconnect(&self, head: &str) {
        let mut connection = Connection::open(self.address).expect("the server listens");
        connection.send(head.as_bytes()).expect("the server reads");
        connection.end();
    }

    /// The text of a reply.
    pub(super) fn text(&mut self, path: &str) -> String {
        let answer = self.connection.call(&Message::get(path.to_owned())).expect("an answer");
        String::from_utf8(answer.body).expect("UTF-8")
    }

    fn post(&mut self, path: &str, body: &Value) -> Value {
        self.ok("POST", &format!("/v1/queues/{path}"), body)
    }

    fn refused(&mut self, path: &str, body: &Value, expected: u16) {
        let (status, answer) = self.call("POST", &format!("/v1/queues/{path}"), body);
        assert_eq!(status, expected, "{path}: {answer}");
    }
}

/// Makes all kinds of produce and consume calls.
fn mixed(caller: &mut Caller, round: usize) {
    if round == 0 {
        let groups = json!({"by": {"key_prefix": "-"}});
        caller.ok("PUT", "/v1/queues/mixed", &json!({"max_deltas_per_key": 2, "groups": groups}));
        caller.ok("PUT", "/v1/queues/full", &json!({"max_keys": 1}));
        caller.ok("PUT", "/v1/queues/unfed", &json!({}));
        caller.post("asleep/add", &json!([{"key": "a"}, {"key": "b"}]));
        caller.post("asleep/pause", &Value::Null);
        caller.ok("PUT", "/v1/queues/copy", &json!({"follow": {"queue": "asleep"}}));
        caller.post("copy/pause", &Value::Null);
    }
    for version in 0..3 {
        let objects: Value =
            (0..8).map(|key| json!({"key": format!("k{key}"), "version": version})).collect();
        caller.post("mixed/update", &objects);
    }
    caller.post("mixed/add?delay=200ms", &json!({"key": format!("late-{}", round % 9)}));
    caller.post("mixed/delete", &json!({"key": "unknown"}));
    if round.is_multiple_of(RARE) {
        rare_events(caller, round);
    }
    if round % RARE == EXPIRED {
        let lease = std::mem::take(&mut caller.forgotten);
        caller.refused("mixed/ack", &json!({"lease_ids": [lease]}), 409);
    }
    let popped = caller.post("mixed/pop?max=100", &Value::Null);
    for item in popped["items"].as_array().expect("items") {
        caller.settled += 1;
        settle(caller, &item["lease"]["id"]);
    }
}

fn rare_events(caller: &mut Caller, round: usize) {
    let list: Value = (0..5).map(|key| json!({"key": format!("k{key}"), "round": round})).collect();
    for _ in 0..2 {
        caller.post("mixed/replace?source=erp&only_changed=true", &list);
    }
    caller.post("mixed/resync", &Value::Null);
    caller.ok("GET", "/readyz", &Value::Null);
    caller.ok("PUT", "/v1/queues/asleep", &json!({}));
    caller.disconnect(
        "POST /v1/queues/asleep/pop?wait=30s HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n",
    );
    let (status, _) = caller.call("GET", "/nowhere", &Value::Null);
    assert_eq!(status, 404);
    caller.post("full/add", &json!({"key": "a"}));
    caller.refused("full/add", &json!({"key": "b"}), 429);
    let taken = caller.post("full/pop", &Value::Null);
    caller.post("full/ack", &json!({"lease_ids": [taken["items"][0]["lease"]["id"]]}));
    let popped = caller.post("mixed/pop?max=1&lease_duration=1s", &Value::Null);
    caller.forgotten = popped["items"][0]["lease"]["id"].clone();
}

fn settle(caller: &mut Caller, lease: &Value) {
    let way = match caller.settled % 40 {
        7 | 27 => "nack",
        11 => "release",
        17 => "reject",
        _ => "ack",
    };
    caller.post(&format!("mixed/{way}"), &json!({"lease_ids": [lease]}));
    if way == "reject" {
        let end = if caller.settled % 80 == 17 { "redrive" } else { "discard" };
        caller.post(&format!("mixed/parked/{end}"), &json!({"all": true}));
    }
}

/// Sends large objects until a checkpoint is due, and small ones from then on.
fn bulk(caller: &mut Caller, round: usize) {
    // Ten per round, so that the checkpoint ends before the test waits for it.
    for number in round * 10..round * 10 + 10 {
        let bytes = if number < LARGE_OBJECTS { LARGE_BYTES } else { 10 };
        caller.post("bulk/update", &json!({"key": format!("k{}", number % 5), "text": "x".repeat(bytes)}));
    }
}

/// Waits for keys, and acknowledges them with the next pop.
fn watch(caller: &mut Caller, _round: usize) {
    let head = "GET /v1/queues/mixed/watch?resource_version=now&wait=1s HTTP/1.1";
    let request = format!("{head}\r\nhost: localhost\r\naccept: application/json\r\n\r\n");
    caller.connection.send(request.as_bytes()).expect("the server reads");
    caller.connection.receive().expect("an answer");
}

/// Changes keys of a queue that pushes them to another queue of the same server.
fn push(caller: &mut Caller, round: usize) {
    if round == 0 {
        let url = format!("http://{}/v1/queues/bulk/update", caller.address);
        caller.ok("PUT", "/v1/queues/pushed", &json!({"push": {"url": url, "format": "raw"}}));
    }
    caller.post("pushed/update", &json!({"key": format!("p{}", round % 5), "round": round}));
}

/// Sends deliveries of webhooks, half of which the queue leaves out. It pushes the others to another queue.
fn hook(caller: &mut Caller, round: usize) {
    if round == 0 {
        let only = json!([{"pointer": "/kind", "values": ["push"]}]);
        let hook = json!({"scheme": "gitlab", "secrets": ["gitlab"], "only": only});
        let url = format!("http://{}/v1/queues/bulk/update", caller.address);
        let settings = json!({"hook": hook, "push": {"url": url, "format": "raw"}});
        caller.ok("PUT", "/v1/queues/hooked", &settings);
    }
    let kind = if round.is_multiple_of(2) { "push" } else { "other" };
    let body = json!({"key": format!("h{}", round % 5), "kind": kind, "round": round}).to_string();
    let head = format!("POST /v1/hooks/hooked HTTP/1.1\r\nhost: localhost\r\nx-gitlab-token: {HOOK_SECRET}");
    let request = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    caller.connection.send(request.as_bytes()).expect("the server reads");
    caller.connection.receive().expect("an answer");
}

/// Keeps sources in contact that send no new list, each in another way, and the reflector of one of them alive.
fn feed(caller: &mut Caller, round: usize) {
    let list = json!([{"key": "a"}]);
    if round == 0 {
        caller.post("fed/replace?source=unchanged", &list);
        caller.post("fed/add?source=calls", &json!({"key": "b"}));
        for source in ["unchanged", "calls", "seen"] {
            let threshold = json!({"stale_after": "5s"});
            caller.ok("PATCH", &format!("/v1/queues/fed/sources/{source}"), &threshold);
        }
        heartbeat(caller, "fed", ("stopped", false, false));
        heartbeat(caller, "fed", ("stopped", false, true));
        let popped = caller.post("fed/pop?max=10", &Value::Null);
        for item in popped["items"].as_array().expect("items") {
            caller.post("fed/ack", &json!({"lease_ids": [item["lease"]["id"]]}));
        }
    }
    caller.post("fed/replace?source=unchanged&only_changed=true", &list);
    caller.post("fed/delete?source=calls", &json!({"key": "unknown"}));
    caller.post("fed/sources/seen/seen", &Value::Null);
    heartbeat(caller, "fed", ("seen", false, false));
}

/// Sends a heartbeat of a reflector: the source, whether its last attempt has failed, and whether it stops.
pub(super) fn heartbeat(caller: &mut Caller, queue: &str, (source, failing, stopped): (&str, bool, bool)) {
    let report = json!({
        "source": source, "instance": "a", "version": "1", "kind": "rest", "interval": "1m", "failing": failing, "stopped": stopped,
        "last_success_at": "2026-11-21T04:20:03.505Z",
    });
    caller.ok("POST", &format!("/v1/queues/{queue}/reflectors"), &report);
}

fn poll(caller: &mut Caller, _round: usize) {
    let settle = std::mem::replace(&mut caller.settle, json!({}));
    let popped = caller.post("bulk/pop?wait=1s", &settle);
    let leases = popped["items"].as_array().expect("items").iter().map(|item| &item["lease"]["id"]);
    let settles: Vec<Value> = leases.map(|lease| json!({"lease_id": lease, "as": "ack"})).collect();
    caller.settle = json!({ "settle": settles });
}
