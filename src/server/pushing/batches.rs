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
    /// How many keys a pop has returned to the queue because its requests had no place for them.
    left: usize,
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

    /// How many keys a pop may take for a request. One, until the keys that a pop has returned had their turn: they would only return again.
    pub(super) fn keys_of_request(&self, setting: &Push) -> usize {
        if self.left > 0 { 1 } else { usize::try_from(setting.batch).unwrap_or(usize::MAX) }
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
        self.left = self.left.saturating_sub(requests.len()) + left.len();
        *items = left;
        requests
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use deltaq_engine::id::{Rv, Token};
    use deltaq_engine::key::Key;
    use deltaq_engine::time::Time;

    use super::*;

    fn item(key: &str, failures: u32) -> Item {
        Item {
            key: Key::new(key).unwrap(),
            token: Token::new(Rv::new(1)),
            deadline: Time::from_micros(0),
            worker: None,
            attempt: 1,
            failures,
            is_in_initial_list: false,
            deltas: Vec::new(),
            known: None,
            waited: Duration::ZERO,
        }
    }

    fn push(batch: u64) -> Push {
        serde_json::from_value(serde_json::json!({"url": "http://a", "batch": batch})).unwrap()
    }

    /// The keys of each request, and those that are left. A key with an exclamation mark has failed before.
    fn taken(batches: &mut Batches, keys: &str, batch: u64, room: usize) -> (Vec<String>, String) {
        let mut items = keys
            .split_whitespace()
            .map(|key| item(key.trim_end_matches('!'), u32::from(key.ends_with('!'))))
            .collect();
        let requests = batches.take(&mut items, &push(batch), room);
        let text = |items: &Vec<Item>| items.iter().map(|item| item.key.as_str()).collect::<Vec<_>>().join(" ");
        (requests.iter().map(text).collect(), text(&items))
    }

    #[test]
    fn requests_have_up_to_so_many_keys_and_no_more_than_there_is_room_for() {
        for (keys, batch, room, requests, left) in [
            ("a b c d e", 2, 9, vec!["a b", "c d", "e"], ""),
            ("a b c d e", 2, 2, vec!["a b", "c d"], "e"),
            ("a b c", 1, 2, vec!["a", "b"], "c"),
            ("a b", 9, 1, vec!["a b"], ""),
            ("a b! c", 9, 9, vec!["b", "a c"], ""),
            ("a b! c", 9, 1, vec!["a c"], "b"),
            ("b! a c", 9, 1, vec!["b"], "a c"),
            ("a b c! d! e", 2, 3, vec!["c", "d", "a b"], "e"),
        ] {
            let expected = (requests.into_iter().map(str::to_owned).collect(), left.to_owned());
            assert_eq!(taken(&mut Batches::default(), keys, batch, room), expected, "{keys} {batch} {room}");
        }
    }

    #[test]
    fn keys_of_a_failed_request_are_alone_until_they_were_sent() {
        let mut batches = Batches::default();
        let sent = |key: &str| Sent { key: key.to_owned(), token: Token::default(), failures: 0 };
        batches.send_alone(&[sent("a"), sent("b")]);
        assert_eq!(taken(&mut batches, "a b c d", 9, 9).0, ["a", "b", "c d"]);
        batches.was_sent_alone("a");
        assert_eq!(taken(&mut batches, "a b c d", 9, 9).0, ["b", "a c d"]);
    }

    #[test]
    fn a_pop_takes_no_keys_that_would_only_return() {
        let mut batches = Batches::default();
        assert_eq!(batches.keys_of_request(&push(9)), 9);
        taken(&mut batches, "a! b! c!", 9, 1);
        for key in ["b!", "c!"] {
            assert_eq!(batches.keys_of_request(&push(9)), 1);
            taken(&mut batches, key, 9, 1);
        }
        assert_eq!(batches.keys_of_request(&push(9)), 9);
        // Keys that somebody else has taken hold nothing up.
        batches.send_alone(&[Sent { key: "gone".to_owned(), token: Token::default(), failures: 0 }]);
        assert_eq!(batches.keys_of_request(&push(9)), 9);
    }
}
