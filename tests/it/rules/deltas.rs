//! What waits behind a lease, and what comes back in front of it.

use deltaq::engine::command::How;

use super::*;

#[test]
fn new_deltas_for_a_leased_key_wait_until_it_is_settled() {
    let mut desk = Desk::new();
    desk.tell(added("a", 1));
    let item = desk.pop();
    desk.say([updated("a", 2), updated("a", 3), added("b", 1)]).expect("there is room");
    assert_eq!(desk.line(), ["b"]);
    assert_eq!(desk.waiting("a"), "Updated 2, Updated 3");
    desk.ack(&item);
    assert_eq!(desk.line(), ["b", "a"], "it goes to the tail");
    desk.pop();
    assert_eq!(text(&desk.pop()), "a: Updated 2, Updated 3");
}

#[test]
fn a_nack_with_newer_deltas_hands_out_both_in_order_at_once() {
    let mut desk = Desk::new();
    desk.tell(added("a", 1));
    let item = desk.pop();
    desk.say([updated("a", 2), added("b", 1)]).expect("there is room");
    desk.nack(&item);
    assert_eq!(desk.line(), ["b", "a"], "it may be the fix: no backoff");
    assert_eq!(desk.failures("a"), 1);
    assert_eq!(desk.waiting("a"), "Added 1, Updated 2");
}

#[test]
fn a_release_goes_to_the_tail_and_counts_no_failure() {
    let mut desk = Desk::new();
    desk.say([added("a", 1), added("b", 1)]).expect("there is room");
    let item = desk.pop();
    desk.settle(item.token, How::Release);
    assert_eq!(desk.line(), ["b", "a"]);
    assert_eq!(desk.failures("a"), 0);
    desk.pop();
    assert_eq!(desk.pop().attempt, 2);
}

#[test]
fn a_delete_of_a_leased_key_waits_behind_the_lease() {
    let mut desk = Desk::new();
    desk.tell(added("a", 1));
    let item = desk.pop();
    assert!(desk.tell(deleted("a")));
    assert_eq!(desk.waiting("a"), "Deleted 1?", "by key alone: with the newest object");
    desk.ack(&item);
    let item = desk.pop();
    assert_eq!(text(&item), "a: Deleted 1?");
    desk.ack(&item);
    assert_eq!(desk.place("a"), "absent");
}

#[test]
fn a_delete_of_a_key_whose_lease_deletes_it_is_ignored_and_a_nack_brings_it_back() {
    let mut desk = Desk::new();
    desk.know(added("a", 1));
    desk.tell(deleted("a"));
    let item = desk.pop();
    assert!(!desk.tell(deleted("a")), "said to be ignored");
    assert_eq!(desk.waiting("a"), "");
    desk.settle(item.token, nack_after(0));
    assert_eq!(text(&desk.pop()), "a: Deleted 1?");
}

#[test]
fn a_delete_of_a_leased_key_is_no_duplicate_of_what_was_before_an_update() {
    let mut desk = Desk::new();
    desk.know(added("a", 1));
    desk.tell(deleted("a"));
    let item = desk.pop();
    desk.tell(added("a", 2));
    assert!(desk.tell(deleted("a")));
    desk.nack(&item);
    assert_eq!(text(&desk.pop()), "a: Deleted 1?, Added 2, Deleted 2?");
}

#[test]
fn a_delete_of_a_key_that_the_queue_does_not_have_is_ignored() {
    let mut desk = Desk::new();
    assert!(!desk.tell(deleted("a")));
    assert_eq!(desk.place("a"), "absent");
    // It counts all the same: the queue is populated by it.
    assert!(desk.has_synced());
}

#[test]
fn of_two_deletions_the_one_that_knows_the_final_state_stays() {
    let mut desk = Desk::new();
    let with_object = || Say::new(DeltaKind::Deleted, "a", Some(9));
    desk.tell(added("a", 1));
    desk.say([deleted("a"), with_object()]).expect("there is room");
    assert_eq!(desk.waiting("a"), "Added 1, Deleted 9", "the older is a tombstone: the newer stays");
    desk.tell(deleted("a"));
    assert_eq!(desk.waiting("a"), "Added 1, Deleted 9", "else the older stays");
}

#[test]
fn of_two_deletions_at_the_seam_one_stays() {
    // In mode delta the first delta behind a lease that ends with Deleted is never one itself; in
    // mode latest it can be, because the Added between them is replaced.
    for (older_knows, expected) in [(true, "Deleted 5"), (false, "Deleted 7")] {
        let mut desk = Desk::in_mode(Mode::Latest);
        desk.know(added("a", 1));
        let older = if older_knows { Some(5) } else { None };
        desk.tell(Say::new(DeltaKind::Deleted, "a", older));
        let item = desk.pop();
        desk.tell(added("a", 6));
        desk.tell(Say::new(DeltaKind::Deleted, "a", Some(7)));
        desk.nack(&item);
        assert_eq!(desk.waiting("a"), expected);
        assert_eq!(desk.place("a"), "ready", "news came during the lease");
    }
}

#[test]
fn a_replace_of_a_leased_key_is_news_behind_the_lease() {
    let mut desk = Desk::new();
    desk.tell(added("a", 1));
    let item = desk.pop();
    desk.replace(list(&[("a", 2)])).expect("no guard");
    assert_eq!(desk.waiting("a"), "Replaced 2");
    desk.nack(&item);
    assert_eq!(text(&desk.pop()), "a: Added 1, Replaced 2");
}

#[test]
fn a_replace_without_a_leased_key_deletes_it_with_its_newest_object() {
    let mut desk = Desk::new();
    desk.know(added("a", 1));
    desk.tell(updated("a", 2));
    let item = desk.pop();
    desk.replace(list(&[])).expect("no guard");
    assert_eq!(desk.waiting("a"), "Deleted 2?", "the leased object is newer than the known one");
    desk.ack(&item);
    let item = desk.pop();
    desk.ack(&item);
    assert_eq!(desk.place("a"), "absent");
}

#[test]
fn a_replace_leaves_a_key_alone_whose_lease_deletes_it() {
    let mut desk = Desk::new();
    desk.know(added("a", 1));
    desk.tell(deleted("a"));
    let item = desk.pop();
    let answer = desk.replace(list(&[])).expect("no guard");
    assert_eq!(counts(&answer), replaced([0, 0, 0, 0, 0]));
    desk.ack(&item);
    assert_eq!(desk.place("a"), "absent");
}

#[test]
fn a_resync_leaves_leased_parked_and_waiting_keys_alone() {
    let mut desk = Desk::new();
    for name in ["free", "leased", "parked", "waiting"] {
        desk.know(added(name, 1));
    }
    desk.tell(updated("parked", 2));
    desk.park("parked");
    desk.tell(updated("leased", 2));
    desk.pop();
    desk.tell(updated("waiting", 2));
    assert_eq!(desk.resync(), 1);
    assert_eq!(desk.line(), ["waiting", "free"]);
    assert_eq!(desk.waiting("free"), "Sync 1");
    assert_eq!((desk.waiting("leased"), desk.waiting("waiting")), (String::new(), "Updated 2".into()));
}

#[test]
fn a_resync_goes_in_key_order() {
    let mut desk = Desk::new();
    for name in ["c", "a", "b"] {
        desk.know(added(name, 1));
    }
    assert_eq!(desk.resync(), 3);
    assert_eq!(desk.line(), ["a", "b", "c"]);
}

#[test]
fn a_parked_key_keeps_accumulating_and_news_brings_everything() {
    let mut desk = Desk::new();
    desk.tell(added("a", 1));
    desk.park("a");
    assert_eq!((desk.place("a"), desk.failures("a")), ("parked", 0));
    desk.tell(updated("a", 2));
    assert_eq!(text(&desk.pop()), "a: Added 1, Updated 2");
}

#[test]
fn a_swallowed_deletion_is_no_news_for_a_parked_key() {
    let mut desk = Desk::new();
    desk.know(added("a", 1));
    desk.tell(Say::new(DeltaKind::Deleted, "a", Some(1)));
    desk.park("a");
    assert!(desk.tell(deleted("a")), "accepted, though the dedup rule keeps the older one");
    assert_eq!(desk.place("a"), "parked");
}
