//! The views of a queue: the sets of objects that readers list and watch.

use serde::{Deserialize, Serialize};

use super::birth::Birth;
use super::id::{Rv, Source};
use super::key::Key;
use super::object::Object;
use super::table::Entry;

/// A view of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum View {
    /// The newest accepted object of each key that is not deleted, regardless of acknowledgements.
    Latest,
    /// The known objects: those that consumers acknowledged.
    Known,
}

impl View {
    /// All views.
    pub const ALL: [Self; 2] = [Self::Latest, Self::Known];

    /// The view's name in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Latest => "latest",
            Self::Known => "known",
        }
    }
}

/// The object of a key in a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewObject {
    /// The key.
    pub key: Key,
    /// The object.
    pub object: Object,
    /// The version of the key in the view.
    pub rv: Rv,
    /// The owner of the key as of this object.
    pub owner: Option<Source>,
    /// When the key entered the view, if the queue keeps births for the view.
    pub birth: Option<Birth>,
}

/// Whether a key entered or left a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Passage {
    /// The view has the key from now on.
    Entered,
    /// The view no longer has the key.
    Left,
}

/// The version of a key in a view before and after an event. A version is the event that last changed the key in the
/// view; `None` if the view does not have the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct VersionChange {
    pub(super) before: Option<Rv>,
    pub(super) after: Option<Rv>,
}

impl VersionChange {
    /// Whether the key entered or left the view; `None` if it did neither.
    pub(super) const fn passage(self) -> Option<Passage> {
        match (self.before, self.after) {
            (None, Some(_)) => Some(Passage::Entered),
            (Some(_), None) => Some(Passage::Left),
            _ => None,
        }
    }
}

impl Entry {
    /// The version of the key in the view; `None` if the view does not have the key.
    #[must_use]
    pub fn version_in(&self, view: View) -> Option<Rv> {
        match view {
            View::Latest => (self.has_state() && !self.is_deleted()).then_some(self.latest_rv),
            View::Known => self.known.as_ref().map(|known| known.rv),
        }
    }

    /// The owner of the key in the view.
    #[must_use]
    pub fn owner_in(&self, view: View) -> Option<&Source> {
        match view {
            View::Latest => self.owner(),
            View::Known => self.known.as_ref()?.owner.as_ref(),
        }
    }

    /// The object of the key in the view, without its birth; `None` if the view does not have the key.
    #[must_use]
    pub fn object_in(&self, view: View) -> Option<ViewObject> {
        let rv = self.version_in(view)?;
        let object = match view {
            View::Latest => self.newest_object()?,
            View::Known => &self.known.as_ref()?.object,
        };
        let owner = self.owner_in(view).cloned();
        Some(ViewObject { key: self.key.clone(), object: object.clone(), rv, owner, birth: None })
    }
}

/// The views that a key entered or left with an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ViewChanges {
    /// The change of the view `latest`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest: Option<Passage>,
    /// The change of the view `known`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known: Option<Passage>,
    /// The birth of the key, if it left the view that clients of Kubernetes read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub birth: Option<Birth>,
}

impl ViewChanges {
    /// The change of one view.
    #[must_use]
    pub const fn of(&self, view: View) -> Option<Passage> {
        match view {
            View::Latest => self.latest,
            View::Known => self.known,
        }
    }
}
