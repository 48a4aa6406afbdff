//! Producers: single calls, batches, mixed batches and complete lists. Every object has a number of its own; only a Replace
//! with `only_changed` sends some objects again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::client::Client;
use super::history::{Change, Effect, Key, Kind, Operation, object};
use super::queues::{Mode, QUEUES, Spec};
use crate::harness::blocking::Message;

/// Most objects in a batch.
const BATCH: usize = 6;

/// A producer.
#[derive(Debug)]
pub(crate) struct Producer {
    pub(crate) client: Client,
    /// The last number that was sent; shared by all producers.
    values: Arc<AtomicU64>,
    /// The number that this producer sent last for each key.
    last: HashMap<(&'static str, Key), u64>,
}

/// The queue and the source of a call.
#[derive(Clone, Copy)]
struct Target {
    spec: &'static Spec,
    source: Option<&'static str>,
}

impl Target {
    /// The path of a call, with its source and the rest of its query.
    fn path(self, verb: &str, rest: Option<&str>) -> String {
        let source = self.source.map(|source| format!("source={source}"));
        let query: Vec<&str> = [source.as_deref(), rest].into_iter().flatten().collect();
        let mark = if query.is_empty() { "" } else { "?" };
        self.spec.path(verb) + mark + &query.join("&")
    }
}

impl Producer {
    pub(crate) fn new(client: Client, values: Arc<AtomicU64>) -> Self {
        Self { client, values, last: HashMap::new() }
    }

    /// Makes one call.
    pub(crate) fn step(&mut self) {
        let idle = match self.client.rng.u32(..10) {
            0 => 0,
            1..4 => 1,
            _ => 2,
        };
        let busy = QUEUES.len() - idle;
        let spec = &QUEUES[self.client.rng.usize(..busy)];
        let source = spec.sources[self.client.rng.usize(..spec.sources.len())];
        let target = Target { spec, source };
        match self.client.rng.u32(..100) {
            0..40 => self.put(target, 1),
            40..56 => self.put(target, BATCH),
            56..70 => self.delete(target),
            70..90 => self.deltas(target),
            90..98 => self.replace(target),
            _ => {
                let message = Message::post(spec.path("/resync"), &json!({}));
                self.client.call(spec.name, Operation::Resync, &message);
            }
        }
    }

    /// An Add or Update of up to `most` different keys.
    fn put(&mut self, target: Target, most: usize) {
        let (kind, verb) =
            if self.client.rng.bool() { (Kind::Added, "/add") } else { (Kind::Updated, "/update") };
        let keys = self.some_keys(target, most);
        let changes: Vec<Change> =
            keys.into_iter().map(|key| self.new_object(target.spec, key, kind)).collect();
        let objects: Vec<Value> = changes.iter().filter_map(object_of).collect();
        let delay = (self.client.rng.u32(..8) == 0).then(|| self.client.rng.u32(1..150));
        let debounce = (target.spec.mode != Mode::Events && self.client.rng.u32(..6) == 0)
            .then(|| (self.client.rng.u32(..200), self.client.rng.u32(..300)));
        let delay = delay.map(|delay| format!("delay={delay}ms"));
        let debounce =
            debounce.map(|(quiet, more)| format!("debounce={quiet}ms&max_wait={}ms", quiet + more));
        let delay = match (delay, debounce) {
            (Some(delay), Some(debounce)) => Some(format!("{delay}&{debounce}")),
            (delay, debounce) => delay.or(debounce),
        };
        let message = self.objects_message(target.path(verb, delay.as_deref()), &objects);
        self.client.call(target.spec.name, Operation::Produce { changes, is_replace: false }, &message);
    }

    /// A Delete by key, or of one or more objects.
    fn delete(&mut self, target: Target) {
        let spec = target.spec;
        if self.client.rng.bool() {
            let key = self.some_keys(target, 1).remove(0);
            let path = target.path("/delete", Some(&format!("key={key}")));
            let message = Message { body: String::new(), ..Message::post(path, &Value::Null) };
            let changes = vec![Change { key, effect: Effect::Delete { value: None } }];
            self.client.call(spec.name, Operation::Produce { changes, is_replace: false }, &message);
            return;
        }
        let keys = self.some_keys(target, 2);
        let changes: Vec<Change> = keys
            .into_iter()
            .map(|key| Change { key, effect: Effect::Delete { value: Some(self.next_value()) } })
            .collect();
        let objects: Vec<Value> = changes.iter().filter_map(object_of).collect();
        let message = self.objects_message(target.path("/delete", None), &objects);
        self.client.call(spec.name, Operation::Produce { changes, is_replace: false }, &message);
    }

    /// A mixed batch, in which a key may be repeated.
    fn deltas(&mut self, target: Target) {
        let Target { spec, source } = target;
        let count = 1 + self.client.rng.usize(..BATCH);
        let (mut changes, mut entries) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let key = self.some_keys(target, 1).remove(0);
            let (name, change) = match self.client.rng.u32(..10) {
                0..4 => ("Added", self.new_object(spec, key, Kind::Added)),
                4..7 => ("Updated", self.new_object(spec, key, Kind::Updated)),
                7 => ("Deleted", Change { key, effect: Effect::Delete { value: Some(self.next_value()) } }),
                _ => ("Deleted", Change { key, effect: Effect::Delete { value: None } }),
            };
            let mut entry = json!({ "type": name, "key": &*change.key });
            if let Some(object) = object_of(&change) {
                entry["object"] = object;
            }
            if let Some(source) = source.filter(|_| name != "Deleted" || self.client.rng.bool()) {
                entry["source"] = source.into();
            }
            entries.push(entry);
            changes.push(change);
        }
        let message = Message::post(spec.path("/deltas"), &Value::Array(entries));
        self.client.call(spec.name, Operation::Produce { changes, is_replace: false }, &message);
    }

    /// A complete list of a source: some of its keys in any order, which deletes the other keys.
    fn replace(&mut self, target: Target) {
        let Target { spec, source } = target;
        let mut keys = spec.keys(source);
        self.client.rng.shuffle(&mut keys);
        let listed = keys.len() / 2 + self.client.rng.usize(..=keys.len() / 2);
        let gone = keys.split_off(listed);
        let only_changed = self.client.rng.u32(..3) == 0;
        let mut changes = Vec::new();
        for key in keys {
            let last = self.last.get(&(spec.name, key.clone())).copied();
            match last.filter(|_| only_changed && self.client.rng.bool()) {
                Some(value) => {
                    let effect = Effect::Put { kind: Kind::Replaced, value, may_be_unchanged: true };
                    changes.push(Change { key, effect });
                }
                None => changes.push(self.new_object(spec, key, Kind::Replaced)),
            }
        }
        let objects: Vec<Value> = changes.iter().filter_map(object_of).collect();
        changes.extend(gone.into_iter().map(|key| Change { key, effect: Effect::Delete { value: None } }));
        let query = format!("only_changed={only_changed}&count={listed}&max_delete_percent=100");
        let message = self.objects_message(target.path("/replace", Some(&query)), &objects);
        self.client.call(spec.name, Operation::Produce { changes, is_replace: true }, &message);
    }

    fn new_object(&mut self, spec: &'static Spec, key: Key, kind: Kind) -> Change {
        let value = self.next_value();
        self.last.insert((spec.name, key.clone()), value);
        Change { key, effect: Effect::Put { kind, value, may_be_unchanged: false } }
    }

    fn next_value(&self) -> u64 {
        self.values.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// One to `most` different keys of the target's source.
    fn some_keys(&mut self, target: Target, most: usize) -> Vec<Key> {
        let keys = target.spec.keys(target.source);
        let count = 1 + self.client.rng.usize(..most);
        self.client.rng.choose_multiple(keys, count)
    }

    /// Objects as a JSON array or as NDJSON.
    fn objects_message(&mut self, path: String, objects: &[Value]) -> Message {
        if self.client.rng.bool() {
            return Message::post(path, &Value::Array(objects.to_vec()));
        }
        let body = objects.iter().fold(String::new(), |lines, object| format!("{lines}{object}\n"));
        Message { content_type: Some("application/x-ndjson"), body, ..Message::post(path, &Value::Null) }
    }
}

/// The object of a change, if it has one.
fn object_of(change: &Change) -> Option<Value> {
    match change.effect {
        Effect::Put { value, .. } | Effect::Delete { value: Some(value) } => Some(object(&change.key, value)),
        Effect::Delete { value: None } => None,
    }
}
