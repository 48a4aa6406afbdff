//! The problems that sources have reported. They are not stored: a reader of a source reports a problem that persists
//! again, and a problem that nobody repeats for a day is forgotten.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use deltaq_engine::fairness::least_needed;
use deltaq_engine::id::Source;
use deltaq_engine::limits::SOURCES_MAX;
use deltaq_engine::time::Time;
use parking_lot::Mutex;

/// How long a problem is shown that nobody reports again.
const SHOWN_MAX: Duration = Duration::from_hours(24);
/// Approximate size of a report in bytes, excluding its texts.
const REPORT_BYTES: usize = 128;

/// A problem that a source has reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceReport {
    /// The problem.
    pub problem: String,
    /// When the source reported it.
    pub at: Time,
    /// The token of the report.
    pub by: Option<Arc<str>>,
}

impl SourceReport {
    fn is_shown(&self, now: Time) -> bool {
        now.since(self.at) < SHOWN_MAX
    }
}

/// The problems of the sources of a queue. Beyond [`SOURCES_MAX`], the oldest one of the token with the most problems is dropped.
#[derive(Debug, Default)]
pub(crate) struct SourceReports {
    reports: Mutex<BTreeMap<Source, SourceReport>>,
    /// Approximate size in bytes.
    bytes: AtomicUsize,
}

impl SourceReports {
    /// Replaces the problem of a source.
    pub(crate) fn set(&self, source: Source, report: Option<SourceReport>) {
        let mut reports = self.reports.lock();
        match report {
            Some(report) => reports.insert(source, report),
            None => reports.remove(&source),
        };
        if reports.len() > SOURCES_MAX {
            let entries = reports.iter().map(|(source, report)| (source, report.by.as_deref(), report.at));
            let dropped = least_needed(entries).cloned();
            dropped.and_then(|source| reports.remove(&source));
        }
        let bytes = reports.iter().map(|(source, report)| REPORT_BYTES + source.len() + report.problem.len());
        self.bytes.store(bytes.sum(), Ordering::Relaxed);
    }

    /// The bytes that a report adds; 0 if the source has one.
    pub(crate) fn added_by(&self, source: &Source, problem: &str) -> usize {
        let is_known = self.reports.lock().contains_key(source);
        if is_known { 0 } else { REPORT_BYTES + source.len() + problem.len() }
    }

    /// Approximate size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The problem of a source.
    pub(crate) fn of(&self, source: &Source, now: Time) -> Option<SourceReport> {
        self.reports.lock().get(source).filter(|report| report.is_shown(now)).cloned()
    }

    /// The sources with problems after the name `after`, in the order of names: at most `limit`.
    pub(crate) fn sources_after(&self, after: Option<&str>, limit: usize, now: Time) -> Vec<Source> {
        let from = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let reports = self.reports.lock();
        let shown = reports.range::<str, _>(from).filter(|(_, report)| report.is_shown(now));
        shown.map(|(source, _)| source.clone()).take(limit).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_too_many_problems_is_dropped() {
        let reports = SourceReports::default();
        let report =
            |at| Some(SourceReport { problem: String::from("down"), at: Time::from_micros(at), by: None });
        for at in 0..=SOURCES_MAX as u64 {
            reports.set(Source::from(&*format!("s{at}")), report(at));
        }
        let now = Time::from_micros(1_000);
        assert_eq!(reports.sources_after(None, usize::MAX, now).len(), SOURCES_MAX);
        assert_eq!(reports.of(&"s0".into(), now), None);
        assert_eq!(reports.of(&"s1".into(), now), report(1));
        reports.set("s1".into(), None);
        assert_eq!(reports.of(&"s1".into(), now), None);
        assert_eq!(reports.sources_after(Some("s998"), 9, now), ["s999"].map(Source::from));
    }

    #[test]
    fn a_problem_that_nobody_repeats_is_forgotten() {
        let reports = SourceReports::default();
        let at = Time::from_micros(7);
        reports.set("erp".into(), Some(SourceReport { problem: String::from("down"), at, by: None }));
        let later = |time: Duration| (reports.of(&"erp".into(), at.plus(time)), at.plus(time));
        let (shown, now) = later(SHOWN_MAX.saturating_sub(Duration::from_micros(1)));
        assert!(shown.is_some() && reports.sources_after(None, 9, now).len() == 1);
        let (shown, now) = later(SHOWN_MAX);
        assert!(shown.is_none() && reports.sources_after(None, 9, now).is_empty());
    }

    #[test]
    fn a_token_with_many_problems_pushes_out_its_own() {
        let reports = SourceReports::default();
        let report = |at, by: &str| {
            Some(SourceReport { problem: String::new(), at: Time::from_micros(at), by: Some(by.into()) })
        };
        reports.set("erp".into(), report(0, "rare"));
        for at in 1..=2 * SOURCES_MAX as u64 {
            reports.set(Source::from(&*format!("s{at}")), report(at, "many"));
        }
        let now = Time::from_micros(1);
        assert_eq!(reports.of(&"erp".into(), now), report(0, "rare"));
        assert_eq!(reports.sources_after(None, usize::MAX, now).len(), SOURCES_MAX);
    }
}
