//! `deltaq check`, `backup`, `export` and `import`: flags and execution.
//!
//! Results go to stdout and errors to stderr. The exit code is 0 for success, 1 for failure or damage, 2 for wrong usage.

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

/// The store.
#[derive(Debug, Clone, Args)]
pub struct DataDir {
    /// Directory of the store, as for `deltaq serve --data-dir`.
    #[arg(long, value_name = "DIR", env = "DELTAQ_STORAGE__DATA_DIR")]
    pub data_dir: PathBuf,
}

/// `deltaq check`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = CHECK_HELP)]
pub struct Check {
    /// Directory of the store, as for `deltaq serve --data-dir`.
    #[arg(long, value_name = "DIR", env = "DELTAQ_STORAGE__DATA_DIR", required_unless_present = "backup")]
    pub data_dir: Option<PathBuf>,
    /// Check a backup, which is one file, instead.
    #[arg(long, value_name = "FILE")]
    pub backup: Option<PathBuf>,
}

const CHECK_HELP: &str = "\
The check changes nothing. It reads every page and index of the database; every row of every table, with
its checksum, format, text and position; and deltaq.mark, which records the last commit. Then it loads
each queue into memory, one after the other, as a start does. So it needs as much memory as the largest
queue, and reads the whole file.

A server may run: the check reads a snapshot of the store (the WAL grows meanwhile).

Each finding is a line with table, row, queue and key. \"damage (history only)\" is in rows that a start no
longer needs: the state is complete, and only the history of keys is shorter. A \"note\" is not damage.

Exit code: 0 no damage, 1 damage found or the check failed, 2 wrong usage.

Examples:
  deltaq check --data-dir /var/lib/deltaq
  deltaq check --backup /backup/deltaq-monday.db";

/// `deltaq backup`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = BACKUP_HELP)]
pub struct Backup {
    /// The store.
    #[command(flatten)]
    pub store: DataDir,
    /// The file to write; it must not exist.
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
}

const BACKUP_HELP: &str = "\
The copy is a snapshot of the store, whether a server runs or not. A running server continues; its WAL
grows until the copy is complete. The copy has every change whose response was sent before the backup
began. Every row of the copy is checked.

Exit code: 0 the copy is good; 1 the backup failed and left no file, or the store is damaged and so is
the copy (each finding is a line, and the copy is kept); 2 wrong usage.

To restore a backup:
  1. Stop the server.
  2. Move the whole data directory away:        mv /var/lib/deltaq /var/lib/deltaq.old
  3. Create one for the server's user:          install -d -m 700 -o deltaq -g deltaq /var/lib/deltaq
  4. Put the copy into it as deltaq.db:         install -m 600 -o deltaq -g deltaq FILE /var/lib/deltaq/deltaq.db
  5. Check it:                                  deltaq check --data-dir /var/lib/deltaq
  6. Start the server.
Put nothing else into the directory: a deltaq.db-wal or deltaq.mark of another store damages the store. Changes
after the backup are lost: producers should send their complete lists again (/replace), and leases that
began after the backup are unknown.";

/// `deltaq export`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = EXPORT_HELP)]
pub struct Export {
    /// The store.
    #[command(flatten)]
    pub store: DataDir,
    /// The queue.
    #[arg(long, value_name = "NAME")]
    pub queue: Name,
    /// The file to write; it must not exist. Without it, stdout.
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
}

const EXPORT_HELP: &str = "\
Writes the objects that consumers acknowledged last, in the order of their keys, one JSON document per line:
  {\"key\":\"sku-1\",\"source\":\"erp\",\"object\":{\"key\":\"sku-1\",\"price\":10}}
`deltaq import` and POST /v1/queues/NAME/seed read this format. An object is written as it was sent, byte
for byte, except that line breaks between its members become spaces. Waiting and leased objects are not
known objects and are not written.

The store must be stopped. A running server has the same list:
  curl -H 'accept: application/x-ndjson' localhost:7070/v1/queues/NAME/known
The store is not changed. The queue must fit into memory.

Exit code: 0 success, 1 failure, 2 wrong usage.";

/// `deltaq import`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = IMPORT_HELP)]
pub struct Import {
    /// The store.
    #[command(flatten)]
    pub store: DataDir,
    /// The queue.
    #[arg(long, value_name = "NAME")]
    pub queue: Name,
    /// The file to read. Without it, stdin.
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Settings file of the server, whose queue_defaults apply to a new queue.
    #[arg(long, value_name = "FILE", env = "DELTAQ_CONFIG")]
    pub config: Option<PathBuf>,
}

const IMPORT_HELP: &str = "\
Sets known objects without queueing deltas, by the rules of POST /v1/queues/NAME/seed: one line each,
{\"key\":..,\"source\":..,\"object\":..}; key and source are optional. A missing queue is created. The queue
must have no waiting, leased or parked keys. Known objects of other keys are kept.

The import is atomic: an invalid line is reported by its number and nothing is imported, and all objects are
one commit, so after a crash all objects or none are there. The import needs about three times the bytes of
the objects in memory, besides the queues of the store.

A missing or empty directory becomes a new store. An existing store must be stopped; the import closes it
cleanly. Run it as the user of the server, so that the server keeps owning the files.

Exit code: 0 success, 1 failure, 2 wrong usage.";

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

/// Prints a line at once. If stdout is closed, the exit code still has the result.
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
    /// Runs the check and prints the findings.
    ///
    /// # Errors
    /// The store can't be opened.
    pub fn run(&self) -> Result<ExitCode, Failure> {
        let clock = Clock::system();
        let mut print_line = |line: String| print(&line);
        let found = runtime()?.block_on(async {
            match (&self.backup, &self.data_dir) {
                (Some(file), _) => check::check_backup(file, &clock, &mut print_line).await,
                (None, folder) => {
                    let folder = folder.as_deref().unwrap_or(Path::new("."));
                    check::check(folder, &clock, &mut print_line).await
                }
            }
        })?;
        Ok(report(&found))
    }
}

impl Backup {
    /// Makes the copy, checks it, and prints the findings.
    ///
    /// # Errors
    /// The copy failed.
    pub fn run(&self) -> Result<ExitCode, Failure> {
        let clock = Clock::system();
        let begun_us = clock.monotonic_us();
        let mut print_line = |line: String| {
            // A copy never has a mark.
            if !line.starts_with("note: ") {
                print(&line);
            }
        };
        let copying = backup::backup(&self.store.data_dir, &self.to, &clock, &mut print_line);
        let (bytes, found) = runtime()?.block_on(copying)?;
        let (to, took) = (self.to.display(), clock.since(begun_us).as_secs_f64());
        print(&format!("copied {bytes} bytes to {to} in {took:.1} s"));
        let code = report(&found);
        if !found.is_good() {
            print("the copy is kept and has the damage of the store; keep older backups too");
        }
        Ok(code)
    }
}

impl Export {
    /// Writes the known objects.
    ///
    /// # Errors
    /// The export failed; the file may be incomplete.
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
        // The process ends, so freeing a large queue would only take time.
        std::mem::forget(queue);
        Ok(ExitCode::SUCCESS)
    }
}

impl Import {
    /// Reads known objects into the queue.
    ///
    /// # Errors
    /// Nothing was imported.
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
