//! HasSynced: the initial list is synced when it is acknowledged, not when it is popped.

use super::*;

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
