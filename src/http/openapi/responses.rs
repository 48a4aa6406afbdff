//! The problems of the operations, in groups. Each status is one shared response of the document.

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
    /// Problems of any request, from the middleware.
    Always = 400, 401, 403, 405, 414, 429, 431, 500, 503, 504;
    /// Problems of any call on a queue.
    OfQueue = 404, 410, 503, 507;
    /// Problems of any request with a body.
    OfBody = 408, 413, 415;
    /// A continue token that has expired.
    ExpiredToken = 410;
    /// An unknown name.
    NotFound = 404;
    /// A list whose media type is not in `Accept`.
    NotAcceptable = 406;
    /// A call that the state of the queue does not allow.
    Conflict = 409;
    /// A change of settings or of an object that are not those that the caller expects.
    PreconditionFailed = 412;
    /// A call that the listener does not have.
    OtherListener = 421;
    /// A document that is well-formed but not allowed.
    Unprocessable = 422;
    /// A limit of the queue or of the server.
    Full = 429;
    /// A server that can't read its queues.
    Unavailable = 503, 507;
}

fn name(status: u16) -> String {
    format!("Problem{status}")
}

/// One response for each status of a problem.
pub(in crate::http) fn shared() -> Map<String, Value> {
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
    let listed: Vec<String> =
        codes.iter().map(|code| format!("`{}`: {}.", code.name(), code.title())).collect();
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
    json!({
        "description": listed.join(" "),
        "headers": headers,
        "content": { "application/problem+json": { "schema": { "$ref": "#/components/schemas/ProblemDocument" } } },
    })
}

/// The headers that responses share.
pub(in crate::http) fn headers() -> Value {
    json!({
        "RequestId": {
            "description": "The id of the request in the server's log.",
            "required": true,
            "schema": { "type": "string", "minLength": 1 },
        },
        "RetryAfter": {
            "description": "Seconds to wait before the request is repeated.",
            "required": true,
            "schema": { "type": "integer", "minimum": 1 },
        },
        "WwwAuthenticate": {
            "description": "The way to authenticate: a bearer token.",
            "required": true,
            "schema": { "type": "string", "minLength": 1 },
        },
        "Allow": {
            "description": "The methods of the route.",
            "required": true,
            "schema": { "type": "string", "minLength": 1 },
        },
    })
}
