//! Turns of the calls whose objects a queue admits. That may take long and can't be stopped, so few are in work at a
//! time, some wait, and more are refused: they hold places that other queues need.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Error;
use crate::admission::Admission;
use crate::admission::limits::{ADMISSIONS_MAX, ADMISSIONS_WAITING_MAX};

/// The turns of a queue.
#[derive(Debug, Default)]
pub(super) struct Admitting(Mutex<(Option<Arc<Admission>>, Arc<Turns>)>);

/// Turns by one set of rules.
#[derive(Debug)]
pub struct Turns {
    work: Arc<Semaphore>,
    line: Semaphore,
}

impl Default for Turns {
    fn default() -> Self {
        let work = Arc::new(Semaphore::new(ADMISSIONS_MAX));
        Self { work, line: Semaphore::new(ADMISSIONS_WAITING_MAX) }
    }
}

impl Admitting {
    /// The turns of those who are admitted by these rules. Who still works by others does not hold them up.
    pub(super) fn turns(&self, rules: Option<&Arc<Admission>>) -> Arc<Turns> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.0.as_ref().map(Arc::as_ptr) != rules.map(Arc::as_ptr) {
            *held = (rules.cloned(), Arc::default());
        }
        held.1.clone()
    }
}

impl Turns {
    /// Waits for a turn, which is given back when it is dropped.
    ///
    /// # Errors
    /// [`Error::TooManyAdmissions`] if too many wait.
    pub async fn take(&self) -> Result<OwnedSemaphorePermit, Error> {
        if let Ok(turn) = self.work.clone().try_acquire_owned() {
            return Ok(turn);
        }
        let full = |_| Error::TooManyAdmissions { limit: ADMISSIONS_WAITING_MAX };
        let _in_line = self.line.try_acquire().map_err(full)?;
        self.work.clone().acquire_owned().await.map_err(|_closed| Error::Draining)
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::task::{Context, Waker};

    use super::*;
    use crate::engine::key::{KeySpec, Pointer};

    #[tokio::test]
    async fn few_work_some_wait_and_more_are_refused() {
        let turns = Turns::default();
        let mut working = Vec::new();
        for _ in 0..ADMISSIONS_MAX {
            working.push(turns.take().await.unwrap());
        }
        let mut waiting: Vec<_> = (0..ADMISSIONS_WAITING_MAX).map(|_| Box::pin(turns.take())).collect();
        let mut context = Context::from_waker(Waker::noop());
        for take in &mut waiting {
            assert!(take.as_mut().poll(&mut context).is_pending());
        }
        assert_eq!(
            turns.take().await.unwrap_err(),
            Error::TooManyAdmissions { limit: ADMISSIONS_WAITING_MAX }
        );
        working.pop();
        let first = waiting.remove(0).await.unwrap();
        drop((first, waiting, working));
        assert!(turns.take().await.is_ok());
    }

    #[tokio::test]
    async fn other_rules_have_turns_of_their_own() {
        let rules = |pointer: &str| {
            let prune = vec![Pointer::parse(pointer, false).unwrap()];
            Admission::new(None, prune, &KeySpec::default()).unwrap().map(Arc::new)
        };
        let (old, new, admitting) = (rules("/a"), rules("/b"), Admitting::default());
        let endless =
            [admitting.turns(old.as_ref()).take().await, admitting.turns(old.as_ref()).take().await];
        assert_eq!(admitting.turns(old.as_ref()).work.available_permits(), 0);
        assert_eq!(admitting.turns(new.as_ref()).work.available_permits(), ADMISSIONS_MAX);
        drop(endless);
    }
}
