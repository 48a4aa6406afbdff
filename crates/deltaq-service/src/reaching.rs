//! Waiting until a queue has reached a version, or until everything up to a version is acknowledged.

use std::pin::Pin;
use std::time::Duration;

use deltaq_engine::id::Rv;
use tokio::time::Sleep;

use super::Error;
use super::queue::Handle;

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
    /// Waits until the queue has reached this version, at most `wait`, and not longer than the server runs. A read after this
    /// waits for the commit of the version.
    ///
    /// # Errors
    /// [`Error::VersionNotReached`], or as for reads.
    pub async fn reach(&self, version: Rv, wait: Duration) -> Result<(), Error> {
        let end = tokio::time::sleep(wait);
        tokio::pin!(end);
        self.reach_until(version, end).await
    }

    async fn reach_until(&self, version: Rv, mut end: Pin<&mut Sleep>) -> Result<(), Error> {
        loop {
            let woken = self.version_waits.woken();
            tokio::pin!(woken);
            let newest = {
                let state = self.open()?;
                self.version_waits.await_version(version);
                state.queue.resource_version()
            };
            if newest >= version {
                return Ok(());
            }
            tokio::select! {
                biased;
                () = woken => {}
                () = &mut end => return Err(Error::VersionNotReached { newest }),
                () = self.shutdown().draining().cancelled() => return Err(Error::VersionNotReached { newest }),
            }
        }
    }

    /// Waits until every change up to `version` is acknowledged, at most `wait`, and not longer than the server runs. Without a
    /// version the newest one counts. Parked keys are left out.
    ///
    /// # Errors
    /// [`Error::VersionNotReached`] if the queue itself has not reached the version, or as for reads.
    pub async fn wait_acknowledged(
        &self,
        version: Option<Rv>,
        wait: Duration,
    ) -> Result<Acknowledged, Error> {
        let end = tokio::time::sleep(wait);
        tokio::pin!(end);
        let version = match version {
            Some(version) => {
                self.reach_until(version, end.as_mut()).await?;
                version
            }
            None => self.open()?.queue.resource_version(),
        };
        let reached = loop {
            let woken = self.ack_waits.woken();
            tokio::pin!(woken);
            let (acknowledged, commit) = {
                let state = self.open()?;
                self.ack_waits.await_version(version);
                (state.queue.acknowledged_up_to(), state.commits.newest.clone())
            };
            if acknowledged >= version {
                commit.wait().await?;
                break true;
            }
            tokio::select! {
                biased;
                () = woken => {}
                () = &mut end => break false,
                () = self.shutdown().draining().cancelled() => break false,
            }
        };
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
