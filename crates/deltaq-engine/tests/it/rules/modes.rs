//! The differences between the modes.

use deltaq_engine::command::{How, Outcome};

use super::*;

fn delta() -> Fixture {
    Fixture::in_mode(Mode::Delta)
}

fn latest() -> Fixture {
    Fixture::in_mode(Mode::Latest)
}

fn keys() -> Fixture {
    Fixture::in_mode(Mode::Keys)
}

fn is_wrong_mode<T>(result: &Result<T, Refusal>) -> bool {
    matches!(result, Err(Refusal::WrongMode { mode: Mode::Keys, .. }))
}

// Delivery.

#[test]
fn mode_delta_delivers_all_deltas() {
    let mut fixture = delta();
    fixture.produce([added("a", 1), updated("a", 2), deleted("a")]).expect("no refusal");
    assert_eq!(text(&fixture.pop()), "a: Added 1, Updated 2, Deleted 2?");
}

#[test]
fn mode_latest_delivers_the_newest_delta() {
    let mut fixture = latest();
    fixture.produce([added("a", 1), updated("a", 2), updated("a", 3)]).expect("no refusal");
    assert_eq!(text(&fixture.pop()), "a: Updated 3");
}

#[test]
fn mode_keys_delivers_only_the_key() {
    let mut fixture = keys();
    fixture.produce([queued("a"), queued("b"), queued("a")]).expect("no refusal");
    assert_eq!(fixture.ready_queue(), ["a", "b"]);
    assert_eq!(text(&fixture.pop()), "a: ");
}

// Delete.

#[test]
fn a_delete_in_mode_latest_drops_an_unseen_key() {
    let mut fixture = latest();
    fixture.call(added("a", 1).after(100));
    assert!(fixture.call(deleted("a")), "accepted");
    assert_eq!(fixture.place("a"), "absent");
}

#[test]
fn a_delete_in_mode_latest_delivers_the_deletion_of_a_known_key() {
    let mut fixture = latest();
    fixture.make_known(added("a", 1));
    fixture.produce([updated("a", 2), deleted("a")]).expect("no refusal");
    assert_eq!(text(&fixture.pop()), "a: Deleted 2?");
}

#[test]
fn a_delete_in_mode_latest_delivers_the_deletion_of_a_key_leased_since_the_last_ack() {
    let mut fixture = latest();
    fixture.call(added("a", 1));
    let item = fixture.pop();
    fixture.settle(item.token, How::Release);
    fixture.call(deleted("a"));
    assert_eq!(text(&fixture.pop()), "a: Deleted 1?");
}

#[test]
fn a_delete_in_mode_latest_drops_a_key_whose_only_lease_was_undelivered() {
    let mut fixture = latest();
    fixture.call(added("a", 1));
    let item = fixture.pop();
    fixture.queue.return_undelivered(fixture.now(), &[item.token]);
    fixture.call(deleted("a"));
    assert_eq!(fixture.place("a"), "absent");
}

#[test]
fn a_delete_in_mode_latest_without_known_objects_is_always_delivered() {
    let mut fixture = Fixture::with(|config| (config.mode, config.known_objects) = (Mode::Latest, false));
    fixture.produce([added("a", 1), deleted("a")]).expect("no refusal");
    assert_eq!(text(&fixture.pop()), "a: Deleted 1?");
}

#[test]
fn two_deletes_in_mode_latest_follow_the_dedup_rule() {
    let mut fixture = latest();
    fixture.make_known(added("a", 1));
    fixture.produce([deleted("a"), ProduceCall::new(DeltaKind::Deleted, "a", Some(4))]).expect("no refusal");
    assert_eq!(fixture.waiting("a"), "Deleted 4");
    fixture.call(ProduceCall::new(DeltaKind::Deleted, "a", Some(5)));
    assert_eq!(fixture.waiting("a"), "Deleted 4");
}

#[test]
fn a_delete_in_mode_keys_is_refused() {
    let mut fixture = keys();
    assert!(is_wrong_mode(&fixture.produce([deleted("a")])));
    assert!(is_wrong_mode(&fixture.produce([queued("b"), deleted("a")])));
    assert_eq!(fixture.place("b"), "absent", "a call is accepted completely or not at all");
}

// Replace, Resync, seed, update.

#[test]
fn a_replace_in_mode_latest_keeps_one_delta_per_key_and_drops_unseen_keys() {
    let mut fixture = latest();
    fixture.make_known(added("known", 1));
    fixture.produce([updated("known", 2), added("unseen", 1), added("kept", 1)]).expect("no refusal");
    let result = fixture.replace(list(&[("kept", 2)])).expect("no refusal");
    assert_eq!(counts(&result), replaced([1, 2, 0, 0, 0]));
    assert_eq!((fixture.place("unseen"), fixture.waiting("kept")), ("absent", "Replaced 2".into()));
    assert_eq!(fixture.waiting("known"), "Deleted 2?");
}

#[test]
fn a_dropped_key_of_the_initial_list_does_not_delay_the_sync() {
    let mut fixture = latest();
    fixture.replace(list(&[("a", 1)])).expect("no refusal");
    fixture.call(deleted("a"));
    assert!(fixture.has_synced());
}

#[test]
fn a_resync_in_mode_latest_delivers_one_delta_per_key() {
    let mut fixture = latest();
    fixture.make_known(added("a", 1));
    assert_eq!(fixture.resync(), 1);
    fixture.call(updated("a", 2));
    assert_eq!(text(&fixture.pop()), "a: Updated 2");
}

#[test]
fn replace_resync_seed_and_update_in_mode_keys_are_refused() {
    let mut fixture = keys();
    let now = fixture.now();
    assert!(is_wrong_mode(&fixture.produce([updated("a", 1)])));
    assert!(is_wrong_mode(&fixture.queue.accept_replace(now, list(&[("a", 1)]))));
    assert!(is_wrong_mode(&fixture.queue.resync_step(now, &mut ScanCursor::default(), 9)));
    assert!(is_wrong_mode(&fixture.queue.check_seed(&[(key("a"), object(1), None)])));
}

#[test]
fn a_rate_limited_add_in_modes_delta_and_latest_is_refused() {
    for mut fixture in [delta(), latest()] {
        let call = ProduceCall(Call { rate_limited: true, ..added("a", 1).0 });
        assert!(matches!(fixture.produce([call]), Err(Refusal::WrongMode { .. })));
    }
}

// Nack with newer deltas.

#[test]
fn a_nack_in_mode_latest_delivers_only_the_newer_delta() {
    let mut fixture = latest();
    fixture.call(added("a", 1));
    let item = fixture.pop();
    fixture.call(updated("a", 2));
    fixture.nack(&item);
    assert_eq!(text(&fixture.pop()), "a: Updated 2");
}

#[test]
fn a_nack_of_a_dirty_key_in_mode_keys_makes_it_ready_and_keeps_the_backoff() {
    let mut fixture = keys();
    fixture.call(queued("a"));
    let item = fixture.pop();
    fixture.call(queued("a"));
    fixture.nack(&item);
    assert_eq!((fixture.place("a"), fixture.due_in("a")), ("ready", Some(100)));
    let item = fixture.pop();
    assert_eq!(fixture.due_in("a"), Some(100), "delivery keeps the delay");
    fixture.wait(100);
    fixture.ack(&item);
    assert_eq!(fixture.place("a"), "ready", "the delay elapsed during the lease, so the key is dirty");
}

#[test]
fn a_nack_in_mode_keys_keeps_an_earlier_delay() {
    let mut fixture = keys();
    fixture.call(queued("a"));
    fixture.call(queued("a").after(30));
    let item = fixture.pop();
    fixture.nack(&item);
    assert_eq!((fixture.place("a"), fixture.due_in("a")), ("delayed", Some(30)));
}

// Delays.

#[test]
fn a_delay_in_modes_delta_and_latest_belongs_to_waiting_deltas() {
    for mut fixture in [delta(), latest()] {
        fixture.call(added("a", 1).after(50));
        fixture.wait(50);
        assert_eq!(fixture.ready_queue(), ["a"]);
    }
}

#[test]
fn a_delay_in_mode_keys_is_itself_an_add() {
    let mut fixture = keys();
    fixture.call(queued("a").after(50));
    fixture.call(queued("a"));
    let item = fixture.pop();
    fixture.ack(&item);
    assert_eq!(fixture.place("a"), "delayed", "client-go's AddAfter is not undone by an Add");
    fixture.wait(50);
    assert_eq!(fixture.ready_queue(), ["a"]);
}

// Ack.

#[test]
fn an_ack_in_modes_delta_and_latest_updates_the_known_object() {
    for mut fixture in [delta(), latest()] {
        fixture.produce([added("a", 1), updated("a", 2)]).expect("no refusal");
        let item = fixture.pop();
        fixture.ack(&item);
        assert_eq!(fixture.known("a"), Some(r#"{"v":2}"#));
        fixture.call(deleted("a"));
        let item = fixture.pop();
        fixture.ack(&item);
        assert_eq!(fixture.place("a"), "absent");
    }
}

#[test]
fn an_ack_in_mode_keys_is_done_and_forget() {
    let mut fixture = keys();
    fixture.call(queued("a"));
    let item = fixture.pop();
    fixture.settle(item.token, nack_after(0));
    let item = fixture.pop();
    fixture.settle(item.token, How::Done { delay: None });
    assert_eq!((fixture.place("a"), fixture.failures("a")), ("idle", 1), "Done alone keeps the failures");
    fixture.call(queued("a"));
    let item = fixture.pop();
    fixture.ack(&item);
    assert_eq!(fixture.place("a"), "absent");
}

/// The loop of a controller whose work always fails: AddRateLimited, then Done. The times are those of client-go's
/// `ItemExponentialFailureRateLimiter` with the same base.
#[test]
fn add_rate_limited_and_done_back_off_as_in_client_go() {
    let mut fixture = keys();
    fixture.call(queued("a"));
    for (failure, wait) in [(1, 100), (2, 200), (3, 400), (4, 800), (5, 1_600), (6, 3_200)] {
        let item = fixture.pop();
        assert_eq!(item.failures, failure - 1);
        fixture.call(ProduceCall(Call { rate_limited: true, ..queued("a").0 }));
        assert!(matches!(fixture.settle(item.token, How::Done { delay: None }), Settled::Ok { .. }));
        assert_eq!((fixture.place("a"), fixture.due_in("a")), ("delayed", Some(wait)), "failure {failure}");
        fixture.wait(u64::try_from(wait - 1).expect("a short wait"));
        assert_eq!(fixture.place("a"), "delayed");
        fixture.wait(1);
        assert_eq!(fixture.place("a"), "ready");
    }
    let item = fixture.pop();
    fixture.ack(&item);
    assert_eq!(fixture.place("a"), "absent", "Forget and Done");
}

#[test]
fn done_with_a_delay_adds_the_key_again_and_keeps_its_failures() {
    let mut fixture = keys();
    fixture.call(queued("a"));
    let item = fixture.pop();
    fixture.call(ProduceCall(Call { rate_limited: true, ..queued("a").0 }));
    fixture.settle(item.token, How::Done { delay: None });
    fixture.wait(100);
    let item = fixture.pop();
    fixture.settle(item.token, How::Done { delay: Some(ms(50)) });
    assert_eq!((fixture.place("a"), fixture.failures("a"), fixture.due_in("a")), ("delayed", 1, Some(50)));
    fixture.wait(50);
    let item = fixture.pop();
    fixture.settle(item.token, How::Done { delay: Some(ms(0)) });
    assert_eq!(fixture.place("a"), "ready", "a delay of zero is an Add");
    let item = fixture.pop();
    fixture.queue.set_closed(fixture.now(), true);
    fixture.settle(item.token, How::Done { delay: Some(ms(50)) });
    assert_eq!(fixture.due_in("a"), None, "a closed queue of mode keys ignores adds");
}

#[test]
fn done_and_ack_are_different_settles() {
    let mut fixture = keys();
    fixture.call(queued("a"));
    let item = fixture.pop();
    fixture.settle(item.token, How::Done { delay: None });
    assert_eq!(fixture.settle(item.token, How::Done { delay: None }), Settled::Repeated);
    assert_eq!(fixture.settle(item.token, How::Ack), Settled::Stale { outcome: Outcome::Done });
}

#[test]
fn a_queue_closed_at_once_ends_its_pops_while_leases_are_out() {
    for mut fixture in [delta(), latest(), keys()] {
        let mut add = |name| {
            if fixture.queue.config().mode == Mode::Keys {
                fixture.call(queued(name))
            } else {
                fixture.call(added(name, 1))
            }
        };
        add("a");
        add("b");
        let a = fixture.pop();
        fixture.queue.close_at_once(fixture.now());
        let b = fixture.pop();
        assert!(matches!(fixture.pop_with(|_| {}), Err(Refusal::Closed)), "two leases are out");
        assert!(!fixture.queue.is_drained() && fixture.queue.ends_pops());
        fixture.settle(a.token, How::Release);
        let a = fixture.pop();
        fixture.ack(&a);
        fixture.ack(&b);
        assert!(fixture.queue.is_drained());
        // A close without that wish restores the rule that pops wait for leases.
        fixture.queue.set_closed(fixture.now(), false);
        assert!(fixture.pop_with(|_| {}).expect("the queue is open").is_empty());
    }
}

#[test]
fn a_nack_and_a_reject_report_the_failures_of_the_key() {
    let mut fixture = keys();
    fixture.call(queued("a"));
    let item = fixture.pop();
    let due = Some(fixture.now().plus(ms(100)));
    let Settled::Ok { failed: Some(failed), .. } = fixture.settle(item.token, nack()) else {
        panic!("no failure")
    };
    assert_eq!((failed.failures, failed.due, failed.is_parked), (1, due, false));
    fixture.wait(100);
    let item = fixture.pop();
    let reject = How::Reject { error: None };
    let Settled::Ok { failed: Some(failed), .. } = fixture.settle(item.token, reject) else {
        panic!("no failure")
    };
    assert_eq!((failed.failures, failed.due, failed.is_parked), (1, None, true));
}

#[test]
fn failures_of_an_idle_key_in_mode_keys_expire_after_a_day() {
    let mut fixture = keys();
    fixture.call(queued("a"));
    let item = fixture.pop();
    fixture.settle(item.token, nack_after(0));
    let item = fixture.pop();
    fixture.settle(item.token, How::Done { delay: None });
    fixture.wait(86_400_000 - 1);
    assert_eq!(fixture.failures("a"), 1);
    fixture.wait(1);
    assert_eq!(fixture.place("a"), "absent");
}

#[test]
fn add_rate_limited_in_mode_keys_counts_a_failure_but_does_not_park() {
    let mut fixture = keys();
    let limited = || ProduceCall(Call { rate_limited: true, ..queued("a").0 });
    for _ in 0..5 {
        fixture.call(limited());
    }
    assert_eq!((fixture.place("a"), fixture.failures("a"), fixture.due_in("a")), ("delayed", 5, Some(100)));
    fixture.wait(100);
    let item = fixture.pop();
    assert_eq!(item.failures, 5);
    fixture.nack(&item);
    assert_eq!(fixture.place("a"), "parked", "a nack parks at max_failures");
}

// After close.

#[test]
fn closed_queues_of_modes_delta_and_latest_accept_changes_and_drain() {
    for mut fixture in [delta(), latest()] {
        fixture.queue.set_closed(fixture.now(), true);
        assert!(fixture.call(added("a", 1).after(50)));
        assert!(!fixture.queue.is_drained());
        fixture.wait(50);
        let item = fixture.pop();
        fixture.ack(&item);
        assert!(fixture.queue.is_drained());
    }
}

#[test]
fn a_closed_queue_of_mode_keys_ignores_adds_and_freezes_delays() {
    let mut fixture = keys();
    fixture.call(queued("later").after(50));
    fixture.queue.set_closed(fixture.now(), true);
    assert!(!fixture.call(queued("a")));
    assert!(!fixture.call(ProduceCall(Call { rate_limited: true, ..queued("a").0 })));
    assert_eq!((fixture.place("a"), fixture.failures("a")), ("idle", 1), "the failure is counted");
    fixture.wait(1_000);
    assert_eq!(fixture.promote(None), 0, "workers may have gone");
    assert_eq!(fixture.place("later"), "delayed");
    assert!(fixture.queue.is_drained(), "a frozen delay does not prevent draining");
    fixture.queue.set_closed(fixture.now(), false);
    fixture.wait(0);
    assert_eq!(fixture.ready_queue(), ["later"]);
}

#[test]
fn a_closed_queue_of_mode_keys_drains_dirty_keys() {
    let mut fixture = keys();
    fixture.call(queued("a"));
    let item = fixture.pop();
    fixture.call(queued("a"));
    fixture.queue.set_closed(fixture.now(), true);
    fixture.ack(&item);
    let item = fixture.pop();
    fixture.ack(&item);
    assert!(matches!(fixture.pop_with(|_| {}), Err(Refusal::Closed)));
}
