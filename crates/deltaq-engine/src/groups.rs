//! What callers see of the groups of a queue, and which group a change puts its key into.

use std::sync::Arc;
use std::time::Duration;

use super::config::{GroupAfter, GroupRules};
use super::event::{Appended, Event, EventKind, Queued};
use super::id::{Slot, Source};
use super::key::Key;
use super::limits::GROUPS_MAX;
use super::queue::Queue;
use super::rate::Rate;
use super::schedule::{Group, Groups, Order};
use super::state::State;
use super::table::Entry;
use super::time::Time;

/// One group of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStatus {
    /// The group; `None` for the group without a name.
    pub name: Option<Arc<str>>,
    /// Number of ready keys.
    pub ready: usize,
    /// Number of leases that count for the group.
    pub leased: usize,
    /// How long its first ready key has been ready.
    pub oldest_ready_age: Option<Duration>,
    /// The weight.
    pub weight: u32,
    /// Maximum number of leases.
    pub max_leased: Option<u64>,
    /// Whether workers hold as many keys of the group as they may.
    pub is_full: bool,
    /// Whether the group is paused.
    pub is_paused: bool,
    /// When the hold of the group ends.
    pub held_until: Option<Time>,
    /// How many of its keys are delivered per second.
    pub rate: Option<Rate>,
    /// When the rate lets the next key through, if it stops the delivery of the group.
    pub next_delivery: Option<Time>,
}

/// By what groups are sorted. The largest value comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupSort {
    /// The age of the first ready key.
    #[default]
    Wait,
    /// The number of ready keys.
    Ready,
    /// The number of leases.
    Leased,
}

/// The groups of a queue: the first ones, and counts of all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupList {
    /// The first groups.
    pub groups: Vec<GroupStatus>,
    /// Number of all groups, including the one without a name.
    pub count: usize,
    /// The sum of the weights of all groups that a pop may get a key of.
    pub weights: u64,
}

/// What explains the turn of a key's group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupTurn {
    /// The group; `None` for the group without a name.
    pub name: Option<Arc<str>>,
    /// The weight.
    pub weight: u32,
    /// The sum of the weights of all groups that a pop may get a key of, including this one.
    pub weights: u64,
    /// Whether workers hold as many keys of the group as they may.
    pub is_full: bool,
    /// Whether the group is paused.
    pub is_paused: bool,
    /// When the hold of the group ends.
    pub held_until: Option<Time>,
    /// When the rate of the group lets the key through after the hold, if the keys ahead are delivered as soon as they may be.
    pub next_by_rate: Option<Time>,
}

impl Queue {
    /// The first groups of a queue; `None` without the setting `groups`.
    #[must_use]
    pub fn groups(&self, now: Time, sort: GroupSort, most: usize) -> Option<GroupList> {
        let groups = self.state().schedule.groups.as_deref()?;
        let mut all: Vec<GroupStatus> = groups.all().map(|group| self.group_status(now, group)).collect();
        let count = all.len();
        all.sort_by(|a, b| {
            let value = |group: &GroupStatus| match sort {
                GroupSort::Wait => group.oldest_ready_age.map(|age| age.as_micros()),
                GroupSort::Ready => Some(group.ready as u128),
                GroupSort::Leased => Some(group.leased as u128),
            };
            value(b).cmp(&value(a)).then_with(|| a.name.cmp(&b.name))
        });
        all.truncate(most);
        Some(GroupList { groups: all, count, weights: groups.weights() })
    }

    fn group_status(&self, now: Time, group: &Group) -> GroupStatus {
        let first = group.order.first_by_rv().map(|(_, slot)| self.state().entry(slot).ready_position());
        GroupStatus {
            name: group.name.clone(),
            ready: group.order.len(),
            leased: group.leased,
            oldest_ready_age: first.map(|position| now.since(position.since)),
            weight: group.weight,
            max_leased: group.max_leased,
            is_full: group.is_full(),
            is_paused: group.stop.paused,
            held_until: Some(group.stop.held_until).filter(|until| *until > now),
            rate: group.rate,
            next_delivery: group.next_by_rate(0, now).filter(|until| *until > now),
        }
    }

    /// The names of the groups that a pop may get a key of if the queue as a whole delivers. The empty name is that of the group without a
    /// name. There are none in a queue without groups.
    pub fn groups_with_turn(&self) -> impl Iterator<Item = &str> {
        self.state().schedule.groups.iter().flat_map(|groups| groups.with_turn())
    }

    /// The number of [`groups_with_turn`](Self::groups_with_turn).
    #[must_use]
    pub fn groups_with_turn_len(&self) -> usize {
        self.state().schedule.groups.as_deref().map_or(0, Groups::turns_len)
    }

    /// Whether a group is one of [`groups_with_turn`](Self::groups_with_turn).
    #[must_use]
    pub fn has_turn(&self, group: &str) -> bool {
        self.state().schedule.groups.as_deref().is_some_and(|groups| groups.next_of(group).is_some())
    }

    /// The name of a key's group; `None` for the group without a name, and in a queue without groups.
    #[must_use]
    pub fn group_of(&self, slot: Slot) -> Option<&Arc<str>> {
        self.state().schedule.group_of(slot)
    }
}

impl State {
    /// The order in which a key waits.
    pub(super) fn order_of(&self, slot: Slot) -> &Order {
        self.schedule.groups.as_deref().map_or_else(|| self.schedule.order(), |groups| &groups.of(slot).order)
    }

    /// The turn of a key's group. `ahead` keys of the group are delivered before it.
    pub(super) fn turn_of_group(&self, slot: Slot, ahead: u64, now: Time) -> Option<GroupTurn> {
        let groups = self.schedule.groups.as_deref()?;
        let from = self.hold_at(now).unwrap_or(now);
        Some(group_turn(groups, groups.of(slot), ahead, (now, from)))
    }

    /// The event that moves the key of this event to another group, if the change names one.
    pub(super) fn regrouped(&self, event: &Event, slot: Slot) -> Option<EventKind> {
        let rules = self.config.groups.as_ref()?;
        let group = match &event.kind {
            EventKind::Appended(Appended { key, object, provenance, .. }) => {
                let source = provenance.source().or(provenance.owner());
                rules.group(key, Some(object), source.map(Source::as_str))
            }
            EventKind::Queued(Queued { key, .. }) => rules.group(key, None, None),
            _ => return None,
        };
        let GroupAfter::Is(group) = group else { return None };
        self.moved(slot, event.kind.key()?, group)
    }

    /// The event that moves a key to the group that its newest state names, if it is in another one.
    /// The second value says whether there is no room for that group.
    pub(super) fn regrouped_key(&self, slot: Slot) -> (Option<EventKind>, bool) {
        let entry = self.entry(slot);
        let group = self.config.groups.as_ref().and_then(|rules| newest_group(rules, entry));
        let groups = self.schedule.groups.as_deref();
        let lacks_room = group.as_ref().zip(groups).is_some_and(|(name, groups)| !has_room(groups, name));
        (self.moved(slot, &entry.key, group), lacks_room)
    }

    fn moved(&self, slot: Slot, key: &Key, group: Option<Arc<str>>) -> Option<EventKind> {
        let groups = self.schedule.groups.as_deref()?;
        let group = group.filter(|name| has_room(groups, name));
        (group.as_ref() != self.schedule.group_of(slot))
            .then(|| EventKind::Grouped { key: key.clone(), group })
    }
}

/// The group that the newest state of a key names.
fn newest_group(rules: &GroupRules, entry: &Entry) -> Option<Arc<str>> {
    let deltas = entry.leased.iter().chain(entry.waiting.iter());
    let sources = deltas.filter_map(|delta| delta.provenance.source().or(delta.provenance.owner()));
    let source = sources.last().or(entry.known.as_ref().and_then(|known| known.owner.as_ref()));
    match rules.group(&entry.key, entry.newest_object(), source.map(Source::as_str)) {
        GroupAfter::Is(group) => group,
        GroupAfter::Same => None,
    }
}

fn has_room(groups: &Groups, name: &str) -> bool {
    groups.has_room(name, GROUPS_MAX)
}

/// The turn of a group, whose keys are delivered from the second time on at the earliest.
fn group_turn(groups: &Groups, group: &Group, ahead: u64, (now, from): (Time, Time)) -> GroupTurn {
    let held_until = Some(group.stop.held_until).filter(|until| *until > now);
    let others = groups.weights() - if group.has_turn() { u64::from(group.weight) } else { 0 };
    GroupTurn {
        name: group.name.clone(),
        weight: group.weight,
        weights: others + u64::from(group.weight),
        is_full: group.is_full(),
        is_paused: group.stop.paused,
        held_until,
        next_by_rate: group.next_by_rate(ahead, held_until.unwrap_or(now).max(from)),
    }
}
