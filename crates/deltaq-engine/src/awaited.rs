//! Leases whose workers wait for the first change behind them.

use super::command::Settled;
use super::event::EventKind;
use super::id::{Slot, Token};
use super::queue::Queue;

impl Queue {
    /// Waits for a change behind one of these leases, or for the end of one: its token is then among those of
    /// [`Effects::overtaken`](super::Effects::overtaken), once. Returns false if there is nothing to wait for, because one of them has a newer
    /// change or has ended.
    pub fn await_change(&mut self, tokens: &[Token]) -> bool {
        let waits = !tokens.is_empty() && tokens.iter().all(|token| self.lease_waits_for_change(*token));
        if waits {
            self.volatile.watched_leases.extend(tokens);
        }
        waits
    }

    /// Ends the wait for a change behind a lease.
    pub fn stop_awaiting(&mut self, token: Token) {
        self.volatile.watched_leases.remove(&token);
    }

    /// The state of a lease as after an extension: `Extended` if it is live, otherwise `Stale`.
    #[must_use]
    pub fn lease_state(&self, token: Token) -> Settled {
        match self.state().schedule.leased_at(token) {
            Some(slot) => {
                let entry = self.state().entry(slot);
                let lease = entry.lease();
                let has_objects = self.state().config.rules().has_objects;
                let again = usize::from(lease.later_change.is_some());
                Settled::Extended {
                    deadline: lease.deadline,
                    pending_deltas: if has_objects { entry.waiting.len() } else { again },
                    deleted: entry.is_deleted(),
                }
            }
            None => Settled::Stale { outcome: self.state().settled.get(token) },
        }
    }

    fn lease_waits_for_change(&self, token: Token) -> bool {
        let slot = self.state().schedule.leased_at(token);
        slot.is_some_and(|slot| self.state().entry(slot).lease().later_change.is_none())
    }

    /// Records that an event is a change behind a lease, or its end, if somebody waits for this.
    #[cold]
    #[inline(never)]
    pub(super) fn note_awaited(&mut self, slot: Option<Slot>, kind: &EventKind) {
        let token = match kind {
            EventKind::Settled { token, .. } => Some(*token),
            EventKind::Appended(_) | EventKind::Queued(_) => {
                let entry = slot.and_then(|slot| self.state().table.at(slot));
                entry.and_then(|entry| entry.schedule_state.lease()).map(|lease| lease.token)
            }
            _ => None,
        };
        if let Some(token) = token.filter(|token| self.volatile.watched_leases.remove(token)) {
            self.volatile.effects.overtaken.push(token);
        }
    }
}
