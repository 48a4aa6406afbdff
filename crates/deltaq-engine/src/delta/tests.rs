use super::*;

const NO_CAP: Cap = Cap { deltas: usize::MAX, bytes: usize::MAX };

fn delta(kind: DeltaKind, rv: Rv, final_state_unknown: bool) -> Delta {
    Delta {
        kind,
        object: Object::from_valid("{}"),
        rv,
        queued_at: Time::default(),
        final_state_unknown,
        coalesced: 0,
        provenance: Provenance::default(),
    }
}

fn list(deltas: &[(DeltaKind, bool)]) -> Deltas {
    let mut list = Deltas::default();
    for (rv, (kind, tombstone)) in (1..).zip(deltas) {
        list.append(delta(*kind, Rv::new(rv), *tombstone), false, NO_CAP);
    }
    list
}

fn rvs(list: &Deltas) -> Vec<u64> {
    list.iter().map(|delta| delta.rv.get()).collect()
}

#[test]
fn a_list_of_one_delta_is_small() {
    assert_eq!((size_of::<Deltas>(), size_of::<Delta>(), size_of::<List>()), (8, 48, 56));
}

#[test]
fn deltas_of_the_same_producer_share_their_provenance() {
    let (erp, shop): (Source, Source) = ("erp".into(), "shop".into());
    let mut last = Provenance::default();
    let first = last.same_or_next(Some(&erp), Some(&erp), None);
    assert_eq!(last.same_or_next(None, None, None), Provenance::default());
    let second = last.same_or_next(Some(&"erp".into()), Some(&"erp".into()), None);
    assert!(first.0.zip(second.0).is_some_and(|(first, second)| Arc::ptr_eq(&first, &second)));
    let other = last.same_or_next(None, Some(&shop), None);
    assert_eq!((other.source(), other.owner(), other.trace()), (None, Some(&shop), None));
    assert_eq!(last, other);
}

#[test]
fn of_two_deletions_the_one_with_the_final_state_stays() {
    use DeltaKind::{Added, Deleted};
    assert_eq!(rvs(&list(&[(Added, false), (Deleted, false), (Deleted, false)])), [1, 2]);
    assert_eq!(rvs(&list(&[(Added, false), (Deleted, false), (Deleted, true)])), [1, 2]);
    assert_eq!(rvs(&list(&[(Added, false), (Deleted, true), (Deleted, false)])), [1, 3]);
    assert_eq!(rvs(&list(&[(Added, false), (Deleted, true), (Deleted, true)])), [1, 3]);
    assert_eq!(rvs(&list(&[(Deleted, false), (Added, false), (Deleted, false)])), [1, 2, 3]);
}

#[test]
fn returned_and_newer_deltas_are_deduplicated_where_they_meet() {
    use DeltaKind::{Added, Deleted};
    for (older_is_tombstone, left) in [(false, vec![1, 2, 11]), (true, vec![1, 10, 11])] {
        let leased = list(&[(Added, false), (Deleted, older_is_tombstone)]);
        let mut waiting = Deltas::default();
        waiting.append(delta(Deleted, Rv::new(10), false), false, NO_CAP);
        waiting.append(delta(Added, Rv::new(11), false), false, NO_CAP);
        waiting.put_back(leased, false, NO_CAP);
        assert_eq!(rvs(&waiting), left);
    }
}

#[test]
fn the_cap_merges_the_second_and_third_oldest() {
    let mut list = Deltas::default();
    for rv in 1..=6 {
        list.append(
            delta(DeltaKind::Updated, Rv::new(rv), false),
            false,
            Cap { deltas: 3, bytes: usize::MAX },
        );
    }
    assert_eq!(rvs(&list), [1, 5, 6]);
    let coalesced: Vec<u32> = list.iter().map(|delta| delta.coalesced).collect();
    assert_eq!(coalesced, [0, 3, 0]);

    let mut list = Deltas::default();
    for rv in 1..=4 {
        list.append(delta(DeltaKind::Updated, Rv::new(rv), false), false, Cap { deltas: 9, bytes: 1 });
    }
    assert_eq!(rvs(&list), [1, 4], "two always stay");
    assert_eq!(list.bytes(), 4);
}

#[test]
fn in_mode_latest_only_the_newest_delta_stays() {
    use DeltaKind::{Added, Deleted, Updated};
    let mut list = Deltas::default();
    for (rv, kind) in [(1, Added), (2, Updated), (3, Deleted), (4, Deleted)] {
        list.append(delta(kind, Rv::new(rv), false), true, NO_CAP);
    }
    assert_eq!(rvs(&list), [3]);
    let mut newer = Deltas::default();
    newer.append(delta(Added, Rv::new(5), false), true, NO_CAP);
    newer.put_back(list, true, NO_CAP);
    assert_eq!(rvs(&newer), [5]);
}
