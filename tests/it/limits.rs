//! Limits over all requests, tested over HTTP.

use deltaq::config::Settings;
use deltaq::config::access::{TokenEntry, Verb};
use deltaq_types::duration::DurationText;
use serde_json::{Value, json};

use crate::access::token;
use crate::harness::{Client, Reply, Service, within};

const POLL: &str = "/v1/queues/idle/pop?wait=30s";

fn bearer(name: &str) -> String {
    format!("Bearer {name}")
}

/// Sends a long poll. The poll may wait or be refused.
async fn poll(service: &Service, name: &str) -> Client {
    let mut client = service.client().await;
    client.send_text("POST", POLL, &[("authorization", &bearer(name))], "").await;
    client
}

/// The number of waiting polls.
async fn waiters(service: &Service, name: &str) -> u64 {
    let queue = service.client().await.call_as(name, "GET", "/v1/queues/idle", &Value::Null).await.ok();
    queue["status"]["waiters"].as_u64().expect("a number")
}

/// Sends polls with a token. Returns the waiting polls and the number of polls that were refused with 429.
async fn send_polls(service: &Service, name: &str, polls: usize) -> (Vec<Client>, usize) {
    let (mut waiting, mut refused) = (Vec::new(), 0);
    for _ in 0..polls {
        let mut client = poll(service, name).await;
        let reply = {
            let reply = client.reply();
            tokio::pin!(reply);
            loop {
                tokio::select! {
                    biased;
                    reply = &mut reply => break Some(reply),
                    now = waiters(service, name) => if now == waiting.len() as u64 + 1 { break None },
                }
            }
        };
        let Some(reply) = reply else {
            waiting.push(client);
            continue;
        };
        assert_eq!(reply.header("retry-after"), Some("1"));
        reply.problem("too-many-requests");
        refused += 1;
    }
    (waiting, refused)
}

#[tokio::test]
async fn one_token_leaves_permits_for_others() {
    let tokens: Vec<TokenEntry> =
        ["flood", "second", "third"].iter().map(|name| token(name, &Verb::ALL, "*")).collect();
    let service = Service::with(|settings| {
        settings.access.tokens = tokens;
        settings.server.max_waits_in_flight = 12;
    })
    .await;
    service.client().await.call_as("flood", "PUT", "/v1/queues/idle", &Value::Null).await.ok();
    let (waiting, refused) = send_polls(&service, "flood", 40).await;
    assert_eq!((waiting.len(), refused), (9, 31), "a single token gets three quarters of the permits");
    let mut others = Vec::new();
    for name in ["second", "second", "third"] {
        others.push(poll(&service, name).await);
        while waiters(&service, name).await != 9 + others.len() as u64 {}
    }
    drop(others);
    drop(waiting);
    while waiters(&service, "flood").await != 0 {}
    // After its clients have disconnected, the token can use all its permits again.
    let (waiting, _) = send_polls(&service, "flood", 9).await;
    assert_eq!(waiting.len(), 9);
}

#[tokio::test]
async fn bodies_of_one_token_leave_bytes_for_others() {
    let tokens: Vec<TokenEntry> =
        ["flood", "second"].iter().map(|name| token(name, &Verb::ALL, "*")).collect();
    let service = Service::with(|settings| {
        settings.access.tokens = tokens;
        settings.server.max_body_bytes_in_flight = 10_000;
    })
    .await;
    let mut floods = Vec::new();
    for _ in 0..20 {
        let mut flood = service.client().await;
        let head = "POST /v1/queues/a/add HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer flood\r\ncontent-length: 900\r\n\r\n";
        flood.send_bytes(format!("{head}{}", "x".repeat(800)).as_bytes()).await;
        floods.push(flood);
    }
    // The flood has reached the limit when one of its own calls is refused.
    let object = |bytes: usize| json!({ "key": "a", "text": "x".repeat(bytes) });
    let mut client = service.client().await;
    while client.call_as("flood", "POST", "/v1/queues/b/add", &object(800)).await.status == 200 {}
    client.call_as("second", "POST", "/v1/queues/b/add", &object(800)).await.ok();
}

/// A server with a leased key, and the ack of its lease. The body of the ack has `bytes` of white space.
async fn with_a_lease(adapt: impl FnOnce(&mut Settings), bytes: usize) -> (Service, String) {
    let service = Service::with(adapt).await;
    service.post("/v1/queues/a/add", &json!({ "key": "a" })).await.ok();
    let popped = service.post("/v1/queues/a/pop?lease_duration=12h", &json!({})).await.ok();
    let lease = popped["items"][0]["lease"]["id"].as_str().expect("a lease").to_owned();
    (service, format!("{{\"lease_ids\":[{}\"{lease}\"]}}", " ".repeat(bytes)))
}

/// A call that has sent its head and the start of its body, once the server waits for the rest.
async fn stalled(service: &Service, path: &str) -> Client {
    let mut client = service.client().await;
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\nexpect: 100-continue\r\n\r\n"
    );
    client.send_bytes(head.as_bytes()).await;
    assert_eq!(client.head().await.expect("a head").0, 100, "the server reads the body");
    client
}

#[tokio::test]
async fn stalled_settles_do_not_stop_other_settles() {
    let (service, ack) = with_a_lease(|settings| settings.server.max_writes_in_flight = 4, 0).await;
    let mut stalls = Vec::new();
    for call in ["ack", "nack", "settle", "extend"] {
        stalls.push(stalled(&service, &format!("/v1/queues/a/{call}")).await);
    }
    let mut client = service.client().await;
    client.send_text("POST", "/v1/queues/a/ack", &[], &ack).await;
    client.reply().await.ok();
    // A stalled call takes its permit again when its body arrives.
    for stalled in &mut stalls {
        stalled.send_bytes(&[b' '; 100]).await;
        assert_eq!(stalled.reply().await.problem("invalid-request")["status"], 400);
    }
}

#[tokio::test]
async fn stalled_pops_do_not_stop_other_pops() {
    let (service, _) = with_a_lease(|settings| settings.server.max_waits_in_flight = 4, 0).await;
    let mut stalls = Vec::new();
    for _ in 0..4 {
        stalls.push(stalled(&service, "/v1/queues/a/pop").await);
    }
    service.post("/v1/queues/a/pop", &json!({})).await.ok();
}

#[tokio::test]
async fn bodies_of_producers_leave_room_for_settles() {
    let (service, ack) =
        with_a_lease(|settings| settings.server.max_body_bytes_in_flight = 64_000, 3_000).await;
    // Producers stall until the server refuses the next piece of them.
    let mut stalls = Vec::new();
    loop {
        let mut producer = service.client().await;
        let head = "POST /v1/queues/a/add HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3000\r\n\r\n";
        producer.send_bytes(format!("{head}{}", " ".repeat(2_000)).as_bytes()).await;
        let add = service.post("/v1/queues/b/add", &json!({ "key": "a", "text": "x".repeat(1_000) })).await;
        stalls.push(producer);
        if add.status == 429 {
            break;
        }
    }
    let mut client = service.client().await;
    client.send_text("POST", "/v1/queues/a/ack", &[], &ack).await;
    client.reply().await.ok();
}

/// A server with two permits for reads and 16 MB of known objects.
async fn with_large_replies(adapt: impl FnOnce(&mut Settings)) -> Service {
    let service = Service::with(|settings| {
        settings.server.max_reads_in_flight = 2;
        adapt(settings);
    })
    .await;
    let seeds: Vec<Value> = (0..4_000)
        .map(|n| json!({ "object": { "key": n.to_string(), "text": "x".repeat(4_000) } }))
        .collect();
    service.post("/v1/queues/a/seed", &Value::from(seeds)).await.ok();
    service
}

/// Two clients that have read the heads of large replies and stop reading. Earlier clients may still hold permits.
async fn two_readers(service: &Service, accept: &str) -> [Client; 2] {
    [reader(service, accept).await, reader(service, accept).await]
}

/// A client that reads the head of a large reply and stops. Repeats the request while it is refused.
async fn reader(service: &Service, accept: &str) -> Client {
    loop {
        let mut reader = service.client().await;
        reader.send_text("GET", "/v1/queues/a/known?limit=5000", &[("accept", accept)], "").await;
        match reader.head().await.expect("a head").0 {
            429 => {}
            status => {
                assert_eq!(status, 200);
                return reader;
            }
        }
    }
}

#[tokio::test]
async fn a_streamed_reply_keeps_its_permit_until_it_is_sent() {
    let service = with_large_replies(|_| ()).await;
    let readers = two_readers(&service, "application/x-ndjson").await;
    assert_eq!(service.get("/v1/info").await.problem("too-many-requests")["limit"], 2);
    drop(readers);
    while service.get("/v1/info").await.status != 200 {}
}

#[tokio::test]
async fn the_bytes_of_a_large_reply_count_until_it_is_sent() {
    /// Two pages of 8 MiB and their documents, but not three.
    const LIMIT: usize = 20 << 20;
    const PAGE: &str = "/v1/queues/a/known?limit=5000";
    let service = with_large_replies(|settings| settings.server.max_reply_bytes_in_flight = LIMIT).await;
    let readers = two_readers(&service, "application/json").await;
    service.get("/v1/info").await.ok();
    assert_eq!(service.get(PAGE).await.problem("too-many-requests")["limit"], LIMIT / 8 * 7);
    drop(readers);
    while service.get(PAGE).await.status != 200 {}
}

#[tokio::test]
async fn a_stream_counts_the_page_that_its_client_has_not_read() {
    /// Two pages, but not three. A page has at least one object.
    const LIMIT: usize = 14 << 20;
    let service = Service::with(|settings| {
        settings.server.max_reply_bytes_in_flight = LIMIT;
        settings.queue_defaults.max_object_bytes = 8 << 20;
    })
    .await;
    let object = json!({ "key": "k", "text": "x".repeat(6 << 20) });
    service.post("/v1/queues/a/seed", &json!([{ "object": object }])).await.ok();
    let readers = two_readers(&service, "application/x-ndjson").await;
    let mut third = service.client().await;
    let headers = [("accept", "application/x-ndjson")];
    third.send_text("GET", "/v1/queues/a/known", &headers, "").await;
    assert_eq!(third.reply().await.problem("too-many-requests")["limit"], LIMIT / 8 * 7);
    drop(readers);
    reader(&service, "application/x-ndjson").await;
}

#[tokio::test]
async fn the_pages_of_a_stream_are_small() {
    let small = |settings: &mut Settings| settings.server.max_reply_bytes_in_flight = 1 << 20;
    let service = with_large_replies(small).await;
    two_readers(&service, "application/x-ndjson").await;
}

#[tokio::test]
async fn an_unread_reply_times_out() {
    let short = |settings: &mut Settings| settings.server.idle_timeout = DurationText::from_us(100_000);
    let service = with_large_replies(short).await;
    for accept in ["application/x-ndjson", "application/json"] {
        let _readers = two_readers(&service, accept).await;
        while service.get("/v1/info").await.status != 200 {}
    }
}

#[tokio::test]
async fn a_refused_pop_reports_the_settled_leases() {
    let service = Service::with(|settings| {
        let slow = TokenEntry { rate: Some(1), ..token("slow", &Verb::ALL, "*") };
        settings.access.tokens = vec![slow, token("maker", &Verb::ALL, "*")];
    })
    .await;
    let mut client = service.client().await;
    client.call_as("maker", "PUT", "/v1/queues/a", &json!({})).await.ok();
    let settle = json!({ "settle": [{ "lease_id": "1-1", "as": "ack" }] });
    client.call_as("slow", "POST", "/v1/queues/a/pop", &settle).await.ok();
    for (token, code) in [("slow", "too-many-requests"), ("nobody", "unauthorized")] {
        let problem = client.call_as(token, "POST", "/v1/queues/a/pop", &settle).await.problem(code);
        assert_eq!(problem["settled"], json!([]), "{problem}");
    }
}

#[tokio::test]
async fn bodies_in_memory_are_bounded() {
    let service = Service::with(|settings| settings.server.max_body_bytes_in_flight = 18_000).await;
    // An object counts in addition to the body that contains it.
    let object = |bytes: usize| json!({ "key": "a", "text": "x".repeat(bytes) }).to_string();
    let first = object(7_000);
    let (begun, rest) = first.split_at(6_500);
    let head = format!(
        "POST /v1/queues/a/add HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
        first.len()
    );
    let second = json!({ "key": "b", "text": "x".repeat(5_000) });
    let (mut slow, refused) = half_sent(&service, &format!("{head}{begun}"), &second).await;
    assert_eq!(refused.problem("too-many-requests")["limit"], 15_750);
    slow.send_bytes(rest.as_bytes()).await;
    slow.reply().await.ok();
    service.post("/v1/queues/b/add", &second).await.ok();
    // The bytes of a client that disconnects no longer count.
    let (disconnected, _refused) = half_sent(&service, &format!("{head}{begun}"), &second).await;
    drop(disconnected);
    while service.post("/v1/queues/b/add", &second).await.status != 200 {}
    let large = service.post("/v1/queues/c/add", &json!({ "key": "c", "text": "x".repeat(11_000) })).await;
    assert_eq!(large.problem("object-too-large")["limit"], 15_750);
}

/// Sends a part of a request and waits until its bytes count. Returns its connection, and the refusal of another body that exceeds
/// the limit together with the part.
async fn half_sent(service: &Service, part: &str, other: &Value) -> (Client, Reply) {
    within(async {
        loop {
            let mut slow = service.client().await;
            slow.send_bytes(part.as_bytes()).await;
            // This part is refused if it arrives while the other body still counts.
            while slow.is_silent().await {
                let reply = service.post("/v1/queues/b/add", other).await;
                if reply.status != 200 {
                    return (slow, reply);
                }
            }
        }
    })
    .await
}

#[tokio::test]
async fn connections_beyond_the_limit_get_the_overload_response() {
    let service = Service::with(|settings| settings.server.max_connections = 2).await;
    let mut kept = [service.busy_client().await, service.busy_client().await];
    for _ in 0..3 {
        let mut third = service.client().await;
        third.send("POST", "/v1/queues/a/add", &json!({ "key": "a" })).await;
        let reply = third.reply().await;
        assert_eq!((reply.header("retry-after"), reply.header("connection")), (Some("1"), Some("close")));
        assert_eq!(reply.problem("too-many-connections")["limit"], 2);
        third.closed().await;
    }
    for client in &mut kept {
        client.send_bytes(br#"{"key":1}"#).await;
        client.reply().await.ok();
        client.call("GET", "/v1/queues/a", &Value::Null).await.problem("queue-not-found");
    }
    drop(kept);
    while service.client().await.call("GET", "/v1/info", &Value::Null).await.status != 200 {}
}
