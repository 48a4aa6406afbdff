//! Which queue is a resource. The path of a request names a group and a plural name; the setting `kubernetes` of the queue has them.
//!
//! Each node knows the resources of its own queues, and asks the others for theirs.

use std::sync::Arc;

use axum::http::HeaderValue;
use axum::response::{IntoResponse as _, Response};
use deltaq_service::Name;

use crate::http::node::resources::{self, AGE_MAX, AGE_MAX_OF_MISS, Entry};
use crate::http::node::{self, Node};
use crate::http::operation::{Operation, Target};
use crate::http::place::Place;
use crate::http::problem::{Code, Problem, REPEAT};
use crate::http::reply::Json;
use crate::http::request::call::ReadCall;
use crate::http::state::AppState;

/// The target of a request with the queue of its resource, or why the queue can't be found at present.
pub(in crate::http) async fn resolved(
    state: &AppState,
    place: Option<&Place>,
    is_from_node: bool,
    target: Target,
) -> (Target, Result<(), Problem>) {
    let Some(place) = place.filter(|_| target.operation.is_some_and(Operation::names_queue)) else {
        return (target, Ok(()));
    };
    let plural = place.plural.as_deref().unwrap_or_default();
    let own = state.partitions.kubernetes_queue(&place.group, plural);
    let found = match (own, &state.node) {
        (None, Some(node)) if !is_from_node => elsewhere(state, node, &place.group, plural).await,
        // Of two queues, all nodes take the same one.
        (Some(own), Some(node)) if !is_from_node => {
            let other = node.resources.last(&place.group, plural);
            Ok(Some(other.filter(|other| *other < own).unwrap_or(own)))
        }
        (own, _) => Ok(own),
    };
    match found {
        Ok(queue) => (Target { queue, ..target }, Ok(())),
        Err(problem) => (target, Err(problem)),
    }
}

/// The queue of another node.
async fn elsewhere(
    state: &AppState,
    node: &Arc<Node>,
    group: &str,
    plural: &str,
) -> Result<Option<Name>, Problem> {
    for age in [AGE_MAX, AGE_MAX_OF_MISS] {
        let known = node.resources.known(&state.partitions, node, age).await;
        if let Some(name) = known.queue(group, plural) {
            return Ok(Some(name));
        }
        if age == AGE_MAX_OF_MISS && !known.is_complete {
            return Err(incomplete());
        }
    }
    Ok(None)
}

/// All resources, of this node and of the others.
pub(super) async fn all(state: &AppState) -> Result<Vec<Entry>, Problem> {
    let mut entries = resources::own(&state.partitions);
    if let Some(node) = &state.node {
        let known = node.resources.known(&state.partitions, node, AGE_MAX_OF_MISS).await;
        if !known.is_complete {
            return Err(incomplete());
        }
        entries.extend(known.entries.iter().cloned());
    }
    entries.sort_by(|a, b| a.queue.cmp(&b.queue));
    Ok(entries)
}

/// Sends another node the resources of this one, with the partitions that this one owns.
pub(in crate::http) async fn of_node(call: ReadCall) -> Result<Response, Problem> {
    if !call.context.is_from_node() {
        return Err(Problem::new(Code::NotFound, "only nodes ask each other for this"));
    }
    let partitions = &call.state.partitions;
    let owned: Vec<String> = partitions.owned().iter().map(ToString::to_string).collect();
    let entries = resources::own(partitions);
    let header = HeaderValue::from_str(&owned.join(",")).unwrap_or(HeaderValue::from_static(""));
    let mut response = Json(entries).into_response();
    response.headers_mut().insert(&node::PARTITIONS, header);
    Ok(response)
}

fn incomplete() -> Problem {
    let detail =
        "the owners of some queues are changing, so the node can't tell which of them is the resource";
    Problem::new(Code::NotOwner, detail).hint(REPEAT)
}
