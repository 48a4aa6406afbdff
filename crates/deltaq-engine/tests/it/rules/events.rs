//! Mode events: each delta is delivered alone, in order.

use deltaq_engine::command::How;
use deltaq_engine::pointer::Pointer;

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

#[test]
fn an_undelivered_key_keeps_its_place() {
    let mut fixture = events();
    fixture.produce([added("a", 1), updated("a", 2), added("b", 1)]).expect("no refusal");
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
