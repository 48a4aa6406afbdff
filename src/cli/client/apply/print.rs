//! What `deltaq apply` prints: the plan, or what was done.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use serde_json::value::to_raw_value;

use super::difference::Change;
use super::exact::Exact;
use super::plan::{Action, QueuePlan};
use crate::cli::client::failure::Failure;
use crate::cli::client::output::{Format, Output};
use crate::cli::client::session::Session;

/// A queue in the output as JSON. A new queue has the settings of the file as its changes.
#[derive(Serialize)]
struct PlanDocument<'p> {
    name: &'p str,
    action: Action,
    changes: Vec<Change>,
}

/// Prints what is done to each queue.
pub(super) fn print<'p>(
    session: &Session,
    plans: impl Iterator<Item = &'p QueuePlan> + Clone,
) -> Result<(), Failure> {
    let document = |plan: &'p QueuePlan| PlanDocument {
        name: plan.name.as_str(),
        action: plan.action(),
        changes: first_settings(plan)
            .map(|(setting, value)| Change::new(setting.to_owned(), Exact::Null, value.clone()))
            .chain(plan.changes.iter().cloned())
            .collect(),
    };
    match session.output.format() {
        Format::Table => {
            let count = |action| plans.clone().filter(|plan| plan.action() == action).count();
            let (created, changed) = (count(Action::Create), count(Action::Change));
            let (kept, deleted) = (count(Action::Keep), count(Action::Delete));
            let deleted = if deleted == 0 { String::new() } else { format!(", {deleted} deleted") };
            let lines: String = plans.clone().map(lines).collect();
            Output::text(&format!("{lines}{created} new, {changed} changed, {kept} as before{deleted}\n"))
        }
        Format::Name => {
            let differing = plans.filter(|plan| plan.action() != Action::Keep);
            let names: Vec<&str> = differing.map(|plan| plan.name.as_str()).collect();
            Output::text(&names.iter().flat_map(|name| [*name, "\n"]).collect::<String>())
        }
        Format::Json | Format::Ndjson => {
            let queues: Vec<_> = plans.map(document).collect();
            let text = to_raw_value(&BTreeMap::from([("queues", queues)]));
            let text = text.map_err(|error| Failure::Other(format!("can't print the plan: {error}")))?;
            session.output.json_document(&text, "")
        }
    }
}

/// The plan of a queue: its name, and a line for each setting.
fn lines(plan: &QueuePlan) -> String {
    let name = &plan.name;
    let mut text = match plan.action() {
        Action::Keep => format!("  {name}\n"),
        Action::Change => format!("~ {name}\n"),
        Action::Create => format!("+ {name}\n"),
        Action::Delete => format!("- {name} ({})\n", plan.contents),
    };
    for (setting, value) in first_settings(plan) {
        let _infallible = writeln!(text, "    {setting}: {value}");
    }
    for change in &plan.changes {
        let _infallible = writeln!(text, "    {change}");
    }
    text
}

/// The settings of the file, if the queue is new.
fn first_settings(plan: &QueuePlan) -> impl Iterator<Item = (&str, &Exact)> {
    plan.given.iter().filter(|_| plan.action() == Action::Create)
}
