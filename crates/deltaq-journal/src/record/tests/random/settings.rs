//! Random settings.

use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::config::{
    AdmissionText, Config, Debounce, Follow, GroupBy, GroupOverride, GroupRules, Order, OrderValue,
};
use deltaq_engine::index_settings::IndexSettings;
use deltaq_engine::key::KeySpec;
use deltaq_engine::object::{ArrayKeys, Ignored};
use deltaq_engine::pointer::Pointer;
use deltaq_engine::rate::Rate;
use deltaq_engine::rate_limit::{ItemExponential, ItemFastSlow, RateLimiter};
use deltaq_engine::schedule::HeadStart;
use deltaq_engine::view::View;
use deltaq_types::duration::DurationText;
use deltaq_types::range::{CENTURY, HEAD_START_MAX, HOUR, HOURS_12, SEC};
use deltaq_types::{
    Bucket, Mode, Push, PushFormat, PushHeader, PushPayload, RawObject, Retention, VersionTies,
};

use super::Dice;

impl Dice {
    fn rate_limiter(&mut self) -> RateLimiter {
        RateLimiter {
            item_exponential: self.maybe(|dice| {
                let base = dice.0.u64(1..=CENTURY);
                let max = dice.0.u64(base..=CENTURY);
                ItemExponential { base: Duration::from_micros(base), max: Duration::from_micros(max) }
            }),
            item_fast_slow: self.maybe(|dice| ItemFastSlow {
                fast: dice.setting_span(0),
                slow: dice.setting_span(0),
                max_fast: dice.0.u32(..),
            }),
            bucket: self.maybe(|dice| Bucket { qps: dice.up_to(1e9), burst: dice.0.u32(1..) }),
            max_wait: self.maybe(|dice| dice.setting_span(0)),
            jitter: self.up_to(1.0),
        }
    }

    fn admission(&mut self) -> Option<Arc<AdmissionText>> {
        let schemas = ["{}", r#"{"default":1e400}"#, "{\"title\":\"\u{fc} \\\"{\"}"];
        let schema = self.maybe(|dice| RawObject::from_valid(dice.of(&schemas)));
        let prune = ["/secret", "/a~0b~1/\"", "/ünï/1"];
        let prune = self.list(|dice| Pointer::parse(dice.of(&prune), false).unwrap());
        AdmissionText::new(schema, prune).map(Arc::new)
    }

    fn array_keys(&mut self) -> ArrayKeys {
        let all =
            [("/items", "/sku"), ("/a~1b", "/0/id")].map(|(array, key)| (array.to_owned(), key.to_owned()));
        let count = self.0.usize(..=all.len());
        ArrayKeys::new(&all.into_iter().take(count).collect()).unwrap()
    }

    fn ignored(&mut self) -> Ignored {
        let pointers = ["/", "/a~0b~1/\"", "/ünï/1"];
        Ignored::new(&self.list(|dice| dice.of(&pointers).to_owned())).unwrap()
    }

    fn indexes(&mut self) -> IndexSettings {
        let pointers = ["/", "/a~0b~1/\"", "/ünï/1"];
        let indexes = ["a", "By-City_2"].map(|name| (name, self.of(&pointers)));
        let count = self.0.usize(..=indexes.len());
        IndexSettings::new(indexes.into_iter().take(count)).unwrap()
    }

    /// Settings that people can write; a reader refuses all others.
    pub(super) fn config(&mut self) -> Config {
        let pointers = ["/key", "/", "/a~0b/~1\"", "/ünï/0"];
        let mut parts = self.list(|dice| Pointer::parse(dice.of(&pointers), dice.0.bool()).unwrap());
        parts.push(Pointer::parse("/x", false).unwrap());
        let key = KeySpec::new(parts).unwrap();
        let mode = self.of(&[Mode::Delta, Mode::Latest, Mode::Keys, Mode::Events]);
        let version = self.maybe(|dice| Pointer::parse(dice.of(&pointers), false).unwrap());
        let resync_period = self.maybe(|dice| dice.setting_span(SEC));
        let debounce = self.maybe(|dice| Debounce {
            quiet: Duration::from_micros(dice.0.u64(1..=HOURS_12)),
            max_wait: dice.maybe(|dice| Duration::from_micros(dice.0.u64(HOURS_12..=2 * HOURS_12))),
            delivers_deletes_now: dice.0.bool(),
            debounces_lists: dice.0.bool(),
        });
        Config {
            admission: self.admission(),
            mode,
            key,
            version: version.filter(|_| mode != Mode::Keys),
            version_ties: self.maybe(|dice| dice.of(&[VersionTies::Stale, VersionTies::Apply])),
            known_objects: self.0.bool(),
            emit_replaced: self.0.bool(),
            lease: Duration::from_micros(self.0.u64(SEC..=HOURS_12)),
            max_failures: self.0.u32(..),
            rate_limiter: self.rate_limiter(),
            debounce: debounce.filter(|_| mode != Mode::Events),
            order: self.maybe(Self::order),
            groups: self
                .maybe(|dice| Arc::new(dice.groups()))
                .filter(|groups| mode != Mode::Keys || matches!(groups.by, GroupBy::KeyPrefix(_))),
            max_leased: self.maybe(|dice| dice.0.u64(1..=1_000_000_000)),
            rate: self.maybe(Self::rate),
            resync_period: resync_period.filter(|_| mode != Mode::Keys),
            max_keys: self.0.usize(1..=1_000_000_000),
            max_object_bytes: self.0.usize(2..=1 << 30),
            max_deltas_per_key: self.0.usize(2..=1_000_000_000),
            max_bytes_per_key: self.0.usize(1..=1 << 40),
            max_delete_percent: self.maybe(|dice| dice.up_to(100.0)),
            max_deletes: self.maybe(|dice| dice.number() >> 1),
            retention: Retention {
                age: self.maybe(|dice| dice.setting_span(SEC).into()),
                bytes: self.maybe(|dice| dice.number() >> 1),
            },
            indexes: self.indexes(),
            array_keys: self.array_keys(),
            ignored: self.ignored(),
            follow: self.maybe(|dice| Arc::new(dice.follow())),
            push: self.maybe(|dice| Arc::new(dice.push())),
            hook: self.maybe(|dice| Arc::new(dice.hook())),
            cloudevents: self.maybe(|dice| Arc::new(dice.cloudevents())),
            kubernetes: self.maybe(|dice| Arc::new(dice.kubernetes())),
            owner: self.maybe(|dice| dice.of(&["shop", "no"]).into()),
        }
    }

    fn rate(&mut self) -> Rate {
        Rate { per_1000_seconds: self.0.u64(1..=1_000_000_000), burst: self.0.u64(1..=1_000_000) }
    }

    fn groups(&mut self) -> GroupRules {
        let by = match self.0.u8(..3) {
            0 => GroupBy::Source,
            1 => GroupBy::Pointer(Pointer::parse("/tenant", false).expect("a pointer")),
            _ => GroupBy::KeyPrefix("/".into()),
        };
        let own = |dice: &mut Self| {
            let weight = dice.maybe(|dice| dice.0.u32(1..=1_000));
            let max_leased = dice.maybe(|dice| dice.0.u64(1..=1_000_000_000));
            let rate = dice.maybe(Self::rate);
            ((*dice.text()).into(), GroupOverride { weight, max_leased, rate })
        };
        let overrides = self.list(own).into_iter().collect();
        let max_leased = self.maybe(|dice| dice.0.u64(1..=1_000_000_000));
        GroupRules { by, max_leased, rate: self.maybe(Self::rate), overrides }
    }

    fn order(&mut self) -> Order {
        let pointer = Pointer::parse("/p", false).unwrap();
        let value = match self.0.u8(..3) {
            0 => None,
            1 => Some(OrderValue::HeadStart { pointer, default: self.set_head_start() }),
            _ => {
                let step = self.maybe(|dice| Duration::from_micros(dice.0.u64(1..=HOUR)));
                Some(OrderValue::Priority { pointer, step })
            }
        };
        Order {
            value,
            initial_list: self.maybe(Self::set_head_start),
            resync: self.maybe(Self::set_head_start),
        }
    }

    pub(super) fn set_head_start(&mut self) -> HeadStart {
        let most = HEAD_START_MAX.cast_signed();
        HeadStart::from_micros(self.0.i64(-most..=most))
    }

    fn follow(&mut self) -> Follow {
        Follow {
            queue: self.of(&["a", "prices--eu.1"]).into(),
            view: self.of(&View::ALL),
            prefix: self.text(),
            max_waiting: self.0.usize(1..=1_000_000_000),
        }
    }

    fn header(&mut self) -> PushHeader {
        let text = self.of(&["", "prod"]).to_owned();
        let secret = PushHeader::Secret { secret: "shop".to_owned(), prefix: text.clone() };
        if self.0.bool() { PushHeader::Text(text) } else { secret }
    }

    fn push(&mut self) -> Push {
        let span = |dice: &mut Self, least: u64, most: u64| DurationText::from_us(dice.0.u64(least..=most));
        Push {
            url: self.of(&["https://shop.example/hooks?a=b", "http://127.0.0.1:8080/"]).to_owned(),
            format: self.of(&[PushFormat::Standard, PushFormat::Raw, PushFormat::Cloudevents]),
            payload: self.of(&[PushPayload::Full, PushPayload::Known, PushPayload::Thin]),
            secrets: self.maybe(|dice| dice.of(&["shop", "a_1-b"]).to_owned()).into_iter().collect(),
            timeout: span(self, SEC, 300 * SEC),
            max_in_flight: self.0.u64(1..=256),
            batch: self.0.u64(1..=1_000),
            retry: self.list(|dice| span(dice, 0, HOUR)),
            reject_statuses: self.list(|dice| dice.0.u16(400..500)),
            disable_after: span(self, 0, HOUR),
            handshake: self.maybe(|dice| dice.of(&["deltaq.example", "d"]).to_owned()),
            headers: self.maybe(|dice| ("x-env".to_owned(), dice.header())).into_iter().collect(),
            is_async: self.0.bool(),
        }
    }
}
