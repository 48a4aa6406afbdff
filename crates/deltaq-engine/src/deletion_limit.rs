//! The limit on the deletions of a Replace.

use super::limits::HALF_KEYS_MIN;

/// The limit on the deletions of a Replace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DeletionGuard {
    /// Limits that the call or the queue sets; at least one of them is set. A Replace is refused only if its
    /// deletions exceed both limits. A limit that is not set counts as 0.
    Set {
        /// Maximum number of deleted keys.
        max_deletes: Option<u64>,
        /// Maximum percentage of the source's keys that may be deleted.
        max_percent: Option<f64>,
    },
    /// Neither the call nor the queue sets a limit.
    Default(DefaultLimit),
}

/// The limit on the deletions of a Replace, if neither the call nor the queue sets `max_delete_percent` or
/// `max_deletes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultLimit {
    /// No limit, as in client-go.
    None,
    /// At most half of the keys that the source owns, if it owns [`HALF_KEYS_MIN`] or more.
    Half,
    /// No deletions, because the list is empty. An empty list is usually a mistake.
    EmptyList,
    /// No deletions, because the body is a single object instead of a list.
    SingleObject,
}

impl DefaultLimit {
    /// The name in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Half => "half",
            Self::EmptyList => "empty_list",
            Self::SingleObject => "single_object",
        }
    }
}

impl DeletionGuard {
    /// Whether the guard refuses to delete `deletions` of the `owned` keys of a source.
    pub(super) fn refuses(self, deletions: u64, owned: u64) -> bool {
        match self {
            Self::Set { max_deletes, max_percent } => {
                #[expect(clippy::cast_precision_loss, reason = "counts of keys are far below 2^52")]
                let percent = deletions as f64 * 100.0 > max_percent.unwrap_or(0.0) * owned as f64;
                deletions > max_deletes.unwrap_or(0) && percent
            }
            Self::Default(DefaultLimit::None) => false,
            Self::Default(DefaultLimit::Half) => owned >= HALF_KEYS_MIN && deletions > owned / 2,
            Self::Default(DefaultLimit::EmptyList | DefaultLimit::SingleObject) => deletions > 0,
        }
    }
}
