//! The objects of a run and their keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of digits of a key.
const DIGITS: usize = 12;
/// The text before the digits, between digits and padding, and after the padding.
const PARTS: [&str; 3] = ["{\"key\":\"", "\",\"text\":\"", "\"}"];

/// Length of the shortest object, in bytes.
pub(super) const OBJECT_BYTES_MIN: usize = PARTS[0].len() + DIGITS + PARTS[1].len() + PARTS[2].len();

/// A source of numbers for keys.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    next: Arc<AtomicU64>,
    space: Option<u64>,
}

impl Keys {
    /// Creates a source of random numbers below `space` or, without `space`, of consecutive numbers from `next`.
    #[must_use]
    pub fn new(next: Arc<AtomicU64>, space: Option<u64>) -> Self {
        Self { next, space }
    }

    /// Takes `count` consecutive numbers and returns the first.
    #[must_use]
    pub fn take(&self, count: usize) -> u64 {
        match self.space {
            None => self.next.fetch_add(count as u64, Ordering::Relaxed),
            Some(space) => fastrand::u64(..=space.saturating_sub(count as u64)),
        }
    }
}

/// A rendered text with objects whose keys can be overwritten.
#[derive(Clone, Debug)]
pub struct Objects {
    text: Vec<u8>,
    /// Offset of the digits of the first key.
    first: usize,
    /// Bytes from one key to the next.
    stride: usize,
    count: usize,
}

impl Objects {
    /// `before`, then `count` objects with `between` as their separator, then `after`. Each object has `bytes` bytes, or the
    /// minimal length if that is longer.
    #[must_use]
    pub fn new(before: &[u8], count: usize, bytes: usize, between: &[u8], after: &[u8]) -> Self {
        let padding = "x".repeat(bytes.saturating_sub(OBJECT_BYTES_MIN));
        let [open, middle, close] = PARTS;
        let object = format!("{open}{}{middle}{padding}{close}", "0".repeat(DIGITS));
        let list = vec![object.as_bytes(); count].join(between);
        Self {
            text: [before, &list, after].concat(),
            first: before.len() + open.len(),
            stride: object.len() + between.len(),
            count,
        }
    }

    /// The text with consecutive keys, starting at `first`.
    #[must_use]
    pub fn from(&mut self, first: u64) -> &[u8] {
        for (index, number) in (0..self.count).zip(first..) {
            let start = self.first + index * self.stride;
            let mut rest = number;
            for digit in self.text.get_mut(start..start + DIGITS).unwrap_or_default().iter_mut().rev() {
                *digit = b'0' + u8::try_from(rest % 10).unwrap_or_default();
                rest /= 10;
            }
        }
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn objects_have_the_requested_length_and_keys() {
        let mut objects = Objects::new(b"[", 3, 256, b",", b"]");
        for first in [0, 998, 999_999_999_990] {
            let text = objects.from(first).to_vec();
            assert_eq!(text.len(), 3 * 256 + 4);
            let list: Vec<Value> = serde_json::from_slice(&text).unwrap();
            let keys: Vec<String> = (first..first + 3).map(|number| format!("{number:012}")).collect();
            let found: Vec<_> = list.iter().map(|object| object["key"].as_str().unwrap()).collect();
            assert_eq!(found, keys);
        }
    }

    #[test]
    fn keys_are_consecutive_or_random() {
        let next = Arc::new(AtomicU64::new(0));
        let new = Keys::new(Arc::clone(&next), None);
        assert_eq!((new.take(10), new.clone().take(1), new.take(1)), (0, 10, 11));
        let few = Keys::new(next, Some(50));
        let mut firsts: Vec<_> = (0..5000).map(|_| few.take(10)).collect();
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts, (0..=40).collect::<Vec<_>>(), "every position at which ten numbers fit");
        assert_eq!(Keys::new(Arc::default(), Some(1)).take(1), 0);
    }
}
