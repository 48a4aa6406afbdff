//! Reloading the token file while the server runs.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use deltaq::access::{TokenChanges, digest_text};
use deltaq::config::Settings;
use deltaq::config::access::{TokenEntry, Verb};
use deltaq::server::{Error, Reloaded};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{root, token};
use crate::harness::{Client, Service, spawn, within};

/// A token file, and a server that reads it.
pub(crate) struct Fixture {
    folder: TempDir,
    pub(crate) service: Service,
}

impl Fixture {
    pub(crate) async fn with(tokens: &[TokenEntry]) -> Self {
        Self::edited(tokens, |_| {}).await
    }

    /// The same, with settings as `edit` changes them.
    pub(crate) async fn edited(tokens: &[TokenEntry], edit: impl FnOnce(&mut Settings)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tokens.toml");
        write(&folder, tokens);
        let is_empty = tokens.is_empty();
        let service = Service::with(|settings| {
            settings.access.tokens_file = Some(path);
            settings.access.insecure = is_empty;
            edit(settings);
        });
        Self { folder, service: service.await }
    }

    pub(crate) fn reload(&self, tokens: &[TokenEntry]) -> Result<Reloaded, Vec<Error>> {
        write(&self.folder, tokens);
        self.service.reloadable.reload()
    }
}

fn write(folder: &TempDir, tokens: &[TokenEntry]) {
    let text = toml::to_string(&json!({ "tokens": tokens })).expect("tokens are TOML");
    std::fs::write(folder.path().join("tokens.toml"), text).expect("a file");
}

#[tokio::test]
async fn the_first_token_ends_open_access() {
    let fixture = Fixture::with(&[]).await;
    let mut client = fixture.service.client().await;
    client.call("GET", "/v1/queues", &Value::Null).await.ok();
    fixture.reload(&[root()]).expect("the file is valid");
    client.call("GET", "/v1/queues", &Value::Null).await.problem("unauthorized");
    client.call_as("root", "GET", "/v1/queues", &Value::Null).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_under_load_drops_no_request() {
    let fixture = Fixture::with(&[root(), token("old", &Verb::ALL, "*")]).await;
    let api = fixture.service.api;
    fixture.service.client().await.call_as("root", "PUT", "/v1/queues/idle", &json!({})).await.ok();
    let mut poll = fixture.service.client().await;
    poll.send_text("POST", "/v1/queues/idle/pop?wait=30s", &[("authorization", "Bearer old")], "").await;
    let idle = "/v1/queues/idle";
    let mut reader = fixture.service.client().await;
    while reader.call_as("root", "GET", idle, &Value::Null).await.body["status"]["waiters"] != 1 {
        tokio::task::yield_now().await;
    }
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let workers = (0..8).map(|worker| {
        let (stop, done) = (stop.clone(), done.clone());
        spawn(async move {
            let mut client = Client::connect(api).await;
            while !stop.load(Ordering::Relaxed) {
                let queue = format!("/v1/queues/load-{worker}");
                client.call_as("root", "POST", &format!("{queue}/add"), &json!({"key":"a"})).await.ok();
                let popped = client.call_as("root", "POST", &format!("{queue}/pop"), &Value::Null).await.ok();
                let leases = json!({ "lease_ids": [popped["items"][0]["lease"]["id"]] });
                client.call_as("root", "POST", &format!("{queue}/ack"), &leases).await.ok();
                done.fetch_add(1, Ordering::Relaxed);
            }
        })
    });
    let workers: Vec<_> = workers.collect();
    for round in 0..50 {
        let before = done.load(Ordering::Relaxed);
        let tokens = [root(), token(&format!("new-{round}"), &Verb::ALL, "*")];
        fixture.reload(&tokens).expect("the file is valid");
        let mut client = Client::connect(api).await;
        let name = format!("new-{round}");
        client.call_as(&name, "GET", "/v1/queues", &Value::Null).await.ok();
        client.call_as("old", "GET", "/v1/queues", &Value::Null).await.problem("unauthorized");
        while done.load(Ordering::Relaxed) == before {
            tokio::task::yield_now().await;
        }
    }
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        within(worker).await.expect("no request with a valid token was refused");
    }
    // The poll has waited since the token was valid. Its key returns to the queue.
    let mut client = Client::connect(api).await;
    client.call_as("root", "POST", "/v1/queues/idle/add", &json!({"key":"a"})).await.ok();
    poll.reply().await.problem("unauthorized");
    let popped = client.call_as("root", "POST", "/v1/queues/idle/pop?wait=30s", &Value::Null).await.ok();
    assert_eq!(popped["items"][0]["key"], "a");
}

#[tokio::test]
async fn a_waiting_call_of_a_revoked_token_gets_nothing() {
    let calls = [
        ("POST", "pop?wait=30s", ""),
        ("GET", "watch?wait=30s", "application/json"),
        ("GET", "synced?wait=30s", ""),
        ("GET", "synced?wait=30s&resource_version=now", ""),
        ("POST", "close?drain=true&wait=30s", ""),
    ];
    for (tokens, authorization) in
        [(&[root(), token("old", &Verb::ALL, "*")][..], "Bearer old"), (&[], "none")]
    {
        for (method, call, accept) in calls {
            let fixture = Fixture::with(tokens).await;
            let mut client = fixture.service.client().await;
            client.call_as("root", "PUT", "/v1/queues/q", &json!({})).await;
            // The first add makes a queue synced.
            if !["pop?wait=30s", "synced?wait=30s"].contains(&call) {
                client.call_as("root", "POST", "/v1/queues/q/add", &json!({"key": "a"})).await.ok();
                client.call_as("root", "POST", "/v1/queues/q/pop?lease_duration=1h", &Value::Null).await.ok();
            }
            let version = client.call_as("root", "GET", "/v1/queues/q/status", &Value::Null).await.ok();
            let since = &version["resource_version"];
            let call = call.replace("watch?", &format!("watch?resource_version={since}&"));
            let mut waiting = fixture.service.client().await;
            let headers = [("authorization", authorization), ("accept", accept)];
            let headers = if accept.is_empty() { &headers[..1] } else { &headers };
            waiting.send_text(method, &format!("/v1/queues/q/{call}"), headers, "").await;
            let mut scrape = Client::connect(fixture.service.metrics).await;
            let in_flight = "\ndeltaq_http_requests_in_flight 2\n";
            while !scrape.call_as("root", "GET", "/metrics", &Value::Null).await.text.contains(in_flight) {
                tokio::task::yield_now().await;
            }
            fixture.reload(&[root()]).expect("the file is valid");
            // Each of these ends the wait of one of the calls.
            client.call_as("root", "POST", "/v1/queues/q/add", &json!({"key": "secret"})).await;
            client.call_as("root", "POST", "/v1/queues/q/purge", &Value::Null).await;
            client.call_as("root", "DELETE", "/v1/queues/q?force=true", &Value::Null).await;
            let refused = waiting.reply().await;
            assert!(!refused.text.contains("secret"), "{call}: {}", refused.text);
            assert_eq!(refused.status, 401, "{call}: {}", refused.text);
        }
    }
}

#[tokio::test]
async fn an_invalid_token_file_changes_nothing() {
    let fixture = Fixture::with(&[root()]).await;
    let mut client = fixture.service.client().await;
    let twice = fixture.reload(&[root(), root()]).expect_err("one name twice");
    assert!(matches!(twice[..], [Error::Access { .. }]), "{twice:?}");
    let none = fixture.reload(&[]).expect_err("an empty file would open the server to everyone");
    assert!(matches!(none[..], [Error::LastToken]), "{none:?}");
    std::fs::write(fixture.folder.path().join("tokens.toml"), "tokens = 1").expect("a file");
    let wrong = fixture.service.reloadable.reload().expect_err("not a list");
    assert!(matches!(wrong[..], [Error::Tokens { .. }]), "{wrong:?}");
    std::fs::remove_file(fixture.folder.path().join("tokens.toml")).expect("a file");
    fixture.service.reloadable.reload().expect_err("no file");
    client.call("GET", "/v1/info", &Value::Null).await.problem("unauthorized");
    client.call_as("root", "GET", "/v1/info", &Value::Null).await.ok();
}

#[tokio::test]
async fn a_token_file_that_others_can_write_is_refused() {
    let fixture = Fixture::with(&[root()]).await;
    let path = fixture.folder.path().join("tokens.toml");
    for (mode, is_accepted) in [(0o600, true), (0o660, true), (0o644, true), (0o602, false), (0o666, false)] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("a mode");
        let reloaded = fixture.service.reloadable.reload();
        assert_eq!(reloaded.is_ok(), is_accepted, "{mode:o}: {reloaded:?}");
        if let Err(errors) = reloaded {
            let text = deltaq_runtime::causes::with_causes(&errors[0]);
            assert!(text.contains("can write the token file") && text.contains("tokens.toml"), "{text}");
        }
    }
    let mut client = fixture.service.client().await;
    client.call_as("root", "GET", "/v1/info", &Value::Null).await.ok();
}

#[tokio::test]
async fn errors_of_token_files_do_not_show_secrets() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tokens.toml");
    let secret = format!("dq_{}", "5ec2e75e".repeat(8));
    let hash = format!("sha256 = \"{}\"", "0".repeat(64));
    let grants = "grants = [{ verbs = [\"read\"], queues = [\"*\"] }]";
    for text in [
        format!("[[tokens]]\nname = \"a\"\nsha256 = \"{secret}\"\n{grants}\n"),
        format!("[[tokens]]\nname = \"a\"\ntoken = \"{secret}\"\n{grants}\n"),
        format!("[[tokens]]\nname = \"a\"\nsha256 = {secret}\n{grants}\n"),
        format!("tokens = [\"{secret}\"]\n"),
        format!("tokens = \"{secret}\"\n"),
        format!("{secret} = \"erp\"\n"),
        format!("[{secret}]\n"),
        format!("[[tokens]]\n{secret} = \"erp\"\n{hash}\n{grants}\n"),
        format!("[[tokens]]\nname = \"{secret}\"\n{hash}\n{grants}\n"),
        format!("[[tokens]]\nname = \"a\"\nname = \"{secret}\"\n{hash}\n{grants}\n"),
        format!("[[tokens]]\nname = \"a\"\n{hash}\ngrants = \"{secret}\"\n"),
        format!("[[tokens]]\nname = \"a\"\n{hash}\ngrants = [\"{secret}\"]\n"),
        format!(
            "[[tokens]]\nname = \"a\"\n{hash}\ngrants = [{{ verbs = [\"{secret}\"], queues = [\"*\"] }}]\n"
        ),
        format!("[[tokens]]\nname = \"a\"\n{hash}\ngrants = [{{ verbs = [], queues = [\"A{secret}\"] }}]\n"),
        format!(
            "[[tokens]]\nname = \"a\"\n{hash}\ngrants = [{{ verbs = [\"read\"], queues = [\"A{secret}\"] }}]\n"
        ),
        format!("[[tokens]]\nname = \"a\"\n{hash}\nexpires = \"{secret}\"\n{grants}\n"),
        format!("[[tokens]]\nname = \"a\"\n{hash}\nrate = \"{secret}\"\n{grants}\n"),
        String::new(),
    ] {
        std::fs::write(&path, &text).expect("a file");
        let started = Service::try_with(
            |settings| settings.access.tokens_file = Some(path.clone()),
            deltaq_runtime::lifecycle::Shutdown::manual(std::time::Duration::ZERO),
        );
        let error = started.await.err().expect("it must not start");
        let shown = format!("{error:?} {}", deltaq_runtime::causes::with_causes(&error));
        assert!(!shown.contains("5ec2e7"), "{shown}");
        let place = ["tokens.toml", "token \"a\"", "token number 1"];
        assert!(place.iter().any(|place| shown.contains(place)), "{shown}");
    }
}

/// Begins a request whose body the server waits for.
async fn waiting_for_a_body(fixture: &Fixture, call: &str, length: usize) -> Client {
    let mut client = fixture.service.client().await;
    let head = format!(
        "POST /v1/queues/q/{call} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer old\r\n\
         content-type: application/x-ndjson\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n"
    );
    client.send_bytes(head.as_bytes()).await;
    assert_eq!(client.head().await.expect("a head").0, 100);
    client
}

#[tokio::test]
async fn a_token_revoked_during_a_body_does_not_finish_the_request() {
    let old = token("old", &Verb::ALL, "*");
    let body = "{\"key\":\"a\"}\n";
    for call in ["replace?count=1", "add"] {
        let fixture = Fixture::with(&[root(), old.clone()]).await;
        let mut client = waiting_for_a_body(&fixture, call, body.len()).await;
        fixture.reload(&[root()]).expect("the file is valid");
        client.send_bytes(body.as_bytes()).await;
        client.reply().await.problem("unauthorized");
        let mut root = fixture.service.client().await;
        let read = root.call_as("root", "GET", "/v1/queues/q", &Value::Null).await;
        assert!(read.status == 404 || read.body["status"]["keys"] == 0, "{call}: {}", read.text);
    }
}

#[tokio::test]
async fn a_grant_lost_during_a_body_does_not_finish_the_request() {
    let fixture = Fixture::with(&[root(), token("old", &Verb::ALL, "*")]).await;
    let body = "{\"key\":\"a\"}\n";
    let mut client = waiting_for_a_body(&fixture, "replace?count=1", body.len()).await;
    fixture.reload(&[root(), token("old", &[Verb::Read], "*")]).expect("the file is valid");
    client.send_bytes(body.as_bytes()).await;
    client.reply().await.problem("forbidden");
    let mut client = waiting_for_a_kept_token(&fixture, body.len()).await;
    client.send_bytes(body.as_bytes()).await;
    client.reply().await.ok();
}

#[tokio::test]
async fn a_source_lost_during_a_body_does_not_finish_the_request() {
    let bound = |source: &str| {
        let mut entry = token("old", &[Verb::Produce], "*");
        entry.grants[0].sources = Some(vec![source.to_owned()]);
        entry
    };
    let object = "{\"key\":\"a\"}\n";
    let delta = "{\"type\":\"Added\",\"source\":\"erp\",\"object\":{\"key\":\"a\"}}\n";
    for (call, body) in [
        ("add?source=erp", object),
        ("replace?source=erp&count=1", object),
        ("deltas", delta),
        ("delete?source=erp", object),
    ] {
        let fixture = Fixture::with(&[root(), bound("erp")]).await;
        let mut root_client = fixture.service.client().await;
        root_client.call_as("root", "PUT", "/v1/queues/q", &json!({})).await.ok();
        let mut client = waiting_for_a_body(&fixture, call, body.len()).await;
        fixture.reload(&[root(), bound("erp")]).expect("the file is valid");
        client.send_bytes(body.as_bytes()).await;
        client.reply().await.ok();
        let before = root_client.call_as("root", "GET", "/v1/queues/q", &Value::Null).await.ok();
        let mut client = waiting_for_a_body(&fixture, call, body.len()).await;
        fixture.reload(&[root(), bound("hr")]).expect("the file is valid");
        client.send_bytes(body.as_bytes()).await;
        client.reply().await.problem("forbidden");
        let after = root_client.call_as("root", "GET", "/v1/queues/q", &Value::Null).await.ok();
        let version = |queue: &Value| queue["status"]["resource_version"].clone();
        assert_eq!(version(&before), version(&after), "{call}");
    }
}

/// As [`waiting_for_a_body`], with a reload that keeps the token.
async fn waiting_for_a_kept_token(fixture: &Fixture, length: usize) -> Client {
    let tokens = [root(), token("old", &Verb::ALL, "*")];
    fixture.reload(&tokens).expect("the file is valid");
    let client = waiting_for_a_body(fixture, "replace?count=1", length).await;
    fixture.reload(&tokens).expect("the file is valid");
    client
}

#[tokio::test]
async fn a_revoked_token_does_not_get_the_rest_of_a_list() {
    let fixture = Fixture::with(&[root(), token("old", &Verb::ALL, "*")]).await;
    let mut producer = fixture.service.client().await;
    // Three pages, of which the first is larger than the buffers of a connection.
    let text = "x".repeat(16 << 10);
    let object = |key: u32| json!({"key": format!("{key:04}"), "text": text});
    for batch in 0..3 {
        let objects = (0..400).map(|key| object(400 * batch + key)).collect();
        producer.call_as("root", "POST", "/v1/queues/q/add", &Value::Array(objects)).await.ok();
    }
    let mut reader = fixture.service.client_that_buffers(4_096).await;
    let headers = [("authorization", "Bearer old"), ("accept", "application/x-ndjson")];
    reader.send_text("GET", "/v1/queues/q/items", &headers, "").await;
    let (status, headers) = reader.head().await.expect("a head");
    assert_eq!(status, 200);
    fixture.reload(&[root()]).expect("the file is valid");
    assert!(reader.body(status, &headers).await.is_err(), "the list is cut off");
}

#[tokio::test]
async fn a_reload_names_the_tokens_that_differ() {
    let admin = |name: &str| token(name, &[Verb::Admin], "*");
    let fixture = Fixture::with(&[admin("kept"), admin("changed"), admin("removed")]).await;
    let tokens = [admin("kept"), token("changed", &[Verb::Read], "*"), admin("added")];
    let changes = fixture.reload(&tokens).expect("a valid file").tokens;
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!((changes.added, changes.changed), (names(&["added"]), names(&["changed"])));
    assert_eq!(changes.removed, names(&["removed"]));
    let again = fixture.reload(&tokens).expect("a valid file");
    assert_eq!(again.tokens, TokenChanges::default());
    assert!(!again.certificate_changed);
}

#[tokio::test]
async fn a_rotated_token_is_accepted_beside_its_successor() {
    let fixture = Fixture::with(&[root(), token("first", &Verb::ALL, "*")]).await;
    let mut client = fixture.service.client().await;
    let mut is_taken =
        async |secret: &str| client.call_as(secret, "GET", "/v1/info", &Value::Null).await.status == 200;
    let rotated = |old_expires: &str| TokenEntry {
        name: "first".to_owned(),
        old_sha256: Some(digest_text("first")),
        old_expires: Some(old_expires.to_owned()),
        ..token("second", &Verb::ALL, "*")
    };
    fixture.reload(&[root(), rotated("2999-01-01T00:00:00Z")]).expect("the file is valid");
    assert!(is_taken("first").await && is_taken("second").await);
    let changes = fixture.reload(&[root(), rotated("2020-01-01T00:00:00Z")]).expect("the file is valid");
    assert_eq!(changes.tokens.changed, ["first"]);
    assert!(!is_taken("first").await && is_taken("second").await);
    let mut own = rotated("2999-01-01T00:00:00Z");
    own.expires = Some("2020-01-01T00:00:00Z".to_owned());
    fixture.reload(&[root(), own]).expect("the file is valid");
    assert!(
        !is_taken("first").await && !is_taken("second").await,
        "the successor has expired, and so has the old one"
    );

    let same = TokenEntry { old_sha256: Some(digest_text("root")), ..rotated("2999-01-01T00:00:00Z") };
    let half = TokenEntry { old_expires: None, ..rotated("2999-01-01T00:00:00Z") };
    let wrong = TokenEntry { old_sha256: Some("first".to_owned()), ..rotated("2999-01-01T00:00:00Z") };
    for entry in [same, half, wrong, rotated("tomorrow")] {
        let refused = fixture.reload(&[root(), entry]).expect_err("the entry is wrong");
        assert!(matches!(refused[..], [Error::Access { .. }]), "{refused:?}");
    }
}
