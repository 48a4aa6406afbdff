//! Commands on a store without a server: check, backup, export, import.
//!
//! Commands that only read use a snapshot and change nothing. The import of a whole store writes rows; objects are imported into a
//! queue by the service, so that command is not here.
//!
//! Every message is for the operator who ran the command. It is one line that names the folder or the database, and
//! the remedy.

pub mod backup;
pub mod check;
pub mod dump;
pub mod export;

pub mod stores;

pub use self::stores::Location;

use std::io;
use std::path::PathBuf;

use deltaq_types::name::Name;

use crate::{recovery, store};

/// Why a command fails.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder does not exist.
    #[error("there is no data directory {}", at.display())]
    Missing {
        /// The folder.
        at: PathBuf,
    },
    /// The path is not a folder.
    #[error("{} is not a directory; a data directory contains deltaq.db", at.display())]
    NotAFolder {
        /// The path.
        at: PathBuf,
    },
    /// The folder is empty.
    #[error("{} is empty: `deltaq serve --data-dir` creates a store in it", at.display())]
    Empty {
        /// The folder.
        at: PathBuf,
    },
    /// The folder contains files, but no database.
    #[error("{} is not a deltaq store: it contains no deltaq.db", at.display())]
    NoStore {
        /// The folder.
        at: PathBuf,
    },
    /// The database is missing, but its other files exist.
    #[error(
        "deltaq.db is missing in {}, but {beside} exists: put deltaq.db back, or replace all remaining files by a \
         backup",
        at.display()
    )]
    DatabaseMissing {
        /// The folder.
        at: PathBuf,
        /// One of these files.
        beside: &'static str,
    },
    /// The database has no tables of deltaq.
    #[error("the database {at} contains no deltaq store: `deltaq serve --store` creates it")]
    NoTables {
        /// The database.
        at: String,
    },
    /// A server uses the database or was killed while using it.
    #[error(
        "the store in the database {at} is not closed: stop the server that uses it. After a kill, start the server and stop \
         it. A running server imports by itself: POST /v1/queues/NAME/seed"
    )]
    Open {
        /// The database.
        at: String,
    },
    /// A whole store can't be imported into a place that has queues.
    #[error("{at} has queues: a whole store can only be imported into a place without queues")]
    NotEmpty {
        /// The folder or the database.
        at: String,
    },
    /// The store was imported, but could not be split into partitions.
    #[error(
        "all queues were imported, but the store has one partition; one server can use it as it is. For several nodes, drop the schema \"deltaq\" and import again"
    )]
    NotSplit {
        /// The cause.
        source: store::Error,
    },
    /// The store is damaged. The damage was already printed.
    #[error("the store in {at} is damaged, so it was not exported: docs/backup.md has the remedies")]
    Unsound {
        /// The folder or the database.
        at: String,
    },
    /// A dump can't represent partitions.
    #[error(
        "the database {at} is shared by several nodes: copy it as a whole with pg_dump, or export each queue with --queue"
    )]
    Partitions {
        /// The database.
        at: String,
    },
    /// The reader of a whole store has closed the output.
    #[error("the reader closed the output before the whole store was written")]
    CutOff,
    /// PostgreSQL has its own backups.
    #[error(
        "the store is in PostgreSQL, which has its own backups. While the server runs: \
         pg_dump --schema=deltaq --format=custom --file={} URL",
        to.display()
    )]
    NeedsDump {
        /// The file of the backup.
        to: PathBuf,
    },
    /// The operating system refuses access.
    #[error("can't read {}", at.display())]
    Unreadable {
        /// The folder or the file.
        at: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// A server uses the store and can perform the command itself.
    #[error("{source}; {hint}")]
    Served {
        /// The error that names the server.
        source: store::Error,
        /// The call to the server.
        hint: String,
    },
    /// No queue has this name.
    #[error("there is no queue {name} in {at}; there {others}")]
    NoQueue {
        /// The name.
        name: Name,
        /// The store.
        at: String,
        /// The existing queues, as in "are prices, stock".
        others: String,
    },
    /// The queue can't be loaded.
    #[error("queue {name} can't be loaded; `deltaq check` lists all damage")]
    Load {
        /// The name of the queue.
        name: String,
        /// The damaged row.
        source: recovery::Error,
    },
    /// The queues can't be loaded.
    #[error("the queues can't be loaded; `deltaq check` lists all damage")]
    Recovery(#[source] recovery::Error),
    /// The file can't be written.
    #[error("can't write {}", to.display())]
    Write {
        /// The file.
        to: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file would be in the data directory.
    #[error("{} is in the data directory: write the copy elsewhere, preferably on another disk", to.display())]
    Within {
        /// The file.
        to: PathBuf,
    },
    /// The file exists.
    #[error("{} exists already and is not overwritten", to.display())]
    Exists {
        /// The file.
        to: PathBuf,
    },
    /// The reader of the output has closed it.
    #[error("the reader closed the output: {written} objects were written, and not all were read")]
    Pipe {
        /// Number of objects that were written.
        written: u64,
    },
    /// The input can't be read.
    #[error("can't read the input after line {line}; nothing was imported")]
    Input {
        /// The last line that was read.
        line: usize,
        /// The system's error.
        source: io::Error,
    },
    /// A line of the input is wrong.
    #[error("line {line}: {what}; nothing was imported")]
    Line {
        /// The number of the line, from 1.
        line: usize,
        /// The error.
        what: String,
    },
}
