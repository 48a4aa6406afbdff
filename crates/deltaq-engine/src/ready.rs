//! What stops the delivery of ready keys, counted.

use std::time::Duration;

use super::queue::Queue;
use super::schedule::Group;
use super::state::State;
use super::time::Time;

/// What stops the delivery of ready keys. Of several reasons, the one named last here counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    /// Nothing: a pop may get them.
    Eligible,
    /// Workers hold as many keys as they may, or the rate does not let the next one through yet.
    Limited,
    Held,
    Paused,
}

/// Numbers of what is eligible, limited, held and paused.
pub type ByReason = [usize; 4];

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
    /// The age of the oldest ready key of the eligible groups that have at most their share of the leases; `None` if something stops the whole
    /// queue.
    pub quiet_oldest_age: Option<Duration>,
}

impl ReadyCounts {
    /// The counts of two queues together.
    #[must_use]
    pub fn with(mut self, other: &Self) -> Self {
        add_each(&mut self.keys, &other.keys);
        self.groups = match (self.groups, other.groups) {
            (Some(mut groups), Some(others)) => {
                add_each(&mut groups.with_keys, &others.with_keys);
                groups.idle += others.idle;
                groups.quiet_oldest_age = groups.quiet_oldest_age.max(others.quiet_oldest_age);
                Some(groups)
            }
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
            count(&mut counts.keys, of_queue, state.schedule.ready_len());
            return counts;
        };
        let mut of_groups = GroupCounts::default();
        let (mut eligible, mut leases, mut weights) = (Vec::new(), 0, 0);
        for group in groups.all() {
            let (keys, reason) = (group.order.len(), group.stopped_by(now));
            if keys == 0 {
                of_groups.idle += 1;
            } else {
                count(&mut of_groups.with_keys, reason, 1);
                count(&mut counts.keys, reason.max(of_queue), keys);
            }
            let is_eligible = keys > 0 && reason == Reason::Eligible;
            if is_eligible {
                eligible.push(group);
            }
            if is_eligible || group.leased > 0 {
                leases += group.leased as u64;
                weights += u64::from(group.weight);
            }
        }
        let is_quiet = |group: &&Group| group.leased as u64 * weights <= leases * u64::from(group.weight);
        let firsts = eligible.into_iter().filter(is_quiet).filter_map(|group| group.order.first_by_rv());
        let oldest = firsts.map(|(_, slot)| state.entry(slot).ready_position().since).min();
        let oldest = oldest.filter(|_| of_queue == Reason::Eligible);
        of_groups.quiet_oldest_age = oldest.map(|since| now.since(since));
        counts.groups = Some(of_groups);
        counts
    }
}

fn count(numbers: &mut ByReason, reason: Reason, more: usize) {
    let [eligible, limited, held, paused] = numbers;
    *match reason {
        Reason::Eligible => eligible,
        Reason::Limited => limited,
        Reason::Held => held,
        Reason::Paused => paused,
    } += more;
}

fn add_each(numbers: &mut ByReason, more: &ByReason) {
    numbers.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
}

impl State {
    /// What stops the delivery of the whole queue.
    fn stopped_by(&self, now: Time) -> Reason {
        let rate = self.next_by_rate(0, now);
        reason(self.paused, self.held_until > now, self.is_full() || rate.is_some_and(|at| at > now))
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
