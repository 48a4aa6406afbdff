//! Four producers send the same numbered feed of one source, each call twice, while the server is killed and started again. Each
//! call is applied once, and in order.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::harness::blocking::{Connection, Message};
use crate::harness::server::{End, Spawned, Store};

const PRODUCERS: usize = 4;
const CALLS: u64 = 240;
const KEYS: u64 = 4;
/// One in so many calls is a Replace.
const REPLACES_ONE_IN: u64 = 20;
const KILLS: u64 = 5;

/// The feed, which all producers send.
fn call(number: u64) -> Message {
    let object = |key: u64| json!({"key": format!("k{key}"), "n": number});
    let (call, body) = if number.is_multiple_of(REPLACES_ONE_IN) {
        ("replace", (0..KEYS).map(object).collect())
    } else {
        ("add", object(number % KEYS))
    };
    Message::post(format!("/v1/queues/feed/{call}?source=feed&sequence={number}"), &body)
}

/// The deltas that the feed gives a key.
fn expected(key: u64) -> Vec<(String, u64)> {
    let delta = |number: u64| match number {
        _ if number.is_multiple_of(REPLACES_ONE_IN) => Some(("Replaced".to_owned(), number)),
        _ => (number % KEYS == key).then(|| ("Added".to_owned(), number)),
    };
    (1..=CALLS).filter_map(delta).collect()
}

/// Sends the feed until every call has a reply. Returns the numbers of the calls that changed the queue, as the replies say.
fn produce(server: &Mutex<SocketAddr>, done: &AtomicU64) -> Vec<u64> {
    let mut connection = None;
    let mut applied = Vec::new();
    for number in 1..=CALLS {
        for _ in 0..2 {
            let reply = loop {
                let open = connection.take().map_or_else(|| Connection::open(*server.lock()), Ok);
                let reply = open.and_then(|mut open| {
                    let reply = open.call(&call(number))?;
                    connection = Some(open);
                    Ok(reply)
                });
                match reply {
                    Ok(reply) if reply.status() == Some(200) => break reply,
                    Ok(reply) => assert!(matches!(reply.status(), Some(429 | 503)), "{}", reply.first),
                    Err(_) => std::thread::sleep(Duration::from_millis(5)),
                }
            };
            let reply: Value = serde_json::from_slice(&reply.body).expect("JSON");
            if reply["duplicate"] != true {
                applied.push(number);
            }
        }
        done.fetch_max(number, Ordering::Relaxed);
    }
    applied
}

#[test]
fn a_numbered_feed_of_four_producers_is_applied_once() {
    let store = Store::folder("sequences");
    let mut running = Spawned::start(&store);
    let (server, done) = (Mutex::new(running.api), AtomicU64::new(0));
    let (mut applied, running) = std::thread::scope(|scope| {
        let producers: Vec<_> = (0..PRODUCERS).map(|_| scope.spawn(|| produce(&server, &done))).collect();
        for kill in 1..=KILLS {
            while done.load(Ordering::Relaxed) < kill * CALLS / (KILLS + 1) {
                assert!(producers.iter().any(|producer| !producer.is_finished()), "no producer is left");
                std::thread::sleep(Duration::from_millis(1));
            }
            running.end(End::Kill);
            running = Spawned::start(&store);
            *server.lock() = running.api;
        }
        let applied = producers.into_iter().flat_map(|producer| producer.join().expect("a producer"));
        (applied.collect::<Vec<u64>>(), running)
    });
    applied.sort_unstable();
    let repeated: Vec<_> = applied.windows(2).filter(|pair| pair[0] == pair[1]).collect();
    assert!(repeated.is_empty(), "applied twice: {repeated:?}");
    // The reply that a kill cut off may have said so.
    assert!(applied.len() as u64 + 2 * KILLS >= CALLS, "{} of {CALLS} calls were applied", applied.len());

    let mut connection = Connection::open(running.api).expect("a connection");
    for key in 0..KEYS {
        let reply = connection.call(&Message::get(format!("/v1/queues/feed/items/k{key}"))).expect("a reply");
        let item: Value = serde_json::from_slice(&reply.body).expect("JSON");
        let delta = |delta: &Value| {
            let number = delta["object"]["n"].as_u64().expect("a number");
            (delta["type"].as_str().expect("a type").to_owned(), number)
        };
        let mut deltas: Vec<_> = item["deltas"].as_array().expect("deltas").iter().map(delta).collect();
        // A Replace that a kill has cut off was applied again.
        deltas.dedup_by(|later, before| later == before && later.0 == "Replaced");
        assert_eq!(deltas, expected(key), "key k{key}");
    }
    let reply = connection.call(&Message::get("/v1/queues/feed/sources".to_owned())).expect("a reply");
    let sources: Value = serde_json::from_slice(&reply.body).expect("JSON");
    assert_eq!(sources["items"][0]["sequence"], CALLS);
    running.end(End::Kill);
}
