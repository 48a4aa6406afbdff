//! One request of a queue that pushes.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use deltaq_engine::command::Item;
use deltaq_engine::id::Token;
use deltaq_engine::trace::TraceContext;
use deltaq_runtime::clock::Clock;
use deltaq_service::{Handle, LeaseId};
use deltaq_types::{Push, PushFormat};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest as _, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use super::LEASE_MARGIN;
use crate::access::hex;
use crate::http::wire::{CloudEvent, QueueIdentity, event_id, pushed, pushed_bytes, pushed_list};
use crate::push::{Answer, Call, Sender};
use crate::spans::{Processing, Spans};

/// Maximum size of the bodies of all queues that are being sent, in KiB. One body always fits.
const BODIES_KIB: u32 = 128 << 10;
/// Maximum size of the bodies of one queue, in KiB, so that a slow endpoint of one queue does not stop the others.
const QUEUE_BODIES_KIB: u32 = BODIES_KIB / 8;
/// How many bytes of a digest are in the id of a request with several keys.
const DIGEST_BYTES: usize = 16;
/// The characters of a key that its header has unchanged.
const UNRESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

const KEY: HeaderName = HeaderName::from_static("deltaq-key");
const TYPE: HeaderName = HeaderName::from_static("deltaq-type");
const VERSION: HeaderName = HeaderName::from_static("deltaq-resource-version");
const TOKEN: HeaderName = HeaderName::from_static("deltaq-token");
const LEASE: HeaderName = HeaderName::from_static("deltaq-lease");
const ATTEMPT: HeaderName = HeaderName::from_static("deltaq-attempt");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The room for bodies.
#[derive(Clone, Debug)]
pub(super) struct Bodies {
    all: Arc<Semaphore>,
    queue: Arc<Semaphore>,
}

impl Bodies {
    pub(super) fn new() -> Self {
        let semaphore = |kib: u32| Arc::new(Semaphore::new(usize::try_from(kib).unwrap_or(usize::MAX)));
        Self { all: semaphore(BODIES_KIB), queue: semaphore(QUEUE_BODIES_KIB) }
    }

    /// The room of another queue.
    pub(super) fn of_queue(&self) -> Self {
        Self { all: self.all.clone(), ..Self::new() }
    }

    /// Whether a body of the queue already waits for room.
    pub(super) fn are_full(&self) -> bool {
        self.queue.available_permits() == 0
    }

    /// Waits for room, first for that of the queue, so that a queue never waits while it occupies room of others.
    async fn room(&self, bytes: usize) -> Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)> {
        let kib = u32::try_from(bytes / 1_024 + 1).unwrap_or(u32::MAX);
        let acquire =
            |semaphore: &Arc<Semaphore>, most: u32| semaphore.clone().acquire_many_owned(kib.min(most));
        let queue = acquire(&self.queue, QUEUE_BODIES_KIB).await.ok()?;
        Some((queue, acquire(&self.all, BODIES_KIB).await.ok()?))
    }
}

/// What requests use.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) setting: Arc<Push>,
    pub(super) sender: Arc<Sender>,
}

/// A key in a request.
pub(super) struct Sent {
    pub(super) key: String,
    pub(super) token: Token,
    /// How often it has failed before.
    pub(super) failures: u32,
}

/// A request that has ended. Without an answer it was not sent.
pub(super) struct Ended {
    pub(super) keys: Vec<Sent>,
    pub(super) setting: Arc<Push>,
    pub(super) answer: Option<Answer>,
    pub(super) took: Duration,
}

/// Sends keys.
pub(super) async fn deliver(
    (handle, clock, spans): (Arc<Handle>, Clock, Spans),
    bodies: Bodies,
    items: Vec<Item>,
    target: Target,
) -> Ended {
    let Target { setting, sender } = target;
    let began = Instant::now();
    let mut answer = None;
    // The commit of the leases may have taken long. A request must not outlive them.
    let lasts = || items.iter().all(|item| item.deadline.since(handle.moment().now) >= setting.timeout.get());
    let room = bodies.room(pushed_bytes(&items, &setting));
    if let Ok(Some(_room)) = timeout(LEASE_MARGIN / 2, room).await
        && lasts()
    {
        let traces: Vec<TraceContext> = if spans.are_sent() {
            let deltas = items.iter().flat_map(|item| &item.deltas);
            deltas.filter_map(|delta| delta.provenance.trace().map(|trace| **trace)).collect()
        } else {
            Vec::new()
        };
        let now_us = clock.wall_us();
        // Several keys have no common trace.
        let parent = match &*items {
            [item] => item.deltas.last().and_then(|delta| delta.provenance.trace()).map(|trace| **trace),
            _ => None,
        };
        let span = spans.process(&Processing {
            queue: handle.name().as_str(),
            parent,
            links: &traces,
            keys: items.len(),
            at_us: now_us,
        });
        let trace = span.context().or(parent);
        if let Some(call) = call_of(&handle, &items, &setting, trace, now_us) {
            let received = sender.send(call, setting.timeout.get()).await;
            span.end(clock.wall_us(), status_of(&received));
            answer = Some(received);
        }
    }
    let sent =
        |item: Item| Sent { key: item.key.as_str().to_owned(), token: item.token, failures: item.failures };
    Ended { keys: items.into_iter().map(sent).collect(), setting, answer, took: began.elapsed() }
}

const fn status_of(answer: &Answer) -> Option<u16> {
    match answer {
        Answer::Status { status, .. } => Some(*status),
        Answer::None { .. } => None,
    }
}

/// The request for keys. `None` for a key without deltas.
fn call_of(
    handle: &Handle,
    items: &[Item],
    setting: &Push,
    trace: Option<TraceContext>,
    now_us: u64,
) -> Option<Call> {
    let trace = trace.map(|trace| trace.to_string());
    let mut headers = HeaderMap::new();
    insert(&mut headers, TRACEPARENT, trace.as_deref());
    let kind = match (setting.format, setting.batch) {
        (PushFormat::Cloudevents, 2..) => "application/cloudevents-batch+json",
        _ => "application/json",
    };
    insert(&mut headers, header::CONTENT_TYPE, Some(kind));
    let (id, body) = match items {
        [item] if setting.batch == 1 => of_one(handle, item, setting, &mut headers)?,
        _ => of_several(handle, items, setting)?,
    };
    Some(Call { id, timestamp: now_us / 1_000_000, headers, body: body.into(), keys: items.len() })
}

fn insert(headers: &mut HeaderMap, name: HeaderName, text: Option<&str>) {
    if let Some(Ok(value)) = text.map(HeaderValue::from_str) {
        headers.insert(name, value);
    }
}

/// The id and the body of the request for a key.
fn of_one(handle: &Handle, item: &Item, setting: &Push, headers: &mut HeaderMap) -> Option<(String, String)> {
    let pushed = pushed(&handle.lives(), item, setting, handle.moment())?;
    let key = utf8_percent_encode(item.key.as_str(), &UNRESERVED).to_string();
    insert(headers, KEY, Some(&key));
    insert(headers, TOKEN, Some(&item.token.rv().get().to_string()));
    insert(headers, ATTEMPT, Some(&item.attempt.to_string()));
    if setting.is_async {
        let life = handle.lives().id_of(item.token.rv());
        insert(headers, LEASE, Some(&LeaseId { life, token: item.token }.to_string()));
    }
    let id = event_id(&handle.incarnation().to_string(), pushed.version);
    match setting.format {
        PushFormat::Standard => {}
        PushFormat::Raw => {
            insert(headers, TYPE, Some(pushed.kind));
            insert(headers, VERSION, Some(&pushed.version.to_string()));
        }
        // The event keeps the trace of its change; the header of the request has that of the request.
        PushFormat::Cloudevents => CloudEvent {
            kind: pushed.kind,
            queue: handle.name().as_str(),
            id: &id,
            time: Some(pushed.time),
            item: Some((item.key.as_str(), pushed.version)),
            traceparent: pushed.trace.as_deref(),
        }
        .write(headers),
    }
    Some((id, pushed.body))
}

/// The id and the body of a request whose body is a list.
fn of_several(handle: &Handle, items: &[Item], setting: &Push) -> Option<(String, String)> {
    let incarnation = handle.incarnation().to_string();
    let lives = handle.lives();
    let identity = QueueIdentity { queue: handle.name().as_str(), incarnation: &incarnation, lives: &lives };
    let body = pushed_list(identity, items, setting, handle.moment())?;
    // The largest version is in lists of different keys, so it does not identify the list.
    let mut versions: Vec<u64> = items.iter().filter_map(|item| Some(item.deltas.last()?.rv.get())).collect();
    versions.sort_unstable();
    let mut digest = Sha256::new();
    for version in versions {
        digest.update(version.to_be_bytes());
    }
    let digest = digest.finalize();
    let id = format!("{incarnation}-{}", hex(digest.get(..DIGEST_BYTES)?));
    Some((id, body))
}
