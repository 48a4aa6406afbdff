//! The buckets of one queue, by hour.

use std::ops::Range;

use super::bucket::{Bucket, Counts, Gauges, Since};
use super::minute::Minute;
use super::sketch::Sketch;

/// Buckets are kept for this many hours, and for the hour in which they end.
pub(super) const KEPT_HOURS: u32 = 24;
/// The gauges of a queue to which nothing happens are repeated after this many hours, so that they are not lost with their bucket.
const REPEATED_HOURS: u32 = 23;
/// The version of the stored form of an hour, its first byte.
const FORMAT: u8 = 1;
/// What an allocation takes in addition to its bytes.
const ALLOCATION_BYTES: usize = 16;

/// The buckets of a queue.
///
/// Invariants: the hours ascend, and so do the minutes of the buckets in an hour. A queue that has lost the bucket before its first
/// one knows its gauges by `before`, or the first bucket is a repetition, or the gauges were 0.
#[derive(Debug, Default)]
pub(crate) struct QueueSeries {
    hours: Vec<Hour>,
    /// The bucket of the latest minute, even if it was dropped: its minute and its gauges. The minute is in the future after the clock
    /// was set back.
    newest: Option<(Minute, Gauges)>,
    /// The last bucket that was dropped because of its age.
    before: Option<(Minute, Gauges)>,
    /// Buckets before this minute may have been dropped for lack of room.
    complete_from: Minute,
}

/// The buckets of an hour.
#[derive(Debug)]
struct Hour {
    /// The hour, counted from 1970.
    number: u32,
    /// The format, and the buckets.
    bytes: Vec<u8>,
    /// The minute of the last bucket.
    last: u8,
    /// How much has happened.
    activity: u64,
}

impl QueueSeries {
    /// Records what happened in a minute, like [`note`](Self::note).
    pub(crate) fn note_all(&mut self, minute: Minute, mut since: Since, gauges: Gauges) -> bool {
        let (counts, works) = since.take();
        self.note(minute, counts, works, gauges)
    }

    /// Records what happened in a minute, and the gauges at its end. If nothing has happened, nothing is written. Returns whether the
    /// hour of the minute has changed.
    pub(crate) fn note(&mut self, minute: Minute, counts: Counts, works: Sketch, gauges: Gauges) -> bool {
        let last = self.last_up_to(minute);
        let expected = last.map(|(last, gauges)| gauges.after(minute.since(last))).unwrap_or_default();
        let mut is_repetition = false;
        if counts.is_zero() && works.is_empty() && !gauges.differ(&expected) {
            let is_old = |(last, _): (Minute, Gauges)| minute.hour() >= last.hour() + REPEATED_HOURS;
            if !last.is_some_and(is_old) || gauges == Gauges::default() {
                return false;
            }
            is_repetition = true;
        }
        self.add(minute, &Bucket { counts, gauges, works, is_repetition });
        if self.newest.is_none_or(|(newest, _)| newest <= minute) {
            self.newest = Some((minute, gauges));
        }
        true
    }

    /// The last bucket up to a minute.
    fn last_up_to(&self, minute: Minute) -> Option<(Minute, Gauges)> {
        if self.newest.is_none_or(|(newest, _)| newest <= minute) {
            return self.newest;
        }
        let behind = minute.plus(1);
        self.visit(behind..behind, |_, _| ())
    }

    fn add(&mut self, minute: Minute, bucket: &Bucket) {
        let place = self.hours.partition_point(|hour| hour.number < minute.hour());
        if self.hours.get(place).is_none_or(|hour| hour.number != minute.hour()) {
            if let Some(last) = place.checked_sub(1).and_then(|last| self.hours.get_mut(last)) {
                last.bytes.shrink_to_fit();
            }
            self.hours.insert(place, Hour::new(minute.hour()));
        }
        if let Some(hour) = self.hours.get_mut(place) {
            hour.add(minute.of_hour(), bucket);
        }
    }

    /// The stored form of an hour. It has no buckets if some were dropped for lack of room.
    pub(crate) fn stored(&self, hour: u32) -> Vec<u8> {
        let is_complete = self.complete_from <= Minute::in_hour(hour, 0);
        let found = self.hours.iter().find(|kept| kept.number == hour && is_complete);
        found.map_or_else(|| vec![FORMAT], |hour| hour.bytes.clone())
    }

    /// Adds a stored hour. An hour without buckets says that it and earlier hours were dropped for lack of room. Returns whether the
    /// bytes could be read.
    pub(crate) fn load(&mut self, hour: u32, bytes: &[u8]) -> bool {
        let Some(read) = Hour::read(hour, bytes) else { return false };
        let Some((last, gauges)) = read.buckets().last().map(|(minute, bucket)| (minute, bucket.gauges))
        else {
            self.complete_from = self.complete_from.max(Minute::in_hour(hour + 1, 0));
            return true;
        };
        if self.newest.is_none_or(|(known, _)| known < last) {
            self.newest = Some((last, gauges));
        }
        let place = self.hours.partition_point(|hour| hour.number < read.number);
        self.hours.insert(place, read);
        true
    }

    /// Records that hours before this one may be missing.
    pub(crate) fn lacks_before(&mut self, hour: u32) {
        self.complete_from = self.complete_from.max(Minute::in_hour(hour, 0));
    }

    /// Drops the hours outside of this range.
    pub(crate) fn keep(&mut self, hours: &Range<u32>) {
        if self.hours.first().is_none_or(|first| first.number >= hours.start)
            && self.hours.last().is_none_or(|last| last.number < hours.end)
        {
            return;
        }
        let old = self.hours.iter().rfind(|hour| hour.number < hours.start);
        if let Some((minute, bucket)) = old.and_then(|hour| hour.buckets().last()) {
            self.before = Some((minute, bucket.gauges));
        }
        self.hours.retain(|hour| hours.contains(&hour.number));
        let newest = self.hours.last().and_then(|hour| hour.buckets().last());
        self.newest = newest.map(|(minute, bucket)| (minute, bucket.gauges)).or(self.before);
    }

    /// The oldest hour.
    pub(crate) fn oldest_hour(&self) -> Option<u32> {
        self.hours.first().map(|hour| hour.number)
    }

    /// How much has happened in all hours.
    pub(crate) fn activity(&self) -> u64 {
        self.hours.iter().map(|hour| hour.activity).fold(0, u64::saturating_add)
    }

    /// Drops the oldest hour for lack of room. Returns the hour.
    pub(crate) fn drop_oldest(&mut self) -> Option<u32> {
        if self.hours.is_empty() {
            return None;
        }
        let dropped = self.hours.remove(0);
        if let Some((minute, bucket)) = dropped.buckets().last() {
            self.before = Some((minute, bucket.gauges));
        }
        self.complete_from = self.complete_from.max(Minute::in_hour(dropped.number + 1, 0));
        if self.hours.is_empty() {
            self.hours = Vec::new();
        }
        Some(dropped.number)
    }

    /// The first minute from which on all buckets are kept.
    pub(crate) const fn complete_from(&self) -> Minute {
        self.complete_from
    }

    /// Approximate size in memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let hours = self.hours.iter().map(|hour| hour.bytes.capacity() + ALLOCATION_BYTES);
        size_of::<Self>() + self.hours.capacity() * size_of::<Hour>() + hours.sum::<usize>()
    }

    /// Calls `visit` with the buckets of the minutes from `from` to before `until`, in their order. Returns the last bucket before
    /// `from`: its minute and its gauges.
    pub(crate) fn visit(
        &self,
        range: Range<Minute>,
        mut visit: impl FnMut(Minute, &Bucket),
    ) -> Option<(Minute, Gauges)> {
        let behind = self.hours.partition_point(|hour| hour.number < range.start.hour());
        let (earlier, later) = self.hours.split_at(behind.min(self.hours.len()));
        let last = earlier.last().and_then(|hour| hour.buckets().last());
        let mut before = last.map(|(minute, bucket)| (minute, bucket.gauges)).or(self.before);
        let buckets = later.iter().take_while(|hour| hour.number <= range.end.hour()).flat_map(Hour::buckets);
        for (minute, bucket) in buckets {
            if minute >= range.end {
                break;
            }
            if minute < range.start {
                before = Some((minute, bucket.gauges));
                continue;
            }
            if before.is_none() && bucket.is_repetition {
                before = Some((minute, bucket.gauges));
            }
            visit(minute, &bucket);
        }
        before
    }
}

impl Hour {
    fn new(hour: u32) -> Self {
        Self { number: hour, bytes: vec![FORMAT], last: 0, activity: 0 }
    }

    /// Reads a stored hour. `None` if it is damaged, or of another format.
    fn read(hour: u32, bytes: &[u8]) -> Option<Self> {
        let (FORMAT, mut rest) = bytes.split_first().map(|(format, rest)| (*format, rest))? else {
            return None;
        };
        let mut read = Self { bytes: bytes.to_vec(), ..Self::new(hour) };
        let mut next = 0;
        while !rest.is_empty() {
            let (minute, bucket) = Bucket::read(&mut rest).filter(|(minute, _)| *minute >= next)?;
            next = minute + 1;
            read.last = minute;
            read.activity = read.activity.saturating_add(activity_of(&bucket));
        }
        Some(read)
    }

    fn buckets(&self) -> impl Iterator<Item = (Minute, Bucket)> {
        let mut rest = self.bytes.get(1..).unwrap_or_default();
        let hour = self.number;
        std::iter::from_fn(move || {
            let (minute, bucket) = Bucket::read(&mut rest)?;
            Some((Minute::in_hour(hour, minute), bucket))
        })
    }

    /// Adds a bucket. If the minute has one already, because the clock was set back or another server had the queue in the same
    /// minute, it gets the counts of both.
    fn add(&mut self, minute: u8, bucket: &Bucket) {
        self.activity = self.activity.saturating_add(activity_of(bucket));
        if self.bytes.len() == 1 || minute > self.last {
            bucket.write(minute, &mut self.bytes);
            self.last = minute;
            return;
        }
        let mut bytes = vec![FORMAT];
        let mut is_added = false;
        for (at, mut kept) in self.buckets() {
            if at.of_hour() == minute {
                kept.add_later(bucket);
                is_added = true;
            } else if at.of_hour() > minute && !is_added {
                bucket.write(minute, &mut bytes);
                is_added = true;
            }
            kept.write(at.of_hour(), &mut bytes);
        }
        self.bytes = bytes;
    }
}

/// How much has happened in a bucket.
fn activity_of(bucket: &Bucket) -> u64 {
    bucket.counts.numbers().iter().copied().fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Minute = Minute(29_933_460);

    fn adds(count: u64) -> Counts {
        Counts { deltas: [count, 0, 0, 0, 0], ..Counts::default() }
    }

    fn ready(ready: u64) -> Gauges {
        Gauges { ready, oldest_ready_ms: (ready > 0).then_some(1_000), ..Gauges::default() }
    }

    /// The minutes with a bucket, after [`MINUTE`], and their first counts.
    fn found(series: &QueueSeries) -> Vec<(i64, u64)> {
        let mut found = Vec::new();
        series.visit(Minute(0)..Minute(u32::MAX), |minute, bucket| {
            found.push((minute.since(MINUTE), bucket.counts.deltas[0]));
        });
        found
    }

    #[test]
    fn a_minute_in_which_nothing_happens_has_no_bucket() {
        let mut series = QueueSeries::default();
        assert!(!series.note(MINUTE, adds(0), Sketch::default(), ready(0)), "an empty queue");
        assert!(series.note(MINUTE.plus(1), adds(3), Sketch::default(), ready(3)));
        for minutes in 2..90 {
            let aged = ready(3).after(minutes - 1);
            let minute = MINUTE.plus(u32::try_from(minutes).unwrap());
            assert!(!series.note(minute, adds(0), Sketch::default(), aged), "only the ages have grown");
        }
        // A delay that ends makes a key ready without a call.
        assert!(series.note(MINUTE.plus(90), adds(0), Sketch::default(), ready(4)));
        assert_eq!(found(&series), [(1, 3), (90, 0)]);
        let before =
            series.visit(MINUTE.plus(5)..MINUTE.plus(6), |minute, _| panic!("{minute:?} has no bucket"));
        assert_eq!(before, Some((MINUTE.plus(1), ready(3))));
    }

    #[test]
    fn a_clock_that_is_set_back_adds_to_the_bucket_of_the_minute() {
        let mut series = QueueSeries::default();
        for (minutes, count) in [(0, 1), (1, 2), (2, 3), (0, 10), (70, 4), (1, 20), (3, 5)] {
            series.note(MINUTE.plus(minutes), adds(count), Sketch::default(), ready(count));
        }
        assert_eq!(found(&series), [(0, 11), (1, 22), (2, 3), (3, 5), (70, 4)]);
        let mut gauges = Vec::new();
        series.visit(MINUTE..MINUTE.plus(2), |_, bucket| gauges.push(bucket.gauges.ready));
        assert_eq!(gauges, [10, 20], "the later gauges count");
    }

    #[test]
    fn gauges_after_a_clock_was_set_back_are_those_of_now() {
        let gauges_at = |series: &QueueSeries, minute: u32| {
            let behind = MINUTE.plus(minute + 1);
            series.visit(behind..behind, |_, _| ()).map(|(_, gauges)| gauges.ready)
        };
        let mut series = QueueSeries::default();
        series.note(MINUTE.plus(11), adds(1), Sketch::default(), ready(100));
        // The clock goes back by six minutes, and the queue empties. Nothing happens after that.
        for minute in 5..15 {
            series.note(MINUTE.plus(minute), adds(0), Sketch::default(), ready(0));
            assert_eq!(gauges_at(&series, minute).unwrap_or_default(), 0, "{minute}");
        }
        assert_eq!(found(&series), [(11, 1)], "what was counted stays");
        // It goes back by days, so the later hours are dropped.
        series.note(MINUTE.plus(5_000), adds(1), Sketch::default(), ready(100));
        let hour = MINUTE.plus(20).hour();
        series.keep(&(hour - KEPT_HOURS..hour + 1));
        series.note(MINUTE.plus(20), adds(0), Sketch::default(), ready(0));
        assert_eq!(gauges_at(&series, 20), Some(0));
        series.note(MINUTE.plus(21), adds(0), Sketch::default(), ready(100));
        assert_eq!(gauges_at(&series, 21), Some(100), "the dropped bucket is not the last");
    }

    #[test]
    fn the_stored_hours_are_the_same_series() {
        let mut series = QueueSeries::default();
        let mut works = Sketch::default();
        works.record(5_000);
        for minutes in [0, 7, 59, 60, 61, 200] {
            series.note(MINUTE.plus(minutes), adds(minutes.into()), works.clone(), ready(1));
        }
        let mut loaded = QueueSeries::default();
        for hour in [MINUTE.hour() + 3, MINUTE.hour(), MINUTE.hour() + 1] {
            assert!(loaded.load(hour, &series.stored(hour)));
        }
        assert_eq!(found(&loaded), found(&series));
        assert_eq!((loaded.newest, loaded.activity()), (series.newest, series.activity()));
        // The queue goes on where it was: no bucket for the minute of the start.
        let minute = MINUTE.plus(205);
        assert!(!loaded.note(minute, adds(0), Sketch::default(), ready(1).after(5)));
        assert!(!loaded.load(1, &[FORMAT, 60]), "damage");
        assert!(!loaded.load(1, &[FORMAT + 1]), "another format");
        assert!(!loaded.load(1, &[]), "no format");
    }

    #[test]
    fn an_hour_that_was_dropped_for_lack_of_room_stays_unknown_after_a_restart() {
        let mut series = QueueSeries::default();
        series.note(MINUTE, adds(1), Sketch::default(), ready(7));
        series.note(MINUTE.plus(60), adds(2), Sketch::default(), ready(8));
        let hour = series.drop_oldest().unwrap();
        assert_eq!((hour, found(&series)), (MINUTE.hour(), vec![(60, 2)]));
        let complete_from = Minute::in_hour(hour + 1, 0);
        assert_eq!(series.complete_from(), complete_from);
        let before = series.visit(complete_from..complete_from.plus(1), |_, _| ());
        assert_eq!(before, Some((MINUTE, ready(7))), "the gauges at the end of the dropped hour are known");
        let mut loaded = QueueSeries::default();
        assert!(loaded.load(hour, &series.stored(hour)));
        assert_eq!((loaded.complete_from(), loaded.oldest_hour()), (complete_from, None));
        // The present hour is dropped, and goes on.
        let hour = series.drop_oldest().unwrap();
        series.note(MINUTE.plus(61), adds(3), Sketch::default(), ready(9));
        let mut loaded = QueueSeries::default();
        assert!(loaded.load(hour, &series.stored(hour)));
        assert_eq!(loaded.complete_from(), Minute::in_hour(hour + 1, 0), "its first minutes are unknown");
    }

    #[test]
    fn gauges_outlive_their_bucket() {
        let mut series = QueueSeries::default();
        series.note(MINUTE, adds(1), Sketch::default(), ready(5));
        let mut repeated = Vec::new();
        for minutes in 1..40 * 60 {
            let minute = MINUTE.plus(minutes);
            if series.note(minute, adds(0), Sketch::default(), ready(5).after(minutes.into())) {
                repeated.push(minutes);
            }
            series.keep(&(minute.hour() - KEPT_HOURS..minute.hour() + 1));
        }
        assert_eq!(repeated.len(), 1, "{repeated:?}");
        let now = MINUTE.plus(40 * 60);
        let asked = now.minus(20 * 60);
        assert!(asked < MINUTE.plus(repeated[0]), "before the only bucket that is left");
        let before = series.visit(asked..now, |_, _| ());
        assert_eq!(before.map(|(_, gauges)| gauges.ready), Some(5));
        // A restart loses what is not in a bucket. The repetition says that the gauges were the same before.
        let hour = series.oldest_hour().unwrap();
        let mut loaded = QueueSeries::default();
        loaded.load(hour, &series.stored(hour));
        let (minute, gauges) = loaded.visit(asked..now, |_, _| ()).unwrap();
        assert_eq!(gauges.after(asked.since(minute)).oldest_ready_ms, Some(1_000 + 20 * 3_600_000));
    }
}
