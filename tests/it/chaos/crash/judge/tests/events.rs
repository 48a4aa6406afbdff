//! Handmade histories of a queue of mode events.

use super::*;

fn delete(key: &str, value: u64) -> Change {
    Change { key: key.into(), effect: Effect::Delete { value: Some(value) } }
}

fn deleted(value: u64, rv: Rv) -> Delta {
    delta(Kind::Deleted, value, rv)
}

/// A lease of one delta, as the first attempt.
fn first(key: &str, token: Rv, delta: Delta) -> Lease {
    Lease { attempt: 1, ..lease(key, token, &[delta]) }
}

#[test]
fn a_possible_history_passes() {
    let mut script = script(EVENTS);
    script.produce(&[gone("a"), put("a", 1), delete("a", 2), delete("a", 3)], 4).add("a", 4, 5);
    script.pop(first("a", 6, tombstone(0, 1))).ack(6);
    script.pop(first("a", 8, added(1, 2))).settle(8, SettleKind::Nack, Settled::Ok).crash();
    let rest = [added(1, 2), deleted(2, 3), deleted(3, 4), added(4, 5)];
    script.snapshot(1_000, &[("a", &rest, None)], &[]);
    script.pop(Lease { attempt: 2, ..first("a", 1_001, added(1, 2)) }).ack(1_001);
    script.produce(&[gone("a")], 1_003).produce(&[gone("a")], 1_004);
    script.pop(first("a", 1_005, deleted(2, 3))).ack(1_005).pop(first("a", 1_007, deleted(3, 4))).ack(1_007);
    script.pop(first("a", 1_009, added(4, 5))).ack(1_009);
    let rest = [tombstone(4, 1_003), tombstone(4, 1_004)];
    script.snapshot(1_010, &[("a", &rest, None)], &[("a", 4, 1_010)]);
    script.pop(first("a", 1_011, rest[0].clone())).ack(1_011);
    script.pop(first("a", 1_013, rest[1].clone())).ack(1_013);
    script.snapshot(1_014, &[], &[]).breaks(&[]);
}

#[test]
fn a_pop_without_a_reply_is_repeated() {
    let mut script = script(EVENTS);
    let since = script.add("a", 1, 1).add("a", 2, 2).now;
    script.call(pop_of(Some("x"), since), Answer::Unknown).crash();
    script.snapshot(1_000, &[("a", &[added(1, 1), added(2, 2)], Some(3))], &[]);
    script.pop_as(Some("x"), since, vec![first("a", 3, added(1, 1))]).ack(3);
    script.pop(first("a", 1_002, added(2, 2))).ack(1_002);
    script.snapshot(1_003, &[], &[("a", 2, 1_003)]).breaks(&[]);
}

#[test]
fn an_ack_without_a_reply_is_decided_by_the_next_delivery() {
    for happened in [false, true] {
        let mut script = script(EVENTS);
        script.produce(&[delete("a", 1), delete("a", 2)], 2).pop(first("a", 3, deleted(1, 1)));
        script.settle_as(3, SettleKind::Ack, Answer::Unknown).crash();
        if happened {
            script.snapshot(1_000, &[("a", &[deleted(2, 2)], None)], &[]);
            script.pop(first("a", 1_001, deleted(2, 2))).ack(1_001);
        } else {
            script.snapshot(1_000, &[("a", &[deleted(1, 1), deleted(2, 2)], Some(3))], &[]);
            script.settle(3, SettleKind::Ack, Settled::Ok).pop(first("a", 1_002, deleted(2, 2))).ack(1_002);
        }
        script.snapshot(1_003, &[], &[]).breaks(&[]);
    }
}

#[test]
fn a_merged_delta_is_found() {
    let mut listed = script(EVENTS);
    listed.add("a", 1, 1).add("a", 2, 2).add("a", 3, 3);
    listed.snapshot(3, &[("a", &[added(1, 1), added(3, 3)], None)], &[]).breaks(&[Rule::LostWrite]);

    let mut delivered = script(EVENTS);
    delivered.add("a", 1, 1).add("a", 2, 2).add("a", 3, 3).pop(first("a", 4, added(1, 1))).ack(4);
    delivered.pop(first("a", 6, added(3, 3))).ack(6);
    delivered.snapshot(7, &[], &[("a", 3, 7)]).breaks(&[Rule::LostWrite]);

    let mut together = script(EVENTS);
    together.add("a", 1, 1).add("a", 2, 2).pop(lease("a", 3, &[added(1, 1), added(2, 2)])).ack(3);
    together.snapshot(4, &[], &[("a", 2, 4)]);
    assert!(together.rules.contains(&Rule::Order), "{:?}", together.rules);
}

#[test]
fn a_merged_deletion_is_found() {
    let objects = |queue| {
        let mut script = script(queue);
        script.add("a", 1, 1).produce(&[delete("a", 2)], 2).produce(&[delete("a", 3)], 3);
        script.snapshot(3, &[("a", &[added(1, 1), deleted(2, 2)], None)], &[]).rules.clone()
    };
    assert_eq!((objects(DELTA), objects(EVENTS)), (vec![], vec![Rule::LostWrite]));
    let keys = |queue| {
        let mut script = script(queue);
        script.add("a", 1, 1).produce(&[gone("a")], 2).produce(&[gone("a")], 3);
        script.snapshot(3, &[("a", &[added(1, 1), tombstone(1, 3)], None)], &[]).rules.clone()
    };
    assert_eq!((keys(DELTA), keys(EVENTS)), (vec![], vec![Rule::LostWrite]));
}

#[test]
fn a_deletion_of_an_absent_key_must_be_delivered() {
    let rules = |queue| script(queue).produce(&[gone("a")], 1).snapshot(1, &[], &[]).rules.clone();
    assert_eq!((rules(DELTA), rules(EVENTS)), (vec![], vec![Rule::LostWrite]));
}

#[test]
fn a_reordered_delta_is_found() {
    let mut after_a_list = script(EVENTS);
    after_a_list.add("a", 1, 1).add("a", 2, 2);
    after_a_list.snapshot(2, &[("a", &[added(1, 1), added(2, 2)], None)], &[]);
    after_a_list.pop(first("a", 3, added(2, 2))).settle(3, SettleKind::Nack, Settled::Ok);
    after_a_list.snapshot(4, &[("a", &[added(1, 1), added(2, 2)], None)], &[]).breaks(&[Rule::Order]);

    let mut at_once = script(EVENTS);
    at_once.lost(&[put("a", 1)]).add("a", 2, 2).pop(first("a", 3, added(2, 2)));
    at_once.settle(3, SettleKind::Nack, Settled::Ok).pop(first("a", 5, added(1, 1))).ack(5).crash();
    at_once.snapshot(6, &[("a", &[added(2, 2)], None)], &[("a", 1, 6)]);
    assert!(at_once.rules.contains(&Rule::Order), "{:?}", at_once.rules);
}

#[test]
fn a_redelivered_delta_is_found() {
    let mut script = script(EVENTS);
    script.add("a", 1, 1).add("a", 2, 2).pop(first("a", 3, added(1, 1))).ack(3);
    script.pop(first("a", 5, added(1, 1))).ack(5);
    script.snapshot(6, &[("a", &[added(2, 2)], None)], &[("a", 1, 6)]).breaks(&[Rule::LostAck]);
}

#[test]
fn a_lost_delta_is_found() {
    let mut script = script(EVENTS);
    script.add("a", 1, 1).add("a", 2, 2).snapshot(2, &[("a", &[added(1, 1), added(2, 2)], None)], &[]);
    script.pop(first("a", 3, added(1, 1))).ack(3).crash();
    script.snapshot(9, &[], &[("a", 1, 4)]).breaks(&[Rule::LostDelta, Rule::WrongState]);
}

#[test]
fn two_holders_are_found() {
    let mut script = script(EVENTS);
    script.add("a", 1, 1).add("a", 2, 2).pop(first("a", 3, added(1, 1))).pop(first("a", 4, added(2, 2)));
    script.snapshot(4, &[("a", &[added(1, 1), added(2, 2)], Some(4))], &[]);
    assert!(script.rules.contains(&Rule::TwoHolders), "{:?}", script.rules);
}
