//! Reads the text of a body: UTF-8, and JSON documents with known fields.

use std::string::FromUtf8Error;

use deltaq_engine::excerpt::shortened;
use deltaq_engine::object::{self, SyntaxError};
use deltaq_types::strict::{Named, VALUE_ERRORS};
use serde::Deserialize;

use crate::http::problem::{Code, Problem};
use crate::http::request::params::did_you_mean;

const BYTE_ORDER_MARK: char = '\u{feff}';
/// Maximum length of a string in a document with known fields, in bytes. It fits the error of a nack with each byte
/// escaped.
const STRING_BYTES_MAX: usize = 32 << 10;

pub(in crate::http) fn or_empty(text: &str) -> &str {
    if text.trim().is_empty() { "{}" } else { text }
}

/// Refuses a string that is longer than any field may be, because an error message would repeat the string.
pub(in crate::http) fn check_strings(text: &str) -> Result<(), Problem> {
    let mut rest = if text.len() > STRING_BYTES_MAX { text } else { "" };
    while let Some(quote) = memchr::memchr(b'"', rest.as_bytes()) {
        rest = rest.get(quote + 1..).unwrap_or_default();
        let mut end = 0;
        while let Some(next) = memchr::memchr2(b'"', b'\\', rest.as_bytes().get(end..).unwrap_or_default()) {
            end += next;
            if rest.as_bytes().get(end) == Some(&b'"') {
                break;
            }
            end += 2;
        }
        // Without a closing quote, the string ends with the text.
        let is_closed = rest.as_bytes().get(end) == Some(&b'"');
        let bytes = if is_closed { end } else { rest.len() };
        if bytes > STRING_BYTES_MAX {
            let before = text.len() - rest.len();
            let Start { line, column } = Start::OF_BODY.behind(text.get(..before - 1).unwrap_or_default());
            let detail = format!(
                "the string at line {line}, column {column} has more than {STRING_BYTES_MAX} bytes, and no field may be so long"
            );
            let problem = Problem::new(Code::InvalidRequest, detail).with("limit", STRING_BYTES_MAX);
            return Err(problem.with("line", line).with("column", column));
        }
        rest = rest.get(bytes + 1..).unwrap_or_default();
    }
    Ok(())
}

/// The position at which a part of a body begins: line and column in bytes, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) struct Start {
    pub(in crate::http) line: usize,
    pub(in crate::http) column: usize,
}

impl Start {
    /// The start of the body.
    pub(in crate::http) const OF_BODY: Self = Self { line: 1, column: 1 };

    /// The position after `text`, which begins here.
    pub(in crate::http) fn behind(self, text: &str) -> Self {
        let column = text.rfind('\n').map_or(self.column + text.len(), |last| text.len() - last);
        Self { line: self.line + text.matches('\n').count(), column }
    }

    /// The position in the body of a position in a text that begins here.
    fn of(self, line: usize, column: usize) -> (usize, usize) {
        match line {
            0 | 1 => (self.line, self.column + column.max(1) - 1),
            line => (self.line + line - 1, column.max(1)),
        }
    }

    /// An error in a text that begins here.
    pub(in crate::http) fn of_error(self, error: SyntaxError) -> SyntaxError {
        let (line, column) = self.of(error.line, error.column);
        SyntaxError { line, column, ..error }
    }
}

/// Reads one JSON object of known fields.
pub(in crate::http) fn read_document<'t, T: Deserialize<'t>>(text: &'t str) -> Result<T, Problem> {
    // The scan finds errors that serde ignores, such as a duplicate member.
    parse_checked(text, Start::OF_BODY, object::check(text))
}

/// Reads one JSON object of known fields, one of which is a producer's object.
pub(in crate::http) fn read_envelope<'t, T: Deserialize<'t>>(
    text: &'t str,
    start: Start,
) -> Result<T, Problem> {
    parse_checked(text, start, object::check_envelope(text))
}

/// Adds a hint to the problem for a body that is not JSON, if the text looks like another format.
pub(in crate::http) fn hinted(problem: Problem, text: &str) -> Problem {
    if problem.code() != Code::InvalidJson {
        return problem;
    }
    let text = text.trim_start();
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let is_form = first.starts_with(|char: char| char.is_ascii_alphanumeric()) && first.contains('=');
    if is_form {
        return problem.hint("the body looks like a form; send JSON, such as {\"key\":\"a\"}");
    }
    if first.starts_with(|char: char| char.is_ascii_alphabetic()) {
        return problem.hint("send JSON, such as {\"key\":\"a\"}");
    }
    let is_lines =
        first.starts_with('{') && first.trim_end().ends_with('}') && rest.trim_start().starts_with('{');
    if is_lines {
        return problem.hint(
            "the body looks like NDJSON; send it with content-type: application/x-ndjson, or as a JSON array",
        );
    }
    problem
}

/// Adds a hint to the problem for a line that is not JSON, if the line is part of a JSON array.
pub(in crate::http) fn line_hinted(problem: Problem, line: &str) -> Problem {
    if problem.code() != Code::InvalidJson {
        return problem;
    }
    match line.trim().as_bytes() {
        [b'[', ..] => {
            problem.hint("the body looks like a JSON array; send it with content-type: application/json")
        }
        [b'{', .., b'}', b','] => problem.hint("NDJSON has no commas between its objects"),
        _ => problem,
    }
}

fn parse_checked<'t, T: Deserialize<'t>>(
    text: &'t str,
    start: Start,
    checked: Result<(), SyntaxError>,
) -> Result<T, Problem> {
    match checked {
        Err(error) if error.not_an_object => {
            let error = start.of_error(error);
            let problem = Problem::new(Code::InvalidRequest, error.to_string());
            Err(problem.with("line", error.line).with("column", error.column))
        }
        Err(error) => Err(start.of_error(error).into()),
        Ok(()) => serde_json::from_str(text)
            .map(|Named(document)| document)
            .map_err(|error| document_problem(&error, start)),
    }
}

/// The problem for a document, with the most similar name for an unknown field.
fn document_problem(error: &serde_json::Error, start: Start) -> Problem {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let (line, column) = start.of(error.line(), error.column());
    let text = format!("{} at line {line}, column {column}", text.strip_suffix(&place).unwrap_or(&text));
    let code = if error.is_data() { Code::InvalidRequest } else { Code::InvalidJson };
    let is_of_value = |rest: &str| VALUE_ERRORS.iter().any(|kind| rest.starts_with(kind));
    let wrong = text.split_once(": ").filter(|(_, rest)| is_of_value(rest)).map(|(field, _)| field);
    let named: Vec<&str> = text.split('`').skip(1).step_by(2).collect();
    let is_named =
        ["unknown field", "missing field", "duplicate field"].iter().any(|kind| text.starts_with(kind));
    let mut problem = Problem::new(code, if is_named { text.clone() } else { shortened(&text) });
    if let Some((field, known)) = named.split_first().filter(|_| is_named) {
        problem = problem.hint_some(did_you_mean(field, known)).with("field", *field);
    }
    problem.with_some("field", wrong).with("line", line).with("column", column)
}

/// The text of a body that begins at `start`, without a byte order mark.
pub(in crate::http) fn text_of(bytes: Vec<u8>, start: Start) -> Result<String, Problem> {
    let mut text = String::from_utf8(bytes).map_err(|error| not_utf8(&error, start))?;
    if start == Start::OF_BODY && text.starts_with(BYTE_ORDER_MARK) {
        text.remove(0);
    }
    Ok(text)
}

fn not_utf8(error: &FromUtf8Error, start: Start) -> Problem {
    let valid = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
    let Start { line, column } = start.behind(&String::from_utf8_lossy(valid));
    let detail = format!("the text is not UTF-8 at line {line}, column {column}");
    Problem::new(Code::InvalidJson, detail).with("line", line).with("column", column)
}
