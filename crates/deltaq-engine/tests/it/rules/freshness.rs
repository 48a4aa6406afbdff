//! The age of the oldest change that no worker has acknowledged.

use super::*;

impl Fixture {
    /// The age of the oldest unacknowledged change in milliseconds.
    fn oldest_ms(&self) -> Option<u128> {
        self.queue.status(self.now()).oldest_unacknowledged_age.map(|age| age.as_millis())
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
