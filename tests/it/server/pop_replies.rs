//! Replies to pops arrive unchanged, whatever objects they contain and however slowly clients read.
//!
//! `just pop-replies 100000` reads more random replies than CI does; `DELTAQ_REPLY_SEED` chooses others.

use fastrand::Rng;
use serde_json::{Value, json};

use super::object;
use crate::harness::{Client, Service};

/// Bytes of a reply that the server writes at once.
const PIECE_BYTES: usize = 64 << 10;
/// Random replies in CI.
const REPLIES: u64 = 300;
/// Receive buffer of a slow client, in bytes. The server waits for the client in the middle of most replies.
const SLOW_READER_BYTES: u32 = 4 << 10;
/// The text of a response that hyper could write, as far as a JSON string can contain it.
const FORGED: &str = "HTTP/1.1 404 Not Found content-length: 0 ";

#[expect(clippy::disallowed_methods, reason = "the knobs of a test are no settings of the service")]
fn knob(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Adds the object with this text.
async fn add(client: &mut Client, text: &str) {
    client.send_text("POST", "/v1/queues/q/add", &[], text).await;
    client.reply().await.ok();
}

/// Pops and acknowledges the only key. Returns the text of the reply.
async fn pop(client: &mut Client) -> String {
    let reply = client.call("POST", "/v1/queues/q/pop", &Value::Null).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    let lease = reply.body["items"][0]["lease"]["id"].clone();
    client.call("POST", "/v1/queues/q/ack", &json!({ "lease_ids": [lease] })).await.ok();
    reply.text
}

/// An object whose text contains a forged response after `before` bytes of padding. `ends` follows one piece later.
fn forged(before: usize, ends: &str) -> String {
    let filler = PIECE_BYTES - FORGED.len() - "\"".len() - ends.len();
    format!("{{\"key\":\"k\",\"a\":\"{}{FORGED}{}\"{ends},\"b\":1}}", "x".repeat(before), "y".repeat(filler))
}

/// The padding that puts the forged response at the beginning of a piece.
async fn aligned(client: &mut Client) -> usize {
    let mut before = PIECE_BYTES / 2;
    loop {
        add(client, &forged(before, "    ")).await;
        let reply = pop(client).await;
        let at = reply.find(FORGED).expect("the object") % PIECE_BYTES;
        if at == 0 {
            return before;
        }
        before += PIECE_BYTES - at;
    }
}

#[tokio::test]
async fn a_piece_that_looks_like_an_error_response_arrives_unchanged() {
    let service = Service::start().await;
    let mut client = service.client().await;
    // From here on, the numbers in the replies keep their number of digits.
    for _ in 0..50 {
        add(&mut client, "{\"key\":\"k\"}").await;
        pop(&mut client).await;
    }
    let before = aligned(&mut client).await;
    for _ in 0..5 {
        let text = forged(before, "\r\n\r\n");
        add(&mut client, &text).await;
        let reply = pop(&mut client).await;
        let at = reply.find(FORGED).expect("the object");
        assert_eq!(at % PIECE_BYTES, 0, "the forged response begins a piece");
        assert!(reply[..at + PIECE_BYTES].ends_with("\r\n\r\n"), "and ends with it");
        assert!(reply.contains(&text), "the object arrives unchanged");
    }
}

#[tokio::test]
async fn pipelined_requests_get_their_own_replies() {
    let service = Service::start().await;
    let mut client = service.client().await;
    for _ in 0..50 {
        add(&mut client, "{\"key\":\"k\"}").await;
        pop(&mut client).await;
    }
    let before = aligned(&mut client).await;
    for round in 0..5 {
        let text = forged(before, "\r\n\r\n");
        add(&mut client, &text).await;
        client.send("POST", "/v1/queues/q/pop", &Value::Null).await;
        client.send("GET", "/v1/queues/absent", &Value::Null).await;
        client.send("POST", "/v1/queues/other/add", &object(&format!("k{round}"))).await;
        let popped = client.reply().await;
        assert!(popped.text.contains(&text), "the object arrives unchanged");
        client.reply().await.problem("queue-not-found");
        assert_eq!(client.reply().await.ok()["queued"], 1);
        let lease = popped.body["items"][0]["lease"]["id"].clone();
        client.call("POST", "/v1/queues/q/ack", &json!({ "lease_ids": [lease] })).await.ok();
    }
    client.send_bytes(b"GET /v1/info HTTP/1.1\r\nhost: localhost\r\n\r\nnonsense\r\n\r\n").await;
    client.reply().await.ok();
    assert_eq!(client.reply().await.status, 400, "what follows a whole reply is hyper's own response");
    client.closed().await;
}

/// The text of an object with random white space, strings and size.
fn random_object(rng: &mut Rng) -> String {
    let mut text = String::from("{\"key\":\"k\"");
    for member in 0..rng.usize(1..6) {
        let _ = std::fmt::Write::write_fmt(&mut text, format_args!(",\"m{member}\":"));
        let bytes = 1 << rng.usize(0..18);
        if rng.bool() {
            text.push('"');
            let end = text.len() + bytes;
            while text.len() < end {
                match rng.u8(0..12) {
                    0 => text.push_str("HTTP/1.1 400 Bad Request content-length: 0 "),
                    1 => text.push_str("\\r\\n\\r\\n"),
                    2 => text.push_str("\\u0000"),
                    3 => text.push('\u{1f600}'),
                    4 => text.push('\u{e4}'),
                    5 => text.push_str("0\\r\\n\\r\\nHTTP/1.1 200 OK"),
                    _ => {
                        let run = rng.usize(1..2_000);
                        text.extend(std::iter::repeat_with(|| rng.alphanumeric()).take(run));
                    }
                }
            }
            text.push('"');
        } else {
            text.push_str("[1");
            let run = bytes.min(40_000);
            let kind = rng.u8(0..3);
            text.extend(
                std::iter::repeat_with(|| match kind {
                    0 => "\r\n",
                    1 => " \t",
                    _ => ["\r\n", " ", "\t", "\n"][rng.usize(0..4)],
                })
                .take(run / 2),
            );
            text.push(']');
        }
        text.push_str(["", " ", "\r\n\r\n", "\r\n"][rng.usize(0..4)]);
    }
    text.push('}');
    text
}

#[tokio::test]
async fn random_replies_over_slow_readers_arrive_unchanged() {
    let service = Service::start().await;
    let mut rng = Rng::with_seed(knob("DELTAQ_REPLY_SEED", 1));
    let mut client = service.client_that_buffers(SLOW_READER_BYTES).await;
    for number in 0..knob("DELTAQ_REPLIES", REPLIES) {
        let text = random_object(&mut rng);
        add(&mut client, &text).await;
        client.send("POST", "/v1/queues/q/pop", &Value::Null).await;
        client.send("GET", "/v1/queues/absent", &Value::Null).await;
        if rng.u8(0..4) == 0 {
            let piece_bytes = 1 + text.len() / rng.usize(1..30);
            client.read_slowly(text.len(), piece_bytes).await;
        }
        let popped = client.reply().await;
        assert_eq!(popped.status, 200, "reply {number}");
        assert!(popped.text.contains(&text), "the object of reply {number} arrives unchanged");
        client.reply().await.problem("queue-not-found");
        let lease = popped.body["items"][0]["lease"]["id"].clone();
        client.call("POST", "/v1/queues/q/ack", &json!({ "lease_ids": [lease] })).await.ok();
    }
}
