//! Which node should own which partition.
//!
//! Every node computes this on its own from the same list of nodes. The nodes get equal shares, and when a node joins
//! or leaves, few partitions move between the others. Each partition has its own order of preferred nodes (rendezvous
//! hashing), and goes to the first node in that order that has room.

use sha2::{Digest as _, Sha256};

/// The node of each partition, as an index into `names`; `None` if there are no nodes. A partition goes to a node
/// that can load it, if there is one, even if this exceeds the node's share.
pub(super) fn shares(
    names: &[&str],
    partitions: usize,
    can_load: impl Fn(usize, usize) -> bool,
) -> Vec<Option<usize>> {
    let share = partitions.checked_div(names.len()).unwrap_or_default();
    // The number of nodes that get one more partition than the others.
    let mut larger = partitions.checked_rem(names.len()).unwrap_or_default();
    let mut owned = vec![0; names.len()];
    let mut place = |partition: usize| {
        let mut order: Vec<_> = (0..names.len()).collect();
        order.sort_by_cached_key(|&node| names.get(node).map(|name| preference(name, partition)));
        if order.iter().any(|&node| can_load(node, partition)) {
            order.retain(|&node| can_load(node, partition));
        }
        let first = order.first().copied();
        for node in order {
            let owned = owned.get_mut(node)?;
            if *owned == share && larger > 0 {
                larger -= 1;
            } else if *owned >= share {
                continue;
            }
            *owned += 1;
            return Some(node);
        }
        first
    };
    (0..partitions).map(&mut place).collect()
}

/// The preference of a partition for a node. Smaller is better.
fn preference(name: &str, partition: usize) -> [u8; 32] {
    Sha256::new().chain_update(partition.to_be_bytes()).chain_update(name).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named<'n>(names: &[&'n str], partitions: usize) -> Vec<&'n str> {
        shares(names, partitions, |_, _| true).into_iter().map(|node| names[node.unwrap()]).collect()
    }

    #[test]
    fn the_shares_are_equal() {
        let names = ["a", "b", "c", "d", "e", "f", "g"];
        for nodes in 1..=names.len() {
            for partitions in 1..=30 {
                let owners = named(&names[..nodes], partitions);
                for name in &names[..nodes] {
                    let share = owners.iter().filter(|owner| *owner == name).count();
                    let least = partitions / nodes;
                    assert!(
                        (least..=least + 1).contains(&share),
                        "{name} has {share} of {partitions}: {owners:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn without_nodes_nothing_is_owned() {
        assert_eq!(shares(&[], 2, |_, _| true), [None, None]);
    }

    #[test]
    fn a_partition_goes_to_a_node_that_can_load_it() {
        let names = ["a", "b"];
        let with = |can_load: &dyn Fn(usize, usize) -> bool| shares(&names, 12, can_load);
        let without_b = with(&|node, partition| node == 0 || partition >= 4);
        assert!(without_b.iter().take(4).all(|node| *node == Some(0)), "{without_b:?}");
        assert_eq!(without_b.iter().filter(|node| **node == Some(0)).count(), 6, "the shares stay equal");
        let only_a = with(&|node, _| node == 0);
        assert!(only_a.iter().all(|node| *node == Some(0)), "{only_a:?}");
        assert_eq!(with(&|_, partition| partition > 0), with(&|_, _| true), "no node can load the first one");
    }

    #[test]
    fn few_partitions_move_between_the_nodes_that_stay() {
        let before = named(&["a", "b", "c"], 12);
        let after = named(&["a", "b"], 12);
        let moved = before.iter().zip(&after).filter(|(before, after)| **before != "c" && before != after);
        assert!(moved.count() <= 2, "{before:?} {after:?}");
    }
}
