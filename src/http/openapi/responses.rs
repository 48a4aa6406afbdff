//! The problems that calls answer with, in groups. Each status is one shared response of the document.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use utoipa::IntoResponses;
use utoipa::openapi::{Ref, RefOr, Response};

use crate::http::problem::Code;

macro_rules! responses {
    ($($(#[doc = $doc:literal])* $group:ident = $($status:literal),*;)*) => {$(
        $(#[doc = $doc])*
        pub(in crate::http) struct $group;

        impl IntoResponses for $group {
            fn responses() -> BTreeMap<String, RefOr<Response>> {
                let problem = |status: u16| {
                    (status.to_string(), Ref::new(format!("#/components/responses/{}", name(status))).into())
                };
                [$($status),*].into_iter().map(problem).collect()
            }
        }
    )*};
}

responses! {
    /// What any request may meet, in the layers around the handlers.
    Always = 400, 401, 403, 405, 414, 429, 431, 500, 504;
    /// What any call on a queue may meet.
    OfQueue = 404, 410, 503, 507;
    /// What any request with a body may meet.
    OfBody = 408, 413, 415;
    /// What was asked for was there once.
    Gone = 410;
    /// There is nothing of this name.
    NotFound = 404;
    /// A list can't be given in the type that Accept wants.
    NotAcceptable = 406;
    /// It does not go with the state of the queue.
    Conflict = 409;
    /// The document is well-formed, and not allowed.
    Unprocessable = 422;
    /// There is no room.
    Full = 429;
    /// The server does not take requests.
    Unavailable = 503, 507;
}

fn name(status: u16) -> String {
    format!("Problem{status}")
}

/// One response for each status that has problems.
pub(super) fn shared() -> Map<String, Value> {
    let statuses: BTreeSet<u16> = Code::ALL.iter().map(|code| code.status()).collect();
    let any = json!({
        "description": "A problem of any other status.",
        "headers": { "x-request-id": { "$ref": "#/components/headers/RequestId" } },
        "content": { "application/problem+json": { "schema": { "$ref": "#/components/schemas/ProblemDocument" } } },
    });
    let by_status = statuses.into_iter().map(|status| (name(status), response(status)));
    std::iter::once(("Problem".to_owned(), any)).chain(by_status).collect()
}

fn response(status: u16) -> Value {
    let codes: Vec<Code> = Code::ALL.iter().copied().filter(|code| code.status() == status).collect();
    let told: Vec<String> =
        codes.iter().map(|code| format!("`{}`: {}.", code.name(), code.title())).collect();
    let names: Vec<&str> = codes.iter().map(|code| code.name()).collect();
    let mut headers = Map::new();
    headers.insert("x-request-id".to_owned(), json!({ "$ref": "#/components/headers/RequestId" }));
    match status {
        401 => {
            headers.insert(
                "www-authenticate".to_owned(),
                json!({ "$ref": "#/components/headers/WwwAuthenticate" }),
            );
        }
        405 => {
            headers.insert("allow".to_owned(), json!({ "$ref": "#/components/headers/Allow" }));
        }
        429 | 503 | 504 | 507 => {
            headers.insert("retry-after".to_owned(), json!({ "$ref": "#/components/headers/RetryAfter" }));
        }
        _ => {}
    }
    let narrowed = json!({ "properties": { "status": { "const": status }, "code": { "examples": names } } });
    let schema = json!({ "allOf": [{ "$ref": "#/components/schemas/ProblemDocument" }, narrowed] });
    json!({
        "description": told.join(" "),
        "headers": headers,
        "content": { "application/problem+json": { "schema": schema } },
    })
}

/// The headers that responses share.
pub(super) fn headers() -> Value {
    json!({
        "RequestId": {
            "description": "Leads to the request in the server's log.",
            "required": true,
            "schema": { "type": "string", "minLength": 1 },
        },
        "RetryAfter": {
            "description": "Seconds to wait before the request is repeated.",
            "required": true,
            "schema": { "type": "integer", "minimum": 1 },
        },
        "WwwAuthenticate": {
            "description": "How to say who one is: with a bearer token.",
            "required": true,
            "schema": { "type": "string", "minLength": 1 },
        },
        "Allow": {
            "description": "The methods that the route takes.",
            "required": true,
            "schema": { "type": "string", "minLength": 1 },
        },
    })
}
