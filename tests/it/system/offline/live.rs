//! Commands on a store that a server uses: some work, and the others are refused and name the server's process.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;

#[test]
fn what_needs_a_stopped_store_is_refused_with_the_process_of_the_server() {
    let scratch = Scratch::new();
    let folder = scratch.path("data");
    let server = Server::start(&folder);
    server.post("prices/seed", r#"{"key":"a","object":{}}"#);
    let pid = format!("is in use by process {}", server.pid());
    let said = run("export --queue prices --data-dir", &[&folder]).refused();
    assert!(said.contains(&pid) && said.contains("/v1/queues/prices/known"), "{said}");
    assert!(said.contains("accept: application/x-ndjson"), "{said}");
    let said = run_with("import --queue prices --data-dir", &[&folder], "").refused();
    assert!(said.contains(&pid), "{said}");
    let ready = scratch.path("ready");
    fs::write(&ready, "of a former run").expect("a file");
    let words = "serve --listen 127.0.0.1:0 --metrics-listen= --data-dir";
    let second = run(words, &[&folder, Path::new("--ready-file"), &ready]);
    assert_eq!(second.code, Some(1));
    assert!(second.stderr.contains(&pid), "{second:?}");
    assert!(!ready.exists(), "it says that a server is ready");
    server.stop();
    run("export --queue prices --data-dir", &[&folder]).printed();
}

#[test]
fn a_store_in_use_is_checked_as_of_one_instant() {
    let scratch = Scratch::new();
    let folder = scratch.path("data");
    let server = Server::start(&folder);
    let load = Load::start(&server);
    for _ in 0..5 {
        load.wait_for_more();
        let said = check(&folder).printed();
        assert!(said.contains(&format!("note: process {} uses the store", server.pid())), "{said}");
        assert!(said.contains("no damage: 1 queues with "), "{said}");
    }
    assert!(load.stop() > 0);
    server.stop();
}

/// Adds keys 0, 1, 2, ... one after the other.
struct Load {
    answered: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<()>,
}

impl Load {
    fn start(server: &Server) -> Self {
        let (answered, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (api, counter, end) = (server.0.api, answered.clone(), is_over.clone());
        let thread = std::thread::spawn(move || {
            while !end.load(Ordering::SeqCst) {
                let next = counter.load(Ordering::SeqCst);
                let object = format!(r#"{{"key":"{next}","text":"{}"}}"#, "x".repeat(300));
                let (status, answer) = call(api, "POST", "/v1/queues/prices/add", &object);
                assert_eq!(status, 200, "{answer}");
                counter.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { answered, is_over, thread }
    }

    /// How many adds were acknowledged.
    fn answered(&self) -> usize {
        self.answered.load(Ordering::SeqCst)
    }

    fn wait_for_more(&self) -> usize {
        let enough = self.answered() + 50;
        while self.answered() < enough {
            assert!(!self.thread.is_finished(), "the load has failed");
            std::thread::yield_now();
        }
        self.answered()
    }

    fn stop(self) -> usize {
        self.is_over.store(true, Ordering::SeqCst);
        self.thread.join().expect("the load");
        self.answered.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn a_backup_of_a_store_in_use_holds_all_that_was_answered_before_it_began() {
    let scratch = Scratch::new();
    let folder = scratch.path("data");
    let server = Server::start(&folder);
    let load = Load::start(&server);
    for round in 0..3 {
        let answered = load.wait_for_more();
        let file = scratch.path(&format!("copy-{round}.db"));
        let said = run("backup --data-dir", &[&folder, Path::new("--to"), &file]).printed();
        let bytes = fs::metadata(&file).expect("the copy").len();
        assert!(said.starts_with(&format!("copied {bytes} bytes to ")), "{said}");
        assert!(said.contains("no damage: 1 queues, "), "{said}");

        // Restores as the help describes.
        let restored = scratch.path(&format!("restored-{round}"));
        fs::create_dir(&restored).expect("a folder");
        fs::copy(&file, restored.join("deltaq.db")).expect("a copy");
        let entries = |said: &str| {
            let found = said.split(", ").find(|part| part.ends_with(" entries in checkpoints"));
            found.expect("a number of entries").to_owned()
        };
        let counted = entries(&said);
        for said in [said, check(&restored).printed(), run("check --backup", &[&file]).printed()] {
            assert!(said.contains("no damage: 1 queues"), "{said}");
            assert_eq!(entries(&said), counted, "the backup and the check count alike");
            assert!(!said.contains("closed cleanly"), "a backup is not a crashed store: {said}");
        }
        let mut connection = open(&restored).await;
        let added = "SELECT event.value ->> '$.data.key' FROM journal, json_each(events) AS event";
        let keys: Vec<String> = sqlx::query_scalar(added).fetch_all(&mut connection).await.expect("keys");
        connection.close().await.expect("a database");
        let keys: BTreeSet<usize> = keys.iter().map(|key| key.parse().expect("a number")).collect();
        assert!(keys.len() >= answered && (0..answered).all(|key| keys.contains(&key)), "{answered}");
        // The keys have no gap.
        assert_eq!(keys.last().copied(), Some(keys.len() - 1));

        let second = Server::start(&restored);
        second.post("prices/add", r#"{"key":"new"}"#);
        second.stop();
    }
    load.stop();
    server.stop();
    // A stopped store can be copied too.
    let file = scratch.path("stopped.db");
    run("backup --data-dir", &[&folder, Path::new("--to"), &file]).printed();

    // The store goes on, so a server with the copy uses other numbers.
    let versions = [&folder, &scratch.path("restored")].map(|folder| {
        if fs::create_dir(folder).is_ok() {
            fs::copy(&file, folder.join("deltaq.db")).expect("a copy");
        }
        let server = Server::start(folder);
        let (_, added) = call(server.0.api, "POST", "/v1/queues/prices/add", r#"{"key":"new"}"#);
        server.stop();
        let added: serde_json::Value = serde_json::from_str(&added).expect("a document");
        added["resource_version"].as_u64().expect("a version")
    });
    assert!(versions[1] > versions[0] + 100_000, "{versions:?}");
}

#[tokio::test]
async fn a_backup_of_a_damaged_store_is_kept_and_says_so() {
    let scratch = Scratch::new();
    let folder = full_store(&scratch, "data");
    change(&folder, "UPDATE runs SET checksum = checksum + 1 WHERE queue_id = 1").await;
    let file = scratch.path("copy.db");
    let ran = run("backup --data-dir", &[&folder, Path::new("--to"), &file]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.contains("damage: queue prices, table runs, id "), "{ran:?}");
    assert!(ran.stdout.contains("the copy is kept") && file.exists(), "{ran:?}");
}
