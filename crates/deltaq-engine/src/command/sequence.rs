//! Sequence numbers: each call of a source is applied once, in order.
//!
//! The number of a produce call is in the first event of the call. The number of a Replace is in its last event, so
//! an aborted Replace can be repeated. A call with a sequence is refused until the source's running Replace with a
//! sequence has ended. Otherwise, a crash could lose the Replace, and the repeated Replace would then be treated as a
//! duplicate because of the larger number of the call.

use crate::event::EventKind;
use crate::id::{Sequence, Source};
use crate::job::ReplaceJob;
use crate::limits::SOURCES_MAX;
use crate::queue::Queue;
use crate::refusal::Refusal;
use crate::sources::SourceState;
use crate::time::Time;

impl Queue {
    /// The sequence number of the source's last call that had one.
    #[must_use]
    pub fn last_sequence(&self, source: &Source) -> Option<u64> {
        self.state().sources.sequence_of(source)
    }

    /// Whether the queue has applied this number or a larger number of the same source.
    #[must_use]
    pub fn has_applied(&self, sequence: &Sequence) -> bool {
        let last = self.last_sequence(&sequence.source);
        last.is_some_and(|last| sequence.number <= last)
    }

    /// Sets the last sequence number of a source, or forgets it, and returns the source; `None` if the queue does not
    /// remember the source.
    ///
    /// # Errors
    /// [`Refusal::SequenceBusy`] or [`Refusal::TooManySequences`].
    pub fn renumber(
        &mut self,
        now: Time,
        source: &Source,
        sequence: Option<u64>,
    ) -> Result<Option<SourceState>, Refusal> {
        let now = self.advance(now);
        let Some(before) = self.state().sources.state_of(source) else { return Ok(None) };
        let Some(history) = before.history.as_ref() else { return Ok(None) };
        if history.sequence != sequence {
            self.check_not_busy(source)?;
            if history.sequence.is_none() {
                self.check_room_for_sequence()?;
            }
            self.emit(now, EventKind::Renumbered { source: source.clone(), sequence });
        }
        Ok(self.state().sources.state_of(source))
    }

    /// Checks that the queue can apply a new number.
    pub(super) fn check_sequence(&self, sequence: &Sequence) -> Result<(), Refusal> {
        self.check_not_busy(&sequence.source)?;
        if self.state().sources.sequence_of(&sequence.source).is_some() {
            return Ok(());
        }
        self.check_room_for_sequence()
    }

    fn numbered_replaces(&self) -> impl Iterator<Item = &Sequence> {
        self.volatile.replace_jobs.iter().filter_map(ReplaceJob::sequence)
    }

    fn check_not_busy(&self, source: &Source) -> Result<(), Refusal> {
        match self.numbered_replaces().find(|running| running.source == *source) {
            Some(busy) => Err(Refusal::SequenceBusy { number: busy.number }),
            None => Ok(()),
        }
    }

    fn check_room_for_sequence(&self) -> Result<(), Refusal> {
        let sources = &self.state().sources;
        let first =
            self.numbered_replaces().filter(|running| sources.sequence_of(&running.source).is_none()).count();
        if sources.with_sequence() + first >= SOURCES_MAX {
            return Err(Refusal::TooManySequences { limit: SOURCES_MAX });
        }
        Ok(())
    }
}
