//! Webhooks of vendors: signatures, what a delivery changes, repeats, and deliveries that can't be applied.

use std::fmt::Write as _;

use deltaq::config::access::Verb;
use deltaq::config::{SecretFile, Settings};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use tempfile::TempDir;

use super::{QUEUE, status};
use crate::access::token;
use crate::harness::private_file::private_file;
use crate::harness::{Client, Reply, Service};

mod limits;

const SECRET: &str = "It-is-a-secret-of-GitHub";
const HOOK: &str = "/v1/hooks/q";

/// A server with a secret for the queues `q*`, and another one that they may not use.
async fn service() -> (Service, TempDir) {
    service_with(|_| {}).await
}

async fn service_with(more: impl FnOnce(&mut Settings)) -> (Service, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let edit = |settings: &mut Settings| {
        more(settings);
        for (name, text, queues) in [("gh", SECRET, "q*"), ("other", "another-secret-of-16", "elsewhere")] {
            let file = private_file(folder.path(), name, &format!("{text}\n"));
            let secret = SecretFile { file, queues: vec![queues.to_owned()], headers: false };
            settings.hooks.secrets.insert(name.to_owned(), secret);
        }
    };
    (Service::with(edit).await, folder)
}

/// The settings of a queue of GitHub's issues.
fn issues() -> Value {
    json!({"key": ["/node_id"], "version": "/updated_at", "hook": {
        "scheme": "github", "secrets": ["gh"], "object": "/issue",
        "only": [{"header": "x-github-event", "values": ["issues"]},
                 {"pointer": "/action", "values": ["opened", "edited", "deleted"]}],
        "deleted": {"pointer": "/action", "values": ["deleted"]}}})
}

fn body(action: &str, node_id: &str, at: u32, title: &str) -> String {
    format!(
        r#"{{"action":"{action}","issue":{{"node_id":"{node_id}","updated_at":"2026-11-21T04:20:{at:02}Z","title":"{title}"}}}}"#
    )
}

fn signature(secret: &str, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a key of any length");
    mac.update(body.as_bytes());
    let bytes = mac.finalize().into_bytes();
    bytes.iter().fold("sha256=".to_owned(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String has room");
        text
    })
}

/// Sends a delivery as GitHub does.
async fn deliver_as(client: &mut Client, event: &str, id: &str, body: &str) -> Reply {
    let signature = signature(SECRET, body);
    let headers = [
        ("x-github-event", event),
        ("x-github-delivery", id),
        ("x-hub-signature-256", &signature),
        ("content-type", "application/json"),
    ];
    client.send_text("POST", HOOK, &headers, body).await;
    client.reply().await
}

async fn deliver(service: &Service, id: &str, body: &str) -> Value {
    let reply = deliver_as(&mut service.client().await, "issues", id, body).await;
    assert_eq!(reply.status, 202, "{}", reply.text);
    reply.body
}

/// The newest object of a key.
async fn latest(service: &Service, key: &str) -> Option<Value> {
    let reply = service.get(&format!("{QUEUE}/latest/{key}")).await;
    (reply.status == 200).then(|| reply.body["object"].clone())
}

async fn kept(service: &Service) -> Vec<Value> {
    let list = service.get(&format!("{QUEUE}/hook/deliveries")).await.ok();
    list["deliveries"].as_array().expect("a list").clone()
}

#[tokio::test]
async fn a_signed_delivery_changes_its_key_and_a_repeat_changes_nothing() {
    let (service, _folder) = service().await;
    service.call("PUT", QUEUE, &issues()).await.ok();
    let opened = body("opened", "I_1", 1, "Größe");
    let first = deliver(&service, "d-1", &opened).await;
    assert_eq!(
        (&first["accepted"], &first["duplicate"], &first["reason"]),
        (&json!(true), &json!(false), &json!(null))
    );
    let issue = latest(&service, "I_1").await.expect("the issue");
    assert_eq!(issue["title"], "Größe");
    let again = deliver(&service, "d-1", &body("edited", "I_1", 9, "b")).await;
    assert_eq!((&again["accepted"], &again["duplicate"]), (&json!(true), &json!(true)));
    assert_eq!(again["resource_version"], first["resource_version"]);
    let late = deliver(&service, "d-0", &body("edited", "I_1", 0, "older")).await;
    assert_eq!((&late["accepted"], &late["stale"]), (&json!(true), &json!(true)));
    // Two edits of one second are applied in their order.
    for (id, title) in [("d-2", "b"), ("d-3", "c")] {
        assert_eq!(deliver(&service, id, &body("edited", "I_1", 2, title)).await["stale"], false);
    }
    assert_eq!(latest(&service, "I_1").await.expect("the issue")["title"], "c");
    deliver(&service, "d-4", &body("deleted", "I_1", 2, "c")).await;
    assert_eq!(latest(&service, "I_1").await, None);
    assert_eq!(deliver(&service, "d-5", &body("edited", "I_1", 2, "late")).await["stale"], true);
    assert_eq!(latest(&service, "I_1").await, None, "a deletion is final");
}

#[tokio::test]
async fn a_wrong_signature_and_an_unknown_hook_look_alike() {
    let (service, _folder) = service().await;
    service.call("PUT", QUEUE, &issues()).await.ok();
    service.call("PUT", "/v1/queues/q2", &json!({})).await.ok();
    let mut client = service.client().await;
    let text = body("opened", "I_1", 1, "a");
    let mut answers = Vec::new();
    for (path, signature) in [
        (HOOK, signature("It-is-another-secret-!", &text)),
        (HOOK, signature(SECRET, &body("opened", "I_1", 1, "b"))),
        (HOOK, "sha256=".to_owned()),
        ("/v1/hooks/q2", signature(SECRET, &text)),
        ("/v1/hooks/q3", signature(SECRET, &text)),
    ] {
        let headers = [("x-github-event", "issues"), ("x-hub-signature-256", signature.as_str())];
        client.send_text("POST", path, &headers, &text).await;
        let reply = client.reply().await;
        assert_eq!(reply.status, 401, "{}", reply.text);
        let mut problem = reply.body;
        problem["request_id"].take();
        answers.push(problem);
    }
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{answers:?}");
    client.send_text("POST", HOOK, &[], "not JSON").await;
    assert_eq!(client.reply().await.status, 401, "the signature is verified before the body is read");
    assert_eq!(latest(&service, "I_1").await, None);
    assert_eq!(
        status(&service, "hook").await["last_rejected"],
        "signature: the header x-hub-signature-256 is missing"
    );
    assert!(kept(&service).await.is_empty());
}

#[tokio::test]
async fn what_can_not_be_applied_is_kept_and_can_be_delivered_again() {
    let (service, _folder) = service().await;
    service.call("PUT", QUEUE, &issues()).await.ok();
    let mut client = service.client().await;
    let ping = deliver_as(&mut client, "ping", "p-1", r#"{"zen":"Keep it simple."}"#).await;
    assert_eq!(
        (ping.status, &ping.body["accepted"], &ping.body["reason"]),
        (202, &json!(false), &json!("filtered"))
    );
    let keyless = r#"{"action":"opened","issue":{"updated_at":"2026-11-21T04:20:03Z","id":"7"}}"#;
    let long = body("opened", &"x".repeat(1_025), 1, "a");
    for (id, text, reason) in [
        ("d-1", keyless, "no_key"),
        ("d-2", r#"{"action":"opened","issue":{"node_id":"I_2"}}"#, "invalid_object"),
        ("d-3", r#"{"action":"opened"}"#, "no_object"),
        ("d-4", "not JSON", "invalid_json"),
        ("d-5", &long, "invalid_key"),
    ] {
        let answer = deliver(&service, id, text).await;
        assert_eq!((&answer["accepted"], &answer["reason"]), (&json!(false), &json!(reason)), "{answer}");
    }
    assert_eq!(kept(&service).await.len(), 6);
    deliver(&service, "d-1", keyless).await;
    let list = kept(&service).await;
    assert_eq!((list.len(), &list[0]["reason"]), (6, &json!("no_key")), "a repeat is kept once");
    let number = &list[0]["number"];
    let one = service.get(&format!("{QUEUE}/hook/deliveries/{number}")).await.ok();
    assert_eq!((one["body"].as_str(), &one["headers"]["x-github-delivery"]), (Some(keyless), &json!("d-1")));
    assert!(!one.to_string().contains("sha256"), "no signature is kept");
    service.get(&format!("{QUEUE}/hook/deliveries/1")).await.problem("not-found");

    // With another setting the delivery has a key.
    let rekeyed = json!({"key": ["/id"]});
    service.call("PATCH", QUEUE, &rekeyed).await.ok();
    let numbers = json!({"numbers": [number, 1]});
    let done = service.post(&format!("{QUEUE}/hook/deliveries/redeliver"), &numbers).await.ok();
    assert_eq!(done, json!({"applied": 1, "kept": 0, "detail": null}));
    assert!(latest(&service, "7").await.is_some());
    assert_eq!(deliver(&service, "d-1", keyless).await["duplicate"], true);
    let done = service.post(&format!("{QUEUE}/hook/deliveries/redeliver"), &json!({"all": true})).await.ok();
    assert_eq!((&done["applied"], &done["kept"], done["detail"].is_string()), (&json!(0), &json!(4), true));
    let discarded = service.post(&format!("{QUEUE}/hook/deliveries/discard"), &json!({"all": true})).await;
    assert_eq!(discarded.ok(), json!({"deliveries": 5}));
    assert!(kept(&service).await.is_empty());
    for wrong in [json!({}), json!({"numbers": [1], "all": true})] {
        service.post(&format!("{QUEUE}/hook/deliveries/discard"), &wrong).await.problem("invalid-request");
    }
    let page = metrics(&service).await;
    for line in [
        r#"deltaq_hook_rejected_total{queue="q",reason="no_key"} 2"#,
        r#"deltaq_hook_rejected_total{queue="q",reason="filtered"} 1"#,
        r#"deltaq_hook_deliveries_total{queue="q",result="applied"} 1"#,
        r#"deltaq_hook_deliveries_total{queue="q",result="duplicate"} 1"#,
        r#"deltaq_hook_kept_deliveries{queue="q"} 0"#,
    ] {
        assert!(page.contains(line), "{line} in {page}");
    }
}

async fn metrics(service: &Service) -> String {
    let mut client = Client::connect(service.metrics).await;
    client.call("GET", "/metrics", &Value::Null).await.text
}

#[tokio::test]
async fn a_body_that_is_not_utf8_is_kept_and_never_applied() {
    let (service, _folder) = service().await;
    service.call("PUT", QUEUE, &json!({"hook": {"scheme": "gitlab", "secrets": ["gh"]}})).await.ok();
    let mut client = service.client().await;
    let head = format!(
        "POST {HOOK} HTTP/1.1\r\nhost: localhost\r\nx-gitlab-token: {SECRET}\r\ncontent-length: 14\r\n\r\n"
    );
    client.send_bytes(&[head.as_bytes(), b"{\"key\":\"caf\xe9\"}"].concat()).await;
    assert_eq!(client.reply().await.body["reason"], "invalid_json");
    let done = service.post(&format!("{QUEUE}/hook/deliveries/redeliver"), &json!({"all": true})).await.ok();
    assert_eq!((&done["applied"], &done["kept"]), (&json!(0), &json!(1)));
}

#[tokio::test]
async fn a_queue_may_refuse_what_it_can_not_apply() {
    let (service, _folder) = service().await;
    let mut settings = issues();
    settings["hook"]["refuse"] = json!(true);
    service.call("PUT", QUEUE, &settings).await.ok();
    let mut client = service.client().await;
    let problem = deliver_as(&mut client, "issues", "d-1", r#"{"action":"opened","issue":{}}"#).await;
    assert_eq!(problem.problem("invalid-object")["reason"], "no_key");
    assert!(kept(&service).await.is_empty());
    let ping = deliver_as(&mut client, "ping", "d-2", "{}").await;
    assert_eq!((ping.status, &ping.body["reason"]), (202, &json!("filtered")));
    deliver(&service, "d-3", &body("opened", "I_1", 1, "a")).await;
    let schema = json!({"schema": {"required": ["other"]}});
    service.call("PATCH", QUEUE, &schema).await.ok();
    let repeat = deliver(&service, "d-3", &body("opened", "I_1", 1, "a")).await;
    assert_eq!(repeat["duplicate"], true, "its id was applied");
}

#[tokio::test]
async fn a_delivery_waits_at_the_vendor_while_the_queue_is_full() {
    let (service, _folder) = service().await;
    let mut settings = issues();
    settings["max_keys"] = json!(1);
    service.call("PUT", QUEUE, &settings).await.ok();
    deliver(&service, "d-1", &body("opened", "I_1", 1, "a")).await;
    let mut client = service.client().await;
    let second = body("opened", "I_2", 1, "a");
    deliver_as(&mut client, "issues", "d-2", &second).await.problem("queue-full");
    assert!(kept(&service).await.is_empty());
    service.call("PATCH", QUEUE, &json!({"max_keys": 2})).await.ok();
    assert_eq!(deliver(&service, "d-2", &second).await["duplicate"], false, "its id was not used");
}

#[tokio::test]
async fn a_form_is_read_and_a_list_of_the_same_objects_finds_the_same_keys() {
    let (service, _folder) = service().await;
    let mut settings = issues();
    settings["hook"]["source"] = json!("github");
    service.call("PUT", QUEUE, &settings).await.ok();
    let mut client = service.client().await;
    let form = format!("payload={}", body("opened", "I_1", 1, "a+b").replace('"', "%22").replace('+', "%2B"));
    let signature = signature(SECRET, &form);
    let headers = [
        ("content-type", "application/x-www-form-urlencoded"),
        ("x-github-event", "issues"),
        ("x-hub-signature-256", &signature),
    ];
    client.send_text("POST", HOOK, &headers, &form).await;
    assert_eq!(client.reply().await.status, 202);
    assert_eq!(latest(&service, "I_1").await.expect("the issue")["title"], "a+b");
    deliver(&service, "d-2", &body("opened", "I_2", 1, "gone")).await;
    let list = json!([{"node_id": "I_1", "updated_at": "2026-11-21T04:20:01Z", "title": "from the list"}]);
    service.post(&format!("{QUEUE}/replace?source=github&only_changed=true"), &list).await.ok();
    assert_eq!(latest(&service, "I_1").await.expect("the issue")["title"], "from the list");
    assert_eq!(latest(&service, "I_2").await, None, "the list deletes what the hook has brought");
}

#[tokio::test]
async fn a_hook_needs_a_secret_that_its_queue_may_use() {
    let (service, _folder) = service().await;
    for (hook, field) in [
        (json!({"scheme": "github", "secrets": ["other"]}), "hook.secrets"),
        (json!({"scheme": "github", "secrets": ["missing"]}), "hook.secrets"),
        (json!({"scheme": "github"}), "hook.secrets"),
        (json!({"scheme": "hmac", "secrets": ["gh"]}), "hook.signature"),
        (json!({"scheme": "github", "secrets": ["gh"], "only": [{"values": ["a"]}]}), "hook.only"),
    ] {
        let problem = service.call("PUT", QUEUE, &json!({"hook": hook})).await.problem("invalid-config");
        assert_eq!(problem["field"], field, "{problem}");
    }
    let hook = json!({"scheme": "github", "secrets": ["gh"]});
    let keys = json!({"mode": "keys", "hook": hook});
    service.call("PUT", QUEUE, &keys).await.problem("invalid-config");
    service.call("PUT", QUEUE, &json!({"hook": hook})).await.ok();
    assert_eq!(
        service.call("PUT", QUEUE, &json!({})).await.problem("would-remove")["fields"],
        json!(["hook"])
    );
    let text = service.get(&format!("{QUEUE}/settings")).await.text;
    assert!(!text.contains(SECRET), "{text}");
    service.post(&format!("{QUEUE}/hook/deliveries/redeliver"), &json!({"all": true})).await.ok();
    service.call("PATCH", QUEUE, &json!({"hook": null})).await.ok();
    let redeliver = service.post(&format!("{QUEUE}/hook/deliveries/redeliver"), &json!({"all": true})).await;
    redeliver.problem("invalid-config");
}

#[tokio::test]
async fn with_tokens_a_delivery_needs_none_and_setting_a_hook_needs_produce() {
    let edit = |settings: &mut Settings| {
        settings.access.tokens = vec![token("root", &Verb::ALL, "*"), token("admin", &[Verb::Admin], "q*")];
    };
    let (service, _folder) = service_with(edit).await;
    let mut client = service.client().await;
    client.call_as("admin", "PUT", QUEUE, &issues()).await.problem("forbidden");
    client.call_as("root", "PUT", QUEUE, &issues()).await.ok();
    let reply = deliver_as(&mut client, "issues", "d-1", &body("opened", "I_1", 1, "a")).await;
    assert_eq!((reply.status, &reply.body["accepted"]), (202, &json!(true)));
    client.call("GET", &format!("{QUEUE}/hook/deliveries"), &Value::Null).await.problem("unauthorized");
    let all = json!({"all": true});
    let path = format!("{QUEUE}/hook/deliveries/redeliver");
    client.call_as("root", "POST", &path, &all).await.ok();
    client.call_as("admin", "POST", &path, &all).await.problem("forbidden");
}
