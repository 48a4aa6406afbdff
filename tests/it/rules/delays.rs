//! Backoff, parking and delay, and what news does to each.

use deltaq::engine::command::{How, Pop};
use deltaq::engine::limits::DUE_AT_A_TIME;

use super::*;

/// A desk with a key that failed once at this moment.
fn failed() -> Desk {
    let mut desk = Desk::new();
    desk.tell(added("a", 1));
    let item = desk.pop();
    desk.nack(&item);
    assert_eq!((desk.place("a"), desk.due_in("a")), ("delayed", Some(100)));
    desk
}

#[test]
fn a_failed_key_waits_longer_each_time_and_is_parked_in_the_end() {
    let mut desk = Desk::new();
    desk.tell(added("a", 1));
    for wait in [100, 200] {
        let item = desk.pop();
        desk.nack(&item);
        assert_eq!(desk.due_in("a"), Some(wait));
        desk.wait(u64::try_from(wait).expect("a short wait"));
    }
    let item = desk.pop();
    assert_eq!((item.attempt, item.failures), (3, 2));
    desk.nack(&item);
    assert_eq!((desk.place("a"), desk.failures("a")), ("parked", 3));
    assert_eq!(desk.entry("a").standing.last_error(), Some("timeout"));
}

#[test]
fn of_very_many_keys_that_are_due_the_first_come_before_a_command_and_the_rest_before_the_next() {
    let mut desk = Desk::new();
    let names: Vec<String> = (0..=DUE_AT_A_TIME).map(|number| format!("key-{number:04}")).collect();
    desk.say(names.iter().map(|name| added(name, 1).after(100))).expect("there is room");
    desk.wait(100);
    assert_eq!(desk.line().len(), DUE_AT_A_TIME);
    assert!(desk.queue.next_deadline().is_some_and(|at| at <= desk.now()), "the timer comes at once");
    let pop = Pop { max: 1, max_bytes: 1, lease: None, worker: None, id: None, with_known: false };
    assert_eq!(desk.queue.hand_out(desk.now(), &pop).expect("it is open").len(), 1);
    desk.settle_down();
    assert_eq!(desk.line().len(), DUE_AT_A_TIME - 1, "one who waits is served without another thousand");
    desk.wait(0);
    assert_eq!(desk.line(), names.get(1..).expect("many"));
}

#[test]
fn max_failures_of_zero_never_parks() {
    let mut desk = Desk::with(|config| config.max_failures = 0);
    desk.tell(added("a", 1));
    for _ in 0..50 {
        let item = desk.pop();
        desk.settle(item.token, nack_after(0));
    }
    assert_eq!((desk.place("a"), desk.failures("a")), ("ready", 50));
}

#[test]
fn an_ack_forgets_the_failures() {
    let mut desk = failed();
    desk.wait(100);
    let item = desk.pop();
    desk.ack(&item);
    assert_eq!((desk.failures("a"), desk.place("a")), (0, "known"));
}

#[test]
fn a_nack_may_say_how_long_and_zero_is_the_tail_at_once() {
    let mut desk = Desk::with(|config| config.max_failures = 0);
    desk.say([added("a", 1), added("b", 1)]).expect("there is room");
    let item = desk.pop();
    desk.settle(item.token, nack_after(5_000));
    assert_eq!(desk.due_in("a"), Some(5_000));
    let item = desk.pop();
    desk.tell(added("c", 1));
    desk.settle(item.token, nack_after(0));
    assert_eq!(desk.line(), ["c", "b"]);
}

#[test]
fn a_nack_with_a_delay_is_parked_all_the_same_at_max_failures() {
    for delay in [0, 5_000] {
        let mut desk = Desk::with(|config| config.max_failures = 1);
        desk.tell(added("a", 1));
        let item = desk.pop();
        desk.settle(item.token, nack_after(delay));
        assert_eq!(desk.place("a"), "parked");
    }
}

#[test]
fn news_for_a_key_in_backoff_makes_it_ready_and_its_failures_stay() {
    let mut desk = failed();
    desk.tell(updated("a", 2));
    assert_eq!((desk.place("a"), desk.failures("a")), ("ready", 1));
    let item = desk.pop();
    assert_eq!(text(&item), "a: Added 1, Updated 2");
    desk.nack(&item);
    assert_eq!(desk.due_in("a"), Some(200), "the second failure");
}

#[test]
fn delayed_news_does_not_wake_a_key_in_backoff_but_may_come_before() {
    let mut desk = failed();
    desk.tell(updated("a", 2).after(500));
    assert_eq!((desk.place("a"), desk.due_in("a")), ("delayed", Some(100)), "it had less to wait");
    desk.tell(updated("a", 3).after(50));
    assert_eq!(desk.due_in("a"), Some(50));
    desk.wait(50);
    assert_eq!(text(&desk.pop()), "a: Added 1, Updated 2, Updated 3");
}

#[test]
fn a_swallowed_deletion_does_not_wake_a_key_in_backoff() {
    let mut desk = Desk::new();
    desk.know(added("a", 1));
    desk.tell(Say::new(DeltaKind::Deleted, "a", Some(1)));
    let item = desk.pop();
    desk.nack(&item);
    desk.tell(deleted("a"));
    assert_eq!(desk.place("a"), "delayed");
}

#[test]
fn what_replace_queues_is_news_whatever_it_is_called() {
    let mut desk = Desk::with(|config| config.emit_replaced = false);
    desk.tell(added("a", 1));
    let item = desk.pop();
    desk.nack(&item);
    desk.replace(list(&[("a", 2)])).expect("no guard");
    assert_eq!((desk.place("a"), desk.waiting("a")), ("ready", "Added 1, Sync 2".into()));
}

#[test]
fn news_for_a_parked_key_makes_it_ready_with_no_failures() {
    let mut desk = Desk::with(|config| config.max_failures = 1);
    desk.tell(added("a", 1));
    let item = desk.pop();
    desk.nack(&item);
    assert_eq!((desk.place("a"), desk.failures("a")), ("parked", 1));
    desk.tell(updated("a", 2));
    assert_eq!((desk.place("a"), desk.failures("a")), ("ready", 0));
}

#[test]
fn delayed_news_takes_a_parked_key_to_delayed_with_no_failures() {
    let mut desk = Desk::with(|config| config.max_failures = 1);
    desk.tell(added("a", 1));
    let item = desk.pop();
    desk.nack(&item);
    desk.tell(updated("a", 2).after(300));
    assert_eq!((desk.place("a"), desk.due_in("a"), desk.failures("a")), ("delayed", Some(300), 0));
    desk.wait(300);
    assert_eq!(text(&desk.pop()), "a: Added 1, Updated 2");
}

#[test]
fn a_delay_of_zero_is_no_delay() {
    let mut desk = Desk::new();
    desk.tell(added("a", 1).after(0));
    assert_eq!((desk.place("a"), desk.due_in("a")), ("ready", None));
}

#[test]
fn of_two_delays_the_earlier_counts() {
    let mut desk = Desk::new();
    desk.tell(added("a", 1).after(500));
    desk.tell(updated("a", 2).after(200));
    desk.tell(updated("a", 3).after(800));
    assert_eq!(desk.due_in("a"), Some(200));
}

#[test]
fn a_delayed_key_with_news_is_ready_at_once() {
    let mut desk = Desk::new();
    desk.tell(added("a", 1).after(500));
    desk.tell(updated("a", 2));
    assert_eq!(text(&desk.pop()), "a: Added 1, Updated 2");
}

#[test]
fn a_delay_beside_ready_neither_moves_the_key_nor_outlives_its_handing_out() {
    let mut desk = Desk::new();
    desk.say([added("a", 1), added("b", 1), updated("a", 2).after(100)]).expect("there is room");
    desk.wait(100);
    assert_eq!(desk.line(), ["a", "b"], "it fired, and the key stayed where it was");
    desk.tell(updated("a", 3).after(100));
    let item = desk.pop();
    assert_eq!(text(&item), "a: Added 1, Updated 2, Updated 3");
    desk.ack(&item);
    assert_eq!((desk.place("a"), desk.due_in("a")), ("known", None));
}

#[test]
fn delayed_news_behind_a_lease_waits_for_its_time_after_an_ack() {
    let mut desk = Desk::new();
    desk.tell(added("a", 1));
    let item = desk.pop();
    desk.tell(updated("a", 2).after(400));
    desk.wait(100);
    desk.ack(&item);
    assert_eq!((desk.place("a"), desk.due_in("a")), ("delayed", Some(300)));
    desk.wait(300);
    assert_eq!(text(&desk.pop()), "a: Updated 2");
}

#[test]
fn delayed_news_behind_a_lease_is_news_once_its_time_has_come() {
    let mut desk = Desk::new();
    desk.tell(added("a", 1));
    let item = desk.pop();
    desk.tell(updated("a", 2).after(400));
    desk.wait(400);
    desk.nack(&item);
    assert_eq!((desk.place("a"), desk.failures("a")), ("ready", 1));
}

#[test]
fn a_nack_with_delayed_news_waits_for_the_earlier_of_backoff_and_delay() {
    for (delay, due) in [(40, 40), (900, 100)] {
        let mut desk = Desk::new();
        desk.tell(added("a", 1));
        let item = desk.pop();
        desk.tell(updated("a", 2).after(delay));
        desk.nack(&item);
        assert_eq!((desk.place("a"), desk.due_in("a")), ("delayed", Some(due)));
    }
}

#[test]
fn a_key_with_delayed_news_is_delayed_at_max_failures_and_parked_by_reject() {
    let held = || {
        let mut desk = Desk::with(|config| config.max_failures = 1);
        desk.tell(added("a", 1));
        let item = desk.pop();
        desk.tell(updated("a", 2).after(700));
        (desk, item)
    };
    let (mut desk, item) = held();
    desk.nack(&item);
    assert_eq!((desk.place("a"), desk.due_in("a")), ("delayed", Some(700)));
    let (mut desk, item) = held();
    desk.reject(&item);
    assert_eq!((desk.place("a"), desk.due_in("a")), ("parked", None), "reject parks always");
}

#[test]
fn reject_parks_though_news_waits() {
    let mut desk = Desk::new();
    desk.tell(added("a", 1));
    let item = desk.pop();
    desk.tell(updated("a", 2));
    desk.reject(&item);
    assert_eq!((desk.place("a"), desk.waiting("a")), ("parked", "Added 1, Updated 2".into()));
}

#[test]
fn a_release_takes_delayed_news_with_it() {
    let mut desk = Desk::new();
    desk.tell(added("a", 1));
    let item = desk.pop();
    desk.tell(updated("a", 2).after(700));
    desk.settle(item.token, How::Release);
    assert_eq!(text(&desk.pop()), "a: Added 1, Updated 2");
}

#[test]
fn forget_leaves_a_parked_key_the_reason_why_it_is_there() {
    let mut desk = Desk::new();
    desk.tell(added("a", 1));
    for wait in [100, 200, 0] {
        let item = desk.pop();
        desk.nack(&item);
        desk.wait(wait);
    }
    assert_eq!((desk.place("a"), desk.failures("a")), ("parked", 3));
    assert_eq!(desk.queue.forget(desk.now(), ["a"]), 1);
    desk.settle_down();
    assert_eq!((desk.place("a"), desk.failures("a")), ("parked", 0));
    assert_eq!(desk.entry("a").standing.last_error(), Some("timeout"));
}

#[test]
fn forget_takes_failures_and_leaves_the_key_where_it_is() {
    let mut desk = failed();
    assert_eq!(desk.queue.forget(desk.now(), ["a", "b"]), 1);
    desk.settle_down();
    assert_eq!((desk.failures("a"), desk.place("a"), desk.due_in("a")), (0, "delayed", Some(100)));
    assert_eq!(desk.queue.forget(desk.now(), ["a"]), 0);
}
