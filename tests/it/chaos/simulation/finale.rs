//! The end of a run: no more faults, and all accepted changes are delivered.

use std::time::Duration;

use deltaq_engine::command::{How, KeySelection, Pop};
use deltaq_engine::config::Config;
use deltaq_journal::Live;
use deltaq_service::{Error, PopCall, Registry};
use deltaq_types::Mode;
use fastrand::Rng;

use super::Violation;
use super::caller::{Caller, Target};
use super::calls::Wishes;
use super::disk::Disk;
use super::run::Run;

/// Longer than the journal takes to recover and to load all queues again.
const RECOVERY: Duration = Duration::from_secs(30);
/// The maximum delay of a timer. A periodic Resync waits for its commit, which the disk may delay.
const LATE: Duration = Duration::from_secs(8);
/// More pops than are necessary.
const ROUNDS: usize = 400;

impl Run {
    pub(super) async fn finale(
        &self,
        disk: &Disk,
        registry: &std::sync::Arc<Registry>,
    ) -> Result<(), Violation> {
        self.rest(registry).await?;
        self.world.note(format_args!("the last act"));
        self.probe(disk, registry)?;
        for (name, incarnation) in disk.live() {
            let found = registry
                .list(None, usize::MAX, |_| true)
                .into_iter()
                .find(|handle| handle.name().as_str() == &*name);
            if found.is_none_or(|handle| handle.incarnation().0 != incarnation) {
                return Err(format!("{name}: {incarnation:08x} is on the disk and nowhere else"));
            }
        }
        let caller = self.callers(registry).swap_remove(0);
        for setup in &self.plan.queues {
            let Some(handle) = registry.find(&setup.name) else { continue };
            let queue = (setup.name.clone(), handle.incarnation().0);
            self.world.ledger(|ledger| ledger.found(&queue, &setup.config))?;
            let target = Target { handle, queue, setup: setup.clone() };
            self.check_timer(&target)?;
            self.open(&target).await.map_err(|error| format!("{}: {error}", setup.name))?;
            check_replaces(&caller, &target).await?;
            drain(&caller, &target).await?;
        }
        for follower in &self.followers {
            follower.finish(registry).await?;
        }
        for reader in &self.readers {
            reader.finish(disk, registry).await?;
        }
        self.probe(disk, registry)?;
        disk.check_recovery()
    }

    /// While the node recovers, the time of every queue runs as fast as the monotonic clock.
    async fn rest(&self, registry: &Registry) -> Result<(), Violation> {
        let handles = registry.list(None, usize::MAX, |_| true);
        let before: Vec<_> = handles.iter().map(|handle| handle.now()).collect();
        let begun_us = self.world.clock.monotonic_us();
        tokio::time::sleep(RECOVERY).await;
        let passed = self.world.clock.since(begun_us);
        for (handle, before) in handles.iter().zip(before) {
            if handle.now() != before.plus(passed) {
                return Err(format!("{}: the time does not run", handle.name()));
            }
        }
        Ok(())
    }

    /// Checks that nothing is long overdue. Otherwise the timer has been forgotten.
    fn check_timer(&self, target: &Target) -> Result<(), Violation> {
        let slack = self.world.ahead() + LATE;
        let now = target.handle.now();
        let mut overdue = None;
        let is_there = target.handle.with(&mut |queue| {
            overdue = queue.next_deadline().filter(|due| due.plus(slack) < now);
        });
        match overdue {
            _ if !is_there => Err(format!("{} was not loaded again", target.setup.name)),
            Some(due) => Err(format!("{} has slept since {due:?}", target.setup.name)),
            None => Ok(()),
        }
    }

    /// Opens the queue, without parking and periodic Resyncs.
    async fn open(&self, target: &Target) -> Result<(), Error> {
        let edit = |config: &Config| {
            let max_failures = 0;
            Ok::<_, Error>(Config { resync_period: None, max_failures, ..config.clone() })
        };
        let (configured, commit) = target.handle.configure(edit);
        commit.wait().await?;
        configured?;
        target.handle.redrive(KeySelection::All.into()).await?;
        target.handle.reopen().await?;
        target.handle.set_paused(false).await
    }
}

/// Checks that no Replace blocks the queue for ever: another Replace runs.
async fn check_replaces(caller: &Caller, target: &Target) -> Result<(), Violation> {
    let wishes = Wishes { dry_run: true, ..Wishes::default() };
    let mut rng = Rng::with_seed(1);
    let replace = caller.send_replace(target, Vec::new(), wishes, &mut rng);
    let checked = tokio::time::timeout(RECOVERY, replace).await;
    checked.unwrap_or_else(|_| Err(format!("{}: a Replace waits for its turn", target.setup.name)))?;
    let mut last = None;
    let _is_there = target.handle.with(&mut |queue| last = queue.queue_state().last_replace);
    match last.filter(|last| last.ended.is_none()) {
        Some(_) => Err(format!("{}: nobody knows that a Replace was cut off", target.setup.name)),
        None => Ok(()),
    }
}

/// Pops and acknowledges all keys.
async fn drain(caller: &Caller, target: &Target) -> Result<(), Violation> {
    for _ in 0..ROUNDS {
        let document = target.handle.document().await.map_err(|error| error.to_string())?;
        let status = document.status;
        if status.ready + status.delayed + status.leased + status.parked == 0 {
            return Ok(());
        }
        let pop = Pop {
            max: 1_000,
            max_bytes: usize::MAX,
            lease: Some(Duration::from_hours(1)),
            worker: None,
            id: None,
            with_known: false,
            group: None,
        };
        let call = PopCall { pop, settles: Vec::new(), wait: RECOVERY };
        let taken = caller.take(target, call, Vec::new(), false, true).await?;
        if taken == Some(0) && target.setup.config.mode != Mode::Keys {
            let status = target.handle.document().await.map_err(|error| error.to_string())?.status;
            if status.ready > 0 {
                return Err(format!("{}: a pop has waited for nothing beside {status:?}", target.setup.name));
            }
        }
        let held = std::mem::take(&mut caller.memory().held);
        let (own, others) = held.into_iter().partition(|lease| lease.queue == target.queue);
        caller.memory().held = others;
        let own: Vec<_> = own;
        caller.send_settles(own.into_iter().map(|lease| (lease, How::Ack)).collect()).await?;
    }
    Err(format!("{} can't be drained", target.setup.name))
}
