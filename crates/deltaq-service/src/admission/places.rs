//! The subschemas of a schema by location, and the targets of its references.

use std::collections::HashMap;

use deltaq_engine::pointer::Pointer;
use percent_encoding::percent_decode_str;

use super::document::Document;

/// The number of a subschema.
pub(super) type Id = usize;

/// Subschemas, numbered in the order in which they are found. They are visited through a work list, because references may form
/// long chains.
#[derive(Debug, Default)]
pub(super) struct Places<'s, 'd> {
    ids: HashMap<*const Document<'d>, Id>,
    todo: Vec<Place<'s, 'd>>,
}

/// A subschema: its number, its location, and the schema that resolves its references.
type Place<'s, 'd> = (Id, &'s Document<'d>, &'s Document<'d>);

impl<'s, 'd> Places<'s, 'd> {
    /// The number of a location, which may be new; `None` if the location does not contain an object.
    pub(super) fn id(&mut self, place: &'s Document<'d>, root: &'s Document<'d>) -> Option<Id> {
        place.members()?;
        let next = self.ids.len();
        let id = *self.ids.entry(std::ptr::from_ref(place)).or_insert(next);
        if id == next {
            self.todo.push((id, place, root_of(place, root)));
        }
        Some(id)
    }

    /// The next location that has not been visited.
    pub(super) fn next(&mut self) -> Option<Place<'s, 'd>> {
        self.todo.pop()
    }

    /// Number of locations.
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }
}

/// The schema that resolves references at `place`. A schema with an `$id` is a separate document.
pub(super) fn root_of<'s, 'd>(place: &'s Document<'d>, root: &'s Document<'d>) -> &'s Document<'d> {
    let id = place.member("$id").and_then(Document::string);
    if id.is_some_and(|id| !id.starts_with('#')) { place } else { root }
}

/// The target of a reference such as `#/$defs/item`, and the schema that resolves references there.
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
