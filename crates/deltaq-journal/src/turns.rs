//! The batches that wait for the writer, in one line per author. The lines take turns, so the changes of one author
//! do not delay those of another by more than a batch.
//!
//! The changes of one queue keep their order: while changes of a queue wait, its next changes join their line.

use std::collections::VecDeque;
use std::mem::{size_of, take};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use deltaq_engine::event::Event;
use deltaq_engine::id::Rv;
use deltaq_engine::snapshot::QueueState;

use super::commit::{Author, Commit, Error, Outcome};
use super::queue_log::QueueLog;
use super::record::Identity;
use super::store::QueueId;

/// A batch is full when it holds about this many bytes. Its commit then takes a few milliseconds.
const BATCH_BYTES: usize = 1 << 20;

/// An operation for the writer, which applies operations in the order of their arrival.
#[derive(Debug)]
pub(super) enum Op {
    /// A queue was created.
    Create { log: Box<QueueLog>, state: Box<QueueState> },
    /// A queue was loaded.
    Open(Box<QueueLog>),
    /// Events of a queue, and the number of the event before them.
    Append { queue: QueueId, prev_rv: Rv, events: Vec<Event> },
    /// A queue was deleted.
    Delete { identity: Box<Identity>, last_rv: Rv },
    /// A queue is about to be loaded again. Until then, nothing more is written for it.
    Release(QueueId),
    /// A reload has found that these queues are deleted.
    FoundDeleted(Vec<QueueId>),
}

/// The operations of one commit.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) ops: Vec<Op>,
    /// Approximate size of the rows of `ops`, in bytes of text.
    bytes: usize,
    parts: Vec<Part>,
}

/// The part of a batch that waited in one line as one batch.
#[derive(Debug)]
struct Part {
    outcome: Arc<Outcome>,
    /// Approximate memory of the operations in bytes. It is counted in `line` and in `all`.
    held: usize,
    line: Arc<AtomicUsize>,
    all: Arc<AtomicUsize>,
}

/// A batch in a line.
#[derive(Debug)]
struct Waiting {
    batch: Batch,
    /// Batches are numbered in the order of their creation, over all lines.
    number: u64,
    /// The batch is taken after all batches up to this number.
    after: u64,
}

/// The batches of one author, oldest first.
#[derive(Debug)]
struct Line {
    author: Author,
    batches: VecDeque<Waiting>,
    /// Approximate memory in bytes of the batches that are not committed yet.
    held: Arc<AtomicUsize>,
}

/// All lines, in the order of their turns.
#[derive(Debug, Default)]
pub(super) struct Turns {
    lines: VecDeque<Line>,
    /// The number of the newest batch.
    newest: u64,
    /// The number of the newest batch that contains a deletion.
    newest_deletion: u64,
    held: Arc<AtomicUsize>,
}

impl Batch {
    /// Sets the outcome, unless the batch has one.
    pub(super) fn end(&self, outcome: Result<(), Error>) {
        for part in &self.parts {
            let _first_wins = part.outcome.result.set(outcome);
        }
    }

    fn absorb(&mut self, mut other: Self) {
        self.ops.append(&mut other.ops);
        self.bytes += other.bytes;
        self.parts.append(&mut other.parts);
    }
}

impl Drop for Part {
    /// A batch that is dropped before its outcome is set has an unknown outcome.
    fn drop(&mut self) {
        let _first_wins = self.outcome.result.set(Err(Error::OutcomeUnknown));
        self.line.fetch_sub(self.held, Ordering::Relaxed);
        self.all.fetch_sub(self.held, Ordering::Relaxed);
    }
}

impl Waiting {
    /// Adds an operation whose rows take about `bytes` bytes of text.
    fn push(&mut self, op: Op, bytes: usize) -> Commit {
        let held = held_bytes(&op, bytes);
        self.batch.bytes += bytes;
        self.batch.ops.push(op);
        let [part] = self.batch.parts.as_mut_slice() else {
            unreachable!("a waiting batch has one part");
        };
        part.held += held;
        part.line.fetch_add(held, Ordering::Relaxed);
        part.all.fetch_add(held, Ordering::Relaxed);
        Commit::of(&part.outcome)
    }
}

impl Turns {
    /// Approximate memory of all batches that are not committed yet, in bytes.
    pub(super) fn held(&self) -> &Arc<AtomicUsize> {
        &self.held
    }

    /// The part of [`held`](Self::held) that belongs to an author.
    pub(super) fn held_by(&self, author: &Author) -> usize {
        let line = self.lines.iter().find(|line| line.author == *author);
        line.map_or(0, |line| line.held.load(Ordering::Relaxed))
    }

    /// Adds an operation whose rows take about `bytes` bytes of text. It is committed after `previous`, the newest
    /// commit of its queue.
    pub(super) fn push(&mut self, op: Op, bytes: usize, author: &Author, previous: &Commit) -> Commit {
        let author = previous.line().unwrap_or(author);
        let after = match op {
            Op::Append { .. } => 0,
            // The name may be that of a queue whose deletion waits.
            Op::Create { .. } => self.newest_deletion,
            _ => self.newest,
        };
        let is_deletion = matches!(op, Op::Delete { .. });
        let waits = self.lines.iter().any(|line| line.author != *author && line.begins_up_to(after));
        let after = if waits { after } else { 0 };
        let line = self.lines.iter().position(|line| line.author == *author).unwrap_or_else(|| {
            self.lines.push_back(Line::new(author.clone()));
            self.lines.len() - 1
        });
        let Some(line) = self.lines.get_mut(line) else { unreachable!("the line was just found") };
        let has_room = |last: &&mut Waiting| after == 0 && last.batch.bytes + bytes <= BATCH_BYTES;
        let (number, commit) = if let Some(last) = line.batches.back_mut().filter(has_room) {
            (last.number, last.push(op, bytes))
        } else {
            self.newest += 1;
            let mut waiting = line.batch(self.newest, after, &self.held);
            let commit = waiting.push(op, bytes);
            line.batches.push_back(waiting);
            (self.newest, commit)
        };
        if is_deletion {
            self.newest_deletion = number;
        }
        commit
    }

    /// Takes the next batch: the oldest batches of the lines whose turn it is, as long as they fit.
    pub(super) fn take(&mut self) -> Option<Batch> {
        let mut taken = Batch::default();
        let mut passed = 0;
        while passed < self.lines.len() {
            let Some(mut line) = self.lines.pop_front() else { break };
            let is_next = |waiting: &Waiting| {
                let fits = taken.parts.is_empty() || taken.bytes + waiting.batch.bytes <= BATCH_BYTES;
                fits && !self.lines.iter().any(|other| other.begins_up_to(waiting.after))
            };
            let has_turn = line.batches.front().is_some_and(is_next);
            if let Some(next) = line.batches.pop_front_if(|_| has_turn) {
                passed = 0;
                next.batch.parts.iter().for_each(|part| part.outcome.leave());
                taken.absorb(next.batch);
            } else if !line.batches.is_empty() || Arc::strong_count(&line.held) > 1 {
                passed += 1;
            } else {
                // Its author has been idle since the last commit.
                continue;
            }
            self.lines.push_back(line);
        }
        (!taken.parts.is_empty()).then_some(taken)
    }

    /// Takes all batches.
    pub(super) fn take_all(&mut self) -> Vec<Batch> {
        let lines = take(&mut self.lines);
        lines.into_iter().flat_map(|line| line.batches).map(|waiting| waiting.batch).collect()
    }

    /// The number of the newest batch.
    pub(super) const fn newest(&self) -> u64 {
        self.newest
    }

    /// Whether a batch waits whose number is at most `number`.
    pub(super) fn has_up_to(&self, number: u64) -> bool {
        self.lines.iter().any(|line| line.begins_up_to(number))
    }
}

impl Line {
    fn new(author: Author) -> Self {
        Self { author, batches: VecDeque::new(), held: Arc::default() }
    }

    /// Whether the oldest batch has at most this number.
    fn begins_up_to(&self, number: u64) -> bool {
        self.batches.front().is_some_and(|first| first.number <= number)
    }

    fn batch(&self, number: u64, after: u64, all: &Arc<AtomicUsize>) -> Waiting {
        let author = self.author.clone();
        let outcome = Arc::new(Outcome::in_line_of(author));
        let part = Part { outcome, held: 0, line: self.held.clone(), all: all.clone() };
        Waiting { batch: Batch { parts: vec![part], ..Batch::default() }, number, after }
    }
}

/// Approximate memory of an operation in bytes, if its rows have `bytes` bytes of text.
fn held_bytes(op: &Op, bytes: usize) -> usize {
    let events = match op {
        Op::Append { events, .. } => events.len() * size_of::<Event>(),
        _ => 0,
    };
    size_of::<Op>() + bytes + events
}

#[cfg(test)]
mod tests {
    use deltaq_engine::time::Time;
    use deltaq_types::name::{Incarnation, Name};

    use super::*;

    fn of(token: &str) -> Author {
        Author { token: Some(token.into()), is_follower: false }
    }

    fn append(queue: u32) -> Op {
        Op::Append { queue: QueueId(queue), prev_rv: Rv::ZERO, events: Vec::new() }
    }

    fn delete(queue: u32) -> Op {
        let (name, created_at) = (Name::new("q").unwrap(), Time::from_micros(1));
        let identity =
            Identity { id: QueueId(queue), version: 1, name, incarnation: Incarnation(1), created_at };
        Op::Delete { identity: Box::new(identity), last_rv: Rv::ZERO }
    }

    /// The queues of the operations in each batch, in the order in which they are taken. A deletion is negative.
    fn taken(turns: &mut Turns) -> Vec<Vec<i64>> {
        let queue = |op: &Op| match op {
            Op::Append { queue, .. } => i64::from(queue.0),
            Op::Delete { identity, .. } => -i64::from(identity.id.0),
            other => panic!("{other:?}"),
        };
        let batches = std::iter::from_fn(|| turns.take());
        batches.map(|batch| batch.ops.iter().map(queue).collect()).collect()
    }

    fn push(turns: &mut Turns, op: Op, bytes: usize, token: &str) -> Commit {
        turns.push(op, bytes, &of(token), &Commit::done())
    }

    #[test]
    fn an_author_waits_for_one_batch_of_every_other() {
        let mut turns = Turns::default();
        for _ in 0..4 {
            push(&mut turns, append(1), BATCH_BYTES, "flood");
            push(&mut turns, append(2), BATCH_BYTES, "second flood");
        }
        push(&mut turns, append(3), 100, "other");
        push(&mut turns, append(3), 100, "other");
        assert_eq!(
            taken(&mut turns),
            [vec![1], vec![2], vec![3, 3], vec![1], vec![2], vec![1], vec![2], vec![1], vec![2]]
        );
        let follower = Author { is_follower: true, ..of("flood") };
        for _ in 0..3 {
            turns.push(append(4), BATCH_BYTES, &follower, &Commit::done());
        }
        push(&mut turns, append(5), 100, "flood");
        assert_eq!(taken(&mut turns), [vec![4], vec![5], vec![4], vec![4]]);
    }

    #[test]
    fn small_changes_of_many_authors_are_one_commit() {
        let mut turns = Turns::default();
        for token in 1..=9 {
            push(&mut turns, append(token), 100, &token.to_string());
        }
        assert_eq!(taken(&mut turns), [(1..=9).collect::<Vec<_>>()]);
    }

    #[test]
    fn the_changes_of_a_queue_keep_their_order() {
        let mut turns = Turns::default();
        push(&mut turns, append(1), BATCH_BYTES, "a");
        let second = push(&mut turns, append(2), 100, "a");
        let commit = turns.push(append(2), 200, &of("b"), &second);
        assert!(commit.is_same(&second), "it joins the batch that waits");
        push(&mut turns, append(3), 100, "b");
        assert_eq!(taken(&mut turns), [vec![1], vec![3, 2, 2]]);
        turns.push(append(2), 100, &of("b"), &commit);
        assert_eq!(
            turns.held_by(&of("b")),
            size_of::<Op>() + 100,
            "the batch was taken, so b has its own line"
        );
        assert_eq!(taken(&mut turns), [vec![2]]);
    }

    #[test]
    fn a_deletion_follows_all_earlier_changes() {
        let mut turns = Turns::default();
        push(&mut turns, append(1), BATCH_BYTES, "a");
        push(&mut turns, append(1), BATCH_BYTES, "a");
        push(&mut turns, append(2), 100, "b");
        let deleted = push(&mut turns, delete(1), 100, "b");
        push(&mut turns, append(3), 100, "c");
        assert!(deleted.line().is_some());
        assert_eq!(taken(&mut turns), [vec![1], vec![2, 3], vec![1], vec![-1]]);
    }

    #[test]
    fn memory_is_counted_until_the_commit() {
        let mut turns = Turns::default();
        push(&mut turns, append(1), 100, "a");
        let all = turns.held().clone();
        let batch = turns.take().unwrap();
        assert_eq!(turns.held_by(&of("a")), size_of::<Op>() + 100);
        batch.end(Ok(()));
        drop(batch);
        assert_eq!((turns.held_by(&of("a")), all.load(Ordering::Relaxed)), (0, 0));
        push(&mut turns, append(2), 100, "b");
        assert_eq!(taken(&mut turns), [vec![2]]);
        assert!(turns.take().is_none() && turns.lines.is_empty(), "the lines of idle authors are removed");
    }
}
