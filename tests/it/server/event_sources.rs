//! What an `EventSource` of a browser gets: it never connects again after a status other than 200, and sends the id of its last event
//! without asking the page.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use deltaq::config::access::Verb;
use deltaq_engine::config::Config;
use deltaq_journal::WriterOptions;
use deltaq_journal::store::Reader;
use deltaq_journal::writer;
use deltaq_runtime::clock::Clock;
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_service::metrics::Metrics;
use deltaq_service::{Limits, Registry, WatchLimits};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::commits::{Bench, api, pushed};
use super::{QUEUE, object, objects};
use crate::access::token;
use crate::harness::{Client, Service};
use crate::node::NoopObserver;
use crate::store::fake::{FakeStore, Fault};

const EVENTS: (&str, &str) = ("accept", "text/event-stream");

/// One event.
#[derive(Debug)]
struct Event {
    kind: String,
    id: Option<String>,
    row: Value,
}

/// The events in a text, and the time after which the browser connects again.
fn parse(text: &str) -> (Option<u64>, Vec<Event>) {
    let field = |event: &str, name: &str| {
        let value = event.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.map(|value| value.trim_start().to_owned())
    };
    let retry = text.split("\n\n").find_map(|event| field(event, "retry"));
    let events = text.split("\n\n").filter_map(|event| {
        let row = serde_json::from_str(&field(event, "data")?).expect("a row");
        Some(Event { kind: field(event, "event").expect("a type"), id: field(event, "id"), row })
    });
    (retry.map(|retry| retry.parse().expect("a number")), events.collect())
}

/// A stream that has begun.
struct Source {
    client: Client,
    events: Vec<Event>,
}

impl Source {
    async fn begin(service: &Service, query: &str, last_event: Option<&str>) -> Self {
        let mut client = service.client().await;
        let mut headers = vec![EVENTS];
        headers.extend(last_event.map(|id| ("last-event-id", id)));
        client.send_text("GET", &format!("{QUEUE}/watch?{query}"), &headers, "").await;
        let (status, headers) = client.head().await.expect("a head");
        assert_eq!(status, 200, "{query} {last_event:?}");
        assert!(headers.contains(&("content-type".into(), "text/event-stream".into())), "{headers:?}");
        Self { client, events: Vec::new() }
    }

    async fn next(&mut self) -> Event {
        while self.events.is_empty() {
            let chunk = self.client.chunk().await.expect("no cut").expect("the stream goes on");
            self.events = parse(&String::from_utf8(chunk).expect("text")).1;
        }
        self.events.remove(0)
    }

    /// The next events up to the bookmark behind all keys: their types and keys.
    async fn list(&mut self) -> Vec<String> {
        let mut rows = Vec::new();
        loop {
            let event = self.next().await;
            if event.row["initial_events_end"] == true {
                return rows;
            }
            rows.push(format!("{} {}", event.kind, event.row["key"].as_str().unwrap_or_default()));
        }
    }
}

/// Checks the reply to an `EventSource` that is refused for now: a stream that ends, after which it comes again. Returns the problem.
fn refused(status: u16, kind: Option<&str>, text: &str, code: &str) -> Value {
    assert_eq!((status, kind), (200, Some("text/event-stream")), "{text}");
    let (retry, events) = parse(text);
    assert!(retry.is_some_and(|retry| retry >= 1_000), "{text}");
    let [Event { kind, id: None, row }] = &*events else { panic!("one event: {text}") };
    assert_eq!(
        (&**kind, &row["type"], &row["problem"]["code"]),
        ("Error", &json!("Error"), &json!(code)),
        "{text}"
    );
    row["problem"].clone()
}

/// Makes a refused request over a connection.
async fn refused_by(service: &Service, headers: &[(&str, &str)], code: &str) -> Value {
    let mut client = service.client().await;
    client.send_text("GET", &format!("{QUEUE}/watch"), headers, "").await;
    let reply = client.reply().await;
    assert_eq!(reply.header("retry-after"), None, "only the stream says when");
    refused(reply.status, reply.header("content-type"), &reply.text, code)
}

async fn metrics(service: &Service) -> String {
    Client::connect(service.metrics).await.call_as("all", "GET", "/metrics", &Value::Null).await.text
}

async fn added(service: &Service, keys: &[&str]) -> u64 {
    let added = service.post(&format!("{QUEUE}/add"), &objects(keys)).await.ok();
    added["resource_version"].as_u64().expect("a version")
}

#[tokio::test]
async fn an_id_that_has_expired_leads_to_what_the_url_says() {
    let service = Service::start().await;
    let first = added(&service, &["a"]).await;
    let life = service.get(QUEUE).await.ok()["life"].as_str().expect("a text").to_owned();
    let mut reader = Source::begin(&service, "resource_version=0", None).await;
    assert_eq!(reader.list().await, ["Added a"]);
    added(&service, &["b"]).await;
    let id = reader.next().await.id.expect("an id");
    added(&service, &["c"]).await;
    // What the queue knows goes on.
    assert_eq!(Source::begin(&service, "resource_version=0", Some(&id)).await.next().await.row["key"], "c");

    let ahead = first + 1_000;
    for (id, reason) in [
        (format!("00000001-{first}"), "lost"),
        (format!("{life}-9"), "lost"),
        (format!("{life}-{ahead}"), "ahead"),
        (format!("{life}-{first}-{ahead}"), "ahead"),
        (ahead.to_string(), "ahead"),
        // Of another server at this address.
        ("of-another-program".to_owned(), "lost"),
        ("7".repeat(40), "lost"),
    ] {
        for (query, version, rows) in [
            (String::new(), 0, ["Added a", "Added b", "Added c"].as_slice()),
            ("resource_version=0".to_owned(), 0, &["Added a", "Added b", "Added c"]),
            (format!("resource_version={first}"), first, &["Added b", "Added c"]),
            (format!("resource_version={ahead}"), 0, &["Added a", "Added b", "Added c"]),
            ("resource_version=9".to_owned(), 0, &["Added a", "Added b", "Added c"]),
        ] {
            let mut source = Source::begin(&service, &query, Some(&id)).await;
            let event = source.next().await;
            assert_eq!((&*event.kind, event.id.as_deref()), ("Expired", Some("")), "{id} {query}: {event:?}");
            assert_eq!(event.row["problem"]["code"], "expired");
            assert_eq!(
                (&event.row["problem"]["reason"], &event.row["resource_version"]),
                (&json!(reason), &json!(version)),
                "{id} {query}"
            );
            let mut got = Vec::new();
            for _ in rows {
                let event = source.next().await;
                assert!(event.id.is_some_and(|id| !id.is_empty()), "the browser goes on from here");
                got.push(format!("{} {}", event.kind, event.row["key"].as_str().expect("a key")));
            }
            assert_eq!(got, rows, "{id} {query}");
        }
    }
    let lost = |line: &str| line.starts_with("deltaq_watch_lost_total") && line.contains("lost");
    assert!(metrics(&service).await.lines().any(lost));
}

#[tokio::test]
async fn a_first_request_with_a_version_that_has_expired_begins_with_all_keys() {
    let service = Service::with(|settings| settings.watch.tombstones = 1).await;
    let first = added(&service, &["a", "b", "c"]).await;
    let _reader = Source::begin(&service, "resource_version=now", None).await;
    for key in ["a", "b"] {
        service.post(&format!("{QUEUE}/delete?key={key}"), &Value::Null).await.ok();
    }
    for (version, reason) in [(first, "too_old"), (first + 100, "ahead"), (9, "lost")] {
        let mut source = Source::begin(&service, &format!("resource_version={version}"), None).await;
        let event = source.next().await;
        assert_eq!((&*event.kind, &event.row["problem"]["reason"]), ("Expired", &json!(reason)), "{event:?}");
        assert_eq!(source.list().await, ["Added c"], "{version}");
    }
    // Other readers get the refusal.
    service.get(&format!("{QUEUE}/watch?resource_version={first}")).await.problem("expired");
}

#[tokio::test]
async fn limits_refuse_for_now() {
    let service = Service::with(|settings| {
        settings.server.max_watches_in_flight = 1;
        settings.access.tokens = vec![token("all", &[Verb::Read, Verb::Produce], "*")];
    })
    .await;
    service.client().await.call_as("all", "POST", &format!("{QUEUE}/add"), &object("a")).await.ok();
    let all = ("authorization", "Bearer all");
    let mut client = service.client().await;
    client.send_text("GET", &format!("{QUEUE}/watch"), &[EVENTS, all], "").await;
    assert_eq!(client.head().await.expect("a head").0, 200);
    let problem = refused_by(&service, &[EVENTS, all], "too-many-requests").await;
    assert_eq!((&problem["status"], &problem["limit"]), (&json!(429), &json!(1)));
    let counted = |line: &str| line.starts_with("deltaq_http_requests_total") && line.contains("status=\"4");
    assert!(metrics(&service).await.lines().any(counted), "it counts as what it is");
}

#[tokio::test]
async fn a_server_without_room_for_a_connection_refuses_for_now() {
    let service = Service::with(|settings| settings.server.max_connections = 1).await;
    let _kept = service.busy_client().await;
    refused_by(&service, &[EVENTS], "too-many-connections").await;
    let lines = service.get(&format!("{QUEUE}/watch")).await;
    lines.problem("too-many-connections");
    // A client that sends nothing yet is refused, too.
    service.client().await.reply().await.problem("too-many-connections");
}

#[tokio::test]
async fn what_no_repetition_helps_stays_a_refusal() {
    let service = Service::with(|settings| {
        settings.access.tokens = vec![token("all", &[Verb::Read, Verb::Produce], "q")];
    })
    .await;
    let all = ("authorization", "Bearer all");
    service.client().await.call_as("all", "POST", &format!("{QUEUE}/add"), &object("a")).await.ok();
    for (path, headers, code) in [
        ("q/watch", vec![EVENTS], "unauthorized"),
        ("other/watch", vec![EVENTS, all], "forbidden"),
        ("q/watch?resource_version=x", vec![EVENTS, all], "invalid-parameter"),
        ("q/watch?wait=1s", vec![EVENTS, all], "invalid-parameter"),
        ("q/watch?view=none", vec![EVENTS, all], "invalid-parameter"),
        ("q/watch", vec![("accept", "text/html"), all], "not-acceptable"),
        ("q/items", vec![EVENTS, all], "not-acceptable"),
    ] {
        let mut client = service.client().await;
        client.send_text("GET", &format!("/v1/queues/{path}"), &headers, "").await;
        client.reply().await.problem(code);
    }
    let service = Service::start().await;
    let mut client = service.client().await;
    client.send_text("GET", &format!("{QUEUE}/watch"), &[EVENTS], "").await;
    client.reply().await.problem("queue-not-found");
}

#[tokio::test]
async fn a_queue_that_is_deleted_and_created_again_is_watched_again() {
    let service = Service::start().await;
    added(&service, &["a"]).await;
    let mut source = Source::begin(&service, "resource_version=0", None).await;
    assert_eq!(source.list().await, ["Added a"]);
    added(&service, &["b"]).await;
    let id = source.next().await.id.expect("an id");
    service.call("DELETE", &format!("{QUEUE}?force=true"), &Value::Null).await;
    let event = source.next().await;
    assert_eq!(
        (&*event.kind, &event.row["problem"]["code"]),
        ("Error", &json!("queue-deleted")),
        "{event:?}"
    );
    for headers in [[EVENTS, ("last-event-id", &*id)], [EVENTS, ("last-event-id", "of-another-program")]] {
        let problem = refused_by(&service, &headers, "queue-not-found").await;
        assert_eq!(problem["status"], 404);
    }
    let counted =
        |line: &str| line.starts_with("deltaq_http_requests_total") && line.contains("status=\"404\"");
    assert!(metrics(&service).await.lines().any(counted), "it counts as what it is");
    // A queue that was never watched, and other readers.
    for headers in [&[EVENTS][..], &[EVENTS, ("last-event-id", "")], &[("last-event-id", &id)]] {
        let mut client = service.client().await;
        client.send_text("GET", &format!("{QUEUE}/watch"), headers, "").await;
        client.reply().await.problem("queue-not-found");
    }
    added(&service, &["c"]).await;
    let mut source = Source::begin(&service, "resource_version=0", Some(&id)).await;
    assert_eq!(source.next().await.kind, "Expired");
    assert_eq!(source.list().await, ["Added c"]);
}

/// Sends a watch of server-sent events to an API without connections, which refuses it for now.
async fn refused_at(router: axum::Router, code: &str) {
    let request = Request::get(format!("{QUEUE}/watch")).header(EVENTS.0, EVENTS.1).body(Body::empty());
    let reply = router.oneshot(request.expect("a request")).await.expect("routers answer");
    let (parts, body) = reply.into_parts();
    let text = to_bytes(body, usize::MAX).await.expect("a body");
    let kind = parts.headers.get("content-type").and_then(|kind| kind.to_str().ok());
    refused(parts.status.as_u16(), kind, std::str::from_utf8(&text).expect("text"), code);
}

#[tokio::test]
async fn a_server_that_loads_its_queues_refuses_for_now() {
    let (clock, shutdown) = (Clock::system(), Shutdown::manual(Duration::ZERO));
    let store = FakeStore::default();
    let reader: Arc<dyn Reader> = Arc::new(store.clone());
    let opened = (store.clone(), reader, store.opening());
    let cut = shutdown.cut().clone();
    let (journal, writer, _contents) =
        writer::open(opened, clock.clone(), Arc::new(NoopObserver), cut, WriterOptions::default())
            .await
            .expect("a store");
    let _writing = shutdown.spawn_last("journal writer", writer.run());
    let limits =
        Limits { auto_create: true, max_queues: 100, max_waiters: 100, watch: WatchLimits::default() };
    let metrics = Metrics::new(100).expect("metrics");
    let registry =
        Registry::new(limits, Config::default(), clock.clone(), Some(journal), shutdown.clone(), metrics);
    refused_at(api(&Arc::new(registry), &clock, &shutdown), "recovering").await;
    shutdown.signal();
}

#[tokio::test]
async fn a_journal_that_fails_refuses_for_now() {
    let bench = Bench::with_queue().await;
    bench.journal.hold();
    let mut add = bench.call("POST", "/add", &object("a"));
    assert!(pushed(&mut add).await.is_none());
    bench.journal.break_by(Fault::Refused);
    assert_eq!(add.await.status(), 503);
    let (clock, shutdown) = (Clock::system(), Shutdown::manual(Duration::ZERO));
    refused_at(api(&bench.registry, &clock, &shutdown), "journal-unavailable").await;
}

#[tokio::test]
async fn a_draining_server_ends_the_stream() {
    let service =
        Service::with(|settings| settings.server.drain_delay = "20s".parse().expect("a duration")).await;
    let first = added(&service, &["a"]).await;
    service.shutdown.signal();
    let mut source = Source::begin(&service, &format!("resource_version={first}"), None).await;
    assert_eq!(source.next().await.kind, "Bookmark");
    assert!(
        source.client.chunk().await.expect("no cut").is_none(),
        "the stream ends, and the browser comes again"
    );
}
