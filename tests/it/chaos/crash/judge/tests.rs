//! Handmade histories: possible histories, which must pass, and histories with one fault, which must be found.

use serde_json::Value;

use super::super::history::{
    Answer, Call, Change, Count, Crash, Delta, Effect, Epoch, Item, Key, Kind, KnownValue, Lease, Operation,
    Outcome, Reply, Rv, Settle, SettleKind, Settled, Snapshot, Us,
};
use super::super::queues::Mode;
use super::{Judge, Rule};

mod events;

const DELTA: &str = "delta";
const LATEST: &str = "latest";
const EVENTS: &str = "events";
const SECOND: Us = 1_000_000;

/// A builder of a history. Calls do not overlap.
struct Script {
    queue: &'static str,
    now: Us,
    epoch: Epoch,
    rules: Vec<Rule>,
    judge: Judge,
}

fn script(queue: &'static str) -> Script {
    let mode = match queue {
        LATEST => Mode::Latest,
        EVENTS => Mode::Events,
        _ => Mode::Delta,
    };
    let judge = Judge::new([(queue, mode)].into_iter());
    Script { queue, now: 10, epoch: Epoch::default(), rules: Vec::new(), judge }
}

fn delta(kind: Kind, value: u64, rv: Rv) -> Delta {
    Delta { kind, rv, value, tombstone: false }
}

fn added(value: u64, rv: Rv) -> Delta {
    delta(Kind::Added, value, rv)
}

fn tombstone(value: u64, rv: Rv) -> Delta {
    Delta { tombstone: true, ..delta(Kind::Deleted, value, rv) }
}

fn put(key: &str, value: u64) -> Change {
    Change { key: key.into(), effect: Effect::Put { kind: Kind::Added, value, may_be_unchanged: false } }
}

fn listed(key: &str, value: u64) -> Change {
    Change { key: key.into(), effect: Effect::Put { kind: Kind::Replaced, value, may_be_unchanged: false } }
}

fn gone(key: &str) -> Change {
    Change { key: key.into(), effect: Effect::Delete { value: None } }
}

fn lease(key: &str, token: Rv, deltas: &[Delta]) -> Lease {
    let (key, id, deltas) = (key.into(), format!("id-{token}"), deltas.to_vec());
    Lease { id, key, token, attempt: token, deltas, known: None }
}

fn pop_of(id: Option<&str>, since: Us) -> Operation {
    let id = id.map(str::to_owned);
    Operation::Pop { id, since, length: SECOND, with_known: false, settles: Vec::new() }
}

impl Script {
    fn call(&mut self, operation: Operation, answer: Answer) -> &mut Self {
        let (queue, start, end) = (self.queue, self.now, self.now + 1);
        self.epoch.calls.push(Call { queue, start, end, operation, answer });
        self.now += 10;
        self
    }

    fn ok(&mut self, operation: Operation, rv: Rv) -> &mut Self {
        self.call(operation, Answer::Ok(Reply { rv: Some(rv), ..Reply::default() }))
    }

    fn produce(&mut self, changes: &[Change], rv: Rv) -> &mut Self {
        self.ok(Operation::Produce { changes: changes.to_vec(), is_replace: false }, rv)
    }

    fn add(&mut self, key: &str, value: u64, rv: Rv) -> &mut Self {
        self.produce(&[put(key, value)], rv)
    }

    fn replace(&mut self, changes: &[Change], rv: Rv) -> &mut Self {
        self.ok(Operation::Produce { changes: changes.to_vec(), is_replace: true }, rv)
    }

    fn lost(&mut self, changes: &[Change]) -> &mut Self {
        self.call(Operation::Produce { changes: changes.to_vec(), is_replace: false }, Answer::Unknown)
    }

    fn list(&mut self, rv: Rv, items: &[(&str, &[Delta])]) -> &mut Self {
        let item = |(key, deltas): &(&str, &[Delta])| {
            (Key::from(*key), Item { deltas: deltas.to_vec(), token: None })
        };
        let reply = Reply { rv: Some(rv), items: items.iter().map(item).collect(), ..Reply::default() };
        self.call(Operation::Items, Answer::Ok(reply))
    }

    fn pop(&mut self, lease: Lease) -> &mut Self {
        self.pop_as(None, self.now, vec![lease])
    }

    fn pop_as(&mut self, id: Option<&str>, since: Us, leases: Vec<Lease>) -> &mut Self {
        let operation = pop_of(id, since);
        self.call(operation, Answer::Ok(Reply { leases, ..Reply::default() }))
    }

    fn settle_as(&mut self, token: Rv, way: SettleKind, answer: Answer) -> &mut Self {
        let settles = vec![Settle { lease: format!("id-{token}"), way }];
        self.call(Operation::Settle { settles }, answer)
    }

    fn settle(&mut self, token: Rv, way: SettleKind, settled: Settled) -> &mut Self {
        self.settle_as(token, way, Answer::Ok(Reply { settled: vec![settled], ..Reply::default() }))
    }

    fn ack(&mut self, token: Rv) -> &mut Self {
        self.settle(token, SettleKind::Ack, Settled::Ok)
    }

    fn crash(&mut self) -> &mut Self {
        self.epoch.crash = Some(Crash { gone: self.now, restart: Some(self.now + 1) });
        self.now += 10;
        self
    }

    /// Ends the epoch with the state of the queue: deltas and token of each key, and the known objects.
    fn snapshot(
        &mut self,
        rv: Rv,
        items: &[(&str, &[Delta], Option<Rv>)],
        known: &[(&str, u64, Rv)],
    ) -> &mut Self {
        let item = |(key, deltas, token): &(&str, &[Delta], Option<Rv>)| {
            ((*key).into(), Item { deltas: deltas.to_vec(), token: *token })
        };
        let known = known.iter().map(|(key, value, rv)| ((*key).into(), (*value, *rv)));
        let snapshot = Snapshot {
            queue: self.queue,
            start: self.now,
            end: self.now + 1,
            rv,
            items: items.iter().map(item).collect(),
            known: known.collect(),
            ..Snapshot::default()
        };
        self.snapshot_as(snapshot)
    }

    fn snapshot_as(&mut self, snapshot: Snapshot) -> &mut Self {
        self.epoch.snapshots.push(snapshot);
        self.now += 10;
        let faults = self.judge.read(&std::mem::take(&mut self.epoch));
        self.rules.extend(faults.iter().map(|fault| fault.rule));
        self
    }

    #[track_caller]
    fn breaks(&mut self, rules: &[Rule]) {
        self.rules.sort_unstable();
        self.rules.dedup();
        assert_eq!(self.rules, rules);
    }
}

#[test]
fn a_possible_history_passes() {
    let mut script = script(DELTA);
    script.add("a", 1, 1).add("b", 2, 2).produce(&[put("a", 3), gone("a"), put("a", 4)], 5);
    let deltas = [added(1, 1), added(3, 3), tombstone(3, 4), added(4, 5)];
    script.pop(lease("a", 6, &deltas)).settle(6, SettleKind::Nack, Settled::Ok).add("a", 5, 8).crash();
    let deltas = [&deltas[..], &[added(5, 8)]].concat();
    script.snapshot(1_000, &[("a", &deltas, None), ("b", &[added(2, 2)], None)], &[]);
    script.pop(lease("a", 1_001, &deltas)).ack(1_001).settle(1_001, SettleKind::Ack, Settled::Repeated);
    script.settle(1_001, SettleKind::Nack, Settled::Stale(Outcome::Acked)).ok(Operation::Resync, 1_004);
    script.pop(lease("a", 1_005, &[delta(Kind::Sync, 5, 1_004)])).ack(1_005);
    script.replace(&[listed("b", 6), gone("a")], 1_010);
    let (a, b) = ([tombstone(5, 1_010)], [added(2, 2), delta(Kind::Replaced, 6, 1_009)]);
    script.snapshot(1_010, &[("a", &a, None), ("b", &b, None)], &[("a", 5, 1_004)]);
    script.pop(lease("a", 1_011, &a)).ack(1_011).pop(lease("b", 1_013, &b)).ack(1_013);
    script.snapshot(1_014, &[], &[("b", 6, 1_009)]).breaks(&[]);
}

#[test]
fn calls_without_a_reply_may_have_taken_effect_or_not() {
    for happened in [false, true] {
        let mut script = script(DELTA);
        script.add("a", 1, 1).pop(lease("a", 2, &[added(1, 1)])).add("a", 2, 3);
        script.settle_as(2, SettleKind::Ack, Answer::Unknown).lost(&[put("a", 3)]).lost(&[gone("a")]);
        script.call(Operation::Redrive, Answer::Unknown).crash();
        let newer = [added(2, 3), added(3, 4), tombstone(3, 5)];
        if happened {
            script.snapshot(1_000, &[("a", &newer, None)], &[("a", 1, 1)]);
            script.settle(2, SettleKind::Ack, Settled::Repeated).pop(lease("a", 1_001, &newer));
        } else {
            let deltas = [added(1, 1), added(2, 3)];
            script.snapshot(1_000, &[("a", &deltas, Some(2))], &[]);
            script.settle(2, SettleKind::Ack, Settled::Ok).pop(lease("a", 1_001, &deltas[1..]));
        }
        script.ack(1_001);
        let known = [("a", 2, 3)];
        script.snapshot(1_002, &[], if happened { &[] } else { &known }).breaks(&[]);
    }
}

#[test]
fn a_pop_without_a_reply_is_repeated() {
    let mut script = script(DELTA);
    let (since, deltas) = (script.add("a", 1, 1).now, [added(1, 1)]);
    let operation = pop_of(Some("x"), since);
    script.call(operation, Answer::Unknown).add("a", 2, 3).crash();
    script.snapshot(1_000, &[("a", &[added(1, 1), added(2, 3)], Some(2))], &[]);
    script.pop_as(Some("x"), since, vec![lease("a", 2, &deltas)]).ack(2);
    script.pop(lease("a", 1_001, &[added(2, 3)])).ack(1_001);
    script.snapshot(1_002, &[], &[("a", 2, 3)]).breaks(&[]);
}

#[test]
fn a_queue_of_mode_latest_passes() {
    let mut script = script(LATEST);
    script.add("a", 1, 1).add("a", 2, 2).pop(lease("a", 3, &[added(2, 2)])).add("a", 3, 4);
    script.settle(3, SettleKind::Nack, Settled::Ok).snapshot(5, &[("a", &[added(3, 4)], None)], &[]);
    script.add("b", 4, 6).produce(&[gone("b")], 7).pop(lease("a", 8, &[added(3, 4)])).ack(8);
    script.snapshot(9, &[], &[("a", 3, 4)]).breaks(&[]);
}

#[test]
fn a_lost_write_is_found() {
    script(DELTA)
        .add("a", 1, 1)
        .add("b", 2, 2)
        .crash()
        .snapshot(9, &[("a", &[added(1, 1)], None)], &[])
        .breaks(&[Rule::LostWrite, Rule::WrongState]);
    let mut script = script(DELTA);
    script.add("a", 1, 1).add("a", 2, 2).pop(lease("a", 3, &[added(2, 2)])).ack(3);
    script.snapshot(4, &[], &[("a", 2, 2)]).breaks(&[Rule::LostWrite]);
}

#[test]
fn an_outdated_newest_state_is_found() {
    let mut script = script(LATEST);
    script.add("a", 1, 1).add("a", 2, 2).pop(lease("a", 3, &[added(1, 1)])).ack(3);
    script.snapshot(4, &[], &[("a", 1, 1)]).breaks(&[Rule::LostWrite, Rule::WrongState]);
}

#[test]
fn half_a_batch_is_found() {
    let mut script = script(DELTA);
    script.lost(&[put("a", 1), put("b", 2)]).crash();
    script.snapshot(9, &[("a", &[added(1, 1)], None)], &[]).breaks(&[Rule::HalfBatch]);
}

#[test]
fn of_two_replaces_without_a_reply_either_may_have_sent_an_object() {
    let one = [listed("a", 1), listed("b", 2)];
    let other = [listed("b", 2), listed("a", 1)];
    let items =
        [("a", &[delta(Kind::Replaced, 1, 6)][..], None), ("b", &[delta(Kind::Replaced, 2, 5)], None)];
    let lost = |changes: &[Change]| Operation::Produce { changes: changes.to_vec(), is_replace: true };

    let mut both = script(DELTA);
    both.call(lost(&one), Answer::Unknown).call(lost(&other), Answer::Unknown).crash();
    both.snapshot(9, &items, &[]).breaks(&[]);

    let mut alone = script(DELTA);
    alone.call(lost(&one), Answer::Unknown).crash();
    alone.snapshot(9, &items, &[]).breaks(&[Rule::Order]);
}

#[test]
fn a_redelivered_acked_lease_is_found() {
    let mut script = script(DELTA);
    script.add("a", 1, 1).pop(lease("a", 2, &[added(1, 1)])).ack(2).pop(lease("a", 4, &[added(1, 1)])).ack(4);
    script.snapshot(5, &[], &[("a", 1, 1)]).breaks(&[Rule::LostAck]);
}

#[test]
fn a_forgotten_settle_is_found() {
    let forgotten = [
        (SettleKind::Ack, SettleKind::Ack, Settled::Ok, Rule::LostAck),
        (SettleKind::Ack, SettleKind::Ack, Settled::Stale(Outcome::Expired), Rule::LostAck),
        (SettleKind::Ack, SettleKind::Nack, Settled::Stale(Outcome::Unknown), Rule::LostAck),
        (SettleKind::Release, SettleKind::Release, Settled::Stale(Outcome::Nacked), Rule::LostSettle),
        (SettleKind::Release, SettleKind::Ack, Settled::Repeated, Rule::LostSettle),
    ];
    for (first, second, settled, rule) in forgotten {
        let mut script = script(DELTA);
        script.add("a", 1, 1).pop(lease("a", 2, &[added(1, 1)])).settle(2, first, Settled::Ok).crash();
        let is_acked = first == SettleKind::Ack;
        let (deltas, known) = ([added(1, 1)], [("a", 1, 1)]);
        let items = [("a", &deltas[..], None)];
        let (items, known) = if is_acked { (&[][..], &known[..]) } else { (&items[..], &[][..]) };
        script.snapshot(9, items, known).settle(2, second, settled);
        script
            .snapshot(9, items, known)
            .rules
            .retain(|rule| *rule != Rule::WrongKnown && *rule != Rule::LostDelta);
        script.breaks(&[rule]);
    }
}

#[test]
fn two_holders_are_found() {
    let mut two = script(DELTA);
    two.add("a", 1, 1).pop(lease("a", 2, &[added(1, 1)])).pop(lease("a", 3, &[added(1, 1)])).ack(3);
    two.snapshot(4, &[], &[("a", 1, 1)]).breaks(&[Rule::LostLease, Rule::TwoHolders]);

    // The first lease has expired, so the second is correct. But a nack of the first must not succeed afterwards.
    let mut late = script(DELTA);
    late.add("a", 1, 1).pop(lease("a", 2, &[added(1, 1)])).now += SECOND;
    late.pop(lease("a", 3, &[added(1, 1)])).settle(2, SettleKind::Nack, Settled::Ok).ack(3);
    late.snapshot(4, &[], &[("a", 1, 1)]).breaks(&[Rule::TwoHolders]);
}

#[test]
fn a_lost_live_lease_is_found() {
    let deltas = [added(1, 1)];
    let mut gone = script(DELTA);
    gone.add("a", 1, 1).pop(lease("a", 2, &deltas)).crash();
    gone.snapshot(9, &[("a", &deltas, None)], &[]).breaks(&[Rule::LostLease]);

    let mut early = script(DELTA);
    early.add("a", 1, 1).pop(lease("a", 2, &deltas)).settle(
        2,
        SettleKind::Nack,
        Settled::Stale(Outcome::Expired),
    );
    early.snapshot(9, &[("a", &deltas, None)], &[]).breaks(&[Rule::LostLease]);

    let mut repeated = script(DELTA);
    let since = repeated.add("a", 1, 1).now;
    repeated.pop_as(Some("x"), since, vec![lease("a", 2, &deltas)]).pop_as(Some("x"), since, Vec::new());
    repeated.snapshot(9, &[("a", &deltas, Some(2))], &[]).breaks(&[Rule::LostLease]);

    // After a restart the lease lasts its full length again.
    let mut renewed = script(DELTA);
    renewed.add("a", 1, 1).pop(lease("a", 2, &deltas)).now += SECOND / 2;
    renewed.crash().snapshot(9, &[("a", &deltas, Some(2))], &[]).now += SECOND / 2;
    renewed.snapshot(10, &[("a", &deltas, None)], &[]).breaks(&[Rule::LostLease]);
}

#[test]
fn a_token_that_does_not_grow_is_found() {
    let mut script = script(DELTA);
    script.add("a", 1, 7).add("b", 2, 9).pop(lease("a", 8, &[added(1, 7)])).ack(8);
    script.snapshot(10, &[("b", &[added(2, 9)], None)], &[("a", 1, 7)]).breaks(&[Rule::Token]);
}

/// A server that has lost a queue and does not know it answers from a state that others have changed since.
#[test]
fn a_stale_read_is_found() {
    let (old, new) = (added(1, 5), added(2, 7));
    let both = [old.clone(), new.clone()];
    let script_of = || {
        let mut script = script(DELTA);
        script.add("a", 1, 5).add("a", 2, 7);
        script
    };
    let end: &[(&str, &[Delta], Option<Rv>)] = &[("a", &both, None)];
    let stale = [Rule::StaleRead];
    script_of().list(7, &[("a", &both)]).snapshot(7, end, &[]).breaks(&[]);
    script_of().ok(Operation::Read, 5).snapshot(7, end, &[]).breaks(&stale);
    script_of().list(5, &[("a", &both[..1])]).snapshot(7, end, &[]).breaks(&stale);
    // The number is right, and the content is not.
    script_of().list(7, &[("a", &both[..1])]).snapshot(7, end, &[]).breaks(&stale);
    script_of()
        .list(7, &[])
        .pop(lease("a", 8, &both))
        .snapshot(8, &[("a", &both, Some(8))], &[])
        .breaks(&stale);

    let popped = || {
        let mut script = script_of();
        script.pop(lease("a", 8, &both));
        script
    };
    let known: &[(&str, u64, Rv)] = &[("a", 2, 9)];
    popped().list(8, &[("a", &both)]).ack(8).list(9, &[]).snapshot(9, &[], known).breaks(&[]);
    popped().ack(8).list(9, &[("a", &both[1..])]).snapshot(9, &[], known).breaks(&stale);
}

#[test]
fn a_decreasing_or_reused_number_is_found() {
    let a = [added(1, 5)];
    script(DELTA)
        .add("a", 1, 5)
        .ok(Operation::Resync, 4)
        .snapshot(5, &[("a", &a, None)], &[])
        .breaks(&[Rule::NumberBack]);
    script(DELTA)
        .add("a", 1, 5)
        .crash()
        .snapshot(4, &[("a", &a, None)], &[])
        .breaks(&[Rule::NumberBack, Rule::Order]);

    let mut reused = script(DELTA);
    reused.lost(&[put("a", 1)]).lost(&[put("b", 2)]).crash();
    reused.snapshot(9, &[("a", &a, None), ("b", &[added(2, 5)], None)], &[]).breaks(&[Rule::NumberReused]);
}

#[test]
fn a_broken_order_is_found() {
    let mut reversed = script(DELTA);
    reversed.add("a", 1, 1).add("a", 2, 2).pop(lease("a", 3, &[added(2, 2), added(1, 1)])).ack(3);
    reversed
        .snapshot(4, &[], &[("a", 2, 2)])
        .rules
        .retain(|rule| *rule != Rule::WrongKnown && *rule != Rule::WrongState);
    reversed.breaks(&[Rule::Order]);

    let mut batch = script(DELTA);
    batch.produce(&[put("a", 1), put("a", 2)], 2);
    batch.snapshot(2, &[("a", &[added(2, 1), added(1, 2)], None)], &[]);
    batch.breaks(&[Rule::Order, Rule::WrongState]);

    let mut behind = script(DELTA);
    behind.lost(&[put("a", 1)]).add("a", 2, 2).pop(lease("a", 3, &[added(2, 2)]));
    behind.settle(3, SettleKind::Nack, Settled::Ok).crash();
    behind
        .snapshot(9, &[("a", &[added(1, 1), added(2, 2)], None)], &[])
        .rules
        .retain(|rule| *rule != Rule::LostDelta);
    behind.breaks(&[Rule::Order]);
}

#[test]
fn a_delta_that_was_not_sent_is_found() {
    let sent = |deltas: &[Delta]| {
        script(DELTA).add("a", 1, 1).snapshot(9, &[("a", deltas, None)], &[]).rules.clone()
    };
    assert_eq!(sent(&[added(1, 1)]), []);
    let unsent = [
        [added(1, 1), added(7, 2)],
        [added(1, 1), added(0, 2)],
        [added(1, 1), added(1, 2)],
        [added(1, 1), tombstone(1, 2)],
        [added(1, 1), delta(Kind::Sync, 1, 2)],
    ];
    for deltas in unsent {
        let rules = sent(&deltas);
        assert!(rules.contains(&Rule::NeverSent), "{deltas:?}: {rules:?}");
    }
    assert!(sent(&[delta(Kind::Updated, 1, 1)]).contains(&Rule::NeverSent));
    let mut wrong_key = script(DELTA);
    wrong_key.add("a", 1, 1).snapshot(9, &[("b", &[added(1, 1)], None)], &[]);
    assert!(wrong_key.rules.contains(&Rule::NeverSent));
}

#[test]
fn a_lost_nacked_delta_is_found() {
    for queue in [DELTA, LATEST] {
        let mut script = script(queue);
        script.add("a", 1, 1).pop(lease("a", 2, &[added(1, 1)])).settle(2, SettleKind::Nack, Settled::Ok);
        script.snapshot(9, &[], &[]).breaks(&[Rule::LostDelta, Rule::WrongState]);
    }
}

#[test]
fn a_wrong_known_object_is_found() {
    let mut script = script(DELTA);
    script.add("a", 1, 1).add("a", 2, 2).pop(lease("a", 3, &[added(1, 1), added(2, 2)])).ack(3);
    script
        .add("a", 3, 5)
        .snapshot(9, &[("a", &[added(3, 5)], None)], &[("a", 1, 1)])
        .breaks(&[Rule::WrongKnown]);
}

#[test]
fn a_known_object_in_a_pop_is_checked() {
    let mut script = script(DELTA);
    let with_known = |token, deltas: &[Delta], known| Lease {
        known: Some(KnownValue(known)),
        ..lease("a", token, deltas)
    };
    script.add("a", 1, 1).pop(with_known(2, &[added(1, 1)], None)).ack(2).add("a", 2, 4);
    script.pop(with_known(5, &[added(2, 4)], None)).ack(5);
    script.snapshot(6, &[], &[("a", 2, 4)]).breaks(&[Rule::WrongKnown]);
}

#[test]
fn a_missing_deletion_is_found() {
    let mut before_newer = script(DELTA);
    before_newer.add("a", 1, 1).replace(&[listed("b", 2), gone("a")], 3).add("a", 3, 4);
    let (a, b) = ([added(1, 1), added(3, 4)], [delta(Kind::Replaced, 2, 2)]);
    before_newer.snapshot(9, &[("a", &a, None), ("b", &b, None)], &[]).breaks(&[Rule::MissingDeletion]);

    let mut of_known = script(DELTA);
    of_known.add("a", 1, 1).pop(lease("a", 2, &[added(1, 1)])).ack(2).replace(&[gone("a")], 4);
    of_known.snapshot(9, &[], &[("a", 1, 1)]).breaks(&[Rule::WrongState, Rule::MissingDeletion]);
}

#[test]
fn inconsistent_counts_and_properties_are_found() {
    let snapshot = |reported: u64, constant: &str, has_synced: bool| Snapshot {
        queue: DELTA,
        counts: vec![Count { name: "known", reported, listed: 0 }],
        constant: Value::from(constant),
        has_synced,
        ..Snapshot::default()
    };
    for (second, rules) in [
        (snapshot(0, "same", true), &[][..]),
        (snapshot(1, "same", true), &[Rule::Inconsistent]),
        (snapshot(0, "other", true), &[Rule::Inconsistent]),
        (snapshot(0, "same", false), &[Rule::Inconsistent]),
    ] {
        script(DELTA).snapshot_as(snapshot(0, "same", true)).snapshot_as(second).breaks(rules);
    }
    script(DELTA)
        .call(Operation::Read, Answer::Refused(String::new()))
        .snapshot(0, &[], &[])
        .breaks(&[Rule::Refused]);
    script(DELTA).call(Operation::Read, Answer::Unknown).snapshot(0, &[], &[]).breaks(&[Rule::NoReply]);
}
