//! The store in PostgreSQL: a real server of Debian's package, started by each test.
//!
//! The rules of every store run in `store`. Here are the stories that only PostgreSQL has: broken connections,
//! restarts, a second owner, and other settings of the database.

mod clients;
pub(crate) mod cluster;
mod commands;
mod connections;
mod databases;
mod handover;
mod joining;
mod moving;
mod node_tls;
mod nodes;
mod outages;
pub(crate) mod patroni;
pub(crate) mod pgbouncer;
pub(crate) mod proxy;
mod pushing;
pub(crate) mod replica;
mod returned_leases;
mod secrets;
mod starting;
mod store;
mod tls;
mod watchers;

use std::sync::Arc;

use deltaq_engine::id::Rv;
use deltaq_engine::time::Time;
use deltaq_journal::postgres::{Postgres, Settings};
use deltaq_journal::store::{Epoch, Error, JournalRow, Opening, QueueId, Reader, Writes};

use self::cluster::Cluster;
use crate::store::Owner;

/// Opens the store at this address.
async fn open(url: &str) -> (Owner<Postgres>, Arc<dyn Reader>) {
    let (store, reader, opening) = try_open(url).await.expect("a store");
    (Owner::new(store, &opening), reader)
}

/// The causes of the error of opening a store.
async fn refusal(url: &str) -> String {
    let error = try_open(url).await.map(|_| ()).expect_err("the store can't be opened");
    deltaq_runtime::causes::with_causes(&error)
}

pub(crate) async fn try_open(url: &str) -> Result<(Postgres, Arc<dyn Reader>, Opening), Error> {
    let settings = Settings::parse(url).expect("an address");
    let (store, reader, opening) = Postgres::open(settings, 0).await?;
    Ok((store, reader as Arc<dyn Reader>, opening))
}

/// The write of one event of queue 1.
fn event(rv: u64) -> Writes {
    let row = JournalRow {
        queue: QueueId(1),
        epoch: Epoch(1),
        prev_rv: Rv::new(rv - 1),
        first_rv: Rv::new(rv),
        last_rv: Rv::new(rv),
        at: Time::from_micros(rv),
        format: 1,
        texts: Vec::new(),
        text_bytes: 0,
        events: format!("[{rv}]"),
        checksum: 0,
    };
    Writes { journal: vec![row], ..Writes::default() }
}

/// The events of queue 1 that the store returns.
async fn events(reader: &Arc<dyn Reader>) -> Vec<u64> {
    let rows = reader.journal(QueueId(1), Rv::ZERO, usize::MAX).await.expect("the journal");
    rows.iter().map(|row| row.last_rv.get()).collect()
}

#[test]
fn a_cluster_starts_again_after_any_end() {
    use rustix::process::Signal;
    let mut cluster = Cluster::durable();
    cluster.sql("CREATE TABLE kept (n INTEGER)");
    for (number, signal) in [Signal::INT, Signal::QUIT, Signal::KILL].into_iter().enumerate() {
        cluster.sql(&format!("INSERT INTO kept VALUES ({number})"));
        cluster.end(signal);
        cluster.restart();
    }
    assert_eq!(cluster.sql("SELECT count(*) FROM kept"), "3");
}
