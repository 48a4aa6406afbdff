//! The cap on a list of deltas, and room for keys.

use super::*;

#[test]
fn past_the_cap_the_second_and_third_oldest_become_one() {
    let mut desk = Desk::with(|config| config.max_deltas_per_key = 3);
    for version in 1..=6 {
        desk.tell(updated("a", version));
    }
    assert_eq!(desk.waiting("a"), "Updated 1, Updated 5+3, Updated 6");
    let item = desk.pop();
    assert_eq!(item.deltas.len(), 3);
    assert_eq!(item.deltas[1].coalesced, 3);
}

#[test]
fn a_merged_delta_is_the_newer_one_in_type_object_and_rv() {
    let mut desk = Desk::with(|config| config.max_deltas_per_key = 2);
    desk.say([added("a", 1), deleted("a"), added("a", 3).from("erp")]).expect("there is room");
    assert_eq!(desk.waiting("a"), "Added 1, Added 3+1");
    assert_eq!(desk.owner("a"), Some("erp"));
    assert_eq!(desk.pop().deltas[1].rv, 3);
}

#[test]
fn the_bytes_of_a_list_have_a_cap_too_but_two_always_stay() {
    let mut desk = Desk::with(|config| config.max_bytes_per_key = 20);
    desk.say([updated("a", 1), updated("a", 2)]).expect("there is room");
    assert_eq!(desk.waiting("a"), "Updated 1, Updated 2");
    desk.tell(updated("a", 3));
    assert_eq!(desk.waiting("a"), "Updated 1, Updated 3+1");
    desk.tell(updated("a", 1_000_000_000));
    assert_eq!(desk.waiting("a"), "Updated 1, Updated 1000000000+2");
}

#[test]
fn leased_deltas_count_toward_the_cap_only_when_they_come_back() {
    let mut desk = Desk::with(|config| config.max_deltas_per_key = 2);
    desk.say([added("a", 1), updated("a", 2)]).expect("there is room");
    let item = desk.pop();
    desk.say([updated("a", 3), updated("a", 4)]).expect("there is room");
    assert_eq!(desk.waiting("a"), "Updated 3, Updated 4");
    desk.nack(&item);
    assert_eq!(desk.waiting("a"), "Added 1, Updated 4+2");
}

#[test]
fn at_max_keys_only_new_keys_are_refused() {
    let mut desk = Desk::with(|config| config.max_keys = 2);
    desk.know(added("a", 1));
    desk.tell(added("b", 1));
    assert!(matches!(desk.say([added("c", 1)]), Err(Refusal::QueueFull { limit: 2, keys: 2, wanted: 1 })));
    let both = desk.say([updated("b", 2), added("c", 1), added("c", 2), added("d", 1)]);
    assert!(matches!(both, Err(Refusal::QueueFull { wanted: 2, .. })), "all or none");
    assert_eq!(desk.waiting("b"), "Added 1");
    desk.say([updated("a", 2), updated("b", 2), deleted("a"), deleted("x")]).expect("no key is new");
    let item = desk.pop();
    desk.ack(&item);
    let item = desk.pop();
    desk.ack(&item);
    assert_eq!(desk.queue.keys(), 1, "a is deleted");
    assert!(desk.tell(added("c", 1)));
}

#[test]
fn an_accepted_replace_has_its_room() {
    let mut desk = Desk::with(|config| config.max_keys = 3);
    desk.tell(added("a", 1));
    let id = desk.accept(list(&[("b", 1), ("c", 1)]));
    assert!(matches!(desk.say([added("d", 1)]), Err(Refusal::QueueFull { keys: 3, wanted: 1, .. })));
    assert!(desk.tell(updated("a", 2)));
    desk.finish(id).expect("its room was reserved");
    assert_eq!(desk.queue.keys(), 3);
}

#[test]
fn a_replace_that_does_not_fit_is_refused_before_anything_changes() {
    let mut desk = Desk::with(|config| config.max_keys = 2);
    desk.know(added("a", 1));
    let rv = desk.queue.resource_version();
    let answer = desk.replace(list(&[("a", 2), ("b", 1), ("c", 1)]));
    assert!(matches!(answer, Err(Refusal::QueueFull { limit: 2, keys: 1, wanted: 2 })));
    assert_eq!(desk.queue.resource_version(), rv);
    desk.replace(list(&[("a", 2), ("b", 1)])).expect("one new key fits");
}

#[test]
fn a_refused_or_dry_replace_gives_its_room_back() {
    let mut desk = Desk::with(|config| (config.max_keys, config.max_deletes) = (2, Some(0)));
    desk.know(added("a", 1));
    assert!(matches!(desk.replace(list(&[("b", 1)])), Err(Refusal::MassDelete { .. })));
    let dry = Replace { dry_run: true, ..list(&[("a", 2), ("b", 1)]) };
    desk.replace(dry).expect("it fits");
    assert!(desk.tell(added("c", 1)));
}
