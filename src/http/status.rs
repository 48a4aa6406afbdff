//! Refusals of the Kubernetes API: the document `Status`.

use std::borrow::Cow;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::place::Place;
use super::problem::{self, Code, PassedOn, Problem};

/// A refusal of a request of the Kubernetes API.
#[derive(Debug)]
pub(in crate::http) struct Status {
    code: u16,
    reason: &'static str,
    message: Cow<'static, str>,
    details: Option<Box<Details>>,
    /// The code of the problem, for the log and the metrics.
    outcome: Code,
}

#[derive(Clone, Debug, Default, Serialize)]
struct Details {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    causes: Vec<Cause>,
    #[serde(rename = "retryAfterSeconds", skip_serializing_if = "Option::is_none")]
    retry_after_seconds: Option<u64>,
}

/// A part of a request that is wrong.
#[derive(Clone, Debug, Serialize)]
struct Cause {
    reason: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
}

#[derive(Serialize)]
struct Document<'s> {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    metadata: Metadata<'s>,
    status: &'static str,
    message: &'s str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'s Details>,
    code: u16,
}

#[derive(Serialize)]
struct Metadata<'s> {
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    next: Option<&'s str>,
}

impl Status {
    fn new(code: u16, reason: &'static str, message: impl Into<Cow<'static, str>>, outcome: Code) -> Self {
        Self { code, reason, message: message.into(), details: None, outcome }
    }

    /// The request is wrong.
    pub(in crate::http) fn bad_request(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(400, "BadRequest", message, Code::InvalidRequest)
    }

    /// The reply can't have any of the accepted types.
    pub(in crate::http) fn not_acceptable() -> Self {
        let message = "only the following media types are accepted: application/json";
        Self::new(406, "NotAcceptable", message, Code::NotAcceptable)
    }

    /// The body has a type that the server does not read.
    pub(in crate::http) fn unsupported(accepted: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        );
        Self::new(415, "UnsupportedMediaType", message, Code::UnsupportedMediaType)
    }

    /// The body is too large.
    pub(in crate::http) fn too_large(message: String) -> Self {
        Self::new(413, "RequestEntityTooLarge", message, Code::ObjectTooLarge)
    }

    /// There is no such object.
    pub(in crate::http) fn no_object(place: &Place, name: &str) -> Self {
        let message = format!("{} {name:?} not found", place.resource());
        Self::new(404, "NotFound", message, Code::KeyNotFound).of(place, Some(name))
    }

    /// There is such an object.
    pub(in crate::http) fn already_exists(place: &Place, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", place.resource());
        Self::new(409, "AlreadyExists", message, Code::PreconditionFailed).of(place, Some(name))
    }

    /// The object is not the one that the client expects.
    pub(in crate::http) fn conflict(place: &Place, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", place.resource());
        Self::new(409, "Conflict", message, Code::PreconditionFailed).of(place, Some(name))
    }

    /// The same with the kind of the object instead of the name of the resource, as the API server has it for a deletion.
    pub(in crate::http) fn of_kind(mut self, kind: &str) -> Self {
        if let Some(details) = &mut self.details {
            details.kind = Some(kind.to_owned());
        }
        self
    }

    /// A field of the object is wrong. `kind` is that of the object.
    pub(in crate::http) fn invalid(
        place: &Place,
        kind: &str,
        name: &str,
        field: &str,
        fault: Fault<'_>,
    ) -> Self {
        let (reason, why) = fault.cause();
        let message = format!("{kind}.{} {name:?} is invalid: {field}: {why}", place.group);
        let mut status = Self::new(422, "Invalid", message, Code::InvalidObject);
        let cause = Cause { reason, message: why, field: Some(field.to_owned()) };
        status.details = Some(Box::new(Details {
            name: Some(name.to_owned()).filter(|name| !name.is_empty()),
            group: Some(place.group.clone()),
            kind: Some(kind.to_owned()),
            causes: vec![cause],
            retry_after_seconds: None,
        }));
        status
    }

    /// Options of a call are wrong. `kind` is that of the options, such as `ListOptions`.
    pub(in crate::http) fn invalid_options(kind: &str, faults: &[(&str, Fault<'_>)]) -> Self {
        let causes: Vec<Cause> = faults
            .iter()
            .map(|(field, fault)| {
                let (reason, message) = fault.cause();
                Cause { reason, message, field: Some((*field).to_owned()) }
            })
            .collect();
        let all: Vec<String> = causes
            .iter()
            .map(|cause| format!("{}: {}", cause.field.as_deref().unwrap_or_default(), cause.message))
            .collect();
        let all = if let [one] = &*all { one.clone() } else { format!("[{}]", all.join(", ")) };
        let message = format!("{kind}.meta.k8s.io \"\" is invalid: {all}");
        let mut status = Self::new(422, "Invalid", message, Code::InvalidParameter);
        status.details = Some(Box::new(Details {
            group: Some("meta.k8s.io".to_owned()),
            kind: Some(kind.to_owned()),
            causes,
            ..Details::default()
        }));
        status
    }

    /// An operation of a patch can't be applied.
    pub(in crate::http) fn invalid_patch() -> Self {
        let message = "the server rejected our request due to an error in our request";
        let mut status = Self::new(422, "Invalid", message, Code::InvalidObject);
        status.details = Some(Box::default());
        status
    }

    /// The list or watch can't be continued: the client begins again.
    pub(in crate::http) fn expired(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(410, "Expired", message, Code::Expired)
    }

    /// The version is larger than the newest one.
    pub(in crate::http) fn too_new(version: u64, newest: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {version}, current: {newest}");
        let mut status = Self::new(504, "Timeout", message, Code::Timeout);
        let message = "Too large resource version".to_owned();
        status.details = Some(Box::new(Details {
            causes: vec![Cause { reason: "ResourceVersionTooLarge", message, field: None }],
            retry_after_seconds: Some(1),
            ..Details::default()
        }));
        status
    }

    /// The `Status` of a problem in a request for `place`.
    pub(in crate::http) fn of_problem(problem: &Problem, place: &Place) -> Self {
        let (code, reason) = match problem.code() {
            Code::KeyNotFound | Code::QueueNotFound | Code::NotFound => (404, "NotFound"),
            Code::Expired => (410, "Expired"),
            Code::PreconditionFailed => (409, "Conflict"),
            code => (code.status(), reason_of(code.status())),
        };
        let message = match &place.plural {
            // The text names the queue, which not all may know.
            Some(_) if problem.code() == Code::Forbidden => {
                format!("{} is forbidden: the token has no grant for this", place.resource())
            }
            _ => problem.to_string(),
        };
        let status = Self::new(code, reason, message, problem.code());
        let mut status = match (&place.plural, code) {
            (_, 401) => status,
            (Some(_), _) => status.of(place, place.name.as_deref()),
            (None, _) => Self { details: Some(Box::default()), ..status },
        };
        if let Some(seconds) = problem.retry_after_seconds() {
            status.details.get_or_insert_default().retry_after_seconds = Some(seconds);
        }
        status
    }

    /// Names the object, or the resource.
    fn of(mut self, place: &Place, name: Option<&str>) -> Self {
        self.details = Some(Box::new(Details {
            name: name.map(str::to_owned),
            group: Some(place.group.clone()),
            kind: place.plural.clone(),
            ..Details::default()
        }));
        self
    }

    /// The code of the problem, for the log.
    pub(in crate::http) const fn outcome(&self) -> Code {
        self.outcome
    }

    /// The document.
    pub(in crate::http) fn document(&self) -> String {
        let document = Document {
            kind: "Status",
            api_version: "v1",
            metadata: Metadata { next: None },
            status: "Failure",
            message: &self.message,
            reason: self.reason,
            details: self.details.as_deref(),
            code: self.code,
        };
        serde_json::to_string(&document).unwrap_or_default()
    }
}

/// The reason of an HTTP status.
const fn reason_of(status: u16) -> &'static str {
    match status {
        400 | 411 | 412 | 421 | 431 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        406 => "NotAcceptable",
        409 => "Conflict",
        410 => "Expired",
        413 => "RequestEntityTooLarge",
        415 => "UnsupportedMediaType",
        422 => "Invalid",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        408 | 504 => "Timeout",
        _ => "",
    }
}

/// What is wrong with a field.
#[derive(Clone, Copy, Debug)]
pub(in crate::http) enum Fault<'f> {
    /// It must not be given.
    Forbidden(&'f str),
    /// It must be given.
    Required(&'f str),
    /// Its value is wrong.
    Invalid(&'f str, &'f str),
    /// Its value is none of these.
    Unsupported(&'f str, &'f str),
}

impl Fault<'_> {
    /// The reason and the message of the fault.
    fn cause(self) -> (&'static str, String) {
        match self {
            Self::Forbidden(why) => ("FieldValueForbidden", format!("Forbidden: {why}")),
            Self::Required("") => ("FieldValueRequired", "Required value".to_owned()),
            Self::Required(why) => ("FieldValueRequired", format!("Required value: {why}")),
            Self::Invalid(value, why) => ("FieldValueInvalid", format!("Invalid value: {value}: {why}")),
            Self::Unsupported(value, known) => {
                ("FieldValueNotSupported", format!("Unsupported value: {value}: supported values: {known}"))
            }
        }
    }
}

/// The response with its `Status`, and the code of the problem.
pub(in crate::http) fn rendered(place: &Place, mut response: Response) -> (Response, Option<Code>) {
    if let Some(PassedOn(code)) = response.extensions().get().copied() {
        return (response, code);
    }
    match problem::take(&mut response) {
        Some(problem) => (Status::of_problem(&problem, place).into_response(), Some(problem.code())),
        None => (response, None),
    }
}

/// The refusal of a path without a resource.
pub(in crate::http) fn not_found() -> Status {
    let mut status =
        Status::new(404, "NotFound", "the server could not find the requested resource", Code::NotFound);
    status.details = Some(Box::default());
    status
}

impl IntoResponse for Status {
    fn into_response(self) -> Response {
        let code = StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let json = HeaderValue::from_static("application/json");
        let mut response = (code, [(header::CONTENT_TYPE, json)], self.document() + "\n").into_response();
        let seconds = self.details.as_ref().and_then(|details| details.retry_after_seconds);
        if let Some(seconds) = seconds {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response.extensions_mut().insert(PassedOn(Some(self.outcome)));
        response
    }
}

/// A refusal that is already a `Status`, or a problem of the server that becomes one.
#[derive(Debug)]
pub(in crate::http) enum Refused {
    Status(Status),
    Problem(Problem),
}

impl Refused {
    /// The `Status` for a request of this place.
    pub(in crate::http) fn status(self, place: &Place) -> Status {
        match self {
            Self::Status(status) => status,
            Self::Problem(problem) => Status::of_problem(&problem, place),
        }
    }
}

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<deltaq_service::Error> for Refused {
    fn from(error: deltaq_service::Error) -> Self {
        Self::Problem(error.into())
    }
}

/// A problem gets its `Status` where the place of the request is known.
impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        match self {
            Self::Status(status) => status.into_response(),
            Self::Problem(problem) => problem.into_response(),
        }
    }
}
