//! Replies to producers.

use deltaq_engine::command::FailureState;
use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use deltaq_engine::{command, event};
use deltaq_service::{Handle, Moment};
use deltaq_types::{FailedKey, Produced, ReplaceCounts, Replaced};

use super::timestamp;

/// The reply to a produce call.
#[must_use]
pub fn produced(produced: command::Produced) -> Produced {
    let command::Produced { resource_version, queued, merged, ignored, stale, duplicate } = produced;
    Produced {
        resource_version: resource_version.get(),
        queued,
        merged,
        ignored,
        stale,
        duplicate,
        ..Produced::default()
    }
}

/// The incarnation of the queue, and the life that the version belongs to.
#[must_use]
pub fn place(handle: &Handle, resource_version: u64) -> (Option<String>, Option<String>) {
    let life = handle.lives().id_of(Rv::new(resource_version));
    (Some(handle.incarnation().to_string()), Some(life.to_string()))
}

/// The failures of a key as of `moment`.
#[must_use]
pub fn failed_key(key: &Key, state: FailureState, moment: Moment) -> FailedKey {
    let FailureState { failures, due, is_parked } = state;
    let due_at = due.map(|due| timestamp(moment.wall(due)));
    FailedKey { key: key.as_str().to_owned(), failures, due_at, parked: is_parked }
}

/// The reply to a Replace.
#[must_use]
pub fn replaced(replaced: command::Replaced) -> Replaced {
    let counts = counts(replaced.counts);
    let queued = counts.replaced + counts.deleted;
    let resource_version = replaced.resource_version.get();
    Replaced { resource_version, queued, counts, duplicate: replaced.duplicate, ..Replaced::default() }
}

/// The counts of a Replace.
pub(super) fn counts(counts: event::ReplaceCounts) -> ReplaceCounts {
    let event::ReplaceCounts { replaced, deleted, unchanged, skipped, taken_over, stale } = counts;
    ReplaceCounts { replaced, deleted, unchanged, skipped, taken_over, stale }
}
