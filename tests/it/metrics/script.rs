//! A sequence of calls over HTTP and what the seven `workqueue_*` are after each, with a clock that the
//! test moves.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::page::Page;
use crate::contract::Talk;

/// What happens.
enum Step {
    /// A POST below the queue.
    Post(&'static str),
    /// A pop; its leases are numbered from 0 on, in the order in which they come.
    Pop(&'static str),
    /// A settle of one of these leases.
    Settle(&'static str, usize),
    /// Seconds pass, and what is due happens.
    Wait(u64),
}

use Step::{Pop, Post, Settle, Wait};

/// Depth, adds, retries; queue durations, count and sum; work durations, count and sum; unfinished work,
/// longest running processor. Durations are in seconds.
type Seven = [u64; 9];

/// A workqueue: backoff 1 s, 2 s ..., leases of 30 s.
const KEYS: &[(Step, Seven)] = &[
    (Post("add?key=a"), [1, 1, 0, 0, 0, 0, 0, 0, 0]),
    // It is dirty already.
    (Post("add?key=a"), [1, 1, 0, 0, 0, 0, 0, 0, 0]),
    (Wait(2), [1, 1, 0, 0, 0, 0, 0, 0, 0]),
    (Pop(""), [0, 1, 0, 1, 2, 0, 0, 0, 0]),
    (Wait(3), [0, 1, 0, 1, 2, 0, 0, 3, 3]),
    // Dirty while it is processed: that counts in the depth.
    (Post("add?key=a"), [1, 2, 0, 1, 2, 0, 0, 3, 3]),
    (Post("add?key=b"), [2, 3, 0, 1, 2, 0, 0, 3, 3]),
    (Wait(1), [2, 3, 0, 1, 2, 0, 0, 4, 4]),
    // It is in line again, behind b, and has waited since it was added.
    (Settle("ack", 0), [2, 3, 0, 1, 2, 1, 4, 0, 0]),
    (Pop("?max=1"), [1, 3, 0, 2, 3, 1, 4, 0, 0]),
    (Wait(5), [1, 3, 0, 2, 3, 1, 4, 5, 5]),
    (Pop("?max=1"), [0, 3, 0, 3, 9, 1, 4, 5, 5]),
    (Wait(1), [0, 3, 0, 3, 9, 1, 4, 7, 6]),
    // AddRateLimited and Done: a is back after 1 s.
    (Settle("nack", 2), [0, 3, 1, 3, 9, 2, 5, 6, 6]),
    (Wait(1), [1, 4, 1, 3, 9, 2, 5, 7, 7]),
    // AddAfter counts whatever the delay is, and a delay of none adds at once.
    (Post("add?key=c&delay=5s"), [1, 4, 2, 3, 9, 2, 5, 7, 7]),
    (Post("add?key=c&delay=0s"), [2, 5, 3, 3, 9, 2, 5, 7, 7]),
    (Post("add?key=c&delay=0s"), [2, 5, 4, 3, 9, 2, 5, 7, 7]),
    (Post("add?key=d&rate_limited=true"), [2, 5, 5, 3, 9, 2, 5, 7, 7]),
    (Wait(1), [3, 6, 5, 3, 9, 2, 5, 8, 8]),
    // c fires, but is in line.
    (Wait(4), [3, 6, 5, 3, 9, 2, 5, 12, 12]),
    // b's lease ends by itself after 30 s, and b is back 1 s after that.
    (Wait(18), [3, 6, 6, 3, 9, 3, 35, 0, 0]),
    (Wait(1), [4, 7, 6, 3, 9, 3, 35, 0, 0]),
    (Pop("?max=9"), [0, 7, 6, 7, 80, 3, 35, 0, 0]),
    // To the tail at once: an Add.
    (Settle("release", 3), [1, 8, 6, 7, 80, 4, 35, 0, 0]),
    (Settle("reject", 4), [1, 8, 6, 7, 80, 5, 35, 0, 0]),
    (Post("parked/redrive"), [2, 9, 6, 7, 80, 5, 35, 0, 0]),
    // What is dropped was never handed out.
    (Post("purge"), [0, 9, 6, 7, 80, 5, 35, 0, 0]),
    // After ShutDown nothing is added or retried; what is in process can be settled.
    (Post("close"), [0, 9, 6, 7, 80, 5, 35, 0, 0]),
    (Post("add?key=e"), [0, 9, 6, 7, 80, 5, 35, 0, 0]),
    (Post("add?key=e&delay=1s"), [0, 9, 6, 7, 80, 5, 35, 0, 0]),
    (Post("add?key=e&rate_limited=true"), [0, 9, 6, 7, 80, 5, 35, 0, 0]),
    (Wait(2), [0, 9, 6, 7, 80, 5, 35, 4, 2]),
    (Settle("ack", 5), [0, 9, 6, 7, 80, 6, 37, 2, 2]),
];

/// A queue of objects, where a delay drops with the handing out and news ends a backoff.
const DELTAS: &[(Step, Seven)] = &[
    (Post("add a"), [1, 1, 0, 0, 0, 0, 0, 0, 0]),
    (Post("update a"), [1, 1, 0, 0, 0, 0, 0, 0, 0]),
    (Pop(""), [0, 1, 0, 1, 0, 0, 0, 0, 0]),
    (Wait(1), [0, 1, 0, 1, 0, 0, 0, 1, 1]),
    (Settle("nack", 0), [0, 1, 1, 1, 0, 1, 1, 0, 0]),
    // News for a key in backoff.
    (Post("update a"), [1, 2, 1, 1, 0, 1, 1, 0, 0]),
    (Pop(""), [0, 2, 1, 2, 0, 1, 1, 0, 0]),
    (Post("update a"), [1, 3, 1, 2, 0, 1, 1, 0, 0]),
    (Wait(2), [1, 3, 1, 2, 0, 1, 1, 2, 2]),
    // To the tail at once, as there is news: neither delayed nor rate-limited.
    (Settle("nack", 1), [1, 3, 1, 2, 0, 2, 3, 0, 0]),
    (Pop(""), [0, 3, 1, 3, 2, 2, 3, 0, 0]),
    // A delay that was asked for counts, also if it is none.
    (Settle("nack 0s", 2), [1, 4, 2, 3, 2, 3, 3, 0, 0]),
    (Post("add b 3s"), [1, 4, 3, 3, 2, 3, 3, 0, 0]),
    (Wait(3), [2, 5, 3, 3, 2, 3, 3, 0, 0]),
    (Pop("?max=2"), [0, 5, 3, 5, 5, 3, 3, 0, 0]),
    (Settle("ack", 3), [0, 5, 3, 5, 5, 4, 3, 0, 0]),
    // Too late: no second end of the same lease.
    (Settle("nack", 3), [0, 5, 3, 5, 5, 4, 3, 0, 0]),
];

struct Scene {
    talk: Talk,
    queue: &'static str,
    leases: Vec<String>,
}

impl Scene {
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
                let object = words.next().map_or(Value::Null, |key| json!({"key": key}));
                let delay = words.next().map(|delay| format!("?delay={delay}")).unwrap_or_default();
                let answer = talk.post(&format!("{queue}/{call}{delay}"), object).await;
                assert_eq!(answer["status"].as_u64(), None, "{text}: {answer}");
            }
            Pop(query) => {
                let answer = talk.post(&format!("{queue}/pop{query}"), Value::Null).await;
                let items = answer["items"].as_array().expect("items");
                assert!(!items.is_empty(), "nothing is popped");
                leases.extend(items.iter().filter_map(|item| Some(item["lease"]["id"].as_str()?.to_owned())));
            }
            Settle(how, lease) => {
                let (how, delay) =
                    how.split_once(' ').map_or((*how, None), |(how, delay)| (how, Some(delay)));
                let mut body = json!({"leases": [leases[*lease]]});
                if let Some(delay) = delay {
                    body["delay"] = json!(delay);
                }
                talk.post(&format!("{queue}/{how}"), body).await;
            }
            Wait(seconds) => {
                talk.hand.advance(Duration::from_secs(*seconds));
                // The timer sleeps by a clock that nobody moves; any call lets happen what is due.
                talk.post(&format!("{queue}/forget"), json!({"keys": ["no-such-key"]})).await;
            }
        }
    }

    async fn seven(&self) -> Seven {
        let request = Request::builder().uri("/metrics").body(Body::empty()).expect("a request");
        let answer = self.talk.router.clone().oneshot(request).await.expect("routers answer");
        let bytes = to_bytes(answer.into_body(), usize::MAX).await.expect("a whole body");
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
    let mut scene = Scene::start("script", mode).await;
    for (number, (step, expected)) in script.iter().enumerate() {
        scene.perform(step).await;
        assert_eq!(scene.seven().await, *expected, "{mode}, step {number}");
    }
}

#[tokio::test]
async fn a_queue_of_keys_measures_as_a_workqueue_does() {
    follow("keys", KEYS).await;
}

#[tokio::test]
async fn a_queue_of_objects_measures_by_the_same_rules() {
    follow("delta", DELTAS).await;
}
