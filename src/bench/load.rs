//! Many connections that work at once, and what that came to.

use std::io;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;

use super::report::Measured;
use crate::clock::Clock;

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

/// How long is waited for the answers that are on their way when the time is over.
const PATIENCE: Duration = Duration::from_secs(30);

/// What all workers share.
#[derive(Debug, Default)]
struct Shared {
    phase: AtomicU8,
    /// Objects since the last progress was told.
    objects: AtomicU64,
    measured: Mutex<Measured>,
}

/// Lets `workers` work, each in the group with its number, and those `beside` them that are not counted.
///
/// # Errors
/// That of the first worker that fails, or if one has no answer long after the time is over.
pub async fn drive<W: Worker>(
    workers: Vec<(usize, W)>,
    beside: Vec<W>,
    pace: &Pace,
    clock: &Clock,
    mut progress: impl FnMut(Progress),
) -> io::Result<Measured> {
    let groups = workers.iter().map(|(group, _)| group + 1).max().unwrap_or_default();
    let phases = [(WARM_UP, pace.warm_up), (MEASURED, pace.measured)];
    let phases = phases.into_iter().filter(|(_, lasts)| !lasts.is_zero());
    let shared = Arc::new(Shared::default());
    shared.phase.store(phases.clone().next().map_or(OVER, |(phase, _)| phase), Ordering::Relaxed);
    *shared.measured() = Measured::new(groups)?;
    let mut crew = JoinSet::new();
    for (group, worker) in workers {
        crew.spawn(work(Some(group), worker, shared.clone(), clock.clone(), pace.rest));
    }
    for worker in beside {
        crew.spawn(work(None, worker, shared.clone(), clock.clone(), Duration::ZERO));
    }
    let mut outcome = Ok(());
    'phases: for (phase, lasts) in phases {
        shared.phase.store(phase, Ordering::Relaxed);
        let begun_us = clock.monotonic_us();
        loop {
            let elapsed = clock.since(begun_us);
            shared.measured().lasted = elapsed;
            let left = lasts.saturating_sub(elapsed);
            if left.is_zero() {
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(left.min(SECOND)) => {}
                // None ends before the time but one that failed.
                Some(ended) = crew.join_next() => {
                    outcome = ended.map_err(io::Error::from).flatten();
                    break 'phases;
                }
            }
            if left >= SECOND {
                let (elapsed, is_measured) = (clock.since(begun_us), phase == MEASURED);
                progress(Progress {
                    elapsed,
                    objects: shared.objects.swap(0, Ordering::Relaxed),
                    is_measured,
                });
            }
        }
    }
    shared.phase.store(OVER, Ordering::Relaxed);
    // Also after a failure: a request that is still on its way could make anew a queue that is then deleted.
    let ends = async {
        let mut outcome = Ok(());
        while let Some(ended) = crew.join_next().await {
            outcome = outcome.and(ended.map_err(io::Error::from).flatten());
        }
        outcome
    };
    let patience = if outcome.is_ok() { PATIENCE } else { SECOND };
    let ends = tokio::time::timeout(patience, ends).await.unwrap_or_else(|_| {
        let said = format!("a request was not answered within {} s of the end", PATIENCE.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, said))
    });
    outcome.and(ends)?;
    let measured = std::mem::take(&mut *shared.measured());
    Ok(measured)
}

impl Shared {
    fn measured(&self) -> MutexGuard<'_, Measured> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn work<W: Worker>(
    group: Option<usize>,
    mut worker: W,
    shared: Arc<Shared>,
    clock: Clock,
    rest: Duration,
) -> io::Result<()> {
    loop {
        let done = worker.work(&clock).await?;
        let phase = shared.phase.load(Ordering::Relaxed);
        if let Some(group) = group {
            // What ends after the time is no part of the rate. How long it took counts: it may be the longest.
            if phase != WARM_UP {
                shared.measured().took(done.ended_us.saturating_sub(done.begun_us))?;
            }
            if phase == MEASURED {
                shared.measured().add(group, &done);
            }
            shared.objects.fetch_add(done.objects, Ordering::Relaxed);
        }
        if phase == OVER {
            return Ok(());
        }
        if !rest.is_zero() {
            tokio::time::sleep(rest).await;
        }
    }
}
