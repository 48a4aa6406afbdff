//! A table of PostgreSQL: a copy, then the changes of its log, by a slot of logical decoding.
//!
//! The changes are read over an ordinary connection: `pg_logical_slot_peek_binary_changes` shows them, and the slot moves
//! once the queue has stored them. So nothing is lost if this process, the queue or the database ends at any moment.
//! Every start begins with a copy, which queues only what differs; the stream leaves out what the copy has seen.
//!
//! Invariant: the slot is never moved behind a transaction that the queue has not stored, or that is not visible yet to every new
//! snapshot. So a later copy has whatever the stream will not show again.

mod changes;
mod pgoutput;
mod place;
mod reading;
mod rows;
mod session;
mod slot;
mod snapshot;
mod table;
mod transactions;

use deltaq_client::Event;
use deltaq_types::duration::DurationText;
use futures_util::TryStreamExt as _;
use serde_json::{Map, Value, json};
use sqlx::AssertSqlSafe;

use self::pgoutput::Lsn;
use self::place::Place;
use self::reading::{Ended, Reading};
use self::session::{Session, refused, within};
use self::slot::{Names, Status};
use self::table::Table;
use self::transactions::Transactions;
use super::{Error, NextList, Output};
use crate::settings;

/// A table whose changes are replicated.
#[derive(Debug)]
pub(crate) struct Replication {
    url: String,
    table: String,
    names: Names,
    timeout: DurationText,
    /// Whether only one copy is sent, which needs no slot. Nobody would read it, and it would keep back the log forever.
    is_once: bool,
    /// The pointers of the queue's key.
    key: Vec<String>,
    /// The position after the last list, which the queue has not accepted yet.
    listed: Option<Position>,
    /// Where the stream continues.
    position: Option<Position>,
}

/// Where the stream continues after a copy.
#[derive(Debug)]
struct Position {
    table: Table,
    shape: String,
    place: Place,
    transactions: Transactions,
    /// The transactions that the queue has stored and that some new snapshot may not see yet.
    unseen: Vec<u32>,
    /// Everything before this position was read and stored.
    read_to: Lsn,
    /// The same, and every new snapshot sees it: the slot may move to this position.
    safe: Lsn,
}

impl Replication {
    pub(super) fn new(
        of: &settings::Replication,
        source: &settings::Source,
        name: &str,
    ) -> Result<Self, Error> {
        super::sql::postgres_options(&of.database)?;
        let names = Names::new(source.queue.as_str(), name, of.slot.as_deref());
        let (url, table, timeout) = (of.database.clone(), of.table.clone(), source.timeout);
        let (is_once, key) = (false, Vec::new());
        Ok(Self { url, table, names, timeout, is_once, key, listed: None, position: None })
    }

    async fn open(&self) -> Result<Session, Error> {
        Session::open(&self.url, self.timeout).await
    }

    /// The settings of a queue for these rows: the key is the identity of the table.
    pub(super) async fn queue_settings(&self) -> Result<Map<String, Value>, Error> {
        let mut session = self.open().await?;
        let table = Table::find(&mut session, &self.table).await?;
        session.close().await;
        if let Some(why) = table.without_identity().filter(|_| !self.is_once) {
            return Err(why);
        }
        let key = table.key().map(|key| json!({ "key": key }));
        Ok(key.and_then(|key| key.as_object().cloned()).unwrap_or_default())
    }

    /// Sends only one copy.
    pub(super) const fn set_once(&mut self) {
        self.is_once = true;
    }

    pub(super) fn set_key(&mut self, key: Vec<String>) {
        self.key = key;
    }

    pub(super) fn has_position(&self) -> bool {
        self.position.is_some()
    }

    pub(super) fn forget(&mut self) {
        (self.listed, self.position) = (None, None);
    }

    pub(super) fn accepted(&mut self) {
        self.position = self.listed.take();
    }

    /// Drops the slot and the publication. Returns the name of the slot, and whether there was one.
    pub(super) async fn drop_slot(&self) -> Result<(String, bool), Error> {
        let mut session = self.open().await?;
        let dropped = slot::drop_slot(&mut session, &self.names).await?;
        session.close().await;
        Ok((self.names.slot.clone(), dropped))
    }

    /// The table, and the position of the slot, which is made if it does not exist.
    async fn prepared(&self, session: &mut Session) -> Result<(Table, Lsn), Error> {
        let table = Table::find(session, &self.table).await?;
        table.check_key(&self.key)?;
        if self.is_once {
            return Ok((table, Lsn::default()));
        }
        if let Some(why) = table.without_identity() {
            // Its publication would break its writers.
            slot::drop_slot(session, &self.names).await?;
            return Err(why);
        }
        slot::set_up(session, &self.names, &table).await?;
        let status = Status::read(session, &self.names).await?;
        Ok((table, status.confirmed.unwrap_or_default()))
    }

    /// Sends a copy of the table.
    pub(super) async fn list(&mut self, output: &Output) -> Result<(), Error> {
        self.forget();
        let mut session = self.open().await?;
        let (table, confirmed) = self.prepared(&mut session).await?;
        output.send(Event::Init).await?;
        session.begin().await?;
        // Otherwise, a TRUNCATE or a rewrite between the snapshot and the query would show an empty table.
        session.run(&format!("LOCK TABLE {} IN ACCESS SHARE MODE", table.of_rows())).await?;
        let status = Status::read(&mut session, &self.names).await?;
        let table = Table::find(&mut session, &table.name).await?;
        let shape = table.shape(&mut session, &self.names.publication).await?;
        {
            let query = sqlx::query(AssertSqlSafe(rows::copy(&table))).persistent(false);
            let mut found = query.fetch(&mut session.connection);
            while let Some(row) = within(self.timeout, found.try_next()).await?.map_err(refused)? {
                output.send(Event::InitApply(rows::object(&row)?)).await?;
            }
        }
        session.commit().await?;
        session.close().await;
        let place = Place::new(&status, confirmed);
        let id = u32::try_from(table.id).unwrap_or_default();
        let transactions = Transactions::new(id, table.columns.clone(), status.snapshot, confirmed);
        let (unseen, read_to, safe) = (Vec::new(), confirmed, confirmed);
        self.listed = Some(Position { table, shape, place, transactions, unseen, read_to, safe });
        output.send(Event::InitDone).await
    }

    /// Sends the changes, until a list is needed.
    pub(super) async fn stream(&mut self, output: &Output) -> Result<NextList, Error> {
        let Some(mut position) = self.position.take() else { return Ok(NextList::Now) };
        let ended = match (self.open().await, self.open().await) {
            (Ok(log), Ok(rows)) => Reading::new(log, rows, &self.names, output, &mut position).run().await,
            (Err(error), _) | (_, Err(error)) => Err(Ended::Broken(error)),
        };
        match ended {
            Ok(next) => Ok(next),
            Err(Ended::Broken(error)) => {
                self.position = Some(position);
                Err(error)
            }
            Err(Ended::Lost(error)) => Err(error),
        }
    }
}
