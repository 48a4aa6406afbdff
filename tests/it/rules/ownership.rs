//! Whose a key is.

use super::*;

#[test]
fn the_source_that_names_a_key_owns_it_and_one_without_inherits() {
    let mut desk = Desk::new();
    desk.tell(added("a", 1));
    assert_eq!(desk.owner("a"), None);
    desk.tell(updated("a", 2).from("erp"));
    assert_eq!(desk.owner("a"), Some("erp"));
    desk.tell(updated("a", 3));
    assert_eq!(desk.owner("a"), Some("erp"), "inherited from what waits");
    let item = desk.pop();
    desk.tell(updated("a", 4));
    assert_eq!(desk.owner("a"), Some("erp"), "inherited from what is leased");
    desk.ack(&item);
    let item = desk.pop();
    desk.ack(&item);
    desk.tell(updated("a", 5));
    assert_eq!(desk.owner("a"), Some("erp"), "inherited from what is known");
    desk.tell(updated("a", 6).from("shop"));
    assert_eq!(desk.owner("a"), Some("shop"), "taken over");
}

#[test]
fn a_deletion_ends_the_ownership() {
    let mut desk = Desk::new();
    desk.know(added("a", 1).from("erp"));
    desk.tell(deleted("a").from("erp"));
    desk.tell(added("a", 2));
    assert_eq!(desk.owner("a"), None);
}

#[test]
fn a_replace_deletes_only_what_its_source_owns() {
    let mut desk = Desk::new();
    desk.know(added("e", 1).from("erp"));
    desk.know(added("s", 1).from("shop"));
    desk.know(added("n", 1));
    let answer = desk.replace(list_of("erp", &[])).expect("no guard");
    assert_eq!(counts(&answer), replaced([0, 1, 0, 0, 0]));
    assert_eq!(desk.line(), ["e"]);
}

#[test]
fn a_replace_without_source_covers_only_keys_without_owner() {
    let mut desk = Desk::new();
    desk.know(added("e", 1).from("erp"));
    desk.know(added("n", 1));
    desk.replace(list(&[])).expect("no guard");
    assert_eq!(desk.line(), ["n"]);
}

#[test]
fn a_replace_takes_the_keys_of_its_list_over_and_counts_them() {
    let mut desk = Desk::new();
    desk.know(added("a", 1).from("erp"));
    desk.know(added("b", 1));
    let answer = desk.replace(list_of("shop", &[("a", 2), ("b", 2), ("c", 2)])).expect("no guard");
    assert_eq!(counts(&answer), replaced([3, 0, 0, 0, 1]), "b belonged to nobody");
    // What was taken over is no longer deleted by its former source.
    let answer = desk.replace(list_of("erp", &[])).expect("no guard");
    assert_eq!(counts(&answer), replaced([0, 0, 0, 0, 0]));
}

#[test]
fn an_unchanged_object_is_taken_over_without_a_delta() {
    let mut desk = Desk::new();
    desk.know(added("a", 1).from("erp"));
    let only_changed = Replace { only_changed: true, ..list_of("shop", &[("a", 1)]) };
    let answer = desk.replace(only_changed).expect("no guard");
    assert_eq!(counts(&answer), replaced([0, 0, 1, 0, 1]));
    assert_eq!((desk.place("a"), desk.owner("a")), ("known", Some("shop")));
}

#[test]
fn what_is_leased_is_taken_over_too_and_the_ack_keeps_it() {
    let mut desk = Desk::new();
    desk.tell(added("a", 1).from("erp"));
    let item = desk.pop();
    let only_changed = Replace { only_changed: true, ..list_of("shop", &[("a", 1)]) };
    desk.replace(only_changed).expect("no guard");
    assert_eq!(desk.waiting("a"), "");
    desk.ack(&item);
    assert_eq!(desk.owner("a"), Some("shop"));
}

#[test]
fn a_skipped_key_is_taken_over_unless_its_call_named_a_source() {
    let mut desk = Desk::new();
    for name in ["a", "b"] {
        desk.know(added(name, 1).from("erp"));
    }
    let id = desk.accept(list_of("shop", &[("a", 2), ("b", 2)]));
    desk.say([updated("a", 3), updated("b", 3).from("erp")]).expect("there is room");
    let answer = desk.finish(id).expect("no guard");
    assert_eq!(counts(&answer), replaced([0, 0, 0, 2, 1]));
    assert_eq!((desk.owner("a"), desk.owner("b")), (Some("shop"), Some("erp")));
}

#[test]
fn a_deletion_that_is_skipped_is_not_taken_over() {
    let mut desk = Desk::new();
    desk.know(added("a", 1).from("erp"));
    let id = desk.accept(list_of("shop", &[("a", 2)]));
    desk.tell(deleted("a"));
    let answer = desk.finish(id).expect("no guard");
    assert_eq!(counts(&answer), replaced([0, 0, 0, 1, 0]));
    assert_eq!(desk.owner("a"), None);
}
