//! Which entry of a full list makes room for a new one.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// The key of the entry that makes room: of the token with the most entries, the entry with the lowest rank. So a token with many
/// entries pushes out its own, and not those of others. `None` if there are no entries.
///
/// An entry is its key, its token and its rank.
pub fn least_needed<'e, K, R: Ord>(entries: impl IntoIterator<Item = (K, Option<&'e str>, R)>) -> Option<K> {
    let mut tokens = BTreeMap::new();
    for (key, token, rank) in entries {
        match tokens.entry(token) {
            Entry::Vacant(first) => {
                first.insert((1_usize, rank, key));
            }
            Entry::Occupied(mut of_token) => {
                let (count, lowest, least_needed) = of_token.get_mut();
                *count += 1;
                if rank < *lowest {
                    (*lowest, *least_needed) = (rank, key);
                }
            }
        }
    }
    tokens.into_values().max_by_key(|(count, ..)| *count).map(|(_, _, key)| key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_with_the_most_entries_makes_room() {
        // Neither the first nor the last token by name.
        let entries = [(1, Some("c"), 0), (2, Some("b"), 9), (3, Some("b"), 7), (4, None, 0)];
        assert_eq!(least_needed(entries), Some(3));
        assert_eq!(least_needed([(1, None::<&str>, 5), (2, None, 4)]), Some(2));
        assert_eq!(least_needed([] as [(u8, Option<&str>, u8); 0]), None);
    }
}
