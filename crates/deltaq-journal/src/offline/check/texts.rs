//! Checks the texts that rows share. What is lost with a text depends on the rows that refer to it, so a damaged text is
//! reported after all rows were read.

use deltaq_engine::object;

use super::{Examiner, KnownText, Severity};
use crate::snapshot::Found;
use crate::store::{QueueId, SharedText};
use crate::text_id::TextId;

impl Examiner<'_> {
    pub(super) fn text(&mut self, found: Found<SharedText>) {
        let place = self.snapshot.place("texts", found.id);
        match found.row {
            Ok(SharedText { id, text }) => {
                let wrong = if TextId::of(&text) == id {
                    object::check(&text).err().map(|error| error.to_string())
                } else {
                    Some("damaged: it differs from what was written".to_owned())
                };
                let damage = wrong.map(|wrong| format!("{place}: text {id}: {wrong}"));
                self.texts.insert(id, KnownText { damage, needed_by: None });
            }
            // A row that refers to the text finds that it is missing.
            Err(what) => self.damage(None, Severity::Unused, &format!("{place}: {what}")),
        }
    }

    /// Puts an object in the place of each text, because the texts are checked on their own, and records which row needs
    /// them. Fails if a text is missing.
    pub(super) fn replace_texts(
        &mut self,
        (queue, place, severity): (QueueId, &str, Severity),
        texts: &mut [SharedText],
    ) -> Result<(), String> {
        for shared in texts {
            let Some(known) = self.texts.get_mut(&shared.id) else {
                return Err(format!("it refers to text {}, which table texts lacks", shared.id));
            };
            shared.text = "{}".into();
            if known.damage.is_none() {
                continue;
            }
            let queue = self.queues.get_mut(&queue);
            if known.needed_by.as_ref().is_none_or(|(needed, _)| *needed < severity) {
                let name = queue.as_ref().and_then(|queue| queue.name.clone()).unwrap_or_default();
                known.needed_by = Some((severity, format!("{place} of queue {name} needs it")));
            }
            if let Some(queue) = queue.filter(|_| severity == Severity::State) {
                queue.is_damaged = true;
            }
        }
        Ok(())
    }

    /// Reports the damaged texts.
    pub(super) fn report_texts(&mut self) {
        let known = self.texts.drain().filter_map(|(_, known)| Some((known.damage?, known.needed_by)));
        let mut damaged: Vec<_> = known.collect();
        damaged.sort_unstable();
        for (damage, needed_by) in damaged {
            let (severity, needed) =
                needed_by.unwrap_or_else(|| (Severity::Unused, "no row needs it".to_owned()));
            self.damage(None, severity, &format!("{damage}; {needed}"));
        }
    }
}
