//! Limits on the number of requests in flight and on the bytes that they hold.
//!
//! A request that exceeds a limit is refused at once, so that the other requests stay fast. With tokens, one token
//! may hold at most three times as much as is still free. So one flooding token gets three quarters of a limit, two
//! get three sevenths each, and there is always room for another token.
//!
//! If several kinds of calls share a limit, an eighth of it is reserved for pops and settles, so that producers and
//! readers can't block the workers.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::thread::available_parallelism;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use tokio::sync::Semaphore;

use crate::access::{Caller, InFlight};
use crate::config;
use crate::http::operation::Class;
use crate::http::problem::{Code, Problem};

/// Maximum size of a piece of a reply that the connection takes at once, in bytes. The connection takes the next
/// piece when most of the previous piece is written, so it notices when a client disconnects in the middle of a
/// reply.
pub(in crate::http) const PIECE_BYTES: usize = 64 << 10;
/// Maximum size of a reply over HTTP/2 that is not counted. A connection may have a hundred such replies.
const MULTIPLEXED_BYTES: usize = 1 << 10;
/// Maximum number of concurrent scrapes. There are few scrapers, and each page may be large.
const SCRAPES_MAX: usize = 8;
/// One token may hold this many times as much as is free.
const SHARE: usize = 3;
/// The divisor for the part of the bytes of bodies that deliveries of webhooks may use.
const HOOK_SHARE: usize = 8;
/// The divisor for the part of a shared limit that is reserved for pops and settles.
const RESERVED: usize = 8;

/// The limits of a server, and how much of them is in use.
#[derive(Debug)]
pub struct InFlightLimits {
    reads: Limit,
    writes: Limit,
    settles: Limit,
    lists: Limit,
    waits: Limit,
    watches: Limit,
    scrapes: Limit,
    hooks: Limit,
    body_bytes: Limit,
    hook_bytes: Limit,
    reply_bytes: Limit,
    /// Permits for parsing large bodies.
    pub(in crate::http) large_bodies: Arc<Semaphore>,
}

#[derive(Debug)]
struct Limit {
    /// The counted things, for messages.
    counted: &'static str,
    /// The setting that defines the limit.
    setting: &'static str,
    max: usize,
    /// The part of `max` that only pops and settles may use.
    reserved: usize,
    taken: AtomicUsize,
}

/// A request that needs a part of a limit.
#[derive(Clone, Copy, Debug)]
pub(in crate::http) struct Applicant<'r> {
    /// The token; `None` on a server without tokens.
    pub(in crate::http) caller: Option<&'r Arc<Caller>>,
    /// The in-flight limit of its operation.
    pub(in crate::http) class: Class,
}

/// The permit of a request in flight. Dropping it returns it.
#[derive(Debug)]
pub(in crate::http) struct Permit {
    limits: Arc<InFlightLimits>,
    caller: Option<Arc<Caller>>,
    class: Class,
}

/// Marks a response whose body holds its [`ReplyBytes`].
#[derive(Clone, Copy, Debug)]
pub(in crate::http) struct CountedReply;

/// What a reply over HTTP/2 holds until the connection has sent it. The connection takes it out of the response.
#[derive(Clone, Debug)]
pub(in crate::http) struct UntilSent {
    _held: Arc<dyn Any + Send + Sync>,
}

/// Bytes of a reply that the client has not read yet.
#[derive(Debug)]
pub(in crate::http) struct ReplyBytes {
    limits: Arc<InFlightLimits>,
    caller: Option<Arc<Caller>>,
    bytes: usize,
}

impl InFlightLimits {
    /// Creates the limits from the settings.
    #[must_use]
    pub fn new(settings: &config::Server, hooks: &config::Hooks) -> Self {
        let limit =
            |counted, setting, max| Limit { counted, setting, max, reserved: 0, taken: AtomicUsize::new(0) };
        let shared =
            |counted, setting, max| Limit { reserved: max / RESERVED, ..limit(counted, setting, max) };
        let writes = settings.max_writes_in_flight;
        let (body_bytes, reply_bytes) =
            (settings.max_body_bytes_in_flight, settings.max_reply_bytes_in_flight);
        Self {
            reads: limit("reads", "server.max_reads_in_flight", settings.max_reads_in_flight),
            writes: limit("writes", "server.max_writes_in_flight", writes),
            settles: limit("requests that settle leases", "server.max_writes_in_flight", writes),
            lists: limit("lists", "server.max_lists_in_flight", settings.max_lists_in_flight),
            waits: shared("requests that wait", "server.max_waits_in_flight", settings.max_waits_in_flight),
            watches: limit("watches", "server.max_watches_in_flight", settings.max_watches_in_flight),
            scrapes: limit("scrapes", "fixed", SCRAPES_MAX),
            hooks: limit("deliveries", "hooks.max_in_flight", hooks.max_in_flight),
            hook_bytes: limit(
                "bytes of deliveries",
                "server.max_body_bytes_in_flight, of which deliveries have an eighth",
                (body_bytes / HOOK_SHARE).max(hooks.max_body_bytes),
            ),
            body_bytes: shared("bytes of bodies", "server.max_body_bytes_in_flight", body_bytes),
            reply_bytes: shared("bytes of replies", "server.max_reply_bytes_in_flight", reply_bytes),
            large_bodies: Arc::new(Semaphore::new(available_parallelism().map_or(1, usize::from))),
        }
    }

    /// The limit of a class; `None` for health checks.
    const fn of(&self, class: Class) -> Option<&Limit> {
        match class {
            Class::Unlimited => None,
            Class::Read => Some(&self.reads),
            Class::Write => Some(&self.writes),
            Class::Settle => Some(&self.settles),
            Class::List => Some(&self.lists),
            Class::Pop | Class::Wait => Some(&self.waits),
            Class::Watch => Some(&self.watches),
            Class::Scrape => Some(&self.scrapes),
            Class::Hook => Some(&self.hooks),
        }
    }

    /// Counts bytes of a body. The request already holds `held` bytes.
    pub(in crate::http) fn take_body(
        &self,
        applicant: Applicant<'_>,
        held: usize,
        bytes: usize,
    ) -> Result<(), Problem> {
        let limit = self.of_bodies(applicant.class);
        let max = limit.max_for(applicant.class);
        if held.saturating_add(bytes) > max {
            let detail = format!("the body has more than {max} bytes ({})", limit.setting);
            return Err(Problem::new(Code::ObjectTooLarge, detail).with("limit", max));
        }
        limit.take(bytes, applicant, |held| &held.body_bytes)
    }

    /// Returns bytes of a body.
    pub(in crate::http) fn return_body(&self, applicant: Applicant<'_>, bytes: usize) {
        let held = applicant.caller.map(|caller| &caller.in_flight().body_bytes);
        self.of_bodies(applicant.class).give(bytes, held);
    }

    /// The limit of the bytes of bodies. Deliveries come without a token, so they must not take those of others.
    const fn of_bodies(&self, class: Class) -> &Limit {
        match class {
            Class::Hook => &self.hook_bytes,
            _ => &self.body_bytes,
        }
    }

    /// Counts the bytes of a reply until the result is dropped. A small reply is not counted: the buffer of the connection
    /// holds it.
    pub(in crate::http) fn take_reply(
        self: &Arc<Self>,
        applicant: Applicant<'_>,
        bytes: usize,
    ) -> Result<Option<ReplyBytes>, Problem> {
        if bytes <= PIECE_BYTES { Ok(None) } else { self.count_reply(applicant, bytes).map(Some) }
    }

    fn count_reply(self: &Arc<Self>, applicant: Applicant<'_>, bytes: usize) -> Result<ReplyBytes, Problem> {
        self.reply_bytes.take(bytes, applicant, |held| &held.reply_bytes)?;
        Ok(ReplyBytes { limits: Arc::clone(self), caller: applicant.caller.cloned(), bytes })
    }
}

impl Limit {
    /// The part of the limit that a class may use.
    const fn max_for(&self, class: Class) -> usize {
        match class {
            Class::Pop | Class::Settle => self.max,
            _ => self.max - self.reserved,
        }
    }

    /// Takes an amount for a request, and adds it to `held`, the count of the token.
    fn take(
        &self,
        amount: usize,
        applicant: Applicant<'_>,
        held: impl FnOnce(&InFlight) -> &AtomicUsize,
    ) -> Result<(), Problem> {
        let Self { counted, setting, taken, .. } = self;
        let max = self.max_for(applicant.class);
        let after = |taken: usize| taken.checked_add(amount).filter(|taken| *taken <= max);
        let before = taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after).map_err(|_| {
            let detail = format!("the server has {max} {counted} in flight ({setting})");
            Problem::new(Code::TooManyRequests, detail).with("limit", max)
        })?;
        let Some(caller) = applicant.caller else { return Ok(()) };
        let share = max.saturating_sub(before).saturating_mul(SHARE);
        let after = |held: usize| held.checked_add(amount).filter(|held| *held <= share);
        let held = held(caller.in_flight()).fetch_update(Ordering::Relaxed, Ordering::Relaxed, after);
        held.map(drop).map_err(|held| {
            taken.fetch_sub(amount, Ordering::Relaxed);
            let name = caller.name();
            let detail = format!(
                "the token {name:?} has {held} {counted} in flight; the rest of {max} is for other tokens ({setting})"
            );
            Problem::new(Code::TooManyRequests, detail).with("limit", share)
        })
    }

    fn give(&self, amount: usize, held: Option<&AtomicUsize>) {
        self.taken.fetch_sub(amount, Ordering::Relaxed);
        if let Some(held) = held {
            held.fetch_sub(amount, Ordering::Relaxed);
        }
    }
}

/// The count of a token for the limit of a class.
fn held_of(held: &InFlight, class: Class) -> &AtomicUsize {
    match class {
        Class::Unlimited | Class::Read => &held.reads,
        Class::Write | Class::Hook => &held.writes,
        Class::Settle => &held.settles,
        Class::List => &held.lists,
        Class::Pop | Class::Wait => &held.waits,
        Class::Watch => &held.watches,
        Class::Scrape => &held.scrapes,
    }
}

impl Permit {
    /// Takes a permit. Health checks do not need a permit.
    pub(in crate::http) fn take(
        limits: &Arc<InFlightLimits>,
        applicant: Applicant<'_>,
    ) -> Result<Option<Self>, Problem> {
        let Applicant { caller, class } = applicant;
        let Some(limit) = limits.of(class) else { return Ok(None) };
        limit.take(1, applicant, |held| held_of(held, class))?;
        Ok(Some(Self { limits: Arc::clone(limits), caller: caller.cloned(), class }))
    }

    /// Keeps the permit until the connection has taken the reply, unless the reply is short or its bytes are counted.
    /// Otherwise, the replies for clients that do not read could use unlimited memory.
    ///
    /// A connection over HTTP/2 buffers many replies and takes each as a whole. So it keeps the permit or the bytes itself,
    /// until a reply is sent.
    pub(in crate::http) fn keep(self, response: Response, is_multiplexed: bool) -> Result<Response, Problem> {
        let bytes = response.body().size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
        let bytes_max = if is_multiplexed { MULTIPLEXED_BYTES } else { PIECE_BYTES };
        let is_short = bytes.is_some_and(|bytes| bytes <= bytes_max);
        if is_short || response.extensions().get::<CountedReply>().is_some() {
            return Ok(response);
        }
        if let (Class::Read | Class::Scrape | Class::Watch | Class::Wait, Some(bytes)) = (self.class, bytes) {
            let applicant = Applicant { caller: self.caller.as_ref(), class: self.class };
            let held = self.limits.count_reply(applicant, bytes)?;
            return Ok(holding(response, held, is_multiplexed));
        }
        Ok(holding(response, self, is_multiplexed))
    }
}

/// The response with what it holds.
fn holding<H: Unpin + Send + Sync + 'static>(
    mut response: Response,
    held: H,
    is_multiplexed: bool,
) -> Response {
    if is_multiplexed {
        response.extensions_mut().insert(UntilSent { _held: Arc::new(held) });
        return response;
    }
    response.map(|body| Body::new(HoldingBody { body, rest: Bytes::new(), _held: held }))
}

impl Drop for Permit {
    fn drop(&mut self) {
        let held = self.caller.as_ref().map(|caller| held_of(caller.in_flight(), self.class));
        if let Some(limit) = self.limits.of(self.class) {
            limit.give(1, held);
        }
    }
}

impl Drop for ReplyBytes {
    fn drop(&mut self) {
        let held = self.caller.as_ref().map(|caller| &caller.in_flight().reply_bytes);
        self.limits.reply_bytes.give(self.bytes, held);
    }
}

/// The body of a reply that holds a permit or counted bytes. It consists of pieces, and the connection takes the next
/// piece when most of the previous ones are written. So the permit or the bytes are held for as long as the reply
/// uses memory.
struct HoldingBody<H> {
    body: Body,
    rest: Bytes,
    _held: H,
}

impl<H: Unpin + Send + 'static> http_body::Body for HoldingBody<H> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)).map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => self.rest = data,
                Some(Ok(Err(frame))) => return Poll::Ready(Some(Ok(frame))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        let piece = self.rest.len().min(PIECE_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, mut hint) = (self.rest.len() as u64, self.body.size_hint());
        // The upper bound is set first, because it must never be below the lower bound.
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}
