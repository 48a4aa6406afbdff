//! Runs long computations on threads that do not serve requests.
//!
//! A computation does not stop if its caller stops waiting. It keeps its permits until it ends, which limits further
//! work. The process does not wait for computations when it ends.

use std::panic;

use tokio::sync::Semaphore;
use tokio::task::JoinError;

/// Limits the number of concurrent computations.
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

/// The result of a task. A panic of the task is resumed here.
pub(super) async fn joined<T>(task: impl Future<Output = Result<T, JoinError>>) -> T {
    match task.await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => panic::resume_unwind(panic),
            // The runtime is shutting down, and this task with it.
            Err(_) => std::future::pending().await,
        },
    }
}
