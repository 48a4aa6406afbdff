//! Calls that wait for a turn after their authorization: a token that is revoked meanwhile changes nothing and reads nothing.

use axum::http::StatusCode;
use deltaq_engine::command::{Progress, Replace};
use deltaq_engine::limits::REPLACES_MAX;
use deltaq_runtime::clock::ManualClock;
use deltaq_service::{Creator, Handle, Name};
use serde_json::json;

use super::*;
use crate::access::{Access, Tokens, digest_text};
use crate::config::access::{GrantEntry, TokenEntry, Verb};
use crate::http::blocking::{CHECKS, COMPILATIONS, ComputationPermit, Computations, RENDERINGS};

fn token(name: &str, verbs: &[Verb], source: Option<&str>) -> TokenEntry {
    let sources = source.map(|source| vec![source.to_owned()]);
    let grants = vec![GrantEntry { verbs: verbs.to_vec(), queues: vec!["*".to_owned()], sources }];
    TokenEntry {
        name: name.to_owned(),
        sha256: digest_text(name),
        old_sha256: None,
        old_expires: None,
        expires: None,
        rate: None,
        burst: None,
        grants,
    }
}

/// The token `root`, and these.
fn tokens(others: &[TokenEntry]) -> Tokens {
    let root = token("root", &Verb::ALL, None);
    Tokens::new(&[&[root], others].concat(), &Tokens::default()).unwrap()
}

struct Fixture {
    state: AppState,
    router: Router,
    clock: ManualClock,
}

impl Fixture {
    fn new() -> Self {
        let (clock, hand) = Clock::manual(1);
        let state = state(Gate { access: Access::new(tokens(&[])), ..Gate::open() }, clock, HOUR);
        Self { router: crate::http::router(state.clone()), state, clock: hand }
    }

    async fn call(&self, token: &str, (method, path): (&str, &str), body: &Value) -> (StatusCode, Value) {
        let request = Request::builder().method(method).uri(format!("/v1/queues/{path}"));
        let request = request.header("authorization", format!("Bearer {token}"));
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = request.header("content-type", "application/json").body(Body::from(body)).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    async fn root(&self, method: &str, path: &str, body: Value) -> Value {
        let (status, body) = self.call("root", (method, path), &body).await;
        assert!(status.is_success(), "{path}: {body}");
        body
    }

    async fn get(&self, path: &str) -> Value {
        self.root("GET", path, Value::Null).await
    }

    /// The numbers of ready, leased and known keys.
    async fn keys(&self) -> [u64; 3] {
        let status = self.get("q/status").await;
        ["ready", "leased", "known"].map(|name| status[name].as_u64().unwrap())
    }

    /// Makes a call that waits for what is `held`, replaces its token, and releases what is held. Returns the code of the refusal.
    async fn refused<H>(
        &self,
        call: (&str, &str),
        body: Value,
        (held, release): (H, impl AsyncFnOnce(H)),
        others: &[TokenEntry],
    ) -> String {
        self.state.gate.access.replace(tokens(&[token("old", &Verb::ALL, None)]));
        let answer = self.call("old", call, &body);
        tokio::pin!(answer);
        for _ in 0..100 {
            let polled = futures_util::poll!(&mut answer);
            assert!(polled.is_pending(), "{call:?} does not wait: {polled:?}");
            tokio::task::yield_now().await;
        }
        self.clock.advance(Duration::from_secs(1));
        self.state.gate.access.replace(tokens(others));
        let ((_, refusal), ()) = tokio::join!(answer, release(held));
        refusal["code"].as_str().unwrap_or_else(|| panic!("{call:?}: {refusal}")).to_owned()
    }

    /// The same for permits and a token that is gone.
    async fn is_unauthorized(&self, call: (&str, &str), body: Value, permits: impl Send) -> bool {
        self.refused(call, body, (permits, async |permits| drop(permits)), &[]).await == "unauthorized"
    }
}

/// Takes all permits of a kind.
async fn all(of: &'static Computations, permits: usize) -> Vec<ComputationPermit> {
    let creator = Creator { token: None, shares: false };
    let mut taken = Vec::new();
    for _ in 0..permits {
        taken.push(of.permit(&creator).await);
    }
    taken
}

#[tokio::test]
async fn a_call_that_waits_for_a_computation_does_nothing() {
    let fixture = Fixture::new();
    fixture.root("PUT", "q", json!({})).await;
    for call in [("PUT", "q"), ("PUT", "new"), ("PATCH", "q")] {
        let settings = json!({ "schema": { "required": ["n"] } });
        assert!(fixture.is_unauthorized(call, settings, all(&COMPILATIONS, 2).await).await, "{call:?}");
    }
    assert_eq!(fixture.get("q/settings").await["schema"], Value::Null);
    fixture.root("PATCH", "q", json!({ "schema": { "required": ["n"] } })).await;
    let object = json!({ "key": "a", "n": 1 });
    for (path, body) in [
        ("q/add", json!([object])),
        ("q/replace?count=1", json!([object])),
        ("q/seed", json!([{ "key": "a", "object": object }])),
        ("new/replace?dry_run=true&count=1", json!([object])),
    ] {
        assert!(fixture.is_unauthorized(("POST", path), body, all(&CHECKS, 48).await).await, "{path}");
    }
    assert_eq!(fixture.keys().await, [0, 0, 0]);
}

#[tokio::test]
async fn a_pop_that_waits_for_its_rendering_returns_its_keys() {
    let fixture = Fixture::new();
    fixture.root("POST", "q/add", json!([{ "key": "a", "text": "x".repeat(300_000) }])).await;
    let permits = all(&RENDERINGS, 16).await;
    assert!(fixture.is_unauthorized(("POST", "q/pop"), Value::Null, permits).await);
    let popped = fixture.root("POST", "q/pop", Value::Null).await;
    assert_eq!(popped["items"][0]["key"], "a", "the key is back in the queue");
}

#[tokio::test]
async fn a_large_body_that_waits_to_be_parsed_does_nothing() {
    let fixture = Fixture::new();
    fixture.root("PUT", "q", json!({ "lease": "1h" })).await;
    fixture.root("POST", "q/add", json!([{ "key": "a" }])).await;
    let popped = fixture.root("POST", "q/pop", Value::Null).await;
    let lease = popped["items"][0]["lease"]["id"].as_str().unwrap().to_owned();
    let filler = " ".repeat(40 << 10);
    for (path, body) in [
        ("q/ack", json!({ "lease_ids": [lease, filler] })),
        ("q/add", json!([{ "key": "b", "text": filler }])),
        ("q/parked/redrive", json!({ "keys": ["a", filler] })),
    ] {
        let parsers = fixture.state.gate.in_flight.large_bodies.clone();
        let every = u32::try_from(parsers.available_permits()).unwrap();
        let permits = parsers.acquire_many_owned(every).await.unwrap();
        assert!(fixture.is_unauthorized(("POST", path), body, permits).await, "{path}");
    }
    assert_eq!(fixture.keys().await, [0, 1, 0]);
}

fn empty_list() -> Replace {
    Replace::new(std::iter::empty().collect(), None)
}

#[tokio::test]
async fn a_replace_that_waits_for_others_changes_nothing() {
    let fixture = Fixture::new();
    let gone: &[TokenEntry] = &[];
    let reads = &[token("old", &[Verb::Read], None)];
    let of_another_source = &[token("old", &[Verb::Produce], Some("hr"))];
    for dry_run in [false, true] {
        for (others, code) in [(gone, "unauthorized"), (reads, "forbidden"), (of_another_source, "forbidden")]
        {
            fixture.root("PUT", "q", json!({})).await;
            let handle: Arc<Handle> = fixture.state.partitions.get(&Name::new("q").unwrap()).unwrap();
            let mut held = Vec::new();
            for _ in 1..REPLACES_MAX {
                let accepted = handle
                    .long_command(|queue, now| Ok(Progress::Done(queue.accept_replace(now, empty_list())?)));
                held.push(accepted.await.unwrap());
            }
            let release = async |held: Vec<_>| {
                let full = handle.read(|queue, _| queue.check_replace(&empty_list())).await.unwrap();
                assert!(full.is_err(), "the Replace of the call waits");
                for id in held {
                    handle.long_command(move |queue, now| queue.replace_step(now, id, 100)).await.unwrap();
                }
            };
            let path = format!("q/replace?source=erp&count=1&dry_run={dry_run}");
            let body = json!([{ "key": "a" }]);
            assert_eq!(fixture.refused(("POST", &path), body.clone(), (held, release), others).await, code);
            assert_eq!(fixture.keys().await, [0, 0, 0]);
            fixture.root("POST", "q/replace?source=erp&count=1", body).await;
            fixture.root("DELETE", "q?force=true", Value::Null).await;
        }
    }
}
