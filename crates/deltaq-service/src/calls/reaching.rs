//! Reads of versions: whether the queue has one, and waiting until everything up to one is acknowledged.

use std::time::Duration;

use deltaq_engine::id::Rv;
use deltaq_engine::lives::Stray;

use crate::Error;
use crate::queue::Handle;

/// Number of parked keys that a count examines in one critical section.
const PARKED_AT_A_TIME: usize = 5_000;

/// Whether everything up to a version is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// The version.
    pub version: Rv,
    /// Whether every change up to the version is acknowledged, or belongs to a parked key.
    pub reached: bool,
    /// Number of parked keys with an unacknowledged change up to the version.
    pub parked: usize,
}

impl Handle {
    /// Checks that the queue has this version. A version is given out after its commit, so a queue that does not have it has lost it or
    /// is another one. Every queue has the version 0, which is older than everything.
    ///
    /// # Errors
    /// [`Error::VersionAhead`], [`Error::Lost`], [`Error::TooOld`], or as for reads.
    pub fn check_version(&self, version: Rv) -> Result<(), Error> {
        let state = self.open()?;
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

    /// Waits until every change up to `version` is acknowledged, at most `wait`, and not longer than the server runs. Without a
    /// version the newest one counts. Parked keys are left out.
    ///
    /// # Errors
    /// As [`check_version`](Self::check_version).
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
            None => self.open()?.queue.resource_version(),
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
        let (mut parked, mut after) = (0, None);
        loop {
            let count = |after: Option<_>| {
                self.read(move |queue, _| queue.count_parked(version, after.as_ref(), PARKED_AT_A_TIME))
            };
            let (counted, last) = count(after.take()).await?;
            parked += counted;
            after = last;
            if after.is_none() {
                return Ok(parked);
            }
        }
    }
}
