//! The numbers that a queue has skipped. After an unclean end, the numbers of events skip ahead of those that the queue may have lost.
//!
//! A reader gets only durable events, so a version in a gap is the version of an event that was durable and is lost: the database was
//! rolled back, or a backup was restored.

use std::collections::BTreeMap;

use crate::id::Rv;

/// Ranges of skipped numbers.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// The event before a gap, by the event after it.
    before: BTreeMap<Rv, Rv>,
}

impl Gaps {
    /// Notes two consecutive events.
    pub(super) fn note(&mut self, before: Rv, after: Rv) {
        if after > before.next() {
            self.before.insert(after, before);
        }
    }

    pub(super) fn add(&mut self, more: Self) {
        self.before.extend(more.before);
    }

    /// The event before the gap that has this number.
    pub(super) fn before(&self, rv: Rv) -> Option<Rv> {
        let (after, before) = self.before.range(rv..).next()?;
        (*before < rv && rv < *after).then_some(*before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_skipped_numbers_are_in_a_gap() {
        let mut gaps = Gaps::default();
        for [before, after] in [[3, 4], [4, 10], [10, 11], [20, 22]] {
            gaps.note(Rv::new(before), Rv::new(after));
        }
        let found = |rv| gaps.before(Rv::new(rv)).map(Rv::get);
        for rv in [0, 3, 4, 10, 11, 15, 20, 22, 23] {
            assert_eq!(found(rv), None, "{rv}");
        }
        assert_eq!([found(5), found(9), found(21)], [Some(4), Some(4), Some(20)]);
    }
}
