//! Acknowledgements of a part of a lease.

use std::time::Duration;

use deltaq_engine::command::{How, Outcome, Part};

use super::leases::ModelSettled;
use super::{Micros, Model, ModelKnown, Name, Place, micros};

impl Model {
    pub(super) fn extend(&mut self, now: Micros, token: u64, length: Option<Duration>) -> ModelSettled {
        let Some(key) = self.leased_key(token) else {
            self.hit("an extension of a stale lease");
            return ModelSettled::Stale(self.outcome(token));
        };
        let deadline = now + micros(length.unwrap_or(self.config.lease));
        self.event(now);
        let has_objects = !self.is_keys();
        let item = self.item(key);
        let Place::Leased(lease) = &mut item.place else { panic!("{key} is not leased") };
        (lease.deadline, lease.length) = (deadline, deadline - now);
        // In mode keys, whether the key has been added again.
        let again = usize::from(item.changes.len() > lease.changes);
        let pending = if has_objects { item.waiting.len() } else { again };
        let deleted = item.newest_is_deleted();
        self.hit("an extension");
        ModelSettled::Extended { deadline, pending, deleted }
    }

    /// Acknowledges the leased deltas up to one of them, and settles the others.
    pub(super) fn settle_part(&mut self, now: Micros, token: u64, part: &Part) -> ModelSettled {
        let rest = part.rest.as_ref().map(|rest| match rest {
            How::Ack => How::Release,
            How::Hold { scope, length, .. } => How::Hold { scope: *scope, acks: false, length: *length },
            other => other.clone(),
        });
        let Some(key) = self.leased_key(token) else {
            let outcome = self.outcome(token);
            let ends_as = rest.as_ref().and_then(How::outcome);
            if outcome == Outcome::Acked || ends_as == Some(outcome) {
                self.hit("a partial ack is repeated after its lease");
                return ModelSettled::Repeated;
            }
            return ModelSettled::Stale(outcome);
        };
        let (item, through) = (&self.items[key], part.through.get());
        let since = item.lease().map_or(0, |lease| lease.since);
        let (Some(first), place) =
            (item.leased.first(), item.leased.iter().position(|delta| delta.rv == through))
        else {
            return ModelSettled::NotLeased;
        };
        let is_repeated = through < first.rv;
        match place {
            _ if is_repeated => {}
            None => {
                self.hit("a partial ack of a delta that is not leased");
                return ModelSettled::NotLeased;
            }
            Some(place) if place + 1 == item.leased.len() => {
                self.hit("a partial ack of everything");
                let how = match &part.rest {
                    Some(How::Hold { scope, length, .. }) => {
                        How::Hold { scope: *scope, acks: true, length: *length }
                    }
                    _ => How::Ack,
                };
                return self.settle_one(now, token, &how);
            }
            Some(place) => self.acknowledge_part(now, key, place + 1),
        }
        match rest {
            None if is_repeated => {
                self.hit("a partial ack is repeated");
                ModelSettled::Repeated
            }
            None => {
                self.hit("a lease goes on after a partial ack");
                ModelSettled::Ok { worked: now.saturating_sub(since), failed: None }
            }
            Some(how) => {
                self.hit("a partial ack settles the rest");
                self.settle_one(now, token, &how)
            }
        }
    }

    fn acknowledge_part(&mut self, now: Micros, key: Name, count: usize) {
        self.remember_acknowledged(now, key, count);
        let stamp = self.event(now);
        let store = self.config.known_objects;
        let item = self.item(key);
        let rest = item.leased.split_off(count);
        let acknowledged = std::mem::replace(&mut item.leased, rest);
        let through = acknowledged[count - 1].rv;
        for delta in acknowledged {
            item.known = (store && !delta.is_deleted()).then_some(ModelKnown {
                content: delta.content,
                rv: stamp.0,
                owner: delta.owner,
            });
        }
        item.initial_pending = item.initial_pending.filter(|pending| *pending > through);
        // A change that was merged into the oldest delta of the rest is not acknowledged, and which one it is nobody knows.
        let oldest = if item.leased[0].coalesced > 0 { 0 } else { item.leased[0].rv };
        let before = item.changes.len();
        item.changes.retain(|change| change.0 >= oldest);
        let gone = before - item.changes.len();
        (item.attempt, item.failures, item.last_error) = (1, 0, None);
        let Place::Leased(lease) = &mut item.place else { panic!("{key} is not leased") };
        lease.changes -= gone;
        lease.may_return = false;
    }
}
