//! Long computations, on threads that serve no requests.
//!
//! A computation does not stop if its caller stops waiting: it keeps its permits until it ends, and so limits further work. The
//! end of the process does not wait for it.

use std::panic;

use tokio::sync::Semaphore;
use tokio::task::JoinError;

/// Most computations at a time.
static PERMITS: Semaphore = Semaphore::const_new(64);

/// Runs `work` on a blocking thread. `kept` is dropped when the work ends.
pub(super) async fn run_blocking<T: Send + 'static>(
    kept: impl Send + 'static,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let permit = PERMITS.acquire().await;
    let work = move || {
        let _kept = (kept, permit);
        work()
    };
    joined(tokio::task::spawn_blocking(work)).await
}

/// The result of a task. A panic of the task continues here.
pub(super) async fn joined<T>(task: impl Future<Output = Result<T, JoinError>>) -> T {
    match task.await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => panic::resume_unwind(panic),
            // The runtime shuts down, and this task with it.
            Err(_) => std::future::pending().await,
        },
    }
}
