//! Reading lists of objects from a body: one document or many, as JSON or NDJSON.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::engine::admission::Unfit;
use crate::engine::config::Config;
use crate::engine::delta::DeltaKind;
use crate::engine::key::{Key, KeyError, KeySet};
use crate::engine::object::{self, Object, Scanned};
use crate::http::body::{Format, Incoming, document_problem};
use crate::http::ndjson::Lines;
use crate::http::problem::{Code, Problem};

/// How much longer than an object the document around it may be, in bytes.
const ENVELOPE_BYTES_MAX: usize = 16 << 10;

/// An object of a body, as it came.
#[derive(Debug)]
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

/// The object as the queue takes it, and its key.
pub(super) fn admitted(came: Scanned, config: &Config, fate: Fate) -> Result<Scanned, Problem> {
    let Some(admission) = &config.admission else { return Ok(came) };
    match admission.admit(&came.object, fate == Fate::Kept, config.max_object_bytes)? {
        None => Ok(came),
        Some(object) => object::scan(object.as_str(), &config.key).map_err(|_deep| Unfit::TooDeep.into()),
    }
}

/// The objects as the queue takes them, with their keys, or the explicit one of a single object that
/// does not carry it.
pub(super) fn keys_of(
    parsed: &[Parsed],
    explicit: Option<&Key>,
    config: &Config,
    fate: Fate,
) -> Result<Vec<(Key, Object)>, Problem> {
    let keyed = parsed.iter().enumerate().map(|(index, parsed)| {
        let came = Scanned { object: parsed.object.clone(), key: parsed.key.clone() };
        let keyed = admitted(came, config, fate)
            .and_then(|taken| Ok((key_or_explicit(taken.key, explicit)?, taken.object)));
        keyed.map_err(|problem| problem.in_item(index, parsed.line))
    });
    keyed.collect()
}

/// Gives other requests their turn, now and then, while many objects are read.
pub(super) async fn give_way(objects: usize, config: &Config) {
    let stretch = config.admission.as_ref().map_or(LINES_AT_A_STRETCH, |_| ADMITTED_AT_A_STRETCH);
    if objects.is_multiple_of(stretch) {
        tokio::task::yield_now().await;
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
/// The same, where each object has to be admitted.
const ADMITTED_AT_A_STRETCH: usize = 100;

/// The whole list of a Replace.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) items: Vec<(Key, Object)>,
    pub(super) keys: KeySet,
    lines: bool,
}

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
        config: &Config,
        most: usize,
        count: Option<u64>,
    ) -> Result<Self, Problem> {
        let mut listing = Self { lines: incoming.format == Format::Ndjson, ..Self::default() };
        let mut end = None;
        if listing.lines {
            let longest = line_bytes_max(&incoming, config);
            let mut lines = Lines::new(incoming, longest);
            while let Some(line) = lines.next().await? {
                if let Some(end) = end {
                    return Err(incomplete(&format!(
                        "line {} follows the last line, {{\"$end\":{end}}}",
                        lines.number()
                    )));
                }
                end = end_of(&line);
                if end.is_none() {
                    check_count(listing.items.len() + 1, most)?;
                    let parsed = parsed_line(&line, lines.number(), listing.items.len(), config)?;
                    listing.push(parsed, config)?;
                    give_way(listing.items.len(), config).await;
                }
            }
            if count.is_none() && end.is_none() {
                let have = listing.items.len();
                return Err(incomplete(&format!(
                    "{have} objects came, but nothing says that this is all: give count=N or a last line {{\"$end\":N}}"
                )));
            }
        } else {
            let empty = count == Some(0);
            let (parsed, many) = objects(incoming, config, most, true).await?;
            if parsed.is_empty() && !many && !empty {
                return Err(incomplete("the body is empty; only [] or count=0 empties a source"));
            }
            for parsed in parsed {
                listing.push(parsed, config)?;
                give_way(listing.items.len(), config).await;
            }
        }
        for stated in [count, end].into_iter().flatten() {
            let have = listing.items.len() as u64;
            if stated != have {
                return Err(incomplete(&format!("the list says {stated} objects, and {have} came")));
            }
        }
        Ok(listing)
    }

    fn push(&mut self, parsed: Parsed, config: &Config) -> Result<(), Problem> {
        let index = self.items.len();
        let came = Scanned { object: parsed.object, key: parsed.key };
        let taken = admitted(came, config, Fate::Kept);
        let keyed = taken.and_then(|taken| Ok((taken.key?, taken.object)));
        let (key, object) = keyed.map_err(|problem| problem.in_item(index, parsed.line))?;
        self.keys.insert(key.clone());
        self.items.push((key, object));
        Ok(())
    }
}

/// The keys of objects by other settings than those that they were read by before.
pub(super) fn read_keys_again(
    items: Vec<(Key, Object)>,
    config: &Config,
) -> Result<Vec<(Key, Object)>, Problem> {
    let again = items.into_iter().enumerate().map(|(index, (_, object))| {
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
