//! The names of producers and workers: a few texts that many records repeat.

use std::collections::HashSet;
use std::sync::Arc;

use deltaq_engine::delta::Provenance;
use deltaq_engine::id::Source;
use foldhash::fast::RandomState;

/// Maximum number of names that are remembered at a time.
const NAMES_MAX: usize = 4_096;

/// Makes equal names share memory, so that a million keys of one owner hold its name only once.
#[derive(Debug, Default)]
pub(super) struct Names {
    texts: HashSet<Arc<str>, RandomState>,
    /// The provenance that was read last. The deltas of one call are adjacent, so it is likely to be needed again.
    provenance: Provenance,
}

impl Names {
    /// Replaces a name with the copy that equal names share. The set is cleared when it is full: names in use are
    /// soon added again, and names that were used only once disappear.
    pub(super) fn share(&mut self, name: &mut Arc<str>) {
        if let Some(shared) = self.texts.get(name) {
            *name = shared.clone();
            return;
        }
        if self.texts.len() >= NAMES_MAX {
            self.texts.clear();
        }
        self.texts.insert(name.clone());
    }

    /// Like [`share`](Self::share), for a name that may be absent.
    pub(super) fn share_some(&mut self, name: Option<&mut Arc<str>>) {
        if let Some(name) = name {
            self.share(name);
        }
    }

    /// Replaces a provenance with the previous one if they are equal; otherwise shares its names.
    pub(super) fn share_provenance(&mut self, provenance: &mut Provenance) {
        if *provenance == Provenance::default() {
            return;
        }
        if *provenance != self.provenance {
            let mut name = |name: Option<&Source>| {
                let mut name = name.cloned();
                self.share_some(name.as_mut().map(AsMut::as_mut));
                name
            };
            let (source, owner) = (name(provenance.source()), name(provenance.owner()));
            let shared = Provenance::new(source, owner, provenance.trace().cloned());
            self.provenance = shared.with_due(provenance.due());
        }
        *provenance = self.provenance.clone();
    }
}
