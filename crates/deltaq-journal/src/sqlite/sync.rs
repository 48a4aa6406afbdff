//! When a commit counts as durable.

/// When a commit counts as durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Once the disk has it: the commit survives a power loss.
    Full,
    /// Once the operating system has it: the commit survives the process, but a power loss may take the newest
    /// commits, in order.
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
