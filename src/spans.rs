//! Spans for a tracing system: one per request, sent to an OTLP collector if one is configured.
//!
//! A request with a `traceparent` belongs to its caller's trace; a pop is also linked to the traces of the producers
//! whose deltas it delivers. The span is created at the end of the request, so it costs nothing if there is no
//! collector. Requests do not wait for the collector: a thread sends spans from a bounded buffer. A span never
//! contains data of an object or a token.

use std::time::{Duration, UNIX_EPOCH};

use deltaq_engine::trace::TraceContext;
use opentelemetry::trace::{
    Link, Span as _, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags, TraceId,
    TraceState, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};
use reqwest::blocking::Client;
use tokio_util::sync::CancellationToken;

use crate::config;

/// Timeout of sending one batch.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of links of a span.
const LINKS_MAX: usize = 128;

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
        let at = |us| UNIX_EPOCH + Duration::from_micros(us);
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
        let links = request.links.iter().take(LINKS_MAX).map(|link| Link::with_context(remote(*link)));
        let builder = tracer
            .span_builder(format!("{} {}", request.method, request.route))
            .with_kind(SpanKind::Server)
            .with_start_time(at(request.at_us.0))
            .with_attributes(attributes)
            .with_links(links.collect());
        let parent = match request.parent {
            Some(parent) => Context::new().with_remote_span_context(remote(parent)),
            None => Context::new(),
        };
        let mut span = builder.start_with_context(tracer, &parent);
        if request.status.is_some_and(|status| status >= 500) {
            span.set_status(Status::error(request.outcome));
        }
        span.end_with_timestamp(at(request.at_us.1));
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
