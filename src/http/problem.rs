//! Problem documents (RFC 9457), the body of every 4xx and 5xx. Only this module assigns the HTTP status and the code of an
//! error.

mod code;
mod hint;
mod journal;

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use deltaq_engine::command::DeletionGuard;
use deltaq_engine::config::OrderError;
use deltaq_engine::event::ReplaceCounts;
use deltaq_engine::excerpt::cut;
use deltaq_engine::id::Rv;
use deltaq_engine::key::KeyError;
use deltaq_engine::object::SyntaxError;
use deltaq_engine::object_version::VersionError;
use deltaq_engine::refusal::Refusal;
use deltaq_service::admission::{self, Unfit, Violation};
use deltaq_service::{self, FollowError, Progress};
use deltaq_types::duration::whole_ms;
use deltaq_types::{ExpiredReason, ViolationDocument};
use serde::Serialize;
use serde_json::{Map, Value};

pub use self::code::Code;

use self::hint::{MAKE_ROOM, hint_of};

/// The field that names the accepted encodings of a body. The header `Accept-Encoding` repeats it.
pub(super) const ACCEPT_ENCODING: &str = "accept_encoding";

/// A problem.
#[derive(Clone, Debug)]
pub struct Problem {
    code: Code,
    detail: Cow<'static, str>,
    hint: Option<Cow<'static, str>>,
    /// Boxed, because every function that may refuse returns a problem.
    fields: Box<Map<String, Value>>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
    code: &'static str,
    retryable: bool,
    request_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(flatten)]
    fields: &'a Map<String, Value>,
}

/// Marks a response of another node. Its problem document is already complete, and its code is for the log and the
/// metrics.
#[derive(Clone, Copy, Debug)]
pub struct PassedOn(pub Option<Code>);

/// The wait before a request is repeated, unless the problem has a more precise value.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The wait before a request is repeated while a queue has no owner. A handover takes about half a second.
const RETRY_AFTER_HANDOVER: Duration = Duration::from_millis(250);
/// Maximum length of a detail, in characters. This is a last resort, because every detail already shortens the
/// caller's text that it repeats.
const DETAIL_CHARS_MAX: usize = 1_500;
/// The hint for a reader that must start again.
const LIST_AGAIN: &str = "list the view again";
/// The hint if the outcome of a request is unknown.
pub(super) const REPEAT_IF_SAFE: &str = "changes, settles and pops with an id are safe to repeat";
/// The hint if nothing of a request was applied.
pub(super) const REPEAT: &str = "repeat the request";

impl Problem {
    /// A problem. `detail` says what is wrong and where; [`hint`](Self::hint) says what to do.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        let retry_after = match (code, code.status()) {
            (Code::NotOwner, _) => Some(RETRY_AFTER_HANDOVER),
            (_, 429 | 503 | 504 | 507) if code.is_retryable() => Some(RETRY_AFTER),
            _ => None,
        };
        let mut detail = detail.into();
        if let Some((end, _)) = detail.char_indices().nth(DETAIL_CHARS_MAX) {
            detail = format!("{}...", detail.get(..end).unwrap_or_default()).into();
        }
        Self { code, detail, hint: None, fields: Box::default(), retry_after }
    }

    /// A version or a `continue` token that can't be continued.
    #[must_use]
    pub fn expired(reason: ExpiredReason, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::Expired, detail).with("reason", reason.as_str())
    }

    /// A setting of a queue is wrong.
    #[must_use]
    pub fn invalid_setting(setting: &str, why: &str) -> Self {
        Self::new(Code::InvalidConfig, format!("{setting}: {why}")).with("field", setting)
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
        let detail = format!(
            "the request took longer than {} (server.request_timeout); whether it took effect is unknown",
            deltaq_types::duration::format(limit)
        );
        Self::new(Code::Timeout, detail).hint(REPEAT_IF_SAFE).with("limit_ms", whole_ms(limit))
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(name.to_owned(), tidied(value.into()));
        self
    }

    /// Adds a field, if there is a value.
    #[must_use]
    pub(super) fn with_some(self, name: &str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Adds a document as a field, unless the problem has the field already.
    #[must_use]
    pub fn with_default(mut self, name: &str, value: impl serde::Serialize) -> Self {
        let value = serde_json::to_value(value).unwrap_or_default();
        self.fields.entry(name).or_insert_with(|| tidied(value));
        self
    }

    /// The time after which the same request may succeed.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// The time after which the same request may succeed, if it is known.
    #[must_use]
    pub const fn wait(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The same in whole seconds, rounded up, for the header `Retry-After`.
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

    /// The value of a text field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).and_then(Value::as_str)
    }

    /// Adds a hint that says what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds a hint, if there is one.
    #[must_use]
    pub(super) fn hint_some(mut self, hint: Option<Cow<'static, str>>) -> Self {
        self.hint = hint.or(self.hint);
        self
    }

    /// The hint, if there is one.
    #[must_use]
    pub fn advice(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Puts `place` in front of the detail.
    #[must_use]
    pub fn at(mut self, place: &str) -> Self {
        self.detail = format!("{place}: {}", self.detail).into();
        self
    }

    /// The document for the request with this id. `server_url` is the URL of the server as the caller knows it; it may be empty.
    #[must_use]
    pub fn document(&self, server_url: &str, request_id: &str) -> String {
        let document = Document {
            kind: format_args!("{server_url}/problems/{}", self.code.name()),
            title: self.code.title(),
            status: self.code.status(),
            detail: &self.detail,
            hint: self.hint.as_deref(),
            code: self.code.name(),
            retryable: self.code.is_retryable(),
            request_id,
            retry_after_ms: self.retry_after.map(whole_ms),
            fields: &self.fields,
        };
        serde_json::to_string(&document).unwrap_or_default() + "\n"
    }

    /// Adds the index (from 0) of the wrong object in a list, and its line in NDJSON unless the problem already has a
    /// line.
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

/// Formats the detail and the hint on one line, for places where nothing else of the problem is shown.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "; {hint}"))
    }
}

/// Normalises a field of a problem. A caller's text is shortened, and a number without a fraction becomes an integer.
fn tidied(mut value: Value) -> Value {
    match &mut value {
        Value::String(text) => {
            let end = cut(text).len();
            text.truncate(end);
        }
        // JSON does not distinguish 50.0 from 50, but parsers of typed languages do.
        Value::Number(number) => {
            let whole = number.as_f64().filter(|_| number.is_f64()).filter(|number| number.fract() == 0.0);
            if let Some(whole) = whole.and_then(|whole| whole.to_string().parse::<i64>().ok()) {
                *number = whole.into();
            }
        }
        Value::Array(all) => all.iter_mut().for_each(|one| *one = tidied(one.take())),
        Value::Object(members) => members.values_mut().for_each(|one| *one = tidied(one.take())),
        _ => {}
    }
    value
}

/// The response carries the problem as an extension until the middleware renders it with the id of the request.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Takes the problem out of a response, or makes the one for its status. A success and a response of another node have none.
#[must_use]
pub fn take(response: &mut Response) -> Option<Problem> {
    let status = response.status();
    let is_refusal = status.is_client_error() || status.is_server_error();
    if !is_refusal || response.extensions().get::<PassedOn>().is_some() {
        return None;
    }
    Some(response.extensions_mut().remove::<Problem>().unwrap_or_else(|| of_status(status)))
}

/// Renders the problem of a response, or the problem for its status if it carries none. Returns the code of the problem.
#[must_use]
pub fn render(
    mut response: Response,
    server_url: impl FnOnce() -> String,
    request_id: &str,
) -> (Response, Option<Code>) {
    let passed_on = response.extensions().get::<PassedOn>().copied();
    let Some(problem) = take(&mut response) else {
        return (response, passed_on.and_then(|PassedOn(code)| code));
    };
    let (mut parts, _) = response.into_parts();
    let body = problem.document(&server_url(), request_id);
    parts.status = StatusCode::from_u16(problem.code.status()).unwrap_or(parts.status);
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

/// Whether a response with this status refuses the caller and not the content of the request.
#[must_use]
pub fn refuses_caller(status: u16) -> bool {
    [Code::Unauthorized, Code::Forbidden, Code::TooManyRequests].iter().any(|code| code.status() == status)
}

/// The problem for a response from a library, which has only a status.
#[must_use]
pub fn of_status(status: StatusCode) -> Problem {
    let (code, detail) = match status.as_u16() {
        401 => (Code::Unauthorized, "a token is needed"),
        403 => (Code::Forbidden, "this is not allowed"),
        404 => (Code::NotFound, "the API does not have this path"),
        405 => (Code::MethodNotAllowed, "the path does not have this method"),
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
        _ => (Code::Internal, "the request failed inside the server"),
    };
    let hint = match code {
        Code::NotFound => Some("/openapi.json lists the paths"),
        Code::MethodNotAllowed => Some("the header Allow has the methods of the path"),
        Code::Internal => Some("the log of the server has the cause under the request id"),
        _ => None,
    };
    Problem::new(code, detail).hint_some(hint.map(Cow::from))
}

impl From<deltaq_service::Error> for Problem {
    fn from(error: deltaq_service::Error) -> Self {
        use deltaq_service::Error;
        let detail = error.to_string();
        match error {
            Error::QueueNotFound => {
                let way_out = "PUT creates it, and so does add unless queues.auto_create is off";
                Self::new(Code::QueueNotFound, detail).hint(way_out)
            }
            Error::NotOwner => Self::new(Code::NotOwner, detail),
            Error::QueueDeleted => Self::new(Code::QueueDeleted, detail),
            Error::Follow(error) => {
                let problem =
                    Self::new(Code::InvalidConfig, format!("follow: {detail}")).with("field", "follow");
                match error {
                    FollowError::TooMany { limit, .. } | FollowError::TooManyOfToken { limit, .. } => problem.with("limit", limit),
                    FollowError::NotFound(_) => problem.hint("create it first"),
                    FollowError::Apart { queue, group, .. } => problem.hint(format!(
                        "give the follower a name that begins with \"{group}--\", such as \"{group}--{queue}\""
                    )),
                    _ => problem,
                }
            }
            Error::ResourceTaken { .. } => {
                Self::invalid_setting("kubernetes.plural", &detail).hint("use another plural or group")
            }
            Error::Followed { followers, hidden: _ } => {
                let names: Vec<_> = followers.iter().map(ToString::to_string).collect();
                Self::new(Code::Followed, detail)
                    .hint("detach them first (follow: null), or delete with force=true, which detaches them")
                    .with("followers", names)
            }
            Error::TooManyQueues { limit, .. } => Self::new(Code::QueueFull, detail).with("limit", limit),
            Error::TooManyWaiters { limit } => Self::new(Code::TooManyWaiters, detail).with("limit", limit),
            Error::TooManyAdmissions { limit } => {
                Self::new(Code::TooManyRequests, detail).with("limit", limit)
            }
            Error::Draining => Self::new(Code::Draining, detail),
            Error::Refused(refusal) => refusal.into(),
            Error::Broken => of_status(StatusCode::INTERNAL_SERVER_ERROR),
            Error::Expired { .. } | Error::TooOld => {
                Self::expired(ExpiredReason::TooOld, detail).hint(LIST_AGAIN)
            }
            Error::Ahead { .. } => Self::expired(ExpiredReason::Ahead, detail).hint(LIST_AGAIN),
            Error::Lost => Self::expired(ExpiredReason::Lost, detail).hint(LIST_AGAIN),
            Error::VersionAhead { .. } => Self::new(Code::VersionAhead, detail),
            Error::NoIndex { names, .. } => {
                let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                Self::new(Code::IndexNotFound, detail).hint(format!("the queue has {names}"))
            }
            Error::IndexBuilding { .. } => Self::new(Code::IndexBuilding, detail),
            Error::NoRoomForIndex { .. } => Self::new(Code::IndexBuilding, detail).hint(MAKE_ROOM),
            Error::PastUnreadable => Self::new(Code::Internal, detail),
            Error::Reloading => Self::new(Code::QueueReloading, detail).hint(REPEAT),
            Error::Journal(error) => journal::problem(error, detail),
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let (detail, hint) = (refusal.to_string(), hint_of(&refusal));
        let problem = match refusal {
            Refusal::QueueFull { limit, .. } => Self::new(Code::QueueFull, detail).with("limit", limit),
            Refusal::MemoryFull { wanted, room } => Self::new(Code::MemoryFull, detail)
                .with("limit", room.limit)
                .with("held_bytes", room.held)
                .with("wanted_bytes", wanted)
                .with_some("token", room.token.as_deref()),
            Refusal::KeyFull { field, limit, key, index } => Self::new(Code::KeyFull, detail)
                .with("limit", limit)
                .with("field", field)
                .with("key", key.as_str())
                .with("index", index),
            Refusal::ObjectTooLarge { limit, index, .. } => {
                Self::new(Code::ObjectTooLarge, detail).with("limit", limit).with("index", index)
            }
            Refusal::WrongMode { mode, .. } => Self::new(Code::WrongMode, detail).with("mode", mode.as_str()),
            Refusal::TooManyReplaces { limit } => {
                Self::new(Code::TooManyRequests, detail).with("limit", limit)
            }
            Refusal::TooManySequences { limit } => {
                Self::new(Code::TooManySequences, detail).with("limit", limit)
            }
            Refusal::SequenceBusy { number } => {
                Self::new(Code::TooManyRequests, detail).with("sequence", number)
            }
            Refusal::ConfigChanged => Self::new(Code::TooManyRequests, detail),
            Refusal::Follower { follows } => Self::new(Code::Follower, detail).with("follows", &*follows),
            Refusal::Closed => Self::new(Code::QueueClosed, detail),
            Refusal::MassDelete { deletions, owned, guard, counts } => {
                let problem =
                    Self::new(Code::MassDelete, detail).with("deletions", deletions).with("owned", owned);
                let problem = match guard {
                    DeletionGuard::Set { max_deletes, max_percent } => problem
                        .with_some("max_deletes", max_deletes)
                        .with_some("max_delete_percent", max_percent),
                    DeletionGuard::Default(limit) => problem.with("default_limit", limit.as_str()),
                };
                with_counts(problem, counts)
            }
            Refusal::NoKnownObjects => Self::new(Code::NoKnownObjects, detail),
            Refusal::NotEmpty { waiting } => Self::new(Code::NotEmpty, detail).with("waiting", waiting),
            Refusal::PreconditionFailed { key, version, index } => {
                Self::new(Code::PreconditionFailed, detail)
                    .with("key", key.as_str())
                    .with("resource_version", version.map(Rv::get))
                    .with("index", index)
            }
            Refusal::CountChanged { count, .. } => Self::new(Code::CountChanged, detail).with("count", count),
            Refusal::ImmutableConfig { field, .. } => {
                Self::new(Code::ImmutableConfig, detail).with("field", field)
            }
        };
        problem.hint_some(hint)
    }
}

fn with_counts(problem: Problem, counts: ReplaceCounts) -> Problem {
    problem
        .with("replaced", counts.replaced)
        .with("deleted", counts.deleted)
        .with("unchanged", counts.unchanged)
        .with("skipped", counts.skipped)
        .with("taken_over", counts.taken_over)
        .with_some("stale", Some(counts.stale).filter(|stale| *stale > 0))
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
                let errors: Vec<_> = violations.into_iter().map(violation).collect();
                Self::new(Code::InvalidObject, detail).with_default("errors", errors)
            }
            Unfit::TooLarge { limit } => Self::new(Code::ObjectTooLarge, detail).with("limit", limit),
            Unfit::TooDeep | Unfit::Unreadable(_) => Self::new(Code::InvalidObject, detail),
        }
    }
}

fn violation(violation: Violation) -> ViolationDocument {
    let Violation { pointer, schema_pointer, detail } = violation;
    ViolationDocument { pointer, schema_pointer, detail }
}

impl From<KeyError> for Problem {
    fn from(error: KeyError) -> Self {
        let code = if error.is_missing() { Code::NoKey } else { Code::InvalidKey };
        let mut problem = Self::new(code, error.to_string());
        if error.is_missing() && error.pointer().is_some() {
            problem = problem
                .hint("if objects have their key elsewhere, say so when you create the queue: PUT {\"key\":[\"/sku\"]} for a key at \"/sku\"");
        }
        if let Some(pointer) = error.pointer() {
            problem = problem.with("pointer", pointer);
        }
        match error.limit() {
            Some(limit) => problem.with("limit", limit),
            None => problem,
        }
    }
}

impl From<VersionError> for Problem {
    fn from(error: VersionError) -> Self {
        let problem = Self::new(Code::InvalidObject, error.to_string())
            .hint(
                "send it with each object, or PATCH {\"version\":null} on the queue if its objects have none",
            )
            .with("pointer", error.pointer());
        problem.with_some("limit", error.limit())
    }
}

impl From<OrderError> for Problem {
    fn from(error: OrderError) -> Self {
        Self::new(Code::InvalidObject, error.to_string()).with("pointer", error.pointer())
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
