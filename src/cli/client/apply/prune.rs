//! The queues that `deltaq apply --prune` deletes: those with the owner of the file that the file does not name.

use std::collections::BTreeMap;

use deltaq_types::QueueStatus;
use deltaq_types::name::Name;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use serde::Deserialize;

use super::AT_ONCE;
use super::exact::Members;
use super::plan::{QueuePlan, followed, owner_of};
use super::thresholds::ThresholdPlan;
use crate::cli::client::failure::Failure;
use crate::cli::client::output::counted;
use crate::cli::client::pages::all;
use crate::cli::client::session::Session;

/// A queue of the list.
#[derive(Deserialize)]
struct Listed {
    name: String,
    settings: Members,
    status: QueueStatus,
}

/// The plans of the queues to delete.
///
/// # Errors
/// A queue can't be read, one that stays would follow a deleted one, or there are too many of them.
pub(super) async fn plans(
    session: &Session,
    owner: &Name,
    kept: &[QueuePlan],
    max_deletes: Option<usize>,
) -> Result<Vec<QueuePlan>, Failure> {
    let call = || Ok(session.call("list_queues", "", "")?.query("fields", Some("name,settings,status")));
    let (rows, unavailable) = all::<Listed>(session, call).await?;
    if let Some(queue) = unavailable.first() {
        let text = format!("queue {} can't be read, so nothing was changed: {}", queue.name, queue.detail);
        return Err(Failure::Incomplete(text));
    }
    let kept: BTreeMap<&str, &QueuePlan> = kept.iter().map(|plan| (plan.name.as_str(), plan)).collect();
    let is_owned = |row: &Listed| owner_of(&row.settings) == Some(owner.as_str());
    let is_doomed = |row: &Listed| is_owned(row) && !kept.contains_key(row.name.as_str());
    let doomed: BTreeMap<&str, &Listed> =
        rows.iter().filter(|row| is_doomed(row)).map(|row| (row.name.as_str(), row)).collect();
    check_number(doomed.len(), rows.iter().filter(|row| is_owned(row)).count(), max_deletes)?;
    check_followers(&rows, &kept, &doomed)?;
    let planned = doomed.values().map(|row| plan(session, owner, row));
    let plans = stream::iter(planned).buffered(AT_ONCE).try_collect::<Vec<_>>().await?;
    Ok(plans.into_iter().flatten().collect())
}

fn check_number(deleted: usize, owned: usize, max_deletes: Option<usize>) -> Result<(), Failure> {
    let queues = counted(deleted as u64, "queue");
    let why = match max_deletes {
        Some(max) if deleted > max => {
            format!("the file would delete {queues}, more than --max-deletes {max}")
        }
        None if deleted > 1 && deleted > owned / 2 => format!(
            "the file would delete {queues}, more than half of the {owned} of its owner; if it is complete, add --max-deletes {deleted}"
        ),
        _ => return Ok(()),
    };
    Err(Failure::Other(format!("{why}; nothing was changed")))
}

/// A queue that stays must not follow one that is deleted.
fn check_followers(
    rows: &[Listed],
    kept: &BTreeMap<&str, &QueuePlan>,
    doomed: &BTreeMap<&str, &Listed>,
) -> Result<(), Failure> {
    let others = rows.iter().filter(|row| !kept.contains_key(row.name.as_str()));
    let others = others.filter(|row| !doomed.contains_key(row.name.as_str()));
    let of_others = others.map(|row| (row.name.as_str(), followed(&row.settings)));
    let of_kept = kept.iter().map(|(name, plan)| (*name, plan.will_follow()));
    for (name, followed) in of_others.chain(of_kept) {
        if let Some(followed) = followed.filter(|followed| doomed.contains_key(followed)) {
            return Err(Failure::Other(format!(
                "queue {followed} can't be deleted, because queue {name} follows it; nothing was changed"
            )));
        }
    }
    Ok(())
}

/// The deletion of a queue; `None` if it is no longer one of the owner.
async fn plan(session: &Session, owner: &Name, row: &Listed) -> Result<Option<QueuePlan>, Failure> {
    let name = Name::new(&row.name).map_err(|error| Failure::Other(format!("{:?}: {error}", row.name)))?;
    let settings = match session.client.queue(&*row.name).settings().await {
        Err(error) if error.code() == Some("queue-not-found") => return Ok(None),
        settings => settings.map_err(|source| Failure::At { place: format!("queue {name}"), source })?,
    };
    let (settings, etag) = settings;
    if settings.owner.as_deref() != Some(owner.as_str()) {
        return Ok(None);
    }
    let (current, contents) = (Some(row.settings.clone()), contents(&row.status));
    let (given, changes, thresholds) = (Members::default(), Vec::new(), ThresholdPlan::default());
    let etag = Some(etag);
    Ok(Some(QueuePlan { name, given, current, etag, planned: None, changes, thresholds, contents }))
}

/// The keys that are deleted with a queue.
fn contents(status: &QueueStatus) -> String {
    let counts = [
        (status.known, "known"),
        (status.ready, "ready"),
        (status.delayed, "delayed"),
        (status.leased, "leased"),
        (status.parked, "parked"),
    ];
    let some = counts.into_iter().filter(|(number, _)| *number > 0);
    let some: Vec<String> = some.map(|(number, state)| format!("{number} {state}")).collect();
    if some.is_empty() { "no keys".to_owned() } else { some.join(", ") }
}
