//! Purge, redrive, discard, pause, close, settings.

use std::sync::Arc;

use deltaq_engine::Queue;
use deltaq_engine::config::{AdmissionText, Config};
use deltaq_engine::id::Rv;
use deltaq_engine::pointer::Pointer;
use deltaq_engine::refusal::Refusal;
use deltaq_engine::time::Time;
use deltaq_types::RawObject;

use super::*;

#[test]
fn a_purge_in_slices_keeps_later_changes() {
    let mut fixture = Fixture::new();
    fixture.produce([added("a", 1), added("b", 1), added("c", 1)]).expect("no refusal");
    let mut cursor = ScanCursor::default();
    assert!(matches!(fixture.queue.purge_step(fixture.now(), &mut cursor, 1), Progress::More));
    fixture.call(updated("c", 2));
    fixture.call(added("d", 1));
    let Progress::Done(purged) = fixture.queue.purge_step(fixture.now(), &mut cursor, 9) else {
        panic!("the purge has ended")
    };
    fixture.commit_and_check();
    assert_eq!(purged, Purged { keys: 2, deltas: 2 });
    assert_eq!(fixture.ready_queue(), ["c", "d"]);
}

#[test]
fn a_call_during_a_seed_is_newer_and_cannot_use_the_reserved_keys() {
    let mut fixture = Fixture::with(|config| config.max_keys = 3);
    let seeds = [(key("a"), object(1), None), (key("b"), object(1), None)];
    fixture.queue.begin_seed(&seeds);
    assert!(fixture.produce([added("c", 1), added("d", 1)]).is_err(), "two keys are reserved");
    fixture.call(added("b", 2));
    let item = fixture.pop();
    fixture.ack(&item);
    fixture.queue.seed_step(fixture.now(), seeds);
    fixture.queue.end_seed();
    fixture.commit_and_check();
    assert_eq!((fixture.known("a"), fixture.known("b")), (Some(r#"{"v":1}"#), Some(r#"{"v":2}"#)));
}

#[test]
fn a_replace_accepted_during_a_seed_is_newer_than_the_seed() {
    let mut fixture = Fixture::new();
    let seeds = [(key("a"), object(1), None), (key("b"), object(1), None)];
    fixture.queue.begin_seed(&seeds);
    let id = fixture.accept(list(&[("a", 2)]));
    assert!(matches!(fixture.step(id), Ok(Progress::NotYet)));
    fixture.queue.seed_step(fixture.now(), seeds);
    fixture.queue.end_seed();
    fixture.finish(id).expect("no refusal");
    assert_eq!(
        (fixture.waiting("a"), fixture.waiting("b")),
        ("Replaced 2".to_owned(), "Deleted 1?".to_owned())
    );
}

#[test]
fn a_command_that_was_read_by_other_admission_rules_is_refused() {
    let by = |schema: Option<&str>, prune: &[&str]| {
        let schema = schema.map(RawObject::from_valid);
        let prune = prune.iter().map(|text| Pointer::parse(text, false).expect("a pointer")).collect();
        let admission = AdmissionText::new(schema, prune).map(Arc::new);
        Arc::new(Config { admission, ..Config::default() })
    };
    let queue = Queue::new(by(None, &["/a"]), Rv::ZERO, Time::default());
    for other in [by(None, &[]), by(Some("{}"), &[]), by(Some("{}"), &["/a"]), by(None, &["/b"])] {
        assert_eq!(queue.check_config(&other), Err(Refusal::ConfigChanged), "{other:?}");
    }
    assert_eq!(queue.check_config(&by(None, &["/a"])), Ok(()));
}

/// A later version may allow less than this one has stored.
#[test]
fn stored_settings_are_read_whatever_their_range_is_now() {
    let config = config(|config| {
        config.lease = Duration::from_millis(20);
        config.max_keys = 0;
        config.max_delete_percent = Some(400.0);
    });
    let text = serde_json::to_string(&config).expect("JSON");
    assert_eq!(serde_json::from_str::<Config>(&text).expect("it is read"), *config);
}
