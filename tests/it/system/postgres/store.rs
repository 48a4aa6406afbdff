//! The rules of every store, with PostgreSQL.

use std::sync::Arc;

use deltaq_journal::postgres::Postgres;
use deltaq_journal::store::{Opening, Reader};

use crate::store::{Owner, Place, suite};
use crate::system::postgres::cluster::Cluster;

/// A database in a server of its own.
pub(crate) struct Database {
    pub(crate) cluster: Cluster,
    pub(crate) url: String,
}

impl Database {
    fn new() -> Self {
        let cluster = Cluster::start();
        let url = cluster.url();
        Self { cluster, url }
    }
}

impl Place for Database {
    type Store = Postgres;

    async fn open(&self) -> (Owner<Postgres>, Arc<dyn Reader>, Opening) {
        let (store, reader, opening) = crate::system::postgres::try_open(&self.url).await.expect("a store");
        (Owner::new(store, &opening), reader, opening)
    }
}

suite!(Database::new());
