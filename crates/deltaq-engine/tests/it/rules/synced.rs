//! HasSynced: the initial list is synced when it is acknowledged, not when it is popped.

use super::*;

/// A queue whose initial list is `a` and `b`.
fn listed() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.replace(list(&[("a", 1), ("b", 1)])).expect("no refusal");
    assert_eq!((fixture.has_synced(), fixture.queue.initial_remaining()), (false, 2));
    fixture
}

#[test]
fn a_queue_is_synced_when_its_initial_list_is_acknowledged() {
    let mut fixture = listed();
    let (a, b) = (fixture.pop(), fixture.pop());
    assert!(a.is_in_initial_list && b.is_in_initial_list);
    assert!(!fixture.has_synced(), "leases are outstanding");
    fixture.ack(&a);
    fixture.nack(&b);
    assert_eq!((fixture.has_synced(), fixture.queue.initial_remaining()), (false, 1), "b failed");
    fixture.wait(100);
    let b = fixture.pop();
    assert!(b.is_in_initial_list);
    fixture.ack(&b);
    assert!(fixture.has_synced());
}

#[test]
fn a_parked_key_no_longer_delays_the_sync() {
    let mut fixture = listed();
    let (a, b) = (fixture.pop(), fixture.pop());
    fixture.ack(&a);
    fixture.reject(&b);
    assert!(fixture.has_synced());
    fixture.redrive(None);
    let b = fixture.pop();
    assert!(fixture.has_synced() && !b.is_in_initial_list, "has_synced never becomes false again");
}

#[test]
fn a_key_that_failed_too_often_no_longer_delays_the_sync() {
    let mut fixture = Fixture::with(|config| config.max_failures = 1);
    fixture.replace(list(&[("a", 1)])).expect("no refusal");
    let a = fixture.pop();
    fixture.nack(&a);
    assert_eq!((fixture.place("a"), fixture.has_synced()), ("parked", true));
}

#[test]
fn a_discarded_key_no_longer_delays_the_sync() {
    let mut fixture = listed();
    let a = fixture.pop();
    fixture.reject(&a);
    fixture.discard();
    assert_eq!(fixture.queue.initial_remaining(), 1, "only b");
}

#[test]
fn an_expired_lease_does_not_count_as_acknowledged() {
    let mut fixture = listed();
    let a = fixture.pop();
    fixture.ack(&a);
    fixture.pop();
    fixture.wait(10_000);
    assert!(!fixture.has_synced());
}

#[test]
fn a_lease_older_than_the_initial_list_does_not_acknowledge_it() {
    let mut fixture = Fixture::new();
    fixture.seed(&[("a", 1)]);
    assert_eq!(fixture.resync(), 1);
    let resynced = fixture.pop();
    assert!(resynced.is_in_initial_list, "the queue is not populated yet");
    fixture.replace(list(&[("a", 2)])).expect("no refusal");
    fixture.ack(&resynced);
    assert_eq!(fixture.queue.initial_remaining(), 1);
    let a = fixture.pop();
    fixture.ack(&a);
    assert!(fixture.has_synced());
}

#[test]
fn a_key_of_the_initial_list_stays_pending_when_its_delta_is_superseded() {
    for mode in [Mode::Delta, Mode::Latest] {
        let mut fixture = Fixture::with(|config| (config.mode, config.max_deltas_per_key) = (mode, 2));
        fixture.replace(list(&[("a", 1)])).expect("no refusal");
        let lease = fixture.pop();
        fixture.produce([updated("a", 2), updated("a", 3), updated("a", 4)]).expect("no refusal");
        fixture.nack(&lease);
        assert!(!fixture.has_synced());
        let a = fixture.pop();
        assert!(a.is_in_initial_list);
        fixture.ack(&a);
        assert!(fixture.has_synced());
    }
}

#[test]
fn a_purged_initial_list_does_not_delay_the_sync() {
    let mut fixture = listed();
    fixture.purge();
    assert!(fixture.has_synced());
}

#[test]
fn a_purge_keeps_a_leased_key_of_the_initial_list_pending() {
    let mut fixture = listed();
    let a = fixture.pop();
    fixture.call(updated("a", 2));
    fixture.purge();
    assert_eq!(fixture.queue.initial_remaining(), 1);
    fixture.ack(&a);
    assert!(fixture.has_synced());
}

#[test]
fn an_empty_first_replace_syncs_at_its_end() {
    let mut fixture = Fixture::new();
    assert!(!fixture.has_synced());
    fixture.replace(list(&[])).expect("no refusal");
    assert!(fixture.has_synced());
}

#[test]
fn calls_during_the_first_replace_do_not_end_the_initial_list() {
    let mut fixture = Fixture::new();
    let id = fixture.accept(list(&[("a", 1), ("b", 1)]));
    fixture.call(added("x", 1));
    assert!(!fixture.has_synced(), "the queue is populated, but the first Replace has not ended");
    fixture.finish(id).expect("no refusal");
    assert_eq!(fixture.queue.initial_remaining(), 2);
}

#[test]
fn the_first_accepted_replace_is_the_initial_list() {
    let mut fixture = Fixture::new();
    let first = fixture.accept(list(&[("a", 1)]));
    let second = fixture.accept(list(&[("a", 2), ("b", 2)]));
    fixture.finish(first).expect("no refusal");
    fixture.finish(second).expect("no refusal");
    assert_eq!(fixture.queue.initial_remaining(), 1);
    assert_eq!(fixture.entry("b").initial_pending, None);
}

#[test]
fn a_refused_first_replace_leaves_the_initial_list_to_the_next() {
    let mut fixture = Fixture::with(|config| config.max_keys = 1);
    let first = fixture.accept(list(&[("a", 1), ("b", 1)]));
    let second = fixture.accept(list(&[("a", 2)]));
    assert!(matches!(fixture.finish(first), Err(Refusal::QueueFull { limit: 1, wanted: 2, .. })));
    assert!(!fixture.has_synced());
    fixture.finish(second).expect("there is room for one");
    assert_eq!(fixture.queue.initial_remaining(), 1);
}

#[test]
fn an_aborted_first_replace_leaves_the_queue_unsynced_until_the_next_has_ended() {
    let mut fixture = Fixture::new();
    let id = fixture.accept(list(&[("a", 1), ("b", 1)]));
    while fixture.waiting("a").is_empty() {
        fixture.step(id).expect("no refusal");
    }
    fixture.crash();
    assert!(fixture.queue.status(fixture.now()).last_replace.is_some_and(|last| last.aborted));
    fixture.call(added("x", 1).from("shop"));
    assert!(!fixture.has_synced(), "although the queue is populated");
    // The caller repeats the Replace. The deltas of the first attempt are not acknowledged yet, so they count.
    let again = Replace { only_changed: true, ..list(&[("a", 1), ("b", 1)]) };
    let result = fixture.replace(again).expect("no refusal");
    assert_eq!(counts(&result), replaced([1, 0, 1, 0, 0]));
    assert_eq!((fixture.has_synced(), fixture.queue.initial_remaining()), (false, 2));
}

#[test]
fn the_repeated_first_replace_is_the_initial_list() {
    let mut fixture = Fixture::new();
    let id = fixture.accept(list(&[("a", 1), ("b", 1)]));
    while fixture.waiting("a").is_empty() {
        fixture.step(id).expect("no refusal");
    }
    let a = fixture.pop();
    fixture.crash();
    fixture.replace(list(&[("a", 2)])).expect("no refusal");
    fixture.ack(&a);
    assert!(!fixture.has_synced(), "the lease covers the first list only");
    let a = fixture.pop();
    fixture.ack(&a);
    assert!(fixture.has_synced());
}

#[test]
fn an_aborted_later_replace_does_not_affect_has_synced() {
    let mut fixture = Fixture::new();
    fixture.make_known(added("a", 1));
    let id = fixture.accept(list(&[("a", 2), ("b", 2)]));
    while fixture.waiting("a").is_empty() {
        fixture.step(id).expect("no refusal");
    }
    fixture.crash();
    assert!(fixture.has_synced());
    assert_eq!(fixture.waiting("a"), "Replaced 2", "the queued deltas remain");
    assert_eq!(fixture.place("b"), "absent");
}

#[test]
fn a_resync_never_populates() {
    let mut fixture = Fixture::new();
    fixture.seed(&[("a", 1)]);
    fixture.resync();
    let a = fixture.pop();
    fixture.ack(&a);
    assert!(!fixture.has_synced());
}

#[test]
fn a_refused_call_does_not_populate() {
    let mut fixture = Fixture::with(|config| config.max_object_bytes = 4);
    assert!(fixture.produce([added("a", 1)]).is_err());
    assert!(!fixture.has_synced());
}
