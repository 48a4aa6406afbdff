//! Groups of keys that take turns: start-time fair queueing by worker time.
//!
//! Each group has a *virtual time*, which grows by the worker time of its leases divided by its weight. The group with the smallest
//! one is next. A lease is charged when it begins, with the mean length of the group's leases, and corrected when it ends. The virtual
//! time of the queue is that of the group that was served last, before its charge. A group goes on at least there, so a group that
//! had nothing to deliver saves no credit.
//!
//! A group without leases whose virtual time is behind that of the queue has an *even* account: it differs in nothing from a new group.
//! A group is forgotten when its account is even, no key belongs to it, and it has no pause, no hold and no debt.
//!
//! The accounts are a function of the events `leased` and `settled`, whatever keys the queue has by then: a replay from a checkpoint
//! sees some keys in a later state. What is leased is therefore kept here for each lease, and not counted from the keys.
//!
//! Invariants:
//! - a group is *open* iff it has ready keys, may have more leases and is not paused;
//! - a group is in `turns` iff it is open and neither held nor limited by its rate at `now`, at the later one of its virtual time and the
//!   queue's;
//! - a group is in `wakes` iff it is open and has a hold or owes to its rate, at the time from which it has turns, which may have passed;
//! - a group is in `ends` iff it has a hold or owes to its rate, at the time from which neither is so;
//! - a group is in `uneven` iff it has no leases and an account that is not new;
//! - `Group::leased` is the number of its leases in `leases`, and `Group::keys` the number of slots that belong to it.

mod account;
mod stop;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::account::{Account, Charge, Pop, Virtual};
pub use self::account::{Charged, GroupAccount, GroupLease, GroupStop, GroupsState};
pub(crate) use self::stop::Stop;
use super::Order;
use super::order::Turn;
use crate::group_rules::GroupRules;
use crate::id::{Rv, Slot, Token};
use crate::rate::Rate;
use crate::time::Time;

/// The number of a group. It depends on the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct GroupId(u32);

impl GroupId {
    const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The groups of a queue. The first one is that without a name.
#[derive(Debug)]
pub(crate) struct Groups {
    rules: Arc<GroupRules>,
    /// The event since which the setting names the groups in another way, while keys have to be moved.
    pub(crate) regroups_since: Option<Rv>,
    /// The groups of the slots. Slots behind the end belong to the group without a name.
    of: Vec<GroupId>,
    list: Vec<Group>,
    free: Vec<GroupId>,
    ids: BTreeMap<Arc<str>, GroupId>,
    /// Bytes of all names in `ids`, which are counted after each change of the queue.
    name_bytes: usize,
    turns: BTreeMap<(Virtual, Option<Arc<str>>), GroupId>,
    uneven: BTreeSet<(Virtual, GroupId)>,
    wakes: BTreeSet<(Time, GroupId)>,
    ends: BTreeSet<(Time, GroupId)>,
    /// The time of the last look at the clock.
    now: Time,
    /// The virtual time of the queue.
    system: Virtual,
    /// The mean length of the leases of all groups, in microseconds.
    mean_us: Option<u64>,
    leases: BTreeMap<Token, Charge>,
    /// The pops of several keys that have live leases, by their first lease.
    pops: BTreeMap<Token, Pop>,
}

/// One group.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub(crate) name: Option<Arc<str>>,
    pub(crate) order: Order,
    /// Number of keys that belong to the group. Not counted for the group without a name.
    pub(crate) keys: usize,
    pub(crate) leased: usize,
    pub(crate) weight: u32,
    pub(crate) max_leased: Option<u64>,
    pub(crate) rate: Option<Rate>,
    pub(crate) stop: Stop,
    account: Account,
    /// Its place in `turns`.
    turn: Option<Virtual>,
    /// Its place in `wakes`.
    wake: Option<Time>,
}

impl Group {
    /// Whether workers hold as many keys of the group as they may.
    pub(crate) fn is_full(&self) -> bool {
        self.max_leased.is_some_and(|most| self.leased as u64 >= most)
    }

    /// Whether a pop may get a key of the group.
    pub(crate) const fn has_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// Whether a pop may get a key of the group when its hold and its rate allow it.
    fn is_open(&self) -> bool {
        self.order.len() > 0 && !self.is_full() && !self.stop.paused
    }

    /// Whether a pop at `now` may get a key of the group.
    fn is_eligible(&self, now: Time) -> bool {
        self.is_open() && self.stop.until() <= now
    }

    /// When its rate lets a key through, if from `now` on `ahead` keys of the group are delivered before it as soon as they may be.
    pub(crate) fn next_by_rate(&self, ahead: u64, now: Time) -> Option<Time> {
        self.rate.map(|rate| rate.next(self.stop.debt, ahead, now))
    }
}

impl Groups {
    /// Groups of keys that all belong to the group without a name.
    pub(crate) fn new(rules: Arc<GroupRules>, order: Order) -> Self {
        let unnamed = Group { order, ..Self::group(&rules, None) };
        let mut groups = Self {
            rules,
            regroups_since: None,
            of: Vec::new(),
            list: vec![unnamed],
            free: Vec::new(),
            ids: BTreeMap::new(),
            name_bytes: 0,
            turns: BTreeMap::new(),
            uneven: BTreeSet::new(),
            wakes: BTreeSet::new(),
            ends: BTreeSet::new(),
            now: Time::default(),
            system: 0,
            mean_us: None,
            leases: BTreeMap::new(),
            pops: BTreeMap::new(),
        };
        groups.place(GroupId::default());
        groups
    }

    fn group(rules: &GroupRules, name: Option<Arc<str>>) -> Group {
        let of = name.as_deref();
        let (weight, max_leased, rate) = (rules.weight(of), rules.max_leased(of), rules.rate(of));
        Group { name, weight, max_leased, rate, ..Group::default() }
    }

    /// Changes the weights and the limits.
    pub(crate) fn configure(&mut self, rules: &Arc<GroupRules>, at: Time) {
        if self.rules.by != rules.by {
            self.regroups_since = None;
        }
        self.rules = rules.clone();
        let ids: Vec<GroupId> = self.ids.values().copied().chain([GroupId::default()]).collect();
        for id in ids {
            let group = self.at_mut(id);
            let of = group.name.as_deref();
            (group.weight, group.max_leased) = (rules.weight(of), rules.max_leased(of));
            let rate = rules.rate(of);
            self.change_rate(id, rate, at);
            self.place(id);
            self.forget(id);
        }
    }

    /// The order of the group whose key is delivered next.
    pub(crate) fn next(&self) -> Option<&Order> {
        self.turns.values().next().map(|id| &self.at(*id).order)
    }

    /// The order of a group whose key a pop may get. The empty name is that of the group without a name.
    pub(crate) fn next_of(&self, name: &str) -> Option<&Order> {
        self.named(name).filter(|group| group.is_eligible(self.now)).map(|group| &group.order)
    }

    /// The group of a name, if it exists. The empty name is that of the group without a name.
    fn named(&self, name: &str) -> Option<&Group> {
        let id = if name.is_empty() { GroupId::default() } else { *self.ids.get(name)? };
        Some(self.at(id))
    }

    /// The names of the groups that a pop may get a key of, in the order of their turns. The empty one is that of the group without a name.
    pub(crate) fn with_turn(&self) -> impl Iterator<Item = &str> {
        self.turns.keys().map(|(_, name)| name.as_deref().unwrap_or_default())
    }

    /// The number of groups that a pop may get a key of.
    pub(crate) fn turns_len(&self) -> usize {
        self.turns.len()
    }

    /// Whether a pop may get a key of any group.
    pub(crate) fn has_turn(&self) -> bool {
        !self.turns.is_empty()
    }

    /// The group of a slot.
    pub(crate) fn of(&self, slot: Slot) -> &Group {
        self.at(self.id_of(slot))
    }

    /// What stops the delivery of a group. The empty name is that of the group without a name.
    pub(crate) fn stop_of(&self, name: &str) -> Stop {
        self.named(name).map_or_else(Stop::default, |group| group.stop)
    }

    /// The name of the group that a lease of this slot counts for.
    pub(crate) fn charged_to(&self, token: Token, slot: Slot) -> Option<&Arc<str>> {
        let id = self.leases.get(&token).map_or_else(|| self.id_of(slot), |charge| charge.group);
        self.at(id).name.as_ref()
    }

    /// Whether the group of this name exists, or there is room for it.
    pub(crate) fn has_room(&self, name: &str, most: usize) -> bool {
        self.ids.len() < most || self.ids.contains_key(name)
    }

    /// All groups. The one without a name comes first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Group> {
        std::iter::once(GroupId::default()).chain(self.ids.values().copied()).map(|id| self.at(id))
    }

    /// The sum of the weights of the groups that have a turn.
    pub(crate) fn weights(&self) -> u64 {
        self.turns.values().map(|id| u64::from(self.at(*id).weight)).sum()
    }

    /// Bytes that the groups take in memory (approximate).
    pub(crate) fn bytes(&self) -> usize {
        self.name_bytes + self.list.len() * size_of::<Group>()
    }

    /// What the group of a key is charged for, which is the n-th one of its pop.
    #[cold]
    #[inline(never)]
    pub(crate) fn charged(&self, slot: Slot, nth: usize, dedicated: bool) -> Charged {
        let nth = u32::try_from(nth).unwrap_or(u32::MAX);
        Charged { group: self.of(slot).name.clone(), nth, dedicated }
    }

    /// Adds a ready key of a slot.
    #[cold]
    #[inline(never)]
    pub(super) fn enter(&mut self, slot: Slot, rv: Rv, turn: Option<Turn>) {
        let id = self.id_of(slot);
        let group = self.at_mut(id);
        group.order.insert(rv, turn, slot);
        if group.order.len() == 1 {
            self.place(id);
        }
    }

    /// Removes a ready key of a slot.
    #[cold]
    #[inline(never)]
    pub(super) fn leave(&mut self, slot: Slot, rv: Rv, turn: Option<Turn>) {
        let id = self.id_of(slot);
        let group = self.at_mut(id);
        group.order.remove(rv, turn);
        if group.order.len() == 0 {
            self.place(id);
        }
    }

    /// Moves a slot to a group. `ready` is the place of its key in the order, if the key is ready.
    pub(crate) fn assign(&mut self, slot: Slot, name: Option<&Arc<str>>, ready: Option<(Rv, Option<Turn>)>) {
        let (from, to) = (self.id_of(slot), self.find_or_add(name));
        if from == to {
            return;
        }
        if let Some((rv, turn)) = ready {
            self.at_mut(from).order.remove(rv, turn);
            self.at_mut(to).order.insert(rv, turn, slot);
        }
        self.count(from, to);
        if self.of.len() <= slot.index() {
            self.of.resize(slot.index() + 1, GroupId::default());
        }
        if let Some(of) = self.of.get_mut(slot.index()) {
            *of = to;
        }
        self.place(to);
        self.place(from);
        self.forget(from);
    }

    /// Records that a slot has no key any more.
    #[cold]
    #[inline(never)]
    pub(crate) fn release(&mut self, slot: Slot) {
        let from = self.id_of(slot);
        if let Some(of) = self.of.get_mut(slot.index()) {
            *of = GroupId::default();
        }
        self.count(from, GroupId::default());
        self.forget(from);
    }

    /// Charges a group for a new lease. One of a pop that asked for this group takes no turn and costs no worker time.
    pub(crate) fn lease(&mut self, token: Token, what: &Charged, at: Time) {
        self.end_stops(at);
        let (id, nth) = (self.find_or_add(what.group.as_ref()), what.nth);
        let start = self.at(id).account.virtual_time.max(self.system);
        let charge = || self.at(id).account.charge(self.mean_us, self.at(id).weight);
        let charged = (!what.dedicated).then(charge);
        self.note_account(id, |group| {
            group.leased += 1;
            if let Some(charged) = charged {
                group.account.virtual_time = start + charged;
            }
        });
        let first = Token::new(token.rv().minus(u64::from(nth)));
        self.leases.insert(token, Charge { group: id, since: at, charged, first });
        if nth > 0 {
            let pop = self.pops.entry(first).or_insert(Pop { keys: 1, live: 1 });
            (pop.keys, pop.live) = (pop.keys + 1, pop.live + 1);
        }
        if charged.is_some() {
            self.advance(start);
        }
        self.note_delivery(id, at);
        self.place(id);
    }

    /// Corrects the charge of a lease that has ended. A lease that was never delivered costs nothing.
    #[cold]
    #[inline(never)]
    pub(crate) fn settle(&mut self, token: Token, at: Time, delivered: bool) {
        // A lease that began before the setting was set has no charge.
        let Some(Charge { group: id, since, charged, first }) = self.leases.remove(&token) else { return };
        let keys = self.end_of_pop(first);
        let us = (micros(at.since(since)) / u64::from(keys)).max(1);
        let system = self.system;
        self.note_account(id, |group| {
            group.leased -= 1;
            group.account.correct(charged, delivered.then_some(us), group.weight);
            if group.leased == 0 && group.account.virtual_time < system {
                group.account = Account::default();
            }
        });
        if delivered {
            self.mean_us = Some(account::mean(self.mean_us, us));
        }
        self.place(id);
        self.forget(id);
    }

    /// Records that no worker could reach the queue for a time, which is no worker time.
    pub(crate) fn skip(&mut self, time: std::time::Duration) {
        for charge in self.leases.values_mut() {
            charge.since = charge.since.plus(time);
        }
    }

    /// Moves the virtual time of the queue. Accounts that are behind it are even.
    fn advance(&mut self, to: Virtual) {
        self.system = self.system.max(to);
        while let Some((virtual_time, id)) = self.uneven.first().copied()
            && virtual_time < self.system
        {
            self.uneven.pop_first();
            self.at_mut(id).account = Account::default();
            self.place(id);
            self.forget(id);
        }
        // Only a replay, which sees some keys in a later state, serves another group than the first one.
        while let Some((virtual_time, id)) = self.turns.iter().next().map(|((at, _), id)| (*at, *id))
            && virtual_time < self.system
        {
            self.place(id);
        }
    }

    /// Changes the account of a group.
    fn note_account(&mut self, id: GroupId, change: impl FnOnce(&mut Group)) {
        let is_uneven = |group: &Group| group.leased == 0 && group.account != Account::default();
        let group = self.at_mut(id);
        let was = is_uneven(group).then_some(group.account.virtual_time);
        change(group);
        let is = is_uneven(group).then_some(group.account.virtual_time);
        if let Some(was) = was {
            self.uneven.remove(&(was, id));
        }
        if let Some(is) = is {
            self.uneven.insert((is, id));
        }
    }

    /// Puts a group where its ready keys, what stops it and its virtual time say.
    fn place(&mut self, id: GroupId) {
        let (system, now) = (self.system, self.now);
        let group = self.at_mut(id);
        let wake = stop::timed(group.stop.until()).filter(|_| group.is_open());
        let woken = std::mem::replace(&mut group.wake, wake);
        stop::move_in(&mut self.wakes, id, woken, wake);
        let group = self.at_mut(id);
        let is = group.is_eligible(now).then(|| group.account.virtual_time.max(system));
        let was = std::mem::replace(&mut group.turn, is);
        if was == is {
            return;
        }
        let name = group.name.clone();
        if let Some(was) = was {
            self.turns.remove(&(was, name.clone()));
        }
        if let Some(is) = is {
            self.turns.insert((is, name), id);
        }
    }

    /// Forgets a group that differs in nothing from a new one.
    fn forget(&mut self, id: GroupId) {
        let group = self.at_mut(id);
        let is_stopped = group.stop != Stop::default();
        if group.keys > 0 || group.leased > 0 || is_stopped || group.account != Account::default() {
            return;
        }
        if let Some(name) = group.name.take() {
            *group = Group::default();
            self.ids.remove(&name);
            self.name_bytes -= name.len();
            self.free.push(id);
        }
    }

    fn find_or_add(&mut self, name: Option<&Arc<str>>) -> GroupId {
        let Some(name) = name else { return GroupId::default() };
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let group = Self::group(&self.rules, Some(name.clone()));
        let id = self.free.pop().unwrap_or_else(|| id_at(self.list.len()));
        match self.list.get_mut(id.index()) {
            Some(free) => *free = group,
            None => self.list.push(group),
        }
        self.ids.insert(name.clone(), id);
        self.name_bytes += name.len();
        id
    }

    /// Counts a key that moves. The keys of the group without a name are not counted.
    fn count(&mut self, from: GroupId, to: GroupId) {
        if from != GroupId::default() {
            self.at_mut(from).keys -= 1;
        }
        if to != GroupId::default() {
            self.at_mut(to).keys += 1;
        }
    }

    /// Ends a lease of a pop. Returns the number of its keys.
    fn end_of_pop(&mut self, first: Token) -> u32 {
        let Some(pop) = self.pops.get_mut(&first) else { return 1 };
        let keys = pop.keys;
        pop.live -= 1;
        if pop.live == 0 {
            self.pops.remove(&first);
        }
        keys
    }

    fn id_of(&self, slot: Slot) -> GroupId {
        self.of.get(slot.index()).copied().unwrap_or_default()
    }

    fn at(&self, id: GroupId) -> &Group {
        match self.list.get(id.index()) {
            Some(group) => group,
            None => panic!("there is no group {id:?}"),
        }
    }

    fn at_mut(&mut self, id: GroupId) -> &mut Group {
        match self.list.get_mut(id.index()) {
            Some(group) => group,
            None => panic!("there is no group {id:?}"),
        }
    }
}

fn id_at(index: usize) -> GroupId {
    GroupId(u32::try_from(index).unwrap_or(u32::MAX))
}

fn micros(length: std::time::Duration) -> u64 {
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX)
}
