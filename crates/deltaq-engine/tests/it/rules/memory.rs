//! How much memory a queue holds, and calls that need more than there is.

use deltaq_engine::room::Room;

use super::*;

/// What a key with one delta of `object` takes, in bytes.
const ONE: usize = 384 + 1 + 96 + 7;

impl Fixture {
    /// Leaves this much memory.
    fn leave(&mut self, bytes: usize) {
        let held = self.queue.held_bytes();
        self.queue.set_room(Room { held, limit: held + bytes, max: held + bytes, token: None });
    }
}

fn is_memory_full<T>(result: &Result<T, Refusal>) -> bool {
    matches!(result, Err(Refusal::MemoryFull { .. }))
}

#[test]
fn a_queue_counts_what_it_holds() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.queue.held_bytes(), 0);
    fixture.call(added("a", 1));
    assert_eq!(fixture.queue.held_bytes(), ONE);
    fixture.call(updated("a", 22));
    assert_eq!(fixture.queue.held_bytes(), ONE + 96 + 8);
    let item = fixture.pop();
    assert_eq!(fixture.queue.held_bytes(), ONE + 96 + 8, "a lease changes nothing");
    fixture.nack(&item);
    assert_eq!(fixture.queue.held_bytes(), ONE + 96 + 8);
    fixture.wait(1_000);
    let item = fixture.pop();
    fixture.ack(&item);
    assert_eq!(fixture.queue.held_bytes(), ONE + 1, "only the known object is left");
    assert_eq!(fixture.resync(), 1);
    assert_eq!(fixture.queue.held_bytes(), ONE + 1 + 96 + 8);
    fixture.crash();
    assert_eq!(fixture.queue.held_bytes(), ONE + 1 + 96 + 8);
    fixture.call(deleted("a"));
    let item = fixture.pop();
    fixture.ack(&item);
    assert_eq!(fixture.queue.held_bytes(), 0);
}

#[test]
fn calls_that_need_more_memory_than_there_is_change_nothing() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1));
    fixture.leave(2 * ONE);
    assert!(is_memory_full(&fixture.produce([added("b", 1), added("c", 1), added("d", 1)])));
    assert_eq!(fixture.queue.keys(), 1);
    assert!(is_memory_full(&fixture.queue.check_replace(&list(&[("b", 1), ("c", 1), ("d", 1)]))));
    assert_eq!(fixture.queue.check_replace(&list(&[("b", 1), ("c", 1)])), Ok(()));
    fixture.produce([added("b", 1), added("c", 1)]).expect("they fit");
    fixture.leave(0);
    assert!(is_memory_full(&fixture.produce([updated("a", 2)])));
    let seed = |object: Object| [(key("d"), object, None)];
    let mut empty = Fixture::new();
    empty.leave(ONE - 1);
    assert!(is_memory_full(&empty.queue.check_seed(&seed(object(1)))));
    empty.leave(ONE);
    assert_eq!(empty.queue.check_seed(&seed(object(1))), Ok(()));
}

#[test]
fn a_full_queue_can_be_emptied() {
    let mut fixture = Fixture::new();
    fixture.produce([added("a", 1), added("b", 1), added("c", 1)]).expect("there is no limit");
    fixture.leave(0);
    let same = ProduceCall::new(DeltaKind::Deleted, "b", Some(1));
    assert_eq!(fixture.produce([deleted("a"), same]).expect("deletions pass").queued, 2);
    let other = ProduceCall::new(DeltaKind::Deleted, "c", Some(2));
    assert!(is_memory_full(&fixture.produce([other])), "it has another object");
    for _ in 0..3 {
        let item = fixture.pop();
        fixture.ack(&item);
    }
    assert_eq!(fixture.queue.held_bytes(), ONE);
    fixture.leave(ONE);
    fixture.call(added("d", 1));
}

#[test]
fn in_mode_latest_a_replaced_object_makes_room() {
    let mut fixture = Fixture::in_mode(Mode::Latest);
    fixture.call(added("a", 1));
    fixture.leave(96);
    assert!(fixture.call(updated("a", 2)));
    assert!(is_memory_full(&fixture.produce([updated("a", 22)])));
}

#[test]
fn a_list_counts_only_what_the_queue_lacks() {
    let mut fixture = Fixture::new();
    fixture.replace(list(&[("a", 1), ("b", 1)])).expect("there is no limit");
    let again = list(&[("a", 1), ("b", 2), ("c", 1)]).list;
    assert_eq!(again.new_bytes(), 3 * ONE);
    assert_eq!(fixture.queue.changed_bytes(&again, 0), (2 * ONE, 3));
    assert_eq!(fixture.queue.changed_bytes(&again, 2), (ONE, 3));
}

#[test]
fn a_repeated_call_is_answered_without_memory() {
    let mut fixture = Fixture::new();
    let sequence = Sequence { source: "erp".into(), number: 1 };
    let ProduceCall(call) = added("a", 1).from("erp");
    fixture
        .queue
        .produce_once(fixture.now(), std::slice::from_ref(&call), Some(&sequence), &[])
        .expect("room");
    fixture.commit_and_check();
    fixture.leave(0);
    let again = fixture.queue.produce_once(fixture.now(), std::slice::from_ref(&call), Some(&sequence), &[]);
    assert!(again.expect("it was applied").duplicate);
}

#[test]
fn mode_keys_counts_keys() {
    let mut fixture = Fixture::in_mode(Mode::Keys);
    fixture.call(queued("a"));
    assert_eq!(fixture.queue.held_bytes(), 384 + 1);
    fixture.leave(0);
    assert!(is_memory_full(&fixture.produce([queued("b")])));
    fixture.produce([queued("a")]).expect("the key is there");
}
