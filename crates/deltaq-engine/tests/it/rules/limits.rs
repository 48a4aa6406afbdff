//! The cap on a list of deltas, and room for keys.

use deltaq_engine::id::Rv;

use super::*;

#[test]
fn a_merged_delta_has_the_type_object_and_version_of_the_newer_one() {
    let mut fixture = Fixture::with(|config| config.max_deltas_per_key = 2);
    fixture.produce([added("a", 1), deleted("a"), added("a", 3).from("erp")]).expect("no refusal");
    assert_eq!(fixture.waiting("a"), "Added 1, Added 3+1");
    assert_eq!(fixture.owner("a"), Some("erp"));
    assert_eq!(fixture.pop().deltas[1].rv, Rv::new(3));
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
