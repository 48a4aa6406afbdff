//! The port of the offline tools: a read-only view of a whole store at one instant, damaged or not.
//!
//! A snapshot changes nothing. A server can continue to use the store in the meantime.

use deltaq_engine::id::Rv;
use std::fmt;

use futures_util::future::LocalBoxFuture;

use super::store::{Error, Holder, JournalRow, Opening, QueueId, QueueRow, Reader, RunRow, SharedText};

/// A row of a table, or why it can't be read.
#[derive(Debug)]
pub struct Found<T> {
    /// Identifies the row in its table, in this snapshot.
    pub id: i64,
    /// The queue of the row, if that can be read.
    pub queue: Option<QueueId>,
    /// The row. The error names the column with an impossible value.
    pub row: Result<T, String>,
}

/// A journal row, or why its text can't be read, with its queue and position.
#[derive(Debug)]
pub struct Placed {
    /// The queue.
    pub queue: QueueId,
    /// The last event.
    pub last_rv: Rv,
    /// The row.
    pub row: Result<JournalRow, String>,
}

/// The position of a row in a queue's journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Identifies the row in its table, in this snapshot.
    pub id: i64,
    /// The last event before the row.
    pub prev_rv: Rv,
    /// The first event.
    pub first_rv: Rv,
    /// The last event.
    pub last_rv: Rv,
}

/// A finding about a store as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The store is damaged.
    Damage(String),
    /// Useful information that is not damage.
    Note(String),
}

/// Receives the rows of a table.
pub type Visitor<'a, T> = &'a mut dyn FnMut(T);

/// A visit of all rows of a table. It ends with [`Error::Damaged`] if the database can't read further, or with
/// [`Error::Failed`].
pub type Visiting<'a> = LocalBoxFuture<'a, Result<(), Error>>;

/// A store at one instant.
pub trait Snapshot: fmt::Debug {
    /// The server that uses the store.
    fn server(&self) -> Option<Holder>;

    /// Fails if a server uses the store.
    ///
    /// # Errors
    /// [`Error::Locked`].
    fn refuse_server(&self) -> Result<(), Error>;

    /// The location of a row for a person, such as "table runs, id 7".
    fn place(&self, table: &str, id: i64) -> String;

    /// The state that the store records about itself; `None` if it can't be read.
    fn opening(&self) -> Option<&Opening>;

    /// A reader of the rows, as recovery uses it.
    fn reader(&self) -> &dyn Reader;

    /// Reports missing rows, as far as the store can detect them, and whether the store was cleanly closed.
    fn findings(&self) -> Vec<Finding>;

    /// Checks everything except the rows: the structures of the database, its tables, and the row of the store.
    /// Returns the damage.
    fn integrity(&self) -> LocalBoxFuture<'_, Vec<String>>;

    /// Visits every text that rows share.
    fn texts<'a>(&'a self, visit: Visitor<'a, Found<SharedText>>) -> Visiting<'a>;

    /// Visits every queue row.
    fn queues<'a>(&'a self, visit: Visitor<'a, Found<QueueRow>>) -> Visiting<'a>;

    /// Visits every journal row. The texts to which it refers are not loaded.
    fn journal<'a>(&'a self, visit: Visitor<'a, Found<Placed>>) -> Visiting<'a>;

    /// Visits every run. The texts to which it refers are not loaded.
    fn runs<'a>(&'a self, visit: Visitor<'a, Found<RunRow>>) -> Visiting<'a>;

    /// Visits the positions of a queue's journal rows, oldest first.
    fn links<'a>(&'a self, queue: QueueId, visit: Visitor<'a, Link>) -> Visiting<'a>;

    /// Closes the snapshot.
    fn close(self: Box<Self>) -> LocalBoxFuture<'static, ()>;
}
