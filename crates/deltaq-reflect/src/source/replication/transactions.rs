//! Puts the messages of the stream together: which changes are new, and where a whole list is needed.
//!
//! Invariant: a change is applied once. Transactions that the copy has seen, and what precedes the point that was reached, are left out.

use super::pgoutput::{Change, Column, Lsn, Message};
use super::snapshot::Seen;

/// What follows from a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing.
    Nothing,
    /// A change of a row, and the point behind it.
    Change(Change, Point),
    /// The transaction is complete. Whether it had any change that was not left out.
    Commit { end: Lsn, xid: u32, is_new: bool },
    /// A list is needed.
    List(Reason),
}

/// A point of the stream: behind a transaction, and behind some changes of the next one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Point {
    /// The end of the last transaction that is complete.
    pub(super) reached: Lsn,
    /// How many changes of the next one precede the point. The log always has them in the same order.
    pub(super) changes: u64,
}

/// Why a list is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// The columns of the stream are not those of the copy.
    Columns,
    /// The catalogue has changed since the copy.
    Shape,
    /// The stream has another table than the copy.
    Table,
    /// The table was emptied.
    Truncated,
}

impl Reason {
    /// The reason for the log.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Columns => "the log has other columns of the table",
            Self::Shape => {
                "the table was rewritten, or its columns, its partitions, its identity or its publication have changed"
            }
            Self::Table => "the publication has another table",
            Self::Truncated => "the table was truncated",
        }
    }
}

/// The state of the stream.
#[derive(Debug)]
pub(super) struct Transactions {
    /// The columns of the copy.
    columns: Vec<Column>,
    /// What the copy has seen.
    seen: Seen,
    /// The end of the last transaction that was read.
    reached: Lsn,
    /// How many changes of the next transaction were applied already, and are left out.
    applied: u64,
    current: Option<Current>,
    /// The table.
    id: u32,
    /// Whether its columns are those of the copy, once the stream has named them.
    has_same_columns: Option<bool>,
}

#[derive(Debug)]
struct Current {
    xid: u32,
    is_new: bool,
    /// How many changes of it were read.
    changes: u64,
}

impl Transactions {
    pub(super) fn new(id: u32, columns: Vec<Column>, seen: Seen, point: Point) -> Self {
        let Point { reached, changes: applied } = point;
        Self { columns, seen, reached, applied, current: None, id, has_same_columns: None }
    }

    /// The end of the last transaction that is complete.
    pub(super) const fn reached(&self) -> Lsn {
        self.reached
    }

    /// What the copy has seen.
    pub(super) const fn seen(&self) -> &Seen {
        &self.seen
    }

    /// Begins to read again, behind this point.
    pub(super) const fn return_to(&mut self, point: Point) {
        (self.reached, self.applied) = (point.reached, point.changes);
        (self.current, self.has_same_columns) = (None, None);
    }

    /// The next step. A message outside of a transaction, or before that of its relation, is not valid.
    pub(super) fn take(&mut self, message: Message) -> Option<Step> {
        Some(match message {
            Message::Begin { commit, xid } => {
                let is_new = commit >= self.reached && !self.seen.has(commit, xid);
                self.current = Some(Current { xid, is_new, changes: 0 });
                Step::Nothing
            }
            Message::Commit { end } => {
                let Current { xid, is_new, .. } = self.current.take()?;
                if end > self.reached {
                    (self.reached, self.applied) = (end, 0);
                }
                Step::Commit { end, xid, is_new }
            }
            Message::Relation { id, columns } => {
                // The stream also names the partition that has the row.
                if id == self.id {
                    self.has_same_columns = Some(columns == self.columns);
                }
                Step::Nothing
            }
            Message::Change { relations, change } => {
                let current = self.current.as_mut().filter(|current| current.is_new);
                let Some(current) = current else { return self.current.is_some().then_some(Step::Nothing) };
                if !relations.contains(&self.id) {
                    return Some(Step::List(Reason::Table));
                }
                let has_same_columns = self.has_same_columns?;
                current.changes += 1;
                let point = Point { reached: self.reached, changes: current.changes };
                match change {
                    Change::Truncate => Step::List(Reason::Truncated),
                    _ if !has_same_columns => Step::List(Reason::Columns),
                    _ if point.changes <= self.applied => Step::Nothing,
                    change => Step::Change(change, point),
                }
            }
            Message::Other => Step::Nothing,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::pgoutput::Cell;
    use super::super::snapshot::Snapshot;
    use super::*;

    fn column(name: &str) -> Column {
        Column { name: name.to_owned(), type_id: 25, modifier: -1 }
    }

    fn insert() -> Message {
        Message::Change { relations: vec![1], change: Change::Insert(vec![Cell::Null]) }
    }

    /// The steps of one transaction.
    fn steps(of: &mut Transactions, xid: u32, commit: u64, changes: Vec<Message>) -> Vec<Step> {
        let begin = Message::Begin { commit: Lsn(commit), xid };
        let all = [vec![begin], changes, vec![Message::Commit { end: Lsn(commit + 10) }]].concat();
        let steps = all.into_iter().map(|message| of.take(message).expect("valid"));
        steps.filter(|step| *step != Step::Nothing).collect()
    }

    fn new() -> Transactions {
        let seen = Seen { snapshot: Snapshot::parse("10:13:11").unwrap(), before: Lsn(1_000) };
        Transactions::new(1, vec![column("a")], seen, Point { reached: Lsn(100), changes: 0 })
    }

    fn relation() -> Message {
        Message::Relation { id: 1, columns: vec![column("a")] }
    }

    /// The insert, and the point behind it.
    fn change(reached: u64, changes: u64) -> Step {
        Step::Change(Change::Insert(vec![Cell::Null]), Point { reached: Lsn(reached), changes })
    }

    fn commit(end: u64, xid: u32, is_new: bool) -> Step {
        Step::Commit { end: Lsn(end), xid, is_new }
    }

    #[test]
    fn a_partition_does_not_replace_its_table() {
        let mut of = new();
        let partition = Message::Relation { id: 2, columns: vec![column("b"), column("a")] };
        let found = steps(&mut of, 20, 300, vec![relation(), partition, insert()]);
        assert_eq!(found.first(), Some(&change(100, 1)));
    }

    #[test]
    fn what_the_copy_has_seen_is_left_out() {
        let mut of = new();
        assert_eq!(steps(&mut of, 12, 200, vec![relation(), insert()]), [commit(210, 12, false)]);
        assert_eq!(steps(&mut of, 11, 300, vec![insert()]), [change(210, 1), commit(310, 11, true)]);
        assert_eq!(of.reached(), Lsn(310));
        // The same transaction again, after a lost connection.
        of.return_to(Point { reached: Lsn(310), changes: 0 });
        assert_eq!(steps(&mut of, 11, 300, vec![relation(), insert()]), [commit(310, 11, false)]);
        assert_eq!(
            steps(&mut of, 13, 310, vec![insert(), insert()]),
            [change(310, 1), change(310, 2), commit(320, 13, true)]
        );
        // A number that the copy has seen, long after the copy: the numbers of transactions begin again.
        assert_eq!(steps(&mut of, 12, 1_000, vec![insert()]).len(), 2);
    }

    #[test]
    fn changes_that_were_applied_are_left_out() {
        let mut of = new();
        let three = || vec![relation(), insert(), insert(), insert()];
        assert_eq!(steps(&mut of, 20, 300, three()).len(), 4);
        of.return_to(Point { reached: Lsn(100), changes: 2 });
        // Transactions before the point, and those that the copy has seen, do not count.
        assert_eq!(steps(&mut of, 18, 80, three()), [commit(90, 18, false)]);
        assert_eq!(steps(&mut of, 20, 300, three()), [change(100, 3), commit(310, 20, true)]);
        assert_eq!(steps(&mut of, 21, 310, three()).len(), 4);
    }

    #[test]
    fn other_columns_and_a_truncate_need_a_list() {
        let mut of = new();
        let other = || Message::Relation { id: 1, columns: vec![column("a"), column("b")] };
        // The copy has seen the change, with the columns of its time.
        assert_eq!(steps(&mut of, 9, 200, vec![other(), insert()]).len(), 1);
        let listed = steps(&mut of, 20, 300, vec![other(), insert()]);
        assert_eq!(listed.first(), Some(&Step::List(Reason::Columns)));
        let truncate = || Message::Change { relations: vec![2, 1], change: Change::Truncate };
        assert_eq!(steps(&mut of, 9, 400, vec![truncate()]).len(), 1);
        let listed = steps(&mut of, 21, 500, vec![relation(), truncate()]);
        assert_eq!(listed.first(), Some(&Step::List(Reason::Truncated)));
        let other_table = Message::Change { relations: vec![2], change: Change::Insert(vec![Cell::Null]) };
        let listed = steps(&mut of, 22, 600, vec![relation(), other_table]);
        assert_eq!(listed.first(), Some(&Step::List(Reason::Table)));
    }

    #[test]
    fn what_has_no_place_is_refused() {
        assert_eq!(new().take(insert()), None);
        assert_eq!(new().take(Message::Commit { end: Lsn(1) }), None);
        let mut of = new();
        of.take(Message::Begin { commit: Lsn(200), xid: 20 });
        assert_eq!(of.take(insert()), None);
    }
}
