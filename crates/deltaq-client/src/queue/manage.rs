//! A queue as a whole: settings, status, delivery.

use std::time::Duration;

use deltaq_types::{
    PageOfQueues, PauseBody, PurgedDocument, PushTestDocument, QueueDocument, QueuePage, QueueSettings,
    QueueSourceDocument, QueueStatus, ReflectorDocument, SeriesDocument, SettingsPlan,
};
use http::Method;
use serde::Serialize;

use super::Queue;
use crate::client::Client;
use crate::error::Error;
use crate::request::{Request, requests, send, send_nothing};

requests! {
    /// Closes a queue: pops drain it, then get `queue-closed`.
    Close -> QueueDocument = send {
        /// Waits until no key is ready, delayed or leased.
        drain flag "drain";
        /// With [`Close::drain`]: the maximum wait.
        wait wait "wait";
    }
    /// Creates a queue, or replaces all of its settings.
    PutSettings -> QueueDocument = send {
        /// Applies only if the settings have this entity tag; otherwise the error is `precondition-failed`.
        if_match condition "if-match";
        /// Applies only if no queue has the name; otherwise the error is `precondition-failed`.
        if_absent any "if-none-match";
        /// Detaches the followers that the settings no longer allow. Otherwise they refuse the call.
        force flag "force";
    }
    /// Changes settings of a queue.
    PatchSettings -> QueueDocument = send {
        /// Applies only if the settings have this entity tag; otherwise the error is `precondition-failed`.
        if_match condition "if-match";
        /// Detaches the followers that the settings no longer allow. Otherwise they refuse the call.
        force flag "force";
    }
    /// Deletes a queue.
    DeleteQueue -> () = send_nothing {
        /// Detaches the followers of the queue. Otherwise they refuse the call.
        force flag "force";
    }
    /// A page of the list of the sources of all queues, by queue and name.
    ListAllSources -> PageOfQueues<QueueSourceDocument> = send {
        /// Only the sources of this queue.
        queue text "queue";
        /// Only sources that are stale.
        stale flag "stale";
        /// Maximum number of entries in a page, up to 5,000; 500 by default.
        limit number "limit";
        /// Continues after the page with this `continue`.
        continue_after text "continue";
    }
    /// A page of the list of the reflectors of all queues, by queue, source and instance.
    ListReflectors -> PageOfQueues<ReflectorDocument> = send {
        /// Only the reflectors of this queue.
        queue text "queue";
        /// Maximum number of entries in a page, up to 5,000; 500 by default.
        limit number "limit";
        /// Continues after the page with this `continue`.
        continue_after text "continue";
    }
    /// A page of the list of queues, by name.
    ListQueues -> QueuePage = send {
        /// Only names that begin with this text.
        prefix text "prefix";
        /// Maximum number of entries in a page, up to 5,000; 500 by default.
        limit number "limit";
        /// Continues after the page with this `continue`.
        continue_after text "continue";
    }
}

impl Close {
    /// Ends pops as soon as no key is ready. By default, they also wait for delayed and leased keys.
    pub fn at_once(mut self) -> Self {
        self.request = self.request.query("wait_for", "none");
        self
    }
}

impl Client {
    /// The queues of the server.
    pub fn queues(&self) -> ListQueues {
        let call = crate::call::Call::new(Method::GET, ["v1", "queues"]);
        ListQueues { request: Request::new(self.clone(), call) }
    }

    /// The sources of all queues of the server.
    pub fn sources(&self) -> ListAllSources {
        let call = crate::call::Call::new(Method::GET, ["v1", "sources"]);
        ListAllSources { request: Request::new(self.clone(), call) }
    }

    /// The reflectors of all queues of the server.
    pub fn reflectors(&self) -> ListReflectors {
        let call = crate::call::Call::new(Method::GET, ["v1", "reflectors"]);
        ListReflectors { request: Request::new(self.clone(), call) }
    }
}

impl Queue {
    /// Creates the queue, or replaces all of its settings: a setting that is missing or null in the document gets its
    /// default. See [`QueueSettings`] for the settings.
    pub fn put_settings(&self, settings: &(impl Serialize + ?Sized)) -> PutSettings {
        // A repeated call sets the same settings.
        let call = self.call(Method::PUT, []).repeatable();
        PutSettings { request: Request::new(self.client().clone(), call).json(settings) }
    }

    /// Changes the settings that the document names: objects are merged, null restores a default.
    pub fn patch_settings(&self, settings: &(impl Serialize + ?Sized)) -> PatchSettings {
        let call = self.call(Method::PATCH, []).repeatable();
        PatchSettings { request: Request::new(self.client().clone(), call).json(settings) }
    }

    /// What [`put_settings`](Self::put_settings) with this document would change. Nothing is changed.
    ///
    /// # Errors
    /// The call failed, or the server refuses the settings.
    pub async fn plan_settings(&self, settings: &(impl Serialize + ?Sized)) -> Result<SettingsPlan, Error> {
        let call = self.call(Method::POST, ["settings", "plan"]).repeatable();
        send(Request::new(self.client().clone(), call).json(settings)).await
    }

    /// The settings of the queue, as [`put_settings`](Self::put_settings) takes them, with their entity tag.
    ///
    /// # Errors
    /// The call failed.
    pub async fn settings(&self) -> Result<(QueueSettings, String), Error> {
        self.client().request_tagged(self.call(Method::GET, ["settings"])).await
    }

    /// The settings and the status of the queue.
    ///
    /// # Errors
    /// The call failed.
    pub async fn get(&self) -> Result<QueueDocument, Error> {
        self.client().request(self.call(Method::GET, [])).await
    }

    /// The counts and flags of the queue.
    ///
    /// # Errors
    /// The call failed.
    pub async fn status(&self) -> Result<QueueStatus, Error> {
        self.client().request(self.call(Method::GET, ["status"])).await
    }

    /// What happened to the queue since so long ago, in points of this length.
    ///
    /// # Errors
    /// The call failed.
    pub async fn series(&self, since: Duration, step: Duration) -> Result<SeriesDocument, Error> {
        self.client().request(self.call(Method::GET, ["series"]).series(since, step)).await
    }

    /// Deletes the queue with all its contents. The call is not repeated after a lost reply, because a new queue may have the
    /// name by then.
    pub fn delete_queue(&self) -> DeleteQueue {
        DeleteQueue { request: Request::new(self.client().clone(), self.call(Method::DELETE, [])) }
    }

    /// Stops delivery.
    ///
    /// # Errors
    /// The call failed.
    pub async fn pause(&self) -> Result<QueueDocument, Error> {
        self.post("pause").await
    }

    /// Resumes delivery.
    ///
    /// # Errors
    /// The call failed.
    pub async fn resume(&self) -> Result<QueueDocument, Error> {
        self.post("resume").await
    }

    /// Sends a test request to the endpoint to which the queue pushes.
    ///
    /// # Errors
    /// The call failed, such as for a queue that does not push. What the endpoint answers is no error.
    pub async fn test_push(&self) -> Result<PushTestDocument, Error> {
        self.client().request(self.call(Method::POST, ["push", "test"]).repeatable()).await
    }

    /// Stops the delivery of a group. The empty name is that of the group without a name.
    ///
    /// # Errors
    /// The call failed.
    pub async fn pause_group(&self, group: &str) -> Result<QueueDocument, Error> {
        self.switch_group("pause", group).await
    }

    /// Resumes the delivery of a group, and ends its hold.
    ///
    /// # Errors
    /// The call failed.
    pub async fn resume_group(&self, group: &str) -> Result<QueueDocument, Error> {
        self.switch_group("resume", group).await
    }

    async fn switch_group(&self, path: &str, group: &str) -> Result<QueueDocument, Error> {
        let body = PauseBody { group: Some(group.into()) };
        self.client().request(self.call(Method::POST, [path]).json(&body).repeatable()).await
    }

    /// Closes the queue.
    pub fn close(&self) -> Close {
        let call = self.call(Method::POST, ["close"]).repeatable();
        Close { request: Request::new(self.client().clone(), call) }
    }

    /// Opens a closed queue again.
    ///
    /// # Errors
    /// The call failed.
    pub async fn reopen(&self) -> Result<QueueDocument, Error> {
        self.post("reopen").await
    }

    /// Drops ready and delayed keys.
    ///
    /// # Errors
    /// The call failed.
    pub async fn purge(&self) -> Result<PurgedDocument, Error> {
        // Not repeated after a lost reply, because keys may have been added since.
        self.client().request(self.call(Method::POST, ["purge"])).await
    }

    /// A call that has the same effect when it is repeated.
    async fn post(&self, path: &str) -> Result<QueueDocument, Error> {
        self.client().request(self.call(Method::POST, [path]).repeatable()).await
    }
}
