//! Reading the body of a request: its type, its size and its rate.

mod inflate;

use std::future::poll_fn;
use std::pin::Pin;
use std::string::FromUtf8Error;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::BodyDataStream;
use axum::extract::Request;
use axum::http::HeaderValue;
use bytes::Bytes;
use deltaq_types::strict::Named;
use futures_util::{FutureExt as _, Stream as _};
use http_body::Body as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use self::inflate::{ENCODINGS, Encoding, Inflated};
use super::access;
use super::connection::body_rate::{BodyRate, TooSlow};
use super::context::RequestContext;
use super::head::{Head, Header};
use super::operations::BodyKind;
use super::params::nearest;
use super::problem::{ACCEPT_ENCODING, Code, Problem};
use super::state::HttpLimits;
use crate::engine::excerpt::{Excerpt, shortened};
use crate::engine::key::KeySpec;
use crate::engine::object::{self, SyntaxError};

/// The format of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// One document: an object, or an array of objects.
    Json,
    /// One object per line.
    Ndjson,
}

const BYTE_ORDER_MARK: char = '\u{feff}';

/// From this size on, parsing a body takes longer than most requests take as a whole.
pub(super) const LARGE_BYTES: usize = 32 << 10;
/// Longest body of a call whose body must be empty.
const NO_BODY_BYTES_MAX: usize = 1 << 10;
/// Longest body with the settings of a queue: a schema, the pointers of `prune`, and the other fields.
const SETTINGS_BYTES_MAX: usize = 512 << 10;
/// Longest string in a document of known fields: the error of a nack with each byte escaped.
const STRING_BYTES_MAX: usize = 32 << 10;
/// Memory of an object in a list, without its text.
pub(super) const HELD_BYTES_PER_OBJECT: usize = 256;

/// A body that has not been read.
#[derive(Debug)]
pub(super) struct Incoming {
    /// The format, from the header `Content-Type`.
    pub(super) format: Format,
    source: Source,
    /// The length of the body, if it is known and the body is not compressed.
    length: Option<u64>,
    rate: BodyRate,
    /// The server had to wait for a piece of the body.
    has_waited: bool,
    account: Account,
}

/// The pieces of a body, inflated if it is compressed.
#[derive(Debug)]
enum Source {
    Plain(BodyDataStream),
    Compressed(Box<Inflated>),
}

impl Source {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Problem>>> {
        match self {
            Self::Plain(body) => {
                let piece = Pin::new(body).poll_next(cx);
                piece.map(|piece| piece.map(|piece| piece.map_err(|_| broke_off())))
            }
            Self::Compressed(inflated) => inflated.poll_next(cx),
        }
    }

    /// Whether it is known that no piece follows.
    fn is_at_end(&self) -> bool {
        matches!(self, Self::Plain(body) if body.is_end_stream())
    }

    /// Compressed bytes that have been received; 0 if the body is not compressed.
    fn received(&self) -> u64 {
        match self {
            Self::Plain(_) => 0,
            Self::Compressed(inflated) => inflated.received(),
        }
    }
}

fn broke_off() -> Problem {
    Problem::new(Code::InvalidRequest, "the body broke off before its end; nothing was applied")
}

/// Counts the bytes of a body and of its objects.
#[derive(Clone, Debug)]
pub(super) struct Account(Arc<RequestContext>);

impl Account {
    /// Counts bytes until the request ends. Only the handler may call it.
    pub(super) fn reserve(&self, bytes: usize) -> Result<(), Problem> {
        self.0.reserve_body(bytes)
    }

    /// Counts an object that is in memory in addition to the text of the body.
    pub(super) fn reserve_object(&self, bytes: usize) -> Result<(), Problem> {
        self.reserve(bytes + HELD_BYTES_PER_OBJECT)
    }

    /// Stops counting bytes.
    pub(super) fn release(&self, bytes: usize) {
        self.0.release_body(bytes);
    }
}

impl Incoming {
    /// The body of a request.
    pub(super) fn of(request: Request, context: &Arc<RequestContext>) -> Result<Self, Problem> {
        let head = Head::of(request.headers());
        let format = format_of(&head)?;
        let encoding = encoding_of(&head, kind_of(context))?;
        let account = Account(Arc::clone(context));
        let body = request.into_body();
        let length = body.size_hint().exact().filter(|_| encoding.is_none());
        let body = body.into_data_stream();
        let source = match encoding {
            None => Source::Plain(body),
            Some(encoding) => {
                account.reserve(encoding.decoder_bytes())?;
                Source::Compressed(Box::new(Inflated::new(body, encoding)))
            }
        };
        let rate = BodyRate::new(context.state.limits.min_body_rate);
        Ok(Self { format, source, length, rate, has_waited: false, account })
    }

    /// The next piece of the body; `None` at its end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        let piece = match poll_fn(|cx| self.source.poll_next(cx)).now_or_never() {
            Some(piece) => piece,
            None => self.wait().await?,
        };
        match piece {
            Some(Ok(bytes)) => {
                self.account.reserve(bytes.len())?;
                Ok(Some(bytes))
            }
            None => {
                self.check_access()?;
                Ok(None)
            }
            Some(Err(problem)) => Err(problem),
        }
    }

    /// Waits for the next piece, within the limits on a pause and on the rate.
    async fn wait(&mut self) -> Result<Option<Result<Bytes, Problem>>, Problem> {
        self.has_waited = true;
        let (limits, clock) = (&self.account.0.state.limits, &self.account.0.state.clock);
        let begun_us = clock.monotonic_us();
        let has_released_permit = self.account.0.release_permit_of_worker();
        let received_before = self.source.received();
        let next = poll_fn(|cx| self.source.poll_next(cx));
        let Ok(piece) = tokio::time::timeout(limits.body_read_timeout, next).await else {
            let limit = crate::duration::format(limits.body_read_timeout);
            let detail = format!(
                "the body paused for longer than {limit} (server.body_read_timeout); nothing was applied"
            );
            return Err(Problem::new(Code::RequestTimeout, detail).with("limit", limit));
        };
        if has_released_permit {
            self.account.0.acquire_permit()?;
        }
        let received = match (&piece, &self.source) {
            (Some(Ok(bytes)), Source::Plain(_)) => bytes.len(),
            // The rate of a compressed body is the rate at which its compressed bytes arrive.
            (Some(Ok(_)), Source::Compressed(inflated)) => {
                usize::try_from(inflated.received() - received_before).unwrap_or(usize::MAX)
            }
            _ => return Ok(piece),
        };
        if self.rate.received(clock.since(begun_us), received) == Err(TooSlow) {
            let limit = limits.min_body_rate.bytes_per_second;
            let detail = format!(
                "the body came at less than {limit} bytes a second (server.min_body_bytes_per_second); nothing was applied"
            );
            return Err(Problem::new(Code::RequestTimeout, detail).with("limit", limit));
        }
        Ok(piece)
    }

    /// Checks at the end of a slow body that the token is still valid and still has its grant.
    fn check_access(&self) -> Result<(), Problem> {
        if self.has_waited { access::check_again(&self.account.0) } else { Ok(()) }
    }

    /// Longest body that is one document, in bytes.
    pub(super) fn bytes_max(&self) -> usize {
        self.bound().0
    }

    /// The same with its reason.
    fn bound(&self) -> (usize, &'static str) {
        let own = match kind_of(&self.account.0) {
            BodyKind::Ignored | BodyKind::Empty => (NO_BODY_BYTES_MAX, "this call takes no body"),
            BodyKind::Settings => (SETTINGS_BYTES_MAX, "the largest settings of a queue"),
            BodyKind::Document | BodyKind::Objects => (usize::MAX, ""),
        };
        own.min((self.limits().max_body_bytes, "server.max_body_bytes"))
    }

    fn limits(&self) -> &HttpLimits {
        &self.account.0.state.limits
    }

    /// The account that counts the bytes of the body.
    pub(super) fn account(&self) -> Account {
        self.account.clone()
    }

    /// The whole body as text.
    pub(super) async fn text(mut self) -> Result<String, Problem> {
        let (limit, bound) = self.bound();
        let too_large = || {
            let detail = format!("the body has more than {limit} bytes ({bound})");
            Problem::new(Code::ObjectTooLarge, detail).with("limit", limit)
        };
        if self.length.is_some_and(|length| length > limit as u64) {
            return Err(too_large());
        }
        let length = self.length.and_then(|length| usize::try_from(length).ok()).unwrap_or(limit);
        let mut whole = Vec::with_capacity(length.min(LARGE_BYTES));
        while !self.source.is_at_end()
            && let Some(piece) = self.next().await?
        {
            let needed = whole.len() + piece.len();
            if needed > limit {
                return Err(too_large());
            }
            if needed > whole.capacity() {
                // At most up to the known length: growing copies the bytes, and both buffers take memory.
                let room = (needed + needed / 2).min(length.max(needed));
                whole.reserve_exact(room - whole.len());
            }
            whole.extend_from_slice(&piece);
        }
        self.check_access()?;
        if whole.len() >= LARGE_BYTES {
            whole.shrink_to_fit();
            self.account.0.acquire_parse_permit().await;
        }
        text_of(whole, Start::OF_BODY)
    }

    /// Reads a body that must be empty. Many clients send `{}` for an empty body.
    pub(super) async fn nothing(self) -> Result<(), Problem> {
        let has_body = || Problem::new(Code::InvalidRequest, "this call takes no body; leave it empty");
        let text = self.text().await?;
        if text.trim().is_empty() || text.trim() == "{}" { Ok(()) } else { Err(has_body()) }
    }

    /// The settings of a queue: a JSON document of known fields; an empty body is `{}`.
    pub(super) async fn settings<T: DeserializeOwned>(self) -> Result<T, Problem> {
        self.check_is_document()?;
        let text = self.text().await?;
        read_document(or_empty(&text))
    }

    /// A JSON document of known fields at every depth; an empty body is `{}`.
    pub(super) async fn document<T: DeserializeOwned>(self) -> Result<T, Problem> {
        self.check_is_document()?;
        let text = self.text().await?;
        let text = or_empty(&text);
        check_strings(text)?;
        if !text.trim_start().starts_with('{') {
            return read_document(text);
        }
        // serde refuses duplicate fields by itself, so only a document that serde refuses is scanned for a better message. The
        // scan would take two fifths of the time to read the leases of a pop.
        serde_json::from_str(text).map(|Named(document)| document).or_else(|_| read_document(text))
    }

    fn check_is_document(&self) -> Result<(), Problem> {
        if self.format == Format::Ndjson {
            let detail = "this call takes one JSON document; send it as application/json";
            return Err(Problem::new(Code::UnsupportedMediaType, detail));
        }
        Ok(())
    }
}

fn or_empty(text: &str) -> &str {
    if text.trim().is_empty() { "{}" } else { text }
}

/// Refuses a string that is longer than any field may be, because an error message would repeat the string.
fn check_strings(text: &str) -> Result<(), Problem> {
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
pub(super) struct Start {
    pub(super) line: usize,
    pub(super) column: usize,
}

impl Start {
    /// The start of the body.
    pub(super) const OF_BODY: Self = Self { line: 1, column: 1 };

    /// The position after `text`, which begins here.
    pub(super) fn behind(self, text: &str) -> Self {
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
    pub(super) fn of_error(self, error: SyntaxError) -> SyntaxError {
        let (line, column) = self.of(error.line, error.column);
        SyntaxError { line, column, ..error }
    }
}

/// Reads one JSON object of known fields.
pub(super) fn read_document<'t, T: Deserialize<'t>>(text: &'t str) -> Result<T, Problem> {
    // The scan finds errors that serde ignores, such as a duplicate member.
    parse_checked(text, Start::OF_BODY, object::scan(text, &KeySpec::default()).map(drop))
}

/// Reads one JSON object of known fields, one of which is a producer's object.
pub(super) fn read_envelope<'t, T: Deserialize<'t>>(text: &'t str, start: Start) -> Result<T, Problem> {
    parse_checked(text, start, object::check_envelope(text))
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

/// The problem of a document, with the nearest name for an unknown field.
pub(super) fn document_problem(error: &serde_json::Error, start: Start) -> Problem {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let (line, column) = start.of(error.line(), error.column());
    let text = format!("{} at line {line}, column {column}", text.strip_suffix(&place).unwrap_or(&text));
    let code = if error.is_data() { Code::InvalidRequest } else { Code::InvalidJson };
    let named: Vec<&str> = text.split('`').skip(1).step_by(2).collect();
    let is_named =
        ["unknown field", "missing field", "duplicate field"].iter().any(|kind| text.starts_with(kind));
    let mut problem = Problem::new(code, if is_named { text.clone() } else { shortened(&text) });
    if let Some((field, known)) = named.split_first().filter(|_| is_named) {
        if let Some(near) = nearest(field, known) {
            problem = Problem::new(code, format!("{text}; did you mean {near:?}?"));
        }
        problem = problem.with("field", *field);
    }
    problem.with("line", line).with("column", column)
}

/// The text of a body that begins at `start`, without a byte order mark.
pub(super) fn text_of(bytes: Vec<u8>, start: Start) -> Result<String, Problem> {
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

/// The format of a body. A missing type and the form type that curl sends by default mean JSON.
fn format_of(head: &Head<'_>) -> Result<Format, Problem> {
    let Some(value) = only_one("content-type", head.content_type)? else { return Ok(Format::Json) };
    if value == "application/json" {
        return Ok(Format::Json);
    }
    let text = value.to_str().unwrap_or_default();
    let mut parts = text.split(';').map(|part| part.trim().to_ascii_lowercase());
    let format = match parts.next().as_deref() {
        Some("application/json" | "application/x-www-form-urlencoded") => Some(Format::Json),
        Some("application/x-ndjson") => Some(Format::Ndjson),
        _ => None,
    };
    let charset_is_fine = parts
        .all(|part| part.strip_prefix("charset=").is_none_or(|charset| charset.trim_matches('"') == "utf-8"));
    format.filter(|_| charset_is_fine).ok_or_else(|| {
        let detail =
            format!("content-type {}: send application/json or application/x-ndjson in UTF-8", Excerpt(text));
        Problem::new(Code::UnsupportedMediaType, detail)
    })
}

fn kind_of(context: &RequestContext) -> BodyKind {
    context.operation().map_or(BodyKind::Ignored, |operation| operation.body)
}

/// The encoding of a compressed body. Only bodies with objects may be compressed: other bodies are short.
fn encoding_of(head: &Head<'_>, kind: BodyKind) -> Result<Option<Encoding>, Problem> {
    if let Some(encoding) = only_one("transfer-encoding", head.transfer_encoding)?
        && !encoding.as_bytes().eq_ignore_ascii_case(b"chunked")
    {
        let text = encoding.to_str().unwrap_or_default();
        let detail = format!("transfer-encoding {} is not supported; send chunked", Excerpt(text));
        return Err(Problem::new(Code::UnsupportedMediaType, detail));
    }
    let Some(encoding) = only_one("content-encoding", head.content_encoding)? else { return Ok(None) };
    if encoding.as_bytes().eq_ignore_ascii_case(b"identity") {
        return Ok(None);
    }
    let accepted = if kind == BodyKind::Objects { ENCODINGS } else { "identity" };
    match Encoding::named(encoding.as_bytes()) {
        Some(encoding) if kind == BodyKind::Objects => Ok(Some(encoding)),
        _ => {
            let text = Excerpt(encoding.to_str().unwrap_or_default());
            let detail = format!("content-encoding {text} is not supported here; accepted: {accepted}");
            Err(Problem::new(Code::UnsupportedMediaType, detail).with(ACCEPT_ENCODING, accepted))
        }
    }
}

/// The value of a header that determines how the body is read. A header with two values is refused: a proxy may have used the other value.
fn only_one<'h>(name: &str, header: Header<'h>) -> Result<Option<&'h HeaderValue>, Problem> {
    if header.is_repeated {
        return Err(Problem::new(Code::InvalidRequest, format!("the header {name} occurs twice")));
    }
    Ok(header.first)
}
