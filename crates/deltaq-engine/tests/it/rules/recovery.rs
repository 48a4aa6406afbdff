//! Checkpoints and restarts: no change is lost, downtime does not expire leases, and no number is issued twice.

use deltaq_engine::command::{HoldScope, Outcome};
use deltaq_engine::delta::Provenance;
use deltaq_engine::event::{Ending, EventKind, Leased, Queued, ReplaceCounts, ReplaceEnded, ViewChanges};
use deltaq_engine::id::{Rv, Slot};
use deltaq_engine::limits::{LIFE_SKIP_EVENTS, RV_MAX};
use deltaq_engine::lives::{Birth, LifeId};
use deltaq_engine::schedule::HeadStart;
use deltaq_engine::snapshot::{KeyState, RemovedKey};
use deltaq_engine::{NoNumbers, Restore};

use super::*;
use crate::properties::checkpoints::Checkpoints;

/// A fixture whose queue is written to a store.
struct Journaled {
    fixture: Fixture,
    store: Checkpoints,
}

impl Journaled {
    fn new(mut fixture: Fixture) -> Self {
        let store = Checkpoints::new(&mut fixture.queue);
        Self { fixture, store }
    }

    /// Runs the next part of a checkpoint, with at most one row.
    fn checkpoint_step(&mut self) {
        self.store.part(&mut self.fixture.queue, 1, 1, 1);
        assert_eq!(self.fixture.queue.check(), Ok(()));
    }

    fn checkpoint(&mut self) {
        self.store.checkpoint(&mut self.fixture.queue);
        self.assert_restores();
    }

    /// Checks that each prefix of the written transactions restores the whole queue.
    fn assert_restores(&mut self) {
        for writes in 0..=self.store.len() {
            let queue = self.store.recover(writes, &self.fixture.events).expect("the rows are consistent");
            assert_eq!(queue.image(), self.fixture.queue.image(), "after {writes} writes");
        }
    }

    /// Restarts the process after `millis`, with the state of the first `events`.
    fn restart(&mut self, millis: u64, events: usize) {
        let writes = self.store.len();
        let events = self.fixture.events[..events].to_vec();
        self.fixture.queue = self.store.recover(writes, &events).expect("the rows are consistent");
        self.store.cut(writes);
        let start = Time::from_micros(START_MS * 1_000);
        self.fixture.rebuilt = Queue::new(self.fixture.queue.config().clone(), Rv::ZERO, start);
        for event in &events {
            self.fixture.rebuilt.apply(event);
        }
        self.fixture.events = events;
        self.fixture.now_ms += millis;
        self.fixture.queue.recover(self.fixture.now(), NEXT_LIFE).expect("there are numbers left");
        self.fixture.commit_and_check();
    }

    fn crash(&mut self, millis: u64) {
        self.restart(millis, self.fixture.events.len());
    }
}

fn slot(fixture: &Fixture, name: &str) -> Slot {
    fixture.queue.table().find(name).expect("the queue has the key")
}

#[test]
fn an_undelivered_lease_of_an_earlier_life_stays_with_its_worker() {
    let mut journaled = Journaled::new(Fixture::new());
    journaled.fixture.produce([added("a", 1), added("b", 1)]).expect("no refusal");
    let before = journaled.fixture.pop().token;
    journaled.crash(0);
    let after = journaled.fixture.pop().token;
    let fixture = &mut journaled.fixture;
    fixture.queue.return_undelivered(fixture.now(), &[before, after]);
    fixture.commit_and_check();
    assert_eq!((fixture.place("a"), fixture.place("b")), ("leased", "ready"));
    assert!(matches!(fixture.settle(before, How::Ack), Settled::Ok { .. }));
}

#[test]
fn every_lease_gets_its_full_length_again() {
    let mut journaled = Journaled::new(Fixture::new());
    journaled.fixture.produce([added("a", 1), added("b", 1)]).expect("no refusal");
    let (a, b) = (journaled.fixture.pop(), journaled.fixture.pop());
    journaled.fixture.extend(&b, 25_000);
    journaled.checkpoint();
    journaled.fixture.wait(9_000);
    journaled.crash(3_600_000);
    let lease = |journaled: &Journaled, name| {
        journaled.fixture.entry(name).schedule_state.lease().cloned().expect("the key is leased")
    };
    for (name, length) in [("a", 10_000), ("b", 25_000)] {
        let lease = lease(&journaled, name);
        assert_eq!((lease.deadline, lease.length), (journaled.fixture.now().plus(ms(length)), ms(length)));
    }
    journaled.fixture.wait(9_999);
    journaled.fixture.ack(&a);
    journaled.fixture.wait(15_000);
    journaled.fixture.ack(&b);
    assert_eq!((journaled.fixture.place("a"), journaled.fixture.place("b")), ("known", "known"));
}

/// A hold is an instant: it neither begins anew nor waits for the downtime to be made up for.
#[test]
fn a_hold_survives_a_restart_and_ends_at_its_instant() {
    for (has_checkpoint, downtime) in [(false, 10), (true, 10), (false, 9_999), (true, 50_000)] {
        let mut journaled = Journaled::new(Fixture::new());
        for key in ["a", "b"] {
            journaled.fixture.call(added(key, 1));
        }
        let item = journaled.fixture.pop();
        let how = How::Hold { scope: HoldScope::Queue, acks: false, length: ms(10_000) };
        let until = journaled.fixture.now().plus(ms(10_000));
        let settled = journaled.fixture.settle(item.token, how);
        assert!(matches!(settled, Settled::Held { until: held, .. } if held == until), "{settled:?}");
        if has_checkpoint {
            journaled.checkpoint();
        }
        journaled.crash(downtime);
        let now = journaled.fixture.now();
        let (is_held, found) = (now < until, journaled.fixture.queue.switches(now).held_until);
        assert_eq!((found, journaled.fixture.queue.has_ready(now)), (is_held.then_some(until), !is_held));
        if is_held {
            assert_eq!(journaled.fixture.pop_with(|_| {}), Ok(vec![]));
            assert_eq!(journaled.fixture.queue.next_deadline(), Some(until));
            journaled.fixture.now_ms += 10_000 - downtime;
        }
        assert_eq!(journaled.fixture.pop().key.as_str(), "b");
    }
}

#[test]
fn a_restart_does_not_renew_a_lease_that_has_its_full_length() {
    let mut journaled = Journaled::new(Fixture::new());
    journaled.fixture.call(added("a", 1));
    journaled.fixture.pop();
    let events = journaled.fixture.events.len();
    journaled.restart(0, events);
    assert_eq!(journaled.fixture.events.len(), events + 1, "only the life has begun");
    journaled.fixture.now_ms -= 500;
    journaled.restart(0, events);
    assert_eq!(
        journaled.fixture.events.len(),
        events + 1,
        "a clock that was set back does not shorten the lease"
    );
}

#[test]
fn downtime_does_not_expire_leases() {
    let mut journaled = Journaled::new(Fixture::new());
    journaled.fixture.produce([added("a", 1), added("b", 1).after(500)]).expect("no refusal");
    let a = journaled.fixture.pop();
    journaled.crash(86_400_000);
    assert_eq!((journaled.fixture.place("a"), journaled.fixture.failures("a")), ("leased", 0));
    assert_eq!(journaled.fixture.place("b"), "delayed", "recovery does not process deadlines");
    journaled.fixture.wait(0);
    assert_eq!((journaled.fixture.place("a"), journaled.fixture.place("b")), ("leased", "ready"));
    journaled.fixture.ack(&a);
}

#[test]
fn no_token_is_issued_twice_after_a_load() {
    let mut journaled = Journaled::new(Fixture::new());
    journaled.fixture.call(added("a", 1));
    journaled.checkpoint();
    let (rv, events) = (journaled.fixture.queue.resource_version(), journaled.fixture.events.len());
    let lost = journaled.fixture.pop();
    journaled.restart(1, events);
    assert_eq!(journaled.fixture.events[events].kind, EventKind::Recovered { life: NEXT_LIFE.id });
    assert_eq!(journaled.fixture.queue.resource_version(), rv.plus(LIFE_SKIP_EVENTS + 7));
    assert_eq!(LIFE_SKIP_EVENTS, 1_048_576);
    assert_eq!(journaled.fixture.settle(lost.token, How::Ack), Settled::Stale { outcome: Outcome::Unknown });
    let again = journaled.fixture.pop();
    assert!(again.token > lost.token);
    journaled.assert_restores();
}

/// A restored copy begins its life later than the time that was lost, so its floor is above all numbers of that time. Behind a clock
/// that was set back, the ids of the lives keep their numbers apart.
#[test]
fn a_life_begins_right_above_its_floor_while_the_clock_is_right() {
    let birth = |id: u32, floor: u64| Birth { id: LifeId::new(id), floor: Rv::new(floor) };
    let last = Rv::new(5_000);
    assert_eq!(birth(7, 5_001).first_after(last), Rv::new(5_002));
    assert_eq!(birth(7, 5_000).first_after(last), last.plus(LIFE_SKIP_EVENTS + 7));
    assert_eq!(birth(u32::MAX, 0).first_after(last), last.plus(2 * LIFE_SKIP_EVENTS - 1));
}

#[test]
fn the_numbers_of_a_life_are_above_its_floor_and_below_the_largest_number() {
    let mut fixture = Fixture::new();
    let floor = Rv::new(RV_MAX - 8 - LIFE_SKIP_EVENTS);
    fixture
        .queue
        .recover(fixture.now(), Birth { id: LifeId::new(1), floor })
        .expect("there are numbers left");
    assert_eq!(fixture.queue.resource_version(), floor.next());
    fixture.commit_and_check();
    fixture.queue.recover(fixture.now(), NEXT_LIFE).expect("there is one number left");
    assert_eq!(fixture.queue.recover(fixture.now(), NEXT_LIFE), Err(NoNumbers { last: Rv::new(RV_MAX) }));
    fixture.commit_and_check();
    let lives: Vec<_> =
        fixture.queue.lives().all(Rv::new(RV_MAX)).iter().map(|life| life.first.get()).collect();
    assert_eq!(lives, [0, RV_MAX - 7 - LIFE_SKIP_EVENTS, RV_MAX]);
}

#[test]
fn an_interrupted_first_replace_leaves_the_queue_unsynced() {
    let mut journaled = Journaled::new(Fixture::new());
    let id = journaled.fixture.accept(list(&[("a", 1), ("b", 1)]));
    for _ in 0..3 {
        journaled.fixture.step(id).expect("no refusal");
    }
    assert_eq!(journaled.fixture.place("a"), "ready");
    journaled.checkpoint();
    journaled.crash(10);
    let last = journaled.fixture.queue.status(journaled.fixture.now()).last_replace.expect("a Replace began");
    assert!(last.aborted && last.ended == Some(journaled.fixture.now()));
    assert_eq!((journaled.fixture.has_synced(), journaled.fixture.queue.initial_remaining()), (false, 1));
    let a = journaled.fixture.pop();
    assert!(a.is_in_initial_list);
    journaled.fixture.ack(&a);
    journaled.fixture.call(added("c", 1));
    assert!(!journaled.fixture.has_synced(), "the initial list is incomplete");
    journaled.crash(10);
    journaled.fixture.replace(list(&[("a", 1), ("c", 1)])).expect("no refusal");
    assert_eq!(journaled.fixture.queue.initial_remaining(), 2, "the next Replace is the initial list");
}

#[test]
fn a_key_that_was_removed_and_added_again_is_restored() {
    let mut journaled = Journaled::new(Fixture::in_mode(Mode::Keys));
    journaled.fixture.produce([queued("a"), queued("z")]).expect("no refusal");
    journaled.checkpoint();
    let a = journaled.fixture.pop();
    journaled.fixture.ack(&a);
    journaled.assert_restores();
    journaled.checkpoint_step();
    journaled.checkpoint_step();
    journaled.assert_restores();
    journaled.fixture.call(queued("a"));
    journaled.assert_restores();
    journaled.checkpoint();
    assert_eq!(journaled.fixture.ready_queue(), ["z", "a"]);
}

#[test]
fn a_slot_is_reused_by_another_key() {
    let mut journaled = Journaled::new(Fixture::in_mode(Mode::Keys));
    journaled.fixture.produce([queued("a"), queued("z")]).expect("no refusal");
    journaled.checkpoint();
    let first_slot = slot(&journaled.fixture, "a");
    let a = journaled.fixture.pop();
    journaled.fixture.ack(&a);
    journaled.fixture.call(queued("b"));
    assert_eq!(slot(&journaled.fixture, "b"), first_slot);
    journaled.assert_restores();
    journaled.checkpoint();
    // The first key gets another slot.
    journaled.fixture.call(queued("a"));
    assert_ne!(slot(&journaled.fixture, "a"), first_slot);
    journaled.checkpoint();
    journaled.crash(0);
    assert_eq!(journaled.fixture.ready_queue(), ["z", "b", "a"]);
}

#[test]
fn a_key_is_removed_before_the_checkpoint_reaches_it() {
    let mut journaled = Journaled::new(Fixture::new());
    journaled.fixture.produce([added("z", 1), added("a", 1)]).expect("no refusal");
    journaled.fixture.pop();
    journaled.checkpoint_step();
    // The key has no row, and replay starts at a time when the key existed. A replay that started at the delayed deletion
    // could not apply the lease, and the key would remain.
    journaled.fixture.call(deleted("a").after(500));
    let a = journaled.fixture.pop();
    assert_eq!(text(&a), "a: Added 1, Deleted 1?");
    journaled.fixture.ack(&a);
    assert_eq!(journaled.fixture.place("a"), "absent");
    journaled.assert_restores();
    journaled.checkpoint();
    journaled.crash(0);
    assert_eq!(journaled.fixture.place("a"), "absent");
    journaled.checkpoint();
}

#[test]
fn a_key_is_removed_after_the_checkpoint_has_passed_it() {
    let mut journaled = Journaled::new(Fixture::in_mode(Mode::Keys));
    journaled.fixture.produce([queued("a"), queued("z")]).expect("no refusal");
    journaled.checkpoint_step();
    journaled.checkpoint_step();
    let a = journaled.fixture.pop();
    journaled.fixture.ack(&a);
    journaled.assert_restores();
    for _ in 0..3 {
        journaled.checkpoint_step();
        journaled.assert_restores();
    }
    journaled.crash(0);
    assert_eq!(journaled.fixture.ready_queue(), ["z"]);
    journaled.checkpoint();
}

#[test]
fn a_removal_covers_all_events_up_to_it() {
    let mut fixture = Fixture::in_mode(Mode::Keys);
    fixture.queue.journaled();
    fixture.produce([queued("a"), queued("z")]).expect("no refusal");
    let before = fixture.queue.queue_state();
    fixture.queue.begin_checkpoint(false);
    assert!(fixture.queue.capture(9, 9).removed.is_empty());
    let slot = slot(&fixture, "a");
    let a = fixture.pop();
    fixture.ack(&a);
    let removed = RemovedKey { key: key("a"), slot, rv: fixture.queue.resource_version() };
    assert_eq!(fixture.queue.capture(9, 9).removed, [removed]);
    assert!(fixture.queue.capture(9, 9).removed.is_empty(), "each removed key is reported once");

    let again = |rv| Event {
        rv,
        at: fixture.now(),
        kind: EventKind::Queued(Queued {
            key: key("a"),
            due: None,
            rate_limited: false,
            head_start: HeadStart::NONE,
        }),
        views: ViewChanges::default(),
        sequence: None,
        by: None,
    };
    let mut queue = Restore::new(before).finish().expect("no rows, no conflict");
    queue.replay(&again(Rv::new(3)), Rv::new(3)).expect("the event fits");
    assert!(queue.table().is_empty(), "an ignored event creates no entry");
    queue.replay(&again(Rv::new(4)), Rv::new(3)).expect("the event fits");
    assert_eq!(queue.table().len(), 1);
}

#[test]
fn an_emptied_table_reuses_its_slots_from_the_start() {
    let mut journaled = Journaled::new(Fixture::in_mode(Mode::Keys));
    journaled.fixture.produce([queued("a"), queued("b")]).expect("no refusal");
    journaled.checkpoint();
    journaled.checkpoint_step();
    journaled.checkpoint_step();
    for _ in 0..2 {
        let item = journaled.fixture.pop();
        journaled.fixture.ack(&item);
    }
    journaled.fixture.call(queued("b"));
    assert_eq!(slot(&journaled.fixture, "b"), Slot::MIN);
    journaled.assert_restores();
    journaled.checkpoint();
    journaled.checkpoint();
    journaled.crash(0);
    assert_eq!(journaled.fixture.ready_queue(), ["b"]);
}

#[test]
fn a_queue_counts_as_auto_created_until_it_is_configured() {
    let mut fixture = Fixture::new();
    let creator = Some("erp".into());
    fixture.queue = fixture.queue.auto_created().created_by(creator.clone());
    fixture.rebuilt = fixture.rebuilt.auto_created().created_by(creator.clone());
    let mut journaled = Journaled::new(fixture);
    journaled.fixture.call(added("a", 1));
    journaled.checkpoint();
    let restored = journaled
        .store
        .recover(journaled.store.len(), &journaled.fixture.events)
        .expect("the rows are consistent");
    assert!(restored.is_auto_created());
    assert_eq!(restored.creator(), creator.as_ref());
    let config = journaled.fixture.queue.config().clone();
    journaled
        .fixture
        .queue
        .configure(journaled.fixture.now(), config.clone(), None)
        .expect("nothing changes");
    journaled.fixture.commit_and_check();
    assert!(!journaled.fixture.queue.is_auto_created());
    journaled.assert_restores();
    let rv = journaled.fixture.queue.resource_version();
    journaled.fixture.queue.configure(journaled.fixture.now(), config, None).expect("nothing changes");
    assert_eq!(journaled.fixture.queue.resource_version(), rv, "the queue is already configured");
}

#[test]
fn replayed_events_are_not_counted_again() {
    let mut journaled = Journaled::new(Fixture::new());
    journaled.fixture.produce([added("a", 1), added("b", 1)]).expect("no refusal");
    assert_eq!(journaled.fixture.counters.adds, 2);
    journaled.crash(0);
    assert_eq!(journaled.fixture.counters.adds, 2);
    journaled.fixture.call(added("c", 1));
    assert_eq!(journaled.fixture.counters.adds, 3);
}

#[test]
fn the_newest_entry_of_a_slot_counts_and_a_key_has_one_slot() {
    let mut fixture = Fixture::new();
    fixture.queue.journaled();
    fixture.produce([added("a", 1), added("b", 1)]).expect("no refusal");
    let state = fixture.queue.begin_checkpoint(false);
    let rows: Vec<KeyState> = fixture.queue.capture(9, 9).keys.into_iter().map(|(_, row)| row).collect();
    let mut restore = Restore::new(state.clone());
    assert!(restore.key(Slot::new(3), rows[0].clone()));
    assert!(!restore.key(Slot::new(3), rows[1].clone()), "the newest entry of a slot counts");
    restore.removed(Slot::new(4));
    assert!(!restore.key(Slot::new(4), rows[1].clone()), "the key was removed later");
    let queue = restore.finish().expect("one key in one slot");
    assert_eq!((queue.keys(), queue.table().find("a")), (1, Some(Slot::new(3))));
    let mut restore = Restore::new(state);
    for slot in [5, 2] {
        assert!(restore.key(Slot::new(slot), rows[0].clone()));
    }
    assert_eq!(restore.finish().err(), Some("key a is in slot 2 and in slot 5".to_owned()));
}

#[test]
fn a_full_checkpoint_contains_all_keys() {
    let mut fixture = Fixture::new();
    fixture.queue.journaled();
    fixture.produce([added("a", 1), added("b", 1)]).expect("no refusal");
    for (is_full, keys) in [(false, 2), (false, 0), (true, 2), (false, 0)] {
        fixture.queue.begin_checkpoint(is_full);
        assert_eq!(fixture.queue.capture(9, 9).keys.len(), keys);
        fixture.queue.end_checkpoint();
    }
}

#[test]
fn a_chunk_of_a_checkpoint_is_bounded() {
    let mut fixture = Fixture::new();
    fixture.queue.journaled();
    fixture.produce((0..5).map(|version| updated("a", version))).expect("no refusal");
    fixture.produce([added("b", 1), added("c", 1), added("d", 1)]).expect("no refusal");
    fixture.queue.begin_checkpoint(false);
    let mut chunk = |rows, scanned| {
        let chunk = fixture.queue.capture(rows, scanned);
        (chunk.keys.iter().map(|(_, row)| row.key.to_string()).collect::<Vec<_>>().join(" "), chunk.ended)
    };
    assert_eq!(
        chunk(3, 9),
        ("a".to_owned(), false),
        "deltas count as rows, and at least one key is captured"
    );
    assert_eq!(chunk(2, 9), ("b c".to_owned(), false));
    assert_eq!(chunk(9, 0), (String::new(), false));
    assert_eq!(chunk(9, 1), ("d".to_owned(), true));
    fixture.queue.end_checkpoint();
    fixture.call(updated("c", 2));
    fixture.queue.begin_checkpoint(false);
    let second = fixture.queue.capture(9, 9);
    assert_eq!(second.keys.len(), 1, "only changed keys");
    assert!(second.ended);
}

#[test]
fn the_size_of_the_stored_rows_is_known_after_a_checkpoint_and_after_recovery() {
    let mut journaled = Journaled::new(Fixture::new());
    assert_eq!(journaled.fixture.queue.live_bytes(), 0);
    journaled.fixture.produce([added("a", 1), added("b", 1)]).expect("no refusal");
    journaled.checkpoint();
    let two = journaled.fixture.queue.live_bytes();
    assert!(two > 2 * 7);
    journaled.fixture.call(added("c", 1));
    journaled.checkpoint();
    assert_eq!(journaled.fixture.queue.live_bytes(), two / 2 * 3, "unchanged keys count, too");
    journaled.crash(0);
    assert_eq!(journaled.fixture.queue.live_bytes(), two / 2 * 3);
    journaled.fixture.call(updated("b", 2));
    journaled.fixture.queue.begin_checkpoint(false);
    let rows = journaled.fixture.queue.capture(9, 9).keys.len();
    assert_eq!(rows, 1, "after recovery only changed rows are written");
}

/// Events that do not fit a queue with the ready key `a`, each with the reason.
fn misfits() -> [(u64, EventKind, &'static str); 11] {
    let a = || key("a");
    let (deadline, counts) = (Time::from_micros(9), ReplaceCounts::default());
    let ended = ReplaceEnded { source: None, first: false, aborted: false, counts };
    let leased = Leased { key: key("b"), deadline, worker: None, pop_id: None, charged: None };
    [
        (1, EventKind::Paused, "its number does not follow that of the event before"),
        (3, EventKind::Paused, "its number does not follow that of the event before"),
        (2, EventKind::Leased(leased), "the key is not ready"),
        (
            2,
            EventKind::Settled { key: a(), token: Token::new(Rv::new(1)), ending: Ending::Acked },
            "the key does not have this lease",
        ),
        (2, EventKind::Extended { key: a(), deadline }, "the key does not have this lease"),
        (
            2,
            EventKind::Progressed { key: a(), token: Token::new(Rv::new(1)), through: Rv::new(1) },
            "the key does not have this lease",
        ),
        (2, EventKind::DelayElapsed { key: a() }, "the key has neither a delay nor a window"),
        (2, EventKind::Redriven { key: a() }, "the key is not parked"),
        (
            2,
            EventKind::TakenOver { key: a(), owner: "erp".into() },
            "the key has no object that could be owned",
        ),
        (
            2,
            EventKind::Refreshed { key: a(), provenance: Provenance::default(), object: object(1) },
            "the key has no object that could be replaced",
        ),
        (2, EventKind::ReplaceEnded(ended), "no Replace is running"),
    ]
}

fn queue_with_a_ready_key() -> Queue {
    let mut fixture = Fixture::in_mode(Mode::Keys);
    fixture.produce([queued("a")]).expect("no refusal");
    assert_eq!(fixture.queue.resource_version(), Rv::new(1));
    fixture.queue
}

#[test]
fn replay_refuses_an_event_that_does_not_fit_and_names_it() {
    for (rv, kind, reason) in misfits() {
        let mut queue = queue_with_a_ready_key();
        let at = Time::from_micros(START_MS * 1_000);
        let misfit = queue
            .replay(
                &Event {
                    rv: Rv::new(rv),
                    at,
                    kind: kind.clone(),
                    views: ViewChanges::default(),
                    sequence: None,
                    by: None,
                },
                Rv::ZERO,
            )
            .expect_err(reason);
        assert_eq!((misfit.rv.get(), misfit.reason), (rv, reason));
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
    queue.apply(&Event { rv: Rv::new(2), at, kind, views: ViewChanges::default(), sequence: None, by: None });
}
