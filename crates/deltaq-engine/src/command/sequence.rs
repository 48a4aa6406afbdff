//! Sequence numbers: each call of a source is applied once, in order.
//!
//! The number of a produce call is in the first event of the call. The number of a Replace is in its last event, so
//! an aborted Replace can be repeated. A call with a sequence is refused until the source's running Replace with a
//! sequence has ended. Otherwise, a crash could lose the Replace, and the repeated Replace would then be treated as a
//! duplicate because of the larger number of the call.

use crate::id::{Sequence, Source};
use crate::job::ReplaceJob;
use crate::limits::SOURCES_MAX;
use crate::queue::Queue;
use crate::refusal::Refusal;

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

    /// Checks that the queue can apply a new number.
    pub(super) fn check_sequence(&self, sequence: &Sequence) -> Result<(), Refusal> {
        let sources = &self.state().sources;
        let running = || self.volatile.replace_jobs.iter().filter_map(ReplaceJob::sequence);
        if let Some(busy) = running().find(|running| running.source == sequence.source) {
            return Err(Refusal::SequenceBusy { number: busy.number });
        }
        if sources.sequence_of(&sequence.source).is_some() {
            return Ok(());
        }
        let first = running().filter(|running| sources.sequence_of(&running.source).is_none()).count();
        if sources.with_sequence() + first >= SOURCES_MAX {
            return Err(Refusal::TooManySequences { limit: SOURCES_MAX });
        }
        Ok(())
    }
}
