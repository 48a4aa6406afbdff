//! The initial events of a watch, which end with a mark. Some clients take a deletion among them for a fault, and drop it, so deletions
//! come after the mark.

use std::collections::HashSet;
use std::hash::BuildHasher as _;

use deltaq_engine::feed::{Row, RowKind};
use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use foldhash::fast::RandomState;

/// The initial events, until the client has caught up.
#[derive(Debug, Default)]
pub(super) struct Initial {
    /// The hashes of the keys that the client has.
    sent: HashSet<u64, RandomState>,
    hasher: RandomState,
    /// Whether all objects were sent.
    pub(super) is_complete: bool,
    /// The first deletion that was held back.
    first_left: Option<Rv>,
    /// The deletions, and the keys that were born after the first one: a client that begins again at the mark must learn of a deletion of
    /// such a key, which the view did not have at the mark.
    late: Vec<Row>,
}

impl Initial {
    /// The version of the mark: the client has everything up to it. `reached` is that of the last page.
    pub(super) fn version(&self, reached: Rv) -> Rv {
        match self.first_left.filter(|_| !self.late.is_empty()) {
            Some(left) => Rv::new(left.get().saturating_sub(1)),
            None => reached,
        }
    }

    /// Whether the client has caught up with everything.
    pub(super) const fn is_over(&self) -> bool {
        self.is_complete && self.late.is_empty()
    }

    /// What was held back, once the mark was sent.
    pub(super) fn late(&mut self) -> Option<Vec<Row>> {
        if !self.is_complete || self.late.is_empty() {
            return None;
        }
        let late = std::mem::take(&mut self.late);
        Some(late.into_iter().filter_map(|row| self.known(row)).collect())
    }

    /// The rows of a page that are sent at once. `is_last` ends the list.
    pub(super) fn note(&mut self, rows: Vec<Row>, is_last: bool) -> Vec<Row> {
        let mut now = Vec::with_capacity(rows.len());
        for row in rows {
            let is_younger = |left: Rv| row.birth.is_some_and(|birth| birth.rv > left);
            if row.kind == RowKind::Deleted {
                self.first_left.get_or_insert(row.rv);
                self.late.push(row);
            } else if self.first_left.is_some_and(is_younger) {
                self.late.push(row);
            } else {
                self.sent.insert(self.hash(&row.key));
                now.push(row);
            }
        }
        self.is_complete = is_last;
        now
    }

    /// The row as the client sees it; `None` for the deletion of a key that it does not have.
    fn known(&mut self, row: Row) -> Option<Row> {
        let hash = self.hash(&row.key);
        match row.kind {
            RowKind::Deleted => self.sent.remove(&hash).then_some(row),
            RowKind::Added | RowKind::Updated => {
                let kind = if self.sent.insert(hash) { RowKind::Added } else { RowKind::Updated };
                Some(Row { kind, ..row })
            }
        }
    }

    fn hash(&self, key: &Key) -> u64 {
        self.hasher.hash_one(key.as_str())
    }
}

#[cfg(test)]
mod tests {
    use deltaq_engine::birth::Birth;
    use deltaq_engine::object::Object;
    use deltaq_engine::time::Time;

    use super::RowKind::{Added, Deleted};
    use super::*;

    /// A row of a key that was born with the event `born`.
    fn row(kind: RowKind, key: &str, rv: u64, born: u64) -> Row {
        let (key, object) = (Key::new(key).unwrap(), Some(Object::empty()));
        let birth = Some(Birth { rv: Rv::new(born), at: Time::default() });
        Row { kind, key, rv: Rv::new(rv), object, source: None, final_state_unknown: false, birth }
    }

    fn shown(rows: &[Row]) -> Vec<String> {
        rows.iter().map(|row| format!("{:?} {}", row.kind, row.key)).collect()
    }

    #[test]
    fn deletions_come_after_the_mark() {
        let mut initial = Initial::default();
        let page = vec![row(Added, "a", 1, 1), row(Added, "b", 2, 2)];
        assert_eq!(shown(&initial.note(page, false)), ["Added a", "Added b"]);
        assert!(!initial.is_complete && initial.late().is_none());
        // c leaves before it was sent, a after that; b and d have changed; e is new, and so is a.
        let page = vec![
            row(Deleted, "c", 11, 3),
            row(Deleted, "a", 12, 1),
            row(Added, "b", 13, 2),
            row(Added, "d", 14, 4),
            row(Added, "e", 15, 15),
            row(Added, "a", 16, 16),
        ];
        assert_eq!(shown(&initial.note(page, true)), ["Added b", "Added d"]);
        assert_eq!((initial.is_complete, initial.is_over()), (true, false));
        assert_eq!(initial.version(Rv::new(16)), Rv::new(10), "the client has no deletion yet");
        assert_eq!(shown(&initial.late().expect("changes")), ["Deleted a", "Added e", "Added a"]);
        assert!(initial.is_over());
    }

    #[test]
    fn without_deletions_the_client_has_the_newest_version() {
        let mut initial = Initial::default();
        let page = vec![row(Added, "a", 1, 1), row(Added, "b", 12, 12)];
        assert_eq!(shown(&initial.note(page, true)), ["Added a", "Added b"]);
        assert!(initial.is_over());
        assert_eq!(initial.version(Rv::new(12)), Rv::new(12));
    }
}
