//! `deltaq apply`: gives queues the settings of a file.
//!
//! The server plans each queue, so that settings are compared as it reads them. A change is sent with the entity tag of
//! the settings that were planned from, so two callers at once can't mix their files within a queue.

mod difference;
mod file;

use std::cell::Cell;
use std::collections::BTreeMap;

use clap::Args;
use deltaq_types::name::Name;
use deltaq_types::{QueueDocument, SettingsPlan};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use serde::Serialize;
use serde_json::value::to_raw_value;
use serde_json::{Map, Value};

use self::difference::{Change, changes, merge_patch};
use super::failure::Failure;
use super::output::{Format, Output, counted};
use super::session::{Execute, Session};

/// Number of calls that run at once.
const AT_ONCE: usize = 16;

/// `deltaq apply`.
#[derive(Debug, Clone, Args)]
pub struct Apply {
    /// The file, or - for stdin: YAML, JSON (*.json) or TOML (*.toml).
    #[arg(short, long, value_name = "FILE", long_help = FILE_HELP)]
    pub file: String,
    /// Show what would change, and change nothing; exit code 7 if something would.
    #[arg(long)]
    pub dry_run: bool,
}

const FILE_HELP: &str = "\
The file, or - for stdin: YAML, JSON (*.json) or TOML (*.toml). It has the settings of each queue by its name:

  queues:
    prices:
      mode: latest
      lease: 1m
    prices--shop:
      mode: latest
      follow: {queue: prices}

A setting that is left out gets its default, also if the queue has another value now. Queues that the file does not name are left alone.
`deltaq queue settings` writes such a file.";

/// What is done to a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    Create,
    Change,
    Keep,
}

/// The plan for a queue.
struct Plan {
    name: Name,
    /// The settings of the file.
    given: Map<String, Value>,
    plan: SettingsPlan,
    changes: Vec<Change>,
}

/// A queue in the output as JSON.
#[derive(Serialize)]
struct PlanDocument<'p> {
    name: &'p str,
    action: Action,
    changes: &'p [Change],
}

impl Execute for Apply {
    const OPERATIONS: &'static [&'static str] = &["plan_settings", "put_queue", "patch_queue"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let queues = file::read(&self.file)?;
        let planned = stream::iter(queues).map(|(name, given)| plan(session, name, given));
        let plans: Vec<Plan> = planned.buffered(AT_ONCE).try_collect().await?;
        if self.dry_run {
            print(session, plans.iter())?;
            let differing = plans.iter().filter(|plan| plan.action() != Action::Keep).count();
            return match differing {
                0 => Ok(()),
                _ => Err(Failure::Differs(format!("{} would change", counted(differing as u64, "queue")))),
            };
        }
        apply(session, &plans).await
    }
}

/// Asks the server what the settings of the file would change.
async fn plan(session: &Session, name: Name, given: Map<String, Value>) -> Result<Plan, Failure> {
    let at = |source| Failure::At { place: format!("queue {name}"), source };
    let call = session.on_queue("plan_settings", &name)?.json(&given);
    let plan: SettingsPlan = session.client.fetch(call).await.map_err(at)?;
    let changes = changes(&plan)?;
    Ok(Plan { name, given, plan, changes })
}

/// Makes the changes, queues before their followers. After a failure, no further change begins.
async fn apply(session: &Session, plans: &[Plan]) -> Result<(), Failure> {
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
                None => left.push(plan.name.as_str()),
            }
        }
    }
    print(session, done.iter().copied())?;
    let mut failures = failures.into_iter();
    let Some((plan, first)) = failures.next() else { return Ok(()) };
    let others: Vec<&str> = failures.map(|(plan, _)| plan.name.as_str()).chain(left).collect();
    let also = if others.is_empty() {
        String::new()
    } else {
        format!(", and {} after it ({})", counted(others.len() as u64, "queue"), shortened(&others))
    };
    let place = format!("the file was not applied to queue {}{also}; run the command again", plan.name);
    Err(first.in_place(place))
}

/// The names of the first queues.
fn shortened(names: &[&str]) -> String {
    const SHOWN: usize = 10;
    let shown = names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN { format!("{shown}, ...") } else { shown }
}

/// The plans in groups. The queues that a queue follows are in an earlier group.
fn levels(plans: &[Plan]) -> Vec<Vec<&Plan>> {
    let followed: BTreeMap<&str, Option<&str>> = plans
        .iter()
        .map(|plan| {
            (plan.name.as_str(), plan.plan.planned.follow.as_ref().map(|follow| follow.queue.as_str()))
        })
        .collect();
    let mut levels: Vec<Vec<&Plan>> = Vec::new();
    for plan in plans {
        // The server refuses a cycle, so the order of its queues does not matter.
        let above =
            |name: &&str| followed.get(name).copied().flatten().filter(|name| followed.contains_key(name));
        let level = std::iter::successors(above(&plan.name.as_str()), above).take(plans.len()).count();
        levels.resize_with(levels.len().max(level + 1), Vec::new);
        if let Some(level) = levels.get_mut(level) {
            level.push(plan);
        }
    }
    levels
}

impl Plan {
    fn action(&self) -> Action {
        match &self.plan.current {
            None => Action::Create,
            Some(_) if self.changes.is_empty() => Action::Keep,
            Some(_) => Action::Change,
        }
    }

    async fn apply(&self, session: &Session) -> Result<(), Failure> {
        let call = match self.action() {
            Action::Keep => return Ok(()),
            Action::Create => {
                session.on_queue("put_queue", &self.name)?.json(&self.given).condition("if-none-match", "*")
            }
            Action::Change => {
                let patch = merge_patch(&self.plan)?;
                let call = session.on_queue("patch_queue", &self.name)?.json(&patch);
                call.condition("if-match", self.plan.etag.as_deref().unwrap_or("*"))
            }
        };
        let made: QueueDocument = session.client.fetch(call).await?;
        if made.settings == self.plan.planned {
            return Ok(());
        }
        Err(Failure::Other("the settings that the server made are not those that it had planned".to_owned()))
    }

    /// The plan in one line.
    fn line(&self) -> String {
        let changes =
            |changes: &[Change]| changes.iter().map(Change::to_string).collect::<Vec<_>>().join(", ");
        match self.action() {
            Action::Keep => format!("  {}\n", self.name),
            Action::Change => format!("~ {}: {}\n", self.name, changes(&self.changes)),
            Action::Create if self.given.is_empty() => format!("+ {}\n", self.name),
            Action::Create => {
                let given = self.given.iter().map(|(name, value)| format!("{name} {value}"));
                format!("+ {}: {}\n", self.name, given.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// Prints what is done to each queue.
fn print<'p>(session: &Session, plans: impl Iterator<Item = &'p Plan> + Clone) -> Result<(), Failure> {
    let document = |plan: &'p Plan| PlanDocument {
        name: plan.name.as_str(),
        action: plan.action(),
        changes: &plan.changes,
    };
    match session.output.format() {
        Format::Table => {
            let count = |action| plans.clone().filter(|plan| plan.action() == action).count();
            let lines: String = plans.clone().map(Plan::line).collect();
            let (created, changed) = (count(Action::Create), count(Action::Change));
            let kept = count(Action::Keep);
            Output::text(&format!("{lines}{created} new, {changed} changed, {kept} as before\n"))
        }
        Format::Name => {
            let differing = plans.filter(|plan| plan.action() != Action::Keep);
            Output::text(&differing.map(|plan| format!("{}\n", plan.name)).collect::<String>())
        }
        Format::Json | Format::Ndjson => {
            let queues: Vec<_> = plans.map(document).collect();
            let text = to_raw_value(&serde_json::json!({ "queues": queues }));
            let text = text.map_err(|error| Failure::Other(format!("can't print the plan: {error}")))?;
            session.output.json_document(&text, "")
        }
    }
}
