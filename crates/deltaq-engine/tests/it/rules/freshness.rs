//! The age of the oldest change that no worker has acknowledged.

use super::*;

impl Fixture {
    /// The age of the oldest unacknowledged change in milliseconds.
    fn oldest_ms(&self) -> Option<u128> {
        self.queue.status(self.now()).oldest_unacknowledged_age.map(|age| age.as_millis())
    }
}

#[test]
fn a_change_grows_old_until_its_ack_through_leases_failures_and_backoff() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.oldest_ms(), None);
    fixture.call(added("a", 1));
    fixture.wait(10);
    let first = fixture.pop();
    fixture.wait(20);
    assert_eq!(fixture.oldest_ms(), Some(30), "leased");
    fixture.nack(&first);
    fixture.wait(50);
    let status = fixture.queue.status(fixture.now());
    assert_eq!((fixture.place("a"), status.oldest_ready_age), ("delayed", None));
    assert_eq!(fixture.oldest_ms(), Some(80), "in backoff");
    fixture.wait(50);
    assert_eq!((fixture.place("a"), fixture.oldest_ms()), ("ready", Some(130)));
    let again = fixture.pop();
    fixture.ack(&again);
    assert_eq!(fixture.oldest_ms(), None);
}

#[test]
fn the_oldest_change_of_all_keys_counts_wherever_its_key_is() {
    let mut fixture = Fixture::new();
    fixture.call(added("delayed", 1).after(1_000));
    fixture.wait(10);
    fixture.call(added("leased", 1));
    fixture.wait(10);
    let leased = fixture.pop();
    fixture.call(added("ready", 1));
    fixture.wait(10);
    assert_eq!(fixture.oldest_ms(), Some(30), "the delayed key");
    fixture.purge();
    assert_eq!(fixture.oldest_ms(), Some(20), "the leased key");
    fixture.call(added("ready", 1));
    fixture.wait(5);
    fixture.call(added("late", 1).after(1_000));
    fixture.ack(&leased);
    assert_eq!(fixture.oldest_ms(), Some(5), "the ready key");
}

#[test]
fn after_an_ack_a_key_counts_from_its_first_change_behind_the_lease() {
    for mode in [Mode::Delta, Mode::Latest, Mode::Keys] {
        let mut fixture = Fixture::in_mode(mode);
        let add = |version| if mode == Mode::Keys { queued("a") } else { added("a", version) };
        fixture.call(add(1));
        let lease = fixture.pop();
        fixture.wait(10);
        fixture.call(add(2).after(5_000));
        fixture.wait(10);
        fixture.call(add(3));
        fixture.wait(10);
        assert_eq!(fixture.oldest_ms(), Some(30), "{mode:?}");
        fixture.ack(&lease);
        assert_eq!((fixture.place("a"), fixture.oldest_ms()), ("ready", Some(20)), "{mode:?}");
    }
}

#[test]
fn in_mode_latest_a_change_that_replaces_another_keeps_its_age() {
    let mut fixture = Fixture::in_mode(Mode::Latest);
    fixture.call(added("a", 1));
    for version in 2..5 {
        fixture.wait(10);
        fixture.call(updated("a", version));
    }
    assert_eq!((fixture.entry("a").waiting.len(), fixture.oldest_ms()), (1, Some(30)));
}

#[test]
fn a_parked_key_does_not_count_and_a_redrive_continues_its_age() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1));
    fixture.wait(10);
    let lease = fixture.pop();
    fixture.reject(&lease);
    fixture.wait(10);
    assert_eq!((fixture.place("a"), fixture.oldest_ms()), ("parked", None));
    fixture.redrive(None);
    assert_eq!(fixture.oldest_ms(), Some(20));
}

#[test]
fn a_done_acknowledges_unless_failures_remain() {
    for (rate_limited, age) in [(true, 30), (false, 10)] {
        let mut fixture = Fixture::in_mode(Mode::Keys);
        fixture.call(queued("a"));
        fixture.wait(20);
        let lease = fixture.pop();
        let mut again = queued("a");
        again.0.rate_limited = rate_limited;
        fixture.call(again);
        fixture.wait(10);
        fixture.settle(lease.token, How::Done { delay: None });
        assert_eq!(fixture.oldest_ms(), Some(age), "AddRateLimited: {rate_limited}");
    }
}

/// Everything up to `version` is acknowledged, and the change behind it is not; the number of parked keys up to the newest event.
#[track_caller]
fn assert_acknowledged(fixture: &Fixture, version: u64, parked: usize) {
    let rv = fixture.queue.resource_version();
    let (counted, last) = fixture.queue.count_parked(rv, None, 1);
    assert_eq!((fixture.queue.acknowledged_up_to().get(), counted, last), (version, parked, None));
}

#[test]
fn a_change_is_acknowledged_with_all_older_ones_that_it_replaced() {
    let mut fixture = Fixture::in_mode(Mode::Latest);
    fixture.call(added("a", 1));
    fixture.call(added("b", 1));
    fixture.call(updated("a", 2));
    assert_acknowledged(&fixture, 0, 0);
    let a = fixture.pop();
    fixture.nack(&a);
    fixture.wait(10_000);
    assert_acknowledged(&fixture, 0, 0);
    let b = fixture.pop();
    fixture.ack(&b);
    assert_acknowledged(&fixture, 0, 0);
    let a = fixture.pop();
    fixture.call(updated("a", 3));
    let third = fixture.queue.resource_version().get();
    fixture.ack(&a);
    assert_acknowledged(&fixture, third - 1, 0);
    let a = fixture.pop();
    fixture.ack(&a);
    assert_acknowledged(&fixture, fixture.queue.resource_version().get(), 0);
}

#[test]
fn parked_keys_are_left_out_and_counted_up_to_a_version() {
    let mut fixture = Fixture::new();
    for key in ["a", "b", "c"] {
        fixture.call(added(key, 1));
    }
    for _ in 0..2 {
        let lease = fixture.pop();
        fixture.reject(&lease);
    }
    assert_acknowledged(&fixture, 2, 2);
    let up_to = |version: u64| fixture.queue.count_parked(Rv::new(version), None, 10).0;
    assert_eq!([0, 1, 2, 3].map(up_to), [0, 1, 2, 2]);
    let (first, last) = fixture.queue.count_parked(Rv::new(1), None, 1);
    assert_eq!((first, last.as_ref().map(Key::as_str)), (1, Some("a")));
    assert_eq!(fixture.queue.count_parked(Rv::new(1), last.as_ref(), 5), (0, None));
    fixture.redrive(Some(&["b"]));
    assert_acknowledged(&fixture, 1, 1);
}

#[test]
fn ages_survive_a_crash() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1));
    fixture.wait(10);
    let lease = fixture.pop();
    fixture.nack(&lease);
    fixture.wait(10);
    fixture.crash();
    assert_eq!((fixture.place("a"), fixture.oldest_ms()), ("delayed", Some(20)));
}
