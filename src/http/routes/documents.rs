//! Documents that hold an object beside other fields: deltas and seeds.

use std::ops::Range;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::received::{BatchLimit, empty_body, object_bytes_max};
use crate::engine::config::Config;
use crate::engine::key::KeySpec;
use crate::engine::object::{self, Objects, Scanned};
use crate::http::body::{Format, Incoming, Start, read_envelope};
use crate::http::ndjson::Lines;
use crate::http::problem::Problem;

/// A document of a body.
#[derive(Debug)]
pub(super) struct Document {
    /// The text that the document is a part of, which is not copied: a body may be large.
    body: Arc<String>,
    range: Range<usize>,
    start: Start,
    /// Its line, if each line is a document.
    line: Option<usize>,
}

impl Document {
    /// A document that is a whole body.
    pub(super) fn alone(text: String) -> Self {
        Self { range: 0..text.len(), body: Arc::new(text), start: Start::OF_BODY, line: None }
    }

    /// A line of a body.
    pub(super) fn of_line(text: String, line: usize) -> Self {
        Self { start: Start { line, column: 1 }, line: Some(line), ..Self::alone(text) }
    }

    fn text(&self) -> &str {
        self.body.get(self.range.clone()).unwrap_or_default()
    }

    /// Reads an object that is a part of it.
    pub(super) fn object(&self, raw: &RawValue, spec: &KeySpec) -> Result<Scanned, Problem> {
        object::scan(raw.get(), spec).map_err(|error| {
            let text = self.text();
            let before = text.get(..offset(raw.get(), text)).unwrap_or_default();
            self.start.behind(before).of_error(error).into()
        })
    }

    /// Reads it as an object of known fields, one of which is a producer's object.
    pub(super) fn envelope<'t, T: Deserialize<'t>>(&'t self) -> Result<T, Problem> {
        read_envelope(self.text(), self.start)
    }

    /// Says of a problem that it is this document's.
    pub(super) fn problem(&self, index: usize, problem: Problem) -> Problem {
        problem.in_item(index, self.line)
    }
}

/// The documents of a body in JSON: the body itself, or the elements of an array.
pub(super) struct Documents {
    body: Arc<String>,
    /// How far the body has been read, and the place of that.
    passed: usize,
    start: Start,
}

impl Documents {
    /// Those of a body. Memory is bounded by the body.
    pub(super) fn of(text: String) -> Self {
        Self { body: Arc::new(text), passed: 0, start: Start::OF_BODY }
    }

    /// The text that they are parts of.
    pub(super) fn text(&self) -> Arc<String> {
        self.body.clone()
    }

    /// The next one, of which the text is `raw`.
    pub(super) fn next(&mut self, raw: &str) -> Document {
        let begin = offset(raw, &self.body);
        self.start = self.start.behind(self.body.get(self.passed..begin).unwrap_or_default());
        self.passed = begin;
        Document { body: self.body.clone(), range: begin..begin + raw.len(), start: self.start, line: None }
    }
}

/// The documents of a body, which is one, an array, or a line each.
pub(super) async fn documents(
    incoming: Incoming,
    most: BatchLimit,
    config: &Config,
) -> Result<Vec<Document>, Problem> {
    let (mut all, account) = (Vec::new(), incoming.account());
    if incoming.format == Format::Ndjson {
        let longest = object_bytes_max(&incoming, config);
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
    let spec = KeySpec::default();
    let mut objects = Objects::of_envelopes(&text, &spec)?;
    while objects.has_next() {
        most.check(all.len() + 1)?;
        let Some(raw) = objects.next_text()? else { break };
        account.reserve_object(raw.len())?;
        all.push(documents.next(raw));
    }
    Ok(all)
}

/// Where a part of a text begins in it.
fn offset(part: &str, text: &str) -> usize {
    part.as_ptr().addr().saturating_sub(text.as_ptr().addr())
}
