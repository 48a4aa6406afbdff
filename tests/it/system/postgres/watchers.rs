//! Watchers while their queue moves from node to node: each copy of a view has every change, and no watcher must list the view again.
//!
//! `CRASH_CYCLES=100 cargo test -p deltaq --test it postgres::watchers` is the long run.

use std::time::Duration;

use deltaq_journal::postgres::TTL;

use super::nodes::{Nodes, PARTITIONS};
use crate::chaos::crash::watchers::{QUEUE, watch_during};
use crate::chaos::crash::{number, seed};
use crate::harness::server::{End, Spawned};
use crate::harness::waiting::PATIENCE;

/// One node is killed, and one is stopped.
const ROUNDS: u64 = 2;
const NAMES: [&str; 2] = ["a", "b"];

#[test]
fn watchers_have_the_objects_of_their_view_while_their_queue_moves() {
    let rounds = number("CRASH_CYCLES").unwrap_or(ROUNDS);
    let nodes = Nodes::new();
    let mut running = NAMES.map(|name| Some(nodes.start(name)));
    let address = |node: &Option<Spawned>| node.as_ref().expect("a node runs").api;
    let equal = NAMES.map(|name| (name, PARTITIONS / 2));
    nodes.until_owners(&equal);
    // A node removes no other node before it has sent heartbeats for this long.
    std::thread::sleep(TTL);
    let seed = seed();
    let found = watch_during(seed, address(&running[0]), |server, is_over| {
        let mut rng = fastrand::Rng::with_seed(seed);
        for round in 0..rounds {
            std::thread::sleep(Duration::from_millis(rng.u64(50..1_000)));
            if is_over() {
                break;
            }
            // The node that owns the queue ends. Clients that are connected to it go on at the other node.
            let victim = usize::from(nodes.owner_of(QUEUE) == NAMES[1]);
            *server.lock() = address(&running[1 - victim]);
            let end = if round % 2 == 0 { End::Kill } else { End::Stop { patience: PATIENCE } };
            running[victim].take().map(|node| node.end(end));
            nodes.until_owners(&[(NAMES[1 - victim], PARTITIONS)]);
            running[victim] = Some(nodes.start(NAMES[victim]));
            nodes.until_owners(&equal);
        }
    });
    assert!(found.replies > 20 * rounds && found.rows > 80 * rounds, "{found:?} is too little");
}
