//! `deltaq apply`: gives queues the settings of a file.
//!
//! The server plans each queue, so that settings are compared as it reads them. A change is sent with the entity tag of
//! the settings that were planned from, so two callers at once can't mix their settings within a queue. One call sets all
//! thresholds of a queue, under the condition that it has the settings of the file.

mod difference;
pub(super) mod exact;
mod fault;
mod file;
mod followers;
mod order;
pub(super) mod plan;
mod print;
mod prune;
mod schema;
pub(super) mod thresholds;

use std::cell::Cell;

use clap::Args;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};

use self::file::File;
use self::followers::check_followers;
use self::order::levels;
use self::plan::{Action, QueuePlan};
use self::print::print;
use super::confirm::confirm;
use super::failure::Failure;
use super::output::{Output, counted};
use super::session::{Execute, Session};

/// Number of calls that run at once.
const AT_ONCE: usize = 16;

/// `deltaq apply`.
#[derive(Debug, Clone, Args)]
pub struct Apply {
    /// The file, or - for stdin: YAML, JSON (*.json) or TOML (*.toml).
    #[arg(short, long, value_name = "FILE", long_help = FILE_HELP, required_unless_present = "schema")]
    pub file: Option<String>,
    /// Show what would change, and change nothing; exit code 7 if something would.
    #[arg(long)]
    pub dry_run: bool,
    /// Delete the queues that an earlier file of the same owner has created, and this one does not name.
    #[arg(long)]
    pub prune: bool,
    /// Do not ask for confirmation before queues are deleted.
    #[arg(short, long, requires = "prune")]
    pub yes: bool,
    /// Refuse the file if it would delete more queues [default: half of those of the owner, and at least one].
    #[arg(long, value_name = "N", requires = "prune")]
    pub max_deletes: Option<usize>,
    /// Print the JSON Schema of the file, for editors.
    #[arg(long, exclusive = true)]
    pub schema: bool,
}

const FILE_HELP: &str = "\
The file, or - for stdin: YAML, JSON (*.json) or TOML (*.toml). It has the settings of each queue by its name:

  owner: shop
  queues:
    prices:
      mode: latest
      lease: 1m
    prices--shop:
      mode: latest
      follow: {queue: prices}

The member `sources` of a queue says how long each source may be silent: {erp: {stale_after: 15m}}. A setting that is left out gets its default, also if the queue has another value now. Queues that the file does not name are left alone,
unless --prune is given. The owner is needed for --prune: each queue that the file creates remembers it.
`deltaq export --settings` writes such a file.";

impl Execute for Apply {
    const OPERATIONS: &'static [&'static str] = &[
        "plan_settings",
        "put_queue",
        "patch_queue",
        "delete_queue",
        "list_queues",
        "get_settings",
        "list_sources",
        "patch_sources",
    ];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let Some(file) = &self.file else { return Output::text(&schema::text()) };
        let File { owner, queues } = file::read(file)?;
        let planned =
            stream::iter(queues).map(|(name, given)| QueuePlan::of(session, owner.as_ref(), name, given));
        let mut plans: Vec<QueuePlan> = planned.buffered(AT_ONCE).try_collect().await?;
        if self.prune {
            let why = "--prune deletes queues of the owner of the file, and it names none: write owner: NAME into it";
            let owner = owner.as_ref().ok_or_else(|| Failure::Other(why.to_owned()))?;
            let deletions = prune::plans(session, owner, &plans, self.max_deletes).await?;
            plans.extend(deletions);
        }
        check_followers(session, &plans).await?;
        if self.dry_run {
            // A reader that has closed the pipe hides no result.
            let printed = print(session, plans.iter());
            let differing = plans.iter().filter(|plan| plan.action() != Action::Keep).count();
            return match differing {
                0 => printed,
                _ => Err(Failure::Differs(format!("{} would change", counted(differing as u64, "queue")))),
            };
        }
        let deleted: Vec<&QueuePlan> = plans.iter().filter(|plan| plan.action() == Action::Delete).collect();
        if !deleted.is_empty() {
            let named = |plan: &&QueuePlan| format!("{} ({})", plan.name, plan.contents);
            let named = shortened(&deleted.iter().map(named).collect::<Vec<_>>());
            confirm(self.yes, &format!("delete {}: {named}", counted(deleted.len() as u64, "queue")))?;
        }
        apply(session, &plans).await
    }
}

/// Makes the changes in their order. After a failure, no further change begins.
async fn apply(session: &Session, plans: &[QueuePlan]) -> Result<(), Failure> {
    let has_failed = Cell::new(false);
    let (mut done, mut failures, mut left) = (Vec::new(), Vec::new(), Vec::new());
    for level in levels(plans) {
        let changed = stream::iter(level).map(|plan| {
            let has_failed = &has_failed;
            async move {
                let outcome = if has_failed.get() { None } else { Some(plan.apply(session).await) };
                has_failed.set(has_failed.get() || matches!(outcome, Some(Err(_))));
                (plan, outcome)
            }
        });
        for (plan, outcome) in changed.buffered(AT_ONCE).collect::<Vec<_>>().await {
            match outcome {
                Some(Ok(())) => done.push(plan),
                Some(Err(failure)) => failures.push((plan, failure)),
                None if plan.action() == Action::Keep => done.push(plan),
                None => left.push(plan.name.to_string()),
            }
        }
    }
    let printed = print(session, done.iter().copied());
    let mut failures = failures.into_iter();
    let Some((plan, first)) = failures.next() else { return printed };
    let others: Vec<String> = failures.map(|(plan, _)| plan.name.to_string()).chain(left).collect();
    let also = if others.is_empty() {
        String::new()
    } else {
        format!(", and {} after it ({})", counted(others.len() as u64, "queue"), shortened(&others))
    };
    let place = format!("the file was not applied to queue {}{also}; run the command again", plan.name);
    Err(first.in_place(place))
}

/// The first of these texts.
fn shortened(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN { format!("{shown}, ...") } else { shown }
}
