//! Backoff, parking and delay, and the effect of a new change on each.

use deltaq_engine::command::{How, Pop};
use deltaq_engine::limits::DUE_AT_A_TIME;

use super::*;

/// A fixture with a key that has just failed once.
fn failed() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1));
    let item = fixture.pop();
    fixture.nack(&item);
    assert_eq!((fixture.place("a"), fixture.due_in("a")), ("delayed", Some(100)));
    fixture
}

#[test]
fn a_failed_key_waits_longer_each_time_and_is_finally_parked() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1));
    for wait in [100, 200] {
        let item = fixture.pop();
        fixture.nack(&item);
        assert_eq!(fixture.due_in("a"), Some(wait));
        fixture.wait(u64::try_from(wait).expect("a short wait"));
    }
    let item = fixture.pop();
    assert_eq!((item.attempt, item.failures), (3, 2));
    fixture.nack(&item);
    assert_eq!((fixture.place("a"), fixture.failures("a")), ("parked", 3));
    assert_eq!(fixture.entry("a").schedule_state.last_error(), Some("timeout"));
}

#[test]
fn at_most_a_thousand_due_keys_are_processed_before_each_command() {
    let mut fixture = Fixture::new();
    let names: Vec<String> = (0..=DUE_AT_A_TIME).map(|number| format!("key-{number:04}")).collect();
    fixture.produce(names.iter().map(|name| added(name, 1).after(100))).expect("no refusal");
    fixture.wait(100);
    assert_eq!(fixture.ready_queue().len(), DUE_AT_A_TIME);
    assert!(fixture.queue.next_deadline().is_some_and(|at| at <= fixture.now()), "the timer fires at once");
    let pop = Pop { max: 1, max_bytes: 1, lease: None, worker: None, id: None, with_known: false };
    assert_eq!(fixture.queue.hand_out(fixture.now(), &pop).expect("the queue is open").len(), 1);
    fixture.commit_and_check();
    assert_eq!(
        fixture.ready_queue().len(),
        DUE_AT_A_TIME - 1,
        "a waiting pop is delivered without another thousand"
    );
    fixture.wait(0);
    assert_eq!(fixture.ready_queue(), names.get(1..).expect("many"));
}

#[test]
fn zero_max_failures_never_parks() {
    let mut fixture = Fixture::with(|config| config.max_failures = 0);
    fixture.call(added("a", 1));
    for _ in 0..50 {
        let item = fixture.pop();
        fixture.settle(item.token, nack_after(0));
    }
    assert_eq!((fixture.place("a"), fixture.failures("a")), ("ready", 50));
}

#[test]
fn an_ack_forgets_the_failures() {
    let mut fixture = failed();
    fixture.wait(100);
    let item = fixture.pop();
    fixture.ack(&item);
    assert_eq!((fixture.failures("a"), fixture.place("a")), (0, "known"));
}

#[test]
fn a_nack_may_set_the_delay_and_zero_returns_the_key_to_the_tail_at_once() {
    let mut fixture = Fixture::with(|config| config.max_failures = 0);
    fixture.produce([added("a", 1), added("b", 1)]).expect("no refusal");
    let item = fixture.pop();
    fixture.settle(item.token, nack_after(5_000));
    assert_eq!(fixture.due_in("a"), Some(5_000));
    let item = fixture.pop();
    fixture.call(added("c", 1));
    fixture.settle(item.token, nack_after(0));
    assert_eq!(fixture.ready_queue(), ["c", "b"]);
}

#[test]
fn a_nack_with_a_delay_still_parks_at_max_failures() {
    for delay in [0, 5_000] {
        let mut fixture = Fixture::with(|config| config.max_failures = 1);
        fixture.call(added("a", 1));
        let item = fixture.pop();
        fixture.settle(item.token, nack_after(delay));
        assert_eq!(fixture.place("a"), "parked");
    }
}

#[test]
fn a_new_change_makes_a_key_in_backoff_ready_and_keeps_its_failures() {
    let mut fixture = failed();
    fixture.call(updated("a", 2));
    assert_eq!((fixture.place("a"), fixture.failures("a")), ("ready", 1));
    let item = fixture.pop();
    assert_eq!(text(&item), "a: Added 1, Updated 2");
    fixture.nack(&item);
    assert_eq!(fixture.due_in("a"), Some(200), "the second failure");
}

#[test]
fn a_delayed_change_does_not_wake_a_key_in_backoff_but_may_be_due_earlier() {
    let mut fixture = failed();
    fixture.call(updated("a", 2).after(500));
    assert_eq!((fixture.place("a"), fixture.due_in("a")), ("delayed", Some(100)), "the backoff ends earlier");
    fixture.call(updated("a", 3).after(50));
    assert_eq!(fixture.due_in("a"), Some(50));
    fixture.wait(50);
    assert_eq!(text(&fixture.pop()), "a: Added 1, Updated 2, Updated 3");
}

#[test]
fn a_duplicate_deletion_does_not_wake_a_key_in_backoff() {
    let mut fixture = Fixture::new();
    fixture.make_known(added("a", 1));
    fixture.call(ProduceCall::new(DeltaKind::Deleted, "a", Some(1)));
    let item = fixture.pop();
    fixture.nack(&item);
    fixture.call(deleted("a"));
    assert_eq!(fixture.place("a"), "delayed");
}

#[test]
fn every_delta_of_a_replace_is_a_new_change() {
    let mut fixture = Fixture::with(|config| config.emit_replaced = false);
    fixture.call(added("a", 1));
    let item = fixture.pop();
    fixture.nack(&item);
    fixture.replace(list(&[("a", 2)])).expect("no refusal");
    assert_eq!((fixture.place("a"), fixture.waiting("a")), ("ready", "Added 1, Sync 2".into()));
}

#[test]
fn a_new_change_makes_a_parked_key_ready_with_no_failures() {
    let mut fixture = Fixture::with(|config| config.max_failures = 1);
    fixture.call(added("a", 1));
    let item = fixture.pop();
    fixture.nack(&item);
    assert_eq!((fixture.place("a"), fixture.failures("a")), ("parked", 1));
    fixture.call(updated("a", 2));
    assert_eq!((fixture.place("a"), fixture.failures("a")), ("ready", 0));
}

#[test]
fn a_delayed_change_moves_a_parked_key_to_delayed_with_no_failures() {
    let mut fixture = Fixture::with(|config| config.max_failures = 1);
    fixture.call(added("a", 1));
    let item = fixture.pop();
    fixture.nack(&item);
    fixture.call(updated("a", 2).after(300));
    assert_eq!((fixture.place("a"), fixture.due_in("a"), fixture.failures("a")), ("delayed", Some(300), 0));
    fixture.wait(300);
    assert_eq!(text(&fixture.pop()), "a: Added 1, Updated 2");
}

#[test]
fn a_delay_of_zero_has_no_effect() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1).after(0));
    assert_eq!((fixture.place("a"), fixture.due_in("a")), ("ready", None));
}

#[test]
fn the_earlier_of_two_delays_counts() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1).after(500));
    fixture.call(updated("a", 2).after(200));
    fixture.call(updated("a", 3).after(800));
    assert_eq!(fixture.due_in("a"), Some(200));
}

#[test]
fn a_delayed_key_with_a_new_change_is_ready_at_once() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1).after(500));
    fixture.call(updated("a", 2));
    assert_eq!(text(&fixture.pop()), "a: Added 1, Updated 2");
}

#[test]
fn a_delay_of_a_ready_key_neither_moves_it_nor_outlives_its_delivery() {
    let mut fixture = Fixture::new();
    fixture.produce([added("a", 1), added("b", 1), updated("a", 2).after(100)]).expect("no refusal");
    fixture.wait(100);
    assert_eq!(fixture.ready_queue(), ["a", "b"], "the delay elapsed, and the key kept its position");
    fixture.call(updated("a", 3).after(100));
    let item = fixture.pop();
    assert_eq!(text(&item), "a: Added 1, Updated 2, Updated 3");
    fixture.ack(&item);
    assert_eq!((fixture.place("a"), fixture.due_in("a")), ("known", None));
}

#[test]
fn a_delayed_change_during_a_lease_stays_delayed_after_an_ack() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1));
    let item = fixture.pop();
    fixture.call(updated("a", 2).after(400));
    fixture.wait(100);
    fixture.ack(&item);
    assert_eq!((fixture.place("a"), fixture.due_in("a")), ("delayed", Some(300)));
    fixture.wait(300);
    assert_eq!(text(&fixture.pop()), "a: Updated 2");
}

#[test]
fn a_delayed_change_during_a_lease_counts_as_new_once_it_is_due() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1));
    let item = fixture.pop();
    fixture.call(updated("a", 2).after(400));
    fixture.wait(400);
    fixture.nack(&item);
    assert_eq!((fixture.place("a"), fixture.failures("a")), ("ready", 1));
}

#[test]
fn a_nack_with_a_delayed_change_waits_for_the_earlier_of_backoff_and_delay() {
    for (delay, due) in [(40, 40), (900, 100)] {
        let mut fixture = Fixture::new();
        fixture.call(added("a", 1));
        let item = fixture.pop();
        fixture.call(updated("a", 2).after(delay));
        fixture.nack(&item);
        assert_eq!((fixture.place("a"), fixture.due_in("a")), ("delayed", Some(due)));
    }
}

#[test]
fn a_key_with_a_delayed_change_is_delayed_at_max_failures_and_parked_by_reject() {
    let held = || {
        let mut fixture = Fixture::with(|config| config.max_failures = 1);
        fixture.call(added("a", 1));
        let item = fixture.pop();
        fixture.call(updated("a", 2).after(700));
        (fixture, item)
    };
    let (mut fixture, item) = held();
    fixture.nack(&item);
    assert_eq!((fixture.place("a"), fixture.due_in("a")), ("delayed", Some(700)));
    let (mut fixture, item) = held();
    fixture.reject(&item);
    assert_eq!((fixture.place("a"), fixture.due_in("a")), ("parked", None), "reject always parks");
}

#[test]
fn reject_parks_a_key_with_a_waiting_change() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1));
    let item = fixture.pop();
    fixture.call(updated("a", 2));
    fixture.reject(&item);
    assert_eq!((fixture.place("a"), fixture.waiting("a")), ("parked", "Added 1, Updated 2".into()));
}

#[test]
fn a_release_makes_delayed_changes_ready() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1));
    let item = fixture.pop();
    fixture.call(updated("a", 2).after(700));
    fixture.settle(item.token, How::Release);
    assert_eq!(text(&fixture.pop()), "a: Added 1, Updated 2");
}

#[test]
fn forget_keeps_the_last_error_of_a_parked_key() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1));
    for wait in [100, 200, 0] {
        let item = fixture.pop();
        fixture.nack(&item);
        fixture.wait(wait);
    }
    assert_eq!((fixture.place("a"), fixture.failures("a")), ("parked", 3));
    assert_eq!(fixture.queue.forget(fixture.now(), ["a"]), 1);
    fixture.commit_and_check();
    assert_eq!((fixture.place("a"), fixture.failures("a")), ("parked", 0));
    assert_eq!(fixture.entry("a").schedule_state.last_error(), Some("timeout"));
}

#[test]
fn forget_resets_failures_and_does_not_move_the_key() {
    let mut fixture = failed();
    assert_eq!(fixture.queue.forget(fixture.now(), ["a", "b"]), 1);
    fixture.commit_and_check();
    assert_eq!((fixture.failures("a"), fixture.place("a"), fixture.due_in("a")), (0, "delayed", Some(100)));
    assert_eq!(fixture.queue.forget(fixture.now(), ["a"]), 0);
}
