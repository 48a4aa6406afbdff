//! Runs concurrent workers and measures them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use deltaq_runtime::clock::Clock;
use parking_lot::{Mutex, MutexGuard};
use tokio::task::JoinSet;

use super::report::{Done, Measured};

/// A connection that repeats one operation.
pub trait Worker: Send + 'static {
    /// Runs the operation once.
    fn work(&mut self, clock: &Clock) -> impl Future<Output = io::Result<Done>> + Send;
}

/// Durations of a run.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Duration of the load before the measurement.
    pub warm_up: Duration,
    /// Duration of the measurement.
    pub measured: Duration,
    /// Pause of each worker after an operation.
    pub pause: Duration,
}

/// The progress of a run.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Time since the start of the warm-up or of the measurement.
    pub elapsed: Duration,
    /// Number of objects since the last report, at most a second ago.
    pub objects: u64,
    /// Whether the measurement has begun.
    pub is_measured: bool,
}

const WARM_UP: u8 = 0;
const MEASURED: u8 = 1;
const OVER: u8 = 2;

const SECOND: Duration = Duration::from_secs(1);

/// Time limit for outstanding responses after the end of the measurement.
const PATIENCE: Duration = Duration::from_secs(30);

/// State that all workers share.
#[derive(Debug, Default)]
struct Shared {
    phase: AtomicU8,
    /// Number of objects since the last progress report.
    objects: AtomicU64,
    measured: Mutex<Measured>,
}

/// Runs `workers`, each with the number of its group, and `uncounted` workers, whose work is not measured.
///
/// # Errors
/// The error of the first worker that fails, or a response that does not arrive within the time limit.
pub async fn drive<W: Worker>(
    workers: Vec<(usize, W)>,
    uncounted: Vec<W>,
    timing: &Timing,
    clock: &Clock,
    mut progress: impl FnMut(Progress),
) -> io::Result<Measured> {
    let groups = workers.iter().map(|(group, _)| group + 1).max().unwrap_or_default();
    let phases = [(WARM_UP, timing.warm_up), (MEASURED, timing.measured)];
    let phases = phases.into_iter().filter(|(_, lasts)| !lasts.is_zero());
    let shared = Arc::new(Shared::default());
    shared.phase.store(phases.clone().next().map_or(OVER, |(phase, _)| phase), Ordering::Relaxed);
    *shared.measured() = Measured::new(groups)?;
    let mut tasks = JoinSet::new();
    for (group, worker) in workers {
        tasks.spawn(work(Some(group), worker, shared.clone(), clock.clone(), timing.pause));
    }
    for worker in uncounted {
        tasks.spawn(work(None, worker, shared.clone(), clock.clone(), Duration::ZERO));
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
                // Before the end of the phase, a worker ends only because of a failure.
                Some(ended) = tasks.join_next() => {
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
    // This also waits after a failure, because an outstanding request could recreate a queue after its deletion.
    let ends = async {
        let mut outcome = Ok(());
        while let Some(ended) = tasks.join_next().await {
            outcome = outcome.and(ended.map_err(io::Error::from).flatten());
        }
        outcome
    };
    let patience = if outcome.is_ok() { PATIENCE } else { SECOND };
    let ends = tokio::time::timeout(patience, ends).await.unwrap_or_else(|_| {
        let message = format!("a request was not answered within {} s of the end", PATIENCE.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, message))
    });
    outcome.and(ends)?;
    let measured = std::mem::take(&mut *shared.measured());
    Ok(measured)
}

impl Shared {
    fn measured(&self) -> MutexGuard<'_, Measured> {
        self.measured.lock()
    }
}

async fn work<W: Worker>(
    group: Option<usize>,
    mut worker: W,
    shared: Arc<Shared>,
    clock: Clock,
    pause: Duration,
) -> io::Result<()> {
    loop {
        let done = worker.work(&clock).await?;
        let phase = shared.phase.load(Ordering::Relaxed);
        if let Some(group) = group {
            // An operation that ends after the measurement counts toward the latencies, because it may be the slowest
            // one, but not toward the rate.
            if phase != WARM_UP {
                shared.measured().record_latency(&done)?;
            }
            if phase == MEASURED {
                shared.measured().count(group, &done);
            }
            shared.objects.fetch_add(done.objects, Ordering::Relaxed);
        }
        if phase == OVER {
            return Ok(());
        }
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
}
