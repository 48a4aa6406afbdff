//! Reads the state of the queues at a quiet moment, and empties them.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use super::client::Client;
use super::history::{Answer, Count, Operation, Settle, SettleKind, Snapshot, Us};
use super::queues::{QUEUES, Spec};
use super::reading::{items, known, list, number};
use crate::harness::blocking::{Connection, Message};
use crate::harness::waiting::found;

/// Longest time without a delivered key while a queue is emptied: much longer than its leases and waits.
const DRAIN: Duration = Duration::from_secs(30);
/// Number of attempts to read a list without a change meanwhile: each of the few leases ends only once.
const LISTS: usize = 200;

/// Creates the queues.
pub(crate) fn create(address: SocketAddr) {
    let mut connection = Connection::open(address).expect("the server accepts");
    for spec in QUEUES {
        let put = Message { method: "PUT", ..Message::post(spec.path(""), &spec.config()) };
        // Until a node sees that a partition has moved, the node answers 503 and creates nothing.
        let answer = found(|| {
            let answer = connection.call(&put).expect("a reply");
            if answer.status() == Some(503) { Err(answer.first) } else { Ok(answer) }
        });
        assert_eq!(answer.status(), Some(201), "{}", String::from_utf8_lossy(&answer.body));
    }
}

/// Reads the state of every queue. A missing or malformed reply is an error.
pub(crate) fn snapshot(client: &mut Client) -> Result<Vec<Snapshot>, String> {
    QUEUES.iter().map(|spec| snapshot_of(client, spec)).collect()
}

fn snapshot_of(client: &mut Client, spec: &'static Spec) -> Result<Snapshot, String> {
    let (page, (start, end)) = get_all(client, spec, "/items?limit=5000")?;
    let (all_known, _) = get_all(client, spec, "/known?limit=5000")?;
    let document = get(client, spec, "")?;
    let status = &document["status"];
    let by_state = ["ready", "delayed", "leased", "parked"].map(|state| number(status, state));
    let in_states = by_state.into_iter().sum::<Result<u64, String>>()?;
    let count = |name, reported, listed: &Value| -> Result<Count, String> {
        Ok(Count { name, reported, listed: list(listed, "items")?.len().try_into().unwrap_or(u64::MAX) })
    };
    Ok(Snapshot {
        queue: spec.name,
        start,
        end,
        rv: number(&page, "resource_version")?,
        items: items(&page)?,
        known: known(&all_known)?,
        constant: json!([document["incarnation"], document["created_at"], document["settings"]]),
        has_synced: status["has_synced"].as_bool().unwrap_or_default(),
        counts: vec![
            count("items", in_states, &page)?,
            count("known", number(status, "known")?, &all_known)?,
        ],
    })
}

fn get(client: &mut Client, spec: &'static Spec, path: &str) -> Result<Value, String> {
    let page = client.read(spec.name, &Message::get(spec.path(path)));
    page.ok_or_else(|| format!("GET {} has no reply", spec.path(path)))
}

/// All pages of a list, and the time at which they were read. A lease may expire meanwhile and move its key to another page,
/// so the list is read again until no event happens meanwhile.
fn get_all(client: &mut Client, spec: &'static Spec, path: &str) -> Result<(Value, (Us, Us)), String> {
    for _ in 0..LISTS {
        let mut all = get(client, spec, path)?;
        let start = client.calls.last().map_or(0, |call| call.start);
        let rv = number(&all, "resource_version")?;
        let mut is_one = true;
        while let Some(next) = all["continue"].as_str() {
            let mut page = get(client, spec, &format!("{path}&continue={next}"))?;
            is_one &= number(&page, "resource_version")? == rv;
            let more = page["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
            all["items"].as_array_mut().ok_or("a list has no items")?.extend(more);
            all["continue"] = page["continue"].take();
        }
        if is_one {
            return Ok((all, (start, client.calls.last().map_or(0, |call| call.end))));
        }
    }
    Err(format!("GET {} changed {LISTS} times while it was read", spec.path(path)))
}

/// Delivers and acknowledges all keys, also parked keys.
pub(crate) fn drain(client: &mut Client) -> Result<(), String> {
    QUEUES.iter().try_for_each(|spec| drain_one(client, spec))
}

fn drain_one(client: &mut Client, spec: &'static Spec) -> Result<(), String> {
    let mut progressed = client.clock.monotonic_us();
    while client.clock.since(progressed) < DRAIN {
        client.call(
            spec.name,
            Operation::Redrive,
            &Message::post(spec.path("/parked/redrive"), &json!({ "all": true })),
        );
        let seconds = 5;
        let operation = Operation::Pop {
            id: None,
            since: client.clock.monotonic_us(),
            length: seconds * 1_000_000,
            with_known: true,
            settles: Vec::new(),
        };
        let path = spec.path(&format!("/pop?max=1000&wait=100ms&lease_duration={seconds}s&with=known"));
        let Some(Answer::Ok(reply)) = client.call(spec.name, operation, &Message::post(path, &json!({})))
        else {
            return Err("a pop has no reply".to_owned());
        };
        let leases: Vec<String> = reply.leases.into_iter().map(|lease| lease.id).collect();
        if leases.is_empty() {
            let items = Message::get(spec.path("/items?limit=1"));
            let page = client.read(spec.name, &items).ok_or("a list has no reply")?;
            if list(&page, "items")?.is_empty() {
                return Ok(());
            }
            continue;
        }
        progressed = client.clock.monotonic_us();
        let message = Message::post(spec.path("/ack"), &json!({ "lease_ids": leases }));
        let settles = leases.into_iter().map(|lease| Settle { lease, way: SettleKind::Ack }).collect();
        client.call(spec.name, Operation::Settle { settles }, &message);
    }
    Err(format!("queue {} delivers nothing for {DRAIN:?} and is not empty", spec.name))
}

/// Adds the gauges of queues that have only known objects.
pub(crate) fn metrics_of_drained(address: SocketAddr, snapshots: &mut [Snapshot]) -> Result<(), String> {
    let metrics =
        Connection::open(address).and_then(|mut own| own.call(&Message::get("/metrics".to_owned())));
    let metrics = String::from_utf8(metrics.map_err(|error| error.to_string())?.body).expect("text");
    for snapshot in snapshots {
        let queue = format!("queue=\"{}\"", snapshot.queue);
        let sum = |name: &str| -> f64 {
            let lines = metrics.lines().filter(|line| line.starts_with(name) && line.contains(&queue));
            lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "gauges of small counts")]
        let gauges = [sum("deltaq_items{") as u64, sum("deltaq_known_objects{") as u64];
        let known = snapshot.known.len().try_into().unwrap_or(u64::MAX);
        snapshot.counts.push(Count { name: "deltaq_items", reported: gauges[0], listed: 0 });
        snapshot.counts.push(Count { name: "deltaq_known_objects", reported: gauges[1], listed: known });
    }
    Ok(())
}
