//! Deltas that arrive during a lease, and leased deltas that return before them.

use deltaq_engine::command::How;

use super::*;

#[test]
fn new_deltas_for_a_leased_key_wait_until_it_is_settled() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1));
    let item = fixture.pop();
    fixture.produce([updated("a", 2), updated("a", 3), added("b", 1)]).expect("no refusal");
    assert_eq!(fixture.ready_queue(), ["b"]);
    assert_eq!(fixture.waiting("a"), "Updated 2, Updated 3");
    fixture.ack(&item);
    assert_eq!(fixture.ready_queue(), ["b", "a"], "the key goes to the tail");
    fixture.pop();
    assert_eq!(text(&fixture.pop()), "a: Updated 2, Updated 3");
}

#[test]
fn a_nack_with_newer_deltas_delivers_both_in_order_at_once() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1));
    let item = fixture.pop();
    fixture.produce([updated("a", 2), added("b", 1)]).expect("no refusal");
    fixture.nack(&item);
    assert_eq!(fixture.ready_queue(), ["b", "a"], "a newer change may be the fix, so there is no backoff");
    assert_eq!(fixture.failures("a"), 1);
    assert_eq!(fixture.waiting("a"), "Added 1, Updated 2");
}

#[test]
fn a_released_key_goes_to_the_tail_without_a_failure() {
    let mut fixture = Fixture::new();
    fixture.produce([added("a", 1), added("b", 1)]).expect("no refusal");
    let item = fixture.pop();
    fixture.settle(item.token, How::Release);
    assert_eq!(fixture.ready_queue(), ["b", "a"]);
    assert_eq!(fixture.failures("a"), 0);
    fixture.pop();
    assert_eq!(fixture.pop().attempt, 2);
}

#[test]
fn a_delete_of_a_leased_key_waits_for_the_end_of_the_lease() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1));
    let item = fixture.pop();
    assert!(fixture.call(deleted("a")));
    assert_eq!(fixture.waiting("a"), "Deleted 1?", "a Delete by key alone gets the newest object");
    fixture.ack(&item);
    let item = fixture.pop();
    assert_eq!(text(&item), "a: Deleted 1?");
    fixture.ack(&item);
    assert_eq!(fixture.place("a"), "absent");
}

#[test]
fn a_delete_during_the_delivery_of_a_deletion_is_ignored_and_a_nack_redelivers_it() {
    let mut fixture = Fixture::new();
    fixture.make_known(added("a", 1));
    fixture.call(deleted("a"));
    let item = fixture.pop();
    assert!(!fixture.call(deleted("a")), "the Delete is reported as ignored");
    assert_eq!(fixture.waiting("a"), "");
    fixture.settle(item.token, nack_after(0));
    assert_eq!(text(&fixture.pop()), "a: Deleted 1?");
}

#[test]
fn a_delete_of_a_leased_key_is_not_a_duplicate_of_a_deletion_before_an_update() {
    let mut fixture = Fixture::new();
    fixture.make_known(added("a", 1));
    fixture.call(deleted("a"));
    let item = fixture.pop();
    fixture.call(added("a", 2));
    assert!(fixture.call(deleted("a")));
    fixture.nack(&item);
    assert_eq!(text(&fixture.pop()), "a: Deleted 1?, Added 2, Deleted 2?");
}

#[test]
fn a_delete_of_an_absent_key_is_ignored() {
    let mut fixture = Fixture::new();
    assert!(!fixture.call(deleted("a")));
    assert_eq!(fixture.place("a"), "absent");
    // The ignored Delete still populates the queue.
    assert!(fixture.has_synced());
}

#[test]
fn dedup_keeps_the_deletion_with_a_known_final_state() {
    let mut fixture = Fixture::new();
    let with_object = || ProduceCall::new(DeltaKind::Deleted, "a", Some(9));
    fixture.call(added("a", 1));
    fixture.produce([deleted("a"), with_object()]).expect("no refusal");
    assert_eq!(
        fixture.waiting("a"),
        "Added 1, Deleted 9",
        "the older one is a tombstone, so the newer one stays"
    );
    fixture.call(deleted("a"));
    assert_eq!(fixture.waiting("a"), "Added 1, Deleted 9", "otherwise the older one stays");
}

#[test]
fn dedup_applies_when_leased_deltas_return_before_newer_ones() {
    // In mode delta, leased deltas that end with Deleted are never followed by another Deleted. In mode latest they can be,
    // because the newer Deleted replaces the Added between them.
    for (older_knows, expected) in [(true, "Deleted 5"), (false, "Deleted 7")] {
        let mut fixture = Fixture::in_mode(Mode::Latest);
        fixture.make_known(added("a", 1));
        let older = if older_knows { Some(5) } else { None };
        fixture.call(ProduceCall::new(DeltaKind::Deleted, "a", older));
        let item = fixture.pop();
        fixture.call(added("a", 6));
        fixture.call(ProduceCall::new(DeltaKind::Deleted, "a", Some(7)));
        fixture.nack(&item);
        assert_eq!(fixture.waiting("a"), expected);
        assert_eq!(fixture.place("a"), "ready", "a new change arrived during the lease");
    }
}

#[test]
fn a_replace_of_a_leased_key_is_a_new_change_during_the_lease() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1));
    let item = fixture.pop();
    fixture.replace(list(&[("a", 2)])).expect("no refusal");
    assert_eq!(fixture.waiting("a"), "Replaced 2");
    fixture.nack(&item);
    assert_eq!(text(&fixture.pop()), "a: Added 1, Replaced 2");
}

#[test]
fn a_replace_that_omits_a_leased_key_deletes_it_with_its_newest_object() {
    let mut fixture = Fixture::new();
    fixture.make_known(added("a", 1));
    fixture.call(updated("a", 2));
    let item = fixture.pop();
    fixture.replace(list(&[])).expect("no refusal");
    assert_eq!(fixture.waiting("a"), "Deleted 2?", "the leased object is newer than the known one");
    fixture.ack(&item);
    let item = fixture.pop();
    fixture.ack(&item);
    assert_eq!(fixture.place("a"), "absent");
}

#[test]
fn a_replace_ignores_a_key_whose_deletion_is_being_delivered() {
    let mut fixture = Fixture::new();
    fixture.make_known(added("a", 1));
    fixture.call(deleted("a"));
    let item = fixture.pop();
    let result = fixture.replace(list(&[])).expect("no refusal");
    assert_eq!(counts(&result), replaced([0, 0, 0, 0, 0]));
    fixture.ack(&item);
    assert_eq!(fixture.place("a"), "absent");
}

#[test]
fn a_resync_skips_leased_parked_and_waiting_keys() {
    let mut fixture = Fixture::new();
    for name in ["free", "leased", "parked", "waiting"] {
        fixture.make_known(added(name, 1));
    }
    fixture.call(updated("parked", 2));
    fixture.park("parked");
    fixture.call(updated("leased", 2));
    fixture.pop();
    fixture.call(updated("waiting", 2));
    assert_eq!(fixture.resync(), 1);
    assert_eq!(fixture.ready_queue(), ["waiting", "free"]);
    assert_eq!(fixture.waiting("free"), "Sync 1");
    assert_eq!((fixture.waiting("leased"), fixture.waiting("waiting")), (String::new(), "Updated 2".into()));
}

#[test]
fn a_resync_goes_in_key_order() {
    let mut fixture = Fixture::new();
    for name in ["c", "a", "b"] {
        fixture.make_known(added(name, 1));
    }
    assert_eq!(fixture.resync(), 3);
    assert_eq!(fixture.ready_queue(), ["a", "b", "c"]);
}

#[test]
fn a_parked_key_keeps_accumulating_and_a_new_change_delivers_everything() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1));
    fixture.park("a");
    assert_eq!((fixture.place("a"), fixture.failures("a")), ("parked", 0));
    fixture.call(updated("a", 2));
    assert_eq!(text(&fixture.pop()), "a: Added 1, Updated 2");
}

#[test]
fn a_duplicate_deletion_does_not_wake_a_parked_key() {
    let mut fixture = Fixture::new();
    fixture.make_known(added("a", 1));
    fixture.call(ProduceCall::new(DeltaKind::Deleted, "a", Some(1)));
    fixture.park("a");
    assert!(fixture.call(deleted("a")), "accepted, although the dedup rule keeps the older one");
    assert_eq!(fixture.place("a"), "parked");
}
