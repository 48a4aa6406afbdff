//! The calls that come by the thousands each second, past axum's router.
//!
//! Matching a path, keeping what was matched for extractors, and the layer's boxed futures cost a fifth of the time that an add
//! takes here outside of the kernel. So these few are told by their path alone, and go from the connection to the chain and to
//! their handler, which is the one that the router has, too. Whatever is unusual about a path goes through the router.

use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt as _;

use super::call::QueueCall;
use super::routes::{consume, produce};
use super::visit::{Route, Target, Visit};
use crate::name::Name;

type Answer = Pin<Box<dyn Future<Output = Response> + Send>>;

/// A call that is told by its method and its path alone.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hot {
    Add,
    Update,
    Delete,
    Pop,
    Settle,
    Ack,
}

impl Hot {
    /// The call that a request asks for, if it is one of these.
    pub(super) fn of(request: &Request) -> Option<(Self, Target)> {
        if request.method() != Method::POST {
            return None;
        }
        let (queue, call) = request.uri().path().strip_prefix("/v1/queues/")?.split_once('/')?;
        let (call, route) = match call {
            "add" => (Self::Add, "/v1/queues/{queue}/add"),
            "update" => (Self::Update, "/v1/queues/{queue}/update"),
            "delete" => (Self::Delete, "/v1/queues/{queue}/delete"),
            "pop" => (Self::Pop, "/v1/queues/{queue}/pop"),
            "settle" => (Self::Settle, "/v1/queues/{queue}/settle"),
            "ack" => (Self::Ack, "/v1/queues/{queue}/ack"),
            _ => return None,
        };
        // A name that is encoded is none as it stands.
        let queue = Some(Name::new(queue).ok()?);
        Some((call, Target { route: Some(Route::Hot(route)), queue }))
    }

    /// Has the handler answer.
    pub(super) fn answer(self, visit: Arc<Visit>, request: Request) -> Answer {
        let call = match QueueCall::of(visit, request) {
            Ok(call) => call,
            Err(problem) => return boxed(ready(problem)),
        };
        match self {
            Self::Add => boxed(produce::add(call)),
            Self::Update => boxed(produce::update(call)),
            Self::Delete => boxed(produce::delete(call)),
            Self::Pop => boxed(consume::pop(call)),
            Self::Settle => boxed(consume::settle(call)),
            Self::Ack => boxed(consume::ack(call)),
        }
    }
}

/// On the heap, as it is large, and would else be copied into each of the futures around it: that took 2,200 of the
/// 30,000 instructions of an add.
fn boxed<T: IntoResponse + 'static>(answer: impl Future<Output = T> + Send + 'static) -> Answer {
    Box::pin(answer.map(IntoResponse::into_response))
}
