//! Where the subschemas of a schema are, and where its references lead.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;

use super::document::Document;
use crate::engine::key::Pointer;

/// The number of a subschema.
pub(super) type Id = usize;

/// Subschemas, numbered as they are found. They are looked at by a list of what is left to do, since references may make
/// long chains.
#[derive(Debug, Default)]
pub(super) struct Places<'s, 'd> {
    ids: HashMap<*const Document<'d>, Id>,
    todo: Vec<Place<'s, 'd>>,
}

/// A subschema: its number, its place, and the schema that references in it go by.
type Place<'s, 'd> = (Id, &'s Document<'d>, &'s Document<'d>);

impl<'s, 'd> Places<'s, 'd> {
    /// The number of a place, which may be new; `None` if it is no object.
    pub(super) fn id(&mut self, place: &'s Document<'d>, root: &'s Document<'d>) -> Option<Id> {
        place.members()?;
        let next = self.ids.len();
        let id = *self.ids.entry(std::ptr::from_ref(place)).or_insert(next);
        if id == next {
            self.todo.push((id, place, root_of(place, root)));
        }
        Some(id)
    }

    /// A place that was not looked at yet.
    pub(super) fn next(&mut self) -> Option<Place<'s, 'd>> {
        self.todo.pop()
    }

    /// How many were found.
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }
}

/// The schema that references at `place` go by: one with an `$id` is a document of its own.
pub(super) fn root_of<'s, 'd>(place: &'s Document<'d>, root: &'s Document<'d>) -> &'s Document<'d> {
    let id = place.member("$id").and_then(Document::string);
    if id.is_some_and(|id| !id.starts_with('#')) { place } else { root }
}

/// The place that a reference such as `#/$defs/item` leads to, and the schema that those in it go by.
pub(super) fn resolve<'s, 'd>(
    root: &'s Document<'d>,
    reference: &str,
) -> Option<(&'s Document<'d>, &'s Document<'d>)> {
    let path = percent_decode_str(reference.strip_prefix('#')?).decode_utf8().ok()?;
    if path.is_empty() {
        return Some((root, root));
    }
    let pointer = Pointer::parse(&path, false).ok()?;
    let mut found = (root, root);
    for token in &pointer.tokens {
        let (place, root) = found;
        let next = match place.elements() {
            Some(elements) => elements.get(token.parse::<usize>().ok()?)?,
            None => place.member(token)?,
        };
        found = (next, root_of(next, root));
    }
    Some(found)
}
