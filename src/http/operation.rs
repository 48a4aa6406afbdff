//! One operation of the API, without its handler. The middleware and the context of a request use it.

use std::sync::Arc;

use axum::http::{HeaderName, header};
use deltaq_types::name::Name;

use crate::config::access::Verb;

/// The method of an operation that a GET selects by its query: a watch of the Kubernetes API.
pub(super) const WATCH: &str = "WATCH";

/// One operation of the API.
#[derive(Debug)]
pub(super) struct Operation {
    /// The method. An operation with GET also answers HEAD.
    pub(super) method: &'static str,
    /// The template of its path.
    pub(super) path: &'static str,
    /// Its id in the OpenAPI document. `None` for `/metrics`, which has its own listener, and for the console.
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
}

/// The permission that the caller of an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permission {
    /// No permission: a health check, the page of a problem, or a file of the console.
    Nothing,
    /// A token with any grant.
    Token,
    /// A grant of this verb on some queue; the reply depends on the grants.
    Somewhere(Verb),
    /// A grant of this verb on the queue that the path names.
    OnQueue(Verb),
    /// A grant of this verb on all queues.
    Everywhere(Verb),
    /// No token: the handler verifies the signature of the request.
    Signature,
}

impl Permission {
    /// Whether no token is needed.
    pub(super) const fn is_anonymous(self) -> bool {
        matches!(self, Self::Nothing | Self::Signature)
    }
}

/// The in-flight limit of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// None: a health check, or a file of the console.
    Unlimited,
    /// A read.
    Read,
    /// A write.
    Write,
    /// A settle, an extend or a forget. These have their own class, so that workers can continue while producers use
    /// up the limit of writes.
    Settle,
    /// A Replace or a seed. Its body may take any amount of time.
    List,
    /// A pop. It may wait.
    Pop,
    /// A request that may wait for a state of a queue.
    Wait,
    /// A watch. It may last for minutes.
    Watch,
    /// A scrape of the metrics, which must work on an overloaded server.
    Scrape,
    /// A delivery of a webhook. Its body may take a minute.
    Hook,
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
    /// A change to the settings of a queue. It may also be `application/merge-patch+json`.
    Patch,
    /// A JSON document of known fields.
    Document,
    /// Objects of producers. The body may be compressed.
    Objects,
    /// The same, or CloudEvents.
    Changes,
    /// A delivery of a webhook, of any content type.
    Delivery,
    /// An object of the Kubernetes API, or a patch of one. The handler checks the content type.
    Kubernetes,
}

/// The operation that the path and the method of a request select.
#[derive(Clone, Debug, Default)]
pub(super) struct Target {
    /// The template that the path matches.
    pub(super) path: Option<&'static str>,
    /// The operation; `None` if the path supports only other methods.
    pub(super) operation: Option<&'static Operation>,
    /// The methods of the path, if there is no operation.
    pub(super) allow: Option<Arc<str>>,
    /// The decoded name of the queue in the path; `None` if it is invalid.
    pub(super) queue: Option<Name>,
}

impl Target {
    /// The text of the name of the queue.
    pub(super) fn queue_name(&self) -> Option<&str> {
        self.queue.as_ref().map(Name::as_str)
    }
}

impl Operation {
    /// Whether its path names a queue.
    pub(super) fn names_queue(&self) -> bool {
        matches!(self.permission, Permission::OnQueue(_) | Permission::Signature)
    }

    /// Whether it reads the queues of all nodes, or what belongs to them.
    pub(super) fn lists_queues(&self) -> bool {
        let of_all = [
            "list_queues",
            "list_all_sources",
            "list_reflectors",
            "list_all_workers",
            "find",
            "get_all_series",
            "list_activity",
        ];
        self.id.is_some_and(|id| of_all.contains(&id))
    }

    /// Whether it belongs to the Kubernetes API.
    pub(super) fn is_kubernetes(&self) -> bool {
        self.path == "/version" || self.path.starts_with("/api") || self.path.starts_with("/openapi/")
    }

    /// Whether the queues must be loaded before the handler runs.
    pub(super) fn needs_queues(&self) -> bool {
        self.names_queue() || self.lists_queues()
    }

    /// The conditional headers that it supports.
    pub(super) fn conditional_headers(&self) -> &'static [HeaderName] {
        static OF_READ: [HeaderName; 1] = [header::IF_NONE_MATCH];
        static IF_MATCH_ONLY: [HeaderName; 1] = [header::IF_MATCH];
        static OF_CHANGE: [HeaderName; 2] = [header::IF_MATCH, header::IF_NONE_MATCH];
        match self.id {
            Some("delete_queue" | "patch_sources") => &IF_MATCH_ONLY,
            Some("get_settings" | "get_latest" | "get_known" | "get_object_of") => &OF_READ,
            Some("put_queue" | "patch_queue" | "add" | "update" | "delete") => &OF_CHANGE,
            _ => &[],
        }
    }

    /// Whether the `wait` parameter extends the request timeout.
    pub(super) fn may_wait(&self) -> bool {
        matches!(self.class, Class::Pop | Class::Settle | Class::Wait | Class::Watch)
    }
}
