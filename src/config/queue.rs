//! The settings of a queue in their written form: `[queue_defaults]`, and the documents of the HTTP API.

use deltaq_engine::config::{Config, Invalid};
use deltaq_types::QueueSettings;
use toml::Table;

use super::{Fault, QUEUE_SECTION};

/// Settings that are specific to each queue and therefore have no defaults in the configuration.
const OF_ONE_QUEUE: [&str; 11] = [
    "follow",
    "push",
    "hook",
    "cloudevents",
    "kubernetes",
    "owner",
    "schema",
    "prune",
    "ignore",
    "indexes",
    "diff",
];

/// Compiles the settings for the engine.
///
/// # Errors
/// The first setting that only the engine can refuse.
pub fn compile(settings: &QueueSettings) -> Result<Config, Fault> {
    let fault = |Invalid { setting, why }| Fault { setting: setting.to_owned(), is_unknown: false, why };
    Config::compile(settings).map_err(fault)
}

/// The paths of the settings in the section.
pub(super) fn paths() -> Vec<String> {
    let is_default = |name: &&&str| !OF_ONE_QUEUE.contains(&name.split('.').next().unwrap_or_default());
    let names = QueueSettings::NAMES.iter().filter(is_default);
    names.map(|name| format!("{QUEUE_SECTION}.{name}")).collect()
}

/// Refuses a name in the section that is not among its settings.
pub(super) fn check_names(section: &Table) -> Result<(), Fault> {
    let fault = |name: &str, is_unknown: bool, why: &str| Fault {
        setting: format!("{QUEUE_SECTION}.{name}"),
        is_unknown,
        why: why.to_owned(),
    };
    if let Some(name) = OF_ONE_QUEUE.into_iter().find(|name| section.contains_key(*name)) {
        return Err(fault(name, false, "each queue has its own; set it with PUT /v1/queues/{queue}"));
    }
    let given = serde_json::to_value(section).unwrap_or_default();
    match given.as_object().and_then(QueueSettings::unknown_name) {
        Some(name) => Err(fault(&name, true, "")),
        None => Ok(()),
    }
}
