//! The operations of the API with their handlers, in one table.
//!
//! Routing, authorization, in-flight limits, timeouts, telemetry and body parsing use this table, and a test compares
//! it with the OpenAPI document. A handler can be reached only through the table.

use std::sync::Arc;

use axum::extract::Request;
use deltaq_types::name::Name;
use matchit::{Match, Router};
use percent_encoding::percent_decode_str;

use super::table::{self, Endpoint};
use crate::http::operation::{Target, WATCH};
use crate::http::place::is_watch;
use crate::http::request::call::Handler;

/// The operations of a listener, by path and method.
#[derive(Debug)]
pub(in crate::http) struct Operations {
    paths: Router<PathEntry>,
}

#[derive(Clone, Debug)]
struct PathEntry {
    endpoints: Vec<&'static Endpoint>,
    allow: Arc<str>,
    /// Whether a GET may be a watch.
    has_watch: bool,
}

/// The optional operations that a listener serves.
#[derive(Clone, Copy, Debug)]
pub(in crate::http) struct Served {
    /// `/metrics`.
    pub(in crate::http) metrics: bool,
    /// The console.
    pub(in crate::http) console: bool,
    /// The Kubernetes API.
    pub(in crate::http) kubernetes: bool,
}

impl Operations {
    /// All operations, with the optional ones that the listener serves.
    pub(in crate::http) fn all(served: Served) -> Self {
        let is_served = |endpoint: &&Endpoint| {
            (served.metrics || !endpoint.is_scrape())
                && (served.console || !endpoint.is_console())
                && (served.kubernetes || !endpoint.operation.is_kubernetes())
        };
        Self::of(table::ALL.iter().filter(is_served))
    }

    /// Only `/metrics`.
    pub(in crate::http) fn of_metrics() -> Self {
        Self::of(table::ALL.iter().filter(|endpoint| endpoint.is_scrape()))
    }

    /// A table of these operations.
    pub(in crate::http) fn of(endpoints: impl Iterator<Item = &'static Endpoint>) -> Self {
        let mut by_path: Vec<(&str, Vec<&'static Endpoint>)> = Vec::new();
        for endpoint in endpoints {
            match by_path.iter_mut().find(|(path, _)| *path == endpoint.operation.path) {
                Some((_, endpoints)) => endpoints.push(endpoint),
                None => by_path.push((endpoint.operation.path, vec![endpoint])),
            }
        }
        let mut paths = Router::new();
        for (path, endpoints) in by_path {
            let methods = endpoints.iter().map(|endpoint| endpoint.operation.method);
            let methods = methods.filter(|method| *method != WATCH).map(|method| match method {
                "GET" => "GET,HEAD",
                method => method,
            });
            let allow = methods.collect::<Vec<_>>().join(",").into();
            let has_watch = endpoints.iter().any(|endpoint| endpoint.operation.method == WATCH);
            // Clients of Kubernetes may end a path with a slash.
            let is_kubernetes = endpoints.iter().any(|endpoint| endpoint.operation.is_kubernetes());
            let with_slash = is_kubernetes.then(|| format!("{path}/"));
            let entry = PathEntry { endpoints, allow, has_watch };
            for path in std::iter::once(path.to_owned()).chain(with_slash) {
                if let Err(error) = paths.insert(path, entry.clone()) {
                    // A test reaches every operation of the table.
                    tracing::error!(%error, "two templates of the table of operations conflict");
                }
            }
        }
        Self { paths }
    }

    /// The target of a request, and the handler of its operation.
    pub(in crate::http) fn find(&self, request: &Request) -> (Target, Option<Handler>) {
        let Ok(Match { value: entry, params }) = self.paths.at(request.uri().path()) else {
            return (Target::default(), None);
        };
        let method = match request.method().as_str() {
            "GET" | "HEAD" if entry.has_watch && is_watch(request.uri().query()) => WATCH,
            "HEAD" => "GET",
            method => method,
        };
        let endpoint = entry.endpoints.iter().copied().find(|endpoint| endpoint.operation.method == method);
        let target = Target {
            path: entry.endpoints.first().map(|endpoint| endpoint.operation.path),
            operation: endpoint.map(|endpoint| &endpoint.operation),
            allow: endpoint.is_none().then(|| entry.allow.clone()),
            queue: params.get("queue").and_then(queue_of),
        };
        (target, endpoint.map(|endpoint| endpoint.handler))
    }
}

/// The method and the template of the path of an operation, by its id.
#[must_use]
pub fn operation(id: &str) -> Option<(&'static str, &'static str)> {
    let mut operations = table::ALL.iter().map(|endpoint| &endpoint.operation);
    let found = operations.find(|operation| operation.id == Some(id))?;
    Some((found.method, found.path))
}

/// The ids of all operations.
pub fn operation_ids() -> impl Iterator<Item = &'static str> {
    table::ALL.iter().filter_map(|endpoint| endpoint.operation.id)
}

/// Maximum length, in bytes, of a path for which a similar path is suggested. The comparison takes quadratic time.
const COMPARED_BYTES_MAX: usize = 256;

/// Words that other services use for calls on a queue, with the equivalent rest of the path in this API.
const FOREIGN_WORDS: &[(&str, &str)] = &[
    ("consume", "pop"),
    ("dead-letters", "items?state=parked"),
    ("discard", "parked/discard"),
    ("enqueue", "add"),
    ("keys", "items"),
    ("messages", "items"),
    ("promote", "delayed/promote"),
    ("publish", "add"),
    ("push", "add"),
    ("put", "add"),
    ("receive", "pop"),
    ("redrive", "parked/redrive"),
    ("send", "add"),
    ("subscribe", "pop"),
];

/// The API path that is most similar to an unknown path, if any is similar. A path without `/v1` is also compared
/// with `/v1` added.
pub(in crate::http) fn nearest_path(path: &str) -> Option<String> {
    if path.len() > COMPARED_BYTES_MAX {
        return None;
    }
    let path = path.trim_end_matches('/');
    if let Some((queue, word)) = path.rsplit_once('/')
        && queue.strip_prefix("/v1/queues/").is_some_and(|name| queue_of(name).is_some())
        && let Some((_, known)) = FOREIGN_WORDS.iter().find(|(foreign, _)| *foreign == word)
    {
        return Some(format!("{queue}/{known}"));
    }
    let given = [path.to_owned(), format!("/v1{path}")];
    let candidates = table::ALL.iter().flat_map(|endpoint| {
        given.iter().filter_map(move |given| {
            let template = endpoint.operation.path;
            let candidate = filled(template, given)?;
            let pairs = candidate.split('/').zip(given.split('/'));
            let edits = pairs.map(|(part, given)| {
                let edits = strsim::damerau_levenshtein(part, given);
                (edits <= (part.len() / 3).max(1)).then_some(edits)
            });
            Some((edits.sum::<Option<usize>>()?, candidate))
        })
    });
    candidates.min_by_key(|(edits, _)| *edits).map(|(_, candidate)| candidate)
}

/// The template with its parameters replaced by parts of `path`; `None` if the path has too few or too many parts.
fn filled(template: &str, path: &str) -> Option<String> {
    let (mut rest, mut parts) = (path.split('/'), Vec::new());
    for part in template.split('/') {
        if part.starts_with("{*") {
            parts.extend(rest.by_ref());
            break;
        }
        let given = rest.next().filter(|given| part.is_empty() || !given.is_empty())?;
        parts.push(if part.starts_with('{') { given } else { part });
    }
    rest.next().is_none().then(|| parts.join("/"))
}

fn queue_of(segment: &str) -> Option<Name> {
    if !segment.contains('%') {
        return Name::new(segment).ok();
    }
    percent_decode_str(segment).decode_utf8().ok().and_then(|name| Name::new(&name).ok())
}

#[cfg(test)]
mod tests;
