//! The keys of a list that is read, to tell a list that has shrunk from one that was cut short.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use deltaq_client::Event;

use super::Error;
use crate::json;

/// Fewest keys of a source whose lists are compared with them.
const KEYS_MIN: u64 = 10;

/// A list on its way.
#[derive(Debug)]
pub(super) struct Reading {
    /// The pointers of the queue's key.
    key: Vec<String>,
    keys: Keys,
    has_ended: bool,
}

/// The keys of a whole list, as hashes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Keys(HashSet<u64>);

impl Reading {
    pub(super) fn new(key: &[String]) -> Self {
        Self { key: key.to_vec(), keys: Keys::default(), has_ended: false }
    }

    /// Notes an event. True for the end of the list, which is kept back.
    pub(super) fn note(&mut self, event: &Event) -> bool {
        match event {
            Event::Init => (self.keys, self.has_ended) = (Keys::default(), false),
            Event::InitApply(object) => {
                let mut hasher = DefaultHasher::new();
                json::key(object, &self.key).hash(&mut hasher);
                self.keys.0.insert(hasher.finish());
            }
            Event::InitDone => self.has_ended = true,
            _ => {}
        }
        matches!(event, Event::InitDone)
    }

    /// The keys of the list that has ended; `None` if the source had nothing new.
    pub(super) fn take(&mut self) -> Option<Keys> {
        let keys = std::mem::take(&mut self.keys);
        std::mem::take(&mut self.has_ended).then_some(keys)
    }
}

impl Keys {
    pub(super) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// Whether ten keys or more have shrunk by more than a fifth.
    pub(super) fn has_shrunk(&self, before: u64) -> bool {
        before >= KEYS_MIN && self.len() * 5 < before * 4
    }

    /// Refuses a list of which another reading has other keys.
    pub(super) fn check_same(&self, second: Option<&Self>, before: u64) -> Result<(), Error> {
        if second == Some(self) {
            return Ok(());
        }
        let second = match second {
            Some(second) => format!("one with {} has other keys", second.len()),
            None => "the source said that it had not changed".to_owned(),
        };
        Err(Error::new(format!(
            "two readings of the list differ, and neither was sent: after {before} keys, the first had {}, and {second}",
            self.len()
        )))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    fn read(objects: &[&str]) -> Option<Keys> {
        let mut reading = Reading::new(&["/key".to_owned()]);
        assert!(!reading.note(&Event::Init));
        for object in objects {
            assert!(!reading.note(&Event::InitApply(RawValue::from_string((*object).to_owned()).unwrap())));
        }
        assert_eq!(reading.take(), None);
        reading.note(&Event::Init);
        for object in objects {
            reading.note(&Event::InitApply(RawValue::from_string((*object).to_owned()).unwrap()));
        }
        assert!(reading.note(&Event::InitDone));
        let keys = reading.take();
        assert_eq!(reading.take(), None);
        keys
    }

    #[test]
    fn readings_are_the_same_if_their_keys_are() {
        let first = read(&["{\"key\":\"a\",\"n\":1}", "{\"key\":\"b\"}"]).unwrap();
        let same = read(&["{\"key\":\"b\",\"n\":2}", "{\"key\":\"a\"}", "{\"key\":\"a\"}"]).unwrap();
        let other = read(&["{\"key\":\"a\"}", "{\"key\":\"c\"}"]).unwrap();
        assert!(first.check_same(Some(&same), 20).is_ok());
        let why = first.check_same(Some(&other), 20).unwrap_err().to_string();
        assert!(why.contains("after 20 keys, the first had 2, and one with 2 has other keys"), "{why}");
        assert!(first.check_same(None, 20).is_err());
    }

    #[test]
    fn a_list_has_shrunk_if_more_than_a_fifth_is_gone() {
        let keys = |count: u64| Keys((0..count).collect());
        assert!(!keys(8).has_shrunk(10) && keys(7).has_shrunk(10) && keys(0).has_shrunk(10));
        assert!(!keys(0).has_shrunk(9) && !keys(12).has_shrunk(10));
    }
}
