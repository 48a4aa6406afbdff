//! Permits for checking objects against a queue's admission rules.
//!
//! A check may take long and can't be stopped. So a few calls of a queue check at a time, some more wait, and the rest are
//! refused, because they would hold permits that the calls of other queues need.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Error;
use crate::admission::Admission;
use crate::admission::limits::{ADMISSIONS_MAX, ADMISSIONS_WAITING_MAX};

/// The permits of a queue for its present rules.
#[derive(Debug, Default)]
pub(super) struct PermitsByRules(Mutex<(Option<Arc<Admission>>, Arc<AdmissionPermits>)>);

/// The permits for one set of rules.
#[derive(Debug)]
pub struct AdmissionPermits {
    running: Arc<Semaphore>,
    waiting: Semaphore,
}

impl Default for AdmissionPermits {
    fn default() -> Self {
        let running = Arc::new(Semaphore::new(ADMISSIONS_MAX));
        Self { running, waiting: Semaphore::new(ADMISSIONS_WAITING_MAX) }
    }
}

impl PermitsByRules {
    /// The permits for these rules. Checks by earlier rules do not count.
    pub(super) fn permits(&self, rules: Option<&Arc<Admission>>) -> Arc<AdmissionPermits> {
        let mut held = self.0.lock();
        if held.0.as_ref().map(Arc::as_ptr) != rules.map(Arc::as_ptr) {
            *held = (rules.cloned(), Arc::default());
        }
        held.1.clone()
    }
}

impl AdmissionPermits {
    /// Waits for a permit, which is released when it is dropped.
    ///
    /// # Errors
    /// [`Error::TooManyAdmissions`] if too many calls wait.
    pub async fn acquire(&self) -> Result<OwnedSemaphorePermit, Error> {
        if let Ok(permit) = self.running.clone().try_acquire_owned() {
            return Ok(permit);
        }
        let full = |_| Error::TooManyAdmissions { limit: ADMISSIONS_WAITING_MAX };
        let _waiting = self.waiting.try_acquire().map_err(full)?;
        self.running.clone().acquire_owned().await.map_err(|_closed| Error::Draining)
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::task::{Context, Waker};

    use super::*;
    use crate::engine::key::{KeySpec, Pointer};

    #[tokio::test]
    async fn a_few_checks_run_some_wait_and_more_are_refused() {
        let permits = AdmissionPermits::default();
        let mut running = Vec::new();
        for _ in 0..ADMISSIONS_MAX {
            running.push(permits.acquire().await.unwrap());
        }
        let mut waiting: Vec<_> = (0..ADMISSIONS_WAITING_MAX).map(|_| Box::pin(permits.acquire())).collect();
        let mut context = Context::from_waker(Waker::noop());
        for acquire in &mut waiting {
            assert!(acquire.as_mut().poll(&mut context).is_pending());
        }
        assert_eq!(
            permits.acquire().await.unwrap_err(),
            Error::TooManyAdmissions { limit: ADMISSIONS_WAITING_MAX }
        );
        running.pop();
        let first = waiting.remove(0).await.unwrap();
        drop((first, waiting, running));
        assert!(permits.acquire().await.is_ok());
    }

    #[tokio::test]
    async fn new_rules_have_permits_of_their_own() {
        let rules = |pointer: &str| {
            let prune = vec![Pointer::parse(pointer, false).unwrap()];
            Admission::new(None, prune, &KeySpec::default()).unwrap().map(Arc::new)
        };
        let (old, new, permits) = (rules("/a"), rules("/b"), PermitsByRules::default());
        let endless =
            [permits.permits(old.as_ref()).acquire().await, permits.permits(old.as_ref()).acquire().await];
        assert_eq!(permits.permits(old.as_ref()).running.available_permits(), 0);
        assert_eq!(permits.permits(new.as_ref()).running.available_permits(), ADMISSIONS_MAX);
        drop(endless);
    }
}
