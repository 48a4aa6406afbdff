//! The initial list of a queue: the objects that a new queue needs before its consumers can rely on it.

use serde::{Deserialize, Serialize};

/// The progress of a queue's initial list. A queue is populated once a call has been accepted or a Replace has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InitialList {
    /// The queue is not populated. The next Replace brings the initial list.
    #[default]
    Missing,
    /// A Replace is bringing the initial list.
    Running {
        /// Whether a call has populated the queue in the meantime.
        populated: bool,
    },
    /// The Replace that was bringing the initial list was aborted. Its keys stay part of the list, and the next
    /// Replace brings the list. Otherwise, a repeat with `only_changed` would queue nothing for these keys, and the
    /// queue would be synced without any acknowledgement.
    Aborted {
        /// Whether a call has populated the queue in the meantime.
        populated: bool,
    },
    /// The queue is populated, and no Replace is bringing the initial list. This state is final.
    Complete,
}

impl InitialList {
    /// Whether a call was accepted or a Replace has ended.
    #[must_use]
    pub fn is_populated(self) -> bool {
        match self {
            Self::Missing => false,
            Self::Running { populated } | Self::Aborted { populated } => populated,
            Self::Complete => true,
        }
    }

    /// Whether a Replace that is accepted now brings the initial list.
    #[must_use]
    pub fn is_wanted(self) -> bool {
        match self {
            Self::Missing | Self::Aborted { .. } | Self::Running { populated: false } => true,
            Self::Running { populated: true } | Self::Complete => false,
        }
    }

    /// The state after an accepted call.
    #[must_use]
    pub(super) fn called(self) -> Self {
        match self {
            Self::Missing | Self::Complete => Self::Complete,
            Self::Running { .. } => Self::Running { populated: true },
            Self::Aborted { .. } => Self::Aborted { populated: true },
        }
    }

    /// The state after the start of the Replace that brings the initial list.
    #[must_use]
    pub(super) fn started(self) -> Self {
        Self::Running { populated: self.is_populated() }
    }

    /// The state after the end of the Replace that brings the initial list.
    #[must_use]
    pub(super) fn ended(self, aborted: bool) -> Self {
        if aborted { Self::Aborted { populated: self.is_populated() } } else { Self::Complete }
    }
}
