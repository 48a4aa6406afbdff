//! Deliveries of webhooks: each id is applied once, and what can't be applied is kept, within limits and over restarts.

use deltaq_engine::command::Delivered;
use deltaq_engine::deliveries::{DeliveryId, UnappliedDelivery};
use deltaq_engine::limits::{DELIVERY_IDS_MAX, KEPT_DELIVERIES_BYTES_MAX, KEPT_DELIVERIES_MAX};
use deltaq_engine::room::Room;

use super::*;

const DAY_MS: u64 = 86_400_000;

fn id(number: u128) -> DeliveryId {
    DeliveryId::new(number)
}

fn unapplied(number: u128, body: &str) -> Arc<UnappliedDelivery> {
    Arc::new(UnappliedDelivery {
        id: Some(id(number)),
        is_filtered: body == "filtered",
        reason: "no_key".into(),
        detail: "no key".into(),
        headers: Vec::new(),
        body: body.into(),
        is_lossy: false,
    })
}

impl Fixture {
    fn deliver(&mut self, calls: Vec<(ProduceCall, Option<DeliveryId>)>) -> Result<Delivered, Refusal> {
        let (calls, ids): (Vec<Call>, Vec<_>) =
            calls.into_iter().map(|(ProduceCall(call), id)| (call, id)).unzip();
        let delivered = self.queue.deliver(self.now(), &calls, &ids, &[]);
        self.commit_and_check();
        delivered
    }

    /// Delivers one call; returns whether its id had been applied.
    fn is_repeat(&mut self, call: ProduceCall, id: Option<DeliveryId>) -> bool {
        let delivered = self.deliver(vec![(call, id)]).expect("no refusal");
        assert_eq!(delivered.produced.duplicate, delivered.repeated == 1);
        delivered.repeated == 1
    }

    fn keep(&mut self, delivery: Arc<UnappliedDelivery>) -> Rv {
        let number = self.queue.keep_delivery(self.now(), delivery).expect("there is room");
        self.commit_and_check();
        number
    }

    fn kept(&self) -> Vec<Rv> {
        self.queue.kept_deliveries().map(|kept| kept.rv).collect()
    }
}

#[test]
fn a_delivery_is_applied_once_also_after_a_restart() {
    let mut fixture = Fixture::new();
    assert!(!fixture.is_repeat(updated("a", 1), Some(id(7))));
    let before = fixture.queue.resource_version();
    assert!(fixture.is_repeat(updated("a", 2), Some(id(7))));
    assert_eq!(fixture.queue.resource_version(), before, "a repeat changes nothing");
    fixture.crash();
    assert!(fixture.is_repeat(updated("a", 2), Some(id(7))));
    assert!(!fixture.is_repeat(updated("a", 3), None));
    assert!(!fixture.is_repeat(updated("a", 4), None), "without an id nothing is a repeat");
    assert_eq!(fixture.waiting("a"), "Updated 1, Updated 3, Updated 4");
}

#[test]
fn the_ids_of_a_batch_are_looked_at_one_by_one() {
    let mut fixture = Fixture::new();
    fixture.deliver(vec![(updated("a", 1), Some(id(1)))]).expect("no refusal");
    let batch =
        vec![(updated("b", 2), Some(id(2))), (updated("a", 9), Some(id(1))), (updated("b", 3), Some(id(2)))];
    let delivered = fixture.deliver(batch).expect("no refusal");
    assert_eq!((delivered.produced.queued, delivered.repeated, delivered.produced.duplicate), (1, 2, false));
    assert_eq!((fixture.waiting("a").as_str(), fixture.waiting("b").as_str()), ("Updated 1", "Updated 2"));
}

#[test]
fn a_refusal_names_the_call_of_the_request() {
    let mut fixture = Fixture::with(|config| config.max_object_bytes = 10);
    fixture.deliver(vec![(updated("a", 1), Some(id(1)))]).expect("no refusal");
    let large = ProduceCall::new(DeltaKind::Updated, "c", Some(1_000_000));
    let batch = vec![(updated("a", 1), Some(id(1))), (updated("b", 1), Some(id(2))), (large, Some(id(3)))];
    let refused = fixture.deliver(batch).expect_err("an object is too large");
    assert!(matches!(refused, Refusal::ObjectTooLarge { index: 2, .. }), "{refused:?}");
}

#[test]
fn a_refused_delivery_does_not_use_its_id() {
    let mut fixture = Fixture::with(|config| config.max_keys = 1);
    fixture.call(added("a", 1));
    assert!(fixture.deliver(vec![(updated("b", 1), Some(id(1)))]).is_err());
    fixture.delete_known("a");
    assert!(!fixture.is_repeat(updated("b", 1), Some(id(1))));
}

#[test]
fn an_id_is_forgotten_after_a_day_or_behind_many_others() {
    let mut fixture = Fixture::new();
    fixture.is_repeat(updated("a", 1), Some(id(0)));
    fixture.wait(DAY_MS - 1_000);
    assert!(fixture.is_repeat(updated("a", 2), Some(id(0))));
    fixture.is_repeat(updated("a", 3), Some(id(1)));
    fixture.wait(2_000);
    fixture.is_repeat(updated("a", 4), Some(id(2)));
    assert!(!fixture.is_repeat(updated("a", 5), Some(id(0))), "a day has passed");
    let now = fixture.now();
    for number in 10..10 + DELIVERY_IDS_MAX as u128 {
        let ProduceCall(call) = updated("b", 1);
        fixture.queue.deliver(now, &[call], &[Some(id(number))], &[]).expect("no refusal");
    }
    fixture.commit_and_check();
    assert!(!fixture.queue.has_delivered(id(2)) && fixture.queue.has_delivered(id(10)));
    fixture.crash();
    assert!(!fixture.queue.has_delivered(id(2)) && fixture.queue.has_delivered(id(10)));
}

#[test]
fn a_kept_delivery_stays_until_it_is_dropped_or_applied() {
    let mut fixture = Fixture::new();
    let first = fixture.keep(unapplied(1, "{}"));
    let second = fixture.keep(unapplied(2, "{}"));
    let again = fixture.keep(unapplied(1, "{} "));
    assert_eq!(fixture.kept(), [second, again], "a repeat replaces the first delivery");
    fixture.crash();
    assert_eq!(fixture.kept(), [second, again]);
    assert!(!fixture.is_repeat(updated("a", 1), Some(id(1))), "a kept delivery was not applied");
    assert_eq!(fixture.kept(), [second]);
    let now = fixture.now();
    assert_eq!(fixture.queue.drop_deliveries(now, &[first, second, second]), 1);
    fixture.commit_and_check();
    assert!(fixture.kept().is_empty());
}

#[test]
fn kept_deliveries_are_bounded_in_number_and_size() {
    let mut fixture = Fixture::new();
    let mut numbers = Vec::new();
    for number in 0..KEPT_DELIVERIES_MAX as u128 + 2 {
        let kept = fixture.queue.keep_delivery(fixture.now(), unapplied(number, "{}"));
        numbers.push(kept.expect("there is room"));
    }
    fixture.commit_and_check();
    assert_eq!(fixture.kept(), numbers.split_off(2), "the newest ones are kept");
    let held = fixture.queue.held_bytes();
    fixture.keep(unapplied(9_000, &"x".repeat(KEPT_DELIVERIES_BYTES_MAX / 2)));
    let large = fixture.keep(unapplied(9_001, &"x".repeat(KEPT_DELIVERIES_BYTES_MAX / 2)));
    assert_eq!(fixture.kept(), [large]);
    assert!(fixture.queue.held_bytes() > held);
    let larger = fixture.keep(unapplied(9_002, &"x".repeat(2 * KEPT_DELIVERIES_BYTES_MAX)));
    assert_eq!(fixture.kept(), [larger], "one always stays");
}

#[test]
fn deliveries_that_are_left_out_on_purpose_are_dropped_first() {
    let mut fixture = Fixture::new();
    let first = fixture.keep(unapplied(1, "{}"));
    for number in 10..10 + KEPT_DELIVERIES_MAX as u128 {
        fixture.queue.keep_delivery(fixture.now(), unapplied(number, "filtered")).expect("there is room");
    }
    fixture.commit_and_check();
    assert_eq!((fixture.kept().len(), fixture.kept()[0]), (KEPT_DELIVERIES_MAX, first));
}

#[test]
fn a_delivery_that_is_kept_needs_room() {
    let mut fixture = Fixture::new();
    fixture.queue.set_room(Room { held: 100, limit: 100, max: 100, token: None });
    assert!(fixture.queue.keep_delivery(fixture.now(), unapplied(1, "{}")).is_err());
    fixture.commit_and_check();
    assert!(fixture.kept().is_empty());
}

impl Fixture {
    fn delete_known(&mut self, name: &str) {
        let item = self.pop();
        self.ack(&item);
        self.call(deleted(name));
        let item = self.pop();
        self.ack(&item);
    }
}
