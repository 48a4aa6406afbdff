//! Purge, redrive, discard, pause, close, settings.

use deltaq::engine::command::How;

use super::*;

#[test]
fn purge_drops_ready_and_delayed_keys_and_what_waits_behind_leases() {
    let mut desk = Desk::new();
    desk.know(added("known", 1));
    desk.tell(added("parked", 1));
    desk.park("parked");
    desk.say([added("leased", 1), added("ready", 1), updated("known", 2)]).expect("there is room");
    let item = desk.pop();
    desk.say([updated("leased", 2), updated("leased", 3), added("delayed", 1).after(50)])
        .expect("there is room");
    assert_eq!(desk.purge(), Purged { keys: 3, deltas: 5 });
    assert_eq!(
        ["ready", "delayed", "known", "parked", "leased"].map(|name| desk.place(name)),
        ["absent", "absent", "known", "parked", "leased"]
    );
    assert_eq!((desk.known("known"), desk.waiting("leased")), (Some(r#"{"v":1}"#), String::new()));
    desk.ack(&item);
    assert_eq!(desk.place("leased"), "known");
    assert_eq!(desk.purge(), Purged { keys: 0, deltas: 0 });
}

#[test]
fn a_purged_key_starts_anew() {
    let mut desk = Desk::new();
    desk.tell(added("a", 1));
    let item = desk.pop();
    desk.nack(&item);
    desk.purge();
    desk.tell(added("a", 2));
    let item = desk.pop();
    assert_eq!((text(&item), item.attempt, item.failures), ("a: Added 2".into(), 1, 0));
}

#[test]
fn a_purge_in_slices_leaves_what_came_in_while_it_ran() {
    let mut desk = Desk::new();
    desk.say([added("a", 1), added("b", 1), added("c", 1)]).expect("there is room");
    let mut sweep = Sweep::default();
    assert!(matches!(desk.queue.purge_step(desk.now(), &mut sweep, 1), Progress::More));
    desk.tell(updated("c", 2));
    desk.tell(added("d", 1));
    let Progress::Done(purged) = desk.queue.purge_step(desk.now(), &mut sweep, 9) else {
        panic!("it has ended")
    };
    desk.settle_down();
    assert_eq!(purged, Purged { keys: 2, deltas: 2 });
    assert_eq!(desk.line(), ["c", "d"]);
}

#[test]
fn redrive_puts_parked_keys_back_in_line_with_no_failures() {
    let mut desk = Desk::with(|config| config.max_failures = 1);
    for name in ["c", "a", "b"] {
        desk.tell(added(name, 1));
        let item = desk.pop();
        desk.nack(&item);
    }
    assert_eq!(desk.failures("a"), 1);
    assert_eq!(desk.redrive(Some(&["c", "x"])), 1);
    assert_eq!(desk.redrive(None), 2);
    assert_eq!(desk.line(), ["c", "a", "b"], "all of them in key order");
    let item = desk.pop();
    assert_eq!((item.failures, item.attempt), (0, 2));
}

#[test]
fn discard_drops_parked_keys_and_nothing_else() {
    let mut desk = Desk::new();
    desk.know(added("a", 1));
    desk.tell(updated("a", 2));
    desk.park("a");
    desk.tell(added("b", 1));
    desk.park("b");
    desk.tell(added("c", 1));
    assert_eq!(desk.discard(), 2);
    assert_eq!(["a", "b", "c"].map(|name| desk.place(name)), ["known", "absent", "ready"]);
    assert_eq!(desk.known("a"), Some(r#"{"v":1}"#), "as it was acknowledged last");
    desk.tell(updated("a", 3));
    desk.pop();
    let item = desk.pop();
    assert_eq!((text(&item), item.attempt), ("a: Updated 3".into(), 1));
}

#[test]
fn a_paused_queue_hands_nothing_out_and_does_everything_else() {
    let mut desk = Desk::new();
    desk.tell(added("a", 1));
    let item = desk.pop();
    desk.queue.set_paused(desk.now(), true);
    desk.tell(added("b", 1));
    assert!(desk.pop_with(|_| {}).expect("paused is not closed").is_empty());
    desk.nack(&item);
    desk.wait(100);
    assert_eq!(desk.line(), ["b", "a"]);
    desk.queue.set_paused(desk.now(), false);
    assert_eq!(text(&desk.pop()), "b: Added 1");
}

#[test]
fn a_closed_queue_drains_and_parked_keys_do_not_count() {
    let mut desk = Desk::new();
    desk.tell(added("parked", 1));
    desk.park("parked");
    desk.say([added("a", 1), added("b", 1).after(100)]).expect("there is room");
    desk.queue.set_closed(desk.now(), true);
    let a = desk.pop();
    assert!(desk.pop_with(|_| {}).expect("b is delayed, a is leased").is_empty());
    desk.nack(&a);
    desk.wait(100);
    assert!(!desk.queue.is_drained());
    for _ in 0..2 {
        let item = desk.pop();
        desk.ack(&item);
    }
    assert!(desk.queue.is_drained());
    assert!(matches!(desk.pop_with(|_| {}), Err(Refusal::Closed)));
    desk.queue.set_closed(desk.now(), false);
    assert!(desk.pop_with(|_| {}).expect("open again").is_empty());
}

#[test]
fn settling_works_in_every_state() {
    let mut desk = Desk::new();
    desk.say([added("a", 1), added("b", 1)]).expect("there is room");
    let (a, b) = (desk.pop(), desk.pop());
    desk.queue.set_paused(desk.now(), true);
    desk.queue.set_closed(desk.now(), true);
    desk.ack(&a);
    desk.settle(b.token, How::Release);
    assert_eq!((desk.place("a"), desk.place("b")), ("known", "ready"));
}

#[test]
fn a_call_that_comes_while_a_queue_is_seeded_says_more_and_finds_its_room_taken() {
    let mut desk = Desk::with(|config| config.max_keys = 3);
    let seeds = [(key("a"), object(1), None), (key("b"), object(1), None)];
    desk.queue.begin_seed(&seeds);
    assert!(desk.say([added("c", 1), added("d", 1)]).is_err(), "two places are reserved");
    desk.tell(added("b", 2));
    let item = desk.pop();
    desk.ack(&item);
    desk.queue.seed_step(desk.now(), seeds);
    desk.queue.end_seed();
    desk.settle_down();
    assert_eq!((desk.known("a"), desk.known("b")), (Some(r#"{"v":1}"#), Some(r#"{"v":2}"#)));
}

#[test]
fn a_replace_that_comes_while_a_queue_is_seeded_is_newer_than_all_of_it() {
    let mut desk = Desk::new();
    let seeds = [(key("a"), object(1), None), (key("b"), object(1), None)];
    desk.queue.begin_seed(&seeds);
    let id = desk.accept(list(&[("a", 2)]));
    assert!(matches!(desk.step(id), Ok(Progress::NotYet)));
    desk.queue.seed_step(desk.now(), seeds);
    desk.queue.end_seed();
    desk.finish(id).expect("no guard");
    assert_eq!((desk.waiting("a"), desk.waiting("b")), ("Replaced 2".to_owned(), "Deleted 1?".to_owned()));
}

#[test]
fn seeding_needs_a_queue_in_which_nothing_waits() {
    let mut desk = Desk::new();
    desk.know(added("a", 1));
    desk.seed(&[("a", 5), ("b", 1)]);
    assert_eq!((desk.known("a"), desk.place("b")), (Some(r#"{"v":5}"#), "known"));
    assert!(desk.line().is_empty(), "no delta comes of it");
    let seeds = [(key("c"), object(1), None)];
    desk.tell(added("x", 1).after(50));
    assert!(matches!(desk.queue.check_seed(&seeds), Err(Refusal::NotEmpty { waiting: 1 })));
    desk.wait(50);
    assert!(matches!(desk.queue.check_seed(&seeds), Err(Refusal::NotEmpty { waiting: 1 })));
    let item = desk.pop();
    assert!(matches!(desk.queue.check_seed(&seeds), Err(Refusal::NotEmpty { waiting: 1 })));
    desk.reject(&item);
    assert!(matches!(desk.queue.check_seed(&seeds), Err(Refusal::NotEmpty { waiting: 1 })));
}

#[test]
fn what_makes_a_queue_cannot_change_while_it_has_keys() {
    let mut desk = Desk::new();
    let latest = config(|config| config.mode = Mode::Latest);
    desk.know(added("a", 1));
    let refusal = desk.queue.configure(desk.now(), latest.clone());
    assert!(matches!(refusal, Err(Refusal::ImmutableConfig { field: "mode", keys: 1 })));
    desk.queue.configure(desk.now(), config(|config| config.max_failures = 9)).expect("that may change");
    desk.tell(deleted("a"));
    let item = desk.pop();
    desk.ack(&item);
    desk.queue.configure(desk.now(), latest).expect("the queue is empty");
    desk.settle_down();
}
