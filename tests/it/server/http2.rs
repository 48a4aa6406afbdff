//! The listener for HTTP/2.

use std::net::SocketAddr;

use deltaq::config::Settings;
use deltaq::config::access::Verb;
use deltaq_types::duration::DurationText;
use h2::client::Builder;
use h2::{Reason, RecvStream};
use serde_json::{Value, json};

use super::{QUEUE, object, objects};
use crate::access::token;
use crate::harness::http2::{Http2, piece};
use crate::harness::{Client, Service, eventually, said, within};

/// The preface of a client, and its empty settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// `GET /livez` of `localhost`, compressed.
const GET_LIVEZ: &[u8] = b"\x82\x86\x04\x06/livez\x01\x09localhost";
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

pub(crate) fn with_http2(settings: &mut Settings) {
    settings.server.http2_listen = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
}

async fn start() -> Service {
    Service::with(with_http2).await
}

async fn start_with(edit: impl FnOnce(&mut Settings)) -> Service {
    Service::with(|settings| {
        with_http2(settings);
        edit(settings);
    })
    .await
}

fn address(service: &Service) -> SocketAddr {
    service.http2.expect("a listener for HTTP/2")
}

async fn connect(service: &Service) -> Http2 {
    Http2::connect(address(service)).await
}

/// A frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A watch that has sent all keys.
struct Watch {
    body: RecvStream,
    text: String,
}

impl Watch {
    async fn begin(client: &mut Http2, queue: &str) -> Self {
        let stream = client.begin("GET", &format!("{queue}/watch"), &[], true).await.expect("a stream");
        let (status, _, body) = stream.head().await.expect("a head");
        assert_eq!(status, 200);
        let mut watch = Self { body, text: String::new() };
        watch.until("initial_events_end").await;
        watch
    }

    /// Reads until the rows have this text.
    async fn until(&mut self, text: &str) {
        while !self.text.contains(text) {
            let rows = piece(&mut self.body).await.expect("the stream goes on").expect("a row");
            self.text += std::str::from_utf8(&rows).expect("rows are text");
        }
    }
}

#[tokio::test]
async fn http2_is_off_by_default() {
    assert_eq!(Service::start().await.http2, None);
}

#[tokio::test]
async fn one_connection_has_many_calls_and_watches() {
    let service = start().await;
    let mut client = connect(&service).await;
    let queue = |number: usize| format!("/v1/queues/q{number}");
    let mut watches = Vec::new();
    for number in 0..50 {
        client.post(&format!("{}/add", queue(number)), &object("first")).await.ok();
        watches.push(Watch::begin(&mut client, &queue(number)).await);
    }
    let added = client.post(&format!("{QUEUE}/add"), &objects(&["a", "b"])).await.ok();
    assert_eq!(added["queued"], 2);
    let listed = client.get(&format!("{QUEUE}/items")).await.ok();
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(2));
    for (number, watch) in watches.iter_mut().enumerate() {
        client.post(&format!("{}/add", queue(number)), &object(&format!("late{number}"))).await.ok();
        watch.until(&format!("\"late{number}\"")).await;
    }
    let page = Client::connect(service.metrics).await.call("GET", "/metrics", &Value::Null).await.text;
    assert!(
        page.contains("deltaq_http_connections 1\n"),
        "the connections of both listeners are counted: {page}"
    );
}

#[tokio::test]
async fn a_pop_is_refused_and_leases_nothing() {
    let service = start().await;
    let mut client = connect(&service).await;
    client.post(&format!("{QUEUE}/add"), &object("k")).await.ok();
    let reply = client.post(&format!("{QUEUE}/pop?wait=30s"), &json!({})).await;
    assert_eq!(reply.status, 421);
    let refused = reply.problem("wrong-listener");
    let words = said(&refused);
    assert!(words.contains("server.http2_listen") && words.contains("server.listen"), "{words}");
    assert_eq!(refused["settled"], json!([]));
    assert_eq!(client.get(QUEUE).await.ok()["status"]["leased"], 0);
    // Workers may settle over HTTP/2 what they have popped over HTTP/1.1.
    let popped = service.post(&format!("{QUEUE}/pop"), &Value::Null).await.ok();
    let ack = json!({"lease_ids": [popped["items"][0]["lease"]["id"]]});
    assert_eq!(client.post(&format!("{QUEUE}/ack"), &ack).await.ok()["settled"][0]["result"], "ok");
}

#[tokio::test]
async fn a_client_of_another_protocol_is_told() {
    let service = start().await;
    let mut client = Client::connect(address(&service)).await;
    client.send("GET", "/livez", &Value::Null).await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.header("content-type")), (400, Some("text/plain; charset=utf-8")));
    assert!(reply.text.contains("HTTP/2") && reply.text.ends_with("take.\n"), "{}", reply.text);
}

#[tokio::test]
async fn foreign_hosts_and_pages_are_refused() {
    let service = start().await;
    let mut client = connect(&service).await;
    let foreign = client.begin_at("deltaq.example:7070", "GET", "/v1/info", &[], true).await;
    foreign.expect("a stream").reply().await.expect("a reply").problem("host-not-allowed");
    let evil = [("origin", "http://evil.example")];
    let reply = client.try_call("GET", "/v1/info", &evil, &Value::Null).await.expect("a reply");
    reply.problem("cross-site");
    client.get("/v1/info").await.ok();
    let unknown = client.get("/v1/queues/absent").await.problem("queue-not-found");
    assert_eq!(unknown["type"], "http://localhost/problems/queue-not-found");
}

#[tokio::test]
async fn tokens_hold_for_each_request() {
    let service =
        start_with(|settings| settings.access.tokens = vec![token("reader", &[Verb::Read], "q")]).await;
    let mut client = connect(&service).await;
    client.get("/v1/info").await.problem("unauthorized");
    let reader = [("authorization", "Bearer reader")];
    let as_reader = async |client: &mut Http2, method: &str, path: &str| {
        client.try_call(method, path, &reader, &Value::Null).await.expect("a reply")
    };
    assert_eq!(as_reader(&mut client, "GET", "/v1/info").await.status, 200);
    as_reader(&mut client, "POST", &format!("{QUEUE}/add")).await.problem("forbidden");
    as_reader(&mut client, "POST", &format!("{QUEUE}/pop")).await.problem("forbidden");
    client.get("/v1/info").await.problem("unauthorized");
}

#[tokio::test]
async fn heads_and_bodies_have_their_limits() {
    let service = start_with(|settings| {
        settings.server.max_body_bytes = 20_000;
        settings.server.body_read_timeout = DurationText::from_secs(1);
    })
    .await;
    let mut client = connect(&service).await;
    let long = "x".repeat(17_000);
    let reply =
        client.try_call("GET", "/v1/info", &[("x-long", &long)], &Value::Null).await.expect("a reply");
    reply.problem("headers-too-large");
    let large = json!({"key": "k", "filler": "x".repeat(30_000)});
    client.post(&format!("{QUEUE}/add"), &large).await.problem("object-too-large");
    let slow = client.begin("POST", &format!("{QUEUE}/add"), &[], false).await.expect("a stream");
    slow.reply().await.expect("a reply").problem("request-timeout");
    client.get("/v1/info").await.ok();
}

#[tokio::test]
async fn replies_that_wait_for_a_client_count() {
    let service = start_with(|settings| settings.server.max_reply_bytes_in_flight = 1 << 20).await;
    let filler = "x".repeat(50_000);
    service.post(&format!("{QUEUE}/add"), &json!({"key": "k", "filler": filler})).await.ok();
    let path = format!("{QUEUE}/latest/k");
    let mut reader = Http2::connect_as(address(&service), Builder::new().initial_window_size(1)).await;
    let mut unread = Vec::new();
    // Over HTTP/1.1 each reply would be short enough for the buffer of its own connection.
    let refused = loop {
        assert!(unread.len() < 50, "all replies were accepted");
        let stream = reader.begin("GET", &path, &[], true).await.expect("a stream");
        let (status, _, body) = stream.head().await.expect("a head");
        if status != 200 {
            break status;
        }
        unread.push(body);
    };
    assert_eq!(refused, 429);
    service.get(&path).await.ok();
    drop(unread);
    eventually(async || {
        reader.begin("GET", &path, &[], true).await.expect("a stream").head().await.expect("a head").0 == 200
    })
    .await;
}

#[tokio::test]
async fn a_client_that_does_not_read_a_reply_loses_its_connection() {
    let service = start_with(|settings| settings.server.idle_timeout = DurationText::from_secs(1)).await;
    service.post(&format!("{QUEUE}/add"), &json!({"key": "k", "filler": "x".repeat(50_000)})).await.ok();
    let mut client = Http2::connect_as(address(&service), Builder::new().initial_window_size(1_000)).await;
    let stream = client.begin("GET", &format!("{QUEUE}/latest/k"), &[], true).await.expect("a stream");
    let (status, _, _unread) = stream.head().await.expect("a head");
    assert_eq!(status, 200);
    // The other streams go on, so the connection is not idle.
    within(async { while client.try_call("GET", "/livez", &[], &Value::Null).await.is_ok() {} }).await;
    connect(&service).await.get("/v1/info").await.ok();
}

#[tokio::test]
async fn idle_and_silent_connections_end() {
    let service = start_with(|settings| settings.server.idle_timeout = DurationText::from_secs(1)).await;
    let mut idle = connect(&service).await;
    idle.get("/v1/info").await.ok();
    let _ended = idle.ended().await;
    let service =
        start_with(|settings| settings.server.header_read_timeout = DurationText::from_secs(1)).await;
    for begun in [&b""[..], b"P", PREFACE] {
        let mut silent = Client::connect(address(&service)).await;
        silent.try_send_bytes(begun).await;
        silent.closed().await;
    }
}

#[tokio::test]
async fn floods_of_resets_and_of_headers_end_their_connection() {
    let service = start().await;
    let mut other = connect(&service).await;
    other.get("/v1/info").await.ok();
    let mut resets = (0_u32..).map(|number| {
        let stream = 2 * number + 1;
        let mut bytes = frame(HEADERS, END_STREAM | END_HEADERS, stream, GET_LIVEZ);
        bytes.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
        bytes
    });
    let mut resetting = Client::connect(address(&service)).await;
    resetting.send_bytes(PREFACE).await;
    within(async {
        while resetting.try_send_bytes(&resets.by_ref().take(1_000).collect::<Vec<_>>().concat()).await {}
    })
    .await;
    let mut continuing = Client::connect(address(&service)).await;
    continuing.send_bytes(PREFACE).await;
    continuing.send_bytes(&frame(HEADERS, END_STREAM, 1, GET_LIVEZ)).await;
    let more = frame(CONTINUATION, 0, 1, b"").repeat(1_000);
    within(async { while continuing.try_send_bytes(&more).await {} }).await;
    other.get("/v1/info").await.ok();
}

#[tokio::test]
async fn more_streams_than_allowed_wait_or_are_refused() {
    let service = start().await;
    service.call("PUT", QUEUE, &json!({})).await.ok();
    let mut client = connect(&service).await;
    client.get("/v1/info").await.ok();
    let mut waiting = Vec::new();
    for _ in 0..100 {
        let path = format!("{QUEUE}/synced?wait=30s");
        waiting.push(client.begin("GET", &path, &[], true).await.expect("a stream"));
    }
    // This client keeps to the limit: the next request waits until a stream has ended.
    let next = client.begin("GET", "/v1/info", &[], true).await.expect("a stream");
    service.post(&format!("{QUEUE}/replace"), &json!([])).await.ok();
    for stream in waiting {
        assert_eq!(stream.reply().await.expect("a reply").ok()["synced"], true);
    }
    next.reply().await.expect("a reply").ok();
}

#[tokio::test]
async fn both_listeners_share_the_limit_of_connections() {
    let service = start_with(|settings| settings.server.max_connections = 1).await;
    let busy = service.busy_client().await;
    let mut refused = Client::connect(address(&service)).await;
    let _reset = refused.try_send_bytes(PREFACE).await;
    refused.closed().await;
    drop(busy);
    eventually(async || {
        let stream = tokio::net::TcpStream::connect(address(&service)).await.expect("the server accepts");
        let Ok(mut client) = Http2::over(stream, &Builder::new(), "http").await else { return false };
        client.try_call("GET", "/v1/info", &[], &Value::Null).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_shutdown_lets_streams_end() {
    let service = start().await;
    let mut client = connect(&service).await;
    client.post(&format!("{QUEUE}/add"), &object("k")).await.ok();
    let mut watch = Watch::begin(&mut client, QUEUE).await;
    let path = format!("{QUEUE}/close?drain=true&wait=30s");
    let drain = client.begin("POST", &path, &[], true).await.expect("a stream");
    eventually(async || service.get(QUEUE).await.body["status"]["closed"] == true).await;
    service.shutdown.signal();
    assert_eq!(drain.reply().await.expect("a reply").ok()["drained"], false);
    while piece(&mut watch.body).await.expect("the watch ends completely").is_some() {}
    let error = client.ended().await;
    assert!(error.as_ref().err().is_none_or(|error| error.reason() == Some(Reason::NO_ERROR)), "{error:?}");
    service.stopped().await;
}
