//! Received objects: reading them from a body in JSON or NDJSON, and admitting them to a queue.

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

/// The rules for the objects of a call: the settings of the queue, or the settings with which the call would create it.
#[derive(Clone, Debug)]
pub(super) struct AdmissionRules {
    pub(super) config: Arc<Config>,
    /// The queue, if it exists.
    pub(super) handle: Option<Arc<Handle>>,
    /// Permits for admission checks. None for a queue that does not exist yet, which has no admission rules.
    permits: Option<Arc<AdmissionPermits>>,
    account: Account,
    /// Longest wait for a permit. A Replace and a seed have no other timeout.
    patience: Duration,
}

/// Reads a slice of the objects of a call.
pub(super) struct Reader<'c> {
    pub(super) config: &'c Config,
    /// Bytes that defaults have added so far.
    grown: usize,
}

/// An object of a body, before admission.
#[derive(Clone, Debug)]
pub(super) struct ReceivedObject {
    pub(super) object: Object,
    pub(super) key: Result<Key, KeyError>,
    /// The line of the object in an NDJSON list.
    pub(super) line: Option<usize>,
}

/// The objects of a body, which may be empty, and whether the body is a list.
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

/// Longest object of a line. With pruning, an object may be as long as a whole body before it is pruned.
pub(super) fn object_bytes_max(incoming: &Incoming, config: &Config) -> usize {
    let prunes = config.admission.as_ref().is_some_and(|admission| !admission.prune().is_empty());
    if prunes { config.max_object_bytes.max(incoming.bytes_max()) } else { config.max_object_bytes }
}

/// Reads the last line.
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

/// The problem of an empty body where objects are required.
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
    /// The rules of a queue for the objects of this body.
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

    /// The rules for a call without objects, which needs no permit.
    pub(super) fn without_objects(self) -> Self {
        Self { permits: None, ..self }
    }

    /// The rules of the queue that has the name now, if there is one.
    pub(super) fn found(&self, state: &AppState, name: &Name) -> Self {
        Self::for_queue(state, name, self.account.clone())
    }

    /// The present rules of the queue.
    pub(super) fn now(&self, handle: Arc<Handle>) -> Self {
        Self::by(handle, self.account.clone(), self.patience)
    }

    /// The account that counts the bytes of the body.
    pub(super) fn account(&self) -> Account {
        self.account.clone()
    }

    /// The number of objects that are read before other requests run: at most some milliseconds.
    pub(super) fn slice_len(&self) -> usize {
        if self.config.admission.is_some() { ADMITTED_PER_SLICE } else { LINES_PER_SLICE }
    }

    /// Calls `read` with each received entry and its index. Admission runs on blocking threads, because its duration depends on
    /// the schema.
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
            let (start, length) = (all.len(), self.slice_len());
            let grown = match &self.permits {
                Some(permits) => {
                    let (came, read, config) = (came.clone(), read.clone(), self.config.clone());
                    let account = self.account.clone();
                    let work = move || {
                        // The bytes count until the work ends, also if its caller disconnects.
                        let _counted = account;
                        let mut some = Vec::new();
                        read_some(&config, &came, start, length, &read, &mut some).map(|grown| (some, grown))
                    };
                    let turn = tokio::time::timeout(self.patience, permits.acquire()).await;
                    let turn = turn.map_err(|_| Problem::timed_out(self.patience))??;
                    let (some, grown) = run_blocking(turn, work).await?;
                    all.extend(some);
                    grown
                }
                None => read_some(&self.config, &came, start, length, &read, &mut all)?,
            };
            self.account.reserve(grown)?;
        }
        Ok(all)
    }
}

/// Adds the results of `read` for one slice to `all`. Returns the bytes that admission has added.
fn read_some<C, T>(
    config: &Config,
    came: &[C],
    start: usize,
    length: usize,
    read: &impl Fn(&mut Reader<'_>, usize, &C) -> Result<T, Problem>,
    all: &mut Vec<T>,
) -> Result<usize, Problem> {
    let mut reader = Reader::new(config);
    for (index, came) in came.iter().enumerate().skip(start).take(length) {
        all.push(read(&mut reader, index, came)?);
    }
    Ok(reader.grown)
}

impl<'c> Reader<'c> {
    /// A reader with these settings.
    pub(super) const fn new(config: &'c Config) -> Self {
        Self { config, grown: 0 }
    }

    /// The object after admission, and its key.
    pub(super) fn admitted(&mut self, came: Scanned, object_use: ObjectUse) -> Result<Scanned, Problem> {
        let Some(admission) = &self.config.admission else { return Ok(came) };
        let object =
            admission.admit(&came.object, object_use == ObjectUse::Stored, self.config.max_object_bytes)?;
        let Some(object) = object else { return Ok(came) };
        self.grown += object.as_str().len().saturating_sub(came.object.as_str().len());
        object::scan(object.as_str(), &self.config.key).map_err(|_deep| Unfit::TooDeep.into())
    }

    /// Checks the length. The queue checks it again, but does not know the place of the object.
    pub(super) fn check_length(&self, object: &Object) -> Result<(), Problem> {
        let (bytes, limit) = (object.bytes(), self.config.max_object_bytes);
        let index = 0;
        if bytes > limit { Err(Refusal::ObjectTooLarge { limit, bytes, index }.into()) } else { Ok(()) }
    }

    /// The object after admission and its key: its own, or the explicit one if the object carries none.
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

/// The own key of an object, or the explicit one if it has none. They must be equal if there are both.
pub(super) fn key_or_explicit(own: Result<Key, KeyError>, explicit: Option<&Key>) -> Result<Key, KeyError> {
    match (own, explicit) {
        (Ok(own), Some(explicit)) if own != *explicit => {
            Err(KeyError::Differs { explicit: explicit.as_str().into(), own: own.as_str().into() })
        }
        (Err(error), Some(explicit)) if error.is_missing() => Ok(explicit.clone()),
        (own, _) => own,
    }
}

/// Most objects of a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchLimit {
    objects: usize,
    setting: &'static str,
    way_out: &'static str,
}

impl BatchLimit {
    /// The limit of a call that can be split.
    pub(super) fn of_batch(state: &AppState) -> Self {
        let way_out = "send it in parts";
        Self { objects: state.limits.max_batch, setting: "queues.max_batch", way_out }
    }

    /// The limit of a seed.
    pub(super) fn of_seed(state: &AppState) -> Self {
        Self { way_out: "send it in parts", ..Self::of_list(state) }
    }

    /// The limit of a Replace.
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

/// Lines of a fast stream that are read before other requests run: about a millisecond.
const LINES_PER_SLICE: usize = 1_000;
/// The same with admission, where each object may grow up to the longest object.
const ADMITTED_PER_SLICE: usize = 100;
/// Bytes of objects that are collected before they are admitted.
pub(super) const GATHERED_BYTES: usize = 1 << 20;

/// The last line of an NDJSON list, with the number of objects before it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct End<C> {
    #[serde(rename = "$end")]
    count: C,
}

/// Reads a list that declares that it is complete: a JSON array by its syntax, NDJSON by `count` or by its last line.
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
                "{have} objects arrived, but nothing declares that the list is complete: send count=N or a last line {{\"$end\":N}}"
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
            return Err(incomplete(&format!("the list declares {stated} objects, and {have} arrived")));
        }
    }
    Ok(list)
}

/// Reads the objects of a list in JSON. Returns whether the body has any JSON. The first wrong object ends the reading.
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
                // A wrong object before it is reported first.
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

/// Reads the lines of a list. Returns the number of objects that the last line declares.
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
                // A wrong object before it is reported first.
                take(list, gathered, rules).await?;
                return Err(problem);
            }
        };
        bytes += parsed.object.bytes();
        // An object without a key is reported at once, however slowly the rest arrives.
        let is_due = parsed.key.is_err() || bytes >= GATHERED_BYTES;
        gathered.push(parsed);
        if is_due || gathered.len() == rules.slice_len() {
            take(list, std::mem::take(&mut gathered), rules).await?;
            bytes = 0;
            tokio::task::yield_now().await;
        }
    }
    take(list, gathered, rules).await?;
    Ok(end)
}

/// Admits received objects and adds them to the list.
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

/// The next object of an NDJSON list; none at its end. `end` is the number that the last line declares.
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

/// Reads the keys of objects by other settings.
pub(super) fn read_keys_again(list: ObjectList, config: &Config) -> Result<ObjectList, Problem> {
    let again = list.into_iter().enumerate().map(|(index, (_, object))| {
        let scanned = object::scan(object.as_str(), &config.key)?;
        let key = scanned.key.map_err(|error| Problem::from(error).in_item(index, None))?;
        Ok((key, object))
    });
    again.collect()
}

/// Longest last line, in bytes: two braces, the name, twenty digits and some white space.
const END_LINE_BYTES_MAX: usize = 256;

fn end_of<C: DeserializeOwned>(line: &str) -> Option<C> {
    let could_be = line.len() <= END_LINE_BYTES_MAX && line.contains("$end");
    let end: Option<End<C>> = could_be.then(|| serde_json::from_str(line).ok()).flatten();
    end.map(|end| end.count)
}

fn incomplete(detail: &str) -> Problem {
    Problem::new(Code::IncompleteList, format!("{detail}; nothing was changed"))
}
