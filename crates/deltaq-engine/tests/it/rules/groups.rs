//! Groups of keys take turns by worker time, in simulated time.

use std::collections::BTreeMap;

use deltaq_engine::Restore;
use deltaq_engine::command::{Progress, RegroupWalk};
use deltaq_engine::config::{GroupBy, GroupOverride, GroupRules};
use deltaq_engine::event::EventKind;
use deltaq_engine::groups::GroupSort;
use deltaq_engine::pointer::Pointer;
use fastrand::Rng;

use super::*;

fn rules(by: GroupBy, max_leased: Option<u64>, overrides: &[(&str, GroupOverride)]) -> Arc<GroupRules> {
    let overrides = overrides.iter().map(|(name, own)| (Arc::from(*name), *own)).collect();
    Arc::new(GroupRules { by, max_leased, rate: None, overrides })
}

fn by_tenant() -> GroupBy {
    GroupBy::Pointer(Pointer::parse("/t", false).expect("a pointer"))
}

fn weight(weight: u32) -> GroupOverride {
    GroupOverride { weight: Some(weight), ..GroupOverride::default() }
}

/// A change of a key of a tenant.
fn of_tenant(name: &str, tenant: &str) -> Call {
    Call { object: Some(Object::from_valid(&format!(r#"{{"t":"{tenant}"}}"#))), ..added(name, 1).0 }
}

/// Workers in simulated time. Each takes one key, holds it for its length, and takes the next one.
struct Shop {
    queue: Queue,
    now_us: u64,
    /// The leases, by their ends: the token, and the tenant.
    busy: BTreeMap<(u64, Token), String>,
    workers: usize,
    /// The keys that were delivered: the tenant, and how long the key waited.
    delivered: Vec<(String, u64)>,
}

impl Shop {
    fn new(workers: usize, groups: Option<Arc<GroupRules>>) -> Self {
        let config = config(|config| (config.groups, config.lease) = (groups, ms(3_600_000)));
        let queue = Queue::new(config, Rv::ZERO, Time::default());
        Self { queue, now_us: 0, busy: BTreeMap::new(), workers, delivered: Vec::new() }
    }

    fn now(&self) -> Time {
        Time::from_micros(self.now_us)
    }

    fn add(&mut self, name: &str, tenant: &str) {
        self.queue.produce(self.now(), &[of_tenant(name, tenant)]).expect("no refusal");
        drop(self.queue.take_effects());
    }

    /// Lets the time pass. The length of a lease depends on its tenant.
    fn run_until(&mut self, end_us: u64, length_us: impl Fn(&str) -> u64) {
        loop {
            while self.busy.len() < self.workers {
                let pop = Pop {
                    max: 1,
                    max_bytes: 1 << 20,
                    lease: None,
                    worker: None,
                    id: None,
                    with_known: false,
                    group: None,
                };
                let items = self.queue.pop(self.now(), &pop).expect("the queue is open");
                let Some(item) = items.first() else { break };
                let tenant = item.deltas[0].object.as_str()[6..].trim_end_matches("\"}").to_owned();
                let waited = u64::try_from(item.waited.as_micros()).expect("a short time");
                self.busy.insert((self.now_us + length_us(&tenant), item.token), tenant.clone());
                self.delivered.push((tenant, waited));
            }
            let Some(((at, token), _)) = self.busy.first_key_value().map(|(end, tenant)| (*end, tenant))
            else {
                break;
            };
            if at > end_us {
                break;
            }
            self.busy.pop_first();
            self.now_us = at;
            self.queue.settle(self.now(), &[Settle { token, how: How::Ack }]);
            self.queue.set_committed(self.queue.resource_version());
            drop(self.queue.take_effects());
        }
        self.now_us = self.now_us.max(end_us);
    }

    /// How long the keys of a tenant waited on average, in microseconds.
    fn wait(&self, tenant: &str) -> u64 {
        let waits: Vec<u64> =
            self.delivered.iter().filter(|(of, _)| of == tenant).map(|(_, waited)| *waited).collect();
        waits.iter().sum::<u64>() / waits.len() as u64
    }
}

#[test]
fn weights_of_5_3_and_2_share_the_deliveries() {
    let groups = rules(by_tenant(), None, &[("a", weight(5)), ("b", weight(3)), ("c", weight(2))]);
    for workers in [1, 4, 16] {
        let mut shop = Shop::new(workers, Some(groups.clone()));
        for number in 0..8_000 {
            for tenant in ["a", "b", "c"] {
                shop.add(&format!("{tenant}{number}"), tenant);
            }
        }
        shop.run_until(10_000 * 1_000 / workers as u64, |_| 1_000);
        let first = &shop.delivered[..10_000];
        for (tenant, share) in [("a", 5_000), ("b", 3_000), ("c", 2_000)] {
            let count = first.iter().filter(|(of, _)| of == tenant).count();
            assert!(count.abs_diff(share) <= 200, "{workers} workers: {tenant} got {count} of {share}");
        }
    }
}

/// The mean wait of each quiet tenant, with or without a noisy one.
fn waits(is_noisy: bool, noisy_us: u64, max_leased: Option<u64>) -> Vec<u64> {
    let mut shop = Shop::new(8, Some(rules(by_tenant(), max_leased, &[])));
    let mut random = Rng::with_seed(7);
    for round in 0..300_u64 {
        for tenant in ["a", "b", "c"] {
            // Each quiet tenant uses a quarter of its share of the workers.
            if random.u8(..2) == 0 {
                shop.add(&format!("{tenant}{round}"), tenant);
            }
        }
        if is_noisy {
            for number in 0..if noisy_us > 1_000 { 1 } else { 50 } {
                shop.add(&format!("n{round}-{number}"), "noisy");
            }
        }
        let end = shop.now_us + 1_000;
        shop.run_until(end, |tenant| if tenant == "noisy" { noisy_us } else { 1_000 });
    }
    shop.queue.check().expect("the invariants hold");
    ["a", "b", "c"].map(|tenant| shop.wait(tenant)).into()
}

#[test]
fn a_tenant_that_sends_100_times_as_much_delays_the_others_little() {
    // A key takes a worker for 1,000 us, which counts as part of its wait.
    let alone = waits(false, 0, None);
    // Nothing is taken from a worker: without a limit, a key may have to wait for the end of one lease of the noisy tenant.
    for (noisy_us, max_leased, one_lease) in [(1_000, None, 1_000), (1_000, Some(4), 0), (40_000, Some(4), 0)]
    {
        for (alone, beside) in alone.iter().zip(waits(true, noisy_us, max_leased)) {
            let (alone, beside) = (alone + 1_000, beside + 1_000 - one_lease.min(beside));
            assert!(beside * 2 <= alone * 3, "{beside} us beside the noisy tenant, {alone} us alone");
        }
    }
}

#[test]
fn a_group_delivers_its_keys_in_their_order() {
    let mut random = Rng::with_seed(1);
    let overrides =
        [("a", weight(3)), ("b", GroupOverride { max_leased: Some(2), ..GroupOverride::default() })];
    let mut fixture = Fixture::with(|config| config.groups = Some(rules(by_tenant(), Some(5), &overrides)));
    let mut leased = Vec::new();
    for step in 0..3_000 {
        fixture.now_ms += random.u64(..20);
        match random.u8(..3) {
            0 => {
                let tenant = ["a", "b", "c", ""][random.usize(..4)];
                let call = of_tenant(&format!("k{}", random.u8(..40)), tenant);
                fixture.queue.produce(fixture.now(), &[call]).expect("no refusal");
            }
            1 => {
                let (now, max) = (fixture.now(), random.usize(1..4));
                let pop = Pop {
                    max,
                    max_bytes: 1 << 20,
                    lease: None,
                    worker: None,
                    id: None,
                    with_known: false,
                    group: None,
                };
                let before: Vec<(Turn, Option<Arc<str>>)> = fixture
                    .queue
                    .ready_after(Turn::START)
                    .map(|(turn, slot)| (turn, fixture.queue.group_of(slot).cloned()))
                    .collect();
                let items = fixture.queue.pop(now, &pop).expect("the queue is open");
                leased.extend(items.iter().map(|item| item.token));
                let left: Vec<Turn> = fixture.queue.ready_after(Turn::START).map(|(turn, _)| turn).collect();
                for (turn, group) in &before {
                    let is_passed = left.contains(turn)
                        && before
                            .iter()
                            .any(|(later, of)| of == group && later > turn && !left.contains(later));
                    assert!(!is_passed, "step {step}: a later key of the group {group:?} was delivered");
                }
            }
            _ if leased.is_empty() => {}
            _ => {
                let token = leased.swap_remove(random.usize(..leased.len()));
                let how = if random.bool() { How::Ack } else { How::Release };
                fixture.queue.settle(fixture.now(), &[Settle { token, how }]);
            }
        }
        fixture.commit_and_check();
        for group in
            fixture.queue.groups(fixture.now(), GroupSort::default(), usize::MAX).expect("groups").groups
        {
            let most = group.max_leased.expect("each group has a limit");
            assert!(group.leased as u64 <= most, "step {step}: {group:?}");
        }
    }
}

#[test]
fn a_group_that_is_forgotten_and_comes_back_differs_in_nothing() {
    // In one shop the group "a" keeps a known key, so it is not forgotten.
    let run = |keeps: bool| {
        let mut shop = Shop::new(1, Some(rules(by_tenant(), None, &[])));
        shop.add("a1", "a");
        shop.run_until(5_000, |_| 5_000);
        if keeps {
            shop.add("a1", "a");
            shop.run_until(shop.now_us + 1, |_| 1);
        } else {
            let delete = deleted("a1").0;
            shop.queue.produce(shop.now(), &[delete]).expect("no refusal");
            shop.run_until(shop.now_us + 1, |_| 1);
        }
        for number in 0..20 {
            shop.add(&format!("b{number}"), "b");
        }
        shop.run_until(shop.now_us + 20_000, |_| 1_000);
        let has_a = shop.queue.groups(shop.now(), GroupSort::default(), 9).expect("groups").groups;
        assert_eq!(has_a.iter().any(|group| group.name.as_deref() == Some("a")), keeps);
        for number in 20..40 {
            shop.add(&format!("b{number}"), "b");
            shop.add(&format!("a{number}"), "a");
        }
        shop.delivered.clear();
        shop.run_until(shop.now_us + 40_000, |tenant| if tenant == "a" { 700 } else { 1_300 });
        (shop.delivered, shop.queue.queue_state().groups)
    };
    let ((kept, _), (forgotten, _)) = (run(true), run(false));
    assert_eq!(kept, forgotten);
}

#[test]
fn a_restart_keeps_the_accounts_and_the_limits_of_groups() {
    let groups = rules(by_tenant(), Some(1), &[("a", weight(3))]);
    let mut fixture = Fixture::with(|config| config.groups = Some(groups));
    for name in ["a1", "a2", "b1", "b2"] {
        fixture.queue.produce(fixture.now(), &[of_tenant(name, &name[..1])]).expect("no refusal");
    }
    fixture.commit_and_check();
    let pop = Pop {
        max: 9,
        max_bytes: 1 << 20,
        lease: None,
        worker: None,
        id: None,
        with_known: false,
        group: None,
    };
    let items = fixture.queue.pop(fixture.now(), &pop).expect("the queue is open");
    assert_eq!(items.iter().map(|item| item.key.as_str()).collect::<Vec<_>>(), ["a1", "b1"]);
    fixture.now_ms += 400;
    fixture.queue.settle(fixture.now(), &[Settle { token: items[1].token, how: How::Ack }]);
    fixture.commit_and_check();
    let before = fixture.queue.queue_state().groups;
    fixture.queue.journaled();
    let mut restored = Restore::new(fixture.queue.begin_checkpoint(true));
    for (slot, key) in fixture.queue.capture(99, 99).keys {
        restored.key(slot, key);
    }
    let mut restored = restored.finish().expect("no key is there twice");
    restored.check().expect("the invariants hold");
    assert_eq!(restored.queue_state().groups, before);
    // The queue was down for a minute, which is no worker time.
    fixture.now_ms += 60_000;
    restored.recover(fixture.now(), NEXT_LIFE).expect("there are numbers");
    let popped = restored.pop(fixture.now(), &pop).expect("the queue is open");
    assert_eq!(popped.iter().map(|item| item.key.as_str()).collect::<Vec<_>>(), ["b2"], "a1 is still leased");
    restored.settle(fixture.now(), &[Settle { token: items[0].token, how: How::Ack }]);
    // Two keys in one pop: each has cost its part of 400 ms.
    assert_eq!(restored.queue_state().groups.expect("groups").mean_us, Some(200_000));
}

#[test]
fn keys_of_too_many_groups_have_none() {
    let mut fixture = Fixture::with(|config| config.groups = Some(rules(by_tenant(), None, &[])));
    let most = deltaq_engine::limits::GROUPS_MAX;
    let calls: Vec<Call> =
        (0..=most).map(|number| of_tenant(&format!("k{number}"), &format!("t{number}"))).collect();
    fixture.queue.produce(fixture.now(), &calls).expect("no refusal");
    let list = fixture.queue.groups(fixture.now(), GroupSort::default(), usize::MAX).expect("groups");
    assert_eq!(list.count, most + 1);
    let unnamed = list.groups.iter().find(|group| group.name.is_none()).expect("the group without a name");
    assert_eq!(unnamed.ready, 1);
    fixture.queue.check().expect("the invariants hold");
    let events = fixture.queue.take_effects().events;
    let grouped = events.iter().filter(|event| matches!(event.kind, EventKind::Grouped { .. })).count();
    assert_eq!(grouped, most);
}

/// While keys move from one tenant to another, groups of both names exist. There is no room for all of them.
#[test]
fn keys_move_to_their_groups_although_there_is_no_room_at_first() {
    let mut fixture = Fixture::with(|config| config.groups = Some(rules(by_tenant(), None, &[])));
    // Each tenant of before has a key at the beginning and one at the end of the walk.
    let count = deltaq_engine::limits::GROUPS_MAX * 8 / 10;
    let object = |n: usize| Object::from_valid(&format!(r#"{{"t":"t{}","u":"u{}"}}"#, n % count, n / 2));
    let calls: Vec<Call> =
        (0..2 * count).map(|n| Call { object: Some(object(n)), ..added(&format!("k{n:05}"), 1).0 }).collect();
    fixture.queue.produce(fixture.now(), &calls).expect("no refusal");
    let by = GroupBy::Pointer(Pointer::parse("/u", false).expect("a pointer"));
    let settings = config(|config| config.groups = Some(rules(by, None, &[])));
    fixture.queue.configure(fixture.now(), settings, None).expect("no refusal");
    let (mut walk, mut steps) = (RegroupWalk::default(), 0);
    while !matches!(fixture.queue.regroup_step(fixture.now(), &mut walk, 100), Progress::Done(_)) {
        steps += 1;
    }
    assert!(steps > 2 * count / 50, "it walks again after {steps} steps");
    let list = fixture.queue.groups(fixture.now(), GroupSort::default(), usize::MAX).expect("groups");
    assert_eq!(list.count, count + 1);
    assert!(list.groups.iter().all(|group| group.ready == 2 * usize::from(group.name.is_some())));
    assert!(!fixture.queue.must_regroup());
    fixture.queue.check().expect("the invariants hold");
}
