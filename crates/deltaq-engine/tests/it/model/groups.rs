//! Groups of keys that take turns. No group is ever forgotten, no order of the groups is kept, and the leases of a group are counted anew at each
//! look.

use std::collections::{BTreeMap, BTreeSet};

use deltaq_engine::config::{Config, GroupBy};
use serde_json::value::RawValue;

use super::limits::{arrival_after, arrival_at, lets_through};
use super::{Content, Item, Label, Micros, Model, Name, OBJECTS, Place, Step};

/// A group; `None` is that without a name.
type Group = Option<String>;

/// How many ready keys and, with groups, how many groups each reason stops; and the age of the oldest key that waits without a reason.
type ReadyCounts = ([usize; 4], Option<([usize; 4], Option<Micros>)>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    of: BTreeMap<Name, String>,
    /// The virtual time and the mean length of the leases of each group.
    accounts: BTreeMap<Group, (u128, Option<u64>)>,
    /// The virtual time of the group that was served last.
    system: u128,
    mean: Option<u64>,
    charges: BTreeMap<u64, Charge>,
    /// The number of keys of each pop, by its first token.
    pops: BTreeMap<u64, u64>,
    paused: BTreeSet<Group>,
    /// When the hold of each group ends, or ended.
    held: BTreeMap<Group, Micros>,
    /// The theoretical arrival of the next key of each group.
    arrivals: BTreeMap<Group, u128>,
    /// The event since which the setting names the groups in another way, while keys have to be moved.
    regroups_since: Option<u64>,
}

/// The progress of a walk that moves keys to other groups.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelWalk {
    since: Option<u64>,
    after: Option<Name>,
    moved: u64,
}

#[derive(Clone, Debug)]
struct Charge {
    group: Group,
    since: Micros,
    charged: Option<u128>,
    pop: u64,
}

impl Groups {
    fn leased(&self, group: &Group) -> usize {
        self.charges.values().filter(|charge| charge.group == *group).count()
    }

    fn held_until(&self, group: &Group) -> Micros {
        self.held.get(group).copied().unwrap_or_default()
    }

    /// The account of a group. A group that has nothing in work and is behind the others is as new.
    fn account(&self, group: &Group) -> (u128, Option<u64>) {
        let account = self.accounts.get(group).copied().unwrap_or_default();
        if self.leased(group) == 0 && account.0 < self.system { (0, None) } else { account }
    }
}

impl Model {
    /// When the hold of a group ends and its rate lets the next key through. `None` while it is paused or full.
    fn opens_at(&self, group: &Group) -> Option<Micros> {
        let rules = self.config.groups.as_ref()?;
        let most = rules.max_leased(group.as_deref());
        let is_full = most.is_some_and(|most| self.groups.leased(group) as u64 >= most);
        if is_full || self.groups.paused.contains(group) {
            return None;
        }
        let arrival = self.groups.arrivals.get(group).copied().unwrap_or_default();
        Some(self.groups.held_until(group).max(lets_through(rules.rate(group.as_deref()), arrival)))
    }

    /// The key that a pop gets next, if the queue as a whole delivers. `wanted` is the group that the pop asks for.
    pub(super) fn next_ready(&self, wanted: Label) -> Option<Name> {
        let ready = self.ready();
        if self.config.groups.is_none() {
            return ready.first().copied().filter(|_| wanted.is_none());
        }
        let has_turn = |key: &&Name| {
            let group = self.group_of(key);
            let is_wanted = wanted.is_none_or(|wanted| wanted == group.as_deref().unwrap_or_default());
            is_wanted && self.opens_at(&group).is_some_and(|at| at <= self.now)
        };
        // Of the keys of the first group, the first one.
        ready.iter().filter(has_turn).copied().min_by_key(|key| {
            let group = self.group_of(key);
            (self.groups.account(&group).0.max(self.groups.system), group)
        })
    }

    /// A pop has ended.
    pub(super) fn note_full_groups(&mut self, wants_more: bool) {
        if wants_more && self.next_ready(None).is_none() && self.count(Item::is_ready) > 0 {
            self.hit("max_leased of a group ends a pop");
        }
    }

    /// The groups with ready keys or leases, and the numbers of both.
    pub(crate) fn group_counts(&self) -> BTreeMap<Group, (usize, usize)> {
        let mut counts: BTreeMap<Group, (usize, usize)> = BTreeMap::new();
        for (key, _) in self.items.iter().filter(|(_, item)| Item::is_ready(item)) {
            counts.entry(self.group_of(key)).or_default().0 += 1;
        }
        for charge in self.groups.charges.values() {
            counts.entry(charge.group.clone()).or_default().1 += 1;
        }
        counts
    }

    /// What stops a group: 0 nothing, 1 a limit, 2 a hold, 3 a pause.
    fn group_stopped_by(&self, group: &Group, now: Micros) -> usize {
        let rules = self.config.groups.as_ref().expect("groups");
        let most = rules.max_leased(group.as_deref());
        let is_full = most.is_some_and(|most| self.groups.leased(group) as u64 >= most);
        let arrival = self.groups.arrivals.get(group).copied().unwrap_or_default();
        let limited = is_full || lets_through(rules.rate(group.as_deref()), arrival) > now;
        reason(self.groups.paused.contains(group), self.groups.held_until(group) > now, limited)
    }

    /// The ready keys and, with groups, the groups with ready keys, by what stops them; and the age of the oldest ready key of the groups that
    /// nothing stops and that have at most their share of the leases.
    pub(crate) fn ready_counts(&self, now: Micros) -> ReadyCounts {
        let of_queue =
            reason(self.paused, self.held_until > now, self.is_full() || self.rate_lets_through() > now);
        let mut keys = [0; 4];
        let Some(rules) = &self.config.groups else {
            keys[of_queue] = self.ready().len();
            return (keys, None);
        };
        let mut groups = [0; 4];
        let counts = self.group_counts();
        for (group, (ready, _)) in counts.iter().filter(|(_, (ready, _))| *ready > 0) {
            let of_group = self.group_stopped_by(group, now);
            groups[of_group] += 1;
            keys[of_group.max(of_queue)] += ready;
        }
        let is_eligible = |group: &Group, ready: usize| ready > 0 && self.group_stopped_by(group, now) == 0;
        let taking =
            counts.iter().filter(|(group, (ready, leased))| *leased > 0 || is_eligible(group, *ready));
        let weight = |group: &Group| u64::from(rules.weight(group.as_deref()));
        let weights: u64 = taking.clone().map(|(group, _)| weight(group)).sum();
        let all_leases: u64 = taking.map(|(_, (_, leased))| *leased as u64).sum();
        // The first key of each such group, by its position.
        let mut firsts: BTreeMap<Group, (u64, Micros)> = BTreeMap::new();
        for (key, item) in &self.items {
            let Place::Ready(position) = item.place else { continue };
            let group = self.group_of(key);
            let (ready, leased) = counts[&group];
            let has_room = leased as u64 * weights <= all_leases * weight(&group);
            if has_room && is_eligible(&group, ready) {
                let first = firsts.entry(group).or_insert((u64::MAX, 0));
                *first = (*first).min((position.rv, now - position.since));
            }
        }
        let oldest = firsts.values().map(|(_, age)| *age).max().filter(|_| of_queue == 0);
        (keys, Some((groups, oldest)))
    }

    fn group_of(&self, key: Name) -> Group {
        self.groups.of.get(key).cloned()
    }

    /// A change has named the group of its key.
    pub(super) fn regroup(&mut self, now: Micros, key: Name, content: Content, source: Label) {
        let Some(rules) = &self.config.groups else { return };
        let group = match (&rules.by, source) {
            (GroupBy::Source, None) => return,
            (GroupBy::Source, Some(source)) => Some(source.to_owned()),
            _ => named_by(content),
        };
        if self.group_of(key) == group {
            return;
        }
        self.event(now);
        if self.items[key].is_ready() && self.groups.of.contains_key(key) {
            self.hit("a ready key moves to another group");
        }
        match group {
            Some(group) => self.groups.of.insert(key, group),
            None => self.groups.of.remove(key),
        };
    }

    /// Keys move to the groups that the settings name by now, a few in each step.
    pub(crate) fn regroup_step(&mut self, now: Micros, walk: &mut ModelWalk, budget: usize) -> Step<u64> {
        let now = self.advance(now);
        let Some(since) = self.groups.regroups_since else { return Step::Done(walk.moved) };
        if walk.since != Some(since) {
            *walk = ModelWalk { since: Some(since), after: None, moved: walk.moved };
        }
        for _ in 0..budget {
            let mut keys = self.items.keys().copied();
            let Some(key) = keys.find(|key| walk.after.is_none_or(|after| *key > after)) else {
                self.event(now);
                self.groups.regroups_since = None;
                self.hit("keys move to other groups after a change of the setting");
                return Step::Done(walk.moved);
            };
            walk.after = Some(key);
            walk.moved += u64::from(self.regroup_key(now, key));
        }
        Step::More
    }

    /// Moves a key to the group that its newest state names. Returns whether it was in another one.
    fn regroup_key(&mut self, now: Micros, key: Name) -> bool {
        let by_source = self.config.groups.as_ref().is_some_and(|rules| rules.by == GroupBy::Source);
        let item = &self.items[key];
        let deltas = || item.waiting.iter().rev().chain(item.leased.iter().rev());
        let group = if by_source {
            let source = deltas().find_map(|delta| delta.source.or(delta.owner));
            source.or(item.known.and_then(|known| known.owner)).map(str::to_owned)
        } else {
            let newest = deltas().next().map(|delta| delta.content);
            newest.or(item.known.map(|known| known.content)).and_then(named_by)
        };
        let moves = self.group_of(key) != group;
        if moves {
            self.event(now);
            match group {
                Some(group) => self.groups.of.insert(key, group),
                None => self.groups.of.remove(key),
            };
        }
        moves
    }

    /// A key is gone.
    pub(super) fn leave_group(&mut self, key: Name) {
        self.groups.of.remove(key);
    }

    /// A lease begins, the n-th one of its pop. A pop that asks for a group takes no turn and costs nothing.
    pub(super) fn charge(&mut self, token: u64, key: Name, (nth, is_dedicated): (usize, bool), at: Micros) {
        let Some(rules) = self.config.groups.clone() else { return };
        let group = self.group_of(key);
        let (virtual_time, mean) = self.groups.account(&group);
        let start = virtual_time.max(self.groups.system);
        let length = mean.or(self.groups.mean).unwrap_or(1_000_000);
        let charged = (u128::from(length) << 20) / u128::from(rules.weight(group.as_deref()));
        let pop = token - nth as u64;
        *self.groups.pops.entry(pop).or_default() += 1;
        let charged = (!is_dedicated).then_some(charged);
        if let Some(charged) = charged {
            self.groups.accounts.insert(group.clone(), (start + charged, mean));
            self.groups.system = start;
        } else {
            self.groups.accounts.insert(group.clone(), (virtual_time, mean));
            self.hit("a pop of one group");
        }
        let rate = rules.rate(group.as_deref());
        let arrival = self.groups.arrivals.entry(group.clone()).or_default();
        *arrival = arrival_after(rate, *arrival, at);
        if lets_through(rate, *arrival) > at {
            self.hit("the rate of a group stops it");
        }
        self.groups.charges.insert(token, Charge { group, since: at, charged, pop });
        if nth > 0 {
            self.hit("a pop of several keys of groups");
        }
    }

    /// A lease ends.
    pub(super) fn discharge(&mut self, token: u64, at: Micros, delivered: bool) {
        let Some(rules) = self.config.groups.clone() else { return };
        let groups = &mut self.groups;
        let Some(charge) = groups.charges.remove(&token) else { return };
        let (mut virtual_time, mut mean) = groups.accounts[&charge.group];
        virtual_time -= charge.charged.unwrap_or_default();
        if delivered {
            let length = (at.saturating_sub(charge.since) / groups.pops[&charge.pop]).max(1);
            if charge.charged.is_some() {
                virtual_time +=
                    (u128::from(length) << 20) / u128::from(rules.weight(charge.group.as_deref()));
            }
            let mean_of = |before: Option<u64>| before.map_or(length, |mean| mean - mean / 8 + length / 8);
            (mean, groups.mean) = (Some(mean_of(mean)), Some(mean_of(groups.mean)));
        }
        groups.accounts.insert(charge.group.clone(), (virtual_time, mean));
        let account = groups.account(&charge.group);
        groups.accounts.insert(charge.group, account);
    }

    /// The group that a lease counts for.
    pub(super) fn charged_to(&self, token: u64, key: Name) -> Option<Group> {
        self.config.groups.as_ref()?;
        Some(
            self.groups.charges.get(&token).map_or_else(|| self.group_of(key), |charge| charge.group.clone()),
        )
    }

    /// A worker has asked that nothing of a group is delivered for a time.
    pub(super) fn hold_group(&mut self, now: Micros, group: Group, length: Micros) -> Micros {
        let (until, held_until) = (now + length.min(3_600_000_000), self.groups.held_until(&group));
        if until > held_until && until > now {
            self.hit("a hold of a group");
            self.event(now);
            self.groups.held.insert(group, until);
        }
        held_until.max(until)
    }

    /// An operator stops the delivery of a group, or ends what stops it.
    pub(crate) fn set_group_paused(&mut self, now: Micros, name: &str, paused: bool) -> bool {
        let now = self.advance(now);
        if self.config.groups.is_none() {
            return false;
        }
        let group = (!name.is_empty()).then(|| name.to_owned());
        let ends_hold = !paused && self.groups.held_until(&group) > now;
        if self.groups.paused.contains(&group) != paused || ends_hold {
            self.event(now);
            self.hit(if paused { "a pause of a group" } else { "a resume of a group" });
        }
        if paused {
            self.groups.paused.insert(group);
        } else {
            self.groups.paused.remove(&group);
            self.groups.held.remove(&group);
        }
        true
    }

    /// When a group may deliver again for whose ready keys nothing but time is missing.
    pub(crate) fn next_group(&self) -> Option<Micros> {
        let opens = self.ready().into_iter().filter_map(|key| self.opens_at(&self.group_of(key)));
        opens.filter(|at| *at > self.now).min()
    }

    /// What a group owes stays if its rate changes.
    pub(super) fn change_group_rates(&mut self, config: &Config, at: Micros) {
        let (Some(before), Some(next)) = (self.config.groups.clone(), &config.groups) else {
            let moves = config.groups.is_some() && self.config.groups.is_none() && !self.items.is_empty();
            self.groups = Groups { regroups_since: moves.then_some(self.rv), ..Groups::default() };
            return;
        };
        if before.by != next.by {
            self.groups.regroups_since = (!self.items.is_empty()).then_some(self.rv);
        }
        for (group, arrival) in &mut self.groups.arrivals {
            let group = group.as_deref();
            *arrival = arrival_at(before.rate(group), next.rate(group), *arrival, at);
        }
    }

    /// The time in which no worker could reach the queue is no worker time.
    pub(super) fn skip_worker_time(&mut self, now: Micros) {
        let skipped = now - self.last_at;
        self.groups.charges.values_mut().for_each(|charge| charge.since += skipped);
    }
}

fn reason(is_paused: bool, is_held: bool, is_limited: bool) -> usize {
    [is_limited, is_held, is_paused].into_iter().rposition(|is| is).map_or(0, |last| last + 1)
}

/// The group that an object names at `/v`.
fn named_by(content: Content) -> Group {
    let members: BTreeMap<&str, &RawValue> =
        serde_json::from_str(OBJECTS[usize::from(content)].0).expect("an object");
    let text = members.get("v")?.get();
    if text.starts_with('"') {
        return Some(serde_json::from_str(text).expect("a string"));
    }
    text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-').then(|| text.to_owned())
}
