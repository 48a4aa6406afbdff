//! Documents with an object and other fields: deltas and seeds.

use std::ops::Range;
use std::sync::Arc;

use deltaq_engine::config::Config;
use deltaq_engine::key::KeySpec;
use deltaq_engine::object::{self, Objects, Scanned};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::body::{Format, Incoming, Start, read_envelope};
use super::ndjson::Lines;
use super::received::{BatchLimit, empty_body, object_bytes_max};
use crate::http::problem::Problem;

/// A document of a body.
#[derive(Debug)]
pub(in crate::http) struct Document {
    /// The text that contains the document. A body may be large, so it is not copied.
    body: Arc<String>,
    range: Range<usize>,
    start: Start,
    /// The line of the document in an NDJSON body.
    line: Option<usize>,
}

impl Document {
    /// A document that is a whole body.
    pub(in crate::http) fn alone(text: String) -> Self {
        Self { range: 0..text.len(), body: Arc::new(text), start: Start::OF_BODY, line: None }
    }

    /// A line of a body.
    pub(in crate::http) fn of_line(text: String, line: usize) -> Self {
        Self { start: Start { line, column: 1 }, line: Some(line), ..Self::alone(text) }
    }

    fn text(&self) -> &str {
        self.body.get(self.range.clone()).unwrap_or_default()
    }

    /// Reads the object in the document.
    pub(in crate::http) fn object(&self, raw: &RawValue, spec: &KeySpec) -> Result<Scanned, Problem> {
        object::scan(raw.get(), spec).map_err(|error| {
            let text = self.text();
            let before = text.get(..offset(raw.get(), text)).unwrap_or_default();
            self.start.behind(before).of_error(error).into()
        })
    }

    /// Parses the document.
    pub(in crate::http) fn envelope<'t, T: Deserialize<'t>>(&'t self) -> Result<T, Problem> {
        read_envelope(self.text(), self.start)
    }

    /// Parses the document without checking its object, to find out what was left out.
    pub(in crate::http) fn outline<'t, T: Deserialize<'t>>(&'t self) -> Option<T> {
        serde_json::from_str(self.text()).ok()
    }

    /// Adds the position of the document to a problem.
    pub(in crate::http) fn problem(&self, index: usize, problem: Problem) -> Problem {
        problem.in_item(index, self.line)
    }
}

/// The documents of a body in JSON: the body itself, or the elements of an array.
pub(in crate::http) struct Documents {
    body: Arc<String>,
    /// The length of the text that was read, and the position of its end.
    passed: usize,
    start: Start,
}

impl Documents {
    /// Reads the documents of a body. The size of the body limits the memory.
    pub(in crate::http) fn of(text: String) -> Self {
        Self { body: Arc::new(text), passed: 0, start: Start::OF_BODY }
    }

    /// The text of the body.
    pub(in crate::http) fn text(&self) -> Arc<String> {
        self.body.clone()
    }

    /// The next document, which has the text `raw`.
    pub(in crate::http) fn next(&mut self, raw: &str) -> Document {
        let begin = offset(raw, &self.body);
        self.start = self.start.behind(self.body.get(self.passed..begin).unwrap_or_default());
        self.passed = begin;
        Document { body: self.body.clone(), range: begin..begin + raw.len(), start: self.start, line: None }
    }
}

/// The documents of a body: a single one, an array, or one per line.
pub(in crate::http) async fn documents(
    incoming: Incoming,
    most: BatchLimit,
    config: &Config,
    skip_invalid: bool,
) -> Result<Vec<Document>, Problem> {
    let (mut all, account) = (Vec::new(), incoming.account());
    if incoming.format == Format::Ndjson {
        let longest = object_bytes_max(&incoming, config, skip_invalid);
        let mut lines = Lines::new(incoming, longest);
        while let Some(text) = lines.next().await? {
            most.check(all.len() + 1)?;
            account.reserve_object(text.len())?;
            all.push(Document::of_line(text, lines.number()));
        }
        return Ok(all);
    }
    let text = incoming.text().await?;
    if text.trim().is_empty() {
        return Err(empty_body());
    }
    let mut documents = Documents::of(text);
    let text = documents.text();
    let mut objects = Objects::of_envelopes(&text)?;
    while objects.has_next() {
        most.check(all.len() + 1)?;
        let Some(raw) = objects.next_text()? else { break };
        account.reserve_object(raw.len())?;
        all.push(documents.next(raw));
    }
    Ok(all)
}

/// The offset of a part of a text.
fn offset(part: &str, text: &str) -> usize {
    part.as_ptr().addr().saturating_sub(text.as_ptr().addr())
}
