//! Reading lists of objects from a body: one document or many, as JSON or NDJSON.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::admission::Unfit;
use crate::engine::command::ObjectList;
use crate::engine::config::Config;
use crate::engine::delta::DeltaKind;
use crate::engine::key::{Key, KeyError};
use crate::engine::object::{self, Object, Objects, Scanned};
use crate::engine::refusal::Refusal;
use crate::http::blocking::run_blocking;
use crate::http::body::{Account, Format, Incoming, Start};
use crate::http::ndjson::Lines;
use crate::http::problem::{Code, Problem};
use crate::http::state::AppState;
use crate::service::{AdmissionPermits, Handle, Name};

/// By what the objects of a call are read: the queue's settings, or those that it would get.
#[derive(Clone, Debug)]
pub(super) struct AdmissionRules {
    pub(super) config: Arc<Config>,
    /// The queue, unless it is not there yet.
    pub(super) handle: Option<Arc<Handle>>,
    /// Permits for admission checks. None for a queue that does not exist yet, which has no admission rules.
    permits: Option<Arc<AdmissionPermits>>,
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
pub(super) struct ReceivedObject {
    pub(super) object: Object,
    pub(super) key: Result<Key, KeyError>,
    /// Its line, in an NDJSON list.
    pub(super) line: Option<usize>,
}

/// The objects of a body, which may be empty, and whether they stand in a list.
pub(super) async fn objects(
    incoming: Incoming,
    config: &Config,
    most: BatchLimit,
) -> Result<(Vec<ReceivedObject>, bool), Problem> {
    let (mut all, account) = (Vec::new(), incoming.account());
    if incoming.format == Format::Ndjson {
        let longest = object_bytes_max(&incoming, config);
        let mut lines = Lines::new(incoming, longest);
        while let Some(line) = lines.next().await? {
            most.check(all.len() + 1)?;
            account.reserve_object(0)?;
            all.push(parsed_line(&line, &lines, all.len(), config)?);
        }
        return Ok((all, true));
    }
    let text = incoming.text().await?;
    if text.trim().is_empty() {
        return Ok((all, false));
    }
    let mut objects = Objects::new(&text, &config.key)?;
    while objects.has_next() {
        most.check(all.len() + 1)?;
        let Some(scanned) = objects.next_object()? else { break };
        account.reserve_object(scanned.object.bytes())?;
        all.push(ReceivedObject { object: scanned.object, key: scanned.key, line: None });
    }
    let is_list = objects.is_list();
    account.release(text.len());
    Ok((all, is_list))
}

/// Longest object of a line. One that something is pruned from may come in as long as a body that is no list of lines.
pub(super) fn object_bytes_max(incoming: &Incoming, config: &Config) -> usize {
    let prunes = config.admission.as_ref().is_some_and(|admission| !admission.prune().is_empty());
    if prunes { config.max_object_bytes.max(incoming.bytes_max()) } else { config.max_object_bytes }
}

/// Reads the line that came last.
fn parsed_line(text: &str, lines: &Lines, index: usize, config: &Config) -> Result<ReceivedObject, Problem> {
    let (line, limit) = (lines.number(), lines.object_bytes_max());
    let start = Start { line, column: 1 };
    let scanned = object::scan(text, &config.key);
    let scanned = scanned.map_err(|error| Problem::from(start.of_error(error)).in_item(index, Some(line)))?;
    let bytes = scanned.object.bytes();
    if bytes > limit {
        let refusal = Refusal::ObjectTooLarge { limit, bytes, index };
        return Err(Problem::from(refusal).with("line", line));
    }
    Ok(ReceivedObject { object: scanned.object, key: scanned.key, line: Some(line) })
}

/// A call that takes objects has brought none.
pub(super) fn empty_body() -> Problem {
    let detail = "the body is empty; this call takes an object or a list";
    Problem::new(Code::InvalidJson, detail).with("line", 1).with("column", 1)
}

/// What a call does with its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectUse {
    /// They are stored, so they must satisfy the queue's schema.
    Stored,
    /// They describe what is deleted.
    Deleted,
}

impl ObjectUse {
    /// The use of the objects of a call.
    pub(super) fn of(kind: DeltaKind) -> Self {
        if kind == DeltaKind::Deleted { Self::Deleted } else { Self::Stored }
    }
}

impl AdmissionRules {
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
        Self { config, handle: None, permits: None, account, patience }
    }

    fn by(handle: Arc<Handle>, account: Account, patience: Duration) -> Self {
        let config = handle.config();
        let permits = config.admission.is_some().then(|| handle.admission_permits(&config));
        Self { config, handle: Some(handle), permits, account, patience }
    }

    /// Those for a call without objects, which waits for no turn.
    pub(super) fn without_objects(self) -> Self {
        Self { permits: None, ..self }
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
    pub(super) fn slice_len(&self) -> usize {
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
            let (start, stretch) = (all.len(), self.slice_len());
            let grown = match &self.permits {
                Some(permits) => {
                    let (came, read, config) = (came.clone(), read.clone(), self.config.clone());
                    let account = self.account.clone();
                    let work = move || {
                        // What was given up counts as long as it is in memory.
                        let _counted = account;
                        let mut some = Vec::new();
                        read_some(&config, &came, start, stretch, &read, &mut some).map(|grown| (some, grown))
                    };
                    let turn = tokio::time::timeout(self.patience, permits.acquire()).await;
                    let turn = turn.map_err(|_| Problem::timed_out(self.patience))??;
                    let (some, grown) = run_blocking(turn, work).await?;
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
    pub(super) fn admitted(&mut self, came: Scanned, object_use: ObjectUse) -> Result<Scanned, Problem> {
        let Some(admission) = &self.config.admission else { return Ok(came) };
        let object =
            admission.admit(&came.object, object_use == ObjectUse::Stored, self.config.max_object_bytes)?;
        let Some(object) = object else { return Ok(came) };
        self.grown += object.as_str().len().saturating_sub(came.object.as_str().len());
        object::scan(object.as_str(), &self.config.key).map_err(|_deep| Unfit::TooDeep.into())
    }

    /// Checks what the queue checks again, to say where the object stands.
    pub(super) fn check_length(&self, object: &Object) -> Result<(), Problem> {
        let (bytes, limit) = (object.bytes(), self.config.max_object_bytes);
        let index = 0;
        if bytes > limit { Err(Refusal::ObjectTooLarge { limit, bytes, index }.into()) } else { Ok(()) }
    }

    /// The object of a body as the queue takes it, and its key, or the explicit one of a single object that does not
    /// carry it.
    pub(super) fn keyed(
        &mut self,
        parsed: &ReceivedObject,
        explicit: Option<&Key>,
        object_use: ObjectUse,
    ) -> Result<(Key, Object), Problem> {
        let came = Scanned { object: parsed.object.clone(), key: parsed.key.clone() };
        let taken = self.admitted(came, object_use)?;
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

/// How many objects a list may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchLimit {
    objects: usize,
    setting: &'static str,
    way_out: &'static str,
}

impl BatchLimit {
    /// In a call that can be made in parts.
    pub(super) fn of_batch(state: &AppState) -> Self {
        let way_out = "send it in parts";
        Self { objects: state.limits.max_batch, setting: "queues.max_batch", way_out }
    }

    /// In a seed.
    pub(super) fn of_seed(state: &AppState) -> Self {
        Self { way_out: "send it in parts", ..Self::of_list(state) }
    }

    /// In a list that is whole.
    pub(super) fn of_list(state: &AppState) -> Self {
        let way_out =
            "parts of it would delete one another: give each a source of its own, or raise the setting";
        Self { objects: state.limits.max_replace_objects, setting: "queues.max_replace_objects", way_out }
    }

    pub(super) fn check(self, objects: usize) -> Result<(), Problem> {
        let Self { objects: most, setting, way_out } = self;
        if objects <= most {
            return Ok(());
        }
        let detail = format!("the list has more than {most} objects ({setting}); {way_out}");
        Err(Problem::new(Code::ObjectTooLarge, detail).with("limit", most))
    }
}

/// How many lines of a fast stream are read before other requests get their turn: about a millisecond.
const LINES_AT_A_STRETCH: usize = 1_000;
/// The same, where each object has to be admitted, and may have become as large as an object may be.
const ADMITTED_AT_A_STRETCH: usize = 100;
/// Bytes of objects that are gathered before they are admitted.
pub(super) const GATHERED_BYTES: usize = 1 << 20;

/// The last line of an NDJSON list: how many objects came before it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct End<C> {
    #[serde(rename = "$end")]
    count: C,
}

/// Reads a list that says that it is whole: a JSON array by its syntax, NDJSON by `count` or by its last line.
pub(super) async fn read_list(
    incoming: Incoming,
    rules: &AdmissionRules,
    most: BatchLimit,
    count: Option<u64>,
) -> Result<ObjectList, Problem> {
    let mut list = ObjectList::default();
    let mut end = None;
    if incoming.format == Format::Ndjson {
        end = read_lines(&mut list, incoming, rules, most).await?;
        if count.is_none() && end.is_none() {
            let have = list.len();
            return Err(incomplete(&format!(
                "{have} objects came, but nothing says that this is all: give count=N or a last line {{\"$end\":N}}"
            )));
        }
    } else {
        let is_empty = !read_objects(&mut list, incoming, rules, most).await?;
        if is_empty && count != Some(0) {
            return Err(incomplete("the body is empty; only [] or count=0 empties a source"));
        }
    }
    for stated in [count, end].into_iter().flatten() {
        let have = list.len() as u64;
        if stated != have {
            return Err(incomplete(&format!("the list says {stated} objects, and {have} came")));
        }
    }
    Ok(list)
}

/// Reads the objects of a list in JSON; answers whether there is any JSON. The first object that is wrong ends the reading.
async fn read_objects(
    list: &mut ObjectList,
    incoming: Incoming,
    rules: &AdmissionRules,
    most: BatchLimit,
) -> Result<bool, Problem> {
    let account = incoming.account();
    let text = incoming.text().await?;
    if text.trim().is_empty() {
        return Ok(false);
    }
    let mut objects = Objects::new(&text, &rules.config.key)?;
    let (mut gathered, mut bytes) = (Vec::new(), 0);
    while objects.has_next() {
        most.check(list.len() + gathered.len() + 1)?;
        let scanned = match objects.next_object() {
            Ok(Some(scanned)) => scanned,
            Ok(None) => break,
            Err(error) => {
                // An object that came before is told of first.
                take(list, gathered, rules).await?;
                return Err(error.into());
            }
        };
        account.reserve_object(scanned.object.bytes())?;
        bytes += scanned.object.bytes();
        gathered.push(ReceivedObject { object: scanned.object, key: scanned.key, line: None });
        if bytes >= GATHERED_BYTES || gathered.len() == rules.slice_len() {
            take(list, std::mem::take(&mut gathered), rules).await?;
            bytes = 0;
        }
    }
    take(list, gathered, rules).await?;
    account.release(text.len());
    Ok(true)
}

/// Reads the lines of a list; answers how many there are by its last line.
async fn read_lines(
    list: &mut ObjectList,
    incoming: Incoming,
    rules: &AdmissionRules,
    most: BatchLimit,
) -> Result<Option<u64>, Problem> {
    let longest = object_bytes_max(&incoming, &rules.config);
    let mut lines = Lines::new(incoming, longest);
    let (mut end, mut gathered, mut bytes) = (None, Vec::new(), 0);
    loop {
        let index = list.len() + gathered.len();
        let parsed = match next_object(&mut lines, &mut end, index, most, &rules.config).await {
            Ok(Some(parsed)) => parsed,
            Ok(None) => break,
            Err(problem) => {
                // One that came before is told of first.
                take(list, gathered, rules).await?;
                return Err(problem);
            }
        };
        bytes += parsed.object.bytes();
        // One that is wrong by itself is told of at once, however slowly the rest comes.
        let is_whole = parsed.key.is_err() || bytes >= GATHERED_BYTES;
        gathered.push(parsed);
        if is_whole || gathered.len() == rules.slice_len() {
            take(list, std::mem::take(&mut gathered), rules).await?;
            bytes = 0;
            tokio::task::yield_now().await;
        }
    }
    take(list, gathered, rules).await?;
    Ok(end)
}

/// Puts objects that have come into the list, as the queue takes them.
async fn take(
    list: &mut ObjectList,
    parsed: Vec<ReceivedObject>,
    rules: &AdmissionRules,
) -> Result<(), Problem> {
    let before = list.len();
    let keyed = rules.each(Arc::new(parsed), move |reader, index, parsed| {
        let keyed = reader.keyed(parsed, None, ObjectUse::Stored);
        keyed.map_err(|problem| problem.in_item(before + index, parsed.line))
    });
    keyed.await?.into_iter().for_each(|(key, object)| list.push(key, object));
    Ok(())
}

/// The next object of a list of lines; none at its end. `end` is what the last line says.
async fn next_object(
    lines: &mut Lines,
    end: &mut Option<u64>,
    index: usize,
    most: BatchLimit,
    config: &Config,
) -> Result<Option<ReceivedObject>, Problem> {
    while let Some(line) = lines.next().await? {
        if let Some(end) = end {
            let number = lines.number();
            let detail = format!("line {number} follows the last line, {{\"$end\":{end}}}");
            return Err(incomplete(&detail).with("line", number));
        }
        *end = end_of(&line);
        if end.is_none() {
            most.check(index + 1)?;
            lines.account().reserve_object(0)?;
            let parsed = parsed_line(&line, lines, index, config)?;
            if parsed.key.is_err() && end_of::<Value>(&line).is_some() {
                let number = lines.number();
                let detail = format!("line {number}: $end takes the number of objects before it");
                return Err(incomplete(&detail).with("line", number));
            }
            return Ok(Some(parsed));
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

fn end_of<C: DeserializeOwned>(line: &str) -> Option<C> {
    let could_be = line.len() <= END_LINE_BYTES_MAX && line.contains("$end");
    let end: Option<End<C>> = could_be.then(|| serde_json::from_str(line).ok()).flatten();
    end.map(|end| end.count)
}

fn incomplete(detail: &str) -> Problem {
    Problem::new(Code::IncompleteList, format!("{detail}; nothing was changed"))
}
