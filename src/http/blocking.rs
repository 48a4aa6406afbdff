//! Runs long computations on threads that do not serve requests.
//!
//! A computation does not stop if its caller stops waiting. It keeps its permits until it ends, which limits further
//! work. The process does not wait for computations when it ends. Each kind of computation has its own permits, and
//! with several tokens one token gets only a part of them, so that its computations can't stop those of others.

use std::collections::HashMap;
use std::panic;
use std::sync::{Arc, Weak};

use deltaq_service::Creator;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::task::JoinError;

/// Checks of objects against the rules of a queue, and dry runs.
pub(super) static CHECKS: Computations = Computations::new(48, 36);
/// Renderings of large replies.
pub(super) static RENDERINGS: Computations = Computations::new(16, 12);
/// Compilations of schemas. A schema may take a second, and its regular expressions tens of megabytes.
pub(super) static COMPILATIONS: Computations = Computations::new(2, 1);
/// Patches to objects of the Kubernetes API. Applying a large one may take a second.
pub(super) static PATCHES: Computations = Computations::new(2, 1);

/// The permits of one kind of computation.
#[derive(Debug)]
pub(super) struct Computations {
    all: Semaphore,
    /// The number of permits that one token may have.
    share: usize,
    shares: Mutex<Option<HashMap<Arc<str>, Weak<Semaphore>>>>,
}

/// A permit. Dropping it returns it.
#[derive(Debug)]
pub(super) struct ComputationPermit {
    _own: Option<OwnedSemaphorePermit>,
    _all: Option<SemaphorePermit<'static>>,
}

impl Computations {
    const fn new(max: usize, share: usize) -> Self {
        Self { all: Semaphore::const_new(max), share, shares: Mutex::new(None) }
    }

    /// Waits for a permit.
    pub(super) async fn permit(&'static self, caller: &Creator) -> ComputationPermit {
        let share = caller.token.as_ref().filter(|_| caller.shares).map(|token| self.share_of(token));
        let own = match share {
            Some(share) => share.acquire_owned().await.ok(),
            None => None,
        };
        ComputationPermit { _own: own, _all: self.all.acquire().await.ok() }
    }

    /// The permits of a token. Those of tokens without computations are forgotten.
    fn share_of(&self, token: &Arc<str>) -> Arc<Semaphore> {
        let mut shares = self.shares.lock();
        let shares = shares.get_or_insert_default();
        if let Some(share) = shares.get(token).and_then(Weak::upgrade) {
            return share;
        }
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(self.share));
        shares.insert(token.clone(), Arc::downgrade(&share));
        share
    }
}

/// Runs `work` on a blocking thread. `kept`, such as a permit, is dropped when the work ends.
pub(super) async fn run_blocking<T: Send + 'static>(
    kept: impl Send + 'static,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let work = move || {
        let _kept = kept;
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

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn caller(token: &str, shares: bool) -> Creator {
        Creator { token: Some(token.into()), shares }
    }

    fn poll<T>(permit: impl Future<Output = T>) -> Poll<T> {
        std::pin::pin!(permit).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_token_leaves_permits_to_others() {
        static PERMITS: Computations = Computations::new(4, 3);
        let evil = caller("evil", true);
        let held: Vec<_> = (0..3).map(|_| poll(PERMITS.permit(&evil))).collect();
        assert!(held.iter().all(Poll::is_ready));
        assert!(poll(PERMITS.permit(&evil)).is_pending(), "the token has its share");
        let other = poll(PERMITS.permit(&caller("other", true)));
        assert!(other.is_ready(), "another token finds a permit");
        assert!(poll(PERMITS.permit(&caller("third", true))).is_pending(), "all permits are taken");
        drop(held);
        assert!(poll(PERMITS.permit(&evil)).is_ready());
        drop(other);
        let _evil = poll(PERMITS.permit(&evil));
        let _third = poll(PERMITS.permit(&caller("third", true)));
        let names = PERMITS.shares.lock().as_ref().map_or(0, HashMap::len);
        assert!(names <= 2, "the shares of tokens without computations are forgotten: {names}");
    }

    #[test]
    fn a_single_token_has_all_permits() {
        static PERMITS: Computations = Computations::new(2, 1);
        let only = caller("only", false);
        let held: Vec<_> = (0..2).map(|_| poll(PERMITS.permit(&only))).collect();
        assert!(held.iter().all(Poll::is_ready));
        assert!(poll(PERMITS.permit(&only)).is_pending());
    }
}
