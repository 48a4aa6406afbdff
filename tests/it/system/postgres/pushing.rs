//! Pushed requests over three nodes of which one at a time fails.
//!
//! A receiver that refuses smaller tokens must end with the newest state of every key, and no key may be left out. The receiver fails one in ten
//! requests, and lets one in ten time out after it has stored the object.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deltaq_journal::postgres::TTL;
use parking_lot::Mutex;
use serde_json::json;

use super::nodes::{Nodes, PARTITIONS};
use crate::harness::blocking::{Connection, Message};
use crate::harness::process::deltaq;
use crate::harness::receiver::{Hook, Receiver};
use crate::harness::server::{End, Spawned};
use crate::harness::spawn;
use crate::harness::waiting::{PATIENCE, found, until};

const NAMES: [&str; 3] = ["a", "b", "c"];
const QUEUES: [&str; 6] = ["p0", "p1", "p2", "p3", "p4", "p5"];
const KEYS: u64 = 8;
/// How many requests the receiver leaves without an answer at the same time.
const UNANSWERED: usize = 4;

/// A queue and a key.
type Place = (String, String);

/// What the receiver has stored: the token and the number of each key.
#[derive(Default)]
struct Stored {
    objects: BTreeMap<Place, (u64, u64)>,
    requests: u64,
}

impl Stored {
    /// Stores an object, unless a later request has done that.
    fn take(&mut self, hook: &Hook) {
        self.requests += 1;
        let queue = hook.target.split(['/', ' ']).nth(2).expect("a path").to_owned();
        let (token, number) = (hook.number("deltaq-token"), hook.json()["n"].as_u64().expect("a number"));
        let last = self.objects.entry((queue, hook.header("deltaq-key").to_owned())).or_default();
        if token > last.0 {
            *last = (token, number);
        }
    }
}

async fn receive(mut receiver: Receiver, stored: Arc<Mutex<Stored>>) {
    let mut unanswered = VecDeque::new();
    loop {
        let hook = receiver.next().await;
        let number = {
            let mut stored = stored.lock();
            // A failed request stores nothing.
            if stored.requests % 10 == 3 {
                stored.requests += 1;
            } else {
                stored.take(&hook);
            }
            stored.requests
        };
        match number % 10 {
            4 => hook.answer(500, "not now").await,
            7 => {
                unanswered.push_back(hook);
                if unanswered.len() > UNANSWERED {
                    unanswered.pop_front();
                }
            }
            // The sender may be gone.
            _ => drop(spawn(hook.answer(204, ""))),
        }
    }
}

/// Sends a call to one node after the other until one has done it.
fn done(addresses: &Mutex<Vec<SocketAddr>>, message: &Message) {
    let mut turn = 0;
    found(|| {
        let addresses = addresses.lock().clone();
        turn += 1;
        let address = addresses[turn % addresses.len()];
        let reply = Connection::open_within(address, Duration::from_secs(2))
            .and_then(|mut connection| connection.call(message));
        match reply.map(|reply| reply.status()) {
            Ok(Some(200)) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}

/// Changes the keys until the end. Returns the last number of each.
fn produce(addresses: &Mutex<Vec<SocketAddr>>, ends: &AtomicBool) -> BTreeMap<Place, u64> {
    let mut last = BTreeMap::new();
    for number in 1.. {
        if ends.load(Ordering::Relaxed) {
            break;
        }
        for queue in QUEUES {
            let key = format!("k{}", number % KEYS);
            let object = json!({"key": key, "n": number});
            done(addresses, &Message::post(format!("/v1/queues/{queue}/add"), &object));
            last.insert((queue.to_owned(), key), number);
        }
    }
    last
}

/// A cluster whose nodes may push to this machine.
struct Pushing {
    nodes: Nodes,
    settings: PathBuf,
}

impl Pushing {
    fn start(&self, name: &str) -> Spawned {
        let started = Spawned::try_start(&self.nodes.store, deltaq(&[]), "127.0.0.1:0", |command| {
            self.nodes.settings(command, name, "http://127.0.0.1:0");
            command.arg("--config").arg(&self.settings);
        });
        started.unwrap_or_else(|log| panic!("the node does not start:\n{log}"))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_refuses_smaller_tokens_ends_with_the_newest_state_of_each_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = folder.path().join("deltaq.toml");
    let text = "[push]\nallow = [\"http://127.0.0.1:*\"]\nallow_networks = [\"127.0.0.1\"]\n";
    std::fs::write(&settings, text).expect("a file");
    let pushing = Pushing { nodes: Nodes::new(), settings };
    let mut nodes: Vec<Spawned> = NAMES.iter().map(|name| pushing.start(name)).collect();
    let share = PARTITIONS / 3;
    pushing.nodes.until_owners(&[("a", share), ("b", share), ("c", share)]);
    let addresses = Arc::new(Mutex::new(nodes.iter().map(|node| node.api).collect::<Vec<_>>()));
    let receiver = Receiver::start().await;
    for queue in QUEUES {
        let push = json!({"url": receiver.url(&format!("/{queue}")), "format": "raw", "timeout": "1s",
            "retry": ["50ms"], "max_in_flight": 4});
        let settings = json!({"mode": "latest", "push": push});
        done(&addresses, &Message::put(format!("/v1/queues/{queue}"), &settings));
    }
    let stored = Arc::new(Mutex::new(Stored::default()));
    let receiving = spawn(receive(receiver, stored.clone()));
    let ends = Arc::new(AtomicBool::new(false));
    let producer = {
        let (addresses, ends) = (addresses.clone(), ends.clone());
        std::thread::spawn(move || produce(&addresses, &ends))
    };

    // Each node fails once: killed, frozen for longer than its ownership lasts, stopped. The others own its queues meanwhile.
    for (place, name) in NAMES.iter().enumerate() {
        let before = stored.lock().requests;
        until("requests arrive", || stored.lock().requests > before + 50);
        if place == 1 {
            nodes[place].freeze();
            std::thread::sleep(TTL + Duration::from_secs(2));
            nodes[place].signal("CONT");
        } else {
            let node = nodes.remove(place);
            let end = if place == 0 { End::Kill } else { End::Stop { patience: PATIENCE } };
            node.end(end);
            nodes.insert(place, pushing.start(name));
            addresses.lock()[place] = nodes[place].api;
        }
        let before = stored.lock().requests;
        until("requests arrive again", || stored.lock().requests > before + 50);
    }
    ends.store(true, Ordering::Relaxed);
    let last = producer.join().expect("the producer ends");
    found(|| {
        let stored = stored.lock();
        let state: BTreeMap<Place, u64> =
            stored.objects.iter().map(|(place, (_, number))| (place.clone(), *number)).collect();
        if state == last { Ok(()) } else { Err(format!("{state:?}\nand not\n{last:?}")) }
    });
    assert_eq!(
        last.len(),
        QUEUES.len() * usize::try_from(KEYS).expect("a count"),
        "the load has reached every key"
    );
    receiving.abort();
}
