//! A server that starts while its database is down: it waits for the database, and says so.

use std::time::Duration;

use deltaq_journal::postgres::{self, Settings};
use deltaq_runtime::retry::RetryWait;
use tokio::time::Instant;

use super::Error;

/// The waits between two looks.
pub(super) const WAIT: RetryWait = RetryWait::new(Duration::from_millis(200), Duration::from_secs(2));
/// The log repeats the cause after this time.
const REPORT_PERIOD: Duration = Duration::from_mins(1);

/// Waits until a host of the database accepts writes, or refuses the connection for good. `waits` is called before each wait.
///
/// # Errors
/// The error of `waits`.
pub(super) async fn until_reached(
    settings: &Settings,
    mut waits: impl FnMut() -> Result<(), Error>,
) -> Result<(), Error> {
    let mut wait = WAIT;
    let mut reported: Option<(String, Instant)> = None;
    while let Some(why) = postgres::away(settings).await {
        let is_known =
            reported.as_ref().is_some_and(|(known, at)| *known == why && at.elapsed() < REPORT_PERIOD);
        if !is_known {
            tracing::warn!(database = settings.name(), why, "waiting for the database");
            reported = Some((why, Instant::now()));
        }
        waits()?;
        tokio::time::sleep(wait.after_failure()).await;
    }
    Ok(())
}
