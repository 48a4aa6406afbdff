//! Connections that break at every moment of a write, and a second owner of the store.

use std::time::Duration;

use deltaq_journal::store::{BEFORE_ALL_ROWS, Error, Referring, Store as _};

use super::proxy::Proxy;
use super::*;
use crate::harness::waiting::until;
use crate::harness::within;

/// Long enough for the bytes of a write to leave this process, and shorter than every limit of the store.
const SENT: Duration = Duration::from_millis(300);
/// The store gives up a connection without answers within this time.
const BOUND: Duration = Duration::from_secs(35);

#[tokio::test]
async fn a_second_opening_fences_the_first() {
    let cluster = Cluster::start();
    let (mut first, _) = open(&cluster.url()).await;
    first.write(event(1)).await.expect("a write");
    let (mut second, reader) = open(&cluster.url()).await;
    assert!(second.epoch > first.epoch);
    let fenced = first.write(event(2)).await;
    assert!(
        matches!(&fenced, Err(Error::Fenced { own, found }) if *own == first.epoch && *found == second.epoch),
        "{fenced:?}"
    );
    let fenced = first.reopen().await;
    assert!(matches!(&fenced, Err(Error::Fenced { .. })), "{fenced:?}");
    assert_eq!(events(&reader).await, [1]);
    second.write(event(2)).await.expect("the second opening owns the store");
    assert_eq!(events(&reader).await, [1, 2]);
    first.close().await;
    second.close().await;
}

#[tokio::test]
async fn a_commit_without_an_answer_is_there_after_reopening() {
    let cluster = Cluster::start();
    let proxy = Proxy::start(cluster.socket());
    let (mut store, reader) = open(&proxy.url()).await;
    for (before, clean) in [(0, None), (1, Some(false))] {
        store.write(Writes { clean, ..event(2 * before + 1) }).await.expect("a write");
        proxy.cut_next_answer();
        let lost = store.write(Writes { clean, ..event(2 * before + 2) }).await;
        assert!(matches!(&lost, Err(Error::Failed { .. })), "{lost:?}");
        assert!(proxy.has_cut_answer());
        store.write(event(9)).await.expect_err("nothing is written before the store is reopened");
        store.reopen().await.expect("the store is reopened");
        let here: Vec<u64> = (1..=2 * before + 2).collect();
        assert_eq!(events(&reader).await, here, "the server had committed");
        assert_eq!(cluster.sql("SELECT count(*) FROM deltaq.journal"), here.len().to_string());
    }
    store.write(event(4)).await.expect_err("at most one row follows an event");
    store.reopen().await.expect("the store is reopened");
    store.write(event(5)).await.expect("a write");
    assert_eq!(events(&reader).await, [1, 2, 3, 4, 5]);
    store.close().await;
}

#[tokio::test]
async fn a_write_that_did_not_arrive_is_not_there_after_reopening() {
    let cluster = Cluster::start();
    let proxy = Proxy::start(cluster.socket());
    let (mut store, reader) = open(&proxy.url()).await;
    store.write(event(1)).await.expect("a write");
    proxy.refuse();
    store.write(event(2)).await.expect_err("the connection is cut");
    store.reopen().await.expect_err("there is no server");
    proxy.release();
    store.reopen().await.expect("the store is reopened");
    assert_eq!(events(&reader).await, [1]);
    store.write(event(2)).await.expect("a write");
    store.close().await;
}

/// The bytes of a write wait in the network while the store is reopened, and arrive afterwards.
#[tokio::test]
async fn a_write_that_arrives_after_the_reopening_writes_nothing() {
    let cluster = Cluster::start();
    let proxy = Proxy::start(cluster.socket());
    let (mut store, reader) = open(&proxy.url()).await;
    // From the second write on, the connection has prepared the statement, and a write is one message.
    store.write(event(1)).await.expect("a write");
    proxy.hold();
    let held = tokio::time::timeout(SENT, store.write(event(2))).await;
    held.expect_err("the answer can't arrive");
    within(store.reopen()).await.expect("a new connection passes");
    proxy.release();
    until("the late write arrives", || proxy.has_delivered());
    until_idle(&cluster).await;
    assert_eq!(events(&reader).await, [1], "the late write has an old epoch");
    store.write(event(2)).await.expect("a write");
    assert_eq!(events(&reader).await, [1, 2]);
    store.close().await;
}

/// Waits until the server has done what the held connection sent.
async fn until_idle(cluster: &Cluster) {
    tokio::time::sleep(SENT).await;
    let active = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'deltaq' AND state <> 'idle'";
    until("no transaction is open", || cluster.sql(active) == "0");
}

/// While nothing arrives, the clock is moved.
#[tokio::test]
async fn a_connection_without_answers_ends_within_the_bound() {
    let cluster = Cluster::start();
    let proxy = Proxy::start(cluster.socket());
    let (mut store, reader) = open(&proxy.url()).await;
    store.write(event(1)).await.expect("a write");
    proxy.black_hole();
    tokio::time::pause();
    let write = tokio::time::timeout(BOUND, store.write(event(2))).await.expect("the write ends");
    write.expect_err("there is no answer");
    let reopened = tokio::time::timeout(BOUND, store.reopen()).await.expect("the reopening ends");
    reopened.expect_err("there is no answer");
    tokio::time::resume();
    proxy.cut();
    proxy.release();
    within(store.reopen()).await.expect("the store is reopened");
    let here = events(&reader).await;
    store.write(event(here.len() as u64 + 1)).await.expect("a write");
    store.close().await;
}

/// Idle connections break, for example by a firewall. Reads open new ones.
#[tokio::test]
async fn readers_survive_cut_connections() {
    let cluster = Cluster::start();
    let proxy = Proxy::start(cluster.socket());
    let (mut store, reader) = open(&proxy.url()).await;
    store.write(event(1)).await.expect("a write");
    for _ in 0..3 {
        assert_eq!(events(&reader).await, [1]);
        proxy.cut();
    }
    store.write(event(2)).await.expect_err("the connection is cut");
    store.reopen().await.expect("the store is reopened");
    assert_eq!(events(&reader).await, [1]);
    store.close().await;
}

/// Nobody waits for a sweep of texts or of deleted queues, so a failure must not cost the connection of the writer.
#[tokio::test]
async fn a_query_that_the_database_refuses_or_ends_keeps_the_connection() {
    let cluster = Cluster::start();
    let (mut store, reader) = open(&cluster.url()).await;
    let queue = QueueId(1);
    let queries = [("texts", "texts"), ("runs", "references"), ("runs", "rows")];
    for (number, (table, asked)) in queries.into_iter().enumerate() {
        cluster.sql(&format!("ALTER TABLE deltaq.{table} RENAME TO away"));
        let refused = match asked {
            "texts" => store.texts(None, 9).await.map(drop),
            "references" => store.references(Referring::Runs, BEFORE_ALL_ROWS, 9).await.map(drop),
            _ => store.has_rows(queue).await.map(drop),
        };
        assert!(matches!(&refused, Err(Error::Failed { .. })), "{asked}: {refused:?}");
        store.write(event(number as u64 + 1)).await.expect("the connection is as it was");
        cluster.sql(&format!("ALTER TABLE deltaq.away RENAME TO {table}"));
        assert!(store.has_rows(queue).await.expect("the table is back"));
    }
    let lock = cluster.psql("deltaq", "BEGIN; LOCK TABLE deltaq.texts; SELECT pg_sleep(60); COMMIT").spawn();
    let mut lock = lock.expect("psql runs");
    let held = "FROM pg_locks WHERE relation = 'deltaq.texts'::regclass AND granted AND mode = 'AccessExclusiveLock'";
    until("the table is locked", || cluster.sql(&format!("SELECT count(*) {held}")) == "1");
    let ended = within(store.texts(None, 9)).await.map(drop);
    assert!(matches!(&ended, Err(Error::Failed { .. })), "{ended:?}");
    store.write(event(4)).await.expect("the connection is as it was");
    cluster.sql(&format!("SELECT pg_terminate_backend(pid) {held}"));
    lock.wait().expect("psql has run");
    assert_eq!(store.texts(None, 9).await.expect("the lock is gone"), []);
    assert_eq!(events(&reader).await, [1, 2, 3, 4]);
    store.close().await;
}
