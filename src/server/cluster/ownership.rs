//! The ownership of one partition by this node.
//!
//! Invariant: at most one claim or release of a partition runs at a time. Otherwise, a claim from before the removal
//! of the node could end after a later claim has begun, and be mistaken for the later one. The node would then answer
//! reads from a state that another node has since changed.

use tokio::time::Instant;

use super::partition::Partition;

/// A partition, as this node sees it.
#[derive(Debug)]
pub(super) enum Ownership<P = Partition> {
    /// This node does not own the partition, and may claim it from this instant on.
    Free(Instant),
    Claiming {
        /// Whether the node was removed after the claim began. If so, another node may now own the partition.
        is_void: bool,
    },
    Owned(P),
    Releasing,
}

impl<P> Ownership<P> {
    /// Records that another node may now own the partition. Returns the partition if this node has it.
    #[must_use]
    pub(super) fn lose(&mut self) -> Option<P> {
        match self {
            Self::Free(_) | Self::Releasing => None,
            Self::Claiming { is_void } => {
                *is_void = true;
                None
            }
            Self::Owned(_) => match std::mem::replace(self, Self::Free(Instant::now())) {
                Self::Owned(partition) => Some(partition),
                _ => None,
            },
        }
    }

    /// Records that a claim has ended with this partition. Returns the partition if the claim is void.
    #[must_use]
    pub(super) fn claimed(&mut self, partition: P) -> Option<P> {
        if matches!(self, Self::Claiming { is_void: false }) {
            *self = Self::Owned(partition);
            None
        } else {
            *self = Self::Free(Instant::now());
            Some(partition)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_from_before_a_removal_owns_nothing() {
        let mut ownership = Ownership::Claiming { is_void: false };
        assert_eq!(ownership.lose(), None);
        assert!(!matches!(ownership, Ownership::Free(_)), "a second claim could begin");
        assert_eq!(ownership.claimed("stale"), Some("stale"));
        assert!(matches!(ownership, Ownership::Free(_)));
    }

    #[test]
    fn a_release_goes_on_after_a_removal() {
        let mut ownership: Ownership<&str> = Ownership::Releasing;
        assert_eq!(ownership.lose(), None);
        assert!(
            matches!(ownership, Ownership::Releasing),
            "a claim could begin, and the end of the release would free it"
        );
    }

    #[test]
    fn an_owned_partition_is_lost_once() {
        let mut ownership = Ownership::Claiming { is_void: false };
        assert_eq!(ownership.claimed("p"), None);
        assert_eq!(ownership.lose(), Some("p"));
        assert_eq!(ownership.lose(), None);
    }
}
