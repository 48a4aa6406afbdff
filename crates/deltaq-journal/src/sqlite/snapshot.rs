//! A snapshot of a SQLite store: all rows are read on one connection, in one transaction.
//!
//! A server can continue to use the store, but its WAL grows until the snapshot is closed.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use futures_util::future::LocalBoxFuture;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{ConnectOptions, Connection, Row};

use super::connect::{self, State};
use super::error::database;
use super::files::{self, Paths, Use};
use super::mark::{self, Record};
use super::reader::SqliteReader;
use super::rows;
use super::sql::{self, Scan};
use crate::snapshot::{Finding, Found, Link, Placed, Snapshot, Visiting, Visitor};
use crate::store::{Error, Holder, Opening, QueueId, QueueRow, Reader, RunRow, SharedText};

/// A store at one instant.
pub struct SqliteSnapshot {
    paths: Paths,
    reader: SqliteReader,
    mark: Result<Option<Record>, Error>,
    state: Result<State, Error>,
    usage: Use,
    /// The version of the store.
    version: i64,
    /// Whether the mark may be older than the rows.
    has_older_mark: bool,
    /// Whether this is a copy of a store.
    is_copy: bool,
    /// Files that SQLite created only for this snapshot.
    temp_files: Vec<PathBuf>,
}

impl fmt::Debug for SqliteSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteSnapshot")
            .field("paths", &self.paths)
            .field("usage", &self.usage)
            .finish_non_exhaustive()
    }
}

impl SqliteSnapshot {
    /// Opens a snapshot of the store in a folder.
    ///
    /// # Errors
    /// [`Error::Newer`]; [`Error::Damaged`] if nothing can be read; [`Error::Failed`].
    pub async fn take(folder: &Path) -> Result<Self, Error> {
        let paths = Paths::new(folder)?;
        paths.expect_regular()?;
        let usage = Use::look(&paths)?;
        // The mark is read before the database, so that it can't be ahead of it.
        let mark = mark::read_beside_server(&paths.mark);
        let is_quiet = matches!(usage, Use::Unused(_)) && !bytes_beside(&paths.database);
        Self::open(paths, mark, usage, is_quiet).await
    }

    /// Opens a snapshot of a backup, which is a single file without a writer.
    ///
    /// # Errors
    /// Same as [`take`](Self::take).
    pub async fn of_backup(file: &Path) -> Result<Self, Error> {
        let database = std::path::absolute(file).map_err(|error| super::error::file("find", file, error))?;
        let folder = database.parent().unwrap_or(&database);
        let paths = Paths { database: database.clone(), ..Paths::new(folder)? };
        Self::of_copy(paths, Ok(None)).await
    }

    /// Opens a snapshot of a copy, with the mark of the store that it was copied from.
    pub(super) async fn of_copy(paths: Paths, mark: Result<Option<Record>, Error>) -> Result<Self, Error> {
        let is_quiet = !bytes_beside(&paths.database);
        let copy = Self::open(paths, mark, Use::Unused(None), is_quiet).await?;
        Ok(Self { has_older_mark: true, is_copy: true, ..copy })
    }

    async fn open(
        paths: Paths,
        mark: Result<Option<Record>, Error>,
        usage: Use,
        is_quiet: bool,
    ) -> Result<Self, Error> {
        // Only a few rows are read at a time, because rows may be long. If there is neither a WAL nor a server, the
        // database is opened as immutable. SQLite then creates no files, so a store in a read-only folder can be
        // read.
        let options = connect::reading(&paths.database).row_buffer_size(8).immutable(is_quiet);
        let temp_files = ["-shm", "-wal"].map(|end| beside(&paths.database, end)).into_iter();
        let temp_files: Vec<PathBuf> = temp_files.filter(|path| !path.exists()).collect();
        if fs::metadata(beside(&paths.database, "-journal")).is_ok_and(|found| found.len() > 0) {
            let doing = format!(
                "read {}: an interrupted start was creating the store or opening a backup. Start the server again to \
                 complete it",
                paths.database.display()
            );
            return Err(Error::Failed { doing, source: None });
        }
        let failed = |error| database(format!("open {}", paths.database.display()), error);
        let mut connection = options.connect().await.map_err(failed)?;
        let begun = begin(&mut connection, &paths).await;
        let version = match begun {
            Ok(version) => version,
            Err(error) => {
                let _ = connection.close().await;
                remove(&usage, &paths, &temp_files);
                return Err(error);
            }
        };
        let state = connect::state(&mut connection).await;
        let reader = SqliteReader::snapshot(connection);
        let has_older_mark = matches!(usage, Use::Server(_));
        Ok(Self { paths, reader, mark, state, usage, version, has_older_mark, is_copy: false, temp_files })
    }

    fn finding_of_mark(&self, state: &State) -> Option<Finding> {
        let mark = match &self.mark {
            Ok(Some(mark)) => mark,
            Ok(None) => {
                let text = "there is no deltaq.mark, as in a restored backup: nothing says whether the newest rows \
                            are missing";
                return Some(Finding::Note(text.to_owned()));
            }
            Err(error) => return Some(Finding::Damage(error.without_remedy())),
        };
        let here = state.reached;
        if let Err(error) = mark::refuse_loss(&self.paths.mark, mark, here, &mark::boot_id()) {
            return Some(Finding::Damage(error.without_remedy()));
        }
        if let Some(missing) = mark.reached.missing_at(here) {
            let text = format!(
                "{missing} that were acknowledged are missing: a loss of power took them, as sync = \"normal\" allows"
            );
            return Some(Finding::Note(text));
        }
        let behind = here.missing_at(mark.reached).filter(|_| !self.has_older_mark);
        behind.map(|rows| {
            Finding::Note(format!("deltaq.mark is behind by {rows}, as after a loss of power: harmless"))
        })
    }

    /// Compares the schema with the one that the migrations up to the store's version create. Returns the differences.
    async fn layout(&self) -> Result<Vec<String>, Error> {
        let mut found = Vec::new();
        let has = self.rows_of("read the layout", sql::SCHEMA, schema_row).await?;
        let expected = expected_schema(self.version).await?;
        for (kind, name, text) in &expected {
            match has.iter().find(|(_, other, _)| other == name) {
                None => found.push(format!("{kind} {name} is missing")),
                Some((.., other)) if other != text => {
                    found.push(format!("{kind} {name} differs from the one that deltaq creates"));
                }
                Some(_) => {}
            }
        }
        let migrated = self.rows_of("read the version of the store", sql::MIGRATED, migration_row).await?;
        for migration in connect::migrations().filter(|migration| migration.version <= self.version.max(1)) {
            let is_same = |(version, is_done, sum): &(i64, bool, Vec<u8>)| {
                *version == migration.version && *is_done && *sum == *migration.checksum
            };
            if !migrated.iter().any(is_same) {
                let version = migration.version;
                found.push(format!(
                    "table _sqlx_migrations: version {version} is missing or differs from the one that deltaq creates"
                ));
            }
        }
        Ok(found)
    }

    /// The damage of table `store`, which must have a single row.
    async fn store(&self) -> Result<Vec<String>, Error> {
        let (mut damage, mut rows) = (Vec::new(), 0);
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
        let visit = |found: Found<()>| {
            rows += 1;
            damage.extend(found.row.err().map(|what| format!("table store, id {}: {what}", found.id)));
        };
        self.scan(&sql::SCAN_STORE, |_| None, read, visit).await?;
        if rows != 1 {
            damage.push(format!("table store: it has {rows} rows instead of 1"));
        }
        Ok(damage)
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

    async fn scan<T>(
        &self,
        scan: &'static Scan,
        queue_of: impl Fn(&SqliteRow) -> Option<u32>,
        read: impl Fn(&SqliteRow) -> Result<T, sqlx::Error>,
        mut visit: impl FnMut(Found<T>),
    ) -> Result<(), Error> {
        let query = sqlx::query(scan.text.as_str());
        let each = |(): &mut (), row: SqliteRow| {
            let id = row.try_get_unchecked(scan.columns.len())?;
            let types: String = row.try_get_unchecked(scan.columns.len() + 1)?;
            let read_row = match wrong_type(scan, &types) {
                Some(wrong) => Err(wrong),
                None => read(&row).map_err(|error| unreadable(&error)),
            };
            visit(Found { id, queue: queue_of(&row).map(QueueId), row: read_row });
            Ok(true)
        };
        self.reader.some(&format!("read table {}", scan.table), query, each).await
    }
}

impl Snapshot for SqliteSnapshot {
    fn server(&self) -> Option<Holder> {
        match &self.usage {
            Use::Unused(_) => None,
            Use::Server(holder) => Some(*holder),
        }
    }

    fn refuse_server(&self) -> Result<(), Error> {
        match self.server() {
            None => Ok(()),
            Some(holder) => Err(Error::Locked { at: self.paths.folder.clone(), holder }),
        }
    }

    fn place(&self, table: &str, id: i64) -> String {
        let column = if table == "texts" { "rowid" } else { "id" };
        format!("table {table}, {column} {id}")
    }

    fn opening(&self) -> Option<&Opening> {
        self.state.as_ref().ok().map(|state| &state.opening)
    }

    fn reader(&self) -> &dyn Reader {
        &self.reader
    }

    fn findings(&self) -> Vec<Finding> {
        let state = match &self.state {
            Ok(state) => state,
            Err(error) => return vec![Finding::Damage(error.without_remedy())],
        };
        let mut findings = Vec::new();
        // A backup is taken from an open store, so it is never marked as cleanly closed.
        let is_backup = matches!(self.mark, Ok(None));
        if self.server().is_none() && !self.is_copy && !is_backup && !state.opening.clean {
            let text = "the store was not closed cleanly (kill -9, power loss): the next start replays \
                        its journal";
            findings.push(Finding::Note(text.to_owned()));
        }
        let newest = connect::newest();
        if self.version < newest {
            let text = format!(
                "the store has version {}: the next start migrates it to version {newest}",
                self.version
            );
            findings.push(Finding::Note(text));
        }
        findings.extend(self.finding_of_mark(state));
        findings
    }

    fn integrity(&self) -> LocalBoxFuture<'_, Vec<String>> {
        let placed = |place: &str, found: Result<Vec<String>, Error>| match found {
            Ok(found) => found.iter().map(|what| format!("{place}: {what}")).collect(),
            Err(error) => vec![format!("{place}: can't be read to its end: {}", error.without_remedy())],
        };
        Box::pin(async move {
            let mut damage: Vec<String> =
                placed("the database as SQLite sees it", self.reader.integrity_check().await);
            damage.extend(placed("the layout", self.layout().await));
            match self.store().await {
                Ok(found) => damage.extend(found),
                failed => damage.extend(placed("table store", failed)),
            }
            damage
        })
    }

    fn texts<'a>(&'a self, visit: Visitor<'a, Found<SharedText>>) -> Visiting<'a> {
        Box::pin(self.scan(&sql::SCAN_TEXTS, |_| None, rows::any_text, visit))
    }

    fn queues<'a>(&'a self, visit: Visitor<'a, Found<QueueRow>>) -> Visiting<'a> {
        let read = |row: &SqliteRow| match rows::number(row, 5)? {
            0 | 1 => rows::queue_row(row),
            other => Err(sqlx::Error::Decode(format!("deleted is {other}").into())),
        };
        Box::pin(self.scan(&sql::SCAN_QUEUES, |row| row.try_get_unchecked(0).ok(), read, visit))
    }

    fn journal<'a>(&'a self, visit: Visitor<'a, Found<Placed>>) -> Visiting<'a> {
        let read = |row: &SqliteRow| {
            let (queue, last_rv) = (QueueId(row.try_get_unchecked(0)?), rows::rv(row, 4)?);
            Ok(Placed { queue, last_rv, row: rows::journal_row(row).map_err(|error| unreadable(&error)) })
        };
        Box::pin(self.scan(&sql::SCAN_JOURNAL, |row| row.try_get_unchecked(0).ok(), read, visit))
    }

    fn runs<'a>(&'a self, visit: Visitor<'a, Found<RunRow>>) -> Visiting<'a> {
        Box::pin(self.scan(&sql::SCAN_RUNS, |row| row.try_get_unchecked(0).ok(), rows::run_row, visit))
    }

    fn links<'a>(&'a self, queue: QueueId, visit: Visitor<'a, Link>) -> Visiting<'a> {
        let query = sqlx::query(sql::LINKS).bind(queue.0);
        let each = move |(): &mut (), row: SqliteRow| {
            let rv = |index| rows::rv(&row, index);
            let id = row.try_get_unchecked(0)?;
            visit(Link { id, prev_rv: rv(1)?, first_rv: rv(2)?, last_rv: rv(3)? });
            Ok(true)
        };
        Box::pin(self.reader.some("follow the journal", query, each))
    }

    fn close(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            self.reader.close().await;
            remove(&self.usage, &self.paths, &self.temp_files);
        })
    }
}

fn unreadable(error: &sqlx::Error) -> String {
    format!("a value can't be read: {error}")
}

/// Row ids are below 2^63.
const MAX_ROW: u64 = i64::MAX as u64;

/// Describes the first value whose type is not allowed in its column.
fn wrong_type(scan: &Scan, types: &str) -> Option<String> {
    let mut found = types.split(' ').zip(scan.columns);
    found.find_map(|(found, (column, allowed))| {
        let is_allowed = allowed.split(" or ").any(|kind| kind == found);
        (!is_allowed).then(|| format!("column {column} contains {found}, but must be {allowed}"))
    })
}

async fn begin(connection: &mut SqliteConnection, paths: &Paths) -> Result<i64, Error> {
    let begun = sqlx::query(sql::BEGIN_READING).execute(&mut *connection).await;
    begun.map_err(|error| database("begin to read", error))?;
    if !connect::is_store(connection, paths).await? {
        let found = format!("{} is empty: it never contained a store", paths.database.display());
        return Err(Error::Damaged { found });
    }
    connect::refuse_newer(connection, paths).await
}

type SchemaRow = (String, String, Option<String>);

fn schema_row(row: &SqliteRow) -> Result<SchemaRow, sqlx::Error> {
    Ok((row.try_get_unchecked(0)?, row.try_get_unchecked(1)?, row.try_get_unchecked(2)?))
}

fn migration_row(row: &SqliteRow) -> Result<(i64, bool, Vec<u8>), sqlx::Error> {
    Ok((row.try_get_unchecked(0)?, row.try_get_unchecked(1)?, row.try_get_unchecked(2)?))
}

/// The schema that the migrations up to a version create in an empty database.
async fn expected_schema(version: i64) -> Result<Vec<SchemaRow>, Error> {
    let failed = |error| database("create a store in memory", error);
    let mut connection = SqliteConnection::connect("sqlite::memory:").await.map_err(failed)?;
    for migration in connect::migrations().filter(|migration| migration.version <= version.max(1)) {
        sqlx::raw_sql(migration.sql).execute(&mut connection).await.map_err(failed)?;
    }
    let created = sqlx::query(sql::SCHEMA).fetch_all(&mut connection).await.map_err(failed)?;
    created.iter().map(schema_row).collect::<Result<_, _>>().map_err(failed)
}

fn beside(database: &Path, end: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(end);
    path.into()
}

/// Whether the database has a WAL with content.
fn bytes_beside(database: &Path) -> bool {
    fs::metadata(beside(database, "-wal")).is_ok_and(|found| found.len() > 0)
}

/// Removes the files that SQLite created for the snapshot, unless a server may now be using them, or their paths lead to
/// another data directory.
fn remove(usage: &Use, paths: &Paths, temp_files: &[PathBuf]) {
    if matches!(usage, Use::Unused(Some(lock)) if files::is_at(lock, &paths.lock)) {
        for path in temp_files {
            let _ = fs::remove_file(path);
        }
    }
}
