//! The changes between two scans of a folder.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

use serde_json::value::RawValue;

use super::scan::Entry;
use crate::json;

/// The changes between two scans.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// The objects that are new or have changed.
    pub(super) changed: Vec<Box<RawValue>>,
    /// Whether a key may have been deleted.
    pub(super) has_deletions: bool,
}

impl Changes {
    /// Compares the files of `before`, with their former objects, with the current entries. `key` has the pointers of
    /// the key; without them, every change of a file may be a deletion.
    pub(super) fn new(
        before: &BTreeMap<PathBuf, Option<Entry>>,
        entries: &BTreeMap<PathBuf, Entry>,
        key: &[String],
    ) -> Self {
        let mut changes = Self::default();
        for (path, former) in before {
            let former = former.as_ref().map(|entry| entry.objects.as_slice()).unwrap_or_default();
            let present = entries.get(path).map(|entry| entry.objects.as_slice()).unwrap_or_default();
            let keys = |objects: &[Box<RawValue>]| -> BTreeSet<Vec<String>> {
                objects.iter().map(|object| json::key(object, key)).collect()
            };
            changes.has_deletions |=
                !former.is_empty() && (key.is_empty() || !keys(former).is_subset(&keys(present)));
            let texts: BTreeSet<&str> = former.iter().map(|object| object.get()).collect();
            changes.changed.extend(present.iter().filter(|object| !texts.contains(object.get())).cloned());
        }
        if changes.has_deletions {
            // The list that follows also contains the changes.
            changes.changed.clear();
        }
        changes
    }
}

/// The first file with an object that has the same key as an earlier object, and a description of the problem. `key`
/// has the pointers of the key.
pub(super) fn shared_key(entries: &BTreeMap<PathBuf, Entry>, key: &[String]) -> Option<(PathBuf, String)> {
    let mut files: HashMap<Vec<String>, &PathBuf> = HashMap::new();
    for (path, entry) in entries {
        for object in &entry.objects {
            let of_object = json::key(object, key);
            // The queue refuses an object without a key.
            if of_object.is_empty() {
                continue;
            }
            if let Some(first) = files.insert(of_object, path) {
                let (first, shown) = (first.display(), path.display());
                return Some((path.clone(), format!("{shown} has an object with the key of one in {first}")));
            }
        }
    }
    None
}
