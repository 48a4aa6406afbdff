//! Comparing the objects of a Replace with those of the queue, without the queue's lock.
//!
//! A Replace with `only_changed` compares every listed object with the newest state of its key. Two large objects that
//! are written differently must be parsed to compare them, which takes milliseconds, so the engine hands such pairs out
//! and the caller compares them while other calls use the queue. The result belongs to exactly these two objects: if the
//! newest state of the key has changed meanwhile, the engine does not find its pair and asks again.

use std::sync::OnceLock;

use super::object::Object;

/// Largest pair that is compared under the queue's lock, in bytes of both objects. Parsing that much takes some 10 µs.
pub(super) const LOCKED_BYTES_MAX: usize = 2_048;
/// Maximum number of pairs in one comparison.
pub(super) const PAIRS_MAX: usize = 256;

/// Pairs of objects to compare, in the order of the list.
#[derive(Debug, Default)]
pub struct Comparison {
    pairs: Vec<Pair>,
}

#[derive(Debug)]
struct Pair {
    stored: Object,
    listed: Object,
    is_same: OnceLock<bool>,
}

impl Comparison {
    /// Compares all pairs. It takes as long as parsing the objects.
    pub fn run(&self) {
        for pair in &self.pairs {
            pair.is_same();
        }
    }

    pub(super) fn push(&mut self, stored: &Object, listed: &Object) {
        self.pairs.push(Pair { stored: stored.clone(), listed: listed.clone(), is_same: OnceLock::new() });
    }

    /// Whether exactly these two objects have the same content; `None` if they are no pair of this comparison.
    pub(super) fn result(&self, stored: &Object, listed: &Object) -> Option<bool> {
        let is_it = |pair: &&Pair| pair.listed.is_shared_with(listed) && pair.stored.is_shared_with(stored);
        self.pairs.iter().find(is_it).map(Pair::is_same)
    }
}

impl Pair {
    fn is_same(&self) -> bool {
        *self.is_same.get_or_init(|| self.stored.same_content(&self.listed))
    }
}
