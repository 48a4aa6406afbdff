//! Decisions on head starts: how much earlier than it did a change counts as arrived.

use super::Call;
use crate::object::Object;
use crate::queue::Queue;
use crate::schedule::{HeadStart, Place};
use crate::table::Entry;

impl Queue {
    /// The head start of the change of a call with this object.
    #[inline]
    pub(super) fn head_start_of_call(&self, call: &Call, object: Option<&Object>) -> HeadStart {
        let set = || self.state().config.order.as_ref();
        call.head_start.or_else(|| set().map(|order| order.head_start(object))).unwrap_or_default()
    }

    /// The head start of a change of a list.
    pub(super) fn head_start_of_list(&self, is_initial: bool, object: &Object) -> HeadStart {
        let Some(order) = &self.state().config.order else { return HeadStart::NONE };
        order.initial_list.filter(|_| is_initial).unwrap_or_else(|| order.head_start(Some(object)))
    }

    /// The head start of a Resync of an object.
    pub(super) fn head_start_of_resync(&self, object: &Object) -> HeadStart {
        let Some(order) = &self.state().config.order else { return HeadStart::NONE };
        order.resync.unwrap_or_else(|| order.head_start(Some(object)))
    }
}

/// Whether a change with this head start moves a key that waits anyway.
pub(super) fn improves(entry: &Entry, head_start: HeadStart) -> bool {
    head_start > entry.schedule_state.head_start() && !matches!(entry.schedule_state.place, Place::Parked)
}
