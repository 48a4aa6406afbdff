//! Traces of OpenTelemetry, as middleware. The feature `otel` has them.
//!
//! The server stores the trace of each call that produces with the deltas that it queues. A worker links its spans to the spans of
//! these calls: a link instead of a parent, because the deltas of a key may come from many calls. The spans go to the global provider.

use std::collections::HashSet;

use opentelemetry::trace::{
    FutureExt as _, Link, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags, TraceId,
    TraceState, Tracer as _,
};
use opentelemetry::{Context, KeyValue, global};

use crate::call::Call;
use crate::error::Error;
use crate::middleware::{CallMiddleware, Next};
use crate::worker::{HandlerMiddleware, Job, Outcome};

/// The calls that queue deltas. They have spans.
const PRODUCING: [&str; 6] = ["add", "update", "delete", "deltas", "replace", "resync"];
/// Maximum number of links of a span. Those of the newest deltas are kept.
const LINKS_MAX: usize = 128;
const TRACEPARENT: &str = "traceparent";
/// The length of a `traceparent` of version 00.
const TRACEPARENT_BYTES: usize = 55;

/// Middleware of a client: a producer span for each call that queues deltas, and the trace of the caller in every call. A call that
/// has a `traceparent` of its own is left as it is.
#[must_use]
pub fn trace_calls() -> CallMiddleware {
    CallMiddleware::new(|call: Call, next| async move {
        if call.has_header(TRACEPARENT) {
            return next.run(call).await;
        }
        let name = call.name().to_owned();
        let Some(queue) = call.queue().filter(|_| PRODUCING.contains(&&*name)).map(str::to_owned) else {
            return next.run(with_trace(call, &Context::current())).await;
        };
        let tracer = global::tracer("deltaq");
        let span = tracer.span_builder(format!("{name} {queue}")).with_kind(SpanKind::Producer);
        let span = span.with_attributes(attributes(&queue, "send", &name));
        let context = Context::current_with_span(tracer.build(span));
        let answer = next.run(with_trace(call, &context)).with_context(context.clone()).await;
        if let Err(error) = &answer {
            let kind = error.code().map_or_else(|| kind_of(error).to_owned(), str::to_owned);
            failed(&context, kind, error.to_string());
        }
        answer
    })
}

/// Middleware of a worker: a consumer span around the handler, with links to the spans of the calls that produced the deltas.
#[must_use]
pub fn trace_handler() -> HandlerMiddleware {
    HandlerMiddleware::new(|job: Job, next: Next<Job, Outcome>| async move {
        let parents = job.item().deltas.iter().filter_map(|delta| delta.traceparent.as_deref());
        let mut seen = HashSet::new();
        let links: Vec<SpanContext> =
            parents.filter(|trace| seen.insert((*trace).to_owned())).filter_map(context_of).collect();
        let left_out = links.len().saturating_sub(LINKS_MAX);
        let kept = links.into_iter().skip(left_out).map(Link::with_context).collect();
        let tracer = global::tracer("deltaq");
        let span = tracer.span_builder(format!("process {}", job.queue())).with_kind(SpanKind::Consumer);
        let span = span.with_attributes(attributes_of(&job, left_out)).with_links(kept);
        let context = Context::current_with_span(tracer.build(span));
        let still = job.clone();
        let outcome = next.run(job).with_context(context.clone()).await;
        ended(&context, &still, &outcome);
        outcome
    })
}

fn attributes(queue: &str, kind: &'static str, name: &str) -> Vec<KeyValue> {
    vec![
        KeyValue::new("messaging.system", "deltaq"),
        KeyValue::new("messaging.destination.name", queue.to_owned()),
        KeyValue::new("messaging.operation.type", kind),
        KeyValue::new("messaging.operation.name", name.to_owned()),
    ]
}

fn attributes_of(job: &Job, left_out: usize) -> Vec<KeyValue> {
    let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let item = job.item();
    let mut all = attributes(job.queue(), "process", "process");
    all.push(KeyValue::new("deltaq.key", item.key.clone()));
    all.push(KeyValue::new("deltaq.attempt", i64::from(item.attempt)));
    all.extend(item.lease.worker.clone().map(|worker| KeyValue::new("messaging.client.id", worker)));
    if item.deltas.len() > 1 {
        all.push(KeyValue::new("messaging.batch.message_count", number(item.deltas.len())));
    }
    if left_out > 0 {
        all.push(KeyValue::new("deltaq.links_left_out", number(left_out)));
    }
    all
}

fn ended(context: &Context, job: &Job, outcome: &Outcome) {
    if job.is_lost() {
        return failed(context, "lease-lost".to_owned(), "the lease is lost".to_owned());
    }
    let how = outcome.clone().settle(String::new()).how.as_str();
    context.span().set_attribute(KeyValue::new("deltaq.outcome", how));
    if let Outcome::Nack { error, .. } | Outcome::Reject { error } = outcome {
        failed(context, how.to_owned(), error.clone().unwrap_or_default());
    }
}

fn failed(context: &Context, kind: String, description: String) {
    context.span().set_attribute(KeyValue::new("error.type", kind));
    context.span().set_status(Status::error(description));
}

/// The name of an error that is no problem of the server.
const fn kind_of(error: &Error) -> &'static str {
    match error {
        Error::Connect { .. } => "connect",
        Error::Silence { .. } => "silence",
        Error::NoReply { .. } => "no-reply",
        _ => "client",
    }
}

/// The call with the trace of a span.
fn with_trace(call: Call, context: &Context) -> Call {
    let span = context.span().span_context().clone();
    if !span.is_valid() {
        return call;
    }
    let flags = span.trace_flags().to_u8();
    call.header(TRACEPARENT, format!("00-{}-{}-{flags:02x}", span.trace_id(), span.span_id()))
}

/// The span that a `traceparent` names.
fn context_of(text: &str) -> Option<SpanContext> {
    let mut parts = text.get(..TRACEPARENT_BYTES)?.split('-').skip(1);
    let trace = TraceId::from_hex(parts.next()?).ok()?;
    let span = SpanId::from_hex(parts.next()?).ok()?;
    let flags = TraceFlags::new(u8::from_str_radix(parts.next()?, 16).ok()?);
    Some(SpanContext::new(trace, span, flags, true, TraceState::default())).filter(SpanContext::is_valid)
}
