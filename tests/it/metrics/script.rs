//! A sequence of calls over HTTP, and the seven `workqueue_*` metrics after each call. The test moves the clock.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::page::Page;
use crate::contract::Talk;

enum Step {
    /// A POST below the queue.
    Post(&'static str),
    /// A pop. All leases of the script are numbered in order, from 0.
    Pop(&'static str),
    /// A settle of the lease with this number.
    Settle(&'static str, usize),
    /// Seconds pass, and due leases and delays end.
    Wait(u64),
}

use Step::{Pop, Post, Settle, Wait};

/// Depth, adds, retries; queue durations, count and sum; work durations, count and sum; unfinished work,
/// longest running processor. Durations are in seconds.
type Seven = [u64; 9];

/// A workqueue: backoff 1 s, 2 s ..., leases of 30 s.
const KEYS: &[(Step, Seven)] = &[
    (Post("add?key=a"), [1, 1, 0, 0, 0, 0, 0, 0, 0]),
    // a is dirty already.
    (Post("add?key=a"), [1, 1, 0, 0, 0, 0, 0, 0, 0]),
    (Wait(2), [1, 1, 0, 0, 0, 0, 0, 0, 0]),
    (Pop(""), [0, 1, 0, 1, 2, 0, 0, 0, 0]),
    (Wait(3), [0, 1, 0, 1, 2, 0, 0, 3, 3]),
    // A dirty key that is processed counts in the depth.
    (Post("add?key=a"), [1, 2, 0, 1, 2, 0, 0, 3, 3]),
    (Post("add?key=b"), [2, 3, 0, 1, 2, 0, 0, 3, 3]),
    (Wait(1), [2, 3, 0, 1, 2, 0, 0, 4, 4]),
    // a is queued again, behind b, and has waited since the add.
    (Settle("ack", 0), [2, 3, 0, 1, 2, 1, 4, 0, 0]),
    (Pop("?max=1"), [1, 3, 0, 2, 3, 1, 4, 0, 0]),
    (Wait(5), [1, 3, 0, 2, 3, 1, 4, 5, 5]),
    (Pop("?max=1"), [0, 3, 0, 3, 9, 1, 4, 5, 5]),
    (Wait(1), [0, 3, 0, 3, 9, 1, 4, 7, 6]),
    // AddRateLimited and Done: a is ready again after 1 s.
    (Settle("nack", 2), [0, 3, 1, 3, 9, 2, 5, 6, 6]),
    (Wait(1), [1, 4, 1, 3, 9, 2, 5, 7, 7]),
    // AddAfter counts with any delay, and a delay of 0 s adds at once.
    (Post("add?key=c&delay=5s"), [1, 4, 2, 3, 9, 2, 5, 7, 7]),
    (Post("add?key=c&delay=0s"), [2, 5, 3, 3, 9, 2, 5, 7, 7]),
    (Post("add?key=c&delay=0s"), [2, 5, 4, 3, 9, 2, 5, 7, 7]),
    (Post("add?key=d&rate_limited=true"), [2, 5, 5, 3, 9, 2, 5, 7, 7]),
    (Wait(1), [3, 6, 5, 3, 9, 2, 5, 8, 8]),
    // The delay of c elapses, but c is queued already.
    (Wait(4), [3, 6, 5, 3, 9, 2, 5, 12, 12]),
    // The lease of b expires after 30 s, and b is ready again 1 s later.
    (Wait(18), [3, 6, 6, 3, 9, 3, 35, 0, 0]),
    (Wait(1), [4, 7, 6, 3, 9, 3, 35, 0, 0]),
    (Pop("?max=9"), [0, 7, 6, 7, 80, 3, 35, 0, 0]),
    // A release queues the key at once: an Add.
    (Settle("release", 3), [1, 8, 6, 7, 80, 4, 35, 0, 0]),
    (Settle("reject", 4), [1, 8, 6, 7, 80, 5, 35, 0, 0]),
    (Post("parked/redrive"), [2, 9, 6, 7, 80, 5, 35, 0, 0]),
    // Purged keys were not delivered.
    (Post("purge"), [0, 9, 6, 7, 80, 5, 35, 0, 0]),
    // After ShutDown nothing is added or retried. Leased keys can be settled.
    (Post("close"), [0, 9, 6, 7, 80, 5, 35, 0, 0]),
    (Post("add?key=e"), [0, 9, 6, 7, 80, 5, 35, 0, 0]),
    (Post("add?key=e&delay=1s"), [0, 9, 6, 7, 80, 5, 35, 0, 0]),
    (Post("add?key=e&rate_limited=true"), [0, 9, 6, 7, 80, 5, 35, 0, 0]),
    (Wait(2), [0, 9, 6, 7, 80, 5, 35, 4, 2]),
    (Settle("ack", 5), [0, 9, 6, 7, 80, 6, 37, 2, 2]),
];

/// A queue of objects, in which a delivery ends a delay and a new change ends a backoff.
const DELTAS: &[(Step, Seven)] = &[
    (Post("add a"), [1, 1, 0, 0, 0, 0, 0, 0, 0]),
    (Post("update a"), [1, 1, 0, 0, 0, 0, 0, 0, 0]),
    (Pop(""), [0, 1, 0, 1, 0, 0, 0, 0, 0]),
    (Wait(1), [0, 1, 0, 1, 0, 0, 0, 1, 1]),
    (Settle("nack", 0), [0, 1, 1, 1, 0, 1, 1, 0, 0]),
    // A new change for a key in backoff.
    (Post("update a"), [1, 2, 1, 1, 0, 1, 1, 0, 0]),
    (Pop(""), [0, 2, 1, 2, 0, 1, 1, 0, 0]),
    (Post("update a"), [1, 3, 1, 2, 0, 1, 1, 0, 0]),
    (Wait(2), [1, 3, 1, 2, 0, 1, 1, 2, 2]),
    // A new change waits, so the key is queued at once: neither delayed nor rate-limited.
    (Settle("nack", 1), [1, 3, 1, 2, 0, 2, 3, 0, 0]),
    (Pop(""), [0, 3, 1, 3, 2, 2, 3, 0, 0]),
    // A requested delay counts, also a delay of 0 s.
    (Settle("nack 0s", 2), [1, 4, 2, 3, 2, 3, 3, 0, 0]),
    (Post("add b 3s"), [1, 4, 3, 3, 2, 3, 3, 0, 0]),
    (Wait(3), [2, 5, 3, 3, 2, 3, 3, 0, 0]),
    (Pop("?max=2"), [0, 5, 3, 5, 5, 3, 3, 0, 0]),
    (Settle("ack", 3), [0, 5, 3, 5, 5, 4, 3, 0, 0]),
    // A second settle of the same lease counts nothing.
    (Settle("nack", 3), [0, 5, 3, 5, 5, 4, 3, 0, 0]),
];

struct Fixture {
    talk: Talk,
    queue: &'static str,
    leases: Vec<String>,
}

impl Fixture {
    async fn start(queue: &'static str, mode: &str) -> Self {
        let mut talk = Talk::new();
        let backoff = json!({"item_exponential": {"base": "1s", "max": "1h"}, "jitter": 0});
        let config = json!({"mode": mode, "rate_limiter": backoff});
        talk.ask("PUT", &format!("/v1/queues/{queue}"), config).await;
        Self { talk, queue, leases: Vec::new() }
    }

    async fn perform(&mut self, step: &Step) {
        let Self { talk, queue, leases } = self;
        match step {
            Post(text) => {
                let mut words = text.split(' ');
                let call = words.next().unwrap_or_default();
                let object = match words.next() {
                    Some(key) => json!({"key": key}),
                    None if call == "parked/redrive" => json!({"all": true}),
                    None => Value::Null,
                };
                let delay = words.next().map(|delay| format!("?delay={delay}")).unwrap_or_default();
                let reply = talk.post(&format!("{queue}/{call}{delay}"), object).await;
                assert_eq!(reply["status"].as_u64(), None, "{text}: {reply}");
            }
            Pop(query) => {
                let reply = talk.post(&format!("{queue}/pop{query}"), Value::Null).await;
                let items = reply["items"].as_array().expect("items");
                assert!(!items.is_empty(), "nothing is popped");
                leases.extend(items.iter().filter_map(|item| Some(item["lease"]["id"].as_str()?.to_owned())));
            }
            Settle(how, lease) => {
                let (how, delay) =
                    how.split_once(' ').map_or((*how, None), |(how, delay)| (how, Some(delay)));
                let mut body = json!({"lease_ids": [leases[*lease]]});
                if let Some(delay) = delay {
                    body["delay"] = json!(delay);
                }
                talk.post(&format!("{queue}/{how}"), body).await;
            }
            Wait(seconds) => {
                talk.hand.advance(Duration::from_secs(*seconds));
                // The timer sleeps by the real clock. Any call processes the due leases and delays.
                talk.post(&format!("{queue}/forget"), json!({"keys": ["no-such-key"]})).await;
            }
        }
    }

    async fn seven(&self) -> Seven {
        let request = Request::builder().uri("/metrics").body(Body::empty()).expect("a request");
        let response = self.talk.router.clone().oneshot(request).await.expect("routers reply");
        let bytes = to_bytes(response.into_body(), usize::MAX).await.expect("a complete body");
        let page = Page::read(std::str::from_utf8(&bytes).expect("text"));
        let own = page.of_queue(self.queue);
        [
            "depth",
            "adds_total",
            "retries_total",
            "queue_duration_seconds_count",
            "queue_duration_seconds_sum",
            "work_duration_seconds_count",
            "work_duration_seconds_sum",
            "unfinished_work_seconds",
            "longest_running_processor_seconds",
        ]
        .map(|name| {
            let value = own[&format!("workqueue_{name}")];
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "whole small numbers"
            )]
            let whole = value as u64;
            assert!(value.fract().abs() < 1e-9, "{name} is {value}");
            whole
        })
    }
}

async fn follow(mode: &str, script: &[(Step, Seven)]) {
    let mut fixture = Fixture::start("script", mode).await;
    for (number, (step, expected)) in script.iter().enumerate() {
        fixture.perform(step).await;
        assert_eq!(fixture.seven().await, *expected, "{mode}, step {number}");
    }
}

#[tokio::test]
async fn a_queue_of_keys_has_the_metrics_of_a_workqueue() {
    follow("keys", KEYS).await;
}

#[tokio::test]
async fn a_queue_of_objects_has_the_same_metrics() {
    follow("delta", DELTAS).await;
}
