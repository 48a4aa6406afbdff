//! The reflectors that have sent heartbeats. They are not stored: a live reflector sends the next heartbeat soon.
//!
//! A reflector that falls silent is remembered for a day, so that an alert can fire, unless another instance of the same source
//! reports: then it has been replaced.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use deltaq_engine::time::Time;
use deltaq_types::{HEARTBEAT_SECS, ReflectorReport, ReflectorState, Timestamp};
use parking_lot::Mutex;

/// Maximum number of remembered reflectors of a queue. The one whose heartbeat is the oldest is dropped.
const REFLECTORS_MAX: usize = 100;
/// A reflector without a heartbeat for longer is silent: three are missing.
const SILENT_AFTER: Duration = Duration::from_secs(3 * HEARTBEAT_SECS);
/// How long a silent reflector is remembered.
const REMEMBERED_MAX: Duration = Duration::from_hours(24);

/// A reflector as of one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReflectorStatus {
    /// Its last heartbeat.
    pub report: ReflectorReport,
    /// When the heartbeat arrived.
    pub at: Time,
    /// What the reflector does.
    pub state: ReflectorState,
}

/// What the reflectors of a source do. A source with one that works is fine, whatever the others do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReflectedSource {
    /// The name of the source.
    pub source: String,
    /// The best state of its reflectors.
    pub state: ReflectorState,
    /// When the queue was last in step with the source, by the clock of its reflector, in microseconds.
    pub last_success_us: Option<u64>,
}

/// The source and the instance of a reflector.
type Id = (String, String);

/// The reflectors of a queue.
#[derive(Debug, Default)]
pub(crate) struct Reflectors(Mutex<BTreeMap<Id, (ReflectorReport, Time)>>);

impl Reflectors {
    /// Notes a heartbeat.
    pub(crate) fn beat(&self, report: ReflectorReport, now: Time) {
        let mut reflectors = self.0.lock();
        let id = (report.source.clone(), report.instance.clone());
        let is_replaced = |(source, _): &Id, at: Time| *source == id.0 && now.since(at) > SILENT_AFTER;
        reflectors.retain(|other, (_, at)| now.since(*at) < REMEMBERED_MAX && !is_replaced(other, *at));
        if report.stopped {
            reflectors.remove(&id);
            return;
        }
        reflectors.insert(id, (report, now));
        if reflectors.len() > REFLECTORS_MAX {
            let oldest = reflectors.iter().min_by_key(|(_, (_, at))| *at).map(|(id, _)| id.clone());
            oldest.and_then(|id| reflectors.remove(&id));
        }
    }

    /// The reflectors behind a source and an instance, at most `limit`.
    pub(crate) fn after(&self, after: Option<Id>, limit: usize, now: Time) -> Vec<ReflectorStatus> {
        let from = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let reflectors = self.0.lock();
        let remembered = reflectors.range(from).filter(|(_, (_, at))| now.since(*at) < REMEMBERED_MAX);
        let status = |(report, at): &(ReflectorReport, Time)| ReflectorStatus {
            report: report.clone(),
            at: *at,
            state: state_of(report, *at, now),
        };
        remembered.map(|(_, reflector)| status(reflector)).take(limit).collect()
    }

    /// What the reflectors of each source do, by name.
    pub(crate) fn sources(&self, now: Time) -> Vec<ReflectedSource> {
        let mut sources: Vec<ReflectedSource> = Vec::new();
        for ReflectorStatus { report, state, .. } in self.after(None, REFLECTORS_MAX, now) {
            let last_success_us = report.last_success_at.map(Timestamp::as_micros);
            match sources.last_mut().filter(|last| last.source == report.source) {
                Some(last) => {
                    last.last_success_us = last.last_success_us.max(last_success_us);
                    last.state = better(last.state, state);
                }
                None => sources.push(ReflectedSource { source: report.source, state, last_success_us }),
            }
        }
        sources
    }
}

fn state_of(report: &ReflectorReport, at: Time, now: Time) -> ReflectorState {
    if now.since(at) > SILENT_AFTER {
        ReflectorState::Silent
    } else if report.failing {
        ReflectorState::Failing
    } else {
        ReflectorState::Ok
    }
}

fn better(one: ReflectorState, other: ReflectorState) -> ReflectorState {
    let rank = |state| match state {
        ReflectorState::Ok => 0,
        ReflectorState::Failing => 1,
        ReflectorState::Silent => 2,
    };
    if rank(one) <= rank(other) { one } else { other }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(source: &str, instance: &str, failing: bool) -> ReflectorReport {
        ReflectorReport {
            source: source.to_owned(),
            instance: instance.to_owned(),
            version: "1".to_owned(),
            kind: "rest".to_owned(),
            interval: Duration::from_mins(1).into(),
            last_success_at: None,
            failing,
            last_error: None,
            last_error_at: None,
            next_list_at: None,
            stopped: false,
        }
    }

    fn states(reflectors: &Reflectors, now: Time) -> Vec<(String, ReflectorState)> {
        let all = reflectors.after(None, 9, now).into_iter();
        all.map(|status| (status.report.source + "/" + &status.report.instance, status.state)).collect()
    }

    #[test]
    fn a_reflector_is_silent_after_three_heartbeats_and_remembered_for_a_day() {
        let (reflectors, start) = (Reflectors::default(), Time::from_micros(7));
        reflectors.beat(report("crm", "a", true), start);
        let state = |after: Duration| states(&reflectors, start.plus(after)).first().map(|(_, state)| *state);
        assert_eq!(state(SILENT_AFTER), Some(ReflectorState::Failing));
        assert_eq!(state(SILENT_AFTER + Duration::from_micros(1)), Some(ReflectorState::Silent));
        assert_eq!(
            state(REMEMBERED_MAX.saturating_sub(Duration::from_micros(1))),
            Some(ReflectorState::Silent)
        );
        assert_eq!(state(REMEMBERED_MAX), None);
    }

    #[test]
    fn one_that_stops_is_forgotten_and_a_silent_one_is_replaced_by_another_instance() {
        let (reflectors, start) = (Reflectors::default(), Time::from_micros(7));
        reflectors.beat(report("crm", "a", false), start);
        reflectors.beat(report("erp", "a", false), start);
        reflectors.beat(ReflectorReport { stopped: true, ..report("erp", "a", false) }, start);
        assert_eq!(states(&reflectors, start), [("crm/a".to_owned(), ReflectorState::Ok)]);
        let soon = start.plus(SILENT_AFTER);
        reflectors.beat(report("crm", "b", true), soon);
        // Both work on the source, which is fine because of the first one.
        assert_eq!(
            reflectors.sources(soon).iter().map(|of| of.state).collect::<Vec<_>>(),
            [ReflectorState::Ok]
        );
        let later = soon.plus(Duration::from_micros(1));
        assert_eq!(reflectors.sources(later).first().map(|of| of.state), Some(ReflectorState::Failing));
        reflectors.beat(report("crm", "b", true), later);
        assert_eq!(states(&reflectors, later), [("crm/b".to_owned(), ReflectorState::Failing)]);
    }

    #[test]
    fn the_oldest_of_too_many_reflectors_is_dropped() {
        let (reflectors, start) = (Reflectors::default(), Time::from_micros(7));
        for number in 0..=REFLECTORS_MAX {
            let at = start.plus(Duration::from_micros(number as u64));
            reflectors.beat(report(&format!("s{number:03}"), "a", false), at);
        }
        let all = reflectors.after(None, usize::MAX, start);
        assert_eq!(all.len(), REFLECTORS_MAX);
        assert_eq!(all[0].report.source, "s001");
        let after = Some(("s001".to_owned(), "a".to_owned()));
        assert_eq!(reflectors.after(after, 1, start)[0].report.source, "s002");
    }
}
