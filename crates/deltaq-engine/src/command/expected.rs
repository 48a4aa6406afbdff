//! What a caller expects of the newest objects of keys. A produce call with an expectation that does not hold is
//! refused, and changes nothing.

use crate::id::Rv;
use crate::key::Key;
use crate::queue::Queue;
use crate::refusal::Refusal;
use crate::view::View;

/// The `resource_version`s that the newest object of a key must have, or must not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The index of the expectation in the request, from 0.
    pub index: usize,
    /// The key.
    pub key: Key,
    /// The object has one of these versions.
    pub matches: Option<Versions>,
    /// There is no object, or it has none of these versions.
    pub matches_none: Option<Versions>,
}

/// A set of versions of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Versions {
    /// Every version.
    Any,
    /// These versions.
    Of(Vec<Rv>),
}

impl Expected {
    /// Expects that the newest object has this version or, with [`Rv::ZERO`], that there is no object.
    #[must_use]
    pub fn version(index: usize, key: Key, version: Rv) -> Self {
        let (matches, matches_none) = match version {
            Rv::ZERO => (None, Some(Versions::Any)),
            version => (Some(Versions::Of(vec![version])), None),
        };
        Self { index, key, matches, matches_none }
    }

    /// Whether the newest object of the key may have this version; `None` if there is no object.
    fn holds(&self, version: Option<Rv>) -> bool {
        let has = |versions: &Versions| version.is_some_and(|version| versions.has(version));
        self.matches.as_ref().is_none_or(has) && !self.matches_none.as_ref().is_some_and(has)
    }
}

impl Versions {
    fn has(&self, version: Rv) -> bool {
        match self {
            Self::Any => true,
            Self::Of(versions) => versions.contains(&version),
        }
    }
}

impl Queue {
    /// Compares expectations with the state of the queue. A queue that takes no calls refuses them for that reason.
    pub(super) fn check_expected(&self, all: &[Expected]) -> Result<(), Refusal> {
        if all.is_empty() {
            return Ok(());
        }
        self.check_takes_calls()?;
        if !self.state().config.rules().has_objects {
            return Err(self.wrong_mode("a precondition", "a queue of mode keys has no objects"));
        }
        for expected in all {
            let entry = self.state().table.get(expected.key.as_str());
            let version = entry.and_then(|entry| entry.version_in(View::Latest));
            if !expected.holds(version) {
                let (key, index) = (expected.key.clone(), expected.index);
                return Err(Refusal::PreconditionFailed { key, version, index });
            }
        }
        Ok(())
    }
}
