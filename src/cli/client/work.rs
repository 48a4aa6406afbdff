//! `deltaq work`: runs a command for each key.
//!
//! Each of a number of slots pops one key, runs the command, and settles the lease. While the command runs, its lease is extended.
//! A slot never leaves a command running that has no lease: it stops the command before the lease can have expired.

mod child;
mod lease;
mod slot;
mod worker;

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use deltaq_types::duration::DurationText;
use deltaq_types::name::Name;
use futures_util::future::{join, join_all};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use self::worker::Worker;
pub(super) use self::worker::{is_absent, pause_of, pauses, report_absence};

use super::failure::Failure;
use super::session::{Execute, Session};

/// `deltaq work`.
#[derive(Debug, Clone, Args)]
pub struct Work {
    /// The queue.
    pub queue: Name,
    /// The command and its arguments, run once per key.
    #[arg(last = true, required = true, value_name = "COMMAND", long_help = COMMAND_HELP)]
    pub command: Vec<OsString>,
    /// How many commands run at once.
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub concurrency: u16,
    /// Length of the leases [default: of the queue]. A lease is extended while its command runs.
    #[arg(long, value_name = "DURATION")]
    pub lease: Option<DurationText>,
    /// Name of the worker, shown with its leases [default: host and process id].
    #[arg(long, value_name = "NAME")]
    pub worker: Option<String>,
    /// Add the object that was acknowledged last to the item.
    #[arg(long)]
    pub with_known: bool,
    /// End when the queue has no ready key; with exit code 3 if the queue does not exist.
    #[arg(long)]
    pub until_empty: bool,
    /// After SIGTERM or SIGINT: how long commands may finish before they are stopped and their keys released.
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub grace: DurationText,
    /// How long a command that is stopped may take between SIGTERM and SIGKILL.
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    pub kill_after: DurationText,
    /// Also report keys that were acknowledged.
    #[arg(short, long)]
    pub verbose: bool,
}

const COMMAND_HELP: &str = "\
The command and its arguments, run once per key.

The item is JSON on stdin: key, attempt, failures, deltas (every change since the last ack, oldest first), lease.

Environment of the command:
  DELTAQ_QUEUE, DELTAQ_KEY    the queue and the key
  DELTAQ_ATTEMPT              deliveries since the last ack, this one included
  DELTAQ_FAILURES             failures since the last ack
  DELTAQ_LEASE                the id of the lease
  DELTAQ_FENCING_TOKEN        grows with every lease of the queue: a store can refuse a lower one
  DELTAQ_WORKER, DELTAQ_URL   the worker and the server
DELTAQ_TOKEN, the token of the client, is passed on if it is set.

Exit status of the command:
  0          the key is acknowledged
  65         the key is rejected: parked at once
  any other  the key is delivered again with backoff (75 is the usual status of a temporary failure)
The last 2,048 bytes of its stderr become the error of a rejected or failed key.

The command runs in a process group of its own. When its lease is lost, or after --grace, the group gets SIGTERM and then SIGKILL.
Processes that the command leaves in its group are killed when it ends.";

/// The stages of the end.
#[derive(Debug, Clone, Default)]
struct Stop {
    /// No further key is popped.
    soft: CancellationToken,
    /// Running commands are stopped.
    hard: CancellationToken,
}

impl Execute for Work {
    const OPERATIONS: &'static [&'static str] = &["pop", "settle", "extend"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let stop = Stop::default();
        let worker = Worker::new(self, session, stop.clone());
        let signals = stop.clone().follow_signals(self.grace.into());
        let slots = async {
            let slots = (0..self.concurrency).map(|_| worker.run());
            let ended = join_all(slots).await;
            stop.soft.cancel();
            stop.hard.cancel();
            ended.into_iter().collect::<Result<(), _>>()
        };
        let (signals, slots) = join(signals, slots).await;
        worker.report_sums();
        slots.and(signals)
    }
}

impl Stop {
    /// Stops softly at the first SIGTERM or SIGINT; hard at the second, or after `grace`. Returns once the stop is hard.
    async fn follow_signals(self, grace: Duration) -> Result<(), Failure> {
        let listen =
            |kind| signal(kind).map_err(|error| Failure::Other(format!("can't listen for signals: {error}")));
        let listening =
            listen(SignalKind::terminate()).and_then(|term| Ok((term, listen(SignalKind::interrupt())?)));
        let (mut term, mut interrupt) = match listening {
            Ok(signals) => signals,
            Err(failure) => {
                self.soft.cancel();
                self.hard.cancel();
                return Err(failure);
            }
        };
        tokio::select! {
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
            () = self.soft.cancelled() => {}
        }
        if !self.soft.is_cancelled() {
            eprintln!(
                "deltaq: no further keys are popped; running commands have {} to finish",
                deltaq_types::duration::format(grace)
            );
            self.soft.cancel();
        }
        tokio::select! {
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
            () = tokio::time::sleep(grace) => {}
            () = self.hard.cancelled() => {}
        }
        self.hard.cancel();
        Ok(())
    }
}
