//! The series of the queues: what happened to each queue in each minute of the last 24 hours.
//!
//! At the end of each minute, the task of a registry (`registry/measure.rs`) takes what each queue has counted since the minute
//! before, and its gauges, and adds them to the buckets of the queue (`kept`). So a call does no work for its queue's series that
//! it does not do for the metrics. A minute in which nothing has happened to a queue has no bucket. In addition, a bit for each
//! minute says that the server ran, which tells a quiet minute from one in which there was no server. Minutes are those of the
//! clock that all servers of the store share.
//!
//! The buckets of all queues take a limited amount of memory ([`SeriesRoom`]). They are no journal: they are written once a minute,
//! a crash loses the last minute, and a stored hour that can't be read is left out.
//!
//! The series are not metrics: there is one resolution, nothing is aggregated in advance, and nothing is older than a day.

mod bucket;
mod kept;
mod minute;
mod sketch;
mod sums;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) use self::bucket::Since;
pub use self::bucket::{Bucket, Counts, Gauges};
pub(crate) use self::kept::QueueSeries;
pub use self::minute::Minute;
pub use self::sketch::Sketch;
pub use self::sums::{Backlog, Outlook, SeriesRange, SeriesSums};

use self::kept::KEPT_HOURS;
use self::minute::Ran;

/// The series go back this many minutes.
pub const SERIES_MINUTES: u32 = KEPT_HOURS * 60;

/// The memory that the series of all queues of this process may take.
#[derive(Debug)]
pub(crate) struct SeriesRoom {
    max_bytes: usize,
    /// The registries that share the memory.
    parts: AtomicUsize,
}

/// The part of the memory that one registry has.
#[derive(Debug)]
pub(crate) struct SeriesPart(Arc<SeriesRoom>);

impl SeriesRoom {
    pub(crate) const fn new(max_bytes: usize) -> Self {
        Self { max_bytes, parts: AtomicUsize::new(0) }
    }

    /// A part for another registry. The parts of the others become smaller.
    pub(crate) fn join(self: &Arc<Self>) -> SeriesPart {
        self.parts.fetch_add(1, Ordering::Relaxed);
        SeriesPart(self.clone())
    }
}

impl SeriesPart {
    /// The size of the part, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.max_bytes / self.0.parts.load(Ordering::Relaxed).max(1)
    }
}

impl Drop for SeriesPart {
    fn drop(&mut self) {
        self.0.parts.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a registry knows of the minutes, apart from the buckets, which belong to the queues.
#[derive(Debug, Default)]
pub(crate) struct Minutes {
    /// The minute that is not over yet, or whose buckets are not complete; `None` before the first sample.
    present: Option<Minute>,
    ran: Ran,
    /// The hours to which the last [`end`](Self::end) has limited the buckets.
    kept: Range<u32>,
}

impl Minutes {
    /// The minute that is over at the minute `now` and whose buckets are not complete. The clock may have been set in between.
    pub(crate) fn ended(&mut self, now: Minute) -> Option<Minute> {
        let present = *self.present.get_or_insert(now);
        (present != now).then_some(present)
    }

    /// Records that the buckets of a minute are complete. Returns the bits of its hour, and the hours to keep if they have changed.
    pub(crate) fn end(&mut self, minute: Minute, now: Minute) -> (u64, Option<Range<u32>>) {
        self.present = Some(now);
        let bits = self.ran.note(minute);
        let kept = Self::kept_hours(now);
        if self.kept == kept {
            return (bits, None);
        }
        self.ran.keep(kept.clone());
        self.kept = kept.clone();
        (bits, Some(kept))
    }

    /// The minute that is not over yet.
    pub(crate) fn present(&self, now: Minute) -> Minute {
        self.present.unwrap_or(now)
    }

    /// Adds the stored bits of an hour.
    pub(crate) fn load(&mut self, hour: u32, bits: u64) {
        self.ran.load(hour, bits);
    }

    /// The hours whose buckets are kept. A clock that was set back has left buckets in the future, which are dropped unless it was set
    /// back by less than a day.
    pub(crate) const fn kept_hours(now: Minute) -> Range<u32> {
        now.hour().saturating_sub(KEPT_HOURS)..now.hour().saturating_add(KEPT_HOURS + 1)
    }
}
