//! The lock of a queue.

use std::sync::atomic::Ordering;
use std::sync::{LockResult, MutexGuard, PoisonError, TryLockError};

use super::{Error, Handle, Inner};

impl Handle {
    /// Lets all who wait for the lock right now have it before. The lock itself is unfair: who has
    /// just let it go gets it again before a thread that slept has woken up.
    pub(in crate::service) async fn let_others_in(&self) {
        let asked = self.asked.load(Ordering::Relaxed);
        loop {
            tokio::task::yield_now().await;
            if self.got.load(Ordering::Relaxed) >= asked {
                return;
            }
        }
    }

    /// The lock of a queue that is there and whole: a panic in the middle of a change closes it, and so
    /// does a commit that failed, until the queue is loaded again.
    pub(in crate::service) fn open(&self) -> Result<MutexGuard<'_, Inner>, Error> {
        let mut inner = self.unbroken()?;
        inner.check()?;
        Ok(inner)
    }

    /// As [`open`](Self::open), if the journal takes events.
    pub(super) fn open_to_change(&self) -> Result<MutexGuard<'_, Inner>, Error> {
        let mut inner = self.unbroken()?;
        // Asked before it is seen which commits have failed, as the journal wants it; and under the lock,
        // so that whoever loads queues again comes after this change, and finds what it lost.
        let failures = self.journal.as_ref().map(|(journal, _)| journal.admit());
        inner.check()?;
        inner.failures = failures.transpose()?.unwrap_or_default();
        Ok(inner)
    }

    /// The lock, in whatever state the queue is.
    pub(in crate::service) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.wait_for_lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever finds that a panic has closed the queue tells all who wait at it.
    fn unbroken(&self) -> Result<MutexGuard<'_, Inner>, Error> {
        self.wait_for_lock().map_err(|poisoned| {
            poisoned.into_inner().send_home(&Error::Broken);
            self.landmarks.send_if_modified(|marks| !std::mem::replace(&mut marks.gone, true));
            Error::Broken
        })
    }

    fn wait_for_lock(&self) -> LockResult<MutexGuard<'_, Inner>> {
        match self.inner.try_lock() {
            Ok(inner) => return Ok(inner),
            Err(TryLockError::Poisoned(poisoned)) => return Err(poisoned),
            Err(TryLockError::WouldBlock) => {}
        }
        self.asked.fetch_add(1, Ordering::Relaxed);
        let inner = self.inner.lock();
        self.got.fetch_add(1, Ordering::Relaxed);
        inner
    }
}
