//! The events of a watch.

use std::time::Duration;

use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::objects::utf8;
use super::super::{Error, Refusal};
use crate::json;

/// The annotation of the bookmark after the initial objects.
const INITIAL_EVENTS_END: &str = "/metadata/annotations/k8s.io~1initial-events-end";
/// The status and the reason if the server no longer knows a version.
const GONE: i64 = 410;

/// An event of a watch.
#[derive(Debug)]
pub(super) enum Watched {
    Applied {
        object: Box<RawValue>,
        version: String,
    },
    Deleted {
        object: Box<RawValue>,
        version: String,
    },
    /// Everything up to the version was sent. With `is_end`, all initial objects were sent as well.
    Bookmark {
        version: String,
        is_end: bool,
    },
    /// The server no longer knows the version.
    Expired,
    /// The server ends the watch for another reason.
    Failed(Error),
}

#[derive(Debug, Deserialize)]
struct Line<'l> {
    #[serde(rename = "type")]
    kind: String,
    #[serde(borrow)]
    object: &'l RawValue,
}

#[derive(Debug, Deserialize)]
struct Status {
    #[serde(default)]
    code: i64,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    details: Option<Details>,
}

#[derive(Debug, Deserialize)]
struct Details {
    #[serde(default, rename = "retryAfterSeconds")]
    retry_after_seconds: u64,
}

impl Watched {
    /// Reads a line.
    pub(super) fn read(line: &[u8]) -> Result<Self, Error> {
        let of = "an event of the watch";
        let wrong =
            |error: serde_json::Error| Error::because(format!("{of} is not one of Kubernetes"), error);
        let Line { kind, object } = serde_json::from_str(utf8(line, of)?).map_err(wrong)?;
        if kind == "ERROR" {
            return Ok(Self::failed(&serde_json::from_str(object.get()).map_err(wrong)?));
        }
        let found = json::find(object, "/metadata/resourceVersion").map_err(wrong)?;
        let version = found.and_then(json::scalar).filter(|version| !version.is_empty());
        let version = version.ok_or_else(|| Error::new(format!("{of} has no /metadata/resourceVersion")))?;
        match kind.as_str() {
            "ADDED" | "MODIFIED" => Ok(Self::Applied { object: object.to_owned(), version }),
            "DELETED" => Ok(Self::Deleted { object: object.to_owned(), version }),
            "BOOKMARK" => {
                let end = json::find(object, INITIAL_EVENTS_END).map_err(wrong)?;
                Ok(Self::Bookmark { version, is_end: end.and_then(json::scalar).as_deref() == Some("true") })
            }
            _ => Err(Error::new(format!("{of} has the unknown type {kind:?}"))),
        }
    }

    fn failed(status: &Status) -> Self {
        if status.code == GONE || status.reason == "Expired" {
            return Self::Expired;
        }
        let seconds = status.details.as_ref().map(|details| details.retry_after_seconds);
        let retry_after = seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs);
        let Status { code, reason, message, .. } = status;
        let message = if message.is_empty() { String::new() } else { format!(": {message}") };
        let refusal = u16::try_from(*code).ok().and_then(|code| StatusCode::from_u16(code).ok());
        let error = Error::new(format!("the watch has ended: status {code} {reason}{message}"));
        Self::Failed(Error { refusal: refusal.map(Refusal::Status), ..error }.retry_after(retry_after))
    }
}

/// The namespace and the name of an object.
pub(super) fn name(object: &RawValue) -> Result<[String; 2], Error> {
    let part = |pointer| {
        let found =
            json::find(object, pointer).map_err(|error| Error::because("an event of the watch", error))?;
        Ok(found.and_then(json::scalar).unwrap_or_default())
    };
    Ok([part("/metadata/namespace")?, part("/metadata/name")?])
}

/// An object of a list, with its kind, which lists leave out, as a watch sends it.
pub(super) fn with_kind(object: &RawValue, api_version: &str, kind: &str) -> Result<Box<RawValue>, Error> {
    let mut object = object.to_owned();
    for (member, value) in [("kind", kind), ("apiVersion", api_version)] {
        let pointer = format!("/{member}");
        let found =
            json::find(&object, &pointer).map_err(|error| Error::because("an object of the list", error))?;
        if found.is_none() && !value.is_empty() {
            let named = json::with_member(&object, member, value);
            object = named.map_err(|error| Error::because("an object of the list", error))?;
        }
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_told_apart() {
        let read = |line: &str| Watched::read(line.as_bytes());
        let pod = "{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"7\"}}";
        assert!(
            matches!(read(&format!("{{\"type\":\"ADDED\",\"object\":{pod}}}\n")), Ok(Watched::Applied { version, .. }) if version == "7")
        );
        assert!(matches!(
            read(&format!("{{\"type\":\"DELETED\",\"object\":{pod}}}")),
            Ok(Watched::Deleted { .. })
        ));
        assert!(matches!(
            read(&format!("{{\"type\":\"BOOKMARK\",\"object\":{pod}}}")),
            Ok(Watched::Bookmark { is_end: false, .. })
        ));
        let end = "{\"metadata\":{\"resourceVersion\":\"8\",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}}}";
        assert!(matches!(
            read(&format!("{{\"type\":\"BOOKMARK\",\"object\":{end}}}")),
            Ok(Watched::Bookmark { is_end: true, .. })
        ));
        let status = |code: u16, reason: &str| {
            format!(
                "{{\"type\":\"ERROR\",\"object\":{{\"kind\":\"Status\",\"code\":{code},\"reason\":\"{reason}\",\"message\":\"etcdserver: no leader\",\"details\":{{\"retryAfterSeconds\":3}}}}}}"
            )
        };
        assert!(matches!(read(&status(410, "Expired")), Ok(Watched::Expired)));
        let Ok(Watched::Failed(error)) = read(&status(500, "InternalError")) else { panic!("no failure") };
        assert_eq!(error.to_string(), "the watch has ended: status 500 InternalError: etcdserver: no leader");
        assert_eq!((error.is_passing(), error.asked_wait()), (false, Some(Duration::from_secs(3))));
        assert!(
            matches!(read(&status(429, "TooManyRequests")), Ok(Watched::Failed(error)) if error.is_passing())
        );
        for wrong in [
            "{\"type\":\"ADDED\",\"object\":{}}",
            "{\"type\":\"NEW\",\"object\":{\"metadata\":{\"resourceVersion\":\"1\"}}}",
            "{\"type\":\"ADDED\"",
            "\u{0}",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_objects_of_a_list_get_their_kind() {
        let pod = RawValue::from_string("{\"metadata\":{}}".to_owned()).unwrap();
        let named = with_kind(&pod, "v1", "Pod").unwrap();
        assert_eq!(named.get(), "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{}}");
        assert_eq!(with_kind(&named, "v2", "Other").unwrap().get(), named.get());
    }
}
