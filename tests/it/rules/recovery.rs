//! Checkpoints and restarts: nothing is lost, downtime counts as no failure, and no number is issued twice.

use deltaq::engine::Restore;
use deltaq::engine::command::Outcome;
use deltaq::engine::event::{Ending, EventKind, Leased, Queued, ReplaceCounts, ReplaceEnded};
use deltaq::engine::limits::RECOVERY_SKIP_EVENTS;
use deltaq::engine::schedule::Slot;
use deltaq::engine::snapshot::{KeyState, RemovedKey};

use super::*;
use crate::properties::store::Store;

/// A fixture whose queue has checkpoints.
struct Kept {
    fixture: Fixture,
    store: Store,
}

impl Kept {
    fn new(mut fixture: Fixture) -> Self {
        let store = Store::new(&mut fixture.queue);
        Self { fixture, store }
    }

    /// A part of a checkpoint, of at most one row.
    fn part(&mut self) {
        self.store.part(&mut self.fixture.queue, 1, 1, 1);
        assert_eq!(self.fixture.queue.check(), Ok(()));
    }

    fn checkpoint(&mut self) {
        self.store.checkpoint(&mut self.fixture.queue);
        self.survives();
    }

    /// Checks that every part of the checkpoints restores the whole queue.
    fn survives(&mut self) {
        for writes in 0..=self.store.len() {
            let queue = self.store.recover(writes, &self.fixture.events).expect("the rows fit together");
            assert_eq!(queue.image(), self.fixture.queue.image(), "after {writes} writes");
        }
    }

    /// Restarts the process after `millis`, with the state of the first `events`.
    fn restart(&mut self, millis: u64, events: usize, unclean: bool) {
        let writes = self.store.len();
        let events = self.fixture.events[..events].to_vec();
        self.fixture.queue = self.store.recover(writes, &events).expect("the rows fit together");
        self.store.cut(writes).expect("the rows fit together");
        let start = Time::from_micros(START_MS * 1_000);
        self.fixture.twin = Queue::new(self.fixture.queue.config().clone(), 0, start);
        for event in &events {
            self.fixture.twin.apply(event);
        }
        self.fixture.events = events;
        self.fixture.now_ms += millis;
        self.fixture.queue.recover(self.fixture.now(), unclean);
        self.fixture.settle_down();
    }

    fn crash(&mut self, millis: u64) {
        self.restart(millis, self.fixture.events.len(), true);
    }
}

fn slot(fixture: &Fixture, name: &str) -> Slot {
    fixture.queue.table().find(name).expect("the queue has the key")
}

#[test]
fn every_lease_gets_its_full_length_again() {
    let mut kept = Kept::new(Fixture::new());
    kept.fixture.produce([added("a", 1), added("b", 1)]).expect("there is room");
    let (a, b) = (kept.fixture.pop(), kept.fixture.pop());
    kept.fixture.extend(&b, 25_000);
    kept.checkpoint();
    kept.fixture.wait(9_000);
    kept.crash(3_600_000);
    let lease =
        |kept: &Kept, name| kept.fixture.entry(name).schedule_state.lease().cloned().expect("it is leased");
    for (name, length) in [("a", 10_000), ("b", 25_000)] {
        let lease = lease(&kept, name);
        assert_eq!((lease.deadline, lease.length), (kept.fixture.now().plus(ms(length)), ms(length)));
    }
    kept.fixture.wait(9_999);
    kept.fixture.ack(&a);
    kept.fixture.wait(15_000);
    kept.fixture.ack(&b);
    assert_eq!((kept.fixture.place("a"), kept.fixture.place("b")), ("known", "known"));
}

#[test]
fn a_lease_that_has_its_full_length_is_left_alone() {
    let mut kept = Kept::new(Fixture::new());
    kept.fixture.call(added("a", 1));
    kept.fixture.pop();
    let events = kept.fixture.events.len();
    kept.restart(0, events, false);
    assert_eq!(kept.fixture.events.len(), events);
    kept.fixture.now_ms -= 500;
    kept.restart(0, events, false);
    assert_eq!(kept.fixture.events.len(), events, "a clock that was set back shortens nothing");
}

#[test]
fn expiry_while_down_is_no_failure() {
    let mut kept = Kept::new(Fixture::new());
    kept.fixture.produce([added("a", 1), added("b", 1).after(500)]).expect("there is room");
    let a = kept.fixture.pop();
    kept.crash(86_400_000);
    assert_eq!((kept.fixture.place("a"), kept.fixture.failures("a")), ("leased", 0));
    assert_eq!(kept.fixture.place("b"), "delayed", "recovery lets nothing happen");
    kept.fixture.wait(0);
    assert_eq!((kept.fixture.place("a"), kept.fixture.place("b")), ("leased", "ready"));
    kept.fixture.ack(&a);
}

#[test]
fn after_an_unclean_end_no_token_is_issued_twice() {
    let mut kept = Kept::new(Fixture::new());
    kept.fixture.call(added("a", 1));
    kept.checkpoint();
    let (rv, events) = (kept.fixture.queue.resource_version(), kept.fixture.events.len());
    let lost = kept.fixture.pop();
    kept.restart(1, events, true);
    assert_eq!(kept.fixture.events[events].kind, EventKind::Recovered);
    assert_eq!(kept.fixture.queue.resource_version(), rv + RECOVERY_SKIP_EVENTS);
    assert_eq!(RECOVERY_SKIP_EVENTS, 1_048_576);
    assert_eq!(kept.fixture.settle(lost.token, How::Ack), Settled::Stale { outcome: Outcome::Unknown });
    let again = kept.fixture.pop();
    assert!(again.token > lost.token);
    kept.survives();
}

#[test]
fn after_a_clean_end_numbers_go_on() {
    let mut kept = Kept::new(Fixture::new());
    kept.fixture.call(added("a", 1));
    kept.checkpoint();
    kept.restart(1, 1, false);
    assert_eq!(kept.fixture.queue.resource_version(), 1);
    assert_eq!(kept.fixture.pop().token, Token::new(2));
}

#[test]
fn an_interrupted_first_replace_leaves_the_queue_unsynced() {
    let mut kept = Kept::new(Fixture::new());
    let id = kept.fixture.accept(list(&[("a", 1), ("b", 1)]));
    for _ in 0..3 {
        kept.fixture.step(id).expect("no guard");
    }
    assert_eq!(kept.fixture.place("a"), "ready");
    kept.checkpoint();
    kept.crash(10);
    let last = kept.fixture.queue.status(kept.fixture.now()).last_replace.expect("it began");
    assert!(last.aborted && last.ended == Some(kept.fixture.now()));
    assert_eq!((kept.fixture.has_synced(), kept.fixture.queue.initial_remaining()), (false, 1));
    let a = kept.fixture.pop();
    assert!(a.is_in_initial_list);
    kept.fixture.ack(&a);
    kept.fixture.call(added("c", 1));
    assert!(!kept.fixture.has_synced(), "the list never came");
    kept.crash(10);
    kept.fixture.replace(list(&[("a", 1), ("c", 1)])).expect("no guard");
    assert_eq!(kept.fixture.queue.initial_remaining(), 2, "the next one is the first");
}

#[test]
fn a_key_that_goes_and_comes_back_is_as_it_is_now() {
    let mut kept = Kept::new(Fixture::in_mode(Mode::Keys));
    kept.fixture.produce([queued("a"), queued("z")]).expect("there is room");
    kept.checkpoint();
    let a = kept.fixture.pop();
    kept.fixture.ack(&a);
    kept.survives();
    kept.part();
    kept.part();
    kept.survives();
    kept.fixture.call(queued("a"));
    kept.survives();
    kept.checkpoint();
    assert_eq!(kept.fixture.ready_queue(), ["z", "a"]);
}

#[test]
fn a_slot_is_reused_by_another_key() {
    let mut kept = Kept::new(Fixture::in_mode(Mode::Keys));
    kept.fixture.produce([queued("a"), queued("z")]).expect("there is room");
    kept.checkpoint();
    let was = slot(&kept.fixture, "a");
    let a = kept.fixture.pop();
    kept.fixture.ack(&a);
    kept.fixture.call(queued("b"));
    assert_eq!(slot(&kept.fixture, "b"), was);
    kept.survives();
    kept.checkpoint();
    // And the first key has a row at another slot now.
    kept.fixture.call(queued("a"));
    assert_ne!(slot(&kept.fixture, "a"), was);
    kept.checkpoint();
    kept.crash(0);
    assert_eq!(kept.fixture.ready_queue(), ["z", "b", "a"]);
}

#[test]
fn a_key_goes_before_the_checkpoint_comes_to_it() {
    let mut kept = Kept::new(Fixture::new());
    kept.fixture.produce([added("z", 1), added("a", 1)]).expect("there is room");
    kept.fixture.pop();
    kept.part();
    // It has no row, and replay will start when it was there. To one that begins with the deletion
    // alone, which has to wait, the lease would mean nothing, and the key would stay.
    kept.fixture.call(deleted("a").after(500));
    let a = kept.fixture.pop();
    assert_eq!(text(&a), "a: Added 1, Deleted 1?");
    kept.fixture.ack(&a);
    assert_eq!(kept.fixture.place("a"), "absent");
    kept.survives();
    kept.checkpoint();
    kept.crash(0);
    assert_eq!(kept.fixture.place("a"), "absent");
    kept.checkpoint();
}

#[test]
fn a_key_goes_after_the_checkpoint_came_to_it() {
    let mut kept = Kept::new(Fixture::in_mode(Mode::Keys));
    kept.fixture.produce([queued("a"), queued("z")]).expect("there is room");
    kept.part();
    kept.part();
    let a = kept.fixture.pop();
    kept.fixture.ack(&a);
    kept.survives();
    for _ in 0..3 {
        kept.part();
        kept.survives();
    }
    kept.crash(0);
    assert_eq!(kept.fixture.ready_queue(), ["z"]);
    kept.checkpoint();
}

#[test]
fn a_tombstone_row_names_the_event_that_removed_the_key_and_covers_it() {
    let mut fixture = Fixture::in_mode(Mode::Keys);
    fixture.queue.journaled();
    fixture.produce([queued("a"), queued("z")]).expect("there is room");
    let before = fixture.queue.queue_state();
    fixture.queue.begin_checkpoint();
    assert!(fixture.queue.capture(9, 9).removed.is_empty());
    let slot = slot(&fixture, "a");
    let a = fixture.pop();
    fixture.ack(&a);
    let removed = RemovedKey { key: key("a"), slot, rv: fixture.queue.resource_version() };
    assert_eq!(fixture.queue.capture(9, 9).removed, [removed]);
    assert!(fixture.queue.capture(9, 9).removed.is_empty(), "each is told of once");

    let again = |rv| Event {
        rv,
        at: fixture.now(),
        kind: EventKind::Queued(Queued { key: key("a"), due: None, rate_limited: false }),
    };
    let mut queue = Restore::new(before).finish().expect("no rows, no conflict");
    queue.replay(&again(3), 3).expect("the event fits");
    assert!(queue.table().is_empty(), "what is ignored makes no entry");
    queue.replay(&again(4), 3).expect("the event fits");
    assert_eq!(queue.table().len(), 1);
}

#[test]
fn a_table_that_was_empty_in_between_starts_its_slots_anew() {
    let mut kept = Kept::new(Fixture::in_mode(Mode::Keys));
    kept.fixture.produce([queued("a"), queued("b")]).expect("there is room");
    kept.checkpoint();
    kept.part();
    kept.part();
    for _ in 0..2 {
        let item = kept.fixture.pop();
        kept.fixture.ack(&item);
    }
    kept.fixture.call(queued("b"));
    assert_eq!(slot(&kept.fixture, "b"), Slot::MIN);
    kept.survives();
    kept.checkpoint();
    kept.checkpoint();
    kept.crash(0);
    assert_eq!(kept.fixture.ready_queue(), ["b"]);
}

#[test]
fn an_auto_created_queue_is_marked_until_it_is_configured() {
    let mut fixture = Fixture::new();
    fixture.queue = fixture.queue.auto_created();
    fixture.twin = fixture.twin.auto_created();
    let mut kept = Kept::new(fixture);
    kept.fixture.call(added("a", 1));
    kept.checkpoint();
    let restored = kept.store.recover(kept.store.len(), &kept.fixture.events).expect("the rows fit together");
    assert!(restored.is_auto_created());
    let config = kept.fixture.queue.config().clone();
    kept.fixture.queue.configure(kept.fixture.now(), config.clone()).expect("nothing changes");
    kept.fixture.settle_down();
    assert!(!kept.fixture.queue.is_auto_created());
    kept.survives();
    let rv = kept.fixture.queue.resource_version();
    kept.fixture.queue.configure(kept.fixture.now(), config).expect("nothing changes");
    assert_eq!(kept.fixture.queue.resource_version(), rv, "it is configured already");
}

#[test]
fn replayed_events_are_not_counted_again() {
    let mut kept = Kept::new(Fixture::new());
    kept.fixture.produce([added("a", 1), added("b", 1)]).expect("there is room");
    assert_eq!(kept.fixture.counters.adds, 2);
    kept.crash(0);
    assert_eq!(kept.fixture.counters.adds, 2);
    kept.fixture.call(added("c", 1));
    assert_eq!(kept.fixture.counters.adds, 3);
}

#[test]
fn rows_that_do_not_fit_together_are_refused() {
    let mut fixture = Fixture::new();
    fixture.queue.journaled();
    fixture.produce([added("a", 1), added("b", 1)]).expect("there is room");
    let state = fixture.queue.begin_checkpoint();
    let rows: Vec<KeyState> = fixture.queue.capture(9, 9).keys.into_iter().map(|(_, row)| row).collect();
    let mut restore = Restore::new(state.clone());
    restore.key(Slot::new(3), rows[0].clone()).expect("the slot is free");
    assert_eq!(restore.key(Slot::new(3), rows[1].clone()), Err("slot 3 has key a and key b".to_owned()));
    let mut restore = Restore::new(state);
    for slot in [5, 2] {
        restore.key(Slot::new(slot), rows[0].clone()).expect("the slot is free");
    }
    assert_eq!(restore.finish().err(), Some("key a is in slot 2 and in slot 5".to_owned()));
}

#[test]
fn a_slice_of_a_checkpoint_is_bounded() {
    let mut fixture = Fixture::new();
    fixture.queue.journaled();
    fixture.produce((0..5).map(|version| updated("a", version))).expect("there is room");
    fixture.produce([added("b", 1), added("c", 1), added("d", 1)]).expect("there is room");
    fixture.queue.begin_checkpoint();
    let mut slice = |rows, looks| {
        let slice = fixture.queue.capture(rows, looks);
        (slice.keys.iter().map(|(_, row)| row.key.to_string()).collect::<Vec<_>>().join(" "), slice.ended)
    };
    assert_eq!(slice(3, 9), ("a".to_owned(), false), "a key counts with its deltas, and one is taken");
    assert_eq!(slice(2, 9), ("b c".to_owned(), false));
    assert_eq!(slice(9, 0), (String::new(), false));
    assert_eq!(slice(9, 1), ("d".to_owned(), true));
    fixture.queue.end_checkpoint();
    fixture.call(updated("c", 2));
    fixture.queue.begin_checkpoint();
    let second = fixture.queue.capture(9, 9);
    assert_eq!(second.keys.len(), 1, "only what has changed");
    assert!(second.ended);
}

#[test]
fn the_stored_rows_are_known_after_a_checkpoint_and_after_recovery() {
    let mut kept = Kept::new(Fixture::new());
    assert_eq!(kept.fixture.queue.live_bytes(), 0);
    kept.fixture.produce([added("a", 1), added("b", 1)]).expect("there is room");
    kept.checkpoint();
    let two = kept.fixture.queue.live_bytes();
    assert!(two > 2 * 7);
    kept.fixture.call(added("c", 1));
    kept.checkpoint();
    assert_eq!(kept.fixture.queue.live_bytes(), two / 2 * 3, "keys that have not changed count, too");
    kept.crash(0);
    assert_eq!(kept.fixture.queue.live_bytes(), two / 2 * 3);
    kept.fixture.call(updated("b", 2));
    kept.fixture.queue.begin_checkpoint();
    let rows = kept.fixture.queue.capture(9, 9).keys.len();
    assert_eq!(rows, 1, "recovery gives no reason to write all rows again");
}

/// Events that contradict a queue with the ready key `a`, and what each one contradicts.
fn misfits() -> [(u64, EventKind, &'static str); 9] {
    let a = || key("a");
    let (deadline, counts) = (Time::from_micros(9), ReplaceCounts::default());
    let ended = ReplaceEnded { source: None, first: false, aborted: false, counts };
    let leased = Leased { key: key("b"), deadline, worker: None, pop_id: None };
    [
        (1, EventKind::Paused, "its number does not follow that of the event before"),
        (3, EventKind::Paused, "its number does not follow that of the event before"),
        (2, EventKind::Leased(leased), "the key is not ready"),
        (
            2,
            EventKind::Settled { key: a(), token: Token::new(1), ending: Ending::Acked },
            "the key does not have this lease",
        ),
        (2, EventKind::Extended { key: a(), deadline }, "the key does not have this lease"),
        (2, EventKind::DelayElapsed { key: a() }, "the key has no delay"),
        (2, EventKind::Redriven { key: a() }, "the key is not parked"),
        (
            2,
            EventKind::TakenOver { key: a(), owner: "erp".into() },
            "the key has no object that could be owned",
        ),
        (2, EventKind::ReplaceEnded(ended), "no Replace is running"),
    ]
}

fn queue_with_a_ready_key() -> Queue {
    let mut fixture = Fixture::in_mode(Mode::Keys);
    fixture.produce([queued("a")]).expect("there is room");
    assert_eq!(fixture.queue.resource_version(), 1);
    fixture.queue
}

#[test]
fn replay_refuses_an_event_that_does_not_fit_and_names_it() {
    for (rv, kind, reason) in misfits() {
        let mut queue = queue_with_a_ready_key();
        let at = Time::from_micros(START_MS * 1_000);
        let misfit = queue.replay(&Event { rv, at, kind: kind.clone() }, 0).expect_err(reason);
        assert_eq!((misfit.rv, misfit.reason), (rv, reason));
        let named = kind.key().map_or(String::new(), |key| format!(" of key \"{key}\""));
        let text =
            format!("event {rv} ({}{named}) does not fit the state of the queue: {reason}", misfit.event);
        assert_eq!(misfit.to_string(), text);
        assert!(format!("{kind:?}").starts_with(&misfit.event), "{text}");
    }
}

#[test]
#[should_panic(expected = "event 2 (Extended of key \"a\") does not fit the state of the queue")]
fn apply_panics_on_an_event_that_does_not_fit() {
    let mut queue = queue_with_a_ready_key();
    let at = Time::from_micros(START_MS * 1_000);
    let kind = EventKind::Extended { key: key("a"), deadline: at };
    queue.apply(&Event { rv: 2, at, kind });
}
