//! The settings of a queue as JSON.

use std::sync::Arc;
use std::time::Duration;

use crate::config::{AdmissionText, Config, Follow, Mode, Retention};
use crate::index_settings::{IndexSetting, IndexSettings};
use crate::key::{KeySpec, Pointer};
use crate::omit::is_default;
use crate::rate_limit::{Bucket, ItemExponential, ItemFastSlow, RateLimiter};
use crate::time::whole_us;
use crate::view::View;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::value::RawValue;

use crate::json::{Float, Text};

/// Mirrors [`Config`].
#[derive(Debug, Serialize, Deserialize)]
struct WireConfig<'a> {
    #[serde(with = "ModeWord")]
    mode: Mode,
    #[serde(borrow)]
    key: Vec<WirePointer<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    version: Option<Text<'a>>,
    known_objects: bool,
    emit_replaced: bool,
    lease_us: u64,
    max_failures: u32,
    rate_limiter: WireRateLimiter,
    #[serde(skip_serializing_if = "Option::is_none")]
    resync_period_us: Option<u64>,
    max_keys: usize,
    max_object_bytes: usize,
    max_deltas_per_key: usize,
    max_bytes_per_key: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_delete_percent: Option<Float>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_deletes: Option<u64>,
    retention: WireRetention,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    follow: Option<WireFollow<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    schema: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    prune: Vec<Text<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    indexes: Vec<WireIndex<'a>>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Mode", rename_all = "snake_case")]
enum ModeWord {
    Delta,
    Latest,
    Keys,
    Events,
}

#[derive(Debug, Serialize, Deserialize)]
struct WirePointer<'a> {
    #[serde(borrow)]
    pointer: Text<'a>,
    #[serde(default, skip_serializing_if = "is_default")]
    optional: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct WireIndex<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    pointer: Text<'a>,
}

#[derive(Debug, Serialize, Deserialize)]
struct WireFollow<'a> {
    #[serde(borrow)]
    queue: Text<'a>,
    view: View,
    #[serde(borrow)]
    prefix: Text<'a>,
    max_waiting: usize,
}

#[derive(Debug, Serialize, Deserialize)]
struct WireRateLimiter {
    #[serde(skip_serializing_if = "Option::is_none")]
    item_exponential: Option<WireItemExponential>,
    #[serde(skip_serializing_if = "Option::is_none")]
    item_fast_slow: Option<WireItemFastSlow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bucket: Option<WireBucket>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_wait_us: Option<u64>,
    jitter: Float,
}

#[derive(Debug, Serialize, Deserialize)]
struct WireItemExponential {
    base_us: u64,
    max_us: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct WireItemFastSlow {
    fast_us: u64,
    slow_us: u64,
    max_fast: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct WireBucket {
    qps: Float,
    burst: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct WireRetention {
    #[serde(skip_serializing_if = "Option::is_none")]
    age_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

impl Serialize for Config {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        WireConfig::of(self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        WireConfig::deserialize(deserializer)?.read().map_err(de::Error::custom)
    }
}

impl<'a> WireConfig<'a> {
    fn of(config: &'a Config) -> Self {
        let part = |pointer: &'a Pointer| WirePointer {
            pointer: Text::of(&pointer.text),
            optional: pointer.optional,
        };
        let pointer = |pointer: &'a Pointer| Text::of(&pointer.text);
        let index = |index: &'a IndexSetting| WireIndex {
            name: Text::of(&index.name),
            pointer: Text::of(&index.pointer.text),
        };
        let admission = config.admission.as_deref();
        Self {
            mode: config.mode,
            key: config.key.pointers().iter().map(part).collect(),
            version: config.version.as_ref().map(pointer),
            known_objects: config.known_objects,
            emit_replaced: config.emit_replaced,
            lease_us: whole_us(config.lease),
            max_failures: config.max_failures,
            rate_limiter: WireRateLimiter::of(&config.rate_limiter),
            resync_period_us: config.resync_period.map(whole_us),
            max_keys: config.max_keys,
            max_object_bytes: config.max_object_bytes,
            max_deltas_per_key: config.max_deltas_per_key,
            max_bytes_per_key: config.max_bytes_per_key,
            max_delete_percent: config.max_delete_percent.map(Float),
            max_deletes: config.max_deletes,
            retention: WireRetention {
                age_us: config.retention.age.map(whole_us),
                bytes: config.retention.bytes,
            },
            follow: config.follow.as_deref().map(WireFollow::of),
            schema: admission.and_then(|admission| admission.schema.as_deref()),
            prune: admission.map_or(&[][..], |admission| &admission.prune).iter().map(pointer).collect(),
            indexes: config.indexes.iter().map(index).collect(),
        }
    }

    fn read(&self) -> Result<Config, String> {
        let part = |part: &WirePointer<'_>| Pointer::parse(part.pointer.as_str(), part.optional);
        let key = self.key.iter().map(part).collect::<Result<_, _>>().and_then(KeySpec::new)?;
        let version = self.version.as_ref().map(|text| Pointer::parse(text.as_str(), false)).transpose()?;
        let admission = self.admission()?;
        let indexes = self.indexes.iter().map(|index| (index.name.as_str(), index.pointer.as_str()));
        Ok(Config {
            mode: self.mode,
            key,
            version,
            known_objects: self.known_objects,
            emit_replaced: self.emit_replaced,
            lease: Duration::from_micros(self.lease_us),
            max_failures: self.max_failures,
            rate_limiter: self.rate_limiter.read(),
            resync_period: self.resync_period_us.map(Duration::from_micros),
            max_keys: self.max_keys,
            max_object_bytes: self.max_object_bytes,
            max_deltas_per_key: self.max_deltas_per_key,
            max_bytes_per_key: self.max_bytes_per_key,
            max_delete_percent: self.max_delete_percent.map(|percent| percent.0),
            max_deletes: self.max_deletes,
            retention: Retention {
                age: self.retention.age_us.map(Duration::from_micros),
                bytes: self.retention.bytes,
            },
            indexes: IndexSettings::new(indexes)?,
            follow: self.follow.as_ref().map(|follow| Arc::new(follow.read())),
            admission,
        })
    }

    fn admission(&self) -> Result<Option<Arc<AdmissionText>>, String> {
        let schema = self.schema.map(|schema| Arc::from(schema.to_owned()));
        let prune = self.prune.iter().map(|text| Pointer::parse(text.as_str(), false));
        let prune = prune.collect::<Result<Vec<_>, _>>()?;
        Ok(AdmissionText::new(schema, prune).map(Arc::new))
    }
}

impl<'a> WireFollow<'a> {
    fn of(follow: &'a Follow) -> Self {
        let Follow { queue, view, prefix, max_waiting } = follow;
        Self { queue: Text::of(queue), view: *view, prefix: Text::of(prefix), max_waiting: *max_waiting }
    }

    fn read(&self) -> Follow {
        let Self { queue, view, prefix, max_waiting } = self;
        Follow {
            queue: queue.as_str().into(),
            view: *view,
            prefix: prefix.as_str().into(),
            max_waiting: *max_waiting,
        }
    }
}

impl WireRateLimiter {
    fn of(limiter: &RateLimiter) -> Self {
        let exponential = |limiter: &ItemExponential| WireItemExponential {
            base_us: whole_us(limiter.base),
            max_us: whole_us(limiter.max),
        };
        let fast_slow = |limiter: &ItemFastSlow| WireItemFastSlow {
            fast_us: whole_us(limiter.fast),
            slow_us: whole_us(limiter.slow),
            max_fast: limiter.max_fast,
        };
        let bucket = |bucket: &Bucket| WireBucket { qps: Float(bucket.qps), burst: bucket.burst };
        Self {
            item_exponential: limiter.item_exponential.as_ref().map(exponential),
            item_fast_slow: limiter.item_fast_slow.as_ref().map(fast_slow),
            bucket: limiter.bucket.as_ref().map(bucket),
            max_wait_us: limiter.max_wait.map(whole_us),
            jitter: Float(limiter.jitter),
        }
    }

    fn read(&self) -> RateLimiter {
        let exponential = |limiter: &WireItemExponential| ItemExponential {
            base: Duration::from_micros(limiter.base_us),
            max: Duration::from_micros(limiter.max_us),
        };
        let fast_slow = |limiter: &WireItemFastSlow| ItemFastSlow {
            fast: Duration::from_micros(limiter.fast_us),
            slow: Duration::from_micros(limiter.slow_us),
            max_fast: limiter.max_fast,
        };
        let bucket = |bucket: &WireBucket| Bucket { qps: bucket.qps.0, burst: bucket.burst };
        RateLimiter {
            item_exponential: self.item_exponential.as_ref().map(exponential),
            item_fast_slow: self.item_fast_slow.as_ref().map(fast_slow),
            bucket: self.bucket.as_ref().map(bucket),
            max_wait: self.max_wait_us.map(Duration::from_micros),
            jitter: self.jitter.0,
        }
    }
}
