//! The objects that a watch has selected by their labels: an object that leaves the selection is an event DELETED, one that enters it is ADDED.

use std::collections::HashMap;

use deltaq_engine::birth::Birth;
use deltaq_engine::event::{Appended, EventKind};
use deltaq_engine::feed::{Row, RowKind};
use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use deltaq_engine::object::Object;
use deltaq_engine::view::View;
use deltaq_service::{Handle, KeyFilter, PageLimit};

use super::super::options::Selectors;
use super::super::resource::Resource;
use crate::http::gate::limits::PAGE_BYTES_MAX;
use crate::http::status::{Refused, Status};

/// Maximum number of objects whose former state is looked up when a watch goes on. With more changes, a client that lists again is faster.
const LOOKUPS_MAX: usize = 100;
/// Number of objects that are read at a time.
const OBJECTS_AT_A_TIME: usize = 5_000;
/// Number of events of a key that are read at a time to find its former state.
const EVENTS_AT_A_TIME: usize = 10;

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
    /// While the watch goes on from a version: that version. The former states of keys that have changed since must be looked up.
    resumes: Option<Rv>,
    lookups: usize,
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
            match page.next {
                Some(key) => next = Some(key.as_str().to_owned()),
                None => break,
            }
        }
        Ok(Self { objects, left: Vec::new(), resumes: after, lookups: 0 })
    }

    /// The events of a page of rows. `is_last` ends the changes that came before the watch went on.
    pub(super) async fn note<'r>(
        &'r mut self,
        resource: &Resource,
        selectors: &Selectors,
        rows: &[&'r Row],
        is_last: bool,
    ) -> Result<Vec<Seen<'r>>, Refused> {
        self.left.clear();
        let mut kinds = Vec::with_capacity(rows.len());
        for row in rows {
            let before = match self.objects.remove(&row.key) {
                None => self.former(resource, selectors, row).await?,
                known => known,
            };
            let after = row.object.as_ref().filter(|_| row.kind != RowKind::Deleted);
            let after = after.filter(|object| selectors.include_object(object.as_str()));
            if let Some(object) = after {
                self.objects.insert(row.key.clone(), object.clone());
            }
            let kind = match (&before, after) {
                (None, None) => None,
                (None, Some(_)) => Some("ADDED"),
                (Some(_), Some(_)) => Some("MODIFIED"),
                (Some(_), None) => Some("DELETED"),
            };
            // An object that leaves the selection is shown as it was in it.
            let left = before.filter(|_| kind == Some("DELETED"));
            kinds.push((kind, left.is_some()));
            self.left.extend(left);
        }
        if is_last {
            self.resumes = None;
        }
        let mut left = self.left.iter();
        let seen = rows.iter().zip(kinds).filter_map(|(row, (kind, has_left))| {
            let shown = Seen::of(row);
            let object = if has_left { left.next().map(Object::as_str) } else { shown.object };
            Some(Seen { kind: kind?, object, ..shown })
        });
        Ok(seen.collect())
    }

    /// The selected object of a key at the version from which the watch goes on.
    async fn former(
        &mut self,
        resource: &Resource,
        selectors: &Selectors,
        row: &Row,
    ) -> Result<Option<Object>, Refused> {
        let Some(since) = self.resumes.filter(|_| row.kind != RowKind::Added) else { return Ok(None) };
        self.lookups += 1;
        let forgotten =
            || Status::expired("too old resource version: the former labels of an object are not kept");
        if self.lookups > LOOKUPS_MAX || resource.view() != View::Latest {
            return Err(forgotten().into());
        }
        let object = object_at(&resource.handle, &row.key, since).await?.ok_or_else(forgotten)?;
        Ok(Some(object).filter(|object| selectors.include_object(object.as_str())))
    }
}

/// The newest object of a key at a version; `None` if the journal does not have it any more.
async fn object_at(handle: &Handle, key: &Key, version: Rv) -> Result<Option<Object>, Refused> {
    let mut before = Some(version.next());
    while let Some(at) = before {
        let history = handle.history(key, Some(at), EVENTS_AT_A_TIME).await?;
        let appended = history.events.into_iter().find_map(|past| match past.event.kind {
            EventKind::Appended(Appended { object, .. }) => Some((object, past.is_object_lost)),
            _ => None,
        });
        if let Some((object, is_lost)) = appended {
            return Ok((!is_lost).then_some(object));
        }
        before = history.next.filter(|next| *next < at);
    }
    Ok(None)
}
