//! HasSynced: the initial list is synced when it is acknowledged, not when it is popped.

use super::*;

/// A queue whose initial list is `a` and `b`.
fn listed() -> Desk {
    let mut desk = Desk::new();
    desk.replace(list(&[("a", 1), ("b", 1)])).expect("no guard");
    assert_eq!((desk.has_synced(), desk.queue.initial_remaining()), (false, 2));
    desk
}

#[test]
fn a_queue_is_synced_when_its_initial_list_is_acknowledged() {
    let mut desk = listed();
    let (a, b) = (desk.pop(), desk.pop());
    assert!(a.is_in_initial_list && b.is_in_initial_list);
    assert!(!desk.has_synced(), "leases are outstanding");
    desk.ack(&a);
    desk.nack(&b);
    assert_eq!((desk.has_synced(), desk.queue.initial_remaining()), (false, 1), "b failed");
    desk.wait(100);
    let b = desk.pop();
    assert!(b.is_in_initial_list);
    desk.ack(&b);
    assert!(desk.has_synced());
}

#[test]
fn a_parked_key_holds_the_sync_up_no_longer() {
    let mut desk = listed();
    let (a, b) = (desk.pop(), desk.pop());
    desk.ack(&a);
    desk.reject(&b);
    assert!(desk.has_synced());
    desk.redrive(None);
    let b = desk.pop();
    assert!(desk.has_synced() && !b.is_in_initial_list, "it never turns false again");
}

#[test]
fn a_key_that_failed_too_often_holds_the_sync_up_no_longer() {
    let mut desk = Desk::with(|config| config.max_failures = 1);
    desk.replace(list(&[("a", 1)])).expect("no guard");
    let a = desk.pop();
    desk.nack(&a);
    assert_eq!((desk.place("a"), desk.has_synced()), ("parked", true));
}

#[test]
fn a_discarded_key_holds_the_sync_up_no_longer() {
    let mut desk = listed();
    let a = desk.pop();
    desk.reject(&a);
    desk.discard();
    assert_eq!(desk.queue.initial_remaining(), 1, "only b");
}

#[test]
fn an_expired_lease_is_no_acknowledgement() {
    let mut desk = listed();
    let a = desk.pop();
    desk.ack(&a);
    desk.pop();
    desk.wait(10_000);
    assert!(!desk.has_synced());
}

#[test]
fn a_lease_from_before_the_list_does_not_cover_it() {
    let mut desk = Desk::new();
    desk.seed(&[("a", 1)]);
    assert_eq!(desk.resync(), 1);
    let resynced = desk.pop();
    assert!(resynced.is_in_initial_list, "the queue is not populated yet");
    desk.replace(list(&[("a", 2)])).expect("no guard");
    desk.ack(&resynced);
    assert_eq!(desk.queue.initial_remaining(), 1);
    let a = desk.pop();
    desk.ack(&a);
    assert!(desk.has_synced());
}

#[test]
fn a_mark_stays_with_its_key_when_its_delta_is_superseded() {
    for mode in [Mode::Delta, Mode::Latest] {
        let mut desk = Desk::with(|config| (config.mode, config.max_deltas_per_key) = (mode, 2));
        desk.replace(list(&[("a", 1)])).expect("no guard");
        let lease = desk.pop();
        desk.say([updated("a", 2), updated("a", 3), updated("a", 4)]).expect("there is room");
        desk.nack(&lease);
        assert!(!desk.has_synced());
        let a = desk.pop();
        assert!(a.is_in_initial_list);
        desk.ack(&a);
        assert!(desk.has_synced());
    }
}

#[test]
fn a_purged_initial_list_holds_nothing_up() {
    let mut desk = listed();
    desk.purge();
    assert!(desk.has_synced());
}

#[test]
fn a_purge_behind_a_lease_leaves_the_mark_of_what_is_leased() {
    let mut desk = listed();
    let a = desk.pop();
    desk.tell(updated("a", 2));
    desk.purge();
    assert_eq!(desk.queue.initial_remaining(), 1);
    desk.ack(&a);
    assert!(desk.has_synced());
}

#[test]
fn an_empty_first_replace_syncs_at_its_end() {
    let mut desk = Desk::new();
    assert!(!desk.has_synced());
    desk.replace(list(&[])).expect("no guard");
    assert!(desk.has_synced());
}

#[test]
fn the_first_replace_is_the_first_whatever_comes_while_it_runs() {
    let mut desk = Desk::new();
    let id = desk.accept(list(&[("a", 1), ("b", 1)]));
    desk.tell(added("x", 1));
    assert!(!desk.has_synced(), "populated, but the first Replace runs");
    desk.finish(id).expect("no guard");
    assert_eq!(desk.queue.initial_remaining(), 2);
}

#[test]
fn of_two_replaces_the_first_accepted_brings_the_initial_list() {
    let mut desk = Desk::new();
    let first = desk.accept(list(&[("a", 1)]));
    let second = desk.accept(list(&[("a", 2), ("b", 2)]));
    desk.finish(first).expect("no guard");
    desk.finish(second).expect("no guard");
    assert_eq!(desk.queue.initial_remaining(), 1);
    assert_eq!(desk.entry("b").mark, None);
}

#[test]
fn a_refused_first_replace_leaves_the_initial_list_to_the_next() {
    let mut desk = Desk::with(|config| config.max_keys = 1);
    let first = desk.accept(list(&[("a", 1), ("b", 1)]));
    let second = desk.accept(list(&[("a", 2)]));
    assert!(matches!(desk.finish(first), Err(Refusal::QueueFull { limit: 1, wanted: 2, .. })));
    assert!(!desk.has_synced());
    desk.finish(second).expect("there is room for one");
    assert_eq!(desk.queue.initial_remaining(), 1);
}

#[test]
fn an_aborted_first_replace_leaves_the_queue_unsynced_until_the_next_has_ended() {
    let mut desk = Desk::new();
    let id = desk.accept(list(&[("a", 1), ("b", 1)]));
    while desk.waiting("a").is_empty() {
        desk.step(id).expect("no guard");
    }
    desk.crash();
    assert!(desk.queue.status(desk.now()).last_replace.is_some_and(|last| last.aborted));
    desk.tell(added("x", 1).from("shop"));
    assert!(!desk.has_synced(), "though it is populated");
    // The caller repeats it. What was queued the first time is not acknowledged yet, so it counts.
    let again = Replace { only_changed: true, ..list(&[("a", 1), ("b", 1)]) };
    let answer = desk.replace(again).expect("no guard");
    assert_eq!(counts(&answer), replaced([1, 0, 1, 0, 0]));
    assert_eq!((desk.has_synced(), desk.queue.initial_remaining()), (false, 2));
}

#[test]
fn the_mark_moves_to_what_the_repeated_first_replace_queues() {
    let mut desk = Desk::new();
    let id = desk.accept(list(&[("a", 1), ("b", 1)]));
    while desk.waiting("a").is_empty() {
        desk.step(id).expect("no guard");
    }
    let a = desk.pop();
    desk.crash();
    desk.replace(list(&[("a", 2)])).expect("no guard");
    desk.ack(&a);
    assert!(!desk.has_synced(), "the lease covers the first list only");
    let a = desk.pop();
    desk.ack(&a);
    assert!(desk.has_synced());
}

#[test]
fn a_later_replace_that_is_aborted_changes_nothing_about_it() {
    let mut desk = Desk::new();
    desk.know(added("a", 1));
    let id = desk.accept(list(&[("a", 2), ("b", 2)]));
    while desk.waiting("a").is_empty() {
        desk.step(id).expect("no guard");
    }
    desk.crash();
    assert!(desk.has_synced());
    assert_eq!(desk.waiting("a"), "Replaced 2", "what was queued stands");
    assert_eq!(desk.place("b"), "absent");
}

#[test]
fn a_resync_never_populates() {
    let mut desk = Desk::new();
    desk.seed(&[("a", 1)]);
    desk.resync();
    let a = desk.pop();
    desk.ack(&a);
    assert!(!desk.has_synced());
}

#[test]
fn a_refused_call_does_not_populate() {
    let mut desk = Desk::with(|config| config.max_object_bytes = 4);
    assert!(desk.say([added("a", 1)]).is_err());
    assert!(!desk.has_synced());
}
