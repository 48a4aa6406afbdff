//! Reads the objects of a body, in JSON or NDJSON, before admission.

use deltaq_engine::config::Config;
use deltaq_engine::key::{Key, KeyError};
use deltaq_engine::object::{self, Object, Objects, SyntaxError};
use deltaq_engine::refusal::Refusal;

use super::body::{Format, Incoming, Start, hinted, line_hinted};
use super::invalid::SKIPPED_BYTES_MAX;
use super::ndjson::Lines;
use crate::http::problem::{Code, Problem};
use crate::http::state::AppState;

/// An object of a body, before admission.
#[derive(Clone, Debug)]
pub(in crate::http) struct ReceivedObject {
    pub(in crate::http) object: Object,
    pub(in crate::http) key: Result<Key, KeyError>,
    /// The line of the object in an NDJSON list.
    pub(in crate::http) line: Option<usize>,
}

/// The objects of a body, which may be empty, and whether the body is a list. With a key in the query, null counts as
/// an empty body and not as a list.
pub(in crate::http) async fn objects(
    incoming: Incoming,
    config: &Config,
    most: BatchLimit,
    has_key: bool,
) -> Result<(Vec<ReceivedObject>, bool), Problem> {
    let (mut all, account) = (Vec::new(), incoming.account());
    if incoming.format == Format::Ndjson {
        let longest = object_bytes_max(&incoming, config, false);
        let mut lines = Lines::new(incoming, longest);
        while let Some(line) = lines.next().await? {
            most.check(all.len() + 1)?;
            account.reserve_object(0)?;
            all.push(parsed_line(&line, &lines, all.len(), config)?);
        }
        return Ok((all, true));
    }
    let text = incoming.text().await?;
    if text.trim().is_empty() || (has_key && text.trim() == "null") {
        return Ok((all, false));
    }
    let wrong = |error: SyntaxError| hinted(error.into(), &text);
    let mut objects = Objects::new(&text).map_err(wrong)?;
    while objects.has_next() {
        most.check(all.len() + 1)?;
        let Some(scanned) = objects.next_object(&config.key).map_err(wrong)? else { break };
        account.reserve_object(scanned.object.bytes())?;
        all.push(ReceivedObject { object: scanned.object, key: scanned.key, line: None });
    }
    let is_list = objects.is_list();
    account.release(text.len());
    Ok((all, is_list))
}

/// Maximum size of an object on a line. With pruning, an object may be as large as a whole body before it is pruned. An object that
/// is left out because it is too large is read for its key.
pub(in crate::http) fn object_bytes_max(incoming: &Incoming, config: &Config, skip_invalid: bool) -> usize {
    let prunes = config.admission.as_ref().is_some_and(|admission| !admission.prune.is_empty());
    let of_body = if prunes { incoming.bytes_max() } else { 0 };
    let skipped = if skip_invalid { SKIPPED_BYTES_MAX } else { 0 };
    config.max_object_bytes.max(of_body).max(skipped)
}

/// Reads the last line.
pub(in crate::http) fn parsed_line(
    text: &str,
    lines: &Lines,
    index: usize,
    config: &Config,
) -> Result<ReceivedObject, Problem> {
    let (line, limit) = (lines.number(), lines.object_bytes_max());
    let start = Start { line, column: 1 };
    let scanned = object::scan(text, &config.key);
    let wrong = |error| line_hinted(start.of_error(error).into(), text).in_item(index, Some(line));
    let scanned = scanned.map_err(wrong)?;
    let bytes = scanned.object.bytes();
    if bytes > limit {
        let refusal = Refusal::ObjectTooLarge { limit, bytes, index };
        return Err(Problem::from(refusal).with("line", line));
    }
    Ok(ReceivedObject { object: scanned.object, key: scanned.key, line: Some(line) })
}

/// The problem for an empty body if objects are required.
pub(in crate::http) fn empty_body() -> Problem {
    let problem = Problem::new(Code::InvalidJson, "the body is empty");
    problem.hint("send an object or a list of objects").with("line", 1).with("column", 1)
}

/// Maximum number of objects in a list.
#[derive(Clone, Copy, Debug)]
pub(in crate::http) struct BatchLimit {
    objects: usize,
    setting: &'static str,
    way_out: &'static str,
}

impl BatchLimit {
    /// The limit of a call that can be split.
    pub(in crate::http) fn of_batch(state: &AppState) -> Self {
        let way_out = "send it in parts";
        Self { objects: state.limits.max_batch, setting: "queues.max_batch", way_out }
    }

    /// The limit of a seed.
    pub(in crate::http) fn of_seed(state: &AppState) -> Self {
        Self { way_out: "send it in parts", ..Self::of_list(state) }
    }

    /// The limit of a Replace.
    pub(in crate::http) fn of_list(state: &AppState) -> Self {
        let way_out =
            "parts of it would delete one another: give each a source of its own, or raise the setting";
        Self { objects: state.limits.max_replace_objects, setting: "queues.max_replace_objects", way_out }
    }

    pub(in crate::http) fn check(self, objects: usize) -> Result<(), Problem> {
        let Self { objects: most, setting, way_out } = self;
        if objects <= most {
            return Ok(());
        }
        let detail = format!("the list has more than {most} objects ({setting})");
        Err(Problem::new(Code::BatchTooLarge, detail).hint(way_out).with("limit", most))
    }
}
