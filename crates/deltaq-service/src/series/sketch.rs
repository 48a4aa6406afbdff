//! A small histogram of durations that can be merged. Quantiles are computed from a merged histogram, never from other quantiles.

/// Each power of two has this many classes, so a class is at most a quarter wider than its lower bound.
const CLASSES_PER_OCTAVE: u64 = 1 << CLASS_BITS;
const CLASS_BITS: u32 = 2;
/// The width of the widest class is this power of two.
const LAST_SHIFT: u64 = 61;

/// How many durations are in each class. A class holds durations that differ by a quarter at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sketch {
    /// The classes with durations: number of the class, number of durations. In the order of the classes.
    classes: Vec<(u8, u64)>,
}

impl Sketch {
    /// Counts a duration.
    pub fn record(&mut self, took_us: u64) {
        self.add(class_of(took_us), 1);
    }

    /// Counts the durations of another histogram too.
    pub fn merge(&mut self, other: &Self) {
        other.classes.iter().for_each(|(class, count)| self.add(*class, *count));
    }

    pub(super) fn add(&mut self, class: u8, count: u64) {
        match self.classes.binary_search_by_key(&class, |(class, _)| *class) {
            Ok(place) => {
                if let Some((_, counted)) = self.classes.get_mut(place) {
                    *counted = counted.saturating_add(count);
                }
            }
            Err(place) => self.classes.insert(place, (class, count)),
        }
    }

    /// The classes with durations, in their order.
    #[must_use]
    pub fn classes(&self) -> &[(u8, u64)] {
        &self.classes
    }

    /// The histogram with these classes.
    #[must_use]
    pub fn of_classes(classes: &[(u8, u64)]) -> Self {
        let mut sketch = Self::default();
        for (class, count) in classes {
            sketch.add(*class, *count);
        }
        sketch
    }

    /// Number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.classes.iter().map(|(_, count)| *count).fold(0, u64::saturating_add)
    }

    /// Whether there are no durations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// The duration that `percent` percent of the durations do not exceed, in microseconds: the middle of its class, so it is at
    /// most an eighth away. `None` without durations.
    #[must_use]
    pub fn quantile_us(&self, percent: u64) -> Option<u64> {
        // The rank of the duration, from 1: at least so many durations are not longer.
        let rank = u128::from(self.count()) * u128::from(percent);
        let rank = rank.div_ceil(100).max(1);
        let mut passed = 0;
        let class = self.classes.iter().find(|(_, count)| {
            passed += u128::from(*count);
            passed >= rank
        });
        class.map(|(class, _)| middle_us(*class))
    }
}

/// The class of a duration. Durations below 4 us have their own classes.
fn class_of(took_us: u64) -> u8 {
    let octave = u64::from(took_us.checked_ilog2().unwrap_or_default());
    if octave < u64::from(CLASS_BITS) {
        return u8::try_from(took_us).unwrap_or_default();
    }
    let within = (took_us >> (octave - u64::from(CLASS_BITS))) % CLASSES_PER_OCTAVE;
    let class = (octave - u64::from(CLASS_BITS) + 1) * CLASSES_PER_OCTAVE + within;
    u8::try_from(class).unwrap_or(u8::MAX)
}

/// The middle of a class.
fn middle_us(class: u8) -> u64 {
    let class = u64::from(class);
    if class < CLASSES_PER_OCTAVE {
        return class;
    }
    // The last class of a duration has this shift.
    let shift = (class / CLASSES_PER_OCTAVE - 1).min(LAST_SHIFT);
    let lower = (CLASSES_PER_OCTAVE + class % CLASSES_PER_OCTAVE) << shift;
    lower.saturating_add((1 << shift) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_at_most_an_eighth_away_from_its_durations() {
        let mut took_us = 1_u64;
        let mut last = 0;
        while took_us < 90_000_000_000 {
            let class = class_of(took_us);
            assert!(class >= last, "the classes ascend: {took_us} us is in {class}");
            last = class;
            let apart = middle_us(class).abs_diff(took_us);
            assert!(apart <= took_us / 8, "{took_us} us is shown as {} us", middle_us(class));
            took_us += took_us.div_ceil(37);
        }
        assert_eq!((class_of(0), middle_us(0)), (0, 0));
        assert_eq!(class_of(u64::MAX), 251);
        assert!(middle_us(251) > u64::MAX / 8 * 7);
        assert!(middle_us(u8::MAX) >= middle_us(251), "a class that no duration has");
    }

    #[test]
    fn quantiles_are_those_of_the_merged_histogram() {
        // 99 leases of 1 ms in one minute, and 1 of 10 s in another: the mean of the two medians would be 5 s.
        let (mut quick, mut slow) = (Sketch::default(), Sketch::default());
        (0..99).for_each(|_| quick.record(1_000));
        slow.record(10_000_000);
        let mut both = quick.clone();
        both.merge(&slow);
        assert_eq!(both.count(), 100);
        let near = |found: Option<u64>, expected: u64| {
            let found = found.expect("a quantile");
            assert!(found.abs_diff(expected) <= expected / 8, "{found} us instead of {expected} us");
        };
        near(both.quantile_us(50), 1_000);
        near(both.quantile_us(99), 1_000);
        near(both.quantile_us(100), 10_000_000);
        // The order of merging makes no difference.
        let mut other = slow;
        other.merge(&quick);
        assert_eq!(other, both);
        assert_eq!(Sketch::default().quantile_us(50), None);
        assert_eq!(Sketch::of_classes(both.classes()), both);
    }
}
