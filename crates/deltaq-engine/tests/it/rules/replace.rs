//! Replace, and calls during a Replace.

use deltaq_engine::command::DefaultLimit;
use deltaq_engine::id::Rv;

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
fn items_are_queued_in_list_order_and_deletions_after_them_in_key_order() {
    let mut fixture = Fixture::new();
    for name in ["z", "y", "x", "b", "a"] {
        fixture.make_known(added(name, 1));
    }
    fixture.call(updated("y", 2));
    let result = fixture.replace(list(&[("b", 2), ("a", 2), ("c", 2)])).expect("no refusal");
    assert_eq!(counts(&result), replaced([3, 3, 0, 0, 0]));
    assert_eq!(fixture.ready_queue(), ["y", "b", "a", "c", "x", "z"], "y was already ready");
    assert_eq!(fixture.waiting("y"), "Updated 2, Deleted 2?");
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
fn a_call_before_the_start_of_a_waiting_replace_is_newer_than_its_list() {
    let (mut fixture, first) = accepted_replace(&["a"], &[("a", 2)]);
    let second = fixture.accept(list(&[("a", 3)]));
    fixture.call(updated("a", 9));
    assert_eq!(counts(&fixture.finish(first).expect("no refusal")), replaced([0, 0, 0, 1, 0]));
    assert_eq!(counts(&fixture.finish(second).expect("no refusal")), replaced([0, 0, 0, 1, 0]));
    assert_eq!(fixture.waiting("a"), "Updated 9");
}

#[test]
fn only_changed_compares_with_the_newest_state() {
    let mut fixture = Fixture::new();
    for name in ["known", "leased", "parked", "waiting", "deleted"] {
        fixture.make_known(added(name, 1));
    }
    fixture.call(updated("parked", 2));
    fixture.park("parked");
    fixture.call(updated("leased", 2));
    fixture.pop();
    fixture.call(updated("waiting", 2));
    fixture.call(deleted("deleted"));
    let same = [("known", 1), ("leased", 2), ("parked", 2), ("waiting", 2), ("deleted", 1), ("new", 1)];
    let result = fixture.replace(Replace { only_changed: true, ..list(&same) }).expect("no refusal");
    assert_eq!(counts(&result), replaced([2, 0, 4, 0, 0]), "a deleted and an absent key are changes");
    assert_eq!(fixture.waiting("deleted"), "Deleted 1?, Replaced 1");
    assert_eq!(fixture.place("parked"), "parked");
    let older = [("leased", 1), ("waiting", 1)];
    let result = fixture.replace(Replace { only_changed: true, ..list(&older) }).expect("no refusal");
    assert_eq!(counts(&result).first(), Some(&("replaced", 2)));
}

#[test]
fn only_changed_compares_content_and_not_text() {
    let mut fixture = Fixture::new();
    let object = |text: &str| Object::from_valid(text);
    let replace = |object| Replace {
        only_changed: true,
        ..Replace::new([(key("a"), object)].into_iter().collect(), None)
    };
    fixture.make_known(ProduceCall(Call {
        object: Some(object(r#"{"x":1,"y":[{"z":1e2}]}"#)),
        ..added("a", 1).0
    }));
    let moved = replace(object(r#"{ "y": [{"z": 1e2}], "x": 1 }"#));
    assert_eq!(counts(&fixture.replace(moved).expect("no refusal")), replaced([0, 0, 1, 0, 0]));
    let rewritten = replace(object(r#"{"x":1,"y":[{"z":100}]}"#));
    let result = counts(&fixture.replace(rewritten).expect("no refusal"));
    assert_eq!(result, replaced([1, 0, 0, 0, 0]), "numbers are compared by their text");
}

fn refusal(result: Result<Replaced, Refusal>) -> Option<(u64, u64)> {
    match result {
        Err(Refusal::MassDelete { deletions, owned, .. }) => Some((deletions, owned)),
        Err(other) => panic!("another refusal: {other}"),
        Ok(_) => None,
    }
}

/// Ten known keys owned by `erp`, and one without an owner.
fn ten_known_keys() -> Fixture {
    let mut fixture = Fixture::new();
    for name in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"] {
        fixture.make_known(added(name, 1).from("erp"));
    }
    fixture.make_known(added("other", 1));
    fixture
}

fn keep(names: &[&str]) -> Replace {
    list_of("erp", &names.iter().map(|name| (*name, 1)).collect::<Vec<_>>())
}

#[test]
fn the_limit_refuses_too_many_deletions_and_changes_nothing() {
    let mut fixture = ten_known_keys();
    let image = fixture.queue.image();
    let limited = Replace { max_delete_percent: Some(20.0), ..keep(&["a", "b", "c", "d", "e", "f", "g"]) };
    assert_eq!(refusal(fixture.replace(limited)), Some((3, 10)));
    assert_eq!(fixture.queue.image(), image);
    let limited = Replace { max_delete_percent: Some(30.0), ..keep(&["a", "b", "c", "d", "e", "f", "g"]) };
    assert_eq!(refusal(fixture.replace(limited)), None, "exactly P % is allowed");
}

#[test]
fn without_limits_the_default_limit_applies() {
    let most = ["a", "b", "c", "d", "e"];
    for (names, limit, refused) in [
        (&most[..], DefaultLimit::Half, None),
        (&most[..4], DefaultLimit::Half, Some((6, 10))),
        (&[], DefaultLimit::Half, Some((10, 10))),
        (&[], DefaultLimit::EmptyList, Some((10, 10))),
        (&[], DefaultLimit::None, None),
        (&most[..1], DefaultLimit::SingleObject, Some((9, 10))),
    ] {
        let mut fixture = ten_known_keys();
        let image = fixture.queue.image();
        let list = Replace { default_limit: limit, ..keep(names) };
        assert_eq!(refusal(fixture.replace(list)), refused, "{names:?} {limit:?}");
        assert_eq!(fixture.queue.image() == image, refused.is_some(), "{names:?} {limit:?}");
    }
    // Limits that are set replace the default.
    let all =
        Replace { default_limit: DefaultLimit::EmptyList, max_delete_percent: Some(100.0), ..keep(&[]) };
    assert_eq!(refusal(ten_known_keys().replace(all)), None);
    let few = Replace { default_limit: DefaultLimit::Half, ..keep(&["x"]) };
    let mut nine = ten_known_keys();
    nine.replace(keep(&most)).expect("no refusal");
    assert_eq!(refusal(nine.replace(few)), None, "a source of fewer than ten keys may lose them all");
}

#[test]
fn a_refusal_names_only_the_limits_that_somebody_has_set() {
    let text = |replace: Replace| match ten_known_keys().replace(replace) {
        Err(refusal @ Refusal::MassDelete { .. }) => refusal.to_string(),
        other => panic!("{other:?}"),
    };
    let percent = text(Replace { max_delete_percent: Some(20.0), ..keep(&["a"]) });
    assert!(percent.contains("would delete 9 of 10 keys"), "{percent}");
    assert!(percent.contains("max_delete_percent is 20;") && !percent.contains("max_deletes"), "{percent}");
    let deletes = text(Replace { max_deletes: Some(3), ..keep(&["a"]) });
    assert!(deletes.contains("max_deletes is 3") && !deletes.contains("max_delete_percent is"), "{deletes}");
    let half = text(Replace { default_limit: DefaultLimit::Half, ..keep(&["a"]) });
    assert!(half.contains("default limit") && half.contains("max_delete_percent=100"), "{half}");
    let empty = text(Replace { default_limit: DefaultLimit::EmptyList, ..keep(&[]) });
    assert!(empty.contains("the list is empty") && empty.contains("allow_empty=true"), "{empty}");
    let single = text(Replace { default_limit: DefaultLimit::SingleObject, ..keep(&["a"]) });
    assert!(single.contains("one object and no list"), "{single}");
}

#[test]
fn both_deletion_limits_have_to_be_exceeded() {
    let limited = |percent: Option<f64>, deletes: Option<u64>| {
        let seven = keep(&["a", "b", "c", "d", "e", "f", "g"]);
        Replace { max_delete_percent: percent, max_deletes: deletes, ..seven }
    };
    for (percent, deletes, refused) in [
        (None, None, false),
        (Some(10.0), Some(3), false),
        (Some(50.0), Some(1), false),
        (Some(10.0), Some(2), true),
        (None, Some(2), true),
        (None, Some(3), false),
        (Some(29.9), None, true),
    ] {
        let mut fixture = ten_known_keys();
        let result = refusal(fixture.replace(limited(percent, deletes)));
        assert_eq!(result.is_some(), refused, "{percent:?} % and {deletes:?}");
    }
}

#[test]
fn deleted_keys_do_not_count_in_the_percentage() {
    let mut fixture = ten_known_keys();
    fixture
        .produce([deleted("a"), deleted("b"), deleted("c"), deleted("d"), deleted("e")])
        .expect("no refusal");
    let limited = Replace { max_delete_percent: Some(20.0), ..keep(&["f", "g", "h"]) };
    assert_eq!(refusal(fixture.replace(limited)), Some((2, 5)));
}

#[test]
fn a_replace_overrides_the_deletion_limits_of_its_queue() {
    let mut fixture = Fixture::with(|config| config.max_deletes = Some(0));
    fixture.make_known(added("a", 1));
    assert_eq!(refusal(fixture.replace(list(&[]))), Some((1, 1)));
    let overridden = Replace { max_deletes: Some(1), ..list(&[]) };
    assert_eq!(refusal(fixture.replace(overridden)), None);
}

#[test]
fn a_dry_run_returns_the_counts_and_changes_nothing() {
    let mut fixture = ten_known_keys();
    let image = fixture.queue.image();
    let dry =
        Replace { dry_run: true, only_changed: true, ..list_of("erp", &[("a", 1), ("b", 2), ("other", 1)]) };
    let result = fixture.replace(dry).expect("no refusal");
    assert_eq!(counts(&result), replaced([1, 8, 2, 0, 0]));
    let dry = Replace { dry_run: true, max_deletes: Some(3), ..keep(&[]) };
    assert_eq!(refusal(fixture.replace(dry)), Some((10, 10)), "a dry run reports a refusal");
    assert_eq!(fixture.queue.image(), image);
}

#[test]
fn a_dry_run_is_not_the_first_replace() {
    let mut fixture = Fixture::new();
    fixture.replace(Replace { dry_run: true, ..list(&[("a", 1)]) }).expect("no refusal");
    assert!(!fixture.has_synced());
    fixture.replace(list(&[("a", 1)])).expect("no refusal");
    assert_eq!(fixture.queue.initial_remaining(), 1);
}

#[test]
fn one_invalid_item_refuses_the_whole_list() {
    let mut fixture = Fixture::with(|config| config.max_object_bytes = 8);
    let refusal = fixture.queue.accept_replace(fixture.now(), list(&[("a", 1), ("b", 1_000_000)]));
    assert!(matches!(refusal, Err(Refusal::ObjectTooLarge { index: 1, .. })));
    assert_eq!((fixture.queue.resource_version(), fixture.place("a")), (Rv::ZERO, "absent"));
}

#[test]
fn without_known_objects_a_replace_covers_waiting_leased_and_parked_keys() {
    let mut fixture = Fixture::with(|config| config.known_objects = false);
    fixture.make_known(added("acked", 1));
    fixture.call(added("parked", 1));
    fixture.park("parked");
    fixture.call(added("leased", 1));
    fixture.pop();
    fixture.call(added("waiting", 1));
    let result = fixture.replace(list(&[])).expect("no refusal");
    assert_eq!(counts(&result), replaced([0, 3, 0, 0, 0]));
    assert_eq!(fixture.ready_queue(), ["waiting", "parked"], "the deletion is a new change for a parked key");
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
