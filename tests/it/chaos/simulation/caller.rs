//! A caller of the service: its leases, and its calls over all restarts of the node.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use deltaq_engine::command::How;
use deltaq_engine::id::Rv;
use deltaq_service::{Creator, Error, Handle, Name, Registry};
use fastrand::Rng;
use parking_lot::{Mutex, MutexGuard};

use super::Violation;
use super::ledger::QueueRef;
use super::plan::{Plan, Setup, millis};
use super::world::World;

/// A lease that its worker has received.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub(super) queue: QueueRef,
    pub(super) id: String,
    pub(super) token: Rv,
    pub(super) key: String,
    /// The delivered deltas.
    pub(super) deltas: Vec<Rv>,
}

/// The part of a caller that outlives restarts of the node.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) rng: Rng,
    pub(super) steps: u32,
    pub(super) held: Vec<Lease>,
    /// Settled leases, and how the caller settled them.
    pub(super) settled: Vec<(Lease, How)>,
    /// Pops with an id that the caller may repeat.
    pub(super) pops: Vec<(Name, Arc<str>)>,
}

/// A caller and its node.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) index: usize,
    pub(super) world: Arc<World>,
    pub(super) plan: Arc<Plan>,
    pub(super) registry: Arc<Registry>,
    pub(super) memory: Arc<Mutex<Memory>>,
}

/// A queue and its handle.
pub(super) struct Target {
    pub(super) handle: Arc<Handle>,
    pub(super) queue: QueueRef,
    pub(super) setup: Setup,
}

impl Memory {
    pub(super) fn new(seed: u64, steps: u32) -> Self {
        let (held, settled, pops) = (Vec::new(), Vec::new(), Vec::new());
        Self { rng: Rng::with_seed(seed), steps, held, settled, pops }
    }
}

impl Caller {
    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock()
    }

    /// Makes all calls.
    pub(super) async fn run(self) {
        while self.world.verdict().is_ok() {
            let mut rng = {
                let mut memory = self.memory();
                if memory.steps == 0 {
                    return;
                }
                memory.steps -= 1;
                memory.rng.fork()
            };
            tokio::time::sleep(millis(&mut rng, 0..self.plan.pause_ms)).await;
            let checked = if rng.u32(..100) < self.plan.leaves {
                let (polls, longest) = (rng.u32(1..5), millis(&mut rng, 0..2_000));
                // Some calls are dropped late, after their reply could have come.
                let slow = if rng.u8(..3) == 0 { millis(&mut rng, 1..2_000) } else { Duration::ZERO };
                cut_off(polls, longest, slow, self.step(rng)).await
            } else {
                Some(self.step(rng).await)
            };
            match checked {
                Some(checked) => self.world.judge(checked),
                None => self.note("left"),
            }
        }
    }

    pub(super) fn note(&self, what: impl std::fmt::Debug) {
        self.world.note(format_args!("{} {what:?}", self.index));
    }

    /// A random queue, which is created if it does not exist.
    pub(super) fn target(&self, rng: &mut Rng) -> Result<Option<Target>, Violation> {
        let setup = rng.choice(&self.plan.queues).expect("there are some").clone();
        self.target_of(setup)
    }

    pub(super) fn target_of(&self, setup: Setup) -> Result<Option<Target>, Violation> {
        let found = match self.registry.find(&setup.name) {
            Some(handle) => Ok(handle),
            None => self
                .registry
                .create(&setup.name, setup.config.clone(), &Creator::default())
                .map(|(handle, _)| handle),
        };
        match found {
            Ok(handle) => {
                let queue = (setup.name.clone(), handle.incarnation().0);
                self.world.ledger(|ledger| ledger.found(&queue, &setup.config))?;
                Ok(Some(Target { handle, queue, setup }))
            }
            Err(error) => {
                self.failed(&error);
                Ok(None)
            }
        }
    }

    /// The queue of a lease, if it still exists.
    pub(super) fn handle_of(&self, lease: &Lease) -> Option<Arc<Handle>> {
        let handle = self.registry.find(&lease.queue.0)?;
        (handle.incarnation().0 == lease.queue.1).then_some(handle)
    }

    pub(super) fn failed(&self, error: &Error) {
        self.note(error);
        let _applied = self.world.applied_by(error);
    }
}

/// Polls a call a number of times, or for a while; then stops polling for a while, and drops the call.
async fn cut_off<T>(
    polls: u32,
    longest: Duration,
    slow: Duration,
    call: impl Future<Output = T>,
) -> Option<T> {
    let mut call = pin!(call);
    let mut left = polls;
    let mut end = pin!(tokio::time::sleep(longest));
    let checked = poll_fn(|context| {
        if let Poll::Ready(out) = call.as_mut().poll(context) {
            return Poll::Ready(Some(out));
        }
        left -= 1;
        if left == 0 || end.as_mut().poll(context).is_ready() { Poll::Ready(None) } else { Poll::Pending }
    })
    .await;
    if checked.is_none() && !slow.is_zero() {
        tokio::time::sleep(slow).await;
    }
    checked
}
