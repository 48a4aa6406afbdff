//! What is known of a request while it is answered: by the log, the audit and the layers that protect the
//! server. Nothing of an object or a token is ever in it.

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use axum::extract::Request;
use axum::http::{HeaderName, Uri};
use tokio::sync::OwnedSemaphorePermit;

use super::connection::delivery::Outbox;
use super::head::Head;
use super::operations::{Operation, Target};
use super::params::Params;
use super::problem::Problem;
use super::request_metrics::UNKNOWN;
use super::state::AppState;
use super::trace;
use crate::access::Caller;
use crate::config::access::Verb;
use crate::engine::trace::{Trace, TraceContext};
use crate::name::Name;

pub(super) static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Longest request id that is taken over from the caller, in bytes.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    /// Its address.
    pub(super) address: SocketAddr,
    /// The address of the client, if the peer is a trusted proxy that names it.
    pub(super) forwarded_for: Option<IpAddr>,
    /// The SHA-256 of its certificate, if it has sent one that the server trusts.
    pub(super) certificate: Option<[u8; 32]>,
}

impl Peer {
    /// The address of the client, for the audit log.
    pub(super) fn client(self) -> String {
        self.forwarded_for.map_or_else(|| self.address.to_string(), |client| client.to_string())
    }
}

/// What a request knows of the connection that it came by.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) peer: Peer,
    /// What it has taken over of answers to pops.
    pub(super) outbox: Outbox,
}

/// A request, as far as it may be told.
#[derive(Debug)]
pub(super) struct Visit {
    pub(super) id: String,
    pub(super) begun_us: u64,
    pub(super) method: &'static str,
    target: Target,
    /// None in a test of the routes alone.
    pub(super) connection: Option<Connection>,
    /// What it is about to do, once that is known.
    pub(super) verb: OnceLock<Verb>,
    /// Who does it, once that is known.
    pub(super) caller: OnceLock<Arc<Caller>>,
    /// What the token is called that it shows, if that is good no more: it has no more rights for it than a stranger.
    pub(super) expired: OnceLock<Arc<str>>,
    /// Whether it may do that: who has shown a good token may lack a grant, and without tokens everybody may.
    pub(super) is_let_in: AtomicBool,
    /// Where in a trace its caller made it.
    pub(super) parent: Option<TraceContext>,
    /// The traces of the deltas that it is answered with, if spans are made.
    pub(super) links: OnceLock<Vec<TraceContext>>,
    /// How much it is about, once that is known.
    counts: OnceLock<Counts>,
    /// Bytes of its body that are counted in the budget of bodies, until nobody holds the visit any more.
    pub(super) body_bytes: AtomicUsize,
    /// The turn that it has because its body is large, until it waits for something else.
    turn: Mutex<Option<OwnedSemaphorePermit>>,
    /// What all visits share.
    pub(super) state: AppState,
}

impl Visit {
    /// What the head of a request says.
    pub(super) fn of(
        request: &Request,
        target: Target,
        connection: Option<Connection>,
        state: AppState,
    ) -> Arc<Self> {
        let head = Head::of(request.headers());
        Arc::new(Self {
            id: request_id(&head, &state),
            begun_us: state.clock.monotonic_us(),
            method: method_label(request.method().as_str()),
            target,
            connection,
            verb: OnceLock::new(),
            caller: OnceLock::new(),
            expired: OnceLock::new(),
            is_let_in: AtomicBool::new(false),
            parent: trace::context_of(head.traceparent),
            links: OnceLock::new(),
            counts: OnceLock::new(),
            body_bytes: AtomicUsize::new(0),
            turn: Mutex::default(),
            state,
        })
    }

    /// Notes how much the request is about.
    pub(super) fn count(&self, counts: Counts) {
        let _noted_once = self.counts.set(counts);
    }

    /// How much the request was about.
    pub(super) fn counts(&self) -> Counts {
        self.counts.get().copied().unwrap_or_default()
    }

    /// The trace that the request belongs to, if its caller says so: to be kept with what it queues.
    pub(super) fn trace(&self) -> Option<Trace> {
        self.parent.map(Trace::new)
    }

    /// Takes a turn, which it gives back as soon as it waits for something else. Large bodies are read by as many at a time as
    /// there are processors: the others stand in a line of their own, and not among the small requests and refusals.
    pub(super) async fn take_turn(&self) {
        if let Ok(turn) = self.state.gate.budgets.readers.clone().acquire_owned().await {
            *self.turn() = Some(turn);
        }
    }

    /// Runs what answers the request.
    pub(super) async fn run<T>(&self, answer: impl Future<Output = T>) -> T {
        let mut answer = std::pin::pin!(answer);
        poll_fn(|context| {
            let polled = answer.as_mut().poll(context);
            drop(self.turn().take());
            polled
        })
        .await
    }

    fn turn(&self) -> MutexGuard<'_, Option<OwnedSemaphorePermit>> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The template that the path fits.
    pub(super) fn route(&self) -> Option<&'static str> {
        self.target.path
    }

    /// The operation that the request asks for.
    pub(super) fn operation(&self) -> Option<&'static Operation> {
        self.target.operation
    }

    /// The methods that the path takes, if the request has another one.
    pub(super) fn allow(&self) -> Option<&str> {
        self.target.allow.as_deref()
    }

    /// The query parameters, which the operation must know.
    pub(super) fn params(&self, uri: &Uri) -> Result<Params, Problem> {
        Params::of(uri.query())?.among(self.operation().map_or(&[], |operation| operation.query))
    }

    /// The other end of the connection.
    pub(super) fn peer(&self) -> Option<Peer> {
        self.connection.as_ref().map(|connection| connection.peer)
    }

    /// The queue that the path names, if any can be called so.
    pub(super) fn queue_name(&self) -> Option<&Name> {
        self.target.queue.as_ref()
    }

    /// The text of that name.
    pub(super) fn queue(&self) -> Option<&str> {
        self.queue_name().map(Name::as_str)
    }

    /// The name of the token that was shown, also if it is good no more: for the log and the audit alone.
    pub(super) fn shown_name(&self) -> Option<&str> {
        self.caller.get().map(|caller| caller.name()).or_else(|| self.expired.get().map(|name| &**name))
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.state.gate.budgets.release(self);
    }
}

/// How much a request was about, for the log and the audit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Deltas that were queued, and calls that queued nothing.
    pub(super) queued: Option<(u64, u64)>,
    /// Keys or documents that were answered with.
    pub(super) items: Option<u64>,
    /// Leases that were settled or extended, or tried to.
    pub(super) leases: Option<u64>,
    /// Keys that were touched otherwise.
    pub(super) keys: Option<u64>,
}

/// A caller's own id is kept if it is harmless.
fn request_id(head: &Head<'_>, state: &AppState) -> String {
    let given = head.request_id.first.and_then(|value| value.to_str().ok());
    let harmless = |id: &&str| {
        (1..=REQUEST_ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
    };
    match given.filter(harmless) {
        Some(id) => id.to_owned(),
        None => state.request_id(),
    }
}

fn method_label(method: &str) -> &'static str {
    match method {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        _ => UNKNOWN,
    }
}
