//! The order of the changes of a file.
//!
//! - A queue is made before its followers, and deleted after them.
//! - A queue that can't be followed any more changes after its followers have left it.
//! - A resource of Kubernetes leaves its queue before another queue becomes it.

use std::collections::HashMap;

use super::exact::{Exact, Members};
use super::plan::{Action, QueuePlan};

/// The group and plural of a resource of Kubernetes.
type Resource<'p> = (&'p str, &'p str);

/// The plans in groups. Each depends only on plans in earlier groups.
pub(super) fn levels(plans: &[QueuePlan]) -> Vec<Vec<&QueuePlan>> {
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); plans.len()];
    let mut waits_for = vec![0_usize; plans.len()];
    for (first, then) in dependencies(plans) {
        if let (Some(after), Some(count)) = (after.get_mut(first), waits_for.get_mut(then)) {
            after.push(then);
            *count += 1;
        }
    }
    let mut levels = Vec::new();
    let mut next: Vec<usize> = (0..plans.len()).filter(|index| waits_for.get(*index) == Some(&0)).collect();
    while !next.is_empty() {
        levels.push(next.clone());
        let freed: Vec<usize> =
            next.iter().filter_map(|index| after.get(*index)).flatten().copied().collect();
        next.clear();
        for index in freed {
            if let Some(count) = waits_for.get_mut(index) {
                *count -= 1;
                if *count == 0 {
                    next.push(index);
                }
            }
        }
        next.sort_unstable();
    }
    let circle: Vec<usize> = (0..plans.len()).filter(|index| waits_for.get(*index) != Some(&0)).collect();
    levels.push(circle);
    let of = |level: Vec<usize>| level.into_iter().filter_map(|index| plans.get(index)).collect::<Vec<_>>();
    levels.into_iter().map(of).filter(|level| !level.is_empty()).collect()
}

/// Pairs of plans: the first must be carried out before the second.
fn dependencies(plans: &[QueuePlan]) -> Vec<(usize, usize)> {
    let by_name: HashMap<&str, usize> =
        plans.iter().enumerate().map(|(index, plan)| (plan.name.as_str(), index)).collect();
    let holders: HashMap<Resource<'_>, usize> =
        plans.iter().enumerate().filter_map(|(index, plan)| Some((resource_now(plan)?, index))).collect();
    let find = |name: Option<&str>| {
        let index = *by_name.get(name?)?;
        plans.get(index).map(|plan| (index, plan))
    };
    let mut pairs = Vec::new();
    for (index, plan) in plans.iter().enumerate() {
        if let Some((followed, of)) = find(plan.will_follow())
            && !of.ends_followers()
        {
            pairs.push((followed, index));
        }
        if let Some((followed, of)) = find(plan.follows_now())
            && of.ends_followers()
            && plan.will_follow() != plan.follows_now()
        {
            pairs.push((index, followed));
        }
        if let Some(resource) = resource_afterwards(plan)
            && resource_now(plan) != Some(resource)
            && let Some(holder) = holders.get(&resource)
        {
            pairs.push((*holder, index));
        }
    }
    pairs
}

fn resource_now(plan: &QueuePlan) -> Option<Resource<'_>> {
    plan.current.as_ref().and_then(resource)
}

fn resource_afterwards(plan: &QueuePlan) -> Option<Resource<'_>> {
    plan.planned.as_ref().filter(|_| plan.action() != Action::Keep).and_then(resource)
}

fn resource(settings: &Members) -> Option<Resource<'_>> {
    let resource = settings.get("kubernetes")?;
    let member = |name| resource.get(name).and_then(Exact::as_str);
    Some((member("group")?, member("plural")?))
}

#[cfg(test)]
mod tests {
    use deltaq_types::name::Name;
    use serde_json::{Value, json};

    use super::super::difference::changes;
    use super::super::exact::members;
    use super::super::thresholds::ThresholdPlan;
    use super::*;

    fn plan(name: &str, current: &Value, planned: &Value) -> QueuePlan {
        let settings = |value: &Value| value.is_object().then(|| members(value));
        let (current, planned) = (settings(current), settings(planned));
        let both = current.as_ref().zip(planned.as_ref());
        let changes =
            both.map(|(before, after)| changes(before, after, &Members::default())).unwrap_or_default();
        let name = Name::new(name).unwrap();
        let (given, etag, contents) = (Members::default(), None, String::new());
        let thresholds = ThresholdPlan::default();
        QueuePlan { name, given, current, etag, planned, changes, thresholds, contents }
    }

    fn names(plans: &[QueuePlan]) -> Vec<Vec<&str>> {
        let of = |level: &Vec<&QueuePlan>| level.iter().map(|plan| plan.name.to_string()).collect::<Vec<_>>();
        let names: Vec<Vec<String>> = levels(plans).iter().map(of).collect();
        names.into_iter().map(|level| level.into_iter().map(|name| &*name.leak()).collect()).collect()
    }

    fn follow(queue: &str) -> Value {
        json!({"follow": {"queue": queue}})
    }

    #[test]
    fn queues_are_made_before_their_followers_and_deleted_after_them() {
        let (none, plain) = (Value::Null, json!({}));
        let made = [plan("c", &none, &follow("b")), plan("b", &none, &follow("a")), plan("a", &none, &plain)];
        assert_eq!(names(&made), [["a"], ["b"], ["c"]]);
        let deleted =
            [plan("a", &plain, &none), plan("b", &follow("a"), &none), plan("c", &follow("b"), &none)];
        assert_eq!(names(&deleted), [["c"], ["b"], ["a"]]);
        let left = [
            plan("old", &plain, &none),
            plan("b", &follow("old"), &follow("new")),
            plan("new", &none, &plain),
        ];
        assert_eq!(names(&left), [["new"], ["b"], ["old"]]);
    }

    #[test]
    fn followers_leave_first_and_a_circle_comes_last() {
        let (none, plain) = (Value::Null, json!({}));
        let keys = json!({"mode": "keys"});
        let ends = [plan("a", &plain, &keys), plan("b", &follow("a"), &none), plan("c", &none, &plain)];
        assert_eq!(names(&ends), [vec!["b", "c"], vec!["a"]]);
        let turned = [plan("a", &follow("b"), &plain), plan("b", &plain, &follow("a"))];
        assert_eq!(names(&turned), [["a"], ["b"]]);
        let circle =
            [plan("a", &none, &follow("b")), plan("b", &none, &follow("a")), plan("c", &none, &plain)];
        assert_eq!(names(&circle), [vec!["c"], vec!["a", "b"]]);
    }

    #[test]
    fn a_resource_leaves_its_queue_before_another_becomes_it() {
        let resource = json!({"kubernetes": {"group": "shop.example", "plural": "prices"}});
        let moved = [plan("new", &Value::Null, &resource), plan("old", &resource, &Value::Null)];
        assert_eq!(names(&moved), [["old"], ["new"]]);
        let kept = [plan("b", &Value::Null, &json!({})), plan("a", &resource, &resource)];
        assert_eq!(names(&kept), [["b", "a"]]);
    }
}
