//! The objects that the queue refuses: those of the last list, and those of changes since then. Their keys keep their
//! state.

use std::collections::BTreeMap;
use std::time::Duration;

use deltaq_client::types::InvalidObject;
use tokio::time::Instant;

/// How often unchanged refusals are reported again.
const REPORT_EVERY: Duration = Duration::from_hours(1);

/// Maximum number of objects that are named in a report.
const SHOWN: usize = 10;

/// The objects that are left out.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    now: Refused,
    /// The last report, and its time.
    reported: Refused,
    reported_at: Option<Instant>,
}

/// Refused objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Refused {
    /// The refusal code of each key whose object a reply has named.
    named: BTreeMap<String, String>,
    /// The number of other objects. A reply names only a few objects, and some objects have no readable key.
    others: u64,
    /// Whether an object has no readable key. Then the list deletes nothing, because the key may be any of the queue.
    keeps_all: bool,
}

impl Refused {
    fn note(&mut self, object: &InvalidObject) {
        match &object.key {
            Some(key) => {
                self.named.insert(key.clone(), object.code.clone());
            }
            None => self.others += 1,
        }
    }
}

impl LeftOut {
    /// Records that a list was accepted without these `count` objects, some of which are named in `objects`. No other
    /// object is left out.
    pub(super) fn list(&mut self, count: u64, objects: &[InvalidObject]) {
        let others = count.saturating_sub(objects.len() as u64);
        let keeps_all = objects.iter().any(|object| object.key.is_none());
        self.now = Refused { named: BTreeMap::new(), others, keeps_all };
        for object in objects {
            self.now.note(object);
        }
    }

    /// Records that changes of these keys were accepted without `count` objects, some of which are named in `objects`.
    pub(super) fn changes(&mut self, keys: &[String], count: u64, objects: &[InvalidObject]) {
        let others = count.saturating_sub(objects.len() as u64);
        // It is unknown which objects after the last named one were refused.
        let known = match objects.last() {
            Some(last) if others > 0 => usize::try_from(last.index).map_or(keys.len(), |last| last + 1),
            _ => keys.len(),
        };
        let mut objects = objects.iter().peekable();
        for (index, key) in keys.iter().take(known).enumerate() {
            match objects.next_if(|object| object.index == index as u64) {
                Some(object) => self.now.note(object),
                None => drop(self.now.named.remove(key)),
            }
        }
        self.now.others += others;
    }

    /// A description of what is left out; `None` if nothing is.
    pub(super) fn in_words(&self) -> Option<String> {
        let first = self.now.named.iter().take(SHOWN);
        let mut names: Vec<String> = first.map(|(key, code)| format!("{key:?} ({code})")).collect();
        let more = self.count().saturating_sub(names.len() as u64);
        if more > 0 {
            names.push(format!("{more} more"));
        }
        let objects = if self.count() == 1 { "an object" } else { "objects" };
        let deletes = if self.now.keeps_all {
            "; lists delete nothing while the key of such an object can't be read"
        } else {
            ""
        };
        let text = || format!("the queue refuses {objects}: {}{deletes}", names.join(", "));
        (self.count() > 0).then(text)
    }

    /// The number of objects that are left out.
    pub(super) fn count(&self) -> u64 {
        self.now.named.len() as u64 + self.now.others
    }

    /// Whether a report is due: other objects are left out than in the last report, or the last report was long ago.
    pub(super) fn is_due(&mut self) -> bool {
        let is_long_ago = self.count() > 0 && self.reported_at.is_none_or(|at| at.elapsed() >= REPORT_EVERY);
        let is_due = self.now != self.reported || is_long_ago;
        if is_due {
            (self.reported, self.reported_at) = (self.now.clone(), Some(Instant::now()));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invalid(index: u64, key: Option<&str>) -> InvalidObject {
        let (key, code) = (key.map(str::to_owned), "object-too-large".to_owned());
        InvalidObject { index, key, code, detail: String::new() }
    }

    fn keys(keys: &[&str]) -> Vec<String> {
        keys.iter().map(|key| (*key).to_owned()).collect()
    }

    #[test]
    fn objects_are_counted_and_not_refusals() {
        let mut left_out = LeftOut::default();
        left_out.list(14, &[invalid(0, Some("a")), invalid(3, Some("b")), invalid(4, None)]);
        assert_eq!(left_out.count(), 14);
        left_out.list(2, &[invalid(0, Some("a")), invalid(3, Some("b"))]);
        assert_eq!(left_out.count(), 2);
        // The same object again, a new one, and one that the queue takes.
        left_out.changes(&keys(&["a", "c"]), 2, &[invalid(0, Some("a")), invalid(1, Some("c"))]);
        assert_eq!(left_out.count(), 3);
        left_out.changes(&keys(&["x", "a", "b"]), 1, &[invalid(2, Some("b"))]);
        assert_eq!(left_out.count(), 2);
        // The last change of a key counts.
        left_out.changes(&keys(&["b", "b", "c", "c"]), 2, &[invalid(0, Some("b")), invalid(3, Some("c"))]);
        assert_eq!(left_out.count(), 1);
        // What is behind the last named object is not known.
        left_out.changes(&keys(&["d", "c", "e"]), 2, &[invalid(0, Some("d"))]);
        assert_eq!(left_out.count(), 3);
        assert!(!left_out.in_words().unwrap().contains("delete nothing"));
        left_out.list(2, &[invalid(0, Some("a")), invalid(4, None)]);
        let words = left_out.in_words().unwrap();
        assert!(
            words.ends_with("1 more; lists delete nothing while the key of such an object can't be read"),
            "{words}"
        );
        left_out.list(0, &[]);
        assert_eq!(left_out.count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_objects_are_reported_once_an_hour() {
        let mut left_out = LeftOut::default();
        assert!(!left_out.is_due());
        let mut is_due = |objects: &[&InvalidObject]| {
            let objects: Vec<_> = objects.iter().map(|object| (*object).clone()).collect();
            left_out.list(objects.len() as u64, &objects);
            left_out.is_due()
        };
        let (a, b, none) = (invalid(0, Some("a")), invalid(1, Some("b")), invalid(2, None));
        let later = InvalidObject { index: 7, ..a.clone() };
        assert_eq!([is_due(&[&a]), is_due(&[&a]), is_due(&[&later])], [true, false, false]);
        let schema = InvalidObject { code: "invalid-object".to_owned(), ..a.clone() };
        assert!(is_due(&[&schema]) && is_due(&[&a]) && is_due(&[&a, &b]) && is_due(&[&a, &none]));
        assert!(is_due(&[]) && !is_due(&[]) && is_due(&[&a]));
        tokio::time::advance(REPORT_EVERY / 2).await;
        assert!(!is_due(&[&a]));
        tokio::time::advance(REPORT_EVERY / 2).await;
        assert!(is_due(&[&a]) && !is_due(&[&a]));
        // That no object is left out is reported once.
        assert!(is_due(&[]));
        tokio::time::advance(REPORT_EVERY).await;
        assert!(!is_due(&[]));
    }
}
