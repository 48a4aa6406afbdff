//! Leases: each is settled once, by its holder.

use deltaq_engine::command::{Extended, How, Outcome, Settled};
use deltaq_engine::id::Rv;
use deltaq_engine::limits::SETTLED_LEASES_MAX;

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
fn an_older_lease_of_the_same_key_is_stale() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1));
    let older = fixture.pop();
    fixture.wait(10_000);
    fixture.wait(100);
    let newer = fixture.pop();
    assert!(newer.token > older.token);
    assert_eq!(fixture.settle(older.token, How::Ack), stale(Outcome::Expired));
    assert_eq!(fixture.place("a"), "leased");
    fixture.ack(&newer);
    assert_eq!(fixture.known("a"), Some(r#"{"v":1}"#));
}

#[test]
fn a_repeated_settle_is_reported_as_repeated_and_a_different_one_as_stale() {
    let reject = || How::Reject { error: None };
    let ways = [
        (How::Ack, Outcome::Acked),
        (nack(), Outcome::Nacked),
        (How::Release, Outcome::Released),
        (reject(), Outcome::Rejected),
    ];
    for (way, outcome) in &ways {
        let mut fixture = Fixture::new();
        fixture.call(added("a", 1));
        let token = fixture.pop().token;
        assert!(matches!(fixture.settle(token, way.clone()), Settled::Ok { .. }));
        let rv = fixture.queue.resource_version();
        for (other, other_outcome) in &ways {
            let expected = if other_outcome == outcome { Settled::Repeated } else { stale(*outcome) };
            assert_eq!(fixture.settle(token, other.clone()), expected, "{way:?}, then {other:?}");
        }
        assert_eq!(fixture.queue.resource_version(), rv, "a late settle emits no event");
    }
}

#[test]
fn each_settle_of_a_call_is_independent() {
    let mut fixture = Fixture::new();
    fixture.produce([added("a", 1), added("b", 1)]).expect("no refusal");
    let (a, b) = (fixture.pop(), fixture.pop());
    let settle = |token, how| Settle { token, how };
    let settles = [
        settle(a.token, How::Ack),
        settle(Token::new(Rv::new(77)), How::Ack),
        settle(a.token, How::Ack),
        settle(b.token, nack()),
    ];
    let settled = fixture.queue.settle(fixture.now(), &settles);
    fixture.commit_and_check();
    assert!(matches!(settled[0], Settled::Ok { .. }));
    assert_eq!(settled[1], stale(Outcome::Unknown));
    assert_eq!(settled[2], Settled::Repeated);
    assert!(matches!(settled[3], Settled::Ok { .. }));
    assert_eq!((fixture.place("a"), fixture.place("b")), ("known", "delayed"));
}

#[test]
fn only_the_outcomes_of_the_last_settled_leases_are_remembered() {
    let mut queue = Queue::new(config(|_| {}), Rv::ZERO, Time::default());
    let add = [added("a", 1).0];
    let pop = Pop { max: 1, max_bytes: 1, lease: None, worker: None, id: None, with_known: false };
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
}

#[test]
fn a_pop_repeated_by_its_id_returns_the_same_leases() {
    let mut fixture = Fixture::new();
    fixture.produce([added("a", 1), added("b", 1), added("c", 1)]).expect("no refusal");
    let first = fixture.pop_id("p", 2);
    let again = fixture.pop_id("p", 3);
    let tokens = |items: &[Item]| items.iter().map(|item| item.token).collect::<Vec<_>>();
    assert_eq!(tokens(&again), tokens(&first));
    assert_eq!(text(&again[1]), "b: Added 1");
    assert_eq!(fixture.ready_queue(), ["c"]);
}

#[test]
fn a_repeated_pop_returns_its_remaining_leases_even_while_paused_and_then_pops_new_keys() {
    let mut fixture = Fixture::new();
    fixture.produce([added("a", 1), added("b", 1), added("c", 1)]).expect("no refusal");
    let first = fixture.pop_id("p", 2);
    fixture.ack(&first[0]);
    fixture.queue.set_paused(fixture.now(), true);
    let rest = fixture.pop_id("p", 2);
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0].token, first[1].token);
    fixture.ack(&rest[0]);
    assert!(fixture.pop_id("p", 2).is_empty(), "a paused queue delivers no new keys");
    fixture.queue.set_paused(fixture.now(), false);
    assert_eq!(text(&fixture.pop_id("p", 2)[0]), "c: Added 1");
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
fn fencing_tokens_only_grow() {
    let mut fixture = Fixture::new();
    let mut last = Token::default();
    for round in 0..20 {
        fixture.call(updated("a", round));
        let item = fixture.pop();
        assert!(item.token > last);
        last = item.token;
        fixture.settle(item.token, How::Release);
    }
}

#[test]
fn an_extension_counts_from_now_and_reports_waiting_deltas() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1));
    let item = fixture.pop();
    fixture.wait(9_000);
    let deadline = Time::from_micros((fixture.now_ms + 20_000) * 1_000);
    let result = Extended::Ok { deadline, pending_deltas: 0, deleted: false };
    assert_eq!(fixture.extend(&item, 20_000), result);
    fixture.wait(19_999);
    assert_eq!(fixture.place("a"), "leased");
    fixture.produce([updated("a", 2), deleted("a")]).expect("no refusal");
    let deadline = Time::from_micros((fixture.now_ms + 5) * 1_000);
    let result = Extended::Ok { deadline, pending_deltas: 2, deleted: true };
    assert_eq!(fixture.extend(&item, 5), result, "an extension may shorten a lease");
    fixture.wait(5);
    assert_eq!(fixture.extend(&item, 5), Extended::Stale { outcome: Outcome::Expired });
}

#[test]
fn a_lease_does_not_expire_before_its_own_commit() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1));
    let pop = Pop { max: 1, max_bytes: 1, lease: None, worker: None, id: None, with_known: false };
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
        let pop =
            Pop { max: 1, max_bytes: 1, lease: Some(ms(lease)), worker: None, id: None, with_known: false };
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
fn an_expired_lease_fails_as_of_its_deadline() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1));
    fixture.pop();
    fixture.wait(10_040);
    assert_eq!((fixture.failures("a"), fixture.due_in("a")), (1, Some(60)), "100 ms after the deadline");
    assert_eq!(fixture.entry("a").schedule_state.last_error(), Some("lease expired"));
}

#[test]
fn due_keys_are_processed_in_order_of_their_times() {
    let mut fixture = Fixture::with(|config| config.max_failures = 0);
    fixture.produce([added("a", 1), added("b", 1), added("c", 1).after(10_100)]).expect("no refusal");
    fixture.pop();
    fixture.wait(50);
    fixture.pop();
    fixture.wait(60_000);
    // c and a became ready at 10,100, c with the lower event number; b became ready at 10,150.
    assert_eq!(fixture.ready_queue(), ["c", "a", "b"]);
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
    assert_eq!(
        fixture.entry("a").schedule_state.delay().map(|delay| delay.due),
        Some(before.plus(ms(1_000)))
    );
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
