//! Measures the queues at the end of each minute, for their series, and keeps the series in the store.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use deltaq_journal::Journal;
use deltaq_journal::store::{MINUTES_RAN, SeriesRow};
use deltaq_runtime::causes::with_causes;

use super::Registry;
use crate::queue::Handle;
use crate::series::{Minute, SeriesRange, SeriesSums};

/// How often the clock is read. It may be set, so the end of a minute can't be waited for.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// How many queues are measured, or added up, before other tasks run.
const QUEUES_AT_ONCE: usize = 64;

impl Registry {
    /// Measures the queues at the end of each minute, until the shutdown begins.
    pub(super) async fn run_series(self: Arc<Self>) {
        loop {
            if let Some(minute) = self.ended_minute() {
                for handles in self.handles().chunks(QUEUES_AT_ONCE) {
                    for handle in handles {
                        self.note_minute(handle, minute);
                    }
                    tokio::task::yield_now().await;
                }
                self.end_minute(minute);
            }
            tokio::select! {
                biased;
                () = self.shutdown.draining().cancelled() => return,
                () = tokio::time::sleep(LOOK_PERIOD) => {}
            }
        }
    }

    /// Measures the queues if a minute has ended since the last call.
    pub fn measure(&self) {
        if let Some(minute) = self.ended_minute() {
            self.measure_in(minute);
        }
    }

    /// Measures the queues although the minute is not over.
    pub(super) fn measure_present(&self) {
        let minute = self.series_until();
        self.measure_in(minute);
    }

    fn measure_in(&self, minute: Minute) {
        self.handles().iter().for_each(|handle| self.note_minute(handle, minute));
        self.end_minute(minute);
    }

    /// The present minute of the clock that all servers of the store share.
    fn minute(&self) -> Minute {
        Minute::of(self.calendar())
    }

    fn ended_minute(&self) -> Option<Minute> {
        self.minutes.lock().ended(self.minute())
    }

    fn note_minute(&self, handle: &Arc<Handle>, minute: Minute) {
        if handle.note_minute(minute, self.lag(handle).as_ref()) {
            store(handle, minute.hour());
        }
    }

    fn end_minute(&self, minute: Minute) {
        let (bits, kept) = self.minutes.lock().end(minute, self.minute());
        if let Some(hours) = &kept {
            self.handles().iter().for_each(|handle| handle.series.lock().keep(hours));
        }
        if let Some(journal) = &self.journal {
            let content = bits.to_le_bytes().to_vec();
            journal.write_series([SeriesRow { hour: minute.hour(), queue: MINUTES_RAN, content }]);
            if let Some(hours) = kept {
                journal.keep_series(hours);
            }
        }
        self.limit_series();
    }

    /// Approximate size of all series in memory, in bytes.
    #[must_use]
    pub fn series_bytes(&self) -> usize {
        self.handles().iter().map(|handle| handle.series.lock().bytes()).sum()
    }

    /// Drops buckets if they take more memory than there is: the oldest hours first, and within an hour those of the queues to which
    /// the least has happened.
    fn limit_series(&self) {
        let handles = self.handles();
        let mut bytes = self.series_bytes();
        let max = self.series_part.bytes();
        while bytes > max {
            let oldest = |handle: &Arc<Handle>| {
                let series = handle.series.lock();
                Some((series.oldest_hour()?, series.activity()))
            };
            let mut candidates: Vec<_> =
                handles.iter().filter_map(|handle| Some((oldest(handle)?, handle))).collect();
            candidates.sort_by_key(|(oldest, _)| *oldest);
            let Some(((oldest_hour, _), _)) = candidates.first().copied() else { return };
            for (_, handle) in candidates.into_iter().take_while(|((hour, _), _)| *hour == oldest_hour) {
                if bytes <= max {
                    break;
                }
                let mut series = handle.series.lock();
                let before = series.bytes();
                series.drop_oldest();
                bytes -= before.saturating_sub(series.bytes());
                drop(series);
                store(handle, oldest_hour);
            }
        }
    }

    /// Loads the series of the loaded queues, the newest hours first, as far as there is room for them. They are only measurements, so
    /// a queue works without them.
    pub(crate) async fn load_series(&self, journal: &Journal) {
        let handles: HashMap<_, _> =
            self.handles().into_iter().filter_map(|handle| Some((handle.journal()?.1, handle))).collect();
        let (mut before, mut bytes, mut unreadable) = (None, 0, 0);
        let max = self.series_part.bytes();
        loop {
            let rows = match journal.reader().series(before).await {
                Ok(rows) => rows,
                Err(error) => {
                    let error = with_causes(&error);
                    tracing::warn!(error, "the series of the queues can't be read; they begin anew");
                    return;
                }
            };
            let Some(last) = rows.last() else { break };
            before = Some((last.hour, last.queue));
            for SeriesRow { hour, queue, content } in rows {
                bytes += content.len();
                if queue == MINUTES_RAN {
                    let bits = content.try_into().map(u64::from_le_bytes).unwrap_or_default();
                    self.minutes.lock().load(hour, bits);
                } else if let Some(handle) = handles.get(&queue) {
                    let mut series = handle.series.lock();
                    if bytes > max {
                        series.lacks_before(hour + 1);
                    } else if !series.load(hour, &content) {
                        series.lacks_before(hour + 1);
                        unreadable += 1;
                    }
                }
            }
        }
        if unreadable > 0 {
            tracing::warn!(
                hours = unreadable,
                "hours of the series of queues can't be read, and are left out"
            );
        }
        self.limit_series();
    }

    /// The minute up to which the series are complete: the present one or, right after its end, the one before.
    #[must_use]
    pub fn series_until(&self) -> Minute {
        self.minutes.lock().present(self.minute())
    }

    /// Adds the series of these queues of the registry to sums.
    pub async fn add_series(&self, handles: &[Arc<Handle>], sums: &mut SeriesSums) {
        let frame = self.minutes.lock().frame(sums, self.minute());
        for handles in handles.chunks(QUEUES_AT_ONCE) {
            for handle in handles {
                let created = Minute::of(handle.created_at());
                let waiting = handle.waiting();
                sums.add(&handle.series.lock(), created, &frame, waiting);
            }
            tokio::task::yield_now().await;
        }
    }

    /// The sums over one queue.
    pub async fn series_of(&self, handle: &Arc<Handle>, range: SeriesRange) -> SeriesSums {
        let mut sums = SeriesSums::new(range);
        self.add_series(std::slice::from_ref(handle), &mut sums).await;
        sums
    }
}

/// Writes an hour of a queue to the store, at some time. An hour that was dropped is written without buckets.
fn store(handle: &Handle, hour: u32) {
    if let Some((journal, queue)) = handle.journal() {
        let content = handle.series.lock().stored(hour);
        journal.write_series([SeriesRow { hour, queue: *queue, content }]);
    }
}
