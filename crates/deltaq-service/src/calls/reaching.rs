//! Checks whether the queue has a version, and waits until everything up to a version is acknowledged.

use std::ops::ControlFlow;
use std::time::Duration;

use deltaq_engine::id::Rv;
use deltaq_engine::lives::Stray;

use crate::Error;
use crate::queue::{Handle, Locked, PART_KEYS};

/// Whether everything up to a version is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// The version.
    pub version: Rv,
    /// Whether every change up to the version is acknowledged or belongs to a parked key.
    pub reached: bool,
    /// Number of parked keys with an unacknowledged change up to the version.
    pub parked: usize,
}

impl Handle {
    /// Checks that the queue has this version. A version is returned to callers only after its commit. So if a queue
    /// does not have the version, it has lost the version or is a different queue. Every queue has the version 0,
    /// which is older than everything.
    ///
    /// # Errors
    /// [`Error::VersionAhead`], [`Error::Lost`], [`Error::TooOld`], or the errors of reads.
    pub fn check_version(&self, version: Rv) -> Result<(), Error> {
        let state = self.open_to_read()?;
        let newest = state.queue.resource_version();
        if version == Rv::ZERO {
            return Ok(());
        }
        state.queue.lives().check(version, newest).map_err(|stray| match stray {
            Stray::Ahead => Error::VersionAhead { newest },
            Stray::Lost => Error::Lost,
            Stray::TooOld => Error::TooOld,
        })
    }

    /// Waits until every change up to `version` is acknowledged, but at most for the time `wait` and only until the
    /// shutdown begins. `version` defaults to the newest version. Parked keys are ignored.
    ///
    /// # Errors
    /// Same as [`check_version`](Self::check_version).
    pub async fn wait_acknowledged(
        &self,
        version: Option<Rv>,
        wait: Duration,
    ) -> Result<Acknowledged, Error> {
        let version = match version {
            Some(version) => {
                self.check_version(version)?;
                version
            }
            None => self.open_to_read()?.queue.resource_version(),
        };
        let commit = self.wait_until(wait, |state| {
            if state.queue.acknowledged_up_to() >= version {
                return Ok(Some(state.commits.newest.clone()));
            }
            state.awaited = Some(state.awaited.map_or(version, |awaited| awaited.min(version)));
            Ok(None)
        });
        let commit = commit.await?;
        let reached = commit.is_some();
        commit.unwrap_or_default().wait().await?;
        Ok(Acknowledged { version, reached, parked: self.count_parked(version).await? })
    }

    /// Number of parked keys with an unacknowledged change up to `version`.
    async fn count_parked(&self, version: Rv) -> Result<usize, Error> {
        let count = |(parked, after): &mut (usize, Option<_>), state: &Locked| {
            let (counted, last) = state.queue.count_parked(version, after.as_ref(), PART_KEYS);
            *parked += counted;
            *after = last;
            if after.is_some() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let ((parked, _), ()) = self.read_in_parts(|| (0, None), count).await?;
        Ok(parked)
    }
}
