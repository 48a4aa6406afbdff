//! The settings of the process: typed, checked, and laid over each other in four layers.
//!
//! Flags beat the environment (`DELTAQ_SECTION__FIELD`), which beats the file, which beats the defaults. A name that is
//! not known is an error that tells the nearest one, and a wrong value is an error that tells the setting, the value,
//! where it came from and what is allowed: nothing that an operator wrote is ever passed over in silence.
//!
//! `config/deltaq.toml` lists every setting; a test holds it equal to the defaults here. What one queue may be configured
//! with is [`queue`].

pub mod access;
mod audit;
mod document;
mod environment;
mod layers;
pub mod queue;
mod schema;
mod server;
#[cfg(test)]
mod tests;
mod trace;

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

pub use self::access::Access;
pub use self::audit::{Audit, AuditCalls};
pub use self::document::Fault;
pub use self::environment::{is_supervised, rust_log, variables};
use self::layers::Layers;
use self::queue::QueueDefaults;
pub use self::server::Server;
pub use self::trace::Trace;

/// All settings.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The listeners and what a connection may cost.
    pub server: Server,
    /// Bounds over all queues.
    pub queues: Queues,
    /// What a queue is configured with unless it says otherwise.
    pub queue_defaults: QueueDefaults,
    /// Where queues are kept.
    pub storage: Storage,
    /// Who may do what.
    pub access: Access,
    /// What is written down of who did what.
    pub audit: Audit,
    /// What `/metrics` shows.
    pub metrics: Metrics,
    /// What is told about it all.
    pub log: Log,
    /// Where spans go.
    pub trace: Trace,
}

/// The section `[queues]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queues {
    /// Whether the first produce or pop creates its queue.
    pub auto_create: bool,
    /// Most queues.
    pub max_queues: usize,
    /// Most calls that wait at one queue.
    pub max_waiters: usize,
    /// Most objects in one produce call other than replace and seed.
    pub max_batch: usize,
    /// Most objects in one replace or seed.
    pub max_replace_objects: usize,
    /// Most bytes of objects in one reply to a pop; one key always fits.
    pub max_reply_bytes: usize,
}

/// The section `[storage]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Storage {
    /// The folder of the journal.
    pub data_dir: PathBuf,
    /// Whether there is no journal, and queues end with the process.
    pub in_memory: bool,
    /// What an answer waits for.
    pub sync: Sync,
}

/// What an answer waits for before it leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sync {
    /// The disk has it: it outlives a power loss.
    Full,
    /// The system has it: it outlives the process, but a power loss may take the last moments.
    Normal,
}

/// The section `[metrics]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// Whether anything is measured.
    pub enabled: bool,
    /// Most queues with series of their own.
    pub max_queues: usize,
}

/// The section `[log]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// How a line looks.
    pub format: LogFormat,
    /// The least important level that is written.
    pub level: LogLevel,
}

/// How a line of the log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Human on a terminal, else JSON.
    Auto,
    /// For eyes.
    Human,
    /// One JSON object a line.
    Json,
}

/// The least important level that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What someone must look at.
    Error,
    /// What may become that.
    Warn,
    /// What an operator wants to know.
    Info,
    /// What a developer wants to know.
    Debug,
    /// Everything.
    Trace,
}

/// The settings that have a flag, as far as they were given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Flags {
    /// `--listen`
    pub listen: Option<String>,
    /// `--metrics-listen`
    pub metrics_listen: Option<String>,
    /// `--data-dir`; it also switches off an `in_memory` of a lower layer.
    pub data_dir: Option<PathBuf>,
    /// `--in-memory`
    pub in_memory: bool,
    /// `--insecure`
    pub insecure: bool,
    /// `--log-format`
    pub log_format: Option<LogFormat>,
    /// `--log-level`
    pub log_level: Option<LogLevel>,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The defaults of the program.
    Default,
    /// The file of this path.
    File(PathBuf),
    /// The variable of this name.
    Environment(String),
    /// The flag of this name.
    Flag(&'static str),
    /// A request that configures a queue.
    Request,
}

/// Why there are no settings.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is not there or can't be read.
    #[error("can't read the configuration file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("the configuration file {} is not TOML at {fault}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where and why.
        fault: Fault,
    },
    /// There is no such setting.
    #[error("{name:?}, set by {origin}, is no setting; the nearest one is {nearest:?}")]
    Unknown {
        /// What was named.
        name: String,
        /// Where.
        origin: Origin,
        /// The likeliest one that exists.
        nearest: String,
    },
    /// The value has the wrong type or is out of range.
    #[error("{setting} can't be {value}, set by {origin}: allowed is {allowed}")]
    Invalid {
        /// The setting.
        setting: &'static str,
        /// What it was set to, as TOML.
        value: String,
        /// Where.
        origin: Origin,
        /// What it may be.
        allowed: String,
    },
    /// Of settings that go together, one is not there.
    #[error("{setting} is needed, since {given} is set by {origin}")]
    Incomplete {
        /// The one that is not there.
        setting: &'static str,
        /// One that is.
        given: &'static str,
        /// Where that was set.
        origin: Origin,
    },
    /// Two settings do not go together. Both are shown with value and origin.
    #[error("{left} {rule} {right}{hint}")]
    Conflict {
        /// The one that breaks the rule.
        setting: &'static str,
        /// It, with its value and where that was set.
        left: String,
        /// The rule.
        rule: &'static str,
        /// The one that it is held against.
        right: String,
        /// A way out.
        hint: &'static str,
    },
    /// The schema and the types of this program do not agree.
    #[error("the settings can't be built")]
    Build {
        /// Where they differ.
        source: toml::de::Error,
    },
    /// The defaults can't be written as TOML.
    #[error("the default settings can't be written")]
    Defaults {
        /// Why.
        source: toml::ser::Error,
    },
}

/// Lays the layers over each other and checks them: defaults, `file`, `environment`, `flags`.
///
/// Of `environment` only names with the prefix `DELTAQ_` are looked at; [`variables`] gives the process's own.
///
/// # Errors
///
/// A file that can't be read or is not TOML, a name that is not known, a value that is not allowed.
pub fn load(
    file: Option<&Path>,
    environment: impl IntoIterator<Item = (String, String)>,
    flags: &Flags,
) -> Result<Settings, Error> {
    let file = match file {
        None => None,
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|source| Error::Read { path: path.to_owned(), source })?;
            Some((path, text))
        }
    };
    layered(file.as_ref().map(|(path, text)| (*path, text.as_str())), environment, flags)
}

fn layered(
    file: Option<(&Path, &str)>,
    environment: impl IntoIterator<Item = (String, String)>,
    flags: &Flags,
) -> Result<Settings, Error> {
    let mut layers = Layers::default();
    let defaults = Table::try_from(Settings::default()).map_err(|source| Error::Defaults { source })?;
    layers.add(defaults, &Origin::Default)?;
    if let Some((path, text)) = file {
        let document =
            document::parse(text).map_err(|fault| Error::Parse { path: path.to_owned(), fault })?;
        layers.add(document, &Origin::File(path.to_owned()))?;
    }
    // Sorted, so that of several mistakes the same one is always told first.
    let mut variables: Vec<_> =
        environment.into_iter().filter(|(name, value)| environment::is_setting(name, value)).collect();
    variables.sort_unstable();
    for (name, value) in variables {
        layers.set_variable(name, &value)?;
    }
    flags.apply(&mut layers)?;
    Value::Table(layers.finish()?).try_into().map_err(|source| Error::Build { source })
}

/// The section that a queue's settings are in.
const QUEUE_SECTION: &str = "queue_defaults";

/// Checks the settings of one queue, given as a document in the words of `[queue_defaults]`, by the same
/// rules as the file's.
///
/// # Errors
///
/// A name that is not known, a value that is not allowed.
pub fn queue_settings(document: Table) -> Result<QueueDefaults, Error> {
    let mut layers = Layers::default();
    layers.set(QUEUE_SECTION, Value::Table(document), &Origin::Request)?;
    let mut sections = layers.finish()?;
    let section = sections.remove(QUEUE_SECTION).unwrap_or_else(|| Value::Table(Table::new()));
    section.try_into().map_err(|source| Error::Build { source })
}

/// Checks that the settings of a queue have this name, such as `rate_limiter.jitter`.
///
/// # Errors
///
/// [`Error::Unknown`] with the nearest one.
pub fn known_queue_setting(path: &str) -> Result<(), Error> {
    layers::check_known(&format!("{QUEUE_SECTION}.{path}"), &Origin::Request)
}

impl Flags {
    fn apply(&self, layers: &mut Layers) -> Result<(), Error> {
        let mut set = |path, flag, value| layers.set(path, value, &Origin::Flag(flag));
        if let Some(address) = &self.listen {
            set("server.listen", "--listen", Value::String(address.clone()))?;
        }
        if let Some(address) = &self.metrics_listen {
            set("server.metrics_listen", "--metrics-listen", Value::String(address.clone()))?;
        }
        if let Some(folder) = &self.data_dir {
            set("storage.data_dir", "--data-dir", Value::String(folder.to_string_lossy().into_owned()))?;
            set("storage.in_memory", "--data-dir", Value::Boolean(false))?;
        }
        if self.in_memory {
            set("storage.in_memory", "--in-memory", Value::Boolean(true))?;
        }
        if self.insecure {
            set("access.insecure", "--insecure", Value::Boolean(true))?;
        }
        if let Some(format) = self.log_format {
            set("log.format", "--log-format", Value::String(format.as_str().to_owned()))?;
        }
        if let Some(level) = self.log_level {
            set("log.level", "--log-level", Value::String(level.as_str().to_owned()))?;
        }
        Ok(())
    }
}

impl LogFormat {
    /// The name in file, environment and flag.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Human => "human",
            Self::Json => "json",
        }
    }
}

impl LogLevel {
    /// The name in file, environment and flag; also a directive of `tracing`'s filter.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("the defaults"),
            Self::File(path) => write!(f, "the file {}", path.display()),
            Self::Environment(name) => write!(f, "the environment variable {name}"),
            Self::Request => f.write_str("the request"),
            Self::Flag(name) => write!(f, "the flag {name}"),
        }
    }
}

impl Default for Queues {
    fn default() -> Self {
        Self {
            auto_create: true,
            max_queues: 10_000,
            max_waiters: 100_000,
            max_batch: 10_000,
            max_replace_objects: 10_000_000,
            max_reply_bytes: 16 << 20,
        }
    }
}

impl Default for Storage {
    fn default() -> Self {
        Self { data_dir: PathBuf::from("./deltaq-data"), in_memory: false, sync: Sync::Full }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self { enabled: true, max_queues: 2_000 }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Auto, level: LogLevel::Info }
    }
}
