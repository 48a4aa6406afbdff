//! Work that may take long without a pause, on threads beside those that serve requests.
//!
//! What waits for it may be dropped, as a request that took too long is. The work itself can't be stopped: it keeps
//! its turn, and so bounds what comes behind it, until it ends. The end of the process does not wait for it.

use std::panic;

use tokio::sync::Semaphore;
use tokio::task::JoinError;

/// Most threads that are taken at the same time.
static PLACES: Semaphore = Semaphore::const_new(64);

/// Runs `work` on a thread of its own. `turn` is kept as long as that lasts.
pub(super) async fn aside<T: Send + 'static>(
    turn: impl Send + 'static,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let place = PLACES.acquire().await;
    let work = move || {
        let _kept = (turn, place);
        work()
    };
    joined(tokio::task::spawn_blocking(work)).await
}

/// What comes of a task, or its panic.
pub(super) async fn joined<T>(task: impl Future<Output = Result<T, JoinError>>) -> T {
    match task.await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => panic::resume_unwind(panic),
            // The process ends, and whoever waits here with it.
            Err(_) => std::future::pending().await,
        },
    }
}
