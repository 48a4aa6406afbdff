//! Mode events: each delta is delivered alone, in order.

use deltaq_engine::command::How;
use deltaq_engine::key::Pointer;

use super::*;

fn events() -> Fixture {
    Fixture::in_mode(Mode::Events)
}

fn bounded(change: impl FnOnce(&mut Config)) -> Fixture {
    Fixture::with(|config| {
        config.mode = Mode::Events;
        change(config);
    })
}

fn nack(delay: Option<u64>) -> How {
    How::Nack { delay: delay.map(ms), error: Some("broken".into()) }
}

impl Fixture {
    /// Pops and acknowledges until no key is ready.
    fn work_off(&mut self) -> Vec<String> {
        let mut delivered = Vec::new();
        while !self.ready_queue().is_empty() {
            let item = self.pop();
            delivered.push(text(&item));
            self.settle(item.token, How::Ack);
        }
        delivered
    }

    fn pop_many(&mut self, max_bytes: usize) -> Vec<Item> {
        self.pop_with(|pop| (pop.max, pop.max_bytes) = (10, max_bytes)).expect("the queue is open")
    }
}

// Order.

#[test]
fn each_delta_is_delivered_alone_in_the_order_of_the_calls() {
    let mut fixture = events();
    fixture
        .produce([added("a", 1), added("b", 1), updated("a", 2), updated("a", 2), deleted("b")])
        .expect("no refusal");
    let delivered = fixture.work_off();
    assert_eq!(delivered, ["a: Added 1", "b: Added 1", "a: Updated 2", "a: Updated 2", "b: Deleted 1?"]);
}

#[test]
fn a_pop_of_many_takes_distinct_keys() {
    let mut fixture = events();
    fixture.produce([added("a", 1), updated("a", 2), added("b", 1), added("c", 1)]).expect("no refusal");
    let items = fixture.pop_many(usize::MAX);
    assert_eq!(items.iter().map(text).collect::<Vec<_>>(), ["a: Added 1", "b: Added 1", "c: Added 1"]);
    assert!(fixture.pop_many(usize::MAX).is_empty(), "the next delta of a leased key waits");
}

#[test]
fn after_an_ack_the_key_goes_where_its_next_delta_belongs() {
    let mut fixture = events();
    fixture.produce([added("a", 1), updated("a", 2), added("b", 1), updated("a", 3)]).expect("no refusal");
    let item = fixture.pop();
    fixture.settle(item.token, How::Ack);
    assert_eq!(fixture.ready_queue(), ["a", "b"], "Updated 2 is older than Added 1 of b");
    let item = fixture.pop();
    assert_eq!(text(&item), "a: Updated 2");
    fixture.settle(item.token, How::Ack);
    assert_eq!(fixture.ready_queue(), ["b", "a"]);
}

#[test]
fn a_released_or_undelivered_key_keeps_its_place() {
    let mut fixture = events();
    fixture.produce([added("a", 1), updated("a", 2), added("b", 1)]).expect("no refusal");
    let item = fixture.pop();
    fixture.settle(item.token, How::Release);
    assert_eq!((fixture.ready_queue(), fixture.waiting("a")), (vec!["a", "b"], "Added 1, Updated 2".into()));
    let item = fixture.pop();
    fixture.queue.return_undelivered(fixture.now(), &[item.token]);
    fixture.commit_and_check();
    assert_eq!((fixture.ready_queue(), fixture.waiting("a")), (vec!["a", "b"], "Added 1, Updated 2".into()));
}

#[test]
fn max_bytes_of_a_pop_counts_delivered_deltas_only() {
    let mut fixture = events();
    fixture.produce([added("a", 1), updated("a", 2), updated("a", 3), added("b", 1)]).expect("no refusal");
    let items = fixture.pop_many(14);
    assert_eq!(items.iter().map(text).collect::<Vec<_>>(), ["a: Added 1", "b: Added 1"]);
}

// No delta is merged or left out.

#[test]
fn a_delete_of_an_absent_key_is_delivered() {
    let mut fixture = events();
    let with_object = ProduceCall::new(DeltaKind::Deleted, "a", Some(7));
    let produced = fixture.produce([with_object, deleted("b")]).expect("no refusal");
    assert_eq!((produced.queued, produced.ignored), (2, 0));
    assert_eq!(fixture.work_off(), ["a: Deleted 7", "b: Deleted {?"]);
    assert_eq!(fixture.place("a"), "absent");
}

#[test]
fn every_delete_is_delivered() {
    let mut fixture = events();
    fixture.produce([added("a", 1), deleted("a"), deleted("a")]).expect("no refusal");
    let item = fixture.pop();
    fixture.settle(item.token, How::Ack);
    let item = fixture.pop();
    fixture.call(deleted("a"));
    fixture.settle(item.token, How::Ack);
    assert_eq!(fixture.work_off(), ["a: Deleted 1?", "a: Deleted 1?"]);
}

#[test]
fn an_ack_makes_exactly_the_delivered_delta_known() {
    let mut fixture = events();
    fixture.produce([added("a", 1), updated("a", 2), deleted("a"), added("a", 3)]).expect("no refusal");
    let mut known = Vec::new();
    for _ in 0..4 {
        let item = fixture.pop();
        fixture.settle(item.token, How::Ack);
        known.push(fixture.known("a").map(ToOwned::to_owned));
    }
    let objects = [Some(r#"{"v":1}"#), Some(r#"{"v":2}"#), None, Some(r#"{"v":3}"#)];
    assert_eq!(known, objects.map(|object| object.map(ToOwned::to_owned)));
}

#[test]
fn a_full_key_refuses_more_deltas() {
    let mut fixture = bounded(|config| config.max_deltas_per_key = 2);
    fixture.produce([added("a", 1), updated("a", 2)]).expect("no refusal");
    let full = |fixture: &mut Fixture, calls: Vec<ProduceCall>| match fixture.produce(calls) {
        Err(Refusal::KeyFull { field, limit, key, index }) => (field, limit, key.to_string(), index),
        other => panic!("{other:?}"),
    };
    let expected = ("max_deltas_per_key", 2, "a".to_owned(), 0);
    assert_eq!(full(&mut fixture, vec![updated("a", 3)]), expected);
    assert_eq!(full(&mut fixture, vec![deleted("a")]), expected, "a Delete is a delta, too");
    assert_eq!(full(&mut fixture, vec![added("b", 1), updated("a", 3)]).3, 1);
    assert_eq!(fixture.place("b"), "absent", "a call is accepted completely or not at all");
    assert_eq!(full(&mut fixture, vec![added("b", 1), added("b", 2), added("b", 3)]).3, 2);

    let item = fixture.pop();
    assert_eq!(full(&mut fixture, vec![updated("a", 3)]), expected, "a leased delta may come back");
    fixture.settle(item.token, How::Ack);
    fixture.call(updated("a", 3));
    assert_eq!(fixture.waiting("a"), "Updated 2, Updated 3");
}

#[test]
fn a_key_refuses_more_bytes_except_for_its_first_delta() {
    let mut fixture = bounded(|config| config.max_bytes_per_key = 3);
    fixture.call(added("a", 1));
    let refused = fixture.produce([updated("a", 2)]);
    assert!(
        matches!(refused, Err(Refusal::KeyFull { field: "max_bytes_per_key", limit: 3, .. })),
        "{refused:?}"
    );
}

#[test]
fn a_delete_of_an_absent_key_counts_toward_max_keys() {
    let mut fixture = bounded(|config| config.max_keys = 1);
    fixture.call(added("a", 1));
    let refused = fixture.produce([deleted("b")]);
    assert!(matches!(refused, Err(Refusal::QueueFull { limit: 1, .. })), "{refused:?}");
    fixture.call(deleted("a"));
}

#[test]
fn a_replace_refuses_a_list_with_a_full_key_and_changes_nothing() {
    let mut fixture = bounded(|config| config.max_deltas_per_key = 2);
    fixture.produce([added("a", 1), updated("a", 2), added("gone", 1)]).expect("no refusal");
    let before = fixture.queue.image();
    let refused = fixture.replace(list(&[("new", 1), ("a", 3)]));
    assert!(matches!(refused, Err(Refusal::KeyFull { index: 1, .. })), "{refused:?}");
    assert_eq!(fixture.queue.image(), before);
    let unchanged = Replace { only_changed: true, ..list(&[("a", 2)]) };
    let result = fixture.replace(unchanged).expect("nothing of the full key is queued");
    assert_eq!(counts(&result), replaced([0, 1, 1, 0, 0]));
}

#[test]
fn the_tombstone_of_a_replace_fits_into_a_full_key() {
    let mut fixture = bounded(|config| config.max_deltas_per_key = 2);
    fixture.produce([added("a", 1), updated("a", 2)]).expect("no refusal");
    for _ in 0..2 {
        fixture.replace(list(&[("b", 1)])).expect("no refusal");
        assert_eq!(fixture.waiting("a"), "Added 1, Updated 2, Deleted 2?", "only one goes beyond the bound");
    }
}

#[test]
fn a_call_leaves_room_for_an_object_of_a_running_replace() {
    let mut fixture = bounded(|config| {
        config.max_deltas_per_key = 2;
        config.version = Pointer::parse("/v", false).ok();
    });
    fixture.call(added("a", 5).from("erp"));
    let id = fixture.accept(list_of("erp", &[("b", 1), ("a", 9)]));
    while fixture.place("b") == "absent" {
        fixture.step(id).expect("the list fits");
    }
    let refused = fixture.produce([updated("a", 7)]);
    assert!(matches!(refused, Err(Refusal::KeyFull { limit: 2, index: 0, .. })), "{refused:?}");
    fixture.call(added("c", 1));
    fixture.finish(id).expect("it was planned");
    assert_eq!(fixture.waiting("a"), "Added 5, Replaced 9");
    fixture.replace(list_of("erp", &[])).expect("no refusal");
    assert_eq!(
        fixture.waiting("a"),
        "Added 5, Replaced 9, Deleted 9?",
        "only the tombstone exceeds the bound"
    );
}

#[test]
fn a_call_leaves_bytes_for_an_object_of_a_running_replace() {
    let mut fixture = bounded(|config| {
        config.max_bytes_per_key = 20;
        config.version = Pointer::parse("/v", false).ok();
    });
    let id = fixture.accept(list_of("erp", &[("b", 1), ("a", 9)]));
    while fixture.place("b") == "absent" {
        fixture.step(id).expect("the list fits");
    }
    fixture.call(added("a", 5));
    let refused = fixture.produce([updated("a", 7)]);
    assert!(matches!(refused, Err(Refusal::KeyFull { field: "max_bytes_per_key", .. })), "{refused:?}");
    fixture.finish(id).expect("it was planned");
    assert_eq!(fixture.waiting("a"), "Added 5, Replaced 9");
}

#[test]
fn a_call_that_is_newer_than_a_running_replace_takes_the_room_of_the_listed_object() {
    let mut fixture = bounded(|config| config.max_deltas_per_key = 2);
    fixture.call(added("a", 5).from("erp"));
    let id = fixture.accept(list_of("erp", &[("b", 1), ("a", 9)]));
    while fixture.place("b") == "absent" {
        fixture.step(id).expect("the list fits");
    }
    fixture.call(updated("a", 7));
    fixture.finish(id).expect("it was planned");
    assert_eq!(fixture.waiting("a"), "Added 5, Updated 7");
}

// Failures.

#[test]
fn a_failed_delta_holds_back_only_its_key() {
    let mut fixture = events();
    fixture.produce([added("a", 1), updated("a", 2), added("b", 1)]).expect("no refusal");
    let item = fixture.pop();
    fixture.settle(item.token, nack(None));
    assert_eq!((fixture.place("a"), fixture.ready_queue()), ("delayed", vec!["b"]));
    fixture.call(updated("a", 3));
    assert_eq!(fixture.place("a"), "delayed", "a newer delta can't be the fix");
    fixture.call(updated("a", 4).after(1));
    fixture.wait(99);
    assert_eq!(fixture.place("a"), "delayed", "nor does its delay end the backoff");
    fixture.wait(1);
    assert_eq!(fixture.ready_queue(), ["a", "b"], "the key is ready in its old place");
    let item = fixture.pop();
    assert_eq!((text(&item), item.attempt, item.failures), ("a: Added 1".to_owned(), 2, 1));
}

#[test]
fn a_nack_without_a_wait_keeps_the_place() {
    let mut fixture = events();
    fixture.produce([added("a", 1), updated("a", 2), added("b", 1)]).expect("no refusal");
    let item = fixture.pop();
    fixture.settle(item.token, nack(Some(0)));
    assert_eq!(fixture.ready_queue(), ["a", "b"]);
}

#[test]
fn a_failed_delta_returns_unmerged() {
    let mut fixture = bounded(|config| config.max_deltas_per_key = 3);
    fixture.produce([deleted("a"), deleted("a"), added("a", 1)]).expect("no refusal");
    let item = fixture.pop();
    fixture.settle(item.token, nack(Some(0)));
    fixture
        .queue
        .configure(
            fixture.now(),
            config(|config| {
                (config.mode, config.max_deltas_per_key) = (Mode::Events, 2);
            }),
        )
        .expect("a limit can change");
    let item = fixture.pop();
    fixture.settle(item.token, How::Release);
    assert_eq!(fixture.waiting("a"), "Deleted {?, Deleted {?, Added 1");
}

#[test]
fn failures_belong_to_the_delta() {
    let mut fixture = events();
    fixture.produce([added("a", 1), updated("a", 2)]).expect("no refusal");
    let item = fixture.pop();
    fixture.settle(item.token, nack(Some(0)));
    let item = fixture.pop();
    fixture.settle(item.token, How::Ack);
    let item = fixture.pop();
    assert_eq!((text(&item), item.attempt, item.failures), ("a: Updated 2".to_owned(), 1, 0));
}

#[test]
fn a_newer_delta_leaves_a_parked_key_parked_and_redrive_delivers_in_order() {
    let mut fixture = events();
    fixture.produce([added("a", 1), added("b", 1)]).expect("no refusal");
    let item = fixture.pop();
    fixture.settle(item.token, How::Reject { error: None });
    fixture.produce([updated("a", 2), deleted("a").after(5)]).expect("no refusal");
    assert_eq!(fixture.place("a"), "parked");
    assert_eq!(fixture.redrive(None), 1);
    assert_eq!(fixture.ready_queue(), ["a", "b"]);
    fixture.wait(5);
    assert_eq!(fixture.work_off(), ["a: Added 1", "b: Added 1", "a: Updated 2", "a: Deleted 2?"]);
}

#[test]
fn promote_delivers_a_delayed_delta_of_mode_events_in_its_order() {
    let mut fixture = events();
    fixture.produce([added("a", 1).after(60), updated("a", 2)]).expect("no refusal");
    assert_eq!(fixture.place("a"), "delayed");
    assert_eq!(fixture.promote(Some(&["a"])), 1);
    assert_eq!(fixture.work_off(), ["a: Added 1", "a: Updated 2"]);
}

#[test]
fn too_many_failures_park_a_key_with_newer_deltas() {
    let mut fixture = bounded(|config| config.max_failures = 1);
    fixture.produce([added("a", 1), updated("a", 2)]).expect("no refusal");
    let item = fixture.pop();
    fixture.call(updated("a", 3));
    fixture.settle(item.token, nack(None));
    assert_eq!(
        (fixture.place("a"), fixture.waiting("a")),
        ("parked", "Added 1, Updated 2, Updated 3".into())
    );
}

#[test]
fn a_discard_drops_the_failed_delta_alone() {
    let mut fixture = events();
    fixture.produce([added("a", 1), added("b", 1), updated("a", 2)]).expect("no refusal");
    let item = fixture.pop();
    fixture.settle(item.token, How::Reject { error: None });
    assert_eq!(fixture.discard(), 1);
    assert_eq!((fixture.ready_queue(), fixture.waiting("a")), (vec!["b", "a"], "Updated 2".into()));
    fixture.pop();
    let item = fixture.pop();
    assert_eq!((text(&item), item.attempt, item.failures), ("a: Updated 2".to_owned(), 1, 0));
    fixture.settle(item.token, How::Reject { error: None });
    assert_eq!(fixture.discard(), 1);
    assert_eq!(fixture.place("a"), "absent");
}

#[test]
fn a_purge_drops_all_deltas_that_wait() {
    let mut fixture = events();
    fixture.produce([added("a", 1), updated("a", 2), added("b", 1), updated("b", 2)]).expect("no refusal");
    let item = fixture.pop();
    let purged = fixture.purge();
    assert_eq!((purged.keys, purged.deltas), (1, 3));
    fixture.settle(item.token, How::Ack);
    assert_eq!((fixture.known("a"), fixture.place("b")), (Some(r#"{"v":1}"#), "absent"));
}

// Delays.

#[test]
fn a_delayed_delta_holds_back_the_deltas_behind_it() {
    let mut fixture = events();
    fixture.produce([added("a", 1).after(100), updated("a", 2), added("b", 1)]).expect("no refusal");
    assert_eq!(fixture.work_off(), ["b: Added 1"]);
    fixture.wait(100);
    assert_eq!(fixture.work_off(), ["a: Added 1", "a: Updated 2"]);
}

#[test]
fn a_delayed_delta_waits_behind_another_one_and_then_until_it_is_due() {
    let mut fixture = events();
    fixture.produce([added("a", 1), updated("a", 2).after(100)]).expect("no refusal");
    let item = fixture.pop();
    fixture.call(updated("a", 3).after(300));
    fixture.settle(item.token, How::Ack);
    assert_eq!(fixture.place("a"), "delayed");
    fixture.wait(100);
    let item = fixture.pop();
    assert_eq!(text(&item), "a: Updated 2");
    fixture.settle(item.token, How::Ack);
    assert_eq!(fixture.place("a"), "delayed");
    fixture.crash();
    fixture.wait(200);
    assert_eq!(fixture.work_off(), ["a: Updated 3"]);
}

#[test]
fn a_delayed_delta_behind_a_lease_waits_until_it_is_due() {
    let mut fixture = events();
    fixture.call(added("a", 1));
    let item = fixture.pop();
    fixture.call(updated("a", 2).after(100));
    fixture.wait(50);
    fixture.settle(item.token, How::Ack);
    assert_eq!((fixture.place("a"), fixture.due_in("a")), ("delayed", Some(50)));
    fixture.wait(50);
    let item = fixture.pop();
    fixture.settle(item.token, nack(None));
    assert_eq!((fixture.place("a"), fixture.due_in("a")), ("delayed", Some(100)), "the backoff");
}

#[test]
fn a_delayed_delta_keeps_its_due_time_under_another_owner() {
    let mut fixture = events();
    fixture.call(added("a", 1));
    fixture.call(updated("a", 2).after(100));
    let unchanged = Replace { only_changed: true, ..list_of("erp", &[("a", 2)]) };
    let result = fixture.replace(unchanged).expect("no refusal");
    assert_eq!((counts(&result), fixture.owner("a")), (replaced([0, 0, 1, 0, 0]), Some("erp")));
    let item = fixture.pop();
    fixture.settle(item.token, How::Ack);
    assert_eq!(fixture.place("a"), "delayed");
}

// The initial list, Resync, freshness.

#[test]
fn the_initial_list_is_synced_when_its_own_deltas_are_acknowledged() {
    let mut fixture = events();
    fixture.replace(list(&[("a", 1), ("b", 1)])).expect("no refusal");
    fixture.call(updated("a", 2));
    let flags: Vec<_> = (0..3)
        .map(|_| {
            let item = fixture.pop();
            fixture.settle(item.token, How::Ack);
            (text(&item), item.is_in_initial_list, fixture.has_synced())
        })
        .collect();
    let flag = |text: &str, initial, synced| (text.to_owned(), initial, synced);
    let expected = [
        flag("a: Replaced 1", true, false),
        flag("b: Replaced 1", true, true),
        flag("a: Updated 2", false, true),
    ];
    assert_eq!(flags, expected);
}

#[test]
fn the_ack_of_an_older_delta_leaves_its_key_in_the_initial_list() {
    let mut fixture = events();
    fixture.seed(&[("a", 1)]);
    fixture.resync();
    fixture.replace(list(&[("a", 2)])).expect("no refusal");
    for (delivered, synced) in [("a: Sync 1", false), ("a: Replaced 2", true)] {
        let item = fixture.pop();
        assert_eq!((text(&item).as_str(), item.is_in_initial_list), (delivered, true));
        fixture.settle(item.token, How::Ack);
        assert_eq!(fixture.has_synced(), synced);
    }
}

#[test]
fn a_purge_behind_a_lease_ends_the_wait_for_the_initial_list() {
    let mut fixture = events();
    fixture.seed(&[("a", 1)]);
    fixture.resync();
    fixture.replace(list(&[("a", 2)])).expect("no refusal");
    let item = fixture.pop();
    assert_eq!((text(&item), item.is_in_initial_list), ("a: Sync 1".to_owned(), true));
    fixture.purge();
    fixture.settle(item.token, How::Ack);
    assert!(fixture.has_synced(), "the delta of the initial list is gone");
}

#[test]
fn a_resync_repeats_known_objects_without_deltas_only() {
    let mut fixture = events();
    fixture.make_known(added("a", 1));
    fixture.make_known(added("b", 1));
    fixture.call(updated("b", 2));
    fixture.resync();
    assert_eq!(fixture.work_off(), ["b: Updated 2", "a: Sync 1"]);
}

#[test]
fn the_oldest_change_is_the_oldest_delta() {
    let mut fixture = events();
    fixture.call(added("a", 1));
    fixture.wait(1_000);
    fixture.call(updated("a", 2));
    fixture.wait(500);
    let age = |fixture: &Fixture| fixture.queue.status(fixture.now()).oldest_unacknowledged_age;
    let item = fixture.pop();
    assert_eq!(age(&fixture), Some(ms(1_500)));
    fixture.settle(item.token, nack(None));
    assert_eq!(age(&fixture), Some(ms(1_500)), "a failure does not begin a new age");
    fixture.wait(100);
    let item = fixture.pop();
    assert_eq!(fixture.queue.acknowledged_up_to(), Rv::ZERO);
    fixture.settle(item.token, How::Ack);
    assert_eq!(age(&fixture), Some(ms(600)));
    assert_eq!(fixture.queue.acknowledged_up_to(), Rv::new(1), "Updated 2 is event 2");
    let item = fixture.pop();
    assert_eq!(age(&fixture), Some(ms(600)));
    fixture.settle(item.token, How::Ack);
    assert_eq!(age(&fixture), None);
}

#[test]
fn a_restart_keeps_the_order_and_what_is_leased() {
    let mut fixture = events();
    fixture.produce([added("a", 1), updated("a", 2), added("b", 1), deleted("a")]).expect("no refusal");
    let item = fixture.pop();
    fixture.crash();
    assert_eq!((fixture.place("a"), fixture.waiting("a")), ("leased", "Updated 2, Deleted 2?".into()));
    fixture.settle(item.token, How::Ack);
    assert_eq!(fixture.work_off(), ["a: Updated 2", "b: Added 1", "a: Deleted 2?"]);
}
