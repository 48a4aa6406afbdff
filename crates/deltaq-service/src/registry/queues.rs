//! What the registry knows of its queues, under its lock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use deltaq_engine::id::Rv;

use super::Creator;
use super::kubernetes::Resources;
use crate::queue::Handle;
use crate::{Error, Name, QueueShare};

/// One token may have created this many times as many queues as may still be created.
const SHARE: usize = 3;

#[derive(Debug, Default)]
pub(super) struct Queues {
    pub(super) live: BTreeMap<Name, Arc<Handle>>,
    /// The largest event number of a deleted queue. New queues begin far above it.
    pub(super) last_deleted: Rv,
    /// The followers of each followed queue.
    pub(super) followers: BTreeMap<Name, BTreeSet<Name>>,
    /// For each follower that a token has set up, the name of the token.
    pub(super) setters: BTreeMap<Name, Arc<str>>,
    /// The queues that are resources of Kubernetes.
    pub(super) resources: Resources,
    /// Invariant: the number of live queues that each token has created, by the name of the token.
    pub(super) created: HashMap<Arc<str>, usize>,
}

impl Queues {
    pub(super) fn insert(&mut self, handle: &Arc<Handle>) {
        if let Some(creator) = handle.creator() {
            *self.created.entry(creator.clone()).or_default() += 1;
        }
        self.live.insert(handle.name().clone(), handle.clone());
    }

    pub(super) fn remove(&mut self, handle: &Handle) {
        self.resources.remove(handle.name());
        let is_there = self.live.remove(handle.name()).is_some();
        if let Some(creator) = handle.creator().filter(|_| is_there)
            && let Some(created) = self.created.get_mut(creator)
        {
            *created -= 1;
            if *created == 0 {
                self.created.remove(creator);
            }
        }
    }

    /// Checks that a token leaves room for the queues of the others.
    pub(super) fn check_share(&self, creator: &Creator, max_queues: usize) -> Result<(), Error> {
        let Some(token) = creator.token.as_ref().filter(|_| creator.shares) else { return Ok(()) };
        let created = self.created.get(token).copied().unwrap_or_default();
        let limit = max_queues.saturating_sub(self.live.len()).saturating_mul(SHARE);
        if created >= limit {
            let share = Some(QueueShare { token: token.clone(), created, max_queues });
            return Err(Error::TooManyQueues { limit, share });
        }
        Ok(())
    }
}
