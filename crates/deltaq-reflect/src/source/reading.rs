//! The keys of a list that is being read, to distinguish a list that has shrunk from one that was cut off.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::pin::pin;

use deltaq_client::Event;
use futures_util::{Stream, TryStreamExt as _};
use serde_json::value::RawValue;

use super::Error;
use crate::json;

/// Minimum number of keys of a source whose lists are checked for shrinking.
const KEYS_MIN: u64 = 10;

/// A list that is being read.
#[derive(Debug)]
pub(super) struct Reading {
    /// The pointers of the queue's key.
    key: Vec<String>,
    keys: Keys,
    has_ended: bool,
}

/// The keys of a whole list, as hashes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Keys(HashSet<u64>);

impl Reading {
    pub(super) fn new(key: &[String]) -> Self {
        Self { key: key.to_vec(), keys: Keys::default(), has_ended: false }
    }

    /// Records an event. Returns whether the event is the end of the list, which is then held back.
    pub(super) fn note(&mut self, event: &Event) -> bool {
        match event {
            Event::Init => (self.keys, self.has_ended) = (Keys::default(), false),
            Event::InitApply(object) => {
                let key = self.hash(object);
                self.keys.0.insert(key);
            }
            Event::InitDone => self.has_ended = true,
            _ => {}
        }
        matches!(event, Event::InitDone)
    }

    /// The hash of an object's key.
    fn hash(&self, object: &RawValue) -> u64 {
        let mut hasher = DefaultHasher::new();
        json::key(object, &self.key).hash(&mut hasher);
        hasher.finish()
    }

    /// The keys of these objects.
    pub(super) async fn keys_of(
        key: &[String],
        objects: impl Stream<Item = Result<Box<RawValue>, Error>>,
    ) -> Result<Keys, Error> {
        let (reading, mut keys) = (Self::new(key), Keys::default());
        let mut objects = pin!(objects);
        while let Some(object) = objects.try_next().await? {
            keys.0.insert(reading.hash(&object));
        }
        Ok(keys)
    }

    /// Begins to compare two readings with the objects of the queue.
    pub(super) fn comparison(&self, first: Keys, second: Keys) -> Comparison {
        let reading = Self::new(&self.key);
        Comparison { reading, first, second, kept: 0, gone: 0, back: 0 }
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

    /// Whether the list has shrunk by more than a fifth, from ten keys or more.
    pub(super) fn has_shrunk(&self, before: u64) -> bool {
        before >= KEYS_MIN && self.len() * 5 < before * 4
    }

    /// Whether the list lacks one of these keys.
    pub(super) fn lacks_any(&self, known: &Self) -> bool {
        !known.0.is_subset(&self.0)
    }

    /// The keys of both lists.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// The error for a list whose second reading contradicts the first one.
    pub(super) fn differs(&self, before: u64, second: &str) -> Error {
        Error::new(format!(
            "two readings of the list differ, and neither was sent: after {before} keys, the first had {}, and {second}",
            self.len()
        ))
    }
}

/// Two readings of a list, and the keys that the queue has from the source. The second reading is sent. Keys that
/// both readings lack are deleted. A key that only the first reading has is kept until a later list. New keys may
/// appear and disappear between the readings.
///
/// If the list has shrunk, no key is deleted if the second reading has a key of the queue that the first lacks. In that
/// case the first reading was incomplete, so the second may be incomplete, too. Otherwise, such keys are those that
/// moved to another page while the first reading went on.
#[derive(Debug)]
pub(super) struct Comparison {
    reading: Reading,
    first: Keys,
    second: Keys,
    kept: u64,
    gone: u64,
    back: u64,
}

impl Comparison {
    /// Records an object of the queue. Returns whether only the first reading has its key.
    pub(super) fn keeps(&mut self, object: &RawValue) -> bool {
        let key = self.reading.hash(object);
        let (in_first, in_second) = (self.first.0.contains(&key), self.second.0.contains(&key));
        self.kept += u64::from(in_first && !in_second);
        self.gone += u64::from(!in_first && !in_second);
        self.back += u64::from(!in_first && in_second);
        in_first && !in_second
    }

    /// The number of keys that are kept, and the number of keys that both readings lack.
    pub(super) fn end(self, before: u64, has_shrunk: bool) -> Result<(u64, u64), Error> {
        let Self { first, second, kept, gone, back, .. } = self;
        if !has_shrunk {
            return Ok((kept, gone));
        }
        if back > 0 {
            let what =
                format!("the second, with {}, has {back} of the keys that the first lacks", second.len());
            return Err(first.differs(before, &what));
        }
        if kept + gone == 0 {
            let what = format!("one with {} has other keys", second.len());
            return Err(first.differs(before, &what));
        }
        Ok((kept, gone))
    }
}

#[cfg(test)]
mod tests {
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

    fn named(keys: &[&str]) -> Vec<String> {
        keys.iter().map(|key| format!("{{\"key\":\"{key}\",\"n\":1}}")).collect()
    }

    fn keys(keys: &[&str]) -> Keys {
        read(&named(keys).iter().map(String::as_str).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn readings_are_the_same_if_their_keys_are() {
        let same = read(&["{\"key\":\"b\",\"n\":2}", "{\"key\":\"a\"}", "{\"key\":\"a\"}"]).unwrap();
        assert_eq!(keys(&["a", "b"]), same);
        assert_ne!(keys(&["a", "c"]), same);
    }

    #[test]
    fn keys_that_both_readings_lack_are_deleted() {
        let compared = |first: &[&str], second: &[&str]| {
            let mut compared = Reading::new(&["/key".to_owned()]).comparison(keys(first), keys(second));
            let queue = named(&["a", "b", "c", "d", "e"]);
            let kept = queue
                .into_iter()
                .filter(|object| compared.keeps(&RawValue::from_string(object.clone()).unwrap()));
            let kept = kept.count() as u64;
            let ended = compared.end(5, true).map_err(|error| error.to_string());
            ended.inspect(|(of_end, _)| assert_eq!(kept, *of_end))
        };
        // New keys come and go.
        assert_eq!(compared(&["a", "b", "x"], &["a", "b", "y"]), Ok((0, 3)));
        assert_eq!(compared(&["x"], &["y", "z"]), Ok((0, 5)));
        // A key of the queue goes between the readings.
        assert_eq!(compared(&["a", "b"], &["a"]), Ok((1, 3)));
        assert_eq!(compared(&["a", "b", "c"], &["y"]), Ok((3, 2)));
        for (first, second, back) in [
            (&["a"][..], &["a", "b"][..], 1),
            (&["a", "b"], &["b", "c"], 1),
            (&["x"], &["a", "b", "c", "d", "e"], 5),
        ] {
            let why = compared(first, second).unwrap_err();
            assert!(why.contains(&format!("has {back} of the keys that the first lacks")), "{why}");
        }
        let unknown =
            Reading::new(&[]).comparison(keys(&["a"]), keys(&["b"])).end(5, true).unwrap_err().to_string();
        assert!(
            unknown.contains("after 5 keys, the first had 1, and one with 1 has other keys"),
            "{unknown}"
        );
    }

    #[test]
    fn a_list_has_shrunk_if_more_than_a_fifth_is_gone() {
        let keys = |count: u64| Keys((0..count).collect());
        assert!(!keys(8).has_shrunk(10) && keys(7).has_shrunk(10) && keys(0).has_shrunk(10));
        assert!(!keys(0).has_shrunk(9) && !keys(12).has_shrunk(10));
    }

    #[test]
    fn keys_that_change_their_pages_are_kept() {
        let mut compared =
            Reading::new(&["/key".to_owned()]).comparison(keys(&["a", "c"]), keys(&["a", "b"]));
        let mut keeps = |key: &str| compared.keeps(&RawValue::from_string(named(&[key])[0].clone()).unwrap());
        assert_eq!(["a", "b", "c", "d"].map(&mut keeps), [false, false, true, false]);
        assert_eq!(compared.end(4, false).unwrap(), (1, 1));
        assert!(keys(&["a"]).lacks_any(&keys(&["a", "b"])) && !keys(&["a", "b"]).lacks_any(&keys(&["a"])));
        assert_eq!(keys(&["a"]).and(keys(&["b", "a"])), keys(&["a", "b"]));
    }
}
