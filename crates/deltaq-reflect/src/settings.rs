//! The settings of sources.

mod form;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use deltaq_types::duration::DurationText;
use deltaq_types::name::Name;
use deltaq_types::range::{self, CENTURY, DAY, MS_10, U32_MAX, WHOLE_MAX};
use serde::Deserialize;
use toml::Table;

use crate::contact::stale_after;

use self::form::{
    database, list_url, optional_path, optional_pointer, optional_slot, optional_word, page_end, pointer,
    postgres, queue_name, resource, word, words,
};

/// The default time between two lists.
const INTERVAL: DurationText = DurationText::from_secs(60);
/// The default maximum time between two whole lists.
const RELIST: DurationText = DurationText::from_secs(3_600);
/// The same default for a query whose changes are read in between. Only a list finds deleted rows.
const RELIST_SINCE: DurationText = DurationText::from_secs(600);
/// The default timeout of each request, command or query.
const TIMEOUT: DurationText = DurationText::from_secs(60);
/// The default maximum size of a reply, output or file: 256 MiB.
const BYTES_MAX: u64 = 256 << 20;
/// The longest time between two signs of life of a watch of Kubernetes without changes: a server need not send bookmarks, but the
/// watch begins anew after this time.
const WATCH_QUIET_MAX: Duration = Duration::from_mins(10);

/// All sources of a process.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reflect {
    /// The address for `/metrics`, `/livez` and `/readyz`; `None` serves none of them.
    #[serde(default, deserialize_with = "range::optional_address")]
    pub metrics_listen: Option<SocketAddr>,
    /// The sources by name. The name is the `source` of the calls.
    pub sources: BTreeMap<String, Source>,
}

/// A source, its queue, and how the source is sent.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The queue.
    #[serde(deserialize_with = "queue_name")]
    pub queue: Name,
    /// Settings of the queue, if this process creates it; `None` leaves the creation to the server.
    pub create: Option<Table>,
    /// The time between two lists of a source that can't report its changes.
    #[serde(default = "interval", deserialize_with = "range::span::<MS_10, DAY, _>")]
    pub interval: DurationText,
    /// Maximum time between two whole lists, regardless of what the source reports about its changes.
    #[serde(default, deserialize_with = "range::optional_span::<MS_10, CENTURY, _>")]
    pub relist: Option<DurationText>,
    /// Timeout of each request, command or query.
    #[serde(default = "timeout", deserialize_with = "range::span::<MS_10, DAY, _>")]
    pub timeout: DurationText,
    /// Maximum size of a reply, output or file, in bytes.
    #[serde(default = "bytes_max", deserialize_with = "range::whole::<1_024, { 16 << 30 }, _, _>")]
    pub max_bytes: u64,
    /// Maximum number of keys that one list may delete.
    #[serde(default, deserialize_with = "range::optional_whole::<0, WHOLE_MAX, _, _>")]
    pub max_deletes: Option<u64>,
    /// Maximum percentage of the source's keys that one list may delete.
    #[serde(default, deserialize_with = "range::optional_number::<100, _>")]
    pub max_delete_percent: Option<f64>,
    /// Whether an empty list may delete all keys of the source.
    #[serde(default)]
    pub allow_empty: bool,
    /// Whether the last object is kept if a list contains several with the same key.
    #[serde(default)]
    pub last_duplicate: bool,
    /// A REST API.
    #[serde(default, deserialize_with = "range::optional_table")]
    pub rest: Option<Rest>,
    /// The output of a command.
    #[serde(default, deserialize_with = "range::optional_table")]
    pub command: Option<Command>,
    /// A file or a folder.
    #[serde(default, deserialize_with = "range::optional_table")]
    pub files: Option<Files>,
    /// A query of a database.
    #[serde(default, deserialize_with = "range::optional_table")]
    pub sql: Option<Sql>,
    /// A table of PostgreSQL, with its changes.
    #[serde(default, deserialize_with = "range::optional_table")]
    pub replication: Option<Replication>,
    /// Another queue.
    #[serde(default, deserialize_with = "range::optional_table")]
    pub deltaq: Option<Deltaq>,
    /// A resource of Kubernetes.
    #[serde(default, deserialize_with = "range::optional_table")]
    pub kubernetes: Option<Kubernetes>,
}

/// The kind of a source, with its settings.
#[derive(Debug, Clone, Copy)]
pub enum Kind<'s> {
    /// A REST API.
    Rest(&'s Rest),
    /// The output of a command.
    Command(&'s Command),
    /// A file or a folder.
    Files(&'s Files),
    /// A query of a database.
    Sql(&'s Sql),
    /// A table of PostgreSQL, with its changes.
    Replication(&'s Replication),
    /// Another queue.
    Deltaq(&'s Deltaq),
    /// A resource of Kubernetes.
    Kubernetes(&'s Kubernetes),
}

/// A list behind a URL.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rest {
    /// The URL of the list.
    #[serde(deserialize_with = "list_url")]
    pub list: String,
    /// JSON pointer to the objects in the reply; empty for the whole reply.
    #[serde(default, deserialize_with = "pointer")]
    pub items: String,
    /// The form of the objects.
    #[serde(default)]
    pub format: Format,
    /// The member that is added to each object with its name, if the list is an object whose members are the objects.
    #[serde(default, deserialize_with = "optional_word")]
    pub map_key: Option<String>,
    /// JSON pointer to the cursor or URL of the next page.
    #[serde(default, deserialize_with = "optional_pointer")]
    pub next: Option<String>,
    /// The query parameter that is set to the cursor.
    #[serde(default, deserialize_with = "optional_word")]
    pub next_parameter: Option<String>,
    /// The query parameter that is set to the number of the page.
    #[serde(default, deserialize_with = "optional_word")]
    pub page_parameter: Option<String>,
    /// The number of the first page.
    #[serde(default = "one", deserialize_with = "range::whole::<0, U32_MAX, _, _>")]
    pub first_page: u32,
    /// How a list of numbered pages ends, other than by an empty page.
    #[serde(default, deserialize_with = "page_end")]
    pub page_end: Option<PageEnd>,
    /// Whether a list ends where the other settings say, even if a reply has a sign of more objects.
    #[serde(default)]
    pub trust_end: bool,
    /// A file with the headers of the requests, one per line. It is read again for each request.
    #[serde(default, deserialize_with = "optional_path")]
    pub header_file: Option<PathBuf>,
    /// Certificates of authorities (PEM) to trust instead of those of the system.
    #[serde(default, deserialize_with = "optional_path")]
    pub ca_file: Option<PathBuf>,
}

/// A command whose output is the list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Command {
    /// The program and its arguments.
    #[serde(deserialize_with = "words")]
    pub run: Vec<String>,
    /// JSON pointer to the objects in the output; empty for the whole output.
    #[serde(default, deserialize_with = "pointer")]
    pub items: String,
    /// The form of the objects.
    #[serde(default)]
    pub format: Format,
    /// The member that is added to each object with its name, if the list is an object whose members are the objects.
    #[serde(default, deserialize_with = "optional_word")]
    pub map_key: Option<String>,
}

/// A file, or the files of a folder and its subfolders.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Files {
    /// The file or the folder.
    #[serde(deserialize_with = "range::path")]
    pub path: PathBuf,
    /// The suffix of the names of the files. Other files are ignored.
    #[serde(default, deserialize_with = "optional_word")]
    pub suffix: Option<String>,
    /// The member that is set to the path of the file below the folder, without the suffix.
    #[serde(default, deserialize_with = "optional_word")]
    pub file_key: Option<String>,
    /// JSON pointer to the objects in each file; empty for the whole file.
    #[serde(default, deserialize_with = "pointer")]
    pub items: String,
    /// The form of the objects.
    #[serde(default)]
    pub format: Format,
    /// The member that is added to each object with its name, if the list is an object whose members are the objects.
    #[serde(default, deserialize_with = "optional_word")]
    pub map_key: Option<String>,
}

/// A query of a database, whose rows are the objects.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sql {
    /// `sqlite:PATH`, or the URL of a PostgreSQL database without a password.
    #[serde(deserialize_with = "database")]
    pub database: String,
    /// The query.
    #[serde(deserialize_with = "word")]
    pub query: String,
    /// A column that grows with each change of a row.
    #[serde(default, deserialize_with = "optional_word")]
    pub since: Option<String>,
}

/// A table of PostgreSQL whose changes are read from the log of the database.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replication {
    /// The URL of the database without a password.
    #[serde(deserialize_with = "postgres")]
    pub database: String,
    /// The table, with its schema or without.
    #[serde(deserialize_with = "word")]
    pub table: String,
    /// The name of the slot and of the publication, instead of one that is made from the names of the source and the queue.
    #[serde(default, deserialize_with = "optional_slot")]
    pub slot: Option<String>,
}

/// A queue of a deltaq server.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deltaq {
    /// The address of the server.
    #[serde(deserialize_with = "word")]
    pub url: String,
    /// The queue.
    #[serde(deserialize_with = "queue_name")]
    pub queue: Name,
    /// Whether the acknowledged objects are reflected instead of the newest ones.
    #[serde(default)]
    pub known: bool,
    /// Only keys that begin with this text.
    #[serde(default, deserialize_with = "optional_word")]
    pub prefix: Option<String>,
    /// The file of the token.
    #[serde(default, deserialize_with = "optional_path")]
    pub token_file: Option<PathBuf>,
    /// Certificates of authorities (PEM) to trust instead of those of the system.
    #[serde(default, deserialize_with = "optional_path")]
    pub ca_file: Option<PathBuf>,
}

/// A resource of a Kubernetes API.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kubernetes {
    /// The path of the resource, such as `/api/v1/pods`.
    #[serde(deserialize_with = "resource")]
    pub resource: String,
    /// A kubeconfig; without one the service account of the pod is used.
    #[serde(default, deserialize_with = "optional_path")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig, instead of its current one.
    #[serde(default, deserialize_with = "optional_word")]
    pub context: Option<String>,
    /// Only objects with these labels.
    #[serde(default, deserialize_with = "optional_word")]
    pub label_selector: Option<String>,
    /// Only objects with these fields.
    #[serde(default, deserialize_with = "optional_word")]
    pub field_selector: Option<String>,
    /// Whether a list is read as a watch, if the server supports this.
    #[serde(default = "yes")]
    pub watch_list: bool,
}

/// The reply after the last page of a list of numbered pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageEnd {
    /// Status 400.
    BadRequest,
    /// Status 404.
    NotFound,
    /// The last page again.
    Repeat,
}

impl PageEnd {
    /// The status that ends the list.
    #[must_use]
    pub const fn status(self) -> Option<u16> {
        match self {
            Self::BadRequest => Some(400),
            Self::NotFound => Some(404),
            Self::Repeat => None,
        }
    }
}

/// The form of a list of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// An array is JSON. For any other text, the source decides.
    #[default]
    Auto,
    /// One JSON document.
    Json,
    /// One object per line.
    Ndjson,
}

/// A violation of a rule that involves several settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The path of the setting.
    pub setting: String,
    /// What is wrong.
    pub why: String,
}

impl Reflect {
    /// Checks the rules that involve several settings.
    ///
    /// # Errors
    /// The first setting that breaks one.
    pub fn check(&self) -> Result<(), Fault> {
        if self.sources.is_empty() {
            return Err(fault("sources", "a source is required, such as [sources.erp]"));
        }
        self.sources.iter().try_for_each(|(name, source)| {
            if name.is_empty() || name.len() > SOURCE_BYTES_MAX || name.chars().any(char::is_control) {
                let why = format!(
                    "a source has a name of 1 to {SOURCE_BYTES_MAX} bytes without control characters"
                );
                return Err(fault("sources", &why));
            }
            source
                .check()
                .map_err(|fault| Fault { setting: format!("sources.{name}{}", fault.setting), ..fault })
        })
    }
}

/// Maximum length of a source's name, in bytes.
const SOURCE_BYTES_MAX: usize = 256;

impl Source {
    /// The kind of the source; `None` if no kind or several kinds are set, which [`Reflect::check`] refuses.
    #[must_use]
    pub fn kind(&self) -> Option<Kind<'_>> {
        match self.kinds().as_slice() {
            [(_, kind)] => Some(*kind),
            _ => None,
        }
    }

    /// The name of its kind, as in a file of settings.
    pub(super) fn kind_name(&self) -> &'static str {
        self.kinds().first().map_or("none", |(name, _)| name)
    }

    /// The maximum time between two whole lists, regardless of what the source reports about its changes. So objects
    /// that the queue lacks are sent again, even if nothing has noticed that they are missing.
    #[must_use]
    pub fn relist(&self) -> Duration {
        let default = if self.sql.is_some() { RELIST_SINCE } else { RELIST };
        self.relist.unwrap_or(default).get()
    }

    /// How long the source may be silent before its queue counts it as stale.
    pub(super) fn stale_after(&self) -> Duration {
        let quiet = match self.kind() {
            Some(Kind::Kubernetes(_)) => WATCH_QUIET_MAX,
            _ => Duration::ZERO,
        };
        stale_after(self.interval.get().max(quiet))
    }

    /// The kinds that are set, with the names of their settings.
    fn kinds(&self) -> Vec<(&'static str, Kind<'_>)> {
        let kinds = [
            ("rest", self.rest.as_ref().map(Kind::Rest)),
            ("command", self.command.as_ref().map(Kind::Command)),
            ("files", self.files.as_ref().map(Kind::Files)),
            ("sql", self.sql.as_ref().map(Kind::Sql)),
            ("replication", self.replication.as_ref().map(Kind::Replication)),
            ("deltaq", self.deltaq.as_ref().map(Kind::Deltaq)),
            ("kubernetes", self.kubernetes.as_ref().map(Kind::Kubernetes)),
        ];
        kinds.into_iter().filter_map(|(name, kind)| Some((name, kind?))).collect()
    }

    fn check(&self) -> Result<(), Fault> {
        match self.kinds().as_slice() {
            [_] => {}
            [] => {
                let why = "it has no kind: add one of the tables rest, command, files, sql, replication, deltaq and kubernetes";
                return Err(fault("", why));
            }
            kinds => {
                let names: Vec<_> = kinds.iter().map(|(name, _)| *name).collect();
                return Err(fault("", &format!("it has several kinds, {}; leave one", names.join(" and "))));
            }
        }
        if let Some(rest) = &self.rest {
            rest.check().map_err(|fault| Fault { setting: format!(".rest{}", fault.setting), ..fault })?;
        }
        Ok(())
    }
}

impl Rest {
    fn check(&self) -> Result<(), Fault> {
        if self.next.is_some() && self.page_parameter.is_some() {
            return Err(fault(
                ".page_parameter",
                "next is set, which is another way to find the next page; set only one of them",
            ));
        }
        if self.next_parameter.is_some() && self.next.is_none() {
            return Err(fault(
                ".next_parameter",
                "next is required with it: the pointer to the cursor in the reply",
            ));
        }
        if self.page_end.is_some() && self.page_parameter.is_none() {
            return Err(fault(
                ".page_end",
                "page_parameter is required with it: the query parameter of the number",
            ));
        }
        if self.format == Format::Ndjson
            && (!self.items.is_empty() || self.next.is_some() || self.map_key.is_some())
        {
            return Err(fault(
                ".format",
                "a reply of one object per line has no pointers; leave out items, next and map_key",
            ));
        }
        Ok(())
    }
}

fn fault(setting: &str, why: &str) -> Fault {
    Fault { setting: setting.to_owned(), why: why.to_owned() }
}

const fn interval() -> DurationText {
    INTERVAL
}

const fn timeout() -> DurationText {
    TIMEOUT
}

const fn bytes_max() -> u64 {
    BYTES_MAX
}

const fn yes() -> bool {
    true
}

const fn one() -> u32 {
    1
}
