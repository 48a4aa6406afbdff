//! The shutdown of the process, which has two stages and waits for every task.
//!
//! The first SIGTERM or SIGINT starts the *draining* stage: no more keys are delivered, waits end, and running
//! requests finish. A second signal, or the time limit after the first one, starts the *cut*: everything that is
//! still running is dropped. This module only announces the stages and tracks the tasks; the tasks watch the tokens
//! of the stages.
//!
//! Only this module spawns tasks: [`Shutdown::spawn`] tracks a task, and [`Shutdown::join`] waits for all of them.

use std::future::Future;
use std::pin::Pin;
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

/// Why the process can't listen for signals.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The handler of a signal could not be installed.
    #[error("can't listen for {name}")]
    Signal {
        /// `SIGTERM` or `SIGINT`.
        name: &'static str,
        /// The error of the system.
        source: std::io::Error,
    },
}

/// The runtime of a task on its own thread. The runtime ends with the task.
struct OwnRuntime(Option<Runtime>);

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Wraps a task so that it logs `name` if it panics. All tasks with the same output have the same type, so tokio's
/// code for a task, about 1,000 lines of LLVM, is compiled only once and not at each call of `spawn`.
fn reported<F>(name: &'static str, task: F) -> Pin<Box<dyn Future<Output = F::Output> + Send>>
where
    F: Future + Send + 'static,
{
    Box::pin(async move {
        let _reporter = PanicReporter { name };
        task.await
    })
}

/// The stage of the shutdown, and the tasks of the process. Clones share the same shutdown.
#[derive(Debug, Clone)]
pub struct Shutdown {
    /// Cancelled from the first stage on. Invariant: cancelled whenever `cut` is.
    draining: CancellationToken,
    /// Whether `draining` is cancelled. Every change to a queue reads this flag, because the token would take a lock
    /// that all threads share.
    is_draining: Arc<AtomicBool>,
    /// The flag of the shutdown that this one is a part of.
    parent: Option<Arc<AtomicBool>>,
    /// Cancelled from the second stage on.
    cut: CancellationToken,
    tasks: TaskTracker,
    /// The runtime that runs the tasks, regardless of which thread spawns them.
    runtime: Handle,
}

impl Shutdown {
    /// A shutdown that is controlled by the signals of the process. `limit` is the maximum time between the stages.
    ///
    /// Must be called inside a tokio runtime. When the function returns, the handlers are installed.
    ///
    /// # Errors
    ///
    /// [`Error::Signal`] if a handler can't be installed.
    pub fn on_signals(limit: Duration) -> Result<Self, Error> {
        Ok(Self::start(limit, Some(Signals::listen()?)))
    }

    /// A shutdown that ignores signals and is only started by [`Self::signal`], for tests and for servers inside other programs.
    /// Must be called inside a tokio runtime.
    #[must_use]
    pub fn manual(limit: Duration) -> Self {
        Self::start(limit, None)
    }

    /// Acts like a signal: the first call starts the draining stage, and the next call starts the cut.
    pub fn signal(&self) {
        if self.is_draining() {
            self.cut.cancel();
        } else {
            self.drain();
        }
    }

    /// Starts the draining stage of this shutdown, or of this part of one. The flag is set first, so a task that the token wakes finds it set.
    pub fn drain(&self) {
        self.is_draining.store(true, Ordering::Release);
        self.draining.cancel();
    }

    /// Cancelled from the first stage on. From then on, deliver nothing and end every wait.
    #[must_use]
    pub const fn draining(&self) -> &CancellationToken {
        &self.draining
    }

    /// Cancelled from the second stage on. From then on, stop at once.
    #[must_use]
    pub const fn cut(&self) -> &CancellationToken {
        &self.cut
    }

    /// Whether the first stage has begun.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        let is_set = |flag: &Arc<AtomicBool>| flag.load(Ordering::Acquire);
        is_set(&self.is_draining) || self.parent.as_ref().is_some_and(is_set)
    }

    /// The shutdown of a part of the process. Its stages begin with those of the process or earlier. The process does
    /// not wait for the tasks of a part; [`Self::join`] of the part does. A part can't have parts.
    #[must_use]
    pub fn part(&self) -> Self {
        Self {
            draining: self.draining.child_token(),
            is_draining: Arc::default(),
            parent: Some(self.is_draining.clone()),
            cut: self.cut.child_token(),
            tasks: TaskTracker::new(),
            runtime: self.runtime.clone(),
        }
    }

    /// Runs a task in the runtime of the process, regardless of which thread spawns it. [`Self::join`] waits for the
    /// task. If the task panics, the log shows `name`.
    ///
    /// The task must end by itself in its stage of the shutdown. The handle may be dropped.
    pub fn spawn<F>(&self, name: &'static str, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_on(&self.runtime, name, task)
    }

    /// Like [`Self::spawn`], but in another runtime.
    pub fn spawn_on<F>(&self, runtime: &Handle, name: &'static str, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tasks.spawn_on(reported(name, task), runtime)
    }

    /// Runs a task that outlives the other tasks. [`Self::join`] does not wait for it, so the caller must await the
    /// handle.
    #[must_use]
    pub fn spawn_last<F>(&self, name: &'static str, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.runtime.spawn(reported(name, task))
    }

    /// Runs a task that outlives the other tasks on its own thread, so that thousands of requests can't delay it. The
    /// caller must await the handle.
    ///
    /// # Errors
    ///
    /// The thread can't be started.
    pub fn spawn_on_own_thread<F>(
        &self,
        name: &'static str,
        task: F,
    ) -> std::io::Result<JoinHandle<F::Output>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let runtime =
            runtime::Builder::new_multi_thread().worker_threads(1).thread_name(name).enable_all().build()?;
        let handle = runtime.handle().clone();
        // Created before the task begins, because a task that is aborted immediately must also shut down its runtime.
        let own_runtime = OwnRuntime(Some(runtime));
        let task = async move {
            let _own_runtime = own_runtime;
            task.await
        };
        Ok(handle.spawn(reported(name, task)))
    }

    /// Waits until every task has ended, but at most until two seconds after the cut.
    ///
    /// This does not start a stage. Call it after the draining stage has begun.
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

    /// Waits until the cut and its grace period are over.
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
            parent: None,
            cut: CancellationToken::new(),
            tasks: TaskTracker::new(),
            runtime: Handle::current(),
        };
        tokio::spawn(shutdown.clone().watch(limit, signals));
        shutdown
    }

    /// Starts the stages on signals and at the time limit.
    async fn watch(self, limit: Duration, mut signals: Option<Signals>) {
        tokio::select! {
            biased;
            name = next(&mut signals) => {
                info!(signal = name, limit = %deltaq_types::duration::format(limit), "draining; a second signal ends the process at once");
                self.drain();
            }
            () = self.draining.cancelled() => info!("draining"),
        }
        tokio::select! {
            biased;
            () = self.cut.cancelled() => {}
            name = next(&mut signals) => warn!(signal = name, "second signal: all connections are closed"),
            () = tokio::time::sleep(limit) => warn!(limit = %deltaq_types::duration::format(limit), "server.shutdown_timeout has passed: all connections are closed"),
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

/// Waits for the next signal and returns its name. Never returns without `signals`.
async fn next(signals: &mut Option<Signals>) -> &'static str {
    let Some(Signals { terminate, interrupt }) = signals else { return std::future::pending().await };
    tokio::select! {
        Some(()) = terminate.recv() => "SIGTERM",
        Some(()) = interrupt.recv() => "SIGINT",
        else => std::future::pending().await,
    }
}

/// Logs a panic of the task that holds this value, because the handle of the task may never be awaited.
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

    /// Far longer than any test runs. No test waits for this limit.
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
    async fn a_task_on_its_own_thread_waits_for_no_other_task() {
        let shutdown = Shutdown::manual(NEVER);
        let (done, is_done) = std::sync::mpsc::sync_channel(1);
        let own = shutdown.spawn_on_own_thread("own", async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            done.send(()).unwrap();
            7
        });
        // This call blocks the only thread of this runtime.
        assert_eq!(is_done.recv_timeout(Duration::from_mins(1)), Ok(()));
        assert_eq!(own.unwrap().await.unwrap(), 7);
        let endless = shutdown.spawn_on_own_thread("endless", std::future::pending::<()>()).unwrap();
        endless.abort();
        assert!(endless.await.unwrap_err().is_cancelled());
        let failing = shutdown.spawn_on_own_thread("panics", async { panic!("on purpose") });
        assert!(failing.unwrap().await.unwrap_err().is_panic());
    }

    #[tokio::test]
    async fn join_ends_after_a_task_panicked() {
        let shutdown = Shutdown::manual(NEVER);
        let task = shutdown.spawn("panics", async { panic!("on purpose") });
        shutdown.signal();
        assert_eq!(shutdown.join().await, 0);
        assert!(task.await.unwrap_err().is_panic());
    }

    #[tokio::test]
    async fn a_part_stops_alone_or_with_the_process() {
        let shutdown = Shutdown::manual(NEVER);
        let (first, second, third) = (shutdown.part(), shutdown.part(), shutdown.part());
        let token = first.draining().clone();
        let _task = first.spawn("waits", async move { token.cancelled().await });
        first.signal();
        assert_eq!(first.join().await, 0);
        assert!(first.is_draining() && !second.is_draining() && !shutdown.is_draining());
        shutdown.signal();
        assert!(second.is_draining());
        second.draining().cancelled().await;
        third.drain();
        assert!(!third.cut().is_cancelled(), "a part that drains with the process is not cut");
        shutdown.signal();
        assert!(first.cut().is_cancelled() && second.cut().is_cancelled());
    }

    #[tokio::test]
    async fn two_signals_of_the_process_start_the_two_stages() {
        let shutdown = Shutdown::on_signals(NEVER).unwrap();
        // The shell has a kill of its own; a small system has no program of that name.
        let kill = || {
            let kill = format!("kill -TERM {}", std::process::id());
            std::process::Command::new("sh").args(["-c", &kill]).status()
        };
        assert!(kill().unwrap().success());
        shutdown.draining().cancelled().await;
        assert!(kill().unwrap().success());
        shutdown.cut().cancelled().await;
    }
}
