//! Followers while the server is killed: at the end each follower has the objects of the queue that it follows, and its worker has got
//! no older change after a newer one.
//!
//! `CRASH_CYCLES=200 cargo test -p deltaq --test it crash::followers` is the long run.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::number;
use super::retrying::Client;
use crate::harness::blocking::{Connection, Message};
use crate::harness::server::{End, Spawned, Store};

const KILLS: usize = 5;
const KEYS: u64 = 30;
/// The followers with the queue and the view that they follow.
const FOLLOWERS: [(&str, &str, &str); 3] =
    [("search", "prices", "latest"), ("mail", "prices", "known"), ("stage", "search", "known")];
/// Far more looks at the objects of a follower than are needed.
const TRIES: usize = 5_000;

fn produce(client: &mut Client<'_>, numbers: &AtomicU64, ends: &AtomicBool, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    while !ends.load(Ordering::Relaxed) {
        // One producer, so a later call has a larger number.
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        let key = format!("k{}", rng.u64(..KEYS));
        // Every other object is large, so the store has it once for all queues.
        let pad = " ".repeat(if number.is_multiple_of(2) { 8 << 10 } else { 0 });
        let object = |key: &str| json!({ "key": key, "n": number, "pad": pad });
        let message = match rng.u8(..10) {
            0 => {
                let list: Value = (0..rng.u64(5..KEYS)).map(|key| object(&format!("k{key}"))).collect();
                let path = "/v1/queues/prices/replace?only_changed=true&max_delete_percent=100";
                Message::post(path.to_owned(), &list)
            }
            1 | 2 => Message::post("/v1/queues/prices/delete".to_owned(), &object(&key)),
            _ => Message::post("/v1/queues/prices/update".to_owned(), &object(&key)),
        };
        client.attempt(&message);
    }
}

/// Works for a queue until the end, and checks the order of the changes of each key.
fn work(client: &mut Client<'_>, queue: &str, ends: &AtomicBool) {
    let mut acknowledged: BTreeMap<String, u64> = BTreeMap::new();
    let pop = Message::post(format!("/v1/queues/{queue}/pop?max=20&wait=100ms"), &json!({}));
    while !ends.load(Ordering::Relaxed) {
        let Some(popped) = client.attempt(&pop) else { continue };
        for item in popped["items"].as_array().expect("items") {
            let key = item["key"].as_str().expect("a key").to_owned();
            let numbers =
                item["deltas"].as_array().expect("deltas").iter().map(|delta| &delta["object"]["n"]);
            let numbers: Vec<u64> = numbers.map(|n| n.as_u64().expect("a number")).collect();
            let last = acknowledged.get(&key).copied().unwrap_or_default();
            assert!(numbers.is_sorted() && numbers[0] >= last, "{queue} {key}: {numbers:?} after {last}");
            let lease = json!({ "lease_ids": [item["lease"]["id"]] });
            if client.attempt(&Message::post(format!("/v1/queues/{queue}/ack"), &lease)).is_some() {
                acknowledged.insert(key, numbers[numbers.len() - 1]);
            }
        }
    }
}

#[test]
fn followers_have_the_objects_of_their_queue_after_all_kills() {
    let kills = number("CRASH_CYCLES").map_or(KILLS, |cycles| usize::try_from(cycles).expect("a number"));
    let seed = number("CRASH_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("CRASH_SEED={seed}");
    let store = Store::folder("followers");
    let mut running = Spawned::start(&store);
    let server = Mutex::new(running.api);
    let client = || Client::new(&server);
    client().call(&Message::post("/v1/queues/prices/add".to_owned(), &json!({"key": "k0", "n": 0})));
    for (queue, followed, view) in FOLLOWERS {
        let settings = json!({"lease": "1s", "max_failures": 0, "follow": {"queue": followed, "view": view, "max_waiting": 10}});
        let put = Message::put(format!("/v1/queues/{queue}"), &settings);
        let mut connection = Connection::open(running.api).expect("a connection");
        assert_eq!(connection.call(&put).expect("a reply").status(), Some(201));
    }
    let (numbers, produced, worked) = (AtomicU64::new(1), AtomicBool::new(false), AtomicBool::new(false));
    let running = std::thread::scope(|scope| {
        scope.spawn(|| produce(&mut client(), &numbers, &produced, seed));
        for queue in ["prices", "search", "mail", "stage"] {
            let worked = &worked;
            scope.spawn(move || work(&mut client(), queue, worked));
        }
        let mut rng = Rng::with_seed(seed);
        for _ in 0..kills {
            std::thread::sleep(Duration::from_millis(rng.u64(50..500)));
            running.end(End::Kill);
            running = Spawned::start(&store);
            *server.lock() = running.api;
        }
        produced.store(true, Ordering::Relaxed);
        let (mut reader, mut tries) = (client(), 0);
        for (queue, followed, view) in FOLLOWERS {
            loop {
                let (wanted, got) = (reader.objects(followed, view), reader.objects(queue, "known"));
                if wanted == got && reader.objects(followed, "latest") == reader.objects(followed, "known") {
                    break;
                }
                tries += 1;
                if tries == TRIES {
                    worked.store(true, Ordering::Relaxed);
                    panic!("{queue} has {got:?}, and {followed} {wanted:?}");
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        worked.store(true, Ordering::Relaxed);
        running
    });
    assert!(numbers.load(Ordering::Relaxed) > 20 * kills as u64, "the producer was nearly never served");
    running.end(End::Kill);
}
