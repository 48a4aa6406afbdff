//! The compiled admission rules of a queue, and the permits for checking objects against them.
//!
//! A check may take a long time and can't be stopped. So only a few calls of a queue run checks at a time, and some
//! more may wait. Further calls are refused, because they would hold permits that the calls of other queues need.

use std::sync::Arc;

use deltaq_engine::config::AdmissionText;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::admission::limits::{ADMISSIONS_MAX, ADMISSIONS_WAITING_MAX};
use crate::admission::{self, Admission};
use crate::compiled_schemas::{Compiled, CompiledSchemas};
use crate::{Error, Name};

/// The most recently compiled rules of a queue.
#[derive(Debug, Default)]
pub(crate) struct CompiledRules(Mutex<Option<Arc<QueueAdmission>>>);

/// The admission rules of a queue.
#[derive(Debug)]
pub struct QueueAdmission {
    queue: Name,
    text: Arc<AdmissionText>,
    /// The first call that needs the rules compiles them, which may take a second. `None` again if they were dropped.
    compiled: Mutex<Option<Result<Arc<Admission>, admission::Error>>>,
    schemas: Arc<CompiledSchemas>,
    running: Arc<Semaphore>,
    waiting: Semaphore,
}

impl CompiledRules {
    /// The admission with these rules of the queue. Checks with earlier rules do not use its permits.
    pub(crate) fn of(
        &self,
        queue: &Name,
        text: &Arc<AdmissionText>,
        schemas: &Arc<CompiledSchemas>,
    ) -> Arc<QueueAdmission> {
        let mut held = self.0.lock();
        match &*held {
            Some(held) if Arc::ptr_eq(&held.text, text) => held.clone(),
            _ => {
                let (queue, text, schemas) = (queue.clone(), text.clone(), schemas.clone());
                held.insert(Arc::new(QueueAdmission::new(queue, text, schemas))).clone()
            }
        }
    }
}

impl QueueAdmission {
    fn new(queue: Name, text: Arc<AdmissionText>, schemas: Arc<CompiledSchemas>) -> Self {
        let running = Arc::new(Semaphore::new(ADMISSIONS_MAX));
        let waiting = Semaphore::new(ADMISSIONS_WAITING_MAX);
        Self { queue, text, compiled: Mutex::default(), schemas, running, waiting }
    }

    /// The compiled rules. The first call may take a second, so it must not run on a thread that serves connections.
    ///
    /// # Errors
    /// The schema can't be compiled. The first call logs the error.
    pub fn compiled(self: &Arc<Self>) -> Result<Arc<Admission>, admission::Error> {
        let mut held = self.compiled.lock();
        if let Some(compiled) = &*held {
            return compiled.clone();
        }
        let compiled = Admission::compile(&self.text).map(Arc::new).inspect_err(|error| {
            tracing::warn!(
                queue = %self.queue,
                %error,
                "this version of deltaq can't compile the stored schema of the queue, so the queue refuses objects until its \
                 schema is set again"
            );
        });
        *held = Some(compiled.clone());
        drop(held);
        if let Ok(compiled) = &compiled {
            let owner: Arc<dyn Compiled> = self.clone();
            self.schemas.note(&owner, compiled.bytes());
        }
        compiled
    }

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

impl Compiled for QueueAdmission {
    fn drop_compiled(&self) {
        // Rules that are being compiled at this moment are noted afterwards.
        if let Some(mut compiled) = self.compiled.try_lock() {
            *compiled = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::task::{Context, Waker};

    use deltaq_engine::pointer::Pointer;
    use deltaq_types::RawObject;

    use super::*;

    fn rules(pointer: &str) -> Arc<AdmissionText> {
        let prune = vec![Pointer::parse(pointer, false).unwrap()];
        Arc::new(AdmissionText::new(None, prune).unwrap())
    }

    fn of(compiled: &CompiledRules, text: &Arc<AdmissionText>) -> Arc<QueueAdmission> {
        compiled.of(&"prices".parse().unwrap(), text, &Arc::new(CompiledSchemas::new(usize::MAX)))
    }

    #[test]
    fn a_stored_schema_that_does_not_compile_is_logged_once() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(Arc::new(log.reopen().unwrap())).finish();
        tracing::subscriber::with_default(subscriber, || {
            let schema = RawObject::from_valid(r#"{"type":"text"}"#);
            let text = Arc::new(AdmissionText::new(Some(schema), vec![]).unwrap());
            let compiled = CompiledRules::default();
            for _ in 0..2 {
                of(&compiled, &text).compiled().unwrap_err();
            }
        });
        let log = std::fs::read_to_string(log.path()).unwrap();
        assert_eq!(log.matches("can't compile").count(), 1, "{log}");
        assert!(log.contains("queue=prices"), "{log}");
    }

    #[test]
    fn the_largest_rules_are_dropped_and_compiled_again() {
        let of_bytes = |bytes: usize| {
            let schema = RawObject::from_valid(format!(r#"{{"title":"{}"}}"#, "x".repeat(bytes)));
            Arc::new(AdmissionText::new(Some(schema), vec![]).unwrap())
        };
        let schemas = Arc::new(CompiledSchemas::new(100_000));
        let queue = |bytes: usize| {
            let (rules, name) = (CompiledRules::default(), "prices".parse().unwrap());
            rules.of(&name, &of_bytes(bytes), &schemas)
        };
        let (small, large, third) = (queue(500), queue(4_000), queue(3_000));
        let is_held = |queue: &Arc<QueueAdmission>| queue.compiled.lock().is_some();
        let first = large.compiled().unwrap();
        small.compiled().unwrap();
        assert!(is_held(&large) && is_held(&small));
        third.compiled().unwrap();
        assert!(!is_held(&large) && is_held(&small) && is_held(&third));
        assert!(!Arc::ptr_eq(&large.compiled().unwrap(), &first), "it is compiled again");
        assert!(is_held(&large) && is_held(&small) && !is_held(&third));
        let alone = queue(10_000);
        alone.compiled().unwrap();
        assert!(is_held(&alone) && !is_held(&large) && !is_held(&small));
        drop(alone);
        small.compiled().unwrap();
        large.compiled().unwrap();
        assert!(is_held(&large) && is_held(&small), "the rules of a deleted queue do not count");
    }

    #[tokio::test]
    async fn a_few_checks_run_some_wait_and_more_are_refused() {
        let permits = of(&CompiledRules::default(), &rules("/a"));
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
        let (old, new, compiled) = (rules("/a"), rules("/b"), CompiledRules::default());
        let endless = [of(&compiled, &old).acquire().await, of(&compiled, &old).acquire().await];
        assert_eq!(of(&compiled, &old).running.available_permits(), 0);
        assert_eq!(of(&compiled, &new).running.available_permits(), ADMISSIONS_MAX);
        drop(endless);
    }
}
