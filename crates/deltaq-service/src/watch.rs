//! Readers of the change feeds. Each reader waits for changes of a view of a queue and reads them in pages.
//!
//! A feed exists while it has readers and for some time afterwards. During this time, a task of the queue notifies
//! waiting readers once changes are durable. The task sends one wake-up per reader and commit, so a change itself
//! causes only one wake-up: that of the task.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use deltaq_engine::delta::DeltaKind;
use deltaq_engine::event::{Appended, Event, EventKind};
use deltaq_engine::feed::{Backfill, Lag, NoRows, Position, Row, RowLimit, RowPage};
use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use deltaq_engine::lives::Stray;
use deltaq_engine::view::View;
use deltaq_journal::record::{Decoder, Error as RecordError, LostObject, PastEvents, lost_object};
use deltaq_journal::recovery::on_own_thread;
use deltaq_journal::store::{JournalRow, Segment};
use deltaq_runtime::causes::with_causes;
use deltaq_runtime::clock::whole_us;
use parking_lot::MutexGuard;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::Error;
use super::metrics::LostPosition;
use super::queue::shared_pages::{PageForm, SharedPage};
use super::queue::{Handle, drop_in_background};

/// Number of slots that are indexed in one critical section.
const SLOTS_AT_A_TIME: usize = 2_048;
/// Approximate number of journal bytes that are read at a time to extend a feed backwards.
const BACKFILL_PAGE_BYTES: usize = 1 << 20;
/// Approximate maximum number of journal bytes that are read. A reader of an older version lists the view again,
/// which is then cheaper.
const BACKFILL_BYTES_MAX: u64 = 64 << 20;
/// How often a reader extends the feed before it gives up. It needs several attempts only if the feed begins later
/// each time.
const BACKFILLS_MAX: usize = 3;
/// The readers of a constantly changing view read at most once in this time multiplied by their number. So they leave room for other work, and
/// each of them gets several changes at once.
const PAUSE_PER_READER: Duration = Duration::from_micros(100);
/// The maximum of these times.
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// How often the feeds of a queue are trimmed, and removed if they have no readers.
const UPKEEP_PERIOD: Duration = Duration::from_secs(10);

/// Where a reader starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchFrom {
    /// With the changes after this event. Until the reader has caught up, it also gets the deletions of keys that the view did not have
    /// at this event, because the reader may have them from a later page of its list.
    After(Rv),
    /// With the changes after this event, at which the view had all keys that the reader has.
    Exact(Rv),
    /// With the changes from now on.
    Now,
    /// With all keys of the view.
    Start,
    /// In the list of all keys of the view.
    List {
        /// The last version that the reader received.
        after: Rv,
        /// The queue's newest event when the list began.
        since: Rv,
    },
}

/// The keys that a reader wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyFilter {
    /// The prefix of the wanted keys.
    pub prefix: String,
    /// The shard, if the reader wants one.
    pub shard: Option<Shard>,
}

/// One of `count` parts of all keys: those whose CRC-32C, modulo `count`, is `index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The number of this part, from 0.
    pub index: u32,
    /// Number of parts.
    pub count: u32,
}

impl KeyFilter {
    /// Whether the reader wants this key.
    #[must_use]
    pub fn includes(&self, key: &Key) -> bool {
        let key = key.as_str();
        let is_in = |shard: Shard| crc32c::crc32c(key.as_bytes()) % shard.count.max(1) == shard.index;
        key.starts_with(&self.prefix) && self.shard.is_none_or(is_in)
    }
}

/// A reader of a view of a queue.
#[derive(Debug)]
pub struct Watcher {
    handle: Arc<Handle>,
    view: View,
    filter: KeyFilter,
    position: Position,
    /// The number of announcements that the reader has seen.
    announced: u64,
    /// The time of the change that woke the reader, in microseconds of the monotonic clock; 0 if no change woke the reader.
    changed_us: u64,
    /// The shortest wait between two wake-ups.
    pause_min: Duration,
    /// The reader is not woken before this instant.
    next_read: Instant,
    /// Held while the filter skips all keys of a page.
    turn: Option<OwnedMutexGuard<()>>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let readers = self.handle.feed_readers.of(self.view);
        readers.left_us.store(self.handle.clock().monotonic_us(), Ordering::Relaxed);
        readers.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Handle {
    /// Creates a reader of a view.
    ///
    /// # Errors
    /// [`Error::Expired`], [`Error::Ahead`], [`Error::Lost`], [`Error::TooOld`], or the errors of reads.
    pub async fn watch(
        self: &Arc<Self>,
        view: View,
        from: WatchFrom,
        filter: KeyFilter,
    ) -> Result<Watcher, Error> {
        let readers = self.feed_readers.of(view);
        // The feed is not removed while it has readers, so the number of readers is increased first.
        readers.count.fetch_add(1, Ordering::Relaxed);
        let (announced, _) = readers.announced.newest();
        let mut watcher = Watcher {
            handle: self.clone(),
            view,
            filter,
            position: Position::after(Rv::ZERO),
            announced,
            changed_us: 0,
            pause_min: Duration::ZERO,
            next_read: Instant::now(),
            turn: None,
        };
        self.metrics().note_watch();
        self.run_feed_task();
        // The feed begins before the version is read, so that it has all changes since that version.
        self.build_part(view)?;
        let newest = self.read(|queue, _| queue.resource_version()).await?;
        watcher.position = match from {
            WatchFrom::After(after) => Position { has_others: true, ..Position::after(after) },
            WatchFrom::Exact(after) => Position::after(after),
            WatchFrom::Now => Position::after(newest),
            WatchFrom::Start => Position::listing(Rv::ZERO, newest),
            WatchFrom::List { after, since } => Position::listing(after, since),
        };
        watcher.prepare().await?;
        Ok(watcher)
    }

    pub(super) fn run_feed_task(self: &Arc<Self>) {
        if !self.feed_readers.has_task.swap(true, Ordering::AcqRel) {
            self.shutdown().spawn("change feeds", run(self.clone()));
        }
    }

    /// Indexes the rest of the feed, a part at a time.
    async fn build_feed(&self, view: View) -> Result<(), Error> {
        while !self.build_part(view)? {
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Indexes some slots. Returns whether the feed is complete.
    fn build_part(&self, view: View) -> Result<bool, Error> {
        let mut state = self.open()?;
        let is_complete = state.queue.build_feed(view, self.context.watch.tombstones, SLOTS_AT_A_TIME);
        // A thread that waits for the lock gets it next.
        MutexGuard::unlock_fair(state);
        Ok(is_complete)
    }

    /// Extends the feed backwards to the event `after`, if the journal reaches that far.
    async fn backfill_feed(&self, view: View, after: Rv) -> Result<(), Error> {
        let Some((journal, id)) = self.journal() else { return Ok(()) };
        let _only_one_of_token = self.context.long_reads.turn().await;
        let mut vain = self.feed_readers.backfill.lock().await;
        // Events that are not durable are not in the journal yet.
        let horizon = self.read(|queue, _| queue.feed_size(view).map(|size| size.horizon)).await?;
        let Some(horizon) = horizon.filter(|horizon| *horizon > after && !vain.includes(after, *horizon))
        else {
            return Ok(());
        };
        let mut backfill = Backfill::new(view, after);
        let mut bytes = 0;
        while backfill.last() < horizon && bytes < BACKFILL_BYTES_MAX {
            let last = backfill.last();
            let _one_of_few = self.context.long_reads.part().await;
            let rows = journal.reader().journal(*id, last, BACKFILL_PAGE_BYTES).await;
            let rows = rows.map_err(|error| self.unreadable(&error))?;
            if rows.is_empty() {
                return Ok(());
            }
            bytes += rows.iter().map(JournalRow::bytes).sum::<u64>();
            let noted = on_own_thread(async move { note_rows(backfill, &rows) }).await;
            backfill = match noted.map_err(|error| self.unreadable(&error))? {
                Ok(noted) => noted,
                Err(begins) => {
                    vain.begins = vain.begins.max(begins);
                    return Ok(());
                }
            };
        }
        if backfill.last() < horizon {
            let segments = journal.reader().segments(*id, BACKFILL_PAGE_BYTES as u64).await;
            let segments = segments.map_err(|error| self.unreadable(&error))?;
            vain.too_far = (too_far_before(horizon, &segments).max(Rv::new(after.get() + 1)), horizon);
        }
        self.open()?.queue.backfill_feed(backfill);
        Ok(())
    }

    pub(super) fn unreadable(&self, error: &dyn std::error::Error) -> Error {
        tracing::error!(queue = %self.name(), error = with_causes(error), "a change feed can't be read");
        Error::PastUnreadable
    }

    /// Trims the feeds and removes those without readers. Returns whether any feeds are left.
    fn keep_up_feeds(&self) -> bool {
        let mut state = match self.open() {
            Ok(state) => state,
            Err(Error::QueueDeleted) => return false,
            Err(_) => return true,
        };
        let now_us = self.clock().monotonic_us();
        let mut removed = Vec::new();
        state.queue.trim_feeds(self.now());
        for view in View::ALL {
            let readers = self.feed_readers.of(view);
            readers.pages.clear();
            let is_used = readers.count.load(Ordering::Relaxed) > 0;
            let idle = Duration::from_micros(now_us.saturating_sub(readers.left_us.load(Ordering::Relaxed)));
            if !is_used && idle >= self.context.watch.idle {
                removed.extend(state.queue.remove_feed(view));
            }
        }
        let has_feed = View::ALL.iter().any(|view| state.queue.has_feed(*view));
        self.note_held(&state);
        drop(state);
        if !removed.is_empty() {
            drop_in_background(removed);
        }
        has_feed || self.feed_readers.are_any()
    }
}

/// The events before which an extension of a feed up to `horizon` would read more than [`BACKFILL_BYTES_MAX`].
fn too_far_before(horizon: Rv, segments: &[Segment]) -> Rv {
    let older = segments.partition_point(|segment| segment.last_rv < horizon);
    let mut bytes = 0;
    let mut too_far = segments.iter().take(older + 1).rev().skip_while(|segment| {
        bytes += segment.bytes;
        bytes < BACKFILL_BYTES_MAX
    });
    too_far.next().map_or(Rv::ZERO, |segment| segment.last_rv)
}

/// Records the events of rows. If that is not possible, returns the event before which no reader can begin: events before
/// a row are missing, because the journal does not reach that far back or is damaged, or the last state of a deleted key
/// is lost.
fn note_rows(mut backfill: Backfill, rows: &[JournalRow]) -> Result<Result<Backfill, Rv>, RecordError> {
    let mut decoder = Decoder::new();
    for row in rows {
        let noted = backfill.last();
        if row.prev_rv > noted {
            return Ok(Err(row.prev_rv));
        }
        let PastEvents { events, lost } = decoder.past_events(row)?;
        let is_deletion = |event: &Event| {
            matches!(&event.kind, EventKind::Appended(Appended { delta: DeltaKind::Deleted, .. }))
        };
        let of_deletion =
            |lost: &&LostObject| events.iter().any(|event| event.rv == lost.rv && is_deletion(event));
        if let Some(lost) = lost.iter().find(of_deletion) {
            let error = lost_object(row, lost);
            tracing::error!(%error, "a change feed can't be extended: its readers list again");
            return Ok(Err(row.last_rv));
        }
        for event in &events {
            backfill.note(event);
        }
    }
    Ok(Ok(backfill))
}

/// Announces changes once they are durable, until there are no feeds.
async fn run(handle: Arc<Handle>) {
    let readers = &handle.feed_readers;
    let mut upkeep = interval_at(Instant::now() + UPKEEP_PERIOD, UPKEEP_PERIOD);
    upkeep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = handle.shutdown().draining().cancelled() => return,
            // This branch comes first, so that a constantly changing queue can't prevent it from running.
            _ = upkeep.tick() => {
                if !handle.keep_up_feeds() {
                    // A swap, because the counts of the readers are read after it.
                    readers.has_task.swap(false, Ordering::AcqRel);
                    // A reader that arrived in the meantime has relied on this task.
                    if !readers.are_any() || readers.has_task.swap(true, Ordering::AcqRel) {
                        return;
                    }
                }
            }
            () = readers.changed.notified() => {
                let commit = handle.lock().commits.newest.clone();
                // If the commit has failed, a reader sees the failure at its next read.
                let _failed = commit.wait().await;
                for view in readers.all() {
                    if view.has_changed.swap(false, Ordering::Relaxed) {
                        view.announced.send(view.changed_us.load(Ordering::Relaxed));
                    }
                }
            }
        }
    }
}

impl Watcher {
    /// The reader of a follower, which has keys from before its list, and waits at least this long between two wake-ups.
    #[must_use]
    pub(super) fn of_follower(mut self, pause_min: Duration) -> Self {
        self.pause_min = pause_min;
        self.position.has_others = true;
        self
    }

    /// Makes the feed reach back to the reader's position.
    async fn prepare(&self) -> Result<(), Error> {
        let Position { after, listing_since, .. } = self.position;
        let handle = &self.handle;
        handle.build_feed(self.view).await?;
        let nothing = RowLimit { rows: 0, bytes: 0 };
        // The queue may be loaded again in the meantime, with a feed that begins later.
        let mut extended = Rv::ZERO;
        for _ in 0..BACKFILLS_MAX {
            let Err(NoRows::Expired { horizon }) = self.page(nothing)?.0 else { break };
            if horizon == extended {
                break;
            }
            extended = horizon;
            handle.backfill_feed(self.view, listing_since.unwrap_or_default().max(after)).await?;
            handle.build_feed(self.view).await?;
        }
        match self.page(nothing)?.0 {
            Err(NoRows::Expired { horizon }) => {
                handle.metrics().count_lost(LostPosition::TooOld);
                Err(Error::Expired { horizon })
            }
            Err(NoRows::Stray { stray, newest }) => {
                let (why, error) = match stray {
                    Stray::Ahead => (LostPosition::Ahead, Error::Ahead { newest }),
                    Stray::Lost => (LostPosition::Lost, Error::Lost),
                    Stray::TooOld => (LostPosition::TooOld, Error::TooOld),
                };
                handle.metrics().count_lost(why);
                Err(error)
            }
            // The queue was just loaded again. The next read builds the feed.
            Err(NoRows::NotBuilt) | Ok(_) => Ok(()),
        }
    }

    /// The next page, and the commit that it depends on.
    fn page(&self, limit: RowLimit) -> Result<(Result<RowPage, NoRows>, deltaq_journal::Commit), Error> {
        let state = self.handle.open()?;
        let includes = |key: &Key| self.filter.includes(key);
        let page = state.queue.rows(self.view, self.position, includes, limit);
        let commit = state.commits.newest.clone();
        // A thread that waits for the lock gets it next, because a reader whose filter skips most keys reads page
        // after page.
        MutexGuard::unlock_fair(state);
        Ok((page, commit))
    }

    /// The next rows. There may be none.
    ///
    /// # Errors
    /// Same as [`Handle::watch`].
    pub async fn read(&mut self, limit: RowLimit) -> Result<RowPage, Error> {
        let (page, commit) = match self.page(limit)? {
            (Ok(page), commit) => (page, commit),
            (Err(_), _) => {
                self.prepare().await?;
                let (page, commit) = self.page(limit)?;
                (page.unwrap_or_else(|_| self.nothing()), commit)
            }
        };
        commit.wait().await?;
        self.advance((page.next, page.lag, page.is_last), page.rows.len());
        if page.is_last || !page.rows.is_empty() {
            self.turn = None;
        } else {
            // The caller reads the next page at once, so this lets other connections of the thread run first.
            tokio::task::yield_now().await;
            if self.turn.is_none() {
                self.turn = self.handle.context.long_reads.turn().await;
            }
        }
        Ok(page)
    }

    /// A page without rows.
    fn nothing(&self) -> RowPage {
        RowPage { next: self.position.after, lag: self.position.lag, ..RowPage::default() }
    }

    /// The next rows as text, and whether there are no more. The readers of all keys share it: those of a form must all encode alike.
    ///
    /// # Errors
    /// Same as [`Handle::watch`].
    pub async fn read_text(
        &mut self,
        form: PageForm,
        limit: RowLimit,
        encode: impl FnOnce(&[Row]) -> Bytes,
    ) -> Result<(Bytes, bool), Error> {
        if self.filter != KeyFilter::default() || self.position.listing_since.is_some() {
            let page = self.read(limit).await?;
            return Ok((encode(&page.rows), page.is_last));
        }
        let handle = Arc::clone(&self.handle);
        let readers = handle.feed_readers.of(self.view);
        let position = self.position;
        if let Some(page) = readers.pages.of(form, position) {
            drop(handle.open()?);
            // The reader must not wait for changes that the page may lack.
            self.announced = self.announced.min(page.announced);
            self.advance((page.next, page.lag, page.is_last), page.rows);
            return Ok((page.text.clone(), page.is_last));
        }
        let (announced, _) = readers.announced.newest();
        let page = self.read(limit).await?;
        let text = encode(&page.rows);
        let RowPage { rows, next, is_last, lag } = page;
        if !rows.is_empty() && readers.count.load(Ordering::Relaxed) > 1 {
            // The copy takes as much memory as it has bytes.
            let (rows, text) = (rows.len(), Bytes::copy_from_slice(&text));
            let page = SharedPage { form, position, next, lag, is_last, announced, rows, text };
            readers.pages.keep(Arc::new(page), &handle.context.page_room);
        }
        Ok((text, is_last))
    }

    /// Moves the reader to `next`, with the rows up to there.
    fn advance(&mut self, (next, lag, has_all): (Rv, Option<Lag>, bool), rows: usize) {
        self.position =
            if has_all { Position::after(next) } else { Position { after: next, lag, ..self.position } };
        if rows > 0 {
            let changed_us = Some(self.changed_us).filter(|changed_us| *changed_us > 0);
            let lag = changed_us.map(|changed_us| self.handle.clock().since(changed_us));
            self.handle.metrics().record_rows(self.view, rows, lag);
        }
        self.changed_us = 0;
    }

    /// Waits until the view has changed since the last call. A call shortly after the last one may wait a little
    /// longer.
    pub async fn changed(&mut self) {
        let readers = self.handle.feed_readers.of(self.view);
        readers.announced.more_than(self.announced).await;
        if self.next_read > Instant::now() {
            tokio::time::sleep_until(self.next_read).await;
        }
        (self.announced, self.changed_us) = readers.announced.newest();
        let count = readers.count.load(Ordering::Relaxed);
        let pause = PAUSE_PER_READER.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
        // All readers read at the multiples of the pause, because readers that are at one position share their pages.
        let pause_us = whole_us(pause.min(PAUSE_MAX)).max(1);
        let wait = Duration::from_micros(pause_us - self.handle.clock().monotonic_us() % pause_us);
        self.next_read = Instant::now() + wait.max(self.pause_min);
    }

    /// The view that the reader reads.
    #[must_use]
    pub const fn view(&self) -> View {
        self.view
    }

    /// The version up to which the reader has received all changes.
    #[must_use]
    pub fn resource_version(&self) -> Rv {
        self.position.after
    }

    /// While the reader gets the initial keys of the view: the queue's newest event when the reader started.
    #[must_use]
    pub fn listing_since(&self) -> Option<Rv> {
        self.position.listing_since
    }

    /// The queue.
    #[must_use]
    pub fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }
}

#[cfg(test)]
mod tests {
    use deltaq_engine::delta::Provenance;
    use deltaq_engine::event::{Origin, ViewChanges};
    use deltaq_engine::object::Object;
    use deltaq_engine::schedule::HeadStart;
    use deltaq_engine::time::Time;
    use deltaq_journal::record::{SHARED_BYTES_MIN, journal_rows};
    use deltaq_journal::store::{Epoch, QueueId};

    use super::*;
    use crate::queue::feed_readers::VainBackfills;

    /// A row with the events from `first` to `last`.
    fn row(first: u64, last: u64) -> JournalRow {
        let (kind, views) = (EventKind::Paused, ViewChanges::default());
        let event = |rv| {
            let (rv, at, kind) = (Rv::new(rv), Time::from_micros(rv), kind.clone());
            Event { rv, at, kind, views, sequence: None, by: None }
        };
        let events: Vec<Event> = (first..=last).map(event).collect();
        journal_rows(QueueId(1), Epoch(1), Rv::new(first - 1), &events, false).remove(0)
    }

    /// A row with one event, whose object is shared.
    fn large(rv: u64, delta: DeltaKind) -> JournalRow {
        let object = Object::from_valid(&format!("{{\"text\":\"{}\"}}", "x".repeat(SHARED_BYTES_MIN)));
        let kind = EventKind::Appended(Appended {
            key: Key::new("k").expect("a key"),
            delta,
            final_state_unknown: false,
            origin: Origin::Call,
            provenance: Provenance::new(None, None, None),
            due: None,
            head_start: HeadStart::NONE,
            object,
        });
        let (before, rv, at) = (Rv::new(rv - 1), Rv::new(rv), Time::from_micros(rv));
        let event = Event { rv, at, kind, views: ViewChanges::default(), sequence: None, by: None };
        journal_rows(QueueId(1), Epoch(1), before, &[event], true).remove(0)
    }

    #[test]
    fn a_backfill_in_vain_is_not_tried_again() {
        let segment = |last: u64| Segment { last_rv: Rv::new(last), at: Time::default(), bytes: 16 << 20 };
        let segments: Vec<Segment> = (1..=10).map(|number| segment(number * 10)).collect();
        let begin = |horizon: u64| too_far_before(Rv::new(horizon), &segments).get();
        assert_eq!((begin(200), begin(95), begin(91), begin(50), begin(1)), (70, 70, 70, 20, 0));
        let vain = VainBackfills { begins: Rv::new(5), too_far: (Rv::new(60), Rv::new(95)) };
        let includes = |after: u64, horizon: u64| vain.includes(Rv::new(after), Rv::new(horizon));
        assert!(includes(4, 6), "the journal begins later");
        assert!(includes(59, 95) && includes(6, 95) && includes(59, 1_000));
        assert!(!includes(60, 95) && !includes(59, 94), "nothing is known of other readers and feeds");
        assert!(!VainBackfills::default().includes(Rv::ZERO, Rv::new(9)));
    }

    #[test]
    fn a_feed_is_extended_only_by_events_without_a_gap() {
        let noted = |after, rows: &[JournalRow]| {
            let backfill = Backfill::new(View::Latest, Rv::new(after));
            let noted = note_rows(backfill, rows).expect("the rows are readable");
            noted.map(|backfill| backfill.last().get()).map_err(Rv::get)
        };
        assert_eq!(noted(4, &[row(3, 6), row(7, 9)]), Ok(9));
        assert_eq!(noted(2, &[row(3, 6)]), Ok(6));
        assert_eq!(noted(1, &[row(3, 6)]), Err(2), "the journal begins later");
        assert_eq!(noted(2, &[row(3, 6), row(8, 9)]), Err(7), "a row is missing");
        // A reader needs the object of a deletion only.
        let lost = |delta| {
            let mut row = large(7, delta);
            row.texts.iter_mut().for_each(|shared| shared.text = "".into());
            row
        };
        assert_eq!(noted(2, &[row(3, 6), lost(DeltaKind::Added), row(8, 9)]), Ok(9));
        assert_eq!(noted(2, &[row(3, 6), lost(DeltaKind::Updated)]), Ok(7));
        assert_eq!(noted(2, &[row(3, 6), large(7, DeltaKind::Deleted)]), Ok(7));
        assert_eq!(noted(2, &[row(3, 6), lost(DeltaKind::Deleted), row(8, 9)]), Err(7));
        assert_eq!(noted(7, &[row(8, 9)]), Ok(9), "a reader behind the lost object");
    }
}
