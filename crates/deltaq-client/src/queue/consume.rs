//! Calls of workers.

use std::time::Duration;

use deltaq_types::duration::format;
use deltaq_types::terms::HOLD_SECS_MAX;
use deltaq_types::{
    Hold, HoldScope, KeysBody, KeysFilter, LeasesBody, ParkedError, PopBody, Popped, SelectedCount,
    SettleBody, SettleCall, SettledList,
};
use http::Method;
use serde::Serialize;

use super::Queue;
use crate::error::Error;
use crate::list::List;
use crate::request::{Request, requests, send};

/// Number of random bytes in the id of a pop. Whoever knows the id can get the same leases.
const ID_BYTES: usize = 16;

requests! {
    /// Takes keys. The call has an id, so a repetition after a lost reply returns the same leases.
    Pop -> Popped = send {
        /// The maximum wait for a key, up to 55s. By default the reply comes at once.
        wait wait "wait";
        /// Maximum number of keys, up to 1,000; 1 by default.
        max number "max";
        /// The length of the leases; by default the setting of the queue.
        lease_duration duration "lease_duration";
        /// The name of the worker, shown with its leases.
        worker text "worker";
        /// Only keys of this group, outside its turns; the empty text is the group without a name.
        group text "group";
    }
}

/// Some of the parked or delayed keys of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection<'a> {
    /// All of them.
    All,
    /// Those of these keys that are parked or delayed.
    Keys(&'a [&'a str]),
    /// The keys whose last failure had exactly this error; the empty text selects keys without an error.
    Error(&'a str),
    /// The keys that have all of this.
    Filter(&'a KeysFilter),
}

impl Pop {
    /// Adds to each item the object that was acknowledged last.
    pub fn with_known(mut self) -> Self {
        self.request = self.request.map(|call| call.listed("with", "known", true));
        self
    }

    /// Adds to each item the difference from the object that was acknowledged last to the newest one.
    pub fn with_diff(mut self) -> Self {
        self.request = self.request.map(|call| call.listed("with", "diff", true));
        self
    }

    /// Settles earlier leases first. Their results are in the member `settled` of the reply, or of the problem
    /// document.
    pub fn settle(mut self, settle: Vec<SettleCall>) -> Self {
        self.request = self.request.json(&PopBody { settle });
        self
    }
}

/// An id that other clients can't guess.
pub(crate) fn random_id() -> Result<String, Error> {
    let mut bytes = [0; ID_BYTES];
    getrandom::fill(&mut bytes).map_err(|source| Error::Random { source })?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

impl Queue {
    /// Takes keys.
    pub fn pop(&self) -> Pop {
        let request = self.request(Method::POST, "pop").json(&PopBody::default());
        let Request { client, call } = request;
        let call = call.and_then(|call| Ok(call.query("id", Some(random_id()?)).repeatable()));
        Pop { request: Request { client, call } }
    }

    /// Settles leases, each in its own way. A lease that had already ended is `stale` in the results, which is not an
    /// error.
    ///
    /// # Errors
    /// The call failed.
    pub async fn settle(&self, settle: Vec<SettleCall>) -> Result<SettledList, Error> {
        self.results("settle", &SettleBody { settle }).await
    }

    /// Acknowledges leases.
    ///
    /// # Errors
    /// The call failed. Leases that had already ended are not an error.
    pub async fn ack(&self, lease_ids: &[&str]) -> Result<SettledList, Error> {
        self.results("ack", &leases(lease_ids)).await
    }

    /// Like [`ack`](Self::ack), and nothing of the scope is delivered for a time, at most an hour, because the target of the work asks for it. The
    /// scope `Key` is for [`release_and_hold`](Self::release_and_hold) only.
    ///
    /// # Errors
    /// The call failed. Leases that had already ended are not an error, and hold nothing.
    pub async fn ack_and_hold(
        &self,
        lease_ids: &[&str],
        scope: HoldScope,
        length: Duration,
    ) -> Result<SettledList, Error> {
        self.results("ack", &LeasesBody { hold: Some(Box::new(hold(scope, length))), ..leases(lease_ids) })
            .await
    }

    /// Mode keys: ends leases, and keeps the failures of their keys. With `delay`, the keys are added again after that time.
    ///
    /// # Errors
    /// The call failed. Leases that had already ended are not an error.
    pub async fn done(&self, lease_ids: &[&str], delay: Option<Duration>) -> Result<SettledList, Error> {
        self.results("done", &LeasesBody { delay: delay.map(text), ..leases(lease_ids) }).await
    }

    /// Reports failures: the keys are delivered again later. `delay` replaces their backoff. With `floor`, no change
    /// delivers them earlier.
    ///
    /// # Errors
    /// The call failed. Leases that had already ended are not an error.
    pub async fn nack(
        &self,
        lease_ids: &[&str],
        delay: Option<Duration>,
        floor: bool,
        error: Option<&str>,
    ) -> Result<SettledList, Error> {
        let (floor, error) = (floor.then_some(true), error.map(Into::into));
        self.results("nack", &LeasesBody { delay: delay.map(text), floor, error, ..leases(lease_ids) }).await
    }

    /// Parks keys. Except in mode events, a key with a newer change that no worker has seen is delivered again instead.
    ///
    /// # Errors
    /// The call failed. Leases that had already ended are not an error.
    pub async fn reject(&self, lease_ids: &[&str], error: Option<&str>) -> Result<SettledList, Error> {
        let error = error.map(Into::into);
        self.results("reject", &LeasesBody { error, ..leases(lease_ids) }).await
    }

    /// Returns keys without a failure.
    ///
    /// # Errors
    /// The call failed. Leases that had already ended are not an error.
    pub async fn release(&self, lease_ids: &[&str]) -> Result<SettledList, Error> {
        self.results("release", &leases(lease_ids)).await
    }

    /// Like [`release`](Self::release), and nothing of the queue is delivered for a time, at most an hour, because the target of the work
    /// asks for it.
    ///
    /// # Errors
    /// The call failed. Leases that had already ended are not an error, and hold nothing.
    pub async fn release_and_hold(
        &self,
        lease_ids: &[&str],
        scope: HoldScope,
        length: Duration,
    ) -> Result<SettledList, Error> {
        self.results(
            "release",
            &LeasesBody { hold: Some(Box::new(hold(scope, length))), ..leases(lease_ids) },
        )
        .await
    }

    /// Sets the deadlines of leases to now plus `lease_duration`, which defaults to the setting of the queue.
    /// [`settle`](Self::settle) and [`Pop::settle`] can also extend leases, together with other settles.
    ///
    /// # Errors
    /// The call failed. Leases that had already ended are not an error.
    pub async fn extend(
        &self,
        lease_ids: &[&str],
        lease_duration: Option<Duration>,
    ) -> Result<SettledList, Error> {
        let lease_duration = lease_duration.map(text);
        self.results("extend", &LeasesBody { lease_duration, ..leases(lease_ids) }).await
    }

    /// Like [`extend`](Self::extend), and the result comes at the first newer change of one of the keys, when one of the leases ends, or after
    /// `wait`, which is at most `server.max_wait`.
    ///
    /// # Errors
    /// The call failed. Leases that had already ended are not an error.
    pub async fn extend_until_changed(
        &self,
        lease_ids: &[&str],
        lease_duration: Option<Duration>,
        wait: Duration,
    ) -> Result<SettledList, Error> {
        let body = LeasesBody { lease_duration: lease_duration.map(text), ..leases(lease_ids) };
        let call = self.call(Method::POST, ["extend"]).query("until_changed", Some(true)).wait(wait);
        let call = call.query("wait", Some(format(wait))).json(&body).repeatable();
        self.client().request_results(call).await
    }

    /// The errors of the parked keys, the most frequent ones first, with the number of keys of each.
    pub fn parked_errors(&self) -> List<ParkedError> {
        List::new(Request::new(self.client().clone(), self.call(Method::GET, ["parked", "errors"])))
    }

    /// Makes delayed keys ready before they are due. With `expected_count`, nothing changes unless the selection has
    /// exactly this many keys.
    ///
    /// # Errors
    /// The call failed. `count-changed` has the number of keys.
    pub async fn promote(
        &self,
        which: Selection<'_>,
        expected_count: Option<u64>,
    ) -> Result<SelectedCount, Error> {
        self.selected(["delayed", "promote"], which, expected_count).await
    }

    /// Makes parked keys ready. With `expected_count`, nothing changes unless the selection has exactly this many keys.
    ///
    /// # Errors
    /// The call failed. `count-changed` has the number of keys.
    pub async fn redrive(
        &self,
        which: Selection<'_>,
        expected_count: Option<u64>,
    ) -> Result<SelectedCount, Error> {
        self.selected(["parked", "redrive"], which, expected_count).await
    }

    /// Drops parked keys with their waiting deltas. With `expected_count`, nothing changes unless the selection has
    /// exactly this many keys.
    ///
    /// # Errors
    /// The call failed. `count-changed` has the number of keys.
    pub async fn discard(
        &self,
        which: Selection<'_>,
        expected_count: Option<u64>,
    ) -> Result<SelectedCount, Error> {
        self.selected(["parked", "discard"], which, expected_count).await
    }

    async fn selected(
        &self,
        path: [&str; 2],
        which: Selection<'_>,
        expected_count: Option<u64>,
    ) -> Result<SelectedCount, Error> {
        let none = KeysBody { expected_count, ..KeysBody::default() };
        let body = match which {
            Selection::All => KeysBody { all: true, ..none },
            Selection::Keys(keys) => KeysBody { keys: Some(owned(keys)), ..none },
            Selection::Error(error) => KeysBody { error: Some(error.to_owned()), ..none },
            Selection::Filter(filter) => KeysBody { filter: Some(filter.clone()), ..none },
        };
        self.client().request(self.call(Method::POST, path).json(&body)).await
    }

    /// Sends a call whose reply has a result for each lease. The call has the same effect when it is repeated.
    async fn results(&self, path: &str, body: &impl Serialize) -> Result<SettledList, Error> {
        self.client().request_results(self.call(Method::POST, [path]).json(body).repeatable()).await
    }
}

fn text(duration: Duration) -> Box<str> {
    format(duration).into()
}

/// A hold, cut to the longest one.
pub(crate) fn hold(scope: HoldScope, length: Duration) -> Hold {
    Hold { scope, length: format(length.min(Duration::from_secs(HOLD_SECS_MAX))).into() }
}

fn leases(lease_ids: &[&str]) -> LeasesBody {
    LeasesBody { lease_ids: Some(owned(lease_ids)), ..LeasesBody::default() }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}
