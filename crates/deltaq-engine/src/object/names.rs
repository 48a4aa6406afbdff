//! Finds duplicate members of an object without copying the names.

use std::borrow::Cow;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use smallvec::SmallVec;

use crate::excerpt::Excerpt;
use crate::walk::Walk;

/// The member names of one object. The first names are compared one by one; later names are found by their hash.
#[derive(Default)]
pub(super) struct Names<'j> {
    few: SmallVec<[Cow<'j, str>; 16]>,
    many: Option<ManyNames>,
}

/// The positions of names in the text. Each takes 5 bytes, so they take less memory than the text, however many members an
/// object has.
#[derive(Default)]
struct ManyNames {
    starts: HashTable<u32>,
    hasher: RandomState,
}

impl<'j> Names<'j> {
    const FEW_MAX: usize = 16;

    /// Adds the name after `start`.
    ///
    /// # Errors
    /// Why the name can't be added.
    pub(super) fn insert(&mut self, text: &'j str, start: usize, name: Cow<'j, str>) -> Result<(), String> {
        let is_new = if self.few.contains(&name) {
            false
        } else if self.few.len() < Self::FEW_MAX {
            self.few.push(name);
            return Ok(());
        } else {
            let Ok(start) = u32::try_from(quote_behind(text, start)) else {
                return Err("an object may have at most 4 GiB".to_owned());
            };
            self.many.get_or_insert_default().insert(text, start, &name)
        };
        let name = Excerpt(&name);
        if is_new { Ok(()) } else { Err(format!("the member {name} appears twice in one object")) }
    }
}

impl ManyNames {
    /// Adds a name. Returns whether the name is new.
    fn insert(&mut self, text: &str, start: u32, name: &str) -> bool {
        let Self { starts, hasher } = self;
        let is_same = |other: &u32| name_at(text, *other) == name;
        let rehash = |other: &u32| hasher.hash_one(&*name_at(text, *other));
        match starts.entry(hasher.hash_one(name), is_same, rehash) {
            Entry::Occupied(_) => false,
            Entry::Vacant(vacant) => {
                vacant.insert(start);
                true
            }
        }
    }
}

/// The position of the first quote from `start` on. After a brace or comma, that quote opens the next name.
pub(super) fn quote_behind(text: &str, start: usize) -> usize {
    start + text.get(start..).and_then(|rest| rest.find('"')).unwrap_or_default()
}

/// The name whose opening quote is at `start`.
fn name_at(text: &str, start: u32) -> Cow<'_, str> {
    let quoted = usize::try_from(start).ok().and_then(|start| text.get(start..)).unwrap_or_default();
    let mut walk = Walk::new(quoted);
    match walk.peek().and_then(|_quote| walk.string()) {
        Ok(name) => shared(quoted, name),
        Err(_) => Cow::Borrowed(""),
    }
}

/// Extends the lifetime of a part that a walk has returned to that of `text`. If the walk has unescaped the part, the
/// result is a copy. Copying all names and strings took a third of the scan time.
pub(super) fn shared<'j>(text: &'j str, part: &str) -> Cow<'j, str> {
    let start = part.as_ptr().addr().checked_sub(text.as_ptr().addr());
    let same = start.and_then(|start| text.get(start..start + part.len()));
    match same.filter(|same| std::ptr::eq(*same, part)) {
        Some(same) => Cow::Borrowed(same),
        None => Cow::Owned(part.to_owned()),
    }
}
