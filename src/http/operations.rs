//! The operations of the API, in one table.
//!
//! Routing, authorization, in-flight limits, timeouts, telemetry and the reading of bodies use the table, and a test compares it with
//! the OpenAPI document. There is no other way to a handler.

mod table;

use std::pin::Pin;
use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use matchit::{Match, Router};
use percent_encoding::percent_decode_str;

use super::context::RequestContext;
use crate::config::access::Verb;
use crate::name::Name;

/// The response of a handler.
pub(super) type ResponseFuture = Pin<Box<dyn Future<Output = Response> + Send>>;

/// One operation of the API.
#[derive(Debug)]
pub(super) struct Operation {
    /// The method; an operation with GET also answers HEAD.
    pub(super) method: &'static str,
    /// The template of its path.
    pub(super) path: &'static str,
    /// Its id in the OpenAPI document. None for `/metrics`, which has a listener of its own.
    pub(super) id: Option<&'static str>,
    /// The permission that its caller needs.
    pub(super) permission: Permission,
    /// Its in-flight limit.
    pub(super) class: Class,
    /// Its body.
    pub(super) body: BodyKind,
    /// Names of its query parameters.
    pub(super) query: &'static [&'static str],
    /// Whether the thread of the connection runs the handler of a request with a short body. The reply is never compressed.
    pub(super) is_quick: bool,
    /// Its handler.
    pub(super) handler: fn(Arc<RequestContext>, Request) -> ResponseFuture,
}

/// The permission that the caller of an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permission {
    /// Nothing: a health check.
    Nothing,
    /// A token with any grant; the reply depends on the grants.
    Token,
    /// A grant of this verb on the queue that the path names.
    OnQueue(Verb),
    /// A grant of this verb on all queues.
    Everywhere(Verb),
}

/// The in-flight limit of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// None: a health check.
    Unlimited,
    /// A read.
    Read,
    /// A write.
    Write,
    /// A settle, an extend or a forget. Workers must continue while producers use up the limit of writes.
    Settle,
    /// A Replace or a seed. Its body may take any time.
    List,
    /// A pop. It may wait.
    Pop,
    /// A request that may wait for a state of a queue.
    Wait,
    /// A scrape of the metrics, which must work on an overloaded server.
    Scrape,
}

/// The body of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyKind {
    /// The body is not read.
    Ignored,
    /// The body must be empty.
    Empty,
    /// The settings of a queue.
    Settings,
    /// A JSON document of known fields.
    Document,
    /// Objects of producers. The body may be compressed.
    Objects,
}

/// The operation that the path and the method of a request name.
#[derive(Debug, Default)]
pub(super) struct Target {
    /// The template that the path fits.
    pub(super) path: Option<&'static str>,
    /// The operation; none if the path has only other methods.
    pub(super) operation: Option<&'static Operation>,
    /// The methods of the path, if there is no operation.
    pub(super) allow: Option<Arc<str>>,
    /// The decoded name of the queue in the path; none if it is invalid.
    pub(super) queue: Option<Name>,
}

/// The operations of a listener, by path and method.
#[derive(Debug)]
pub(super) struct Operations {
    paths: Router<PathEntry>,
}

#[derive(Debug)]
struct PathEntry {
    operations: Vec<&'static Operation>,
    allow: Arc<str>,
}

impl Operations {
    /// All operations, with `/metrics` if this listener serves it.
    pub(super) fn all(serves_metrics: bool) -> Self {
        Self::of(table::ALL.iter().filter(|operation| serves_metrics || operation.class != Class::Scrape))
    }

    /// Only `/metrics`.
    pub(super) fn of_metrics() -> Self {
        Self::of(table::ALL.iter().filter(|operation| operation.class == Class::Scrape))
    }

    /// These operations.
    pub(super) fn of(operations: impl Iterator<Item = &'static Operation>) -> Self {
        let mut by_path: Vec<(&str, Vec<&'static Operation>)> = Vec::new();
        for operation in operations {
            match by_path.iter_mut().find(|(path, _)| *path == operation.path) {
                Some((_, operations)) => operations.push(operation),
                None => by_path.push((operation.path, vec![operation])),
            }
        }
        let mut paths = Router::new();
        for (path, operations) in by_path {
            let methods = operations.iter().map(|operation| match operation.method {
                "GET" => "GET,HEAD",
                method => method,
            });
            let allow = methods.collect::<Vec<_>>().join(",").into();
            if let Err(error) = paths.insert(path, PathEntry { operations, allow }) {
                // A test reaches every operation of the table.
                tracing::error!(%error, path, "two templates of the table of operations conflict");
            }
        }
        Self { paths }
    }

    /// The target of a request.
    pub(super) fn target(&self, request: &Request) -> Target {
        let Ok(Match { value: entry, params }) = self.paths.at(request.uri().path()) else {
            return Target::default();
        };
        let method = match request.method().as_str() {
            "HEAD" => "GET",
            method => method,
        };
        let operation = entry.operations.iter().copied().find(|operation| operation.method == method);
        Target {
            path: entry.operations.first().map(|operation| operation.path),
            operation,
            allow: operation.is_none().then(|| entry.allow.clone()),
            queue: params.get("queue").and_then(queue_of),
        }
    }
}

fn queue_of(segment: &str) -> Option<Name> {
    if !segment.contains('%') {
        return Name::new(segment).ok();
    }
    percent_decode_str(segment).decode_utf8().ok().and_then(|name| Name::new(&name).ok())
}

impl Operation {
    /// Whether its path names a queue.
    pub(super) fn names_queue(&self) -> bool {
        matches!(self.permission, Permission::OnQueue(_))
    }

    /// Whether the queues must be loaded before the handler runs.
    pub(super) fn needs_queues(&self) -> bool {
        self.names_queue() || self.id == Some("list_queues")
    }

    /// Whether the `wait` parameter extends the request timeout.
    pub(super) fn may_wait(&self) -> bool {
        matches!(self.class, Class::Pop | Class::Wait)
    }
}

#[cfg(test)]
mod tests;
