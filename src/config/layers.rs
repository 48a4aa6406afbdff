//! The layers of the settings, merged into one TOML document that remembers where each value came from.

use std::collections::BTreeMap;

use serde_path_to_error::{Path, Segment};
use toml::{Table, Value};

use super::{Error, Fault, Origin, QUEUE_SECTION, Settings, environment, queue};

/// The file that lists all settings.
const DEFAULTS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/config/deltaq.toml"));
/// The value that removes an optional setting of a lower layer, because TOML has no null.
pub(super) const UNSET: &str = "unset";
/// A name that no setting has.
const NOT_A_NAME: &str = "?";
/// Minimum similarity of two names, from 0 to 1, for a suggestion.
const SIMILAR: f64 = 0.5;
/// Maximum number of characters of a value or name that an error repeats.
const SHOWN_CHARS_MAX: usize = 200;
/// Maximum length of a name in `[access]` that an error repeats. A longer name may be a misplaced token.
const NAME_BYTES_MAX: usize = 32;

/// The merged document.
#[derive(Debug, Default)]
pub(super) struct Layers {
    merged: Table,
    /// The origin of each setting, by path. A table that a layer has added as a whole has one entry.
    origins: BTreeMap<String, Origin>,
}

/// The file with the defaults as values. As installed it sets nothing: a limit that it set would not follow the memory of the machine.
pub(super) fn defaults() -> String {
    let value = |line: &'static str| {
        line.strip_prefix('#')
            .filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()))
            .unwrap_or(line)
    };
    DEFAULTS.lines().map(value).collect::<Vec<_>>().join("\n")
}

impl Layers {
    /// Creates the lowest layer, the defaults.
    pub(super) fn new() -> Result<Self, Error> {
        let merged = defaults().parse().map_err(|source| Error::Defaults { source })?;
        Ok(Self { merged, origins: BTreeMap::new() })
    }

    /// Merges a layer on top.
    pub(super) fn add(&mut self, layer: Table, origin: &Origin) {
        merge(&mut self.merged, &mut self.origins, "", layer, origin);
    }

    /// Sets one setting.
    pub(super) fn set(&mut self, path: &str, value: Value, origin: &Origin) {
        let layer = path.rsplit('.').fold(value, |inner, name| {
            let mut table = Table::new();
            table.insert(name.to_owned(), inner);
            Value::Table(table)
        });
        if let Value::Table(layer) = layer {
            self.add(layer, origin);
        }
    }

    /// Lowers a whole number that no layer has set, if it is above `most`.
    pub(super) fn lower_default(&mut self, path: &str, most: u64, origin: &Origin) {
        let default = path.split('.').try_fold(None::<&Value>, |value, name| {
            let table = value.map_or(Some(&self.merged), Value::as_table)?;
            table.get(name).map(Some)
        });
        let default = default.flatten().and_then(Value::as_integer);
        let lower = i64::try_from(most).ok().filter(|most| default.is_some_and(|default| *most < default));
        if let Some(most) = lower.filter(|_| self.origin(path) == Origin::Default) {
            self.set(path, Value::Integer(most), origin);
        }
    }

    /// Applies an environment variable. If the setting is a text, the value is the text itself; otherwise it is a
    /// TOML value.
    pub(super) fn set_variable(&mut self, name: &str, path: &str, text: &str) -> Result<(), Error> {
        let as_text = || Value::String(text.to_owned());
        let value = match text.trim().parse() {
            Ok(value) if !takes(path, as_text())? => value,
            _ => as_text(),
        };
        self.set(path, value, &Origin::Environment(name.to_owned()));
        Ok(())
    }

    /// Converts the document to settings, after all layers have been added.
    pub(super) fn finish(self) -> Result<Settings, Error> {
        let settings = self.build().map_err(|fault| self.error(fault))?;
        settings.check().map_err(|fault| self.error(fault))?;
        Ok(settings)
    }

    /// Each setting that has a value, ordered by path, with the layer that has set it.
    pub(super) fn effective(&self) -> Vec<(String, Value, Origin)> {
        let mut settings = Vec::new();
        self.list("", &self.merged, &mut settings);
        settings
    }

    fn list(&self, parent: &str, table: &Table, settings: &mut Vec<(String, Value, Origin)>) {
        for (name, value) in table {
            let path = join(parent, name);
            match value {
                Value::Table(inner) => self.list(&path, inner, settings),
                value => settings.push((path.clone(), value.clone(), self.origin(&path))),
            }
        }
    }

    fn build(&self) -> Result<Settings, Fault> {
        if let Some(section) = self.merged.get(QUEUE_SECTION).and_then(Value::as_table) {
            let checked = queue::check_names(section);
            checked.map_err(|fault| Fault { setting: shortened(&fault.setting), ..fault })?;
        }
        super::from_document(json(Value::Table(self.merged.clone())))
    }

    fn error(&self, fault: Fault) -> Error {
        let origin = self.origin(&fault.setting);
        let Fault { setting, is_unknown, why } = fault;
        if !is_unknown {
            return Error::Invalid { setting, origin, why };
        }
        let nearest = nearest(&setting, all_settings("").iter().map(String::as_str));
        match &origin {
            Origin::Environment(variable) => Error::Unknown {
                name: variable.clone(),
                nearest: nearest.map(|path| environment::variable_name(&path)),
                origin,
            },
            _ => Error::Unknown { name: setting, nearest, origin },
        }
    }

    /// The layer that has set this setting, or one of its members.
    pub(super) fn origin(&self, path: &str) -> Origin {
        let mut prefix = path;
        loop {
            if let Some(origin) = self.origins.get(prefix) {
                return origin.clone();
            }
            let Some((parent, _)) = prefix.rsplit_once('.') else { break };
            prefix = parent;
        }
        let members = self.origins.range(format!("{path}.")..);
        let member = members.take_while(|(name, _)| name.starts_with(path)).next();
        member.map_or(Origin::Default, |(_, origin)| origin.clone())
    }
}

fn merge(
    into: &mut Table,
    origins: &mut BTreeMap<String, Origin>,
    parent: &str,
    layer: Table,
    origin: &Origin,
) {
    for (name, value) in layer {
        let path = join(parent, &name);
        match (into.get_mut(&name), value) {
            (Some(Value::Table(inner)), Value::Table(value)) => merge(inner, origins, &path, value, origin),
            (_, value) => {
                origins.insert(path, origin.clone());
                if value.as_str() == Some(UNSET) {
                    into.remove(&name);
                } else {
                    into.insert(name, value);
                }
            }
        }
    }
}

/// Converts a value to JSON. A value that JSON can't represent, such as a date or `nan`, becomes text, so that the
/// error of its setting shows it.
pub(super) fn json(value: Value) -> serde_json::Value {
    match value {
        Value::String(text) => text.into(),
        Value::Integer(number) => number.into(),
        Value::Float(number) if number.is_finite() => number.into(),
        Value::Float(number) => number.to_string().into(),
        Value::Boolean(flag) => flag.into(),
        Value::Datetime(date) => date.to_string().into(),
        Value::Array(values) => values.into_iter().map(json).collect(),
        Value::Table(table) => table.into_iter().map(|(name, value)| (name, json(value))).collect(),
    }
}

/// Whether the setting accepts this value.
fn takes(path: &str, value: Value) -> Result<bool, Error> {
    let mut layers = Layers::new()?;
    layers.set(path, value, &Origin::Default);
    Ok(layers.build().err().is_none_or(|fault| !is_within(&fault.setting, path)))
}

fn is_within(path: &str, table: &str) -> bool {
    path.strip_prefix(table).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn join(parent: &str, name: &str) -> String {
    if parent.is_empty() { name.to_owned() } else { format!("{parent}.{name}") }
}

/// The paths of all settings and tables below `table`; an empty path is the whole document.
///
/// serde lists the valid names of a table when it refuses a name, so the structs are the only list of settings. Queue
/// settings provide their own list of names.
pub(super) fn all_settings(table: &str) -> Vec<String> {
    if table == QUEUE_SECTION {
        return queue::paths();
    }
    if is_within(table, QUEUE_SECTION) {
        return Vec::new();
    }
    let probe = join(table, NOT_A_NAME);
    let Ok(mut layers) = Layers::new() else { return Vec::new() };
    layers.set(&probe, Value::Boolean(true), &Origin::Default);
    let Err(fault) = layers.build() else { return Vec::new() };
    if fault.setting != probe {
        return Vec::new();
    }
    let Some((_, names)) = fault.why.rsplit_once("expected ") else { return Vec::new() };
    let names = names.split('`').skip(1).step_by(2);
    names
        .flat_map(|name| {
            let path = join(table, name);
            let inner = all_settings(&path);
            std::iter::once(path).chain(inner)
        })
        .collect()
}

/// The most similar name. Compares the whole path and also the last part, to find a setting in the wrong section.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    let last = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
    let score = |known: &str| {
        let whole = strsim::normalized_damerau_levenshtein(name, known);
        let part = strsim::normalized_damerau_levenshtein(&last(name), &last(known));
        whole.max(0.6f64.mul_add(part, 0.4 * whole))
    };
    let scored = known.map(|known| (score(known), known));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(score, _)| *score >= SIMILAR)?;
    Some(best.1.to_owned())
}

impl Fault {
    /// Creates a fault from a deserializer's message about the value at `path`.
    pub(super) fn new(path: &Path, message: &str) -> Self {
        let mut setting = String::new();
        let mut is_inside_value = false;
        for segment in path {
            // An entry of a list or a variant is part of the setting's value.
            let Segment::Map { key } = segment else {
                is_inside_value = true;
                break;
            };
            setting = join(&setting, &shortened(key));
        }
        let is_secret = is_within(&setting, "access");
        if is_secret {
            setting = setting.split('.').map(without_secret).collect::<Vec<_>>().join(".");
        }
        if let Some(field) = missing_field(message).filter(|_| !is_inside_value) {
            let setting = join(&setting, field);
            return Self { setting, is_unknown: false, why: "a value is required".to_owned() };
        }
        let is_unknown = message.starts_with("unknown field") && !is_inside_value;
        let why = if is_secret || has_url_with_secret(message) {
            without_value(message)
        } else {
            shortened(message)
        };
        let why = why.replace("expected a boolean", "expected true or false");
        Self { setting, is_unknown, why }
    }
}

/// Whether the value in a message is a URL that may have a password or a key.
fn has_url_with_secret(message: &str) -> bool {
    let value = message.rsplit_once(", expected ").map_or(message, |(value, _)| value);
    value.contains("://") && value.contains(['@', '?'])
}

fn missing_field(message: &str) -> Option<&str> {
    message.strip_prefix("missing field `")?.strip_suffix('`')
}

/// Removes the value, which may be a secret, from a message.
pub(super) fn without_value(message: &str) -> String {
    match message.rsplit_once(", expected ") {
        Some((found, expected)) if found.starts_with("unknown field") => {
            format!("unknown field, expected {expected}")
        }
        Some((_, expected)) => format!("expected {expected}"),
        None if missing_field(message).is_some() => message.to_owned(),
        None => "the value has the wrong form".to_owned(),
    }
}

fn without_secret(name: &str) -> String {
    let is_harmless = name.len() <= NAME_BYTES_MAX && !name.starts_with("dq_");
    if is_harmless { name.to_owned() } else { format!("({} bytes)", name.len()) }
}

/// Truncates a long value in the middle of a message.
fn shortened(message: &str) -> String {
    let (value, expected) = match message.rfind(", expected ") {
        Some(at) => message.split_at(at),
        None => (message, ""),
    };
    match value.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((cut, _)) => format!("{}...{expected}", value.split_at(cut).0),
        None => message.to_owned(),
    }
}

impl Settings {
    /// The rules between settings.
    fn check(&self) -> Result<(), Fault> {
        let fault =
            |setting: &str, why: String| Err(Fault { setting: setting.to_owned(), is_unknown: false, why });
        let server = &self.server;
        if server.metrics_listen == Some(server.listen) && server.listen.port() != 0 {
            let why = "the same as server.listen; leave it empty (\"\") to serve /metrics there";
            return fault("server.metrics_listen", why.to_owned());
        }
        for (name, other) in
            [("server.listen", Some(server.listen)), ("server.metrics_listen", server.metrics_listen)]
        {
            if server.http2_listen == other && other.is_some_and(|other| other.port() != 0) {
                let why = format!("the same as {name}; leave it empty (\"\") to serve no HTTP/2");
                return fault("server.http2_listen", why);
            }
        }
        let (cert, key) = (&server.tls_cert, &server.tls_key);
        for (name, file, needed_by, needs) in [
            ("server.tls_key", key, "server.tls_cert", cert),
            ("server.tls_cert", cert, "server.tls_key", key),
            ("server.tls_cert", cert, "server.tls_client_ca", &server.tls_client_ca),
        ] {
            if needs.is_some() && file.is_none() {
                return fault(needed_by, format!("{name} is required with it"));
            }
        }
        if self.storage.in_memory && self.storage.store.is_some() {
            let why = "storage.in_memory is true, so there is no journal; set only one of the two";
            return fault("storage.store", why.to_owned());
        }
        self.cluster.check(&self.storage, server)?;
        let (delay, timeout) = (server.drain_delay, server.shutdown_timeout);
        if delay.as_us() > 0 && delay >= timeout {
            let why = format!("{delay} is not shorter than server.shutdown_timeout ({timeout})");
            return fault("server.drain_delay", why);
        }
        let compiled = queue::compile(&self.queue_defaults).map(drop);
        compiled.map_err(|fault| Fault { setting: join(QUEUE_SECTION, &fault.setting), ..fault })
    }
}
