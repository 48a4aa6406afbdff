//! All kinds of work on a server with which all is well: whatever is bad in it is seldom, or soon mended.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::crash::wire::{Connection, Message};

/// The queues whose series a dashboard would show.
pub(super) const QUEUES: [&str; 3] = ["mixed", "bulk", "asleep"];
/// What is done over and over, each by a caller of its own.
pub(super) const TASKS: [fn(&mut Caller, usize); 3] = [mixed, bulk, poll];

/// Bytes and number of large objects: together more than what makes a checkpoint due.
const LARGE_BYTES: usize = 900_000;
const LARGE_OBJECTS: usize = 90;
/// Rounds between two of what is seldom.
const SELDOM: usize = 20;
/// Rounds until a lease of a second has ended, which take a tenth of a second at least.
const EXPIRED: usize = 15;

/// A kept connection, and what the tasks have to remember.
pub(super) struct Caller {
    address: SocketAddr,
    connection: Connection,
    /// Connections that take places.
    idle: Vec<Connection>,
    settled: usize,
    /// A lease that nobody settles in time.
    forgotten: Value,
    /// What the next pop is to settle.
    settle: Value,
}

impl Caller {
    pub(super) fn new(address: SocketAddr) -> Self {
        let connection = Connection::open(address).expect("the server listens");
        Self { address, connection, idle: Vec::new(), settled: 0, forgotten: Value::Null, settle: json!({}) }
    }

    /// Status and body of the answer. `body` is JSON; `Null` is no body.
    pub(super) fn call(&mut self, method: &'static str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let message = Message { method, path: path.to_owned(), content_type: None, body };
        let answer = self.connection.call(&message).expect("an answer");
        (answer.status().unwrap_or_default(), serde_json::from_slice(&answer.body).unwrap_or_default())
    }

    /// The body of an answer that is no problem.
    pub(super) fn ok(&mut self, method: &'static str, path: &str, body: &Value) -> Value {
        let (status, answer) = self.call(method, path, body);
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        answer
    }

    /// Takes all connections that are left, and is turned away.
    pub(super) fn fill(&mut self) {
        loop {
            let mut connection = Connection::open(self.address).expect("the server listens");
            let told = connection.call(&Message::get("/livez".to_owned())).expect("an answer");
            if told.status() == Some(503) {
                return;
            }
            self.idle.push(connection);
        }
    }

    /// Sends a request and does not wait for its answer.
    fn leave(&self, head: &str) {
        let mut leaving = Connection::open(self.address).expect("the server listens");
        leaving.send(head.as_bytes()).expect("the server reads");
        leaving.end();
    }

    /// A text.
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

/// Produces and consumes in every way.
fn mixed(caller: &mut Caller, round: usize) {
    if round == 0 {
        caller.ok("PUT", "/v1/queues/mixed", &json!({"max_deltas_per_key": 2}));
        caller.ok("PUT", "/v1/queues/full", &json!({"max_keys": 1}));
        caller.ok("PUT", "/v1/queues/unfed", &json!({}));
        caller.post("asleep/add", &json!([{"key": "a"}, {"key": "b"}]));
        caller.post("asleep/pause", &Value::Null);
    }
    for version in 0..3 {
        let objects: Value =
            (0..8).map(|key| json!({"key": format!("k{key}"), "version": version})).collect();
        caller.post("mixed/update", &objects);
    }
    caller.post("mixed/add?delay=200ms", &json!({"key": format!("late-{}", round % 9)}));
    caller.post("mixed/delete", &json!({"key": "nobody-has-it"}));
    if round.is_multiple_of(SELDOM) {
        seldom(caller, round);
    }
    if round % SELDOM == EXPIRED {
        let lease = std::mem::take(&mut caller.forgotten);
        caller.refused("mixed/ack", &json!({"leases": [lease]}), 409);
    }
    let popped = caller.post("mixed/pop?max=100", &Value::Null);
    for item in popped["items"].as_array().expect("items") {
        caller.settled += 1;
        settle(caller, &item["lease"]["id"]);
    }
}

fn seldom(caller: &mut Caller, round: usize) {
    let list: Value = (0..5).map(|key| json!({"key": format!("k{key}"), "round": round})).collect();
    for _ in 0..2 {
        caller.post("mixed/replace?source=erp&only_changed=true", &list);
    }
    caller.post("mixed/resync", &Value::Null);
    caller.ok("GET", "/readyz", &Value::Null);
    caller.leave(
        "POST /v1/queues/asleep/pop?wait=30s HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n",
    );
    let (status, _) = caller.call("GET", "/nowhere", &Value::Null);
    assert_eq!(status, 404);
    caller.post("full/add", &json!({"key": "a"}));
    caller.refused("full/add", &json!({"key": "b"}), 429);
    let taken = caller.post("full/pop", &Value::Null);
    caller.post("full/ack", &json!({"leases": [taken["items"][0]["lease"]["id"]]}));
    let popped = caller.post("mixed/pop?max=1&lease=1s", &Value::Null);
    caller.forgotten = popped["items"][0]["lease"]["id"].clone();
}

fn settle(caller: &mut Caller, lease: &Value) {
    let way = match caller.settled % 40 {
        7 | 27 => "nack",
        11 => "release",
        17 => "reject",
        _ => "ack",
    };
    caller.post(&format!("mixed/{way}"), &json!({"leases": [lease]}));
    if way == "reject" {
        let mended = if caller.settled % 80 == 17 { "redrive" } else { "discard" };
        caller.post(&format!("mixed/parked/{mended}"), &json!({}));
    }
}

/// Sends large objects until a checkpoint is due, and small ones from then on.
fn bulk(caller: &mut Caller, round: usize) {
    // Ten in the time of one, so that the checkpoint is done before somebody asks for it.
    for number in round * 10..round * 10 + 10 {
        let bytes = if number < LARGE_OBJECTS { LARGE_BYTES } else { 10 };
        caller.post("bulk/update", &json!({"key": format!("k{}", number % 5), "text": "x".repeat(bytes)}));
    }
}

/// Waits for keys, and acknowledges them with the next pop.
fn poll(caller: &mut Caller, _round: usize) {
    let settle = std::mem::replace(&mut caller.settle, json!({}));
    let popped = caller.post("bulk/pop?wait=1s", &settle);
    let leases = popped["items"].as_array().expect("items").iter().map(|item| &item["lease"]["id"]);
    let settles: Vec<Value> = leases.map(|lease| json!({"lease": lease, "as": "ack"})).collect();
    caller.settle = json!({ "settle": settles });
}
