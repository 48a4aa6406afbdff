//! A reflector of a table whose slot keeps back too much, because a transaction does not end.

use std::net::SocketAddr;
use std::process::Child;

use crate::harness::waiting::until;
use crate::system::cli::Server;
use crate::system::postgres::cluster::Cluster;
use crate::system::reflect::Reflecting;

/// The queue, which is one of those that the dashboard shows.
const QUEUE: &str = "copy";

/// The reflector, its server and its database, and the session whose transaction stays open.
pub(super) struct Replica {
    reflecting: Reflecting,
    writer: Child,
    _server: Server,
    _cluster: Cluster,
}

impl Replica {
    pub(super) fn start() -> Self {
        let (server, cluster) = (Server::in_memory(), Cluster::logical());
        cluster.sql("SET ROLE deltaq; CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE noise (t text); INSERT INTO t VALUES (1)");
        cluster.sql("ALTER SYSTEM SET max_slot_wal_keep_size = '6MB'");
        cluster.sql("SELECT pg_reload_conf()");
        let database = cluster.url();
        let line = [QUEUE, "--source", "table", "--replicate", &database, "--table", "t"];
        let reflecting = Reflecting::start(&server, &line);
        until("the first list is accepted", || reflecting.get("/readyz").0 == 200);
        let open = "INSERT INTO t VALUES (2); SELECT pg_sleep(3600)";
        let writer = cluster.psql("deltaq", open).spawn().expect("psql runs");
        until("the transaction writes", || {
            cluster.sql(
                "SELECT count(*) FROM pg_locks WHERE relation = 't'::regclass AND mode = 'RowExclusiveLock'",
            ) == "1"
        });
        cluster.sql("INSERT INTO noise SELECT md5(g::text) FROM generate_series(1, 40000) g");
        reflecting.until_metric("deltaq_reflect_slot_bytes", "", f64::from(3 << 20));
        Self { reflecting, writer, _server: server, _cluster: cluster }
    }

    /// The address of the page of the reflector.
    pub(super) fn address(&self) -> SocketAddr {
        self.reflecting.address
    }

    /// The page of its metrics.
    pub(super) fn page(&self) -> String {
        self.reflecting.get("/metrics").1
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ended = self.writer.kill();
        let _status = self.writer.wait();
    }
}
