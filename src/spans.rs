//! Spans for a tracing system: one per request and one per pushed request, sent to an OTLP collector if one is configured.
//!
//! A request with a `traceparent` belongs to its caller's trace; a pop is also linked to the traces of the producers
//! whose deltas it delivers. The span of a request is created at its end, so it costs nothing if there is no
//! collector. That of a pushed request is created before, because the receiver gets its context. Requests do not wait for the collector: a thread sends spans from a bounded buffer. A span never
//! contains data of an object or a token.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use deltaq_engine::trace::TraceContext;
use opentelemetry::trace::{
    Link, Span as _, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags, TraceId,
    TraceState, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider, Span as SdkSpan};
use reqwest::blocking::Client;
use tokio_util::sync::CancellationToken;

use crate::config;

/// Timeout of sending one batch.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of links of a span.
const LINKS_MAX: u32 = 128;

/// Why spans can't be sent.
#[derive(Debug, thiserror::Error)]
#[error("can't send spans to {endpoint}")]
pub struct Error {
    /// The endpoint.
    pub endpoint: String,
    /// Why.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// The exporter of spans. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Spans(Option<Sending>);

#[derive(Clone, Debug)]
struct Sending {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

/// A finished request, or one whose client has disconnected.
#[derive(Debug)]
pub struct Request<'a> {
    /// The method.
    pub method: &'static str,
    /// The route.
    pub route: &'a str,
    /// The times of the request head and of the response, in microseconds since the Unix epoch.
    pub at_us: (u64, u64),
    /// The span of the caller.
    pub parent: Option<TraceContext>,
    /// The traces of the delivered deltas.
    pub links: &'a [TraceContext],
    /// The request id.
    pub id: &'a str,
    /// The queue of the path.
    pub queue: Option<&'a str>,
    /// The status of the response.
    pub status: Option<u16>,
    /// `ok`, the code of the problem, or `gone`.
    pub outcome: &'static str,
}

/// A pushed request that begins.
#[derive(Debug)]
pub struct Processing<'a> {
    /// The queue.
    pub queue: &'a str,
    /// The trace that made the newest change, if the request has one key.
    pub parent: Option<TraceContext>,
    /// The traces of the deltas.
    pub links: &'a [TraceContext],
    /// The number of keys.
    pub keys: usize,
    /// The time, in microseconds since the Unix epoch.
    pub at_us: u64,
}

/// The span of a pushed request; none without a collector.
#[derive(Debug)]
pub struct Process(Option<SdkSpan>);

impl Process {
    /// The context for the receiver.
    #[must_use]
    pub fn context(&self) -> Option<TraceContext> {
        let context = self.0.as_ref()?.span_context();
        let (trace, span) = (context.trace_id().to_bytes(), context.span_id().to_bytes());
        Some(TraceContext::of_span(trace, span, context.is_sampled()))
    }

    /// Ends the span with the status of the answer; `None` if there was no answer.
    pub fn end(self, at_us: u64, status: Option<u16>) {
        let Some(mut span) = self.0 else { return };
        if let Some(status) = status {
            span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status)));
        }
        let failure = match status {
            None => Some("no_answer".to_owned()),
            Some(status) => (status >= 300).then(|| status.to_string()),
        };
        if let Some(failure) = failure {
            span.set_status(Status::error(failure.clone()));
            span.set_attribute(KeyValue::new("error.type", failure));
        }
        span.end_with_timestamp(at(at_us));
    }
}

impl Spans {
    /// Creates the exporter from the settings, which may disable it.
    ///
    /// # Errors
    /// [`Error`] if the exporter can't be built.
    pub fn new(settings: &config::Trace) -> Result<Self, Error> {
        let Some(endpoint) = &settings.otlp_endpoint else { return Ok(Self(None)) };
        let failed = |source| Error { endpoint: endpoint.clone(), source };
        let client = client().map_err(|source| failed(Box::new(source)))?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(endpoint)
            .with_timeout(SEND_TIMEOUT)
            .build()
            .map_err(|source| failed(Box::new(source)))?;
        // If a caller samples its trace, it needs all spans of the trace.
        let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(settings.sample)));
        let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        let resource = Resource::builder().with_service_name("deltaq").with_attribute(version).build();
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_sampler(sampler)
            .with_max_links_per_span(LINKS_MAX)
            .with_resource(resource)
            .build();
        let tracer = provider.tracer("deltaq");
        Ok(Self(Some(Sending { provider, tracer })))
    }

    /// Whether spans are exported.
    #[must_use]
    pub const fn are_sent(&self) -> bool {
        self.0.is_some()
    }

    /// Records the span of a request.
    pub fn record(&self, request: &Request<'_>) {
        let Some(Sending { tracer, .. }) = &self.0 else { return };
        let mut attributes = vec![
            KeyValue::new("http.request.method", request.method),
            KeyValue::new("http.route", request.route.to_owned()),
            KeyValue::new("deltaq.request_id", request.id.to_owned()),
        ];
        attributes.extend(request.queue.map(|queue| KeyValue::new("deltaq.queue", queue.to_owned())));
        attributes.extend(
            request.status.map(|status| KeyValue::new("http.response.status_code", i64::from(status))),
        );
        if request.outcome != "ok" {
            attributes.push(KeyValue::new("error.type", request.outcome));
        }
        let links = request.links.iter().map(|link| Link::with_context(remote(*link)));
        let builder = tracer
            .span_builder(format!("{} {}", request.method, request.route))
            .with_kind(SpanKind::Server)
            .with_start_time(at(request.at_us.0))
            .with_attributes(attributes)
            .with_links(links.collect());
        let mut span = builder.start_with_context(tracer, &child_of(request.parent));
        if request.status.is_some_and(|status| status >= 500) {
            span.set_status(Status::error(request.outcome));
        }
        span.end_with_timestamp(at(request.at_us.1));
    }

    /// Begins the span of a pushed request. Its attributes are those of the conventions for messaging.
    #[must_use]
    pub fn process(&self, processing: &Processing<'_>) -> Process {
        let Some(Sending { tracer, .. }) = &self.0 else { return Process(None) };
        let mut attributes = vec![
            KeyValue::new("messaging.system", "deltaq"),
            KeyValue::new("messaging.operation.name", "process"),
            KeyValue::new("messaging.operation.type", "process"),
            KeyValue::new("messaging.destination.name", processing.queue.to_owned()),
        ];
        if processing.keys > 1 {
            let keys = i64::try_from(processing.keys).unwrap_or(i64::MAX);
            attributes.push(KeyValue::new("messaging.batch.message_count", keys));
        }
        let links = processing.links.iter().map(|link| Link::with_context(remote(*link)));
        let builder = tracer
            .span_builder(format!("process {}", processing.queue))
            .with_kind(SpanKind::Consumer)
            .with_start_time(at(processing.at_us))
            .with_attributes(attributes)
            .with_links(links.collect());
        Process(Some(builder.start_with_context(tracer, &child_of(processing.parent))))
    }

    /// Sends the buffered spans. The cut of the shutdown aborts this, because a collector may not respond.
    pub async fn end(self, cut: &CancellationToken) {
        let Some(Sending { provider, .. }) = self.0 else { return };
        let sending = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(SEND_TIMEOUT));
        match cut.run_until_cancelled(sending).await {
            Some(Ok(Err(error))) => tracing::warn!(%error, "can't send the last spans"),
            // A panic is already in the log.
            Some(_) => {}
            None => tracing::warn!("the last spans are dropped at the end of the shutdown"),
        }
    }
}

/// A client for plain HTTP. It trusts no certificates, so it does not read the system's certificates, which a
/// container image may not have.
fn client() -> reqwest::Result<Client> {
    // An error means that this process has already installed the provider.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder().timeout(SEND_TIMEOUT).tls_certs_only([]);
    // A blocking client must not be built on a thread of an async runtime.
    std::thread::scope(|threads| match threads.spawn(|| client.build()).join() {
        Ok(client) => client,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

fn at(us: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(us)
}

fn child_of(parent: Option<TraceContext>) -> Context {
    parent.map_or_else(Context::new, |parent| Context::new().with_remote_span_context(remote(parent)))
}

fn remote(context: TraceContext) -> SpanContext {
    let flags = if context.is_sampled() { TraceFlags::SAMPLED } else { TraceFlags::default() };
    SpanContext::new(
        TraceId::from_bytes(context.trace_id()),
        SpanId::from_bytes(context.parent_id()),
        flags,
        true,
        TraceState::default(),
    )
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn the_cut_does_not_wait_for_the_collector() {
        let endpoint = Some("http://127.0.0.1:1/v1/traces".to_owned());
        let spans = Spans::new(&config::Trace { otlp_endpoint: endpoint, sample: 1.0 });
        let cut = CancellationToken::new();
        cut.cancel();
        assert!(spans.expect("an exporter").end(&cut).now_or_never().is_some());
    }
}
