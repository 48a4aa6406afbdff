//! Reads the list of a Replace, which must be complete.

use std::sync::Arc;

use deltaq_engine::command::ObjectList;
use deltaq_engine::config::Config;
use deltaq_engine::excerpt::Excerpt;
use deltaq_engine::key::Key;
use deltaq_engine::object::Objects;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::admitted::{AdmissionRules, ObjectUse, Reader};
use super::body::{Format, Incoming, hinted};
use super::invalid::{Invalid, InvalidKey};
use super::ndjson::Lines;
use super::received::{BatchLimit, ReceivedObject, object_bytes_max, parsed_line};
use crate::http::problem::{Code, Problem};

/// Number of bytes of objects that are collected before they are admitted.
pub(in crate::http) const GATHERED_BYTES: usize = 1 << 20;

/// The last line of an NDJSON list, with the number of objects before it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct End<C> {
    #[serde(rename = "$end")]
    count: C,
}

/// The list of a Replace.
#[derive(Default)]
pub(in crate::http) struct ReadList {
    pub(in crate::http) list: ObjectList,
    /// Whether the body is a single object and not a list.
    pub(in crate::http) is_single: bool,
    pub(in crate::http) places: Places,
    /// The objects that were left out. `None` without `skip_invalid`: the first such object ends the call.
    pub(in crate::http) invalid: Option<Invalid>,
}

impl ReadList {
    /// The number of objects that were read.
    fn len(&self) -> usize {
        self.list.len() + self.invalid.as_ref().map_or(0, |invalid| invalid.count)
    }
}

/// The positions of the objects of a list in the body, where others may have been left out.
#[derive(Default)]
pub(in crate::http) struct Places {
    /// The first object, and each one that does not directly follow the object before it, with its index in the list.
    breaks: Vec<(usize, Place)>,
}

/// Where an object was in the body.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    index: usize,
    /// For NDJSON.
    line: Option<usize>,
}

impl Places {
    /// Notes the place of the object with this index in the list. Objects are noted in the order of the list.
    fn note(&mut self, at: usize, place: Place) {
        if self.of(at) != Some(place) {
            self.breaks.push((at, place));
        }
    }

    fn of(&self, at: usize) -> Option<Place> {
        let after = self.breaks.partition_point(|(first, _)| *first <= at);
        let (first, Place { index, line }) = self.breaks.get(after.checked_sub(1)?)?;
        let behind = at - first;
        Some(Place { index: index + behind, line: line.map(|line| line + behind) })
    }

    /// Keeps those objects of a list for which a function is true.
    fn retain(&mut self, list: ObjectList, keeps: impl Fn(&Key) -> bool) -> ObjectList {
        let (mut kept, mut places) = (ObjectList::default(), Self::default());
        for (at, (key, object)) in list.into_iter().enumerate() {
            if keeps(&key) {
                if let Some(place) = self.of(at) {
                    places.note(kept.len(), place);
                }
                kept.push(key, object);
            }
        }
        *self = places;
        kept
    }

    /// The list with each key once. Without `keeps_last`, a list that names a key several times is refused.
    pub(in crate::http) fn without_duplicates(
        &self,
        mut list: ObjectList,
        keeps_last: bool,
    ) -> Result<ObjectList, Problem> {
        if keeps_last {
            list.keep_last();
        }
        let Some((first, index)) = list.duplicate() else { return Ok(list) };
        let key = list.key_at(index).map(|key| Excerpt(key.as_str()).to_string()).unwrap_or_default();
        let places = self.of(first).zip(self.of(index));
        let lines = places.and_then(|(first, second)| first.line.zip(second.line));
        let (first, index) = places.map_or((first, index), |(first, second)| (first.index, second.index));
        let at = match lines {
            Some((first, line)) => format!("lines {first} and {line}"),
            None => format!("objects {first} and {index}"),
        };
        let problem = Problem::new(Code::DuplicateKey, format!("{at} have the same key {key}"))
            .hint("send each key once, or add duplicates=last")
            .with("first_index", first)
            .with("index", index);
        Err(match lines {
            Some((first, line)) => problem.with("first_line", first).with("line", line),
            None => problem,
        })
    }
}

/// Reads a list that declares that it is complete: a JSON array by its syntax, NDJSON by `count` or by its last line.
pub(in crate::http) async fn read_list(
    incoming: Incoming,
    rules: &AdmissionRules,
    most: BatchLimit,
    count: Option<u64>,
    skip_invalid: bool,
) -> Result<ReadList, Problem> {
    let mut read = ReadList { invalid: skip_invalid.then(Invalid::default), ..ReadList::default() };
    let mut end = None;
    if incoming.format == Format::Ndjson {
        end = read_lines(&mut read, incoming, rules, most).await?;
        if count.is_none() && end.is_none() {
            let have = read.len();
            return Err(incomplete(&format!(
                "{have} objects arrived, but nothing declares that the list is complete"
            ))
            .hint("send count=N or a last line {\"$end\":N}"));
        }
    } else {
        match read_objects(&mut read, incoming, rules, most).await? {
            None if count != Some(0) => {
                return Err(incomplete("the body is empty").hint("[] or count=0 empties a source"));
            }
            is_list => read.is_single = is_list == Some(false),
        }
    }
    for stated in [count, end].into_iter().flatten() {
        let have = read.len() as u64;
        if stated != have {
            return Err(incomplete(&format!("the list declares {stated} objects, and {have} arrived")));
        }
    }
    if let Some(invalid) = read.invalid.as_mut().filter(|invalid| invalid.count > 0) {
        invalid.check_share(read.list.len())?;
        // A valid object of such a key may be older than the invalid one, so it is left out, too.
        read.list = read.places.retain(read.list, |key| !invalid.keys.contains(key));
    }
    Ok(read)
}

/// Reads the objects of a list in JSON. Returns whether the body is a list; `None` if it is empty. The first wrong object ends
/// the reading.
async fn read_objects(
    read: &mut ReadList,
    incoming: Incoming,
    rules: &AdmissionRules,
    most: BatchLimit,
) -> Result<Option<bool>, Problem> {
    let account = incoming.account();
    let text = incoming.text().await?;
    if text.trim().is_empty() {
        return Ok(None);
    }
    let mut objects = Objects::new(&text).map_err(|error| hinted(error.into(), &text))?;
    let (mut gathered, mut bytes) = (Vec::new(), 0);
    while objects.has_next() {
        most.check(read.len() + gathered.len() + 1)?;
        let scanned = match objects.next_object(&rules.config.key) {
            Ok(Some(scanned)) => scanned,
            Ok(None) => break,
            Err(error) => {
                // An earlier wrong object is reported first.
                take(read, gathered, rules).await?;
                return Err(hinted(error.into(), &text));
            }
        };
        account.reserve_object(scanned.object.bytes())?;
        bytes += scanned.object.bytes();
        gathered.push(ReceivedObject { object: scanned.object, key: scanned.key, line: None });
        if bytes >= GATHERED_BYTES || gathered.len() == rules.slice_len() {
            take(read, std::mem::take(&mut gathered), rules).await?;
            bytes = 0;
        }
    }
    take(read, gathered, rules).await?;
    let is_list = objects.is_list();
    account.release(text.len());
    Ok(Some(is_list))
}

/// Reads the lines of a list. Returns the number of objects that the last line declares.
async fn read_lines(
    read: &mut ReadList,
    incoming: Incoming,
    rules: &AdmissionRules,
    most: BatchLimit,
) -> Result<Option<u64>, Problem> {
    let longest = object_bytes_max(&incoming, &rules.config, read.invalid.is_some());
    let mut lines = Lines::new(incoming, longest);
    let (mut end, mut gathered, mut bytes) = (None, Vec::new(), 0);
    loop {
        let index = read.len() + gathered.len();
        let parsed = match next_object(&mut lines, &mut end, index, most, &rules.config).await {
            Ok(Some(Ok(parsed))) => parsed,
            Ok(None) => break,
            Ok(Some(Err((key, problem)))) => {
                // An earlier wrong object is reported first.
                take(read, std::mem::take(&mut gathered), rules).await?;
                let Some(invalid) = &mut read.invalid else { return Err(problem) };
                invalid.note(index, key, problem);
                bytes = 0;
                continue;
            }
            Err(problem) => {
                take(read, gathered, rules).await?;
                return Err(problem);
            }
        };
        bytes += parsed.object.bytes();
        // An object without a key is reported at once, even if the rest arrives slowly.
        let is_due = parsed.key.is_err() || bytes >= GATHERED_BYTES;
        gathered.push(parsed);
        if is_due || gathered.len() == rules.slice_len() {
            take(read, std::mem::take(&mut gathered), rules).await?;
            bytes = 0;
            tokio::task::yield_now().await;
        }
    }
    take(read, gathered, rules).await?;
    Ok(end)
}

/// Admits received objects and adds them to the list.
async fn take(
    read: &mut ReadList,
    parsed: Vec<ReceivedObject>,
    rules: &AdmissionRules,
) -> Result<(), Problem> {
    let (before, skips) = (read.len(), read.invalid.is_some());
    let keyed = rules.each(Arc::new(parsed), move |reader, index, parsed| {
        let keyed = reader.keyed(parsed, None, ObjectUse::Stored).and_then(|(key, object)| {
            reader.version(&object, ObjectUse::Stored)?;
            // Without `skip_invalid`, the queue checks the lengths when the whole list has arrived.
            if skips {
                reader.check_length(&object)?;
            }
            Ok((key, object))
        });
        match keyed {
            Ok((key, object)) => Ok(Ok((key, object, Place { index: before + index, line: parsed.line }))),
            Err(problem) => {
                let problem = problem.in_item(before + index, parsed.line);
                if skips {
                    Ok(Err((before + index, InvalidKey::from(parsed.key.clone()), problem)))
                } else {
                    Err(problem)
                }
            }
        }
    });
    for keyed in keyed.await? {
        match keyed {
            Ok((key, object, place)) => {
                read.places.note(read.list.len(), place);
                read.list.push(key, object);
            }
            Err((index, key, problem)) => read.invalid.get_or_insert_default().note(index, key, problem),
        }
    }
    Ok(())
}

/// The next object of an NDJSON list; `None` at its end. `end` is the number that the last line declares.
async fn next_object(
    lines: &mut Lines,
    end: &mut Option<u64>,
    index: usize,
    most: BatchLimit,
    config: &Config,
) -> Result<Option<Result<ReceivedObject, (InvalidKey, Problem)>>, Problem> {
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
            let parsed = match parsed_line(&line, lines, index, config) {
                Ok(parsed) => parsed,
                Err(problem) => return Ok(Some(Err((config.key.read(&line).into(), problem)))),
            };
            if parsed.key.is_err() && end_of::<Value>(&line).is_some() {
                let number = lines.number();
                let detail = format!("line {number}: $end takes the number of objects before it");
                return Err(incomplete(&detail).with("line", number));
            }
            return Ok(Some(Ok(parsed)));
        }
    }
    Ok(None)
}

/// Reads the keys of objects again with changed settings, and checks the versions of the objects.
pub(in crate::http) fn read_keys_again(list: ObjectList, config: &Config) -> Result<ObjectList, Problem> {
    let again = list.into_iter().enumerate().map(|(index, (_, object))| {
        let key = config.key.read(object.as_str()).map_err(Problem::from).and_then(|key| {
            Reader::new(config, None).version(&object, ObjectUse::Stored)?;
            Ok(key)
        });
        Ok((key.map_err(|problem| problem.in_item(index, None))?, object))
    });
    again.collect()
}

/// Maximum length of the last line in bytes: two braces, the name, twenty digits and some whitespace.
const END_LINE_BYTES_MAX: usize = 256;

fn end_of<C: DeserializeOwned>(line: &str) -> Option<C> {
    let could_be = line.len() <= END_LINE_BYTES_MAX && line.contains("$end");
    let end: Option<End<C>> = could_be.then(|| serde_json::from_str(line).ok()).flatten();
    end.map(|end| end.count)
}

fn incomplete(detail: &str) -> Problem {
    Problem::new(Code::IncompleteList, format!("{detail}; nothing was changed"))
}
