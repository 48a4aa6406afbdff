//! Purge, redrive, discard, pause, close, settings.

use std::sync::Arc;

use deltaq_engine::Queue;
use deltaq_engine::command::How;
use deltaq_engine::config::{AdmissionText, Config};
use deltaq_engine::id::Rv;
use deltaq_engine::key::Pointer;
use deltaq_engine::refusal::Refusal;
use deltaq_engine::time::Time;
use serde_json::value::RawValue;

use super::*;

#[test]
fn purge_drops_ready_and_delayed_keys_and_the_waiting_deltas_of_leased_keys() {
    let mut fixture = Fixture::new();
    fixture.make_known(added("known", 1));
    fixture.call(added("parked", 1));
    fixture.park("parked");
    fixture.produce([added("leased", 1), added("ready", 1), updated("known", 2)]).expect("no refusal");
    let item = fixture.pop();
    fixture
        .produce([updated("leased", 2), updated("leased", 3), added("delayed", 1).after(50)])
        .expect("no refusal");
    assert_eq!(fixture.purge(), Purged { keys: 3, deltas: 5 });
    assert_eq!(
        ["ready", "delayed", "known", "parked", "leased"].map(|name| fixture.place(name)),
        ["absent", "absent", "known", "parked", "leased"]
    );
    assert_eq!((fixture.known("known"), fixture.waiting("leased")), (Some(r#"{"v":1}"#), String::new()));
    fixture.ack(&item);
    assert_eq!(fixture.place("leased"), "known");
    assert_eq!(fixture.purge(), Purged { keys: 0, deltas: 0 });
}

#[test]
fn a_purged_key_has_no_failures_or_attempts() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1));
    let item = fixture.pop();
    fixture.nack(&item);
    fixture.purge();
    fixture.call(added("a", 2));
    let item = fixture.pop();
    assert_eq!((text(&item), item.attempt, item.failures), ("a: Added 2".into(), 1, 0));
}

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
fn promote_makes_delayed_keys_ready_and_leaves_their_failures() {
    let mut fixture = Fixture::new();
    fixture.produce([added("c", 1), added("a", 1).after(60), added("b", 1).after(60)]).expect("no refusal");
    let item = fixture.pop();
    fixture.nack(&item);
    assert_eq!((fixture.place("c"), fixture.failures("c")), ("delayed", 1));
    assert_eq!(fixture.promote(Some(&["c", "x"])), 1);
    assert_eq!(fixture.promote(None), 2);
    assert_eq!(fixture.ready_queue(), ["c", "a", "b"]);
    assert_eq!(fixture.promote(None), 0, "ready keys stay where they are");
    let item = fixture.pop();
    assert_eq!((item.failures, item.attempt), (1, 2));
    assert_eq!(fixture.promote(Some(&["c"])), 0, "leased keys stay leased");
}

#[test]
fn redrive_makes_parked_keys_ready_and_resets_their_failures() {
    let mut fixture = Fixture::with(|config| config.max_failures = 1);
    for name in ["c", "a", "b"] {
        fixture.call(added(name, 1));
        let item = fixture.pop();
        fixture.nack(&item);
    }
    assert_eq!(fixture.failures("a"), 1);
    assert_eq!(fixture.redrive(Some(&["c", "x"])), 1);
    assert_eq!(fixture.redrive(None), 2);
    assert_eq!(fixture.ready_queue(), ["c", "a", "b"], "the keys in key order");
    let item = fixture.pop();
    assert_eq!((item.failures, item.attempt), (0, 2));
}

#[test]
fn discard_drops_only_parked_keys() {
    let mut fixture = Fixture::new();
    fixture.make_known(added("a", 1));
    fixture.call(updated("a", 2));
    fixture.park("a");
    fixture.call(added("b", 1));
    fixture.park("b");
    fixture.call(added("c", 1));
    assert_eq!(fixture.discard(), 2);
    assert_eq!(["a", "b", "c"].map(|name| fixture.place(name)), ["known", "absent", "ready"]);
    assert_eq!(fixture.known("a"), Some(r#"{"v":1}"#), "the object that was acknowledged last");
    fixture.call(updated("a", 3));
    fixture.pop();
    let item = fixture.pop();
    assert_eq!((text(&item), item.attempt), ("a: Updated 3".into(), 1));
}

#[test]
fn a_paused_queue_only_stops_delivery() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1));
    let item = fixture.pop();
    fixture.queue.set_paused(fixture.now(), true);
    fixture.call(added("b", 1));
    assert!(fixture.pop_with(|_| {}).expect("the queue is not closed").is_empty());
    fixture.nack(&item);
    fixture.wait(100);
    assert_eq!(fixture.ready_queue(), ["b", "a"]);
    fixture.queue.set_paused(fixture.now(), false);
    assert_eq!(text(&fixture.pop()), "b: Added 1");
}

#[test]
fn a_closed_queue_drains_and_parked_keys_do_not_count() {
    let mut fixture = Fixture::new();
    fixture.call(added("parked", 1));
    fixture.park("parked");
    fixture.produce([added("a", 1), added("b", 1).after(100)]).expect("no refusal");
    fixture.queue.set_closed(fixture.now(), true);
    let a = fixture.pop();
    assert!(fixture.pop_with(|_| {}).expect("b is delayed, a is leased").is_empty());
    fixture.nack(&a);
    fixture.wait(100);
    assert!(!fixture.queue.is_drained());
    for _ in 0..2 {
        let item = fixture.pop();
        fixture.ack(&item);
    }
    assert!(fixture.queue.is_drained());
    assert!(matches!(fixture.pop_with(|_| {}), Err(Refusal::Closed)));
    fixture.queue.set_closed(fixture.now(), false);
    assert!(fixture.pop_with(|_| {}).expect("the queue is open again").is_empty());
}

#[test]
fn settling_works_in_every_state() {
    let mut fixture = Fixture::new();
    fixture.produce([added("a", 1), added("b", 1)]).expect("no refusal");
    let (a, b) = (fixture.pop(), fixture.pop());
    fixture.queue.set_paused(fixture.now(), true);
    fixture.queue.set_closed(fixture.now(), true);
    fixture.ack(&a);
    fixture.settle(b.token, How::Release);
    assert_eq!((fixture.place("a"), fixture.place("b")), ("known", "ready"));
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
fn a_seed_needs_a_queue_with_only_known_objects() {
    let mut fixture = Fixture::new();
    fixture.make_known(added("a", 1));
    fixture.seed(&[("a", 5), ("b", 1)]);
    assert_eq!((fixture.known("a"), fixture.place("b")), (Some(r#"{"v":5}"#), "known"));
    assert!(fixture.ready_queue().is_empty(), "a seed queues no delta");
    let seeds = [(key("c"), object(1), None)];
    fixture.call(added("x", 1).after(50));
    assert!(matches!(fixture.queue.check_seed(&seeds), Err(Refusal::NotEmpty { waiting: 1 })));
    fixture.wait(50);
    assert!(matches!(fixture.queue.check_seed(&seeds), Err(Refusal::NotEmpty { waiting: 1 })));
    let item = fixture.pop();
    assert!(matches!(fixture.queue.check_seed(&seeds), Err(Refusal::NotEmpty { waiting: 1 })));
    fixture.reject(&item);
    assert!(matches!(fixture.queue.check_seed(&seeds), Err(Refusal::NotEmpty { waiting: 1 })));
}

#[test]
fn mode_key_and_known_objects_cannot_change_while_a_queue_has_keys() {
    let mut fixture = Fixture::new();
    let latest = config(|config| config.mode = Mode::Latest);
    fixture.make_known(added("a", 1));
    let refusal = fixture.queue.configure(fixture.now(), latest.clone());
    assert!(matches!(refusal, Err(Refusal::ImmutableConfig { field: "mode", keys: 1 })));
    fixture
        .queue
        .configure(fixture.now(), config(|config| config.max_failures = 9))
        .expect("that may change");
    fixture.call(deleted("a"));
    let item = fixture.pop();
    fixture.ack(&item);
    fixture.queue.configure(fixture.now(), latest).expect("the queue is empty");
    fixture.commit_and_check();
}

#[test]
fn the_version_of_a_known_object_is_that_of_the_event_that_made_it_known() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1));
    fixture.call(updated("a", 2));
    let item = fixture.pop();
    fixture.ack(&item);
    let known = |fixture: &Fixture| fixture.entry("a").known.as_ref().map(|known| known.rv);
    assert_eq!(known(&fixture), Some(item.token.rv().next()), "the ack is the next event after the lease");
    fixture.resync();
    let item = fixture.pop();
    fixture.ack(&item);
    assert_eq!(known(&fixture), Some(item.token.rv().next()));
    assert_eq!(known(&fixture), Some(fixture.queue.resource_version()));
}

#[test]
fn a_command_that_was_read_by_other_admission_rules_is_refused() {
    let by = |schema: Option<&str>, prune: &[&str]| {
        let schema = schema.map(|text| RawValue::from_string(text.to_owned()).expect("JSON").into());
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
