//! Replace, and calls during a Replace.

use deltaq_engine::command::DefaultLimit;

use super::*;

/// A queue with known keys and an accepted Replace.
fn accepted_replace(names: &[&str], next: &[(&str, u32)]) -> (Fixture, ReplaceId) {
    let mut fixture = Fixture::new();
    for name in names {
        fixture.make_known(added(name, 1));
    }
    let id = fixture.accept(list(next));
    (fixture, id)
}

#[test]
fn a_call_during_a_replace_is_newer_than_the_list() {
    let (mut fixture, id) = accepted_replace(&["a", "b", "c"], &[("a", 2), ("b", 2), ("d", 2)]);
    // Before the Replace reaches any key, a is updated, b and c are deleted, and d is added.
    fixture.produce([updated("a", 3), deleted("b"), deleted("c"), added("d", 3)]).expect("no refusal");
    let result = fixture.finish(id).expect("no refusal");
    assert_eq!(counts(&result), replaced([0, 0, 0, 3, 0]));
    assert_eq!(fixture.waiting("a"), "Updated 3");
    assert_eq!(fixture.waiting("b"), "Deleted 1?");
    assert_eq!(fixture.waiting("c"), "Deleted 1?");
    assert_eq!(fixture.waiting("d"), "Added 3");
}

#[test]
fn a_call_after_the_replace_follows_it_in_the_list_of_deltas() {
    let (mut fixture, id) = accepted_replace(&["a"], &[("a", 2), ("b", 2)]);
    while fixture.waiting("a").is_empty() {
        fixture.step(id).expect("no refusal");
    }
    fixture.call(updated("a", 3));
    fixture.call(deleted("b"));
    fixture.finish(id).expect("no refusal");
    assert_eq!(fixture.waiting("a"), "Replaced 2, Updated 3");
    assert_eq!(fixture.place("b"), "absent", "the Delete was ignored, but is newer than the list");
}

#[test]
fn an_update_keeps_a_key_that_the_list_does_not_name() {
    let (mut fixture, id) = accepted_replace(&["a", "b"], &[("b", 2)]);
    fixture.call(updated("a", 2));
    let result = fixture.finish(id).expect("no refusal");
    assert_eq!(counts(&result), replaced([1, 0, 0, 0, 0]));
    assert_eq!(fixture.waiting("a"), "Updated 2");
}

#[test]
fn a_refused_call_changes_nothing() {
    let mut fixture = Fixture::with(|config| config.max_object_bytes = 8);
    fixture.make_known(added("a", 1));
    let id = fixture.accept(list(&[("a", 2)]));
    let refusal = fixture.produce([updated("a", 3), updated("b", 1_000_000)]);
    assert!(matches!(refusal, Err(Refusal::ObjectTooLarge { index: 1, .. })));
    assert_eq!(counts(&fixture.finish(id).expect("no refusal")), replaced([1, 0, 0, 0, 0]));
}

#[test]
fn pops_and_settles_during_a_replace_are_not_newer_changes() {
    let (mut fixture, id) = accepted_replace(&["a"], &[("a", 3)]);
    fixture.call(added("x", 1));
    let item = fixture.pop();
    fixture.ack(&item);
    assert!(matches!(fixture.step(id), Ok(Progress::More)));
    assert_eq!(fixture.resync(), 2);
    let item = fixture.pop();
    assert_eq!(text(&item), "a: Sync 1");
    let result = fixture.finish(id).expect("no refusal");
    assert_eq!(counts(&result), replaced([1, 0, 0, 0, 0]), "x was called after the acceptance");
    assert_eq!(fixture.waiting("a"), "Replaced 3");
}

#[test]
fn a_second_replace_waits_for_the_first() {
    let (mut fixture, first) = accepted_replace(&["a"], &[("a", 2), ("b", 2)]);
    let second = fixture.accept(list(&[("a", 3), ("c", 3)]));
    assert!(matches!(fixture.step(second), Ok(Progress::NotYet)));
    fixture.finish(first).expect("no refusal");
    let result = fixture.finish(second).expect("no refusal");
    assert_eq!(
        counts(&result),
        replaced([2, 1, 0, 0, 0]),
        "the items of the first Replace do not count as calls"
    );
    assert_eq!(fixture.waiting("a"), "Replaced 2, Replaced 3");
    assert_eq!(fixture.waiting("b"), "Replaced 2, Deleted 2?");
}

#[test]
fn only_a_replace_that_has_changed_nothing_can_be_withdrawn() {
    let (mut fixture, first) = accepted_replace(&["a"], &[("a", 2), ("b", 2)]);
    let [second, third] = [3, 4].map(|version| fixture.accept(list(&[("a", version)])));
    assert!(fixture.queue.withdraw_replace(second));
    assert!(!fixture.queue.withdraw_replace(second), "it is gone");
    while fixture.waiting("a").is_empty() {
        assert!(matches!(fixture.step(first), Ok(Progress::More)));
    }
    assert!(!fixture.queue.withdraw_replace(first), "it has changed a");
    fixture.finish(first).expect("no refusal");
    assert!(!fixture.queue.withdraw_replace(first), "it has ended");
    fixture.finish(third).expect("no refusal");
    assert_eq!(fixture.waiting("a"), "Replaced 2, Replaced 4");
    let dry = fixture.accept(Replace { dry_run: true, ..list(&[("a", 5)]) });
    assert!(matches!(fixture.step(dry), Ok(Progress::More)));
    assert!(fixture.queue.withdraw_replace(dry), "a dry run changes nothing");
}

#[test]
fn a_call_before_the_start_of_a_waiting_replace_is_newer_than_its_list() {
    let (mut fixture, first) = accepted_replace(&["a"], &[("a", 2)]);
    let second = fixture.accept(list(&[("a", 3)]));
    fixture.call(updated("a", 9));
    assert_eq!(counts(&fixture.finish(first).expect("no refusal")), replaced([0, 0, 0, 1, 0]));
    assert_eq!(counts(&fixture.finish(second).expect("no refusal")), replaced([0, 0, 0, 1, 0]));
    assert_eq!(fixture.waiting("a"), "Updated 9");
}

/// An object too large to be compared under the lock, with its members in one of two orders.
fn large(version: u32, reorder: bool) -> Object {
    let (padding, v) = (format!(r#""padding":"{}""#, "x".repeat(4_096)), format!(r#""v":{version}"#));
    let members = if reorder { [padding, v] } else { [v, padding] };
    Object::from_valid(&format!("{{{}}}", members.join(", ")))
}

fn large_list(items: &[(&str, u32)]) -> Replace {
    let items = items.iter().map(|(name, version)| (key(name), large(*version, true)));
    Replace { only_changed: true, ..Replace::new(items.collect(), None) }
}

fn known_large_objects(names: &[&str]) -> Fixture {
    let mut fixture = Fixture::new();
    for name in names {
        let mut call = added(name, 1);
        call.0.object = Some(large(1, false));
        fixture.make_known(call);
    }
    fixture
}

fn next_comparison(fixture: &mut Fixture, id: ReplaceId) -> std::sync::Arc<deltaq_engine::Comparison> {
    loop {
        match fixture.step(id) {
            Ok(Progress::Compare(pairs)) => return pairs,
            Ok(Progress::More) => {}
            other => panic!("{other:?} instead of a comparison"),
        }
    }
}

#[test]
fn large_objects_are_compared_by_the_caller() {
    for is_run in [true, false] {
        let mut fixture = known_large_objects(&["a", "b"]);
        let id = fixture.accept(large_list(&[("a", 1), ("b", 2), ("c", 1)]));
        let pairs = next_comparison(&mut fixture, id);
        assert_eq!(fixture.ready_queue(), [""; 0], "nothing is queued before the comparison");
        if is_run {
            pairs.run();
        }
        let result = fixture.finish(id).expect("no refusal");
        assert_eq!(counts(&result), replaced([2, 0, 1, 0, 0]));
        assert_eq!(fixture.ready_queue(), ["b", "c"]);
    }
}

#[test]
fn a_dry_run_compares_large_objects_too() {
    let mut fixture = known_large_objects(&["a", "b"]);
    let id = fixture.accept(Replace { dry_run: true, ..large_list(&[("a", 1), ("b", 2), ("c", 1)]) });
    next_comparison(&mut fixture, id).run();
    let result = fixture.finish(id).expect("no refusal");
    assert_eq!(counts(&result), replaced([2, 0, 1, 0, 0]));
}

#[test]
fn a_comparison_with_an_outdated_object_is_not_used() {
    let mut fixture = known_large_objects(&["a"]);
    let mut newer = updated("a", 2);
    newer.0.object = Some(large(2, false));
    fixture.call(newer);
    let id = fixture.accept(large_list(&[("a", 1)]));
    let outdated = next_comparison(&mut fixture, id);
    fixture.purge();
    outdated.run();
    next_comparison(&mut fixture, id).run();
    assert_eq!(counts(&fixture.finish(id).expect("no refusal")), replaced([0, 0, 1, 0, 0]));
}

#[test]
fn a_key_with_a_call_during_the_comparison_is_skipped() {
    let mut fixture = known_large_objects(&["a"]);
    let id = fixture.accept(large_list(&[("a", 2)]));
    let pairs = next_comparison(&mut fixture, id);
    fixture.call(updated("a", 3));
    pairs.run();
    assert_eq!(counts(&fixture.finish(id).expect("no refusal")), replaced([0, 0, 0, 1, 0]));
    assert_eq!(fixture.waiting("a"), "Updated 3");
}

#[test]
fn a_skipped_key_is_taken_over_unless_its_call_named_a_source() {
    let mut fixture = Fixture::new();
    for name in ["a", "b"] {
        fixture.make_known(added(name, 1).from("erp"));
    }
    let id = fixture.accept(list_of("shop", &[("a", 2), ("b", 2)]));
    fixture.produce([updated("a", 3), updated("b", 3).from("erp")]).expect("no refusal");
    let result = fixture.finish(id).expect("no refusal");
    assert_eq!(counts(&result), replaced([0, 0, 0, 2, 1]));
    assert_eq!((fixture.owner("a"), fixture.owner("b")), (Some("shop"), Some("erp")));
}

#[test]
fn a_skipped_deleted_key_is_not_taken_over() {
    let mut fixture = Fixture::new();
    fixture.make_known(added("a", 1).from("erp"));
    let id = fixture.accept(list_of("shop", &[("a", 2)]));
    fixture.call(deleted("a"));
    let result = fixture.finish(id).expect("no refusal");
    assert_eq!(counts(&result), replaced([0, 0, 0, 1, 0]));
    assert_eq!(fixture.owner("a"), None);
}

#[test]
fn a_single_object_deletes_nothing_by_default() {
    let mut fixture = Fixture::new();
    fixture.make_known(added("a", 1));
    let image = fixture.queue.image();
    let single = || Replace { default_limit: DefaultLimit::SingleObject, ..list(&[("b", 1)]) };
    let refusal = fixture.replace(single()).expect_err("the body is one object");
    assert!(matches!(refusal, Refusal::MassDelete { deletions: 1, owned: 1, .. }), "{refusal:?}");
    assert!(refusal.to_string().contains("one object and no list"), "{refusal}");
    assert_eq!(fixture.queue.image(), image);
    fixture
        .replace(Replace { max_delete_percent: Some(100.0), ..single() })
        .expect("the limit replaces the default");
}

#[test]
fn a_library_that_names_no_limit_has_none() {
    let mut fixture = Fixture::new();
    fixture.make_known(added("a", 1));
    let result = fixture.replace(list(&[])).expect("no refusal");
    assert_eq!(counts(&result), replaced([0, 1, 0, 0, 0]));
}
