//! The points of a series: the buckets of one or more queues, added up over steps of several minutes.

use super::bucket::{Bucket, Gauges};
use super::kept::QueueSeries;
use super::minute::Minute;
use super::{Minutes, Ran};

/// The speed at which a backlog shrinks is that of this many minutes.
const BACKLOG_MINUTES: u32 = 10;

/// The minutes of a series, and how many of them a point has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesRange {
    /// The first minute.
    pub from: Minute,
    /// The minute after the last one.
    pub until: Minute,
    /// The minutes of a point; at least 1.
    pub step: u32,
}

/// The sums over queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesSums {
    /// The minutes.
    pub range: SeriesRange,
    /// For each point, in how many of its minutes the server ran, and the sums.
    pub points: Vec<(u32, Bucket)>,
    /// Number of queues.
    pub queues: u64,
    /// The first minute from which on everything is known of all queues.
    pub complete_from: Minute,
    /// The keys that wait or are leased, now and a while ago.
    pub backlog: Backlog,
}

/// How the number of keys that are ready or leased has changed lately.
///
/// The lowest numbers of two spans are compared, and not two instants: the number of a queue that is filled once a minute goes up and down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Ready and leased keys.
    pub now: u64,
    /// The lowest number of ready and leased keys in each half of the minutes, added up over the queues.
    pub lows: [u64; 2],
    /// The minutes; 0 if the server did not run for long enough.
    pub minutes: u32,
    /// Keys that were acknowledged in them.
    pub acks: u64,
    /// The outlook of the queue that takes longest.
    pub outlook: Outlook,
}

/// How long it takes until no key of a queue is ready or leased, at the rate of the last minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outlook {
    /// No key is ready or leased now.
    #[default]
    Empty,
    /// After this many milliseconds.
    After(u64),
    /// Not known: keys wait now, but none waited at the end of the last minute.
    Unknown,
    /// Never: none is acknowledged.
    Stalled,
    /// Never: at least as many come as go.
    Growing,
}

impl SeriesRange {
    /// Number of points.
    #[must_use]
    pub fn points(&self) -> usize {
        let minutes = self.until.0.saturating_sub(self.from.0);
        usize::try_from(minutes.div_ceil(self.step.max(1))).unwrap_or(usize::MAX)
    }

    /// The first minute of a point.
    #[must_use]
    pub fn point(&self, number: usize) -> Minute {
        self.from.plus(u32::try_from(number).unwrap_or(u32::MAX).saturating_mul(self.step))
    }

    /// The number of the point of a minute of the range.
    fn number_of(&self, minute: Minute) -> usize {
        let minutes = minute.0.saturating_sub(self.from.0) / self.step.max(1);
        usize::try_from(minutes).unwrap_or(usize::MAX)
    }
}

/// The minutes of one registry, for the sums over its queues.
#[derive(Debug)]
pub(crate) struct Frame {
    /// For each point, the last of its minutes in which the server ran.
    last_ran: Vec<Option<Minute>>,
    /// Between the ends of these minutes, the backlogs are compared.
    compared: Option<(Minute, Minute)>,
}

impl SeriesSums {
    /// The sums over no queue.
    #[must_use]
    pub fn new(range: SeriesRange) -> Self {
        let points = vec![(0, Bucket::default()); range.points()];
        Self { range, points, queues: 0, complete_from: Minute::default(), backlog: Backlog::default() }
    }

    /// The minutes in which a server ran that has these minutes. `until` is the minute up to which its buckets are complete.
    pub(super) fn frame(&mut self, ran: &Ran, until: Minute) -> Frame {
        let range = self.range;
        let mut last_ran = vec![None; self.points.len()];
        for (number, ((minutes, _), last)) in self.points.iter_mut().zip(&mut last_ran).enumerate() {
            let end = range.point(number + 1).min(range.until);
            let ran_in = (range.point(number).0..end.0).map(Minute).filter(|minute| ran.has(*minute));
            let mut count = 0;
            for minute in ran_in {
                count += 1;
                *last = Some(minute);
            }
            *minutes = count.max(*minutes);
        }
        let lately = (until.minus(BACKLOG_MINUTES).0..until.0).map(Minute).filter(|minute| ran.has(*minute));
        let lately: Vec<Minute> = lately.collect();
        let compared = lately.first().copied().zip(lately.last().copied());
        Frame { last_ran, compared }
    }

    /// Adds the buckets of a queue that was created in the minute `created`. `waiting` keys are ready or leased now.
    pub(crate) fn add(&mut self, series: &QueueSeries, created: Minute, frame: &Frame, waiting: u64) {
        let range = self.range;
        let complete_from = series.complete_from().max(created);
        self.queues += 1;
        self.complete_from = self.complete_from.max(series.complete_from());
        // The last bucket of each point.
        let mut ends: Vec<Option<(Minute, Gauges)>> = vec![None; self.points.len()];
        let mut last = series.visit(range.from..range.until, |minute, bucket| {
            let number = range.number_of(minute);
            if let (Some((_, sum)), Some(end)) = (self.points.get_mut(number), ends.get_mut(number)) {
                sum.counts.add(&bucket.counts);
                sum.works.merge(&bucket.works);
                *end = Some((minute, bucket.gauges));
            }
        });
        for (((_, sum), end), ran) in self.points.iter_mut().zip(ends).zip(&frame.last_ran) {
            last = end.or(last);
            let Some(ran) = ran.filter(|ran| *ran >= complete_from) else { continue };
            if let Some((minute, gauges)) = last {
                sum.gauges.add(&gauges.after(ran.since(minute)));
            }
        }
        let past = frame.compared.map(|compared| Backlog::of(series, compared));
        self.backlog.add(&past.unwrap_or_default().with(waiting));
    }

    /// Leaves out what begins at this minute or later.
    pub fn end_at(&mut self, until: Minute) {
        if until < self.range.until {
            self.range.until = until.max(self.range.from);
            self.points.truncate(self.range.points());
        }
    }

    /// Adds the sums over other queues, of the same range.
    pub fn merge(&mut self, other: &Self) {
        for ((minutes, sum), (other_minutes, other)) in self.points.iter_mut().zip(&other.points) {
            *minutes = (*minutes).max(*other_minutes);
            sum.counts.add(&other.counts);
            sum.works.merge(&other.works);
            sum.gauges.add(&other.gauges);
        }
        self.queues += other.queues;
        self.complete_from = self.complete_from.max(other.complete_from);
        self.backlog.add(&other.backlog);
    }
}

impl Backlog {
    /// The backlog of a queue between the ends of two minutes. If nothing waited in between, and less and less since then, that is the
    /// rate.
    fn of(series: &QueueSeries, (first, end): (Minute, Minute)) -> Self {
        let empty = (first.0..=end.0).rev().map(Minute).find(|minute| waiting_at(series, *minute) == 0);
        let recent = empty
            .filter(|empty| empty.0 + 1 < end.0)
            .map(|empty| Self::between(series, (empty.plus(1), end)));
        let shrinking = recent.filter(|recent| matches!(recent.outlook, Outlook::After(_)));
        shrinking.unwrap_or_else(|| Self::between(series, (first, end)))
    }

    /// The same with the number of keys that wait now. The series ends with the last minute.
    fn with(self, waiting: u64) -> Self {
        let outlook = match (waiting, self.now) {
            (0, _) => Outlook::Empty,
            (_, 0) => Outlook::Unknown,
            _ => self.outlook,
        };
        Self { now: waiting, outlook, ..self }
    }

    fn between(series: &QueueSeries, (first, end): (Minute, Minute)) -> Self {
        let minutes = end.0 - first.0;
        let middle = first.plus(minutes / 2);
        let (mut lows, mut now, mut acks) = ([u64::MAX; 2], 0, 0);
        for minute in (first.0..=end.0).map(Minute) {
            now = waiting_at(series, minute);
            let [before, after] = &mut lows;
            let low = if minute <= middle { before } else { after };
            *low = now.min(*low);
        }
        series.visit(first.plus(1)..end.plus(1), |_, bucket| acks += bucket.counts.settled[0]);
        // The second half of a single minute is that minute.
        lows[1] = lows[1].min(now);
        let this = Self { now, lows, minutes, acks, outlook: Outlook::Empty };
        Self { outlook: this.outlook_of_queue(), ..this }
    }

    /// The time between the two halves.
    #[must_use]
    pub const fn span(&self) -> u32 {
        self.minutes - self.minutes / 2
    }

    fn outlook_of_queue(&self) -> Outlook {
        let [before, after] = self.lows;
        let after_minutes = |minutes: u32, keys: u64| {
            let ms = u128::from(self.now) * u128::from(minutes) * 60_000 / u128::from(keys.max(1));
            Outlook::After(u64::try_from(ms).unwrap_or(u64::MAX))
        };
        if self.now == 0 {
            Outlook::Empty
        } else if self.acks == 0 && after <= before {
            // Fewer keys wait if all of them fail, but they come back.
            Outlook::Stalled
        } else if before > after && after > 0 {
            after_minutes(self.span(), before - after)
        } else if after == 0 && self.acks > 0 {
            // It was empty a moment ago, so its keys don't wait for others.
            after_minutes(self.minutes, self.acks)
        } else {
            Outlook::Growing
        }
    }

    /// Adds the backlog of other queues.
    fn add(&mut self, other: &Self) {
        self.now += other.now;
        let [before, after] = &mut self.lows;
        *before += other.lows[0];
        *after += other.lows[1];
        self.minutes = self.minutes.max(other.minutes);
        self.acks += other.acks;
        self.outlook = self.outlook.max(other.outlook);
    }
}

impl Minutes {
    /// Begins the sums over the queues of a registry.
    pub(crate) fn frame(&self, sums: &mut SeriesSums, now: Minute) -> Frame {
        sums.frame(&self.ran, self.present(now))
    }
}

/// Ready and leased keys at the end of a minute.
fn waiting_at(series: &QueueSeries, minute: Minute) -> u64 {
    let mut last = None;
    let before = series.visit(minute..minute.plus(1), |_, bucket| last = Some(bucket.gauges));
    let gauges = last.or(before.map(|(_, gauges)| gauges)).unwrap_or_default();
    gauges.ready.saturating_add(gauges.leased)
}

#[cfg(test)]
mod tests {
    use super::super::bucket::Counts;
    use super::super::sketch::Sketch;
    use super::*;

    const FROM: Minute = Minute(29_933_460);

    fn note(series: &mut QueueSeries, minutes: u32, acks: u64, ready: u64) {
        let counts = Counts { settled: [acks, 0, 0, 0, 0], ..Counts::default() };
        let mut works = Sketch::default();
        (0..acks).for_each(|_| works.record(1_000 * u64::from(minutes + 1)));
        let oldest_ready_ms = (ready > 0).then_some(1_000);
        series.note(
            FROM.plus(minutes),
            counts,
            works,
            Gauges { ready, oldest_ready_ms, ..Gauges::default() },
        );
    }

    fn minutes_ran(ran: impl IntoIterator<Item = u32>) -> Minutes {
        let mut minutes = Minutes::default();
        for minute in ran {
            minutes.end(FROM.plus(minute), FROM.plus(minute + 1));
        }
        minutes
    }

    fn sums(series: &[&QueueSeries], minutes: &Minutes, until: u32, step: u32) -> SeriesSums {
        let range = SeriesRange { from: FROM, until: FROM.plus(until), step };
        let mut sums = SeriesSums::new(range);
        let (until, frame) = (range.until, minutes.frame(&mut sums, range.until));
        for series in series {
            sums.add(series, Minute(0), &frame, waiting_at(series, until.minus(1)));
        }
        sums
    }

    #[test]
    fn a_quiet_minute_has_the_last_gauges_and_one_without_a_server_is_a_gap() {
        let mut series = QueueSeries::default();
        note(&mut series, 0, 2, 5);
        note(&mut series, 5, 1, 3);
        // The server was down in the minutes 2 to 4.
        let sums = sums(&[&series], &minutes_ran([0, 1, 5, 6]), 7, 1);
        let shown: Vec<_> =
            sums.points.iter().map(|(ran, sum)| (*ran, sum.counts.settled[0], sum.gauges.ready)).collect();
        assert_eq!(shown, [(1, 2, 5), (1, 0, 5), (0, 0, 0), (0, 0, 0), (0, 0, 0), (1, 1, 3), (1, 0, 3)]);
        let ages: Vec<_> = sums.points.iter().map(|(_, sum)| sum.gauges.oldest_ready_ms).collect();
        assert_eq!(ages[..2], [Some(1_000), Some(61_000)], "keys that wait get older");
    }

    #[test]
    fn the_points_of_longer_steps_are_sums_with_the_gauges_at_their_end() {
        let (mut one, mut two) = (QueueSeries::default(), QueueSeries::default());
        for minutes in (0..9).filter(|minutes| *minutes != 4) {
            note(&mut one, minutes, 1, 100 - u64::from(minutes));
        }
        note(&mut two, 3, 7, 1_000);
        let sums = sums(&[&one, &two], &minutes_ran((0..9).filter(|minute| *minute != 4)), 10, 5);
        let [(ran, first), (ran_later, second)] = &sums.points[..] else { panic!("two points") };
        assert_eq!((*ran, *ran_later), (4, 4), "the server did not run in two of the minutes");
        assert_eq!((first.counts.settled[0], first.works.count()), (11, 11));
        assert_eq!((first.gauges.ready, second.gauges.ready), (97 + 1_000, 92 + 1_000));
        // 1, 2, 3 and eight times 4 ms: the median of all, not the mean of the medians of the minutes.
        let median = first.works.quantile_us(50).unwrap();
        assert!(median.abs_diff(4_000) <= 500, "{median}");
        assert_eq!((sums.queues, sums.range.point(1)), (2, FROM.plus(5)));
    }

    #[test]
    fn sums_of_parts_are_the_sums_of_all() {
        let (mut one, mut two) = (QueueSeries::default(), QueueSeries::default());
        for minutes in 0..20 {
            note(&mut one, minutes, 3, 500 - 10 * u64::from(minutes));
            note(&mut two, minutes, u64::from(minutes), 7);
        }
        let minutes = minutes_ran(0..20);
        let all = sums(&[&one, &two], &minutes, 20, 4);
        let mut merged = sums(&[&one], &minutes, 20, 4);
        merged.merge(&sums(&[&two], &minutes, 20, 4));
        assert_eq!(merged, all);
        let acks = 9 * 3 + (11..20).sum::<u64>();
        // From the end of minute 10 to that of minute 19. One queue shrinks, and the other one does not.
        let expected =
            Backlog { now: 310 + 7, lows: [360 + 7, 310 + 7], minutes: 9, acks, outlook: Outlook::Growing };
        assert_eq!(all.backlog, expected);
    }

    /// The outlook of a queue with these ready keys at the ends of minutes, and these acks in each.
    fn outlook(ready: [u64; 10], acks: u64) -> Outlook {
        let mut series = QueueSeries::default();
        for (minutes, ready) in (0..).zip(ready) {
            note(&mut series, minutes, acks, ready);
        }
        sums(&[&series], &minutes_ran(0..10), 10, 1).backlog.outlook
    }

    #[test]
    fn the_estimate_follows_from_the_lowest_numbers_of_two_halves() {
        let minutes = |minutes: u64| Outlook::After(minutes * 60_000);
        assert_eq!(outlook([100, 90, 80, 70, 60, 50, 40, 30, 20, 10], 10), minutes(1));
        // One key is held by a worker that hangs, and the others come once in two minutes.
        for turn in 0..2 {
            let saw = std::array::from_fn(|minute| if (minute + turn) % 2 == 0 { 1 } else { 5 });
            assert_eq!(outlook(saw, 2), Outlook::Growing);
        }
        // Many keys came into an empty queue at once.
        assert_eq!(outlook([0, 0, 0, 0, 0, 0, 1_600, 1_200, 800, 400], 400), minutes(1));
        // All of them fail, and wait for their backoff.
        assert_eq!(outlook([90, 80, 70, 60, 50, 40, 30, 20, 10, 5], 0), Outlook::Stalled);
        // All keys are done at times.
        assert_eq!(outlook([0, 4, 0, 4, 0, 4, 0, 4, 0, 4], 2), minutes(2));
        assert_eq!(outlook([7; 10], 0), Outlook::Stalled);
        assert_eq!(outlook([7; 10], 3), Outlook::Growing);
        assert_eq!(outlook([5, 5, 5, 5, 5, 6, 7, 8, 9, 9], 0), Outlook::Growing);
        assert_eq!(outlook([9, 5, 5, 0, 0, 0, 0, 0, 0, 0], 1), Outlook::Empty);
    }

    #[test]
    fn what_waits_now_counts_more_than_the_last_minute() {
        let past =
            Backlog { now: 40, minutes: 9, acks: 10, outlook: Outlook::After(5), ..Backlog::default() };
        assert_eq!(past.with(30), Backlog { now: 30, ..past });
        assert_eq!(past.with(0).outlook, Outlook::Empty);
        let idle = Backlog { minutes: 9, ..Backlog::default() };
        assert_eq!((idle.with(3).now, idle.with(3).outlook), (3, Outlook::Unknown));
        assert_eq!(idle.with(0).outlook, Outlook::Empty);
    }

    #[test]
    fn sums_are_empty_when_the_slowest_queue_is() {
        let mut all = [QueueSeries::default(), QueueSeries::default(), QueueSeries::default()];
        for minutes in 0..10 {
            note(&mut all[0], minutes, 10, 100 - 10 * u64::from(minutes));
            note(&mut all[1], minutes, 1, 100 - u64::from(minutes));
            note(&mut all[2], minutes, 0, 30);
        }
        let [quick, slow, stalled] = &all;
        let outlook = |series: &[&QueueSeries]| sums(series, &minutes_ran(0..10), 10, 1).backlog.outlook;
        assert_eq!(outlook(&[quick]), Outlook::After(60_000));
        assert_eq!(outlook(&[quick, slow]), Outlook::After(91 * 60_000));
        assert_eq!(outlook(&[quick, stalled, slow]), Outlook::Stalled);
    }

    #[test]
    fn a_backlog_needs_two_minutes_and_an_unknown_time_has_no_gauges() {
        let mut series = QueueSeries::default();
        note(&mut series, 0, 0, 9);
        note(&mut series, 61, 0, 9);
        series.drop_oldest();
        let sums = sums(&[&series], &minutes_ran((0..3).chain([61])), 62, 1);
        assert_eq!(
            sums.backlog,
            Backlog { now: 9, lows: [9, 9], outlook: Outlook::Stalled, ..Backlog::default() },
            "no minutes in between"
        );
        assert_eq!(sums.complete_from, FROM.plus(60));
        assert_eq!((sums.points[1].1.gauges.ready, sums.points[61].1.gauges.ready), (0, 9));
    }
}
