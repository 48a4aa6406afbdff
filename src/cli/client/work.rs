//! `deltaq work`: runs a command for each key.
//!
//! The worker of the client crate pops the keys and extends their leases; its handler runs the command. No command
//! keeps running without a lease: it is stopped before the lease can expire.

mod child;
mod commands;

use std::ffi::OsString;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use deltaq_client::{Backoff, Worker};
use deltaq_types::duration::DurationText;
use deltaq_types::name::Name;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::commands::{Commands, report};
use super::failure::Failure;
use super::patience::wait_after;
use super::session::{Execute, Session};
use super::stderr::NeverBlocks;

/// How long the worker waits for its handlers when it stops. This is longer than any command, because a worker that
/// drops a handler would leave its command running. [`Stop`] ends the handlers instead.
const HANDLERS_MAX: Duration = Duration::from_hours(366 * 24);

/// `deltaq work`.
#[derive(Debug, Clone, Args)]
pub struct Work {
    /// The queue.
    pub queue: Name,
    /// The command and its arguments, run once per key.
    #[arg(last = true, required = true, value_name = "COMMAND", long_help = COMMAND_HELP)]
    pub command: Vec<OsString>,
    /// Maximum number of commands that run at once.
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub concurrency: u16,
    /// Length of the leases [default: the queue's setting]. A lease is extended while its command runs.
    #[arg(long, value_name = "DURATION")]
    pub lease: Option<DurationText>,
    /// Name of the worker, shown with its leases [default: host and process id].
    #[arg(long, value_name = "NAME")]
    pub worker: Option<String>,
    /// Take only keys of this group, outside its turns. The empty text is the group without a name.
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// Include the last acknowledged object in the item.
    #[arg(long)]
    pub with_known: bool,
    /// Include what has changed since the last acknowledged object.
    #[arg(long)]
    pub with_diff: bool,
    /// Number of failures in a row, of different keys, after which the worker pauses, from 1 to 1000 [default: it does not
    /// pause]. After 1 s it tries one key; each further failure doubles the pause, up to 1 minute, and a key that is
    /// acknowledged or rejected ends it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub breaker: Option<u16>,
    /// Exit when the queue has no ready key; exit code 1 if keys have failed and were not acknowledged afterwards, 3 if the
    /// queue does not exist.
    #[arg(long)]
    pub until_empty: bool,
    /// Time for running commands to finish after SIGTERM or SIGINT, before they are stopped and their keys released.
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub grace: DurationText,
    /// Time between SIGTERM and SIGKILL when a command is stopped.
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
  DELTAQ_ATTEMPT              deliveries since the last ack, including this one
  DELTAQ_FAILURES             failures since the last ack
  DELTAQ_LEASE                the id of the lease
  DELTAQ_FENCING_TOKEN        grows with every lease of the queue: a store can refuse a lower one
  DELTAQ_WORKER, DELTAQ_URL   the worker and the address of the server, or of several nodes
DELTAQ_TOKEN, the token of the client, is passed on if it is set.

Exit status of the command:
  0          the key is acknowledged
  65         the key is rejected: parked at once, unless a newer change waits
  any other  the key is delivered again with backoff (75 is the usual status of a temporary failure)
The last 2,048 bytes of its stderr become the error of a rejected or failed key.

The command runs in its own process group. When its lease is lost, or after --grace, the group gets SIGTERM and then SIGKILL.
Processes that the command leaves in its group are killed when it ends.";

/// The stages of stopping.
#[derive(Debug, Clone, Default)]
struct Stop {
    /// No further key is popped.
    soft: CancellationToken,
    /// Running commands are stopped.
    hard: CancellationToken,
}

/// The signals that end the worker.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Execute for Work {
    const OPERATIONS: &'static [&'static str] = &["pop", "settle", "extend", "release"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        self.command.first().map_or(Ok(()), |program| child::check(program))?;
        let _stderr = NeverBlocks::start()?;
        let (stop, signals) = (Stop::default(), Signals::listen()?);
        let name = self.worker.clone().unwrap_or_else(|| {
            let host = rustix::system::uname();
            format!("{}:{}", host.nodename().to_string_lossy(), std::process::id())
        });
        let queue = session.client.queue(self.queue.as_str());
        let commands = Arc::new(Commands::new(self, session, queue.clone(), name.clone(), stop.clone()));
        let worker = self.configure(queue.worker()).name(name);
        let ended = tokio::select! {
            ended = self.work(session, worker, &commands, &stop) => ended,
            () = stop.follow(signals, self.grace.into()) => Ok(()),
        };
        let finished = commands.finish();
        if self.until_empty { finished.and(ended).and(commands.check_failed()) } else { finished.and(ended) }
    }
}

impl Work {
    fn configure(&self, worker: Worker) -> Worker {
        let mut worker = worker.settle_at_once().concurrency(self.concurrency.into()).grace(HANDLERS_MAX);
        if let Some(lease) = self.lease {
            worker = worker.lease_duration(lease.into());
        }
        if let Some(group) = &self.group {
            worker = worker.group(group);
        }
        if self.with_known {
            worker = worker.with_known();
        }
        if self.with_diff {
            worker = worker.with_diff();
        }
        if let Some(failures) = self.breaker {
            worker = worker.breaker(failures.into());
        }
        if self.until_empty {
            worker = worker.until_empty();
        }
        worker
    }

    /// Works until the worker stops.
    async fn work(
        &self,
        session: &Session,
        worker: Worker,
        commands: &Arc<Commands>,
        stop: &Stop,
    ) -> Result<(), Failure> {
        let wait = tokio::select! {
            wait = self.wait(session) => wait?,
            () = stop.soft.cancelled() => return Ok(()),
        };
        let (observer, runner) = (commands.clone(), commands.clone());
        let worker = worker.wait(wait).on_notice(move |notice| observer.notice(notice));
        let run = move |job| {
            let commands = runner.clone();
            async move { commands.run(&job).await }
        };
        worker.run(stop.soft.clone(), run).await?;
        if !self.until_empty && !stop.soft.is_cancelled() {
            report(&format!("queue {} is closed, and no key is ready", self.queue));
        }
        Ok(())
    }

    /// How long a pop waits.
    async fn wait(&self, session: &Session) -> Result<Duration, Failure> {
        if self.until_empty {
            return Ok(Duration::ZERO);
        }
        let mut backoff = Backoff::default();
        loop {
            match session.longest_wait().await {
                Err(Failure::Client(error)) => wait_after(error, &mut backoff).await?,
                wait => return wait,
            }
        }
    }
}

impl Stop {
    /// Stops softly at the first signal, and hard at the second signal or after `grace`. Never returns.
    async fn follow(&self, mut signals: Signals, grace: Duration) {
        tokio::select! {
            () = signals.next() => {
                let grace = deltaq_types::duration::format(grace);
                report(&format!("no further keys are popped; running commands have {grace} to finish"));
                self.soft.cancel();
            }
            () = self.soft.cancelled() => {}
        }
        let _second = timeout(grace, signals.next()).await;
        self.hard.cancel();
        pending::<()>().await;
    }
}

impl Signals {
    fn listen() -> Result<Self, Failure> {
        let listen =
            |kind| signal(kind).map_err(|error| Failure::Other(format!("can't listen for signals: {error}")));
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
