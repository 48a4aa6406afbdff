//! The audit log.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use deltaq::config::AuditCalls;
use deltaq::config::access::{TokenEntry, Verb};
use serde_json::{Value, json};

use crate::access::{root, token};
use crate::harness::Service;

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("a whole line")).collect()
}

async fn audited(path: PathBuf, calls: AuditCalls) -> Service {
    Service::with(|settings| {
        settings.access.tokens = vec![root(), token("producer", &[Verb::Produce], "prices")];
        settings.audit.calls = calls;
        settings.audit.file = Some(path);
    })
    .await
}

/// A request of each kind.
async fn traffic(service: &Service) {
    let mut client = service.client().await;
    let object = json!([{ "key": "sku-1", "text": "payload" }, { "key": "sku-2" }]);
    client.call_as("producer", "POST", "/v1/queues/prices/add", &object).await.ok();
    client.call_as("producer", "POST", "/v1/queues/prices/purge", &Value::Null).await.problem("forbidden");
    client.call_as("not-a-token", "GET", "/v1/queues", &Value::Null).await.problem("unauthorized");
    client.call_as("root", "GET", "/v1/queues/prices", &Value::Null).await.ok();
    client.call("GET", "/readyz", &Value::Null).await;
    client.call_as("root", "POST", "/v1/queues/prices/purge", &Value::Null).await.ok();
    client
        .call_as("root", "PUT", "/v1/queues/prices", &json!({ "lease": "1us" }))
        .await
        .problem("invalid-config");
}

async fn stopped(service: Service) {
    service.shutdown.signal();
    service.stopped().await;
}

#[tokio::test]
async fn admin_and_refused_requests_are_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    let service = audited(path.clone(), AuditCalls::Admin).await;
    traffic(&service).await;
    stopped(service).await;
    let lines = lines(&path);
    let recorded: Vec<Value> = lines
        .iter()
        .map(|line| {
            json!([
                line["who"],
                line["verb"],
                line["method"],
                line["route"],
                line["operation"],
                line["queue"],
                line["keys"],
                line["outcome"],
                line["status"]
            ])
        })
        .collect();
    let queue = "/v1/queues/{queue}";
    assert_eq!(
        recorded,
        [
            json!([
                "producer",
                "admin",
                "POST",
                format!("{queue}/purge"),
                null,
                "prices",
                null,
                "forbidden",
                403
            ]),
            json!([null, null, "GET", "/v1/queues", null, null, null, "unauthorized", 401]),
            json!(["root", "admin", "POST", format!("{queue}/purge"), "purge_queue", "prices", 2, "ok", 200]),
            json!(["root", "admin", "PUT", queue, "put_queue", "prices", null, "invalid-config", 422]),
        ]
    );
    for line in &lines {
        assert!(line["from"].as_str().is_some_and(|from| from.starts_with("127.0.0.1:")), "{line}");
        assert!(line["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{line}");
        assert!(line["request_id"].is_string(), "{line}");
        assert!(!line.to_string().contains("not-a-token"), "a token is in the audit log: {line}");
    }
}

#[tokio::test]
async fn all_requests_are_recorded_if_configured() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    let service = audited(path.clone(), AuditCalls::All).await;
    traffic(&service).await;
    stopped(service).await;
    let lines = lines(&path);
    assert_eq!(lines.len(), 6, "all but the health check: {lines:#?}");
    assert_eq!((&lines[0]["who"], &lines[0]["keys"]), (&json!("producer"), &json!(2)));
    assert!(!std::fs::read_to_string(&path).expect("a file").contains("payload"));
}

#[tokio::test]
async fn a_disconnected_client_is_recorded_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    let service = audited(path.clone(), AuditCalls::Admin).await;
    let mut client = service.client().await;
    client.call_as("root", "POST", "/v1/queues/prices/add", &json!({ "key": "a" })).await.ok();
    let close = "/v1/queues/prices/close?drain=true&wait=30s";
    client.send_text("POST", close, &[("authorization", "Bearer root")], "").await;
    let mut other = service.client().await;
    while other.call_as("root", "GET", "/v1/queues/prices", &Value::Null).await.ok()["status"]["closed"]
        != true
    {}
    drop(client);
    while lines(&path).is_empty() {
        tokio::task::yield_now().await;
    }
    let line = lines(&path).remove(0);
    assert_eq!(
        (&line["outcome"], &line["status"], &line["queue"]),
        (&json!("gone"), &Value::Null, &json!("prices"))
    );
}

#[tokio::test]
async fn a_reload_opens_the_file_again_after_a_rotation() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, rotated) = (folder.path().join("audit.jsonl"), folder.path().join("audit.jsonl.1"));
    let service = audited(path.clone(), AuditCalls::All).await;
    let mut client = service.client().await;
    client.call_as("root", "GET", "/v1/info", &Value::Null).await.ok();
    while lines(&path).is_empty() {
        tokio::task::yield_now().await;
    }
    std::fs::rename(&path, &rotated).expect("a file");
    client.call_as("root", "GET", "/v1/queues", &Value::Null).await.ok();
    while lines(&rotated).len() < 2 {
        tokio::task::yield_now().await;
    }
    service.reloadable.reload().expect("nothing to read");
    client.call_as("root", "GET", "/v1/queues/none", &Value::Null).await;
    stopped(service).await;
    let routes = |path| -> Vec<Value> { lines(path).into_iter().map(|line| line["route"].clone()).collect() };
    assert_eq!(routes(&rotated), ["/v1/info", "/v1/queues"], "the moved file is written until the reload");
    assert_eq!(routes(&path), ["/v1/queues/{queue}"]);
    let mode = std::fs::metadata(&path).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "only the server's user reads it");
}

#[tokio::test]
async fn authorized_admin_requests_are_recorded_whatever_the_reply() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    let service = Service::with(|settings| {
        settings.access.tokens = vec![root()];
        settings.audit.file = Some(path.clone());
        settings.queues.max_queues = 1;
    })
    .await;
    let mut client = service.client().await;
    client.call_as("root", "PUT", "/v1/queues/prices", &json!({})).await.ok();
    // More than the limit of refusals per caller and second.
    for _ in 0..250 {
        let refused = client.call_as("root", "PUT", "/v1/queues/stock", &json!({})).await;
        assert_eq!(refused.problem("queue-full")["status"], 429);
    }
    stopped(service).await;
    let refused = lines(&path).into_iter().filter(|line| line["outcome"] == "queue-full");
    assert_eq!(refused.count(), 250);
}

#[tokio::test]
async fn refused_callers_cannot_flood_the_audit_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    let service = Service::with(|settings| {
        let limited = TokenEntry { rate: Some(1), ..token("limited", &[Verb::Read], "*") };
        let refused = TokenEntry { rate: Some(1), ..token("refused", &[Verb::Produce], "*") };
        let old =
            TokenEntry { expires: Some("2020-01-01T00:00:00Z".to_owned()), ..token("old", &Verb::ALL, "*") };
        settings.access.tokens =
            vec![root(), token("producer", &[Verb::Produce], "prices"), limited, refused, old];
        settings.audit.file = Some(path.clone());
    })
    .await;
    let purge = "/v1/queues/prices/purge";
    let begun = tokio::time::Instant::now();
    let (mut client, mut forbidden) = (service.client().await, 0);
    for _ in 0..400 {
        client.call_as("not-a-token", "POST", purge, &Value::Null).await.problem("unauthorized");
        let foreign = [("authorization", "Bearer root"), ("origin", "http://elsewhere.example")];
        client.send_text("POST", purge, &foreign, "").await;
        client.reply().await.problem("cross-site");
        client.call_as("limited", "GET", "/v1/queues", &Value::Null).await;
        client.call_as("producer", "POST", purge, &Value::Null).await.problem("forbidden");
        forbidden += usize::from(client.call_as("refused", "POST", purge, &Value::Null).await.status == 403);
        let expired = client.call_as("old", "GET", "/v1/queues", &Value::Null).await;
        assert!(
            !expired.problem("unauthorized").to_string().contains("\"old\""),
            "the reply does not name the token"
        );
        client.call_as("root", "DELETE", "/v1/queues/none", &Value::Null).await;
    }
    let seconds = usize::try_from(begun.elapsed().as_secs()).expect("few");
    stopped(service).await;
    let lines = lines(&path);
    let count = |name: &str, value: &str| lines.iter().filter(|line| line[name] == value).count();
    assert_eq!(count("who", "root"), 400, "no admin request is suppressed");
    let suppressed = |who: &Value| -> u64 {
        lines.iter().filter(|line| line["who"] == *who).filter_map(|line| line["suppressed"].as_u64()).sum()
    };
    let unauthenticated = lines
        .iter()
        .filter(|line| matches!(line["outcome"].as_str(), Some("unauthorized" | "cross-site")))
        .filter(|line| line["who"].is_null())
        .count();
    let most = 100 * (seconds + 2);
    assert!(unauthenticated <= most, "{unauthenticated} in {seconds} seconds");
    assert_eq!(unauthenticated as u64 + suppressed(&Value::Null), 800, "each is written or counted");
    for (who, outcome) in [("producer", "forbidden"), ("old", "unauthorized")] {
        let own = lines.iter().filter(|line| line["who"] == who && line["outcome"] == outcome).count();
        assert!((100..=most).contains(&own), "{own} of {who} in {seconds} seconds");
        assert_eq!(own as u64 + suppressed(&json!(who)), 400, "each is written or counted");
    }
    assert!(forbidden <= seconds + 2, "{forbidden} forbidden requests were within the rate");
    let limited = lines.iter().filter(|line| line["who"] == "limited" && line["outcome"].is_string()).count();
    assert!((100..=most).contains(&limited), "{limited} in {seconds} seconds");
    assert!(
        limited as u64 + suppressed(&json!("limited")) >= 398 - seconds as u64,
        "each is written or counted"
    );
}
