//! Checks of followers before anything changes: the server refuses them too, but a queue at a time, when other queues have changed.

use std::collections::{BTreeMap, HashMap};

use deltaq_types::name::Name;

use super::exact::Members;
use super::plan::{Action, QueuePlan, can_be_followed};
use crate::cli::client::failure::Failure;
use crate::cli::client::session::Session;

/// Refuses followers in a circle, and new followers of a queue that does not exist or can't be followed.
pub(super) async fn check_followers(session: &Session, plans: &[QueuePlan]) -> Result<(), Failure> {
    check_circles(plans)?;
    let by_name: HashMap<&str, &QueuePlan> = plans.iter().map(|plan| (plan.name.as_str(), plan)).collect();
    let begins =
        |plan: &&QueuePlan| plan.action() != Action::Keep && plan.will_follow() != plan.follows_now();
    // A follower of each queue that the file does not name.
    let mut elsewhere: BTreeMap<&str, &Name> = BTreeMap::new();
    for plan in plans.iter().filter(begins) {
        let Some(followed) = plan.will_follow() else { continue };
        match by_name.get(followed) {
            None => drop(elsewhere.insert(followed, &plan.name)),
            Some(of) => match &of.planned {
                None => return Err(refused(&plan.name, followed, "is deleted")),
                Some(planned) if !can_be_followed(planned) => {
                    return Err(without_objects(&plan.name, followed));
                }
                Some(_) => {}
            },
        }
    }
    for (followed, follower) in elsewhere {
        let Ok(name) = Name::new(followed) else { continue };
        match session.client.fetch::<Members>(session.on_queue("get_settings", &name)?).await {
            Ok(settings) if !can_be_followed(&settings) => return Err(without_objects(follower, followed)),
            Err(error) if error.code() == Some("queue-not-found") => {
                return Err(refused(follower, followed, "does not exist, and the file does not name it"));
            }
            // The caller may have no right to see it. The server decides.
            _ => {}
        }
    }
    Ok(())
}

fn refused(name: &Name, followed: &str, why: &str) -> Failure {
    Failure::Other(format!("queue {name} can't follow queue {followed}, which {why}; nothing was changed"))
}

fn without_objects(name: &Name, followed: &str) -> Failure {
    refused(name, followed, "keeps no objects (mode keys, or known_objects false)")
}

/// Refuses queues that would follow themselves.
fn check_circles(plans: &[QueuePlan]) -> Result<(), Failure> {
    let followed: HashMap<&str, &str> =
        plans.iter().filter_map(|plan| Some((plan.name.as_str(), plan.will_follow()?))).collect();
    for name in plans.iter().map(|plan| plan.name.as_str()) {
        let mut path = vec![name];
        while let Some(next) =
            path.last().and_then(|last| followed.get(last)).filter(|_| path.len() <= plans.len())
        {
            path.push(next);
            if *next == name {
                let path = path.join(" follows ");
                return Err(Failure::Other(format!(
                    "queue {name} would follow itself: {path}; nothing was changed"
                )));
            }
        }
    }
    Ok(())
}
