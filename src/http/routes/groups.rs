//! The groups of a queue.

use deltaq_engine::excerpt::Excerpt;
use deltaq_engine::groups::{GroupSort, GroupStatus};
use deltaq_service::Moment;
use deltaq_types::{DeliveryRate, GroupDocument, GroupList};

use crate::http::openapi::params::{GroupsQuery, InQueue};
use crate::http::openapi::responses::{Always, OfQueue, Unprocessable};
use crate::http::problem::Problem;
use crate::http::reply::Json;
use crate::http::request::call::ReadCall;
use crate::http::request::params::wrong;
use crate::http::wire::timestamp;

/// Maximum number of groups in a reply.
const GROUPS_SHOWN_MAX: usize = 20;

/// List the first 20 groups of keys that take turns, with their ready keys and leases. A queue without groups has none.
#[utoipa::path(
    get, path = "/v1/queues/{queue}/groups", tag = "reading", operation_id = "list_groups",
    params(InQueue, GroupsQuery),
    responses(
        (status = 200, description = "The groups.", body = GroupList),
        Always, OfQueue, Unprocessable,
    )
)]
pub(in crate::http) async fn groups(call: ReadCall) -> Result<Json<GroupList>, Problem> {
    let name = call.name()?;
    let ReadCall { state, params, .. } = call;
    let sort = match params.text("sort") {
        None | Some("wait") => GroupSort::Wait,
        Some("ready") => GroupSort::Ready,
        Some("leased") => GroupSort::Leased,
        Some(other) => {
            return Err(wrong("sort", &format!("{} is neither wait nor ready nor leased", Excerpt(other))));
        }
    };
    let handle = state.partitions.get(&name)?;
    let (list, rv) = handle.groups(sort, GROUPS_SHOWN_MAX).await?;
    let (list, moment) = (list.unwrap_or_default(), handle.moment());
    Ok(Json(GroupList {
        groups: list.groups.iter().map(|group| document(group, moment)).collect(),
        count: list.count as u64,
        weights: list.weights,
        resource_version: rv.get(),
    }))
}

fn document(group: &GroupStatus, moment: Moment) -> GroupDocument {
    GroupDocument {
        name: group.name.as_deref().map(str::to_owned),
        ready: group.ready as u64,
        leased: group.leased as u64,
        oldest_ready_age_ms: group
            .oldest_ready_age
            .map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        weight: group.weight.into(),
        max_leased: group.max_leased,
        is_full: group.is_full,
        paused: group.is_paused,
        held_until: group.held_until.map(|until| timestamp(moment.wall(until))),
        rate: group.rate.map(DeliveryRate::from),
        next_delivery_at: group.next_delivery.map(|until| timestamp(moment.wall(until))),
    }
}
