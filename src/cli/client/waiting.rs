//! `deltaq synced` and `deltaq groups`.

use std::time::Duration;

use clap::Args;
use deltaq_types::duration::DurationText;
use deltaq_types::name::Name;
use deltaq_types::{GroupDocument, SyncedDocument};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::failure::Failure;
use super::output::duration_text;
use super::output::{Cell, Row, counted};
use super::session::{Execute, Session};

super::commands! {
    /// Commands that show what a queue and its workers wait for.
    Commands {
        /// Check whether the initial list is processed, or everything up to a version is acknowledged; exit code 3 if not.
        #[command(after_help = "Example:\n  deltaq synced prices --resource-version now --wait 5m")]
        Synced(Synced),
        /// List the first groups of keys that take turns.
        #[command(after_help = "Example:\n  deltaq groups prices --sort ready")]
        Groups(Groups),
    }
}

/// `deltaq synced`.
#[derive(Debug, Clone, Args)]
pub struct Synced {
    /// The queue.
    pub queue: Name,
    /// Check whether every change up to this version is acknowledged; `now` is the newest version. Parked keys are
    /// ignored [default: check the initial list].
    #[arg(long, value_name = "N")]
    pub resource_version: Option<String>,
    /// How long to wait until this is the case, such as 5m.
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    pub wait: DurationText,
}

/// `deltaq groups`.
#[derive(Debug, Clone, Args)]
pub struct Groups {
    /// The queue.
    pub queue: Name,
    /// What comes first: the group whose first key has been ready longest, or the one with the most ready keys or leases.
    #[arg(long, value_name = "WORD", default_value = "wait", value_parser = ["wait", "ready", "leased"])]
    pub sort: String,
}

impl Execute for Groups {
    const OPERATIONS: &'static [&'static str] = &["list_groups"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let call = session.on_queue("list_groups", &self.queue)?.query("sort", Some(&self.sort));
        let texts: GroupTexts = session.client.fetch(call).await?;
        let mut list = session.output.list::<GroupDocument>();
        list.add::<GroupDocument>(&texts.groups)?;
        list.finish("no groups")
    }
}

/// A list of groups, each as its text.
#[derive(Deserialize)]
struct GroupTexts {
    groups: Vec<Box<RawValue>>,
}

impl Row for GroupDocument {
    const COLUMNS: &'static [&'static str] =
        &["GROUP", "READY", "LEASED", "OLDEST READY", "WEIGHT", "MAX LEASED"];

    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::new(self.name.as_deref().unwrap_or("(no name)")),
            Cell::number(self.ready),
            Cell::number(self.leased),
            Cell::optional(self.oldest_ready_age_ms.map(duration_text)),
            Cell::number(self.weight),
            Cell::optional(self.max_leased.map(|most| most.to_string())),
        ]
    }

    fn name(&self) -> String {
        self.name.clone().unwrap_or_default()
    }
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

/// Waits until the queue has synced or, with a version, until every change up to it is acknowledged. Waits forever if
/// `wait` is `None`.
pub(super) async fn synced(
    session: &Session,
    queue: &Name,
    mut version: Option<String>,
    wait: Option<Duration>,
) -> Result<(SyncedDocument, Box<RawValue>), Failure> {
    let wait = session.wait(wait).await?;
    loop {
        let left = wait.next();
        let call = session.on_queue("get_synced", queue)?.query("resource_version", version.as_deref());
        let (synced, text) =
            session.fetch::<SyncedDocument>(call.query("wait", Some(left)).wait(left.into())).await?;
        if is_reached(&synced) || wait.is_over() {
            return Ok((synced, text));
        }
        // A repeated call uses the version that `now` referred to in the first call.
        version = synced.resource_version.map(|version| version.to_string());
    }
}
