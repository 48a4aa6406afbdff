//! What a queue knows of its sources.

use std::time::Duration;

use deltaq_engine::event::EventKind;
use deltaq_engine::id::Source;
use deltaq_engine::limits::SOURCES_MAX;
use deltaq_engine::snapshot::SourceHistory;
use deltaq_engine::time::Time;

use super::*;

impl Fixture {
    /// The sources with the number of their keys.
    fn owners(&self) -> Vec<(String, usize)> {
        let sources = self.queue.sources_after(None, 100);
        sources.into_iter().map(|state| (state.source.to_string(), state.keys)).collect()
    }

    fn history(&self, source: &str) -> Option<SourceHistory> {
        let sources = self.queue.sources_after(None, usize::MAX);
        sources.into_iter().find(|state| &*state.source == source)?.history
    }
}

#[test]
fn an_aborted_replace_is_the_latest_but_not_the_last_complete_one() {
    let mut fixture = Fixture::new();
    fixture.replace(list_of("erp", &[("a", 1), ("b", 1)])).expect("no refusal");
    let complete = fixture.history("erp").expect("it has called");
    let last = complete.last_replace.clone().expect("a Replace has ended");
    assert_eq!((last.counts.replaced, last.ended), (2, complete.last_replaced));
    fixture.replace(list_of("shop", &[("c", 1)])).expect("no refusal");
    assert_eq!(fixture.history("erp").as_ref(), Some(&complete), "each source has its own");

    fixture.wait(1_000);
    let id = fixture.accept(list_of("erp", &[("a", 2)]));
    while fixture.history("erp").is_some_and(|history| history.last_replace == complete.last_replace) {
        fixture.step(id).expect("no refusal");
    }
    let running = fixture.history("erp").expect("it has called");
    assert!(running.last_call > complete.last_call);
    assert_eq!(running.last_replaced, complete.last_replaced);
    fixture.crash();
    let aborted = fixture.history("erp").expect("it is remembered");
    assert!(aborted.last_replace.is_some_and(|last| last.aborted && last.ended.is_some()));
    assert_eq!(aborted.last_replaced, complete.last_replaced);
}

/// The steps of some Replaces of small sources, beside `others` keys of another source.
fn steps_beside(others: usize) -> Vec<usize> {
    let mut fixture = Fixture::new();
    let big = (0..others).map(|number| added(&format!("big-{number}"), 1).from("big"));
    fixture.produce(big).expect("no refusal");
    fixture.produce(["c", "a", "b"].map(|name| added(name, 1).from("small"))).expect("no refusal");
    fixture.call(updated("big-0", 2).from("small"));
    let lists = [("small", 3, true), ("small", 3, false), ("new", 0, false), ("small", 0, false)];
    let mut all_steps = Vec::new();
    for (source, deleted, dry_run) in lists {
        let list = Replace { max_deletes: Some(10), dry_run, ..list_of(source, &[("b", 2)]) };
        let id = fixture.accept(list);
        let mut steps = 1;
        let done = loop {
            match fixture.step(id).expect("no refusal") {
                Progress::Done(done) => break done,
                _ => steps += 1,
            }
        };
        assert_eq!((done.counts.replaced, done.counts.deleted), (1, deleted), "{source}");
        all_steps.push(steps);
    }
    let deletions = fixture.events.iter().filter_map(|event| match &event.kind {
        EventKind::Appended(appended) if appended.delta == DeltaKind::Deleted => Some(appended.key.as_str()),
        _ => None,
    });
    assert_eq!(deletions.collect::<Vec<_>>(), ["a", "big-0", "c"], "in the order of keys");
    assert_eq!(fixture.owners().last(), Some(&("small".to_owned(), 1)));
    all_steps
}

#[test]
fn a_replace_examines_only_the_keys_of_its_source() {
    assert_eq!(steps_beside(1), steps_beside(5_000));
}

#[test]
fn beyond_the_limit_the_source_that_called_longest_ago_is_forgotten() {
    let mut fixture = Fixture::new();
    fixture.call(added("kept", 1).from("first"));
    fixture.wait(1);
    fixture.call(added("other", 1).from("second"));
    fixture.wait(1);
    fixture.call(updated("kept", 2).from("first"));
    fixture.wait(1);
    let calls = (2..=SOURCES_MAX).map(|number| added("other", 1).from(&format!("many-{number:04}")));
    fixture.produce(calls).expect("no refusal");
    assert!(fixture.history("first").is_some() && fixture.history("second").is_none());
    fixture.wait(1);
    fixture.call(added("other", 1).from("last"));
    assert!(fixture.history("first").is_none());
    assert_eq!(fixture.queue.sources_after(None, usize::MAX).len(), SOURCES_MAX + 1);
    let pages = fixture.queue.sources_after(Some("first"), 2);
    assert_eq!(pages.iter().map(|state| &*state.source).collect::<Vec<_>>(), ["last", "many-0002"]);
    assert_eq!(fixture.owners().first(), Some(&("first".to_owned(), 1)), "it still owns a key");
}

#[test]
fn contacts_and_thresholds_outlive_a_crash_and_contacts_never_go_back() {
    let mut fixture = Fixture::new();
    let quarter = Duration::from_mins(15);
    fixture
        .queue
        .configure_source(fixture.now(), &"erp".into(), Some(quarter), false)
        .expect("it is remembered");
    let set = fixture.history("erp").expect("a threshold is remembered");
    assert_eq!((set.contact(), set.is_stale(None, fixture.now())), (None, Some(false)));
    // The silence of a source that was never in contact begins with its threshold.
    let later = fixture.now().plus(quarter + Duration::from_micros(1));
    assert_eq!(set.is_stale(None, later), Some(true));

    fixture.wait(1_000);
    let contact = fixture.now();
    fixture.queue.reach_sources(contact, [("erp".into(), contact), ("crm".into(), contact)]);
    fixture.wait(1_000);
    let rv = fixture.queue.resource_version();
    fixture
        .queue
        .reach_sources(fixture.now(), [("erp".into(), contact), ("crm".into(), Time::from_micros(1))]);
    assert_eq!(fixture.queue.resource_version(), rv, "known contacts are no event");
    fixture.queue.configure_source(fixture.now(), &"erp".into(), Some(quarter), false);
    assert_eq!(fixture.queue.resource_version(), rv, "nor is a known threshold");
    fixture.crash();
    let erp = fixture.history("erp").expect("it is remembered");
    assert_eq!((erp.contact(), erp.stale_after.map(|after| after.longest)), (Some(contact), Some(quarter)));
    assert_eq!(erp.is_stale(erp.contact(), contact.plus(quarter)), Some(false));
    assert_eq!(erp.is_stale(erp.contact(), contact.plus(quarter + Duration::from_micros(1))), Some(true));
    let crm = fixture.history("crm").expect("it is remembered");
    assert_eq!((crm.contact(), crm.is_stale(None, later)), (Some(contact), None));
    fixture.queue.configure_source(fixture.now(), &"erp".into(), None, false);
    assert_eq!(fixture.history("erp").and_then(|erp| erp.stale_after), None);
}

#[test]
fn a_proposed_threshold_replaces_only_a_proposed_one() {
    let mut fixture = Fixture::new();
    let minutes = |minutes| Some(Duration::from_mins(minutes));
    let mut set = |stale_after, is_proposed| {
        let state = fixture.queue.configure_source(fixture.now(), &"erp".into(), stale_after, is_proposed);
        let history = state.and_then(|state| state.history);
        history.and_then(|history| history.stale_after).map(|after| after.longest)
    };
    assert_eq!(set(minutes(15), true), minutes(15));
    assert_eq!(set(minutes(3), true), minutes(3), "the interval of the reader has changed");
    assert_eq!(set(minutes(3), false), minutes(3), "the same length, and now it is declared");
    assert_eq!([set(minutes(15), true), set(None, true)], [minutes(3); 2]);
    assert_eq!([set(None, false), set(minutes(15), true)], [None, minutes(15)]);
    set(minutes(3), false);
    fixture.wait(1);
    fixture.crash();
    fixture.queue.configure_source(fixture.now(), &"erp".into(), minutes(15), true);
    let kept = fixture.history("erp").and_then(|erp| erp.stale_after).map(|after| after.longest);
    assert_eq!(kept, minutes(3), "a crash does not make it a proposal");
}

#[test]
fn thresholds_are_all_set_or_none_is() {
    let mut fixture = Fixture::new();
    let hour = Some(Duration::from_hours(1));
    let named = |prefix: &str, count: usize| -> Vec<(Source, Option<Duration>)> {
        (0..count).map(|number| (Source::from(&*format!("{prefix}-{number}")), hour)).collect()
    };
    let now = fixture.now();
    let mut set = |by: &str, thresholds: &[(Source, Option<Duration>)]| {
        fixture.queue.set_caller(Some(by.into()));
        let before = fixture.queue.resource_version();
        let is_done = fixture.queue.configure_sources(now, thresholds);
        assert!(is_done || fixture.queue.resource_version() == before, "nothing is half done");
        let is_set = |(source, longest): &(Source, Option<Duration>)| {
            let history = fixture.queue.source_history(source);
            history.and_then(|history| history.stale_after).map(|after| after.longest) == *longest
        };
        assert_eq!(thresholds.iter().all(is_set), is_done);
        is_done
    };
    assert!(set("b", &named("b", 400)));
    assert!(!set("a", &named("a", 700)), "the last ones would push out the first ones");
    assert!(
        set("a", &named("a", 600)) && set("a", &named("later", 600)),
        "those of the call before make room"
    );
    assert!(!set("a", &named("many", SOURCES_MAX + 1)));
    assert!(set("c", &[("absent".into(), None)]), "no threshold of an unknown source is no change");
}

#[test]
fn a_token_with_many_sources_pushes_out_its_own() {
    let mut fixture = Fixture::new();
    let mut reach = |by: &str, source: &str| {
        fixture.wait(1);
        fixture.queue.set_caller(Some(by.into()));
        let now = fixture.now();
        fixture.queue.reach_sources(now, [(source.into(), now)]);
    };
    reach("rare", "erp");
    (0..2 * SOURCES_MAX).for_each(|number| reach("many", &format!("many-{number}")));
    assert_eq!(fixture.queue.sources_after(None, usize::MAX).len(), SOURCES_MAX);
    assert!(fixture.history("erp").is_some());
    fixture.crash();
    assert!(fixture.history("erp").is_some());
}

#[test]
fn a_call_and_the_end_of_a_list_are_contacts_and_the_start_of_a_list_is_none() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1).from("erp"));
    let called = fixture.history("erp").expect("it has called").contact();
    assert_eq!(called, Some(fixture.now()));
    fixture.wait(1_000);
    let id = fixture.accept(list_of("erp", &[("a", 2)]));
    while fixture.history("erp").is_some_and(|history| history.last_replace.is_none()) {
        fixture.step(id).expect("no refusal");
    }
    let begun = fixture.history("erp").expect("it has called");
    assert_eq!((begun.contact(), begun.last_call), (called, fixture.now()));
    fixture.crash();
    assert_eq!(fixture.history("erp").expect("it is remembered").contact(), called, "the list is aborted");
    fixture.wait(1_000);
    fixture.replace(list_of("erp", &[("a", 3)])).expect("no refusal");
    assert_eq!(fixture.history("erp").expect("it has called").contact(), Some(fixture.now()));
}

#[test]
fn the_history_of_an_older_store_has_the_contacts_that_it_knows() {
    let older: SourceHistory = serde_json::from_str(r#"{"last_call":7}"#).expect("the old form");
    assert_eq!((older.contact(), older.stale_after), (Some(Time::from_micros(7)), None));
    let older: SourceHistory =
        serde_json::from_str(r#"{"last_call":7,"last_replaced":9}"#).expect("the old form");
    assert_eq!(older.contact(), Some(Time::from_micros(9)));
}
