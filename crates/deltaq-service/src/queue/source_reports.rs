//! The problems that sources have reported. The problems are not stored: the reader of a source reports a persistent
//! problem again.

use std::collections::BTreeMap;
use std::ops::Bound;

use deltaq_engine::id::Source;
use deltaq_engine::limits::SOURCES_MAX;
use deltaq_engine::time::Time;
use parking_lot::Mutex;

/// A problem that a source has reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceReport {
    /// The problem.
    pub problem: String,
    /// When the source reported it.
    pub at: Time,
}

/// The problems of the sources of a queue. Beyond [`SOURCES_MAX`], the oldest problem is dropped.
#[derive(Debug, Default)]
pub(crate) struct SourceReports(Mutex<BTreeMap<Source, SourceReport>>);

impl SourceReports {
    /// Replaces the problem of a source.
    pub(crate) fn set(&self, source: Source, report: Option<SourceReport>) {
        let mut reports = self.0.lock();
        let Some(report) = report else {
            reports.remove(&source);
            return;
        };
        reports.insert(source, report);
        if reports.len() > SOURCES_MAX {
            let oldest = reports.iter().min_by_key(|(_, report)| report.at).map(|(source, _)| source.clone());
            oldest.and_then(|source| reports.remove(&source));
        }
    }

    /// The problem of a source.
    pub(crate) fn of(&self, source: &Source) -> Option<SourceReport> {
        self.0.lock().get(source).cloned()
    }

    /// The sources with problems after the name `after`, in the order of names: at most `limit`.
    pub(crate) fn sources_after(&self, after: Option<&str>, limit: usize) -> Vec<Source> {
        let from = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        self.0.lock().range::<str, _>(from).map(|(source, _)| source.clone()).take(limit).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_too_many_problems_is_dropped() {
        let reports = SourceReports::default();
        let report = |at| Some(SourceReport { problem: String::from("down"), at: Time::from_micros(at) });
        for at in 0..=SOURCES_MAX as u64 {
            reports.set(Source::from(&*format!("s{at}")), report(at));
        }
        assert_eq!(reports.sources_after(None, usize::MAX).len(), SOURCES_MAX);
        assert_eq!(reports.of(&"s0".into()), None);
        assert_eq!(reports.of(&"s1".into()), report(1));
        reports.set("s1".into(), None);
        assert_eq!(reports.of(&"s1".into()), None);
        assert_eq!(reports.sources_after(Some("s998"), 9), ["s999"].map(Source::from));
    }
}
