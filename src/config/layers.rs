//! The layers laid over each other: every value is checked when it is set, where its origin is still known.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::schema::{self, Kind, SETTINGS, Setting, UNSET};
use super::{Error, Origin, environment};
use crate::duration;

/// Longest name that is told although there is no such setting; longer ones are hardly mistyped.
const NAME_BYTES_MAX: usize = 32;

/// The values so far, by path, with the layer that each comes from.
///
/// Invariant: every path is a setting of the schema that is no table, and its value one that it accepts.
#[derive(Debug, Default)]
pub(super) struct Layers {
    values: BTreeMap<&'static str, (Value, Origin)>,
}

impl Layers {
    /// Lays a whole document over what there is.
    pub(super) fn add(&mut self, document: Table, origin: &Origin) -> Result<(), Error> {
        document.into_iter().try_for_each(|(section, value)| self.set(&section, value, origin))
    }

    /// Sets a setting, or the settings of a table, by path.
    pub(super) fn set(&mut self, path: &str, value: Value, origin: &Origin) -> Result<(), Error> {
        let Some(setting) = schema::find(path) else { return Err(unknown(path, origin)) };
        // A request has null for it.
        if setting.optional && value.as_str() == Some(UNSET) && *origin != Origin::Request {
            self.values.retain(|known, _| *known != setting.path && !setting.contains(known));
            return Ok(());
        }
        if !setting.kind.accepts(&value) {
            let is_json = *origin == Origin::Request;
            return Err(Error::Invalid {
                setting: setting.path,
                value: setting.shown(&value, is_json),
                origin: origin.clone(),
                allowed: setting.allowed(is_json),
            });
        }
        match value {
            Value::Table(table) if matches!(setting.kind, Kind::Table) => table
                .into_iter()
                .try_for_each(|(name, value)| self.set(&format!("{path}.{name}"), value, origin)),
            value => {
                self.values.insert(setting.path, (value, origin.clone()));
                Ok(())
            }
        }
    }

    /// Sets what a variable of the environment names.
    pub(super) fn set_variable(&mut self, name: String, text: &str) -> Result<(), Error> {
        let setting = SETTINGS.iter().find(|setting| environment::variable_name(setting.path) == name);
        let origin = Origin::Environment(name);
        let Some(setting) = setting else { return Err(unknown("", &origin)) };
        self.set(setting.path, environment::value(setting.kind, text), &origin)
    }

    /// The rules between settings, then all as one document.
    pub(super) fn finish(self) -> Result<Table, Error> {
        self.check_complete()?;
        self.check_listeners()?;
        self.check_tls()?;
        self.check_drain()?;
        self.check_backoff()?;
        let mut document = Table::new();
        for (path, (value, _)) in self.values {
            insert(&mut document, path, value);
        }
        Ok(document)
    }

    /// A table that may be unset is there as a whole or not at all.
    fn check_complete(&self) -> Result<(), Error> {
        let tables =
            SETTINGS.iter().filter(|setting| setting.optional && matches!(setting.kind, Kind::Table));
        for table in tables {
            let Some((given, (_, origin))) = self.values.iter().find(|(path, _)| table.contains(path)) else {
                continue;
            };
            let missing = |setting: &&Setting| {
                table.contains(setting.path) && !setting.optional && !self.has(setting.path)
            };
            if let Some(missing) = SETTINGS.iter().find(missing) {
                return Err(Error::Incomplete { setting: missing.path, given, origin: origin.clone() });
            }
        }
        Ok(())
    }

    fn check_listeners(&self) -> Result<(), Error> {
        let (listen, metrics) = ("server.listen", "server.metrics_listen");
        if self.text(listen) == self.text(metrics)
            && self.text(listen).is_some_and(|text| !text.ends_with(":0"))
        {
            return Err(self.conflict(
                metrics,
                "must differ from",
                listen,
                "; leave it empty (\"\") to serve both there",
            ));
        }
        Ok(())
    }

    /// Certificate and key go together, and who asks callers for certificates has one.
    fn check_tls(&self) -> Result<(), Error> {
        let (cert, key) = ("server.tls_cert", "server.tls_key");
        for (given, missing) in [(cert, key), (key, cert), ("server.tls_client_ca", cert)] {
            if let Some((_, origin)) = self.values.get(given).filter(|_| !self.has(missing)) {
                return Err(Error::Incomplete { setting: missing, given, origin: origin.clone() });
            }
        }
        Ok(())
    }

    /// What is cut before it begins to end drops requests.
    fn check_drain(&self) -> Result<(), Error> {
        let (delay, timeout) = ("server.drain_delay", "server.shutdown_timeout");
        let us = |path| self.text(path).and_then(|text| duration::parse_us(text).ok());
        if us(delay).is_some_and(|delay| delay > 0) && us(delay) >= us(timeout) {
            return Err(self.conflict(delay, "must be below", timeout, ""));
        }
        Ok(())
    }

    fn check_backoff(&self) -> Result<(), Error> {
        let (base, max) = (
            "queue_defaults.rate_limiter.item_exponential.base",
            "queue_defaults.rate_limiter.item_exponential.max",
        );
        let us = |path| self.text(path).and_then(|text| duration::parse_us(text).ok());
        if us(base) > us(max) {
            return Err(self.conflict(base, "must not be above", max, ""));
        }
        Ok(())
    }

    fn conflict(
        &self,
        left: &'static str,
        rule: &'static str,
        right: &'static str,
        hint: &'static str,
    ) -> Error {
        let show = |path| self.values.get(path).map(|(value, origin)| format!("{path} = {value} ({origin})"));
        Error::Conflict {
            setting: left,
            left: show(left).unwrap_or_default(),
            rule,
            right: show(right).unwrap_or_default(),
            hint,
        }
    }

    fn has(&self, path: &str) -> bool {
        self.values.contains_key(path)
    }

    fn text(&self, path: &str) -> Option<&str> {
        self.values.get(path).and_then(|(value, _)| value.as_str())
    }
}

/// Checks that there is a setting or table of this path.
pub(super) fn check_known(path: &str, origin: &Origin) -> Result<(), Error> {
    schema::find(path).map_or_else(|| Err(unknown(path, origin)), |_| Ok(()))
}

fn unknown(path: &str, origin: &Origin) -> Error {
    let (name, nearest) = match origin {
        Origin::Environment(variable) => {
            let names = SETTINGS.iter().filter(|setting| !matches!(setting.kind, Kind::Table));
            (
                variable.clone(),
                nearest(variable, names.map(|setting| environment::variable_name(setting.path))),
            )
        }
        Origin::Request => {
            (path.to_owned(), nearest(path, SETTINGS.iter().map(|setting| setting.path.to_owned())))
        }
        _ => (without_secrets(path), nearest(path, SETTINGS.iter().map(|setting| setting.path.to_owned()))),
    };
    Error::Unknown { name, origin: origin.clone(), nearest }
}

/// A path as it may be told: a token that stands where a name should is left out.
fn without_secrets(path: &str) -> String {
    let told = |name: &str| {
        let is_harmless = name.len() <= NAME_BYTES_MAX && !name.starts_with("dq_");
        if is_harmless { name.to_owned() } else { format!("({} bytes)", name.len()) }
    };
    path.split('.').map(told).collect::<Vec<_>>().join(".")
}

/// The likeliest of the names: by the whole path, or by its last part for one that stands in the wrong section.
fn nearest(name: &str, known: impl Iterator<Item = String>) -> String {
    let last = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
    let score = |known: &str| {
        let whole = strsim::normalized_damerau_levenshtein(name, known);
        let part = strsim::normalized_damerau_levenshtein(&last(name), &last(known));
        whole.max(0.5f64.mul_add(part, 0.4 * whole))
    };
    known.max_by(|a, b| score(a).total_cmp(&score(b))).unwrap_or_default()
}

/// Puts a value at its place, with the tables on the way.
fn insert(table: &mut Table, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            table.insert(path.to_owned(), value);
        }
        Some((first, rest)) => {
            let inner = table.entry(first).or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}
