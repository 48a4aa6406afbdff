//! A whole store as text. `deltaq export` without a queue writes it, and `deltaq import` reads it into a place
//! without queues.
//!
//! The text has one JSON document per line: first the numbers of the store, then the rows of all queues with their
//! checksums, and last a checksum of all previous lines. A text that rows share comes once, before the first of them. The text does not depend on the kind of store.
//!
//! Invariant: the rows of table `queues` are written last, in one commit, and only if the input is complete. Until
//! then the store has none of the input's queues, and the numbers of any new queue are above those of the input.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use deltaq_engine::id::Rv;
use deltaq_engine::time::Time;
use deltaq_runtime::clock::Clock;
use deltaq_types::name::{Incarnation, Name};
use serde::{Deserialize, Serialize};

use super::check::{self, Depth};
use super::{Error, Location, stores};
use crate::record::{self, Identity};
use crate::snapshot::Snapshot;
use crate::store::{
    self, Epoch, JournalRow, Numbers, QueueId, QueueRow, REMOVED_ROWS_MAX, Reader, RunRow, SharedText, Store,
    Writes,
};
use crate::text_id::TextId;

/// The format version of the lines.
const FORMAT: u32 = 1;
/// How many rows are written to a store at a time.
const PAGE_ROWS: usize = 1_024;
/// Approximate number of bytes that are read, or written to a store, at a time.
const PAGE_BYTES: usize = 4 << 20;
/// The epoch of imported journal rows. Every epoch of a store is larger.
const BEFORE_ALL: Epoch = Epoch(0);

/// A line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Line {
    /// The first line: the format version of the lines, whether the store was cleanly closed, and its [`Numbers`].
    Store {
        format: u32,
        clean: bool,
        last_queue: u32,
        last_version: u64,
        floor: Rv,
    },
    Queue(QueueRow),
    Run(RunRow),
    Journal(JournalRow),
    /// A text that later rows share.
    Text(Arc<str>),
    /// The last line: CRC32C of all bytes before it.
    End {
        crc32c: u32,
    },
}

/// The number of rows in a dump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Queues that are not deleted.
    pub queues: usize,
    /// Runs of checkpoints.
    pub runs: usize,
    /// Rows of the journal.
    pub journal_rows: usize,
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { queues, runs, journal_rows } = self;
        write!(f, "{queues} queues, {runs} runs of checkpoints, {journal_rows} journal rows")
    }
}

impl Counts {
    fn add(&mut self, line: &Line) {
        match line {
            Line::Queue(row) => self.queues += usize::from(!row.deleted),
            Line::Run(_) => self.runs += 1,
            Line::Journal(_) => self.journal_rows += 1,
            Line::Store { .. } | Line::Text(_) | Line::End { .. } => {}
        }
    }
}

/// Writes a whole store to standard output or to a new file that only its owner can read. `print` receives the damage
/// of the store. An incomplete file is removed.
///
/// # Errors
/// [`Error::Open`] or [`Error::Served`] if a server uses the store; [`Error::Unsound`] if it is damaged; [`Error::Partitions`];
/// [`Error::Exists`], [`Error::Pipe`], [`Error::Write`]; or an error of the store.
pub async fn export(
    at: &Location,
    to: Option<&Path>,
    clock: &Clock,
    print: &mut dyn FnMut(String),
) -> Result<Counts, Error> {
    if let Some(other) = stores::snapshot_of(at, 1).await? {
        other.close().await;
        return Err(Error::Partitions { at: at.to_string() });
    }
    let snapshot = stores::snapshot(at).await?;
    let exported = export_from(snapshot.as_ref(), at, to, clock, print).await;
    snapshot.close().await;
    exported
}

async fn export_from(
    snapshot: &dyn Snapshot,
    at: &Location,
    to: Option<&Path>,
    clock: &Clock,
    print: &mut dyn FnMut(String),
) -> Result<Counts, Error> {
    snapshot.refuse_server()?;
    let opening = snapshot.opening().copied();
    if matches!(at, Location::Postgres(_)) && opening.is_none_or(|opening| !opening.clean) {
        return Err(Error::Open { at: at.to_string() });
    }
    let report = check::examine(snapshot, Depth::Queues, clock, print).await;
    let Some(opening) = opening.filter(|_| report.is_good()) else {
        return Err(Error::Unsound { at: at.to_string() });
    };
    let Numbers { queue, version, floor } = opening.numbers;
    let first =
        Line::Store { format: FORMAT, clean: opening.clean, last_queue: queue, last_version: version, floor };
    let failed = |source: io::Error| match (to, source.kind()) {
        (Some(to), io::ErrorKind::AlreadyExists) => Error::Exists { to: to.to_owned() },
        (Some(to), _) => Error::Write { to: to.to_owned(), source },
        (None, io::ErrorKind::BrokenPipe) => Error::CutOff,
        (None, _) => Error::Write { to: "the standard output".into(), source },
    };
    let Some(path) = to else {
        let mut out = Out::new(io::stdout().lock(), &failed);
        out.store(first, snapshot.reader()).await?;
        return Ok(out.counts);
    };
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    let mut out = Out::new(&file, &failed);
    let written = out.store(first, snapshot.reader()).await;
    let written = written.and_then(|()| file.sync_all().map_err(failed));
    if written.is_err() {
        // The first error matters more than a failure to remove the incomplete file.
        let _ = fs::remove_file(path);
    }
    written.map(|()| out.counts)
}

/// The lines that are written.
struct Out<'a, W: Write> {
    buffer: BufWriter<W>,
    crc32c: u32,
    counts: Counts,
    /// The texts that were written.
    texts: HashSet<TextId>,
    failed: &'a dyn Fn(io::Error) -> Error,
}

impl<'a, W: Write> Out<'a, W> {
    fn new(out: W, failed: &'a dyn Fn(io::Error) -> Error) -> Self {
        Self {
            buffer: BufWriter::new(out),
            crc32c: 0,
            counts: Counts::default(),
            texts: HashSet::new(),
            failed,
        }
    }

    fn line(&mut self, line: &Line) -> Result<(), Error> {
        let mut text = serde_json::to_vec(line).map_err(|error| (self.failed)(error.into()))?;
        text.push(b'\n');
        self.crc32c = crc32c::crc32c_append(self.crc32c, &text);
        self.counts.add(line);
        self.buffer.write_all(&text).map_err(self.failed)
    }

    fn texts(&mut self, texts: &[SharedText]) -> Result<(), Error> {
        for shared in texts {
            if self.texts.insert(shared.id) {
                self.line(&Line::Text(shared.text.clone()))?;
            }
        }
        Ok(())
    }

    async fn store(&mut self, first: Line, reader: &dyn Reader) -> Result<(), Error> {
        self.line(&first)?;
        for row in reader.queues().await? {
            let (queue, first_run, has_rows) = (row.id, row.first_run, !row.deleted);
            self.line(&Line::Queue(row))?;
            if has_rows {
                self.rows(queue, first_run, reader).await?;
            }
        }
        self.line(&Line::End { crc32c: self.crc32c })?;
        self.buffer.flush().map_err(self.failed)
    }

    async fn rows(&mut self, queue: QueueId, first_run: u64, reader: &dyn Reader) -> Result<(), Error> {
        let mut next = Some(u64::MAX);
        while let Some(behind) = next {
            let runs = reader.runs(queue, first_run..behind).await?;
            next = runs.last().map(|row| row.number);
            for row in runs {
                self.texts(&row.texts)?;
                self.line(&Line::Run(row))?;
            }
        }
        let mut after = Rv::ZERO;
        loop {
            let journal = reader.journal(queue, after, PAGE_BYTES).await?;
            let Some(last) = journal.last() else { return Ok(()) };
            after = last.last_rv;
            for row in journal {
                self.texts(&row.texts)?;
                self.line(&Line::Journal(record::in_epoch(row, BEFORE_ALL)))?;
            }
        }
    }
}

/// Reads a whole store into a location that has no queues. After an error, the location still has no queues.
///
/// # Errors
/// [`Error::NotEmpty`]; [`Error::Line`] and [`Error::Input`]; [`Error::Open`]; or an error of the store.
pub async fn import(at: &Location, partitions: i16, input: impl BufRead) -> Result<Counts, Error> {
    let mut lines = Lines { input, number: 0, crc32c: 0 };
    // Checked before a store is created.
    let Line::Store { format: FORMAT, clean, last_queue, last_version, floor } = lines.next()? else {
        let what = "this is not the beginning of a whole store; the known objects of one queue need --queue";
        return Err(lines.wrong(what));
    };
    stores::expect_empty(at).await?;
    let first = (clean, Numbers { queue: last_queue, version: last_version, floor });
    match at {
        Location::Folder(folder) => {
            let (store, _, opening) = stores::open_folder(folder).await?;
            write(Target { store, epoch: opening.epoch }, opening.numbers, first, lines).await
        }
        Location::Postgres(settings) => {
            let (store, _, opening) = stores::open_database(settings).await?;
            let target = Target { store, epoch: opening.epoch };
            let counts = write(target, opening.numbers, first, lines).await?;
            if partitions > 1 {
                stores::split(settings, partitions).await.map_err(|source| Error::NotSplit { source })?;
            }
            Ok(counts)
        }
    }
}

async fn write(
    mut target: Target<impl Store>,
    reached: Numbers,
    (clean, numbers): (bool, Numbers),
    lines: Lines<impl BufRead>,
) -> Result<Counts, Error> {
    // An import that was killed may have left rows without queues.
    target.clear(reached.queue).await?;
    target.raise(&numbers).await?;
    let written = target.write_all(clean, numbers.queue, lines).await;
    if written.is_err() {
        // If this fails too, the next import removes the rows.
        let _ = target.clear(numbers.queue).await;
    }
    target.store.close().await;
    written
}

/// The lines that are read.
struct Lines<R> {
    input: R,
    number: usize,
    /// The checksum of all lines before the last one.
    crc32c: u32,
}

impl<R: BufRead> Lines<R> {
    fn next(&mut self) -> Result<Line, Error> {
        let mut text = Vec::new();
        let read = self.input.read_until(b'\n', &mut text);
        read.map_err(|source| Error::Input { line: self.number, source })?;
        self.number += 1;
        if text.pop_if(|last| *last == b'\n').is_none() {
            return Err(self.wrong("the input ends here, before its last line"));
        }
        let line = serde_json::from_slice(&text)
            .map_err(|error| self.wrong(&format!("this is not a line of a store: {error}")))?;
        if let Line::End { crc32c } = line {
            if crc32c != self.crc32c {
                return Err(
                    self.wrong("the lines before are not those that were exported: their checksum differs")
                );
            }
        } else {
            text.push(b'\n');
            self.crc32c = crc32c::crc32c_append(self.crc32c, &text);
        }
        Ok(line)
    }

    fn wrong(&self, what: &str) -> Error {
        Error::Line { line: self.number, what: what.to_owned() }
    }
}

struct Target<S> {
    store: S,
    epoch: Epoch,
}

impl<S: Store> Target<S> {
    async fn write(&mut self, writes: Writes) -> Result<(), store::Error> {
        self.store.write(Writes { epoch: self.epoch, ..writes }).await
    }

    /// Removes the rows of all queues up to `last`, which have no rows in the table of queues.
    async fn clear(&mut self, last: u32) -> Result<(), store::Error> {
        for queue in (1..=last).map(QueueId) {
            while self.store.has_rows(queue).await? {
                self.write(Writes { emptied: vec![(queue, REMOVED_ROWS_MAX)], ..Writes::default() }).await?;
            }
        }
        Ok(())
    }

    /// Makes new queues begin above these numbers, by creating and removing a queue with them: a store retains the
    /// numbers of a removed queue.
    async fn raise(&mut self, numbers: &Numbers) -> Result<(), Error> {
        if numbers.queue == 0 {
            return Ok(());
        }
        let name = Name::new("imported").map_err(|error| Error::Line { line: 1, what: error.to_string() })?;
        let identity = Identity {
            id: QueueId(numbers.queue),
            version: numbers.version,
            name,
            incarnation: Incarnation(0),
            created_at: Time::from_micros(0),
        };
        let row = record::deleted_queue_row(&identity, numbers.floor);
        self.write(Writes { forgotten: vec![row.id], queues: vec![row], ..Writes::default() }).await?;
        Ok(())
    }

    async fn write_all(
        &mut self,
        clean: bool,
        last_queue: u32,
        mut lines: Lines<impl BufRead>,
    ) -> Result<Counts, Error> {
        let mut counts = Counts::default();
        let mut queues = BTreeMap::new();
        let (mut writes, mut bytes) = (Writes::default(), 0);
        loop {
            let line = lines.next()?;
            counts.add(&line);
            let queue = match &line {
                Line::Queue(row) => Some(row.id),
                Line::Run(row) => Some(row.queue),
                Line::Journal(row) => Some(row.queue),
                Line::Text(_) => None,
                Line::Store { .. } => return Err(lines.wrong("the store begins a second time")),
                Line::End { .. } => break,
            };
            // Only the rows of these queues are removed after an error.
            if let Some(queue) = queue.filter(|queue| !(1..=last_queue).contains(&queue.0)) {
                return Err(lines.wrong(&format!("the store has no queue {queue}")));
            }
            match line {
                Line::Queue(row) => {
                    queues.insert(row.id, row);
                    continue;
                }
                Line::Run(row) => {
                    bytes += row.entries.len();
                    writes.runs.push(row);
                }
                Line::Journal(row) => {
                    bytes += row.events.len();
                    writes.journal.push(row);
                }
                Line::Text(text) => {
                    bytes += text.len();
                    writes.texts.push(SharedText { id: TextId::of(&text), text });
                }
                Line::Store { .. } | Line::End { .. } => {}
            }
            let rows = writes.runs.len() + writes.journal.len();
            if rows >= PAGE_ROWS || bytes >= PAGE_BYTES {
                self.write(std::mem::take(&mut writes)).await?;
                bytes = 0;
            }
        }
        self.write(writes).await?;
        let queues = queues.into_values().collect();
        self.write(Writes { queues, clean: Some(clean), ..Writes::default() }).await?;
        Ok(counts)
    }
}
