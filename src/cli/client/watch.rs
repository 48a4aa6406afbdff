//! `deltaq watch`.

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use deltaq_client::{Backoff, Call};
use deltaq_types::duration::DurationText;
use deltaq_types::name::Name;
use deltaq_types::{QueueDocument, RowType, WatchRow};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::failure::Failure;
use super::output::{Cell, Format, Row, Tone};
use super::patience::wait_after;
use super::reply::parse;
use super::session::{Execute, Session};

/// Number of rows per page.
const PAGE: u64 = 1_000;

super::commands! {
    /// Commands that follow the changes of keys.
    Commands {
        /// Print the changes of a queue's objects as they happen.
        #[command(after_help = "Example:\n  deltaq watch prices --from 0 -o ndjson")]
        Watch(Watch),
    }
}

/// A view of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ViewName {
    /// The newest accepted objects.
    #[default]
    Latest,
    /// The objects that workers have acknowledged.
    Known,
}

/// `deltaq watch`.
#[derive(Debug, Clone, Args)]
pub struct Watch {
    /// The queue.
    pub queue: Name,
    /// The view.
    #[arg(long, value_enum, default_value_t)]
    pub view: ViewName,
    /// Where to begin: now, after a version, or 0 for all objects and then the changes.
    #[arg(long, value_name = "VERSION", default_value = "now")]
    pub from: String,
    /// Only keys with this prefix.
    #[arg(long)]
    pub prefix: Option<String>,
    /// Only one of N parts of all keys, such as 0/4 to 3/4.
    #[arg(long, value_name = "I/N")]
    pub shard: Option<String>,
    /// Exit after this many changes.
    #[arg(short = 'n', long, value_name = "N")]
    pub lines: Option<usize>,
}

/// The position from which the next call continues.
#[derive(Debug)]
struct Position {
    version: String,
    /// The `continue` token, while the initial objects of the view are read.
    next: Option<String>,
}

/// A page of changes, with the rows as text.
#[derive(Debug, Deserialize)]
struct Changes {
    items: Vec<Box<RawValue>>,
    #[serde(rename = "continue")]
    next: Option<String>,
    resource_version: u64,
}

impl Execute for Watch {
    const OPERATIONS: &'static [&'static str] = &["watch", "get_queue"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        // Like the first poll of `tail`, this call is not retried, because the address may be wrong.
        let queue: QueueDocument = session.client.fetch(session.on_queue("get_queue", &self.queue)?).await?;
        let version = match self.from.as_str() {
            "now" => queue.status.resource_version.to_string(),
            version => version.to_owned(),
        };
        let wait = session.wait(None).await?.next();
        let mut position = Position { version, next: None };
        let mut output = session.output.list::<WatchRow>();
        let (mut backoff, mut left) = (Backoff::default(), self.lines.unwrap_or(usize::MAX));
        while left > 0 {
            let page: Changes = match session.client.fetch(self.call(session, &position, wait)?).await {
                Ok(page) => page,
                Err(error) => {
                    wait_after(error, &mut backoff).await?;
                    continue;
                }
            };
            backoff.reset();
            let mut rows = page.items;
            if matches!(session.output.format(), Format::Table | Format::Name) {
                rows.retain(|row| parse::<WatchRow>(row).is_ok_and(|row| row.kind != RowType::Bookmark));
            }
            rows.truncate(left);
            left -= rows.len();
            output.add::<WatchRow>(&rows)?;
            position = Position { version: page.resource_version.to_string(), next: page.next };
        }
        output.finish("")
    }
}

impl Watch {
    /// The call for the next changes.
    fn call(&self, session: &Session, position: &Position, wait: DurationText) -> Result<Call, Failure> {
        let view = self.view.to_possible_value();
        let call = session.on_queue("watch", &self.queue)?;
        let call = call.query("view", view.as_ref().map(PossibleValue::get_name));
        let call = call.query("prefix", self.prefix.as_deref()).query("shard", self.shard.as_deref());
        let call = match &position.next {
            Some(next) => call.query("continue", Some(next)),
            None => call.query("resource_version", Some(&position.version)),
        };
        Ok(call.query("limit", Some(PAGE)).query("wait", Some(wait)).wait(wait.into()))
    }
}

impl Row for WatchRow {
    const COLUMNS: &'static [&'static str] = &["VERSION", "CHANGE", "KEY", "SOURCE", "OBJECT"];

    fn cells(&self) -> Vec<Cell> {
        let change = Cell::new(format!("{:<7}", self.kind.as_str()));
        vec![
            Cell::number(format!("{:>9}", self.resource_version.unwrap_or_default())),
            if self.kind == RowType::Deleted { change.tone(Tone::Notice) } else { change },
            Cell::new(format!("{:<16}", self.key.as_deref().unwrap_or_default())),
            Cell::new(format!("{:<8}", self.source.as_deref().unwrap_or("-"))),
            Cell::optional(self.object.as_ref().map(deltaq_types::RawObject::as_str)),
        ]
    }

    fn name(&self) -> String {
        self.key.clone().unwrap_or_default()
    }
}
