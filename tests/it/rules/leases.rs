//! Leases: settled once, by the one who holds them.

use deltaq::engine::command::{Extended, How, Outcome, Settled};
use deltaq::engine::limits::SETTLED_LEASES_MAX;

use super::*;

fn stale(outcome: Outcome) -> Settled {
    Settled::Stale { outcome }
}

#[test]
fn a_forged_token_is_stale_and_unknown() {
    let mut desk = Desk::new();
    desk.tell(added("a", 1));
    let item = desk.pop();
    assert_eq!(desk.settle(item.token + 1, How::Ack), stale(Outcome::Unknown));
    assert_eq!(desk.settle(item.token - 1, How::Ack), stale(Outcome::Unknown));
    assert_eq!(desk.settle(u64::MAX, nack()), stale(Outcome::Unknown));
    assert_eq!(desk.place("a"), "leased");
}

#[test]
fn an_older_lease_of_the_same_key_settles_nothing() {
    let mut desk = Desk::new();
    desk.tell(added("a", 1));
    let older = desk.pop();
    desk.wait(10_000);
    desk.wait(100);
    let newer = desk.pop();
    assert!(newer.token > older.token);
    assert_eq!(desk.settle(older.token, How::Ack), stale(Outcome::Expired));
    assert_eq!(desk.place("a"), "leased");
    desk.ack(&newer);
    assert_eq!(desk.known("a"), Some(r#"{"v":1}"#));
}

#[test]
fn a_settle_that_is_repeated_answers_as_before_and_another_says_what_happened() {
    let reject = || How::Reject { error: None };
    let ways = [
        (How::Ack, Outcome::Acked),
        (nack(), Outcome::Nacked),
        (How::Release, Outcome::Released),
        (reject(), Outcome::Rejected),
    ];
    for (way, outcome) in &ways {
        let mut desk = Desk::new();
        desk.tell(added("a", 1));
        let token = desk.pop().token;
        assert!(matches!(desk.settle(token, way.clone()), Settled::Ok { .. }));
        let rv = desk.queue.resource_version();
        for (other, other_outcome) in &ways {
            let expected = if other_outcome == outcome { Settled::Repeated } else { stale(*outcome) };
            assert_eq!(desk.settle(token, other.clone()), expected, "{way:?}, then {other:?}");
        }
        assert_eq!(desk.queue.resource_version(), rv, "a settle that came too late is no event");
    }
}

#[test]
fn each_settle_of_a_call_is_for_itself() {
    let mut desk = Desk::new();
    desk.say([added("a", 1), added("b", 1)]).expect("there is room");
    let (a, b) = (desk.pop(), desk.pop());
    let settle = |token, how| Settle { token, how };
    let settles =
        [settle(a.token, How::Ack), settle(77, How::Ack), settle(a.token, How::Ack), settle(b.token, nack())];
    let settled = desk.queue.settle(desk.now(), &settles);
    desk.settle_down();
    assert!(matches!(settled[0], Settled::Ok { .. }));
    assert_eq!(settled[1], stale(Outcome::Unknown));
    assert_eq!(settled[2], Settled::Repeated);
    assert!(matches!(settled[3], Settled::Ok { .. }));
    assert_eq!((desk.place("a"), desk.place("b")), ("known", "delayed"));
}

#[test]
fn the_outcomes_of_the_last_settled_leases_are_remembered_and_no_more() {
    let mut queue = Queue::new(config(|_| {}), 0, Time::default());
    let add = [added("a", 1).0];
    let pop = Pop { max: 1, max_bytes: 1, lease: None, worker: None, id: None, with_known: false };
    let mut tokens = Vec::new();
    for _ in 0..=SETTLED_LEASES_MAX {
        queue.produce(Time::default(), &add).expect("there is room");
        let token = queue.pop(Time::default(), &pop).expect("the queue is open")[0].token;
        queue.settle(Time::default(), &[Settle { token, how: How::Ack }]);
        queue.take_events();
        tokens.push(token);
    }
    assert_eq!(queue.outcome(tokens[0]), Outcome::Unknown);
    assert_eq!(queue.outcome(tokens[1]), Outcome::Acked);
}

#[test]
fn a_pop_repeated_by_its_id_returns_the_same_leases() {
    let mut desk = Desk::new();
    desk.say([added("a", 1), added("b", 1), added("c", 1)]).expect("there is room");
    let first = desk.pop_id("p", 2);
    let again = desk.pop_id("p", 3);
    let tokens = |items: &[Item]| items.iter().map(|item| item.token).collect::<Vec<_>>();
    assert_eq!(tokens(&again), tokens(&first));
    assert_eq!(text(&again[1]), "b: Added 1");
    assert_eq!(desk.line(), ["c"]);
}

#[test]
fn a_repeated_pop_returns_the_rest_that_lives_while_paused_too_and_then_pops_anew() {
    let mut desk = Desk::new();
    desk.say([added("a", 1), added("b", 1), added("c", 1)]).expect("there is room");
    let first = desk.pop_id("p", 2);
    desk.ack(&first[0]);
    desk.queue.set_paused(desk.now(), true);
    let rest = desk.pop_id("p", 2);
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0].token, first[1].token);
    desk.ack(&rest[0]);
    assert!(desk.pop_id("p", 2).is_empty(), "paused: nothing new");
    desk.queue.set_paused(desk.now(), false);
    assert_eq!(text(&desk.pop_id("p", 2)[0]), "c: Added 1");
}

#[test]
fn a_lease_that_was_not_delivered_had_never_been() {
    let mut desk = Desk::new();
    desk.say([added("a", 1), added("b", 1)]).expect("there is room");
    let item = desk.pop();
    desk.tell(updated("a", 2));
    desk.queue.give_back(desk.now(), &[item.token]);
    desk.settle_down();
    assert_eq!(desk.line(), ["a", "b"], "it has its former turn");
    assert_eq!(desk.settle(item.token, How::Ack), stale(Outcome::Unknown));
    let again = desk.pop();
    assert_eq!(text(&again), "a: Added 1, Updated 2");
    assert_eq!((again.attempt, again.failures), (1, 0));
}

#[test]
fn a_lease_that_was_not_delivered_gives_its_delay_back() {
    let mut desk = Desk::new();
    desk.tell(added("a", 1));
    desk.tell(updated("a", 2).after(500));
    let item = desk.pop();
    assert_eq!(desk.due_in("a"), None, "handing out drops a delay");
    desk.queue.give_back(desk.now(), &[item.token]);
    desk.settle_down();
    assert_eq!(desk.due_in("a"), Some(500));
}

#[test]
fn fencing_tokens_only_grow() {
    let mut desk = Desk::new();
    let mut last = 0;
    for round in 0..20 {
        desk.tell(updated("a", round));
        let item = desk.pop();
        assert!(item.token > last);
        last = item.token;
        desk.settle(item.token, How::Release);
    }
}

#[test]
fn an_extension_counts_from_now_and_tells_what_waits() {
    let mut desk = Desk::new();
    desk.tell(added("a", 1));
    let item = desk.pop();
    desk.wait(9_000);
    let deadline = Time::from_micros((desk.now_ms + 20_000) * 1_000);
    let answer = Extended::Ok { deadline, pending_deltas: 0, deleted: false };
    assert_eq!(desk.extend(&item, 20_000), answer);
    desk.wait(19_999);
    assert_eq!(desk.place("a"), "leased");
    desk.say([updated("a", 2), deleted("a")]).expect("there is room");
    let deadline = Time::from_micros((desk.now_ms + 5) * 1_000);
    let answer = Extended::Ok { deadline, pending_deltas: 2, deleted: true };
    assert_eq!(desk.extend(&item, 5), answer, "it may shorten");
    desk.wait(5);
    assert_eq!(desk.extend(&item, 5), Extended::Stale { outcome: Outcome::Expired });
}

#[test]
fn a_lease_does_not_expire_before_its_own_commit() {
    let mut desk = Desk::new();
    desk.tell(added("a", 1));
    let pop = Pop { max: 1, max_bytes: 1, lease: None, worker: None, id: None, with_known: false };
    let items = desk.queue.pop(desk.now(), &pop).expect("the queue is open");
    desk.now_ms += 60_000;
    desk.queue.advance(desk.now());
    assert_eq!(desk.place("a"), "leased", "the journal does not have it yet");
    assert_eq!(desk.queue.next_deadline(), Some(items[0].deadline));
    assert!(desk.queue.due_uncommitted(desk.now()), "whoever waits for the deadline waits for the commit");
    desk.settle_down();
    assert!(!desk.queue.due_uncommitted(desk.now()));
    desk.wait(0);
    assert_eq!(desk.queue.outcome(items[0].token), Outcome::Expired);
}

#[test]
fn a_lease_that_is_not_committed_holds_no_other_one_up() {
    let mut desk = Desk::new();
    desk.say([added("a", 1), added("b", 1), added("c", 1)]).expect("there is room");
    let pop = |desk: &mut Desk, lease| {
        let pop =
            Pop { max: 1, max_bytes: 1, lease: Some(ms(lease)), worker: None, id: None, with_known: false };
        desk.queue.pop(desk.now(), &pop).expect("the queue is open")[0].token
    };
    let (a, _) = (pop(&mut desk, 200), pop(&mut desk, 300));
    let b = a + 1;
    desk.queue.set_committed(b);
    pop(&mut desk, 100);
    desk.now_ms += 1_000;
    desk.queue.advance(desk.now());
    let places = [desk.place("a"), desk.place("b"), desk.place("c")];
    assert_eq!(places, ["ready", "ready", "leased"], "their backoffs are over, too");
    assert_eq!((desk.queue.outcome(a), desk.queue.outcome(b)), (Outcome::Expired, Outcome::Expired));
    desk.settle_down();
    desk.wait(0);
    assert_eq!(desk.place("c"), "ready");
}

#[test]
fn an_expired_lease_fails_as_of_its_deadline() {
    let mut desk = Desk::new();
    desk.tell(added("a", 1));
    desk.pop();
    desk.wait(10_040);
    assert_eq!((desk.failures("a"), desk.due_in("a")), (1, Some(60)), "100 ms after the deadline");
    assert_eq!(desk.entry("a").standing.last_error(), Some("lease expired"));
}

#[test]
fn what_is_due_happens_in_the_order_of_its_time() {
    let mut desk = Desk::with(|config| config.max_failures = 0);
    desk.say([added("a", 1), added("b", 1), added("c", 1).after(10_100)]).expect("there is room");
    desk.pop();
    desk.wait(50);
    desk.pop();
    desk.wait(60_000);
    // a expired at 10,000 and was ready at 10,100, after c by number; b was ready at 10,150.
    assert_eq!(desk.line(), ["c", "a", "b"]);
}

#[test]
fn a_clock_that_is_set_back_stands_still() {
    let mut desk = Desk::new();
    desk.tell(added("a", 1));
    let before = desk.now();
    desk.now_ms -= 500_000;
    let item = desk.pop();
    assert_eq!(item.deadline, before.plus(ms(10_000)));
    desk.settle(item.token, nack_after(1_000));
    assert_eq!(desk.entry("a").standing.delay().map(|delay| delay.due), Some(before.plus(ms(1_000))));
    desk.tell(added("b", 1));
    assert_eq!(desk.entry("b").waiting.newest().map(|delta| delta.queued_at), Some(before));
}

#[test]
fn a_clock_that_jumps_ahead_lets_everything_happen_once() {
    let mut desk = Desk::with(|config| config.resync_period = Some(ms(1_000)));
    desk.know(added("k", 1));
    desk.say([added("a", 1), added("b", 1).after(10)]).expect("there is room");
    desk.pop();
    let rv = desk.queue.resource_version();
    desk.wait(365 * 86_400_000);
    // An expiry, the end of its backoff, a delay, and one Resync for all that were missed.
    assert_eq!(desk.queue.resource_version(), rv + 4);
    assert_eq!(desk.line(), ["b", "a"]);
    assert!(desk.queue.take_resync_due());
    assert!(!desk.queue.take_resync_due());
}
