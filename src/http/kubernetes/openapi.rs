//! OpenAPI documents for kubectl, which asks for them before it creates, replaces or explains an object. An object may have any members.

use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Map, Value, json};

use super::accept::wants_only;
use super::discovery::{by_group, reply};
use crate::http::node::resources::Entry;
use crate::http::request::call::ReadCall;
use crate::http::status::{Refused, not_found};

/// The media type of OpenAPI 2 as protobuf.
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
/// The same in a reply, where an at sign is not permitted.
const PROTOBUF_REPLY: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// A document of OpenAPI 2 as protobuf: `swagger` (field 1) is `2.0`, and `info` (field 2) has the title (field 1) `deltaq`.
const NO_SCHEMAS: &[u8] = b"\x0a\x032.0\x12\x08\x0a\x06deltaq";
/// The options of calls that kubectl looks for.
const OPTIONS: [&str; 4] = ["dryRun", "fieldManager", "fieldValidation", "pretty"];

/// The list of the documents of OpenAPI 3.
pub(in crate::http) async fn v3(call: ReadCall) -> Result<Response, Refused> {
    let mut paths = Map::new();
    for (group, versions) in by_group(&call).await? {
        for version in versions.keys() {
            let path = format!("apis/{group}/{version}");
            paths.insert(path.clone(), json!({ "serverRelativeURL": format!("/openapi/v3/{path}") }));
        }
    }
    reply(&call, &json!({ "paths": paths }))
}

/// The document of OpenAPI 3 of a version of a group.
pub(in crate::http) async fn v3_group(call: ReadCall) -> Result<Response, Refused> {
    let mut groups = by_group(&call).await?;
    let mut parts = call.uri.path().split('/').skip(4);
    let (group, version) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let mut versions = groups.remove(group).ok_or_else(not_found)?;
    let entries = versions.remove(version).ok_or_else(not_found)?;
    let (mut schemas, mut paths) = (Map::new(), Map::new());
    for entry in &entries {
        schemas.insert(schema_name(entry), schema(entry));
        add_paths(&mut paths, entry);
    }
    let document = json!({
        "openapi": "3.0.0",
        "info": { "title": "deltaq", "version": env!("CARGO_PKG_VERSION") },
        "paths": paths,
        "components": { "schemas": schemas },
    });
    reply(&call, &document)
}

/// The document of OpenAPI 2 of all groups. kubectl reads it as protobuf, after it has found no schema in that of OpenAPI 3, so there it has
/// none either.
pub(in crate::http) async fn v2(call: ReadCall) -> Result<Response, Refused> {
    if wants_only(&call.headers, PROTOBUF) {
        return Ok(([(header::CONTENT_TYPE, PROTOBUF_REPLY)], NO_SCHEMAS).into_response());
    }
    let (mut definitions, mut paths) = (Map::new(), Map::new());
    for entry in by_group(&call).await?.into_values().flat_map(|versions| versions.into_values().flatten()) {
        definitions.insert(schema_name(&entry), schema(&entry));
        add_paths(&mut paths, &entry);
    }
    let document = json!({
        "swagger": "2.0",
        "info": { "title": "deltaq", "version": env!("CARGO_PKG_VERSION") },
        "paths": paths,
        "definitions": definitions,
    });
    reply(&call, &document)
}

/// The name of a schema, such as `example.shop.v1.Price`.
fn schema_name(entry: &Entry) -> String {
    let reversed: Vec<&str> = entry.settings.group.rsplit('.').collect();
    format!("{}.{}.{}", reversed.join("."), entry.settings.version, entry.settings.kind)
}

fn schema(entry: &Entry) -> Value {
    let text = json!({ "type": "string" });
    json!({
        "description": "An object of a queue. It may have any members.",
        "type": "object",
        "properties": {
            "apiVersion": { "description": "The group and the version of the resource.", "type": "string" },
            "kind": { "description": "The kind of the object.", "type": "string" },
            "metadata": {
                "description": "The name of the object, and what the server says of it.",
                "type": "object",
                "properties": {
                    "name": text,
                    "namespace": text,
                    "uid": text,
                    "resourceVersion": text,
                    "creationTimestamp": text,
                    "labels": { "type": "object", "additionalProperties": text },
                    "annotations": { "type": "object", "additionalProperties": text },
                },
                "x-kubernetes-preserve-unknown-fields": true,
            },
        },
        "x-kubernetes-preserve-unknown-fields": true,
        "x-kubernetes-group-version-kind": [kind(entry)],
    })
}

fn kind(entry: &Entry) -> Value {
    let settings = &entry.settings;
    json!({ "group": settings.group, "version": settings.version, "kind": settings.kind })
}

fn add_paths(paths: &mut Map<String, Value>, entry: &Entry) {
    let settings = &entry.settings;
    let namespace = if entry.is_namespaced { "/namespaces/{namespace}" } else { "" };
    let list = format!("/apis/{}/{}{namespace}/{}", settings.group, settings.version, settings.plural);
    let parameters: Vec<Value> = OPTIONS
        .iter()
        .map(|name| json!({ "name": name, "in": "query", "schema": { "type": "string" } }))
        .collect();
    let operation = |action: &str| {
        json!({
            "parameters": parameters,
            "responses": { "200": { "description": "OK" } },
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind(entry),
        })
    };
    let one = json!({
        "get": operation("get"),
        "put": operation("put"),
        "patch": operation("patch"),
        "delete": operation("delete"),
    });
    paths.insert(format!("{list}/{{name}}"), one);
    paths.insert(list, json!({ "get": operation("list"), "post": operation("post") }));
}
