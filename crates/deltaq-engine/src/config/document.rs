//! Converts between the compiled settings and their document. The journal stores the document unchanged.

use std::sync::Arc;

use deltaq_types::duration::DurationText;
use deltaq_types::range;
use deltaq_types::{
    DebouncedDeletes, DeliveryRate, DetailedKeyPart, DiffSettings, FollowedView, GroupBy, HeadStartOrder,
    KeyPart, PriorityOrder, QueueSettings, RateLimiter as LimiterSettings, SignedDuration,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::config::{AdmissionText, Config, Debounce, Follow, ModeRules, Order, OrderValue, Quiet};
use crate::group_rules::GroupRules;
use crate::index_settings::IndexSettings;
use crate::key::KeySpec;
use crate::object::{ArrayKeys, Ignored};
use crate::pointer::Pointer;
use crate::rate::Rate;
use crate::rate_limit::{ItemExponential, ItemFastSlow, RateLimiter};
use crate::schedule::HeadStart;
use crate::view::View;

/// Why settings can't be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {why}")]
pub struct Invalid {
    /// The name of the setting.
    pub setting: &'static str,
    /// What is wrong with its value.
    pub why: String,
}

impl Serialize for Config {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.document().serialize(serializer)
    }
}

/// The document is not validated again: the queue has already accepted it.
impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let document = range::stored(|| QueueSettings::deserialize(deserializer))?;
        Self::compile(&document).map_err(de::Error::custom)
    }
}

impl Config {
    /// Compiles a document. A queue in mode keys has neither versions nor Resyncs, and one in mode events no debounce, so the
    /// server's defaults for them do not apply to it.
    ///
    /// # Errors
    /// The first invalid setting that the checks of the document type do not catch.
    pub fn compile(document: &QueueSettings) -> Result<Self, Invalid> {
        let rules = ModeRules::of(document.mode);
        let has_objects = rules.has_objects;
        let part = |part: &KeyPart| match part {
            KeyPart::Required(text) => Pointer::parse(text, false),
            KeyPart::Detailed(part) => Pointer::parse(&part.pointer, part.optional),
        };
        let key = document.key.iter().map(part).collect::<Result<_, _>>().and_then(KeySpec::new);
        let version = document.version.as_deref().filter(|_| has_objects);
        let version = version.map(|text| Pointer::parse(text, false)).transpose();
        let indexes = document.indexes.iter().map(|(name, pointer)| (name.as_str(), pointer.as_str()));
        Ok(Self {
            mode: document.mode,
            key: key.map_err(invalid("key"))?,
            version: version.map_err(invalid("version"))?,
            version_ties: document.version_ties,
            known_objects: document.known_objects,
            emit_replaced: document.emit_replaced,
            lease: document.lease.get(),
            max_failures: document.max_failures,
            rate_limiter: rate_limiter(&document.rate_limiter)?,
            debounce: document
                .debounce
                .as_ref()
                .filter(|_| !rules.keeps_every_delta)
                .map(debounce)
                .transpose()?,
            order: document.order.as_ref().map(order).transpose()?,
            groups: document
                .groups
                .as_ref()
                .filter(|groups| has_objects || matches!(groups.by, GroupBy::KeyPrefix(_)))
                .map(GroupRules::compile)
                .transpose()
                .map_err(|(setting, why)| Invalid { setting, why })?,
            max_leased: document.max_leased,
            rate: document.rate.map(Rate::try_from).transpose().map_err(invalid("rate.per_second"))?,
            resync_period: document.resync_period.map(DurationText::get).filter(|_| has_objects),
            max_keys: whole(document.max_keys),
            max_object_bytes: whole(document.max_object_bytes),
            max_deltas_per_key: whole(document.max_deltas_per_key),
            max_bytes_per_key: whole(document.max_bytes_per_key),
            max_delete_percent: document.max_delete_percent,
            max_deletes: document.max_deletes,
            retention: document.retention,
            indexes: IndexSettings::new(indexes).map_err(invalid("indexes"))?,
            array_keys: ArrayKeys::new(&document.diff.array_keys).map_err(invalid("diff.array_keys"))?,
            ignored: Ignored::new(&document.ignore).map_err(invalid("ignore"))?,
            follow: document.follow.as_ref().map(|document| Arc::new(follow(document))),
            push: document.push.clone().map(Arc::new),
            hook: document.hook.clone().map(Arc::new),
            cloudevents: document.cloudevents.clone().map(Arc::new),
            kubernetes: document.kubernetes.clone().map(Arc::new),
            owner: document.owner.as_deref().map(Arc::from),
            admission: admission(document)?.map(Arc::new),
        })
    }

    /// The settings as a document.
    #[must_use]
    pub fn document(&self) -> QueueSettings {
        let prune = self.admission.as_ref().map_or(&[][..], |admission| &admission.prune);
        let index = |index: &crate::index_settings::IndexSetting| {
            (index.name.to_string(), index.pointer.text.to_string())
        };
        QueueSettings {
            mode: self.mode,
            key: self.key.pointers().iter().map(key_part).collect(),
            version: self.version.as_ref().map(|pointer| pointer.text.to_string()),
            version_ties: self.version_ties,
            known_objects: self.known_objects,
            emit_replaced: self.emit_replaced,
            lease: self.lease.into(),
            max_failures: self.max_failures,
            rate_limiter: limiter_settings(&self.rate_limiter),
            debounce: self.debounce.as_ref().map(debounce_settings),
            order: self.order.as_ref().map(order_settings),
            groups: self.groups.as_deref().map(GroupRules::document),
            max_leased: self.max_leased,
            rate: self.rate.map(DeliveryRate::from),
            resync_period: self.resync_period.map(DurationText::from),
            max_keys: self.max_keys as u64,
            max_object_bytes: self.max_object_bytes as u64,
            max_deltas_per_key: self.max_deltas_per_key as u64,
            max_bytes_per_key: self.max_bytes_per_key as u64,
            max_delete_percent: self.max_delete_percent,
            max_deletes: self.max_deletes,
            retention: self.retention,
            follow: self.follow.as_deref().map(follow_settings),
            push: self.push.as_deref().cloned(),
            hook: self.hook.as_deref().cloned(),
            cloudevents: self.cloudevents.as_deref().cloned(),
            kubernetes: self.kubernetes.as_deref().cloned(),
            owner: self.owner.as_deref().map(str::to_owned),
            schema: self.admission.as_ref().and_then(|admission| admission.schema.clone()),
            prune: prune.iter().map(|pointer| pointer.text.to_string()).collect(),
            ignore: self.ignored.texts(),
            indexes: self.indexes.iter().map(index).collect(),
            diff: DiffSettings { array_keys: self.array_keys.texts() },
        }
    }
}

fn invalid(setting: &'static str) -> impl Fn(String) -> Invalid {
    move |why| Invalid { setting, why }
}

fn whole(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn key_part(pointer: &Pointer) -> KeyPart {
    let text = pointer.text.to_string();
    if pointer.optional {
        KeyPart::Detailed(DetailedKeyPart { pointer: text, optional: true })
    } else {
        KeyPart::Required(text)
    }
}

fn rate_limiter(document: &LimiterSettings) -> Result<RateLimiter, Invalid> {
    if let Some(limiter) = document.item_exponential.filter(|limiter| limiter.base > limiter.max) {
        let why = format!("{} is longer than item_exponential.max ({})", limiter.base, limiter.max);
        return Err(Invalid { setting: "rate_limiter.item_exponential.base", why });
    }
    Ok(RateLimiter {
        item_exponential: document
            .item_exponential
            .map(|limiter| ItemExponential { base: limiter.base.get(), max: limiter.max.get() }),
        item_fast_slow: document.item_fast_slow.map(|limiter| ItemFastSlow {
            fast: limiter.fast.get(),
            slow: limiter.slow.get(),
            max_fast: limiter.max_fast,
        }),
        bucket: document.bucket,
        max_wait: document.max_wait.map(DurationText::get),
        jitter: document.jitter,
    })
}

fn debounce(document: &deltaq_types::Debounce) -> Result<Debounce, Invalid> {
    let (quiet, max_wait) = (document.quiet.get(), document.max_wait.map(DurationText::get));
    if Quiet::new(quiet, max_wait).is_none() {
        let why = format!("it is shorter than debounce.quiet ({})", document.quiet);
        return Err(Invalid { setting: "debounce.max_wait", why });
    }
    Ok(Debounce {
        quiet,
        max_wait,
        delivers_deletes_now: document.deletes == DebouncedDeletes::Now,
        debounces_lists: document.lists,
    })
}

fn debounce_settings(debounce: &Debounce) -> deltaq_types::Debounce {
    let Debounce { quiet, max_wait, delivers_deletes_now, debounces_lists } = *debounce;
    deltaq_types::Debounce {
        quiet: quiet.into(),
        max_wait: max_wait.map(DurationText::from),
        deletes: if delivers_deletes_now { DebouncedDeletes::Now } else { DebouncedDeletes::Debounced },
        lists: debounces_lists,
    }
}

fn order(document: &deltaq_types::Order) -> Result<Order, Invalid> {
    let pointer = |text: &str, setting| Pointer::parse(text, false).map_err(invalid(setting));
    let head_start = |duration: SignedDuration| HeadStart::from_micros(duration.as_us());
    let value = match (&document.head_start, &document.priority) {
        (Some(_), Some(_)) => {
            let why = "it can't be combined with order.head_start: a queue has one order".to_owned();
            return Err(Invalid { setting: "order.priority", why });
        }
        (Some(document), None) => Some(OrderValue::HeadStart {
            pointer: pointer(&document.pointer, "order.head_start.pointer")?,
            default: head_start(document.default),
        }),
        (None, Some(document)) => Some(OrderValue::Priority {
            pointer: pointer(&document.pointer, "order.priority.pointer")?,
            step: document.step.map(DurationText::get),
        }),
        (None, None) => None,
    };
    Ok(Order {
        value,
        initial_list: document.initial_list.map(head_start),
        resync: document.resync.map(head_start),
    })
}

fn order_settings(order: &Order) -> deltaq_types::Order {
    let duration = |head_start: HeadStart| SignedDuration::from_us(head_start.micros());
    let mut document = deltaq_types::Order {
        initial_list: order.initial_list.map(duration),
        resync: order.resync.map(duration),
        ..deltaq_types::Order::default()
    };
    match &order.value {
        Some(OrderValue::HeadStart { pointer, default }) => {
            let (pointer, default) = (pointer.text.to_string(), duration(*default));
            document.head_start = Some(HeadStartOrder { pointer, default });
        }
        Some(OrderValue::Priority { pointer, step }) => {
            let (pointer, step) = (pointer.text.to_string(), step.map(DurationText::from));
            document.priority = Some(PriorityOrder { pointer, step });
        }
        None => {}
    }
    document
}

fn limiter_settings(limiter: &RateLimiter) -> LimiterSettings {
    let RateLimiter { item_exponential, item_fast_slow, bucket, max_wait, jitter } = limiter;
    LimiterSettings {
        item_exponential: item_exponential.as_ref().map(|limiter| deltaq_types::ItemExponential {
            base: limiter.base.into(),
            max: limiter.max.into(),
        }),
        item_fast_slow: item_fast_slow.as_ref().map(|limiter| deltaq_types::ItemFastSlow {
            fast: limiter.fast.into(),
            slow: limiter.slow.into(),
            max_fast: limiter.max_fast,
        }),
        bucket: *bucket,
        max_wait: max_wait.map(DurationText::from),
        jitter: *jitter,
    }
}

fn follow(document: &deltaq_types::Follow) -> Follow {
    Follow {
        queue: document.queue.as_str().into(),
        view: match document.view {
            FollowedView::Latest => View::Latest,
            FollowedView::Known => View::Known,
        },
        prefix: document.prefix.as_str().into(),
        max_waiting: whole(document.max_waiting),
    }
}

fn follow_settings(follow: &Follow) -> deltaq_types::Follow {
    deltaq_types::Follow {
        queue: follow.queue.to_string(),
        view: match follow.view {
            View::Latest => FollowedView::Latest,
            View::Known => FollowedView::Known,
        },
        prefix: follow.prefix.to_string(),
        max_waiting: follow.max_waiting as u64,
    }
}

fn admission(document: &QueueSettings) -> Result<Option<AdmissionText>, Invalid> {
    let prune = document.prune.iter().map(|text| Pointer::parse(text, false)).collect::<Result<_, _>>();
    Ok(AdmissionText::new(document.schema.clone(), prune.map_err(invalid("prune"))?))
}
