//! Reads the body of a request, checking its type, size and rate.

mod document;
mod inflate;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::BodyDataStream;
use axum::extract::Request;
use axum::http::HeaderMap;
use bytes::Bytes;
use deltaq_service::Creator;
use deltaq_types::strict::Named;
use futures_util::{FutureExt as _, Stream as _};
use http_body::Body as _;
use serde::de::DeserializeOwned;

pub(in crate::http) use self::document::{Start, hinted, line_hinted, read_envelope, text_of};
use self::document::{check_strings, or_empty, read_document};
use self::inflate::Inflated;
use super::body_head::BodyHead;
pub(in crate::http) use super::body_head::Format;
use super::context::RequestContext;
use crate::http::gate::body_rate::{BodyRate, TooSlow};
use crate::http::operation::BodyKind;
use crate::http::problem::{Code, Problem, REPEAT};
use crate::http::state::HttpLimits;

/// Size in bytes from which on parsing a body takes longer than most requests take in total.
pub(in crate::http) const LARGE_BYTES: usize = 32 << 10;
/// Maximum size of a body that must be empty.
const NO_BODY_BYTES_MAX: usize = 1 << 10;
/// Maximum size of a body with the settings of a queue: a schema, the pointers of `prune`, and the other fields.
const SETTINGS_BYTES_MAX: usize = 512 << 10;
/// Memory of an object in a list in bytes, not including its text.
pub(in crate::http) const HELD_BYTES_PER_OBJECT: usize = 256;

/// A body that has not been read.
#[derive(Debug)]
pub(in crate::http) struct Incoming {
    /// The format, from the header `Content-Type`.
    pub(in crate::http) format: Format,
    source: Source,
    /// The headers, if they have the attributes of a CloudEvent.
    headers: Option<Box<HeaderMap>>,
    /// The length of the body, if it is known and the body is not compressed.
    length: Option<u64>,
    rate: BodyRate,
    /// Whether the server had to wait, for a piece of the body or for the permit to parse it.
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
    fn poll_next(&mut self, sender: Sender, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Problem>>> {
        match self {
            Self::Plain(body) => {
                let piece = Pin::new(body).poll_next(cx);
                piece.map(|piece| piece.map(|piece| piece.map_err(|_| broke_off(sender))))
            }
            Self::Compressed(inflated) => inflated.poll_next(sender, cx),
        }
    }

    /// Whether it is certain that no piece follows.
    fn is_at_end(&self) -> bool {
        matches!(self, Self::Plain(body) if body.is_end_stream())
    }

    /// Number of compressed bytes that have been received; 0 if the body is not compressed.
    fn received(&self) -> u64 {
        match self {
            Self::Plain(_) => 0,
            Self::Compressed(inflated) => inflated.received(),
        }
    }
}

/// The sender of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sender {
    Client,
    /// A node that forwards the request of a client.
    Node,
}

/// The problem for an incomplete body. If a node forwarded the request, its client has sent the whole request and can
/// repeat it.
fn broke_off(sender: Sender) -> Problem {
    match sender {
        Sender::Client => {
            Problem::new(Code::InvalidRequest, "the body broke off before its end; nothing was applied")
        }
        Sender::Node => {
            let detail =
                "the connection between two nodes ended before the end of the body; nothing was applied";
            Problem::new(Code::NotOwner, detail).hint(REPEAT)
        }
    }
}

/// Counts the bytes of a body and of its objects.
#[derive(Clone, Debug)]
pub(in crate::http) struct Account(Arc<RequestContext>);

impl Account {
    /// Counts bytes until the request ends. Only the handler may call this.
    pub(in crate::http) fn reserve(&self, bytes: usize) -> Result<(), Problem> {
        self.0.reserve_body(bytes)
    }

    /// Counts an object that is in memory in addition to the text of the body.
    pub(in crate::http) fn reserve_object(&self, bytes: usize) -> Result<(), Problem> {
        self.reserve(bytes + HELD_BYTES_PER_OBJECT)
    }

    /// The caller, whose computations are limited.
    pub(in crate::http) fn caller(&self) -> Creator {
        self.0.creator()
    }

    /// Stops counting bytes.
    pub(in crate::http) fn release(&self, bytes: usize) {
        self.0.release_body(bytes);
    }
}

impl Incoming {
    /// The body of a request.
    pub(in crate::http) fn of(request: Request, context: &Arc<RequestContext>) -> Result<Self, Problem> {
        let BodyHead { format, encoding } = context.body_head.clone()?;
        let account = Account(Arc::clone(context));
        let headers = (format == Format::CloudEventData).then(|| Box::new(request.headers().clone()));
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
        Ok(Self { format, source, headers, length, rate, has_waited: false, account })
    }

    /// Whether the body has CloudEvents.
    pub(in crate::http) fn has_events(&self) -> bool {
        matches!(self.format, Format::CloudEvent | Format::CloudEvents | Format::CloudEventData)
    }

    /// The headers of a CloudEvent.
    pub(in crate::http) fn headers(&self) -> Option<&HeaderMap> {
        self.headers.as_deref()
    }

    fn sender(&self) -> Sender {
        if self.account.0.is_from_node() { Sender::Node } else { Sender::Client }
    }

    /// The next piece of the body; `None` at its end.
    pub(in crate::http) async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        let sender = self.sender();
        let piece = match poll_fn(|cx| self.source.poll_next(sender, cx)).now_or_never() {
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
        let sender = self.sender();
        let next = poll_fn(|cx| self.source.poll_next(sender, cx));
        let Ok(piece) = tokio::time::timeout(limits.body_read_timeout, next).await else {
            let limit = limits.body_read_timeout;
            let detail = format!(
                "the body paused for longer than {} (server.body_read_timeout); nothing was applied",
                deltaq_types::duration::format(limit)
            );
            return Err(Problem::new(Code::RequestTimeout, detail)
                .with("limit_ms", deltaq_types::duration::whole_ms(limit)));
        };
        if has_released_permit {
            self.account.0.acquire_permit()?;
        }
        let received = match (&piece, &self.source) {
            (Some(Ok(bytes)), Source::Plain(_)) => bytes.len(),
            // For a compressed body, the rate of the compressed bytes counts.
            (Some(Ok(_)), Source::Compressed(inflated)) => {
                usize::try_from(inflated.received() - received_before).unwrap_or(usize::MAX)
            }
            _ => return Ok(piece),
        };
        if self.rate.passed(clock.since(begun_us), received) == Err(TooSlow) {
            let limit = limits.min_body_rate.bytes_per_second;
            let detail = format!(
                "the body came at less than {limit} bytes a second (server.min_body_bytes_per_second); nothing was applied"
            );
            return Err(Problem::new(Code::RequestTimeout, detail).with("limit", limit));
        }
        Ok(piece)
    }

    /// Checks after a wait that the token is still valid and still has its grant.
    fn check_access(&self) -> Result<(), Problem> {
        if self.has_waited { self.account.0.authorize_again() } else { Ok(()) }
    }

    /// Maximum size of a body that is one document, in bytes.
    pub(in crate::http) fn bytes_max(&self) -> usize {
        self.bound().0
    }

    /// The maximum size and the reason for it.
    fn bound(&self) -> (usize, &'static str) {
        let own = match self.account.0.body_kind() {
            BodyKind::Ignored | BodyKind::Empty => (NO_BODY_BYTES_MAX, "this call takes no body"),
            BodyKind::Settings | BodyKind::Patch => (SETTINGS_BYTES_MAX, "the largest settings of a queue"),
            BodyKind::Document | BodyKind::Objects | BodyKind::Changes | BodyKind::Kubernetes => {
                (usize::MAX, "")
            }
            BodyKind::Delivery => (self.limits().max_delivery_bytes, "hooks.max_body_bytes"),
        };
        own.min((self.limits().max_body_bytes, "server.max_body_bytes"))
    }

    fn limits(&self) -> &HttpLimits {
        &self.account.0.state.limits
    }

    /// The account that counts the bytes of the body.
    pub(in crate::http) fn account(&self) -> Account {
        self.account.clone()
    }

    /// The whole body as text.
    pub(in crate::http) async fn text(self) -> Result<String, Problem> {
        text_of(self.bytes().await?, Start::OF_BODY)
    }

    /// The whole body.
    pub(in crate::http) async fn bytes(mut self) -> Result<Vec<u8>, Problem> {
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
                // The buffer grows at most to the known length, because growing copies the bytes and both buffers
                // take memory.
                let room = (needed + needed / 2).min(length.max(needed));
                whole.reserve_exact(room - whole.len());
            }
            whole.extend_from_slice(&piece);
        }
        let is_delivery = self.account.0.body_kind() == BodyKind::Delivery;
        if whole.len() >= LARGE_BYTES {
            whole.shrink_to_fit();
        }
        // A delivery is not parsed before its signature is verified, and must not wait among those that are.
        if whole.len() >= LARGE_BYTES && !is_delivery {
            self.account.0.acquire_parse_permit().await;
            self.has_waited = true;
        }
        self.check_access()?;
        Ok(whole)
    }

    /// Reads a body that must be empty. Many clients send `{}` for an empty body.
    pub(in crate::http) async fn nothing(self) -> Result<(), Problem> {
        let has_body =
            || Problem::new(Code::InvalidRequest, "this call takes no body").hint("leave it empty");
        let text = self.text().await?;
        if text.trim().is_empty() || text.trim() == "{}" { Ok(()) } else { Err(has_body()) }
    }

    /// The settings of a queue, or of its sources: a JSON document in which no object has a name twice; an empty body is `{}`.
    pub(in crate::http) async fn settings<T: DeserializeOwned>(self) -> Result<T, Problem> {
        self.check_is_document()?;
        let text = self.text().await?;
        read_document(or_empty(&text))
    }

    /// A JSON document of known fields at every depth; an empty body is `{}`.
    pub(in crate::http) async fn document<T: DeserializeOwned>(self) -> Result<T, Problem> {
        self.document_or_blank().await.map(|(document, _)| document)
    }

    /// Like [`document`](Self::document), but also returns whether the body is empty.
    pub(in crate::http) async fn document_or_blank<T: DeserializeOwned>(self) -> Result<(T, bool), Problem> {
        self.check_is_document()?;
        let account = self.account();
        let text = self.text().await?;
        let is_blank = text.trim().is_empty();
        let text = or_empty(&text);
        check_strings(text)?;
        if !text.trim_start().starts_with('{') {
            return read_document(text).map(|document| (document, false));
        }
        // serde itself refuses duplicate fields, so a document is scanned for a better message only if serde refuses
        // it. For the leases of a pop, the scan would take two fifths of the reading time.
        let document = serde_json::from_str(text).map(|Named(document)| document);
        let document = document.or_else(|_| read_document(text)).map(|document| (document, is_blank));
        document
            .map_err(|problem| if is_blank { blank_hinted(problem) } else { query_hinted(&account, problem) })
    }

    fn check_is_document(&self) -> Result<(), Problem> {
        if self.format == Format::Ndjson {
            let detail = "this call takes one JSON document";
            return Err(Problem::new(Code::UnsupportedMediaType, detail).hint("send it as application/json"));
        }
        Ok(())
    }
}

/// Adds a hint to the problem of a field that an empty body does not have.
pub(in crate::http) fn blank_hinted(problem: Problem) -> Problem {
    problem.hint("the body is empty: send a JSON document")
}

/// Adds a hint to the problem of an unknown field, if the call has a parameter of that name.
fn query_hinted(account: &Account, problem: Problem) -> Problem {
    let parameters = account.0.operation().map_or(&[][..], |operation| operation.query);
    let is_parameter = |field: &&str| parameters.contains(field);
    match problem.field("field").filter(is_parameter).map(str::to_owned) {
        Some(field) => problem.hint(format!("{field} is a parameter of the query, ?{field}=...")),
        None => problem,
    }
}
