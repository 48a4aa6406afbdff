//! What is known of a request while it is answered: by the log, the audit and the layers that protect the
//! server. Nothing of an object or a token is ever in it.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use axum::extract::{FromRequestParts, MatchedPath, RawPathParams, Request};
use axum::http::HeaderName;
use tokio::sync::OwnedSemaphorePermit;

use super::measures::UNKNOWN;
use super::state::{AppState, Gate};
use super::trace;
use crate::access::Caller;
use crate::config::access::Verb;
use crate::engine::trace::TraceContext;
use crate::name::Name;

pub(super) static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Longest request id that is taken over from the caller, in bytes.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// What a connection says of its other end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    /// Where it is.
    pub(super) address: SocketAddr,
    /// Whether it has shown a certificate that the server trusts.
    pub(super) has_certificate: bool,
}

/// A request, as far as it may be told.
#[derive(Debug)]
pub(super) struct Visit {
    pub(super) id: String,
    pub(super) begun_us: u64,
    pub(super) method: &'static str,
    route: Option<MatchedPath>,
    /// The queue that the path names, decoded as the handlers read it; none if no queue can be called so.
    pub(super) queue: Option<Name>,
    pub(super) peer: Option<Peer>,
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
    /// Bytes of its body that are counted in the budget of bodies, until nobody holds the visit any more.
    pub(super) body_bytes: AtomicUsize,
    /// The turn that it has because its body is large, until it waits for something else.
    turn: Mutex<Option<OwnedSemaphorePermit>>,
    gate: Arc<Gate>,
}

impl Visit {
    /// What the head of a request says.
    pub(super) async fn of(request: Request, state: &AppState) -> (Arc<Self>, Request) {
        let (mut parts, body) = request.into_parts();
        let queue = match RawPathParams::from_request_parts(&mut parts, &()).await {
            Ok(params) => {
                params.iter().find(|(name, _)| *name == "queue").and_then(|(_, value)| Name::new(value).ok())
            }
            Err(_) => None,
        };
        let visit = Arc::new(Self {
            id: request_id(&parts, state),
            begun_us: state.clock.now_us(),
            method: method_label(parts.method.as_str()),
            route: parts.extensions.get().cloned(),
            queue,
            peer: parts.extensions.get().copied(),
            verb: OnceLock::new(),
            caller: OnceLock::new(),
            expired: OnceLock::new(),
            is_let_in: AtomicBool::new(false),
            parent: trace::context_of(&parts.headers),
            links: OnceLock::new(),
            body_bytes: AtomicUsize::new(0),
            turn: Mutex::default(),
            gate: Arc::clone(&state.gate),
        });
        parts.extensions.insert(Arc::clone(&visit));
        (visit, Request::from_parts(parts, body))
    }

    /// Takes a turn, which it gives back as soon as it waits for something else. Large bodies are read by as many at a time as
    /// there are processors: the others stand in a line of their own, and not among the small requests and refusals.
    pub(super) async fn take_turn(&self) {
        if let Ok(turn) = self.gate.budgets.readers.clone().acquire_owned().await {
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

    /// The route that the path belongs to.
    pub(super) fn route(&self) -> Option<&str> {
        self.route.as_ref().map(MatchedPath::as_str)
    }

    /// The name of the token that was shown, also if it is good no more: for the log and the audit alone.
    pub(super) fn shown_name(&self) -> Option<&str> {
        self.caller.get().map(|caller| caller.name()).or_else(|| self.expired.get().map(|name| &**name))
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.gate.budgets.release(self);
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

/// A caller's own id is kept if it is harmless; else the process counts.
fn request_id(parts: &axum::http::request::Parts, state: &AppState) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let given = parts.headers.get(&REQUEST_ID).and_then(|value| value.to_str().ok());
    let harmless = |id: &&str| {
        (1..=REQUEST_ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
    };
    match given.filter(harmless) {
        Some(id) => id.to_owned(),
        None => format!("{:x}-{}", state.started_us, COUNT.fetch_add(1, Ordering::Relaxed)),
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
