//! The calls of a caller. The ledger records each call and its reply.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use deltaq_engine::command::{Call, How, KeySelection, Pop, Progress, Replace, Settle, Settled};
use deltaq_engine::config::Config;
use deltaq_engine::delta::DeltaKind;
use deltaq_engine::id::Token;
use deltaq_engine::key::Key;
use deltaq_engine::object::Object;
use deltaq_engine::refusal::Refusal;
use deltaq_engine::time::Time;
use deltaq_engine::{Queue, ScanCursor};
use deltaq_journal::Live;
use deltaq_service::{Error, PopCall};
use deltaq_types::Mode;
use fastrand::Rng;
use futures_util::poll;

use super::Violation;
use super::caller::{Caller, Lease, Target};
use super::ledger::{Kind, View};
use super::plan::{Setup, head_start, how, millis};
use super::world::Applied;

type Sent = Vec<(String, u64, Kind)>;

/// The options of a Replace.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wishes {
    /// With a limit of deletions: the Replace counts the deletions before it writes anything.
    pub(super) max_deletes: Option<u64>,
    /// A dry run, which writes nothing.
    pub(super) dry_run: bool,
}

/// Maximum number of settled leases that a caller settles again.
const SETTLED_MAX: usize = 12;
/// More polls than the task of a queue needs to return undelivered keys.
const TASK_TURNS: usize = 20;

pub(super) fn key_name(index: usize) -> String {
    format!("k{index}")
}

pub(super) fn key(name: &str) -> Key {
    Key::new(name).expect("it is a key")
}

pub(super) fn object(name: &str, number: u64) -> Object {
    Object::from_valid(&format!("{{\"key\":\"{name}\",\"id\":{number}}}"))
}

impl Caller {
    /// Makes one random call.
    pub(super) async fn step(&self, mut rng: Rng) -> Result<(), Violation> {
        match rng.u32(..100) {
            0..32 => self.produce(&mut rng).await,
            32..58 => self.pop(&mut rng).await,
            58..74 => self.settle(&mut rng).await,
            74..77 => self.settle_again(&mut rng).await,
            77..80 => self.extend(&mut rng).await,
            80..84 => self.replace(&mut rng).await,
            84..91 => self.look(&mut rng).await,
            91..96 => self.cursor(&mut rng).await,
            96..99 => self.operate(&mut rng).await,
            _ => self.delete(rng.choice(&self.plan.queues).expect("there are some")).await,
        }
    }

    async fn produce(&self, rng: &mut Rng) -> Result<(), Violation> {
        let Some(target) = self.target(rng)? else { return Ok(()) };
        let is_keys = target.setup.config.mode == Mode::Keys;
        let count = if is_keys { 1 } else { rng.usize(1..4) };
        let one = |_| {
            let kind = if !is_keys && rng.u8(..5) == 0 { Kind::Delete } else { Kind::Put };
            let delay = (rng.u8(..6) == 0).then(|| millis(rng, 1..4_000));
            (rng.usize(..target.setup.keys), kind, rng.bool(), delay)
        };
        let all: Vec<_> = (0..count).map(one).collect();
        self.send_all(&target, &all).await
    }

    /// Adds and deletes.
    pub(super) async fn send(&self, target: &Target, all: &[(usize, Kind)]) -> Result<(), Violation> {
        let all: Vec<_> = all.iter().map(|(index, kind)| (*index, *kind, false, None)).collect();
        self.send_all(target, &all).await
    }

    /// Adds and deletes: the key, the kind of the call, whether to use the variant of the call (Update, or by key), and a delay.
    async fn send_all(
        &self,
        target: &Target,
        all: &[(usize, Kind, bool, Option<Duration>)],
    ) -> Result<(), Violation> {
        let is_keys = target.setup.config.mode == Mode::Keys;
        let kinds: Vec<_> = all.iter().map(|(index, kind, ..)| (*index, *kind)).collect();
        let sent = self.numbered(&kinds);
        let call =
            |((name, number, kind), (.., other_way, delay)): (&(String, u64, Kind), &(_, _, bool, _))| {
                let deletes = *kind == Kind::Delete;
                let added = if is_keys || *other_way { DeltaKind::Added } else { DeltaKind::Updated };
                Call {
                    kind: if deletes { DeltaKind::Deleted } else { added },
                    object: (!(is_keys || deletes && *other_way)).then(|| object(name, *number)),
                    head_start: head_start(*number),
                    ..Call::of_key(key(name), *delay)
                }
            };
        let calls: Vec<Call> = sent.iter().zip(all).map(call).collect();
        let asked = self.world.ledger(|ledger| {
            let asked = ledger.asks(&target.queue);
            ledger.sends(&asked, &sent).map(|()| asked)
        })?;
        self.note(("produce", &target.queue.0, &sent));
        let produced = target.handle.produce(&target.setup.config, &calls).await;
        self.note(&produced);
        self.world.ledger(|ledger| match &produced {
            Ok(produced) => {
                ledger.answered(&asked, Some(produced.resource_version))?;
                if is_keys && produced.ignored > 0 {
                    return ledger.refused(&asked, &sent);
                }
                ledger.hit("produced");
                ledger.accepted(&asked, &sent, produced.resource_version)
            }
            Err(Error::Refused(_)) => ledger.refused(&asked, &sent),
            Err(_) => Ok(()),
        })?;
        produced.map_or_else(|error| self.failed(&error), drop);
        Ok(())
    }

    /// Gives each object a number.
    pub(super) fn numbered(&self, all: &[(usize, Kind)]) -> Sent {
        all.iter().map(|(index, kind)| (key_name(*index), self.world.next_number(), *kind)).collect()
    }

    async fn pop(&self, rng: &mut Rng) -> Result<(), Violation> {
        let Some(target) = self.target(rng)? else { return Ok(()) };
        let settles = if rng.u8(..4) == 0 { self.some_held(rng, Some(&target)) } else { Vec::new() };
        let id = self.pop_id(rng, &target);
        let pop = Pop {
            max: rng.usize(1..5),
            max_bytes: if rng.u8(..5) == 0 { 1 } else { 1 << 20 },
            lease: (rng.u8(..3) == 0).then(|| millis(rng, 50..20_000)),
            worker: None,
            group: None,
            id: id.clone(),
            with_known: rng.bool(),
        };
        let wait = if rng.u8(..3) == 0 { Duration::ZERO } else { millis(rng, 1..5_000) };
        let keeps = rng.u8(..12) > 0;
        let had_id = id.is_some();
        if had_id && rng.u8(..3) == 0 {
            return self.pop_twice(&target, &pop, wait).await;
        }
        self.take(&target, PopCall { pop, settles: Vec::new(), wait }, settles, had_id, keeps).await.map(drop)
    }

    /// Repeats a pop with an id while the first pop may still run, and then drops the first pop.
    async fn pop_twice(&self, target: &Target, pop: &Pop, wait: Duration) -> Result<(), Violation> {
        let call = || PopCall { pop: pop.clone(), settles: Vec::new(), wait };
        let mut first = pin!(self.take(target, call(), Vec::new(), true, true));
        if let Poll::Ready(result) = poll!(first.as_mut()) {
            result?;
        }
        self.take(target, call(), Vec::new(), true, true).await.map(drop)
    }

    /// Pops. Returns the number of keys; `None` if the pop failed.
    pub(super) async fn take(
        &self,
        target: &Target,
        mut call: PopCall,
        settles: Vec<(Lease, How)>,
        had_id: bool,
        keeps: bool,
    ) -> Result<Option<usize>, Violation> {
        let asked = self.world.ledger(|ledger| ledger.asks(&target.queue));
        self.record_settles(&settles)?;
        call.settles.extend(
            settles
                .iter()
                .map(|(lease, how)| Settle { token: target.handle.token(&lease.id), how: how.clone() }),
        );
        self.note(("pop", &target.queue.0, &call));
        let answer = target.handle.pop(call).await;
        let mut delivered = match answer.items {
            Ok(delivered) => delivered,
            Err(error) => {
                self.failed(&error);
                if !matches!(error, Error::Journal(_) | Error::QueueDeleted | Error::Broken) {
                    self.record_settled(settles, &answer.settled)?;
                }
                return Ok(None);
            }
        };
        self.record_settled(settles, &answer.settled)?;
        let mut items = delivered.items.clone();
        for item in &mut items {
            item.deadline = Time::from_micros(self.world.deadline_us(&target.handle, item.deadline));
        }
        let tokens: Vec<_> = delivered.items.iter().map(|item| (item.key.as_str(), item.token)).collect();
        self.note(("popped", keeps, tokens));
        self.world.ledger(|ledger| {
            ledger.answered(&asked, None)?;
            ledger.popped(&asked, &items, had_id, keeps)
        })?;
        let count = delivered.items.len();
        if keeps {
            delivered.confirm();
            let held = delivered.items.iter().map(|item| Lease {
                queue: target.queue.clone(),
                id: target.handle.lease_id(item.token).to_string(),
                token: item.token.rv(),
                key: item.key.as_str().to_owned(),
                deltas: item.deltas.iter().map(|delta| delta.rv).collect(),
            });
            let mut memory = self.memory();
            let fresh: Vec<Lease> =
                held.filter(|lease| !memory.held.iter().any(|held| held.id == lease.id)).collect();
            memory.held.extend(fresh);
        } else {
            let tokens: Vec<Token> = delivered.items.iter().map(|item| item.token).collect();
            drop(delivered);
            // Another pop with the id may have been answered with these leases.
            if !had_id {
                self.check_returned(target, &tokens).await?;
            }
        }
        Ok(Some(count))
    }

    /// Checks that the leases of a dropped reply have ended once the queue's task has run, if no failure has interfered.
    async fn check_returned(&self, target: &Target, tokens: &[Token]) -> Result<(), Violation> {
        let works = || self.registry.check_journal().is_ok() && !self.world.drains();
        if !works() {
            return Ok(());
        }
        for _ in 0..TASK_TURNS {
            tokio::task::yield_now().await;
        }
        let mut left = None;
        let _is_there = target.handle.with(&mut |queue| {
            let first = queue.lives().present_first();
            let mut of_life = tokens.iter().copied().filter(|token| token.rv() >= first);
            left = of_life.find(|token| queue.schedule().leased_at(*token).is_some());
        });
        match left.filter(|_| works()) {
            Some(token) => Err(format!("{}: lease {token} was returned and is live", target.queue.0)),
            None => Ok(()),
        }
    }

    /// The id of a pop: none, a new one, or the id of an earlier pop.
    fn pop_id(&self, rng: &mut Rng, target: &Target) -> Option<Arc<str>> {
        let mut memory = self.memory();
        match rng.u8(..8) {
            0 => {
                let id: Arc<str> = format!("p{}", self.world.next_number()).into();
                memory.pops.push((target.queue.0.clone(), id.clone()));
                Some(id)
            }
            1 => {
                let own = memory.pops.iter().rev().find(|(name, _)| *name == target.queue.0);
                own.map(|(_, id)| id.clone())
            }
            _ => None,
        }
    }

    /// Leases of one queue to settle, and how. The caller keeps them until their end is known.
    pub(super) fn some_held(&self, rng: &mut Rng, target: Option<&Target>) -> Vec<(Lease, How)> {
        let memory = self.memory();
        let queue = match target {
            Some(target) => target.queue.clone(),
            None => match rng.choice(&memory.held) {
                Some(lease) => lease.queue.clone(),
                None => return Vec::new(),
            },
        };
        let of_queue = memory.held.iter().filter(|lease| lease.queue == queue);
        let some: Vec<Lease> = of_queue.take(rng.usize(1..4)).cloned().collect();
        some.into_iter().map(|lease| (lease, how(rng))).collect()
    }

    async fn settle_again(&self, rng: &mut Rng) -> Result<(), Violation> {
        let again = rng.choice(&self.memory().settled).cloned();
        self.send_settles(again.into_iter().collect()).await
    }

    /// Settles leases of one queue.
    pub(super) async fn send_settles(&self, settles: Vec<(Lease, How)>) -> Result<(), Violation> {
        let Some((first, _)) = settles.first() else { return Ok(()) };
        let Some(handle) = self.handle_of(first) else {
            let queue = first.queue.clone();
            self.memory().held.retain(|lease| lease.queue != queue);
            return Ok(());
        };
        let asked = self.world.ledger(|ledger| ledger.asks(&first.queue));
        self.record_settles(&settles)?;
        let calls: Vec<Settle> = settles
            .iter()
            .map(|(lease, how)| Settle { token: handle.token(&lease.id), how: how.clone() })
            .collect();
        self.note(("settle", &asked.queue.0, &calls));
        match handle.settle(&calls).await {
            Ok(settled) => {
                self.world.ledger(|ledger| ledger.answered(&asked, None))?;
                self.record_settled(settles, &settled)
            }
            Err(error) => {
                self.failed(&error);
                Ok(())
            }
        }
    }

    fn record_settles(&self, settles: &[(Lease, How)]) -> Result<(), Violation> {
        self.world.ledger(|ledger| {
            let mut all = settles.iter();
            all.try_for_each(|(lease, how)| ledger.settles(&lease.queue, &lease.key, lease.token, how))
        })
    }

    fn record_settled(&self, settles: Vec<(Lease, How)>, result: &[Settled]) -> Result<(), Violation> {
        self.note(result);
        for ((lease, how), result) in settles.into_iter().zip(result) {
            self.world.ledger(|ledger| {
                ledger.hit(if *result == Settled::Repeated { "settled again" } else { "settled" });
                ledger.settled(&lease.queue, &lease.key, lease.token, &how, *result)
            })?;
            let mut memory = self.memory();
            memory.held.retain(|held| held.id != lease.id);
            if matches!(result, Settled::Ok { .. } | Settled::Held { .. } | Settled::Repeated) {
                memory.settled.push((lease, how));
            }
            if memory.settled.len() > SETTLED_MAX {
                memory.settled.remove(0);
            }
        }
        Ok(())
    }

    async fn extend(&self, rng: &mut Rng) -> Result<(), Violation> {
        let Some(lease) = rng.choice(&self.memory().held).cloned() else { return Ok(()) };
        let Some(handle) = self.handle_of(&lease) else { return Ok(()) };
        let span = millis(rng, 10..20_000);
        let to_us = self.world.clock.monotonic_us() + u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let asked = self.world.ledger(|ledger| {
            let asked = ledger.asks(&lease.queue);
            ledger.extends(&lease.queue, &lease.key, lease.token, to_us).map(|()| asked)
        })?;
        let settle = Settle { token: handle.token(&lease.id), how: How::Extend { lease: Some(span) } };
        let extended = handle.settle(&[settle]).await;
        self.note(("extend", &extended));
        match extended {
            Ok(extended) => self.world.ledger(|ledger| {
                ledger.answered(&asked, None)?;
                let deadline_us = match extended.first() {
                    Some(Settled::Extended { deadline, .. }) => {
                        Some(self.world.deadline_us(&handle, *deadline))
                    }
                    _ => None,
                };
                ledger.extended(&lease.queue, &lease.key, lease.token, deadline_us)
            }),
            Err(error) => {
                self.failed(&error);
                Ok(())
            }
        }
    }

    async fn replace(&self, rng: &mut Rng) -> Result<(), Violation> {
        let Some(target) = self.target(rng)? else { return Ok(()) };
        let listed = rng.u8(3..9);
        let listed: Vec<_> = (0..target.setup.keys).filter(|_| rng.u8(..8) < listed).collect();
        let all: Vec<_> = listed.into_iter().map(|index| (index, Kind::Listed)).collect();
        let sent = self.numbered(&all);
        let wishes = wishes(rng);
        if rng.bool() {
            return self.send_replace(&target, sent, wishes, rng).await;
        }
        // Two at the same time: the second one waits.
        let mut other = rng.fork();
        let second = self.numbered(&all);
        let others = self::wishes(rng);
        let (one, two) = tokio::join!(
            biased;
            self.send_replace(&target, sent, wishes, rng),
            self.send_replace(&target, second, others, &mut other)
        );
        one.and(two)
    }

    /// Runs a Replace with `sent`. Time passes between its slices.
    pub(super) async fn send_replace(
        &self,
        target: &Target,
        sent: Sent,
        wishes: Wishes,
        rng: &mut Rng,
    ) -> Result<(), Violation> {
        let Wishes { max_deletes, dry_run } = wishes;
        let asked = self.world.ledger(|ledger| {
            let asked = ledger.asks(&target.queue);
            if dry_run {
                ledger.sends(&asked, &sent)?;
                ledger.refused(&asked, &sent)?;
            } else {
                ledger.replaces(&asked, &sent)?;
            }
            Ok::<_, Violation>(asked)
        })?;
        let items = sent.iter().map(|(name, number, _)| (key(name), object(name, *number))).collect();
        let mut accepting = Some(Replace { max_deletes, dry_run, ..Replace::new(items, None) });
        let mut id = None;
        self.note(("replace", &target.queue.0, sent.len(), wishes));
        let step = move |queue: &mut Queue, now: Time, budget: usize| {
            if let Some(replace) = &accepting {
                queue.check_replace(replace)?;
            }
            if let Some(replace) = accepting.take() {
                id = Some(queue.accept_replace(now, replace)?);
            }
            match id {
                Some(id) => queue.replace_step(now, id, budget),
                None => Ok(Progress::NotYet),
            }
        };
        let most = (sent.len() / 4).clamp(2, 400);
        let replaced = self.sliced(target, rng, most, step).await;
        self.note(&replaced);
        self.world.ledger(|ledger| match &replaced {
            Ok(replaced) => {
                ledger.hit(if dry_run { "replaced in a dry run" } else { "replaced" });
                ledger.answered(&asked, Some(replaced.resource_version))?;
                if dry_run {
                    return Ok(());
                }
                ledger.accepted(&asked, &sent, replaced.resource_version)
            }
            Err(Error::Refused(_)) => ledger.refused(&asked, &sent),
            Err(_) => Ok(()),
        })
    }

    /// Runs a long command in slices of a few keys. Each slice takes time.
    async fn sliced<T: Send + 'static>(
        &self,
        target: &Target,
        rng: &mut Rng,
        most: usize,
        mut step: impl FnMut(&mut Queue, Time, usize) -> Result<Progress<T>, Refusal> + Send + 'static,
    ) -> Result<T, Error> {
        let (world, mut rng) = (self.world.clone(), rng.fork());
        let done = target.handle.long_command(move |queue, now| {
            world.spend(Duration::from_micros(rng.u64(..900)));
            step(queue, now, rng.usize(1..=most))
        });
        let done = done.await;
        if let Err(error) = &done {
            let _applied = self.world.applied_by(error);
        }
        done
    }

    async fn look(&self, rng: &mut Rng) -> Result<(), Violation> {
        let Some(target) = self.target(rng)? else { return Ok(()) };
        let asked = self.world.ledger(|ledger| ledger.asks(&target.queue));
        if rng.u8(..3) == 0 {
            // The limits of the queue may hold keys back. The rate lets none through without an event while a pop waits.
            let mut delivers = false;
            let _is_there = target.handle.with(&mut |queue| delivers = queue.has_ready(queue.last_at()));
            let Ok(document) = target.handle.document().await else { return Ok(()) };
            let status = document.status;
            self.note(("document", &status, document.waiters));
            self.world.ledger(|ledger| ledger.answered(&asked, Some(status.resource_version)))?;
            if delivers && status.ready > 0 && document.waiters > 0 && !self.world.drains() {
                return Err(format!("{}: pops wait for keys that are ready", target.queue.0));
            }
            return Ok(());
        }
        let name = key_name(rng.usize(..target.setup.keys));
        let read = target
            .handle
            .read(|queue, _| (queue.resource_version(), View::of(queue, &name), queue.has_synced()));
        let Ok((rv, view, synced)) = read.await else { return Ok(()) };
        self.note(("read", &target.queue.0, rv, &name, &view));
        self.world.ledger(|ledger| {
            ledger.hit("read");
            ledger.answered(&asked, Some(rv))?;
            ledger.synced(&asked, synced)?;
            ledger.read(&asked, &name, &view)
        })
    }

    async fn cursor(&self, rng: &mut Rng) -> Result<(), Violation> {
        let Some(target) = self.target(rng)? else { return Ok(()) };
        let queue = &target.queue;
        let mut cursor = ScanCursor::default();
        let choice = rng.u8(..10);
        self.note(("cursor", choice, &queue.0));
        let drops = choice < 2;
        if drops {
            self.world.ledger(|ledger| ledger.drops(queue))?;
        }
        let done = match choice {
            0 => {
                let step = move |queue: &mut Queue, now, most| Ok(queue.purge_step(now, &mut cursor, most));
                self.sliced(&target, rng, 4, step).await.map(drop)
            }
            1..7 => {
                let operate = match choice {
                    1 => Queue::discard_step,
                    2 | 3 => Queue::promote_step,
                    _ => Queue::redrive_step,
                };
                let mut keys = KeySelection::All.into();
                let step = move |queue: &mut Queue, now, most| operate(queue, now, &mut keys, most);
                self.sliced(&target, rng, 4, step).await.map(drop)
            }
            _ => {
                let step = move |queue: &mut Queue, now, most| queue.resync_step(now, &mut cursor, most);
                self.sliced(&target, rng, 4, step).await.map(drop)
            }
        };
        self.note(&done);
        if drops && done.is_ok() { self.world.ledger(|ledger| ledger.dropped(queue)) } else { Ok(()) }
    }

    async fn operate(&self, rng: &mut Rng) -> Result<(), Violation> {
        let Some(target) = self.target(rng)? else { return Ok(()) };
        let asked = self.world.ledger(|ledger| ledger.asks(&target.queue));
        let choice = rng.u8(..6);
        let handle = &target.handle;
        let done = match choice {
            0 => handle.set_paused(true).await,
            1 | 2 => handle.set_paused(false).await,
            3 => handle.close(false).await,
            4 => handle.reopen().await,
            _ => {
                let (lease, failures) = (millis(rng, 200..10_000), rng.u32(..4));
                let edit = |config: &Config| {
                    Ok::<_, Error>(Config { lease, max_failures: failures, ..config.clone() })
                };
                let (configured, commit) = handle.configure(edit);
                commit.wait().await.map_err(Error::from).and(configured)
            }
        };
        self.note(("operate", choice, &target.queue.0, &done));
        match done {
            Ok(()) => self.world.ledger(|ledger| ledger.answered(&asked, None)),
            Err(error) => {
                self.failed(&error);
                Ok(())
            }
        }
    }

    pub(super) async fn delete(&self, setup: &Setup) -> Result<(), Violation> {
        let Some(handle) = self.registry.find(&setup.name) else { return Ok(()) };
        let queue = (setup.name.clone(), handle.incarnation().0);
        self.world.ledger(|ledger| {
            ledger.found(&queue, &setup.config)?;
            ledger.deletes(&queue)
        })?;
        self.note(("delete", &queue));
        let deleted = match self.registry.delete(&setup.name, true) {
            Ok(commit) => commit.wait().await.map_err(Error::from),
            Err(error) => Err(error),
        };
        self.note(&deleted);
        match deleted {
            Ok(()) => self.world.ledger(|ledger| {
                ledger.hit("deleted");
                ledger.deleted(&queue)
            }),
            Err(error) => {
                debug_assert_eq!(self.world.applied_by(&error), Applied::Unknown);
                Ok(())
            }
        }
    }
}

fn wishes(rng: &mut Rng) -> Wishes {
    Wishes { max_deletes: (rng.u8(..3) == 0).then(|| rng.u64(..8)), dry_run: rng.u8(..5) == 0 }
}
