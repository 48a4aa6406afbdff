//! How the process ends: in two stages, with every task joined.
//!
//! The first SIGTERM or SIGINT starts the *draining* stage: nothing new is handed out, waits end, running requests
//! finish. The second signal, or the time limit after the first, *cuts*: what still runs is dropped. This module only says
//! which stage it is and keeps count of the tasks; what a stage means is up to those who watch the tokens.
//!
//! It is the one place that spawns tasks, so that none is forgotten: [`Shutdown::spawn`] tracks them and
//! [`Shutdown::join`] waits for them.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::{self, Handle, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};

/// How long tasks may take to notice the cut before [`Shutdown::join`] gives up on them.
const CUT_GRACE: Duration = Duration::from_secs(2);

/// Why the process can't be told to stop.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The handler of a signal could not be installed.
    #[error("can't listen for {name}")]
    Signal {
        /// `SIGTERM` or `SIGINT`.
        name: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

/// The runtime of a task that runs apart; it goes with the task.
struct Apart(Option<Runtime>);

impl Drop for Apart {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// The stage of the process's life, and its tasks. Cheap to clone; all clones are the same shutdown.
#[derive(Debug, Clone)]
pub struct Shutdown {
    /// Cancelled from the first stage on, by [`Self::drain`]. Invariant: cancelled whenever `cut` is.
    draining: CancellationToken,
    /// Whether it is: each change of a queue asks, and to ask the token is to take a lock that all share.
    is_draining: Arc<AtomicBool>,
    /// Cancelled from the second stage on.
    cut: CancellationToken,
    tasks: TaskTracker,
    /// Where tasks run, whatever thread spawns them.
    runtime: Handle,
}

impl Shutdown {
    /// A shutdown that follows the process's signals; `limit` is the longest time between the stages.
    ///
    /// Must be called inside a tokio runtime. The handlers are in place when it returns.
    ///
    /// # Errors
    ///
    /// [`Error::Signal`] if a handler can't be installed.
    pub fn on_signals(limit: Duration) -> Result<Self, Error> {
        Ok(Self::start(limit, Some(Signals::listen()?)))
    }

    /// A shutdown that hears no signals and is stopped by [`Self::signal`] alone: for tests and for servers inside other
    /// programs. Must be called inside a tokio runtime.
    #[must_use]
    pub fn manual(limit: Duration) -> Self {
        Self::start(limit, None)
    }

    /// Does what a signal does: the first call drains, the next cuts.
    pub fn signal(&self) {
        if self.is_draining() {
            self.cut.cancel();
        } else {
            self.drain();
        }
    }

    /// Whoever learns it by the token is to find it so.
    fn drain(&self) {
        self.is_draining.store(true, Ordering::Release);
        self.draining.cancel();
    }

    /// Cancelled from the first stage on: hand out nothing, end every wait.
    #[must_use]
    pub const fn draining(&self) -> &CancellationToken {
        &self.draining
    }

    /// Cancelled from the second stage on: drop what you do.
    #[must_use]
    pub const fn cut(&self) -> &CancellationToken {
        &self.cut
    }

    /// Is the process on its way out?
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    /// Runs a task in the runtime of the process, whatever thread spawns it; [`Self::join`] waits for it. `name` is what the log calls it should it panic.
    ///
    /// The task must end by itself once its stage has come; the handle may be dropped.
    pub fn spawn<F>(&self, name: &'static str, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_on(&self.runtime, name, task)
    }

    /// As [`Self::spawn`], on another runtime than that of the process.
    pub fn spawn_on<F>(&self, runtime: &Handle, name: &'static str, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let task = async move {
            let _reporter = PanicReporter { name };
            task.await
        };
        self.tasks.spawn_on(task, runtime)
    }

    /// Runs a task that outlives the others: [`Self::join`] does not wait for it, whoever holds the handle does.
    #[must_use]
    pub fn spawn_last<F>(&self, name: &'static str, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.runtime.spawn(async move {
            let _reporter = PanicReporter { name };
            task.await
        })
    }

    /// Runs a task that outlives the others on a thread of its own, so that it never stands in line behind thousands of
    /// requests. Whoever holds the handle waits for it.
    ///
    /// # Errors
    ///
    /// The thread can't be started.
    pub fn spawn_apart<F>(&self, name: &'static str, task: F) -> std::io::Result<JoinHandle<F::Output>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let runtime =
            runtime::Builder::new_multi_thread().worker_threads(1).thread_name(name).enable_time().build()?;
        let handle = runtime.handle().clone();
        // Before the task begins: one that is aborted at once must not drop a bare runtime.
        let apart = Apart(Some(runtime));
        Ok(handle.spawn(async move {
            let _apart = apart;
            let _reporter = PanicReporter { name };
            task.await
        }))
    }

    /// Waits until every task has ended, and answers how many have not: after the cut they get two seconds more.
    ///
    /// It starts no stage itself: call it when draining has begun.
    pub async fn join(&self) -> usize {
        self.tasks.close();
        tokio::select! {
            biased;
            () = self.tasks.wait() => {}
            () = self.cut_and_grace() => {}
        }
        let left = self.tasks.len();
        if left > 0 {
            warn!(tasks = left, "stopped with tasks still running");
        }
        left
    }

    /// Ends when whatever still runs is given up.
    pub async fn cut_and_grace(&self) {
        self.cut.cancelled().await;
        tokio::time::sleep(CUT_GRACE).await;
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the watcher must not be among the tasks that a shutdown waits for"
    )]
    fn start(limit: Duration, signals: Option<Signals>) -> Self {
        let shutdown = Self {
            draining: CancellationToken::new(),
            is_draining: Arc::default(),
            cut: CancellationToken::new(),
            tasks: TaskTracker::new(),
            runtime: Handle::current(),
        };
        tokio::spawn(shutdown.clone().watch(limit, signals));
        shutdown
    }

    /// Moves the stages on: by signals and by the time limit.
    async fn watch(self, limit: Duration, mut signals: Option<Signals>) {
        tokio::select! {
            biased;
            name = next(&mut signals) => {
                info!(signal = name, limit = %crate::duration::format(limit), "draining; a second signal cuts");
                self.drain();
            }
            () = self.draining.cancelled() => info!("draining"),
        }
        tokio::select! {
            biased;
            () = self.cut.cancelled() => {}
            name = next(&mut signals) => warn!(signal = name, "second signal, cutting"),
            () = tokio::time::sleep(limit) => warn!(limit = %crate::duration::format(limit), "time limit of shutdown, cutting"),
        }
        self.cut.cancel();
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> Result<Self, Error> {
        let listen = |kind, name| signal(kind).map_err(|source| Error::Signal { name, source });
        Ok(Self {
            terminate: listen(SignalKind::terminate(), "SIGTERM")?,
            interrupt: listen(SignalKind::interrupt(), "SIGINT")?,
        })
    }
}

/// The name of the next signal; never ends when there is none to listen to.
async fn next(signals: &mut Option<Signals>) -> &'static str {
    let Some(Signals { terminate, interrupt }) = signals else { return std::future::pending().await };
    tokio::select! {
        Some(()) = terminate.recv() => "SIGTERM",
        Some(()) = interrupt.recv() => "SIGINT",
        else => std::future::pending().await,
    }
}

/// Tells the log when the task that holds it panics; nobody may ever look at its handle.
struct PanicReporter {
    name: &'static str,
}

impl Drop for PanicReporter {
    fn drop(&mut self) {
        if std::thread::panicking() {
            error!(task = self.name, "a task panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Far longer than any test runs; what is awaited comes by a signal, not by waiting.
    const NEVER: Duration = Duration::from_hours(1);

    #[tokio::test]
    async fn first_signal_drains_and_second_cuts() {
        let shutdown = Shutdown::manual(NEVER);
        assert!(!shutdown.is_draining());
        shutdown.signal();
        assert!(shutdown.is_draining());
        assert!(!shutdown.cut().is_cancelled());
        shutdown.clone().signal();
        assert!(shutdown.cut().is_cancelled());
        assert_eq!(shutdown.join().await, 0);
    }

    #[tokio::test]
    async fn the_limit_cuts_by_itself() {
        let shutdown = Shutdown::manual(Duration::ZERO);
        shutdown.signal();
        shutdown.cut().cancelled().await;
    }

    #[tokio::test]
    async fn join_waits_for_tasks() {
        let shutdown = Shutdown::manual(NEVER);
        let token = shutdown.draining().clone();
        let task = shutdown.spawn("waits", async move {
            token.cancelled().await;
            7
        });
        assert_eq!(shutdown.tasks.len(), 1);
        shutdown.signal();
        assert_eq!(shutdown.join().await, 0);
        assert_eq!(task.await.unwrap(), 7);
    }

    #[tokio::test]
    async fn what_runs_apart_waits_for_no_other_task() {
        let shutdown = Shutdown::manual(NEVER);
        let (said, heard) = std::sync::mpsc::sync_channel(1);
        let apart = shutdown.spawn_apart("apart", async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            said.send("done").unwrap();
            7
        });
        // The only thread of this runtime does nothing else meanwhile.
        assert_eq!(heard.recv_timeout(Duration::from_mins(1)), Ok("done"));
        assert_eq!(apart.unwrap().await.unwrap(), 7);
        let endless = shutdown.spawn_apart("endless", std::future::pending::<()>()).unwrap();
        endless.abort();
        assert!(endless.await.unwrap_err().is_cancelled());
        let failing = shutdown.spawn_apart("panics", async { panic!("on purpose") });
        assert!(failing.unwrap().await.unwrap_err().is_panic());
    }

    #[tokio::test]
    async fn join_ends_though_a_task_panicked() {
        let shutdown = Shutdown::manual(NEVER);
        let task = shutdown.spawn("panics", async { panic!("on purpose") });
        shutdown.signal();
        assert_eq!(shutdown.join().await, 0);
        assert!(task.await.unwrap_err().is_panic());
    }

    #[tokio::test]
    async fn signals_of_the_process_are_heard_twice() {
        let shutdown = Shutdown::on_signals(NEVER).unwrap();
        let kill =
            || std::process::Command::new("kill").args(["-TERM", &std::process::id().to_string()]).status();
        assert!(kill().unwrap().success());
        shutdown.draining().cancelled().await;
        assert!(kill().unwrap().success());
        shutdown.cut().cancelled().await;
    }
}
