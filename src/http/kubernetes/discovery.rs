//! Discovery: the version of the server, and which groups and resources it has.

use std::collections::BTreeMap;

use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use super::accept::{AGGREGATED, Form, wants_aggregated};
use super::directory;
use crate::config::access::Verb;
use crate::http::node::resources::Entry;
use crate::http::place::decoded;
use crate::http::problem::Problem;
use crate::http::reply::json as json_reply;
use crate::http::request::call::ReadCall;
use crate::http::status::{Refused, Status, not_found};

/// The version of Kubernetes whose wire the server speaks.
const MINOR: &str = "36";
const VERBS: [&str; 7] = ["create", "delete", "get", "list", "patch", "update", "watch"];

/// The version of the server.
pub(in crate::http) async fn version(call: ReadCall) -> Result<Response, Refused> {
    let version = format!("v1.{MINOR}.0-deltaq.{}", env!("CARGO_PKG_VERSION"));
    let document = json!({
        "major": "1",
        "minor": MINOR,
        "gitVersion": version,
        // Some clients require all members.
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": "",
        "compiler": "",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    });
    reply(&call, &document)
}

/// The core group. Clients expect one; it has no resources.
pub(in crate::http) async fn legacy(call: ReadCall) -> Result<Response, Refused> {
    if wants_aggregated(&call.headers)? {
        return Ok(aggregated(&[]));
    }
    reply(&call, &json!({ "kind": "APIVersions", "versions": ["v1"] }))
}

/// The resources of the core group, of which there are none.
pub(in crate::http) async fn legacy_resources(call: ReadCall) -> Result<Response, Refused> {
    reply(&call, &json!({ "kind": "APIResourceList", "groupVersion": "v1", "resources": [] }))
}

/// A namespace. Every namespace exists: kubectl asks for it when it finds no object.
pub(in crate::http) async fn namespace(call: ReadCall) -> Result<Response, Refused> {
    let path = call.uri.path().trim_end_matches('/');
    let name = path.rsplit('/').next().map(decoded);
    reply(&call, &json!({ "kind": "Namespace", "apiVersion": "v1", "metadata": { "name": name } }))
}

/// The groups.
pub(in crate::http) async fn groups(call: ReadCall) -> Result<Response, Refused> {
    let groups = by_group(&call).await?;
    if wants_aggregated(&call.headers)? {
        let groups: Vec<Value> =
            groups.iter().map(|(name, versions)| aggregated_group(name, versions)).collect();
        return Ok(aggregated(&groups));
    }
    let groups: Vec<Value> = groups.iter().map(|(name, versions)| group_of(name, versions)).collect();
    reply(&call, &json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups }))
}

/// The aggregated form of discovery: all groups with their resources.
fn aggregated(groups: &[Value]) -> Response {
    let document = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": groups,
    });
    let headers = [(header::CONTENT_TYPE, AGGREGATED), (header::VARY, "Accept")];
    (headers, format!("{document}\n")).into_response()
}

fn aggregated_group(name: &str, versions: &BTreeMap<String, Vec<Entry>>) -> Value {
    let resource = |entry: &Entry| {
        let settings = &entry.settings;
        json!({
            "resource": settings.plural,
            "responseKind": { "group": name, "version": settings.version, "kind": settings.kind },
            "scope": if entry.is_namespaced { "Namespaced" } else { "Cluster" },
            "singularResource": settings.kind.to_ascii_lowercase(),
            "verbs": VERBS,
        })
    };
    let version = |(version, entries): (&String, &Vec<Entry>)| {
        let resources: Vec<Value> = entries.iter().map(resource).collect();
        json!({ "version": version, "resources": resources, "freshness": "Current" })
    };
    let versions: Vec<Value> = best_first(versions).into_iter().map(version).collect();
    json!({ "metadata": { "name": name }, "versions": versions })
}

/// A group.
pub(in crate::http) async fn group(call: ReadCall) -> Result<Response, Refused> {
    let groups = by_group(&call).await?;
    let name = call.place().group;
    let versions = groups.get(&name).ok_or_else(not_found)?;
    let mut group = json!({ "kind": "APIGroup", "apiVersion": "v1" });
    if let (Some(group), Value::Object(members)) = (group.as_object_mut(), group_of(&name, versions)) {
        group.extend(members);
    }
    reply(&call, &group)
}

/// The resources of a version of a group.
pub(in crate::http) async fn resources(call: ReadCall) -> Result<Response, Refused> {
    let mut groups = by_group(&call).await?;
    let place = call.place();
    let mut versions = groups.remove(&place.group).ok_or_else(not_found)?;
    let entries = versions.remove(&place.version).ok_or_else(not_found)?;
    let resources: Vec<Value> = entries.iter().map(resource).collect();
    let group_version = format!("{}/{}", place.group, place.version);
    let document = json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources });
    reply(&call, &document)
}

/// The resources that the caller may read, by group and version.
pub(super) type Groups = BTreeMap<String, BTreeMap<String, Vec<Entry>>>;

pub(super) async fn by_group(call: &ReadCall) -> Result<Groups, Problem> {
    let state = &call.state;
    state.check_store()?;
    if let Some(registry) = state.partitions.loading().filter(|_| state.node.is_none()) {
        return Err(Problem::recovering(registry.progress()));
    }
    let mut groups = Groups::new();
    let caller = call.context.caller();
    for entry in directory::all(state).await? {
        let may = |verb| caller.is_none_or(|caller| caller.may(verb, &entry.queue));
        if may(Verb::Read) || may(Verb::Produce) {
            let versions = groups.entry(entry.settings.group.clone()).or_default();
            let entries = versions.entry(entry.settings.version.clone()).or_default();
            let is_known = |other: &Entry| other.settings.plural == entry.settings.plural;
            if !entries.iter().any(is_known) {
                entries.push(entry);
            }
        }
    }
    Ok(groups)
}

fn group_of(name: &str, versions: &BTreeMap<String, Vec<Entry>>) -> Value {
    let version =
        |version: &String| json!({ "groupVersion": format!("{name}/{version}"), "version": version });
    let versions: Vec<Value> = best_first(versions).into_iter().map(|(name, _)| version(name)).collect();
    json!({ "name": name, "versions": versions, "preferredVersion": versions.first() })
}

/// The versions in the order of Kubernetes: stable ones before beta before alpha, and larger numbers first.
fn best_first(versions: &BTreeMap<String, Vec<Entry>>) -> Vec<(&String, &Vec<Entry>)> {
    let rank = |name: &str| {
        let (number, rest) = name.strip_prefix('v').map_or(("", name), |rest| {
            rest.split_at(rest.find(|char: char| !char.is_ascii_digit()).unwrap_or(rest.len()))
        });
        let stability = match rest {
            "" => 3,
            rest if rest.starts_with("beta") => 2,
            rest if rest.starts_with("alpha") => 1,
            _ => 0,
        };
        let minor = rest.trim_start_matches(|char: char| !char.is_ascii_digit()).parse().unwrap_or(0_u64);
        (stability, number.parse().unwrap_or(0_u64), minor)
    };
    let mut versions: Vec<_> = versions.iter().collect();
    versions.sort_by_key(|(name, _)| std::cmp::Reverse(rank(name)));
    versions
}

fn resource(entry: &Entry) -> Value {
    json!({
        "name": entry.settings.plural,
        "singularName": entry.settings.kind.to_ascii_lowercase(),
        "namespaced": entry.is_namespaced,
        "kind": entry.settings.kind,
        "verbs": VERBS,
    })
}

/// A document, if the client accepts JSON.
pub(super) fn reply(call: &ReadCall, document: &Value) -> Result<Response, Refused> {
    if Form::of(&call.headers)? != Form::Objects {
        return Err(Status::not_acceptable().into());
    }
    Ok(json_reply(format!("{document}\n").into()))
}
