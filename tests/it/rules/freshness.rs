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
