//! A copy of all that the events determine, to compare one queue with another.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::command::Outcome;
use super::config::Config;
use super::delta::{Delta, Rv};
use super::key::Key;
use super::queue::{LastReplace, Queue};
use super::rate_limit::BucketLevel;
use super::schedule::Standing;
use super::table::Known;
use super::time::Time;

/// All state of a queue that is a function of its events.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    rv: Rv,
    last_at: Time,
    config: Arc<Config>,
    flags: (bool, bool, bool),
    initial: super::queue::Initial,
    entries: BTreeMap<Key, EntryImage>,
    line: Vec<Rv>,
    settled: Vec<(Rv, Outcome)>,
    bucket: Option<BucketLevel>,
    next_resync: Option<Time>,
    last_replace: Option<LastReplace>,
}

#[derive(Clone, Debug, PartialEq)]
struct EntryImage {
    waiting: Vec<Delta>,
    leased: Vec<Delta>,
    known: Option<Known>,
    standing: Standing,
    mark: Option<Rv>,
}

impl Queue {
    /// A copy of all that the events determine.
    #[must_use]
    pub fn image(&self) -> Image {
        let entries = self.entries_after(None).map(|(_, entry)| {
            let image = EntryImage {
                waiting: entry.waiting.iter().cloned().collect(),
                leased: entry.leased.iter().cloned().collect(),
                known: entry.known.clone(),
                standing: entry.standing.clone(),
                mark: entry.mark,
            };
            (entry.key.clone(), image)
        });
        Image {
            rv: self.rv,
            last_at: self.last_at,
            config: self.config.clone(),
            flags: (self.populated, self.paused, self.closed),
            initial: self.initial,
            entries: entries.collect(),
            line: self.schedule.ready().map(|(rv, _)| rv).collect(),
            settled: self.settled.iter().collect(),
            bucket: self.bucket,
            next_resync: self.next_resync,
            last_replace: self.last_replace.clone(),
        }
    }
}
