//! Reads the events of a followed queue from its journal, for a follower in mode `events`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use deltaq_engine::followed::{FollowedChange, FollowedEvent};
use deltaq_engine::id::Rv;
use deltaq_journal::record::{Decoder, Error as RecordError};
use deltaq_journal::recovery::on_own_thread;
use deltaq_journal::store::JournalRow;
use tokio::time::Instant;

use super::Error;
use super::queue::Handle;

/// Approximate number of journal bytes that are read at once.
const PAGE_BYTES: usize = 1 << 20;

/// How long a reader waits for events before it passes those that no follower takes.
const QUIET_MAX: Duration = Duration::from_secs(1);

/// A reader of the events of a queue.
#[derive(Debug)]
pub(super) struct EventReader {
    followed: Arc<Handle>,
    /// Only keys with this prefix are read.
    prefix: Arc<str>,
    after: Rv,
    /// The number of announcements that the reader has seen.
    announced: u64,
    /// The shortest wait between two wake-ups.
    pause: Duration,
    /// The reader is not woken before this instant.
    next_read: Instant,
}

/// The next events.
#[derive(Debug)]
pub(super) struct EventPage {
    /// The events that a follower takes.
    pub(super) events: Vec<FollowedEvent>,
    /// The reader has all events up to this one.
    pub(super) next: Rv,
    /// Whether there are no more events.
    pub(super) is_last: bool,
}

/// Why the reader has no events.
#[derive(Debug)]
pub(super) enum NoEvents {
    /// The journal no longer has all events after the position, or the position belongs to a lost life.
    Lost,
    Failed(Error),
}

impl From<Error> for NoEvents {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Drop for EventReader {
    fn drop(&mut self) {
        self.followed.feed_readers.events.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl EventReader {
    /// Creates a reader of the events after `after`.
    pub(super) fn begin(followed: Arc<Handle>, prefix: Arc<str>, after: Rv, pause: Duration) -> Self {
        let readers = &followed.feed_readers.events;
        readers.count.fetch_add(1, Ordering::Relaxed);
        let (announced, _) = readers.announced.newest();
        followed.run_feed_task();
        Self { followed, prefix, after, announced, pause, next_read: Instant::now() }
    }

    /// The next events. There may be none.
    pub(super) async fn read(&mut self) -> Result<EventPage, NoEvents> {
        let Some((journal, id)) = self.followed.journal() else { return Err(NoEvents::Lost) };
        let after = self.after;
        let read = self.followed.read_state(|state, _| {
            let newest = state.queue.resource_version();
            state.queue.lives().check(after, newest).map(|()| (newest, state.last_change))
        });
        let (newest, last_change) = read.await?.map_err(|_stray| NoEvents::Lost)?;
        // The events since are leases and the like. They are not read, because the journal may no longer have them.
        if last_change <= after {
            return Ok(EventPage { events: Vec::new(), next: newest, is_last: true });
        }
        let unreadable = |error: &dyn std::error::Error| NoEvents::Failed(self.followed.unreadable(error));
        let rows = journal.reader().journal(*id, after, PAGE_BYTES).await;
        let rows = rows.map_err(|error| unreadable(&error))?;
        let prefix = self.prefix.clone();
        let read = on_own_thread(async move { events_after(after, &rows, &prefix) }).await;
        let Some((next, mut events)) = read.map_err(|error| unreadable(&error))? else {
            return Err(NoEvents::Lost);
        };
        if events.iter().any(|event| matches!(event.change, FollowedChange::Dropped)) {
            let look_up = self.followed.read(|queue, _| {
                for event in &mut events {
                    event.look_up(queue.table());
                }
            });
            look_up.await?;
        }
        Ok(EventPage { events, next, is_last: next >= newest })
    }

    /// Begins the next page after this event.
    pub(super) fn advance(&mut self, after: Rv) {
        self.after = after;
    }

    /// Waits until there are events for the follower since the last call, or for a second: the reader then passes the
    /// other events before the journal drops them. A call shortly after the last one waits a little longer.
    pub(super) async fn changed(&mut self) {
        let announced = &self.followed.feed_readers.events.announced;
        let _quiet = tokio::time::timeout(QUIET_MAX, announced.more_than(self.announced)).await;
        if self.next_read > Instant::now() {
            tokio::time::sleep_until(self.next_read).await;
        }
        (self.announced, _) = announced.newest();
        self.next_read = Instant::now() + self.pause;
    }
}

/// The events after `after` that a follower takes, and the last event of the rows. `None` if an event is missing.
fn events_after(
    after: Rv,
    rows: &[JournalRow],
    prefix: &str,
) -> Result<Option<(Rv, Vec<FollowedEvent>)>, RecordError> {
    let (mut decoder, mut last, mut taken) = (Decoder::new(), after, Vec::new());
    for row in rows {
        if row.prev_rv > last {
            return Ok(None);
        }
        let events = match decoder.events(row) {
            Ok(events) => events,
            // The follower gets the events before the damage.
            Err(_) if last > after => break,
            Err(error) => return Err(error),
        };
        let new = events.iter().filter(|event| event.rv > after).filter_map(FollowedEvent::of);
        taken.extend(new.filter(|event| event.key.as_str().starts_with(prefix)));
        last = events.last().map_or(last, |event| event.rv);
    }
    Ok(Some((last, taken)).filter(|(last, _)| *last > after))
}

#[cfg(test)]
mod tests {
    use deltaq_engine::event::{Event, EventKind, ViewChanges};
    use deltaq_engine::key::Key;
    use deltaq_engine::time::Time;
    use deltaq_journal::record::journal_rows;
    use deltaq_journal::store::{Epoch, QueueId};

    use super::*;

    /// A row with the events from `first` to `last`, which each drop the deltas of a key.
    fn row(first: u64, last: u64) -> JournalRow {
        let event = |rv| Event {
            rv: Rv::new(rv),
            at: Time::from_micros(rv),
            kind: EventKind::Removed {
                key: Key::new(&format!("k{rv}")).expect("a key"),
                keeps_version: false,
            },
            views: ViewChanges::default(),
            sequence: None,
            by: None,
        };
        let events: Vec<Event> = (first..=last).map(event).collect();
        journal_rows(QueueId(1), Epoch(1), Rv::new(first - 1), &events, false).remove(0)
    }

    #[test]
    fn events_are_read_without_a_gap() {
        let read = |after, rows: &[JournalRow], prefix| {
            let read = events_after(Rv::new(after), rows, prefix).expect("the rows are readable");
            read.map(|(last, events)| {
                (last.get(), events.iter().map(|event| event.rv.get()).collect::<Vec<_>>())
            })
        };
        assert_eq!(read(4, &[row(3, 6), row(7, 9)], ""), Some((9, vec![5, 6, 7, 8, 9])));
        assert_eq!(read(2, &[row(3, 12)], "k1"), Some((12, vec![10, 11, 12])));
        assert_eq!(read(1, &[row(3, 6)], ""), None, "the journal begins later");
        assert_eq!(read(2, &[row(3, 6), row(8, 9)], ""), None, "a row is missing");
        assert_eq!(read(2, &[], ""), None, "the journal was trimmed up to its end");
        // Events before a damaged row reach the follower, and those after it do not.
        let damaged = JournalRow { checksum: 0, ..row(7, 9) };
        assert_eq!(read(4, &[row(3, 6), damaged.clone(), row(10, 12)], ""), Some((6, vec![5, 6])));
        assert!(events_after(Rv::new(6), &[damaged], "").is_err());
    }
}
