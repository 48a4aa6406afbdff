//! Checkpoints, and what a queue is after its process ended: nothing is lost, nobody is blamed for
//! the time in between, and no number is given twice.

use deltaq::engine::command::Outcome;
use deltaq::engine::event::EventKind;
use deltaq::engine::limits::RECOVERY_SKIP_EVENTS;
use deltaq::engine::schedule::Slot;
use deltaq::engine::snapshot::{Gone, KeyState};

use super::*;
use crate::properties::store::Store;

/// A desk whose queue has checkpoints.
struct Kept {
    desk: Desk,
    store: Store,
}

impl Kept {
    fn new(mut desk: Desk) -> Self {
        let store = Store::new(&mut desk.queue);
        Self { desk, store }
    }

    /// A part of a checkpoint, of at most one row.
    fn part(&mut self) {
        self.store.part(&mut self.desk.queue, 1, 1, 1);
        assert_eq!(self.desk.queue.check(), Ok(()));
    }

    fn checkpoint(&mut self) {
        self.store.checkpoint(&mut self.desk.queue);
        self.survives();
    }

    /// Whatever was written of the checkpoints, the queue is whole again.
    fn survives(&mut self) {
        for writes in 0..=self.store.len() {
            let queue = self.store.recover(writes, &self.desk.events).expect("the rows fit together");
            assert_eq!(queue.image(), self.desk.queue.image(), "after {writes} writes");
        }
    }

    /// The process ends, and starts again after `millis` with what the first `events` left.
    fn restart(&mut self, millis: u64, events: usize, unclean: bool) {
        let writes = self.store.len();
        let events = self.desk.events[..events].to_vec();
        self.desk.queue = self.store.recover(writes, &events).expect("the rows fit together");
        self.store.cut(writes).expect("the rows fit together");
        let start = Time::from_micros(START_MS * 1_000);
        self.desk.twin = Queue::new(self.desk.queue.config().clone(), 0, start);
        for event in &events {
            self.desk.twin.apply(event);
        }
        self.desk.events = events;
        self.desk.now_ms += millis;
        self.desk.queue.recover(self.desk.now(), unclean);
        self.desk.settle_down();
    }

    fn crash(&mut self, millis: u64) {
        self.restart(millis, self.desk.events.len(), true);
    }
}

fn slot(desk: &Desk, name: &str) -> Slot {
    desk.queue.table().find(name).expect("the queue has the key")
}

#[test]
fn every_lease_gets_its_full_length_again() {
    let mut kept = Kept::new(Desk::new());
    kept.desk.say([added("a", 1), added("b", 1)]).expect("there is room");
    let (a, b) = (kept.desk.pop(), kept.desk.pop());
    kept.desk.extend(&b, 25_000);
    kept.checkpoint();
    kept.desk.wait(9_000);
    kept.crash(3_600_000);
    let lease = |kept: &Kept, name| kept.desk.entry(name).standing.lease().cloned().expect("it is leased");
    for (name, length) in [("a", 10_000), ("b", 25_000)] {
        let lease = lease(&kept, name);
        assert_eq!((lease.deadline, lease.length), (kept.desk.now().plus(ms(length)), ms(length)));
    }
    kept.desk.wait(9_999);
    kept.desk.ack(&a);
    kept.desk.wait(15_000);
    kept.desk.ack(&b);
    assert_eq!((kept.desk.place("a"), kept.desk.place("b")), ("known", "known"));
}

#[test]
fn a_lease_that_has_its_full_length_is_left_alone() {
    let mut kept = Kept::new(Desk::new());
    kept.desk.tell(added("a", 1));
    kept.desk.pop();
    let events = kept.desk.events.len();
    kept.restart(0, events, false);
    assert_eq!(kept.desk.events.len(), events);
    kept.desk.now_ms -= 500;
    kept.restart(0, events, false);
    assert_eq!(kept.desk.events.len(), events, "a clock that was set back shortens nothing");
}

#[test]
fn expiry_while_down_is_no_failure() {
    let mut kept = Kept::new(Desk::new());
    kept.desk.say([added("a", 1), added("b", 1).after(500)]).expect("there is room");
    let a = kept.desk.pop();
    kept.crash(86_400_000);
    assert_eq!((kept.desk.place("a"), kept.desk.failures("a")), ("leased", 0));
    assert_eq!(kept.desk.place("b"), "delayed", "recovery lets nothing happen");
    kept.desk.wait(0);
    assert_eq!((kept.desk.place("a"), kept.desk.place("b")), ("leased", "ready"));
    kept.desk.ack(&a);
}

#[test]
fn after_an_unclean_end_no_token_is_given_twice() {
    let mut kept = Kept::new(Desk::new());
    kept.desk.tell(added("a", 1));
    kept.checkpoint();
    let (rv, events) = (kept.desk.queue.resource_version(), kept.desk.events.len());
    let lost = kept.desk.pop();
    kept.restart(1, events, true);
    assert_eq!(kept.desk.events[events].kind, EventKind::Recovered);
    assert_eq!(kept.desk.queue.resource_version(), rv + RECOVERY_SKIP_EVENTS);
    assert_eq!(RECOVERY_SKIP_EVENTS, 1_048_576);
    assert_eq!(kept.desk.settle(lost.token, How::Ack), Settled::Stale { outcome: Outcome::Unknown });
    let again = kept.desk.pop();
    assert!(again.token > lost.token);
    kept.survives();
}

#[test]
fn after_a_clean_end_numbers_go_on() {
    let mut kept = Kept::new(Desk::new());
    kept.desk.tell(added("a", 1));
    kept.checkpoint();
    kept.restart(1, 1, false);
    assert_eq!(kept.desk.queue.resource_version(), 1);
    assert_eq!(kept.desk.pop().token, 2);
}

#[test]
fn a_first_replace_that_was_cut_off_leaves_the_queue_unsynced() {
    let mut kept = Kept::new(Desk::new());
    let id = kept.desk.accept(list(&[("a", 1), ("b", 1)]));
    for _ in 0..3 {
        kept.desk.step(id).expect("no guard");
    }
    assert_eq!(kept.desk.place("a"), "ready");
    kept.checkpoint();
    kept.crash(10);
    let last = kept.desk.queue.status(kept.desk.now()).last_replace.expect("it began");
    assert!(last.aborted && last.ended == Some(kept.desk.now()));
    assert_eq!((kept.desk.has_synced(), kept.desk.queue.initial_remaining()), (false, 1));
    let a = kept.desk.pop();
    assert!(a.is_in_initial_list);
    kept.desk.ack(&a);
    kept.desk.tell(added("c", 1));
    assert!(!kept.desk.has_synced(), "the list never came");
    kept.crash(10);
    kept.desk.replace(list(&[("a", 1), ("c", 1)])).expect("no guard");
    assert_eq!(kept.desk.queue.initial_remaining(), 2, "the next one is the first");
}

#[test]
fn a_key_that_goes_and_comes_back_is_as_it_is_now() {
    let mut kept = Kept::new(Desk::in_mode(Mode::Keys));
    kept.desk.say([queued("a"), queued("z")]).expect("there is room");
    kept.checkpoint();
    let a = kept.desk.pop();
    kept.desk.ack(&a);
    kept.survives();
    kept.part();
    kept.part();
    kept.survives();
    kept.desk.tell(queued("a"));
    kept.survives();
    kept.checkpoint();
    assert_eq!(kept.desk.line(), ["z", "a"]);
}

#[test]
fn a_slot_is_reused_by_another_key() {
    let mut kept = Kept::new(Desk::in_mode(Mode::Keys));
    kept.desk.say([queued("a"), queued("z")]).expect("there is room");
    kept.checkpoint();
    let was = slot(&kept.desk, "a");
    let a = kept.desk.pop();
    kept.desk.ack(&a);
    kept.desk.tell(queued("b"));
    assert_eq!(slot(&kept.desk, "b"), was);
    kept.survives();
    kept.checkpoint();
    // And the first key has a row at another slot now.
    kept.desk.tell(queued("a"));
    assert_ne!(slot(&kept.desk, "a"), was);
    kept.checkpoint();
    kept.crash(0);
    assert_eq!(kept.desk.line(), ["z", "b", "a"]);
}

#[test]
fn a_key_goes_before_the_checkpoint_comes_to_it() {
    let mut kept = Kept::new(Desk::new());
    kept.desk.say([added("z", 1), added("a", 1)]).expect("there is room");
    kept.desk.pop();
    kept.part();
    // It has no row, and replay will start when it was there. To one that begins with the deletion
    // alone, which has to wait, the lease would mean nothing, and the key would stay.
    kept.desk.tell(deleted("a").after(500));
    let a = kept.desk.pop();
    assert_eq!(text(&a), "a: Added 1, Deleted 1?");
    kept.desk.ack(&a);
    assert_eq!(kept.desk.place("a"), "absent");
    kept.survives();
    kept.checkpoint();
    kept.crash(0);
    assert_eq!(kept.desk.place("a"), "absent");
    kept.checkpoint();
}

#[test]
fn a_key_goes_after_the_checkpoint_came_to_it() {
    let mut kept = Kept::new(Desk::in_mode(Mode::Keys));
    kept.desk.say([queued("a"), queued("z")]).expect("there is room");
    kept.part();
    kept.part();
    let a = kept.desk.pop();
    kept.desk.ack(&a);
    kept.survives();
    for _ in 0..3 {
        kept.part();
        kept.survives();
    }
    kept.crash(0);
    assert_eq!(kept.desk.line(), ["z"]);
    kept.checkpoint();
}

#[test]
fn a_gravestone_names_the_event_that_removed_the_key_and_covers_it() {
    let mut desk = Desk::in_mode(Mode::Keys);
    desk.queue.journaled();
    desk.say([queued("a"), queued("z")]).expect("there is room");
    let before = desk.queue.queue_state();
    desk.queue.begin_checkpoint();
    assert!(desk.queue.capture(9, 9).gone.is_empty());
    let slot = slot(&desk, "a");
    let a = desk.pop();
    desk.ack(&a);
    let gone = Gone { key: key("a"), slot, rv: desk.queue.resource_version() };
    assert_eq!(desk.queue.capture(9, 9).gone, [gone]);
    assert!(desk.queue.capture(9, 9).gone.is_empty(), "each is told of once");

    let again = |rv| Event {
        rv,
        at: desk.now(),
        kind: EventKind::Queued { key: key("a"), due: None, rate_limited: false },
    };
    let mut queue = Queue::restore(before);
    queue.replay(&again(3), 3);
    assert!(queue.table().is_empty(), "what is passed over makes no entry");
    queue.replay(&again(4), 3);
    assert_eq!(queue.table().len(), 1);
}

#[test]
fn a_table_that_was_empty_in_between_starts_its_slots_anew() {
    let mut kept = Kept::new(Desk::in_mode(Mode::Keys));
    kept.desk.say([queued("a"), queued("b")]).expect("there is room");
    kept.checkpoint();
    kept.part();
    kept.part();
    for _ in 0..2 {
        let item = kept.desk.pop();
        kept.desk.ack(&item);
    }
    kept.desk.tell(queued("b"));
    assert_eq!(slot(&kept.desk, "b"), 0);
    kept.survives();
    kept.checkpoint();
    kept.checkpoint();
    kept.crash(0);
    assert_eq!(kept.desk.line(), ["b"]);
}

#[test]
fn a_queue_that_made_itself_says_so_until_it_is_configured() {
    let mut desk = Desk::new();
    desk.queue.set_auto_created();
    desk.twin.set_auto_created();
    let mut kept = Kept::new(desk);
    kept.desk.tell(added("a", 1));
    kept.checkpoint();
    let restored = kept.store.recover(kept.store.len(), &kept.desk.events).expect("the rows fit together");
    assert!(restored.is_auto_created());
    let config = kept.desk.queue.config().clone();
    kept.desk.queue.configure(kept.desk.now(), config.clone()).expect("nothing changes");
    kept.desk.settle_down();
    assert!(!kept.desk.queue.is_auto_created());
    kept.survives();
    let rv = kept.desk.queue.resource_version();
    kept.desk.queue.configure(kept.desk.now(), config).expect("nothing changes");
    assert_eq!(kept.desk.queue.resource_version(), rv, "it is configured already");
}

#[test]
fn what_is_replayed_was_counted_when_it_happened() {
    let mut kept = Kept::new(Desk::new());
    kept.desk.say([added("a", 1), added("b", 1)]).expect("there is room");
    kept.crash(0);
    assert_eq!(kept.desk.queue.take_tally().adds, 0);
    kept.desk.tell(added("c", 1));
    assert_eq!(kept.desk.queue.take_tally().adds, 1);
}

#[test]
fn rows_that_do_not_fit_together_are_refused() {
    let mut desk = Desk::new();
    desk.queue.journaled();
    desk.say([added("a", 1), added("b", 1)]).expect("there is room");
    let state = desk.queue.begin_checkpoint();
    let rows: Vec<KeyState> = desk.queue.capture(9, 9).keys.into_iter().map(|(_, row)| row).collect();
    let mut queue = Queue::restore(state.clone());
    queue.restore_key(3, rows[0].clone()).expect("the slot is free");
    assert_eq!(queue.restore_key(3, rows[1].clone()), Err("slot 3 has key a and key b".to_owned()));
    let mut queue = Queue::restore(state);
    for slot in [5, 2] {
        queue.restore_key(slot, rows[0].clone()).expect("the slot is free");
    }
    assert_eq!(queue.restored(), Err("key a is in slot 2 and in slot 5".to_owned()));
}

#[test]
fn a_slice_of_a_checkpoint_is_bounded() {
    let mut desk = Desk::new();
    desk.queue.journaled();
    desk.say((0..5).map(|version| updated("a", version))).expect("there is room");
    desk.say([added("b", 1), added("c", 1), added("d", 1)]).expect("there is room");
    desk.queue.begin_checkpoint();
    let mut slice = |rows, looks| {
        let slice = desk.queue.capture(rows, looks);
        (slice.keys.iter().map(|(_, row)| row.key.to_string()).collect::<Vec<_>>().join(" "), slice.ended)
    };
    assert_eq!(slice(3, 9), ("a".to_owned(), false), "a key counts with its deltas, and one is taken");
    assert_eq!(slice(2, 9), ("b c".to_owned(), false));
    assert_eq!(slice(9, 0), (String::new(), false));
    assert_eq!(slice(9, 1), ("d".to_owned(), true));
    desk.queue.end_checkpoint();
    desk.tell(updated("c", 2));
    desk.queue.begin_checkpoint();
    let second = desk.queue.capture(9, 9);
    assert_eq!(second.keys.len(), 1, "only what has changed");
    assert!(second.ended);
}

#[test]
fn what_is_stored_is_known_after_a_checkpoint_and_after_recovery() {
    let mut kept = Kept::new(Desk::new());
    assert_eq!(kept.desk.queue.live_bytes(), 0);
    kept.desk.say([added("a", 1), added("b", 1)]).expect("there is room");
    kept.checkpoint();
    let two = kept.desk.queue.live_bytes();
    assert!(two > 2 * 7);
    kept.desk.tell(added("c", 1));
    kept.checkpoint();
    assert_eq!(kept.desk.queue.live_bytes(), two / 2 * 3, "keys that have not changed count, too");
    kept.crash(0);
    assert_eq!(kept.desk.queue.live_bytes(), two / 2 * 3);
    kept.desk.tell(updated("b", 2));
    kept.desk.queue.begin_checkpoint();
    let rows = kept.desk.queue.capture(9, 9).keys.len();
    assert_eq!(rows, 1, "recovery gives no reason to write all rows again");
}
