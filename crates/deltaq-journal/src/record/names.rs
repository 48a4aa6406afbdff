//! The names of producers and workers: a few texts that many records repeat.

use std::collections::HashSet;
use std::sync::Arc;

use deltaq_engine::delta::Provenance;
use deltaq_engine::id::Source;
use foldhash::fast::RandomState;

/// Most names that are remembered at a time.
const NAMES_MAX: usize = 4_096;

/// Gives equal names the same memory, so that a million keys of one owner hold its name once.
#[derive(Debug, Default)]
pub(super) struct Names {
    texts: HashSet<Arc<str>, RandomState>,
    /// The provenance that was read last: the deltas of one call are adjacent.
    provenance: Provenance,
}

impl Names {
    /// Replaces a name by the copy that equal names share. The set begins anew when it is full: names that are in use
    /// come back at once, names that were used once do not stay.
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

    /// As [`share`](Self::share), for a name that may be absent.
    pub(super) fn share_some(&mut self, name: Option<&mut Arc<str>>) {
        if let Some(name) = name {
            self.share(name);
        }
    }

    /// Replaces a provenance by the one before if both are equal, and shares its names otherwise.
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
