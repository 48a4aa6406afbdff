//! The flags of one source, as the document that a file would have.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use deltaq_reflect::settings::Reflect;
use toml::{Table, Value};

use crate::cli::client::{Failure, setting};
use crate::config::reflect as settings;

/// The arguments that a file replaces.
pub(super) const OF_ONE_SOURCE: [&str; 9] =
    ["queue", "source", "list", "command", "files", "sql", "replicate", "from_queue", "kubernetes"];

/// One source.
#[derive(Debug, Clone, Default, Args)]
#[command(group = ArgGroup::new("kind").args(["list", "command", "files", "sql", "replicate", "from_queue", "kubernetes"]))]
pub struct Flags {
    /// The queue.
    #[arg(required_unless_present = "config")]
    pub queue: Option<String>,
    /// Name of the source; it owns the keys that it sends to the queue.
    #[arg(long, value_name = "NAME", required_unless_present = "config")]
    pub source: Option<String>,
    /// URL of a list of objects.
    #[arg(long, value_name = "URL", help_heading = "Kinds of source")]
    pub list: Option<String>,
    /// File, or folder of files, with an object or a list each.
    #[arg(long, value_name = "PATH", help_heading = "Kinds of source")]
    pub files: Option<PathBuf>,
    /// Database of a query: sqlite:PATH, or postgres://user@host/database; PGPASSWORD or ~/.pgpass has the password.
    #[arg(long, value_name = "DATABASE", help_heading = "Kinds of source", requires = "query")]
    pub sql: Option<String>,
    /// Database of a table whose changes are read from its log: postgres://user@host/database.
    #[arg(long, value_name = "DATABASE", help_heading = "Kinds of source", requires = "table")]
    pub replicate: Option<String>,
    /// Queue of a deltaq server, see --from-url.
    #[arg(long, value_name = "QUEUE", help_heading = "Kinds of source", requires = "from_url")]
    pub from_queue: Option<String>,
    /// Path of a Kubernetes resource, such as /api/v1/pods.
    #[arg(long, value_name = "PATH", help_heading = "Kinds of source")]
    pub kubernetes: Option<String>,
    /// Command that prints a list of objects; the list is complete only if the exit status is 0.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// JSON pointer to the objects, such as /data/items [default: the whole document].
    #[arg(long, value_name = "POINTER", help_heading = "Objects")]
    pub items: Option<String>,
    /// Form of the objects: auto, json or ndjson [default: auto].
    #[arg(long, value_name = "FORMAT", value_parser = ["auto", "json", "ndjson"], help_heading = "Objects")]
    pub format: Option<String>,
    /// The list is an object whose members are the objects; the name of each is added to it as this member.
    #[arg(long, value_name = "NAME", help_heading = "Objects")]
    pub map_key: Option<String>,
    /// JSON pointer to the cursor of the next page, or to its URL.
    #[arg(long, value_name = "POINTER", help_heading = "Pages")]
    pub next: Option<String>,
    /// Query parameter that is set to the cursor.
    #[arg(long, value_name = "NAME", help_heading = "Pages")]
    pub next_parameter: Option<String>,
    /// Query parameter that is set to the number of the page; the list ends with an empty page.
    #[arg(long, value_name = "NAME", help_heading = "Pages")]
    pub page_parameter: Option<String>,
    /// Number of the first page [default: 1].
    #[arg(long, value_name = "N", help_heading = "Pages")]
    pub first_page: Option<u32>,
    /// Reply after the last page, other than an empty page: status 404 or 400, or the last page again (repeat).
    #[arg(long, value_name = "END", value_parser = ["404", "400", "repeat"], help_heading = "Pages")]
    pub page_end: Option<String>,
    /// Accept the end of a list that the other flags define, even if a reply has a sign of more objects.
    #[arg(long, help_heading = "Pages")]
    pub trust_end: bool,
    /// File with headers of the requests, such as "Authorization: Bearer TOKEN"; it is read for each request.
    #[arg(long, value_name = "FILE", help_heading = "Access to the source")]
    pub header_file: Option<PathBuf>,
    /// Certificates of authorities (PEM) to trust for the source, instead of those of the system.
    #[arg(long, value_name = "FILE", help_heading = "Access to the source")]
    pub source_ca_file: Option<PathBuf>,
    /// Query whose rows are the objects.
    #[arg(long, value_name = "SQL", help_heading = "Databases")]
    pub query: Option<String>,
    /// Column that grows with each change: only rows that have changed are read between two lists.
    #[arg(long, value_name = "COLUMN", help_heading = "Databases")]
    pub since: Option<String>,
    /// Table of --replicate, such as public.prices.
    #[arg(long, value_name = "TABLE", help_heading = "Databases")]
    pub table: Option<String>,
    /// Name of the slot and of the publication of --replicate [default: made from the names of the source and the queue].
    #[arg(long, value_name = "NAME", help_heading = "Databases")]
    pub slot: Option<String>,
    /// Read only the files whose names end with this text, such as .json.
    #[arg(long, value_name = "TEXT", help_heading = "Files")]
    pub suffix: Option<String>,
    /// Member that gets the path of the file below the folder, without the suffix.
    #[arg(long, value_name = "NAME", help_heading = "Files")]
    pub file_key: Option<String>,
    /// Address of the deltaq server of --from-queue.
    #[arg(long, value_name = "URL", help_heading = "Another queue")]
    pub from_url: Option<String>,
    /// File with the token for --from-url.
    #[arg(long, value_name = "FILE", help_heading = "Another queue")]
    pub from_token_file: Option<PathBuf>,
    /// Reflect the acknowledged objects instead of the newest ones.
    #[arg(long, help_heading = "Another queue")]
    pub from_known: bool,
    /// Only keys that begin with this text.
    #[arg(long, value_name = "TEXT", help_heading = "Another queue")]
    pub from_prefix: Option<String>,
    /// Kubeconfig [default: the service account of the pod].
    #[arg(long, value_name = "FILE", help_heading = "Kubernetes")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current one].
    #[arg(long, value_name = "NAME", help_heading = "Kubernetes")]
    pub context: Option<String>,
    /// Only objects with these labels, such as app=shop.
    #[arg(long, value_name = "SELECTOR", help_heading = "Kubernetes")]
    pub label_selector: Option<String>,
    /// Only objects with these fields, such as spec.nodeName=a.
    #[arg(long, value_name = "SELECTOR", help_heading = "Kubernetes")]
    pub field_selector: Option<String>,
    /// List in pages even if the server supports WatchList.
    #[arg(long, help_heading = "Kubernetes")]
    pub no_watch_list: bool,
    /// Timeout of each request, command or query [default: 1m].
    #[arg(long, value_name = "DURATION", help_heading = "Lists")]
    pub timeout: Option<String>,
    /// Maximum size of a reply, output or file, in bytes [default: 268435456].
    #[arg(long, value_name = "BYTES", help_heading = "Lists")]
    pub max_bytes: Option<u64>,
    /// Time between two lists [default: 1m].
    #[arg(long, value_name = "DURATION", help_heading = "Lists")]
    pub interval: Option<String>,
    /// Maximum time between two whole lists, whatever the source reports about its changes [default: 1h, and 10m for
    /// --since].
    #[arg(long, value_name = "DURATION", help_heading = "Lists")]
    pub relist: Option<String>,
    /// Refuse a list that would delete more keys than this.
    #[arg(long, value_name = "N", help_heading = "Lists")]
    pub max_deletes: Option<u64>,
    /// Refuse a list that would delete more than this percentage of the keys of the source.
    #[arg(long, value_name = "PERCENT", help_heading = "Lists")]
    pub max_delete_percent: Option<f64>,
    /// Let an empty list delete all keys of the source.
    #[arg(long, help_heading = "Lists")]
    pub allow_empty: bool,
    /// Of several objects with the same key, keep the last.
    #[arg(long, help_heading = "Lists")]
    pub last_duplicate: bool,
    /// Setting of the queue, if it does not exist yet, such as key=/sku; may be repeated.
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Lists")]
    pub create: Vec<String>,
}

const NO_KIND: &str = "a source is required: one of --list, --files, --sql, --replicate, --from-queue and --kubernetes, or a command behind --; --config FILE has many sources";

/// A given flag: its name, the setting that it sets, and the value.
type Given = (&'static str, String, Value);

impl Flags {
    /// The settings of the flags.
    pub(super) fn settings(&self, metrics_listen: Option<&str>) -> Result<Reflect, Failure> {
        let given = self.given()?;
        if self.kind().is_none() {
            return Err(Failure::Usage(NO_KIND.to_owned()));
        }
        let mut source = Table::new();
        for (_, setting, value) in &given {
            insert(&mut source, setting, value.clone());
        }
        let flag_of = |setting: &str| {
            let found =
                given.iter().find(|(_, known, _)| known == setting).map(|(flag, ..)| (*flag).to_owned());
            found.or_else(|| (setting == "metrics_listen").then(|| "--metrics-listen".to_owned()))
        };
        let name = self.source.as_deref().unwrap_or_default();
        settings::from_flags(name, source, metrics_listen, flag_of)
            .map_err(|error| Failure::Usage(error.to_string()))
    }

    /// The first given flag that is about one source.
    pub(super) fn first_given(&self) -> Result<Option<&'static str>, Failure> {
        Ok(self.given()?.first().map(|(flag, ..)| *flag))
    }

    fn given(&self) -> Result<Vec<Given>, Failure> {
        let mut given = self.of_source();
        given.extend(self.of_kind());
        if !self.create.is_empty() {
            let created = setting::document(&self.create)?;
            let created = Value::try_from(created)
                .map_err(|_| Failure::Usage("--create: null is not a value of a new queue".to_owned()))?;
            given.push(("--create", "create".to_owned(), created));
        }
        Ok(given)
    }

    /// The table of the kind of source, if one is given.
    fn kind(&self) -> Option<&'static str> {
        let kinds = [
            ("rest.", self.list.is_some()),
            ("command.", !self.command.is_empty()),
            ("files.", self.files.is_some()),
            ("sql.", self.sql.is_some()),
            ("replication.", self.replicate.is_some()),
            ("deltaq.", self.from_queue.is_some()),
            ("kubernetes.", self.kubernetes.is_some()),
        ];
        kinds.into_iter().find_map(|(kind, is_given)| is_given.then_some(kind))
    }

    fn of_source(&self) -> Vec<Given> {
        let flags = [
            ("QUEUE", "queue", text(self.queue.as_ref())),
            ("--interval", "interval", text(self.interval.as_ref())),
            ("--relist", "relist", text(self.relist.as_ref())),
            ("--timeout", "timeout", text(self.timeout.as_ref())),
            ("--max-bytes", "max_bytes", self.max_bytes.map(whole)),
            ("--max-deletes", "max_deletes", self.max_deletes.map(whole)),
            ("--max-delete-percent", "max_delete_percent", self.max_delete_percent.map(Value::Float)),
            ("--allow-empty", "allow_empty", self.allow_empty.then_some(Value::Boolean(true))),
            ("--last-duplicate", "last_duplicate", self.last_duplicate.then_some(Value::Boolean(true))),
        ];
        given("", flags)
    }

    fn of_kind(&self) -> Vec<Given> {
        let kind = self.kind().unwrap_or_default();
        let words = self.command.iter().cloned().map(Value::String).collect::<Vec<_>>();
        let switch = |is_on: bool, value| is_on.then_some(Value::Boolean(value));
        let lists = [
            ("--list", "list", text(self.list.as_ref())),
            ("COMMAND", "run", (!words.is_empty()).then_some(Value::Array(words))),
            ("--items", "items", text(self.items.as_ref())),
            ("--format", "format", text(self.format.as_ref())),
            ("--map-key", "map_key", text(self.map_key.as_ref())),
            ("--next", "next", text(self.next.as_ref())),
            ("--next-parameter", "next_parameter", text(self.next_parameter.as_ref())),
            ("--page-parameter", "page_parameter", text(self.page_parameter.as_ref())),
            ("--first-page", "first_page", self.first_page.map(|page| whole(page.into()))),
            ("--page-end", "page_end", text(self.page_end.as_ref())),
            ("--trust-end", "trust_end", switch(self.trust_end, true)),
            ("--header-file", "header_file", path(self.header_file.as_ref())),
            ("--source-ca-file", "ca_file", path(self.source_ca_file.as_ref())),
        ];
        let others = [
            ("--files", "path", path(self.files.as_ref())),
            ("--suffix", "suffix", text(self.suffix.as_ref())),
            ("--file-key", "file_key", text(self.file_key.as_ref())),
            ("--sql", "database", text(self.sql.as_ref())),
            ("--query", "query", text(self.query.as_ref())),
            ("--since", "since", text(self.since.as_ref())),
            ("--replicate", "database", text(self.replicate.as_ref())),
            ("--table", "table", text(self.table.as_ref())),
            ("--slot", "slot", text(self.slot.as_ref())),
            ("--from-queue", "queue", text(self.from_queue.as_ref())),
            ("--from-url", "url", text(self.from_url.as_ref())),
            ("--from-token-file", "token_file", path(self.from_token_file.as_ref())),
            ("--from-known", "known", switch(self.from_known, true)),
            ("--from-prefix", "prefix", text(self.from_prefix.as_ref())),
            ("--kubernetes", "resource", text(self.kubernetes.as_ref())),
            ("--kubeconfig", "kubeconfig", path(self.kubeconfig.as_ref())),
            ("--context", "context", text(self.context.as_ref())),
            ("--label-selector", "label_selector", text(self.label_selector.as_ref())),
            ("--field-selector", "field_selector", text(self.field_selector.as_ref())),
            ("--no-watch-list", "watch_list", switch(self.no_watch_list, false)),
        ];
        let mut all = given(kind, lists);
        all.extend(given(kind, others));
        all
    }
}

fn given<const N: usize>(table: &str, flags: [(&'static str, &str, Option<Value>); N]) -> Vec<Given> {
    let given = flags
        .into_iter()
        .filter_map(|(flag, setting, value)| Some((flag, format!("{table}{setting}"), value?)));
    given.collect()
}

fn text(text: Option<&String>) -> Option<Value> {
    text.cloned().map(Value::String)
}

fn path(path: Option<&PathBuf>) -> Option<Value> {
    path.map(|path| Value::String(path.to_string_lossy().into_owned()))
}

/// A number that is too large for TOML is also too large for every setting.
fn whole(number: u64) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

fn insert(table: &mut Table, setting: &str, value: Value) {
    let Some((first, rest)) = setting.split_once('.') else {
        table.insert(setting.to_owned(), value);
        return;
    };
    let inner = table.entry(first).or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(inner) = inner {
        insert(inner, rest, value);
    }
}
