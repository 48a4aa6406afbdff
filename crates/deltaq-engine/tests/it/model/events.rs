//! Mode events: each delta is delivered alone, and a key that is full refuses more.

use deltaq_types::Mode;

use super::{Item, Micros, Model, ModelCall, Name, Refused, bytes_of};

impl Model {
    pub(super) fn is_events(&self) -> bool {
        self.config.mode == Mode::Events
    }

    /// The position of a key that the event `rv` makes ready.
    pub(super) fn position(&self, key: Name, rv: u64) -> u64 {
        let oldest = self.get(key).and_then(|item| item.waiting.first());
        oldest.filter(|_| self.is_events()).map_or(rv, |delta| delta.rv)
    }

    /// Mode events: makes a key ready for its next delta, or waits until that is due.
    pub(super) fn go_on(&mut self, key: Name, (rv, at): (u64, Micros)) {
        let position = self.position(key, rv);
        let Some(next) = self.items[key].waiting.first() else { return };
        if let Some(due) = next.due.filter(|due| *due > at) {
            self.item(key).wait_until(due, rv);
            self.hit("the next delta is not due");
        } else {
            self.item(key).wake((position, at));
            self.hit("the next delta is due");
        }
    }

    /// Refuses a call whose delta does not fit.
    pub(super) fn check_bounds(&mut self, calls: &[(usize, &ModelCall)]) -> Result<(), Refused> {
        for (position, (index, call)) in calls.iter().enumerate() {
            // The deltas of the key with those of the calls before.
            let item = self.get(call.key).cloned().unwrap_or_default();
            let mut held = item.all_bytes();
            let first =
                calls.iter().find(|(_, first)| first.key == call.key).map_or(*call, |(_, first)| *first);
            let version = first.content.and_then(|content| self.version_of(content));
            let room = self.jobs.first().filter(|_| version.is_some()).and_then(|job| job.room_for(call.key));
            held.extend(room);
            let mut newest = item.newest_content().map_or(0, bytes_of);
            let earlier = calls[..position].iter().filter(|(_, earlier)| earlier.key == call.key);
            for content in earlier.map(|(_, earlier)| earlier.content) {
                newest = content.map_or(newest, bytes_of);
                held.push(newest);
            }
            let bytes = call.content.map_or(newest, bytes_of);
            if let Some(field) = self.exceeded(&held, bytes) {
                self.hit("a bound of a key refuses");
                return Err(Refused::KeyFull { field, index: *index });
            }
        }
        Ok(())
    }

    /// Mode events: the bound that another delta behind these would exceed.
    pub(super) fn exceeded(&self, held: &[usize], bytes: usize) -> Option<&'static str> {
        let all = held.iter().sum::<usize>() + bytes;
        if held.is_empty() {
            None
        } else if held.len() >= self.config.max_deltas_per_key {
            Some("max_deltas_per_key")
        } else {
            (all > self.config.max_bytes_per_key).then_some("max_bytes_per_key")
        }
    }
}

impl Item {
    /// The bytes of each delta, waiting or leased.
    pub(super) fn all_bytes(&self) -> Vec<usize> {
        self.leased.iter().chain(&self.waiting).map(|delta| bytes_of(delta.content)).collect()
    }
}
