//! Finds the event up to which all changes are acknowledged.

use std::ops::Bound;

use super::id::Rv;
use super::key::Key;
use super::queue::Queue;

impl Queue {
    /// The newest event such that every change up to it is acknowledged or belongs to a parked key.
    #[must_use]
    pub fn acknowledged_up_to(&self) -> Rv {
        let oldest = self.state().oldest_change();
        oldest.map_or(self.state().rv, |oldest| Rv::new(oldest.rv.get().saturating_sub(1)))
    }

    /// Examines the next `limit` parked keys after `after`, and counts those with an unacknowledged change up to
    /// `version`. Returns the count and the last examined key, or `None` at the end of the parked keys.
    #[must_use]
    pub fn count_parked(&self, version: Rv, after: Option<&Key>, limit: usize) -> (usize, Option<Key>) {
        let schedule = &self.state().schedule;
        if version >= self.state().rv && after.is_none() {
            return (schedule.parked_len(), None);
        }
        let from = after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.as_str()));
        let (mut count, mut examined, mut last) = (0, 0, None);
        for (key, slot) in schedule.parked_from(from).take(limit) {
            let oldest = self.state().entry(slot).schedule_state.oldest_change();
            count += usize::from(oldest.is_some_and(|oldest| oldest.rv <= version));
            (examined, last) = (examined + 1, Some(key));
        }
        (count, last.filter(|_| examined == limit).cloned())
    }
}
