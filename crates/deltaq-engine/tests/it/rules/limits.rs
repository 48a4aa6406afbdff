//! The cap on a list of deltas, and room for keys.

use deltaq_engine::id::Rv;

use super::*;

#[test]
fn above_the_cap_the_second_and_third_oldest_delta_are_merged() {
    let mut fixture = Fixture::with(|config| config.max_deltas_per_key = 3);
    for version in 1..=6 {
        fixture.call(updated("a", version));
    }
    assert_eq!(fixture.waiting("a"), "Updated 1, Updated 5+3, Updated 6");
    let item = fixture.pop();
    assert_eq!(item.deltas.len(), 3);
    assert_eq!(item.deltas[1].coalesced, 3);
}

#[test]
fn a_merged_delta_has_the_type_object_and_version_of_the_newer_one() {
    let mut fixture = Fixture::with(|config| config.max_deltas_per_key = 2);
    fixture.produce([added("a", 1), deleted("a"), added("a", 3).from("erp")]).expect("no refusal");
    assert_eq!(fixture.waiting("a"), "Added 1, Added 3+1");
    assert_eq!(fixture.owner("a"), Some("erp"));
    assert_eq!(fixture.pop().deltas[1].rv, Rv::new(3));
}

#[test]
fn the_cap_on_bytes_always_keeps_two_deltas() {
    let mut fixture = Fixture::with(|config| config.max_bytes_per_key = 20);
    fixture.produce([updated("a", 1), updated("a", 2)]).expect("no refusal");
    assert_eq!(fixture.waiting("a"), "Updated 1, Updated 2");
    fixture.call(updated("a", 3));
    assert_eq!(fixture.waiting("a"), "Updated 1, Updated 3+1");
    fixture.call(updated("a", 1_000_000_000));
    assert_eq!(fixture.waiting("a"), "Updated 1, Updated 1000000000+2");
}

#[test]
fn leased_deltas_count_toward_the_cap_only_when_they_return() {
    let mut fixture = Fixture::with(|config| config.max_deltas_per_key = 2);
    fixture.produce([added("a", 1), updated("a", 2)]).expect("no refusal");
    let item = fixture.pop();
    fixture.produce([updated("a", 3), updated("a", 4)]).expect("no refusal");
    assert_eq!(fixture.waiting("a"), "Updated 3, Updated 4");
    fixture.nack(&item);
    assert_eq!(fixture.waiting("a"), "Added 1, Updated 4+2");
}

#[test]
fn at_max_keys_only_new_keys_are_refused() {
    let mut fixture = Fixture::with(|config| config.max_keys = 2);
    fixture.make_known(added("a", 1));
    fixture.call(added("b", 1));
    assert!(matches!(
        fixture.produce([added("c", 1)]),
        Err(Refusal::QueueFull { limit: 2, keys: 2, wanted: 1 })
    ));
    let both = fixture.produce([updated("b", 2), added("c", 1), added("c", 2), added("d", 1)]);
    assert!(
        matches!(both, Err(Refusal::QueueFull { wanted: 2, .. })),
        "a call is accepted completely or not at all"
    );
    assert_eq!(fixture.waiting("b"), "Added 1");
    fixture.produce([updated("a", 2), updated("b", 2), deleted("a"), deleted("x")]).expect("no key is new");
    let item = fixture.pop();
    fixture.ack(&item);
    let item = fixture.pop();
    fixture.ack(&item);
    assert_eq!(fixture.queue.keys(), 1, "a is deleted");
    assert!(fixture.call(added("c", 1)));
}

#[test]
fn an_accepted_replace_reserves_its_keys() {
    let mut fixture = Fixture::with(|config| config.max_keys = 3);
    fixture.call(added("a", 1));
    let id = fixture.accept(list(&[("b", 1), ("c", 1)]));
    assert!(matches!(fixture.produce([added("d", 1)]), Err(Refusal::QueueFull { keys: 3, wanted: 1, .. })));
    assert!(fixture.call(updated("a", 2)));
    fixture.finish(id).expect("its room was reserved");
    assert_eq!(fixture.queue.keys(), 3);
}

#[test]
fn a_replace_that_does_not_fit_is_refused_before_anything_changes() {
    let mut fixture = Fixture::with(|config| config.max_keys = 2);
    fixture.make_known(added("a", 1));
    let rv = fixture.queue.resource_version();
    let result = fixture.replace(list(&[("a", 2), ("b", 1), ("c", 1)]));
    assert!(matches!(result, Err(Refusal::QueueFull { limit: 2, keys: 1, wanted: 2 })));
    assert_eq!(fixture.queue.resource_version(), rv);
    fixture.replace(list(&[("a", 2), ("b", 1)])).expect("one new key fits");
}

#[test]
fn a_refused_or_dry_replace_frees_its_reservation() {
    let mut fixture = Fixture::with(|config| (config.max_keys, config.max_deletes) = (2, Some(0)));
    fixture.make_known(added("a", 1));
    assert!(matches!(fixture.replace(list(&[("b", 1)])), Err(Refusal::MassDelete { .. })));
    let dry = Replace { dry_run: true, ..list(&[("a", 2), ("b", 1)]) };
    fixture.replace(dry).expect("it fits");
    assert!(fixture.call(added("c", 1)));
}
