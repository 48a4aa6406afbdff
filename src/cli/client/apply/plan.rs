//! What a file does to one queue: the plan, as the server compares it, and the call that carries it out.

use deltaq_runtime::causes::with_causes;
use deltaq_types::name::Name;
use serde::{Deserialize, Serialize};

use super::difference::{Change, changes, merge_patch};
use super::exact::{Exact, Members};
use super::thresholds::{self, ThresholdPlan};
use crate::cli::client::failure::Failure;
use crate::cli::client::session::Session;

/// The setting that names the owner of a queue.
pub(in crate::cli::client) const OWNER: &str = "owner";

/// What is done to a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Action {
    Create,
    Change,
    Keep,
    Delete,
}

/// What the file does to a queue.
#[derive(Debug)]
pub(super) struct QueuePlan {
    pub(super) name: Name,
    /// The settings of the file.
    pub(super) given: Members,
    /// The present settings; `None` if the queue is new.
    pub(super) current: Option<Members>,
    /// The entity tag of the present settings.
    pub(super) etag: Option<String>,
    /// The settings afterwards; `None` if the queue is deleted.
    pub(super) planned: Option<Members>,
    /// The changes of an existing queue, and of the thresholds of its sources.
    pub(super) changes: Vec<Change>,
    pub(super) thresholds: ThresholdPlan,
    /// What is deleted with the queue, such as `3 ready`.
    pub(super) contents: String,
}

/// The plan as the server wrote it. A newer server may have settings that this program does not know.
#[derive(Deserialize)]
struct SettingsPlan {
    current: Option<Members>,
    etag: Option<String>,
    planned: Members,
}

/// A queue after a change.
#[derive(Deserialize)]
struct Changed {
    settings: Members,
}

impl QueuePlan {
    /// Asks the server what the settings of the file would change. A new queue gets the owner of the file; an existing one keeps its own.
    pub(super) async fn of(
        session: &Session,
        owner: Option<&Name>,
        name: Name,
        mut given: Members,
    ) -> Result<Self, Failure> {
        let at = |source| Failure::At { place: format!("queue {name}"), source };
        let in_queue = |failure: Failure| failure.in_place(format!("queue {name}"));
        let wanted = thresholds::take(&mut given).map_err(in_queue)?;
        let call = session.on_queue("plan_settings", &name)?.json(&given).repeatable();
        let SettingsPlan { current, etag, mut planned } = session.client.fetch(call).await.map_err(at)?;
        // A new queue has no owner to lose, so null says nothing there. Older programs have exported it.
        let names_owner = match given.get(OWNER) {
            None => false,
            Some(Exact::Null) => current.is_some(),
            Some(_) => true,
        };
        if let Some(owner) = owner.filter(|_| !names_owner) {
            let present = current.as_ref().and_then(owner_of);
            if let Some(other) = present.filter(|present| *present != owner.as_str()) {
                return Err(Failure::Other(format!(
                    "queue {name}: its owner is {other}, and that of the file is {owner}; remove the queue from one of the files, or write owner: {owner} into its settings here"
                )));
            }
            if current.is_none() {
                given.insert(OWNER, Exact::Text(owner.to_string()));
                planned.insert(OWNER, Exact::Text(owner.to_string()));
            }
        }
        let mut changes =
            current.as_ref().map(|current| changes(current, &planned, &given)).unwrap_or_default();
        let (thresholds, of_thresholds) =
            thresholds::plan(session, &name, current.is_some(), wanted).await.map_err(in_queue)?;
        changes.extend(of_thresholds);
        let (planned, contents) = (Some(planned), String::new());
        Ok(Self { name, given, current, etag, planned, changes, thresholds, contents })
    }

    pub(super) fn follows_now(&self) -> Option<&str> {
        self.current.as_ref().and_then(followed)
    }

    pub(super) fn will_follow(&self) -> Option<&str> {
        self.planned.as_ref().and_then(followed)
    }

    /// Whether the queue exists and can't be followed afterwards.
    pub(super) fn ends_followers(&self) -> bool {
        let Some(planned) = &self.planned else { return true };
        self.current.is_some() && !can_be_followed(planned)
    }

    pub(super) fn action(&self) -> Action {
        match (&self.current, &self.planned) {
            (_, None) => Action::Delete,
            (None, Some(_)) => Action::Create,
            (Some(_), Some(_)) if self.changes.is_empty() => Action::Keep,
            (Some(_), Some(_)) => Action::Change,
        }
    }

    /// Makes the change.
    pub(super) async fn apply(&self, session: &Session) -> Result<(), Failure> {
        let Some(planned) = self.planned.as_ref().filter(|_| self.action() != Action::Keep) else {
            return self.apply_settings(session).await;
        };
        self.apply_settings(session).await?;
        if self.thresholds.is_empty() {
            return Ok(());
        }
        let etag = match self.etag.clone().filter(|_| self.current.as_ref() == Some(planned)) {
            Some(etag) => etag,
            None => self.etag_of(session, planned).await?,
        };
        self.thresholds.apply(session, &self.name, &etag).await
    }

    /// The entity tag of these settings, which the queue has now.
    async fn etag_of(&self, session: &Session, settings: &Members) -> Result<String, Failure> {
        let call = session.on_queue("plan_settings", &self.name)?.json(&self.given).repeatable();
        let present: SettingsPlan = session.client.fetch(call).await?;
        let etag = present.etag.filter(|_| present.current.as_ref() == Some(settings));
        etag.ok_or_else(|| self.thresholds.lost())
    }

    async fn apply_settings(&self, session: &Session) -> Result<(), Failure> {
        let etag = self.etag.as_deref().unwrap_or("*");
        let call = match self.action() {
            Action::Keep => return Ok(()),
            Action::Create => {
                session.on_queue("put_queue", &self.name)?.json(&self.given).condition("if-none-match", "*")
            }
            // Only thresholds change.
            Action::Change if self.current == self.planned => return Ok(()),
            Action::Change => {
                let both = self.current.as_ref().zip(self.planned.as_ref());
                let patch = both.map(|(current, planned)| merge_patch(current, planned));
                session.on_queue("patch_queue", &self.name)?.json(&patch).condition("if-match", etag)
            }
            Action::Delete => {
                let call = session.on_queue("delete_queue", &self.name)?.condition("if-match", etag);
                return match session.client.send(call).await {
                    Err(error) if error.code() != Some("queue-not-found") => Err(refused(error)),
                    _ => Ok(()),
                };
            }
        };
        let changed: Changed = session.client.fetch(call).await.map_err(refused)?;
        if Some(&changed.settings) == self.planned.as_ref() {
            return Ok(());
        }
        Err(Failure::Other("the settings that the server made are not those that it had planned".to_owned()))
    }
}

/// The queue that a queue with these settings follows.
pub(super) fn followed(settings: &Members) -> Option<&str> {
    settings.get("follow")?.get("queue")?.as_str()
}

/// Whether a queue with these settings can be followed: it keeps its objects.
pub(super) fn can_be_followed(settings: &Members) -> bool {
    let has_keys_only = settings.get("mode").and_then(Exact::as_str) == Some("keys");
    !has_keys_only && settings.get("known_objects") != Some(&Exact::Bool(false))
}

/// The owner in these settings.
pub(super) fn owner_of(settings: &Members) -> Option<&str> {
    settings.get(OWNER)?.as_str()
}

/// The usual advice on a failed condition is to replace the settings in any case.
fn refused(error: deltaq_client::Error) -> Failure {
    match error.code() {
        Some("precondition-failed") => Failure::Other(with_causes(&error)),
        _ => Failure::Client(error),
    }
}
