//! PgBouncer in transaction mode: consecutive transactions of a client use different connections to the server.

use std::path::PathBuf;
use std::process::{Child, Stdio};

use deltaq_journal::postgres::TTL;
use rustix::process::Signal;

use super::nodes::{Nodes, PARTITIONS, QUEUES, add, waiting};
use super::store::Database;
use super::*;
use crate::harness::server::{End, Store};
use crate::store;

/// The port in the name of the pooler's socket.
const PORT: u16 = 6432;

/// A pooler with two connections to the server. The pooler ends when the value is dropped.
pub(crate) struct Pooler {
    process: Child,
    folder: PathBuf,
}

impl Pooler {
    pub(super) fn start(cluster: &Cluster) -> Self {
        Self::in_mode(cluster, "transaction")
    }

    /// Starts a pooler whose other settings are the defaults.
    pub(crate) fn in_mode(cluster: &Cluster, mode: &str) -> Self {
        let program = cluster::in_path("pgbouncer");
        let program = program
            .expect("pgbouncer is not installed: install the Debian package pgbouncer, as .ci/run does");
        let folder = cluster.folder().to_owned();
        let config = format!(
            "[databases]
            * = host={folder} port=5432 user=deltaq
            [pgbouncer]
            listen_port = {PORT}
            unix_socket_dir = {folder}
            auth_type = any
            pool_mode = {mode}
            default_pool_size = 2
            max_client_conn = 50
            logfile = {folder}/pgbouncer.log
            ",
            folder = folder.display()
        );
        let config: Vec<&str> = config.lines().map(str::trim_start).collect();
        let file = folder.join("pgbouncer.ini");
        std::fs::write(&file, config.join("\n")).expect("a file");
        let mut command = cluster::as_user(&program);
        command.arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("setpriv of util-linux runs");
        let pooler = Self { process, folder };
        let socket = pooler.folder.join(format!(".s.PGSQL.{PORT}"));
        crate::harness::waiting::until("PgBouncer accepts connections", || {
            std::os::unix::net::UnixStream::connect(&socket).is_ok()
        });
        pooler
    }

    pub(crate) fn url(&self) -> String {
        // Before version 1.21, PgBouncer does not keep prepared statements.
        let folder = self.folder.display();
        format!("postgres://deltaq@localhost:{PORT}/deltaq?host={folder}&statement-cache-capacity=0")
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}

#[tokio::test]
async fn the_rules_hold_through_pgbouncer() {
    let cluster = Cluster::start();
    let pooler = Pooler::start(&cluster);
    let place = Database { cluster, url: pooler.url() };
    store::a_new_store_is_empty_and_clean(&place).await;
    place.cluster.sql("DROP SCHEMA deltaq CASCADE");
    store::written_rows_are_read_and_survive_a_restart(&place).await;
    place.cluster.sql("DROP SCHEMA deltaq CASCADE");
    store::one_write_takes_many_rows(&place).await;
    place.cluster.sql("DROP SCHEMA deltaq CASCADE");
    store::a_write_of_an_earlier_epoch_is_fenced(&place).await;
}

/// Two stores share the pooler's connections, so a statement or setting of one session would reach the other one.
#[tokio::test]
async fn two_stores_share_the_connections_of_pgbouncer() {
    let cluster = Cluster::start();
    let pooler = Pooler::start(&cluster);
    cluster.sql("CREATE DATABASE other OWNER deltaq");
    let urls = [pooler.url(), pooler.url().replace("/deltaq?", "/other?")];
    let (mut one, reader_of_one) = open(&urls[0]).await;
    let (mut two, reader_of_two) = open(&urls[1]).await;
    for rv in 1..=20 {
        let written = tokio::join!(one.write(event(rv)), two.write(event(rv)));
        written.0.and(written.1).expect("both writes");
        let here = tokio::join!(events(&reader_of_one), events(&reader_of_two));
        assert_eq!(here.0, (1..=rv).collect::<Vec<_>>());
        assert_eq!(here.0, here.1);
        if rv % 5 == 0 {
            one.reopen().await.expect("the store is reopened");
        }
    }
    drop(pooler);
    one.write(event(21)).await.expect_err("there is no pooler");
    let pooler = Pooler::start(&cluster);
    assert_eq!(pooler.url(), urls[0]);
    one.reopen().await.expect("the store is reopened");
    one.write(event(21)).await.expect("a write");
    one.close().await;
    two.close().await;
}

/// The pooler keeps the connection of its client over a failover, so only the server itself reveals it.
#[tokio::test]
async fn a_failover_behind_pgbouncer_is_found_by_the_next_write() {
    let mut cluster = Cluster::start();
    let pooler = Pooler::start(&cluster);
    let (mut store, _) = open(&pooler.url()).await;
    store.write(event(1)).await.expect("a write");
    cluster.end(Signal::INT);
    cluster.save();
    cluster.restart();
    store.write(event(2)).await.expect_err("the server has started again");
    store.reopen().await.expect("nothing is lost");
    store.write(event(2)).await.expect("a write");
    cluster.end(Signal::INT);
    cluster.roll_back();
    cluster.restart();
    let error = store.write(event(3)).await.expect_err("the database has lost event 2");
    assert!(deltaq_runtime::causes::with_causes(&error).contains("another server"), "{error}");
    let lost = store.reopen().await.expect_err("the database has lost event 2");
    assert!(matches!(lost, Error::RolledBack { .. }), "{lost:?}");
}

/// Heartbeats, claims and epochs need no session of their own at the server.
#[test]
fn nodes_share_a_database_through_pgbouncer() {
    let mut nodes = Nodes::new();
    let pooler = Pooler::start(&nodes.cluster);
    nodes.store = Store::Url(pooler.url());
    let (a, b) = (nodes.start("a"), nodes.start("b"));
    nodes.until_owners(&[("a", PARTITIONS / 2), ("b", PARTITIONS / 2)]);
    // A node removes no other node before it has sent heartbeats for this long.
    std::thread::sleep(TTL);
    for queue in QUEUES {
        assert_eq!(add(&a, queue, "k").0, 200, "{queue}");
    }
    a.end(End::Kill);
    nodes.until_owners(&[("b", PARTITIONS)]);
    for queue in QUEUES {
        assert_eq!(waiting(&b, queue), 1, "{queue}");
    }
}
