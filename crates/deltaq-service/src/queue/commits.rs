//! The commits of a queue: the events that were passed to the journal, and which of them are durable.

use std::collections::VecDeque;

use deltaq_engine::Queue;
use deltaq_engine::event::Event;
use deltaq_engine::id::Rv;
use deltaq_journal::store::{Epoch, QueueId};
use deltaq_journal::{self, Commit, Journal};

use crate::author::author;

/// The commits of one queue.
#[derive(Debug)]
pub(crate) struct Commits {
    /// Commits whose outcome the queue has not processed, oldest first, each with its last event.
    pending: VecDeque<(Rv, Commit)>,
    /// The epoch of the journal when it last accepted a change.
    pub(super) epoch: Epoch,
    /// The newest event that was passed to the journal.
    pushed: Rv,
    /// The commit of the newest events. Reads wait for it.
    pub(crate) newest: Commit,
}

impl Commits {
    /// Starts without pending commits; events up to `rv` are durable.
    pub(super) fn new(rv: Rv) -> Self {
        Self { pending: VecDeque::new(), epoch: Epoch::default(), pushed: rv, newest: Commit::done() }
    }

    /// Starts over for a queue that was created or loaded as of event `rv`, in `epoch`. `commit` makes the creation
    /// or load durable.
    pub(crate) fn resume(&mut self, rv: Rv, epoch: Epoch, commit: Commit) {
        let pending = VecDeque::from([(rv, commit)]);
        *self = Self { pending, epoch, pushed: rv, newest: Commit::done() };
    }

    /// Forgets the commits of a state that was lost. A read of the durable state waits for none.
    pub(crate) fn forget(&mut self) {
        self.pending.clear();
        self.newest = Commit::done();
    }

    /// Passes the newest events of a queue to the journal. The last of them is `rv`.
    pub(super) fn push(&mut self, journal: &Journal, id: QueueId, events: Vec<Event>, rv: Rv) {
        let prev_rv = std::mem::replace(&mut self.pushed, rv);
        let previous = self.pending.back().map(|(_, commit)| commit.clone()).unwrap_or_default();
        self.newest = journal.append(id, prev_rv, events, self.epoch, (&author(), &previous));
        match self.pending.back_mut() {
            Some((last, commit)) if commit.is_same(&self.newest) => *last = rv,
            _ => self.pending.push_back((rv, self.newest.clone())),
        }
    }

    /// Reports to the queue which events have become durable.
    ///
    /// # Errors
    /// A commit has failed.
    pub(super) fn note_outcomes(&mut self, queue: &mut Queue) -> Result<(), deltaq_journal::Error> {
        while let Some((rv, commit)) = self.pending.front() {
            let Some(outcome) = commit.outcome() else { return Ok(()) };
            let rv = *rv;
            self.pending.pop_front();
            outcome?;
            queue.set_committed(rv);
        }
        Ok(())
    }
}
