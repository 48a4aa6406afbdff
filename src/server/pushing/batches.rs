//! Which keys go into one request.
//!
//! A request with several keys that fails as a whole says nothing of each of them. So they are sent again one by one: the one that the receiver
//! can't take then fails by itself, and parks no others.

use std::collections::HashSet;

use deltaq_engine::command::Item;
use deltaq_types::Push;

use super::request::Sent;

/// Maximum size of the objects in a request with several keys, in bytes.
const BATCH_BYTES: usize = 1 << 20;
/// Maximum number of keys that are remembered.
const ALONE_MAX: usize = 10_000;

/// Which keys are sent alone.
#[derive(Debug, Default)]
pub(super) struct Batches {
    alone: HashSet<String>,
    /// Whether the last pop had more keys than its requests could take.
    left_keys: bool,
}

impl Batches {
    /// The next request for each of these keys has no other key.
    pub(super) fn send_alone(&mut self, keys: &[Sent]) {
        // What is forgotten fails once more with others.
        if self.alone.len() + keys.len() > ALONE_MAX {
            self.alone.clear();
        }
        self.alone.extend(keys.iter().map(|sent| sent.key.clone()));
    }

    /// A request with this key alone has ended.
    pub(super) fn was_sent_alone(&mut self, key: &str) {
        self.alone.remove(key);
    }

    /// How many keys a pop may take for a request. While keys are sent alone, more would only return to the queue.
    pub(super) fn keys_of_request(&self, setting: &Push) -> usize {
        if self.left_keys || !self.alone.is_empty() {
            return 1;
        }
        usize::try_from(setting.batch).unwrap_or(usize::MAX)
    }

    /// Takes the keys for up to `room` requests. A key that has failed before is alone.
    pub(super) fn take(&mut self, items: &mut Vec<Item>, setting: &Push, room: usize) -> Vec<Vec<Item>> {
        let most = usize::try_from(setting.batch).unwrap_or(usize::MAX);
        let (mut requests, mut left) = (Vec::new(), Vec::new());
        let (mut together, mut bytes) = (Vec::new(), 0);
        for item in items.drain(..) {
            let is_alone = most == 1 || item.failures > 0 || self.alone.contains(item.key.as_str());
            let own: usize = item.deltas.iter().map(|delta| delta.object.bytes()).sum();
            let is_full = !together.is_empty() && (together.len() == most || bytes + own > BATCH_BYTES);
            if is_full && !is_alone && requests.len() < room {
                requests.push(std::mem::take(&mut together));
                bytes = 0;
            }
            let places = room.saturating_sub(requests.len() + usize::from(!together.is_empty()));
            if is_alone && places > 0 {
                requests.push(vec![item]);
            } else if !is_alone && (places > 0 || !together.is_empty() && !is_full) {
                bytes += own;
                together.push(item);
            } else {
                left.push(item);
            }
        }
        if !together.is_empty() {
            requests.push(together);
        }
        self.left_keys = !left.is_empty();
        *items = left;
        requests
    }
}
