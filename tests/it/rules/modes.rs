//! The table of modes, row by row.

use deltaq::engine::command::How;

use super::*;

fn delta() -> Desk {
    Desk::in_mode(Mode::Delta)
}

fn latest() -> Desk {
    Desk::in_mode(Mode::Latest)
}

fn keys() -> Desk {
    Desk::in_mode(Mode::Keys)
}

fn is_wrong_mode<T>(answer: &Result<T, Refusal>) -> bool {
    matches!(answer, Err(Refusal::WrongMode { mode: Mode::Keys, .. }))
}

// Handed out.

#[test]
fn handed_out_delta_all_deltas() {
    let mut desk = delta();
    desk.say([added("a", 1), updated("a", 2), deleted("a")]).expect("there is room");
    assert_eq!(text(&desk.pop()), "a: Added 1, Updated 2, Deleted 2?");
}

#[test]
fn handed_out_latest_the_newest() {
    let mut desk = latest();
    desk.say([added("a", 1), updated("a", 2), updated("a", 3)]).expect("there is room");
    assert_eq!(text(&desk.pop()), "a: Updated 3");
}

#[test]
fn handed_out_keys_the_key_alone() {
    let mut desk = keys();
    desk.say([queued("a"), queued("b"), queued("a")]).expect("there is room");
    assert_eq!(desk.line(), ["a", "b"]);
    assert_eq!(text(&desk.pop()), "a: ");
}

// Delete.

#[test]
fn delete_latest_drops_a_key_that_no_consumer_can_have_seen() {
    let mut desk = latest();
    desk.tell(added("a", 1).after(100));
    assert!(desk.tell(deleted("a")), "accepted");
    assert_eq!(desk.place("a"), "absent");
}

#[test]
fn delete_latest_hands_out_the_deletion_of_a_known_key() {
    let mut desk = latest();
    desk.know(added("a", 1));
    desk.say([updated("a", 2), deleted("a")]).expect("there is room");
    assert_eq!(text(&desk.pop()), "a: Deleted 2?");
}

#[test]
fn delete_latest_hands_out_the_deletion_of_a_key_leased_since_the_last_ack() {
    let mut desk = latest();
    desk.tell(added("a", 1));
    let item = desk.pop();
    desk.settle(item.token, How::Release);
    desk.tell(deleted("a"));
    assert_eq!(text(&desk.pop()), "a: Deleted 1?");
}

#[test]
fn delete_latest_drops_a_key_whose_only_lease_was_never_delivered() {
    let mut desk = latest();
    desk.tell(added("a", 1));
    let item = desk.pop();
    desk.queue.give_back(desk.now(), &[item.token]);
    desk.tell(deleted("a"));
    assert_eq!(desk.place("a"), "absent");
}

#[test]
fn delete_latest_without_a_store_cannot_tell_and_hands_it_out() {
    let mut desk = Desk::with(|config| (config.mode, config.known_objects) = (Mode::Latest, false));
    desk.say([added("a", 1), deleted("a")]).expect("there is room");
    assert_eq!(text(&desk.pop()), "a: Deleted 1?");
}

#[test]
fn delete_latest_two_of_them_by_the_dedup_rule() {
    let mut desk = latest();
    desk.know(added("a", 1));
    desk.say([deleted("a"), Say::new(DeltaKind::Deleted, "a", Some(4))]).expect("there is room");
    assert_eq!(desk.waiting("a"), "Deleted 4");
    desk.tell(Say::new(DeltaKind::Deleted, "a", Some(5)));
    assert_eq!(desk.waiting("a"), "Deleted 4");
}

#[test]
fn delete_keys_is_refused() {
    let mut desk = keys();
    assert!(is_wrong_mode(&desk.say([deleted("a")])));
    assert!(is_wrong_mode(&desk.say([queued("b"), deleted("a")])));
    assert_eq!(desk.place("b"), "absent", "all or none");
}

// Replace, Resync, seed, update.

#[test]
fn replace_latest_leaves_one_delta_a_key_and_drops_the_unseen() {
    let mut desk = latest();
    desk.know(added("known", 1));
    desk.say([updated("known", 2), added("unseen", 1), added("kept", 1)]).expect("there is room");
    let answer = desk.replace(list(&[("kept", 2)])).expect("no guard");
    assert_eq!(counts(&answer), replaced([1, 2, 0, 0, 0]));
    assert_eq!((desk.place("unseen"), desk.waiting("kept")), ("absent", "Replaced 2".into()));
    assert_eq!(desk.waiting("known"), "Deleted 2?");
}

#[test]
fn a_dropped_key_of_the_initial_list_holds_nothing_up() {
    let mut desk = latest();
    desk.replace(list(&[("a", 1)])).expect("no guard");
    desk.tell(deleted("a"));
    assert!(desk.has_synced());
}

#[test]
fn resync_latest_hands_out_one_delta_a_key() {
    let mut desk = latest();
    desk.know(added("a", 1));
    assert_eq!(desk.resync(), 1);
    desk.tell(updated("a", 2));
    assert_eq!(text(&desk.pop()), "a: Updated 2");
}

#[test]
fn replace_resync_seed_and_update_keys_are_refused() {
    let mut desk = keys();
    let now = desk.now();
    assert!(is_wrong_mode(&desk.say([updated("a", 1)])));
    assert!(is_wrong_mode(&desk.queue.accept_replace(now, list(&[("a", 1)]))));
    assert!(is_wrong_mode(&desk.queue.resync_step(now, &mut Sweep::default(), 9)));
    assert!(is_wrong_mode(&desk.queue.check_seed(&[(key("a"), object(1), None)])));
}

#[test]
fn a_rate_limited_add_delta_and_latest_is_refused() {
    for mut desk in [delta(), latest()] {
        let say = Say(Call { rate_limited: true, ..added("a", 1).0 });
        assert!(matches!(desk.say([say]), Err(Refusal::WrongMode { .. })));
    }
}

// Nack with newer waiting.

#[test]
fn nack_latest_hands_out_the_newer_alone() {
    let mut desk = latest();
    desk.tell(added("a", 1));
    let item = desk.pop();
    desk.tell(updated("a", 2));
    desk.nack(&item);
    assert_eq!(text(&desk.pop()), "a: Updated 2");
}

#[test]
fn nack_keys_is_ready_at_once_and_the_backoff_stays_beside() {
    let mut desk = keys();
    desk.tell(queued("a"));
    let item = desk.pop();
    desk.tell(queued("a"));
    desk.nack(&item);
    assert_eq!((desk.place("a"), desk.due_in("a")), ("ready", Some(100)));
    let item = desk.pop();
    assert_eq!(desk.due_in("a"), Some(100), "handing out leaves it");
    desk.wait(100);
    desk.ack(&item);
    assert_eq!(desk.place("a"), "ready", "it fired during the lease: dirty");
}

#[test]
fn nack_keys_keeps_an_earlier_delay() {
    let mut desk = keys();
    desk.tell(queued("a"));
    desk.tell(queued("a").after(30));
    let item = desk.pop();
    desk.nack(&item);
    assert_eq!((desk.place("a"), desk.due_in("a")), ("delayed", Some(30)));
}

// A delay fires.

#[test]
fn delay_delta_fires_for_what_waits_and_else_for_nothing() {
    for mut desk in [delta(), latest()] {
        desk.tell(added("a", 1).after(50));
        desk.wait(50);
        assert_eq!(desk.line(), ["a"]);
    }
}

#[test]
fn delay_keys_is_itself_an_add() {
    let mut desk = keys();
    desk.tell(queued("a").after(50));
    desk.tell(queued("a"));
    let item = desk.pop();
    desk.ack(&item);
    assert_eq!(desk.place("a"), "delayed", "client-go's AddAfter is not undone by an Add");
    desk.wait(50);
    assert_eq!(desk.line(), ["a"]);
}

// Ack.

#[test]
fn ack_delta_and_latest_apply_to_the_known_objects() {
    for mut desk in [delta(), latest()] {
        desk.say([added("a", 1), updated("a", 2)]).expect("there is room");
        let item = desk.pop();
        desk.ack(&item);
        assert_eq!(desk.known("a"), Some(r#"{"v":2}"#));
        desk.tell(deleted("a"));
        let item = desk.pop();
        desk.ack(&item);
        assert_eq!(desk.place("a"), "absent");
    }
}

#[test]
fn ack_keys_is_done_and_forget() {
    let mut desk = keys();
    desk.tell(queued("a"));
    let item = desk.pop();
    desk.settle(item.token, nack_after(0));
    let item = desk.pop();
    desk.settle(item.token, How::Done);
    assert_eq!((desk.place("a"), desk.failures("a")), ("idle", 1), "Done alone forgets nothing");
    desk.tell(queued("a"));
    let item = desk.pop();
    desk.ack(&item);
    assert_eq!(desk.place("a"), "absent");
}

#[test]
fn failures_of_a_key_that_waits_for_nothing_are_kept_for_a_day() {
    let mut desk = keys();
    desk.tell(queued("a"));
    let item = desk.pop();
    desk.settle(item.token, nack_after(0));
    let item = desk.pop();
    desk.settle(item.token, How::Done);
    desk.wait(86_400_000 - 1);
    assert_eq!(desk.failures("a"), 1);
    desk.wait(1);
    assert_eq!(desk.place("a"), "absent");
}

#[test]
fn add_rate_limited_keys_counts_a_failure_but_does_not_park() {
    let mut desk = keys();
    let limited = || Say(Call { rate_limited: true, ..queued("a").0 });
    for _ in 0..5 {
        desk.tell(limited());
    }
    assert_eq!((desk.place("a"), desk.failures("a"), desk.due_in("a")), ("delayed", 5, Some(100)));
    desk.wait(100);
    let item = desk.pop();
    assert_eq!(item.failures, 5);
    desk.nack(&item);
    assert_eq!(desk.place("a"), "parked", "a nack acts on it");
}

// After close.

#[test]
fn close_delta_and_latest_accept_and_drain() {
    for mut desk in [delta(), latest()] {
        desk.queue.set_closed(desk.now(), true);
        assert!(desk.tell(added("a", 1).after(50)));
        assert!(!desk.queue.is_drained());
        desk.wait(50);
        let item = desk.pop();
        desk.ack(&item);
        assert!(desk.queue.is_drained());
    }
}

#[test]
fn close_keys_ignores_adds_and_freezes_delays() {
    let mut desk = keys();
    desk.tell(queued("later").after(50));
    desk.queue.set_closed(desk.now(), true);
    assert!(!desk.tell(queued("a")));
    assert!(!desk.tell(Say(Call { rate_limited: true, ..queued("a").0 })));
    assert_eq!((desk.place("a"), desk.failures("a")), ("idle", 1), "the failure counts all the same");
    desk.wait(1_000);
    assert_eq!(desk.place("later"), "delayed");
    assert!(desk.queue.is_drained(), "a frozen delay holds nothing up");
    desk.queue.set_closed(desk.now(), false);
    desk.wait(0);
    assert_eq!(desk.line(), ["later"]);
}

#[test]
fn close_keys_drains_what_is_dirty() {
    let mut desk = keys();
    desk.tell(queued("a"));
    let item = desk.pop();
    desk.tell(queued("a"));
    desk.queue.set_closed(desk.now(), true);
    desk.ack(&item);
    let item = desk.pop();
    desk.ack(&item);
    assert!(matches!(desk.pop_with(|_| {}), Err(Refusal::Closed)));
}
