//! Authorization: every route of the OpenAPI document, called with every kind of missing or wrong token.

mod activity;
mod expiry;
mod followers;
mod history;
pub(crate) mod reload;
mod seats;
pub(crate) mod tls;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use deltaq::access::digest_text;
use deltaq::config::access::{GrantEntry, TokenEntry, Verb};
use deltaq::server::Error;
use deltaq_runtime::lifecycle::Shutdown;
use serde_json::{Value, json};

use crate::harness::{Client, Reply, Service};

/// The queue that tokens are given for.
const QUEUE: &str = "prices";

/// The verb that each writing operation needs. Reading operations need `read`.
const VERBS: [(&str, Verb); 37] = [
    ("put_queue", Verb::Admin),
    ("patch_queue", Verb::Admin),
    ("plan_settings", Verb::Admin),
    ("delete_queue", Verb::Admin),
    ("pause_queue", Verb::Admin),
    ("test_push", Verb::Admin),
    ("resume_queue", Verb::Admin),
    ("close_queue", Verb::Admin),
    ("reopen_queue", Verb::Admin),
    ("purge_queue", Verb::Admin),
    ("seed", Verb::Admin),
    ("promote_delayed", Verb::Admin),
    ("redrive_parked", Verb::Admin),
    ("discard_parked", Verb::Admin),
    ("redeliver_deliveries", Verb::Admin),
    ("discard_deliveries", Verb::Admin),
    ("add", Verb::Produce),
    ("update", Verb::Produce),
    ("delete", Verb::Produce),
    ("replace", Verb::Produce),
    ("deltas", Verb::Produce),
    ("resync", Verb::Produce),
    ("patch_source", Verb::Produce),
    ("patch_sources", Verb::Produce),
    ("report_reflector", Verb::Produce),
    ("report_source", Verb::Produce),
    ("seen_source", Verb::Produce),
    ("pop", Verb::Consume),
    ("settle", Verb::Consume),
    ("ack", Verb::Consume),
    ("done", Verb::Consume),
    ("nack", Verb::Consume),
    ("release", Verb::Consume),
    ("reject", Verb::Consume),
    ("extend", Verb::Consume),
    ("forget", Verb::Consume),
    ("get_queue", Verb::Read),
];

/// A token whose secret is its name.
pub(crate) fn token(name: &str, verbs: &[Verb], queue: &str) -> TokenEntry {
    let grants = vec![GrantEntry { verbs: verbs.to_vec(), queues: vec![queue.to_owned()], sources: None }];
    let (name, sha256) = (name.to_owned(), digest_text(name));
    TokenEntry {
        name,
        sha256,
        old_sha256: None,
        old_expires: None,
        expires: None,
        rate: None,
        burst: None,
        grants,
    }
}

/// A token for everything.
pub(crate) fn root() -> TokenEntry {
    token("root", &Verb::ALL, "*")
}

/// A server with these tokens.
pub(crate) async fn with_tokens(tokens: Vec<TokenEntry>) -> Service {
    Service::with(|settings| settings.access.tokens = tokens).await
}

async fn call_as(service: &Service, token: &str, method: &str, path: &str) -> Reply {
    service.client().await.call_as(token, method, path, &Value::Null).await
}

struct Operation {
    id: String,
    method: String,
    path: String,
    on_queue: bool,
    is_open: bool,
}

/// All operations of the document, on an existing queue.
fn operations(document: &Value) -> Vec<Operation> {
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        let filled = path.replace("{queue}", QUEUE).replace("{key}", "sku-1").replace("{source}", "erp");
        let filled = filled.replace("{name}", "no-key").replace("{number}", "7");
        assert!(!filled.contains('{'), "{path} has a parameter that this test does not know");
        for (method, operation) in methods.as_object().expect("methods") {
            all.push(Operation {
                id: operation["operationId"].as_str().expect("an id").to_owned(),
                method: method.to_ascii_uppercase(),
                path: filled.clone(),
                on_queue: path.contains("{queue}"),
                is_open: operation["security"] == json!([{}]),
            });
        }
    }
    all
}

#[tokio::test]
async fn calls_without_a_valid_token_are_refused() {
    let mut tokens = vec![root(), token("elsewhere", &Verb::ALL, "other-*")];
    tokens.push(TokenEntry {
        expires: Some("2020-01-01T00:00:00Z".to_owned()),
        ..token("old", &Verb::ALL, "*")
    });
    let service = with_tokens(tokens).await;
    let mut root = service.client().await;
    root.call_as("root", "POST", &format!("/v1/queues/{QUEUE}/add"), &json!({"key":"sku-1"})).await.ok();
    let document = root.call_as("root", "GET", "/openapi.json", &Value::Null).await.ok();
    let before = root.call_as("root", "GET", &format!("/v1/queues/{QUEUE}"), &Value::Null).await.ok();

    assert_eq!(document["security"], json!([{ "token": [] }]), "the document requires a token");
    let operations = operations(&document);
    assert!(operations.len() > 35, "{}", operations.len());
    let open: Vec<&str> = operations
        .iter()
        .filter(|operation| operation.is_open)
        .map(|operation| operation.id.as_str())
        .collect();
    assert_eq!(open, ["receive_hook", "livez", "readyz", "get_problem"]);
    for Operation { id, method, path, on_queue, is_open } in &operations {
        let mut client = service.client().await;
        if *is_open {
            // A delivery needs a signature instead.
            let expected = if id == "receive_hook" { 401 } else { 200 };
            assert_eq!(client.call(method, path, &Value::Null).await.status, expected, "{id}");
            continue;
        }
        let reply = client.call(method, path, &Value::Null).await;
        assert_eq!(reply.header("www-authenticate"), Some("Bearer realm=\"deltaq\""), "{id}");
        reply.problem("unauthorized");
        for wrong in ["old", "wrong", &digest_text("root"), ""] {
            client.call_as(wrong, method, path, &Value::Null).await.problem("unauthorized");
        }
        client.send_text(method, path, &[("authorization", "Basic cm9vdDpyb290")], "").await;
        client.reply().await.problem("unauthorized");
        if *on_queue {
            client.call_as("elsewhere", method, path, &Value::Null).await.problem("forbidden");
        }
    }
    let after = root.call_as("root", "GET", &format!("/v1/queues/{QUEUE}"), &Value::Null).await.ok();
    assert_eq!(without_ages(after), without_ages(before), "a refused call has changed something");
}

fn without_ages(mut document: Value) -> Value {
    document["status"]["oldest_ready_age_ms"] = Value::Null;
    document["status"]["oldest_unacknowledged_age_ms"] = Value::Null;
    document
}

#[tokio::test]
async fn each_verb_permits_only_its_own_calls() {
    let tokens = Verb::ALL.iter().map(|verb| token(verb.as_str(), &[*verb], QUEUE));
    let service = with_tokens(tokens.chain([root()]).collect()).await;
    let document = call_as(&service, "root", "GET", "/openapi.json").await.ok();
    let table: BTreeMap<&str, Verb> = VERBS.into_iter().collect();
    for Operation { id, method, path, on_queue, is_open } in operations(&document) {
        if !on_queue || is_open {
            continue;
        }
        let wanted = table.get(id.as_str()).copied();
        let wanted = wanted.or((method == "GET").then_some(Verb::Read));
        let wanted = wanted.unwrap_or_else(|| panic!("{id} is new: which verb does it need?"));
        // The stream of a watch would not end. A version that is none is refused after the check of the token.
        let path = if id == "watch" { format!("{path}?resource_version=none") } else { path };
        for verb in Verb::ALL {
            let reply = call_as(&service, verb.as_str(), &method, &path).await;
            if verb == wanted {
                assert!(!matches!(reply.status, 401 | 403), "{id} {verb:?}: {}", reply.text);
            } else {
                let detail = reply.problem("forbidden")["detail"].to_string();
                assert!(detail.contains(wanted.as_str()) && detail.contains(QUEUE), "{id}: {detail}");
            }
        }
    }
}

#[tokio::test]
async fn unknown_routes_need_a_token_too() {
    let service = with_tokens(vec![root()]).await;
    for (method, path) in [
        ("GET", "/nowhere"),
        ("POST", "/v1/queues/prices"),
        ("POST", "/v1/queues/prices/nothing"),
        ("GET", "/v1/queues/%70rices"),
        ("GET", "//v1/queues"),
    ] {
        assert_eq!(service.call(method, path, &Value::Null).await.status, 401, "{method} {path}");
    }
    let mut client = service.client().await;
    client.send("HEAD", "/v1/queues/prices/items", &Value::Null).await;
    assert_eq!(client.head().await.expect("a response").0, 401);
    call_as(&service, "root", "GET", "/nowhere").await.problem("not-found");
    call_as(&service, "root", "POST", "/v1/queues/prices").await.problem("method-not-allowed");
}

#[tokio::test]
async fn metrics_need_read_on_every_queue() {
    let tokens = vec![
        token("some", &[Verb::Read], "a*"),
        token("writer", &[Verb::Admin, Verb::Produce, Verb::Consume], "*"),
        token("prometheus", &[Verb::Read], "*"),
    ];
    for has_own_listener in [true, false] {
        let service = Service::with(|settings| {
            settings.access.tokens.clone_from(&tokens);
            if !has_own_listener {
                settings.server.metrics_listen = None;
            }
        })
        .await;
        let mut client = Client::connect(service.metrics).await;
        client.call("GET", "/metrics", &Value::Null).await.problem("unauthorized");
        for name in ["some", "writer"] {
            client.call_as(name, "GET", "/metrics", &Value::Null).await.problem("forbidden");
        }
        assert_eq!(client.call_as("prometheus", "GET", "/metrics", &Value::Null).await.status, 200);
    }
}

#[tokio::test]
async fn a_list_of_queues_has_those_that_the_caller_may_read() {
    let tokens = vec![
        root(),
        token("some", &[Verb::Read], "*-2"),
        token("nothing", &[Verb::Read], "none-*"),
        token("producer", &[Verb::Produce, Verb::Admin], "*"),
    ];
    let service = with_tokens(tokens).await;
    let mut client = service.client().await;
    for name in ["a-1", "a-2", "b-1", "b-2", "c-2"] {
        client.call_as("root", "PUT", &format!("/v1/queues/{name}"), &Value::Null).await.ok();
    }
    for (who, path, names) in [
        ("root", "/v1/queues?prefix=a", json!(["a-1", "a-2"])),
        ("some", "/v1/queues", json!(["a-2", "b-2", "c-2"])),
        ("some", "/v1/queues?prefix=b", json!(["b-2"])),
        ("nothing", "/v1/queues", json!([])),
    ] {
        let body = client.call_as(who, "GET", path, &Value::Null).await.ok();
        let listed: Vec<Value> =
            body["items"].as_array().expect("items").iter().map(|queue| queue["name"].clone()).collect();
        assert_eq!(Value::from(listed), names, "{who} {path}");
    }
    let refused = client.call_as("producer", "GET", "/v1/queues", &Value::Null).await.problem("forbidden");
    assert!(
        refused["detail"].as_str().is_some_and(|detail| detail.contains("read on any queue")),
        "{refused}"
    );
    let first = client.call_as("some", "GET", "/v1/queues?limit=2", &Value::Null).await.ok();
    let next = first["continue"].as_str().expect("another page");
    let path = format!("/v1/queues?limit=2&continue={next}");
    let second = client.call_as("some", "GET", &path, &Value::Null).await.ok();
    assert_eq!((&second["items"][0]["name"], &second["continue"]), (&json!("c-2"), &Value::Null));
}

#[tokio::test]
async fn the_rate_of_a_token_is_enforced() {
    let limited = TokenEntry { rate: Some(1), burst: Some(3), ..token("limited", &Verb::ALL, "*") };
    let service = with_tokens(vec![root(), limited]).await;
    let mut client = service.client().await;
    for _ in 0..3 {
        client.call_as("limited", "GET", "/v1/info", &Value::Null).await.ok();
    }
    let refused = client.call_as("limited", "GET", "/v1/info", &Value::Null).await;
    let wait: u64 = refused.header("retry-after").and_then(|wait| wait.parse().ok()).expect("a time");
    assert_eq!(wait, 1);
    assert_eq!(refused.problem("too-many-requests")["limit"], 1);
    client.call_as("root", "GET", "/v1/info", &Value::Null).await.ok();
}

#[tokio::test]
async fn a_server_without_tokens_listens_on_loopback_only() {
    let anywhere = SocketAddr::from(([0, 0, 0, 0], 0));
    let start = |edit: fn(&mut deltaq::config::Settings)| async move {
        let shutdown = Shutdown::manual(std::time::Duration::ZERO);
        Service::try_with(edit, shutdown).await
    };
    let error_of = |started: Result<Service, Error>| started.err().expect("it must not start").to_string();
    let error = error_of(start(|settings| settings.server.listen = ([0, 0, 0, 0], 0).into()).await);
    assert!(error.contains("server.listen") && error.contains("--insecure"), "{error}");
    let error =
        error_of(start(|settings| settings.server.metrics_listen = Some(([0, 0, 0, 0], 0).into())).await);
    assert!(error.contains("server.metrics_listen"), "{error}");
    let error =
        error_of(start(|settings| settings.server.listen = "[::]:0".parse().expect("an address")).await);
    assert!(error.contains("[::]"), "{error}");

    Service::with(|settings| {
        settings.server.listen = anywhere;
        settings.access.insecure = true;
    })
    .await;
    let guarded = Service::with(|settings| {
        settings.server.listen = anywhere;
        settings.access.tokens = vec![root()];
    })
    .await;
    assert_eq!(
        Client::connect(([127, 0, 0, 1], guarded.api.port()).into())
            .await
            .call("GET", "/v1/info", &Value::Null)
            .await
            .status,
        401
    );
}

#[tokio::test]
async fn a_grant_bound_to_sources_permits_calls_only_in_their_name() {
    let mut bound = token("erp", &[Verb::Produce], "q");
    bound.grants[0].sources = Some(vec!["erp*".to_owned()]);
    let service = with_tokens(vec![root(), bound]).await;
    call_as(&service, "root", "PUT", "/v1/queues/q").await;
    let mut client = service.client().await;
    let object = json!({"key": "a"});
    let delta = |source: Value| json!([{"type": "Updated", "object": {"key": "a"}, "source": source}]);
    for (call, body) in [
        ("add?source=erp", object.clone()),
        ("update?source=erp-eu&sequence=1", object.clone()),
        ("delete?source=erp", object.clone()),
        ("replace?source=erp", json!([object])),
        ("deltas?source=erp", delta(Value::Null)),
        ("deltas", delta(json!("erp"))),
    ] {
        let reply = client.call_as("erp", "POST", &format!("/v1/queues/q/{call}"), &body).await;
        assert_eq!(reply.status, 200, "{call}: {}", reply.text);
    }
    for (call, body) in [
        ("add", object.clone()),
        ("add?source=shop&sequence=1", object.clone()),
        ("update?source=shop", object.clone()),
        ("delete?source=shop", object.clone()),
        ("replace", json!([object])),
        ("replace?source=shop&dry_run=true", json!([object])),
        ("deltas", delta(Value::Null)),
        ("deltas?source=shop", delta(json!("erp"))),
        ("deltas?source=erp", delta(json!("shop"))),
        ("deltas?source=erp&skip_invalid=true", delta(json!("shop"))),
        ("resync", Value::Null),
        ("sources", json!({"source": "shop", "problem": "down"})),
    ] {
        let refused = client.call_as("erp", "POST", &format!("/v1/queues/q/{call}"), &body).await;
        let detail = refused.problem("forbidden")["detail"].to_string();
        assert!(detail.contains("source"), "{call}: {detail}");
    }
    let report = json!({"source": "erp", "problem": "down"});
    assert_eq!(client.call_as("erp", "POST", "/v1/queues/q/sources", &report).await.status, 204);
    let info = client.call_as("erp", "GET", "/v1/info", &Value::Null).await.ok();
    assert_eq!(info["caller"]["grants"][0]["sources"], json!(["erp*"]));
}

#[tokio::test]
async fn a_token_leaves_room_for_the_queues_of_others() {
    let grants = |name| token(name, &[Verb::Produce, Verb::Admin], "*");
    let limited = |tokens: Vec<TokenEntry>| {
        Service::with(|settings| {
            settings.access.tokens = tokens;
            settings.queues.max_queues = 8;
        })
    };
    let service = limited(vec![grants("a"), grants("b")]).await;
    let mut client = service.client().await;
    let add = json!({"key": "k"});
    for number in 0..3 {
        client.call_as("a", "POST", &format!("/v1/queues/a{number}/add"), &add).await.ok();
        let put = client.call_as("a", "PUT", &format!("/v1/queues/b{number}"), &json!({})).await;
        assert_eq!(put.status, 201);
    }
    // Three times what is free. Every call that creates queues counts.
    for (method, call, body) in [
        ("POST", "x/add", add.clone()),
        ("POST", "x/deltas", json!([{"type": "Added", "object": add}])),
        ("POST", "x/replace", json!([add])),
        ("POST", "x/seed", json!([{"object": add}])),
        ("PUT", "x", json!({})),
    ] {
        let refused = client.call_as("a", method, &format!("/v1/queues/{call}"), &body).await;
        let problem = refused.problem("queue-full");
        let detail = problem["detail"].as_str().expect("a text");
        assert!(detail.contains("\"a\" has created 6 queues") && problem["limit"] == 6, "{call}: {problem}");
    }
    client.call_as("a", "POST", "/v1/queues/a0/add", &add).await.ok();
    client.call_as("b", "POST", "/v1/queues/c/add", &add).await.ok();
    client.call_as("b", "POST", "/v1/queues/d/add", &add).await.ok();
    client.call_as("b", "POST", "/v1/queues/e/add", &add).await.problem("queue-full");
    // A deleted queue no longer counts.
    for queue in ["a0", "b0"] {
        assert_eq!(
            client.call_as("b", "DELETE", &format!("/v1/queues/{queue}"), &Value::Null).await.status,
            204
        );
    }
    client.call_as("a", "POST", "/v1/queues/a0/add", &add).await.ok();

    let alone = limited(vec![grants("a")]).await;
    let mut client = alone.client().await;
    for number in 0..8 {
        client.call_as("a", "POST", &format!("/v1/queues/a{number}/add"), &add).await.ok();
    }
}

#[tokio::test]
async fn a_follower_needs_grants_on_both_queues() {
    let mut both = token("both", &Verb::ALL, "prices");
    both.grants.push(GrantEntry {
        verbs: vec![Verb::Admin, Verb::Read],
        queues: vec!["mine".to_owned()],
        sources: None,
    });
    let service = with_tokens(vec![root(), both, token("one", &Verb::ALL, "mine")]).await;
    let put = |token, queue: &'static str| {
        let service = &service;
        async move {
            let follow = json!({"follow": {"queue": "prices"}});
            service.client().await.call_as(token, "PUT", &format!("/v1/queues/{queue}"), &follow).await
        }
    };
    call_as(&service, "root", "PUT", "/v1/queues/prices").await.ok();
    assert!(put("one", "mine").await.problem("forbidden")["detail"].to_string().contains("read"));
    assert_eq!(put("both", "mine").await.status, 201);
    assert_eq!(put("root", "foreign").await.status, 201);
    // Another part of the followed queue needs the grant as well; the same part does not.
    let mut client = service.client().await;
    let follower = json!({"follow": {"queue": "prices", "prefix": "a"}, "lease": "1m"});
    client.call_as("root", "PATCH", "/v1/queues/mine", &follower).await.ok();
    for (method, settings) in [
        ("PATCH", json!({"follow": {"prefix": null}})),
        ("PATCH", json!({"follow": {"view": "known"}})),
        ("PUT", json!({"follow": {"queue": "prices"}})),
    ] {
        client.call_as("one", method, "/v1/queues/mine", &settings).await.problem("forbidden");
    }
    client.call_as("one", "PATCH", "/v1/queues/mine", &json!({"lease": "2m"})).await.ok();
    client.call_as("one", "PUT", "/v1/queues/mine", &follower).await.ok();
    // The owner of the followed queue detaches followers on which it has no grant.
    assert_eq!(call_as(&service, "both", "DELETE", "/v1/queues/prices?force=true").await.status, 204);
    let detached = client.call_as("root", "GET", "/v1/queues/foreign", &Value::Null).await.ok();
    assert_eq!(detached["settings"]["follow"], Value::Null);
}
