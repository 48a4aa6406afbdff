//! A random history: the calls, the ends, the copies, and the clock.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use tokio::runtime::Builder;

use super::judge::{Item, Kind, Timeline};
use super::machine::{Copied, Machine};
use super::node::Running;

/// Items of one check, beside the newest ones.
const CHECKED: usize = 24;
const NEWEST_CHECKED: usize = 6;

/// How often each situation occurred.
pub(super) type Hits = BTreeMap<&'static str, u64>;

pub(super) struct History {
    rng: Rng,
    prints: bool,
    mode: &'static str,
    machine: Machine,
    /// Everything that was ever given out.
    items: Vec<Item>,
    timeline: Timeline,
    copies: Vec<Copy>,
    /// The largest number that was given out in any time, and the same before the present life.
    newest: u64,
    before: u64,
    hits: Hits,
    /// Whether the process lives on while its database fails over.
    lives_on: bool,
}

/// A copy of the store, and what is kept with it.
struct Copy {
    copied: Copied,
    timeline: Timeline,
    restores: u32,
}

impl History {
    /// A history of a node in this process.
    pub(super) fn run(seed: u64, prints: bool) -> Hits {
        let mut rng = Rng::with_seed(seed);
        // The service chooses the ids of lives at random.
        fastrand::seed(rng.u64(..));
        let machine = Machine::here(rng.u8(..8) > 0);
        Self::on(machine, rng, seed, prints)
    }

    /// A history of processes.
    pub(super) fn of_processes(seed: u64, prints: bool) -> Hits {
        Self::on(Machine::of_processes(), Rng::with_seed(seed), seed, prints)
    }

    /// A history of a process whose database has a standby.
    pub(super) fn of_databases(seed: u64, prints: bool) -> Hits {
        let mut rng = Rng::with_seed(seed);
        let machine = Machine::of_databases(&mut rng);
        Self::on(machine, rng, seed, prints)
    }

    fn on(machine: Machine, mut rng: Rng, seed: u64, prints: bool) -> Hits {
        let mode = ["delta", "latest", "keys", "events"][rng.usize(..4)];
        let lives = rng.u32(4..12);
        let mut history = Self {
            rng,
            prints,
            mode,
            machine,
            items: Vec::new(),
            timeline: Timeline::default(),
            copies: Vec::new(),
            newest: 0,
            before: 0,
            hits: Hits::new(),
            lives_on: false,
        };
        history.note(&format!("seed {seed}, mode {mode}"));
        for life in 0..lives {
            let wrong_s = history.machine.pass_time(&mut history.rng);
            history.note(&format!("a start, whose clock is wrong by {wrong_s} s"));
            // A process: all its tasks end with its runtime.
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            let is_new = life == 0 || !history.machine.has_journal();
            runtime.block_on(history.live(is_new));
            drop(runtime);
            history.end();
        }
        history.hits
    }

    fn note(&self, what: &str) {
        if self.prints {
            println!("{what}");
        }
    }

    fn hit(&mut self, what: &'static str) {
        *self.hits.entry(what).or_default() += 1;
    }

    /// A life of the queue begins, above this floor.
    fn begin(&mut self, floor: u64) {
        self.before = self.newest;
        if floor < self.before {
            self.hit("a start with a clock that is behind");
        }
        self.timeline.starts.push((self.items.len(), floor));
    }

    async fn create(&mut self, node: &Running) {
        let floor = self.machine.floor();
        let created = node.call("PUT", "", &json!({ "mode": self.mode })).await;
        assert_eq!(created.status, 201, "{created:?}");
        self.begin(floor);
        if self.mode != "keys" {
            // Without a journal, only what follows the first watch can be watched.
            assert_eq!(node.call("GET", "/watch", &Value::Null).await.status, 200);
        }
    }

    async fn live(&mut self, is_new: bool) {
        let mut floor = self.machine.floor();
        if self.machine.keeps_numbers() {
            floor = floor.max(self.newest);
        }
        let node = self.machine.start().await;
        if !self.machine.has_journal() {
            self.hit("a start without a journal");
        }
        if is_new {
            self.create(&node).await;
        } else {
            self.begin(floor);
        }
        self.check(&node).await;
        for step in 0..self.rng.u32(4..16) {
            if step == 2 && self.machine.has_standby() && self.rng.bool() {
                self.copy_beside();
            }
            self.machine.spend(Duration::from_millis(self.rng.u64(..5_000)));
            self.step(&node).await;
        }
        self.check(&node).await;
        self.lives_on = self.machine.lags() && self.rng.u8(..3) > 0;
        if self.lives_on {
            self.machine.keep(node);
        } else if self.machine.has_journal() && self.rng.bool() {
            node.stop().await;
            self.note("a clean stop");
        }
    }

    /// What is there after the end: the rows as they are, the same in another place, or a copy of them.
    fn end(&mut self) {
        if !self.machine.has_journal() {
            self.timeline = Timeline::default();
            return;
        }
        if self.machine.has_standby() {
            self.may_fail_over();
            return;
        }
        self.machine.ended();
        if self.rng.u8(..3) == 0 {
            let copied = self.machine.copied();
            self.keep(copied);
        }
        if self.rng.u8(..4) == 0 {
            let floor = self.machine.floor();
            if self.machine.export_and_import() {
                self.begin(floor);
                self.note("an export and an import");
                self.hit("an export and an import");
            }
        }
        if self.rng.bool() || self.copies.is_empty() {
            return;
        }
        let index = self.rng.usize(..self.copies.len());
        let copy = &mut self.copies[index];
        copy.restores += 1;
        let is_again = copy.restores > 1;
        self.machine.restore(&copy.copied);
        self.timeline = copy.timeline.clone();
        self.note(&format!("copy {index} is restored: items {:?} are kept", self.timeline.items));
        self.hit("a start from a copy");
        if is_again {
            self.hit("a start from the same copy again");
        }
    }

    /// The primary of the database may be lost, with everything that the standby lacks.
    fn may_fail_over(&mut self) {
        if !self.machine.lags() || !self.lives_on && self.rng.u8(..3) == 0 {
            return;
        }
        let Copy { copied, timeline, .. } = self.copies.remove(0);
        self.machine.restore(&copied);
        self.timeline = timeline;
        let lives_on = self.lives_on;
        self.note(&format!(
            "a failover, the process lives on: {lives_on}; items {:?} are kept",
            self.timeline.items
        ));
        self.hit("a failover to a standby that lagged");
        if lives_on {
            self.hit("a process that lived on over a failover");
        }
    }

    /// Copies the rows beside the running node, or lets its standby lag.
    fn copy_beside(&mut self) {
        let copied = self.machine.backup();
        self.note("a copy beside the running node");
        self.keep(copied);
    }

    fn keep(&mut self, copied: Option<Copied>) {
        let timeline = self.timeline.clone();
        self.copies.extend(copied.map(|copied| Copy { copied, timeline, restores: 0 }));
    }

    async fn step(&mut self, node: &Running) {
        match self.rng.u8(..20) {
            0..=6 => self.change(node).await,
            7..=10 => self.pop(node).await,
            11 | 12 => self.settle(node).await,
            13..=15 => self.list(node).await,
            16 => self.copy_beside(),
            17 if self.rng.u8(..6) == 0 => {
                assert_eq!(node.call("DELETE", "", &Value::Null).await.status, 204);
                self.timeline = Timeline { starts: self.timeline.starts.clone(), ..Timeline::default() };
                self.create(node).await;
                self.note("the queue is created again");
                self.hit("the queue was deleted and created again");
            }
            _ => self.check(node).await,
        }
    }

    /// Keeps what a reply has named.
    fn given(&mut self, kind: Kind, text: String, number: u64) -> usize {
        let index = self.items.len();
        let floor = self.timeline.starts.last().map_or(0, |(_, floor)| *floor);
        let is_new = floor >= self.before;
        if matches!(kind, Kind::Version | Kind::Lease) && is_new {
            assert!(
                number > self.before,
                "{number} is not above {}, which was given out before",
                self.before
            );
        }
        let is_lost = |(other, item): &(usize, &Item)| {
            !self.timeline.items.contains(other)
                && kind != Kind::Version
                && item.kind == kind
                && item.text == text
        };
        let repeated = self.items.iter().enumerate().find(is_lost);
        assert!(repeated.is_none(), "{text} was given out in a time that is lost: {repeated:?}");
        self.newest = self.newest.max(number);
        self.note(&format!("{index}: {kind:?} {text}"));
        self.items.push(Item { kind, text, number, is_new });
        self.timeline.items.insert(index);
        index
    }

    async fn change(&mut self, node: &Running) {
        let has_objects = self.mode != "keys";
        // A new key each time, where a key that is ready already changes nothing and has no number of its own.
        let key = if has_objects { self.rng.usize(..5) } else { self.items.len() };
        let key = format!("k{key}");
        let object =
            if has_objects { json!({ "key": key, "n": self.items.len() }) } else { json!({ "key": key }) };
        let changed = node.call("POST", if has_objects { "/update" } else { "/add" }, &object).await;
        assert_eq!(changed.status, 200, "{changed:?}");
        let version = changed.body["resource_version"].as_u64().expect("a version");
        self.given(Kind::Version, version.to_string(), version);
        if !has_objects {
            return;
        }
        let life = changed.body["life"].as_str().expect("a life");
        self.given(Kind::Event, format!("{life}-{version}"), version);
        let tag =
            node.call("GET", &format!("/latest/{key}"), &Value::Null).await.etag.expect("an entity tag");
        let tag = self.given(Kind::Tag(key.clone()), tag, version);
        self.timeline.tags.insert(key, tag);
    }

    async fn pop(&mut self, node: &Running) {
        let popped = node.call("POST", "/pop?lease_duration=12h", &json!({})).await;
        assert_eq!(popped.status, 200, "{popped:?}");
        let lease = &popped.body["items"][0]["lease"];
        if let (Some(id), Some(token)) = (lease["id"].as_str(), lease["token"].as_u64()) {
            let lease = self.given(Kind::Lease, id.to_owned(), token);
            self.timeline.live.insert(lease);
        }
    }

    /// Ends a live lease.
    async fn settle(&mut self, node: &Running) {
        let live: Vec<usize> = self.timeline.live.iter().copied().collect();
        let Some(&lease) = self.rng.choice(&live) else { return };
        let how = if self.rng.bool() { "/ack" } else { "/release" };
        let settled = node.call("POST", how, &json!({ "lease_ids": [self.items[lease].text] })).await;
        assert_eq!(
            (settled.status, &settled.body["settled"][0]["result"]),
            (200, &json!("ok")),
            "{settled:?}"
        );
        self.timeline.live.remove(&lease);
    }

    /// The token has the newest number, which is lost only with its change.
    async fn list(&mut self, node: &Running) {
        self.change(node).await;
        let page = node.call("GET", "/items?limit=1", &Value::Null).await;
        if let (Some(token), Some(version)) =
            (page.body["continue"].as_str(), page.body["resource_version"].as_u64())
        {
            self.given(Kind::Cursor, token.to_owned(), version);
        }
    }

    /// Uses some of the items as callers do.
    async fn check(&mut self, node: &Running) {
        let count = self.items.len();
        let mut indexes: Vec<usize> = (count.saturating_sub(NEWEST_CHECKED)..count).collect();
        indexes.extend((0..CHECKED.min(count)).map(|_| self.rng.usize(..count)));
        for index in indexes {
            let checked = self.timeline.check(index, &self.items[index], node, self.mode != "keys").await;
            if let Some(what) = checked {
                self.hit(what);
            }
        }
    }
}
