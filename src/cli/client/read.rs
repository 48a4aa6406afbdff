//! `deltaq items`, `explain`, `known`, `latest`, `history`, `parked`, `promote`, `redrive` and `discard`.

use clap::Args;
use deltaq_types::duration::DurationText;
use deltaq_types::name::Name;
use deltaq_types::{
    DiffOperation, EventDocument, ExplainDocument, ItemDocument, ItemState, KeysBody, KeysFilter,
    LeaseOutcome, ObjectDocument, ParkedError, RawJson, SelectedCount, Timestamp,
};

use super::confirm::confirm;
use super::failure::Failure;
use super::indexes::{Indexes, Lookup};
use super::output::{Cell, Row, Tone, clean, counted, duration_text};
use super::pages::{Limit, print_list};
use super::session::{Execute, Session};

super::commands! {
    /// Commands that read a queue, and commands on parked keys.
    Commands {
        /// List ready, delayed, leased and parked keys, or show one key.
        #[command(after_help = "Example:\n  deltaq items prices --state leased")]
        Items(Items),
        /// Explain why a key is not delivered.
        #[command(after_help = "Example:\n  deltaq explain prices sku-1")]
        Explain(Explain),
        /// List known objects (acknowledged states), or show one.
        #[command(after_help = "Example:\n  deltaq known prices --source erp -o ndjson")]
        Known(Known),
        /// List the indexes of known objects, or the values of one.
        #[command(after_help = "Example:\n  deltaq indexes prices by_city --prefix B")]
        Indexes(Indexes),
        /// List the newest accepted objects, or show one.
        #[command(after_help = "Example:\n  deltaq latest prices --prefix sku-")]
        Latest(Latest),
        /// Show the events of a key, newest first.
        #[command(after_help = "Example:\n  deltaq history prices sku-1 --limit 20")]
        History(History),
        /// List parked keys with their errors, or count the keys of each error.
        #[command(after_help = "Example:\n  deltaq parked prices --errors")]
        Parked(Parked),
        /// Make delayed keys ready before they are due.
        #[command(override_usage = "deltaq promote [OPTIONS] <QUEUE> <KEYS|--all|--error <TEXT>>", after_help = "Example:\n  deltaq promote prices sku-1")]
        Promote(Promote),
        /// Make parked keys ready again.
        #[command(override_usage = "deltaq redrive [OPTIONS] <QUEUE> <KEYS|--all|--error <TEXT>>", after_help = "Example:\n  deltaq redrive prices sku-1")]
        Redrive(Redrive),
        /// Drop parked keys with their deltas.
        #[command(override_usage = "deltaq discard [OPTIONS] <QUEUE> <KEYS|--all|--error <TEXT>>", after_help = "Example:\n  deltaq discard prices sku-1")]
        Discard(Discard),
    }
}

/// `deltaq items`.
#[derive(Debug, Clone, Args)]
pub struct Items {
    /// The queue.
    pub queue: Name,
    /// One key: its deltas, lease and failures.
    pub key: Option<String>,
    /// States: ready, delayed, leased, parked, joined by commas [default: all].
    #[arg(long, value_name = "STATES", conflicts_with = "key")]
    pub state: Option<String>,
    /// Only keys that this worker has leased.
    #[arg(long, value_name = "NAME", conflicts_with = "key")]
    pub worker: Option<String>,
    /// With a key: what has changed since its last acknowledged object.
    #[arg(long, requires = "key")]
    pub with_diff: bool,
    /// The limit.
    #[command(flatten)]
    pub limit: Limit,
}

/// `deltaq explain`.
#[derive(Debug, Clone, Args)]
pub struct Explain {
    /// The queue.
    pub queue: Name,
    /// The key.
    pub key: String,
}

/// Objects of a view of a queue.
#[derive(Debug, Clone, Args)]
pub struct ViewObjects {
    /// The queue.
    pub queue: Name,
    /// One key.
    pub key: Option<String>,
    /// Only keys with this prefix.
    #[arg(long, conflicts_with = "key")]
    pub prefix: Option<String>,
    /// Only objects that this source owns.
    #[arg(long, value_name = "NAME", conflicts_with = "key")]
    pub source: Option<String>,
    /// Only one of N parts of all keys, such as 0/4 to 3/4.
    #[arg(long, value_name = "I/N", conflicts_with = "key")]
    pub shard: Option<String>,
    /// With a key: fail unless the queue has this version, which an earlier reply has shown.
    #[arg(long, value_name = "N", requires = "key")]
    pub min_resource_version: Option<u64>,
    /// The limit.
    #[command(flatten)]
    pub limit: Limit,
}

/// `deltaq known`.
#[derive(Debug, Clone, Args)]
pub struct Known {
    /// The objects.
    #[command(flatten)]
    pub objects: ViewObjects,
    /// The lookup in an index.
    #[command(flatten)]
    pub lookup: Lookup,
}

/// `deltaq latest`.
#[derive(Debug, Clone, Args)]
pub struct Latest {
    /// The objects.
    #[command(flatten)]
    pub objects: ViewObjects,
}

/// `deltaq history`.
#[derive(Debug, Clone, Args)]
pub struct History {
    /// The queue.
    pub queue: Name,
    /// The key.
    pub key: String,
    /// The limit.
    #[command(flatten)]
    pub limit: Limit,
}

/// `deltaq parked`.
#[derive(Debug, Clone, Args)]
pub struct Parked {
    /// The queue.
    pub queue: Name,
    /// List the errors with the number of keys of each.
    #[arg(long)]
    pub errors: bool,
    /// The limit.
    #[command(flatten)]
    pub limit: Limit,
}

/// Parked or delayed keys.
#[derive(Debug, Clone, Args)]
#[group(id = "key_selection")]
pub struct KeySelection {
    /// The queue.
    pub queue: Name,
    /// The keys, or all of them.
    #[command(flatten)]
    pub which: WhichKeys,
    /// Change nothing unless exactly this many keys are selected.
    #[arg(long, value_name = "N")]
    pub expected_count: Option<u64>,
    /// Count the keys and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// Some parked or delayed keys, or all.
#[derive(Debug, Clone, Args)]
#[group(id = "which_keys", required = true, multiple = true)]
pub struct WhichKeys {
    /// The keys.
    #[arg(conflicts_with_all = ["all", "error", "prefix", "source", "group", "older_than", "older_than_at", "until"])]
    pub keys: Vec<String>,
    /// All keys.
    #[arg(long, conflicts_with_all = ["error", "prefix", "source", "group", "older_than", "older_than_at", "until"])]
    pub all: bool,
    /// Only keys with exactly this error.
    #[arg(long, value_name = "TEXT")]
    pub error: Option<String>,
    /// Only keys that begin with this text.
    #[arg(long, value_name = "TEXT")]
    pub prefix: Option<Box<str>>,
    /// Only keys that this source owns.
    #[arg(long)]
    pub source: Option<Box<str>>,
    /// Only keys of this group.
    #[arg(long)]
    pub group: Option<Box<str>>,
    /// Only keys whose oldest waiting change is at least this old, such as 1h.
    #[arg(long, value_name = "DURATION")]
    pub older_than: Option<DurationText>,
    /// Only keys whose oldest waiting change was queued at this instant or before, as --dry-run with --older-than prints it.
    #[arg(long, value_name = "INSTANT", conflicts_with = "older_than")]
    pub older_than_at: Option<Timestamp>,
    /// Only keys that have been parked or delayed since this event or an older one, as --dry-run prints it.
    #[arg(long, value_name = "N", conflicts_with = "older_than")]
    pub until: Option<u64>,
}

/// `deltaq promote`.
#[derive(Debug, Clone, Args)]
pub struct Promote {
    /// The keys.
    #[command(flatten)]
    pub delayed: KeySelection,
}

/// `deltaq redrive`.
#[derive(Debug, Clone, Args)]
pub struct Redrive {
    /// The keys.
    #[command(flatten)]
    pub parked: KeySelection,
}

/// `deltaq discard`.
#[derive(Debug, Clone, Args)]
pub struct Discard {
    /// The keys.
    #[command(flatten)]
    pub parked: KeySelection,
    /// Do not ask for confirmation if the command does not name the keys.
    #[arg(short, long)]
    pub yes: bool,
}

impl Execute for Items {
    const OPERATIONS: &'static [&'static str] = &["list_items", "get_item_of"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        if let Some(key) = &self.key {
            let call = session.on_queue("get_item_of", &self.queue)?.query("key", Some(key));
            let call = call.query("with", self.with_diff.then_some("diff"));
            let (item, text) = session.fetch::<ItemDocument>(call).await?;
            return session.output.document(&text, &item.key, item_fields(&item));
        }
        let call = || {
            let call = session.on_queue("list_items", &self.queue)?;
            Ok(call.query("state", self.state.as_deref()).query("worker", self.worker.as_deref()))
        };
        print_list::<ItemDocument>(session, call, &self.limit, "no keys").await
    }
}

impl Execute for Parked {
    const OPERATIONS: &'static [&'static str] = &["list_items", "list_parked_errors"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        if self.errors {
            let call = || session.on_queue("list_parked_errors", &self.queue);
            return print_list::<ParkedError>(session, call, &self.limit, "no parked keys").await;
        }
        let call = || Ok(session.on_queue("list_items", &self.queue)?.query("state", Some("parked")));
        print_list::<ItemDocument>(session, call, &self.limit, "no parked keys").await
    }
}

impl Execute for Explain {
    const OPERATIONS: &'static [&'static str] = &["explain_key_of"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let call = session.on_queue("explain_key_of", &self.queue)?.query("key", Some(&self.key));
        let (found, text) = session.fetch::<ExplainDocument>(call).await?;
        session.output.change(&text, &found.key, &clean(&found.explanation))
    }
}

impl ViewObjects {
    async fn print(
        &self,
        session: &Session,
        list: &str,
        view: &str,
        lookup: Option<&Lookup>,
        empty: &str,
    ) -> Result<(), Failure> {
        if let Some(key) = &self.key {
            let call = session.on_queue("get_object_of", &self.queue)?;
            let call = call.query("view", Some(view)).query("key", Some(key));
            let call = call.query("min_resource_version", self.min_resource_version);
            let (found, text) = session.fetch::<ObjectDocument>(call).await?;
            let fields = vec![
                ("key", Cell::new(&found.key)),
                ("source", Cell::optional(found.source.as_deref())),
                ("resource version", Cell::new(found.resource_version.to_string())),
                ("object", Cell::new(found.object.as_str())),
            ];
            return session.output.document(&text, &found.key, fields);
        }
        let call = || {
            let call = session.on_queue(list, &self.queue)?.query("prefix", self.prefix.as_deref());
            let call = call.query("source", self.source.as_deref()).query("shard", self.shard.as_deref());
            Ok(match lookup {
                Some(lookup) => lookup.add_to(call),
                None => call,
            })
        };
        print_list::<ObjectDocument>(session, call, &self.limit, empty).await
    }
}

impl Execute for Known {
    const OPERATIONS: &'static [&'static str] = &["list_known", "get_object_of"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        self.objects.print(session, "list_known", "known", Some(&self.lookup), "no known objects").await
    }
}

impl Execute for Latest {
    const OPERATIONS: &'static [&'static str] = &["list_latest", "get_object_of"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        self.objects.print(session, "list_latest", "latest", None, "no objects").await
    }
}

impl Execute for History {
    const OPERATIONS: &'static [&'static str] = &["get_history_of"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        let call = || Ok(session.on_queue("get_history_of", &self.queue)?.query("key", Some(&self.key)));
        print_list::<EventDocument>(session, call, &self.limit, "no events of the key are kept").await
    }
}

impl Execute for Promote {
    const OPERATIONS: &'static [&'static str] = &["promote_delayed"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        self.delayed.send(session, "promote_delayed", "delayed", "made ready").await
    }
}

impl Execute for Redrive {
    const OPERATIONS: &'static [&'static str] = &["redrive_parked"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        self.parked.send(session, "redrive_parked", "parked", "made ready").await
    }
}

impl Execute for Discard {
    const OPERATIONS: &'static [&'static str] = &["discard_parked"];

    async fn execute(&self, session: &Session) -> Result<(), Failure> {
        if self.parked.which.are_unnamed() && !self.parked.dry_run {
            let whose = self.parked.which.limits().map(|limits| format!(" with {limits}"));
            let whose = whose.unwrap_or_default();
            confirm(self.yes, &format!("drop all parked keys{whose} of queue {}", self.parked.queue))?;
        }
        self.parked.send(session, "discard_parked", "parked", "dropped").await
    }
}

impl KeySelection {
    async fn send(&self, session: &Session, operation: &str, state: &str, done: &str) -> Result<(), Failure> {
        let body =
            KeysBody { expected_count: self.expected_count, dry_run: self.dry_run, ..self.which.body() };
        let call = session.on_queue(operation, &self.queue)?.json(&body);
        let (count, text) = session.fetch::<SelectedCount>(call).await?;
        let keys = counted(count.keys, &format!("{state} key"));
        let line = if self.dry_run {
            let before = count.older_than_at.map(|at| format!(" --older-than-at {at}"));
            let until = [format!("--until {}", count.resource_version), before.unwrap_or_default()].concat();
            format!("{keys} would be {done}; {until} leaves out later ones")
        } else {
            format!("{keys} {done}")
        };
        session.output.change(&text, self.queue.as_str(), &line)?;
        if count.keys == 0 && !self.which.all {
            let nothing = match self.which.limits() {
                Some(limits) => format!("no {state} key has {limits}"),
                None => format!("none of the keys is {state}"),
            };
            return Err(Failure::Nothing(nothing));
        }
        Ok(())
    }
}

impl WhichKeys {
    /// Whether the command does not name keys, so that it affects an unknown number of them.
    fn are_unnamed(&self) -> bool {
        self.keys.is_empty()
    }

    /// The selection as a request has it.
    fn body(&self) -> KeysBody {
        let Self { keys, all, error, prefix, source, group, older_than, older_than_at, until } = self.clone();
        let filter = KeysFilter { prefix, error: None, source, group, older_than, older_than_at, until };
        if !keys.is_empty() || all {
            return KeysBody { keys: (!all).then_some(keys), all, ..KeysBody::default() };
        }
        if filter == KeysFilter::default() {
            return KeysBody { error, ..KeysBody::default() };
        }
        let filter = KeysFilter { error: error.map(String::into_boxed_str), ..filter };
        KeysBody { filter: Some(filter), ..KeysBody::default() }
    }

    /// What the keys have in common, for a sentence; `None` if the command names them, or selects all.
    fn limits(&self) -> Option<String> {
        let named = [
            ("the error", self.error.as_deref()),
            ("the prefix", self.prefix.as_deref()),
            ("the source", self.source.as_deref()),
            ("the group", self.group.as_deref()),
        ];
        let named = named.into_iter().filter_map(|(name, text)| Some(format!("{name} {:?}", text?)));
        let age = self.older_than.as_ref().map(|age| format!("a change older than {age}"));
        let queued = self.older_than_at.map(|at| format!("a change from before {at}"));
        let until = self.until.map(|until| format!("waited since event {until}"));
        let limits: Vec<String> = named.chain(age).chain(queued).chain(until).collect();
        (!limits.is_empty()).then(|| limits.join(" and "))
    }
}

/// The state of a key; a dash for a key that has only failures.
fn item_state(item: &ItemDocument) -> Cell {
    match item.state {
        Some(ItemState::Parked) => Cell::new("parked").tone(Tone::Bad),
        state => Cell::optional(state.map(ItemState::as_str)),
    }
}

fn item_fields(item: &ItemDocument) -> Vec<(&'static str, Cell)> {
    let mut fields = vec![
        ("key", Cell::new(&item.key)),
        ("state", item_state(item)),
        ("source", Cell::optional(item.source.as_deref())),
        ("attempt", Cell::new(item.attempt.to_string())),
        ("failures", Cell::new(item.failures.to_string())),
        ("last error", Cell::optional(item.last_error.as_deref())),
        ("due", Cell::optional(item.due_at.map(|at| at.to_string()))),
    ];
    if let Some(lease) = &item.lease {
        let worker = lease.worker.as_deref().unwrap_or("no name");
        let left = duration_text(lease.expires_in_ms);
        let since = item.leased_at.map(|at| format!(", since {at}")).unwrap_or_default();
        fields.push(("lease", Cell::new(format!("{} of worker {worker}{since}, {left} left", lease.id))));
    }
    let deltas = item.leased_deltas.iter().map(|delta| ("leased delta", delta));
    for (label, delta) in deltas.chain(item.deltas.iter().map(|delta| ("delta", delta))) {
        let text = format!("{} {} {}", delta.queued_at, delta.kind.as_str(), delta.object.as_str());
        fields.push((label, Cell::new(text)));
    }
    let omitted = item.diff_omitted.map(|why| Cell::new(format!("left out: {}", why.as_str())));
    fields.extend(omitted.map(|why| ("difference", why)));
    for DiffOperation { op, path, value, old } in item.diff.operations().unwrap_or_default() {
        let change: Vec<_> = old.iter().chain(value).map(RawJson::as_str).collect();
        fields.push(("difference", Cell::new(format!("{} {path} {}", op.as_str(), change.join(" -> ")))));
    }
    fields
}

impl Row for ItemDocument {
    const COLUMNS: &'static [&'static str] =
        &["KEY", "STATE", "ATTEMPT", "FAILURES", "DELTAS", "WORKER", "ERROR"];

    fn cells(&self) -> Vec<Cell> {
        let worker = self.lease.as_ref().map(|lease| lease.worker.as_deref().unwrap_or("(no name)"));
        vec![
            Cell::new(&self.key),
            item_state(self),
            Cell::number(self.attempt),
            Cell::count(self.failures.into(), Tone::Notice),
            Cell::number(self.deltas.len() + self.leased_deltas.len()),
            Cell::optional(worker),
            Cell::optional(self.last_error.as_deref()),
        ]
    }

    fn name(&self) -> String {
        self.key.clone()
    }
}

impl Row for ObjectDocument {
    const COLUMNS: &'static [&'static str] = &["KEY", "SOURCE", "VERSION", "OBJECT"];

    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::new(&self.key),
            Cell::optional(self.source.as_deref()),
            Cell::number(self.resource_version),
            Cell::new(self.object.as_str()),
        ]
    }

    fn name(&self) -> String {
        self.key.clone()
    }
}

impl Row for ParkedError {
    const COLUMNS: &'static [&'static str] = &["KEYS", "ERROR", "FIRST KEY"];

    fn cells(&self) -> Vec<Cell> {
        let error = Some(self.error.as_str()).filter(|error| !error.is_empty());
        vec![Cell::number(self.keys), Cell::optional(error), Cell::new(&self.first_key)]
    }

    fn name(&self) -> String {
        self.error.clone()
    }
}

impl Row for EventDocument {
    const COLUMNS: &'static [&'static str] = &["VERSION", "AT", "BY", "EVENT", "DETAIL"];

    fn cells(&self) -> Vec<Cell> {
        let parked = self.parked.then_some("parked");
        let has_object = self.event.members().names().any(|name| name == "object");
        let lost = (has_object && self.object.is_none()).then_some("(the store has lost the object)");
        let details = [
            self.kind.map(deltaq_types::DeltaType::as_str),
            self.outcome.map(LeaseOutcome::as_str),
            self.source.as_deref(),
            self.worker.as_deref(),
            self.lease_id.as_deref(),
            parked,
            self.error.as_deref(),
            self.object.as_ref().map(deltaq_types::RawObject::as_str).or(lost),
        ];
        vec![
            Cell::number(self.resource_version),
            Cell::new(self.at.to_string()),
            Cell::optional(self.by.as_ref()),
            Cell::new(self.event.as_str()),
            Cell::new(details.into_iter().flatten().collect::<Vec<_>>().join(" ")),
        ]
    }

    fn name(&self) -> String {
        self.resource_version.to_string()
    }
}
