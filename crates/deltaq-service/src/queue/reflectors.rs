//! The reflectors that have sent heartbeats. They are not stored: a live reflector sends the next heartbeat soon.
//!
//! A reflector that falls silent is remembered for a day, so that an alert can fire, unless another instance of the same source
//! reports: then it has been replaced.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use deltaq_engine::fairness::least_needed;
use deltaq_engine::time::Time;
use deltaq_types::{HEARTBEAT_SECS, ReflectorReport, ReflectorState, Timestamp};
use parking_lot::Mutex;

/// Maximum number of remembered reflectors of a queue. Beyond it, one of the token with the most reflectors is dropped: of the source
/// with the most of them, the one whose heartbeat is the oldest. So a token does not push out the reflectors of others, and many
/// instances of a source not those of other sources.
const REFLECTORS_MAX: usize = 1_000;
/// Approximate size of a reflector in bytes, excluding its texts.
const REFLECTOR_BYTES: usize = 512;
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

/// A reflector.
#[derive(Debug)]
struct Reflector {
    report: ReflectorReport,
    /// When its last heartbeat arrived.
    at: Time,
    /// The token of the heartbeat.
    by: Option<Arc<str>>,
}

/// The reflectors of a queue.
#[derive(Debug, Default)]
pub(crate) struct Reflectors {
    known: Mutex<BTreeMap<Id, Reflector>>,
    /// Approximate size in bytes.
    bytes: AtomicUsize,
}

impl Reflectors {
    /// Notes a heartbeat.
    pub(crate) fn beat(&self, report: ReflectorReport, by: Option<Arc<str>>, now: Time) {
        let mut reflectors = self.known.lock();
        let id = (report.source.clone(), report.instance.clone());
        let is_replaced = |(source, _): &Id, at: Time| *source == id.0 && now.since(at) > SILENT_AFTER;
        reflectors
            .retain(|other, known| now.since(known.at) < REMEMBERED_MAX && !is_replaced(other, known.at));
        if report.stopped {
            reflectors.remove(&id);
        } else {
            if reflectors.len() == REFLECTORS_MAX && !reflectors.contains_key(&id) {
                dropped_for_another(&reflectors).and_then(|dropped| reflectors.remove(&dropped));
            }
            reflectors.insert(id, Reflector { report, at: now, by });
        }
        let bytes = reflectors.values().map(|known| REFLECTOR_BYTES + text_bytes(&known.report)).sum();
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// The bytes that a heartbeat adds; 0 if the reflector is known.
    pub(crate) fn added_by(&self, report: &ReflectorReport) -> usize {
        let id = (report.source.clone(), report.instance.clone());
        let is_known = report.stopped || self.known.lock().contains_key(&id);
        if is_known { 0 } else { REFLECTOR_BYTES + text_bytes(report) }
    }

    /// Approximate size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The reflectors behind a source and an instance, at most `limit`.
    pub(crate) fn after(&self, after: Option<Id>, limit: usize, now: Time) -> Vec<ReflectorStatus> {
        let from = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let reflectors = self.known.lock();
        let remembered = reflectors.range(from).filter(|(_, known)| now.since(known.at) < REMEMBERED_MAX);
        let status = |known: &Reflector| ReflectorStatus {
            report: known.report.clone(),
            at: known.at,
            state: state_of(&known.report, known.at, now),
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

/// The reflector that is dropped for a new one.
fn dropped_for_another(reflectors: &BTreeMap<Id, Reflector>) -> Option<Id> {
    let mut of_source = BTreeMap::<_, usize>::new();
    for ((source, _), known) in reflectors {
        *of_source.entry((&known.by, source)).or_default() += 1;
    }
    let rank = |source: &String, known: &Reflector| {
        (Reverse(of_source.get(&(&known.by, source)).copied()), known.at)
    };
    let entries = reflectors.iter().map(|(id, known)| (id, known.by.as_deref(), rank(&id.0, known)));
    least_needed(entries).cloned()
}

/// The length of the texts of a report, and of its source and instance again in the id.
fn text_bytes(report: &ReflectorReport) -> usize {
    let ReflectorReport { source, instance, version, kind, last_error, .. } = report;
    let error = last_error.as_ref().map_or(0, String::len);
    2 * (source.len() + instance.len()) + version.len() + kind.len() + error
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
            sent_at: None,
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
        reflectors.beat(report("crm", "a", true), None, start);
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
        reflectors.beat(report("crm", "a", false), None, start);
        reflectors.beat(report("erp", "a", false), None, start);
        reflectors.beat(ReflectorReport { stopped: true, ..report("erp", "a", false) }, None, start);
        assert_eq!(states(&reflectors, start), [("crm/a".to_owned(), ReflectorState::Ok)]);
        let soon = start.plus(SILENT_AFTER);
        reflectors.beat(report("crm", "b", true), None, soon);
        // Both work on the source, which is fine because of the first one.
        assert_eq!(
            reflectors.sources(soon).iter().map(|of| of.state).collect::<Vec<_>>(),
            [ReflectorState::Ok]
        );
        let later = soon.plus(Duration::from_micros(1));
        assert_eq!(reflectors.sources(later).first().map(|of| of.state), Some(ReflectorState::Failing));
        reflectors.beat(report("crm", "b", true), None, later);
        assert_eq!(states(&reflectors, later), [("crm/b".to_owned(), ReflectorState::Failing)]);
    }

    #[test]
    fn the_oldest_of_too_many_reflectors_is_dropped() {
        let (reflectors, start) = (Reflectors::default(), Time::from_micros(7));
        for number in 0..=REFLECTORS_MAX {
            let at = start.plus(Duration::from_micros(number as u64));
            reflectors.beat(report(&format!("s{number:04}"), "a", false), None, at);
        }
        let all = reflectors.after(None, usize::MAX, start);
        assert_eq!(all.len(), REFLECTORS_MAX);
        assert_eq!(all[0].report.source, "s0001");
        let after = Some(("s0001".to_owned(), "a".to_owned()));
        assert_eq!(reflectors.after(after, 1, start)[0].report.source, "s0002");
    }

    #[test]
    fn a_token_with_many_reflectors_pushes_out_its_own() {
        let (reflectors, start) = (Reflectors::default(), Time::from_micros(7));
        let by = |name: &str| Some(Arc::from(name));
        reflectors.beat(report("crm", "a", false), by("web"), start);
        reflectors.beat(report("shop", "rare", false), by("shop"), start);
        for number in 0..2 * REFLECTORS_MAX {
            reflectors.beat(
                report("shop", &format!("i{number}"), false),
                by("shop"),
                start.plus(SILENT_AFTER),
            );
        }
        let all = reflectors.after(None, usize::MAX, start);
        assert_eq!(all.len(), REFLECTORS_MAX);
        assert_eq!(all[0].report.source, "crm");
        assert!(reflectors.bytes() > REFLECTORS_MAX * REFLECTOR_BYTES);
    }
}
