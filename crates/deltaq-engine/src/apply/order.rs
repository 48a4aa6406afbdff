//! Applying new work: when its key becomes ready, and its place in the order of ready keys.

use super::{NO_ENTRY, Reason};
use crate::event::Due;
use crate::id::Slot;
use crate::key::Key;
use crate::schedule::{EventId, HeadStart};
use crate::state::State;

impl State {
    /// Gives a key work that may wait for a delay or a debounce window. Returns whether the key got work now.
    pub(super) fn queue_work(
        &mut self,
        slot: Slot,
        key: &Key,
        due: Option<&Due>,
        id: EventId,
    ) -> Result<bool, Reason> {
        let schedule_state = &mut self.table.at_mut(slot).ok_or(NO_ENTRY)?.schedule_state;
        match due {
            None => return Ok(self.schedule.wake(slot, key, schedule_state, id)),
            Some(Due::At(due)) => self.schedule.delay(slot, key, schedule_state, *due, id.rv),
            Some(Due::Window(_)) if !schedule_state.may_be_debounced() => {
                return Err("the key is ready, so no window delays it");
            }
            Some(Due::Window(window)) => self.schedule.debounce(slot, key, schedule_state, **window, id),
        }
        Ok(false)
    }

    /// Adds the head start of a new change. Of several changes that wait, the largest one counts. A ready key that rises to a
    /// higher strict class goes to the tail of that class.
    #[inline(never)]
    pub(super) fn join(
        &mut self,
        slot: Slot,
        head_start: HeadStart,
        waited: bool,
        id: EventId,
    ) -> Result<(), Reason> {
        let entry = self.table.at_mut(slot).ok_or(NO_ENTRY)?;
        let own = entry.schedule_state.head_start();
        if own == head_start {
            return Ok(());
        }
        let state = &mut entry.schedule_state;
        if !waited {
            state.set_head_start(head_start);
        } else if head_start > own {
            state.set_head_start(head_start);
            let rises = head_start.in_class().0 > own.in_class().0;
            if rises && !self.config.rules().leases_oldest_delta {
                self.schedule.arrive_again(slot, state, id.rv, id.at);
            }
        }
        Ok(())
    }

    /// The head start of a key whose lease has not succeeded: what returns and what waits are delivered together.
    pub(super) fn rejoin(&mut self, slot: Slot, returned: HeadStart, waited: bool) -> Result<(), Reason> {
        let state = &mut self.table.at_mut(slot).ok_or(NO_ENTRY)?.schedule_state;
        let own = state.head_start();
        if own != returned {
            state.set_head_start(if waited { own.max(returned) } else { returned });
        }
        Ok(())
    }
}
