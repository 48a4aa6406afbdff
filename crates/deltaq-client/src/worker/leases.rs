//! The leases that a worker holds, and when they need attention.
//!
//! Leases that one call has created or extended have the same times, so they form one group. Settled leases stay in
//! their group until the next time of the group.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use deltaq_types::{LeaseOutcome, PoppedItem, SettleResult, SettledList};
use tokio::sync::SetOnce;
use tokio::time::Instant;

use super::job::Loss;

/// Maximum number of leases in one extension.
const EXTEND_MAX: usize = 10_000;
/// Maximum safety margin: a lease that could not be extended counts as lost this long before its end.
const MARGIN_MAX: Duration = Duration::from_secs(5);

/// The number of a lease in this worker.
pub(super) type Slot = u64;

/// A lease.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) lease_id: String,
    pub(super) key: String,
    pub(super) attempt: u32,
    /// Set when the lease is lost.
    pub(super) lost: Arc<SetOnce<Loss>>,
}

/// Leases with the same times.
#[derive(Debug)]
pub(super) struct Group {
    slots: Vec<Slot>,
    /// From this instant on, the leases count as lost.
    stop_at: Instant,
    end: Instant,
}

/// All leases of a worker.
#[derive(Debug, Default)]
pub(super) struct Leases {
    held: HashMap<Slot, Held>,
    /// Groups by the time of their next extension. The number keeps groups of the same time apart.
    groups: BTreeMap<(Instant, u64), Group>,
    created: u64,
    /// The leases of the running extension, which are in no group.
    extending: Option<Group>,
}

impl Leases {
    /// Adds the leases of a pop. `now` is the time of its reply, to which the lengths of the leases refer.
    pub(super) fn add(&mut self, items: &[PoppedItem], now: Instant) -> Vec<(Slot, Arc<SetOnce<Loss>>)> {
        let mut slots = Vec::with_capacity(items.len());
        for item in items {
            self.created += 1;
            let lost = Arc::new(SetOnce::new());
            let (lease_id, key, attempt) = (item.lease.id.clone(), item.key.clone(), item.attempt);
            let held = Held { lease_id, key, attempt, lost: lost.clone() };
            self.held.insert(self.created, held);
            slots.push((self.created, lost));
        }
        let shortest = items.iter().map(|item| item.lease.expires_in_ms).min();
        if let Some(shortest) = shortest {
            let slots = slots.iter().map(|(slot, _)| *slot).collect();
            self.group(slots, now, Duration::from_millis(shortest));
        }
        slots
    }

    /// Removes a lease in order to settle it; `None` if the lease is lost.
    pub(super) fn take(&mut self, slot: Slot) -> Option<Held> {
        self.held.remove(&slot)
    }

    pub(super) fn is_held(&self, slot: Slot) -> bool {
        self.held.contains_key(&slot)
    }

    /// Removes all leases, so that they are no longer extended.
    pub(super) fn take_all(&mut self) -> Vec<Held> {
        self.groups.clear();
        self.held.drain().map(|(_, held)| held).collect()
    }

    /// When the next lease needs attention.
    pub(super) fn next_at(&self) -> Option<Instant> {
        let Some(group) = &self.extending else {
            return self.groups.keys().next().map(|(at, _)| *at);
        };
        // There is one extension at a time, and the other leases wait for its end. Leases that count as lost need no
        // attention.
        let stop_at = Some(group.stop_at).filter(|_| !group.slots.is_empty());
        self.first_stop().into_iter().chain(stop_at).min()
    }

    /// Removes the leases whose time has passed without an extension.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<(Held, Loss)> {
        let mut over = Vec::new();
        let mut end = |group: &mut Group| {
            let loss = Loss::NotExtended { left: group.end.saturating_duration_since(now) };
            over.extend(group.slots.drain(..).filter_map(|slot| Some((self.held.remove(&slot)?, loss))));
        };
        if let Some(group) = self.extending.as_mut().filter(|group| group.stop_at <= now) {
            end(group);
        }
        self.groups
            .extract_if(.., |_, group| group.stop_at <= now)
            .for_each(|(_, mut group)| end(&mut group));
        over
    }

    /// The ids of the leases that have to be extended now, and when they count as lost; `None` if there are none, or
    /// if an extension is running.
    pub(super) fn due(&mut self, now: Instant) -> Option<(Vec<String>, Instant)> {
        if self.extending.is_some() {
            return None;
        }
        let mut due: Option<Group> = None;
        while let Some(entry) = self.groups.first_entry() {
            let more = entry.get().slots.len();
            let is_full = due.as_ref().is_some_and(|due: &Group| due.slots.len() + more > EXTEND_MAX);
            if entry.key().0 > now || is_full {
                break;
            }
            let mut group = entry.remove();
            group.slots.retain(|slot| self.held.contains_key(slot));
            let due = due.get_or_insert(Group { slots: Vec::new(), ..group });
            due.slots.append(&mut group.slots);
            due.stop_at = due.stop_at.min(group.stop_at);
            due.end = due.end.min(group.end);
        }
        let due = due.filter(|due| !due.slots.is_empty())?;
        let held = due.slots.iter().filter_map(|slot| self.held.get(slot));
        let lease_ids = held.map(|held| held.lease_id.clone()).collect();
        let stop_at = due.stop_at;
        self.extending = Some(due);
        Some((lease_ids, stop_at))
    }

    /// Records the reply to an extension. Returns the leases that have ended according to the server, and removes
    /// them. `sent_at` is when the call was sent.
    pub(super) fn extended(&mut self, extended: &SettledList, sent_at: Instant) -> Vec<(Held, Loss)> {
        let Some(group) = self.extending.take() else { return Vec::new() };
        let mut results = HashMap::new();
        for lease in &extended.settled {
            let length_ms = lease.expires_in_ms.filter(|_| lease.result != SettleResult::Stale);
            let outcome = lease.outcome.unwrap_or(LeaseOutcome::Unknown);
            results.insert(lease.lease_id.as_str(), length_ms.ok_or(outcome));
        }
        let (mut kept, mut lost, mut shortest) = (Vec::new(), Vec::new(), None::<u64>);
        for slot in group.slots {
            let Some(held) = self.held.get(&slot) else { continue };
            match results.get(held.lease_id.as_str()).copied().unwrap_or(Err(LeaseOutcome::Unknown)) {
                Ok(length_ms) => {
                    shortest = Some(shortest.map_or(length_ms, |shortest| shortest.min(length_ms)));
                    kept.push(slot);
                }
                Err(outcome) => {
                    lost.extend(self.held.remove(&slot).map(|held| (held, Loss::Ended(outcome))));
                }
            }
        }
        if let Some(shortest) = shortest {
            self.group(kept, sent_at, Duration::from_millis(shortest));
        }
        lost
    }

    /// Records that an extension failed. It is tried again at `again_at`.
    pub(super) fn not_extended(&mut self, again_at: Instant) {
        if let Some(group) = self.extending.take() {
            self.created += 1;
            self.groups.insert((again_at.min(group.stop_at), self.created), group);
        }
    }

    fn group(&mut self, slots: Vec<Slot>, from: Instant, length: Duration) {
        self.created += 1;
        let end = from + length;
        let stop_at = end - MARGIN_MAX.min(length / 6);
        self.groups.insert((from + length / 3, self.created), Group { slots, stop_at, end });
    }

    fn first_stop(&self) -> Option<Instant> {
        self.groups.values().map(|group| group.stop_at).min()
    }
}

#[cfg(test)]
mod tests {
    use deltaq_types::{Difference, LeaseDocument, LeaseOutcome, SettleAs, SettledDocument, Timestamp};

    use super::*;

    const LENGTH: Duration = Duration::from_secs(30);

    fn items(keys: std::ops::Range<usize>) -> Vec<PoppedItem> {
        let expires_in_ms = u64::try_from(LENGTH.as_millis()).unwrap();
        let lease = |number| LeaseDocument {
            id: format!("q-{number}"),
            token: 1,
            worker: None,
            expires_at: Timestamp::from_micros(0),
            expires_in_ms,
        };
        let item = |number| PoppedItem {
            key: format!("k{number}"),
            lease: lease(number),
            attempt: 1,
            failures: 0,
            is_in_initial_list: false,
            deltas: Vec::new(),
            known: None,
            diff: Difference::Absent,
            diff_omitted: None,
        };
        keys.map(item).collect()
    }

    fn extended(lease_id: &str, length: Option<Duration>) -> SettledDocument {
        let result = if length.is_some() { SettleResult::Ok } else { SettleResult::Stale };
        SettledDocument {
            expires_in_ms: length.map(|length| u64::try_from(length.as_millis()).unwrap()),
            outcome: length.is_none().then_some(LeaseOutcome::Expired),
            ..SettledDocument::new(lease_id.to_owned(), SettleAs::Extend, result)
        }
    }

    #[test]
    fn leases_that_are_lost_during_their_extension_need_no_attention() {
        let (mut leases, now) = (Leases::default(), Instant::now());
        leases.add(&items(0..2), now);
        let (_, stop_at) = leases.due(now + LENGTH / 3).expect("two leases are due");
        assert_eq!(leases.next_at(), Some(stop_at));
        assert_eq!(leases.expire(stop_at).len(), 2);
        assert_eq!(leases.next_at(), None, "a worker that looks at leases first would do nothing else");
        leases.add(&items(2..3), stop_at);
        assert_eq!(leases.next_at(), Some(stop_at + LENGTH * 5 / 6), "the extension is still under way");
    }

    #[test]
    fn leases_are_extended_at_a_third_and_lost_before_their_end() {
        let (mut leases, now) = (Leases::default(), Instant::now());
        let slots = leases.add(&items(0..3), now);
        let _settled = leases.take(slots[0].0).expect("it is held");
        assert_eq!(leases.next_at(), Some(now + LENGTH / 3));
        assert!(leases.due(now + LENGTH / 3 - Duration::from_millis(1)).is_none());
        let (mut lease_ids, stop_at) = leases.due(now + LENGTH / 3).expect("two leases are due");
        lease_ids.sort();
        assert_eq!((lease_ids, stop_at), (vec!["q-1".to_owned(), "q-2".to_owned()], now + LENGTH * 5 / 6));
        assert!(leases.due(stop_at).is_none(), "one extension at a time");

        let sent_at = now + LENGTH / 3;
        let reply =
            SettledList { settled: vec![extended("q-1", Some(LENGTH)), extended("q-2", None)], stale: 1 };
        let lost = leases.extended(&reply, sent_at);
        let lost: Vec<_> = lost.iter().map(|(held, loss)| (held.key.as_str(), *loss)).collect();
        assert_eq!(lost, [("k2", Loss::Ended(LeaseOutcome::Expired))]);
        assert_eq!(leases.next_at(), Some(sent_at + LENGTH / 3));

        assert!(leases.due(sent_at + LENGTH / 3).is_some());
        leases.not_extended(sent_at + LENGTH / 2);
        assert_eq!(leases.next_at(), Some(sent_at + LENGTH / 2), "a failed extension is tried again");
        assert!(leases.due(sent_at + LENGTH / 2).is_some());
        let stop_at = sent_at + LENGTH * 5 / 6;
        assert_eq!(leases.next_at(), Some(stop_at), "an extension without a reply does not hide the end");
        assert!(leases.expire(stop_at - Duration::from_millis(1)).is_empty());
        let lost = leases.expire(stop_at);
        let lost: Vec<_> = lost.iter().map(|(held, loss)| (held.key.as_str(), *loss)).collect();
        assert_eq!(lost, [("k1", Loss::NotExtended { left: LENGTH / 6 })]);
        assert!(!leases.is_held(slots[1].0));
    }

    #[test]
    fn an_extension_has_at_most_ten_thousand_leases() {
        let (mut leases, now) = (Leases::default(), Instant::now());
        for pop in 0..12 {
            leases.add(&items(pop * 1_000..(pop + 1) * 1_000), now);
        }
        let (lease_ids, _) = leases.due(now + LENGTH).expect("all are due");
        assert_eq!(lease_ids.len(), 10_000);
        leases.not_extended(now + LENGTH);
        assert_eq!(leases.due(now + LENGTH).expect("the others are due").0.len(), 2_000);
    }
}
