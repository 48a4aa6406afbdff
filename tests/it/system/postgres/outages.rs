//! Restarts of PostgreSQL under writes, and a database that becomes read-only.

use std::time::Duration;

use rustix::process::Signal;

use super::nodes::{Nodes, PARTITIONS, QUEUES, add, call_at};
use super::*;
use crate::harness::blocking::Message;
use crate::harness::server::End;
use crate::harness::waiting::{PATIENCE, until};
use crate::harness::within;

/// The wait between two attempts to reopen.
const WAIT: Duration = Duration::from_millis(50);
const ATTEMPTS: usize = 400;
/// Writes before and after each restart.
const WRITES: u64 = 20;

async fn reopen(store: &mut Owner<Postgres>) {
    for _ in 0..ATTEMPTS {
        if within(store.reopen()).await.is_ok() {
            return;
        }
        tokio::time::sleep(WAIT).await;
    }
    panic!("the store is not reopened");
}

/// Every acknowledged row is there, and the row in doubt either is there or not.
#[tokio::test]
async fn restarts_under_writes_lose_nothing() {
    let mut cluster = Cluster::durable();
    let (mut store, reader) = open(&cluster.url()).await;
    let mut next = 1;
    for signal in [Signal::INT, Signal::KILL, Signal::QUIT] {
        for _ in 0..WRITES {
            store.write(event(next)).await.expect("a write");
            next += 1;
        }
        // The server ends while a write is on its way.
        let mut doubtful = {
            let write = store.write(event(next));
            tokio::pin!(write);
            let early = tokio::time::timeout(Duration::ZERO, &mut write).await;
            cluster.end(signal);
            match early {
                Ok(written) => written,
                Err(_pending) => write.await,
            }
        };
        // After a kill, the process of the connection serves it for a moment.
        for _ in 0..WRITES {
            if doubtful.is_ok() {
                next += 1;
                doubtful = store.write(event(next)).await;
            }
        }
        doubtful.expect_err("there is no server");
        cluster.restart();
        reopen(&mut store).await;
        let here = events(&reader).await;
        let last = here.last().copied().unwrap_or_default();
        assert!(last == next || last == next - 1, "{last} {next}");
        assert_eq!(here, (1..=last).collect::<Vec<_>>());
        next = last + 1;
    }
    store.close().await;
}

/// Queues whose changes are all confirmed are read while the database is down, until the node can't be sure of them any more.
#[test]
fn queues_are_read_while_the_database_is_down() {
    let mut nodes = Nodes::new();
    let node = nodes.start("a");
    nodes.until_owners(&[("a", PARTITIONS)]);
    for queue in QUEUES {
        assert_eq!(add(&node, queue, "k").0, 200);
    }
    nodes.cluster.end(Signal::INT);
    let read = |queue: &str| call_at(node.api, &Message::get(format!("/v1/queues/{queue}/items")));
    until("a change is refused", || add(&node, QUEUES[0], "during").0 == 503);
    let mut reads = 0;
    until("the node is not sure any more", || {
        let (status, body) = read(QUEUES[1]);
        reads += u32::from(status == 200 && body["items"][0]["key"] == "k");
        assert!(status == 200 || body["code"] == "not-owner", "{status} {body}");
        status != 200
    });
    assert!(reads > 0, "the node was sure when the database ended");
    let document = call_at(node.api, &Message::get("/v1/nodes".to_owned())).1;
    assert_eq!(document["nodes"][0]["state"], "late", "{document}");
    nodes.cluster.restart();
    until("changes are taken again", || add(&node, QUEUES[0], "after").0 == 200);
    until("the queue is read again", || read(QUEUES[1]).0 == 200);
}

/// After this outage, the writers of a node try to reopen the store every 2 seconds.
const OUTAGE: Duration = Duration::from_secs(4);

/// The node is stopped before its writers notice by themselves that the database is back.
#[test]
fn a_node_that_stops_right_after_an_outage_releases_its_partitions() {
    let mut nodes = Nodes::new();
    let node = nodes.start("a");
    nodes.until_owners(&[("a", PARTITIONS)]);
    for queue in QUEUES {
        assert_eq!(add(&node, queue, "before").0, 200);
    }
    nodes.cluster.end(Signal::INT);
    for queue in QUEUES {
        assert_eq!(add(&node, queue, "during").0, 503);
    }
    std::thread::sleep(OUTAGE);
    nodes.cluster.restart();
    let log = node.end(End::Stop { patience: PATIENCE });
    let released = nodes.cluster.sql("SELECT count(*) FROM deltaq.partitions WHERE node IS NULL");
    // A release that takes more than 2 seconds is given up, which may happen to some of them on a slow machine.
    let released: usize = released.parse().expect("a count");
    assert!(released > 0, "{log}");
}

/// A demoted primary, or an administrator who stops writes.
#[tokio::test]
async fn a_read_only_database_is_read_and_written_again_later() {
    let cluster = Cluster::start();
    let (mut store, reader) = open(&cluster.url()).await;
    store.write(event(1)).await.expect("a write");
    for read_only in ["on", "off"] {
        cluster.sql(&format!("ALTER SYSTEM SET default_transaction_read_only = {read_only}"));
        cluster.sql("SELECT pg_reload_conf()");
        until_setting(&cluster, read_only);
        if read_only == "on" {
            let refused = within(store.write(event(2))).await.expect_err("nothing can be written");
            let text = deltaq_runtime::causes::with_causes(&refused);
            assert!(text.contains("read-only"), "{text}");
            within(store.reopen()).await.expect_err("nothing can be written");
            assert_eq!(events(&reader).await, [1]);
        }
    }
    reopen(&mut store).await;
    store.write(event(2)).await.expect("a write");
    assert_eq!(events(&reader).await, [1, 2]);
    store.close().await;
}

/// Waits until new transactions have the setting.
fn until_setting(cluster: &Cluster, value: &str) {
    until("the setting changes", || cluster.sql("SHOW default_transaction_read_only") == value);
}

/// An administrator ends the connections, for example before a maintenance.
#[tokio::test]
async fn ended_connections_are_opened_again() {
    let cluster = Cluster::start();
    let (mut store, reader) = open(&cluster.url()).await;
    store.write(event(1)).await.expect("a write");
    assert_eq!(events(&reader).await, [1]);
    cluster.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'deltaq'");
    store.write(event(2)).await.expect_err("the connection has ended");
    reopen(&mut store).await;
    assert_eq!(events(&reader).await, [1]);
    store.write(event(2)).await.expect("a write");
    store.close().await;
}
