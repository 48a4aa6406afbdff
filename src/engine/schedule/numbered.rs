//! A slot under a number, in twelve bytes: of each key that waits there is one, and a pair of both takes sixteen.

use super::{Rv, Slot};

/// Sorts as the pair of number and slot does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Numbered {
    /// The upper half of the number. Three members of four bytes need no room between two values, where one of eight does.
    upper: u32,
    lower: u32,
    slot: Slot,
}

impl Numbered {
    /// The slot under this number.
    pub(super) fn new(rv: Rv, slot: Slot) -> Self {
        let half = |bits: u64| u32::try_from(bits).unwrap_or(u32::MAX);
        Self { upper: half(rv >> u32::BITS), lower: half(rv & u64::from(u32::MAX)), slot }
    }

    /// Both, as they were given.
    pub(super) fn pair(self) -> (Rv, Slot) {
        (Rv::from(self.upper) << u32::BITS | Rv::from(self.lower), self.slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_pair_and_sorts_as_one() {
        assert_eq!(size_of::<Numbered>(), 12);
        let half = u64::from(u32::MAX);
        let numbers = [0, 1, half - 1, half, half + 1, half << 32, u64::MAX];
        let pairs = numbers.iter().flat_map(|rv| [(*rv, 0), (*rv, 7), (*rv, Slot::MAX)]);
        let pairs: Vec<(Rv, Slot)> = pairs.collect();
        let all: Vec<Numbered> = pairs.iter().map(|(rv, slot)| Numbered::new(*rv, *slot)).collect();
        assert!(all.is_sorted_by(|a, b| a < b));
        assert!(all.iter().map(|numbered| numbered.pair()).eq(pairs));
    }
}
