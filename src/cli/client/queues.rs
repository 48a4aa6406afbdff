//! `deltaq queues` and `deltaq queue ...`.

mod exported;
pub(in crate::cli) mod settings;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use deltaq_client::Call;
use deltaq_types::duration::DurationText;
use deltaq_types::name::Name;
use deltaq_types::{FollowState, PauseBody, PurgedDocument, QueueDocument, QueueStatus};
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};

use self::settings::Settings;
use super::apply::Apply;
use super::apply::exact::Members;
use super::confirm::confirm;
use super::connection::Connection;
use super::failure::Failure;
use super::hook::HookCommands;
use super::output::{Cell, Format, Output, Row, Tone, counted, duration_text};
use super::pages::{Limit, all, check_complete, print_list};
use super::push::PushCommands;
use super::reply::parse;
use super::session::{Execute, Remote, Session, run};

/// Commands about queues.
#[derive(Debug, Clone, Subcommand)]
pub enum Commands {
    /// List the queues with their counts.
    #[command(after_help = "Example:\n  deltaq queues --prefix erp-")]
    Queues(Remote<List>),
    /// Give queues the settings of a file: create those that are missing, and change those that differ.
    #[command(
        after_help = "Examples:\n  deltaq apply --file queues.yaml --dry-run\n  deltaq apply --file queues.yaml"
    )]
    Apply(Remote<Apply>),
    /// Create, show, change or delete one queue.
    #[command(subcommand)]
    Queue(QueueCommands),
    /// Test the endpoint to which a queue pushes.
    #[command(subcommand)]
    Push(PushCommands),
    /// Look at the deliveries of webhooks that queues could not apply, or verify a signature.
    #[command(subcommand)]
    Hook(HookCommands),
}

impl Commands {
    /// The operations of the API that the commands call.
    #[cfg(test)]
    pub(super) fn operations() -> Vec<&'static [&'static str]> {
        [
            &[List::OPERATIONS, Apply::OPERATIONS],
            QueueCommands::OPERATIONS,
            PushCommands::OPERATIONS,
            HookCommands::OPERATIONS,
        ]
        .concat()
    }

    /// Runs the command.
    pub(super) fn run(&self) -> ExitCode {
        match self {
            Self::Queues(command) => run(command),
            Self::Apply(command) => run(command),
            Self::Queue(command) => command.run(),
            Self::Push(command) => command.run(),
            Self::Hook(command) => command.run(),
        }
    }
}

super::commands! {
    /// Commands on one queue.
    QueueCommands {
        /// List the queues with their counts, as `deltaq queues`.
        #[command(after_help = "Example:\n  deltaq queue list --prefix erp-")]
        List(List),
        /// Show a queue with its counts and settings.
        #[command(after_help = "Example:\n  deltaq queue get prices")]
        Get(Get),
        /// Show the settings of a queue as JSON, or without a name those of all queues, as `deltaq apply` reads them.
        #[command(after_help = "Examples:\n  deltaq queue settings prices > prices.json\n  deltaq queue create prices --replace --from prices.json\n  deltaq queue settings > queues.json\n  deltaq apply --file queues.json")]
        Settings(ShowSettings),
        /// Create a queue, or replace all settings of an existing one.
        #[command(after_help = "Modes, by what a pop delivers:\n  mode=delta   all changes of a key since its last ack (default)\n  mode=latest  only the newest change of a key\n  mode=keys    only the key\n  mode=events  each change alone, in order\n\nExample:\n  deltaq queue create jobs mode=keys lease=1m max_failures=5")]
        Create(Create),
        /// Change settings of an existing queue; the others are kept.
        #[command(after_help = "Example:\n  deltaq queue configure prices max_failures=5 retention.age=7d resync_period=null")]
        Configure(Configure),
        /// Delete a queue with all its contents.
        #[command(after_help = "Example:\n  deltaq queue delete prices --yes")]
        Delete(Delete),
        /// Stop delivery; all other calls continue to work.
        #[command(after_help = "Example:\n  deltaq queue pause prices\n  deltaq queue pause prices --group acme")]
        Pause(Pause),
        /// Start delivery again.
        #[command(after_help = "Example:\n  deltaq queue resume prices")]
        Resume(Resume),
        /// Close a queue: workers process the remaining keys and then end.
        #[command(after_help = "Example:\n  deltaq queue close prices --drain --wait 5m")]
        Close(Close),
        /// Open a closed queue.
        #[command(after_help = "Example:\n  deltaq queue reopen prices")]
        Reopen(Reopen),
        /// Drop all waiting keys; known objects, leased and parked keys are kept.
        #[command(after_help = "Example:\n  deltaq queue purge prices --yes")]
        Purge(Purge),
    }
}

/// `deltaq queues`.
#[derive(Debug, Clone, Args)]
pub struct List {
    /// Only queues whose names have this prefix.
    #[arg(long, default_value = "")]
    pub prefix: String,
    /// The limit.
    #[command(flatten)]
    pub limit: Limit,
}

/// `deltaq queue create`.
#[derive(Debug, Clone, Args)]
pub struct Create {
    /// The name of the queue.
    pub name: Name,
    /// Replace all settings if the queue exists; settings that are not given get their defaults.
    #[arg(long)]
    pub replace: bool,
    /// The settings.
    #[command(flatten)]
    pub settings: Settings,
}

/// `deltaq queue settings`.
#[derive(Debug, Clone, Args)]
pub struct ShowSettings {
    /// The name of the queue [default: all queues].
    pub name: Option<Name>,
}

/// `deltaq queue configure`.
#[derive(Debug, Clone, Args)]
pub struct Configure {
    /// The name of the queue.
    pub name: Name,
    /// The settings.
    #[command(flatten)]
    pub settings: Settings,
}

/// `deltaq queue delete`.
#[derive(Debug, Clone, Args)]
pub struct Delete {
    /// The name of the queue.
    pub name: Name,
    /// Do not ask for confirmation.
    #[arg(short, long)]
    pub yes: bool,
    /// Delete the queue even if other queues follow it; they are detached and keep their keys.
    #[arg(long)]
    pub force: bool,
}

/// `deltaq queue close`.
#[derive(Debug, Clone, Args)]
pub struct Close {
    /// The name of the queue.
    pub name: Name,
    /// Wait until no key is ready, delayed or leased; exit code 3 if some are left.
    #[arg(long)]
    pub drain: bool,
    /// Maximum wait for --drain, such as 5m.
    #[arg(long, value_name = "DURATION", requires = "drain", default_value = "0s")]
    pub wait: DurationText,
    /// When pops of the closed queue tell their workers to end.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t)]
    pub wait_for: WaitFor,
}

/// When pops of a closed queue end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum WaitFor {
    /// Once no key is ready, delayed or leased: a leased key may fail and be delivered again.
    #[default]
    Leases,
    /// Once no key is ready.
    None,
}

/// `deltaq queue purge`.
#[derive(Debug, Clone, Args)]
pub struct Purge {
    /// The name of the queue.
    pub name: Name,
    /// Do not ask for confirmation.
    #[arg(short, long)]
    pub yes: bool,
}

/// Commands whose only argument is a queue and whose reply is its document.
macro_rules! simple {
    ($($(#[doc = $doc:literal])* $name:ident $operation:literal $sentence:literal;)*) => {$(
        $(#[doc = $doc])*
        #[derive(Debug, Clone, Args)]
        pub struct $name {
            /// The name of the queue.
            pub name: Name,
        }

        impl Execute for $name {
            const OPERATIONS: &'static [&'static str] = &[$operation];

            async fn execute(&self, session: &Session) -> Result<(), Failure> {
                let text: Box<RawValue> = session.client.fetch(session.on_queue($operation, &self.name)?).await?;
                show_change(session, &text, $sentence)
            }
        }
    )*};
}

simple! {
    /// `deltaq queue get`.
    Get "get_queue" "";
    /// `deltaq queue reopen`.
    Reopen "reopen_queue" "open";
}

/// Commands that stop the delivery of a queue or a group, or end that.
macro_rules! switching {
    ($($(#[doc = $doc:literal])* $name:ident $operation:literal $sentence:literal;)*) => {$(
        $(#[doc = $doc])*
        #[derive(Debug, Clone, Args)]
        pub struct $name {
            /// The queue.
            pub name: Name,
            /// Only this group; the empty text is the group without a name.
            #[arg(long, value_name = "NAME")]
            pub group: Option<String>,
        }

        impl Execute for $name {
            const OPERATIONS: &'static [&'static str] = &[$operation];

            async fn execute(&self, session: &Session) -> Result<(), Failure> {
                let call = session.on_queue($operation, &self.name)?;
                let call = match &self.group {
                    None => call,
                    Some(group) => call.json(&PauseBody { group: Some(group.as_str().into()) }),
                };
                let text: Box<RawValue> = session.client.fetch(call).await?;
                show_change(session, &text, $sentence)
            }
        }
    )*};
}

switching! {
    /// `deltaq queue pause`.
    Pause "pause_queue" "paused";
    /// `deltaq queue resume`.
    Resume "resume_queue" "resumed";
}

impl Execute for List {
    const OPERATIONS: &'static [&'static str] = &["list_queues"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let prefix = (!self.prefix.is_empty()).then_some(&self.prefix);
        let call = || Ok(session.call("list_queues", "", "")?.query("prefix", prefix));
        print_list::<QueueDocument>(session, call, &self.limit, "no queues").await
    }
}

impl Execute for Create {
    const OPERATIONS: &'static [&'static str] = &["put_queue"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let call = session.on_queue("put_queue", &self.name)?.json(&self.settings.document()?);
        let call = if self.replace { call } else { call.condition("if-none-match", "*") };
        let reply = session.client.send(call).await?;
        let sentence = if reply.status() == 201 { "created" } else { "all settings replaced" };
        show_change(session, &reply.document::<Box<RawValue>>().await?, sentence)
    }
}

impl Execute for Configure {
    const OPERATIONS: &'static [&'static str] = &["patch_queue"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let call = session.on_queue("patch_queue", &self.name)?.json(&self.settings.document()?);
        let text: Box<RawValue> = session.client.fetch(call).await?;
        show_change(session, &text, "configured")
    }
}

impl Execute for ShowSettings {
    const OPERATIONS: &'static [&'static str] = &["get_settings", "list_queues", "list_all_sources"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        if let Some(name) = &self.name {
            let text: Box<RawValue> = session.client.fetch(session.on_queue("get_settings", name)?).await?;
            return session.output.json_document(&text, name.as_str());
        }
        let call = || Ok(session.call("list_queues", "", "")?.query("fields", Some("name,settings")));
        let (rows, unavailable) = all::<NamedSettings>(session, call).await?;
        let mut thresholds = exported::thresholds(session).await?;
        let declared = |NamedSettings { name, settings }| {
            let sources = thresholds.remove(&name).unwrap_or_default();
            (name, exported::declared(settings, sources))
        };
        let queues: BTreeMap<String, Members> = rows.into_iter().map(declared).collect();
        let names = queues.keys().map(String::as_str).collect::<Vec<_>>().join("\n");
        let text = to_raw_value(&BTreeMap::from([("queues", queues)]));
        let text = text.map_err(|error| Failure::Other(format!("can't print the settings: {error}")))?;
        session.output.file(&text, &names)?;
        check_complete(&unavailable)
    }
}

/// Prints the settings of all queues, for `deltaq export --settings`.
pub(in crate::cli) fn print_settings(connection: &Connection) -> ExitCode {
    let (command, connection) = (ShowSettings { name: None }, connection.clone());
    run(&Remote { command, output: Format::default(), connection })
}

impl Execute for Delete {
    const OPERATIONS: &'static [&'static str] = &["delete_queue"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        confirm(self.yes, &format!("delete queue {} with all its contents", self.name))?;
        let call = session.on_queue("delete_queue", &self.name)?;
        let call = if self.force { call.query("force", Some("true")) } else { call };
        session.client.send(call).await?;
        match session.output.format() {
            Format::Table => Output::text(&format!("queue {} deleted\n", self.name)),
            Format::Name => Output::text(&format!("{}\n", self.name)),
            Format::Json | Format::Ndjson => Ok(()),
        }
    }
}

impl Execute for Close {
    const OPERATIONS: &'static [&'static str] = &["close_queue"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let wait = session.wait(Some(self.wait.into())).await?;
        loop {
            let text: Box<RawValue> = session.client.fetch(self.call(session, wait.next())?).await?;
            if !self.drain {
                return show_change(session, &text, "closed");
            }
            let queue: QueueDocument = parse(&text)?;
            if queue.drained == Some(true) {
                return show_change(session, &text, "closed and drained");
            }
            if wait.is_over() {
                let left = queue.status.ready + queue.status.delayed + queue.status.leased;
                return Err(Failure::Nothing(format!(
                    "queue {} is closed; {} left",
                    self.name,
                    counted(left, "key")
                )));
            }
        }
    }
}

impl Close {
    fn call(&self, session: &Session, wait: DurationText) -> Result<Call, Failure> {
        let wait_for = (self.wait_for == WaitFor::None).then_some("none");
        let call = session.on_queue("close_queue", &self.name)?.query("wait_for", wait_for);
        let call = call.switch("drain", self.drain).query("wait", self.drain.then_some(wait));
        Ok(call.wait(wait.into()))
    }
}

impl Execute for Purge {
    const OPERATIONS: &'static [&'static str] = &["purge_queue"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        confirm(self.yes, &format!("drop all waiting keys of queue {}", self.name))?;
        let call = session.on_queue("purge_queue", &self.name)?;
        let (purged, text) = session.fetch::<PurgedDocument>(call).await?;
        let sentence =
            format!("dropped {} and {}", counted(purged.keys, "key"), counted(purged.deltas, "delta"));
        session.output.change(&text, self.name.as_str(), &sentence)
    }
}

/// A queue of the list with `fields=name,settings`.
#[derive(Deserialize)]
struct NamedSettings {
    name: String,
    settings: Members,
}

/// Prints the result of a change to a queue, or the whole queue if the call changed nothing.
fn show_change(session: &Session, text: &RawValue, sentence: &str) -> Result<(), Failure> {
    let queue: QueueDocument = parse(text)?;
    if sentence.is_empty() {
        return session.output.document(text, &queue.name, fields(&queue));
    }
    session.output.change(text, &queue.name, &format!("queue {}: {sentence}", queue.name))
}

fn fields(queue: &QueueDocument) -> Vec<(&'static str, Cell)> {
    let (status, settings) = (&queue.status, &queue.settings);
    let mut fields = vec![
        ("name", Cell::new(&queue.name)),
        ("state", state(queue)),
        ("created", Cell::new(queue.created_at.to_string())),
        ("ready", Cell::new(status.ready.to_string())),
        ("oldest change", age(status.oldest_unacknowledged_age_ms)),
        ("oldest ready", age(status.oldest_ready_age_ms)),
        ("delayed", Cell::new(status.delayed.to_string())),
        ("leased", Cell::new(status.leased.to_string())),
        ("parked", Cell::count(status.parked, Tone::Bad)),
        ("known", Cell::new(status.known.to_string())),
        ("waiting pops", Cell::new(status.waiters.to_string())),
        ("synced", Cell::new(if status.has_synced { "yes" } else { "no" })),
        ("resource version", Cell::new(status.resource_version.to_string())),
        ("mode", Cell::new(settings.mode.as_str())),
        ("key", Cell::new(serde_json::to_string(&settings.key).unwrap_or_default())),
        ("lease", Cell::new(settings.lease.to_string())),
        ("max failures", Cell::new(settings.max_failures.to_string())),
    ];
    if let Some(replace) = &status.last_replace {
        let counts = replace.counts;
        let source = replace.source.as_deref().unwrap_or("no source");
        let text = format!(
            "{source}, {}: {} replaced, {} deleted, {} unchanged",
            replace.started_at, counts.replaced, counts.deleted, counts.unchanged
        );
        fields.push(("last replace", Cell::new(text)));
    }
    if let (Some(to), Some(progress)) = (&settings.follow, &status.follow) {
        let mut text = format!("{}: {}", to.queue, progress.state.as_str());
        if let Some(reason) = progress.reason {
            let _ = write!(text, ", {}", reason.as_str());
        }
        if let Some(detail) = &progress.detail {
            let _ = write!(text, " ({detail})");
        }
        let tone = if progress.state == FollowState::Blocked { Tone::Bad } else { Tone::Plain };
        fields.push(("follows", Cell::new(text).tone(tone)));
        fields.push(("behind for", age(progress.lag_ms)));
    }
    fields
}

/// The state of a queue in a word.
pub(super) fn state(queue: &QueueDocument) -> Cell {
    let (word, tone) = state_word(&queue.status);
    Cell::new(word).tone(tone)
}

/// The state of a queue in a word, and the tone of the word.
pub(super) fn state_word(status: &QueueStatus) -> (&'static str, Tone) {
    let is_blocked = status.follow.as_ref().is_some_and(|follow| follow.state == FollowState::Blocked);
    let is_held = status.held_until.is_some();
    match (status.drained, status.closed, status.paused) {
        (true, _, _) => ("drained", Tone::Notice),
        (_, true, _) => ("closed", Tone::Notice),
        (_, _, true) => ("paused", Tone::Notice),
        _ if is_held => ("held", Tone::Notice),
        _ if is_blocked => ("blocked", Tone::Bad),
        _ => ("open", Tone::Plain),
    }
}

/// An age in whole seconds.
pub(super) fn age(ms: u64) -> Cell {
    if ms == 0 { Cell::optional(None::<&str>) } else { Cell::new(duration_text(ms)) }
}

impl Row for QueueDocument {
    const COLUMNS: &'static [&'static str] =
        &["QUEUE", "READY", "DELAYED", "LEASED", "PARKED", "KNOWN", "OLDEST", "STATE"];

    fn cells(&self) -> Vec<Cell> {
        let status = &self.status;
        vec![
            Cell::new(&self.name),
            Cell::number(status.ready),
            Cell::number(status.delayed),
            Cell::number(status.leased),
            Cell::count(status.parked, Tone::Bad),
            Cell::number(status.known),
            age(status.oldest_unacknowledged_age_ms),
            state(self),
        ]
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units() {
        let texts = [7, 1_500, 65_000, 3_600_000, 90_000_000].map(duration_text);
        assert_eq!(texts, ["7ms", "1s", "1m05s", "1h00m", "1d01h"]);
    }
}
