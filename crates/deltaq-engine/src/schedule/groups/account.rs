//! The accounts of groups: what their leases cost, and what a checkpoint has of that.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Group, GroupId, Groups, Stop};
use crate::group_rules::GroupRules;
use crate::id::{Rv, Token};
use crate::omit::is_default;
use crate::rate::RateDebt;
use crate::schedule::Order;
use crate::time::Time;

/// Worker time divided by a weight, in parts of a microsecond.
pub(super) type Virtual = u128;

/// A microsecond has 2^20 parts, so that weights lose little by rounding.
const PARTS_LOG2: u32 = 20;
/// The charge of a lease before any lease has ended, in microseconds.
const FIRST_CHARGE_US: u64 = 1_000_000;
/// A mean takes over this part of each new length.
const MEAN_PARTS: u64 = 8;

/// What a group has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) virtual_time: Virtual,
    /// The mean length of its leases, in microseconds.
    pub(super) mean_us: Option<u64>,
}

impl Account {
    /// What a new lease is charged. `mean_us` is the mean of all groups.
    pub(super) fn charge(&self, mean_us: Option<u64>, weight: u32) -> Virtual {
        cost(self.mean_us.or(mean_us).unwrap_or(FIRST_CHARGE_US), weight)
    }

    /// Replaces a charge by the real length, if the lease was delivered. A lease without a charge has only its length.
    pub(super) fn correct(&mut self, charged: Option<Virtual>, us: Option<u64>, weight: u32) {
        self.virtual_time = self.virtual_time.saturating_sub(charged.unwrap_or_default());
        if let Some(us) = us {
            self.virtual_time += charged.map_or(0, |_| cost(us, weight));
            self.mean_us = Some(mean(self.mean_us, us));
        }
    }
}

fn cost(us: u64, weight: u32) -> Virtual {
    (Virtual::from(us) << PARTS_LOG2) / Virtual::from(weight.max(1))
}

/// The mean after one more length.
pub(super) fn mean(before: Option<u64>, us: u64) -> u64 {
    before.map_or(us, |mean| mean - mean / MEAN_PARTS + us / MEAN_PARTS)
}

/// The charge of a live lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charge {
    pub(super) group: GroupId,
    /// When its worker time began.
    pub(super) since: Time,
    /// `None` if the pop asked for this group.
    pub(super) charged: Option<Virtual>,
    /// The first lease of the same pop.
    pub(super) first: Token,
}

/// A pop of several keys: each one costs its part of the time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pop {
    pub(super) keys: u32,
    /// Number of its live leases.
    pub(super) live: u32,
}

/// What a group is charged for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charged {
    /// The group; `None` for the group without a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Arc<str>>,
    /// The number of the key in its pop, from 0.
    #[serde(default, skip_serializing_if = "is_default")]
    pub nth: u32,
    /// Whether the pop asked for this group. Its time is not charged then.
    #[serde(default, skip_serializing_if = "is_default")]
    pub dedicated: bool,
}

/// The accounts of all groups, as a checkpoint has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupsState {
    /// The virtual time of the queue.
    pub system: u128,
    /// The mean length of all leases, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_us: Option<u64>,
    /// The accounts that are not new. The group without a name comes first, then the others by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accounts: Vec<GroupAccount>,
    /// The live leases, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leases: Vec<GroupLease>,
    /// The number of keys of each pop of several keys that has live leases, by the first of its leases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pops: Vec<(Token, u32)>,
    /// The event since which keys have to be moved to other groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regroups_since: Option<Rv>,
    /// The groups that are paused or held or owe to their rate, in the order of the accounts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stops: Vec<GroupStop>,
}

/// What stops the delivery of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStop {
    /// The group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Arc<str>>,
    /// Whether it is paused.
    #[serde(default, skip_serializing_if = "is_default")]
    pub paused: bool,
    /// When its hold ends.
    #[serde(default, skip_serializing_if = "is_default")]
    pub held_until: Time,
    /// What it owes to its rate.
    #[serde(default, skip_serializing_if = "is_default")]
    pub debt: RateDebt,
}

/// The account of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupAccount {
    /// The group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Arc<str>>,
    /// Its virtual time.
    pub virtual_time: u128,
    /// The mean length of its leases, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_us: Option<u64>,
}

/// The charge of a live lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupLease {
    /// The lease.
    pub token: Token,
    /// The group that is charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Arc<str>>,
    /// When its worker time began.
    pub since: Time,
    /// The charge; `None` if the pop asked for this group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charged: Option<u128>,
    /// The first lease of the same pop.
    pub first: Token,
}

impl Groups {
    /// The accounts of all groups.
    pub(crate) fn state(&self) -> GroupsState {
        let account = |group: &Group| GroupAccount {
            group: group.name.clone(),
            virtual_time: group.account.virtual_time,
            mean_us: group.account.mean_us,
        };
        let lease = |(token, charge): (&Token, &Charge)| GroupLease {
            token: *token,
            group: self.at(charge.group).name.clone(),
            since: charge.since,
            charged: charge.charged,
            first: charge.first,
        };
        let stop = |group: &Group| GroupStop {
            group: group.name.clone(),
            paused: group.stop.paused,
            held_until: group.stop.held_until,
            debt: group.stop.debt,
        };
        let uneven = self.all().filter(|group| group.account != Account::default());
        GroupsState {
            system: self.system,
            mean_us: self.mean_us,
            accounts: uneven.map(account).collect(),
            leases: self.leases.iter().map(lease).collect(),
            pops: self.pops.iter().map(|(first, pop)| (*first, pop.keys)).collect(),
            regroups_since: self.regroups_since,
            stops: self.all().filter(|group| group.stop != Stop::default()).map(stop).collect(),
        }
    }

    /// The groups of a queue whose keys are not restored yet.
    pub(crate) fn restore(rules: Arc<GroupRules>, from: GroupsState) -> Self {
        let mut groups = Self::new(rules, Order::default());
        (groups.system, groups.mean_us) = (from.system, from.mean_us);
        groups.regroups_since = from.regroups_since;
        for (first, keys) in from.pops {
            groups.pops.insert(first, Pop { keys, live: 0 });
        }
        for GroupLease { token, group, since, charged, first } in from.leases {
            let group = groups.find_or_add(group.as_ref());
            groups.at_mut(group).leased += 1;
            groups.leases.insert(token, Charge { group, since, charged, first });
            if let Some(pop) = groups.pops.get_mut(&first) {
                pop.live += 1;
            }
        }
        for GroupAccount { group, virtual_time, mean_us } in from.accounts {
            let id = groups.find_or_add(group.as_ref());
            groups.note_account(id, |group| group.account = Account { virtual_time, mean_us });
        }
        for GroupStop { group, paused, held_until, debt } in from.stops {
            let id = groups.find_or_add(group.as_ref());
            groups.restore_stop(id, paused, held_until, debt);
        }
        groups
    }

    /// Checks what the groups keep. `keys` are the slots with a key, and whether the key is ready.
    ///
    /// # Errors
    /// The text names the violated invariant.
    pub(crate) fn check(
        &self,
        keys: impl Iterator<Item = (crate::id::Slot, bool)>,
        is_leased: impl Fn(Token) -> bool,
    ) -> Result<(), String> {
        let mut counted = vec![(0, 0, 0); self.list.len()];
        for (slot, is_ready) in keys {
            let id = self.id_of(slot);
            let Some((keys, ready, _)) = counted.get_mut(id.index()) else { continue };
            *keys += usize::from(id != GroupId::default());
            *ready += usize::from(is_ready);
        }
        for (token, charge) in &self.leases {
            if !is_leased(*token) {
                return Err(format!("groups: the lease {token} has ended, but its charge has not"));
            }
            if let Some((_, _, leased)) = counted.get_mut(charge.group.index()) {
                *leased += 1;
            }
        }
        if self.name_bytes != self.ids.keys().map(|name| name.len()).sum::<usize>() {
            return Err(String::from("groups: the bytes of the names are counted wrongly"));
        }
        let used = self.of.iter().filter(|id| **id != GroupId::default()).count();
        if used != counted.iter().map(|(keys, ..)| keys).sum::<usize>() {
            return Err(String::from("groups: a slot without a key has a group"));
        }
        for (index, group) in self.list.iter().enumerate() {
            let kept = (group.keys, group.order.len(), group.leased);
            if counted.get(index) != Some(&kept) {
                return Err(format!(
                    "group {:?}: {:?} counted, {kept:?} kept",
                    group.name,
                    counted.get(index)
                ));
            }
            self.check_group(super::id_at(index), group)?;
        }
        let timed = self.list.iter().filter(|group| group.stop.ends_at() != Time::default()).count();
        let waking = self.list.iter().filter(|group| group.wake.is_some()).count();
        if (self.ends.len(), self.wakes.len()) != (timed, waking) {
            return Err(String::from("groups: an index of times has an entry too many"));
        }
        Ok(())
    }

    fn check_group(&self, id: GroupId, group: &Group) -> Result<(), String> {
        let rule = |holds: bool, text: &str| {
            if holds { Ok(()) } else { Err(format!("group {:?} {text}", group.name)) }
        };
        let turn = group.is_eligible(self.now).then(|| group.account.virtual_time.max(self.system));
        rule(group.turn == turn, "has another turn than its virtual time gives it")?;
        let indexed = group.turn.is_none_or(|at| self.turns.get(&(at, group.name.clone())) == Some(&id));
        rule(indexed, "is not where its turn says")?;
        let account = group.account;
        let is_uneven = group.leased == 0 && account != Account::default();
        rule(
            self.uneven.contains(&(account.virtual_time, id)) == is_uneven,
            "is even and counts as uneven, or not",
        )?;
        rule(!is_uneven || account.virtual_time >= self.system, "has an account that is even but not new")?;
        let is_free = self.free.contains(&id);
        let is_used = group.keys > 0 || group.leased > 0 || account != Account::default();
        let is_used = is_used || group.stop != Stop::default();
        let ends_at = super::stop::timed(group.stop.ends_at());
        rule(ends_at.is_none_or(|at| self.ends.contains(&(at, id))), "has a stop that never ends")?;
        rule(
            group.wake == super::stop::timed(group.stop.until()).filter(|_| group.is_open()),
            "wakes at another time",
        )?;
        rule(group.wake.is_none_or(|at| self.wakes.contains(&(at, id))), "never wakes")?;
        rule(group.rate.is_some() || group.stop.debt == RateDebt::default(), "has no rate, but a debt")?;
        rule(is_free || is_used || id == GroupId::default(), "is used by nothing")
    }
}
