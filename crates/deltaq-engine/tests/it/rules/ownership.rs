//! The owner of a key.

use super::*;

#[test]
fn a_call_with_a_source_sets_the_owner_and_a_call_without_keeps_it() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1));
    assert_eq!(fixture.owner("a"), None);
    fixture.call(updated("a", 2).from("erp"));
    assert_eq!(fixture.owner("a"), Some("erp"));
    fixture.call(updated("a", 3));
    assert_eq!(fixture.owner("a"), Some("erp"), "inherited from the waiting delta");
    let item = fixture.pop();
    fixture.call(updated("a", 4));
    assert_eq!(fixture.owner("a"), Some("erp"), "inherited from the leased delta");
    fixture.ack(&item);
    let item = fixture.pop();
    fixture.ack(&item);
    fixture.call(updated("a", 5));
    assert_eq!(fixture.owner("a"), Some("erp"), "inherited from the known object");
    fixture.call(updated("a", 6).from("shop"));
    assert_eq!(fixture.owner("a"), Some("shop"), "taken over");
}

#[test]
fn a_deletion_ends_the_ownership() {
    let mut fixture = Fixture::new();
    fixture.make_known(added("a", 1).from("erp"));
    fixture.call(deleted("a").from("erp"));
    fixture.call(added("a", 2));
    assert_eq!(fixture.owner("a"), None);
}

#[test]
fn a_replace_deletes_only_what_its_source_owns() {
    let mut fixture = Fixture::new();
    fixture.make_known(added("e", 1).from("erp"));
    fixture.make_known(added("s", 1).from("shop"));
    fixture.make_known(added("n", 1));
    let result = fixture.replace(list_of("erp", &[])).expect("no refusal");
    assert_eq!(counts(&result), replaced([0, 1, 0, 0, 0]));
    assert_eq!(fixture.ready_queue(), ["e"]);
}

#[test]
fn a_replace_without_a_source_deletes_only_keys_without_an_owner() {
    let mut fixture = Fixture::new();
    fixture.make_known(added("e", 1).from("erp"));
    fixture.make_known(added("n", 1));
    fixture.replace(list(&[])).expect("no refusal");
    assert_eq!(fixture.ready_queue(), ["n"]);
}

#[test]
fn a_replace_takes_over_the_keys_of_its_list_and_counts_them() {
    let mut fixture = Fixture::new();
    fixture.make_known(added("a", 1).from("erp"));
    fixture.make_known(added("b", 1));
    let result = fixture.replace(list_of("shop", &[("a", 2), ("b", 2), ("c", 2)])).expect("no refusal");
    assert_eq!(counts(&result), replaced([3, 0, 0, 0, 1]), "b had no owner");
    // The former source no longer deletes a key that was taken over.
    let result = fixture.replace(list_of("erp", &[])).expect("no refusal");
    assert_eq!(counts(&result), replaced([0, 0, 0, 0, 0]));
}

#[test]
fn an_unchanged_object_is_taken_over_without_a_delta() {
    let mut fixture = Fixture::new();
    fixture.make_known(added("a", 1).from("erp"));
    let only_changed = Replace { only_changed: true, ..list_of("shop", &[("a", 1)]) };
    let result = fixture.replace(only_changed).expect("no refusal");
    assert_eq!(counts(&result), replaced([0, 0, 1, 0, 1]));
    assert_eq!((fixture.place("a"), fixture.owner("a")), ("known", Some("shop")));
}

#[test]
fn a_leased_key_is_taken_over_too_and_keeps_its_owner_after_the_ack() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1).from("erp"));
    let item = fixture.pop();
    let only_changed = Replace { only_changed: true, ..list_of("shop", &[("a", 1)]) };
    fixture.replace(only_changed).expect("no refusal");
    assert_eq!(fixture.waiting("a"), "");
    fixture.ack(&item);
    assert_eq!(fixture.owner("a"), Some("shop"));
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
