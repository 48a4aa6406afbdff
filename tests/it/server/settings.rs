//! PUT replaces the settings of a queue, PATCH merges them, GET shows them; and the conditions of these calls.

use serde_json::{Value, json};

use super::{QUEUE, object};
use crate::harness::{Reply, Service};

const SETTINGS: &str = "/v1/queues/q/settings";

async fn put(service: &Service, settings: Value) -> Reply {
    service.call("PUT", QUEUE, &settings).await
}

async fn patch(service: &Service, settings: Value) -> Reply {
    service.call("PATCH", QUEUE, &settings).await
}

/// The settings and their entity tag.
async fn settings(service: &Service) -> (Value, String) {
    let reply = service.get(SETTINGS).await;
    let etag = reply.header("etag").expect("an entity tag").to_owned();
    (reply.ok(), etag)
}

async fn with(service: &Service, method: &str, header: (&str, &str), settings: &Value) -> Reply {
    service.call_with(method, QUEUE, &[header], settings).await
}

/// Settings of which none has its default.
fn full() -> Value {
    json!({
        "mode": "latest",
        "key": [{"pointer": "/ns", "optional": true}, "/name"],
        "version": "/at",
        "version_ties": "apply",
        "known_objects": true,
        "emit_replaced": false,
        "lease": "90s",
        "max_failures": 3,
        "rate_limiter": {
            "item_exponential": {"base": "1s", "max": "2s"},
            "item_fast_slow": {"fast": "1ms", "slow": "1m", "max_fast": 4},
            "bucket": {"qps": 0.25, "burst": 9},
            "max_wait": "1h",
            "jitter": 0.5
        },
        "debounce": {"quiet": "2s", "max_wait": "10s", "deletes": "now", "lists": true},
        "order": {
            "head_start": null,
            "priority": {"pointer": "/priority", "step": "1m"},
            "initial_list": "-10m",
            "resync": "-5m"
        },
        "groups": {"by": {"key_prefix": "/"}, "max_leased": 14, "rate": {"per_second": 5, "burst": 15}, "overrides": {"acme": {"weight": 13, "max_leased": null, "rate": null}}},
        "max_leased": 15,
        "rate": {"per_second": 0.125, "burst": 16},
        "resync_period": "10h",
        "max_keys": 11,
        "max_object_bytes": 1000,
        "max_deltas_per_key": 12,
        "max_bytes_per_key": 2000,
        "max_delete_percent": 50,
        "max_deletes": 13,
        "retention": {"age": "7d", "bytes": 14},
        "follow": null,
        "push": null,
        "hook": null,
        "cloudevents": {"store": "event", "deleted": [".gone"]},
        "kubernetes": null,
        "owner": "shop",
        "schema": {"properties": {"n": {"type": ["number", "null"], "default": null}}},
        "prune": ["/debug"],
        "ignore": ["/updated_at"],
        "indexes": {"by_city": "/city"},
        "diff": {"array_keys": {"/items": "/sku"}}
    })
}

#[tokio::test]
async fn a_put_replaces_all_settings() {
    let service = Service::start().await;
    let defaults = put(&service, json!({})).await.ok()["settings"].take();
    assert_eq!(put(&service, full()).await.ok()["settings"], full());
    let replaced = put(&service, json!({"mode": "latest", "lease": "1m", "prune": null})).await.ok();
    let mut expected = defaults;
    expected["mode"] = json!("latest");
    expected["lease"] = json!("1m");
    // Except for this one.
    expected["owner"] = json!("shop");
    assert_eq!(replaced["settings"], expected, "a member that is left out or null gets its default");
    // The limiters that an object does not name are off.
    let limiter = json!({"bucket": {"qps": 1, "burst": 2}, "max_wait": null});
    let replaced = put(&service, json!({"mode": "latest", "rate_limiter": limiter})).await.ok();
    assert_eq!(
        replaced["settings"]["rate_limiter"],
        json!({
            "item_exponential": null, "item_fast_slow": null, "bucket": {"qps": 1, "burst": 2}, "max_wait": null,
            "jitter": 0.1
        })
    );
}

#[tokio::test]
async fn the_defaults_are_those_of_the_server() {
    let edit = |settings: &mut deltaq::config::Settings| {
        settings.queue_defaults.max_failures = 7;
        settings.queue_defaults.version = Some("/at".to_owned());
        settings.queue_defaults.mode = deltaq_types::Mode::Latest;
    };
    let service = Service::with(edit).await;
    let created = put(&service, json!({"max_failures": 1, "version": "/n"})).await.ok();
    assert_eq!(created["settings"]["mode"], "latest");
    for reply in [
        put(&service, json!({"version": null})).await,
        patch(&service, json!({"max_failures": null, "version": null})).await,
    ] {
        let settings = &reply.ok()["settings"];
        assert_eq!((&settings["max_failures"], &settings["version"]), (&json!(7), &json!("/at")));
    }
    // The default mode needs no name; another one does.
    put(&service, json!({})).await.ok();
    patch(&service, json!({"mode": "delta"})).await.ok();
    assert_eq!(put(&service, json!({})).await.problem("would-remove")["fields"], json!(["mode"]));
    assert_eq!(put(&service, json!({"mode": "latest"})).await.ok()["settings"]["mode"], "latest");
}

#[tokio::test]
async fn a_put_that_would_remove_what_a_queue_is_changes_nothing() {
    let service = Service::start().await;
    service.call("PUT", "/v1/queues/prices", &json!({})).await.ok();
    let follower = json!({"mode": "latest", "follow": {"queue": "prices", "prefix": "a"}, "lease": "1h"});
    put(&service, follower.clone()).await.ok();
    let before = settings(&service).await;
    for (wrong, fields) in [
        (json!({"lease": "1m"}), json!(["follow", "mode"])),
        (json!({"lease": "1m", "mode": "latest"}), json!(["follow"])),
        (json!({"lease": "1m", "mode": "latest", "follow": null}), json!(["follow"])),
        (json!({"lease": "1m", "mode": null, "follow": {"queue": "prices"}}), json!(["mode"])),
    ] {
        let problem = put(&service, wrong.clone()).await.problem("would-remove");
        assert_eq!((&problem["fields"], &problem["status"]), (&fields, &json!(409)), "{wrong}");
        assert_eq!(settings(&service).await, before, "{wrong}");
    }
    let mut changed = follower;
    changed["lease"] = json!("1m");
    assert_eq!(put(&service, changed).await.ok()["settings"]["lease"], "1m");
    let detached = patch(&service, json!({"follow": null, "mode": null})).await.ok();
    assert_eq!(
        (&detached["settings"]["follow"], &detached["settings"]["mode"]),
        (&json!(null), &json!("delta"))
    );
    put(&service, json!({})).await.ok();
}

#[tokio::test]
async fn a_queue_keeps_its_owner_until_it_is_named() {
    let service = Service::start().await;
    assert_eq!(put(&service, json!({})).await.ok()["settings"]["owner"], Value::Null);
    put(&service, json!({"owner": "shop"})).await.ok();
    for kept in [put(&service, json!({"lease": "1m"})).await, patch(&service, json!({"lease": "2m"})).await] {
        assert_eq!(kept.ok()["settings"]["owner"], "shop");
    }
    let plan = service.post(&format!("{QUEUE}/settings/plan"), &json!({})).await.ok();
    assert_eq!(plan["planned"]["owner"], "shop");
    assert_eq!(put(&service, json!({"owner": null})).await.ok()["settings"]["owner"], Value::Null);
    for wrong in [json!("A"), json!(""), json!(5), json!("a".repeat(129))] {
        let problem = put(&service, json!({"owner": wrong})).await.problem("invalid-config");
        assert!(problem["detail"].as_str().expect("text").contains("owner"), "{problem}");
    }
}

#[tokio::test]
async fn a_deletion_may_expect_settings() {
    let service = Service::start().await;
    put(&service, json!({"owner": "shop"})).await.ok();
    let (_, tag) = settings(&service).await;
    patch(&service, json!({"owner": null})).await.ok();
    let deleted = |tag: String| {
        let service = &service;
        async move { service.call_with("DELETE", QUEUE, &[("if-match", &*tag)], &Value::Null).await }
    };
    deleted(tag).await.problem("precondition-failed");
    let (_, tag) = settings(&service).await;
    assert_eq!(deleted(tag).await.status, 204);
    assert_eq!(deleted("*".to_owned()).await.status, 404);
}

#[tokio::test]
async fn a_change_to_mode_events_does_not_remove_debounce_silently() {
    let service = Service::start().await;
    put(&service, json!({"debounce": {"quiet": "2s"}})).await.ok();
    let before = settings(&service).await;
    let refused = patch(&service, json!({"mode": "events"})).await.problem("would-remove");
    assert_eq!((&refused["fields"], &refused["status"]), (&json!(["debounce"]), &json!(409)));
    assert_eq!(settings(&service).await, before);
    let changed = patch(&service, json!({"mode": "events", "debounce": null})).await.ok();
    assert_eq!(
        (&changed["settings"]["mode"], &changed["settings"]["debounce"]),
        (&json!("events"), &json!(null))
    );
}

#[tokio::test]
async fn a_queue_turns_off_a_default_debounce() {
    let edit = |settings: &mut deltaq::config::Settings| {
        let debounce = json!({"quiet": "1h", "max_wait": null, "deletes": "debounced", "lists": false});
        settings.queue_defaults.debounce = serde_json::from_value(debounce).expect("a debounce");
    };
    let service = Service::with(edit).await;
    put(&service, json!({})).await.ok();
    let (shown, _) = settings(&service).await;
    assert_eq!(shown["debounce"]["quiet"], "1h");
    patch(&service, json!({"debounce": {"quiet": "0s"}})).await.ok();
    let (shown, _) = settings(&service).await;
    assert_eq!(shown["debounce"]["quiet"], "0s");
    service.post(&format!("{QUEUE}/add"), &json!({"key": "a"})).await.ok();
    assert_eq!(service.get(&format!("{QUEUE}/items/a")).await.ok()["state"], "ready");
}

#[tokio::test]
async fn a_patch_merges() {
    let service = Service::start().await;
    patch(&service, json!({"lease": "1m"})).await.problem("queue-not-found");
    assert_eq!(service.get(QUEUE).await.status, 404, "a PATCH creates no queue");
    put(&service, full()).await.ok();
    let merge = json!({
        "lease": null,
        "rate_limiter": {"item_exponential": {"max": "5s"}, "bucket": null, "jitter": null},
        "retention": {"age": null},
        "schema": {"required": ["n"]},
        "indexes": {"by_city": null, "by_n": "/n"}
    });
    let patched = patch(&service, merge).await.ok()["settings"].take();
    let mut expected = full();
    expected["lease"] = json!("30s");
    expected["rate_limiter"]["item_exponential"]["max"] = json!("5s");
    expected["rate_limiter"]["bucket"] = Value::Null;
    expected["rate_limiter"]["jitter"] = json!(0.1);
    expected["retention"]["age"] = Value::Null;
    expected["schema"] = json!({"required": ["n"]});
    expected["indexes"] = json!({"by_n": "/n"});
    assert_eq!(patched, expected);
    let patched =
        patch(&service, json!({"schema": null, "rate_limiter": null})).await.ok()["settings"].take();
    assert_eq!(patched["schema"], Value::Null);
    assert_eq!(patched["rate_limiter"]["item_exponential"], json!({"base": "5ms", "max": "1000s"}));
    // The result is checked as a whole.
    let problem = patch(&service, json!({"rate_limiter": {"item_exponential": {"base": null}}})).await;
    assert_eq!(problem.problem("invalid-config")["field"], "rate_limiter.item_exponential.base");
    let problem = patch(&service, json!({"follow": {"prefix": "a"}})).await.problem("invalid-config");
    assert_eq!(problem["field"], "follow.queue");
}

#[tokio::test]
async fn a_patch_may_be_a_merge_patch() {
    let service = Service::start().await;
    put(&service, json!({})).await.ok();
    let merge_patch = ("content-type", "application/merge-patch+json");
    let patched = with(&service, "PATCH", merge_patch, &json!({"lease": "1m"})).await.ok();
    assert_eq!(patched["settings"]["lease"], "1m");
    with(&service, "PUT", merge_patch, &json!({})).await.problem("unsupported-media-type");
}

#[tokio::test]
async fn the_settings_are_the_document_that_a_put_takes() {
    let service = Service::start().await;
    for given in [json!({}), json!({"mode": "keys"}), full()] {
        let created = put(&service, given.clone()).await;
        let etag = created.header("etag").map(str::to_owned);
        let document = created.ok()["settings"].take();
        assert_eq!(settings(&service).await, (document.clone(), etag.expect("an entity tag")));
        let again = put(&service, document.clone()).await;
        assert_eq!(again.header("etag"), Some(&*settings(&service).await.1), "{given}");
        assert_eq!(again.ok()["settings"], document, "{given}");
        service.call("DELETE", QUEUE, &Value::Null).await;
    }
    // The follower of a queue, too, on a server whose queues have a version by default.
    let service = Service::with(|settings| settings.queue_defaults.version = Some("/at".to_owned())).await;
    service.call("PUT", "/v1/queues/prices", &json!({})).await.ok();
    let follower = put(&service, json!({"follow": {"queue": "prices"}})).await.ok()["settings"].take();
    assert_eq!(put(&service, follower.clone()).await.ok()["settings"], follower);
    let (_, etag) = settings(&service).await;
    let known = service.call_with("GET", SETTINGS, &[("if-none-match", &etag)], &Value::Null).await;
    assert_eq!((known.status, known.text.as_str()), (304, ""));
    let other = service.call_with("GET", SETTINGS, &[("if-none-match", "\"other\"")], &Value::Null).await;
    assert_eq!(other.status, 200);
}

#[tokio::test]
async fn the_digits_of_a_schema_are_kept() {
    let service = Service::start().await;
    let body = r#"{"schema":{"properties":{"n":{"minimum":0.10,"default":1e400}}}}"#;
    let mut client = service.client().await;
    for method in ["PUT", "PATCH"] {
        client.send_text(method, QUEUE, &[], body).await;
        client.reply().await.ok();
        let shown = service.get(SETTINGS).await.text;
        assert!(
            shown.contains(r#""schema":{"properties":{"n":{"minimum":0.10,"default":1e400}}}"#),
            "{shown}"
        );
    }
    patch(&service, json!({"lease": "1m"})).await.ok();
    assert!(service.get(SETTINGS).await.text.contains(r#""minimum":0.10,"default":1e400"#));
}

#[tokio::test]
async fn a_change_of_other_settings_than_expected_is_refused() {
    let service = Service::start().await;
    for method in ["PUT", "PATCH"] {
        let missing = with(&service, method, ("if-match", "*"), &json!({})).await;
        let code = if method == "PUT" { "precondition-failed" } else { "queue-not-found" };
        missing.problem(code);
        assert_eq!(service.get(QUEUE).await.status, 404);
    }
    assert_eq!(with(&service, "PUT", ("if-none-match", "*"), &json!({"lease": "1h"})).await.status, 201);
    let (_, first) = settings(&service).await;
    patch(&service, json!({"lease": "2h"})).await.ok();
    let before = settings(&service).await;
    for method in ["PUT", "PATCH"] {
        for header in [("if-match", &*first), ("if-match", "\"a\", W/\"b\""), ("if-none-match", "*")] {
            let refused = with(&service, method, header, &json!({"lease": "3h"})).await;
            assert_eq!(refused.problem("precondition-failed")["status"], 412, "{method} {header:?}");
            assert_eq!(settings(&service).await, before, "{method} {header:?}");
        }
        let tags = format!("\"a\", W/{}", settings(&service).await.1);
        for header in [("if-match", &*tags), ("if-match", "*"), ("if-none-match", "\"a\"")] {
            let lease = json!({"lease": "4h"});
            assert_eq!(with(&service, method, header, &lease).await.ok()["settings"]["lease"], "4h");
            patch(&service, json!({"lease": "2h"})).await.ok();
        }
    }
    // A condition that fails is reported before settings that would be removed, and those before wrong values.
    patch(&service, json!({"mode": "latest"})).await.ok();
    let wrong = json!({"lease": "1us"});
    with(&service, "PUT", ("if-match", "\"a\""), &wrong).await.problem("precondition-failed");
    put(&service, wrong.clone()).await.problem("would-remove");
}

#[tokio::test]
async fn of_two_changes_of_the_same_settings_one_wins() {
    let service = Service::start().await;
    put(&service, json!({})).await.ok();
    for round in 0..20 {
        let (_, etag) = settings(&service).await;
        let header = ("if-match", &*etag);
        let changes = [json!({"max_keys": 100 + round}), json!({"max_deletes": 100 + round})];
        let (one, other) = tokio::join!(
            with(&service, "PATCH", header, &changes[0]),
            with(&service, "PATCH", header, &changes[1])
        );
        let mut statuses = [one.status, other.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 412]);
    }
}

#[tokio::test]
async fn of_two_creations_one_wins() {
    let service = Service::start().await;
    for number in 0..20 {
        let path = format!("/v1/queues/q{number}");
        let create = || service.call_with("PUT", &path, &[("if-none-match", "*")], &Value::Null);
        let (one, other) = tokio::join!(create(), create());
        let mut statuses = [one.status, other.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 412]);
    }
}

#[tokio::test]
async fn a_condition_that_a_call_does_not_support_is_refused() {
    let service = Service::start().await;
    service.post(&format!("{QUEUE}/add"), &object("a")).await.ok();
    let date = "Sat, 21 Nov 2026 04:20:03 GMT";
    for (method, path, header, value) in [
        ("GET", QUEUE, "if-none-match", "\"a\""),
        ("GET", SETTINGS, "if-match", "*"),
        ("GET", SETTINGS, "if-modified-since", date),
        ("GET", "/v1/queues/q/latest/a", "if-unmodified-since", date),
        ("GET", "/v1/queues", "if-range", "\"a\""),
        ("POST", "/v1/queues/q/purge", "if-match", "*"),
        ("POST", "/v1/queues/q/resync", "if-none-match", "*"),
        ("PUT", QUEUE, "if-unmodified-since", date),
        ("DELETE", QUEUE, "if-none-match", "*"),
    ] {
        let refused = service.call_with(method, path, &[(header, value)], &Value::Null).await;
        let problem = refused.problem("invalid-request");
        assert_eq!(problem["header"], header, "{method} {path}");
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains(header)), "{problem}");
    }
    assert_eq!(service.get(QUEUE).await.ok()["status"]["ready"], 1, "nothing was changed");
    // A health check is no call of the API, and a browser sends what it likes.
    let health = service.call_with("GET", "/livez", &[("if-modified-since", date)], &Value::Null).await;
    assert_eq!(health.status, 200);
}

/// The reply to a change shows what this change made, with its entity tag: who goes on with the tag of the reply must not undo what
/// another caller has changed in between.
#[tokio::test]
async fn the_reply_shows_the_settings_that_the_call_made() {
    let service = Service::start().await;
    put(&service, json!({})).await.ok();
    let callers = (1..=4_u32).map(|caller| {
        let service = &service;
        async move {
            for round in 0..50 {
                let mine = caller * 1_000 + round;
                let reply = patch(service, json!({"max_failures": mine})).await;
                assert_eq!(reply.ok()["settings"]["max_failures"], mine);
            }
        }
    });
    futures_util::future::join_all(callers).await;
}

/// PUT creates a queue that is deleted meanwhile.
#[tokio::test]
async fn a_put_beside_deletions_creates_the_queue() {
    let service = Service::start().await;
    let deleting = async {
        for _ in 0..100 {
            service.call("DELETE", QUEUE, &Value::Null).await;
        }
    };
    let putting = async {
        for round in 0..100 {
            put(&service, json!({"max_failures": round})).await.ok();
        }
    };
    futures_util::future::join3(deleting, putting, async { put(&service, json!({})).await.ok() }).await;
}

#[tokio::test]
async fn a_patch_of_the_mode_removes_no_groups() {
    let service = Service::start().await;
    put(&service, json!({"groups": {"by": "/tenant", "max_leased": 2}})).await.ok();
    let refused = patch(&service, json!({"mode": "keys"})).await.problem("would-remove");
    assert_eq!(refused["fields"], json!(["groups"]));
    let changed = patch(&service, json!({"mode": "keys", "groups": null})).await.ok();
    assert_eq!(
        (&changed["settings"]["mode"], &changed["settings"]["groups"]),
        (&json!("keys"), &Value::Null)
    );
}

#[tokio::test]
async fn a_plan_is_what_a_put_makes_and_changes_nothing() {
    let service = Service::start().await;
    let plan = async |settings: Value| service.call("POST", "/v1/queues/q/settings/plan", &settings).await;
    let fresh = plan(json!({"lease": "90s"})).await.ok();
    assert_eq!(
        (&fresh["current"], &fresh["etag"], &fresh["planned"]["lease"]),
        (&Value::Null, &Value::Null, &json!("90s"))
    );
    assert_eq!(service.get(SETTINGS).await.status, 404, "a plan creates no queue");
    // A PUT would refuse to remove the mode.
    put(&service, full()).await.ok();
    let (current, etag) = settings(&service).await;
    let planned = plan(json!({"key": "/id"})).await.ok();
    assert_eq!((&planned["current"], planned["etag"].as_str()), (&current, Some(&*etag)));
    assert_eq!((&planned["planned"]["mode"], &planned["planned"]["key"]), (&json!("delta"), &json!(["/id"])));
    assert_eq!(settings(&service).await, (current.clone(), etag));
    let repeated = plan(current.clone()).await.ok();
    assert_eq!(repeated["planned"], current);
    plan(json!({"lease": "-1s"})).await.problem("invalid-config");
    plan(json!({"leese": "1s"})).await.problem("invalid-request");
    service.call("POST", "/v1/queues/q/add", &json!({"ns": "a", "name": "b", "at": 1})).await.ok();
    plan(json!({"mode": "events"})).await.problem("immutable-config");
    plan(json!({"mode": "latest", "follow": {"queue": "later"}})).await.problem("immutable-config");
}
