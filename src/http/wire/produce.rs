//! Replies to producers.

use deltaq_types::{Produced, ReplaceCounts, Replaced};

use crate::engine::{command, event};

/// The reply to a produce call.
#[must_use]
pub fn produced(produced: command::Produced) -> Produced {
    let command::Produced { resource_version, queued, ignored } = produced;
    Produced { resource_version: resource_version.get(), queued, ignored }
}

/// The reply to a Replace.
#[must_use]
pub fn replaced(replaced: command::Replaced) -> Replaced {
    let counts = counts(replaced.counts);
    let queued = counts.replaced + counts.deleted;
    Replaced { resource_version: replaced.resource_version.get(), queued, ignored: 0, counts }
}

/// The counts of a Replace.
pub(super) fn counts(counts: event::ReplaceCounts) -> ReplaceCounts {
    let event::ReplaceCounts { replaced, deleted, unchanged, skipped, taken_over } = counts;
    ReplaceCounts { replaced, deleted, unchanged, skipped, taken_over }
}
