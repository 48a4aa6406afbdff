//! A store as it is at one instant, to be looked at as a whole, damaged or not.
//!
//! It changes nothing and takes nothing from anybody: a server may go on with the store meanwhile, only
//! its WAL grows until this is closed. All is read on one connection, in one transaction.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{ConnectOptions, Connection, Row};

use super::connect::{self, State};
use super::error::{WAY_OUT, database};
use super::files::{Paths, Use};
use super::mark::{self, Record};
use super::rows;
use super::sql::{self, Scan};
use crate::engine::delta::Rv;
use crate::journal::store::{Error, Gravestone, Holder, JournalRow, KeyRow, QueueId, QueueRow, Reader};

use super::reader::SqliteReader;

/// A row of a table, or why it can't be read.
#[derive(Debug)]
pub struct Found<T> {
    /// The rowid.
    pub id: i64,
    /// What stands there. The text names the column that holds what it can't hold.
    pub row: Result<T, String>,
}

/// A row of the journal, or why its text can't be read; and where it belongs.
#[derive(Debug)]
pub struct Placed {
    /// The queue.
    pub queue: QueueId,
    /// Its last event.
    pub last_rv: Rv,
    /// The row.
    pub row: Result<JournalRow, String>,
}

/// Where a row of a queue's journal stands between the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The row.
    pub id: u64,
    /// The last event before it.
    pub prev_rv: Rv,
    /// Its first event.
    pub first_rv: Rv,
    /// Its last event.
    pub last_rv: Rv,
}

/// What is to be said of a store as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remark {
    /// It is damaged.
    Damage(String),
    /// Worth to know, and no damage.
    Note(String),
}

/// A store at one instant.
pub struct Snapshot {
    paths: Paths,
    reader: SqliteReader,
    mark: Result<Option<Record>, Error>,
    state: Result<State, Error>,
    usage: Use,
    /// Whether the mark may have been read some time before the rows are from.
    has_older_mark: bool,
    /// Whether it is a copy of a store, and not the store itself.
    is_copy: bool,
    /// Files that were not there before and are there for this alone.
    litter: Vec<PathBuf>,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("paths", &self.paths)
            .field("usage", &self.usage)
            .finish_non_exhaustive()
    }
}

impl Snapshot {
    /// Looks at the store in a folder.
    ///
    /// # Errors
    /// [`Error::Newer`]; [`Error::Damaged`] if nothing at all can be read; [`Error::Failed`].
    pub async fn take(folder: &Path) -> Result<Self, Error> {
        let paths = Paths::new(folder)?;
        paths.expect_regular()?;
        let usage = Use::look(&paths)?;
        // Before the database, so that what it says can't be newer than what is seen there.
        let mark = mark::read_beside_server(&paths.mark);
        let is_quiet = matches!(usage, Use::Nobody(_)) && !bytes_beside(&paths.database);
        Self::open(paths, mark, usage, is_quiet).await
    }

    /// Looks at a backup, which is one file that nobody writes.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub async fn of_backup(file: &Path) -> Result<Self, Error> {
        let database = std::path::absolute(file).map_err(|said| super::error::file("find", file, said))?;
        let folder = database.parent().unwrap_or(&database);
        let paths = Paths { database: database.clone(), ..Paths::new(folder)? };
        Self::of_copy(paths, Ok(None)).await
    }

    /// Looks at a copy of a store, which is one file, against the mark of the store.
    pub(super) async fn of_copy(paths: Paths, mark: Result<Option<Record>, Error>) -> Result<Self, Error> {
        let is_quiet = !bytes_beside(&paths.database);
        let copy = Self::open(paths, mark, Use::Nobody(None), is_quiet).await?;
        Ok(Self { has_older_mark: true, is_copy: true, ..copy })
    }

    async fn open(
        paths: Paths,
        mark: Result<Option<Record>, Error>,
        usage: Use,
        is_quiet: bool,
    ) -> Result<Self, Error> {
        // Few rows at a time, because they may be long. With nothing beside the database and nobody at it,
        // SQLite needs to make no file, so that it can be read where nothing can be written.
        let options = connect::reading(&paths.database).row_buffer_size(8).immutable(is_quiet);
        let litter = ["-shm", "-wal"].map(|end| beside(&paths.database, end)).into_iter();
        let litter: Vec<PathBuf> = litter.filter(|path| !path.exists()).collect();
        if fs::metadata(beside(&paths.database, "-journal")).is_ok_and(|found| found.len() > 0) {
            let doing = format!(
                "read {}: a start was cut off while it made the store or opened a backup. Start the server again, \
                 which goes on from there",
                paths.database.display()
            );
            return Err(Error::Failed { doing, source: None });
        }
        let failed = |said| database(format!("open {}", paths.database.display()), said);
        let mut connection = options.connect().await.map_err(failed)?;
        let looked = look(&mut connection, &paths).await;
        if let Err(error) = looked {
            let _ = connection.close().await;
            remove(&usage, &litter);
            return Err(error);
        }
        let state = connect::state(&mut connection).await;
        let reader = SqliteReader::snapshot(paths.clone(), connection);
        let has_older_mark = matches!(usage, Use::Server(_));
        Ok(Self { paths, reader, mark, state, usage, has_older_mark, is_copy: false, litter })
    }

    /// Ends it.
    pub async fn close(self) {
        self.reader.close().await;
        remove(&self.usage, &self.litter);
    }

    /// Who writes the store now.
    #[must_use]
    pub fn server(&self) -> Option<Holder> {
        match &self.usage {
            Use::Nobody(_) => None,
            Use::Server(holder) => Some(*holder),
        }
    }

    /// Fails if a server has the store.
    ///
    /// # Errors
    /// [`Error::Locked`].
    pub fn refuse_server(&self) -> Result<(), Error> {
        match self.server() {
            None => Ok(()),
            Some(holder) => Err(Error::Locked { at: self.paths.folder.clone(), holder }),
        }
    }

    /// The rows, as recovery reads them.
    #[must_use]
    pub fn reader(&self) -> &dyn Reader {
        &self.reader
    }

    /// What SQLite finds in its pages and indexes.
    ///
    /// # Errors
    /// If the check itself fails.
    pub async fn integrity(&self) -> Result<Vec<String>, Error> {
        self.reader.integrity_check().await
    }

    /// What the mark and the store say of each other, and whether the store was closed in good order.
    #[must_use]
    pub fn remarks(&self) -> Vec<Remark> {
        let state = match &self.state {
            Ok(state) => state,
            Err(error) => return vec![Remark::Damage(plain(error))],
        };
        let mut remarks = Vec::new();
        // A backup is taken from a store that is open, so it never says that it was closed in good order.
        let is_backup = matches!(self.mark, Ok(None));
        if self.server().is_none() && !self.is_copy && !is_backup && !state.opening.clean {
            let text = "the store was not closed in good order (kill -9, loss of power): the next start replays \
                        its journal";
            remarks.push(Remark::Note(text.to_owned()));
        }
        remarks.extend(self.remark_of_mark(state));
        remarks
    }

    fn remark_of_mark(&self, state: &State) -> Option<Remark> {
        let mark = match &self.mark {
            Ok(Some(mark)) => mark,
            Ok(None) => {
                let text = "there is no deltaq.mark, as in a restored backup: nothing says whether the newest rows \
                            are missing";
                return Some(Remark::Note(text.to_owned()));
            }
            Err(error) => return Some(Remark::Damage(plain(error))),
        };
        let here = state.reached;
        if let Err(error) = mark::hold_against(&self.paths.mark, mark, here, &mark::boot_id()) {
            return Some(Remark::Damage(plain(&error)));
        }
        if let Some(missing) = mark.reached.missing_at(here) {
            let text = format!(
                "{missing} that were acknowledged are missing: a loss of power took them, as sync = \"normal\" allows"
            );
            return Some(Remark::Note(text));
        }
        let behind = here.missing_at(mark.reached).filter(|_| !self.has_older_mark);
        behind.map(|rows| {
            Remark::Note(format!("deltaq.mark is behind by {rows}, as after a loss of power: harmless"))
        })
    }

    /// How the layout differs from what this program makes; nothing if it doesn't.
    ///
    /// # Errors
    /// [`Error::Damaged`] and [`Error::Failed`].
    pub async fn layout(&self) -> Result<Vec<String>, Error> {
        let mut found = Vec::new();
        let has = self.rows_of("read the layout", sql::SCHEMA, schema_row).await?;
        let expected = expected_schema().await?;
        for (kind, name, text) in &expected {
            match has.iter().find(|(_, other, _)| other == name) {
                None => found.push(format!("{kind} {name} is missing")),
                Some((.., other)) if other != text => {
                    found.push(format!("{kind} {name} is not what was made"));
                }
                Some(_) => {}
            }
        }
        let migrated = self.rows_of("read the version of the store", sql::MIGRATED, migration_row).await?;
        for migration in connect::migrations() {
            let is_same = |(version, is_done, sum): &(i64, bool, Vec<u8>)| {
                *version == migration.version && *is_done && *sum == *migration.checksum
            };
            if !migrated.iter().any(is_same) {
                let version = migration.version;
                found.push(format!(
                    "table _sqlx_migrations: version {version} is missing or not what was noted"
                ));
            }
        }
        Ok(found)
    }

    async fn rows_of<T>(
        &self,
        doing: &str,
        text: &'static str,
        read: impl Fn(&SqliteRow) -> Result<T, sqlx::Error>,
    ) -> Result<Vec<T>, Error> {
        let query = sqlx::query(text);
        self.reader
            .some(doing, query, |rows: &mut Vec<T>, row| {
                rows.push(read(&row)?);
                Ok(true)
            })
            .await
    }

    /// Looks at every row of table `queues`.
    ///
    /// # Errors
    /// [`Error::Damaged`] where SQLite can't read on; [`Error::Failed`].
    pub async fn queues(&self, visit: impl FnMut(Found<QueueRow>)) -> Result<(), Error> {
        let read = |row: &SqliteRow| match rows::number(row, 5)? {
            0 | 1 => rows::queue_row(row),
            other => Err(sqlx::Error::Decode(format!("deleted is {other}").into())),
        };
        self.scan(&sql::SCAN_QUEUES, read, visit).await
    }

    /// Looks at every row of table `journal`.
    ///
    /// # Errors
    /// As [`queues`](Self::queues).
    pub async fn journal(&self, visit: impl FnMut(Found<Placed>)) -> Result<(), Error> {
        let read = |row: &SqliteRow| {
            let (queue, last_rv) = (QueueId(row.try_get_unchecked(1)?), rows::number(row, 4)?);
            Ok(Placed { queue, last_rv, row: rows::journal_row(row).map_err(|said| unread(&said)) })
        };
        self.scan(&sql::SCAN_JOURNAL, read, visit).await
    }

    /// Looks at every row of table `keys`; the keys of a queue come one after the other.
    ///
    /// # Errors
    /// As [`queues`](Self::queues).
    pub async fn keys(&self, visit: impl FnMut(Found<KeyRow>)) -> Result<(), Error> {
        let read = |row: &SqliteRow| {
            let queue = rows::number(row, 0)? >> 32;
            rows::key_row(QueueId(u32::try_from(queue).unwrap_or_default()), row)
        };
        self.scan(&sql::SCAN_KEYS, read, visit).await
    }

    /// Looks at every row of table `gravestones`.
    ///
    /// # Errors
    /// As [`queues`](Self::queues).
    pub async fn gravestones(&self, visit: impl FnMut(Found<Gravestone>)) -> Result<(), Error> {
        let read = |row: &SqliteRow| rows::gravestone(QueueId(row.try_get_unchecked(4)?), row);
        self.scan(&sql::SCAN_GRAVESTONES, read, visit).await
    }

    /// Looks at the row of table `store`, of which there must be one.
    ///
    /// # Errors
    /// As [`queues`](Self::queues).
    pub async fn store(&self, visit: impl FnMut(Found<()>)) -> Result<(), Error> {
        let read = |row: &SqliteRow| {
            let wrong = |what: String| Err(sqlx::Error::Decode(what.into()));
            let (clean, next_row) = (rows::number(row, 1)?, rows::number(row, 2)?);
            if clean > 1 || !(1..=MAX_ROW).contains(&next_row) {
                return wrong(format!("clean and next_row are {:?}", (clean, next_row)));
            }
            let numbers = (rows::number(row, 3)?, rows::number(row, 4)?, rows::number(row, 5)?);
            if numbers.0 > u32::MAX.into() || numbers.1 > MAX_ROW || numbers.2 > MAX_ROW {
                return wrong(format!("last_queue, last_version and floor are {numbers:?}"));
            }
            Ok(())
        };
        self.scan(&sql::SCAN_STORE, read, visit).await
    }

    /// How the rows of a queue's journal follow each other, oldest first.
    ///
    /// # Errors
    /// As [`queues`](Self::queues).
    pub async fn links(&self, queue: QueueId, mut visit: impl FnMut(Link)) -> Result<(), Error> {
        let query = sqlx::query(sql::LINKS).bind(queue.0);
        let each = |(): &mut (), row: SqliteRow| {
            let number = |index| rows::number(&row, index);
            visit(Link { id: number(0)?, prev_rv: number(1)?, first_rv: number(2)?, last_rv: number(3)? });
            Ok(true)
        };
        self.reader.some("follow the journal", query, each).await
    }

    async fn scan<T>(
        &self,
        scan: &'static Scan,
        read: impl Fn(&SqliteRow) -> Result<T, sqlx::Error>,
        mut visit: impl FnMut(Found<T>),
    ) -> Result<(), Error> {
        let query = sqlx::query(scan.text.as_str());
        let each = |(): &mut (), row: SqliteRow| {
            let id = row.try_get_unchecked(scan.columns.len())?;
            let types: String = row.try_get_unchecked(scan.columns.len() + 1)?;
            let row = match misfit(scan, &types) {
                Some(misfit) => Err(misfit),
                None => read(&row).map_err(|said| unread(&said)),
            };
            visit(Found { id, row });
            Ok(true)
        };
        self.reader.some(&format!("read table {}", scan.table), query, each).await
    }
}

fn unread(said: &sqlx::Error) -> String {
    format!("a value can't be read: {said}")
}

/// Numbers of rows stay below 2^63.
const MAX_ROW: u64 = i64::MAX as u64;

/// What is wrong with the store, without what can be done about it: whoever checks says that at the end.
#[must_use]
pub fn plain(error: &Error) -> String {
    match error {
        Error::Damaged { found } => found.trim_end_matches(WAY_OUT).trim_end_matches(". ").to_owned(),
        error => error.to_string(),
    }
}

/// The first column that holds a value of a type that is never written there.
fn misfit(scan: &Scan, types: &str) -> Option<String> {
    let mut found = types.split(' ').zip(scan.columns);
    found.find_map(|(found, (column, allowed))| {
        let is_allowed = allowed.split(" or ").any(|kind| kind == found);
        (!is_allowed).then(|| format!("column {column} holds {found}, and it can hold {allowed} only"))
    })
}

async fn look(connection: &mut SqliteConnection, paths: &Paths) -> Result<(), Error> {
    let begun = sqlx::query(sql::BEGIN_READING).execute(&mut *connection).await;
    begun.map_err(|said| database("begin to read", said))?;
    if !connect::is_store(connection, paths).await? {
        let found = format!("{} is empty: no store was ever made in it", paths.database.display());
        return Err(Error::Damaged { found });
    }
    connect::refuse_newer(connection, paths).await
}

type Made = (String, String, Option<String>);

fn schema_row(row: &SqliteRow) -> Result<Made, sqlx::Error> {
    Ok((row.try_get_unchecked(0)?, row.try_get_unchecked(1)?, row.try_get_unchecked(2)?))
}

fn migration_row(row: &SqliteRow) -> Result<(i64, bool, Vec<u8>), sqlx::Error> {
    Ok((row.try_get_unchecked(0)?, row.try_get_unchecked(1)?, row.try_get_unchecked(2)?))
}

/// What the migrations make of nothing.
async fn expected_schema() -> Result<Vec<Made>, Error> {
    let failed = |said| database("lay out a store in memory", said);
    let mut connection = SqliteConnection::connect("sqlite::memory:").await.map_err(failed)?;
    for migration in connect::migrations() {
        sqlx::raw_sql(migration.sql).execute(&mut connection).await.map_err(failed)?;
    }
    let made = sqlx::query(sql::SCHEMA).fetch_all(&mut connection).await.map_err(failed)?;
    made.iter().map(schema_row).collect::<Result<_, _>>().map_err(failed)
}

fn beside(database: &Path, end: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(end);
    path.into()
}

/// Whether something that belongs to the database stands in a file beside it.
fn bytes_beside(database: &Path) -> bool {
    fs::metadata(beside(database, "-wal")).is_ok_and(|found| found.len() > 0)
}

/// Removes what was made to read, unless a server could have come to use it.
fn remove(usage: &Use, litter: &[PathBuf]) {
    if matches!(usage, Use::Nobody(Some(_))) {
        for path in litter {
            let _ = fs::remove_file(path);
        }
    }
}
