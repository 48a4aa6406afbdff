//! One value of every kind, with and without its optional fields.

mod deliveries;
mod groups;
mod sources;

use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::LastReplace;
use deltaq_engine::command::Outcome;
use deltaq_engine::config::{AdmissionText, Config, Debounce, Follow, Order, OrderValue};
use deltaq_engine::delta::{Delta, DeltaKind, Provenance};
use deltaq_engine::event::{
    Appended, Disposition, Due, Ending, Event, EventKind, Failure, Leased, Origin, Queued, ReplaceCounts,
    ReplaceEnded, ViewChanges,
};
use deltaq_engine::follow::{FollowPhase, FollowPosition};
use deltaq_engine::id::{Rv, Slot, Source, Token};
use deltaq_engine::index_settings::IndexSettings;
use deltaq_engine::initial::InitialList;
use deltaq_engine::key::{Key, KeySpec};
use deltaq_engine::known::Known;
use deltaq_engine::limits::RV_MAX;
use deltaq_engine::lives::{Life, LifeId};
use deltaq_engine::object::{ArrayKeys, Ignored, Object};
use deltaq_engine::object_version::ObjectVersion;
use deltaq_engine::pointer::Pointer;
use deltaq_engine::rate::{Rate, RateDebt};
use deltaq_engine::rate_limit::{BucketLevel, ItemExponential, ItemFastSlow, RateLimiter};
use deltaq_engine::schedule::{
    Backoff, Delay, EventId, HeadStart, Lease, NotBefore, OpenWindow, Place, ReadyPosition, ScheduleState,
    Window,
};
use deltaq_engine::snapshot::{KeyState, QueueState, RememberedVersion, RemovedKey, SettledLeases};
use deltaq_engine::time::Time;
use deltaq_engine::trace::{Trace, TraceContext};
use deltaq_engine::view::View;
use deltaq_types::name::{Incarnation, Name};
use deltaq_types::{
    Bucket, Mode, PauseReason, Push, PushFormat, PushHeader, PushPayload, RawObject, Retention, VersionTies,
};

use crate::record::Identity;
use crate::store::QueueId;

/// The time of the first sample: 2025-11-21T06:00:00Z.
pub(super) const START_US: u64 = 1_763_704_800_000_000;

/// An object whose text no serializer would produce.
pub(super) const ODD_OBJECT: &str =
    "{ \"key\" : \"sku-1\",\"n\":[1.0e+400, -0.00 ,\t{}], \"caf\\u00e9\": \"\\\"}\",\"object\":{\"rv\":1} }";

/// The instant this many seconds after the start.
pub(super) fn at(seconds: u64) -> Time {
    Time::from_micros(START_US + seconds * 1_000_000)
}

/// The version of this JSON text.
pub(super) fn version(text: &str) -> ObjectVersion {
    serde_json::from_str(text).unwrap()
}

pub(super) fn key() -> Key {
    Key::new("sku-1").unwrap()
}

fn appended(delta: DeltaKind, source: Option<&str>, owner: Option<&str>) -> Appended {
    Appended {
        key: key(),
        delta,
        final_state_unknown: false,
        origin: Origin::Call,
        provenance: Provenance::new(source.map(Into::into), owner.map(Into::into), None),
        due: None,
        head_start: HeadStart::NONE,
        object: Object::from_valid(r#"{"key":"sku-1","price":12.50}"#),
    }
}

fn window() -> Window {
    Window { first: at(41), quiet_until: at(44), latest: at(51) }
}

fn trace() -> Trace {
    let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    Trace::new(TraceContext::parse(text).unwrap())
}

fn appends() -> Vec<EventKind> {
    let tombstone = Appended {
        key: Key::new("a \"quoted\" schlüssel/\\").unwrap(),
        object: Object::from_valid(ODD_OBJECT),
        final_state_unknown: true,
        origin: Origin::Replace,
        ..appended(DeltaKind::Deleted, Some("erp"), None)
    };
    let plain = appended(DeltaKind::Replaced, None, None);
    let traced = Provenance::new(Some("erp".into()), Some("erp".into()), Some(trace()));
    let all = [
        appended(DeltaKind::Added, Some("erp"), Some("erp")),
        appended(DeltaKind::Updated, None, None),
        appended(DeltaKind::Replaced, None, Some("erp")),
        appended(DeltaKind::Sync, Some("erp"), Some("shop")),
        tombstone,
        Appended { origin: Origin::InitialReplace, ..plain.clone() },
        Appended { origin: Origin::Resync, due: Some(Due::At(at(60))), ..plain.clone() },
        Appended { due: Some(Due::Window(Box::new(window()))), ..plain.clone() },
        Appended { head_start: HeadStart::from_micros(-600_000_000), ..plain.clone() },
        Appended { provenance: traced, ..plain },
    ];
    all.map(EventKind::Appended).to_vec()
}

/// Every way for a lease to end.
pub(super) fn endings() -> Vec<Ending> {
    let failure = |error: Option<&str>, disposition, rate_limited| Failure {
        error: error.map(Into::into),
        disposition,
        rate_limited,
        floor: None,
    };
    let floored = Failure { floor: Some(at(90)), ..failure(None, Disposition::Wait { due: at(90) }, false) };
    vec![
        Ending::Acked,
        Ending::Done,
        Ending::Nacked(failure(None, Disposition::Tail { due: None }, false)),
        Ending::Nacked(failure(Some("no \"luck\"\n"), Disposition::Tail { due: Some(at(90)) }, true)),
        Ending::Nacked(failure(Some("HTTP 500"), Disposition::Park, false)),
        Ending::Nacked(floored),
        Ending::Expired(failure(None, Disposition::Wait { due: at(90) }, true)),
        Ending::Expired(failure(None, Disposition::Delayed, false)),
        Ending::Released,
        Ending::Held { until: at(45) },
        Ending::Rejected { error: None, disposition: Disposition::Tail { due: None } },
        Ending::Rejected { error: Some("bad data".into()), disposition: Disposition::Park },
        Ending::Undelivered,
    ]
}

/// Every event, with and without its optional fields.
pub(super) fn kinds() -> Vec<EventKind> {
    let erp: Source = "erp".into();
    let object = Object::from_valid("{}");
    let leased = Leased { key: key(), deadline: at(60), worker: None, pop_id: None, charged: None };
    let queued = Queued { key: key(), due: None, rate_limited: false, head_start: HeadStart::NONE };
    let ended = ReplaceEnded { source: None, first: false, aborted: true, counts: ReplaceCounts::default() };
    let full = ReplaceEnded { source: Some(erp.clone()), first: true, aborted: false, counts: counts() };
    let mut kinds = appends();
    kinds.extend([
        EventKind::Queued(queued.clone()),
        EventKind::Queued(Queued { head_start: HeadStart::class(7), ..queued.clone() }),
        EventKind::Queued(Queued { due: Some(Due::At(at(60))), rate_limited: true, ..queued.clone() }),
        EventKind::Queued(Queued { due: Some(Due::Window(Box::new(window()))), ..queued }),
        EventKind::Failed { key: key() },
        EventKind::Dropped { key: key(), origin: Origin::Call },
        EventKind::Dropped { key: key(), origin: Origin::Replace },
        EventKind::TakenOver { key: key(), owner: erp.clone() },
        refreshed(Provenance::default()),
        refreshed(Provenance::new(Some(erp.clone()), Some(erp.clone()), None)),
        EventKind::Leased(leased.clone()),
        EventKind::Leased(groups::leased(leased)),
        EventKind::Extended { key: key(), deadline: at(90) },
        EventKind::Progressed { key: key(), token: Token::new(Rv::new(25)), through: Rv::new(24) },
    ]);
    kinds.extend(endings().into_iter().map(|ending| EventKind::Settled {
        key: key(),
        token: Token::new(Rv::new(25)),
        ending,
    }));
    kinds.extend([
        EventKind::DelayElapsed { key: key() },
        EventKind::Forgotten { key: key() },
        EventKind::Redriven { key: key() },
        EventKind::Removed { key: key(), keeps_version: false },
        EventKind::Removed { key: key(), keeps_version: true },
        EventKind::VersionRemembered { key: key(), version: version("1763704800.250"), before: None },
        EventKind::VersionRemembered {
            key: key(),
            version: version(r#""2026-11-21T04:20:03Z""#),
            before: Some(version("7")),
        },
        EventKind::Seeded { key: key(), owner: None, object: object.clone() },
        EventKind::Seeded { key: key(), owner: Some(erp.clone()), object },
        EventKind::Populated,
        configured(Config::default(), None, false),
        EventKind::Regrouped,
        configured(full_config(), Some("tenant".into()), true),
        configured(admitting_config(), None, false),
        EventKind::Paused,
        EventKind::PausedItself { reason: PauseReason::EndpointGone },
        EventKind::Resumed,
        EventKind::Held { until: at(43) },
        EventKind::Closed { at_once: false },
        EventKind::Closed { at_once: true },
        EventKind::Reopened,
        EventKind::ResyncDue,
        EventKind::Recovered { life: LifeId::new(0x2f31_9c5d) },
        EventKind::ReplaceStarted { source: None, first: false },
        EventKind::ReplaceStarted { source: Some(erp.clone()), first: true },
        EventKind::ReplaceEnded(ended.clone()),
        EventKind::ReplaceEnded(full),
        EventKind::Followed { position: position(FollowPhase::List { since: Rv::new(30) }) },
        EventKind::Followed { position: position(FollowPhase::Sweep { since: Rv::new(30) }) },
        EventKind::Followed { position: position(FollowPhase::Changes) },
    ]);
    kinds.extend(sources::kinds());
    kinds.extend(groups::kinds());
    kinds.extend(deliveries::kinds());
    kinds
}

fn configured(config: Config, follow_set_by: Option<Arc<str>>, regroups: bool) -> EventKind {
    EventKind::Configured { config: Arc::new(config), follow_set_by, regroups }
}

fn refreshed(provenance: Provenance) -> EventKind {
    EventKind::Refreshed { key: key(), provenance, object: Object::from_valid("{}") }
}

fn position(phase: FollowPhase) -> FollowPosition {
    FollowPosition { incarnation: 0x1234_5678, after: Rv::new(29), phase }
}

fn counts() -> ReplaceCounts {
    ReplaceCounts { replaced: 1, deleted: 2, unchanged: 3, skipped: 4, taken_over: 5, stale: 6 }
}

/// One event each, one second apart; a recovery skips numbers.
pub(super) fn events(first_rv: u64, kinds: Vec<EventKind>) -> Vec<Event> {
    let mut rv = first_rv - 1;
    let mut events = Vec::new();
    for (kind, second) in kinds.into_iter().zip(0..) {
        rv += if matches!(kind, EventKind::Recovered { .. }) { 1 << 20 } else { 1 };
        let views = ViewChanges::default();
        events.push(Event { rv: Rv::new(rv), at: at(second), kind, views, sequence: None });
    }
    events
}

fn push() -> Push {
    Push {
        url: "https://shop.example/hooks".to_owned(),
        format: PushFormat::Raw,
        payload: PushPayload::Full,
        secrets: vec!["shop".to_owned()],
        timeout: Duration::from_secs(8).into(),
        max_in_flight: 9,
        batch: 7,
        retry: vec![Duration::from_secs(10).into()],
        reject_statuses: vec![404],
        disable_after: Duration::from_hours(11).into(),
        handshake: Some("deltaq.example".to_owned()),
        headers: [
            (
                "authorization".to_owned(),
                PushHeader::Secret { secret: "shop".to_owned(), prefix: "Bearer ".to_owned() },
            ),
            ("x-env".to_owned(), PushHeader::Text("prod".to_owned())),
        ]
        .into(),
        is_async: true,
    }
}

/// Settings with every field set to a value other than its default.
pub(super) fn full_config() -> Config {
    let pointers = vec![Pointer::parse("/metadata/namespace", true), Pointer::parse("/a~1b", false)];
    Config {
        mode: Mode::Latest,
        key: KeySpec::new(pointers.into_iter().map(Result::unwrap).collect()).unwrap(),
        version: Some(Pointer::parse("/metadata/updated_at", false).unwrap()),
        version_ties: Some(VersionTies::Apply),
        known_objects: false,
        emit_replaced: false,
        lease: Duration::from_secs(90),
        max_failures: 3,
        rate_limiter: RateLimiter {
            item_exponential: Some(ItemExponential {
                base: Duration::from_micros(1),
                max: Duration::from_hours(36_500 * 24),
            }),
            item_fast_slow: Some(ItemFastSlow {
                fast: Duration::ZERO,
                slow: Duration::from_millis(1_500),
                max_fast: 4,
            }),
            bucket: Some(Bucket { qps: 0.1 + 0.2, burst: 100 }),
            max_wait: Some(Duration::from_mins(5)),
            jitter: 0.25,
        },
        debounce: Some(Debounce {
            quiet: Duration::from_secs(2),
            max_wait: Some(Duration::from_secs(10)),
            delivers_deletes_now: true,
            debounces_lists: true,
        }),
        order: Some(Order {
            value: Some(OrderValue::HeadStart {
                pointer: Pointer::parse("/urgent_for", false).unwrap(),
                default: HeadStart::from_micros(-1_000_000),
            }),
            initial_list: Some(HeadStart::from_micros(-600_000_000)),
            resync: Some(HeadStart::from_micros(300_000_000)),
        }),
        groups: Some(groups::rules()),
        max_leased: Some(200),
        rate: Rate::new(0.5, 300),
        resync_period: Some(Duration::from_hours(36)),
        max_keys: 1,
        max_object_bytes: 2,
        max_deltas_per_key: 3,
        max_bytes_per_key: 4,
        max_delete_percent: Some(33.3),
        max_deletes: Some(5),
        indexes: IndexSettings::new([("by_city", "/a~1b"), ("tags", "/tags")]).unwrap(),
        array_keys: ArrayKeys::new(&[("/items".to_owned(), "/sku".to_owned())].into()).unwrap(),
        ignored: Ignored::new(&["/updated_at".to_owned(), "/a~1b/0".to_owned()]).unwrap(),
        retention: Retention { age: Some(Duration::from_hours(24).into()), bytes: Some(6) },
        follow: Some(Arc::new(Follow {
            queue: "prices".into(),
            view: View::Known,
            prefix: "a/".into(),
            max_waiting: 7,
        })),
        push: Some(Arc::new(push())),
        hook: Some(Arc::new(deliveries::hook())),
        cloudevents: Some(Arc::new(deliveries::cloudevents())),
        kubernetes: Some(Arc::new(deliveries::kubernetes())),
        owner: Some("shop".into()),
        admission: None,
    }
}

/// Settings with a schema and pruned members.
pub(super) fn admitting_config() -> Config {
    let schema = r#"{"required":["price"],"properties":{"price":{"minimum":0.10,"default":1e400}}}"#;
    let prune = ["/metadata/managedFields", "/a~1b"];
    let prune = prune.map(|text| Pointer::parse(text, false).unwrap()).to_vec();
    let admission = AdmissionText::new(Some(RawObject::from_valid(schema)), prune);
    Config { admission: admission.map(Arc::new), ..Config::default() }
}

pub(super) fn delta(rv: u64, kind: DeltaKind) -> Delta {
    Delta {
        kind,
        object: Object::from_valid(r#"{"key":"sku-1","price":12.50}"#),
        rv: Rv::new(rv),
        queued_at: at(rv),
        final_state_unknown: false,
        coalesced: 0,
        provenance: Provenance::new(Some("erp".into()), Some("erp".into()), None),
    }
}

/// All that a key may wait for.
fn backoff() -> Backoff {
    Backoff {
        delay: Some(Delay { due: at(60), rv: Rv::new(42) }),
        not_before: Some(NotBefore {
            at: at(60),
            rv: Rv::new(41),
            retries: true,
            is_floor: true,
            is_hold: true,
        }),
        window: Some(Box::new(OpenWindow::new(window(), Rv::new(41)))),
        last_error: Some("HTTP 500: \"no\"".into()),
        failure_expiry: Some((at(86_442), Rv::new(42))),
        oldest_change: Some(EventId { rv: Rv::new(38), at: at(38) }),
        head_start: HeadStart::from_micros(600_000_000),
        ..Backoff::default()
    }
}

/// Keys in every place. The first one has only a known object.
pub(super) fn key_states() -> Vec<KeyState> {
    let object = Object::from_valid(ODD_OBJECT);
    let plain = KeyState {
        key: key(),
        rv: Rv::new(42),
        latest_rv: Rv::new(40),
        known: Some(Known { object, rv: Rv::new(40), owner: Some("erp".into()) }),
        waiting: Vec::new(),
        leased: Vec::new(),
        schedule_state: ScheduleState::default(),
        initial_pending: None,
        group: None,
        birth: None,
    };
    let with = |place| KeyState {
        schedule_state: ScheduleState::new(place, 0, 0, Backoff::default()),
        ..plain.clone()
    };
    let turn = ReadyPosition { rv: Rv::new(42), since: at(42), added: at(42) };
    let tombstone = Delta {
        provenance: Provenance::new(Some("erp".into()), None, None),
        final_state_unknown: true,
        coalesced: 7,
        object: Object::from_valid(ODD_OBJECT),
        ..delta(42, DeltaKind::Deleted)
    };
    let [bare, full] = leases(turn);
    vec![
        plain.clone(),
        KeyState { known: None, latest_rv: Rv::ZERO, ..plain.clone() },
        KeyState { initial_pending: Some(Rv::new(40)), ..plain.clone() },
        KeyState { waiting: vec![delta(42, DeltaKind::Added)], known: None, ..with(Place::Ready(turn)) },
        KeyState {
            waiting: vec![delta(41, DeltaKind::Updated), tombstone],
            ..with(Place::Ready(ReadyPosition { added: at(41), ..turn }))
        },
        with(Place::Leased(Box::new(bare))),
        KeyState {
            waiting: vec![delta(42, DeltaKind::Sync)],
            leased: vec![delta(40, DeltaKind::Replaced), delta(41, DeltaKind::Updated)],
            initial_pending: Some(Rv::new(40)),
            ..with(Place::Leased(Box::new(full)))
        },
        with(Place::Parked),
        KeyState {
            schedule_state: ScheduleState::new(Place::Idle, 3, 4, backoff()),
            known: None,
            ..plain.clone()
        },
        KeyState {
            waiting: vec![Delta {
                provenance: Provenance::new(Some("erp".into()), Some("erp".into()), Some(trace())),
                ..delta(42, DeltaKind::Added)
            }],
            known: None,
            ..with(Place::Ready(turn))
        },
        KeyState { latest_rv: Rv::new(37), ..plain.clone() },
        KeyState { group: Some("acme".into()), birth: Some(deliveries::birth(29)), ..plain },
    ]
}

/// A lease with only its required fields, and one with all fields.
fn leases(turn: ReadyPosition) -> [Lease; 2] {
    let bare = Lease {
        token: Token::new(Rv::new(42)),
        deadline: at(72),
        since: at(42),
        length: Duration::from_secs(30),
        worker: None,
        pop_id: None,
        former: turn,
        head_start: HeadStart::NONE,
        dropped_delay: None,
        new_change: None,
        later_change: None,
    };
    let full = Lease {
        worker: Some("worker-1".into()),
        pop_id: Some("p-77".into()),
        former: ReadyPosition { rv: Rv::new(41), since: at(41), added: at(39) },
        head_start: HeadStart::from_micros(-1),
        dropped_delay: Some(Delay { due: at(50), rv: Rv::new(39) }),
        new_change: Some(at(43)),
        later_change: Some(EventId { rv: Rv::new(42), at: at(42) }),
        ..bare.clone()
    };
    [bare, full]
}

fn new_queue_state() -> QueueState {
    QueueState {
        rv: Rv::new(9),
        lives: vec![life(0x7a1e_0b52, 4, 9)],
        last_at: at(0),
        config: Arc::new(Config::default()),
        auto_created: true,
        creator: None,
        paused: false,
        held_until: Time::default(),
        pause_reason: None,
        closed: false,
        closes_at_once: false,
        initial: InitialList::Missing,
        settled: SettledLeases::default(),
        bucket: None,
        debt: RateDebt::default(),
        groups: None,
        next_resync: None,
        last_replace: None,
        followed: None,
        follow_set_by: None,
        sources: Vec::new(),
        versions: Vec::new(),
        received: Vec::new(),
        kept: Vec::new(),
        births_since: None,
    }
}

/// A new queue, and one with all fields.
pub(super) fn queue_states() -> Vec<QueueState> {
    let new = new_queue_state();
    let (source, ended) = (Some("erp".into()), Some(at(2)));
    let replace = LastReplace { source, counts: counts(), started: at(1), ended, aborted: true };
    let outcomes = [
        (11, Outcome::Acked),
        (10, Outcome::Acked),
        (12, Outcome::Nacked),
        (13, Outcome::Released),
        (14, Outcome::Rejected),
        (15, Outcome::Expired),
        (16, Outcome::Unknown),
        (17, Outcome::Acked),
        (18, Outcome::Done),
    ];
    let mut settled = SettledLeases::default();
    for (token, outcome) in outcomes {
        settled.record(Token::new(Rv::new(token)), outcome, at(40));
    }
    let full = QueueState {
        rv: Rv::new(RV_MAX),
        lives: vec![
            life(1, 0, 3),
            life(u32::MAX, 1 << 21, (1 << 21) + 8),
            life(0x2f31_9c5d, 1 << 50, RV_MAX),
        ],
        last_at: at(42),
        config: Arc::new(full_config()),
        auto_created: false,
        creator: Some("erp".into()),
        paused: true,
        held_until: at(43),
        pause_reason: Some(PauseReason::EndpointFailing),
        closed: true,
        closes_at_once: true,
        initial: InitialList::Aborted { populated: true },
        settled,
        bucket: Some(BucketLevel { tokens: -0.1 - 0.2, at: at(41) }),
        debt: RateDebt { owed: 1_500_000_000, at: at(40) },
        groups: Some(Box::new(groups::state())),
        next_resync: Some(at(129_600)),
        sources: sources::histories(&replace),
        followed: Some(position(FollowPhase::List { since: Rv::new(30) })),
        follow_set_by: Some("tenant".into()),
        versions: vec![remembered("1.20e3", None, 19), remembered(r#""a\"b""#, Some("1"), 20)],
        received: deliveries::received(),
        kept: deliveries::kept(),
        births_since: Some(deliveries::birth(28)),
        last_replace: Some(replace),
    };
    let running = LastReplace {
        source: None,
        counts: ReplaceCounts::default(),
        started: at(3),
        ended: None,
        aborted: false,
    };
    let started = QueueState {
        initial: InitialList::Running { populated: false },
        last_replace: Some(running),
        ..new.clone()
    };
    let admitting = QueueState { config: Arc::new(admitting_config()), ..new.clone() };
    vec![new, started, full, admitting]
}

fn life(id: u32, first: u64, last: u64) -> Life {
    Life { id: LifeId::new(id), first: Rv::new(first), last: Rv::new(last) }
}

fn remembered(newest: &str, before: Option<&str>, rv: u64) -> RememberedVersion {
    RememberedVersion {
        key: key(),
        version: version(newest),
        before: before.map(version),
        rv: Rv::new(rv),
        at: at(rv),
    }
}

pub(super) fn identity() -> Identity {
    Identity {
        id: QueueId(3),
        version: 5,
        name: Name::new("prices").unwrap(),
        incarnation: Incarnation(0x6f2c_01ab),
        created_at: at(0),
    }
}

pub(super) fn removed() -> RemovedKey {
    RemovedKey { key: key(), slot: Slot::new(7), rv: Rv::new(44) }
}
