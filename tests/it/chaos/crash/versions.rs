//! Four producers send the same feed of updates and deletes out of order, twice, while the server is killed and started again. At the end each key has
//! its newest version, and the versions that a worker gets for a key grow.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::harness::blocking::{Connection, Message};
use crate::harness::server::{End, Spawned, Store};

const PRODUCERS: u64 = 4;
const CALLS: u64 = 150;
const KEYS: u64 = 6;
const KILLS: u64 = 5;

/// A server that may be killed and started again.
struct Server {
    address: Mutex<SocketAddr>,
    /// Number of calls of all producers that got a reply.
    done: AtomicU64,
    is_over: AtomicBool,
}

/// What a worker saw of a key: the version of each delta, by the number of its event.
type Seen = BTreeMap<String, BTreeMap<u64, u64>>;

/// The calls of the feed, with their versions. Producers write the same version in different ways.
fn feed_call(version: u64, producer: u64) -> Message {
    let at = if producer.is_multiple_of(2) {
        json!(version)
    } else {
        json!(f64::from(u32::try_from(version).expect("a few calls")))
    };
    let call = if is_deletion(version) { "delete" } else { "update" };
    let object = json!({"key": format!("k{}", version % KEYS), "at": at, "n": version});
    Message::post(format!("/v1/queues/feed/{call}?source=producer-{producer}"), &object)
}

fn is_deletion(version: u64) -> bool {
    version.is_multiple_of(4)
}

/// The objects that are left when the newest call of each key is the last.
fn expected() -> BTreeMap<String, u64> {
    let newest = (CALLS - KEYS + 1..=CALLS).filter(|version| !is_deletion(*version));
    newest.map(|version| (format!("k{}", version % KEYS), version)).collect()
}

impl Server {
    /// Makes a call until it has a reply.
    fn call(&self, connection: &mut Option<Connection>, message: &Message) -> Value {
        loop {
            let open = connection.take().map_or_else(|| Connection::open(*self.address.lock()), Ok);
            let reply = open.and_then(|mut open| {
                let reply = open.call(message)?;
                *connection = Some(open);
                Ok(reply)
            });
            match reply {
                Ok(reply) if reply.status() == Some(200) => {
                    return serde_json::from_slice(&reply.body).expect("JSON");
                }
                Ok(reply) => assert!(matches!(reply.status(), Some(429 | 503)), "{}", reply.first),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Sends the feed twice, each time in another order.
    fn produce(&self, producer: u64) {
        let (mut rng, mut connection) = (Rng::with_seed(producer), None);
        // The first feed is nearly in order, so that keys get many states before they get their newest one.
        for shift in [CALLS / 3, 10 * CALLS] {
            let mut versions: Vec<(u64, u64)> =
                (1..=CALLS).map(|version| (version + rng.u64(..shift), version)).collect();
            versions.sort_unstable();
            for (_, version) in versions {
                self.call(&mut connection, &feed_call(version, producer));
                self.done.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Acknowledges everything until the producers have ended and nothing is left.
    fn work(&self) -> Seen {
        let (mut connection, mut seen) = (None, Seen::new());
        let mut settles = json!({"settle": []});
        for number in 0.. {
            let is_over = self.is_over.load(Ordering::Relaxed);
            // A repeated pop gets the same leases.
            let pop = Message::post(format!("/v1/queues/feed/pop?id=pop-{number}&max=2&wait=20ms"), &settles);
            let popped = self.call(&mut connection, &pop);
            let items = popped["items"].as_array().expect("items");
            if items.is_empty() && is_over {
                break;
            }
            for item in items {
                let key = seen.entry(item["key"].as_str().expect("a key").to_owned()).or_default();
                for delta in item["deltas"].as_array().expect("deltas") {
                    let number = delta["resource_version"].as_u64().expect("a number");
                    key.insert(number, delta["object"]["n"].as_u64().expect("a version"));
                }
            }
            let settle = |item: &Value| json!({"lease_id": item["lease"]["id"], "as": "ack"});
            settles = json!({"settle": items.iter().map(settle).collect::<Vec<_>>()});
        }
        seen
    }
}

fn known(address: SocketAddr) -> BTreeMap<String, u64> {
    let mut connection = Connection::open(address).expect("a connection");
    let reply = connection.call(&Message::get("/v1/queues/feed/known".to_owned())).expect("a reply");
    let known: Value = serde_json::from_slice(&reply.body).expect("JSON");
    let items = known["items"].as_array().expect("items").iter();
    let version = |item: &Value| item["object"]["n"].as_u64().expect("a version");
    items.map(|item| (item["key"].as_str().expect("a key").to_owned(), version(item))).collect()
}

#[test]
fn a_feed_of_four_producers_in_any_order_ends_with_the_newest_versions() {
    let store = Store::folder("versions");
    let mut running = Spawned::start(&store);
    let server =
        Server { address: Mutex::new(running.api), done: AtomicU64::new(0), is_over: AtomicBool::new(false) };
    let setting = json!({"version": "/at"});
    let put = Message { method: "PUT", ..Message::post("/v1/queues/feed".to_owned(), &setting) };
    let reply = Connection::open(running.api).and_then(|mut open| open.call(&put)).expect("a reply");
    assert_eq!(reply.status(), Some(201));
    let (seen, running) = std::thread::scope(|scope| {
        let server = &server;
        let worker = scope.spawn(move || server.work());
        let producers: Vec<_> =
            (0..PRODUCERS).map(|number| scope.spawn(move || server.produce(number))).collect();
        for kill in 1..=KILLS {
            while server.done.load(Ordering::Relaxed) < kill * PRODUCERS * 2 * CALLS / (KILLS + 1) {
                assert!(producers.iter().any(|producer| !producer.is_finished()), "no producer is left");
                std::thread::sleep(Duration::from_millis(1));
            }
            running.end(End::Kill);
            running = Spawned::start(&store);
            *server.address.lock() = running.api;
        }
        for producer in producers {
            producer.join().expect("a producer");
        }
        server.is_over.store(true, Ordering::Relaxed);
        (worker.join().expect("the worker"), running)
    });

    for (key, versions) in &seen {
        let versions: Vec<u64> = versions.values().copied().collect();
        assert!(versions.is_sorted_by(|older, newer| older < newer), "{key}: {versions:?}");
    }
    let deltas: usize = seen.values().map(BTreeMap::len).sum();
    let newest = usize::try_from(KEYS).expect("a few keys");
    assert!(deltas > 2 * newest, "the worker saw only {deltas} deltas");
    assert_eq!(known(running.api), expected());

    running.end(End::Kill);
    let running = Spawned::start(&store);
    *server.address.lock() = running.api;
    let mut connection = None;
    for version in 1..=CALLS {
        let reply = server.call(&mut connection, &feed_call(version, 0));
        assert_eq!((&reply["queued"], &reply["stale"]), (&json!(0), &json!(1)), "version {version}: {reply}");
    }
    assert_eq!(known(running.api), expected());
    running.end(End::Kill);
}
