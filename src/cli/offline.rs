//! `deltaq check`, `backup`, `export` and `import`: flags and execution.
//!
//! Results go to stdout and errors to stderr. The exit code is 0 for success, 1 for failure or damage, and 2 for
//! wrong usage.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, FromArgMatches, error::ErrorKind};
use deltaq_engine::config::Config;
use deltaq_journal::offline::{self, Location, backup, check, dump, export};
use deltaq_runtime::clock::Clock;
use deltaq_service::import;
use deltaq_types::name::Name;

use super::client;
use crate::config::{self, Flags, Log, LogFormat, LogLevel};
use crate::http;
use crate::telemetry;

type Failure = Box<dyn std::error::Error>;

/// The flags for the location of the store.
#[derive(Debug, Clone, Args)]
struct StoreFlags {
    /// Directory of the store, as for `deltaq serve --data-dir`.
    #[arg(long, value_name = "DIR", env = "DELTAQ_STORAGE__DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// PostgreSQL database of the store, as for `deltaq serve --store`.
    #[arg(long, value_name = "URL", env = "DELTAQ_STORAGE__STORE")]
    store: Option<String>,
}

/// The store of a command. `None` only if the command reads a backup or asks a server instead.
#[derive(Debug, Clone)]
pub struct StoreArgs(Option<Location>);

impl StoreArgs {
    fn get(&self) -> Result<&Location, Failure> {
        self.0.as_ref().ok_or_else(|| "there is neither --data-dir nor --store".into())
    }
}

impl Args for StoreArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        StoreFlags::augment_args(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        StoreFlags::augment_args_for_update(command)
    }
}

impl FromArgMatches for StoreArgs {
    /// A flag takes precedence over a variable. If both variables are set, the database is used. The settings of a
    /// server follow the same rules.
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let StoreFlags { data_dir, store } = StoreFlags::from_arg_matches(matches)?;
        let is_flag = |name| matches.value_source(name) == Some(ValueSource::CommandLine);
        let wrong = |kind, what: &str| clap::Error::raw(kind, format!("{what}\n"));
        let is_asking = matches!(matches.try_get_one::<bool>("settings"), Ok(Some(true)));
        if is_asking && (is_flag("data_dir") || is_flag("store")) {
            let what =
                "--settings asks a running server: name it with --url, and leave out --data-dir and --store";
            return Err(wrong(ErrorKind::ArgumentConflict, what));
        }
        let location = match (data_dir, store) {
            (Some(_), Some(_)) if is_flag("data_dir") && is_flag("store") => {
                let what = "--data-dir and --store exclude each other: a store is in one of them";
                return Err(wrong(ErrorKind::ArgumentConflict, what));
            }
            (Some(folder), store) if is_flag("data_dir") || store.is_none() => Location::Folder(folder),
            // If clap parsed the value, its errors would show it, and it may contain a password.
            (_, Some(url)) => Location::database(&url)
                .map_err(|error| wrong(ErrorKind::ValueValidation, &format!("--store: {error}")))?,
            (_, None) if matches!(matches.try_get_one::<PathBuf>("backup"), Ok(Some(_))) => {
                return Ok(Self(None));
            }
            (_, None) if is_asking => return Ok(Self(None)),
            (_, None) => {
                let what = "the store is missing: --data-dir DIR or --store URL";
                return Err(wrong(ErrorKind::MissingRequiredArgument, what));
            }
        };
        Ok(Self(Some(location)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// `deltaq check`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = CHECK_HELP)]
pub struct Check {
    /// The store.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Check a backup file instead of a store.
    #[arg(long, value_name = "FILE")]
    pub backup: Option<PathBuf>,
}

const CHECK_HELP: &str = "\
The check changes nothing. It reads every page and index of the database; every row of every table, with
its checksum, format, text and position; and deltaq.mark, which records the last commit. Then it loads
each queue into memory, one after the other, as a start does. So it needs as much memory as the largest
queue, and reads the whole file.

A server may run: the check reads a snapshot of the store (the WAL grows meanwhile). In PostgreSQL the check
reads every row of every table in one transaction, without indexes, and compares the counts with the
indexes; pg_amcheck checks the structure of the files.

Each finding is a line with table, row, queue and key. \"damage (history only)\" is in rows that a start no
longer needs: the state is complete, and only the history of keys is shorter. A \"note\" is not damage.

Exit code: 0 no damage, 1 damage found or the check failed, 2 wrong usage.

Examples:
  deltaq check --data-dir /var/lib/deltaq
  deltaq check --store postgres://deltaq@db.example/deltaq
  deltaq check --backup /backup/deltaq-monday.db";

/// `deltaq backup`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = BACKUP_HELP)]
pub struct Backup {
    /// The store.
    #[command(flatten)]
    pub store: StoreArgs,
    /// The file to write. It must not exist.
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
}

const BACKUP_HELP: &str = "\
Copies a store in a data directory. A store in PostgreSQL is refused: it is backed up with pg_dump or a base
backup. The copy is a snapshot of the store, whether a server runs or not. A running server continues; its WAL
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
    pub store: StoreArgs,
    /// Export only the known objects of this queue [default: the whole store].
    #[arg(long, value_name = "NAME")]
    pub queue: Option<Name>,
    /// The file to write. It must not exist [default: stdout].
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
    /// Print the settings of all queues of a running server, as `deltaq apply` reads them.
    #[arg(long, conflicts_with_all = ["queue", "to"])]
    pub settings: bool,
    /// The running server, for --settings.
    #[command(flatten)]
    pub connection: client::Connection,
}

const EXPORT_HELP: &str = "\
Without --queue, writes the whole store: all queues with their settings, known objects, waiting, leased and
parked keys, history and numbers. `deltaq import` reads the export into an empty directory or database. So a store
can move from a data directory to PostgreSQL, or back, and a server continues there with the same leases:
  deltaq export --data-dir /var/lib/deltaq | deltaq import --store postgres://deltaq@db.example/deltaq
The store must be stopped. Every row is checked first. Never start a server on both stores.

With --queue, writes the objects that consumers acknowledged last, in the order of their keys, one JSON
document per line:
  {\"key\":\"sku-1\",\"source\":\"erp\",\"object\":{\"key\":\"sku-1\",\"price\":10}}
`deltaq import --queue` and POST /v1/queues/NAME/seed read this format. An object is written as it was sent, byte
for byte, except that line breaks between its members become spaces. Waiting and leased objects are not
known objects and are not written.

With --settings, prints what `deltaq queue settings` prints: the settings of all queues of a running server, in one JSON
document. It is a file of `deltaq apply`, which changes nothing with it.

A store in a data directory must be stopped. A running server has the same list:
  curl -H 'accept: application/x-ndjson' localhost:7070/v1/queues/NAME/known
The store is not changed. The queue must fit into memory.

Exit code: 0 success, 1 failure, 2 wrong usage.";

/// `deltaq import`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = IMPORT_HELP)]
pub struct Import {
    /// The store.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Import known objects into this queue [default: import a whole store].
    #[arg(long, value_name = "NAME")]
    pub queue: Option<Name>,
    /// The file to read [default: stdin].
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Settings file of the server. Its section queue_defaults applies to a new queue.
    #[arg(long, value_name = "FILE", env = "DELTAQ_CONFIG")]
    pub config: Option<PathBuf>,
    /// Number of partitions of a PostgreSQL database: the most nodes that can own queues; only for a whole store.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(i16).range(1..=1_024))]
    pub partitions: i16,
}

const IMPORT_HELP: &str = "\
Without --queue, reads a whole store of `deltaq export` into a missing or empty directory, an empty database, or a
store in which no queue was created. The queues appear with the last commit, after the last line and the checksum
of all lines were read. If the import fails, the store has no queues, and the import can be repeated.
With --partitions 12 the database is for several nodes (serve --node-name); the number can't be changed later.

With --queue, sets known objects without queueing deltas, by the rules of POST /v1/queues/NAME/seed: one
line each, {\"key\":..,\"source\":..,\"object\":..}; key and source are optional. A missing queue is created. The queue
must have no waiting, leased or parked keys. Known objects of other keys are kept.

The import is atomic. If a line is invalid, its number is reported and nothing is imported. All objects are one
commit, so after a crash the store has all of them or none. The import needs about three times the bytes of the
objects in memory, in addition to the queues of the store.

A missing or empty directory or database becomes a new store. An existing store must be stopped; the import
closes it cleanly. For a directory, run the import as the user of the server, so that this user owns the files.

Exit code: 0 success, 1 failure, 2 wrong usage.";

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

/// Prints a line immediately. If stdout is closed, the exit code still reports the result.
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
            match &self.backup {
                Some(file) => Ok(check::check_backup(file, &clock, &mut print_line).await?),
                None => Ok::<_, Failure>(check::check(self.store.get()?, &clock, &mut print_line).await?),
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
        let copying = backup::backup(self.store.get()?, &self.to, &clock, &mut print_line);
        let (bytes, found) = runtime()?.block_on(copying)?;
        let (to, took) = (self.to.display(), clock.since(begun_us).as_secs_f64());
        print(&format!("copied {bytes} bytes to {to} in {took:.1} s"));
        let code = report(&found);
        if found.is_good()
            && let Err(error) = backup::note(self.store.get()?, &clock)
        {
            eprintln!(
                "deltaq: warning: the time of the backup can't be noted in the data directory, so the server does not show it: {error}"
            );
        }
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
        if self.settings {
            return Ok(client::print_settings(&self.connection));
        }
        let mut warn = |line: String| eprintln!("deltaq: warning: {line}");
        let Some(name) = &self.queue else { return self.whole_store() };
        let queue = runtime()?.block_on(export::load(self.store.get()?, name, &mut warn))?;
        match &self.to {
            None => {
                export::to_stdout(&queue)?;
            }
            Some(to) => {
                let written = export::to_file(&queue, to)?;
                print(&format!("{written} objects of queue {name} are in {}", to.display()));
            }
        }
        // The process is about to end, so freeing a large queue would be a waste of time.
        std::mem::forget(queue);
        Ok(ExitCode::SUCCESS)
    }

    fn whole_store(&self) -> Result<ExitCode, Failure> {
        // Standard output may be receiving the store.
        let mut print_damage = |line: String| {
            if !line.starts_with("note: ") {
                eprintln!("{line}");
            }
        };
        let (to, clock) = (self.to.as_deref(), Clock::system());
        let exporting = dump::export(self.store.get()?, to, &clock, &mut print_damage);
        let counts = runtime()?.block_on(exporting)?;
        if let Some(to) = to {
            print(&format!("{counts} are in {}", to.display()));
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Import {
    /// Reads known objects into the queue.
    ///
    /// # Errors
    /// Nothing was imported.
    pub fn run(&self) -> Result<ExitCode, Failure> {
        let store = self.store.get()?;
        if self.partitions > 1 && (self.queue.is_some() || matches!(store, Location::Folder(_))) {
            return Err("--partitions is only for a whole store (no --queue) in PostgreSQL (--store)".into());
        }
        let mut input: Box<dyn BufRead> = match &self.from {
            None => Box::new(io::stdin().lock()),
            Some(from) => {
                let unreadable = |source| offline::Error::Unreadable { at: from.clone(), source };
                Box::new(BufReader::new(File::open(from).map_err(unreadable)?))
            }
        };
        let Some(queue) = &self.queue else {
            let counts = runtime()?.block_on(dump::import(store, self.partitions, &mut input))?;
            print(&format!("imported {counts}"));
            return Ok(ExitCode::SUCCESS);
        };
        let data_dir = match store {
            Location::Folder(folder) => Some(folder.clone()),
            Location::Postgres(_) => None,
        };
        let flags = Flags { data_dir, ..Flags::default() };
        let settings = config::load(self.config.as_deref(), config::variables(), &flags, None)?;
        let log = Log { format: LogFormat::Human, level: LogLevel::Warn };
        telemetry::init(log, config::rust_log().as_deref())?;
        let defaults = Config::compile(&settings.queue_defaults)?;
        let rules = import::Rules { defaults, max_queues: settings.queues.max_queues, read: http::read_seed };
        let clock = Clock::system();
        let count = runtime()?.block_on(import::import(store, queue, rules, &mut input, &clock))?;
        print(&format!("{count} objects are in queue {queue}"));
        Ok(ExitCode::SUCCESS)
    }
}
