//! The objects that a watch has selected by their labels: an object that leaves the selection is an event DELETED, one that enters it is ADDED.
//!
//! A watch that goes on from a version has one row for all changes of a key since. What the client has of the key is not certain: an object
//! may have been selected only in between, and a list whose parts were read one after the other has some objects as they were after its
//! version. An object that has left the selection since is therefore ADDED before it is DELETED, unless it is shown by this watch.

use std::collections::{HashMap, HashSet};

use deltaq_engine::birth::Birth;
use deltaq_engine::feed::{Row, RowKind};
use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use deltaq_engine::object::Object;
use deltaq_engine::view::View;
use deltaq_service::{FormerObject, FormerObjects, KeyFilter, PageLimit};

use super::super::options::Selectors;
use super::super::resource::Resource;
use super::super::selector::labels_of;
use crate::http::gate::limits::PAGE_BYTES_MAX;
use crate::http::status::{Refused, Status};

/// Number of objects that are read at a time.
const OBJECTS_AT_A_TIME: usize = 1_000;
/// Approximate memory of a selected object, whose text the queue has as well, in bytes.
const OBJECT_BYTES: usize = 80;
/// A change as a client sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'r> {
    pub(super) kind: &'static str,
    pub(super) key: &'r Key,
    pub(super) version: Rv,
    pub(super) birth: Option<Birth>,
    /// The object; `None` if the last object of a deleted key is no longer kept.
    pub(super) object: Option<&'r str>,
}

impl<'r> Seen<'r> {
    /// The change of a watch of all objects.
    pub(super) fn of(row: &'r Row) -> Self {
        let kind = match row.kind {
            RowKind::Added => "ADDED",
            RowKind::Updated => "MODIFIED",
            RowKind::Deleted => "DELETED",
        };
        let object = row.object.as_ref().map(Object::as_str);
        Self { kind, key: &row.key, version: row.rv, birth: row.birth, object }
    }
}

/// The selected objects that the client has.
#[derive(Debug)]
pub(super) struct Selected {
    objects: HashMap<Key, Object>,
    /// The former objects of the present page, which its events show.
    left: Vec<Object>,
    /// The version of the last row.
    reached: Rv,
    /// While the watch goes on from a version: that version. The former states of keys that have changed since must be looked up.
    resumes: Option<Rv>,
    /// Keys that were there at that version, have left since, and may have come back as new ones.
    returned: HashSet<Key>,
}

impl Selected {
    /// The selection of a watch of everything, or of one that goes on after a version.
    pub(super) async fn begin(
        resource: &Resource,
        selectors: &Selectors,
        keys: &KeyFilter,
        after: Option<Rv>,
    ) -> Result<Self, Refused> {
        let mut objects = HashMap::new();
        let mut next = None;
        while let Some(since) = after {
            let limit = PageLimit { entries: OBJECTS_AT_A_TIME, bytes: PAGE_BYTES_MAX };
            let (handle, view) = (&resource.handle, resource.view());
            let page = handle.listed_objects(view, keys, (next.take(), None), limit).await?;
            let unchanged = page.entries.into_iter().filter(|listed| listed.object.rv <= since);
            for listed in unchanged.filter(|listed| selectors.include(resource, listed)) {
                objects.insert(listed.object.key, listed.object.object);
            }
            tokio::task::yield_now().await;
            match page.next {
                Some(key) => next = Some(key.as_str().to_owned()),
                None => break,
            }
        }
        let returned = match after {
            Some(since) => resource.handle.left_since(resource.view(), since).await?,
            None => HashSet::new(),
        };
        Ok(Self { objects, left: Vec::new(), reached: after.unwrap_or(Rv::ZERO), resumes: after, returned })
    }

    /// Approximate size of the selection, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.objects.len() * OBJECT_BYTES
    }

    /// The events for a page of rows. `is_last` says that the client has caught up with this page.
    pub(super) async fn note<'r>(
        &'r mut self,
        resource: &Resource,
        selectors: &Selectors,
        rows: &[&'r Row],
        is_last: bool,
    ) -> Result<Vec<Seen<'r>>, Refused> {
        self.left.clear();
        let mut former = self.look_up(resource, selectors, rows).await?;
        let mut changes = Vec::with_capacity(rows.len());
        for row in rows {
            let before = match self.objects.remove(&row.key) {
                Some(object) => Before::Shown(object),
                None => former.remove(&row.key).map_or(Before::Unselected, Before::Past),
            };
            let after = row.object.as_ref().filter(|_| row.kind != RowKind::Deleted);
            let after = after.filter(|object| selectors.include_object(object.as_str()));
            if let Some(object) = after {
                self.objects.insert(row.key.clone(), object.clone());
            }
            let reached = self.reached;
            self.reached = row.rv;
            // An object that leaves the selection is shown as it was in it.
            let (change, left) = match (before, after) {
                (Before::Unselected, None) => continue,
                (Before::Unselected, Some(_)) => (Change::Entered, None),
                (Before::Past(former), Some(_)) if !former.was_wanted => (Change::Entered, None),
                (Before::Shown(_) | Before::Past(_), Some(_)) => (Change::Stayed, None),
                (Before::Shown(object), None) => (Change::Left, Some(object)),
                // The versions of a watch do not go back, so that a client can go on from each of them.
                (Before::Past(former), None) => (Change::Passed(former.rv.max(reached)), Some(former.object)),
            };
            changes.push((*row, change));
            self.left.extend(left);
        }
        if is_last {
            self.resumes = None;
            self.returned = HashSet::new();
        }
        let mut left = self.left.iter().map(Object::as_str);
        let mut seen = Vec::with_capacity(changes.len());
        for (row, change) in changes {
            let shown = Seen::of(row);
            match change {
                Change::Entered => seen.push(Seen { kind: "ADDED", ..shown }),
                Change::Stayed => seen.push(Seen { kind: "MODIFIED", ..shown }),
                Change::Left => seen.push(Seen { kind: "DELETED", object: left.next(), ..shown }),
                Change::Passed(version) => {
                    let shown = Seen { object: left.next(), ..shown };
                    seen.push(Seen { kind: "ADDED", version, ..shown });
                    seen.push(Seen { kind: "DELETED", ..shown });
                }
            }
        }
        Ok(seen)
    }

    /// The objects that the client has of the keys of rows, as far as they must be looked up.
    async fn look_up(
        &self,
        resource: &Resource,
        selectors: &Selectors,
        rows: &[&Row],
    ) -> Result<HashMap<Key, FormerObject>, Refused> {
        let Some(since) = self.resumes else { return Ok(HashMap::new()) };
        let is_unknown = |row: &&&Row| {
            let was_there = row.kind != RowKind::Added || self.returned.contains(&row.key);
            was_there && !self.objects.contains_key(&row.key)
        };
        let unknown = rows.iter().filter(is_unknown).map(|row| (row.key.clone(), row.rv));
        let unknown: HashMap<Key, Rv> = unknown.collect();
        if unknown.is_empty() {
            return Ok(HashMap::new());
        }
        let labels = selectors.labels.clone();
        // A client that has listed in pages may have a state that is newer than the version from which it goes on.
        let selects = move |object: &Object| labels.matches(&labels_of(object.as_str()));
        let former = match resource.view() {
            View::Latest => resource.handle.former_objects(unknown, since, selects).await?,
            // The journal has the object that a consumer has acknowledged only as a part of others.
            View::Known => {
                FormerObjects { unknown: unknown.into_keys().collect(), ..FormerObjects::default() }
            }
        };
        if !former.unknown.is_empty() {
            let message = "too old resource version: the former labels of an object are not kept";
            return Err(Status::expired(message).into());
        }
        Ok(former.wanted)
    }
}

/// What the client may have of a key before a row.
enum Before {
    /// No object.
    Unselected,
    /// An object that it was shown.
    Shown(Object),
    /// An object that was selected when the watch went on, or since.
    Past(FormerObject),
}

/// What a row does to the selection.
enum Change {
    /// The object is new in it.
    Entered,
    /// The object was in it and still is.
    Stayed,
    /// The object is no longer in it.
    Left,
    /// The object was in it with this version at the latest, and is no longer.
    Passed(Rv),
}
