//! Large objects of a queue and its followers are stored once, and every command has the whole objects.

use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::harness::waiting::until;

/// As many as one token may set up.
const FOLLOWERS: usize = 32;
const OBJECTS: usize = 8;
const OBJECT_BYTES: usize = 1_000_000;
/// The files grow by at most this many times the bytes that were sent.
const GROWTH_MAX: u64 = 3;

fn object(number: usize, bytes: usize) -> String {
    let digits = number.to_string().repeat(bytes / number.to_string().len());
    format!(r#"{{"key":"k{number}","text":"{digits}"}}"#)
}

/// Creates a queue, so many followers, and objects.
fn fill(server: &Server, followers: usize, objects: usize, bytes: usize) -> u64 {
    server.call("PUT", "/v1/queues/prices", "{}");
    for number in 0..followers {
        let settings = json!({ "follow": { "queue": "prices" }, "max_failures": 0 }).to_string();
        assert_eq!(server.call("PUT", &format!("/v1/queues/f{number}"), &settings).0, 201);
    }
    let objects: Vec<String> = (0..objects).map(|number| object(number, bytes)).collect();
    for object in &objects {
        server.post("prices/add", object);
    }
    objects.iter().map(|object| object.len() as u64).sum()
}

/// Waits until each follower has so many ready keys. `look` is called again and again meanwhile.
fn until_all_have(server: &Server, ready: &[usize], mut look: impl FnMut()) {
    for (number, keys) in ready.iter().enumerate() {
        until("a follower has all keys", || {
            look();
            let (_, reply) = server.call("GET", &format!("/v1/queues/f{number}"), "");
            let queue: Value = serde_json::from_str(&reply).expect("a queue");
            queue["status"]["ready"] == *keys
        });
    }
}

fn disk(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder).expect("a folder");
    files.filter_map(|entry| entry.ok()?.metadata().ok()).map(|file| file.len()).sum()
}

fn most_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a line");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") << 10
}

async fn sql(folder: &Path, text: &'static str) -> i64 {
    let options = SqliteConnectOptions::new().filename(folder.join("deltaq.db"));
    let mut connection = SqliteConnection::connect_with(&options).await.expect("a database");
    let number = sqlx::query_scalar(text).fetch_optional(&mut connection).await.expect("a statement");
    connection.close().await.expect("a database");
    number.unwrap_or_default()
}

fn items(server: &Server, queue: &str) -> Value {
    let (_, reply) = server.call("GET", &format!("/v1/queues/{queue}/items?limit=100"), "");
    let page: Value = serde_json::from_str(&reply).expect("items");
    let objects = page["items"].as_array().expect("items").iter().map(|item| &item["deltas"][0]["object"]);
    objects.cloned().collect()
}

#[tokio::test]
async fn followers_of_large_objects_take_little_disk_and_memory() {
    let scratch = Scratch::new();
    let folder = scratch.path("data");
    let server = Server::start(&folder);
    let before = disk(&folder);
    let sent = fill(&server, FOLLOWERS, OBJECTS, OBJECT_BYTES);
    let mut most = 0;
    let look = || most = disk(&folder).max(most);
    until_all_have(&server, &[OBJECTS; FOLLOWERS], look);
    assert!(most - before <= GROWTH_MAX * sent, "{most} bytes, {before} before {sent} were sent");
    let wanted = items(&server, "prices");
    assert_eq!(items(&server, "f7"), wanted);
    // The checkpoint has references too, for waiting, leased and known objects.
    server.work("f1");
    server.post("f2/pop?max=3", "{}");
    server.stop();
    let after = disk(&folder);
    assert!(after - before <= GROWTH_MAX * sent, "{after} bytes, {before} before {sent} were sent");
    assert_eq!(usize::try_from(sql(&folder, "SELECT count(*) FROM texts").await), Ok(OBJECTS));
    let said = check(&folder).printed();
    assert!(said.starts_with("no damage: "), "{said}");

    let server = Server::start(&folder);
    assert_eq!(items(&server, "f7"), wanted);
    let most = most_memory(server.pid());
    assert!(
        most < FOLLOWERS as u64 * sent,
        "{most} bytes of memory: followers share the texts after a start too"
    );
    let known = |server: &Server| {
        let (_, reply) = server.call("GET", "/v1/queues/f1/known?limit=100", "");
        serde_json::from_str::<Value>(&reply).expect("objects")["items"].take()
    };
    let wanted_known = known(&server);
    assert_eq!(wanted_known.as_array().map(Vec::len), Some(OBJECTS));
    server.stop();

    // A whole store as text has each text once.
    let (file, moved) = (scratch.path("whole.ndjson"), scratch.path("moved"));
    run("export --data-dir", &[&folder, Path::new("--to"), &file]).printed();
    let text_bytes = std::fs::metadata(&file).expect("a file").len();
    assert!(text_bytes < 2 * sent, "{text_bytes} bytes");
    run("import --data-dir", &[&moved, Path::new("--from"), &file]).printed();
    assert!(check(&moved).printed().starts_with("no damage: "));
    let one = run("export --queue f1 --data-dir", &[&moved]).printed();
    assert!(one.contains(&object(5, OBJECT_BYTES)));
    let server = Server::start(&moved);
    assert_eq!(items(&server, "f7"), wanted);
    assert_eq!(known(&server), wanted_known);
    server.stop();
}

#[tokio::test]
async fn a_missing_and_a_changed_text_are_found() {
    let scratch = Scratch::new();
    let (good, bad) = (scratch.path("good"), scratch.path("bad"));
    let server = Server::start(&good);
    fill(&server, 2, 2, 10_000);
    until_all_have(&server, &[2, 2], || {});
    server.work("f0");
    server.stop();
    // An object that one of the queues does not have any more.
    let server = Server::start(&good);
    server.post("prices/delete", &object(1, 10_000));
    server.post("prices/add", &object(2, 10_000));
    until_all_have(&server, &[2, 3], || {});
    server.kill();
    assert!(check(&good).printed().contains("no damage: "));
    let cases = [
        ("DELETE FROM texts WHERE rowid = 1", "which table texts lacks"),
        (
            "UPDATE texts SET text = replace(text, '00', '01') WHERE rowid = 1",
            "differs from what was written",
        ),
        ("UPDATE texts SET text = '{}' WHERE rowid = 2", "differs from what was written"),
        ("UPDATE texts SET id = 'x' WHERE rowid = 1", "it is not the id of a text"),
        (
            "UPDATE texts SET id = replace(id, substr(id, 1, 1), 'e') WHERE rowid = 1",
            "which table texts lacks",
        ),
        ("UPDATE journal SET texts = NULL, text_bytes = 0 WHERE texts IS NOT NULL", "damaged: the checksum"),
        ("UPDATE journal SET text_bytes = text_bytes + 1 WHERE texts IS NOT NULL", "damaged: the checksum"),
        ("UPDATE runs SET texts = NULL WHERE texts IS NOT NULL", "damaged: the checksum"),
    ];
    for (change, says) in cases {
        copy(&good, &bad);
        sql(&bad, change).await;
        let ran = check(&bad);
        assert_eq!(ran.code, Some(1), "{change}: {ran:?}");
        assert!(ran.stdout.contains(says), "{change}: {ran:?}");
        let kinds: BTreeSet<&str> = ran.stdout.lines().filter_map(|line| line.split(':').next()).collect();
        assert!(kinds.contains("damage"), "{change}: {ran:?}");
    }
    // A start refuses the store, and names the row.
    copy(&good, &bad);
    sql(&bad, "DELETE FROM texts").await;
    let refused = run("serve --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0 --data-dir", &[&bad]);
    assert!(refused.code == Some(1) && refused.stderr.contains("is missing in table texts"), "{refused:?}");
}

/// A store with a text that only the history needs, which contains "00", and one that the state needs, which contains "12".
fn store_with_replaced_object(folder: &Path) {
    let server = Server::start(folder);
    fill(&server, 1, 1, 10_000);
    until_all_have(&server, &[1], || {});
    server.work("prices");
    server.work("f0");
    // A later object takes the place of the first one, which only the history has then.
    server.post("prices/add", &object(0, 10_000).replace("00", "12"));
    until_all_have(&server, &[1], || {});
    server.work("prices");
    server.work("f0");
    server.stop();
    assert!(check(folder).printed().starts_with("no damage: "));
}

/// Statements that damage the text with this content.
fn damage(content: &str) -> [String; 5] {
    [
        format!("DELETE FROM texts WHERE text LIKE '%{content}%'"),
        format!("UPDATE texts SET text = replace(text, '{content}', '77') WHERE text LIKE '%{content}%'"),
        format!("UPDATE texts SET text = CAST(x'7bff7d' AS TEXT) WHERE text LIKE '%{content}%'"),
        format!("UPDATE texts SET text = x'00' WHERE text LIKE '%{content}%'"),
        format!("UPDATE texts SET id = upper(id) WHERE text LIKE '%{content}%'"),
    ]
}

fn damage_lines(ran: &Run) -> Vec<&str> {
    ran.stdout.lines().filter(|line| line.starts_with("damage")).collect()
}

/// The objects in the history of key `k0`, newest first.
fn past_objects(server: &Server, queue: &str) -> Vec<Value> {
    let (status, reply) = server.call("GET", &format!("/v1/queues/{queue}/history/k0"), "");
    assert_eq!(status, 200, "{reply}");
    let page: Value = serde_json::from_str(&reply).expect("a page");
    let items = page["items"].as_array().expect("events").iter();
    items.filter(|event| event["event"] == "appended").map(|event| event["object"].clone()).collect()
}

/// What is lost with a text depends on the rows that need it.
#[tokio::test]
async fn a_damaged_text_of_the_history_loses_one_object_there() {
    let scratch = Scratch::new();
    let (good, bad) = (scratch.path("good"), scratch.path("bad"));
    store_with_replaced_object(&good);
    for sql in damage("00") {
        copy(&good, &bad);
        change(&bad, &sql).await;
        let ran = check(&bad);
        assert_eq!(ran.code, Some(1), "{sql}: {ran:?}");
        let is_history = |line: &&str| line.starts_with("damage (history only): ");
        assert!(damage_lines(&ran).iter().any(is_history), "{sql}: {ran:?}");
        assert!(!damage_lines(&ran).iter().any(|line| line.starts_with("damage: ")), "{sql}: {ran:?}");
        assert!(ran.stdout.contains("a server starts"), "{sql}: {ran:?}");
        let server = Server::start(&bad);
        for queue in ["prices", "f0"] {
            let objects = past_objects(&server, queue);
            assert!(
                objects.len() == 2 && objects[0]["key"] == "k0" && objects[1].is_null(),
                "{sql}: {objects:?}"
            );
        }
        // The object makes the text whole when it is sent again.
        server.post("prices/add", &object(0, 10_000));
        let objects = past_objects(&server, "prices");
        assert!(objects.len() == 3 && objects.iter().all(Value::is_object), "{sql}: {objects:?}");
        server.stop();
    }
}

#[tokio::test]
async fn a_damaged_text_of_a_key_is_damage_of_the_state() {
    let scratch = Scratch::new();
    let (good, bad) = (scratch.path("good"), scratch.path("bad"));
    store_with_replaced_object(&good);
    for sql in damage("12") {
        copy(&good, &bad);
        change(&bad, &sql).await;
        let ran = check(&bad);
        assert!(damage_lines(&ran).iter().any(|line| line.starts_with("damage: ")), "{sql}: {ran:?}");
        assert!(ran.stdout.contains("table runs, id "), "the row that needs it is named: {sql}: {ran:?}");
        let refused = run("serve --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0 --data-dir", &[&bad]);
        let names = |what: &str| refused.stderr.contains(what);
        assert!(refused.code == Some(1) && names("k0") && names("its object is lost"), "{sql}: {refused:?}");
    }
}

#[tokio::test]
async fn a_damaged_text_that_no_row_needs_loses_nothing() {
    let scratch = Scratch::new();
    let (good, bad) = (scratch.path("good"), scratch.path("bad"));
    store_with_replaced_object(&good);
    for id in ["a".repeat(64), "no id".to_owned()] {
        copy(&good, &bad);
        change(&bad, &format!("INSERT INTO texts VALUES ('{id}', 'unused')")).await;
        let ran = check(&bad);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert_eq!(damage_lines(&ran).len(), 1, "{ran:?}");
        assert!(damage_lines(&ran)[0].starts_with("damage (nothing lost): table texts, rowid "), "{ran:?}");
        assert!(ran.stdout.contains("1 findings of damage, 1 of them without any loss: "), "{ran:?}");
        Server::start(&bad).stop();
    }
}
