//! Puts the messages of the stream together: which changes are new, and where a whole list is needed.
//!
//! Invariant: a transaction is applied once. Those that the copy has seen, and those that end before the position that
//! was reached, are left out.

use super::pgoutput::{Change, Column, Lsn, Message};
use super::snapshot::Snapshot;

/// What follows from a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing.
    Nothing,
    /// A change of a row.
    Change(Change),
    /// The transaction is complete. Whether it had any change that was not left out.
    Commit { end: Lsn, xid: u32, is_new: bool },
    /// A list is needed.
    List(Reason),
}

/// Why a list is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// The columns of the stream are not those of the copy.
    Columns,
    /// The catalogue has other columns, partitions or another identity than at the time of the copy.
    Shape,
    /// The table was emptied.
    Truncated,
}

impl Reason {
    /// The reason for the log.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Columns => "the log has other columns of the table",
            Self::Shape => "the columns, the partitions or the identity of the table have changed",
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
    snapshot: Snapshot,
    /// The end of the last transaction that was applied.
    reached: Lsn,
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
}

impl Transactions {
    pub(super) fn new(id: u32, columns: Vec<Column>, snapshot: Snapshot, reached: Lsn) -> Self {
        Self { columns, snapshot, reached, current: None, id, has_same_columns: None }
    }

    /// The end of the last transaction that is complete.
    pub(super) const fn reached(&self) -> Lsn {
        self.reached
    }

    /// What the copy has seen.
    pub(super) const fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Begins to read again, after the transaction that ends here.
    pub(super) const fn return_to(&mut self, reached: Lsn) {
        (self.reached, self.current, self.has_same_columns) = (reached, None, None);
    }

    /// The next step. A message outside of a transaction, or of an unknown relation, is not valid.
    pub(super) fn take(&mut self, message: Message) -> Option<Step> {
        Some(match message {
            Message::Begin { commit, xid } => {
                let is_new = commit >= self.reached && !self.snapshot.sees(xid);
                self.current = Some(Current { xid, is_new });
                Step::Nothing
            }
            Message::Commit { end } => {
                let Current { xid, is_new } = self.current.take()?;
                self.reached = self.reached.max(end);
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
                if !self.current.as_ref()?.is_new {
                    return Some(Step::Nothing);
                }
                if !relations.contains(&self.id) {
                    return None;
                }
                let has_same_columns = self.has_same_columns?;
                match change {
                    Change::Truncate => Step::List(Reason::Truncated),
                    _ if !has_same_columns => Step::List(Reason::Columns),
                    change => Step::Change(change),
                }
            }
            Message::Other => Step::Nothing,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::pgoutput::Cell;
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
        Transactions::new(1, vec![column("a")], Snapshot::parse("10:13:11").unwrap(), Lsn(100))
    }

    fn relation() -> Message {
        Message::Relation { id: 1, columns: vec![column("a")] }
    }

    #[test]
    fn a_partition_does_not_replace_its_table() {
        let mut of = new();
        let partition = Message::Relation { id: 2, columns: vec![column("b"), column("a")] };
        let found = steps(&mut of, 20, 300, vec![relation(), partition, insert()]);
        assert_eq!(found.first(), Some(&Step::Change(Change::Insert(vec![Cell::Null]))));
    }

    #[test]
    fn what_the_copy_has_seen_is_left_out() {
        let mut of = new();
        let commit = |end: u64, xid, is_new| Step::Commit { end: Lsn(end), xid, is_new };
        assert_eq!(steps(&mut of, 12, 200, vec![relation(), insert()]), [commit(210, 12, false)]);
        let change = || Step::Change(Change::Insert(vec![Cell::Null]));
        assert_eq!(steps(&mut of, 11, 300, vec![insert()]), [change(), commit(310, 11, true)]);
        assert_eq!(of.reached(), Lsn(310));
        // The same transaction again, after a lost connection.
        of.return_to(Lsn(310));
        assert_eq!(steps(&mut of, 11, 300, vec![relation(), insert()]), [commit(310, 11, false)]);
        assert_eq!(
            steps(&mut of, 13, 310, vec![insert(), insert()]),
            [change(), change(), commit(320, 13, true)]
        );
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
