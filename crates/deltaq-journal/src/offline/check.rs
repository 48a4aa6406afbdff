//! `deltaq check`: lists all damage of a store.
//!
//! The check reads every row of every table and compares it with its checksum, its format and the neighbouring rows.
//! Then it loads each queue in the same way as a starting server. It works on a snapshot and changes nothing. It does
//! not repair damage; it reports the damage and the remedy.

mod links;
mod rows;
mod texts;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use deltaq_engine::id::Rv;
use deltaq_runtime::causes::with_causes;
use deltaq_runtime::clock::Clock;

use super::{Error, Location, stores};
use crate::record::Decoder;
use crate::recovery::{self, Progress};
use crate::snapshot::{Finding, Snapshot};
use crate::store::{self, QueueId, QueueRow};
use crate::text_id::TextId;

/// How thoroughly a store is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Every row by itself and in relation to its neighbours.
    Rows,
    /// In addition, every queue as a whole, by loading it.
    Queues,
}

/// The result of a check, in numbers.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Number of queues that are not deleted.
    pub queues: u64,
    /// Number of keys of the loaded queues; `None` if no queues were loaded.
    pub keys: Option<u64>,
    /// Number of entries of keys in the runs of checkpoints. A key that has changed since a run may have several.
    pub entries: u64,
    /// Number of journal rows.
    pub journal_rows: u64,
    /// Number of events in these rows.
    pub events: u64,
    /// Number of findings of damage.
    pub damage: u64,
    /// Number of these findings that affect only the history of keys.
    pub history_only: u64,
    /// Number of these findings that affect nothing, because nothing needs what is damaged.
    pub unused_only: u64,
    /// The names of the queues that can be loaded.
    pub whole: Vec<String>,
    /// The duration of the check.
    pub took: Duration,
}

impl Report {
    /// Adds the report of another partition.
    fn add(&mut self, other: Self) {
        self.queues += other.queues;
        self.keys =
            self.keys.zip(other.keys).map(|(keys, others)| keys + others).or(self.keys).or(other.keys);
        self.entries += other.entries;
        self.journal_rows += other.journal_rows;
        self.events += other.events;
        self.damage += other.damage;
        self.history_only += other.history_only;
        self.unused_only += other.unused_only;
        self.whole.extend(other.whole);
        self.took += other.took;
    }
}

/// The consequence of a finding for the next start, the least one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Severity {
    /// No row needs the damaged text.
    Unused,
    /// The checkpoint is newer than the damaged row, so only the history of keys is affected.
    History,
    /// A queue can't be loaded or trusted.
    State,
}

/// What the check knows about a queue.
#[derive(Debug, Default)]
struct Known {
    name: Option<String>,
    is_deleted: bool,
    /// The queue's row, if it is intact.
    row: Option<QueueRow>,
    /// The event at which the checkpoint began.
    checkpoint_rv: Rv,
    /// The numbers of the runs of the checkpoint.
    runs: Range<u64>,
    /// Number of these runs that were found.
    found_runs: u64,
    /// The newest event in any row of the checkpoint.
    newest_rv: Rv,
    /// Whether the damage can make a load fail.
    is_damaged: bool,
}

/// What the check knows about a text in table `texts`.
#[derive(Debug, Default)]
struct KnownText {
    /// The place of the row and what is wrong with it.
    damage: Option<String>,
    /// The most severe loss if the text is damaged, and the first row that refers to the text.
    needed_by: Option<(Severity, String)>,
}

struct Examiner<'a> {
    snapshot: &'a dyn Snapshot,
    print: &'a mut dyn FnMut(String),
    decoder: Decoder,
    queues: BTreeMap<QueueId, Known>,
    texts: HashMap<TextId, KnownText>,
    /// Journal rows whose position can't be trusted.
    damaged_rows: HashSet<i64>,
    report: Report,
}

/// Checks a store. A server may use the store during the check.
///
/// # Errors
/// An error that describes what is in the folder instead of a store; [`Error::Store`] if nothing can be read.
pub async fn check(at: &Location, clock: &Clock, print: &mut dyn FnMut(String)) -> Result<Report, Error> {
    let advice = |error| match error {
        Error::Store(error) => without_check_advice(error),
        error => error,
    };
    let mut snapshot = stores::snapshot(at).await.map_err(advice)?;
    let mut report = Report::default();
    // A note that several partitions repeat is printed once.
    let mut notes = HashSet::new();
    let print = &mut |line: String| {
        if !line.starts_with("note: ") || notes.insert(line.clone()) {
            print(line);
        }
    };
    for partition in 1.. {
        if let Some(holder) = snapshot.server() {
            print(format!("note: {holder} uses the store; this is its content when the check began"));
        }
        report.add(examine(snapshot.as_ref(), Depth::Queues, clock, print).await);
        snapshot.close().await;
        match stores::snapshot_of(at, partition).await.map_err(advice)? {
            Some(next) => snapshot = next,
            None => break,
        }
    }
    Ok(report)
}

/// Checks a backup.
///
/// # Errors
/// [`Error::Store`] if nothing can be read.
pub async fn check_backup(
    file: &Path,
    clock: &Clock,
    print: &mut dyn FnMut(String),
) -> Result<Report, Error> {
    let unreadable = |source| Error::Unreadable { at: file.to_owned(), source };
    std::fs::File::open(file).map_err(unreadable)?;
    let snapshot = stores::snapshot_of_backup(file).await.map_err(without_check_advice)?;
    let report = examine(snapshot.as_ref(), Depth::Queues, clock, print).await;
    snapshot.close().await;
    Ok(report)
}

/// Removes the advice to run `deltaq check`, because this is that command.
fn without_check_advice(error: store::Error) -> Error {
    match error {
        store::Error::Damaged { .. } => {
            let found = format!("{}: nothing can be read. Restore a backup", error.without_remedy());
            store::Error::Damaged { found }.into()
        }
        error => error.into(),
    }
}

/// Checks a snapshot. `print` receives each finding immediately, as one line.
pub async fn examine(
    snapshot: &dyn Snapshot,
    depth: Depth,
    clock: &Clock,
    print: &mut dyn FnMut(String),
) -> Report {
    let begun_us = clock.monotonic_us();
    let mut examiner = Examiner {
        snapshot,
        print,
        decoder: Decoder::new(),
        queues: BTreeMap::new(),
        texts: HashMap::new(),
        damaged_rows: HashSet::new(),
        report: Report::default(),
    };
    examiner.check_store().await;
    examiner.check_rows().await;
    let ids: Vec<QueueId> = examiner.queues.keys().copied().collect();
    for id in &ids {
        examiner.check_links(*id).await;
    }
    if depth == Depth::Queues {
        examiner.report.keys = Some(0);
        for id in &ids {
            examiner.load(*id).await;
        }
    }
    let mut report = examiner.report;
    report.took = clock.since(begun_us);
    report
}

impl Examiner<'_> {
    async fn check_store(&mut self) {
        for finding in self.snapshot.findings() {
            match finding {
                Finding::Damage(what) => self.damage(None, Severity::State, &what),
                Finding::Note(what) => (self.print)(format!("note: {what}")),
            }
        }
        for what in self.snapshot.integrity().await {
            self.damage(None, Severity::State, &what);
        }
    }

    /// Records that the database can't be read any further.
    fn unreadable(&mut self, place: &str, error: &store::Error) {
        let error = error.without_remedy();
        self.damage(None, Severity::State, &format!("{place}: can't be read to its end: {error}"));
    }

    fn damage(&mut self, queue: Option<QueueId>, severity: Severity, what: &str) {
        self.report.damage += 1;
        let label = match severity {
            Severity::State => "damage",
            Severity::History => {
                self.report.history_only += 1;
                "damage (history only)"
            }
            Severity::Unused => {
                self.report.unused_only += 1;
                "damage (nothing lost)"
            }
        };
        let known = queue.and_then(|queue| self.queues.get_mut(&queue));
        let mut place = String::new();
        if let Some(known) = known {
            known.is_damaged |= severity == Severity::State;
            place = known.name.as_ref().map(|name| format!("queue {name}, ")).unwrap_or_default();
        }
        (self.print)(format!("{label}: {place}{what}"));
    }

    /// Loads a queue in the same way as a starting server.
    async fn load(&mut self, id: QueueId) {
        let Some(known) = self.queues.get_mut(&id) else { return };
        let (Some(row), was_damaged) = (known.row.take(), known.is_damaged) else { return };
        match recovery::load(self.snapshot.reader(), &row, &Progress::default()).await {
            Ok(loaded) => {
                self.report.keys = self.report.keys.map(|keys| keys + loaded.queue.keys() as u64);
                self.report.whole.push(row.name.to_string());
            }
            // The load error would only repeat damage that was already reported.
            Err(_) if was_damaged => {}
            Err(error) => {
                let what = match &error {
                    recovery::Error::Read(error @ store::Error::Damaged { .. }) => error.without_remedy(),
                    error => with_causes(error),
                };
                self.damage(Some(id), Severity::State, &format!("it can't be loaded: {what}"));
            }
        }
    }
}

impl Report {
    /// Whether there is no damage.
    #[must_use]
    pub const fn is_good(&self) -> bool {
        self.damage == 0
    }

    /// The remedy, if there is damage.
    #[must_use]
    pub fn advice(&self) -> Option<String> {
        if self.is_good() {
            return None;
        }
        if self.damage == self.unused_only {
            let text = "what to do: nothing is lost and a server starts; it removes the texts that no row needs within \
                        minutes. Watch the disk";
            return Some(text.to_owned());
        }
        if self.damage == self.history_only + self.unused_only {
            let text = "what to do: the state of all queues is whole and a server starts; until the retention removes \
                        these rows, the history of keys breaks off at a damaged row (GET /history answers 500), and an \
                        event with a damaged text has the object null. Watch the disk, and take a backup, which has \
                        the same gaps";
            return Some(text.to_owned());
        }
        let mut text =
            "what to do: `serve` refuses a damaged store. Stop the server, move the data directory away \
                        whole, and restore the newest good backup (`deltaq backup --help`)"
                .to_owned();
        if !self.whole.is_empty() {
            text.push_str(
                ". Without one, `deltaq export` gives the known objects of queues that can still be loaded: ",
            );
            text.push_str(&self.whole.join(", "));
        }
        Some(text)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.damage {
            0 => write!(f, "no damage")?,
            damage => write!(f, "{damage} findings of damage")?,
        }
        if self.history_only > 0 {
            write!(f, ", {} of them in history only", self.history_only)?;
        }
        if self.unused_only > 0 {
            write!(f, ", {} of them without any loss", self.unused_only)?;
        }
        let Self { queues, keys, entries, journal_rows, events, took, .. } = self;
        let took = took.as_secs_f64();
        write!(f, ": {queues} queues")?;
        if let Some(keys) = keys {
            write!(f, " with {keys} keys")?;
        }
        write!(
            f,
            ", {entries} entries in checkpoints, {journal_rows} journal rows, {events} events in {took:.1} s"
        )
    }
}
