//! The cap on a list of deltas, and room for keys.

use super::*;

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
