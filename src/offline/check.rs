//! `deltaq check`: all that is wrong with a store, not only the first of it.
//!
//! Every row of every table is read and held against its checksum, its format and the rows around it; then
//! each queue is loaded as at a start. Nothing is changed and nothing is held but the instant that is
//! looked at. It is no repair: what is damaged is told, and what can be done.

mod links;
mod rows;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::path::Path;
use std::time::Duration;

use super::{Error, survey};
use crate::causes::with_causes;
use crate::clock::Clock;
use crate::engine::delta::Rv;
use crate::engine::key::Key;
use crate::journal::record::Decoder;
use crate::journal::recovery::{self, Progress};
use crate::journal::sqlite::{Remark, Snapshot, plain};
use crate::journal::store::{self, QueueId, QueueRow};

/// How thoroughly a store is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Every row by itself and between the others.
    Rows,
    /// Also every queue as a whole, loaded one after the other.
    Queues,
}

/// What was found, in numbers.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Queues that are not deleted.
    pub queues: u64,
    /// Keys: those of the queues as they were loaded, or else rows of them.
    pub keys: u64,
    /// Rows of the journal.
    pub journal_rows: u64,
    /// Events in them.
    pub events: u64,
    /// Findings of damage.
    pub damage: u64,
    /// Those among them that only touch the history of keys.
    pub history_only: u64,
    /// Queues that can be loaded, by name, if there is damage.
    pub whole: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

/// What a finding means for the next start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weight {
    /// A queue can't be loaded, or not be trusted.
    State,
    /// The state is behind it: only the history of keys is touched.
    History,
}

/// A queue, as far as it is known.
#[derive(Debug, Default)]
struct Known {
    name: Option<String>,
    is_deleted: bool,
    /// The row, if the queue can be loaded by it.
    row: Option<QueueRow>,
    /// The event as of which the row is.
    checkpoint_rv: Rv,
    /// The newest event that a row of the checkpoint knows of.
    newest_rv: Rv,
    /// Up to which event keys were gone.
    floors: HashMap<Key, Rv>,
    /// Whether something was found that a load would stumble over.
    is_damaged: bool,
}

struct Examiner<'a> {
    snapshot: &'a Snapshot,
    tell: &'a mut dyn FnMut(String),
    decoder: Decoder,
    queues: BTreeMap<QueueId, Known>,
    /// Rows of the journal that can't be trusted to say what is before and behind them.
    damaged_rows: HashSet<u64>,
    report: Report,
}

/// Looks for damage in the store in a folder. A server may have it: then it is looked at as of now.
///
/// # Errors
/// What [`survey`] says; [`Error::Store`] if nothing can be looked at at all.
pub async fn check(folder: &Path, clock: &Clock, tell: &mut dyn FnMut(String)) -> Result<Report, Error> {
    survey(folder)?;
    let snapshot = Snapshot::take(folder).await.map_err(unadvised)?;
    if let Some(holder) = snapshot.server() {
        tell(format!("note: {holder} has the store; this is what it held when the check began"));
    }
    let report = examine(&snapshot, Depth::Queues, clock, tell).await;
    snapshot.close().await;
    Ok(report)
}

/// Looks for damage in a backup.
///
/// # Errors
/// [`Error::Store`] if nothing can be looked at at all.
pub async fn check_backup(file: &Path, clock: &Clock, tell: &mut dyn FnMut(String)) -> Result<Report, Error> {
    let unreadable = |source| Error::Unreadable { at: file.to_owned(), source };
    std::fs::File::open(file).map_err(unreadable)?;
    let snapshot = Snapshot::of_backup(file).await.map_err(unadvised)?;
    let report = examine(&snapshot, Depth::Queues, clock, tell).await;
    snapshot.close().await;
    Ok(report)
}

/// Others send to `deltaq check`, which this is.
fn unadvised(error: store::Error) -> Error {
    match error {
        store::Error::Damaged { .. } => {
            let found = format!("{}: nothing can be read. Restore a backup", plain(&error));
            store::Error::Damaged { found }.into()
        }
        error => error.into(),
    }
}

/// Looks for damage; `tell` hears of each finding as it comes, one line each.
pub async fn examine(
    snapshot: &Snapshot,
    depth: Depth,
    clock: &Clock,
    tell: &mut dyn FnMut(String),
) -> Report {
    let begun_us = clock.monotonic_us();
    let (decoder, queues, damaged_rows) = (Decoder::new(), BTreeMap::new(), HashSet::new());
    let mut examiner = Examiner { snapshot, tell, decoder, queues, damaged_rows, report: Report::default() };
    examiner.look_at_the_whole().await;
    examiner.look_at_rows().await;
    let ids: Vec<QueueId> = examiner.queues.keys().copied().collect();
    for id in &ids {
        examiner.follow(*id).await;
    }
    if depth == Depth::Queues {
        examiner.report.keys = 0;
        for id in &ids {
            examiner.load(*id).await;
        }
    }
    let mut report = examiner.report;
    report.took = clock.since(begun_us);
    report
}

impl Examiner<'_> {
    async fn look_at_the_whole(&mut self) {
        for remark in self.snapshot.remarks() {
            match remark {
                Remark::Damage(what) => self.damage(None, Weight::State, &what),
                Remark::Note(what) => (self.tell)(format!("note: {what}")),
            }
        }
        let found = self.snapshot.integrity().await;
        self.found_in("the database as SQLite sees it", found);
        let found = self.snapshot.layout().await;
        self.found_in("the layout", found);
    }

    fn found_in(&mut self, place: &str, found: Result<Vec<String>, store::Error>) {
        match found {
            Ok(found) => {
                for what in found {
                    self.damage(None, Weight::State, &format!("{place}: {what}"));
                }
            }
            Err(error) => self.unreadable(place, &error),
        }
    }

    /// SQLite itself can't read on.
    fn unreadable(&mut self, place: &str, error: &store::Error) {
        let error = match error {
            store::Error::Damaged { .. } => plain(error),
            error => with_causes(error),
        };
        self.damage(None, Weight::State, &format!("{place}: can't be read to its end: {error}"));
    }

    fn damage(&mut self, queue: Option<QueueId>, weight: Weight, what: &str) {
        self.report.damage += 1;
        let mut label = "damage";
        if weight == Weight::History {
            self.report.history_only += 1;
            label = "damage (history only)";
        }
        let known = queue.and_then(|queue| self.queues.get_mut(&queue));
        let mut place = String::new();
        if let Some(known) = known {
            known.is_damaged |= weight == Weight::State;
            place = known.name.as_ref().map(|name| format!("queue {name}, ")).unwrap_or_default();
        }
        (self.tell)(format!("{label}: {place}{what}"));
    }

    /// Loads a queue as a start would.
    async fn load(&mut self, id: QueueId) {
        let Some(known) = self.queues.get_mut(&id) else { return };
        let (Some(row), was_damaged) = (known.row.take(), known.is_damaged) else { return };
        match recovery::load(self.snapshot.reader(), &row, &Progress::default()).await {
            Ok(loaded) => {
                self.report.keys += loaded.queue.keys() as u64;
                self.report.whole.push(row.name.to_string());
            }
            // Of damage that was told already it would only tell the first again.
            Err(_) if was_damaged => {}
            Err(error) => {
                let what = match &error {
                    recovery::Error::Read(error @ store::Error::Damaged { .. }) => plain(error),
                    error => with_causes(error),
                };
                self.damage(Some(id), Weight::State, &format!("it can't be loaded: {what}"));
            }
        }
    }
}

impl Report {
    /// Whether nothing is damaged.
    #[must_use]
    pub const fn is_good(&self) -> bool {
        self.damage == 0
    }

    /// What can be done, if there is damage.
    #[must_use]
    pub fn advice(&self) -> Option<String> {
        if self.is_good() {
            return None;
        }
        if self.damage == self.history_only {
            let text = "what to do: the state of all queues is whole and a server starts; the history of keys breaks \
                        off at these rows (GET /history answers 500) until the retention removes them. Watch the \
                        disk, and take a backup, which has the same gaps";
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
        match (self.damage, self.history_only) {
            (0, _) => write!(f, "no damage")?,
            (damage, 0) => write!(f, "{damage} findings of damage")?,
            (damage, history) => write!(f, "{damage} findings of damage, {history} of them in history only")?,
        }
        let Self { queues, keys, journal_rows, events, took, .. } = self;
        let took = took.as_secs_f64();
        write!(
            f,
            ": {queues} queues, {keys} keys in checkpoints, {journal_rows} journal rows, {events} events in {took:.1} s"
        )
    }
}
