//! `deltaq synced`.

use std::time::Duration;

use clap::Args;
use deltaq_types::SyncedDocument;
use serde_json::value::RawValue;

use super::failure::Failure;
use super::output::counted;
use super::session::{Execute, Session};
use crate::duration::DurationText;
use crate::name::Name;

super::commands! {
    /// Commands that show what a queue and its workers wait for.
    Commands {
        /// Ask whether the initial list is processed, or everything up to a version is acknowledged; exit code 3 if not.
        #[command(after_help = "Example:\n  deltaq synced prices --resource-version now --wait 5m")]
        Synced(Synced),
    }
}

/// `deltaq synced`.
#[derive(Debug, Clone, Args)]
pub struct Synced {
    /// The queue.
    pub queue: Name,
    /// Ask whether every change up to this version is acknowledged; `now` is the newest version. Parked keys are left out.
    #[arg(long, value_name = "N")]
    pub resource_version: Option<String>,
    /// Longest wait.
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    pub wait: DurationText,
}

impl Execute for Synced {
    const OPERATIONS: &'static [&'static str] = &["get_synced"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let (wait, version) = (Some(self.wait.into()), self.resource_version.clone());
        let (synced, text) = synced(session, &self.queue, version, wait).await?;
        session.output.change(&text, self.queue.as_str(), &sentence(&synced))?;
        if is_reached(&synced) {
            return Ok(());
        }
        Err(Failure::Nothing(match synced.resource_version {
            Some(version) => {
                format!("queue {} has unacknowledged changes up to version {version}", self.queue)
            }
            None => format!("queue {} has not synced", self.queue),
        }))
    }
}

fn is_reached(synced: &SyncedDocument) -> bool {
    synced.reached.unwrap_or(synced.synced)
}

fn sentence(synced: &SyncedDocument) -> String {
    let Some(version) = synced.resource_version else {
        let remaining = counted(synced.remaining, "key");
        return if synced.synced {
            "synced".to_owned()
        } else {
            format!("not synced, {remaining} of the initial list left")
        };
    };
    let is = if is_reached(synced) { "acknowledged" } else { "not acknowledged" };
    let parked = synced.parked.filter(|parked| *parked > 0);
    let parked = parked.map(|parked| format!(", without {}", counted(parked, "parked key")));
    format!("{is} up to version {version}{}", parked.unwrap_or_default())
}

/// Waits until the queue has synced or, with a version, until every change up to it is acknowledged; for ever if `wait` is none.
pub(super) async fn synced(
    session: &Session,
    queue: &Name,
    mut version: Option<String>,
    wait: Option<Duration>,
) -> Result<(SyncedDocument, Box<RawValue>), Failure> {
    let wait = session.wait(wait);
    loop {
        let left = wait.next();
        let call = session.on_queue("get_synced", queue)?.query("resource_version", version.as_deref());
        let (synced, text) =
            session.fetch::<SyncedDocument>(call.query("wait", Some(left)).wait(left.into())).await?;
        if is_reached(&synced) || wait.is_over() {
            return Ok((synced, text));
        }
        // A repeated call goes on with the version that `now` was.
        version = synced.resource_version.map(|version| version.to_string());
    }
}
