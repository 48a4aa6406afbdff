//! Checks that the rows of a queue's journal are consecutive and reach its checkpoint.

use deltaq_engine::id::Rv;

use super::{Examiner, Severity};
use crate::snapshot::Link;
use crate::store::QueueId;

/// Where the previous row ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// There is no previous row.
    Nothing,
    /// The row ends with this event.
    At(Rv),
    /// The row is damaged, so its end is unknown.
    Unknown,
}

impl Examiner<'_> {
    pub(super) async fn check_links(&mut self, queue: QueueId) {
        let Some(known) = self.queues.get(&queue) else { return };
        let (is_live, checkpoint_rv) = (known.row.is_some(), known.checkpoint_rv);
        let snapshot = self.snapshot;
        let mut end = End::Nothing;
        let mut visit = |link: Link| {
            if self.damaged_rows.contains(&link.id) {
                end = End::Unknown;
                return;
            }
            match end {
                End::At(last_rv) => self.check_link(queue, &link, last_rv),
                End::Nothing if is_live && link.prev_rv > checkpoint_rv => {
                    self.check_link(queue, &link, checkpoint_rv);
                }
                End::Nothing | End::Unknown => {}
            }
            end = End::At(link.last_rv);
        };
        match snapshot.links(queue, &mut visit).await {
            Err(error) => self.unreadable(&format!("the journal of queue {queue}"), &error),
            Ok(()) if is_live => self.check_end(queue, end),
            Ok(()) => {}
        }
    }

    fn check_link(&mut self, queue: QueueId, link: &Link, last_rv: Rv) {
        let Some(known) = self.queues.get(&queue) else { return };
        let is_history = known.is_deleted || link.prev_rv.max(last_rv) <= known.checkpoint_rv;
        let severity = if is_history { Severity::History } else { Severity::State };
        let Link { id, prev_rv, first_rv, last_rv: to } = *link;
        let place = self.snapshot.place("journal", id);
        if prev_rv > last_rv {
            let what = format!(
                "{place}: events {} to {prev_rv} are missing before this row (events {first_rv} to {to})",
                last_rv.next()
            );
            self.damage(Some(queue), severity, &what);
        } else if prev_rv < last_rv {
            let what = format!(
                "{place}: this row (events {first_rv} to {to}) follows event {prev_rv}, and the row before it ends with event \
                 {last_rv}"
            );
            self.damage(Some(queue), severity, &what);
        }
    }

    /// Checks that the journal reaches the checkpoint. The checkpoint is written after the journal, so it can't
    /// contain later events. An empty journal is valid, because all its rows may have been trimmed.
    fn check_end(&mut self, queue: QueueId, end: End) {
        let Some(known) = self.queues.get(&queue) else { return };
        let end_rv = match end {
            End::Nothing => known.checkpoint_rv,
            End::At(last_rv) => last_rv,
            End::Unknown => return,
        };
        let newest_rv = known.newest_rv;
        if newest_rv <= end_rv {
            return;
        }
        let severity = if newest_rv <= known.checkpoint_rv { Severity::History } else { Severity::State };
        let what = format!(
            "table journal: it ends with event {end_rv}, and the checkpoint knows of event {newest_rv}: rows are \
             missing at its end"
        );
        self.damage(Some(queue), severity, &what);
    }
}
