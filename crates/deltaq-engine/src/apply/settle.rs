//! Applying the end of a lease.

use super::{NO_ENTRY, NO_LEASE, Reason};
use crate::apply::Applied;
use crate::delta::{Delta, DeltaKind, Deltas};
use crate::event::{Disposition, Ending, Failure};
use crate::id::{Rv, Slot, Token};
use crate::known::{Known, set_known};
use crate::schedule::EventId;
use crate::state::State;
use crate::table::Entry;
use crate::time::Time;

impl State {
    pub(super) fn apply_settled(
        &mut self,
        slot: Slot,
        token: Token,
        ending: &Ending,
        id: EventId,
    ) -> Result<Applied, Reason> {
        self.leave_pop(slot, token)?;
        let rules = self.config.rules();
        let entry = self.table.at_mut(slot).ok_or(NO_ENTRY)?;
        let covered = entry.lease_covers(rules);
        let is_done = matches!(ending, Ending::Acked | Ending::Done);
        let returned = (!is_done).then(|| entry.lease().head_start);
        let waited = returned.is_some() && entry.schedule_state.has_waiting_change();
        let leased = std::mem::take(&mut entry.leased);
        let mut ends_pending = ending.parks();
        let mut applied = Applied::default();
        if matches!(ending, Ending::Acked | Ending::Done) {
            if *ending == Ending::Acked {
                let pending = entry.initial_pending;
                ends_pending =
                    pending.is_some_and(|pending| covered.is_some_and(|rv| pending.get() <= rv.get()));
                self.apply_ack(slot, leased, id)?;
            }
            applied.got_work = self.apply_done(slot, id)?;
        } else if rules.keeps_every_delta {
            entry.waiting.put_oldest_back(leased);
        } else {
            applied.merged = entry.waiting.put_back(leased, rules.only_newest_waits, self.config.cap());
        }
        let entry = self.table.at_mut(slot).ok_or(NO_ENTRY)?;
        let position = entry.position(rules, id);
        let schedule_state = &mut entry.schedule_state;
        let debounces =
            schedule_state.window().is_some() && !schedule_state.has_past_window(id.at, self.closed);
        match ending {
            Ending::Acked | Ending::Done => {}
            Ending::Nacked(failure) | Ending::Expired(failure) => {
                applied.got_work = self.apply_failure(slot, failure, id)?;
            }
            Ending::Released if debounces => self.schedule.settle_to_wait(slot, schedule_state),
            Ending::Released => {
                applied.got_work = self.schedule.settle_to_tail(slot, schedule_state, position);
            }
            Ending::Held { until } => {
                self.schedule.set_floor(slot, schedule_state, EventId { rv: id.rv, at: *until }, true);
                applied.got_work = self.apply_disposition(slot, Disposition::Wait { due: *until }, id)?;
            }
            Ending::Rejected { error, disposition } => {
                schedule_state.set_last_error(error.clone());
                applied.got_work = self.apply_disposition(slot, *disposition, id)?;
            }
            Ending::Undelivered => self.schedule.restore_position(slot, schedule_state),
        }
        if let Some(returned) = returned {
            self.rejoin(slot, returned, waited)?;
        }
        if ends_pending {
            let entry = self.table.at_mut(slot).ok_or(NO_ENTRY)?;
            self.initial_pending -= usize::from(entry.initial_pending.take().is_some());
        }
        Ok(applied)
    }

    /// Acknowledges the leased deltas up to one of them. The lease goes on with the others.
    pub(super) fn apply_progressed(
        &mut self,
        slot: Slot,
        token: Token,
        through: Rv,
        id: EventId,
    ) -> Result<Applied, Reason> {
        let entry = self.table.at_mut(slot).ok_or(NO_ENTRY)?;
        entry.schedule_state.lease().filter(|lease| lease.token == token).ok_or(NO_LEASE)?;
        let acknowledged = entry.leased.take_through(through).ok_or("the lease has no such older delta")?;
        self.apply_ack(slot, acknowledged, id)?;
        let entry = self.table.at_mut(slot).ok_or(NO_ENTRY)?;
        // The present delivery is the first one of the others.
        entry.schedule_state.attempt = 1;
        if entry.initial_pending.is_some_and(|pending| pending.get() <= through.get()) {
            entry.initial_pending = None;
            self.initial_pending -= 1;
        }
        Ok(Applied::default())
    }

    /// Makes the newest leased delta known and forgets the failures.
    fn apply_ack(&mut self, slot: Slot, leased: Deltas, id: EventId) -> Result<(), Reason> {
        let entry = self.table.at_mut(slot).ok_or(NO_ENTRY)?;
        if self.config.known_objects {
            let newest = leased.into_newest().filter(|delta| delta.kind != DeltaKind::Deleted);
            let known = newest.map(|Delta { object, provenance, .. }| Known {
                object,
                rv: id.rv,
                owner: provenance.owner().cloned(),
            });
            set_known(&mut entry.known, known, &mut self.known);
        }
        entry.schedule_state.attempt = 0;
        self.schedule.forget(slot, &mut entry.schedule_state);
        Ok(())
    }

    /// Ends the lease of a key whose delivered deltas need no further delivery. If other deltas wait, the key becomes
    /// ready or delayed, otherwise idle. Returns whether the end of a debounce window gives the key work.
    fn apply_done(&mut self, slot: Slot, id: EventId) -> Result<bool, Reason> {
        let rules = self.config.rules();
        let entry = self.table.at_mut(slot).ok_or(NO_ENTRY)?;
        let (due, position) = (entry.next_due(rules, id.at), entry.position(rules, id));
        let schedule_state = &mut entry.schedule_state;
        if let Some(due) = due {
            self.schedule.settle_to_wait(slot, schedule_state);
            self.schedule.delay(slot, &entry.key, schedule_state, due, id.rv);
            return Ok(false);
        }
        Ok(self.schedule.settle(slot, schedule_state, position, self.closed))
    }

    /// Applies a failed delivery. Returns whether the failure gives the key new work.
    fn apply_failure(&mut self, slot: Slot, failure: &Failure, id: EventId) -> Result<bool, Reason> {
        let schedule_state = &mut self.table.at_mut(slot).ok_or(NO_ENTRY)?.schedule_state;
        schedule_state.failures = schedule_state.failures.saturating_add(1);
        schedule_state.set_last_error(failure.error.clone());
        if let Some(floor) = failure.floor {
            self.schedule.set_floor(slot, schedule_state, EventId { rv: id.rv, at: floor }, false);
        }
        self.apply_disposition(slot, failure.disposition, id)
    }

    /// Ends the lease of a key whose work is not done. Returns whether this gives the key new work.
    fn apply_disposition(
        &mut self,
        slot: Slot,
        disposition: Disposition,
        id: EventId,
    ) -> Result<bool, Reason> {
        let entry = self.table.at_mut(slot).ok_or(NO_ENTRY)?;
        let position = entry.position(self.config.rules(), id);
        let Entry { key, schedule_state, .. } = entry;
        let mut got_work = false;
        match disposition {
            Disposition::Tail { due } => {
                got_work = self.schedule.settle_to_tail(slot, schedule_state, position);
                if let Some(due) = due {
                    self.schedule.delay(slot, key, schedule_state, due, id.rv);
                }
            }
            Disposition::Wait { due } => {
                self.schedule.settle_to_wait(slot, schedule_state);
                self.schedule.back_off(slot, schedule_state, due, id.rv);
            }
            Disposition::Delayed => {
                if !schedule_state.waits() {
                    return Err("the key has neither a delay nor a window");
                }
                self.schedule.settle_to_wait(slot, schedule_state);
            }
            Disposition::Park => self.schedule.park(slot, key, schedule_state, id),
        }
        Ok(got_work)
    }

    /// Checks that the key has the live lease `token`, and ends the lease for its pop.
    fn leave_pop(&mut self, slot: Slot, token: Token) -> Result<(), Reason> {
        let entry = self.table.at(slot).ok_or(NO_ENTRY)?;
        let lease = entry.schedule_state.lease().filter(|lease| lease.token == token).ok_or(NO_LEASE)?;
        self.pops.end(lease).then_some(()).ok_or("the lease is not among those of its pop")
    }

    pub(super) fn take_from_bucket(&mut self, rate_limited: bool, at: Time) {
        if rate_limited {
            self.bucket = self.config.rate_limiter.wait("", 1, self.bucket, at).1;
        }
    }
}
