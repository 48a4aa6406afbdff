//! A table of PostgreSQL: a copy, then the changes of its log, by a slot of logical decoding.
//!
//! The changes are read over an ordinary connection: `pg_logical_slot_peek_binary_changes` shows them, and the slot moves
//! once the queue has stored them. So nothing is lost if this process, the queue or the database ends at any moment.
//! A start begins with a copy, which queues only what differs, unless the last process has stopped cleanly and nothing has changed since; the
//! stream leaves out what the copy has seen.
//!
//! Invariant: the slot is never moved behind a transaction that the queue has not stored, or that is not visible yet to every new
//! snapshot. So a later copy has whatever the stream will not show again.

mod changes;
mod kept;
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

use self::kept::Kept;
pub(crate) use self::kept::QueueState;
use self::pgoutput::Lsn;
use self::place::Place;
use self::reading::{Ended, Reading};
use self::session::{Session, get, refused, within};
use self::slot::{Names, Status};
use self::snapshot::Seen;
use self::table::Table;
use self::transactions::{Point, Transactions};
use super::{Error, NextList, Output};
use crate::health::Health;
use crate::settings;

/// A table whose changes are replicated.
#[derive(Debug)]
pub(crate) struct Replication {
    url: String,
    table: String,
    names: Names,
    /// The command that drops the slot.
    drop: String,
    timeout: DurationText,
    /// Whether only one copy is sent, which needs no slot. Nobody would read it, and it would keep back the log forever.
    is_once: bool,
    /// The pointers of the queue's key.
    key: Vec<String>,
    /// The position after the last list, which the queue has not accepted yet.
    listed: Option<Position>,
    /// Where the stream continues.
    position: Option<Position>,
    /// How many permanent failures the stream has had since it last read anything.
    stuck: u32,
}

/// After this many permanent failures, a list follows. The first may come from a slot that is gone, which the next look finds out.
const STUCK_LIST: u32 = 2;
/// After this many, the list has not helped, and a new slot is made.
const STUCK_SLOT: u32 = 3;

/// Where the stream continues after a copy.
#[derive(Debug)]
struct Position {
    table: Table,
    shape: String,
    place: Place,
    transactions: Transactions,
    /// The transactions that the queue has stored and that some new snapshot may not see yet.
    unseen: Vec<u32>,
    /// The point behind the last change that was sent. The stream goes on there if a look was cut off.
    done: Point,
    /// Everything before this position was read and stored.
    read_to: Lsn,
    /// The same, and every new snapshot sees it: the slot may move to this position.
    safe: Lsn,
}

impl Position {
    /// The position for a stream that begins at this point, after a copy that has seen `seen`.
    fn new((table, shape): (Table, String), place: Place, done: Point, seen: Seen) -> Self {
        let (id, confirmed) = (u32::try_from(table.id).unwrap_or_default(), place.confirmed());
        let transactions = Transactions::new(id, table.columns.clone(), seen, done);
        let (unseen, read_to, safe) = (Vec::new(), confirmed, confirmed);
        Self { table, shape, place, transactions, unseen, done, read_to, safe }
    }

    /// Why the stream can't continue; `None` if it can.
    fn misfit(&self, status: &Status) -> Option<String> {
        self.place.misfit(status, self.read_to.max(self.done.reached))
    }

    /// Finds out how far the slot may move. Returns whether that is everything that was read.
    fn settle(&mut self, status: &Status) -> bool {
        self.unseen.retain(|xid| !status.snapshot.sees(*xid));
        if self.unseen.is_empty() {
            self.safe = self.read_to;
        }
        self.unseen.is_empty()
    }
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
        let (is_once, key, stuck) = (false, Vec::new(), 0);
        let drop = names.command(source.queue.as_str(), name, &url, &table);
        Ok(Self { url, table, names, drop, timeout, is_once, key, listed: None, position: None, stuck })
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
    async fn prepared(&mut self, session: &mut Session, output: &Output) -> Result<(Table, Lsn), Error> {
        let table = Table::find(session, &self.table).await?;
        table.check_key(&self.key)?;
        if self.is_once {
            return Ok((table, Lsn::default()));
        }
        if let Some(why) = table.without_identity() {
            // Its publication would break its writers.
            slot::drop_own(session, &self.names).await?;
            return Err(why);
        }
        if self.stuck >= STUCK_SLOT {
            output.needs_list("the slot has something that can't be read, so a new one is made");
            slot::drop_slot(session, &self.names).await?;
            self.stuck = 0;
        }
        slot::set_up(session, &self.names, &table).await?;
        let status = Status::read(session, &self.names).await?;
        let confirmed = status.confirmed.unwrap_or_default();
        output.slot(&status.slot(&self.names, &self.drop, confirmed));
        Ok((table, confirmed))
    }

    /// Records where the slot stands, if there is one.
    pub(super) async fn look_at_slot(&self, health: &Health) {
        let Ok(mut session) = self.open().await else { return };
        if let Ok(status) = Status::read(&mut session, &self.names).await
            && let Some(confirmed) = status.confirmed
        {
            health.slot(&status.slot(&self.names, &self.drop, confirmed));
        }
        session.close().await;
    }

    /// Sends a copy of the table.
    pub(super) async fn list(&mut self, output: &Output) -> Result<(), Error> {
        self.forget();
        let mut session = self.open().await?;
        let (table, confirmed) = self.prepared(&mut session, output).await?;
        output.send(Event::Init).await?;
        session.begin().await?;
        // Otherwise, a TRUNCATE or a rewrite between the snapshot and the query would show an empty table.
        session.run(&format!("LOCK TABLE {} IN ACCESS SHARE MODE", table.of_rows())).await?;
        let status = Status::read(&mut session, &self.names).await?;
        let table = self.catalogue(&mut session, &table.name).await?;
        {
            let query = sqlx::query(AssertSqlSafe(rows::copy(&table.0))).persistent(false);
            let mut found = query.fetch(&mut session.connection);
            while let Some(row) = within(self.timeout, found.try_next()).await?.map_err(refused)? {
                output.send(Event::InitApply(rows::object(&row)?)).await?;
            }
        }
        session.commit().await?;
        if !self.is_once {
            let (place, done) = (Place::new(&status, confirmed), Point { reached: confirmed, changes: 0 });
            let seen = Seen { snapshot: status.snapshot, before: slot::mark(&mut session).await? };
            self.listed = Some(Position::new(table, place, done, seen));
        }
        session.close().await;
        output.send(Event::InitDone).await
    }

    /// The table and its shape. In a transaction of a session, whose settings let all names of types have their schemas.
    async fn catalogue(&self, session: &mut Session, table: &str) -> Result<(Table, String), Error> {
        let table = Table::find(session, table).await?;
        let shape = get(&session.plain_row(&table.shape(&self.names.publication)).await?, 0)?;
        Ok((table, shape))
    }

    /// Sends the changes, until a list is needed. The position stays if the stream is interrupted.
    pub(super) async fn stream(&mut self, output: &Output) -> Result<NextList, Error> {
        let (log, rows) = (self.open().await?, self.open().await?);
        let Some(position) = &mut self.position else { return Ok(NextList::Now) };
        let before = position.read_to;
        let ended = Reading::new(log, rows, (&self.names, &self.drop), output, position).run().await;
        if position.read_to > before {
            self.stuck = 0;
        }
        match ended {
            Ok(next) => {
                self.position = None;
                Ok(next)
            }
            Err(Ended::Stopped) => Ok(NextList::Now),
            Err(Ended::Broken(error)) => {
                self.stuck += u32::from(error.is_permanent());
                if error.is_permanent() && self.stuck >= STUCK_LIST {
                    self.position = None;
                }
                Err(error)
            }
            Err(Ended::Lost(error)) => {
                self.position = None;
                Err(error)
            }
        }
    }

    /// Saves the place for the next start. The stream has ended, and the queue has everything that was sent.
    pub(super) async fn keep_place(&mut self, queue: QueueState, relist_at_us: u64) -> Result<(), Error> {
        let mut session = self.open().await?;
        let Some(position) = &mut self.position else { return Ok(()) };
        let status = Status::read(&mut session, &self.names).await?;
        if position.misfit(&status).is_some() || !position.settle(&status) {
            return Ok(());
        }
        position.place.confirm(position.safe);
        slot::confirm(&mut session, &self.names, position.safe).await?;
        let at = (position.done, position.transactions.seen());
        let kept = Kept::new(&position.place, &self.names, at, &position.shape, (queue, relist_at_us));
        kept.write(&mut session, &self.names).await?;
        session.close().await;
        Ok(())
    }

    /// Continues where the last process has stopped, if nothing has changed since. Returns when the next list is due, in microseconds
    /// since 1970. Otherwise, a list follows now.
    pub(super) async fn resume(&mut self, queue: &QueueState, now_us: u64) -> Result<Option<u64>, Error> {
        let mut session = self.open().await?;
        let Some(kept) = Kept::read(&mut session, &self.names).await? else { return Ok(None) };
        if kept.queue != *queue || kept.relist_at_us <= now_us {
            return Ok(None);
        }
        let table = Table::find(&mut session, &self.table).await?;
        table.check_key(&self.key)?;
        let is_published = table.without_identity().is_none()
            && matches!(slot::publish(&mut session, &self.names, &table).await, Ok(false));
        let status = Status::read(&mut session, &self.names).await?;
        let fitting = kept.fits(&status, &self.names).filter(|_| is_published);
        let Some((place, done, seen)) = fitting else { return Ok(None) };
        session.begin().await?;
        let table = self.catalogue(&mut session, &table.name).await?;
        session.close().await;
        if table.1 != kept.shape {
            return Ok(None);
        }
        self.position = Some(Position::new(table, place, done, seen));
        Ok(Some(kept.relist_at_us))
    }
}
