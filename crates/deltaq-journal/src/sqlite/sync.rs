//! When a commit counts as durable.

/// When a commit counts as durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Once the commit is on the disk. It survives a power loss.
    Full,
    /// Once the operating system has the commit. It survives the process, but a power loss may lose the newest
    /// commits.
    Normal,
}

impl Sync {
    /// The name in the settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Normal => "normal",
        }
    }
}
