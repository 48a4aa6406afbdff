//! Conversions between the settings in the API and those of the engine, and the merge patch of a PUT.

use std::collections::BTreeMap;
use std::time::Duration;

use deltaq_engine::config::{AdmissionText, Config, Mode, Retention};
use deltaq_engine::excerpt::{Excerpt, shortened};
use deltaq_engine::index_settings::IndexSettings;
use deltaq_engine::key::{KeySpec, Pointer};
use deltaq_engine::rate_limit::{Bucket, ItemExponential, ItemFastSlow, RateLimiter};
use deltaq_runtime::clock::whole_us;
use deltaq_types::duration::DurationText;
use deltaq_types::{DetailedKeyPart, KeyPart, QueueConfig, RawObject};
use serde_json::{Map, Value};

use super::super::params;
use super::super::problem::{Code, Problem};
use super::admission::Patch;
use super::follow;
use crate::config::Fault;
use crate::config::queue as words;
use crate::config::queue::QueueDefaults;

/// The name of the setting that only a PUT has.
const INDEXES: &str = "indexes";

/// The settings of a queue.
#[must_use]
pub fn settings(config: &Config) -> QueueConfig {
    let admission = config.admission.as_deref();
    let prune = admission.map_or(&[][..], |admission| &admission.prune);
    QueueConfig {
        schema: admission.and_then(AdmissionText::schema_text).map(RawObject::from_valid),
        prune: prune.iter().map(|pointer| pointer.text.to_string()).collect(),
        follow: config.follow.as_deref().map(follow::document),
        ..of_engine(config)
    }
}

/// The settings in the API, without schema and prune.
fn of_engine(config: &Config) -> QueueConfig {
    let part = |pointer: &Pointer| {
        let text = pointer.text.to_string();
        if pointer.optional {
            KeyPart::Detailed(DetailedKeyPart { pointer: text, optional: true })
        } else {
            KeyPart::Required(text)
        }
    };
    QueueConfig {
        mode: match config.mode {
            Mode::Delta => deltaq_types::Mode::Delta,
            Mode::Latest => deltaq_types::Mode::Latest,
            Mode::Keys => deltaq_types::Mode::Keys,
            Mode::Events => deltaq_types::Mode::Events,
        },
        key: config.key.pointers().iter().map(part).collect(),
        version: config.version.as_ref().map(|pointer| pointer.text.to_string()),
        known_objects: config.known_objects,
        emit_replaced: config.emit_replaced,
        lease: text(config.lease),
        max_failures: config.max_failures.into(),
        rate_limiter: rate_limiter(&config.rate_limiter),
        resync_period: config.resync_period.map(text),
        max_keys: config.max_keys as u64,
        max_object_bytes: config.max_object_bytes as u64,
        max_deltas_per_key: config.max_deltas_per_key as u64,
        max_bytes_per_key: config.max_bytes_per_key as u64,
        max_delete_percent: config.max_delete_percent,
        max_deletes: config.max_deletes,
        retention: deltaq_types::Retention {
            age: config.retention.age.map(text),
            bytes: config.retention.bytes,
        },
        follow: None,
        schema: None,
        prune: Vec::new(),
        indexes: indexes_of(&config.indexes),
    }
}

fn indexes_of(settings: &IndexSettings) -> BTreeMap<String, String> {
    settings.iter().map(|index| (index.name.to_string(), index.pointer.text.to_string())).collect()
}

fn rate_limiter(limiter: &RateLimiter) -> deltaq_types::RateLimiter {
    let RateLimiter { item_exponential, item_fast_slow, bucket, max_wait, jitter } = limiter;
    deltaq_types::RateLimiter {
        item_exponential: item_exponential.as_ref().map(|limiter| deltaq_types::ItemExponential {
            base: text(limiter.base),
            max: text(limiter.max),
        }),
        item_fast_slow: item_fast_slow.as_ref().map(|limiter| deltaq_types::ItemFastSlow {
            fast: text(limiter.fast),
            slow: text(limiter.slow),
            max_fast: limiter.max_fast.into(),
        }),
        bucket: bucket
            .as_ref()
            .map(|bucket| deltaq_types::Bucket { qps: bucket.qps, burst: bucket.burst.into() }),
        max_wait: max_wait.map(text),
        jitter: *jitter,
    }
}

fn text(duration: Duration) -> DurationText {
    DurationText::from_us(whole_us(duration))
}

/// The settings of the engine.
///
/// # Errors
/// [`Code::InvalidConfig`] for a value that only the types of the engine refuse.
pub fn to_engine(document: &QueueDefaults) -> Result<Config, Problem> {
    let pointers = document.key.iter().map(|part| match part {
        words::KeyPart::Required(text) => Pointer::parse(text, false),
        words::KeyPart::Detailed(part) => Pointer::parse(&part.pointer, part.optional),
    });
    let pointers: Result<Vec<Pointer>, String> = pointers.collect();
    let version = document.version.as_deref().filter(|_| document.mode != words::Mode::Keys);
    let version = version.map(|text| Pointer::parse(text, false)).transpose();
    let limiter = &document.rate_limiter;
    Ok(Config {
        mode: match document.mode {
            words::Mode::Delta => Mode::Delta,
            words::Mode::Latest => Mode::Latest,
            words::Mode::Keys => Mode::Keys,
            words::Mode::Events => Mode::Events,
        },
        key: pointers.and_then(KeySpec::new).map_err(|why| Problem::invalid_setting("key", &why))?,
        version: version.map_err(|why| Problem::invalid_setting("version", &why))?,
        known_objects: document.known_objects,
        emit_replaced: document.emit_replaced,
        lease: document.lease.get(),
        max_failures: document.max_failures,
        rate_limiter: RateLimiter {
            item_exponential: limiter
                .item_exponential
                .as_ref()
                .map(|limiter| ItemExponential { base: limiter.base.get(), max: limiter.max.get() }),
            item_fast_slow: limiter.item_fast_slow.as_ref().map(|limiter| ItemFastSlow {
                fast: limiter.fast.get(),
                slow: limiter.slow.get(),
                max_fast: limiter.max_fast,
            }),
            bucket: limiter.bucket.as_ref().map(|bucket| Bucket { qps: bucket.qps, burst: bucket.burst }),
            max_wait: limiter.max_wait.map(DurationText::get),
            jitter: limiter.jitter,
        },
        resync_period: document
            .resync_period
            .map(DurationText::get)
            .filter(|_| document.mode != words::Mode::Keys),
        max_keys: document.max_keys,
        max_object_bytes: document.max_object_bytes,
        max_deltas_per_key: document.max_deltas_per_key,
        max_bytes_per_key: document.max_bytes_per_key,
        max_delete_percent: document.max_delete_percent,
        max_deletes: document.max_deletes,
        retention: Retention {
            age: document.retention.age.map(DurationText::get),
            bytes: document.retention.bytes,
        },
        indexes: IndexSettings::default(),
        follow: None,
        admission: None,
    })
}

/// `current` with the fields of `patch`. Each replaces the whole field; null restores the default. So a rate limiter that `patch` does
/// not name is off: the wait is the longest of all limiters, and one of earlier settings would stay in effect unnoticed.
///
/// # Errors
/// [`Code::InvalidRequest`] for an unknown field, [`Code::InvalidConfig`] for a wrong value.
pub fn patched(current: &Config, defaults: &Config, patch: &Patch) -> Result<Config, Problem> {
    let common = patched_common(current, defaults, &patch.common)?;
    let (key, version) = (&common.key, common.version.as_ref());
    let admission = patch.admission.applied(current.admission.as_ref(), key, version)?;
    let follow = patch.follow.applied(current.follow.as_ref());
    let mut config = Config { follow, admission, ..common };
    // A follower has no versions, so the default for all queues does not concern the follower.
    let names_none = patch.common.get("version").is_none_or(Value::is_null);
    if config.follow.is_some() && names_none && config.version == defaults.version {
        config.version = None;
    }
    follow::check(&config)?;
    Ok(config)
}

fn patched_common(
    current: &Config,
    defaults: &Config,
    patch: &Map<String, Value>,
) -> Result<Config, Problem> {
    let (mut document, defaults) = (members(current), members(defaults));
    for (name, value) in patch.iter().filter(|(name, _)| *name != INDEXES) {
        let value =
            if value.is_null() { defaults.get(name).cloned().unwrap_or_default() } else { value.clone() };
        document.insert(name.clone(), value);
    }
    let document = QueueDefaults::from_json(document.into()).map_err(problem_of)?;
    if document.mode == words::Mode::Keys {
        let is_set = |name: &str| patch.get(name).is_some_and(|value| !value.is_null());
        if is_set("resync_period") {
            return Err(Problem::invalid_setting(
                "resync_period",
                "a queue of mode keys has no known objects",
            ));
        }
        if is_set("version") {
            return Err(Problem::invalid_setting("version", "a queue of mode keys has no objects"));
        }
    }
    let indexes = patch.get(INDEXES).map_or_else(|| Ok(current.indexes.clone()), read_indexes)?;
    let config = Config { indexes, ..to_engine(&document)? };
    let has_known_objects = config.known_objects && config.rules().has_objects;
    if !config.indexes.is_empty() && !has_known_objects {
        let why =
            "indexes cover known objects, and this queue stores none (mode keys, or known_objects false)";
        return Err(Problem::invalid_setting(INDEXES, why));
    }
    Ok(config)
}

/// The setting `indexes` in a PUT.
fn read_indexes(value: &Value) -> Result<IndexSettings, Problem> {
    let named = match value {
        Value::Null => Some(Vec::new()),
        Value::Object(members) => {
            members.iter().map(|(name, pointer)| Some((name.as_str(), pointer.as_str()?))).collect()
        }
        _ => None,
    };
    let why =
        "it must be an object of names and JSON pointers, such as {\"by_city\":\"/city\"}, or null for none";
    let settings = IndexSettings::new(named.ok_or_else(|| Problem::invalid_setting(INDEXES, why))?);
    settings.map_err(|why| Problem::invalid_setting(INDEXES, &why))
}

fn members(config: &Config) -> Map<String, Value> {
    match serde_json::to_value(of_engine(config)) {
        Ok(Value::Object(mut members)) => {
            // The settings file has neither of them.
            members.remove("prune");
            members.remove(INDEXES);
            members
        }
        _ => Map::new(),
    }
}

fn problem_of(Fault { setting, is_unknown, why }: Fault) -> Problem {
    if !is_unknown {
        return Problem::invalid_setting(&setting, &shortened(&why));
    }
    let nearest = ["schema", "prune", INDEXES, "follow"]
        .into_iter()
        .find(|name| params::nearest(&setting, &[name]).is_some());
    let hint = match nearest.map(str::to_owned).or_else(|| words::nearest_setting(&setting)) {
        Some(nearest) => format!("did you mean {nearest:?}?"),
        None => "a GET of a queue shows all settings".to_owned(),
    };
    Problem::new(Code::InvalidRequest, format!("unknown field {}", Excerpt(&setting)))
        .hint(hint)
        .with("field", setting)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_engine_and_the_settings_have_the_same_defaults() {
        assert_eq!(
            to_engine(&crate::config::Settings::default().queue_defaults).expect("the defaults are allowed"),
            Config::default()
        );
    }

    #[test]
    fn the_wire_and_the_settings_have_the_same_form() {
        let limiter = RateLimiter {
            item_fast_slow: Some(ItemFastSlow { fast: SECOND, slow: SECOND, max_fast: 3 }),
            bucket: Some(Bucket { qps: 0.5, burst: 2 }),
            max_wait: Some(SECOND),
            ..RateLimiter::default()
        };
        let config = Config {
            rate_limiter: limiter,
            resync_period: Some(SECOND),
            max_delete_percent: Some(1.0),
            max_deletes: Some(5),
            version: Some(Pointer::parse("/meta/updated_at", false).expect("a pointer")),
            retention: Retention { age: Some(SECOND), bytes: Some(7) },
            ..Config::default()
        };
        for config in [Config::default(), config] {
            let wire = Value::from(members(&config));
            let settings = QueueDefaults::from_json(wire.clone()).expect("they have the same form");
            assert_eq!(serde_json::to_value(&settings).expect("it can be written"), wire);
            assert_eq!(to_engine(&settings).expect("they are allowed"), config);
        }
    }
}
