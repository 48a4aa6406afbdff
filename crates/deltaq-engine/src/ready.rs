//! What stops the delivery of ready keys, counted.

use std::time::Duration;

use super::queue::Queue;
use super::schedule::{Group, Groups};
use super::state::State;
use super::time::Time;

/// What stops the delivery of ready keys. Of several reasons, the last one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    /// Nothing: a pop may get them.
    Eligible,
    /// A limit: workers hold as many keys as they may, or the rate does not let the next one through yet.
    Limited,
    Held,
    Paused,
}

/// Numbers by what stops delivery. Of several reasons, the last one counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByReason {
    /// Nothing stops it: a pop may get a key.
    pub eligible: usize,
    /// Workers hold as many keys as they may, or the rate does not let the next one through yet.
    pub limited: usize,
    /// A hold stops it.
    pub held: usize,
    /// A pause stops it.
    pub paused: usize,
}

/// The ready keys of a queue, and its groups, by what stops them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadyCounts {
    /// Ready keys.
    pub keys: ByReason,
    /// The groups; `None` without the setting `groups`.
    pub groups: Option<GroupCounts>,
}

/// The groups of a queue, by what stops them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCounts {
    /// Groups with ready keys. What stops the whole queue does not count.
    pub with_keys: ByReason,
    /// Groups without ready keys.
    pub idle: usize,
    /// How long the oldest ready key of the eligible groups with at most their share of the leases has been ready.
    pub quiet_oldest_age: Option<Duration>,
}

impl ByReason {
    /// The numbers in the order of their fields.
    #[must_use]
    pub const fn numbers(&self) -> [usize; 4] {
        let Self { eligible, limited, held, paused } = *self;
        [eligible, limited, held, paused]
    }

    fn with(mut self, other: &Self) -> Self {
        self.eligible += other.eligible;
        self.limited += other.limited;
        self.held += other.held;
        self.paused += other.paused;
        self
    }

    fn of(&mut self, reason: Reason) -> &mut usize {
        match reason {
            Reason::Eligible => &mut self.eligible,
            Reason::Limited => &mut self.limited,
            Reason::Held => &mut self.held,
            Reason::Paused => &mut self.paused,
        }
    }
}

impl ReadyCounts {
    /// The counts of two queues together.
    #[must_use]
    pub fn with(mut self, other: &Self) -> Self {
        self.keys = self.keys.with(&other.keys);
        self.groups = match (self.groups, other.groups) {
            (Some(groups), Some(others)) => Some(GroupCounts {
                with_keys: groups.with_keys.with(&others.with_keys),
                idle: groups.idle + others.idle,
                quiet_oldest_age: groups.quiet_oldest_age.max(others.quiet_oldest_age),
            }),
            (groups, others) => groups.or(others),
        };
        self
    }
}

impl Queue {
    /// The ready keys of the queue, and its groups, by what stops them. This looks at each group.
    #[must_use]
    pub fn ready_counts(&self, now: Time) -> ReadyCounts {
        let state = self.state();
        let of_queue = state.stopped_by(now);
        let mut counts = ReadyCounts::default();
        let Some(groups) = state.schedule.groups.as_deref() else {
            *counts.keys.of(of_queue) = state.schedule.ready_len();
            return counts;
        };
        let mut of_groups = GroupCounts::default();
        for group in groups.all() {
            let keys = group.order.len();
            if keys == 0 {
                of_groups.idle += 1;
                continue;
            }
            let reason = group.stopped_by(now);
            *of_groups.with_keys.of(reason) += 1;
            *counts.keys.of(reason.max(of_queue)) += keys;
        }
        of_groups.quiet_oldest_age = state.quiet_oldest(groups, now).map(|since| now.since(since));
        counts.groups = Some(of_groups);
        counts
    }
}

impl State {
    /// What stops the delivery of the whole queue.
    fn stopped_by(&self, now: Time) -> Reason {
        let rate = self.next_by_rate(0, now);
        reason(self.paused, self.held_until > now, self.is_full() || rate.is_some_and(|at| at > now))
    }

    /// Since when the oldest ready key of the eligible groups has been ready that have at most their share of the leases.
    fn quiet_oldest(&self, groups: &Groups, now: Time) -> Option<Time> {
        let is_eligible = |group: &Group| group.order.len() > 0 && group.stopped_by(now) == Reason::Eligible;
        let takes_part = |group: &&Group| group.leased > 0 || is_eligible(group);
        let (leases, weights) = groups.all().filter(takes_part).fold((0, 0), |(leases, weights), group| {
            (leases + group.leased as u64, weights + u64::from(group.weight))
        });
        let is_quiet = |group: &&Group| group.leased as u64 * weights <= leases * u64::from(group.weight);
        let quiet = groups.all().filter(|group| is_eligible(group)).filter(is_quiet);
        let firsts = quiet.filter_map(|group| group.order.first_by_rv());
        firsts.map(|(_, slot)| self.entry(slot).ready_position().since).min()
    }
}

impl Group {
    /// What stops the delivery of the group.
    fn stopped_by(&self, now: Time) -> Reason {
        let rate = self.next_by_rate(0, now);
        reason(
            self.stop.paused,
            self.stop.held_until > now,
            self.is_full() || rate.is_some_and(|at| at > now),
        )
    }
}

const fn reason(is_paused: bool, is_held: bool, is_limited: bool) -> Reason {
    if is_paused {
        Reason::Paused
    } else if is_held {
        Reason::Held
    } else if is_limited {
        Reason::Limited
    } else {
        Reason::Eligible
    }
}
