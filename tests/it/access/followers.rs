//! Followers of tenants: a reader of a queue can neither bind its owner nor read on without its grant.

use deltaq::config::access::{GrantEntry, TokenEntry, Verb};
use serde_json::{Value, json};

use super::reload::Fixture;
use super::{token, with_tokens};
use crate::harness::{Reply, Service, within};

const PRICES: &str = "/v1/queues/prices";
const MINE: &str = "/v1/queues/mine";

fn owner() -> TokenEntry {
    token("owner", &Verb::ALL, "prices*")
}

/// A tenant with these verbs on the queue of the owner.
fn tenant(name: &str, verbs: &[Verb], queues: &str) -> TokenEntry {
    let mut tenant = token(name, &Verb::ALL, queues);
    if !verbs.is_empty() {
        tenant.grants.push(GrantEntry {
            verbs: verbs.to_vec(),
            queues: vec!["prices".to_owned()],
            sources: None,
        });
    }
    tenant
}

async fn call(service: &Service, token: &str, method: &str, path: &str, body: Value) -> Reply {
    service.client().await.call_as(token, method, path, &body).await
}

async fn follow(service: &Service, token: &str, queue: &str) -> Reply {
    call(service, token, "PUT", queue, json!({"follow": {"queue": "prices"}})).await
}

async fn add(service: &Service, key: &str) {
    call(service, "owner", "POST", &format!("{PRICES}/add"), json!({"key": key})).await.ok();
}

/// Waits until the follower is in this state, for this reason.
async fn is_in(service: &Service, state: &str, reason: Value) -> Value {
    within(async {
        loop {
            let queue = call(service, "tenant", "GET", MINE, Value::Null).await.ok();
            let follow = &queue["status"]["follow"];
            if follow["state"] == state && follow["reason"] == reason {
                return follow.clone();
            }
        }
    })
    .await
}

/// Waits until the follower has a key.
async fn has(service: &Service, key: &str) {
    let path = format!("{MINE}/latest/{key}");
    within(async { while call(service, "tenant", "GET", &path, Value::Null).await.status != 200 {} }).await;
}

#[tokio::test]
async fn the_owner_of_a_followed_queue_can_change_and_delete_it() {
    let service = with_tokens(vec![owner(), tenant("tenant", &[Verb::Read], "mine*")]).await;
    for change in ["DELETE", "PATCH", "PUT"] {
        call(&service, "owner", "PUT", PRICES, json!({})).await.ok();
        add(&service, "a").await;
        follow(&service, "tenant", MINE).await.ok();
        has(&service, "a").await;
        let body = match change {
            "DELETE" => Value::Null,
            _ => json!({ "known_objects": false, "mode": "delta" }),
        };
        let refused = call(&service, "owner", change, PRICES, body.clone()).await;
        assert!(!refused.text.contains("mine"), "the owner may not read the follower: {}", refused.text);
        let problem = refused.problem("followed");
        assert_eq!(problem["followers"], json!([]));
        assert!(problem["detail"].as_str().is_some_and(|text| text.contains("1 queues that")), "{problem}");
        let document = call(&service, "owner", "GET", PRICES, Value::Null).await.ok();
        assert_eq!(document["status"]["followers"], json!([]), "{document}");
        // A queue with keys keeps known_objects.
        if change != "DELETE" {
            call(&service, "owner", "POST", &format!("{PRICES}/purge"), Value::Null).await.ok();
        }
        let forced = call(&service, "owner", change, &format!("{PRICES}?force=true"), body).await;
        assert!(forced.status < 300, "{}", forced.text);
        let follower = call(&service, "tenant", "GET", MINE, Value::Null).await.ok();
        assert_eq!(follower["settings"]["follow"], Value::Null, "the follower is detached");
        if change == "DELETE" {
            has(&service, "a").await;
        }
        call(&service, "owner", "DELETE", PRICES, Value::Null).await;
        call(&service, "tenant", "DELETE", MINE, Value::Null).await.ok();
    }
}

#[tokio::test]
async fn a_caller_sees_the_followers_that_it_may_read() {
    let both = TokenEntry { grants: token("both", &Verb::ALL, "*").grants, ..token("both", &Verb::ALL, "*") };
    let service = with_tokens(vec![owner(), both, tenant("tenant", &[Verb::Read], "mine*")]).await;
    call(&service, "owner", "PUT", PRICES, json!({})).await.ok();
    follow(&service, "tenant", MINE).await.ok();
    follow(&service, "owner", "/v1/queues/prices--own").await.ok();
    let followers = |token: &'static str| {
        let service = &service;
        async move {
            let refused = call(service, token, "DELETE", PRICES, Value::Null).await.problem("followed");
            let shown =
                call(service, token, "GET", PRICES, Value::Null).await.ok()["status"]["followers"].clone();
            assert_eq!(refused["followers"], shown);
            shown
        }
    };
    assert_eq!(followers("both").await, json!(["mine", "prices--own"]));
    assert_eq!(followers("owner").await, json!(["prices--own"]));
    // The path of a cycle leads through the queue of another tenant.
    let cycle = json!({"follow": {"queue": "prices--own"}});
    let refused = call(&service, "owner", "PUT", &format!("{PRICES}?force=true"), cycle).await;
    assert_eq!(
        refused.problem("invalid-config")["detail"].as_str().map(|text| text.contains("prices--own")),
        Some(true)
    );
}

#[tokio::test]
async fn a_follower_stops_without_the_grant_of_its_token_and_goes_on_with_it() {
    let granted = [owner(), tenant("tenant", &[Verb::Read], "mine*")];
    let expired = TokenEntry {
        expires: Some("2020-01-01T00:00:00Z".to_owned()),
        ..tenant("setter", &[Verb::Read], "mine*")
    };
    let fixture = Fixture::with(&granted).await;
    let service = &fixture.service;
    call(service, "owner", "PUT", PRICES, json!({})).await.ok();
    follow(service, "tenant", MINE).await.ok();
    add(service, "before").await;
    has(service, "before").await;
    for (round, verbs) in [&[][..], &[Verb::Admin, Verb::Produce]].into_iter().enumerate() {
        fixture.reload(&[owner(), tenant("tenant", verbs, "mine*")]).expect("the file is valid");
        let key = format!("secret-{round}");
        add(service, &key).await;
        let status = is_in(service, "blocked", json!("not_granted")).await;
        assert!(status["detail"].as_str().is_some_and(|text| text.contains("\"tenant\"")), "{status}");
        let path = format!("{MINE}/latest/{key}");
        assert_eq!(call(service, "tenant", "GET", &path, Value::Null).await.status, 404);
        fixture.reload(&granted).expect("the file is valid");
        has(service, &key).await;
        is_in(service, "following", Value::Null).await;
    }
    // The follower belongs to the token that has set it up, not to the one that reads it.
    let all = |setter: TokenEntry| [owner(), tenant("tenant", &[Verb::Read], "mine*"), setter];
    fixture.reload(&all(tenant("setter", &[Verb::Read], "mine*"))).expect("the file is valid");
    call(service, "setter", "PUT", MINE, json!({"follow": {"queue": "prices", "prefix": "k"}})).await.ok();
    is_in(service, "following", Value::Null).await;
    fixture.reload(&all(expired)).expect("the file is valid");
    is_in(service, "blocked", json!("not_granted")).await;
    // A token that may read the followed queue takes the follower over.
    follow_prefix(service).await;
    add(service, "key").await;
    has(service, "key").await;
}

async fn follow_prefix(service: &Service) {
    let settings = json!({"follow": {"queue": "prices", "prefix": "k"}});
    call(service, "tenant", "PUT", MINE, settings).await.ok();
}

#[tokio::test]
async fn a_token_sets_up_a_limited_number_of_followers() {
    let tokens =
        vec![owner(), tenant("tenant", &[Verb::Read], "mine*"), tenant("other", &[Verb::Read], "other*")];
    let service = Service::with(|settings| {
        settings.access.tokens = tokens;
        settings.queues.max_followers_per_token = 2;
    })
    .await;
    call(&service, "owner", "PUT", PRICES, json!({})).await.ok();
    let queue = |number: usize| format!("{MINE}{number}");
    for number in 0..2 {
        follow(&service, "tenant", &queue(number)).await.ok();
    }
    let problem = follow(&service, "tenant", &queue(2)).await.problem("invalid-config");
    assert_eq!(problem["limit"], 2);
    call(&service, "tenant", "PUT", &queue(2), json!({})).await.ok();
    let patch = json!({"follow": {"queue": "prices"}});
    call(&service, "tenant", "PATCH", &queue(2), patch.clone()).await.problem("invalid-config");
    follow(&service, "tenant", &queue(1)).await.ok();
    follow(&service, "other", "/v1/queues/other").await.ok();
    follow(&service, "owner", "/v1/queues/prices--own").await.ok();
    call(&service, "tenant", "DELETE", &queue(0), Value::Null).await.ok();
    call(&service, "tenant", "PATCH", &queue(2), patch.clone()).await.ok();
    call(&service, "tenant", "PATCH", &queue(1), json!({"follow": null})).await.ok();
    follow(&service, "tenant", &queue(0)).await.ok();
    follow(&service, "tenant", &queue(3)).await.problem("invalid-config");
}
