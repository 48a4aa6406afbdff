//! Numbers over restarts and restores: what a lost time gave out is refused, and what was kept goes on.

use std::fs;
use std::path::Path;
use std::time::Duration;

use deltaq_runtime::clock::wall_us;
use serde_json::{Value, json};

use super::{QUEUE, keys, lease};
use crate::harness::Service;

/// A service with this data directory.
async fn on(folder: &Path) -> Service {
    let folder = folder.to_owned();
    Service::with(|settings| {
        settings.storage.in_memory = false;
        settings.storage.data_dir = folder;
    })
    .await
}

/// The floor of a life that begins now.
fn calendar() -> u64 {
    (wall_us() / 1_000 - 1_735_689_600_000) << 12
}

async fn stop(service: Service) {
    service.shutdown.signal();
    service.stopped().await;
}

/// Puts the files of one folder into another, which has no others then.
fn copy(from: &Path, to: &Path) {
    let _absent = fs::remove_dir_all(to);
    fs::create_dir(to).expect("a folder");
    for file in fs::read_dir(from).expect("a folder") {
        let file = file.expect("a file");
        fs::copy(file.path(), to.join(file.file_name())).expect("a copy");
    }
}

async fn post(service: &Service, call: &str, body: Value) -> Value {
    service.post(&format!("{QUEUE}/{call}"), &body).await.ok()
}

/// Sends a GET with one header. Returns the status, the header `etag` and the body.
async fn get(service: &Service, path: &str, header: (&str, &str)) -> (u16, Option<String>, Value) {
    let mut client = service.client().await;
    client.send_text("GET", &format!("{QUEUE}/{path}"), &[header], "").await;
    let reply = client.reply().await;
    (reply.status, reply.header("etag").map(str::to_owned), reply.body)
}

/// What a service has given out.
#[derive(Debug)]
struct Issued {
    version: u64,
    lease: String,
    token: u64,
    etag: String,
    event: String,
    cursor: String,
}

impl Issued {
    /// Changes the object of `key`, leases the key, and keeps what the replies have.
    async fn by(service: &Service, key: &str, value: u64) -> Self {
        let updated = post(service, "update", json!([{"key": key, "v": value}, {"key": "other"}])).await;
        let version = updated["resource_version"].as_u64().expect("a version");
        let queue = service.get(QUEUE).await.ok();
        let popped = post(service, "pop?lease_duration=1h&max=2", json!({})).await;
        assert_eq!(keys(&popped), [key, "other"]);
        let json = ("accept", "application/json");
        let (_, etag, _) = get(service, &format!("latest/{key}"), json).await;
        let (_, _, page) = get(service, "items?state=leased&limit=1", json).await;
        Self {
            version,
            lease: lease(&popped, 0),
            token: popped["items"][0]["lease"]["token"].as_u64().expect("a token"),
            etag: etag.expect("an entity tag"),
            event: format!("{}-{version}", queue["life"].as_str().expect("a life")),
            cursor: page["continue"].as_str().expect("a second page").to_owned(),
        }
    }

    /// The status of each call that uses what was given out; the ack comes last. Server-sent events say in the stream what others get as 410.
    async fn used(&self, service: &Service, key: &str) -> [(&'static str, u16); 7] {
        let json = ("accept", "application/json");
        let Self { version, lease, etag, event, cursor, .. } = self;
        let watch = get(service, &format!("watch?resource_version={version}"), json).await.0;
        let synced = get(service, &format!("synced?resource_version={version}"), json).await.0;
        let read = get(service, &format!("latest/other?min_resource_version={version}"), json).await.0;
        let page = get(service, &format!("items?state=leased&limit=1&continue={cursor}"), json).await.0;
        let object = get(service, &format!("latest/{key}"), ("if-none-match", etag)).await.0;
        let mut client = service.client().await;
        let headers = [("accept", "text/event-stream"), ("last-event-id", event.as_str())];
        client.send_text("GET", &format!("{QUEUE}/watch"), &headers, "").await;
        assert_eq!(client.head().await.expect("a head").0, 200, "an EventSource would not come again");
        let text = client.chunk().await.expect("no cut").expect("the stream goes on");
        let events = if String::from_utf8_lossy(&text).contains("event: Expired\n") { 410 } else { 200 };
        let ack = service.post(&format!("{QUEUE}/ack"), &json!({"lease_ids": [lease]})).await.status;
        [
            ("watch", watch),
            ("synced", synced),
            ("read", read),
            ("page", page),
            ("object", object),
            ("events", events),
            ("ack", ack),
        ]
    }
}

#[tokio::test]
async fn what_was_kept_goes_on_over_restarts() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let service = on(&data).await;
    let before = Issued::by(&service, "a", 1).await;
    let life = service.get(QUEUE).await.ok()["life"].clone();
    stop(service).await;
    let service = on(&data).await;
    assert_ne!(service.get(QUEUE).await.ok()["life"], life, "each start begins a life");
    stop(service).await;
    let service = on(&data).await;
    let kept = [
        ("watch", 200),
        ("synced", 200),
        ("read", 200),
        ("page", 200),
        ("object", 304),
        ("events", 200),
        ("ack", 200),
    ];
    assert_eq!(before.used(&service, "a").await, kept);
    post(&service, "update", json!({"key": "b"})).await;
    let later = post(&service, "pop", json!({})).await["items"][0]["lease"]["token"].as_u64();
    assert!(later > Some(before.token));
}

#[tokio::test]
async fn nothing_of_a_lost_time_is_accepted_however_often_a_backup_is_restored() {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, backup) = (folder.path().join("data"), folder.path().join("backup"));
    let service = on(&data).await;
    let kept = Issued::by(&service, "kept", 1).await;
    stop(service).await;
    copy(&data, &backup);
    let mut lost: Vec<Issued> = Vec::new();
    for round in 0..4 {
        // A backup is not restored within the fraction of a second by which quick restarts are ahead of the calendar.
        while lost.iter().any(|issued| issued.version >= calendar()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        copy(&backup, &data);
        // The first of the lost times begin several lives, so their numbers are ahead of the later times.
        for _ in round..3 {
            stop(on(&data).await).await;
        }
        let service = on(&data).await;
        // The same calls as in the lost times, so that their numbers would come again if a number could.
        post(&service, "ack", json!({"lease_ids": [kept.lease]})).await;
        let popped = service.get(&format!("{QUEUE}/items?state=leased")).await.ok();
        post(&service, "release", json!({"lease_ids": [popped["items"][0]["lease"]["id"]]})).await;
        let popped = post(&service, "pop", json!({})).await;
        post(&service, "ack", json!({"lease_ids": [lease(&popped, 0)]})).await;
        let now = Issued::by(&service, "a", round).await;
        for issued in &lost {
            assert!(now.token > issued.token && now.version > issued.version, "{now:?} after {issued:?}");
            let refused = [
                ("watch", 410),
                ("synced", 410),
                ("read", 410),
                ("page", 410),
                ("object", 200),
                ("events", 410),
                ("ack", 409),
            ];
            assert_eq!(issued.used(&service, "a").await, refused, "{issued:?}");
        }
        let held = service.get(&format!("{QUEUE}/items/a")).await.ok();
        assert_eq!(held["lease"]["id"], json!(now.lease), "no ack of a lost lease has ended this one");
        let watch = format!("watch?resource_version={}", kept.version);
        let watch = get(&service, &watch, ("accept", "application/json")).await;
        assert_eq!(watch.0, 200, "the version from before the backup");
        lost.push(now);
        stop(service).await;
    }
}

#[tokio::test]
async fn without_a_journal_no_version_outlives_the_process() {
    let service = Service::start().await;
    let before = Issued::by(&service, "a", 1).await;
    // A server without a journal waits for its workers when it stops.
    drop(service);
    let service = Service::start().await;
    // The queue has as many changes again, and a reader that has followed it from its beginning.
    for value in 0..20 {
        post(&service, "update", json!([{"key": "a", "v": value}, {"key": "other"}])).await;
    }
    let _reader = get(&service, "watch", ("accept", "application/json")).await;
    let used = before.used(&service, "a").await;
    let refused = [
        ("watch", 410),
        ("synced", 410),
        ("read", 410),
        ("page", 410),
        ("object", 200),
        ("events", 410),
        ("ack", 409),
    ];
    assert_eq!(used, refused);
}
