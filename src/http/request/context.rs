//! The context of a request, which the log, the audit log, the limits and the handlers use. It never contains objects
//! or tokens.

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, Uri};
use deltaq_engine::id::Source;
use deltaq_engine::trace::{Trace, TraceContext};
use deltaq_service::{Author, Creator, Document, Error, FollowError, on_behalf_of};
use deltaq_types::name::Name;
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;

use super::accept::Accept;
use super::body_head::BodyHead;
use super::params::{Params, Query};
use super::public_url;
use super::trace;
use super::watch_form::WatchForm;
use crate::access::Caller;
use crate::config::access::Verb;
use crate::http::gate::access::{Authorization, PermittedSources};
use crate::http::gate::hooks::HookTurn;
use crate::http::gate::in_flight::{Applicant, Permit, ReplyBytes};
use crate::http::gate::seats::Occupant;
use crate::http::head::Head;
use crate::http::operation::{BodyKind, Class, Operation, Target};
use crate::http::place::Place;
use crate::http::problem::Problem;
use crate::http::reply::delivery::Outbox;
use crate::http::reply::{Reply, ReplyCounts, RequestCounts};
use crate::http::request_metrics::UNKNOWN;
use crate::http::state::AppState;
use crate::http::timeouts::Timeouts;

pub(in crate::http) static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Maximum length of a caller's request id that is used, in bytes.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(in crate::http) struct Peer {
    /// Its address.
    pub(in crate::http) address: SocketAddr,
    /// The address of the client, if the peer is a trusted proxy that names it.
    pub(in crate::http) forwarded_for: Option<IpAddr>,
    /// The SHA-256 of its certificate, if it has sent one that the server trusts.
    pub(in crate::http) certificate: Option<[u8; 32]>,
}

impl Peer {
    /// The address of the client, for the audit log.
    pub(in crate::http) fn client(self) -> String {
        self.forwarded_for.map_or_else(|| self.address.to_string(), |client| client.to_string())
    }
}

/// The connection of a request.
#[derive(Clone, Debug)]
pub(in crate::http) struct Connection {
    pub(in crate::http) peer: Peer,
    /// The replies to pops that the connection has buffered.
    pub(in crate::http) outbox: Outbox,
    /// The connection among those of its listener.
    pub(in crate::http) occupant: Arc<Occupant>,
    /// Whether the server terminates TLS for the connection.
    pub(in crate::http) is_tls: bool,
    /// When the connection is idle.
    pub(in crate::http) timeouts: Timeouts,
}

/// The context of a request.
#[derive(Debug)]
pub(in crate::http) struct RequestContext {
    pub(in crate::http) id: String,
    pub(in crate::http) begun_us: u64,
    pub(in crate::http) method: &'static str,
    target: Target,
    /// `None` in a test of only the routes.
    pub(in crate::http) connection: Option<Connection>,
    /// What the request reveals about the URL of the server.
    called: public_url::Caller,
    /// Who the caller is, and whether the caller has the permission that the operation needs.
    pub(in crate::http) authorization: Authorization,
    /// Whether the caller watches by server-sent events, as a browser's `EventSource` does.
    pub(in crate::http) is_event_source: bool,
    /// Whether it has watched before, and sends the id of its last event.
    pub(in crate::http) resumes_events: bool,
    /// Whether the caller pops CloudEvents.
    pub(in crate::http) pops_events: bool,
    /// What the path names, if it belongs to the Kubernetes API.
    kubernetes: Option<Place>,
    /// Whether the caller is willing to wait.
    waits: bool,
    /// The name of the node that has sent the request; `None` for a client.
    sender: Option<String>,
    /// Whether another node returns leases that did not reach its client.
    pub(in crate::http) is_undelivered: bool,
    /// The trace context of the caller.
    pub(in crate::http) parent: Option<TraceContext>,
    /// How the body is read, or the problem of its headers. The problem matters only for operations with a body.
    pub(in crate::http) body_head: Result<BodyHead, Problem>,
    /// The traces of the delivered deltas, if spans are sent.
    pub(in crate::http) links: OnceLock<Vec<TraceContext>>,
    /// The counts for the log, once they are known.
    counts: OnceLock<RequestCounts>,
    /// Number of bytes of the body that count toward the limit of bodies, until the context is dropped.
    body_bytes: AtomicUsize,
    /// The permit of the in-flight limit.
    permit: Mutex<Option<Permit>>,
    /// The turn of an address that sends a delivery of a webhook.
    hook_turn: Mutex<Option<HookTurn>>,
    /// The permit for parsing a large body. It is held until the handler waits for something else.
    parse_permit: Mutex<Option<OwnedSemaphorePermit>>,
    /// The state that all requests share.
    pub(in crate::http) state: AppState,
}

impl RequestContext {
    /// Creates the context of a new request.
    pub(in crate::http) fn of(
        request: &Request,
        head: &Head<'_>,
        target: Target,
        connection: Option<Connection>,
        state: AppState,
        is_from_node: bool,
        kubernetes: Option<Place>,
    ) -> Arc<Self> {
        let is_tls = connection.as_ref().is_some_and(|connection| connection.is_tls);
        let body_kind = target.operation.map_or(BodyKind::Ignored, |operation| operation.body);
        let is_watch = target.operation.is_some_and(|operation| operation.class == Class::Watch);
        let is_pop = target.operation.is_some_and(|operation| operation.class == Class::Pop);
        let is_event_source =
            is_watch && WatchForm::of(request.headers()).is_ok_and(|form| form == WatchForm::Events);
        let sender = head.forwarded.first.and_then(|name| name.to_str().ok()).map(str::to_owned);
        Arc::new(Self {
            id: request_id(head, &state),
            begun_us: state.clock.monotonic_us(),
            method: method_label(request.method().as_str()),
            target,
            called: public_url::Caller::of(request, head, is_tls, is_from_node),
            connection,
            authorization: Authorization { is_from_node, ..Authorization::default() },
            is_event_source,
            resumes_events: is_event_source
                && request.headers().get("last-event-id").is_some_and(|id| !id.is_empty()),
            pops_events: is_pop && Accept::of(request.headers()).prefers_events(),
            kubernetes,
            waits: request
                .uri()
                .query()
                .is_some_and(|query| query.split('&').any(|part| part.starts_with("wait="))),
            sender: sender.filter(|_| is_from_node),
            is_undelivered: is_from_node && head.is_undelivered,
            parent: trace::context_of(head.traceparent),
            body_head: BodyHead::of(head, body_kind),
            links: OnceLock::new(),
            counts: OnceLock::new(),
            body_bytes: AtomicUsize::new(0),
            permit: Mutex::default(),
            hook_turn: Mutex::default(),
            parse_permit: Mutex::default(),
            state,
        })
    }

    /// Refuses a caller without the permission of the operation.
    pub(in crate::http) fn authorize(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let has_certificate = self.peer().is_some_and(|peer| peer.certificate.is_some());
        let state = &self.state;
        let checked =
            self.authorization.check(&state.gate, &state.clock, &self.target, headers, has_certificate);
        if let Some(connection) =
            self.connection.as_ref().filter(|_| self.authorization.knows_client(&self.target))
        {
            connection.occupant.authorized();
        }
        checked
    }

    /// Refuses a caller whose token has become invalid, or has lost its grant, since the request began.
    pub(in crate::http) fn authorize_again(&self) -> Result<(), Problem> {
        self.authorization.check_again(&self.state.gate.access, &self.state.clock, &self.target)
    }

    /// Refuses a caller without a grant of `verb` on another queue.
    pub(in crate::http) fn authorize_on(&self, verb: Verb, queue: &str) -> Result<(), Problem> {
        let state = &self.state;
        if verb == Verb::Admin {
            self.authorization.needs_admin.store(true, Ordering::Relaxed);
        }
        self.authorization.check_on(&state.gate.access, &state.clock, &self.target, verb, queue)
    }

    /// Notes that the request sets thresholds of sources, so that it is in the activity.
    pub(in crate::http) fn sets_thresholds(&self) {
        self.authorization.sets_thresholds.store(true, Ordering::Relaxed);
    }

    /// Refuses a produce call, right before its change, whose token has become invalid, or has lost its grant on the queue
    /// or on one of the sources, since the request began.
    pub(in crate::http) fn authorize_change<'s>(
        &self,
        queue: &Name,
        sources: impl Iterator<Item = Option<&'s Source>>,
    ) -> Result<(), Problem> {
        let state = &self.state;
        self.authorization.check_sources_again(&state.gate.access, &state.clock, &self.target, queue, sources)
    }

    /// The sources in whose name the caller may produce to a queue.
    pub(in crate::http) fn sources_on(&self, queue: &Name) -> PermittedSources {
        self.authorization.sources_on(queue)
    }

    /// The caller as the creator of a queue.
    pub(in crate::http) fn creator(&self) -> Creator {
        let token = self.caller().map(|caller| caller.name().into());
        Creator { token, shares: self.state.gate.access.tokens().len() > 1 }
    }

    /// The document of a queue without the names of followers that the caller may not read.
    pub(in crate::http) fn shown_document(&self, mut document: Document) -> Document {
        document.followers.retain(|follower| self.authorization.may_read(follower.as_str()));
        document
    }

    /// The problem without the names of queues that the caller may not read.
    pub(in crate::http) fn shown(&self, error: Error) -> Problem {
        match error {
            Error::Followed { followers, hidden } => {
                let (followers, others): (Vec<_>, Vec<_>) =
                    followers.into_iter().partition(|name| self.authorization.may_read(name.as_str()));
                Error::Followed { followers, hidden: hidden + others.len() }
            }
            Error::Follow(FollowError::Cycle(mut path)) => {
                for name in path.iter_mut().filter(|name| !self.authorization.may_read(name)) {
                    *name = String::from("another queue");
                }
                Error::Follow(FollowError::Cycle(path))
            }
            error => error,
        }
        .into()
    }

    /// Whether another node has sent the request.
    pub(in crate::http) fn is_from_node(&self) -> bool {
        self.authorization.is_from_node
    }

    /// Whether waits of the request should end, because the node that has sent it is stopping.
    pub(in crate::http) fn is_ended(&self) -> bool {
        self.sender.as_ref().is_some_and(|node| self.state.partitions.is_leaving(node))
    }

    /// Waits until the waits of the request should end.
    pub(in crate::http) async fn ended(&self) {
        match &self.sender {
            Some(node) => self.state.partitions.until_leaving(node).await,
            None => std::future::pending().await,
        }
    }

    /// The token, once it is known.
    pub(in crate::http) fn caller(&self) -> Option<&Arc<Caller>> {
        self.authorization.caller.get()
    }

    /// The reply with this document. Its counts go to the log.
    pub(in crate::http) fn reply<T: ReplyCounts>(&self, document: T) -> Reply<T> {
        self.count(document.counts());
        Reply(document)
    }

    /// Sets the counts for the log.
    pub(in crate::http) fn count(&self, counts: RequestCounts) {
        let _set_once = self.counts.set(counts);
    }

    /// The counts for the log.
    pub(in crate::http) fn counts(&self) -> RequestCounts {
        self.counts.get().copied().unwrap_or_default()
    }

    /// The trace of the caller, which is stored with the deltas that the request queues.
    pub(in crate::http) fn trace(&self) -> Option<Trace> {
        self.parent.map(Trace::new)
    }

    /// The data of the request that decides about its part of a limit.
    pub(in crate::http) fn applicant(&self) -> Applicant<'_> {
        Applicant { caller: self.caller(), class: self.class() }
    }

    fn class(&self) -> Class {
        match self.operation().map_or(Class::Read, |operation| operation.class) {
            // A read or an extension that waits must not hold a permit of those that don't.
            Class::Read | Class::Settle if self.waits => Class::Wait,
            class => class,
        }
    }

    /// Whether the request may wait for something other than its own work.
    pub(in crate::http) fn may_wait(&self) -> bool {
        matches!(self.class(), Class::Pop | Class::Wait | Class::Watch)
    }

    /// Takes a permit of the in-flight limit.
    pub(in crate::http) fn acquire_permit(&self) -> Result<(), Problem> {
        if self.class() == Class::Hook
            && let Some(address) = self.client_address()
        {
            let turn = self.state.gate.hooks.admit(address, self.state.clock.monotonic_us())?;
            *self.hook_turn.lock() = Some(turn);
        }
        let permit = Permit::take(&self.state.gate.in_flight, self.applicant())?;
        *self.permit.lock() = permit;
        Ok(())
    }

    /// Takes the permit out of the context.
    pub(in crate::http) fn take_permit(&self) -> Option<Permit> {
        self.permit.lock().take()
    }

    /// Returns the permit of a pop or a settle while the server waits for its body, so that stalled bodies do not
    /// stop other workers. Returns whether the permit must be acquired again.
    pub(in crate::http) fn release_permit_of_worker(&self) -> bool {
        let class = self.operation().map(|operation| operation.class);
        matches!(class, Some(Class::Pop | Class::Settle)) && self.take_permit().is_some()
    }

    /// Counts bytes of the body, until they are released or the request ends.
    pub(in crate::http) fn reserve_body(&self, bytes: usize) -> Result<(), Problem> {
        let held = self.body_bytes.load(Ordering::Relaxed);
        self.state.gate.in_flight.take_body(self.applicant(), held, bytes)?;
        self.body_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Stops counting bytes of the body.
    pub(in crate::http) fn release_body(&self, bytes: usize) {
        let release = |held: usize| Some(held.saturating_sub(bytes));
        let held = self.body_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, release);
        let bytes = held.unwrap_or_default().min(bytes);
        self.state.gate.in_flight.return_body(self.applicant(), bytes);
    }

    /// Counts the bytes of a reply until the result is dropped.
    pub(in crate::http) fn reserve_reply(&self, bytes: usize) -> Result<Option<ReplyBytes>, Problem> {
        self.state.gate.in_flight.take_reply(self.applicant(), bytes)
    }

    /// Acquires the permit for parsing a large body. The number of large bodies that are parsed at a time equals the
    /// number of processors. Other large bodies wait here, so that they do not delay small requests and refusals.
    /// Each takes a millisecond or two.
    pub(in crate::http) async fn acquire_parse_permit(&self) {
        if let Ok(permit) = self.state.gate.in_flight.large_bodies.clone().acquire_owned().await {
            *self.parse_permit.lock() = Some(permit);
        }
    }

    /// Runs the handler, on behalf of the caller. The permit for parsing is returned as soon as the handler waits.
    pub(in crate::http) async fn run<T>(&self, answer: impl Future<Output = T>) -> T {
        let token = self.caller().map(|caller| caller.shared_name().clone());
        let mut answer = std::pin::pin!(on_behalf_of(Author { token, is_follower: false }, answer));
        poll_fn(|context| {
            let polled = answer.as_mut().poll(context);
            drop(self.parse_permit.lock().take());
            polled
        })
        .await
    }

    /// The URL of the server as the caller knows it; empty if it is not known.
    pub(in crate::http) fn public_url(&self) -> String {
        self.called.url(self.state.limits.public_url.as_deref())
    }

    /// The template that the path matches.
    pub(in crate::http) fn route(&self) -> Option<&'static str> {
        self.target.path
    }

    /// The operation that the request asks for.
    pub(in crate::http) fn operation(&self) -> Option<&'static Operation> {
        self.target.operation
    }

    /// Whether another node requests the list of this node's queues.
    pub(in crate::http) fn is_list_for_node(&self) -> bool {
        self.is_from_node() && self.operation().is_some_and(Operation::lists_queues)
    }

    /// The body of the operation.
    pub(in crate::http) fn body_kind(&self) -> BodyKind {
        self.operation().map_or(BodyKind::Ignored, |operation| operation.body)
    }

    /// The template of the path, whatever the method is.
    pub(in crate::http) fn path(&self) -> Option<&'static str> {
        self.target.path
    }

    /// The methods that the path supports, if the request has a different method.
    pub(in crate::http) fn allow(&self) -> Option<&str> {
        self.target.allow.as_deref()
    }

    /// The query parameters, which the operation must know. The Kubernetes API ignores those that it does not know.
    pub(in crate::http) fn query(&self, uri: &Uri) -> Query {
        let given = Params::of(uri.query())?;
        if self.kubernetes.is_some() {
            return Ok(given);
        }
        given.among(self.operation().map_or(&[], |operation| operation.query))
    }

    /// What the path names, if the request belongs to the Kubernetes API.
    pub(in crate::http) fn kubernetes(&self) -> Option<&Place> {
        self.kubernetes.as_ref()
    }

    /// What the path of a request of the Kubernetes API names.
    pub(in crate::http) fn place(&self) -> Place {
        self.kubernetes.clone().unwrap_or_default()
    }

    /// Says that the connection is in use, although the server has nothing to send. Returns when to say so again.
    pub(in crate::http) fn keep_open(&self) -> Duration {
        self.connection.as_ref().map_or(Duration::MAX, |connection| connection.timeouts.keep_open())
    }

    /// The other end of the connection.
    pub(in crate::http) fn peer(&self) -> Option<Peer> {
        self.connection.as_ref().map(|connection| connection.peer)
    }

    /// The address of the client; `None` if another node has sent the request.
    fn client_address(&self) -> Option<IpAddr> {
        let peer = self.peer().filter(|_| !self.is_from_node())?;
        Some(peer.forwarded_for.unwrap_or(peer.address.ip()))
    }

    /// Records that the request is known to come from a permitted sender.
    pub(in crate::http) fn note_signed(&self) {
        if let Some(connection) = &self.connection {
            connection.occupant.authorized();
        }
    }

    /// The queue that the path names, if the name is valid.
    pub(in crate::http) fn queue_name(&self) -> Option<&Name> {
        self.target.queue.as_ref()
    }

    /// The text of the queue's name.
    pub(in crate::http) fn queue(&self) -> Option<&str> {
        self.target.queue_name()
    }

    /// The name of the token, even if it has expired. Only the log and the audit log use it.
    pub(in crate::http) fn token_name(&self) -> Option<&str> {
        let expired = || self.authorization.expired.get().map(|name| &**name);
        self.caller().map(|caller| caller.name()).or_else(expired)
    }
}

impl Drop for RequestContext {
    fn drop(&mut self) {
        self.release_body(usize::MAX);
    }
}

/// The id of a request. The caller's id is used if it is printable and short.
fn request_id(head: &Head<'_>, state: &AppState) -> String {
    let given = head.request_id.first.and_then(|value| value.to_str().ok());
    let is_printable = |id: &&str| {
        (1..=REQUEST_ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
    };
    match given.filter(is_printable) {
        Some(id) => id.to_owned(),
        None => state.request_id(),
    }
}

fn method_label(method: &str) -> &'static str {
    match method {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PATCH" => "PATCH",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        _ => UNKNOWN,
    }
}
