//! The settings of a queue, as the scripts write them.

use std::collections::BTreeMap;
use std::sync::Arc;

use deltaq_engine::config::{Config, Debounce, GroupBy, GroupRules};
use deltaq_engine::object::Ignored;
use deltaq_engine::pointer::Pointer;
use deltaq_engine::rate::Rate;
use deltaq_engine::rate_limit::{ItemExponential, RateLimiter};
use deltaq_types::Mode;

use super::command::Options;
use super::duration;
use super::order::order;

/// The settings with these changes.
pub(super) fn configured(config: &Config, options: &Options) -> Config {
    let mut config = config.clone();
    let number = |name: &str| options.number(name).expect("a number");
    for (name, value) in options.iter() {
        match name {
            "mode" => {
                config.mode = match value {
                    "delta" => Mode::Delta,
                    "latest" => Mode::Latest,
                    "keys" => Mode::Keys,
                    "events" => Mode::Events,
                    other => panic!("no mode is called {other:?}"),
                }
            }
            "version" => {
                config.version = (value != "null").then(|| Pointer::parse(value, false).expect("a pointer"));
            }
            "version_ties" => {
                config.version_ties = Some(serde_json::from_str(&format!("{value:?}")).expect("a rule"));
            }
            "known_objects" => config.known_objects = value == "true",
            "emit_replaced" => config.emit_replaced = value == "true",
            "lease" => config.lease = duration::parse(value).expect("a duration"),
            "max_failures" => config.max_failures = options.number(name).expect("a number"),
            "max_keys" => config.max_keys = number(name),
            "max_object_bytes" => config.max_object_bytes = number(name),
            "max_deltas_per_key" => config.max_deltas_per_key = number(name),
            "max_bytes_per_key" => config.max_bytes_per_key = number(name),
            "max_delete_percent" => config.max_delete_percent = options.number(name),
            "max_deletes" => config.max_deletes = options.number(name),
            "backoff" => config.rate_limiter = exponential(value),
            "debounce" => config.debounce = debounce(value),
            "order" => config.order = order(value),
            "max_leased" => config.max_leased = if value == "null" { None } else { options.number(name) },
            "rate" => config.rate = rate(value, ",burst="),
            "groups" => config.groups = groups(value),
            "ignore" => {
                let pointers: Vec<String> = value.split(',').map(str::to_owned).collect();
                config.ignored = Ignored::new(&pointers).expect("pointers");
            }
            other => panic!("no setting is called {other:?}"),
        }
    }
    config
}

/// The setting in the form of scripts: `/p`, `source` or `prefix:/`, and then `max_leased=2`, `rate=0.5/3`, `acme:weight=5`, `acme:max_leased=1`
/// or `acme:rate=2/1`, or `none`.
fn groups(value: &str) -> Option<Arc<GroupRules>> {
    let mut parts = value.split(',');
    let by = match parts.next()? {
        "none" => return None,
        "source" => GroupBy::Source,
        by => match by.strip_prefix("prefix:") {
            Some(end) => GroupBy::KeyPrefix(end.into()),
            None => GroupBy::Pointer(Pointer::parse(by, false).expect("a pointer")),
        },
    };
    let mut rules = GroupRules { by, max_leased: None, rate: None, overrides: BTreeMap::new() };
    for part in parts {
        let (name, value) = part.split_once('=').expect("a value");
        let number = || value.parse().expect("a number");
        let (group, name) = name.split_once(':').unwrap_or(("", name));
        if part.contains(':') {
            let own = rules.overrides.entry(group.into()).or_default();
            match name {
                "weight" => own.weight = u32::try_from(number()).ok(),
                "rate" => own.rate = rate(value, "/"),
                _ => own.max_leased = Some(number()),
            }
        } else if name == "rate" {
            rules.rate = rate(value, "/");
        } else {
            rules.max_leased = Some(number());
        }
    }
    Some(Arc::new(rules))
}

/// A rate: keys per second, and the burst. `None` for `none`.
fn rate(value: &str, separator: &str) -> Option<Rate> {
    let (per_second, burst) = value.split_once(separator)?;
    Rate::new(per_second.parse().expect("a number"), burst.parse().expect("a number"))
}

/// The setting in the form of scripts: `2s..10s`, with `deletes=now` and `lists` after commas.
fn debounce(value: &str) -> Option<Debounce> {
    let mut parts = value.split(',');
    let (quiet, max_wait) = parts.next()?.split_once("..")?;
    let mut setting = Debounce {
        quiet: duration::parse(quiet)?,
        max_wait: Some(duration::parse(max_wait)?),
        delivers_deletes_now: false,
        debounces_lists: false,
    };
    for part in parts {
        match part {
            "deletes=now" => setting.delivers_deletes_now = true,
            "lists=true" => setting.debounces_lists = true,
            other => panic!("{other} is no part of debounce"),
        }
    }
    Some(setting)
}

fn exponential(range: &str) -> RateLimiter {
    let (base, max) = range.split_once("..").expect("a range");
    let span = |text| duration::parse(text).expect("a duration");
    RateLimiter {
        item_exponential: Some(ItemExponential { base: span(base), max: span(max) }),
        jitter: 0.0,
        ..RateLimiter::default()
    }
}
