//! The errors of the parked keys of a queue.

use std::ops::Bound;
use std::sync::Arc;

use deltaq_engine::Queue;
use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use hashbrown::HashMap;

use super::Error;
use super::queue::Handle;

/// Maximum number of parked keys that are examined in one critical section.
const EXAMINED_MAX: usize = 5_000;
/// Maximum number of different errors that are counted. The keys with further errors are counted together.
const ERRORS_MAX: usize = 50_000;

/// The parked keys with one error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedGroup {
    /// The error of their last failure; empty for keys without an error.
    pub error: Arc<str>,
    /// The number of the keys.
    pub keys: usize,
    /// The first of the keys, in key order.
    pub first_key: Key,
}

/// The parked keys by their errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedGroups {
    /// The largest groups, the largest one first.
    pub groups: Vec<ParkedGroup>,
    /// The number of keys that are in none of the groups.
    pub other_keys: usize,
    /// The queue's newest event when the last key was read.
    pub resource_version: Rv,
}

#[derive(Debug, Default)]
struct Counting {
    groups: HashMap<Arc<str>, (usize, Key)>,
    other_keys: usize,
}

impl Counting {
    /// Counts parked keys behind `after`. Returns the last key, unless there are no further keys.
    fn visit(&mut self, queue: &Queue, after: Option<&Key>) -> Option<Key> {
        let from = after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.as_str()));
        let mut examined = 0;
        for (key, slot) in queue.schedule().parked_from(from) {
            let entry = queue.table().at(slot);
            let error = entry.and_then(|entry| entry.schedule_state.shared_last_error());
            self.count(error, key);
            examined += 1;
            if examined == EXAMINED_MAX {
                return Some(key.clone());
            }
        }
        None
    }

    fn count(&mut self, error: Option<&Arc<str>>, key: &Key) {
        let text = error.map_or("", |error| error);
        if let Some((keys, _)) = self.groups.get_mut(text) {
            *keys += 1;
        } else if self.groups.len() < ERRORS_MAX {
            let error = error.cloned().unwrap_or_default();
            self.groups.insert(error, (1, key.clone()));
        } else {
            self.other_keys += 1;
        }
    }
}

impl Handle {
    /// The parked keys by their errors, at most `limit` of them. The keys are counted in parts, so a key that is parked or
    /// leaves meanwhile may be missing or be counted.
    ///
    /// # Errors
    /// As for reads.
    pub async fn parked_errors(&self, limit: usize) -> Result<ParkedGroups, Error> {
        let mut counting = Counting::default();
        let mut after = None;
        let resource_version = loop {
            let (last, version) = self
                .read(|queue, _| (counting.visit(queue, after.as_ref()), queue.resource_version()))
                .await?;
            if last.is_none() {
                break version;
            }
            after = last;
        };
        let groups = counting.groups.into_iter();
        let mut groups: Vec<_> =
            groups.map(|(error, (keys, first_key))| ParkedGroup { error, keys, first_key }).collect();
        groups.sort_unstable_by(|a, b| b.keys.cmp(&a.keys).then_with(|| a.error.cmp(&b.error)));
        let left_out = groups.iter().skip(limit).map(|group| group.keys).sum::<usize>();
        groups.truncate(limit);
        Ok(ParkedGroups { groups, other_keys: counting.other_keys + left_out, resource_version })
    }
}
