//! Lists in pages.

use std::collections::BTreeSet;

use clap::Args;
use deltaq_client::Call;
use deltaq_types::UnavailableQueue;
use serde::de::DeserializeOwned;

use super::failure::Failure;
use super::output::Row;
use super::reply::{PageTexts, parse};
use super::session::Session;

/// Maximum number of entries per page.
const PAGE: u64 = 1_000;

/// How many entries to print.
#[derive(Debug, Clone, Args)]
pub struct Limit {
    /// Maximum number of entries [default: all].
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
}

/// Prints all pages of a list.
pub(super) async fn print_list<T: Row>(
    session: &Session,
    call: impl Fn() -> Result<Call, Failure>,
    limit: &Limit,
    empty: &str,
) -> Result<(), Failure> {
    let mut list = session.output.list::<T>();
    let mut left = limit.limit.unwrap_or(u64::MAX);
    let mut next = None;
    let (mut unavailable, mut missing) = (Vec::new(), BTreeSet::new());
    while left > 0 {
        let call = call()?.query("limit", Some(left.min(PAGE))).query("continue", next);
        let page: PageTexts = session.client.fetch(call).await?;
        unavailable.extend(page.unavailable);
        missing.extend(page.missing_nodes);
        left = left.saturating_sub(page.items.len() as u64);
        list.add::<T>(&page.items)?;
        next = page.next;
        if next.is_none() {
            break;
        }
    }
    list.finish(empty)?;
    if !missing.is_empty() {
        let names = missing.into_iter().collect::<Vec<_>>().join(", ");
        return Err(Failure::Incomplete(format!(
            "these nodes have not replied, and their calls are left out: {names}"
        )));
    }
    check_complete(&unavailable)
}

/// All entries of a list, and the queues that are missing from it.
pub(super) async fn all<T: DeserializeOwned>(
    session: &Session,
    call: impl Fn() -> Result<Call, Failure>,
) -> Result<(Vec<T>, Vec<UnavailableQueue>), Failure> {
    let (mut entries, mut unavailable, mut next) = (Vec::new(), Vec::new(), None);
    loop {
        let call = call()?.query("limit", Some(PAGE)).query("continue", next);
        let page: PageTexts = session.client.fetch(call).await?;
        for text in &page.items {
            entries.push(parse(text)?);
        }
        unavailable.extend(page.unavailable);
        next = page.next;
        if next.is_none() {
            return Ok((entries, unavailable));
        }
    }
}

/// Reports the queues that are missing from a list or a sum, because they can't be read.
pub(super) fn check_complete(unavailable: &[UnavailableQueue]) -> Result<(), Failure> {
    let left_out: Vec<String> = unavailable
        .iter()
        .map(|queue| format!("queue {} is left out: {}", queue.name, queue.detail))
        .collect();
    if left_out.is_empty() { Ok(()) } else { Err(Failure::Incomplete(left_out.join("\n"))) }
}
