//! The invalid objects that a call with `skip_invalid` leaves out.

use deltaq_engine::key::{Key, KeyError, KeySet};
use deltaq_types::InvalidObject;

use crate::http::problem::Problem;

/// Maximum number of objects that the reply names.
const NAMED_MAX: usize = 10;
/// Maximum length of a line with an object that is left out, in bytes. The line is read, because it contains the key.
pub(in crate::http) const SKIPPED_BYTES_MAX: usize = 16 << 20;

/// What an invalid object has as its key.
#[derive(Debug)]
pub(in crate::http) enum InvalidKey {
    Key(Key),
    /// A text that can't be a key. The queue has no key like it.
    Impossible(String),
    Unreadable,
}

impl From<Result<Key, KeyError>> for InvalidKey {
    fn from(read: Result<Key, KeyError>) -> Self {
        match read {
            Ok(key) => Self::Key(key),
            Err(error) => error.text().map_or(Self::Unreadable, |text| Self::Impossible(text.to_owned())),
        }
    }
}

/// The invalid objects of a call.
#[derive(Default)]
pub(in crate::http) struct Invalid {
    pub(in crate::http) count: usize,
    /// The keys of these objects, as far as they can be read and can be keys.
    pub(in crate::http) keys: KeySet,
    /// Whether the key of at least one object can't be read.
    pub(in crate::http) lacks_key: bool,
    first: Vec<InvalidObject>,
    problem: Option<Problem>,
}

impl Invalid {
    /// Leaves out an object.
    pub(in crate::http) fn note(&mut self, index: usize, key: InvalidKey, problem: Problem) {
        self.count += 1;
        self.lacks_key |= matches!(key, InvalidKey::Unreadable);
        if self.first.len() < NAMED_MAX {
            let (code, detail) = (problem.code().name().to_owned(), problem.detail().to_owned());
            let key = match &key {
                InvalidKey::Key(key) => Some(key.as_str().to_owned()),
                InvalidKey::Impossible(text) => Some(text.clone()),
                InvalidKey::Unreadable => None,
            };
            self.first.push(InvalidObject { index: index as u64, key, code, detail });
        }
        if let InvalidKey::Key(key) = key {
            self.keys.insert(key);
        }
        self.problem.get_or_insert(problem);
    }

    /// Refuses a list if more than a tenth of it is invalid, because its source is broken. A single invalid object in a list of several is always
    /// left out; a list whose only object is invalid is refused.
    pub(in crate::http) fn check_share(&mut self, objects: usize) -> Result<(), Problem> {
        let total = objects + self.count;
        let is_one_of_several = self.count == 1 && objects > 0;
        if is_one_of_several || self.count * 10 <= total {
            return Ok(());
        }
        let Some(problem) = self.problem.take() else { return Ok(()) };
        let share = format!(
            "{} of {total} objects are not valid; skip_invalid leaves out at most a tenth",
            self.count
        );
        Err(problem.hint(share))
    }

    /// The number of the objects, and the first of them, for the reply.
    pub(in crate::http) fn reply(self) -> (u64, Vec<InvalidObject>) {
        (self.count as u64, self.first)
    }
}
