//! Spans, as a collector receives them.

use std::net::SocketAddr;
use std::sync::Arc;

use deltaq_client::otel::{trace_calls, trace_handler};
use deltaq_client::{Call, CallMiddleware, CancellationToken, Client, ClientOptions, Job, Outcome};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use parking_lot::Mutex;
use prost::Message as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::harness::receiver::Receiver;
use crate::harness::{Service, spawn, within};

/// A collector that stores the spans it receives.
#[derive(Clone, Default)]
struct Collector {
    spans: Arc<Mutex<Vec<Span>>>,
}

impl Collector {
    async fn start(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let collector = self.clone();
        spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                spawn(collector.clone().serve(stream));
            }
        });
        address
    }

    /// Replies to requests until the connection ends.
    async fn serve(self, mut stream: TcpStream) {
        let mut text = Vec::new();
        while stream.read_buf(&mut text).await.is_ok_and(|read| read > 0) {
            let Some(head) = text.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
            let fields = String::from_utf8_lossy(&text[..head]).to_ascii_lowercase();
            assert!(
                fields.starts_with("post /v1/traces ") && fields.contains("application/x-protobuf"),
                "{fields}"
            );
            let length = fields.lines().find_map(|line| line.strip_prefix("content-length: "));
            let end = head + 4 + length.expect("a length").parse::<usize>().expect("a number");
            while text.len() < end {
                stream.read_buf(&mut text).await.expect("the rest");
            }
            let request = ExportTraceServiceRequest::decode(&text[head + 4..end]).expect("protobuf");
            let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
            self.spans.lock().extend(scopes.flat_map(|scope| scope.spans));
            text.drain(..end);
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                .await
                .expect("the client reads");
        }
    }

    /// The spans with this name.
    fn named(&self, name: &str) -> Vec<Span> {
        self.spans.lock().iter().filter(|span| span.name == name).cloned().collect()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

fn attribute(span: &Span, name: &str) -> Option<String> {
    let found = span.attributes.iter().find(|attribute| attribute.key == name)?;
    found.value.as_ref().map(|value| format!("{:?}", value.value))
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_belong_to_the_traces_of_their_callers() {
    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    let collector = Collector::default();
    let endpoint = format!("http://{}/v1/traces", collector.start().await);
    let service = Service::with(|settings| settings.trace.otlp_endpoint = Some(endpoint)).await;
    let mut client = service.client().await;
    let traceparent = format!("00-{TRACE}-b7ad6b7169203331-01");
    let object = json!({ "key": "a", "text": "payload" }).to_string();
    client.send_text("POST", "/v1/queues/prices/add", &[("traceparent", &traceparent)], &object).await;
    client.reply().await.ok();
    client.call("POST", "/v1/queues/prices/add", &json!({ "key": "b" })).await.ok();
    let unsampled = format!("00-{}-b7ad6b7169203331-00", "1".repeat(32));
    client.send_text("GET", "/v1/queues/prices", &[("traceparent", &unsampled)], "").await;
    client.reply().await.ok();
    let popped =
        client.call("POST", "/v1/queues/prices/pop?max=9&lease_duration=1s", &Value::Null).await.ok();
    assert_eq!(popped["items"][0]["deltas"][0]["traceparent"], traceparent.as_str());
    client.call("GET", "/v1/queues/nothing", &Value::Null).await.problem("queue-not-found");
    service.shutdown.signal();
    service.stopped().await;

    let adds = collector.named("POST /v1/queues/{queue}/add");
    assert_eq!(adds.len(), 2, "{adds:#?}");
    assert_eq!(
        (hex(&adds[0].trace_id), hex(&adds[0].parent_span_id)),
        (TRACE.to_owned(), "b7ad6b7169203331".to_owned())
    );
    assert_eq!(adds[0].kind, SpanKind::Server as i32);
    assert!(adds[0].end_time_unix_nano >= adds[0].start_time_unix_nano);
    assert!(attribute(&adds[0], "deltaq.queue").is_some_and(|queue| queue.contains("prices")));
    assert!(adds[1].parent_span_id.is_empty(), "a request without a traceparent begins a trace");
    let pops = collector.named("POST /v1/queues/{queue}/pop");
    let links: Vec<String> = pops[0].links.iter().map(|link| hex(&link.trace_id)).collect();
    assert_eq!(links, [TRACE], "a pop links to the traces of the producers");
    let reads = collector.named("GET /v1/queues/{queue}");
    assert_eq!(reads.len(), 1, "an unsampled trace has no span");
    assert!(attribute(&reads[0], "error.type").is_some_and(|code| code.contains("queue-not-found")));
    assert!(!format!("{:?}", collector.spans.lock()).contains("payload"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pushed_request_has_a_span_with_links_to_the_traces_of_its_deltas() {
    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    let collector = Collector::default();
    let endpoint = format!("http://{}/v1/traces", collector.start().await);
    let mut receiver = Receiver::start().await;
    let service = Service::with(|settings| {
        settings.trace.otlp_endpoint = Some(endpoint);
        settings.push.allow = vec!["http://127.0.0.1:*".to_owned()];
        settings.push.allow_networks = vec!["127.0.0.0/8".parse().expect("a network")];
    })
    .await;
    let mut client = service.client().await;
    client
        .call("PUT", "/v1/queues/prices", &json!({"mode": "delta", "max_deltas_per_key": 1_000}))
        .await
        .ok();
    // One key with more deltas than a span has links, and another without a trace.
    for number in 0..140 {
        let traceparent = format!("00-{TRACE}-b7ad6b716920{number:04x}-01");
        let object = json!({"key": "a", "n": number}).to_string();
        client.send_text("POST", "/v1/queues/prices/add", &[("traceparent", &traceparent)], &object).await;
        client.reply().await.ok();
    }
    let push = json!({"url": receiver.url("/"), "format": "raw", "secrets": [], "retry": ["1h"]});
    client.call("PATCH", "/v1/queues/prices", &json!({"push": push})).await.ok();
    let hook = receiver.next().await;
    let sent = hook.header("traceparent").to_owned();
    hook.answer(200, "").await;
    client.call("POST", "/v1/queues/prices/add", &json!({"key": "b"})).await.ok();
    receiver.next().await.answer(503, "").await;
    within(async {
        while client.call("GET", "/v1/queues/prices", &Value::Null).await.ok()["status"]["delayed"] != 1 {}
    })
    .await;
    service.shutdown.signal();
    service.stopped().await;

    let spans = collector.named("process prices");
    let [first, second] = &*spans else { panic!("{spans:#?}") };
    assert_eq!(first.kind, SpanKind::Consumer as i32);
    assert_eq!((first.links.len(), first.dropped_links_count), (128, 12));
    assert_eq!(hex(&first.links[1].span_id), "b7ad6b7169200001");
    assert_eq!(
        (hex(&first.trace_id), hex(&first.parent_span_id)),
        (TRACE.to_owned(), "b7ad6b716920008b".to_owned()),
        "it belongs to the trace of the newest change"
    );
    assert_eq!(sent, format!("00-{TRACE}-{}-01", hex(&first.span_id)), "the receiver continues the span");
    for (name, value) in [
        ("messaging.system", "deltaq"),
        ("messaging.operation.type", "process"),
        ("messaging.destination.name", "prices"),
        ("http.response.status_code", "200"),
    ] {
        assert!(attribute(first, name).is_some_and(|found| found.contains(value)), "{name}: {first:?}");
    }
    assert!(second.links.is_empty() && second.parent_span_id.is_empty(), "{second:?}");
    assert!(attribute(second, "http.response.status_code").is_some_and(|code| code.contains("503")));
    assert_eq!(second.status.as_ref().expect("a status").code, StatusCode::Error as i32);
    assert!(attribute(second, "error.type").is_some_and(|kind| kind.contains("503")));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_collector_blocks_no_request() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let endpoint = format!("http://{}/v1/traces", listener.local_addr().expect("an address"));
    drop(listener);
    let service = Service::with(|settings| settings.trace.otlp_endpoint = Some(endpoint)).await;
    let mut client = service.client().await;
    // More spans than the buffer holds.
    for _ in 0..3_000 {
        client.call("GET", "/v1/info", &Value::Null).await.ok();
    }
    service.shutdown.signal();
    service.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_collector_does_not_keep_the_server_running() {
    // This collector accepts connections, and neither reads nor replies.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let endpoint = format!("http://{}/v1/traces", listener.local_addr().expect("an address"));
    let service = Service::with(|settings| settings.trace.otlp_endpoint = Some(endpoint)).await;
    service.client().await.call("GET", "/v1/info", &Value::Null).await.ok();
    service.shutdown.signal();
    // The spans are being sent.
    let _connection = within(listener.accept()).await.expect("a connection");
    service.shutdown.signal();
    service.stopped().await;
}

/// The global provider of this test's process.
#[tokio::test(flavor = "multi_thread")]
async fn the_rust_client_traces_calls_and_handlers_inside_other_middleware() {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    opentelemetry::global::set_tracer_provider(provider);
    let service = Service::start().await;
    let mut options = ClientOptions::new(service.api.to_string());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    let noting = CallMiddleware::new(move |call: Call, next| {
        noted.lock().push((call.name().to_owned(), call.has_header("traceparent")));
        next.run(call)
    });
    options.middleware = vec![trace_calls(), noting];
    let queue = Client::new(options).expect("a client").queue("prices");
    queue.add(&json!({"key": "a"})).await.expect("it is added");
    queue.update(&json!({"key": "a", "n": 1})).await.expect("it is changed");
    let refused = queue.add(&json!({"key": ""})).await.expect_err("the key is empty");
    queue.status().await.expect("a status");
    let calls = [("add", true), ("update", true), ("add", true), ("status", false)];
    assert_eq!(*seen.lock(), calls.map(|(name, has_trace)| (name.to_owned(), has_trace)));

    let stop = CancellationToken::new();
    let worker = queue.worker().name("w").until_empty().middleware(trace_handler());
    worker.run(stop, |job: Job| async move { Outcome::nack(job.key()) }).await.expect("a report");
    let spans = exporter.get_finished_spans().expect("spans");
    let named = |name: &str| spans.iter().filter(|span| span.name == name).collect::<Vec<_>>();
    let (adds, updates, handled) = (named("add prices"), named("update prices"), named("process prices"));
    assert_eq!((adds.len(), updates.len(), spans.len()), (2, 1, adds.len() + 1 + handled.len()));
    let attribute = |span: &SpanData, name: &str| {
        let found = span.attributes.iter().find(|found| found.key.as_str() == name);
        found.map(|found| found.value.to_string())
    };
    assert_eq!(attribute(adds[1], "error.type").as_deref(), refused.code());
    let links: Vec<_> = handled[0].links.iter().map(|link| link.span_context.span_id()).collect();
    assert_eq!(links, [adds[0].span_context.span_id(), updates[0].span_context.span_id()]);
    for (name, value) in [
        ("messaging.destination.name", "prices"),
        ("deltaq.key", "a"),
        ("deltaq.attempt", "1"),
        ("deltaq.outcome", "nack"),
        ("messaging.client.id", "w"),
        ("messaging.batch.message_count", "2"),
        ("error.type", "nack"),
    ] {
        assert_eq!(attribute(handled[0], name).as_deref(), Some(value), "{name}");
    }
}
