//! Documents of several kinds: a member names the kind, and the kind determines the other members.

/// The members of the documents of one kind. A document has all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Members {
    /// Members that have a value.
    pub present: &'static [&'static str],
    /// Members that may be null.
    pub nullable: &'static [&'static str],
}

impl Members {
    /// All names.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        self.present.iter().chain(self.nullable).copied()
    }
}
