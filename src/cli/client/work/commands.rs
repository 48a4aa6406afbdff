//! The runs of the command, one for each key.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::io;
use std::time::Duration;

use deltaq_client::{Job, Loss, Notice, Outcome, Queue};
use deltaq_runtime::clock::Clock;
use deltaq_types::name::Name;
use deltaq_types::{LeaseOutcome, PoppedItem, SettleAs, SettleResult, SettledDocument};
use parking_lot::Mutex;

use super::child::{Ended, Running};
use super::{Stop, Work};
use crate::cli::client::failure::Failure;
use crate::cli::client::output::{clean, duration_text};
use crate::cli::client::patience::{report_absence, report_failure};
use crate::cli::client::session::Session;
use crate::cli::client::stderr::say;

/// The exit status of a command whose data is wrong (EX_DATAERR).
const STATUS_REJECT: i32 = 65;
/// Maximum number of characters of an error that are reported.
const REPORTED_MAX: usize = 120;

/// State shared by all runs.
pub(super) struct Commands {
    command: Vec<OsString>,
    kill_after: Duration,
    is_verbose: bool,
    name: Name,
    queue: Queue,
    worker: String,
    clock: Clock,
    stop: Stop,
    results: Mutex<Results>,
}

#[derive(Default)]
struct Results {
    /// Runs that have ended and whose leases the server has not settled yet, by the id of the lease.
    unsettled: HashMap<String, Run>,
    acknowledged: u64,
    failed: u64,
    /// Keys whose last delivery has failed.
    failed_keys: BTreeSet<String>,
    /// Why the command could not be run.
    failure: Option<Failure>,
}

/// A run that has ended.
struct Run {
    key: String,
    attempt: u32,
    how: SettleAs,
    /// The beginning of the error.
    error: String,
}

impl Commands {
    pub(super) fn new(work: &Work, session: &Session, queue: Queue, worker: String, stop: Stop) -> Self {
        Self {
            command: work.command.clone(),
            kill_after: work.kill_after.into(),
            is_verbose: work.verbose,
            name: work.queue.clone(),
            queue,
            worker,
            clock: session.clock.clone(),
            stop,
            results: Mutex::default(),
        }
    }

    /// Runs the command for a key. A command that can't be run stops the worker.
    pub(super) async fn run(&self, job: &Job) -> Outcome {
        let item = job.item();
        let outcome = match self.start(item) {
            Ok(running) => {
                let outcome = self.supervise(job, running).await;
                outcome.map_err(|error| format!("can't wait for the command: {error}"))
            }
            Err(error) => {
                let program = self.command.first().map(|program| program.to_string_lossy());
                let program = program.unwrap_or_default();
                Err(format!("can't run {program}: {error}; its key was released"))
            }
        };
        outcome.unwrap_or_else(|why| {
            self.results.lock().failure.get_or_insert(Failure::Other(why));
            self.stop.soft.cancel();
            Outcome::Release
        })
    }

    fn start(&self, item: &PoppedItem) -> io::Result<Running> {
        let variables = [
            ("DELTAQ_QUEUE", self.name.to_string()),
            ("DELTAQ_KEY", item.key.clone()),
            ("DELTAQ_ATTEMPT", item.attempt.to_string()),
            ("DELTAQ_FAILURES", item.failures.to_string()),
            ("DELTAQ_LEASE", item.lease.id.clone()),
            ("DELTAQ_FENCING_TOKEN", item.lease.token.to_string()),
            ("DELTAQ_WORKER", self.worker.clone()),
            ("DELTAQ_URL", self.queue.client().addresses()),
        ];
        let stdin = serde_json::to_string(item).map_err(io::Error::other)? + "\n";
        Running::start(&self.command, &variables, stdin)
    }

    /// Waits until a command ends. Stops it if its lease is lost or if the worker stops.
    async fn supervise(&self, job: &Job, mut running: Running) -> io::Result<Outcome> {
        let loss = tokio::select! {
            () = running.ended() => return Ok(self.outcome(job.item(), &running.finish().await?)),
            loss = job.lost() => Some(loss),
            () = self.stop.hard.cancelled() => None,
        };
        let patience = match loss {
            Some(Loss::NotExtended { left }) => self.kill_after.min(left),
            _ => self.kill_after,
        };
        running.stop(patience).await?;
        let key = job.key();
        match loss {
            Some(Loss::Ended(outcome)) => {
                report(&format!(
                    "{key}: the lease has ended ({}); the command was stopped",
                    outcome.as_str()
                ));
            }
            Some(Loss::NotExtended { .. }) => {
                report(&format!("{key}: the lease could not be extended; the command was stopped"));
                // A restarting server gives the lease its full length again, which would block the key for other
                // workers.
                let lease_ids = [&*job.item().lease.id];
                tokio::select! {
                    _ = self.queue.release(&lease_ids) => {}
                    () = self.stop.hard.cancelled() => {}
                }
            }
            None => self.await_settle(job.item(), SettleAs::Release, ""),
        }
        Ok(Outcome::Release)
    }

    /// Determines how a finished command settles its key.
    fn outcome(&self, item: &PoppedItem, ended: &Ended) -> Outcome {
        if ended.status.success() {
            self.await_settle(item, SettleAs::Ack, "");
            return Outcome::Ack;
        }
        let error = ended.error();
        if ended.status.code() == Some(STATUS_REJECT) {
            self.await_settle(item, SettleAs::Reject, &error);
            Outcome::reject(error)
        } else {
            self.await_settle(item, SettleAs::Nack, &error);
            Outcome::nack(error)
        }
    }

    fn await_settle(&self, item: &PoppedItem, how: SettleAs, error: &str) {
        let error = error.chars().take(REPORTED_MAX).collect();
        let run = Run { key: item.key.clone(), attempt: item.attempt, how, error };
        self.results.lock().unsettled.insert(item.lease.id.clone(), run);
    }

    /// Reports a notice of the worker.
    pub(super) fn notice(&self, notice: &Notice<'_>) {
        match notice {
            Notice::Retry { error, failures, .. } => report_failure(error, *failures),
            Notice::QueueNotFound { .. } => report_absence(&self.name),
            Notice::Settled(settled) => self.settled(settled),
            Notice::Paused { failures, pause, .. } => {
                let pause = deltaq_types::duration::format(*pause);
                report(&format!("paused for {pause} after {failures} failures in a row"));
            }
            Notice::Resumed => report("goes on after a key that has succeeded"),
            Notice::LeaseLost { .. } | Notice::Panicked { .. } => {}
        }
    }

    fn settled(&self, settled: &SettledDocument) {
        let mut results = self.results.lock();
        let Some(Run { key, attempt, how, error }) = results.unsettled.remove(&settled.lease_id) else {
            return;
        };
        if settled.result == SettleResult::Stale {
            let outcome = settled.outcome.unwrap_or(LeaseOutcome::Unknown);
            // A command may return its key itself, such as with a hold.
            if outcome == LeaseOutcome::Released && how == SettleAs::Ack {
                if self.is_verbose {
                    report(&format!("{key}: released while its command ran"));
                }
                return;
            }
            let outcome = outcome.as_str();
            return report(&format!("{key}: the lease had ended ({outcome}) before its {}", how.as_str()));
        }
        let done = match how {
            SettleAs::Ack => {
                results.acknowledged += 1;
                results.failed_keys.remove(&key);
                if self.is_verbose {
                    report(&format!("{key}: acknowledged"));
                }
                return;
            }
            SettleAs::Nack => "failed",
            SettleAs::Reject => "rejected",
            _ => return report(&format!("{key}: released; the command was stopped")),
        };
        results.failed += 1;
        results.failed_keys.insert(key.clone());
        report(&format!("{key}: {done} at attempt {attempt}{}: {error}", self.next_delivery(settled)));
    }

    /// When a failed key is delivered again.
    fn next_delivery(&self, settled: &SettledDocument) -> String {
        if settled.parked == Some(true) {
            return ", parked".to_owned();
        }
        let now_us = self.clock.wall_us();
        let wait_ms = settled.due_at.map(|due_at| due_at.as_micros().saturating_sub(now_us) / 1_000);
        wait_ms.map_or(String::new(), |wait_ms| format!(", again in {}", duration_text(wait_ms)))
    }

    /// Reports the keys whose settles got no reply, and the counts of keys, if there were any.
    pub(super) fn finish(&self) -> Result<(), Failure> {
        let mut results = self.results.lock();
        let (acknowledged, failed) = (results.acknowledged, results.failed);
        let (unsettled, failure) = (std::mem::take(&mut results.unsettled), results.failure.take());
        drop(results);
        for Run { key, how, .. } in unsettled.values() {
            report(&format!("{key}: the server has not confirmed its {}", how.as_str()));
        }
        if acknowledged + failed > 0 {
            report(&format!("deliveries: {acknowledged} acknowledged, {failed} failed"));
        }
        failure.map_or(Ok(()), Err)
    }

    /// Fails if keys have failed and were not acknowledged afterwards.
    pub(super) fn check_failed(&self) -> Result<(), Failure> {
        let failed = std::mem::take(&mut self.results.lock().failed_keys);
        let Some(first) = failed.first() else { return Ok(()) };
        let count = failed.len();
        Err(Failure::Other(format!("{count} keys have failed, such as {}", clean(first))))
    }
}

/// Reports a line on stderr.
pub(super) fn report(text: &str) {
    say(&clean(text));
}
