//! Applying what concerns the births of keys.

use crate::birth::Birth;
use crate::config::Config;
use crate::id::{Rv, Slot};
use crate::schedule::EventId;
use crate::state::State;
use crate::table::{Entry, Paged};
use crate::time::Time;
use crate::view::{Passage, View};

impl State {
    /// The birth of a key of the view; `None` if the queue keeps no births for the view.
    pub(crate) fn birth(&self, view: View, slot: Slot) -> Option<Birth> {
        let births = self.births.as_ref()?;
        let (_, since) = births.since.filter(|(of, _)| *of == view)?;
        Some(births.own(slot).unwrap_or(since))
    }

    /// The event that has set the view, which is the birth of all keys without one of their own.
    pub(crate) fn births_since(&self) -> Option<Birth> {
        self.births.as_ref()?.since.map(|(_, since)| since)
    }

    /// The birth that a checkpoint stores with a key.
    pub(crate) fn stored_birth(&self, slot: Slot, entry: &Entry) -> Option<Birth> {
        let births = self.births.as_ref()?;
        let (view, _) = births.since?;
        births.own(slot).filter(|_| entry.version_in(view).is_some())
    }

    /// Takes the birth of a key from a checkpoint. It may be newer than the state of the queue, which has no births then.
    pub(crate) fn restore_birth(&mut self, slot: Slot, birth: Birth) {
        self.births.get_or_insert_default().set(slot, birth);
    }

    /// Records the birth of a key that has just entered a view.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_birth(&mut self, slot: Slot, [latest, known]: [Option<Passage>; 2], id: EventId) {
        let Some(births) = &mut self.births else { return };
        let passage = match births.since {
            Some((View::Latest, _)) => latest,
            Some((View::Known, _)) => known,
            None => None,
        };
        if passage != Some(Passage::Entered) {
            return;
        }
        // The table has released all slots when its last key was removed.
        if self.table.len() == 1 {
            births.by_slot = Paged::default();
        }
        births.set(slot, Birth { rv: id.rv, at: id.at });
    }

    /// Applies the settings, which may make the queue another resource from this event on. In a replay, the births of keys that are ahead of the
    /// event stay.
    pub(crate) fn change_births(&mut self, config: &Config, at: Time) {
        if config.kubernetes == self.config.kubernetes {
            return;
        }
        let view = config.kubernetes_view();
        let since = Birth { rv: self.rv, at };
        let kept = self.births.take().filter(|births| births.newest > since.rv);
        if view.is_some() || kept.is_some() {
            let mut births = kept.unwrap_or_default();
            births.since = view.map(|view| (view, since));
            self.births = Some(births);
        }
    }

    /// Begins a life: drops births that no setting has taken, unless they are newer, because a replay goes on behind this event.
    pub(crate) fn recover_births(&mut self, rv: Rv) {
        self.births.take_if(|births| births.since.is_none() && births.newest <= rv);
    }

    /// Checks the births.
    pub(crate) fn check_births(&self) -> Result<(), String> {
        let set = self.births.as_ref().and_then(|births| births.since);
        if set.map(|(view, _)| view) != self.config.kubernetes_view() {
            return Err(String::from("the queue has births without the setting, or the reverse"));
        }
        let Some((view, since)) = set else { return Ok(()) };
        for (slot, entry) in self.entries_after(None) {
            let Some(version) = entry.version_in(view) else { continue };
            let own = self.stored_birth(slot, entry);
            let birth = own.unwrap_or(since);
            if birth.rv > self.rv || birth.at > self.last_at || own.is_some_and(|own| own.rv > version) {
                return Err(format!("key {}: was born in the future, or after its version", entry.key));
            }
        }
        Ok(())
    }
}
