//! `deltaq apply`: gives queues the settings of a file.
//!
//! The server plans each queue, so that settings are compared as it reads them. A change is sent with the entity tag of
//! the settings that were planned from, so two callers at once can't mix their files within a queue.

mod difference;
mod file;

use std::cell::Cell;
use std::collections::BTreeMap;

use clap::Args;
use deltaq_runtime::causes::with_causes;
use deltaq_types::name::Name;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use serde::{Deserialize, Serialize};
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

/// What the file does to a queue.
struct QueuePlan {
    name: Name,
    /// The settings of the file.
    given: Map<String, Value>,
    plan: SettingsPlan,
    changes: Vec<Change>,
}

/// The plan as the server wrote it. A newer server may have settings that this program does not know.
#[derive(Deserialize)]
struct SettingsPlan {
    /// The present settings; `None` if the queue is new.
    current: Option<Map<String, Value>>,
    /// The entity tag of the present settings.
    etag: Option<String>,
    planned: Map<String, Value>,
}

/// A queue after a change.
#[derive(Deserialize)]
struct Changed {
    settings: Map<String, Value>,
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
        let plans: Vec<QueuePlan> = planned.buffered(AT_ONCE).try_collect().await?;
        if self.dry_run {
            // A reader that has closed the pipe hides no result.
            let printed = print(session, plans.iter());
            let differing = plans.iter().filter(|plan| plan.action() != Action::Keep).count();
            return match differing {
                0 => printed,
                _ => Err(Failure::Differs(format!("{} would change", counted(differing as u64, "queue")))),
            };
        }
        apply(session, &plans).await
    }
}

/// Asks the server what the settings of the file would change.
async fn plan(session: &Session, name: Name, given: Map<String, Value>) -> Result<QueuePlan, Failure> {
    let at = |source| Failure::At { place: format!("queue {name}"), source };
    let call = session.on_queue("plan_settings", &name)?.json(&given).repeatable();
    let plan: SettingsPlan = session.client.fetch(call).await.map_err(at)?;
    let changes = plan.current.as_ref().map(|current| changes(current, &plan.planned)).unwrap_or_default();
    Ok(QueuePlan { name, given, plan, changes })
}

/// Makes the changes, queues before their followers. After a failure, no further change begins.
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
                None => left.push(plan.name.as_str()),
            }
        }
    }
    let printed = print(session, done.iter().copied());
    let mut failures = failures.into_iter();
    let Some((plan, first)) = failures.next() else { return printed };
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

/// The plans in groups. The queues that a queue follows are in an earlier group. A queue that can't be followed any more is in the last
/// groups, because its followers must have left it before.
fn levels(plans: &[QueuePlan]) -> Vec<Vec<&QueuePlan>> {
    let by_name: BTreeMap<&str, &QueuePlan> = plans.iter().map(|plan| (plan.name.as_str(), plan)).collect();
    // The server refuses a cycle, so the order of its queues does not matter.
    let depth = |plan: &QueuePlan, followed: fn(&QueuePlan) -> Option<&str>| {
        let next = |name: &&str| {
            by_name.get(name).and_then(|plan| followed(plan)).filter(|name| by_name.contains_key(name))
        };
        std::iter::successors(next(&plan.name.as_str()), next).take(plans.len()).count()
    };
    let mut levels: BTreeMap<(bool, usize), Vec<&QueuePlan>> = BTreeMap::new();
    for plan in plans {
        let level = if plan.ends_followers() {
            (true, plans.len() - depth(plan, QueuePlan::follows_now))
        } else {
            (false, depth(plan, QueuePlan::will_follow))
        };
        levels.entry(level).or_default().push(plan);
    }
    levels.into_values().collect()
}

/// The queue that a queue with these settings follows.
fn followed(settings: &Map<String, Value>) -> Option<&str> {
    settings.get("follow")?.get("queue")?.as_str()
}

impl QueuePlan {
    fn follows_now(&self) -> Option<&str> {
        self.plan.current.as_ref().and_then(followed)
    }

    fn will_follow(&self) -> Option<&str> {
        followed(&self.plan.planned)
    }

    /// Whether the queue exists and can't be followed afterwards.
    fn ends_followers(&self) -> bool {
        let planned = &self.plan.planned;
        let has = |name, value: Value| planned.get(name) == Some(&value);
        self.plan.current.is_some() && (has("mode", "keys".into()) || has("known_objects", false.into()))
    }

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
                let current = self.plan.current.as_ref();
                let patch = current.map(|current| merge_patch(current, &self.plan.planned));
                let call = session.on_queue("patch_queue", &self.name)?.json(&patch);
                call.condition("if-match", self.plan.etag.as_deref().unwrap_or("*"))
            }
        };
        let changed: Changed = session.client.fetch(call).await.map_err(|error| match error.code() {
            // The usual advice is to replace the settings in any case.
            Some("precondition-failed") => Failure::Other(with_causes(&error)),
            _ => Failure::Client(error),
        })?;
        if changed.settings == self.plan.planned {
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
fn print<'p>(session: &Session, plans: impl Iterator<Item = &'p QueuePlan> + Clone) -> Result<(), Failure> {
    let document = |plan: &'p QueuePlan| PlanDocument {
        name: plan.name.as_str(),
        action: plan.action(),
        changes: &plan.changes,
    };
    match session.output.format() {
        Format::Table => {
            let count = |action| plans.clone().filter(|plan| plan.action() == action).count();
            let lines: String = plans.clone().map(QueuePlan::line).collect();
            let (created, changed) = (count(Action::Create), count(Action::Change));
            let kept = count(Action::Keep);
            Output::text(&format!("{lines}{created} new, {changed} changed, {kept} as before\n"))
        }
        Format::Name => {
            let differing = plans.filter(|plan| plan.action() != Action::Keep);
            let names: Vec<&str> = differing.map(|plan| plan.name.as_str()).collect();
            Output::text(&names.iter().flat_map(|name| [*name, "\n"]).collect::<String>())
        }
        Format::Json | Format::Ndjson => {
            let queues: Vec<_> = plans.map(document).collect();
            let text = to_raw_value(&serde_json::json!({ "queues": queues }));
            let text = text.map_err(|error| Failure::Other(format!("can't print the plan: {error}")))?;
            session.output.json_document(&text, "")
        }
    }
}
