//! A [`Fifo`] that calls a server over HTTP.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::fifo::{Closed, Delta, Fifo, Item, Options, Popped};
use crate::harness::{Client, Reply, Service};

/// A lease that is longer than any trace.
const LEASE: &str = "12h";

/// A server and one connection to it, for any number of queues.
pub(crate) struct HttpFifos {
    runtime: Rc<Runtime>,
    service: Service,
    queues: Cell<usize>,
}

/// A queue of the server. A list caches the deltas of its keys, and each cached value is used for one read.
pub(crate) struct HttpFifo {
    runtime: Rc<Runtime>,
    client: Client,
    path: String,
    listed: HashMap<String, Vec<Delta>>,
}

impl HttpFifos {
    /// Starts a server without queues.
    pub(crate) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = Rc::new(runtime.expect("a runtime"));
        let service = runtime.block_on(Service::start());
        Self { runtime, service, queues: Cell::new(0) }
    }

    /// Creates a queue of mode delta.
    pub(crate) fn queue(&self, options: &Options) -> HttpFifo {
        let (known_objects, emit_replaced) = (options.known_objects, options.emit_replaced);
        self.queue_of(
            &json!({"known_objects": known_objects, "emit_replaced": emit_replaced, "lease": LEASE}),
        )
    }

    /// Creates a queue of mode events.
    pub(crate) fn events(&self) -> HttpFifo {
        self.queue_of(&json!({"mode": "events", "lease": LEASE}))
    }

    fn queue_of(&self, config: &Value) -> HttpFifo {
        self.queues.set(self.queues.get() + 1);
        let mut queue = HttpFifo {
            runtime: self.runtime.clone(),
            client: self.runtime.block_on(self.service.client()),
            path: format!("/v1/queues/trace-{}", self.queues.get()),
            listed: HashMap::new(),
        };
        let created = queue.call("PUT", "", config);
        assert_eq!(created.status, 201, "{}", created.text);
        queue
    }
}

impl HttpFifo {
    fn call(&mut self, method: &str, call: &str, body: &Value) -> Reply {
        if method != "GET" {
            self.listed.clear();
        }
        let path = format!("{}{call}", self.path);
        self.runtime.block_on(self.client.call(method, &path, body))
    }

    fn post(&mut self, call: &str, body: &Value) -> Value {
        self.call("POST", call, body).ok()
    }

    /// A call that may be refused. `Err` is the problem code.
    fn produce(&mut self, call: &str, body: &Value) -> Result<(), String> {
        let reply = self.call("POST", call, body);
        match reply.status {
            200 => Ok(()),
            422 => Err(reply.body["code"].to_string()),
            status => panic!("{call} {body}: {status} {}", reply.text),
        }
    }

    fn list_of(&mut self, call: &str) -> Vec<Value> {
        let mut page = self.call("GET", call, &Value::Null).ok();
        assert_eq!(page["continue"], Value::Null, "a page holds all of a trace");
        let Value::Array(items) = page["items"].take() else { panic!("no list: {page}") };
        items
    }

    fn settle(&mut self, lease: &str, how: &str) {
        let reply = self.post(&format!("/{how}"), &json!({"lease_ids": [lease]}));
        let row = json!({
            "lease_id": lease, "as": how, "result": "ok", "outcome": null,
            "failures": null, "due_at": null, "parked": null,
        });
        assert_eq!(reply["settled"], json!([row]));
    }
}

impl Fifo for HttpFifo {
    type Lease = String;

    fn seed(&mut self, objects: &[Value]) {
        let seeds: Vec<Value> = objects.iter().map(|object| json!({"object": object})).collect();
        self.post("/seed", &Value::Array(seeds));
    }

    fn add(&mut self, object: &Value) -> Result<(), String> {
        self.produce("/add", object)
    }

    fn update(&mut self, object: &Value) -> Result<(), String> {
        self.produce("/update", object)
    }

    fn delete(&mut self, object: &Value) -> Result<(), String> {
        self.produce("/delete", object)
    }

    fn delete_tombstone(&mut self, key: &str, object: Option<&Value>) -> Result<(), String> {
        let (member, value) = object.map_or_else(|| ("key", json!(key)), |object| ("object", object.clone()));
        let mut delta = json!({"type": "Deleted", "final_state_unknown": true});
        delta[member] = value;
        self.produce("/deltas", &delta)
    }

    fn replace(&mut self, list: &[Value]) -> Result<(), String> {
        self.produce("/replace?max_delete_percent=100", &Value::Array(list.to_vec()))
    }

    fn resync(&mut self) {
        self.post("/resync", &Value::Null);
    }

    fn pop(&mut self) -> Popped<String> {
        match self.pop_many(1) {
            Ok(items) => items.into_iter().next().map_or(Popped::Empty, Popped::Item),
            Err(Closed) => Popped::Closed,
        }
    }

    fn pop_many(&mut self, max: usize) -> Result<Vec<Item<String>>, Closed> {
        let reply = self.call("POST", &format!("/pop?with=known&max={max}"), &Value::Null);
        if reply.status == 410 {
            reply.problem("queue-closed");
            return Err(Closed);
        }
        let mut popped = reply.ok();
        let items = popped["items"].as_array_mut().expect("a list");
        Ok(items.iter_mut().map(popped_item).collect())
    }

    fn ack(&mut self, lease: String) {
        self.settle(&lease, "ack");
    }

    fn release(&mut self, lease: String) {
        self.settle(&lease, "release");
    }

    fn list(&mut self) -> Vec<String> {
        let items = self.list_of("/items?state=ready&limit=5000");
        let keys: Vec<String> = items.iter().map(|item| text(&item["key"])).collect();
        let waiting = items.iter().zip(&keys).map(|(item, key)| (key.clone(), deltas(key, &item["deltas"])));
        self.listed = waiting.collect();
        keys
    }

    fn get(&mut self, key: &str) -> Vec<Delta> {
        if let Some(listed) = self.listed.remove(key) {
            return listed;
        }
        let reply = self.call("GET", &format!("/items/{key}"), &Value::Null);
        if reply.status == 404 {
            reply.problem("key-not-found");
            return Vec::new();
        }
        deltas(key, &reply.ok()["deltas"])
    }

    fn known(&mut self) -> BTreeMap<String, Value> {
        let known = self.list_of("/known?limit=5000").into_iter();
        known.map(|mut known| (text(&known["key"]), known["object"].take())).collect()
    }

    fn synced(&mut self) -> bool {
        let reply = self.call("GET", "/synced", &Value::Null).ok();
        reply["synced"].as_bool().expect("a flag")
    }

    fn close(&mut self) {
        self.post("/close", &Value::Null);
    }
}

fn popped_item(item: &mut Value) -> Item<String> {
    let key = text(&item["key"]);
    Item {
        lease: text(&item["lease"]["id"]),
        deltas: deltas(&key, &item["deltas"]),
        known: item.get_mut("known").map(Value::take),
        is_in_initial_list: item["is_in_initial_list"].as_bool().expect("a flag"),
        key,
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

fn deltas(key: &str, list: &Value) -> Vec<Delta> {
    let delta = |delta: &Value| {
        let unknown = delta.get("final_state_unknown") == Some(&Value::Bool(true));
        Delta::new(&text(&delta["type"]), key, delta["object"].clone(), unknown)
    };
    list.as_array().expect("a list").iter().map(delta).collect()
}
