//! `deltaq reflect` as a process against real sources. In each test the known objects end equal to the source, the deltas are
//! counted, and a failing source deletes nothing.

mod clues;
mod command;
mod contacts;
mod deleted;
mod examples;
mod files;
mod kubernetes;
mod pages;
mod queue;
mod readings;
mod replication;
mod rest;
mod restored;
mod shifting;
mod since;
mod sql;
mod upstream;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::harness::blocking::{Connection, Message};
use crate::harness::process::Process;
use crate::harness::waiting::{found, until};
use crate::system::cli::Server;

/// A running `deltaq reflect`.
pub(super) struct Reflecting {
    process: Process,
    pub(super) address: SocketAddr,
}

impl Reflecting {
    /// Starts the process with these arguments, and waits until it serves its metrics.
    pub(super) fn start(server: &Server, line: &[&str]) -> Self {
        let line = [&["reflect", "--metrics-listen", "127.0.0.1:0", "--log-format", "json"], line].concat();
        let mut process = Process::start(server.command(&line), |_, _| {});
        let address = found(|| {
            assert!(process.status().is_none(), "{}", process.log());
            let bound = process.log().lines().find_map(|line| {
                let line: Value = serde_json::from_str(line).ok()?;
                line["bound"].as_str()?.parse().ok()
            });
            bound.ok_or("the metrics are served")
        });
        Self { process, address }
    }

    fn log(&self) -> String {
        self.process.log()
    }

    /// The reply to a GET of the process itself.
    pub(super) fn get(&self, path: &str) -> (u16, String) {
        let mut connection = Connection::open(self.address).expect("a connection");
        let reply = connection.call(&Message::get(path.to_owned())).expect("a reply");
        (reply.status().expect("a status"), String::from_utf8(reply.body).expect("text"))
    }

    /// The sum of the samples of a metric whose labels contain a text.
    fn metric(&self, name: &str, label: &str) -> f64 {
        let (_, page) = self.get("/metrics");
        let samples =
            page.lines().filter(|line| line.starts_with(&format!("{name}{{")) && line.contains(label));
        samples.map(|line| line.rsplit(' ').next().expect("a value").parse::<f64>().expect("a number")).sum()
    }

    /// Waits until a metric is at least this.
    #[track_caller]
    pub(super) fn until_metric(&self, name: &str, label: &str, least: f64) {
        until(&format!("{name} {label} reaches {least}"), || self.metric(name, label) >= least);
    }

    /// Waits for this many more lists that were sent, or that had not changed.
    #[track_caller]
    fn until_lists(&self, more: u32) {
        let lists = self.metric("deltaq_reflect_lists_total", "");
        self.until_metric("deltaq_reflect_lists_total", "", lists + f64::from(more));
    }

    /// Sends SIGTERM, waits for a clean end, and returns the log.
    #[track_caller]
    fn stop(self) -> String {
        self.process.stop()
    }
}

/// Delivers all ready keys and acknowledges them. Returns the number of deltas of each type.
#[track_caller]
fn drain(server: &Server, queue: &str) -> BTreeMap<String, usize> {
    let mut connection = Connection::open(server.address).expect("a connection");
    let (mut settle, mut deltas) = (Vec::new(), BTreeMap::new());
    loop {
        let path = format!("/v1/queues/{queue}/pop?max=1000");
        let reply = connection.call(&Message::post(path, &json!({ "settle": settle }))).expect("a reply");
        assert_eq!(reply.status(), Some(200), "{}", String::from_utf8_lossy(&reply.body));
        let reply: Value = serde_json::from_slice(&reply.body).expect("JSON");
        let items = reply["items"].as_array().expect("items");
        if items.is_empty() {
            return deltas;
        }
        for delta in items.iter().flat_map(|item| item["deltas"].as_array().expect("deltas")) {
            *deltas.entry(delta["type"].as_str().expect("a type").to_owned()).or_default() += 1;
        }
        settle = items.iter().map(|item| json!({ "lease_id": item["lease"]["id"], "as": "ack" })).collect();
    }
}

/// The waiting deltas that repeat the state that the delta before them has made.
#[track_caller]
fn needless(server: &Server, queue: &str) -> usize {
    let items = server.run(&["items", queue, "-o", "ndjson"]).ok();
    let items = items.lines().map(|item| serde_json::from_str::<Value>(item).expect("JSON"));
    let pairs = items.map(|item| {
        let deltas = item["deltas"].as_array().expect("deltas").clone();
        let is_repeated = |pair: &&[Value]| {
            let is_deleted = |delta: &Value| delta["type"] == "Deleted";
            is_deleted(&pair[0]) == is_deleted(&pair[1]) && pair[0]["object"] == pair[1]["object"]
        };
        deltas.windows(2).filter(is_repeated).count()
    });
    pairs.sum()
}

/// The counts of deltas in the form of [`drain`].
fn counts(counts: &[(&str, usize)]) -> BTreeMap<String, usize> {
    counts.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect()
}

/// The acknowledged objects of a queue by key.
#[track_caller]
fn known(server: &Server, queue: &str) -> BTreeMap<String, Value> {
    let rows = server.run(&["known", queue, "-o", "ndjson"]).ok();
    let rows = rows.lines().map(|row| serde_json::from_str::<Value>(row).expect("JSON"));
    rows.map(|row| (row["key"].as_str().expect("a key").to_owned(), row["object"].clone())).collect()
}

/// Objects by their member `key`, in the form of [`known`].
fn by_key(objects: &[Value]) -> BTreeMap<String, Value> {
    let key = |object: &Value| object["key"].as_str().expect("a key").to_owned();
    objects.iter().map(|object| (key(object), object.clone())).collect()
}
