//! Problem documents (RFC 9457), the body of every 4xx and 5xx. Only this module assigns the HTTP status and the code of an
//! error.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value};

use super::wire;
use crate::admission::{self, Unfit};
use crate::engine::event::ReplaceCounts;
use crate::engine::excerpt::cut;
use crate::engine::key::KeyError;
use crate::engine::object::SyntaxError;
use crate::engine::refusal::Refusal;
use crate::service::{self, JournalError, Progress};

/// Declares all problems with the texts of their pages, `/problems/{name}`.
macro_rules! codes {
    ($($variant:ident $name:literal $status:literal $retryable:literal $title:literal $help:literal;)*) => {
        /// The code of a problem.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Code {
            $(#[doc = $title] $variant,)*
        }

        impl Code {
            /// All codes.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name in JSON.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// The HTTP status.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status),* }
            }

            /// Whether the same request may succeed later.
            #[must_use]
            pub const fn is_retryable(self) -> bool {
                match self { $(Self::$variant => $retryable),* }
            }

            /// The problem in a few words.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title),* }
            }

            /// The meaning of the problem and what to do.
            #[must_use]
            pub const fn help(self) -> &'static str {
                match self { $(Self::$variant => $help),* }
            }
        }
    };
}

codes! {
    InvalidJson "invalid-json" 400 false "The body is not valid JSON"
        "line and column (or the line of an NDJSON list) say where. Nothing of the request was applied. Check quoting, commas, duplicate member names, encoding (UTF-8) and nesting (at most 128 levels).";
    InvalidParameter "invalid-parameter" 400 false "A parameter is wrong"
        "The detail names the parameter of the path or query, its value and the allowed values. Unknown parameters are refused, with the nearest known one.";
    InvalidRequest "invalid-request" 400 false "The request is wrong"
        "The request or its JSON document has an unknown or missing field, or one of a wrong type, or cannot be read. The detail names it.";
    Unauthorized "unauthorized" 401 false "A token is needed"
        "Send a token that is known here and has not expired: authorization: Bearer TOKEN. Where the server asks for client certificates, the connection needs one, too. The operators of the server issue tokens.";
    Forbidden "forbidden" 403 false "The token does not allow this"
        "The detail names the verb and the queue that the token has no grant for. The operators of the server can add the grant and reload the tokens.";
    CrossSite "cross-site" 403 false "The request comes from a foreign web page"
        "A browser's Origin or Sec-Fetch-Site, or a Host of another server, is refused, so that no web page can reach a server on loopback. Add the name that you use to server.allowed_hosts.";
    NotFound "not-found" 404 false "Unknown path"
        "The API does not have the path. /openapi.json lists all routes. A key with slashes can also be given as ?key=.";
    QueueNotFound "queue-not-found" 404 false "Unknown queue"
        "Create it with PUT /v1/queues/{queue}, or by the first produce or pop where auto_create is on. GET never creates.";
    KeyNotFound "key-not-found" 404 false "Unknown key"
        "The queue has no delta, lease, parked entry, failure or known object of the key. Check the key's spelling and percent-encoding.";
    MethodNotAllowed "method-not-allowed" 405 false "The path does not have this method"
        "The header Allow lists the methods of the path.";
    NotAcceptable "not-acceptable" 406 false "The reply has none of the accepted types"
        "Accept must allow application/json; lists also stream as application/x-ndjson.";
    RequestTimeout "request-timeout" 408 true "The request came too slowly"
        "The body paused for longer than server.body_read_timeout, or came slower than server.min_body_bytes_per_second. Nothing of it was applied.";
    LengthRequired "length-required" 411 false "The length of the body must be known"
        "Send Content-Length or chunked encoding.";
    ObjectTooLarge "object-too-large" 413 false "An object or body is too large"
        "limit is the exceeded limit in bytes or objects: the queue's max_object_bytes, server.max_body_bytes, server.max_body_bytes_in_flight, queues.max_batch, queues.max_replace_objects, or 100 times the length of a compressed body. Send smaller batches, or NDJSON to /replace and /seed, which stream.";
    UriTooLong "uri-too-long" 414 false "The URI is too long"
        "Shorten the query; a key has at most 1,024 bytes.";
    UnsupportedMediaType "unsupported-media-type" 415 false "The type of the body is not supported"
        "Send application/json or application/x-ndjson, in UTF-8. Bodies with objects may have the content encoding gzip, br or zstd; other bodies have none. accept_encoding names the encodings that the call accepts.";
    HeadersTooLarge "headers-too-large" 431 false "The headers are too large"
        "server.max_header_bytes bounds the request's head, 100 fields are the most, and a Content-Length must be below 2^64 - 2.";
    LeaseLost "lease-lost" 409 false "None of the leases could be settled"
        "settled, or leases of an extend, says how each lease ended: acked, nacked, released, rejected, expired or unknown. Another worker may hold the key: drop the result of the work, or make the work safe to repeat.";
    ImmutableConfig "immutable-config" 409 false "The setting cannot change now"
        "mode, key and known_objects can change only while the queue has no keys. Drain and delete the queue, or use another.";
    MassDelete "mass-delete" 409 false "The list would delete too many keys"
        "The Replace was refused by max_delete_percent or max_deletes and changed nothing. If the list is complete and right, repeat the call with higher limits.";
    NotEmpty "not-empty" 409 false "The queue is not empty"
        "A seed needs a queue without waiting, leased and parked keys. Drain or purge the queue first.";
    WrongMode "wrong-mode" 409 false "The mode of the queue does not have this call"
        "A queue of mode keys has no objects, and no Delete, Update, Replace, Resync and seed. Only a queue of mode keys has rate_limited.";
    QueueClosed "queue-closed" 410 false "The queue is closed and drained"
        "No key is left to deliver. A worker may end now. POST .../reopen opens the queue again.";
    QueueDeleted "queue-deleted" 410 true "The queue was deleted"
        "The queue was deleted while the request waited. A new request uses a new queue of the name, if there is one.";
    Expired "expired" 410 false "The continue token has expired"
        "The queue of the token was deleted, or the token belongs to another list. Start the list again.";
    NoKey "no-key" 422 false "The object has no key"
        "A required pointer of the queue's key leads nowhere, to null or to an empty text. index, line and pointer say where. Nothing of the request was applied.";
    InvalidKey "invalid-key" 422 false "The key is not allowed"
        "A key is 1 to 1,024 bytes of text without control characters, made of strings or integers; with several pointers no part may contain a slash; an explicit key must equal the object's own.";
    InvalidObject "invalid-object" 422 false "The object is not allowed"
        "Objects are JSON objects, and satisfy the queue's schema if it has one: errors says at which places this one does not, pointer in the object and schema_pointer in the schema. Nothing of the request was applied.";
    InvalidConfig "invalid-config" 422 false "The queue's settings are not allowed"
        "The detail names the field, its value and what it takes.";
    IncompleteList "incomplete-list" 422 false "The list does not declare that it is complete"
        "An NDJSON Replace needs count=N in the query or a last line {\"$end\":N}, and N objects before it: a producer that was killed looks like one that has finished. Nothing was changed.";
    QueueFull "queue-full" 429 true "The queue is full"
        "limit is the queue's max_keys (new keys are refused; existing keys still accept deltas), queues.max_queues, or the share of it that pops may create (queues.created_by_pop_percent). Let workers drain the queue, delete keys, or raise the limit.";
    TooManyWaiters "too-many-waiters" 429 true "Too many pops wait at the queue"
        "limit is queues.max_waiters. Use fewer pops with a larger max.";
    TooManyRequests "too-many-requests" 429 true "The server is overloaded"
        "The detail names the exceeded limit: of the token, of all callers, or of the queue. Nothing of the request was applied. Repeat it after Retry-After.";
    Internal "internal" 500 false "The server failed"
        "The log of the server has the cause under the request id.";
    Draining "draining" 503 true "The server is shutting down"
        "No key is delivered any more; settles were still accepted. Repeat the pop elsewhere or later.";
    TooManyConnections "too-many-connections" 503 true "Too many connections are open"
        "limit is server.max_connections. Each long poll holds one. Reuse connections, or raise the limit.";
    Recovering "recovering" 503 true "The server is still starting"
        "Repeat the request once /readyz replies 200.";
    JournalUnavailable "journal-unavailable" 503 true "The write could not be confirmed"
        "Whether the request took effect is unknown. Repeat it: settles and pops with an id are safe to repeat.";
    JournalBehind "journal-behind" 503 true "The disk takes writes too slowly"
        "limit is storage.max_uncommitted_bytes: that many bytes wait to be written. Nothing of the request was applied. Repeat it after Retry-After, and check the disk of storage.data_dir.";
    Timeout "timeout" 504 true "The request took too long"
        "The request exceeded server.request_timeout. Whether it took effect is unknown. Repeat it: settles and pops with an id are safe to repeat.";
    DiskFull "disk-full" 507 true "The disk is full"
        "Whether the request took effect is unknown. Make room on the disk of storage.data_dir; the server recovers by itself. Then repeat the request: settles and pops with an id are safe to repeat.";
}

/// The field that names the accepted encodings of a body. The header `Accept-Encoding` repeats it.
pub(super) const ACCEPT_ENCODING: &str = "accept_encoding";

/// A problem.
#[derive(Clone, Debug)]
pub struct Problem {
    code: Code,
    detail: Cow<'static, str>,
    fields: Map<String, Value>,
    retry_after: Option<Duration>,
}

/// A problem document.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(rename = "type")]
    kind: fmt::Arguments<'a>,
    title: &'static str,
    status: u16,
    detail: &'a str,
    code: &'static str,
    retryable: bool,
    request_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(flatten)]
    fields: &'a Map<String, Value>,
}

/// The wait before a request is repeated, unless the problem has a more exact one.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Longest detail, in characters: a last resort, since every detail shortens the text of the caller that it repeats.
const DETAIL_CHARS_MAX: usize = 1_500;

impl Problem {
    /// A problem. `detail` says what is wrong, where, and what to do.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        let retry_after = matches!(code.status(), 429 | 503 | 504 | 507).then_some(RETRY_AFTER);
        let mut detail = detail.into();
        if let Some((end, _)) = detail.char_indices().nth(DETAIL_CHARS_MAX) {
            detail = format!("{}...", detail.get(..end).unwrap_or_default()).into();
        }
        Self { code, detail, fields: Map::new(), retry_after }
    }

    /// The server is still loading its queues.
    #[must_use]
    pub fn recovering(progress: &Progress) -> Self {
        let [queues, queues_total, keys, events] = progress.counts();
        let detail = format!(
            "the server is loading its queues: {queues} of {queues_total} so far, {keys} keys and {events} events"
        );
        Self::new(Code::Recovering, detail)
            .with("queues", queues)
            .with("queues_total", queues_total)
            .with("keys", keys)
            .with("events", events)
    }

    /// The request took longer than `limit`.
    #[must_use]
    pub fn timed_out(limit: Duration) -> Self {
        let limit = crate::duration::format(limit);
        let detail = format!(
            "the request took longer than {limit} (server.request_timeout); whether it took effect is unknown, repeat it safely"
        );
        Self::new(Code::Timeout, detail).with("limit", limit)
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(name.to_owned(), cut_texts(value.into()));
        self
    }

    /// Adds a document as a field, unless the problem has the field already.
    #[must_use]
    pub fn with_default(mut self, name: &str, value: impl serde::Serialize) -> Self {
        let value = serde_json::to_value(value).unwrap_or_default();
        self.fields.entry(name).or_insert_with(|| cut_texts(value));
        self
    }

    /// The time after which the same request may succeed.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// The same in whole seconds, rounded up, as the header `Retry-After` has it.
    #[must_use]
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.retry_after.map(|wait| (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1))
    }

    /// The code.
    #[must_use]
    pub const fn code(&self) -> Code {
        self.code
    }

    /// The detail.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Puts `place` in front of the detail.
    #[must_use]
    pub fn at(mut self, place: &str) -> Self {
        self.detail = format!("{place}: {}", self.detail).into();
        self
    }

    /// The document for the request with this id.
    #[must_use]
    pub fn document(&self, request_id: &str) -> String {
        let document = Document {
            kind: format_args!("/problems/{}", self.code.name()),
            title: self.code.title(),
            status: self.code.status(),
            detail: &self.detail,
            code: self.code.name(),
            retryable: self.code.is_retryable(),
            request_id,
            retry_after_ms: self.retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
            fields: &self.fields,
        };
        serde_json::to_string(&document).unwrap_or_default()
    }

    /// Adds the index, from 0, of the wrong object of a list, and its line in NDJSON unless the problem has a line.
    #[must_use]
    pub fn in_item(self, index: usize, line: Option<usize>) -> Self {
        let line = line.filter(|_| !self.fields.contains_key("line"));
        let place = line.map_or_else(|| format!("object {index}"), |line| format!("line {line}"));
        let problem = self.at(&place).with("index", index);
        match line {
            Some(line) => problem.with("line", line),
            None => problem,
        }
    }
}

/// A field of a problem. The text of a caller is shortened.
fn cut_texts(mut value: Value) -> Value {
    match &mut value {
        Value::String(text) => {
            let end = cut(text).len();
            text.truncate(end);
        }
        Value::Array(all) => all.iter_mut().for_each(|one| *one = cut_texts(one.take())),
        Value::Object(members) => members.values_mut().for_each(|one| *one = cut_texts(one.take())),
        _ => {}
    }
    value
}

/// The response carries the problem as an extension, until the middleware renders it with the id of the request.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Renders the problem of a response, or the problem for its status if it carries none. Returns the code of the problem.
#[must_use]
pub fn render(response: Response, request_id: &str) -> (Response, Option<Code>) {
    let status = response.status();
    if !(status.is_client_error() || status.is_server_error()) {
        return (response, None);
    }
    let (mut parts, _) = response.into_parts();
    let problem = parts.extensions.remove::<Problem>().unwrap_or_else(|| of_status(status));
    let body = problem.document(request_id);
    parts.status = StatusCode::from_u16(problem.code.status()).unwrap_or(status);
    parts.headers.remove(header::CONTENT_LENGTH);
    let json = HeaderValue::from_static("application/problem+json");
    parts.headers.insert(header::CONTENT_TYPE, json);
    if let Some(seconds) = problem.retry_after_seconds() {
        parts.headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    let encodings = problem.fields.get(ACCEPT_ENCODING).and_then(Value::as_str);
    if let Some(encodings) = encodings.and_then(|text| HeaderValue::from_str(text).ok()) {
        parts.headers.insert(header::ACCEPT_ENCODING, encodings);
    }
    if problem.code == Code::Unauthorized {
        parts.headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"deltaq\""));
    }
    (Response::from_parts(parts, body.into()), Some(problem.code))
}

/// Whether a response of this status refuses the caller, not the content of the request.
#[must_use]
pub fn refuses_caller(status: u16) -> bool {
    [Code::Unauthorized, Code::Forbidden, Code::TooManyRequests].iter().any(|code| code.status() == status)
}

/// The problem for a response of a library, which has only a status.
#[must_use]
pub fn of_status(status: StatusCode) -> Problem {
    let (code, detail) = match status.as_u16() {
        401 => (Code::Unauthorized, "a token is needed"),
        403 => (Code::Forbidden, "this is not allowed"),
        404 => (Code::NotFound, "the API does not have this path; /openapi.json lists the paths"),
        405 => (Code::MethodNotAllowed, "the path does not have this method; see the header Allow"),
        406 => (Code::NotAcceptable, "the reply has none of the accepted types"),
        408 => (Code::RequestTimeout, "the request came too slowly"),
        411 => (Code::LengthRequired, "the length of the body must be known"),
        413 => (Code::ObjectTooLarge, "the body is too large"),
        414 => (Code::UriTooLong, "the URI is too long"),
        415 => (Code::UnsupportedMediaType, "the type of the body is not supported"),
        431 => (
            Code::HeadersTooLarge,
            "the headers are larger than server.max_header_bytes, or too many, or Content-Length is too large",
        ),
        429 => (Code::TooManyRequests, "the server is overloaded"),
        503 => (Code::Draining, "the server is shutting down"),
        _ if status.is_client_error() => (Code::InvalidRequest, "the request cannot be read"),
        _ => (
            Code::Internal,
            "the request failed inside the server; the log has the cause under the request id",
        ),
    };
    Problem::new(code, detail)
}

impl From<service::Error> for Problem {
    fn from(error: service::Error) -> Self {
        use service::Error;
        let detail = error.to_string();
        match error {
            Error::QueueNotFound => {
                let way_out = "PUT creates it, and so do add and pop unless queues.auto_create is off";
                Self::new(Code::QueueNotFound, format!("{detail}; {way_out}"))
            }
            Error::QueueDeleted => Self::new(Code::QueueDeleted, detail),
            Error::TooManyQueues { limit } | Error::TooManyUnusedQueues { limit } => {
                Self::new(Code::QueueFull, detail).with("limit", limit)
            }
            Error::PopsCreateNothing => Self::new(Code::QueueNotFound, detail),
            Error::TooManyWaiters { limit } => Self::new(Code::TooManyWaiters, detail).with("limit", limit),
            Error::TooManyAdmissions { limit } => {
                Self::new(Code::TooManyRequests, detail).with("limit", limit)
            }
            Error::Draining => Self::new(Code::Draining, detail),
            Error::Refused(refusal) => refusal.into(),
            Error::Broken => of_status(StatusCode::INTERNAL_SERVER_ERROR),
            Error::PastUnreadable => Self::new(Code::Internal, detail),
            Error::Journal(JournalError::DiskFull) => Self::new(
                Code::DiskFull,
                "the journal's disk is full; whether the request took effect is unknown, repeat it safely",
            ),
            Error::Journal(JournalError::Backlog { limit }) => Self::new(
                Code::JournalBehind,
                format!("{detail}; nothing of the request was applied, repeat it"),
            )
            .with("limit", limit),
            Error::Journal(JournalError::OutcomeUnknown) => Self::new(
                Code::JournalUnavailable,
                "the journal could not confirm the write; whether it took effect is unknown, repeat it safely",
            ),
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let detail = refusal.to_string();
        match refusal {
            Refusal::QueueFull { limit, .. } => Self::new(Code::QueueFull, detail).with("limit", limit),
            Refusal::ObjectTooLarge { limit, index, .. } => {
                Self::new(Code::ObjectTooLarge, detail).with("limit", limit).with("index", index)
            }
            Refusal::WrongMode { mode, .. } => Self::new(Code::WrongMode, detail).with("mode", mode.as_str()),
            Refusal::TooManyReplaces { limit } => {
                Self::new(Code::TooManyRequests, detail).with("limit", limit)
            }
            Refusal::ConfigChanged => Self::new(Code::TooManyRequests, detail),
            Refusal::Closed => Self::new(Code::QueueClosed, detail),
            Refusal::MassDelete { deletions, owned, max_deletes, max_percent, counts } => {
                let problem = Self::new(Code::MassDelete, detail)
                    .with("deletions", deletions)
                    .with("owned", owned)
                    .with("max_deletes", max_deletes)
                    .with("max_delete_percent", max_percent);
                with_counts(problem, counts)
            }
            Refusal::NotEmpty { waiting } => Self::new(Code::NotEmpty, detail).with("waiting", waiting),
            Refusal::ImmutableConfig { field, .. } => {
                Self::new(Code::ImmutableConfig, detail).with("field", field)
            }
        }
    }
}

fn with_counts(problem: Problem, counts: ReplaceCounts) -> Problem {
    problem
        .with("replaced", counts.replaced)
        .with("deleted", counts.deleted)
        .with("unchanged", counts.unchanged)
        .with("skipped", counts.skipped)
        .with("taken_over", counts.taken_over)
}

impl From<admission::Error> for Problem {
    fn from(error: admission::Error) -> Self {
        let field = error.field();
        let mut problem = Self::new(Code::InvalidConfig, format!("{field}: {error}")).with("field", field);
        if let Some(pointer) = error.pointer() {
            problem = problem.with("pointer", pointer);
        }
        match error.limit() {
            Some(limit) => problem.with("limit", limit),
            None => problem,
        }
    }
}

impl From<Unfit> for Problem {
    fn from(unfit: Unfit) -> Self {
        let detail = unfit.to_string();
        match unfit {
            Unfit::Invalid(violations) => {
                let errors: Vec<_> = violations.into_iter().map(wire::violation).collect();
                Self::new(Code::InvalidObject, detail).with_default("errors", errors)
            }
            Unfit::TooLarge { limit } => Self::new(Code::ObjectTooLarge, detail).with("limit", limit),
            Unfit::TooDeep | Unfit::Unreadable(_) => Self::new(Code::InvalidObject, detail),
        }
    }
}

impl From<KeyError> for Problem {
    fn from(error: KeyError) -> Self {
        let code = if error.is_missing() { Code::NoKey } else { Code::InvalidKey };
        let mut problem = Self::new(code, error.to_string());
        if let Some(pointer) = error.pointer() {
            problem = problem.with("pointer", pointer);
        }
        match error.limit() {
            Some(limit) => problem.with("limit", limit),
            None => problem,
        }
    }
}

impl From<SyntaxError> for Problem {
    fn from(error: SyntaxError) -> Self {
        let code = if error.not_an_object { Code::InvalidObject } else { Code::InvalidJson };
        let problem = Self::new(code, error.to_string());
        let problem = problem.with("line", error.line).with("column", error.column);
        let problem = match error.limit {
            Some(limit) => problem.with("limit", limit),
            None => problem,
        };
        match error.index {
            Some(index) => problem.in_item(index, None),
            None => problem,
        }
    }
}
