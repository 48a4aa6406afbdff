//! What is done with a store by itself, without HTTP: looking for damage, a copy, objects out and in.
//!
//! It is no second way to run queues. Reading looks at the store as of one instant and changes nothing;
//! what writes is the service itself, over its journal, for as long as it takes.
//!
//! Every message is for the operator who typed the command: one line, with the folder and the way out.

pub mod backup;
pub mod check;
pub mod export;
pub mod import;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::journal::{recovery, store};
use crate::name::Name;
use crate::service;

/// Why a command comes to nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such folder.
    #[error("there is no data directory {}", at.display())]
    Missing {
        /// The folder.
        at: PathBuf,
    },
    /// It is something else.
    #[error("{} is no directory; a data directory has deltaq.db in it", at.display())]
    NotAFolder {
        /// What was named.
        at: PathBuf,
    },
    /// There is nothing in it.
    #[error("{} is empty: `deltaq serve --data-dir` makes a store in it", at.display())]
    Empty {
        /// The folder.
        at: PathBuf,
    },
    /// There is something in it, but no database.
    #[error("{} is no deltaq store: there is no deltaq.db in it", at.display())]
    NoStore {
        /// The folder.
        at: PathBuf,
    },
    /// The database is gone, and what was beside it is there.
    #[error(
        "deltaq.db is missing in {}, but {beside} is there: put it back, or restore a backup in place of all \
         that is left",
        at.display()
    )]
    Beheaded {
        /// The folder.
        at: PathBuf,
        /// The file beside it.
        beside: &'static str,
    },
    /// The system does not let us.
    #[error("can't read {}", at.display())]
    Unreadable {
        /// The folder or the file.
        at: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The store refuses.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// A server has the store, which gives what is asked for itself.
    #[error("{source}; {hint}")]
    Served {
        /// Who has it.
        source: store::Error,
        /// What to ask the server for.
        hint: String,
    },
    /// No queue has this name.
    #[error("there is no queue {name} in {}; there {others}", at.display())]
    NoQueue {
        /// The name.
        name: Name,
        /// The folder.
        at: PathBuf,
        /// Those that there are, as in "are prices, stock".
        others: String,
    },
    /// The queue can't be loaded.
    #[error("queue {name} can't be loaded; `deltaq check` tells all that is wrong")]
    Load {
        /// Its name.
        name: String,
        /// Which row is wrong, and how.
        source: recovery::Error,
    },
    /// The queues can't be loaded.
    #[error("the queues can't be loaded; `deltaq check` tells all that is wrong")]
    Recovery(#[source] recovery::Error),
    /// The file can't be written.
    #[error("can't write {}", to.display())]
    Write {
        /// The file.
        to: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file would be among those of the store.
    #[error("{} is in the data directory: a copy belongs elsewhere, best on another disk", to.display())]
    Within {
        /// The file.
        to: PathBuf,
    },
    /// There is a file already.
    #[error("{} is there already, and nothing is written over it", to.display())]
    Exists {
        /// The file.
        to: PathBuf,
    },
    /// Whoever was to read the output has left.
    #[error("the reader of the output has left: {written} objects were written, and not all are read")]
    Pipe {
        /// Objects that were written.
        written: u64,
    },
    /// The input can't be read.
    #[error("can't read the input behind line {line}; nothing was imported")]
    Input {
        /// The last line that was read.
        line: usize,
        /// What the system said.
        source: io::Error,
    },
    /// A line of the input is wrong.
    #[error("line {line}: {what}; nothing was imported")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// The queue does not take the objects.
    #[error("queue {name}: {source}; nothing was imported")]
    Refused {
        /// Its name.
        name: Name,
        /// Why.
        source: service::Error,
    },
    /// The write was not confirmed.
    #[error(
        "queue {name}: {source}; either all objects are in the queue or none: repeat the import, which does \
         no harm"
    )]
    Unconfirmed {
        /// Its name.
        name: Name,
        /// What the journal said.
        source: service::Error,
    },
    /// The objects are in, and the last checkpoint is not.
    #[error(
        "all objects are in the queue, but the store was not closed in good order; the next start takes longer"
    )]
    Closing,
    /// The metrics, without which no queue runs.
    #[error("can't set up the metrics")]
    Metrics(#[source] metrics_exporter_prometheus::BuildError),
}

/// Tells a folder without a store from one that may have one.
///
/// # Errors
/// [`Error`] says what there is instead.
pub fn survey(folder: &Path) -> Result<(), Error> {
    let at = || folder.to_owned();
    let unreadable = |source| Error::Unreadable { at: at(), source };
    match fs::metadata(folder) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(Error::NotAFolder { at: at() }),
        Err(said) if said.kind() == io::ErrorKind::NotFound => return Err(Error::Missing { at: at() }),
        Err(said) => return Err(unreadable(said)),
    }
    let database = folder.join("deltaq.db");
    // To open a pipe may wait for ever.
    if fs::metadata(&database).is_ok_and(|found| !found.is_file()) {
        return Err(Error::NoStore { at: at() });
    }
    match File::open(&database) {
        Ok(_) => return Ok(()),
        Err(said) if said.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(Error::Unreadable { at: database, source }),
    }
    let is_there = |name: &&str| fs::metadata(folder.join(name)).is_ok_and(|found| found.len() > 0);
    if let Some(beside) = ["deltaq.db-wal", "deltaq.mark"].into_iter().find(is_there) {
        return Err(Error::Beheaded { at: at(), beside });
    }
    match fs::read_dir(folder).map_err(unreadable)?.next() {
        None => Err(Error::Empty { at: at() }),
        Some(_) => Err(Error::NoStore { at: at() }),
    }
}
