//! Replies to producers.

use deltaq_types::{Produced, ReplaceCounts, Replaced, ViolationDocument};

use crate::admission::Violation;
use crate::engine::{command, event};

/// The reply to a produce call.
#[must_use]
pub fn produced(produced: command::Produced) -> Produced {
    let command::Produced { resource_version, queued, ignored } = produced;
    Produced { resource_version, queued, ignored }
}

/// The reply to a Replace.
#[must_use]
pub fn replaced(replaced: command::Replaced) -> Replaced {
    let counts = counts(replaced.counts);
    let queued = counts.replaced + counts.deleted;
    Replaced { resource_version: replaced.resource_version, queued, ignored: 0, counts }
}

/// The counts of a Replace.
pub(super) fn counts(counts: event::ReplaceCounts) -> ReplaceCounts {
    let event::ReplaceCounts { replaced, deleted, unchanged, skipped, taken_over } = counts;
    ReplaceCounts { replaced, deleted, unchanged, skipped, taken_over }
}

/// A violation of a queue's schema.
#[must_use]
pub fn violation(violation: Violation) -> ViolationDocument {
    let Violation { pointer, schema_pointer, detail } = violation;
    ViolationDocument { pointer, schema_pointer, detail }
}
