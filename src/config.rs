//! The settings of the process.
//!
//! There are four layers: flags override the environment (`DELTAQ_SECTION__FIELD`), which overrides the file, which
//! overrides the defaults. Three defaults are lower where the process may use little memory. An unknown name or an invalid value in any layer is an error at startup. The error names
//! the setting, the layer and the remedy.
//!
//! The structs are the only list of settings: serde refuses unknown names (for queues, `QueueSettings` does), and the
//! range of a setting is an attribute of its field. `config/deltaq.toml` contains the default and the description of
//! each setting. A test checks that it names every field of the structs.

pub mod access;
mod cluster;
mod environment;
mod layers;
mod memory;
pub mod queue;
mod range;
pub mod reflect;
mod sections;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use deltaq_types::QueueSettings;
use deltaq_types::range::shown_url;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Value;

pub use self::access::Access;
pub use self::cluster::Cluster;
pub use self::environment::{client_token, client_url, is_supervised, permits_colors, rust_log, variables};
use self::layers::{Layers, UNSET};
pub use self::memory::available as available_memory;
pub use self::sections::{
    Audit, AuditCalls, Console, Hooks, Kubernetes, Log, LogFormat, LogLevel, Metrics, Push, Queues,
    SecretFile, Server, Storage, Sync, Trace, Watch,
};

/// The section with the default settings of queues.
const QUEUE_SECTION: &str = "queue_defaults";

/// Reads settings from a document that must have all required members and no unknown members.
///
/// Every layer is converted to JSON first, because the code that reads a struct is large and is compiled once per
/// format.
///
/// # Errors
/// The first member that is missing or unknown, or whose value is out of range.
pub fn from_document<T: DeserializeOwned>(document: serde_json::Value) -> Result<T, Fault> {
    serde_path_to_error::deserialize(document)
        .map_err(|error| Fault::new(error.path(), &error.inner().to_string()))
}

/// All settings.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Listeners, timeouts, and the limits of connections and requests.
    pub server: Server,
    /// Limits across all queues.
    pub queues: Queues,
    /// The settings of a queue that its own settings do not override.
    pub queue_defaults: QueueSettings,
    /// The change feeds of the queues.
    pub watch: Watch,
    /// The journal.
    pub storage: Storage,
    /// This server as one of several nodes on a database.
    pub cluster: Cluster,
    /// What queues may push, and to where.
    pub push: Push,
    /// Webhooks that queues take.
    pub hooks: Hooks,
    /// Tokens.
    pub access: Access,
    /// The audit log.
    pub audit: Audit,
    /// Metrics.
    pub metrics: Metrics,
    /// The console.
    pub console: Console,
    /// The Kubernetes API.
    pub kubernetes: Kubernetes,
    /// The log.
    pub log: Log,
    /// Spans for a tracing system.
    pub trace: Trace,
    /// The memory from which default limits were derived, in bytes. It is not a setting.
    #[serde(skip)]
    pub memory_bytes: Option<u64>,
}

/// The settings that flags of `deltaq serve` set.
#[derive(Debug, Clone, PartialEq, Eq, Default, clap::Args)]
pub struct Flags {
    /// Address of the API, such as localhost:7070, or :7070 for all IPv4 addresses [default: 127.0.0.1:7070]; port 0
    /// picks a free port.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// Address of /metrics [default: 127.0.0.1:7071]; "" serves it on the API's listener.
    #[arg(long, value_name = "ADDRESS")]
    pub metrics_listen: Option<String>,
    /// Directory of the journal [default: ./deltaq-data].
    #[arg(long, value_name = "DIR", conflicts_with = "in_memory")]
    pub data_dir: Option<PathBuf>,
    /// PostgreSQL database of the journal, instead of a directory, such as postgres://user@host/database; PGPASSWORD or ~/.pgpass
    /// has the password.
    #[arg(long, value_name = "URL", conflicts_with_all = ["in_memory", "data_dir"])]
    pub store: Option<String>,
    /// Name of this node, if several nodes share the database; the name must be unique.
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,
    /// URL at which the other nodes reach this node, such as <http://10.0.0.1:7070>; port 0 means that of --listen.
    #[arg(long, value_name = "URL")]
    pub advertise: Option<String>,
    /// Keep no journal: all queues are lost when the process ends.
    #[arg(long)]
    pub in_memory: bool,
    /// Listen without tokens on any address: every client that reaches the server may do everything.
    #[arg(long)]
    pub insecure: bool,
    /// Format of the log [default: auto, human on a terminal, else JSON].
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
    /// The least severe level that is logged [default: info]; `RUST_LOG` overrides it.
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<LogLevel>,
}

/// The layer that has set a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The defaults.
    Default,
    /// The file of this path.
    File(PathBuf),
    /// The environment variable of this name.
    Environment(String),
    /// The flag of this name.
    Flag(&'static str),
    /// The memory of the process, in bytes, which is too small for the default.
    Memory(u64),
}

/// What is wrong with the value of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The path of the setting.
    pub setting: String,
    /// Whether no setting has this path.
    pub is_unknown: bool,
    /// What is wrong, such as "invalid value: integer `0`, expected a whole number from 1 to 100".
    pub why: String,
}

/// Why the settings can't be loaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is missing or unreadable.
    #[error("can't read the configuration file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("the configuration file {} is not TOML: line {line}: {why}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
        /// What is wrong, without any text of the file.
        why: String,
    },
    /// No setting has this name.
    #[error("unknown setting `{name}`{origin}; {}", remedy(nearest.as_deref()))]
    Unknown {
        /// The unknown name.
        name: String,
        /// The layer that contains the name.
        origin: Origin,
        /// A similar name that exists.
        nearest: Option<String>,
    },
    /// A setting has a wrong type, is out of range, or breaks a rule.
    #[error("invalid setting `{setting}`{origin}: {why}")]
    Invalid {
        /// The setting.
        setting: String,
        /// The layer that has set it.
        origin: Origin,
        /// What is wrong, and what is allowed.
        why: String,
    },
    /// The defaults are not valid TOML. A test ensures that this does not happen.
    #[error("the default settings are not TOML")]
    Defaults {
        /// Why.
        source: toml::de::Error,
    },
}

/// Loads the layers and checks them: defaults, `file`, `environment`, `flags`. [`variables`] gives the environment of
/// the process. Limits that no layer sets are low enough for `memory`, in bytes ([`available_memory`]).
///
/// # Errors
///
/// A file that can't be read or is not TOML, an unknown name, an invalid value.
pub fn load(
    file: Option<&Path>,
    environment: impl IntoIterator<Item = (String, String)>,
    flags: &Flags,
    memory: Option<u64>,
) -> Result<Settings, Error> {
    let text = file.map(read).transpose()?;
    layered(file.zip(text.as_deref()), environment, flags, memory)
}

/// All settings in effect, ordered by path: the path, the value in TOML, and the layer that has set it. The layers
/// are checked as in [`load`].
///
/// # Errors
///
/// The same as [`load`].
pub fn effective(
    file: Option<&Path>,
    environment: impl IntoIterator<Item = (String, String)>,
    flags: &Flags,
    memory: Option<u64>,
) -> Result<Vec<(String, Value, Origin)>, Error> {
    let text = file.map(read).transpose()?;
    let layers = merged(file.zip(text.as_deref()), environment, flags, memory)?;
    let effective = layers.effective();
    layers.finish()?;
    // The URL of the database has been checked: it has no password.
    let shown = |path: &str, value| match value {
        Value::String(text) if text.contains("://") && path != "storage.store" => {
            Value::String(shown_url(&text))
        }
        value => value,
    };
    let shown =
        effective.into_iter().map(|(path, value, origin)| (path.clone(), shown(&path, value), origin));
    Ok(shown.collect())
}

fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })
}

fn layered(
    file: Option<(&Path, &str)>,
    environment: impl IntoIterator<Item = (String, String)>,
    flags: &Flags,
    memory: Option<u64>,
) -> Result<Settings, Error> {
    let layers = merged(file, environment, flags, memory)?;
    let tokens_from = layers.origin("access.tokens");
    let mut settings = Settings { memory_bytes: memory, ..layers.finish()? };
    if let Origin::File(path) = tokens_from {
        settings.access.settings_file = Some(path);
    }
    Ok(settings)
}

fn merged(
    file: Option<(&Path, &str)>,
    environment: impl IntoIterator<Item = (String, String)>,
    flags: &Flags,
    memory: Option<u64>,
) -> Result<Layers, Error> {
    let mut layers = Layers::new()?;
    if let Some((path, text)) = file {
        let document = access::table(text);
        let document = document.map_err(|(line, why)| Error::Parse { path: path.to_owned(), line, why })?;
        layers.add(document, &Origin::File(path.to_owned()));
    }
    // Sorted by name, so that the same error is always reported first.
    let mut variables: Vec<_> = environment.into_iter().collect();
    variables.sort_unstable();
    let mut settings = Vec::new();
    for (name, value) in variables {
        if let Some(path) = environment::setting_of(&name) {
            layers.set_variable(&name, &path, &value)?;
        } else if name.starts_with(environment::PREFIX) {
            if settings.is_empty() {
                settings = layers::all_settings("");
            }
            if let Some(path) = environment::mistaken_setting(&name, &settings) {
                let nearest = Some(environment::variable_name(&path));
                return Err(Error::Unknown {
                    name: name.clone(),
                    nearest,
                    origin: Origin::Environment(name),
                });
            }
        }
    }
    flags.apply(&mut layers);
    if let Some(bytes) = memory {
        memory::limit(&mut layers, bytes);
    }
    Ok(layers)
}

/// The queue setting whose name is most similar to `name`, such as `rate_limiter.jitter`.
#[must_use]
pub fn nearest_queue_setting(name: &str) -> Option<String> {
    layers::nearest(name, QueueSettings::NAMES.iter().copied())
}

fn remedy(nearest: Option<&str>) -> String {
    match nearest {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => "config/deltaq.toml lists all settings".to_owned(),
    }
}

impl Default for Settings {
    /// The settings of `config/deltaq.toml`.
    #[expect(clippy::expect_used, reason = "the text is a constant, and a test loads it")]
    fn default() -> Self {
        Layers::new().and_then(Layers::finish).expect("the defaults are valid")
    }
}

impl Flags {
    fn apply(&self, layers: &mut Layers) {
        let text = |text: &str| Value::String(text.to_owned());
        let data_dir = self.data_dir.as_ref().map(|directory| directory.to_string_lossy());
        let switch = |on: bool| on.then_some(Value::Boolean(true));
        for (path, flag, value) in [
            ("server.listen", "--listen", self.listen.as_deref().map(text)),
            ("server.metrics_listen", "--metrics-listen", self.metrics_listen.as_deref().map(text)),
            // A flag that sets the location of the journal also overrides the other locations in lower layers.
            ("storage.in_memory", "--data-dir", data_dir.as_ref().map(|_| Value::Boolean(false))),
            ("storage.store", "--data-dir", data_dir.as_ref().map(|_| text(UNSET))),
            ("storage.data_dir", "--data-dir", data_dir.as_deref().map(text)),
            ("storage.in_memory", "--store", self.store.as_ref().map(|_| Value::Boolean(false))),
            ("storage.store", "--store", self.store.as_deref().map(text)),
            ("storage.store", "--in-memory", self.in_memory.then(|| text(UNSET))),
            ("storage.in_memory", "--in-memory", switch(self.in_memory)),
            ("cluster.node_name", "--node-name", self.node_name.as_deref().map(text)),
            ("cluster.advertise", "--advertise", self.advertise.as_deref().map(text)),
            ("access.insecure", "--insecure", switch(self.insecure)),
            ("log.format", "--log-format", name_of(self.log_format)),
            ("log.level", "--log-level", name_of(self.log_level)),
        ] {
            if let Some(value) = value {
                layers.set(path, value, &Origin::Flag(flag));
            }
        }
    }
}

fn name_of(value: Option<impl ValueEnum>) -> Option<Value> {
    Some(Value::String(value?.to_possible_value()?.get_name().to_owned()))
}

/// The text that follows the name of a setting in an error.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => Ok(()),
            Self::File(path) => write!(f, " in {}", path.display()),
            Self::Environment(name) => write!(f, " in the environment variable {name}"),
            Self::Flag(name) => write!(f, " of the flag {name}"),
            Self::Memory(bytes) => write!(f, " for {} MiB of memory", bytes >> 20),
        }
    }
}
