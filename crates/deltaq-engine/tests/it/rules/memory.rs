//! How much memory a queue holds, and calls that need more than there is.

use deltaq_engine::index_settings::IndexSettings;
use deltaq_engine::indexes::NoIndex;
use deltaq_engine::room::Room;
use deltaq_engine::trace::TraceContext;

use super::*;

/// What a key with one delta of `object` takes, in bytes.
const ONE: usize = 384 + 1 + 96 + 7;

/// What the source, the owner and the trace of a delta take without their texts.
const FACTS: usize = 56;

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
    assert_eq!(fixture.queue.held_bytes(), ONE + 96 + 8, "a lease without names changes nothing");
    fixture.ack(&item);
    let record = fixture.queue.held_bytes() - (ONE + 1);
    assert!((1..500).contains(&record), "the known object is left, and {record} bytes for the settled lease");
    assert_eq!(fixture.resync(), 1);
    assert_eq!(fixture.queue.held_bytes(), ONE + 1 + 96 + 8 + record);
    fixture.crash();
    assert_eq!(fixture.queue.held_bytes(), ONE + 1 + 96 + 8 + record);
    fixture.call(deleted("a"));
    let item = fixture.pop();
    fixture.ack(&item);
    assert!(fixture.queue.held_bytes() < 500);
}

#[test]
fn the_names_of_a_call_and_of_a_lease_count() {
    let mut fixture = Fixture::new();
    let trace = TraceContext::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").map(Arc::new);
    let source = "s".repeat(100);
    fixture.call(added("a", 1).from(&source));
    let source = fixture.queue.held_bytes() - ONE;
    assert_eq!(
        source,
        FACTS + 100 + 100 + 256 + 100,
        "the source and the owner of the delta, and the history of the source"
    );
    let mut call = updated("a", 1).from(&"s".repeat(100));
    call.0.trace = trace;
    fixture.call(call);
    let traced = fixture.queue.held_bytes();
    assert_eq!(traced, ONE + source + 96 + 7 + FACTS + 100 + 100 + 25);
    let named = fixture.pop_with(|pop| {
        (pop.worker, pop.id) = (Some("w".repeat(30).as_str().into()), Some("p".repeat(40).into()));
    });
    assert_eq!(fixture.queue.held_bytes(), traced + 30 + 40);
    fixture.settle(named.expect("the queue is open")[0].token, How::Release);
    let record = fixture.queue.held_bytes() - traced;
    assert!((1..500).contains(&record), "{record}");
}

#[test]
fn an_error_counts_and_is_shortened_if_there_is_no_room() {
    let mut fixture = Fixture::new();
    fixture.produce([added("a", 1), added("b", 1)]).expect("there is no limit");
    let long: Arc<str> = "é".repeat(2_000).into();
    let fail = |fixture: &mut Fixture, error: &Arc<str>| {
        let item = fixture.pop();
        let how = How::Nack { delay: Some(Duration::ZERO), floor: false, error: Some(error.clone()) };
        fixture.settle(item.token, how);
        fixture.entry(item.key.as_str()).schedule_state.last_error().map(str::len)
    };
    assert_eq!(fail(&mut fixture, &long), Some(4_000));
    let held = fixture.queue.held_bytes();
    assert!((4_000..4_500).contains(&(held - 2 * ONE)), "{held}");
    fixture.leave(0);
    let odd: Arc<str> = format!("x{long}").into();
    assert_eq!(fail(&mut fixture, &odd), Some(255), "the 256th byte is the first one of a character");
    assert_eq!(fail(&mut fixture, &odd), Some(3_999), "this key keeps as much as it has");
    fixture.queue.forget(fixture.now(), ["a", "b"]);
    fixture.commit_and_check();
    assert!(fixture.queue.held_bytes() < 2 * ONE + 500);
}

#[test]
fn all_errors_of_a_call_share_the_room() {
    let mut fixture = Fixture::new();
    fixture.produce((0..9).map(|n| added(&format!("k{n}"), 1))).expect("there is no limit");
    let items = fixture.pop_with(|pop| pop.max = 9).expect("the queue is open");
    let error: Arc<str> = "e".repeat(1_000).into();
    let nack = |item: &Item| {
        let how = How::Nack { delay: None, floor: false, error: Some(error.clone()) };
        Settle { token: item.token, how }
    };
    fixture.leave(3_500);
    let settles: Vec<Settle> = items.iter().map(nack).collect();
    fixture.queue.settle(fixture.now(), &settles);
    fixture.commit_and_check();
    let errors = items.iter().filter_map(|item| fixture.entry(item.key.as_str()).schedule_state.last_error());
    let lengths: Vec<usize> = errors.map(str::len).collect();
    assert_eq!(lengths, [1_000, 1_000, 1_000, 256, 256, 256, 256, 256, 256]);
}

#[test]
fn in_mode_events_only_the_first_delete_is_free() {
    let mut fixture = Fixture::in_mode(Mode::Events);
    fixture.produce([added("a", 1), added("b", 1)]).expect("there is no limit");
    fixture.leave(0);
    assert!(is_memory_full(&fixture.produce([deleted("a"), deleted("a")])));
    let same = || ProduceCall::new(DeltaKind::Deleted, "b", Some(1));
    assert_eq!(fixture.produce([deleted("a"), same()]).expect("deletions pass").queued, 2);
    assert!(is_memory_full(&fixture.produce([deleted("a")])));
    assert!(is_memory_full(&fixture.produce([same()])));
    assert!(is_memory_full(&fixture.produce([deleted("absent")])));
    let held = fixture.queue.held_bytes();
    fixture.leave(96 + 7);
    fixture.produce([same()]).expect("there is room for one");
    assert_eq!(fixture.queue.held_bytes(), held + 96 + 7);
}

#[test]
fn an_accepted_list_counts() {
    let mut fixture = Fixture::new();
    fixture.leave(3 * ONE);
    let first = fixture.queue.accept_replace(fixture.now(), list_of("erp", &[("a", 1), ("b", 1)]));
    fixture.commit_and_check();
    assert_eq!(fixture.queue.held_bytes(), 2 * ONE);
    fixture.leave(ONE);
    assert!(is_memory_full(&fixture.queue.check_replace(&list(&[("c", 1), ("d", 1)]))));
    fixture.finish(first.expect("there is room")).expect("it is applied");
    let names = FACTS + 2 * "erp".len();
    assert_eq!(fixture.queue.held_bytes(), 2 * (ONE + names) + 256 + "erp".len());
    let seed = [(key("s"), object(1), None)];
    let mut seeded = Fixture::new();
    seeded.queue.begin_seed(&seed);
    assert_eq!(seeded.queue.held_bytes(), ONE);
    let now = seeded.now();
    seeded.queue.seed_step(now, seed);
    seeded.queue.end_seed();
    seeded.commit_and_check();
    assert_eq!(seeded.queue.held_bytes(), ONE);
}

#[test]
fn indexes_without_room_are_dropped_and_built_again() {
    let indexes = IndexSettings::new([("tags", "/tags")]).expect("the settings are valid");
    let mut fixture = Fixture::with(|config| config.indexes = indexes);
    let tagged = |name: &str, from: u32| {
        let tags: Vec<String> = (from..from + 100).map(|tag| tag.to_string()).collect();
        let mut call = added(name, 1);
        call.0.object = Some(Object::from_valid(&format!(r#"{{"tags":{tags:?}}}"#)));
        call
    };
    fixture.make_known(tagged("a", 0));
    fixture.make_known(tagged("b", 100));
    let with = fixture.queue.held_bytes();
    assert!(with > 2 * (ONE + 100 * 80), "{with}");
    let room = |held: usize, limit: usize| Room { held, limit, max: limit, token: None };
    let left = |bytes: usize| room(1 << 20, (1 << 20) + bytes);
    assert!(fixture.queue.limit_indexes(|queue| room(queue.held_bytes(), with)).is_none());
    assert!(fixture.queue.limit_indexes(|_| unreachable!("they have not grown")).is_none());
    fixture.make_known(tagged("c", 200));
    assert!(fixture.queue.limit_indexes(|queue| room(queue.held_bytes(), with)).is_some());
    fixture.commit_and_check();
    let without = fixture.queue.held_bytes();
    assert!(without < 3 * (ONE + 700) + 500, "{without}");
    assert_eq!(fixture.queue.check_index("tags"), Err(NoIndex::NoRoom));
    let mut config = Config::clone(fixture.queue.config());
    config.max_keys = 77;
    fixture.queue.configure(fixture.now(), config.into(), None).expect("the settings may change");
    fixture.commit_and_check();
    assert_eq!(
        fixture.queue.check_index("tags"),
        Err(NoIndex::NoRoom),
        "another setting does not build them"
    );
    assert!(!fixture.queue.room_for_indexes(|| left(3 * 100 * 80)));
    assert!(fixture.queue.room_for_indexes(|| left(4 * 100 * 80)));
    assert_eq!(fixture.queue.check_index("tags"), Err(NoIndex::Building));
    assert!(fixture.queue.build_indexes(1_000));
    fixture.commit_and_check();
    assert_eq!(fixture.queue.check_index("tags"), Ok(()));
    for _ in 0..20 {
        fixture.queue.limit_indexes(|_| room(1, 0));
        assert!(!fixture.queue.room_for_indexes(|| left(100 * 80)));
        assert!(fixture.queue.room_for_indexes(|| left(4 * 100 * 80)), "they want no more");
        assert!(fixture.queue.build_indexes(1_000));
    }
    fixture.queue.limit_indexes(|_| room(1, 0));
    for name in ["a", "b"] {
        fixture.call(deleted(name));
        let item = fixture.pop();
        fixture.ack(&item);
    }
    assert!(!fixture.queue.room_for_indexes(|| left(100 * 80)));
    assert!(
        fixture.queue.room_for_indexes(|| left(2 * 100 * 80)),
        "a third of the keys wants a third of the room"
    );
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
    assert!(fixture.queue.held_bytes() < ONE + 500);
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
