//! Acknowledgements of a part of a lease.

use deltaq_engine::command::{HoldScope, Part};

use super::*;

fn part(through: Rv, rest: Option<How>) -> How {
    How::Part(Box::new(Part { through, rest }))
}

/// The versions of the objects of a lease.
fn versions(item: &Item) -> Vec<u32> {
    let version = |delta: &Delta| delta_text(delta).rsplit(' ').next().and_then(|text| text.parse().ok());
    item.deltas.iter().map(|delta| version(delta).expect("a version")).collect()
}

/// Each worker does one change, acknowledges it and dies, in every way: its lease expires, it returns the lease, it fails, or the server dies with it.
#[test]
fn a_worker_that_dies_after_each_delta_never_repeats_an_acknowledged_one_and_never_skips_one() {
    const CHANGES: u32 = 24;
    let mut fixture = Fixture::with(|config| (config.max_failures, config.max_deltas_per_key) = (2, 64));
    let (mut sent, mut done) = (1, Vec::new());
    fixture.call(added("a", 1));
    while done.len() < CHANGES as usize {
        // Changes come before the delivery, and while the worker is at work.
        let burst = |fixture: &mut Fixture, sent: &mut u32, count: u32| {
            for _ in 0..count.min(CHANGES - *sent) {
                *sent += 1;
                fixture.call(updated("a", *sent));
            }
        };
        burst(&mut fixture, &mut sent, 2);
        let item = fixture.pop();
        burst(&mut fixture, &mut sent, 1);
        let next = u32::try_from(done.len()).expect("a few") + 1;
        assert_eq!(versions(&item).first(), Some(&next), "{} is done", done.len());
        assert!(versions(&item).is_sorted_by(|one, two| one + 1 == *two), "{}", text(&item));
        done.push(next);
        let through = item.deltas.first().expect("a delta").rv;
        let settled = fixture.settle(item.token, part(through, None));
        assert!(matches!(settled, Settled::Ok { failed: None, .. }), "{settled:?}");
        assert_eq!(fixture.settle(item.token, part(through, None)), Settled::Repeated);
        let is_live = item.deltas.len() > 1;
        assert_eq!(
            fixture.place("a") == "leased",
            is_live,
            "the lease goes on with the rest, if there is one"
        );
        match done.len() % 4 {
            0 => fixture.crash(),
            1 if is_live => assert!(matches!(fixture.settle(item.token, How::Release), Settled::Ok { .. })),
            2 if is_live => {
                let Settled::Ok { failed: Some(failed), .. } = fixture.settle(item.token, nack()) else {
                    panic!("the rest is nacked")
                };
                assert_eq!((failed.failures, failed.is_parked), (1, false), "only the rest has failed");
            }
            _ => {}
        }
        // Longer than a lease and a backoff.
        fixture.wait(60_000);
    }
    assert_eq!(done, (1..=CHANGES).collect::<Vec<_>>());
    assert_eq!(fixture.place("a"), "known");
}

#[test]
fn the_rest_arrives_when_it_comes_back() {
    for rest in [How::Ack, How::Release, How::Hold { scope: HoldScope::Queue, acks: true, length: ms(1) }] {
        let mut fixture = Fixture::new();
        fixture.produce([added("a", 1), updated("a", 2), added("b", 1)]).expect("no refusal");
        let item = fixture.pop();
        fixture.settle(item.token, part(item.deltas[0].rv, Some(rest)));
        fixture.wait(1);
        assert_eq!(fixture.ready_queue(), ["b", "a"]);
    }
}

#[test]
fn a_delta_that_is_not_leased_changes_nothing() {
    let mut fixture = Fixture::new();
    fixture.produce([added("a", 1), updated("a", 2), added("b", 1)]).expect("no refusal");
    let item = fixture.pop();
    fixture.call(updated("a", 3));
    let waiting = fixture.entry("a").waiting.newest().expect("a delta waits").rv;
    let events = fixture.events.len();
    for through in [item.deltas[0].rv.next().next(), waiting, item.token.rv(), Rv::MAX] {
        for rest in [None, Some(How::Ack), Some(nack())] {
            assert_eq!(fixture.settle(item.token, part(through, rest)), Settled::NotLeased, "{through}");
        }
    }
    assert_eq!((fixture.events.len(), fixture.place("a")), (events, "leased"));
    let newest = item.deltas[1].rv;
    assert!(matches!(
        fixture.settle(item.token, part(newest, Some(nack()))),
        Settled::Ok { failed: None, .. }
    ));
    assert_eq!(fixture.settle(item.token, part(newest, Some(nack()))), Settled::Repeated);
    assert!(matches!(fixture.settle(item.token, nack()), Settled::Stale { .. }));
}

#[test]
fn a_worker_that_acknowledged_a_part_has_its_lease() {
    let mut fixture = Fixture::new();
    fixture.produce([added("a", 1), added("b", 1)]).expect("no refusal");
    fixture.call(updated("a", 2));
    let item = fixture.pop();
    let through = item.deltas.first().expect("a delta").rv;
    assert!(matches!(fixture.settle(item.token, part(through, None)), Settled::Ok { .. }));
    fixture.queue.return_undelivered(fixture.now(), &[item.token]);
    fixture.commit_and_check();
    assert_eq!(fixture.place("a"), "leased");
}

#[test]
fn a_change_that_was_merged_into_the_rest_is_not_acknowledged() {
    let mut fixture = Fixture::with(|config| config.max_deltas_per_key = 2);
    fixture.call(added("a", 1));
    let first = fixture.queue.resource_version();
    fixture.call(updated("a", 2));
    fixture.call(updated("a", 3));
    let item = fixture.pop();
    assert_eq!(text(&item), "a: Added 1, Updated 3+1");
    let through = item.deltas.first().expect("a delta").rv;
    assert!(matches!(fixture.settle(item.token, part(through, None)), Settled::Ok { .. }));
    assert!(fixture.queue.acknowledged_up_to() < first, "change 2 is in the lease");
    assert!(matches!(fixture.settle(item.token, How::Ack), Settled::Ok { .. }));
    assert!(fixture.queue.acknowledged_up_to() > first);
}
