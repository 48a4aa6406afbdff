//! Produce calls.

use std::time::Duration;

use deltaq_types::{
    DeltaCall, ForgetBody, KeysCount, Produced, ReflectorReport, Replaced, SourceChange, SourceDocument,
    SourceReport, SourceThreshold, SourcesChange,
};
use http::Method;
use serde::Serialize;

use super::{Queue, ReplaceOptions, finite};
use crate::call::{Body, Call};
use crate::client::LIST_WAIT;
use crate::error::Error;
use crate::request::{Request, requests, send};

requests! {
    /// Adds objects. After a lost reply the call is repeated, so without a sequence number its changes may be queued twice.
    Add -> Produced = send {
        /// The producer, which owns the keys from now on.
        source text "source";
        /// With a source: the number of the call, which the server applies once, so that the call is repeated safely.
        sequence number "sequence";
        /// The time until the keys become ready.
        delay duration "delay";
        /// The time that the keys must be quiet before they are delivered, instead of the setting; zero for none.
        debounce duration "debounce";
        /// Only with `debounce`: the longest wait, at least `debounce`; by default 10 times `debounce`.
        max_wait duration "max_wait";
        /// How much earlier than they did the keys count as arrived, instead of the setting: `10m`, or `-10m` for later.
        head_start text "head_start";
        /// The W3C trace that led to the call.
        traceparent header "traceparent";
        /// The key of a single object that does not contain it.
        key text "key";
        /// Mode keys: the keys wait as after a failure, and the call counts as a failure. It is not repeated after a
        /// lost reply.
        rate_limited once "rate_limited";
        /// Refuses the call if the queue does not exist, instead of creating it: the error is `queue-not-found`.
        must_exist flag "must_exist";
        /// A single object: applies only if the newest object of the key has this entity tag, or `*` for any; otherwise the error is
        /// `precondition-failed`. The call is not repeated after a lost reply.
        if_match condition "if-match";
        /// A single object: applies only if the key has no object; otherwise the error is `precondition-failed`. The call is not repeated after a
        /// lost reply.
        if_absent any "if-none-match";
    }
    /// Changes objects. After a lost reply the call is repeated, so without a sequence number its changes may be queued twice.
    Update -> Produced = send {
        /// The producer, which owns the keys from now on.
        source text "source";
        /// With a source: the number of the call, which the server applies once, so that the call is repeated safely.
        sequence number "sequence";
        /// The time until the keys become ready.
        delay duration "delay";
        /// The time that the keys must be quiet before they are delivered, instead of the setting; zero for none.
        debounce duration "debounce";
        /// Only with `debounce`: the longest wait, at least `debounce`; by default 10 times `debounce`.
        max_wait duration "max_wait";
        /// How much earlier than they did the keys count as arrived, instead of the setting: `10m`, or `-10m` for later.
        head_start text "head_start";
        /// The W3C trace that led to the call.
        traceparent header "traceparent";
        /// The key of a single object that does not contain it.
        key text "key";
        /// Refuses the call if the queue does not exist, instead of creating it: the error is `queue-not-found`.
        must_exist flag "must_exist";
        /// A single object: applies only if the newest object of the key has this entity tag, or `*` for any; otherwise the error is
        /// `precondition-failed`. The call is not repeated after a lost reply.
        if_match condition "if-match";
        /// A single object: applies only if the key has no object; otherwise the error is `precondition-failed`. The call is not repeated after a
        /// lost reply.
        if_absent any "if-none-match";
    }
    /// Deletes objects. After a lost reply the call is repeated, so without a sequence number its changes may be queued twice.
    Delete -> Produced = send {
        /// The producer.
        source text "source";
        /// With a source: the number of the call, which the server applies once, so that the call is repeated safely.
        sequence number "sequence";
        /// The time that the keys must be quiet before they are delivered, instead of the setting; zero for none.
        debounce duration "debounce";
        /// Only with `debounce`: the longest wait, at least `debounce`; by default 10 times `debounce`.
        max_wait duration "max_wait";
        /// How much earlier than they did the keys count as arrived, instead of the setting: `10m`, or `-10m` for later.
        head_start text "head_start";
        /// The W3C trace that led to the call.
        traceparent header "traceparent";
        /// The key of a single object that does not contain it.
        key text "key";
        /// Refuses the call if the queue does not exist, instead of creating it: the error is `queue-not-found`.
        must_exist flag "must_exist";
        /// A single object: applies only if the newest object of the key has this entity tag, or `*` for any; otherwise the error is
        /// `precondition-failed`. The call is not repeated after a lost reply.
        if_match condition "if-match";
    }
    /// A mixed batch. After a lost reply the call is repeated, so without a sequence number its changes may be queued twice.
    Deltas -> Produced = send {
        /// The producer of the entries that do not name one.
        source text "source";
        /// With a source: the number of the call, which the server applies once, so that the call is repeated safely.
        sequence numbered "sequence";
        /// Leaves out entries with an invalid object instead of failing, however many they are. The reply names the first 10.
        skip_invalid flag "skip_invalid";
        /// The W3C trace that led to the call.
        traceparent header "traceparent";
        /// Refuses the call if the queue does not exist, instead of creating it: the error is `queue-not-found`.
        must_exist flag "must_exist";
    }
}

impl Queue {
    /// Adds an object, or a list of up to 10,000 objects.
    pub fn add(&self, objects: &(impl Serialize + ?Sized)) -> Add {
        Add { request: self.objects("add", objects) }
    }

    /// Mode keys: adds a key.
    pub fn add_key(&self, key: impl Into<String>) -> Add {
        Add { request: self.keyed("add", key.into()) }
    }

    /// Changes an object, or a list of up to 10,000 objects.
    pub fn update(&self, objects: &(impl Serialize + ?Sized)) -> Update {
        Update { request: self.objects("update", objects) }
    }

    /// Deletes an object, or a list of up to 10,000 objects, as their last states.
    pub fn delete(&self, objects: &(impl Serialize + ?Sized)) -> Delete {
        Delete { request: self.objects("delete", objects) }
    }

    /// Deletes a key. Its last state is the newest one that the queue has.
    pub fn delete_key(&self, key: impl Into<String>) -> Delete {
        Delete { request: self.keyed("delete", key.into()) }
    }

    /// Sends a batch of additions, changes and deletions: all or none. A batch that expects a version of a key is
    /// repeated after a lost reply only if it has a sequence number, because the first attempt may have changed the key.
    pub fn deltas(&self, deltas: &[DeltaCall<'_>]) -> Deltas {
        let request = self.objects("deltas", deltas);
        let expects = deltas.iter().any(|delta| delta.expected_version.is_some());
        Deltas { request: if expects { request.map(Call::not_repeatable) } else { request } }
    }

    /// Sends the whole list of a source, or of the keys without an owner. The body is sent once; to repeat, call again.
    /// [`Producer::replace`](super::Producer::replace) also numbers the call.
    ///
    /// # Errors
    /// The call failed.
    pub async fn replace(
        &self,
        source: Option<&str>,
        options: &ReplaceOptions,
        list: Body,
    ) -> Result<Replaced, Error> {
        let call = self.call(Method::POST, ["replace"]).query("source", source).repeatable().wait(LIST_WAIT);
        self.client().request(options.apply(call).body(list)).await
    }

    /// Reports why the queue is not in step with a source, or that it is. The list of the sources shows the report.
    ///
    /// # Errors
    /// The call failed.
    pub async fn report_source(&self, source: &str, problem: Option<&str>) -> Result<(), Error> {
        let report = SourceReport { source: source.to_owned(), problem: problem.map(str::to_owned) };
        self.client().send(self.call(Method::POST, ["sources"]).json(&report)).await.map(drop)
    }

    /// Sets the last sequence number of a source. `None` forgets it: the next call of the source is applied whatever its
    /// number is.
    ///
    /// # Errors
    /// The call failed.
    pub async fn renumber_source(
        &self,
        source: &str,
        sequence: Option<u64>,
    ) -> Result<SourceDocument, Error> {
        let call = self.call(Method::PATCH, ["sources", source]).repeatable();
        let change = SourceChange { sequence: Some(sequence), ..SourceChange::default() };
        self.client().request(call.json(&change)).await
    }

    /// Sets how long a source may be silent before it counts as stale. `None` removes the threshold.
    ///
    /// # Errors
    /// The call failed.
    pub async fn set_stale_after(
        &self,
        source: &str,
        stale_after: Option<Duration>,
    ) -> Result<SourceDocument, Error> {
        let call = self.call(Method::PATCH, ["sources", source]).repeatable();
        let stale_after = Some(stale_after.map(Into::into));
        self.client().request(call.json(&SourceChange { stale_after, ..SourceChange::default() })).await
    }

    /// Sets how long several sources may be silent, all of them or none; `None` removes a threshold. With the entity tag of settings, only
    /// while the queue has these settings.
    ///
    /// # Errors
    /// The call failed.
    pub async fn set_thresholds(
        &self,
        thresholds: impl IntoIterator<Item = (&str, Option<Duration>)>,
        if_match: Option<&str>,
    ) -> Result<(), Error> {
        let threshold =
            |stale_after: Option<Duration>| SourceThreshold { stale_after: stale_after.map(Into::into) };
        let sources = thresholds.into_iter().map(|(source, length)| (source.to_owned(), threshold(length)));
        let change = SourcesChange { sources: sources.collect() };
        let mut call = self.call(Method::PATCH, ["sources"]).json(&change);
        if let Some(etag) = if_match {
            call = call.header("if-match", etag);
        }
        self.client().send(call.repeatable()).await.map(drop)
    }

    /// Proposes how long a source may be silent before it counts as stale. It replaces only a threshold that was proposed too.
    ///
    /// # Errors
    /// The call failed.
    pub async fn propose_stale_after(
        &self,
        source: &str,
        stale_after: Duration,
    ) -> Result<SourceDocument, Error> {
        let call = self.call(Method::PATCH, ["sources", source]).repeatable();
        let stale_after = Some(Some(stale_after.into()));
        let change = SourceChange { stale_after, proposed: true, ..SourceChange::default() };
        self.client().request(call.json(&change)).await
    }

    /// Sends a heartbeat of a reflector.
    ///
    /// # Errors
    /// The call failed.
    pub async fn report_reflector(&self, report: &ReflectorReport) -> Result<(), Error> {
        self.client().send(self.call(Method::POST, ["reflectors"]).json(report)).await.map(drop)
    }

    /// Records that a source was reached and has no change, so that it does not count as silent.
    ///
    /// # Errors
    /// The call failed.
    pub async fn seen_source(&self, source: &str) -> Result<(), Error> {
        let call = self.call(Method::POST, ["sources", source, "seen"]).repeatable();
        self.client().send(call).await.map(drop)
    }

    /// Queues a `Sync` delta for each known key without waiting deltas.
    ///
    /// # Errors
    /// The call failed.
    pub async fn resync(&self) -> Result<Produced, Error> {
        self.client().request(self.call(Method::POST, ["resync"])).await
    }

    /// Makes objects known without deltas: lines of `{"key","source","object"}`. The body is sent once.
    ///
    /// # Errors
    /// The call failed.
    pub async fn seed(&self, list: Body) -> Result<Produced, Error> {
        self.client().request(self.call(Method::POST, ["seed"]).wait(LIST_WAIT).body(list)).await
    }

    /// Sets the failures of keys to 0.
    ///
    /// # Errors
    /// The call failed.
    pub async fn forget(&self, keys: &[&str]) -> Result<KeysCount, Error> {
        let body = ForgetBody { keys: keys.iter().map(|&key| key.to_owned()).collect() };
        self.client().request(self.call(Method::POST, ["forget"]).json(&body).repeatable()).await
    }

    fn objects(&self, path: &str, objects: &(impl Serialize + ?Sized)) -> Request {
        self.request(Method::POST, path).body(text_of(objects))
    }

    /// A call with a key, which is not empty.
    fn keyed(&self, path: &str, key: String) -> Request {
        let request = self.request(Method::POST, path);
        if key.is_empty() {
            return request.body(Err(unfit("the key is empty")));
        }
        request.query("key", key)
    }

    /// A call that leads to the same state when it is repeated.
    pub(super) fn request(&self, method: Method, path: &str) -> Request {
        Request::new(self.client().clone(), self.call(method, [path]).repeatable())
    }
}

/// The text of an object, or of a list of objects.
fn text_of(objects: &(impl Serialize + ?Sized)) -> Result<Vec<u8>, Error> {
    finite::check(objects).map_err(unfit)?;
    let text = serde_json::to_vec(objects).map_err(|source| Error::Object { source })?;
    // The server would take null for a call without objects.
    if text == b"null" { Err(unfit("there is no object, but null")) } else { Ok(text) }
}

fn unfit(reason: impl std::fmt::Display) -> Error {
    Error::Object { source: serde::ser::Error::custom(reason) }
}

#[cfg(test)]
mod tests {
    use deltaq_types::DeltaCallType;

    use super::*;
    use crate::client::Client;

    #[test]
    fn a_batch_that_expects_a_version_is_repeated_only_with_a_number() {
        let queue = Client::at("http://localhost:7070").unwrap().queue("q");
        let deltas = |expected_version| {
            let (kind, key) = (DeltaCallType::Deleted, Some("a".to_owned()));
            let delta = DeltaCall {
                kind,
                key,
                object: None,
                source: None,
                delay: None,
                debounce: None,
                max_wait: None,
                head_start: None,
                final_state_unknown: false,
                expected_version,
            };
            queue.deltas(&[delta])
        };
        let is_repeatable = |deltas: Deltas| deltas.request.call.unwrap().is_repeatable;
        assert!(is_repeatable(deltas(None)));
        assert!(!is_repeatable(deltas(Some(7))));
        assert!(!is_repeatable(deltas(Some(0))));
        assert!(is_repeatable(deltas(Some(7)).source("erp").sequence(1)));
    }

    #[tokio::test]
    async fn an_object_that_cannot_be_sent_is_named() {
        // Nothing listens there, and nothing is sent.
        let queue = Client::at("http://127.0.0.1:9").unwrap().queue("q");
        let price = |price| std::collections::HashMap::from([("price", price)]);
        for (failed, reason) in [
            (queue.add(&price(f64::NAN)).await, "NaN is no number of JSON"),
            (queue.add(&[price(1.0), price(f64::INFINITY)]).await, "object 1: inf is no number of JSON"),
            (queue.update(&None::<u8>).await, "there is no object, but null"),
            (queue.delete(&serde_json::Value::Null).await, "there is no object, but null"),
            (queue.add_key("").await, "the key is empty"),
            (queue.delete_key("").await, "the key is empty"),
        ] {
            let text = crate::log::chain(&failed.unwrap_err());
            assert_eq!(text, format!("an object can't be sent: {reason}"));
        }
    }
}
