//! The options of requests, from the query. Unknown options are ignored, as the API server does.

use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::excerpt::Excerpt;
use deltaq_engine::id::Rv;
use deltaq_engine::key::Key;
use deltaq_service::ListedObject;

use super::resource::{ObjectName, Resource};
use super::selector::{FieldSelector, LabelSelector, labels_of};
use crate::http::request::params::{Params, digits};
use crate::http::status::{Fault, Status};

/// What a list or a watch selects.
#[derive(Debug)]
pub(super) struct Selectors {
    pub(super) labels: Arc<LabelSelector>,
    pub(super) fields: FieldSelector,
}

impl Selectors {
    pub(super) fn of(params: &Params, is_namespaced: bool) -> Result<Self, Status> {
        let labels = LabelSelector::parse(params.text("labelSelector").unwrap_or_default());
        let fields = FieldSelector::parse(params.text("fieldSelector").unwrap_or_default(), is_namespaced);
        Ok(Self {
            labels: Arc::new(labels.map_err(Status::bad_request)?),
            fields: fields.map_err(Status::bad_request)?,
        })
    }

    /// Whether everything is selected.
    pub(super) fn are_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether a key is selected.
    pub(super) fn include_key(&self, resource: &Resource, key: &Key) -> bool {
        if self.fields.is_empty() {
            return true;
        }
        let ObjectName { namespace, name } = resource.name(key);
        self.fields.matches(namespace.as_deref().unwrap_or_default(), &name)
    }

    /// Whether an object is selected by its labels.
    pub(super) fn include_object(&self, object: &str) -> bool {
        self.labels.is_empty() || self.labels.matches(&labels_of(object))
    }

    /// Whether an object of a list is selected.
    pub(super) fn include(&self, resource: &Resource, listed: &ListedObject) -> bool {
        self.include_key(resource, &listed.object.key) && self.include_object(listed.object.object.as_str())
    }
}

/// The version that a list must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListVersion {
    /// The newest one.
    Newest,
    /// This one or a newer one.
    NotOlderThan(Rv),
    /// This one.
    Exact(Rv),
}

/// The options of a list.
#[derive(Debug)]
pub(super) struct ListOptions {
    pub(super) selectors: Selectors,
    pub(super) version: ListVersion,
    /// The maximum number of objects; `None` for all.
    pub(super) limit: Option<usize>,
    /// The token of the next page.
    pub(super) next: Option<String>,
}

impl ListOptions {
    pub(super) fn of(params: &Params, is_namespaced: bool) -> Result<Self, Status> {
        let next = params.text("continue").map(str::to_owned);
        let (given, matching) = (params.text("resourceVersion"), params.text("resourceVersionMatch"));
        let mut faults = Vec::new();
        if params.text_or_empty("sendInitialEvents").is_some() {
            faults.push(("sendInitialEvents", Fault::Forbidden("sendInitialEvents is forbidden for list")));
        }
        let quoted = format!("{:?}", matching.unwrap_or_default());
        if let Some(matching) = matching {
            let mut forbid = |why| faults.push(("resourceVersionMatch", Fault::Forbidden(why)));
            if given.is_none() {
                forbid("resourceVersionMatch is forbidden unless resourceVersion is provided");
            }
            if next.is_some() {
                forbid("resourceVersionMatch is forbidden when continue is provided");
            }
            if !matches!(matching, "Exact" | "NotOlderThan") {
                let fault = Fault::Unsupported(&quoted, "\"Exact\", \"NotOlderThan\"");
                faults.push(("resourceVersionMatch", fault));
            }
            if matching == "Exact" && given == Some("0") {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                faults.push(("resourceVersionMatch", Fault::Forbidden(why)));
            }
        }
        if !faults.is_empty() {
            return Err(Status::invalid_options("ListOptions", &faults));
        }
        let limit = number(params, "limit")?.filter(|limit| *limit > 0);
        let limit = limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let version = match (given, matching) {
            (None | Some("0"), _) => ListVersion::Newest,
            (Some(_), _) if next.is_some() => {
                let message = "specifying resource version is not allowed when using continue";
                return Err(Status::bad_request(message));
            }
            (Some(text), Some("Exact")) => ListVersion::Exact(version(text)?),
            // Without a match, a page is of exactly this version.
            (Some(text), None) if limit.is_some() => ListVersion::Exact(version(text)?),
            (Some(text), _) => ListVersion::NotOlderThan(version(text)?),
        };
        Ok(Self { selectors: Selectors::of(params, is_namespaced)?, version, limit, next })
    }
}

/// The options of a watch.
#[derive(Debug)]
pub(super) struct WatchOptions {
    pub(super) selectors: Selectors,
    pub(super) from: WatchBegin,
    /// Whether the end of the initial events is marked.
    pub(super) marks_end: bool,
    pub(super) has_bookmarks: bool,
    /// When the watch ends; `None` for the default.
    pub(super) timeout: Option<Duration>,
}

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchBegin {
    /// With all objects, once the queue has this version.
    All(Rv),
    /// With the changes after this version.
    After(Rv),
    /// With the changes from now on.
    Now,
}

impl WatchOptions {
    pub(super) fn of(params: &Params, is_namespaced: bool) -> Result<Self, Status> {
        let sends_initial = params.text_or_empty("sendInitialEvents").map(is_true);
        let matching = params.text("resourceVersionMatch");
        let mut faults = Vec::new();
        let quoted = format!("{:?}", matching.unwrap_or_default());
        if params.text("continue").is_some() {
            let why = "resourceVersionMatch is forbidden when continue is provided";
            faults.push(("resourceVersionMatch", Fault::Forbidden(why)));
        }
        match (sends_initial, matching) {
            (None, Some(_)) => {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                faults.push(("resourceVersionMatch", Fault::Forbidden(why)));
            }
            (Some(_), matching) if matching != Some("NotOlderThan") => {
                let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
                faults.push(("resourceVersionMatch", Fault::Forbidden(why)));
                if matching.is_some() {
                    let fault = Fault::Unsupported(&quoted, "\"NotOlderThan\"");
                    faults.push(("resourceVersionMatch", fault));
                }
            }
            _ => {}
        }
        if !faults.is_empty() {
            return Err(Status::invalid_options("ListOptions", &faults));
        }
        let given = params.text("resourceVersion").map(version).transpose()?.unwrap_or_default();
        let from = match sends_initial {
            Some(true) => WatchBegin::All(given),
            Some(false) if given == Rv::ZERO => WatchBegin::Now,
            None if given == Rv::ZERO => WatchBegin::All(given),
            _ => WatchBegin::After(given),
        };
        let has_bookmarks = params.text_or_empty("allowWatchBookmarks").is_some_and(is_true);
        let timeout = number(params, "timeoutSeconds")?.filter(|seconds| *seconds != 0);
        let timeout = timeout.map(|seconds| Duration::from_secs(seconds.max(0).unsigned_abs()));
        let marks_end = sends_initial == Some(true) && has_bookmarks;
        Ok(Self { selectors: Selectors::of(params, is_namespaced)?, from, marks_end, has_bookmarks, timeout })
    }
}

/// Whether a change is only tried.
pub(super) fn is_dry_run(params: &Params, kind: &str) -> Result<bool, Status> {
    match params.text_or_empty("dryRun") {
        None => Ok(false),
        Some("All") => Ok(true),
        Some(other) => {
            let given = format!("[{other:?}]");
            Err(Status::invalid_options(kind, &[("dryRun", Fault::Unsupported(&given, "\"All\""))]))
        }
    }
}

/// The value of a flag: true unless it says otherwise.
fn is_true(text: &str) -> bool {
    !matches!(text, "0" | "false")
}

/// A version.
pub(super) fn version(text: &str) -> Result<Rv, Status> {
    let parsed = digits(text).map(Rv::new);
    parsed.ok_or_else(|| {
        let text = Excerpt(text);
        Status::bad_request(format!(
            "invalid resource version: resourceVersion: Invalid value: {text}: it is no version"
        ))
    })
}

/// A whole number.
fn number(params: &Params, name: &str) -> Result<Option<i64>, Status> {
    let Some(text) = params.text(name) else { return Ok(None) };
    let wrong = || Status::bad_request(format!("{name}: {} is not a whole number", Excerpt(text)));
    text.parse().map(Some).map_err(|_| wrong())
}
