//! What happened to a queue in one minute: counts, gauges at the end of the minute, and how long leases lasted.
use deltaq_engine::effects::Work;
use deltaq_engine::{Counters, Status};
use deltaq_runtime::clock::whole_us;
use deltaq_types::duration::whole_ms;

use super::sketch::Sketch;
use crate::metrics::Lag;

/// Number of counts.
const COUNTS: usize = 17;
/// Number of gauges.
const GAUGES: usize = 10;
/// The bit of the mask for a histogram.
const HAS_WORKS: u32 = 1 << (COUNTS + GAUGES);
/// The bit of the mask for a [repetition](Bucket::is_repetition).
const IS_REPETITION: u32 = HAS_WORKS << 1;
/// Milliseconds of a minute.
pub(super) const MINUTE_MS: u64 = 60_000;
/// An age that is this much off what it would be without a change of the queue is a change. A sample may be late.
const AGE_SLACK_MS: u64 = 10_000;

/// What happened to a queue in one minute, or in several minutes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// What happened.
    pub counts: Counts,
    /// The state at the end.
    pub gauges: Gauges,
    /// How long the leases lasted that ended.
    pub works: Sketch,
    /// Whether nothing has happened, and the bucket only repeats the gauges of an earlier bucket, which may be dropped.
    pub(super) is_repetition: bool,
}

/// Counts of what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Queued deltas by type: `Added`, `Updated`, `Deleted`, `Replaced`, `Sync`.
    pub deltas: [u64; 5],
    /// Deliveries of keys.
    pub deliveries: u64,
    /// Ended leases: ack, nack, release, reject, expiry.
    pub settled: [u64; 5],
    /// Settles of leases that had already ended.
    pub stale: u64,
    /// How often a key was parked.
    pub parked: u64,
    /// How often a key was requeued with a delay.
    pub retries: u64,
    /// Calls and listed objects that changed nothing.
    pub ignored: u64,
    /// Deltas that were merged into newer ones.
    pub coalesced: u64,
    /// Changes that a debounce window has held back.
    pub debounced: u64,
}

/// The state of a queue at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Ready keys.
    pub ready: u64,
    /// Delayed keys.
    pub delayed: u64,
    /// Leased keys.
    pub leased: u64,
    /// Parked keys.
    pub parked: u64,
    /// Known objects.
    pub known: u64,
    /// Bytes that the queue takes in memory.
    pub held_bytes: u64,
    /// How long the first ready key has waited; `None` without one, and while the queue is paused.
    pub oldest_ready_ms: Option<u64>,
    /// How long the oldest change has waited for its acknowledgement; `None` without one.
    pub oldest_unacknowledged_ms: Option<u64>,
    /// How many events a follower is behind; `None` for a queue that does not follow.
    pub lag_events: Option<u64>,
    /// How long a follower has been behind; `None` if it is not.
    pub lag_ms: Option<u64>,
}

/// What has happened to a queue since its last sample.
#[derive(Clone, Debug, Default)]
pub(crate) struct Since {
    pub(crate) counters: Counters,
    pub(crate) deliveries: u64,
    pub(crate) works: Sketch,
}

impl Since {
    /// Counts deliveries, and leases that have ended.
    pub(crate) fn note(&mut self, deliveries: usize, works: &[Work]) {
        self.deliveries += deliveries as u64;
        for work in works {
            self.works.record(whole_us(work.lasted));
        }
    }

    /// Takes what has happened.
    pub(super) fn take(&mut self) -> (Counts, Sketch) {
        let Self { counters, deliveries, works } = std::mem::take(self);
        let ignored = [
            counters.ignored_absent,
            counters.ignored_duplicate,
            counters.ignored_unchanged,
            counters.ignored_superseded,
            counters.ignored_closed,
            counters.ignored_repeated,
            counters.ignored_stale,
        ];
        let counts = Counts {
            deltas: counters.deltas,
            deliveries,
            settled: counters.settled,
            stale: counters.stale,
            parked: counters.parked,
            retries: counters.retries,
            ignored: ignored.iter().sum(),
            coalesced: counters.coalesced,
            debounced: counters.debounced,
        };
        (counts, works)
    }
}

impl Counts {
    /// Adds the counts of another queue or another time.
    pub fn add(&mut self, other: &Self) {
        let mut sums = self.numbers();
        sums.iter_mut().zip(other.numbers()).for_each(|(sum, more)| *sum = sum.saturating_add(more));
        *self = Self::of(sums);
    }

    /// Whether nothing has happened.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    /// The numbers, in the order of the format.
    #[must_use]
    pub fn numbers(&self) -> [u64; COUNTS] {
        let Self { deltas: [d0, d1, d2, d3, d4], settled: [s0, s1, s2, s3, s4], .. } = *self;
        let Self { deliveries, stale, parked, retries, ignored, coalesced, debounced, .. } = *self;
        [
            d0, d1, d2, d3, d4, deliveries, s0, s1, s2, s3, s4, stale, parked, retries, ignored, coalesced,
            debounced,
        ]
    }

    /// The counts with these numbers.
    #[must_use]
    pub fn of(numbers: [u64; COUNTS]) -> Self {
        let [
            d0,
            d1,
            d2,
            d3,
            d4,
            deliveries,
            s0,
            s1,
            s2,
            s3,
            s4,
            stale,
            parked,
            retries,
            ignored,
            coalesced,
            debounced,
        ] = numbers;
        let (deltas, settled) = ([d0, d1, d2, d3, d4], [s0, s1, s2, s3, s4]);
        Self { deltas, deliveries, settled, stale, parked, retries, ignored, coalesced, debounced }
    }
}

impl Gauges {
    /// The gauges of a queue. `lag` is that of a follower.
    pub(crate) fn of_queue(status: &Status, lag: Option<&Lag>) -> Self {
        let count = |number: usize| number as u64;
        // While the queue is paused, its keys wait on purpose.
        let oldest_ready = status.oldest_ready_age.filter(|_| !status.paused);
        let is_behind = |lag: &&Lag| lag.events > 0;
        Self {
            ready: count(status.ready),
            delayed: count(status.delayed),
            leased: count(status.leased),
            parked: count(status.parked),
            known: count(status.known),
            held_bytes: count(status.held_bytes),
            oldest_ready_ms: oldest_ready.map(whole_ms),
            oldest_unacknowledged_ms: status.oldest_unacknowledged_age.map(whole_ms),
            lag_events: lag.map(|lag| lag.events),
            lag_ms: lag.filter(is_behind).map(|lag| whole_ms(lag.time)),
        }
    }

    /// The gauges `minutes` minutes later, or earlier if that is negative, if nothing happens in between.
    pub(super) fn after(mut self, minutes: i64) -> Self {
        let passed_ms = minutes.saturating_mul(MINUTE_MS.cast_signed());
        let older = |age: Option<u64>| age.and_then(|age| age.checked_add_signed(passed_ms));
        self.oldest_ready_ms = older(self.oldest_ready_ms);
        self.oldest_unacknowledged_ms = older(self.oldest_unacknowledged_ms);
        self.lag_ms = older(self.lag_ms);
        self
    }

    /// Whether the gauges differ, apart from an age that is a little off.
    pub(super) fn differ(&self, other: &Self) -> bool {
        let is_near = |age: Option<u64>, other: Option<u64>| match (age, other) {
            (Some(age), Some(other)) => age.abs_diff(other) <= AGE_SLACK_MS,
            (age, other) => age == other,
        };
        let ages = |gauges: &Self| [gauges.oldest_ready_ms, gauges.oldest_unacknowledged_ms, gauges.lag_ms];
        let others = |gauges: &Self| Self {
            oldest_ready_ms: None,
            oldest_unacknowledged_ms: None,
            lag_ms: None,
            ..*gauges
        };
        others(self) != others(other) || ages(self).into_iter().zip(ages(other)).any(|(a, b)| !is_near(a, b))
    }

    /// Adds the gauges of another queue: sums, and the larger ages and lags.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in [
            (&mut self.ready, other.ready),
            (&mut self.delayed, other.delayed),
            (&mut self.leased, other.leased),
            (&mut self.parked, other.parked),
            (&mut self.known, other.known),
            (&mut self.held_bytes, other.held_bytes),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.oldest_ready_ms = self.oldest_ready_ms.max(other.oldest_ready_ms);
        self.oldest_unacknowledged_ms = self.oldest_unacknowledged_ms.max(other.oldest_unacknowledged_ms);
        self.lag_events = self.lag_events.max(other.lag_events);
        self.lag_ms = self.lag_ms.max(other.lag_ms);
    }

    /// The numbers, in the order of the format. An optional number is one larger, and 0 if there is none.
    #[must_use]
    pub fn numbers(&self) -> [u64; GAUGES] {
        let given = |number: Option<u64>| number.map_or(0, |number| number.saturating_add(1));
        [
            self.ready,
            self.delayed,
            self.leased,
            self.parked,
            self.known,
            self.held_bytes,
            given(self.oldest_ready_ms),
            given(self.oldest_unacknowledged_ms),
            given(self.lag_events),
            given(self.lag_ms),
        ]
    }

    /// The gauges with these numbers.
    #[must_use]
    pub fn of(numbers: [u64; GAUGES]) -> Self {
        let [ready, delayed, leased, parked, known, held_bytes, oldest_ready, oldest, lag_events, lag] =
            numbers;
        let read = |number: u64| number.checked_sub(1);
        Self {
            ready,
            delayed,
            leased,
            parked,
            known,
            held_bytes,
            oldest_ready_ms: read(oldest_ready),
            oldest_unacknowledged_ms: read(oldest),
            lag_events: read(lag_events),
            lag_ms: read(lag),
        }
    }
}

impl Bucket {
    /// A bucket in which something has happened.
    #[must_use]
    pub fn new(counts: Counts, gauges: Gauges, works: Sketch) -> Self {
        Self { counts, gauges, works, is_repetition: false }
    }

    /// Adds what happened later in the same minute.
    pub(super) fn add_later(&mut self, later: &Self) {
        self.counts.add(&later.counts);
        self.works.merge(&later.works);
        self.gauges = later.gauges;
        self.is_repetition &= later.is_repetition;
    }

    /// Appends the bucket of the minute `minute` of an hour: the minute, a mask of the numbers that are not 0, these numbers, and
    /// the histogram. All numbers are in LEB128.
    pub(super) fn write(&self, minute: u8, out: &mut Vec<u8>) {
        let (counts, gauges) = (self.counts.numbers(), self.gauges.numbers());
        let numbers = || counts.iter().chain(&gauges);
        let mut mask = 0;
        for (place, _) in numbers().enumerate().filter(|(_, number)| **number > 0) {
            mask |= 1_u32 << place;
        }
        mask |= if self.works.is_empty() { 0 } else { HAS_WORKS };
        mask |= if self.is_repetition { IS_REPETITION } else { 0 };
        out.push(minute);
        write_number(mask.into(), out);
        numbers().filter(|number| **number > 0).for_each(|number| write_number(*number, out));
        if self.works.is_empty() {
            return;
        }
        write_number(self.works.classes().len() as u64, out);
        let mut last = 0;
        for (class, count) in self.works.classes() {
            out.push(class - last);
            write_number(*count, out);
            last = *class;
        }
    }

    /// Reads the next bucket of an hour, and its minute. `None` if the bytes are not a bucket.
    pub(super) fn read(bytes: &mut &[u8]) -> Option<(u8, Self)> {
        let minute = read_byte(bytes).filter(|minute| *minute < 60)?;
        let mask = u32::try_from(read_number(bytes)?).ok()?;
        if mask >= IS_REPETITION << 1 {
            return None;
        }
        let mut numbers = [0; COUNTS + GAUGES];
        for (place, number) in numbers.iter_mut().enumerate() {
            if mask & (1 << place) != 0 {
                *number = read_number(bytes)?;
            }
        }
        let (counts, gauges) = (numbers.first_chunk::<COUNTS>()?, numbers.last_chunk::<GAUGES>()?);
        let mut works = Sketch::default();
        if mask & HAS_WORKS != 0 {
            let mut class = 0_u8;
            for _ in 0..read_number(bytes)? {
                class = class.checked_add(read_byte(bytes)?)?;
                works.add(class, read_number(bytes)?);
            }
        }
        let is_repetition = mask & IS_REPETITION != 0;
        Some((
            minute,
            Self { counts: Counts::of(*counts), gauges: Gauges::of(*gauges), works, is_repetition },
        ))
    }
}

fn write_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

fn read_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let byte = read_byte(bytes)?;
        let part = u64::from(byte & 0x7f);
        number |= part.checked_shl(shift).filter(|shifted| shifted >> shift == part)?;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

fn read_byte(bytes: &mut &[u8]) -> Option<u8> {
    let (first, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bucket in which each number differs.
    fn full() -> Bucket {
        let mut next = 0;
        let mut number = || {
            next += 1;
            1_u64 << (next * 2)
        };
        let counts = Counts::of(std::array::from_fn(|_| number()));
        let gauges = Gauges::of(std::array::from_fn(|_| number()));
        let mut works = Sketch::default();
        for took_us in [0, 3, 900, 1_000_000, u64::MAX] {
            works.record(took_us);
        }
        Bucket { counts, gauges, works, is_repetition: true }
    }

    #[test]
    fn a_bucket_is_read_as_it_was_written() {
        let mut bytes = Vec::new();
        let quiet = Bucket::default();
        full().write(59, &mut bytes);
        quiet.write(0, &mut bytes);
        let mut rest = &*bytes;
        assert_eq!(Bucket::read(&mut rest), Some((59, full())));
        assert_eq!(Bucket::read(&mut rest), Some((0, quiet)));
        assert!(rest.is_empty());
        for end in 1..bytes.len() - 2 {
            let mut cut = &bytes[..end];
            assert_eq!(Bucket::read(&mut cut), None, "{end} bytes");
        }
    }

    /// Stored bytes must stay readable, so this text changes only with the format's version.
    #[test]
    fn the_stored_form_stays_the_same() {
        let mut works = Sketch::default();
        works.record(1_500);
        works.record(1_600);
        let counts =
            Counts { deltas: [3, 0, 0, 0, 0], deliveries: 2, settled: [2, 0, 0, 0, 0], ..Counts::default() };
        let gauges = Gauges {
            ready: 1,
            known: 300,
            oldest_ready_ms: Some(0),
            oldest_unacknowledged_ms: None,
            ..Gauges::default()
        };
        let bucket = Bucket { counts, gauges, works, is_repetition: false };
        let mut bytes = Vec::new();
        bucket.write(7, &mut bytes);
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex.join(""), "07e180884503020201ac02010225010101");
    }

    #[test]
    fn ages_go_on_without_a_change() {
        let gauges = Gauges { ready: 1, oldest_ready_ms: Some(5_000), ..Gauges::default() };
        let later = gauges.after(3);
        assert_eq!(later.oldest_ready_ms, Some(185_000));
        assert!(!later.differ(&Gauges { oldest_ready_ms: Some(185_900), ..gauges }));
        assert!(
            later.differ(&Gauges { oldest_ready_ms: Some(5_000), ..gauges }),
            "another key is the oldest"
        );
        assert!(later.differ(&Gauges { oldest_ready_ms: None, ..gauges }));
        assert!(later.differ(&Gauges { ready: 2, ..later }));
        assert_eq!(later.after(-3), gauges);
        assert_eq!(gauges.after(-1).oldest_ready_ms, None, "it was not ready yet");
    }
}
