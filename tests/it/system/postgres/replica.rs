//! Two PostgreSQL servers: a primary, and a standby that may lag behind it and become the primary. A commit that the standby lacks is lost then.

use rustix::process::Signal;
use serde_json::{Value, json};

use deltaq_engine::id::Rv;
use deltaq_engine::time::Time;
use deltaq_journal::postgres::TTL;
use deltaq_journal::store::QueueRow;

use super::cluster::Cluster;
use super::nodes::{PARTITIONS, QUEUES, SECRET, added, start_node, until_owners_at};
use super::*;
use crate::harness::blocking::{Connection, Message};
use crate::harness::server::{End, Spawned, Store};
use crate::harness::waiting::found;

/// The servers. Each keeps its address when the roles change.
#[derive(Debug)]
pub(crate) struct Pair {
    servers: [Cluster; 2],
    primary: usize,
    /// Whether the standby lags.
    lags: bool,
}

impl Pair {
    /// Starts a primary with an empty database of deltaq, and its standby.
    pub(crate) fn start() -> Self {
        let mut pair = Self { servers: [Cluster::start(), Cluster::start()], primary: 0, lags: false };
        pair.renew_standby(0);
        pair
    }

    /// The address of the database, with both servers.
    pub(crate) fn url(&self) -> String {
        let host = |server: &Cluster| server.folder().display().to_string().replace('/', "%2F");
        format!("postgres://deltaq@{}/deltaq", self.servers.each_ref().map(host).join(","))
    }

    pub(crate) fn primary(&self) -> &Cluster {
        &self.servers[self.primary]
    }

    /// Whether a failover would lose commits.
    pub(crate) const fn lags(&self) -> bool {
        self.lags
    }

    /// From now on, the standby gets nothing.
    pub(crate) fn lag(&mut self) {
        self.servers[1 - self.primary].lag_behind(self.primary());
        self.lags = true;
    }

    /// Kills the primary, and makes the standby the primary.
    pub(crate) fn fail_over(&mut self) {
        self.servers[self.primary].end(Signal::KILL);
        self.primary = 1 - self.primary;
        self.primary().promote();
        self.lags = false;
    }

    /// Makes the server that is not the primary a new standby, whose wall clock is ahead by so many seconds.
    pub(crate) fn renew_standby(&mut self, wrong_s: i64) {
        let [first, second] = &mut self.servers;
        let (primary, standby) = if self.primary == 0 { (first, second) } else { (second, first) };
        standby.end(Signal::INT);
        standby.set_wall_clock(wrong_s);
        standby.follow(primary);
    }
}

/// A checkpoint of queue 1 up to this event.
fn checkpoint(rv: u64) -> Writes {
    let row = QueueRow {
        id: QueueId(1),
        version: 1,
        name: "q".into(),
        incarnation: 1,
        created_at: Time::from_micros(1),
        deleted: false,
        rv: Rv::new(rv),
        first_run: 0,
        next_run: 0,
        format: 1,
        checksum: 0,
        state: "{}".to_owned(),
    };
    Writes { queues: vec![row], ..Writes::default() }
}

/// What a failover loses, and whether that is found.
type Lost = (&'static str, fn() -> Writes, bool);

/// A writer that has completed a checkpoint writes only later changes of keys, and removes the journal before it.
#[tokio::test]
async fn any_lost_write_is_found() {
    let lost: [Lost; 4] = [
        ("events", || event(3), true),
        ("a checkpoint", || checkpoint(2), true),
        ("events and a checkpoint", || Writes { queues: checkpoint(3).queues, ..event(3) }, true),
        ("a mark without contents", || Writes { clean: Some(false), ..Writes::default() }, false),
    ];
    for (what, write, is_found) in lost {
        let mut pair = Pair::start();
        let (mut store, reader) = open(&pair.url()).await;
        for write in [event(1), checkpoint(1), event(2)] {
            store.write(write).await.expect("a write");
        }
        pair.lag();
        store.write(write()).await.expect("a write");
        pair.fail_over();
        store.write(event(4)).await.expect_err("the connection has ended");
        let reopened = store.reopen().await;
        if is_found {
            let error = reopened.expect_err(what);
            assert!(matches!(error, Error::RolledBack { .. }), "{what}: {error:?}");
            continue;
        }
        reopened.expect(what);
        store.write(event(3)).await.expect("a write");
        assert_eq!(events(&reader).await, [1, 2, 3], "{what}");
        store.close().await;
    }
}

/// The standby lacks that another node has taken over the queue. So the node that was frozen still owns it there, and must not continue as if
/// nobody had answered in the meantime.
#[test]
fn a_lost_takeover_gives_no_number_twice() {
    let mut pair = Pair::start();
    let secret = pair.primary().folder().join("secret");
    std::fs::write(&secret, SECRET).expect("a file");
    let store = Store::Url(pair.url());
    let [a, b] = ["a", "b"].map(|name| start_node(&store, &secret, name));
    until_owners(&pair, &[("a", PARTITIONS / 2), ("b", PARTITIONS / 2)]);
    for queue in QUEUES {
        added(&a, queue, "k");
    }
    let owners = "SELECT convert_from(queues.name, 'UTF8') FROM deltaq.partitions JOIN deltaq.queues USING (partition) WHERE node = 'a' LIMIT 1";
    let queue = pair.primary().sql(owners);
    // A node removes no other node before it has sent heartbeats for this long.
    std::thread::sleep(TTL);
    pair.lag();
    a.freeze();
    until_owners(&pair, &[("b", PARTITIONS)]);
    added(&b, &queue, "lost");
    let lost = popped(&b, &queue);
    pair.fail_over();
    a.signal("CONT");
    until_owners(&pair, &[("a", PARTITIONS / 2), ("b", PARTITIONS / 2)]);
    let (newest, kept) = (added(&a, &queue, "new"), popped(&a, &queue));
    let [lost_token, token] = [&lost, &kept].map(|lease| lease["token"].as_u64().expect("a token"));
    assert!(newest > lost_token && token > lost_token, "{newest} {kept} {lost}");
    let ack = Message::post(format!("/v1/queues/{queue}/ack"), &json!({ "lease_ids": [lost["id"]] }));
    assert_eq!(a.call(&ack).0, 409, "the lease is of a lost life");
}

/// The standby lags since before the last two starts, so it knows neither the process nor the one before it.
#[test]
fn a_process_that_the_standby_does_not_know_is_not_taken_for_one_that_was_replaced() {
    for is_node in [true, false] {
        let mut pair = Pair::start();
        let secret = pair.primary().folder().join("secret");
        std::fs::write(&secret, SECRET).expect("a file");
        let store = Store::Url(pair.url());
        let start = || if is_node { start_node(&store, &secret, "a") } else { Spawned::start(&store) };
        let mut process = start();
        added(&process, "q", "kept");
        pair.lag();
        for _ in 0..2 {
            process.end(End::Kill);
            process = start();
            added(&process, "q", "lost");
        }
        pair.fail_over();
        if is_node {
            added(&process, "q", "new");
            assert!(process.process.log().contains("does not know this process"), "{}", process.last_words());
        } else {
            let (code, log) = process.ended();
            assert_eq!(code, Some(1), "{log}");
            assert!(log.contains("the database has lost acknowledged changes"), "{log}");
        }
    }
}

/// Waits until a pop has got a key, and returns its lease.
fn popped(node: &Spawned, queue: &str) -> Value {
    let pop = Message::post(format!("/v1/queues/{queue}/pop"), &json!({}));
    found(|| {
        let reply = Connection::open(node.api).and_then(|mut open| open.call(&pop));
        let reply = reply.map_err(|error| format!("{error:?}"))?;
        let body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        let lease = body["items"][0]["lease"].clone();
        if lease.is_null() { Err(body.to_string()) } else { Ok(lease) }
    })
}

fn until_owners(pair: &Pair, wanted: &[(&str, usize)]) {
    until_owners_at(pair.primary(), wanted);
}
