//! Pruning: removing the members that pointers name.
//!
//! Only members of objects are removed. Elements of arrays are not removed, because later elements would move to
//! their positions and be removed the next time. A pointer may pass through an array to members of its elements.

use deltaq_engine::pointer::Pointer;
use smallvec::SmallVec;

use super::document::{Document, Kind};

/// Pointers, relative to a location in a document.
///
/// Invariant: each pointer has at least one token left.
#[derive(Clone, Debug, Default)]
pub(super) struct Paths<'p>(SmallVec<[&'p [Box<str>]; 4]>);

impl<'p> Paths<'p> {
    /// All pointers, relative to the root.
    pub(super) fn of(pointers: &'p [Pointer]) -> Self {
        Self(pointers.iter().map(|pointer| pointer.tokens.as_slice()).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a pointer selects the member `name` at this location.
    pub(super) fn end_at(&self, name: &str) -> bool {
        self.0.iter().any(|tokens| matches!(tokens, [last] if **last == *name))
    }

    /// The pointers that continue through `name`.
    pub(super) fn below(&self, name: &str) -> Self {
        let below = self.0.iter().filter_map(|tokens| match tokens.split_first() {
            Some((first, rest)) if **first == *name && !rest.is_empty() => Some(rest),
            _ => None,
        });
        Self(below.collect())
    }

    /// The pointers that continue through the element at `index`.
    pub(super) fn below_element(&self, index: usize) -> Self {
        if self.is_empty() { Self::default() } else { self.below(&index.to_string()) }
    }
}

impl Document<'_> {
    /// Removes the members that `paths` select.
    pub(super) fn remove(&mut self, paths: &Paths<'_>) {
        if paths.is_empty() {
            return;
        }
        let mut changed = false;
        match &mut self.kind {
            Kind::Object(members) => {
                let before = members.len();
                members.retain(|member| !paths.end_at(&member.name));
                changed |= members.len() < before;
                for member in members {
                    member.value.remove(&paths.below(&member.name));
                    changed |= member.value.is_changed();
                }
            }
            Kind::Array(elements) => {
                for (index, element) in elements.iter_mut().enumerate() {
                    element.remove(&paths.below_element(index));
                    changed |= element.is_changed();
                }
            }
            Kind::Scalar => {}
        }
        if changed {
            self.set_changed();
        }
    }
}
