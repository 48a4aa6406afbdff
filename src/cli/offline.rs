//! `deltaq check`, `backup`, `export` and `import`: what they take, and doing it.
//!
//! What is asked for goes to the standard output. Reasons why it comes to nothing go to the standard
//! error, and the exit code says how it went: 0 fine, 1 failed or damage found, 2 not understood.

use std::fs::File;
use std::io::{self, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::clock::Clock;
use crate::config::{self, Flags, Log, LogFormat, LogLevel};
use crate::http;
use crate::http::wire::config::to_engine;
use crate::name::Name;
use crate::offline::{self, backup, check, export, import};
use crate::telemetry;

type Failure = Box<dyn std::error::Error>;

/// Where the store is.
#[derive(Debug, Clone, Args)]
pub struct DataDir {
    /// The folder of the store, as `deltaq serve --data-dir` has it.
    #[arg(long, value_name = "DIR", env = "DELTAQ_STORAGE__DATA_DIR")]
    pub data_dir: PathBuf,
}

/// `deltaq check`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = CHECK_HELP)]
pub struct Check {
    /// The folder of the store, as `deltaq serve --data-dir` has it.
    #[arg(long, value_name = "DIR", env = "DELTAQ_STORAGE__DATA_DIR", required_unless_present = "backup")]
    pub data_dir: Option<PathBuf>,
    /// Look at a backup instead, which is one file.
    #[arg(long, value_name = "FILE")]
    pub backup: Option<PathBuf>,
}

const CHECK_HELP: &str = "\
Nothing is changed. Read is: every page and index of the database; every row of every table, with its
checksum, format, text, and its place between the other rows; deltaq.mark, which says how far the store
had come; then every queue is loaded in memory, one after the other, as a start would load it. So it
needs as much memory as the largest queue, and reads the whole file.

A server may run: then the store is looked at as it is when the check begins (its WAL grows meanwhile).

Each finding is a line: what, in which table, row, queue and key. The line \"damage (history only)\" is
about rows that no start needs any more: the state is whole, and only the history of keys breaks off.
Lines with \"note\" are no damage.

Exit code: 0 no damage, 1 damage found or the check failed, 2 wrong usage.

Examples:
  deltaq check --data-dir /var/lib/deltaq
  deltaq check --backup /backup/deltaq-monday.db";

/// `deltaq backup`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = BACKUP_HELP)]
pub struct Backup {
    /// Where the store is.
    #[command(flatten)]
    pub store: DataDir,
    /// The file to write; there must be none.
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
}

const BACKUP_HELP: &str = "\
The copy is the store as it is at one instant, whether a server runs or not. The server goes on; until
the copy is complete its WAL grows, by as much as is written meanwhile. Everything that was answered
before the backup began is in the copy. Every row of the copy is checked.

Exit code: 0 the copy is good; 1 it failed and left no file, or the copy has damage that the store has
(each finding is a line, and the copy is kept); 2 wrong usage.

To restore a backup:
  1. Stop the server.
  2. Move the data directory away, whole:       mv /var/lib/deltaq /var/lib/deltaq.old
  3. Make an empty one for the server's user:   install -d -m 700 -o deltaq -g deltaq /var/lib/deltaq
  4. Put the copy into it as deltaq.db:         install -m 600 -o deltaq -g deltaq FILE /var/lib/deltaq/deltaq.db
  5. Look at it:                                deltaq check --data-dir /var/lib/deltaq
  6. Start the server.
Nothing else goes into the folder: a deltaq.db-wal or deltaq.mark of another store does harm.
What happened after the backup is gone: producers should send their whole lists again (/replace), and
workers that hold leases from after it are told that they are unknown.";

/// `deltaq export`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = EXPORT_HELP)]
pub struct Export {
    /// Where the store is.
    #[command(flatten)]
    pub store: DataDir,
    /// The queue.
    #[arg(long, value_name = "NAME")]
    pub queue: Name,
    /// The file to write; there must be none. Without it, the standard output.
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
}

const EXPORT_HELP: &str = "\
Writes what consumers acknowledged last, in the order of the keys, one JSON document a line:
  {\"key\":\"sku-1\",\"source\":\"erp\",\"object\":{\"key\":\"sku-1\",\"price\":10}}
This is what `deltaq import` and POST /v1/queues/NAME/seed take. An object is as it was sent, byte for
byte, but for line breaks between its members, which become spaces. What waits or is leased is no known
object and is not in it.

The store must be stopped. A running server gives the same itself:
  curl -H 'accept: application/x-ndjson' localhost:7070/v1/queues/NAME/known
Nothing in the store is changed. The queue must fit into memory.

Exit code: 0 all is written, 1 it failed, 2 wrong usage.";

/// `deltaq import`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = IMPORT_HELP)]
pub struct Import {
    /// Where the store is.
    #[command(flatten)]
    pub store: DataDir,
    /// The queue.
    #[arg(long, value_name = "NAME")]
    pub queue: Name,
    /// The file to read. Without it, the standard input.
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// The settings file of the server: a new queue is made with its queue_defaults.
    #[arg(long, value_name = "FILE", env = "DELTAQ_CONFIG")]
    pub config: Option<PathBuf>,
}

const IMPORT_HELP: &str = "\
Puts known objects in place, without a delta, as POST /v1/queues/NAME/seed does and by the same rules:
a line for each, {\"key\":..,\"source\":..,\"object\":..}; key and source may be left out. A queue that is
not there is made. Nothing may wait, be leased or parked in it. Known objects of other keys stay.

All lines or none: a line that is wrong is named by its number and nothing is imported; and all objects
are one commit, so that a crash, too, leaves all or none. It takes about three times the bytes of the
objects in memory, beside the queues of the store.

The store must be stopped and is closed in good order again. Run it as the user of the server, so that
the files stay its own.

Exit code: 0 all is imported, 1 it failed, 2 wrong usage.";

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

/// Prints a line as it comes. Whoever reads may have left, and then the exit code still tells.
fn print(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

fn report(found: &check::Report) -> ExitCode {
    print(&found.to_string());
    match found.advice() {
        None => ExitCode::SUCCESS,
        Some(advice) => {
            print(&advice);
            ExitCode::FAILURE
        }
    }
}

impl Check {
    /// Looks, and prints what is found.
    ///
    /// # Errors
    /// Why nothing can be looked at.
    pub fn run(&self) -> Result<ExitCode, Failure> {
        let clock = Clock::system();
        let mut tell = |line: String| print(&line);
        let found = runtime()?.block_on(async {
            match (&self.backup, &self.data_dir) {
                (Some(file), _) => check::check_backup(file, &clock, &mut tell).await,
                (None, folder) => {
                    let folder = folder.as_deref().unwrap_or(Path::new("."));
                    check::check(folder, &clock, &mut tell).await
                }
            }
        })?;
        Ok(report(&found))
    }
}

impl Backup {
    /// Copies, and prints what the copy is like.
    ///
    /// # Errors
    /// Why there is no copy.
    pub fn run(&self) -> Result<ExitCode, Failure> {
        let clock = Clock::system();
        let begun_us = clock.monotonic_us();
        let mut tell = |line: String| {
            // That a copy has no mark is so by nature.
            if !line.starts_with("note: ") {
                print(&line);
            }
        };
        let copying = backup::backup(&self.store.data_dir, &self.to, &clock, &mut tell);
        let (bytes, found) = runtime()?.block_on(copying)?;
        let (to, took) = (self.to.display(), clock.since(begun_us).as_secs_f64());
        print(&format!("copied {bytes} bytes to {to} in {took:.1} s"));
        let code = report(&found);
        if !found.is_good() {
            print("the copy is kept: it has the damage that the store has. Keep older backups, too");
        }
        Ok(code)
    }
}

impl Export {
    /// Writes the known objects.
    ///
    /// # Errors
    /// Why they are not written, or not all.
    pub fn run(&self) -> Result<ExitCode, Failure> {
        let mut warn = |line: String| eprintln!("deltaq: warning: {line}");
        let queue = runtime()?.block_on(export::load(&self.store.data_dir, &self.queue, &mut warn))?;
        match &self.to {
            None => {
                export::to_stdout(&queue)?;
            }
            Some(to) => {
                let written = export::to_file(&queue, to)?;
                print(&format!("{written} objects of queue {} are in {}", self.queue, to.display()));
            }
        }
        // The process ends: to take a large queue apart first would be for nothing.
        std::mem::forget(queue);
        Ok(ExitCode::SUCCESS)
    }
}

impl Import {
    /// Reads known objects into the queue.
    ///
    /// # Errors
    /// Why nothing was imported.
    pub fn run(&self) -> Result<ExitCode, Failure> {
        let flags = Flags { data_dir: Some(self.store.data_dir.clone()), ..Flags::default() };
        let settings = config::load(self.config.as_deref(), config::variables(), &flags)?;
        let log = Log { format: LogFormat::Human, level: LogLevel::Warn };
        telemetry::init(log, config::rust_log().as_deref())?;
        let defaults = to_engine(&settings.queue_defaults);
        let defaults = defaults
            .map_err(|problem| format!("the settings in queue_defaults are refused: {}", problem.detail()))?;
        let rules = import::Rules { defaults, max_queues: settings.queues.max_queues, read: http::read_seed };
        let clock = Clock::system();
        let (folder, queue) = (&self.store.data_dir, &self.queue);
        let runtime = runtime()?;
        let count = match &self.from {
            None => runtime.block_on(import::import(folder, queue, rules, io::stdin().lock(), &clock))?,
            Some(from) => {
                let unreadable = |source| offline::Error::Unreadable { at: from.clone(), source };
                let input = BufReader::new(File::open(from).map_err(unreadable)?);
                runtime.block_on(import::import(folder, queue, rules, input, &clock))?
            }
        };
        print(&format!("{count} objects are in queue {queue}"));
        Ok(ExitCode::SUCCESS)
    }
}
