//! The compiled admission rules of a queue, and the permits for checking objects against them.
//!
//! A check may take a long time and can't be stopped. So only a few calls of a queue run checks at a time, and some
//! more may wait. Further calls are refused, because they would hold permits that the calls of other queues need.

use std::sync::{Arc, OnceLock};

use deltaq_engine::config::AdmissionText;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::admission::limits::{ADMISSIONS_MAX, ADMISSIONS_WAITING_MAX};
use crate::admission::{self, Admission};
use crate::{Error, Name};

/// The most recently compiled rules of a queue.
#[derive(Debug, Default)]
pub(crate) struct CompiledRules(Mutex<Option<Arc<QueueAdmission>>>);

/// The admission rules of a queue.
#[derive(Debug)]
pub struct QueueAdmission {
    queue: Name,
    text: Arc<AdmissionText>,
    /// The first call that needs the rules compiles them, which may take a second.
    compiled: OnceLock<Result<Admission, admission::Error>>,
    running: Arc<Semaphore>,
    waiting: Semaphore,
}

impl CompiledRules {
    /// The admission with these rules of the queue. Checks with earlier rules do not use its permits.
    pub(crate) fn of(&self, queue: &Name, text: &Arc<AdmissionText>) -> Arc<QueueAdmission> {
        let mut held = self.0.lock();
        match &*held {
            Some(held) if Arc::ptr_eq(&held.text, text) => held.clone(),
            _ => held.insert(Arc::new(QueueAdmission::new(queue.clone(), text.clone()))).clone(),
        }
    }
}

impl QueueAdmission {
    fn new(queue: Name, text: Arc<AdmissionText>) -> Self {
        let running = Arc::new(Semaphore::new(ADMISSIONS_MAX));
        let waiting = Semaphore::new(ADMISSIONS_WAITING_MAX);
        Self { queue, text, compiled: OnceLock::new(), running, waiting }
    }

    /// The compiled rules. The first call may take a second, so it must not run on a thread that serves connections.
    ///
    /// # Errors
    /// The schema can't be compiled. The first call logs the error.
    pub fn compiled(&self) -> Result<&Admission, admission::Error> {
        let compile = || {
            Admission::compile(&self.text).inspect_err(|error| {
                tracing::warn!(
                    queue = %self.queue,
                    %error,
                    "this version of deltaq can't compile the stored schema of the queue, so the queue refuses objects until its \
                     schema is set again"
                );
            })
        };
        self.compiled.get_or_init(compile).as_ref().map_err(Clone::clone)
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
        compiled.of(&"prices".parse().unwrap(), text)
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
