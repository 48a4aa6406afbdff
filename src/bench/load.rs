//! Many connections that work at once, and what that came to.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::task::JoinSet;

use super::report::Measured;
use crate::clock::Clock;

/// How exact latencies are kept.
const SIGNIFICANT_DIGITS: u8 = 3;

/// One operation that was done.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// Requests that it took.
    pub requests: u64,
    /// Objects that it was about: added, or popped and acknowledged.
    pub objects: u64,
    /// When what counts of it began, in microseconds of the clock.
    pub begun_us: u64,
    /// When it was done.
    pub ended_us: u64,
}

/// A connection that does the same operation again and again.
pub trait Worker: Send + 'static {
    /// Does it once.
    fn work(&mut self, clock: &Clock) -> impl Future<Output = io::Result<Done>> + Send;
}

/// How long is measured.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How long the workers work before they are measured.
    pub warm_up: Duration,
    /// How long they are.
    pub measured: Duration,
    /// How long each worker rests after an operation.
    pub rest: Duration,
}

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// How long it is warm, or still warming up.
    pub elapsed: Duration,
    /// Objects since the last time, a second ago or less.
    pub objects: u64,
    /// Whether it is warm.
    pub is_measured: bool,
}

const WARM_UP: u8 = 0;
const MEASURED: u8 = 1;
const OVER: u8 = 2;

const SECOND: Duration = Duration::from_secs(1);

/// What all workers share.
#[derive(Debug, Default)]
struct Shared {
    phase: AtomicU8,
    objects: AtomicU64,
}

/// What one worker did while it was measured.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) group: usize,
    pub(super) requests: u64,
    pub(super) objects: u64,
    pub(super) latencies: Histogram<u64>,
}

/// Lets `workers` work, each in the group with its number, and those `beside` them that are not counted.
///
/// # Errors
/// That of the first worker that fails.
pub async fn drive<W: Worker>(
    workers: Vec<(usize, W)>,
    beside: Vec<W>,
    pace: &Pace,
    clock: &Clock,
    mut progress: impl FnMut(Progress),
) -> io::Result<Measured> {
    let shared = Arc::new(Shared::default());
    let mut crew = JoinSet::new();
    let mut measured = Measured::default();
    for (group, worker) in workers {
        measured.groups.resize(measured.groups.len().max(group + 1), 0);
        crew.spawn(work(Some(group), worker, shared.clone(), clock.clone(), pace.rest));
    }
    for worker in beside {
        crew.spawn(work(None, worker, shared.clone(), clock.clone(), Duration::ZERO));
    }
    for (phase, lasts) in [(WARM_UP, pace.warm_up), (MEASURED, pace.measured)] {
        shared.phase.store(phase, Ordering::Relaxed);
        let begun_us = clock.now_us();
        loop {
            measured.lasted = clock.since(begun_us);
            let left = lasts.saturating_sub(measured.lasted);
            if left.is_zero() {
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(left.min(SECOND)) => {}
                // None ends by itself before the time but one that failed.
                Some(ended) = crew.join_next() => measured.add(ended??),
            }
            let objects = shared.objects.swap(0, Ordering::Relaxed);
            let elapsed = clock.since(begun_us);
            progress(Progress { elapsed, objects, is_measured: phase == MEASURED });
        }
    }
    shared.phase.store(OVER, Ordering::Relaxed);
    while let Some(ended) = crew.join_next().await {
        measured.add(ended??);
    }
    Ok(measured)
}

async fn work<W: Worker>(
    group: Option<usize>,
    mut worker: W,
    shared: Arc<Shared>,
    clock: Clock,
    rest: Duration,
) -> io::Result<Option<Tally>> {
    let mut latencies = Histogram::new(SIGNIFICANT_DIGITS).map_err(io::Error::other)?;
    latencies.auto(true);
    let mut tally = Tally { group: group.unwrap_or_default(), requests: 0, objects: 0, latencies };
    loop {
        let done = worker.work(&clock).await?;
        match shared.phase.load(Ordering::Relaxed) {
            OVER => return Ok(group.map(|_| tally)),
            _ if group.is_none() => continue,
            MEASURED => {
                tally.requests += done.requests;
                tally.objects += done.objects;
                let took_us = done.ended_us.saturating_sub(done.begun_us);
                tally.latencies.record(took_us).map_err(io::Error::other)?;
            }
            _ => {}
        }
        shared.objects.fetch_add(done.objects, Ordering::Relaxed);
        if !rest.is_zero() {
            tokio::time::sleep(rest).await;
        }
    }
}
