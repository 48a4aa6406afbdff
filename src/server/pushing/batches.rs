//! Which keys go into one request.
//!
//! A request with several keys that fails as a whole says nothing of each of them. So they are sent again one by one: the one that the receiver
//! can't take then fails by itself, and parks no others.

use std::collections::HashSet;

use deltaq_engine::command::Item;
use deltaq_types::Push;

use super::request::Sent;

/// Maximum size of the objects in a request with several keys, in bytes.
pub(super) const BATCH_BYTES: usize = 1 << 20;
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

    /// The receiver has taken this key.
    pub(super) fn was_taken(&mut self, key: &str) {
        self.alone.remove(key);
    }

    /// How many keys a pop may take for a request. One, until the keys that a pop has returned had their turn: they would only return again.
    pub(super) fn keys_of_request(&self, setting: &Push) -> usize {
        if self.left > 0 { 1 } else { usize::try_from(setting.batch).unwrap_or(usize::MAX) }
    }

    /// Takes the keys for up to `room` requests.
    pub(super) fn take(&mut self, items: &mut Vec<Item>, setting: &Push, room: usize) -> Vec<Vec<Item>> {
        let most = usize::try_from(setting.batch).unwrap_or(usize::MAX);
        let (mut requests, mut left) = (Vec::<Vec<Item>>::new(), Vec::new());
        // The request that takes more keys, and the bytes in it.
        let mut open: Option<(usize, usize)> = None;
        for item in items.drain(..) {
            let is_alone = most == 1 || self.alone.contains(item.key.as_str());
            let known = item.known.as_ref().map_or(0, |known| known.object.bytes());
            let own = known + item.deltas.iter().map(|delta| delta.object.bytes()).sum::<usize>();
            let fits = open.and_then(|(at, bytes)| Some((requests.get_mut(at)?, bytes + own)));
            let fits = fits.filter(|(keys, bytes)| !is_alone && keys.len() < most && *bytes <= BATCH_BYTES);
            if let Some((keys, bytes)) = fits {
                keys.push(item);
                open = open.map(|(at, _)| (at, bytes));
            } else if requests.len() < room {
                open = if is_alone { open } else { Some((requests.len(), own)) };
                requests.push(vec![item]);
            } else {
                left.push(item);
            }
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

    fn item(key: &str) -> Item {
        Item {
            key: Key::new(key).unwrap(),
            token: Token::new(Rv::new(1)),
            deadline: Time::from_micros(0),
            worker: None,
            attempt: 1,
            failures: 0,
            is_in_initial_list: false,
            deltas: Vec::new(),
            known: None,
            waited: Duration::ZERO,
        }
    }

    fn push(batch: u64) -> Push {
        serde_json::from_value(serde_json::json!({"url": "http://a", "batch": batch})).unwrap()
    }

    /// The keys of each request, and those that are left. A key with an exclamation mark is sent alone.
    fn taken(batches: &mut Batches, keys: &str, batch: u64, room: usize) -> (Vec<String>, String) {
        let alone: Vec<Sent> =
            keys.split_whitespace().filter_map(|key| key.strip_suffix('!')).map(sent).collect();
        batches.send_alone(&alone);
        let mut items = keys.split_whitespace().map(|key| item(key.trim_end_matches('!'))).collect();
        let requests = batches.take(&mut items, &push(batch), room);
        let text =
            |items: &Vec<Item>| items.iter().map(|item| item.key.as_str()).collect::<Vec<_>>().join(" ");
        (requests.iter().map(text).collect(), text(&items))
    }

    fn sent(key: &str) -> Sent {
        Sent { key: key.to_owned(), token: Token::default(), failures: 0 }
    }

    #[test]
    fn requests_have_up_to_so_many_keys_and_no_more_than_there_is_room_for() {
        for (keys, batch, room, requests, left) in [
            ("a b c d e", 2, 9, vec!["a b", "c d", "e"], ""),
            ("a b c d e", 2, 2, vec!["a b", "c d"], "e"),
            ("a b c", 1, 2, vec!["a", "b"], "c"),
            ("a b", 9, 1, vec!["a b"], ""),
            ("a b! c", 9, 9, vec!["a c", "b"], ""),
            ("a b! c", 9, 1, vec!["a c"], "b"),
            ("b! a c", 9, 1, vec!["b"], "a c"),
            ("a b c! d! e", 2, 3, vec!["a b", "c", "d"], "e"),
        ] {
            let expected = (requests.into_iter().map(str::to_owned).collect(), left.to_owned());
            assert_eq!(taken(&mut Batches::default(), keys, batch, room), expected, "{keys} {batch} {room}");
        }
    }

    #[test]
    fn keys_of_a_failed_request_are_alone_until_they_were_sent() {
        let mut batches = Batches::default();
        batches.send_alone(&[sent("a"), sent("b")]);
        assert_eq!(taken(&mut batches, "a b c d", 9, 9).0, ["a", "b", "c d"]);
        batches.was_taken("a");
        assert_eq!(taken(&mut batches, "a b c d", 9, 9).0, ["a c d", "b"]);
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
        batches.send_alone(&[sent("gone")]);
        assert_eq!(batches.keys_of_request(&push(9)), 9);
    }
}
