//! The settings of a case.

use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::config::{Config, Debounce, GroupBy, GroupOverride, GroupRules, Order, OrderValue};
use deltaq_engine::object::Ignored;
use deltaq_engine::pointer::Pointer;
use deltaq_engine::rate::Rate;
use deltaq_engine::rate_limit::{ItemExponential, ItemFastSlow, RateLimiter};
use deltaq_engine::schedule::HeadStart;
use deltaq_types::{Bucket, FollowedView, Kubernetes, Mode, VersionTies};
use fastrand::Rng;

use super::super::indexes;
use crate::model::Micros;

/// The settings of a case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) mode: Mode,
    pub(crate) auto_created: bool,
    pub(crate) known_objects: bool,
    pub(crate) emit_replaced: bool,
    pub(crate) lease: Micros,
    pub(crate) max_failures: u32,
    /// 0 none, 1 exponential, 2 fast and slow, 3 both, 4 both with a maximum, 5 a bucket and jitter.
    pub(crate) limiter: u8,
    /// The quiet time, the longest wait, whether a Delete is delivered at once, and whether lists are debounced.
    pub(crate) debounce: Option<(Micros, Option<Micros>, bool, bool)>,
    /// The number of the settings of the order.
    pub(crate) order: u8,
    /// The number of the settings of the limits.
    pub(crate) limits: u8,
    /// The number of the settings of the groups.
    pub(crate) groups: u8,
    pub(crate) resync_period: Option<Micros>,
    pub(crate) max_keys: usize,
    pub(crate) max_object_bytes: usize,
    pub(crate) max_deltas_per_key: usize,
    pub(crate) max_bytes_per_key: usize,
    pub(crate) max_delete_percent: Option<u32>,
    pub(crate) max_deletes: Option<u64>,
    /// The number of the settings of indexes.
    pub(crate) indexes: u8,
    /// Whether the objects have a version.
    pub(crate) version: bool,
    /// Whether an object with the version of the newest state is applied if it differs.
    pub(crate) ties: bool,
    /// Whether a change of the member `v` alone is no change.
    pub(crate) ignores_v: bool,
    /// The view that clients of Kubernetes read: 0 none, 1 latest, 2 known.
    pub(crate) kubernetes: u8,
}

impl Setup {
    pub(crate) fn config(&self) -> Arc<Config> {
        let exponential =
            ItemExponential { base: Duration::from_micros(100), max: Duration::from_micros(1_500) };
        let fast_slow =
            ItemFastSlow { fast: Duration::from_micros(150), slow: Duration::from_millis(1), max_fast: 2 };
        let rate_limiter = RateLimiter {
            item_exponential: matches!(self.limiter, 1 | 3..=5).then_some(exponential),
            item_fast_slow: matches!(self.limiter, 2..=4).then_some(fast_slow),
            bucket: (self.limiter == 5).then_some(Bucket { qps: 1_000.0, burst: 3 }),
            max_wait: (self.limiter == 4).then_some(Duration::from_micros(700)),
            jitter: if self.limiter == 5 { 0.5 } else { 0.0 },
        };
        let v = ["/v".to_owned()];
        Arc::new(Config {
            mode: self.mode,
            known_objects: self.known_objects,
            emit_replaced: self.emit_replaced,
            lease: Duration::from_micros(self.lease),
            max_failures: self.max_failures,
            rate_limiter,
            debounce: self.debounce.filter(|_| self.mode != Mode::Events).map(|setting| {
                let (quiet, max_wait, delivers_deletes_now, debounces_lists) = setting;
                let (quiet, max_wait) = (Duration::from_micros(quiet), max_wait.map(Duration::from_micros));
                Debounce { quiet, max_wait, delivers_deletes_now, debounces_lists }
            }),
            order: order(self.order),
            max_leased: limits(self.limits).0,
            rate: limits(self.limits).1,
            groups: groups(self.groups),
            resync_period: self.resync_period.map(Duration::from_micros),
            max_keys: self.max_keys,
            max_object_bytes: self.max_object_bytes,
            max_deltas_per_key: self.max_deltas_per_key,
            max_bytes_per_key: self.max_bytes_per_key,
            max_delete_percent: self.max_delete_percent.map(f64::from),
            max_deletes: self.max_deletes,
            indexes: indexes::settings(self.indexes),
            version: (self.version && self.mode != Mode::Keys).then(|| pointer("/v")),
            version_ties: self.ties.then_some(VersionTies::Apply),
            ignored: Ignored::new(if self.ignores_v && self.mode != Mode::Keys { &v } else { &[] })
                .expect("a pointer"),
            kubernetes: kubernetes(self.kubernetes),
            ..Config::default()
        })
    }

    pub(crate) fn random(rng: &mut Rng, mode: Mode) -> Self {
        let mut debounces = Rng::with_seed(!rng.get_seed());
        let mut chosen = Rng::with_seed(rng.get_seed().rotate_left(16));
        Self {
            mode,
            auto_created: rng.bool(),
            known_objects: rng.u8(..4) > 0,
            emit_replaced: rng.u8(..4) > 0,
            lease: if rng.bool() { rng.u64(300..2_000) } else { rng.u64(2_000..20_000) },
            max_failures: rng.u32(0..4),
            limiter: rng.u8(0..6),
            debounce: (debounces.u8(..5) == 0).then(|| {
                let quiet = debounces.u64(1..1_500);
                // No wait at all turns off the default for all queues.
                let quiet = if quiet < 100 { 0 } else { quiet };
                (
                    quiet,
                    debounces.bool().then(|| quiet + debounces.u64(..3_000)),
                    debounces.bool(),
                    debounces.bool(),
                )
            }),
            order: if debounces.bool() { 0 } else { debounces.u8(..ORDERS) },
            limits: if chosen.bool() { 0 } else { chosen.u8(..LIMITS) },
            groups: if chosen.bool() { 0 } else { chosen.u8(..GROUPS) },
            resync_period: (rng.u8(..4) == 0).then(|| rng.u64(500..5_000)),
            max_keys: if rng.u8(..3) == 0 { rng.usize(3..8) } else { 1_000 },
            max_object_bytes: if rng.u8(..8) == 0 { 30 } else { 1_000 },
            max_deltas_per_key: rng.usize(2..6),
            max_bytes_per_key: if rng.u8(..3) == 0 { rng.usize(10..120) } else { 10_000 },
            max_delete_percent: (rng.u8(..8) == 0).then(|| rng.u32(..80)),
            max_deletes: (rng.u8(..8) == 0).then(|| rng.u64(..4)),
            indexes: rng.u8(..4),
            version: rng.u8(..3) == 0,
            ties: chosen.bool(),
            ignores_v: debounces.u8(..4) == 0,
            kubernetes: chosen.u8(..KUBERNETES),
        }
    }
}

/// Number of different settings `kubernetes` that scripts choose from.
pub(super) const KUBERNETES: u8 = 3;

fn kubernetes(number: u8) -> Option<Arc<Kubernetes>> {
    let view =
        [FollowedView::Latest, FollowedView::Known].get(usize::from(number.checked_sub(1)?)).copied()?;
    let [group, version, kind, plural] = ["shop.example", "v1", "Price", "prices"].map(str::to_owned);
    Some(Arc::new(Kubernetes { group, version, kind, plural, view }))
}

/// Number of settings of the order.
pub(super) const ORDERS: u8 = 5;

fn order(number: u8) -> Option<Order> {
    let micros = HeadStart::from_micros;
    let priority = |step| Some(OrderValue::Priority { pointer: pointer("/v"), step });
    let value = match number {
        0 => return None,
        1 => priority(Some(Duration::from_micros(300))),
        2 => priority(None),
        3 => Some(OrderValue::HeadStart { pointer: pointer("/none"), default: micros(700) }),
        _ => None,
    };
    let (initial_list, resync) = (number > 2).then_some((micros(-500), micros(-900))).unzip();
    Some(Order { value, initial_list, resync })
}

fn pointer(text: &str) -> Pointer {
    Pointer::parse(text, false).expect("a pointer")
}

/// Number of settings of the limits.
pub(super) const LIMITS: u8 = 6;

/// `max_leased`, and the rate. The last rate has no whole number of microseconds for a key.
fn limits(number: u8) -> (Option<u64>, Option<Rate>) {
    let rate = |per_1000_seconds, burst| Some(Rate { per_1000_seconds, burst });
    match number {
        0 => (None, None),
        1 => (Some(1), None),
        2 => (Some(3), rate(2_000_000, 2)),
        3 => (None, rate(500_000, 1)),
        4 => (None, rate(1_000_000_000, 4)),
        _ => (Some(2), rate(7_000_003, 3)),
    }
}

/// Number of settings of the groups.
pub(super) const GROUPS: u8 = 6;

fn groups(number: u8) -> Option<Arc<GroupRules>> {
    let limited =
        |name: &str, weight, max_leased, rate| (Arc::from(name), GroupOverride { weight, max_leased, rate });
    let own = |name: &str, weight, max_leased| limited(name, weight, max_leased, None);
    let rate = |per_1000_seconds, burst| Some(Rate { per_1000_seconds, burst });
    let by_value = || GroupBy::Pointer(pointer("/v"));
    let (by, max_leased, rate, overrides) = match number {
        0 => return None,
        1 => (by_value(), None, None, vec![own("2", Some(3), None), own("x", Some(7), Some(1))]),
        2 => (GroupBy::Source, Some(1), None, vec![own("", None, Some(2)), own("erp", Some(5), None)]),
        3 => (by_value(), Some(2), None, vec![own("", Some(2), None), own("1", None, Some(1))]),
        4 => (by_value(), None, rate(500_000, 2), vec![limited("1", None, None, rate(7_000_003, 3))]),
        _ => (GroupBy::Source, Some(2), None, vec![limited("erp", Some(2), None, rate(1_000_000, 1))]),
    };
    Some(Arc::new(GroupRules { by, max_leased, rate, overrides: overrides.into_iter().collect() }))
}
