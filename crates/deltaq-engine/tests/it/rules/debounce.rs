//! Debounce windows: when a key is delivered, what its changes cost, and that a restart keeps the times.

use deltaq_engine::config::{Debounce, Quiet};

use super::*;

/// A queue that waits for `quiet` ms without a change, and for `max_wait` ms at the latest.
fn debouncing(quiet: u64, max_wait: u64) -> Fixture {
    Fixture::with(|config| {
        let (quiet, max_wait) = (ms(quiet), Some(ms(max_wait)));
        config.debounce =
            Some(Debounce { quiet, max_wait, delivers_deletes_now: false, debounces_lists: false });
        config.mode = Mode::Latest;
        config.max_failures = 0;
    })
}

impl Fixture {
    /// Changes the key `a` without a check of the whole queue.
    fn change(&mut self, version: u32) {
        let ProduceCall(call) = updated("a", version);
        self.queue.produce(self.now(), &[call]).expect("no refusal");
    }

    /// When the key becomes ready if it stays quiet, in milliseconds since the start.
    fn due_ms(&self) -> Option<u64> {
        let due = self.queue.table().get("a")?.schedule_state.due()?;
        Some(due.as_micros() / 1_000 - START_MS)
    }
}

/// The times at which key `a` is delivered and acknowledged at once, if it changes at these times.
fn deliveries(quiet: u64, max_wait: u64, changes: &[u64]) -> Vec<u64> {
    let mut fixture = debouncing(quiet, max_wait);
    let (mut times, mut left) = (Vec::new(), changes.to_vec());
    for time in 0..20_000 {
        fixture.now_ms = START_MS + time;
        if left.first() == Some(&time) {
            left.remove(0);
            fixture.call(updated("a", 1));
        }
        fixture.queue.advance(fixture.now());
        if fixture.place("a") == "ready" {
            let item = fixture.pop();
            fixture.ack(&item);
            times.push(time);
        }
    }
    times
}

#[test]
fn a_burst_a_stream_and_changes_after_a_delivery_have_these_times() {
    assert_eq!(deliveries(2_000, 10_000, &[0]), [2_000]);
    assert_eq!(deliveries(2_000, 10_000, &[0, 500, 900]), [2_900]);
    assert_eq!(deliveries(2_000, 10_000, &[0, 1_999]), [3_999]);
    assert_eq!(deliveries(2_000, 10_000, &[0, 2_000]), [2_000], "a ready key takes the change");
    assert_eq!(deliveries(2_000, 10_000, &[0, 2_001]), [2_000, 4_001]);
    let stream: Vec<u64> = (0..15).map(|second| second * 1_000).collect();
    assert_eq!(deliveries(2_000, 5_000, &stream), [5_000, 11_000, 16_000]);
    assert_eq!(deliveries(2_000, 2_000, &[0, 1_000, 3_000]), [2_000, 5_000]);
    // A burst, a pause, and a second burst that never pauses: each burst is delivered once more after its last change.
    assert_eq!(deliveries(1_000, 3_000, &[0, 300, 900, 5_000, 5_500, 6_000]), [1_900, 7_000]);
    assert_eq!(deliveries(1_000, 3_000, &[0, 900, 1_800, 2_700, 3_600]), [3_000, 4_600]);
}

#[test]
fn random_changes_are_due_at_the_last_plus_quiet_or_the_first_plus_max_wait() {
    let mut rng = fastrand::Rng::with_seed(7);
    for _ in 0..200 {
        let (quiet, more) = (rng.u64(1..50), rng.u64(..200));
        let mut fixture = debouncing(quiet, quiet + more);
        let mut waiting: Option<(u64, u64)> = None;
        for _ in 0..100 {
            fixture.now_ms += rng.u64(..60);
            let now = fixture.now_ms - START_MS;
            let due = waiting.map(|(first, last)| (last + quiet).min(first + quiet + more));
            fixture.queue.advance(fixture.now());
            if due.is_some_and(|due| due <= now) {
                assert_eq!(fixture.place("a"), "ready");
                let item = fixture.pop();
                fixture.ack(&item);
                waiting = None;
            } else {
                assert_eq!(fixture.due_ms(), due);
            }
            if rng.bool() {
                fixture.call(updated("a", 1));
                waiting = Some((waiting.map_or(now, |(first, _)| first), now));
            }
        }
    }
}

#[test]
fn a_key_without_a_pause_is_delivered_once_per_longest_wait_and_keeps_its_place_in_the_index() {
    const CHANGES: u32 = 1_000_000;
    let mut fixture = debouncing(2_000, 10_000);
    let pop = Pop {
        max: 1,
        max_bytes: usize::MAX,
        lease: None,
        worker: None,
        id: None,
        with_known: false,
        group: None,
    };
    let (mut delivered, mut places, mut last) = (0, 0, None);
    for version in 1..=CHANGES {
        fixture.now_ms += 1;
        fixture.change(version);
        let place = fixture.queue.schedule().next_window();
        places += u32::from(place.is_some() && place != last);
        last = place;
        if fixture.queue.has_ready(fixture.now()) {
            let items = fixture.queue.pop(fixture.now(), &pop).expect("no refusal");
            let settles: Vec<Settle> =
                items.iter().map(|item| Settle { token: item.token, how: How::Ack }).collect();
            fixture.queue.settle(fixture.now(), &settles);
            delivered += 1;
        }
        drop(fixture.queue.take_effects());
    }
    assert!(delivered <= CHANGES / 10_000 + 1, "{delivered} deliveries");
    assert!(delivered >= CHANGES / 10_000 - 1, "{delivered} deliveries");
    // Each window is put into the index when it opens, and once more for each quiet time that has passed.
    assert!(places <= CHANGES / 2_000 + delivered + 1, "{places} places");
    fixture.now_ms += 2_000;
    fixture.queue.advance(fixture.now());
    let deltas = fixture.queue.pop(fixture.now(), &pop).expect("no refusal").remove(0).deltas;
    assert_eq!(deltas.last().expect("a delta").object.as_str(), format!("{{\"v\":{CHANGES}}}"));
}

#[test]
fn a_restored_window_ends_at_the_same_time() {
    let mut fixture = debouncing(2_000, 5_000);
    fixture.call(updated("a", 1));
    fixture.wait(1_500);
    fixture.call(updated("a", 2));
    fixture.wait(1_500);
    fixture.call(updated("a", 3));
    assert_eq!(fixture.due_ms(), Some(5_000));
    fixture.crash();
    assert_eq!((fixture.due_ms(), fixture.place("a")), (Some(5_000), "delayed"));
    fixture.wait(1_999);
    assert_eq!(fixture.place("a"), "delayed");
    fixture.wait(1);
    assert_eq!(fixture.place("a"), "ready");
}

#[test]
fn a_batch_of_different_waits_leaves_each_key_its_own() {
    let mut fixture = Fixture::new();
    let waits = |quiet: u64| Quiet::new(ms(quiet), None);
    let calls = [("a", waits(300)), ("b", waits(100)), ("c", None), ("d", waits(0))];
    let calls = calls.map(|(name, debounce)| {
        let ProduceCall(call) = added(name, 1);
        ProduceCall(Call { debounce, ..call })
    });
    fixture.produce(calls).expect("no refusal");
    assert_eq!(["a", "b", "c", "d"].map(|key| fixture.place(key)), ["delayed", "delayed", "ready", "ready"]);
    assert_eq!(fixture.queue.next_deadline(), Some(Time::from_micros((START_MS + 100) * 1_000)));
}

#[test]
fn a_restored_window_that_has_passed_is_delivered_at_once() {
    let mut fixture = debouncing(2_000, 5_000);
    fixture.call(updated("a", 1));
    fixture.now_ms += 60_000;
    fixture.crash();
    fixture.queue.advance(fixture.now());
    assert_eq!(fixture.place("a"), "ready");
}

#[test]
fn a_restored_key_that_backs_off_waits_for_its_backoff_and_its_window() {
    let mut fixture = debouncing(2_000, 10_000);
    fixture.call(updated("a", 1));
    fixture.wait(2_000);
    let item = fixture.pop();
    fixture.settle(item.token, nack_after(3_000));
    fixture.call(updated("a", 2));
    fixture.wait(1_500);
    fixture.call(updated("a", 3));
    fixture.crash();
    assert_eq!(fixture.due_ms(), Some(5_500), "2 s after the last change");
    fixture.wait(1_999);
    assert_eq!(fixture.place("a"), "delayed");
    fixture.wait(1);
    assert_eq!(fixture.place("a"), "ready");
}

#[test]
fn a_closed_queue_is_drained_once_all_its_windows_have_ended() {
    const KEYS: usize = 2_500;
    let mut fixture = debouncing(3_600_000, 7_200_000);
    let calls: Vec<Call> = (0..KEYS)
        .map(|number| {
            let ProduceCall(call) = updated("a", 1);
            Call { key: key(&format!("k{number}")), ..call }
        })
        .collect();
    fixture.queue.produce(fixture.now(), &calls).expect("no refusal");
    fixture.queue.close_at_once(fixture.now());
    let pop = Pop {
        max: KEYS,
        max_bytes: usize::MAX,
        lease: None,
        worker: None,
        id: None,
        with_known: false,
        group: None,
    };
    let mut delivered = 0;
    while let Ok(items) = fixture.queue.pop(fixture.now(), &pop) {
        assert!(!items.is_empty(), "a queue whose windows have not ended is not drained");
        delivered += items.len();
    }
    assert_eq!(delivered, KEYS);
}
