//! Reading lists of objects from a body: one document or many, as JSON or NDJSON.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::engine::admission::Unfit;
use crate::engine::command::ObjectList;
use crate::engine::config::Config;
use crate::engine::delta::DeltaKind;
use crate::engine::key::{Key, KeyError};
use crate::engine::object::{self, Object, Scanned};
use crate::http::aside::aside;
use crate::http::body::{Account, Format, Incoming, document_problem};
use crate::http::budget::took_too_long;
use crate::http::ndjson::Lines;
use crate::http::problem::{Code, Problem};
use crate::http::state::AppState;
use crate::service::{Handle, Name, Turns};

/// How much longer than an object the document around it may be, in bytes.
const ENVELOPE_BYTES_MAX: usize = 16 << 10;

/// By what the objects of a call are read: the queue's settings, or those that it would get.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) config: Arc<Config>,
    /// The queue, unless it is not there yet.
    pub(super) handle: Option<Arc<Handle>>,
    /// Turns of those whose objects are admitted. None for a queue that is not there yet: it asks for nothing.
    turns: Option<Arc<Turns>>,
    account: Account,
    /// Longest wait for a turn. A Replace and a seed have no other end.
    patience: Duration,
}

/// Reads some of the objects of a call.
pub(super) struct Reader<'c> {
    pub(super) config: &'c Config,
    /// How many bytes defaults have added so far.
    grown: usize,
}

/// An object of a body, as it came.
#[derive(Clone, Debug)]
pub(super) struct Parsed {
    pub(super) object: Object,
    pub(super) key: Result<Key, KeyError>,
    /// Its line, in an NDJSON list.
    pub(super) line: Option<usize>,
}

/// The objects of a body, and whether they stand in a list. With `may_be_empty` a body without
/// anything in it is fine.
pub(super) async fn objects(
    incoming: Incoming,
    config: &Config,
    most: usize,
    may_be_empty: bool,
) -> Result<(Vec<Parsed>, bool), Problem> {
    let mut all = Vec::new();
    if incoming.format == Format::Ndjson {
        let longest = line_bytes_max(&incoming, config);
        let mut lines = Lines::new(incoming, longest);
        while let Some(line) = lines.next().await? {
            check_count(all.len() + 1, most)?;
            all.push(parsed_line(&line, lines.number(), all.len(), config)?);
        }
        return Ok((all, true));
    }
    let text = incoming.text().await?;
    if may_be_empty && text.trim().is_empty() {
        return Ok((all, false));
    }
    let (scanned, many) = object::scan_one_or_many(&text, &config.key)?;
    check_count(scanned.len(), most)?;
    all.extend(scanned.into_iter().map(|scanned| Parsed {
        object: scanned.object,
        key: scanned.key,
        line: None,
    }));
    Ok((all, many))
}

/// Longest line of objects. One that something is pruned from may come in as long as a body that is no list of
/// lines.
fn line_bytes_max(incoming: &Incoming, config: &Config) -> usize {
    let prunes = config.admission.as_ref().is_some_and(|admission| !admission.prune().is_empty());
    if prunes { config.max_object_bytes.max(incoming.bytes_max()) } else { config.max_object_bytes }
}

fn parsed_line(text: &str, line: usize, index: usize, config: &Config) -> Result<Parsed, Problem> {
    let scanned = object::scan(text, &config.key).map_err(|error| {
        let column = error.column;
        Problem::from(error).in_item(index, Some(line)).with("column", column)
    })?;
    Ok(Parsed { object: scanned.object, key: scanned.key, line: Some(line) })
}

/// The documents of a body, which is one, an array, or a line each; with their lines.
pub(super) async fn documents(
    incoming: Incoming,
    most: usize,
    config: &Config,
) -> Result<Vec<(String, Option<usize>)>, Problem> {
    let mut all = Vec::new();
    if incoming.format == Format::Ndjson {
        let longest = line_bytes_max(&incoming, config).saturating_add(ENVELOPE_BYTES_MAX);
        let mut lines = Lines::new(incoming, longest);
        while let Some(line) = lines.next().await? {
            check_count(all.len() + 1, most)?;
            all.push((line, Some(lines.number())));
        }
        return Ok(all);
    }
    let text = incoming.text().await?;
    if text.trim_start().starts_with('[') {
        let list: Vec<&RawValue> = serde_json::from_str(&text).map_err(|error| document_problem(&error))?;
        check_count(list.len(), most)?;
        all.extend(list.into_iter().map(|raw| (raw.get().to_owned(), None)));
    } else {
        all.push((text, None));
    }
    Ok(all)
}

/// What becomes of an object that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is stored, so it must satisfy the queue's schema.
    Kept,
    /// It only says what is gone.
    Gone,
}

impl Fate {
    /// What becomes of the objects of a call.
    pub(super) fn of(kind: DeltaKind) -> Self {
        if kind == DeltaKind::Deleted { Self::Gone } else { Self::Kept }
    }
}

impl Rules {
    /// Those of a queue, for objects of this body.
    pub(super) fn of(state: &AppState, name: &Name, incoming: &Incoming) -> Self {
        Self::for_queue(state, name, incoming.account())
    }

    fn for_queue(state: &AppState, name: &Name, account: Account) -> Self {
        let patience = state.limits.request_timeout;
        if let Some(handle) = state.registry.find(name) {
            return Self::by(handle, account, patience);
        }
        let config = state.registry.defaults().clone();
        Self { config, handle: None, turns: None, account, patience }
    }

    fn by(handle: Arc<Handle>, account: Account, patience: Duration) -> Self {
        let config = handle.config();
        let turns = config.admission.is_some().then(|| handle.admitting(&config));
        Self { config, handle: Some(handle), turns, account, patience }
    }

    /// Those for a call without objects, which waits for no turn.
    pub(super) fn without_objects(self) -> Self {
        Self { turns: None, ..self }
    }

    /// Those of the queue that has the name now, if there is one.
    pub(super) fn found(&self, state: &AppState, name: &Name) -> Self {
        Self::for_queue(state, name, self.account.clone())
    }

    /// Those that the queue has now.
    pub(super) fn now(&self, handle: Arc<Handle>) -> Self {
        Self::by(handle, self.account.clone(), self.patience)
    }

    /// Where the bytes of the body are counted for as long as it is kept.
    pub(super) fn account(&self) -> Account {
        self.account.clone()
    }

    /// How many objects are read before others get their turn: at most some milliseconds.
    fn stretch(&self) -> usize {
        if self.config.admission.is_some() { ADMITTED_AT_A_STRETCH } else { LINES_AT_A_STRETCH }
    }

    /// What `read` makes of each of those that came, of which it is told the number. If the queue asks something of
    /// its objects, that is not done on the threads that serve requests: nobody knows how long it takes.
    pub(super) async fn each<C, T>(
        &self,
        came: Arc<Vec<C>>,
        read: impl Fn(&mut Reader<'_>, usize, &C) -> Result<T, Problem> + Clone + Send + 'static,
    ) -> Result<Vec<T>, Problem>
    where
        C: Send + Sync + 'static,
        T: Send + 'static,
    {
        let mut all = Vec::with_capacity(came.len());
        while all.len() < came.len() {
            if !all.is_empty() {
                tokio::task::yield_now().await;
            }
            let (start, stretch) = (all.len(), self.stretch());
            let grown = match &self.turns {
                Some(turns) => {
                    let (came, read, config) = (came.clone(), read.clone(), self.config.clone());
                    let account = self.account.clone();
                    let work = move || {
                        // What was given up counts as long as it is in memory.
                        let _counted = account;
                        let mut some = Vec::new();
                        read_some(&config, &came, start, stretch, &read, &mut some).map(|grown| (some, grown))
                    };
                    let turn = tokio::time::timeout(self.patience, turns.take()).await;
                    let turn = turn.map_err(|_| took_too_long(self.patience))??;
                    let (some, grown) = aside(turn, work).await?;
                    all.extend(some);
                    grown
                }
                None => read_some(&self.config, &came, start, stretch, &read, &mut all)?,
            };
            self.account.reserve(grown)?;
        }
        Ok(all)
    }
}

/// Adds what `read` makes of a stretch to `all`; answers how many bytes that has added.
fn read_some<C, T>(
    config: &Config,
    came: &[C],
    start: usize,
    stretch: usize,
    read: &impl Fn(&mut Reader<'_>, usize, &C) -> Result<T, Problem>,
    all: &mut Vec<T>,
) -> Result<usize, Problem> {
    let mut reader = Reader::new(config);
    for (index, came) in came.iter().enumerate().skip(start).take(stretch) {
        all.push(read(&mut reader, index, came)?);
    }
    Ok(reader.grown)
}

impl<'c> Reader<'c> {
    /// Reads by these settings.
    pub(super) const fn new(config: &'c Config) -> Self {
        Self { config, grown: 0 }
    }

    /// The object as the queue takes it, and its key.
    pub(super) fn admitted(&mut self, came: Scanned, fate: Fate) -> Result<Scanned, Problem> {
        let Some(admission) = &self.config.admission else { return Ok(came) };
        let object = admission.admit(&came.object, fate == Fate::Kept, self.config.max_object_bytes)?;
        let Some(object) = object else { return Ok(came) };
        self.grown += object.as_str().len().saturating_sub(came.object.as_str().len());
        object::scan(object.as_str(), &self.config.key).map_err(|_deep| Unfit::TooDeep.into())
    }

    /// The object of a body as the queue takes it, and its key, or the explicit one of a single object that does not
    /// carry it.
    pub(super) fn keyed(
        &mut self,
        parsed: &Parsed,
        explicit: Option<&Key>,
        fate: Fate,
    ) -> Result<(Key, Object), Problem> {
        let came = Scanned { object: parsed.object.clone(), key: parsed.key.clone() };
        let taken = self.admitted(came, fate)?;
        Ok((key_or_explicit(taken.key, explicit)?, taken.object))
    }
}

/// The object's own key, which an explicit one must equal, or stands in for.
pub(super) fn key_or_explicit(own: Result<Key, KeyError>, explicit: Option<&Key>) -> Result<Key, KeyError> {
    match (own, explicit) {
        (Ok(own), Some(explicit)) if own != *explicit => {
            Err(KeyError::Differs { explicit: explicit.as_str().into(), own: own.as_str().into() })
        }
        (Err(error), Some(explicit)) if error.is_missing() => Ok(explicit.clone()),
        (own, _) => own,
    }
}

fn check_count(objects: usize, most: usize) -> Result<(), Problem> {
    if objects <= most {
        return Ok(());
    }
    let detail = format!("the list has more than {most} objects; send it in parts");
    Err(Problem::new(Code::ObjectTooLarge, detail).with("limit", most))
}

/// How many lines of a fast stream are read before other requests get their turn: about a millisecond.
const LINES_AT_A_STRETCH: usize = 1_000;
/// The same, where each object has to be admitted, and may have become as large as an object may be.
const ADMITTED_AT_A_STRETCH: usize = 100;
/// Bytes of lines that are gathered before they are admitted.
const GATHERED_BYTES: usize = 1 << 20;

/// The list of a Replace while it comes.
#[derive(Debug, Default)]
pub(super) struct Listing(ObjectList);

/// The last line of an NDJSON list: how many objects came before it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    #[serde(rename = "$end")]
    count: u64,
}

impl Listing {
    /// Reads a list that says that it is whole: a JSON array by its syntax, NDJSON by `count` or by
    /// its last line.
    pub(super) async fn read(
        incoming: Incoming,
        rules: &Rules,
        most: usize,
        count: Option<u64>,
    ) -> Result<ObjectList, Problem> {
        let mut listing = Self::default();
        let mut end = None;
        if incoming.format == Format::Ndjson {
            end = listing.read_lines(incoming, rules, most).await?;
            if count.is_none() && end.is_none() {
                let have = listing.0.len();
                return Err(incomplete(&format!(
                    "{have} objects came, but nothing says that this is all: give count=N or a last line {{\"$end\":N}}"
                )));
            }
        } else {
            let empty = count == Some(0);
            let (parsed, many) = objects(incoming, &rules.config, most, true).await?;
            if parsed.is_empty() && !many && !empty {
                return Err(incomplete("the body is empty; only [] or count=0 empties a source"));
            }
            listing.take(parsed, rules).await?;
        }
        for stated in [count, end].into_iter().flatten() {
            let have = listing.0.len() as u64;
            if stated != have {
                return Err(incomplete(&format!("the list says {stated} objects, and {have} came")));
            }
        }
        Ok(listing.0)
    }

    /// Reads the lines of a list; answers how many there are by its last line.
    async fn read_lines(
        &mut self,
        incoming: Incoming,
        rules: &Rules,
        most: usize,
    ) -> Result<Option<u64>, Problem> {
        let longest = line_bytes_max(&incoming, &rules.config);
        let mut lines = Lines::new(incoming, longest);
        let (mut end, mut gathered, mut bytes) = (None, Vec::new(), 0);
        loop {
            let index = self.0.len() + gathered.len();
            let parsed = match next_object(&mut lines, &mut end, index, most, &rules.config).await {
                Ok(Some(parsed)) => parsed,
                Ok(None) => break,
                Err(problem) => {
                    // One that came before is told of first.
                    self.take(gathered, rules).await?;
                    return Err(problem);
                }
            };
            bytes += parsed.object.bytes();
            // One that is wrong by itself is told of at once, however slowly the rest comes.
            let is_whole = parsed.key.is_err() || bytes >= GATHERED_BYTES;
            gathered.push(parsed);
            if is_whole || gathered.len() == rules.stretch() {
                self.take(std::mem::take(&mut gathered), rules).await?;
                bytes = 0;
                tokio::task::yield_now().await;
            }
        }
        self.take(gathered, rules).await?;
        Ok(end)
    }

    async fn take(&mut self, parsed: Vec<Parsed>, rules: &Rules) -> Result<(), Problem> {
        let before = self.0.len();
        let keyed = rules.each(Arc::new(parsed), move |reader, index, parsed| {
            let keyed = reader.keyed(parsed, None, Fate::Kept);
            keyed.map_err(|problem| problem.in_item(before + index, parsed.line))
        });
        keyed.await?.into_iter().for_each(|(key, object)| self.0.push(key, object));
        Ok(())
    }
}

/// The next object of a list of lines; none at its end. `end` is what the last line says.
async fn next_object(
    lines: &mut Lines,
    end: &mut Option<u64>,
    index: usize,
    most: usize,
    config: &Config,
) -> Result<Option<Parsed>, Problem> {
    while let Some(line) = lines.next().await? {
        if let Some(end) = end {
            let number = lines.number();
            return Err(incomplete(&format!("line {number} follows the last line, {{\"$end\":{end}}}")));
        }
        *end = end_of(&line);
        if end.is_none() {
            check_count(index + 1, most)?;
            return parsed_line(&line, lines.number(), index, config).map(Some);
        }
    }
    Ok(None)
}

/// The keys of objects by other settings than those that they were read by before.
pub(super) fn read_keys_again(list: ObjectList, config: &Config) -> Result<ObjectList, Problem> {
    let again = list.into_iter().enumerate().map(|(index, (_, object))| {
        let scanned = object::scan(object.as_str(), &config.key)?;
        let key = scanned.key.map_err(|error| Problem::from(error).in_item(index, None))?;
        Ok((key, object))
    });
    again.collect()
}

/// Longest last line that is looked at, in bytes: two braces, the name and twenty digits, with room.
const END_LINE_BYTES_MAX: usize = 256;

fn end_of(line: &str) -> Option<u64> {
    let could_be = line.len() <= END_LINE_BYTES_MAX && line.contains("$end");
    let end: Option<End> = could_be.then(|| serde_json::from_str(line).ok()).flatten();
    end.map(|end| end.count)
}

fn incomplete(detail: &str) -> Problem {
    Problem::new(Code::IncompleteList, format!("{detail}; nothing was changed"))
}
