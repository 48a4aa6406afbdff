//! Reads over all queues of all nodes: their workers, and what a text is found in. Each node reads its own queues, and the node that the client has
//! called merges the replies.

use std::cmp::Reverse;
use std::sync::Arc;

use deltaq_service::{self, Handle, ListedState, Name};
use deltaq_types::{Found, FoundKey, FoundSource, FoundWorker, ItemState, QueueWorkerDocument, WorkerList};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::gather::{gather, unavailable};
use crate::config::access::Verb;
use crate::http::problem::Problem;
use crate::http::request::context::RequestContext;
use crate::http::wire;

/// Maximum number of matches of each kind in a reply.
const FOUND_MAX: usize = 20;
/// Maximum number of sources and of workers of a queue that are examined for a text.
const EXAMINED_MAX: usize = 1_000;
/// Number of workers of a queue that are read at a time.
const WORKERS_AT_ONCE: usize = 1_000;

/// The first workers of all queues that the caller may read.
pub(in crate::http) async fn workers(
    context: &Arc<RequestContext>,
    limit: usize,
) -> Result<WorkerList, Problem> {
    let path = format!("/v1/workers?limit={limit}");
    let (mut all, others) =
        gather::<_, WorkerList, _>(context, &path, || own_workers(context, limit)).await?;
    for other in others {
        all.left_out += other.left_out;
        all.unavailable.extend(other.unavailable);
        add_workers(&mut all, other.workers, limit);
    }
    all.unavailable.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// What a text is found in, among the queues that the caller may read.
pub(in crate::http) async fn find(context: &Arc<RequestContext>, text: &str) -> Result<Found, Problem> {
    let path = format!("/v1/find?text={}", utf8_percent_encode(text, NON_ALPHANUMERIC));
    let (mut found, others) = gather::<_, Found, _>(context, &path, || found_here(context, text)).await?;
    for other in others {
        found.queues.extend(other.queues);
        found.keys.extend(other.keys);
        found.sources.extend(other.sources);
        found.workers.extend(other.workers);
        found.has_more |= other.has_more;
        found.unavailable += other.unavailable;
        keep_first(&mut found, text);
    }
    Ok(found)
}

/// The queues of this node that the caller may read.
fn own_queues(context: &RequestContext) -> Vec<Arc<Handle>> {
    let caller = context.caller();
    let may_see = |name: &Name| caller.is_none_or(|caller| caller.may(Verb::Read, name.as_str()));
    let queues = context.state.partitions.list(None, usize::MAX, may_see);
    queues.into_iter().map(|(_, handle)| handle).collect()
}

async fn own_workers(context: &RequestContext, limit: usize) -> WorkerList {
    let mut all = WorkerList::default();
    for handle in own_queues(context) {
        match add_workers_of(&mut all, &handle, limit).await {
            // A queue that was deleted in the meantime has no workers.
            Ok(()) | Err(deltaq_service::Error::QueueDeleted) => {}
            Err(error) => all.unavailable.push(unavailable(handle.name().to_string(), error)),
        }
    }
    all
}

async fn add_workers_of(
    all: &mut WorkerList,
    handle: &Handle,
    limit: usize,
) -> Result<(), deltaq_service::Error> {
    let slow_after = handle.slow_after().await?;
    let mut after = None;
    loop {
        let page = handle.workers(after, WORKERS_AT_ONCE).await?;
        let queue = handle.name().as_str();
        let rows = page.entries.iter();
        let rows = rows.map(|(name, state)| wire::queue_worker(queue, name, state, page.moment, slow_after));
        add_workers(all, rows.collect(), limit);
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// Adds workers to the list, and keeps the first ones.
fn add_workers(all: &mut WorkerList, more: Vec<QueueWorkerDocument>, limit: usize) {
    if more.is_empty() {
        return;
    }
    all.workers.extend(more);
    all.workers.sort_by(|a, b| rank(a).cmp(&rank(b)));
    all.left_out += all.workers.len().saturating_sub(limit) as u64;
    all.workers.truncate(limit);
}

/// The order of workers: a slow lease, the age of the oldest lease, the names.
fn rank(worker: &QueueWorkerDocument) -> (bool, Reverse<Option<u64>>, &str, Option<&str>) {
    (!worker.is_slow, Reverse(worker.oldest_lease_age_ms), &worker.queue, worker.worker.as_deref())
}

async fn found_here(context: &RequestContext, text: &str) -> Found {
    let mut found = Found::default();
    let part = text.to_lowercase();
    for handle in own_queues(context) {
        if handle.name().as_str().to_lowercase().contains(&part) {
            found.queues.push(handle.name().to_string());
        }
        match find_in(&mut found, &handle, text, &part).await {
            Ok(()) | Err(deltaq_service::Error::QueueDeleted) => {}
            Err(_) => found.unavailable += 1,
        }
        keep_first(&mut found, text);
    }
    found
}

async fn find_in(
    found: &mut Found,
    handle: &Handle,
    text: &str,
    part: &str,
) -> Result<(), deltaq_service::Error> {
    let queue = || handle.name().to_string();
    // One more than the limit shows whether there are more.
    let keys = handle.keys_with_prefix(text, FOUND_MAX + 1).await?.into_iter();
    found.keys.extend(keys.map(|(key, state)| FoundKey {
        queue: queue(),
        key: key.as_str().to_owned(),
        state: state.map(state_of),
    }));
    let sources = handle.sources(None, EXAMINED_MAX).await?;
    found.has_more |= sources.next.is_some();
    let sources = sources.entries.into_iter().map(|source| source.state);
    let sources = sources.filter(|source| source.source.to_lowercase().contains(part));
    found.sources.extend(sources.map(|source| FoundSource {
        queue: queue(),
        source: source.source.to_string(),
        keys: source.keys as u64,
    }));
    let workers = handle.workers(None, EXAMINED_MAX).await?;
    found.has_more |= workers.next.is_some();
    let workers = workers.entries.into_iter().filter(|(name, _)| name.to_lowercase().contains(part));
    found.workers.extend(workers.map(|(worker, state)| FoundWorker {
        queue: queue(),
        worker,
        leased: state.leased as u64,
    }));
    Ok(())
}

/// Keeps the first matches of each kind.
fn keep_first(found: &mut Found, text: &str) {
    found.queues.sort();
    found.keys.sort_by(|a, b| (a.key != text, &a.key, &a.queue).cmp(&(b.key != text, &b.key, &b.queue)));
    found.sources.sort_by(|a, b| (&a.source, &a.queue).cmp(&(&b.source, &b.queue)));
    found.workers.sort_by(|a, b| (&a.worker, &a.queue).cmp(&(&b.worker, &b.queue)));
    let lengths = [found.queues.len(), found.keys.len(), found.sources.len(), found.workers.len()];
    found.has_more |= lengths.into_iter().any(|length| length > FOUND_MAX);
    found.queues.truncate(FOUND_MAX);
    found.keys.truncate(FOUND_MAX);
    found.sources.truncate(FOUND_MAX);
    found.workers.truncate(FOUND_MAX);
}

fn state_of(state: ListedState) -> ItemState {
    match state {
        ListedState::Ready => ItemState::Ready,
        ListedState::Delayed => ItemState::Delayed,
        ListedState::Leased => ItemState::Leased,
        ListedState::Parked => ItemState::Parked,
    }
}
