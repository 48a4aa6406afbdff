//! A queue's settings on the wire: the words of `[queue_defaults]`, turned into the engine's types
//! and back.

use std::time::Duration;

use serde_json::{Map, Value};

use super::super::params;
use super::super::problem::{Code, Problem};
use super::admission::Patch;
use crate::config::queue as words;
use crate::config::queue::{DetailedKeyPart, KeyPart, QueueDefaults};
use crate::config::{self, Error};
use crate::duration;
use crate::engine::config::{Config, Mode, Retention};
use crate::engine::key::{KeySpec, Pointer};
use crate::engine::rate_limit::{Bucket, ItemExponential, ItemFastSlow, RateLimiter};

/// The document of an engine's settings.
#[must_use]
pub fn of_engine(config: &Config) -> QueueDefaults {
    let part = |pointer: &Pointer| {
        let text = pointer.text.to_string();
        if pointer.optional {
            KeyPart::Detailed(DetailedKeyPart { pointer: text, optional: true })
        } else {
            KeyPart::Required(text)
        }
    };
    let limiter = &config.rate_limiter;
    QueueDefaults {
        mode: match config.mode {
            Mode::Delta => words::Mode::Delta,
            Mode::Latest => words::Mode::Latest,
            Mode::Keys => words::Mode::Keys,
        },
        key: config.key.pointers().iter().map(part).collect(),
        known_objects: config.known_objects,
        emit_replaced: config.emit_replaced,
        lease: duration::format(config.lease),
        max_failures: config.max_failures,
        rate_limiter: words::RateLimiter {
            item_exponential: limiter.item_exponential.as_ref().map(|limiter| words::ItemExponential {
                base: duration::format(limiter.base),
                max: duration::format(limiter.max),
            }),
            item_fast_slow: limiter.item_fast_slow.as_ref().map(|limiter| words::ItemFastSlow {
                fast: duration::format(limiter.fast),
                slow: duration::format(limiter.slow),
                max_fast: limiter.max_fast,
            }),
            bucket: limiter
                .bucket
                .as_ref()
                .map(|bucket| words::Bucket { qps: bucket.qps, burst: bucket.burst }),
            max_wait: limiter.max_wait.map(duration::format),
            jitter: limiter.jitter,
        },
        resync_period: config.resync_period.map(duration::format),
        max_keys: config.max_keys,
        max_object_bytes: config.max_object_bytes,
        max_deltas_per_key: config.max_deltas_per_key,
        max_bytes_per_key: config.max_bytes_per_key,
        max_delete_percent: config.max_delete_percent,
        max_deletes: config.max_deletes,
        retention: words::Retention {
            age: config.retention.age.map(duration::format),
            bytes: config.retention.bytes,
        },
    }
}

/// The engine's settings of a document whose values have been checked by [`config`].
///
/// # Errors
/// [`Code::InvalidConfig`] for what only the engine's types refuse.
pub fn to_engine(document: &QueueDefaults) -> Result<Config, Problem> {
    let span = |field: &str, text: &str| -> Result<Duration, Problem> {
        duration::parse(text).map_err(|error| invalid(field, &error.to_string()))
    };
    let optional = |field: &str, text: &Option<String>| -> Result<Option<Duration>, Problem> {
        text.as_deref().map(|text| span(field, text)).transpose()
    };
    let pointers = document.key.iter().map(|part| match part {
        KeyPart::Required(text) => Pointer::parse(text, false),
        KeyPart::Detailed(part) => Pointer::parse(&part.pointer, part.optional),
    });
    let pointers: Result<Vec<Pointer>, String> = pointers.collect();
    let limiter = &document.rate_limiter;
    Ok(Config {
        mode: match document.mode {
            words::Mode::Delta => Mode::Delta,
            words::Mode::Latest => Mode::Latest,
            words::Mode::Keys => Mode::Keys,
        },
        key: pointers.and_then(KeySpec::new).map_err(|why| invalid("key", &why))?,
        known_objects: document.known_objects,
        emit_replaced: document.emit_replaced,
        lease: span("lease", &document.lease)?,
        max_failures: document.max_failures,
        rate_limiter: RateLimiter {
            item_exponential: match &limiter.item_exponential {
                Some(words::ItemExponential { base, max }) => {
                    let (base, max) = (span("base", base)?, span("max", max)?);
                    Some(ItemExponential { base, max })
                }
                None => None,
            },
            item_fast_slow: match &limiter.item_fast_slow {
                Some(words::ItemFastSlow { fast, slow, max_fast }) => {
                    let (fast, slow) = (span("fast", fast)?, span("slow", slow)?);
                    Some(ItemFastSlow { fast, slow, max_fast: *max_fast })
                }
                None => None,
            },
            bucket: limiter.bucket.as_ref().map(|bucket| Bucket { qps: bucket.qps, burst: bucket.burst }),
            max_wait: optional("max_wait", &limiter.max_wait)?,
            jitter: limiter.jitter,
        },
        resync_period: optional("resync_period", &document.resync_period)?
            .filter(|_| document.mode != words::Mode::Keys),
        max_keys: document.max_keys,
        max_object_bytes: document.max_object_bytes,
        max_deltas_per_key: document.max_deltas_per_key,
        max_bytes_per_key: document.max_bytes_per_key,
        max_delete_percent: document.max_delete_percent,
        max_deletes: document.max_deletes,
        retention: Retention {
            age: optional("retention.age", &document.retention.age)?,
            bytes: document.retention.bytes,
        },
        admission: None,
    })
}

/// `current` with the fields of `patch`: each replaces the whole field, null is the default.
///
/// # Errors
/// [`Code::InvalidRequest`] for an unknown field, [`Code::InvalidConfig`] for a wrong value.
pub fn patched(current: &Config, defaults: &Config, patch: &Patch) -> Result<Config, Problem> {
    let common = patched_common(current, defaults, &patch.common)?;
    let admission = patch.admission.applied(current.admission.as_deref(), &common.key)?;
    Ok(Config { admission, ..common })
}

fn patched_common(
    current: &Config,
    defaults: &Config,
    patch: &Map<String, Value>,
) -> Result<Config, Problem> {
    let mut document = table(current)?;
    let defaults = table(defaults)?;
    for (name, value) in patch {
        check_known(name, value)?;
        let value = match value {
            Value::Null => defaults.get(name).cloned(),
            value => Some(toml_of(name, value)?),
        };
        match value {
            Some(value) => document.insert(name.clone(), complete(name, value)?),
            None => document.remove(name),
        };
    }
    let checked = config::queue_settings(document).map_err(|error| problem_of(&error))?;
    if checked.mode == words::Mode::Keys && patch.get("resync_period").is_some_and(|value| !value.is_null()) {
        return Err(invalid("resync_period", "a queue of mode keys knows no objects"));
    }
    to_engine(&checked)
}

/// Refuses names that no setting has, also of members that are null, which are never looked at again.
fn check_known(path: &str, value: &Value) -> Result<(), Problem> {
    config::known_queue_setting(path).map_err(|error| problem_of(&error))?;
    let members = value.as_object().into_iter().flatten();
    members
        .filter(|_| path != "key")
        .try_for_each(|(name, value)| check_known(&format!("{path}.{name}"), value))
}

fn table(config: &Config) -> Result<toml::Table, Problem> {
    toml::Table::try_from(of_engine(config)).map_err(|error| invalid("config", &error.to_string()))
}

/// The members that a nested document may leave out, at their defaults.
fn complete(name: &str, value: toml::Value) -> Result<toml::Value, Problem> {
    let toml::Value::Table(mut given) = value else { return Ok(value) };
    let is_empty = |value: &toml::Value| value.as_table().is_some_and(toml::Table::is_empty);
    if let Some((member, _)) = given.iter().find(|(_, value)| is_empty(value)) {
        return Err(invalid(&format!("{name}.{member}"), "it is empty; null switches it off"));
    }
    if name == "rate_limiter" {
        let jitter = words::RateLimiter::default().jitter;
        given.entry("jitter").or_insert(toml::Value::Float(jitter));
    }
    Ok(toml::Value::Table(given))
}

/// A JSON value in the words of the settings file; members that are null are left out.
fn toml_of(name: &str, value: &Value) -> Result<toml::Value, Problem> {
    Ok(match value {
        Value::Null => return Err(invalid(name, "null can't stand in a list")),
        Value::Bool(value) => toml::Value::Boolean(*value),
        Value::String(text) => toml::Value::String(text.clone()),
        Value::Number(number) => match (number.as_i64().or_else(|| whole(number)), number.as_f64()) {
            (Some(whole), _) => toml::Value::Integer(whole),
            (None, Some(number)) => toml::Value::Float(number),
            _ => return Err(invalid(name, &format!("{number} is too large"))),
        },
        Value::Array(values) => {
            toml::Value::Array(values.iter().map(|value| element_of(name, value)).collect::<Result<_, _>>()?)
        }
        Value::Object(members) => {
            let set = members.iter().filter(|(_, value)| !value.is_null());
            let pairs = set.map(|(member, value)| Ok((member.clone(), toml_of(name, value)?)));
            toml::Value::Table(pairs.collect::<Result<_, Problem>>()?)
        }
    })
}

/// A whole number that is written as a fraction, such as 5.0, which JSON does not tell from 5.
fn whole(number: &serde_json::Number) -> Option<i64> {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    let number = number.as_f64().filter(|number| number.fract() == 0.0 && number.abs() <= EXACT_MAX)?;
    #[expect(clippy::cast_possible_truncation, reason = "a whole number of at most 2^53")]
    Some(number as i64)
}

/// An element of a list, in which nothing is null.
fn element_of(name: &str, value: &Value) -> Result<toml::Value, Problem> {
    match value.as_object().and_then(|members| members.iter().find(|(_, value)| value.is_null())) {
        Some((member, _)) => Err(invalid(name, &format!("{member} can't be null"))),
        None => toml_of(name, value),
    }
}

fn problem_of(error: &Error) -> Problem {
    let plain = |path: &str| path.strip_prefix("queue_defaults.").unwrap_or(path).to_owned();
    match error {
        Error::Unknown { name, nearest, .. } => {
            let (name, near) = (plain(name), plain(nearest));
            if name.strip_prefix(&near).is_some_and(|rest| rest.starts_with('.')) {
                return invalid(&near, "can't be an object");
            }
            // One that stands in the wrong place is meant, however far off it is.
            let last = |path: &str| path.rsplit('.').next().map(str::to_owned);
            let is_misplaced = last(&name) == last(&near);
            let near =
                if is_misplaced { Some(&*near) } else { params::nearest(&name, &["schema", "prune", &near]) };
            let hint = match near {
                Some(near) => format!("did you mean {near:?}?"),
                None => "a GET of a queue shows all that there are".to_owned(),
            };
            let detail = format!("unknown field {name:?}; {hint}");
            Problem::new(Code::InvalidRequest, detail).with("field", name)
        }
        Error::Invalid { setting, value, allowed, .. } => {
            invalid(&plain(setting), &format!("can't be {value}; allowed is {allowed}"))
        }
        Error::Incomplete { setting, given, .. } => {
            invalid(&plain(setting), &format!("is needed where {} is given", plain(given)))
        }
        Error::Conflict { setting, left, rule, right, hint } => {
            let shown = |text: &str| text.replace("queue_defaults.", "").replace(" (the request)", "");
            let detail = format!("{} {rule} {}{hint}", shown(left), shown(right));
            Problem::new(Code::InvalidConfig, detail).with("field", plain(setting))
        }
        other => Problem::new(Code::InvalidConfig, other.to_string().replace("queue_defaults.", "")),
    }
}

pub(super) fn invalid(field: &str, why: &str) -> Problem {
    Problem::new(Code::InvalidConfig, format!("{field}: {why}")).with("field", field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_and_the_settings_have_the_same_defaults() {
        assert_eq!(
            to_engine(&QueueDefaults::default()).expect("the defaults are allowed"),
            Config::default()
        );
        assert_eq!(to_engine(&of_engine(&Config::default())).expect("what was written"), Config::default());
    }
}
