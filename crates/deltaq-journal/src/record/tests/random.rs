//! Random events and states, drawn from a seed, are read back from their rows unchanged.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::LastReplace;
use deltaq_engine::birth::Birth;
use deltaq_engine::command::Outcome;
use deltaq_engine::delta::{Delta, DeltaKind, Provenance};
use deltaq_engine::event::{
    Appended, Charged, Disposition, Due, Ending, Event, EventKind, Failure, Leased, Origin, Queued,
    ReplaceCounts, ReplaceEnded, SourceContact, ViewChanges,
};
use deltaq_engine::follow::{FollowPhase, FollowPosition};
use deltaq_engine::id::{Rv, Sequence, Token};
use deltaq_engine::initial::InitialList;
use deltaq_engine::key::Key;
use deltaq_engine::known::Known;
use deltaq_engine::lives::{Life, LifeId};
use deltaq_engine::object::Object;
use deltaq_engine::object_version::ObjectVersion;
use deltaq_engine::rate::RateDebt;
use deltaq_engine::rate_limit::BucketLevel;
use deltaq_engine::schedule::{
    Backoff, Delay, EventId, GroupAccount, GroupLease, GroupStop, GroupsState, HeadStart, Lease, NotBefore,
    OpenWindow, Place, ReadyPosition, ScheduleState, Window,
};
use deltaq_engine::snapshot::{
    KeyState, QueueState, RememberedVersion, SettledLeases, SourceHistory, SourceRecord, StaleAfter,
};
use deltaq_engine::time::Time;
use deltaq_engine::trace::{Trace, TraceContext};
use deltaq_engine::view::Passage;
use deltaq_types::PauseReason;
use deltaq_types::range::CENTURY;
use fastrand::Rng;

use super::{all_types, read, run_of, samples, types};
use crate::record::{Decoder, journal_rows, queue_row};
use crate::store::{Epoch, QueueId};

mod deliveries;
mod settings;

const STATES: u64 = 2_000;

/// Draws values, including every kind of text and number that is easy to get wrong.
struct Dice(Rng);

impl Dice {
    fn maybe<T>(&mut self, draw: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.0.bool().then(|| draw(self))
    }

    fn list<T>(&mut self, mut draw: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.0.usize(0..4)).map(|_| draw(self)).collect()
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.0.usize(0..all.len())].clone()
    }

    fn number(&mut self) -> u64 {
        let shift = self.0.u32(0..64);
        self.0.u64(..) >> shift
    }

    fn rv(&mut self) -> Rv {
        Rv::new(self.number())
    }

    fn trace(&mut self) -> Trace {
        let (trace, parent) = (self.0.u128(1..), self.0.u64(1..));
        let text = format!("00-{trace:032x}-{parent:016x}-{:02x}", self.0.u8(..));
        Trace::new(TraceContext::parse(&text).unwrap())
    }

    fn float(&mut self) -> f64 {
        let float = f64::from_bits(self.0.u64(..));
        if float.is_finite() { float } else { 0.1 }
    }

    fn time(&mut self) -> Time {
        Time::from_micros(self.number())
    }

    fn span(&mut self) -> Duration {
        Duration::from_micros(self.number())
    }

    fn name<N: From<Arc<str>>>(&mut self) -> N {
        self.text().into()
    }

    fn token(&mut self) -> Token {
        Token::new(self.rv())
    }

    fn text(&mut self) -> Arc<str> {
        let chars = ['a', '/', '"', '\\', '\n', '\u{0}', 'é', '\u{2028}', '🦀', '{'];
        (0..self.0.usize(1..6)).map(|_| self.of(&chars)).collect::<String>().into()
    }

    fn key(&mut self) -> Key {
        let chars = ['a', '/', '"', '\\', ' ', 'é', '\u{2028}', '🦀', '{'];
        let text: String = (0..self.0.usize(1..6)).map(|_| self.of(&chars)).collect();
        Key::new(&text).unwrap()
    }

    fn object(&mut self) -> Object {
        Object::from_valid(self.of(&["{}", "{ }", samples::ODD_OBJECT, "{\"\\ud83e\\udd80\":\n[1E5]}"]))
    }

    fn kind(&mut self) -> DeltaKind {
        self.of(&DeltaKind::ALL)
    }

    fn provenance(&mut self) -> Provenance {
        let facts = Provenance::new(self.maybe(Self::name), self.maybe(Self::name), self.maybe(Self::trace));
        facts.with_due(self.maybe(Self::time))
    }

    fn origin(&mut self) -> Origin {
        self.of(&[Origin::Call, Origin::Replace, Origin::InitialReplace, Origin::Resync])
    }

    fn disposition(&mut self) -> Disposition {
        match self.0.u32(0..4) {
            0 => Disposition::Tail { due: self.maybe(Self::time) },
            1 => Disposition::Wait { due: self.time() },
            2 => Disposition::Delayed,
            _ => Disposition::Park,
        }
    }

    fn failure(&mut self) -> Failure {
        let (error, disposition) = (self.maybe(Self::text), self.disposition());
        Failure { error, disposition, rate_limited: self.0.bool(), floor: self.maybe(Self::time) }
    }

    fn ending(&mut self) -> Ending {
        match self.0.u32(0..8) {
            0 => Ending::Acked,
            1 => Ending::Done,
            2 => Ending::Nacked(self.failure()),
            3 => Ending::Expired(self.failure()),
            4 => Ending::Released,
            5 => Ending::Held { until: self.time() },
            6 => Ending::Rejected { error: self.maybe(Self::text), disposition: self.disposition() },
            _ => Ending::Undelivered,
        }
    }

    fn appended(&mut self) -> Appended {
        Appended {
            key: self.key(),
            delta: self.kind(),
            final_state_unknown: self.0.bool(),
            origin: self.origin(),
            provenance: self.provenance(),
            due: self.maybe(Self::due),
            head_start: self.head_start(),
            object: self.object(),
        }
    }

    fn leased(&mut self) -> Leased {
        Leased {
            key: self.key(),
            deadline: self.time(),
            worker: self.maybe(Self::name),
            pop_id: self.maybe(Self::text),
            charged: self.maybe(|dice| {
                Box::new(Charged {
                    group: dice.maybe(Self::text),
                    nth: dice.0.u32(..3),
                    dedicated: dice.0.bool(),
                })
            }),
        }
    }

    fn counts(&mut self) -> ReplaceCounts {
        ReplaceCounts {
            replaced: self.number(),
            deleted: self.number(),
            unchanged: self.number(),
            skipped: self.number(),
            taken_over: self.number(),
            stale: self.number(),
        }
    }

    fn pause_reason(&mut self) -> PauseReason {
        self.of(&[PauseReason::EndpointGone, PauseReason::EndpointFailing])
    }

    fn event_kind(&mut self) -> EventKind {
        match self.0.u32(0..40) {
            0 => EventKind::Appended(self.appended()),
            1 => EventKind::Queued(Queued {
                key: self.key(),
                due: self.maybe(Self::due),
                rate_limited: self.0.bool(),
                head_start: self.head_start(),
            }),
            2 => EventKind::Failed { key: self.key() },
            3 => EventKind::Dropped { key: self.key(), origin: self.origin() },
            4 => EventKind::TakenOver { key: self.key(), owner: self.name() },
            26 => {
                EventKind::Refreshed { key: self.key(), provenance: self.provenance(), object: self.object() }
            }
            5 => EventKind::Leased(self.leased()),
            6 => EventKind::Extended { key: self.key(), deadline: self.time() },
            7 => EventKind::Settled { key: self.key(), token: self.token(), ending: self.ending() },
            8 => EventKind::DelayElapsed { key: self.key() },
            9 => EventKind::Forgotten { key: self.key() },
            10 => EventKind::Redriven { key: self.key() },
            11 => EventKind::Removed { key: self.key(), keeps_version: self.0.bool() },
            12 => EventKind::Seeded { key: self.key(), owner: self.maybe(Self::name), object: self.object() },
            13 => EventKind::Populated,
            14 => EventKind::Configured {
                config: Arc::new(self.config()),
                follow_set_by: self.maybe(Self::text),
                regroups: self.0.bool(),
            },
            33 => EventKind::Regrouped,
            15 => EventKind::Paused,
            16 => EventKind::Resumed,
            17 => EventKind::Closed { at_once: self.0.bool() },
            18 => EventKind::Reopened,
            19 => EventKind::ResyncDue,
            20 => EventKind::Recovered { life: LifeId::new(self.0.u32(..)) },
            23 => EventKind::VersionRemembered {
                key: self.key(),
                version: self.version(),
                before: self.maybe(Self::version),
            },
            21 => EventKind::ReplaceStarted { source: self.maybe(Self::name), first: self.0.bool() },
            22 => EventKind::Followed { position: self.follow_position() },
            28 => EventKind::Grouped { key: self.key(), group: self.maybe(Self::text) },
            29 => EventKind::Progressed { key: self.key(), token: self.token(), through: self.rv() },
            30 => EventKind::GroupPaused { group: self.maybe(Self::text) },
            31 => EventKind::GroupResumed { group: self.maybe(Self::text) },
            32 => EventKind::GroupHeld { group: self.maybe(Self::text), until: self.time() },
            25 => EventKind::Held { until: self.time() },
            27 => EventKind::PausedItself { reason: self.pause_reason() },
            35 => EventKind::DeliveryReceived { id: self.delivery_id() },
            36 => EventKind::DeliveryKept { delivery: self.unapplied() },
            37 => EventKind::DeliveryDropped { number: self.rv() },
            38 => EventKind::SourcesReached {
                contacts: self.list(|dice| SourceContact { source: dice.name(), at: dice.time() }),
            },
            39 => EventKind::SourceConfigured {
                source: self.name(),
                stale_after: self.maybe(Self::stale_after),
            },
            24 => EventKind::Renumbered { source: self.name(), sequence: self.maybe(Self::number) },
            _ => EventKind::ReplaceEnded(ReplaceEnded {
                source: self.maybe(Self::name),
                first: self.0.bool(),
                aborted: self.0.bool(),
                counts: self.counts(),
            }),
        }
    }

    fn stale_after(&mut self) -> StaleAfter {
        let longest = Duration::from_micros(self.0.u64(1..1 << 40));
        StaleAfter { longest, since: self.time(), is_proposed: self.0.bool() }
    }

    /// A few events, numbered without a gap from a random number.
    fn events(&mut self) -> Vec<Event> {
        let first = self.number().clamp(1, u64::MAX - 8);
        let count = self.0.u64(1..8);
        let event = |rv| {
            let (at, kind, views) = (self.time(), self.event_kind(), self.views());
            let sequence = self.maybe(|dice| Sequence { source: dice.name(), number: dice.number() });
            let by = self.maybe(Self::text);
            Event { rv: Rv::new(rv), at, kind, views, sequence, by }
        };
        (first..first + count).map(event).collect()
    }

    fn delta(&mut self) -> Delta {
        Delta {
            kind: self.kind(),
            object: self.object(),
            rv: self.rv(),
            queued_at: self.time(),
            provenance: self.provenance(),
            final_state_unknown: self.0.bool(),
            coalesced: self.0.u32(0..2),
        }
    }

    fn turn(&mut self) -> ReadyPosition {
        let since = self.time();
        ReadyPosition { rv: self.rv(), since, added: self.maybe(Self::time).unwrap_or(since) }
    }

    fn event_id(&mut self) -> EventId {
        EventId { rv: self.rv(), at: self.time() }
    }

    fn delay(&mut self) -> Delay {
        Delay { due: self.time(), rv: self.rv() }
    }

    fn due(&mut self) -> Due {
        if self.0.bool() { Due::At(self.time()) } else { Due::Window(Box::new(self.window())) }
    }

    fn head_start(&mut self) -> HeadStart {
        HeadStart::from_micros(self.0.i64(..) >> self.0.u32(0..64))
    }

    fn window(&mut self) -> Window {
        Window { first: self.time(), quiet_until: self.time(), latest: self.time() }
    }

    fn lease(&mut self) -> Lease {
        Lease {
            token: self.token(),
            deadline: self.time(),
            since: self.time(),
            length: self.span(),
            worker: self.maybe(Self::name),
            pop_id: self.maybe(Self::text),
            former: self.turn(),
            head_start: self.head_start(),
            dropped_delay: self.maybe(Self::delay),
            new_change: self.maybe(Self::time),
            later_change: self.maybe(Self::event_id),
        }
    }

    fn schedule_state(&mut self) -> ScheduleState {
        let place = match self.0.u32(0..4) {
            0 => Place::Idle,
            1 => Place::Ready(self.turn()),
            2 => Place::Leased(Box::new(self.lease())),
            _ => Place::Parked,
        };
        let mut count = || self.0.u32(..) * u32::from(self.0.bool());
        let (failures, attempt) = (count(), count());
        let backoff = Backoff {
            delay: self.maybe(Self::delay),
            window: self.maybe(|dice| Box::new(OpenWindow::new(dice.window(), dice.rv()))),
            not_before: self.maybe(|dice| NotBefore {
                at: dice.time(),
                rv: dice.rv(),
                retries: dice.0.bool(),
                is_floor: dice.0.bool(),
                is_hold: dice.0.bool(),
            }),
            last_error: self.maybe(Self::text),
            failure_expiry: self.maybe(|dice| (dice.time(), dice.rv())),
            oldest_change: self.maybe(Self::event_id),
            head_start: self.head_start(),
            ..Backoff::default()
        };
        ScheduleState::new(place, failures, attempt, backoff)
    }

    fn views(&mut self) -> ViewChanges {
        let mut passage = || self.maybe(|dice| if dice.0.bool() { Passage::Entered } else { Passage::Left });
        let (latest, known) = (passage(), passage());
        ViewChanges { latest, known, birth: self.maybe(Self::birth) }
    }

    fn groups_state(&mut self) -> GroupsState {
        GroupsState {
            system: self.parts(),
            mean_us: self.maybe(Self::number),
            accounts: self.list(|dice| GroupAccount {
                group: dice.maybe(Self::text),
                virtual_time: dice.parts(),
                mean_us: dice.maybe(Self::number),
            }),
            leases: self.list(|dice| GroupLease {
                token: dice.token(),
                group: dice.maybe(Self::text),
                since: dice.time(),
                charged: dice.maybe(Self::parts),
                first: dice.token(),
            }),
            pops: self.list(|dice| (dice.token(), dice.0.u32(..))),
            regroups_since: self.maybe(Self::rv),
            stops: self.list(|dice| GroupStop {
                group: dice.maybe(Self::text),
                paused: dice.0.bool(),
                held_until: dice.time(),
                debt: dice.debt(),
            }),
        }
    }

    fn debt(&mut self) -> RateDebt {
        RateDebt { owed: self.number(), at: self.time() }
    }

    /// A virtual time, which has more bits than other numbers.
    fn parts(&mut self) -> u128 {
        self.0.u128(..) >> self.0.u32(..128)
    }

    fn key_state(&mut self) -> KeyState {
        KeyState {
            key: self.key(),
            rv: self.rv(),
            latest_rv: self.rv(),
            known: self.maybe(|dice| Known {
                object: dice.object(),
                rv: dice.rv(),
                owner: dice.maybe(Self::name),
            }),
            waiting: self.list(Self::delta),
            leased: self.list(Self::delta),
            schedule_state: self.schedule_state(),
            initial_pending: self.maybe(Self::rv),
            group: self.maybe(Self::text),
            birth: self.maybe(Self::birth),
        }
    }

    fn birth(&mut self) -> Birth {
        Birth { rv: self.rv(), at: self.time() }
    }

    /// A length that a setting can have, from `min_us` to a century.
    fn setting_span(&mut self, min_us: u64) -> Duration {
        let shift = self.0.u32(0..50);
        Duration::from_micros((self.0.u64(..=CENTURY) >> shift).max(min_us))
    }

    /// A number above 0, of any size.
    fn up_to(&mut self, max: f64) -> f64 {
        let float = self.float().abs();
        if float > 0.0 && float <= max { float } else { max * (1.0 - self.0.f64()) }
    }

    fn follow_position(&mut self) -> FollowPosition {
        let since = self.rv();
        let phase =
            self.of(&[FollowPhase::List { since }, FollowPhase::Sweep { since }, FollowPhase::Changes]);
        FollowPosition { incarnation: self.0.u32(..), after: self.rv(), phase }
    }

    fn version(&mut self) -> ObjectVersion {
        samples::version(self.of(&[
            "0",
            "-1.50",
            "1e400",
            "12345678901234567890.5",
            r#""""#,
            r#""a \"\u2028🦀""#,
        ]))
    }

    fn settled(&mut self) -> SettledLeases {
        let outcomes = [Outcome::Acked, Outcome::Done, Outcome::Nacked, Outcome::Expired];
        let mut settled = SettledLeases::default();
        for token in self.list(Self::token) {
            settled.record(token, self.of(&outcomes), self.time());
        }
        settled
    }

    fn queue_state(&mut self) -> QueueState {
        QueueState {
            rv: self.rv(),
            lives: self.list(|dice| Life {
                id: LifeId::new(dice.0.u32(..)),
                first: dice.rv(),
                last: dice.rv(),
            }),
            last_at: self.time(),
            config: Arc::new(self.config()),
            auto_created: self.0.bool(),
            creator: self.maybe(Self::name),
            paused: self.0.bool(),
            held_until: self.time(),
            pause_reason: self.maybe(Self::pause_reason),
            closed: self.0.bool(),
            closes_at_once: self.0.bool(),
            initial: self.of(&[
                InitialList::Missing,
                InitialList::Running { populated: false },
                InitialList::Running { populated: true },
                InitialList::Aborted { populated: false },
                InitialList::Complete,
            ]),
            settled: self.settled(),
            bucket: self.maybe(|dice| BucketLevel { tokens: dice.float(), at: dice.time() }),
            debt: self.debt(),
            groups: self.maybe(|dice| Box::new(dice.groups_state())),
            next_resync: self.maybe(Self::time),
            last_replace: self.maybe(Self::last_replace),
            followed: self.maybe(Self::follow_position),
            follow_set_by: self.maybe(Self::text),
            sources: self.list(|dice| {
                let history = SourceHistory {
                    last_call: dice.time(),
                    last_contact: dice.maybe(Self::time),
                    stale_after: dice.maybe(Self::stale_after),
                    last_replace: dice.maybe(Self::last_replace),
                    last_replaced: dice.maybe(Self::time),
                    sequence: dice.maybe(Self::number),
                    by: dice.maybe(Self::text),
                };
                SourceRecord { source: dice.name(), history }
            }),
            versions: self.list(|dice| RememberedVersion {
                key: dice.key(),
                version: dice.version(),
                before: dice.maybe(Self::version),
                rv: dice.rv(),
                at: dice.time(),
            }),
            received: self.list(Self::received),
            kept: self.list(Self::kept),
            births_since: self.maybe(Self::birth),
        }
    }

    fn last_replace(&mut self) -> LastReplace {
        LastReplace {
            source: self.maybe(Self::name),
            counts: self.counts(),
            started: self.time(),
            ended: self.maybe(Self::time),
            aborted: self.0.bool(),
        }
    }
}

#[test]
fn random_events_are_read_back() {
    let mut decoder = Decoder::new();
    let mut seen = BTreeSet::new();
    for seed in 0..STATES {
        let events = Dice(Rng::with_seed(seed)).events();
        let rows = journal_rows(QueueId(1), Epoch(2), Rv::new(events[0].rv.get() - 1), &events, false);
        assert_eq!(rows.len(), 1, "seed {seed}");
        seen.extend(types(&events));
        assert_eq!(decoder.events(&rows[0]), Ok(events), "seed {seed}");
    }
    assert_eq!(seen, all_types());
}

#[test]
fn random_keys_are_read_back() {
    for seed in 0..STATES {
        let state = Dice(Rng::with_seed(seed)).key_state();
        assert_eq!(read(&run_of(&state, false)), Ok(state), "seed {seed}");
    }
}

#[test]
fn random_queues_are_read_back() {
    let mut decoder = Decoder::new();
    for seed in 0..STATES {
        let state = Dice(Rng::with_seed(seed)).queue_state();
        let read = decoder.queue(&queue_row(&samples::identity(), &state, 0..0)).unwrap();
        assert_eq!(read.state.as_ref(), Some(&state), "seed {seed}");
        let bits = |state: &QueueState| state.bucket.map(|level| level.tokens.to_bits());
        assert_eq!(read.state.as_ref().and_then(bits), bits(&state), "seed {seed}");
    }
}
