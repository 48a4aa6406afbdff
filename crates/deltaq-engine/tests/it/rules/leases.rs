//! Leases that are not committed or not delivered, and what becomes due.

use deltaq_engine::command::{How, Outcome, Settled};
use deltaq_engine::id::Rv;
use deltaq_engine::limits::{DUE_AT_A_TIME, SETTLED_LEASES_MAX};

use super::*;

fn stale(outcome: Outcome) -> Settled {
    Settled::Stale { outcome }
}

#[test]
fn a_forged_token_is_stale_and_unknown() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1));
    let item = fixture.pop();
    assert_eq!(fixture.settle(Token::new(item.token.rv().next()), How::Ack), stale(Outcome::Unknown));
    assert_eq!(
        fixture.settle(Token::new(Rv::new(item.token.rv().get() - 1)), How::Ack),
        stale(Outcome::Unknown)
    );
    assert_eq!(fixture.settle(Token::new(Rv::MAX), nack()), stale(Outcome::Unknown));
    assert_eq!(fixture.place("a"), "leased");
}

#[test]
fn only_the_outcomes_of_the_last_settled_leases_are_remembered() {
    let mut queue = Queue::new(config(|_| {}), Rv::ZERO, Time::default());
    let add = [added("a", 1).0];
    let pop =
        Pop { max: 1, max_bytes: 1, lease: None, worker: None, id: None, with_known: false, group: None };
    let mut tokens = Vec::new();
    for _ in 0..=SETTLED_LEASES_MAX {
        queue.produce(Time::default(), &add).expect("no refusal");
        let token = queue.pop(Time::default(), &pop).expect("the queue is open")[0].token;
        queue.settle(Time::default(), &[Settle { token, how: How::Ack }]);
        drop(queue.take_effects());
        tokens.push(token);
    }
    assert_eq!(queue.outcome(tokens[0]), Outcome::Unknown);
    assert_eq!(queue.outcome(tokens[1]), Outcome::Acked);
    let stored = serde_json::to_string(&queue.queue_state().settled).expect("a state");
    assert!(stored.len() < 600, "leases that end alike are stored as runs: {} bytes", stored.len());
}

#[test]
fn an_undelivered_lease_is_undone_completely() {
    let mut fixture = Fixture::new();
    fixture.produce([added("a", 1), added("b", 1)]).expect("no refusal");
    let item = fixture.pop();
    fixture.call(updated("a", 2));
    fixture.queue.return_undelivered(fixture.now(), &[item.token]);
    fixture.commit_and_check();
    assert_eq!(fixture.ready_queue(), ["a", "b"], "the key has its former position");
    assert_eq!(fixture.settle(item.token, How::Ack), stale(Outcome::Unknown));
    let again = fixture.pop();
    assert_eq!(text(&again), "a: Added 1, Updated 2");
    assert_eq!((again.attempt, again.failures), (1, 0));
}

#[test]
fn an_undelivered_lease_restores_its_delay() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1));
    fixture.call(updated("a", 2).after(500));
    let item = fixture.pop();
    assert_eq!(fixture.due_in("a"), None, "delivery drops a delay");
    fixture.queue.return_undelivered(fixture.now(), &[item.token]);
    fixture.commit_and_check();
    assert_eq!(fixture.due_in("a"), Some(500));
}

#[test]
fn an_undelivered_lease_stays_with_a_repeated_pop() {
    let mut fixture = Fixture::new();
    fixture.produce([added("a", 1), added("b", 1), added("c", 1)]).expect("no refusal");
    let pop = |id: &str, max| Pop {
        max,
        max_bytes: 1 << 20,
        lease: None,
        worker: None,
        id: Some(id.into()),
        with_known: false,
        group: None,
    };
    let first = fixture.queue.pop(fixture.now(), &pop("x", 2)).expect("the queue is open");
    let tokens: Vec<Token> = first.iter().map(|item| item.token).collect();
    fixture.settle(tokens[0], How::Release);
    let again = fixture.queue.pop(fixture.now(), &pop("x", 2)).expect("the queue is open");
    assert_eq!(again.iter().map(|item| item.token).collect::<Vec<_>>(), tokens[1..]);
    let other = fixture.queue.pop(fixture.now(), &pop("y", 1)).expect("the queue is open")[0].token;
    fixture.queue.return_undelivered(fixture.now(), &[tokens[0], tokens[1], other]);
    fixture.commit_and_check();
    let places = [fixture.place("a"), fixture.place("b"), fixture.place("c")];
    assert_eq!(places, ["ready", "leased", "ready"], "only the lease of the repeated pop stays");
    assert_eq!(fixture.ready_queue(), ["c", "a"]);
    let next = fixture.queue.pop(fixture.now(), &pop("y", 1)).expect("the queue is open");
    assert!(next[0].token > other, "a pop whose leases have returned gets new ones");
}

#[test]
fn a_repeated_pop_gets_the_leases_that_are_left_in_their_order() {
    let mut fixture = Fixture::new();
    let names = ["a", "b", "c", "d", "e", "f"];
    fixture.produce(names.map(|name| added(name, 1))).expect("no refusal");
    let pop = |fixture: &mut Fixture, id: &str, max| {
        let items = fixture.pop_with(|pop| (pop.max, pop.id) = (max, Some(id.into())));
        items.expect("the queue is open").iter().map(|item| item.token).collect::<Vec<_>>()
    };
    let first = pop(&mut fixture, "x", 4);
    let other = pop(&mut fixture, "y", 2);
    assert_eq!((first.len(), other.len()), (4, 2));
    fixture.settle(first[0], How::Ack);
    fixture.settle(first[2], How::Release);
    assert_eq!(pop(&mut fixture, "x", 4), [first[1], first[3]]);
    fixture.crash();
    assert_eq!(pop(&mut fixture, "x", 1), [first[1], first[3]], "also after a restart");
    assert_eq!(pop(&mut fixture, "y", 1), other);
    for token in [first[3], first[1]] {
        fixture.settle(token, How::Ack);
    }
    let again = pop(&mut fixture, "x", 4);
    assert_eq!(again.len(), 1, "the released key is the only one that is ready");
    assert!(again[0] > other[1]);
    assert_eq!(pop(&mut fixture, "x", 4), again);
}

#[test]
fn a_lease_does_not_expire_before_its_own_commit() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1));
    let pop =
        Pop { max: 1, max_bytes: 1, lease: None, worker: None, id: None, with_known: false, group: None };
    let items = fixture.queue.pop(fixture.now(), &pop).expect("the queue is open");
    fixture.now_ms += 60_000;
    fixture.queue.advance(fixture.now());
    assert_eq!(fixture.place("a"), "leased", "the lease is not committed yet");
    assert_eq!(fixture.queue.next_deadline(), Some(items[0].deadline));
    assert!(
        fixture.queue.due_uncommitted(fixture.now()),
        "whoever waits for the deadline waits for the commit"
    );
    fixture.commit_and_check();
    assert!(!fixture.queue.due_uncommitted(fixture.now()));
    fixture.wait(0);
    assert_eq!(fixture.queue.outcome(items[0].token), Outcome::Expired);
}

#[test]
fn an_uncommitted_lease_does_not_delay_the_expiry_of_others() {
    let mut fixture = Fixture::new();
    fixture.produce([added("a", 1), added("b", 1), added("c", 1)]).expect("no refusal");
    let pop = |fixture: &mut Fixture, lease| {
        let pop = Pop {
            max: 1,
            max_bytes: 1,
            lease: Some(ms(lease)),
            worker: None,
            id: None,
            with_known: false,
            group: None,
        };
        fixture.queue.pop(fixture.now(), &pop).expect("the queue is open")[0].token
    };
    let (a, _) = (pop(&mut fixture, 200), pop(&mut fixture, 300));
    let b = Token::new(a.rv().next());
    fixture.queue.set_committed(b.rv());
    pop(&mut fixture, 100);
    fixture.now_ms += 1_000;
    fixture.queue.advance(fixture.now());
    let places = [fixture.place("a"), fixture.place("b"), fixture.place("c")];
    assert_eq!(places, ["ready", "ready", "leased"], "their backoffs have ended, too");
    assert_eq!((fixture.queue.outcome(a), fixture.queue.outcome(b)), (Outcome::Expired, Outcome::Expired));
    fixture.commit_and_check();
    fixture.wait(0);
    assert_eq!(fixture.place("c"), "ready");
}

#[test]
fn a_clock_that_is_set_back_does_not_set_back_the_time_of_a_queue() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1));
    let before = fixture.now();
    fixture.now_ms -= 500_000;
    let item = fixture.pop();
    assert_eq!(item.deadline, before.plus(ms(10_000)));
    fixture.settle(item.token, nack_after(1_000));
    assert_eq!(fixture.entry("a").schedule_state.due(), Some(before.plus(ms(1_000))));
    fixture.call(added("b", 1));
    assert_eq!(fixture.entry("b").waiting.newest().map(|delta| delta.queued_at), Some(before));
}

#[test]
fn a_clock_that_jumps_ahead_triggers_each_deadline_once() {
    let mut fixture = Fixture::with(|config| config.resync_period = Some(ms(1_000)));
    fixture.make_known(added("k", 1));
    fixture.produce([added("a", 1), added("b", 1).after(10)]).expect("no refusal");
    fixture.pop();
    let rv = fixture.queue.resource_version();
    fixture.wait(365 * 86_400_000);
    // An expiry, the end of its backoff, a delay, and one Resync for all missed ones.
    assert_eq!(fixture.queue.resource_version(), rv.plus(4));
    assert_eq!(fixture.ready_queue(), ["b", "a"]);
    assert_eq!(fixture.resyncs_due, 1);
}

#[test]
fn at_most_a_thousand_due_keys_are_processed_before_each_command() {
    let mut fixture = Fixture::new();
    let names: Vec<String> = (0..=DUE_AT_A_TIME).map(|number| format!("key-{number:04}")).collect();
    fixture.produce(names.iter().map(|name| added(name, 1).after(100))).expect("no refusal");
    fixture.wait(100);
    assert_eq!(fixture.ready_queue().len(), DUE_AT_A_TIME);
    assert!(fixture.queue.next_deadline().is_some_and(|at| at <= fixture.now()), "the timer fires at once");
    let pop =
        Pop { max: 1, max_bytes: 1, lease: None, worker: None, id: None, with_known: false, group: None };
    assert_eq!(fixture.queue.hand_out(fixture.now(), &pop).expect("the queue is open").len(), 1);
    fixture.commit_and_check();
    assert_eq!(
        fixture.ready_queue().len(),
        DUE_AT_A_TIME - 1,
        "a waiting pop is delivered without another thousand"
    );
    fixture.wait(0);
    assert_eq!(fixture.ready_queue(), names.get(1..).expect("many"));
}

#[test]
fn a_delete_in_mode_latest_drops_a_key_whose_only_lease_was_undelivered() {
    let mut fixture = Fixture::in_mode(Mode::Latest);
    fixture.call(added("a", 1));
    let item = fixture.pop();
    fixture.queue.return_undelivered(fixture.now(), &[item.token]);
    fixture.call(deleted("a"));
    assert_eq!(fixture.place("a"), "absent");
}

#[test]
fn a_floor_survives_a_crash() {
    let nack = || How::Nack { delay: Some(ms(60_000)), floor: true, error: None };
    for parks in [false, true] {
        let mut fixture = Fixture::with(|config| config.max_failures = u32::from(parks));
        fixture.call(added("a", 1));
        let lease = fixture.pop();
        fixture.settle(lease.token, nack());
        fixture.crash();
        fixture.call(updated("a", 2));
        fixture.wait(59_999);
        assert_eq!(fixture.place("a"), "delayed");
        fixture.wait(1);
        assert_eq!(text(&fixture.pop()), "a: Added 1, Updated 2");
    }
}
