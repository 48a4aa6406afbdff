//! `deltaq replace` and `deltaq seed`: lists of any length in one call.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use clap::Args;
use deltaq_client::{Body, Call};
use deltaq_types::name::Name;
use deltaq_types::{Produced, Replaced};
use futures_util::stream::unfold;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::failure::{Failure, at_object};
use super::input::{Input, Piece, Pieces};
use super::left_out::tell_invalid;
use super::output::{Cell, Tone, counted};
use super::progress::Progress;
use super::reply::parse;
use super::session::{Execute, Session};

/// `deltaq replace`.
#[derive(Debug, Clone, Args)]
pub struct Replace {
    /// The queue; it is created if the server allows that.
    pub queue: Name,
    /// The complete list: JSON text, a file, or - for stdin.
    #[arg(long_help = REPLACE_HELP)]
    pub objects: Option<String>,
    /// The source that owns the list. Without it, the list covers the keys that no source owns.
    #[arg(long, value_name = "NAME")]
    pub source: Option<String>,
    /// Sequence number of the call. The server applies each number of a source only once, in increasing order.
    #[arg(long, value_name = "N", requires = "source")]
    pub sequence: Option<u64>,
    /// Queue nothing for objects that have not changed.
    #[arg(long)]
    pub only_changed: bool,
    /// Show the counts and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Refuse the list if it would delete more than this percentage of the source's keys, and more than --max-deletes. If only one of the two
    /// is given, the other is 0 [default: the limits of the queue].
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub max_delete_percent: Option<f64>,
    /// Refuse the list if it would delete more than this many keys, and more than --max-delete-percent. If only one of the two is given, the
    /// other is 0 [default: the limits of the queue].
    #[arg(long, value_name = "N")]
    pub max_deletes: Option<u64>,
    /// Allow an empty list to delete all keys of the source.
    #[arg(long)]
    pub allow_empty: bool,
    /// If several objects of the list have the same key, use the last one instead of refusing the list.
    #[arg(long)]
    pub keep_last: bool,
    /// Leave out invalid objects instead of refusing the list: at most a tenth of the list. A single invalid object in a list of several is
    /// always left out; a list whose only object is invalid is refused. The keys of these objects are neither changed nor deleted.
    #[arg(long)]
    pub skip_invalid: bool,
    /// Refuse the list unless it has this number of objects.
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
}

const REPLACE_HELP: &str = "\
The complete list: JSON text, a file (FILE or @FILE), or - for stdin, which is the default.
The list is sent as it is read, and may have any length. Nothing changes unless all of it has arrived: the command adds the number
of objects at the end. A list that is cut off (an array without its ]) is refused. NDJSON has no end mark, so a producer
that was killed looks like one that has finished: use an array, --count, or `set -o pipefail`. A single object is not a list: if it
would delete keys, it is refused. Write a list of one object as an array, or add --count 1. An input without any text is refused.
To delete all keys of the source, send [] with --allow-empty.";

/// `deltaq seed`.
#[derive(Debug, Clone, Args)]
pub struct Seed {
    /// The queue; it is created if the server allows that.
    pub queue: Name,
    /// The objects {"key","source","object"}, as `deltaq known -o ndjson` and `deltaq export` write them: JSON text, a file, or -.
    pub objects: Option<String>,
}

impl Execute for Replace {
    const OPERATIONS: &'static [&'static str] = &["replace"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let input = Input::open(self.objects.as_deref())?;
        let call = session
            .on_queue("replace", &self.queue)?
            .query("source", self.source.as_deref())
            .query("sequence", self.sequence)
            .switch("only_changed", self.only_changed)
            .query("max_delete_percent", self.max_delete_percent)
            .query("max_deletes", self.max_deletes)
            .switch("dry_run", self.dry_run)
            .switch("allow_empty", self.allow_empty)
            .switch("skip_invalid", self.skip_invalid)
            .query("duplicates", self.keep_last.then_some("last"))
            .query("count", self.count);
        let (replaced, text) = send::<Replaced>(session, call, input, self.count.is_none()).await?;
        let counts = replaced.counts;
        let fields = vec![
            ("replaced", Cell::number(counts.replaced)),
            ("deleted", Cell::count(counts.deleted, Tone::Notice)),
            ("unchanged", Cell::number(counts.unchanged)),
            ("skipped", Cell::count(counts.skipped, Tone::Notice)),
            ("taken over", Cell::count(counts.taken_over, Tone::Notice)),
        ];
        let stale = (counts.stale > 0).then(|| ("stale", Cell::count(counts.stale, Tone::Notice)));
        let fields = fields.into_iter().chain(stale).collect();
        tell_invalid(replaced.invalid, &replaced.invalid_objects);
        if replaced.duplicate {
            eprintln!("the sequence number had been applied; nothing was changed");
        }
        if self.dry_run {
            eprintln!("dry run: nothing was changed");
        }
        session.output.document(&text, self.queue.as_str(), fields)
    }
}

impl Execute for Seed {
    const OPERATIONS: &'static [&'static str] = &["seed"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let input = Input::open(self.objects.as_deref())?;
        let call = session.on_queue("seed", &self.queue)?;
        let (seeded, text) = send::<Produced>(session, call, input, false).await?;
        session.output.change(
            &text,
            self.queue.as_str(),
            &format!("{} made known", counted(seeded.queued, "object")),
        )
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| "a number from 0 to 100 without a percent sign is expected".to_owned())
}

/// A list that is sent while its input is read.
struct List {
    pieces: Pieces,
    /// The first pieces, which were read before the request was sent.
    ahead: VecDeque<Result<Piece, Failure>>,
    progress: Progress,
    /// Number of objects that were sent.
    objects: u64,
    /// Whether a last line with the number of objects is added.
    adds_count: bool,
    /// The failure that ended the input early.
    failed: Arc<Mutex<Option<Failure>>>,
}

/// Sends an input of any length as the body of a call. `adds_count` adds the line that declares the list complete, unless the
/// input has one.
async fn send<T: DeserializeOwned>(
    session: &Session,
    call: Call,
    input: Input,
    adds_count: bool,
) -> Result<(T, Box<RawValue>), Failure> {
    let failed = Arc::new(Mutex::new(None));
    let progress = Progress::new(&session.clock, input.length);
    let (pieces, ahead, failed_at) = (input.pieces(), VecDeque::new(), Arc::clone(&failed));
    let mut list = List { pieces, ahead, progress, objects: 0, adds_count, failed: failed_at };
    let body = match list.single().await {
        Some(object) => Body::Json(object.into()),
        None => Body::lines(unfold(Some(list), |list| async move { list?.next().await })),
    };
    let reply: Result<Box<RawValue>, _> = session.client.fetch(call.body(body)).await;
    // If the input fails, the request is aborted too. The failure of the input is the cause, so it is reported.
    if let Some(failure) = failed.lock().take() {
        return Err(failure);
    }
    let text = reply.map_err(|error| at_object(0, error))?;
    Ok((parse(&text)?, text))
}

impl List {
    /// The object, if the input is a single object and nothing declares it to be a list. It is sent unchanged,
    /// because the server prevents such a body from deleting the other keys of the source.
    async fn single(&mut self) -> Option<Vec<u8>> {
        let first = self.pieces.recv().await?;
        let is_single = |piece: &Piece| {
            self.adds_count && piece.objects == 1 && !piece.is_list && !ends_with_count(&piece.lines)
        };
        if first.as_ref().is_ok_and(is_single) {
            match self.pieces.recv().await {
                None => return first.ok().map(|piece| piece.lines),
                second => self.ahead.extend(second),
            }
        }
        self.ahead.push_front(first);
        None
    }

    async fn next(mut self) -> Option<(io::Result<Vec<u8>>, Option<Self>)> {
        let piece = match self.ahead.pop_front() {
            None => self.pieces.recv().await,
            ahead => ahead,
        };
        match piece {
            Some(Ok(piece)) => {
                self.objects += piece.objects;
                self.progress.show(self.objects, piece.read);
                self.adds_count &= !ends_with_count(&piece.lines);
                Some((Ok(piece.lines), Some(self)))
            }
            Some(Err(failure)) => {
                *self.failed.lock() = Some(failure);
                Some((Err(io::Error::other("the input is not complete")), None))
            }
            None if self.adds_count => {
                Some((Ok(format!("{{\"$end\":{}}}\n", self.objects).into_bytes()), None))
            }
            None => None,
        }
    }
}

/// Whether the last line declares the number of objects.
fn ends_with_count(lines: &[u8]) -> bool {
    let mut lines = lines.rsplit(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let compact = lines
        .next()
        .map(|line| line.iter().filter(|byte| !byte.is_ascii_whitespace()).copied().collect::<Vec<_>>());
    compact.is_some_and(|line| line.starts_with(b"{\"$end\":"))
}
