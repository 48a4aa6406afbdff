//! Admits the objects of a body according to the rules of the queue, a slice at a time.

use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::config::Config;
use deltaq_engine::delta::DeltaKind;
use deltaq_engine::key::{Key, KeyError};
use deltaq_engine::object::{self, Object, Scanned};
use deltaq_engine::object_version::{ObjectVersion, VersionError};
use deltaq_engine::refusal::Refusal;
use deltaq_service::admission::{Admission, Unfit};
use deltaq_service::{Handle, Name, QueueAdmission};

use super::body::{Account, Incoming};
use super::kind::check_kind;
use super::received::ReceivedObject;
use crate::http::blocking::{CHECKS, run_blocking};
use crate::http::problem::Problem;
use crate::http::state::AppState;

/// The rules for the objects of a call: the settings of the queue, or the settings with which the call would create it.
#[derive(Clone, Debug)]
pub(in crate::http) struct AdmissionRules {
    pub(in crate::http) config: Arc<Config>,
    /// The queue, if it exists.
    pub(in crate::http) handle: Option<Arc<Handle>>,
    /// The admission of the objects. `None` if the queue has no rules or does not exist yet.
    admission: Option<Arc<QueueAdmission>>,
    account: Account,
    /// Maximum wait for a permit. A Replace and a seed have no other timeout.
    permit_timeout: Duration,
}

/// Reads a slice of the objects of a call.
pub(in crate::http) struct Reader<'c> {
    pub(in crate::http) config: &'c Config,
    admission: Option<&'c Admission>,
    /// Number of bytes that defaults have added so far.
    grown: usize,
}

/// How a call uses its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum ObjectUse {
    /// They are stored, so they must satisfy the queue's schema.
    Stored,
    /// They describe what to delete.
    Deleted,
}

impl ObjectUse {
    /// The use of the objects of a call.
    pub(in crate::http) fn of(kind: DeltaKind) -> Self {
        if kind == DeltaKind::Deleted { Self::Deleted } else { Self::Stored }
    }
}

impl AdmissionRules {
    /// The rules of a queue for the objects of this body.
    pub(in crate::http) fn of(state: &AppState, name: &Name, incoming: &Incoming) -> Self {
        Self::for_queue(state, name, incoming.account())
    }

    /// The rules of a queue for the objects that this account counts.
    pub(in crate::http) fn for_queue(state: &AppState, name: &Name, account: Account) -> Self {
        let permit_timeout = state.limits.request_timeout;
        if let Some(handle) = state.partitions.find(name) {
            return Self::by(handle, account, permit_timeout);
        }
        let config = state.partitions.defaults().clone();
        Self { config, handle: None, admission: None, account, permit_timeout }
    }

    fn by(handle: Arc<Handle>, account: Account, permit_timeout: Duration) -> Self {
        let config = handle.config();
        let admission = handle.admission(&config);
        Self { config, handle: Some(handle), admission, account, permit_timeout }
    }

    /// Refuses a call that must not create the queue, if there is none.
    pub(in crate::http) fn check_exists(&self, must_exist: bool) -> Result<(), Problem> {
        if must_exist && self.handle.is_none() {
            return Err(deltaq_service::Error::QueueNotFound.into());
        }
        Ok(())
    }

    /// The rules for a call without objects, which needs no permit.
    pub(in crate::http) fn without_objects(self) -> Self {
        Self { admission: None, ..self }
    }

    /// The rules of the queue that currently has the name, if there is one.
    pub(in crate::http) fn found(&self, state: &AppState, name: &Name) -> Self {
        Self::for_queue(state, name, self.account.clone())
    }

    /// The current rules of the queue.
    pub(in crate::http) fn now(&self, handle: Arc<Handle>) -> Self {
        Self::by(handle, self.account.clone(), self.permit_timeout)
    }

    /// The account that counts the bytes of the body.
    pub(in crate::http) fn account(&self) -> Account {
        self.account.clone()
    }

    /// The number of objects that are read before other requests may run. This takes at most a few milliseconds.
    pub(in crate::http) fn slice_len(&self) -> usize {
        if self.config.admission.is_some() { ADMITTED_PER_SLICE } else { LINES_PER_SLICE }
    }

    /// Calls `read` with each received entry and its index. Admission runs on blocking threads, because its duration depends on
    /// the schema.
    pub(in crate::http) async fn each<C, T>(
        &self,
        received: Arc<Vec<C>>,
        read: impl Fn(&mut Reader<'_>, usize, &C) -> Result<T, Problem> + Clone + Send + 'static,
    ) -> Result<Vec<T>, Problem>
    where
        C: Send + Sync + 'static,
        T: Send + 'static,
    {
        let mut all = Vec::with_capacity(received.len());
        while all.len() < received.len() {
            if !all.is_empty() {
                tokio::task::yield_now().await;
            }
            let (start, length) = (all.len(), self.slice_len());
            let grown = if let Some(admission) = &self.admission {
                let (received, read, config) = (received.clone(), read.clone(), self.config.clone());
                let (account, rules) = (self.account.clone(), admission.clone());
                let work = move || {
                    // The bytes count until the work ends, even if the caller disconnects.
                    let _counted = account;
                    let mut some = Vec::new();
                    let compiled = rules.compiled()?;
                    let mut reader = Reader::new(&config, Some(&compiled));
                    read_some(&mut reader, &received, start, length, &read, &mut some)?;
                    Ok::<_, Problem>((some, reader.grown))
                };
                let turn = async {
                    let of_queue = admission.acquire().await?;
                    Ok::<_, Problem>((of_queue, CHECKS.permit(&self.account.caller()).await))
                };
                let turn = tokio::time::timeout(self.permit_timeout, turn).await;
                let turn = turn.map_err(|_| Problem::timed_out(self.permit_timeout))??;
                let (some, grown) = run_blocking(turn, work).await?;
                all.extend(some);
                grown
            } else {
                let mut reader = Reader::new(&self.config, None);
                read_some(&mut reader, &received, start, length, &read, &mut all)?;
                reader.grown
            };
            self.account.reserve(grown)?;
        }
        Ok(all)
    }
}

/// Adds the results of `read` for one slice to `all`.
fn read_some<C, T>(
    reader: &mut Reader<'_>,
    received: &[C],
    start: usize,
    length: usize,
    read: &impl Fn(&mut Reader<'_>, usize, &C) -> Result<T, Problem>,
    all: &mut Vec<T>,
) -> Result<(), Problem> {
    for (index, received) in received.iter().enumerate().skip(start).take(length) {
        all.push(read(reader, index, received)?);
    }
    Ok(())
}

impl<'c> Reader<'c> {
    /// Creates a reader with these settings and their compiled admission rules, if there are any.
    pub(in crate::http) const fn new(config: &'c Config, admission: Option<&'c Admission>) -> Self {
        Self { config, admission, grown: 0 }
    }

    /// The object after admission, and its key.
    pub(in crate::http) fn admitted(
        &mut self,
        received: Scanned,
        object_use: ObjectUse,
    ) -> Result<Scanned, Problem> {
        let Some(admission) = self.admission else { return Ok(received) };
        let object = admission.admit(
            &received.object,
            object_use == ObjectUse::Stored,
            self.config.max_object_bytes,
        )?;
        let Some(object) = object else { return Ok(received) };
        self.grown += object.as_str().len().saturating_sub(received.object.as_str().len());
        object::scan(object.as_str(), &self.config.key).map_err(|_deep| Unfit::TooDeep.into())
    }

    /// Checks the length. The queue checks it again, but does not know the position of the object.
    pub(in crate::http) fn check_length(&self, object: &Object) -> Result<(), Problem> {
        let (bytes, limit) = (object.bytes(), self.config.max_object_bytes);
        let index = 0;
        if bytes > limit { Err(Refusal::ObjectTooLarge { limit, bytes, index }.into()) } else { Ok(()) }
    }

    /// The version of an object after admission, if the queue has the setting `version`. The object of a Delete may lack it. Also
    /// checks the value at the pointer of the setting `order`, and the kind that the setting `kubernetes` has.
    pub(in crate::http) fn version(
        &self,
        object: &Object,
        object_use: ObjectUse,
    ) -> Result<Option<ObjectVersion>, Problem> {
        if let Some(order) = &self.config.order {
            order.read(object)?;
        }
        if let Some(resource) = self.config.kubernetes.as_ref().filter(|_| object_use == ObjectUse::Stored) {
            check_kind(resource, object)?;
        }
        let Some(pointer) = &self.config.version else { return Ok(None) };
        match ObjectVersion::read(pointer, object) {
            Err(VersionError::Missing { .. }) if object_use == ObjectUse::Deleted => Ok(None),
            read => Ok(Some(read?)),
        }
    }

    /// The object after admission, and its key. The key comes from the object or, if the object has no key, from the
    /// call.
    pub(in crate::http) fn keyed(
        &mut self,
        parsed: &ReceivedObject,
        explicit: Option<&Key>,
        object_use: ObjectUse,
    ) -> Result<(Key, Object), Problem> {
        let received = Scanned { object: parsed.object.clone(), key: parsed.key.clone() };
        let taken = self.admitted(received, object_use)?;
        Ok((key_or_explicit(taken.key, explicit)?, taken.object))
    }
}

/// The key of an object or, if it has none, the explicit key. If there are both, they must be equal.
pub(in crate::http) fn key_or_explicit(
    own: Result<Key, KeyError>,
    explicit: Option<&Key>,
) -> Result<Key, KeyError> {
    match (own, explicit) {
        (Ok(own), Some(explicit)) if own != *explicit => {
            Err(KeyError::Differs { explicit: explicit.as_str().into(), own: own.as_str().into() })
        }
        (Err(error), Some(explicit)) if error.is_missing() => Ok(explicit.clone()),
        (own, _) => own,
    }
}

/// Number of lines of a fast stream that are read before other requests may run. This takes about a millisecond.
const LINES_PER_SLICE: usize = 1_000;
/// Number of lines that are read with admission before other requests may run. Each object may grow to the maximum
/// size.
const ADMITTED_PER_SLICE: usize = 100;
