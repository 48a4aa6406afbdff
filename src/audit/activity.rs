//! The activity: the last calls that needed `admin` or set thresholds of sources, in memory, so that an operator sees who paused, purged or configured what.
//!
//! At the start they are read from the end of the file of the audit log, if there is one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use deltaq_types::Timestamp;
use parking_lot::Mutex;
use serde::Deserialize;

use super::Line;

/// Maximum number of entries. Beyond it, the oldest entry of the token with the most entries is dropped, so that one token does not
/// push out the calls of others.
const ENTRIES_MAX: usize = 10_000;

/// A call. It is read from a line of the audit log.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Entry {
    /// When the call ended, in whole milliseconds.
    #[serde(rename = "time")]
    pub at: Timestamp,
    /// The id of the request.
    pub request_id: Arc<str>,
    /// The name of the token; `None` without one.
    #[serde(rename = "who")]
    pub by: Option<Arc<str>>,
    /// The operation, such as `purge_queue`.
    pub operation: Arc<str>,
    /// The queue of the path.
    pub queue: Option<Arc<str>>,
    /// The number of keys, items or leases in the request or the reply.
    pub keys: Option<u64>,
    /// `ok`, the code of the problem, or `gone`.
    pub outcome: Arc<str>,
    /// The status of the reply; `None` if the client disconnected before it.
    pub status: Option<u16>,
}

/// The last calls.
#[derive(Debug, Default)]
pub struct Activity {
    callers: Mutex<Callers>,
}

#[derive(Debug, Default)]
struct Callers {
    /// The entries of each token, oldest first. Invariant: none is empty.
    entries: BTreeMap<Option<Arc<str>>, VecDeque<Entry>>,
    count: usize,
}

impl Activity {
    /// Adds a call.
    pub(super) fn add(&self, line: &Line<'_>) {
        let Some(operation) = line.operation else { return };
        let by: Option<Arc<str>> = line.who.map(Into::into);
        let entry = Entry {
            at: Timestamp::from_micros(line.at.as_micros() / 1_000 * 1_000),
            request_id: line.request_id.into(),
            by: by.clone(),
            operation: operation.into(),
            queue: line.queue.map(Into::into),
            keys: line.keys,
            outcome: line.outcome.into(),
            status: line.status,
        };
        self.callers.lock().add(by, entry, ENTRIES_MAX);
    }

    /// Adds the call of a line of the audit log. Most lines have no operation, and are none of the activity.
    pub(super) fn restore(&self, line: &[u8]) {
        if memchr::memmem::find(line, b"\"operation\":").is_some()
            && let Ok(entry) = serde_json::from_slice::<Entry>(line)
        {
            self.callers.lock().add(entry.by.clone(), entry, ENTRIES_MAX);
        }
    }

    /// The entries that are wanted, newest first, at most `limit`.
    #[must_use]
    pub fn newest(&self, limit: usize, is_wanted: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        let callers = self.callers.lock();
        let entries = callers.entries.values().flatten();
        let mut found: Vec<&Entry> = entries.filter(|entry| is_wanted(entry)).collect();
        found.sort_by(|a, b| (b.at, &b.request_id).cmp(&(a.at, &a.request_id)));
        found.into_iter().take(limit).cloned().collect()
    }
}

impl Callers {
    fn add(&mut self, by: Option<Arc<str>>, entry: Entry, most: usize) {
        self.entries.entry(by).or_default().push_back(entry);
        self.count += 1;
        if self.count <= most {
            return;
        }
        let longest = self.entries.iter().max_by_key(|(_, entries)| entries.len());
        let Some(longest) = longest.map(|(by, _)| by.clone()) else { return };
        if let Some(entries) = self.entries.get_mut(&longest) {
            entries.pop_front();
            self.count -= 1;
            if entries.is_empty() {
                self.entries.remove(&longest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(by: &str, number: u64) -> Entry {
        Entry {
            at: Timestamp::from_micros(number * 1_000),
            request_id: number.to_string().into(),
            by: Some(by.into()),
            operation: "purge_queue".into(),
            queue: None,
            keys: None,
            outcome: "ok".into(),
            status: Some(200),
        }
    }

    #[test]
    fn a_token_with_many_calls_pushes_out_its_own() {
        let activity = Activity::default();
        let add = |by: &str, number| {
            activity.callers.lock().add(Some(by.into()), entry(by, number), 10);
        };
        add("rare", 0);
        (1..100).for_each(|number| add("busy", number));
        let all = activity.newest(100, |_| true);
        assert_eq!(all.len(), 10);
        assert_eq!(all.first(), Some(&entry("busy", 99)));
        assert_eq!(all.last(), Some(&entry("rare", 0)));
        assert_eq!(activity.newest(1, |entry| entry.by.as_deref() == Some("rare")), [entry("rare", 0)]);
    }
}
