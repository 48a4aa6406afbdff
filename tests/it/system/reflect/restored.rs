//! A target that was restored from a backup, and a target that somebody else has changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::upstream::Upstream;
use super::{Reflecting, sql};
use crate::harness::waiting::until;
use crate::system::cli::Server;

/// The kinds of source, beside Kubernetes, which tell their changes, and a list that says that it has not changed.
const KINDS: [&str; 4] = ["rest", "files", "sql", "deltaq"];

/// Puts the files of one folder into another, which has no others then.
fn copy(from: &Path, to: &Path) {
    let _absent = fs::remove_dir_all(to);
    fs::create_dir(to).expect("a folder");
    for file in fs::read_dir(from).expect("a folder") {
        let file = file.expect("a file");
        fs::copy(file.path(), to.join(file.file_name())).expect("a copy");
    }
}

/// Keeps a copy of the store of a server, which is killed and started again.
pub(super) fn keep(server: &mut Server) {
    let folder = server.folder.path().to_owned();
    server.kill();
    copy(&folder.join("data"), &folder.join("backup"));
    server.start();
}

/// Starts the server with the kept copy, as after a loss.
pub(super) fn restore(server: &mut Server) {
    let folder = server.folder.path().to_owned();
    server.kill();
    copy(&folder.join("backup"), &folder.join("data"));
    server.start();
}

/// The keys of the newest objects of a queue; none if there is no queue.
fn latest(server: &Server, queue: &str) -> Vec<String> {
    let rows = server.run(&["latest", queue, "-o", "ndjson"]).stdout;
    let rows = rows.lines().map(|row| serde_json::from_str::<Value>(row).expect("JSON"));
    rows.map(|row| row["key"].as_str().expect("a key").to_owned()).collect()
}

/// One source of each kind, with the same objects.
struct Sources {
    reflecting: Reflecting,
    queue: Server,
    objects: Arc<Mutex<Vec<Value>>>,
}

impl Sources {
    fn start(server: &Server, relist: &str) -> Self {
        let folder = server.folder.path();
        let queue = Server::in_memory();
        queue.run(&["queue", "create", "from", "key=/sku"]).ok();
        fs::create_dir(folder.join("files")).expect("a folder");
        let database = folder.join("shop.db");
        sql::sqlite(&database.display().to_string(), "CREATE TABLE prices (sku TEXT, version INTEGER)");
        let objects = Arc::<Mutex<Vec<Value>>>::default();
        let listed = objects.clone();
        let upstream = Upstream::start(move |request, reply| {
            let objects = listed.lock().clone();
            let etag = format!("\"{}\"", objects.len());
            match request.header("if-none-match") {
                Some(known) if known == etag => reply.send(304, &[], ""),
                _ => reply.send(200, &[&format!("etag: {etag}")], &json!(objects).to_string()),
            }
        });
        let kinds = BTreeMap::from([
            ("rest", format!("list = {:?}", upstream.url("/"))),
            ("files", format!("path = \"{}\"", folder.join("files").display())),
            (
                "sql",
                format!(
                    "database = \"sqlite:{}\"\nquery = \"SELECT * FROM prices\"\nsince = \"version\"",
                    database.display()
                ),
            ),
            ("deltaq", format!("url = {:?}\nqueue = \"from\"", queue.address.to_string())),
        ]);
        let sources = kinds.iter().map(|(kind, settings)| {
            format!(
                "[sources.{kind}]\nqueue = \"{kind}\"\ninterval = \"300ms\"\nrelist = \"{relist}\"\ncreate = {{ key = \"/sku\" }}\n\
                 [sources.{kind}.{kind}]\n{settings}\n"
            )
        });
        let file = folder.join("reflect.toml");
        fs::write(&file, sources.collect::<String>()).expect("a file");
        let sources = Self {
            reflecting: Reflecting::start(server, &["--config", &file.display().to_string()]),
            queue,
            objects,
        };
        sources.add(server, "a");
        until("the first lists are over", || sources.reflecting.get("/readyz").0 == 200);
        sources.until_equal(server);
        sources
    }

    /// A new object in each source.
    fn add(&self, server: &Server, sku: &str) {
        let folder = server.folder.path();
        let object = json!({ "sku": sku });
        self.queue.run(&["update", "from", &object.to_string()]).ok();
        fs::write(folder.join("files").join(sku), object.to_string()).expect("a file");
        let mut objects = self.objects.lock();
        objects.push(object);
        let row = format!("INSERT INTO prices VALUES ('{sku}', {})", objects.len());
        sql::sqlite(&folder.join("shop.db").display().to_string(), &row);
    }

    #[track_caller]
    fn until_equal(&self, server: &Server) {
        let wanted: Vec<String> = self
            .objects
            .lock()
            .iter()
            .map(|object| object["sku"].as_str().expect("a text").to_owned())
            .collect();
        until("all queues equal their sources", || KINDS.iter().all(|kind| latest(server, kind) == wanted));
    }

    /// Lists of a source that were sent.
    fn lists(&self, kind: &str) -> u64 {
        let (_, page) = self.reflecting.get("/metrics");
        let is_sent = |line: &&str| {
            line.starts_with("deltaq_reflect_lists_total{")
                && line.contains(&format!("source=\"{kind}\""))
                && line.contains("result=\"sent\"")
        };
        let count = page.lines().find(is_sent).and_then(|line| line.rsplit(' ').next()?.parse().ok());
        count.unwrap_or(0)
    }
}

#[test]
fn a_restored_queue_gets_the_whole_list_again_and_a_restarted_one_does_not() {
    let mut server = Server::durable();
    let sources = Sources::start(&server, "1h");
    keep(&mut server);
    let before = KINDS.map(|kind| sources.lists(kind));
    sources.add(&server, "b");
    sources.until_equal(&server);
    // A restart that has lost nothing. The reply to the next change is in another life.
    server.kill();
    server.start();
    sources.add(&server, "c");
    sources.until_equal(&server);
    let after = KINDS.map(|kind| sources.lists(kind));
    // The list of the REST source has changed twice; the others tell their changes.
    assert_eq!(after, [before[0] + 2, before[1], before[2], before[3]], "{}", sources.reflecting.log());
    // Nothing changes in the sources from here on.
    restore(&mut server);
    sources.until_equal(&server);
    let log = sources.reflecting.log();
    for kind in KINDS {
        let lost = format!("queue {kind} may have lost what was sent");
        assert!(log.contains(&lost), "{lost}: {log}");
    }
    sources.reflecting.stop();
}

#[test]
fn whole_lists_heal_what_nobody_has_noticed() {
    let server = Server::durable();
    let sources = Sources::start(&server, "1s");
    sources.add(&server, "b");
    sources.until_equal(&server);
    for kind in KINDS {
        server.run(&["delete", kind, "--key", "a"]).ok();
    }
    // Sources do not see what others do to their keys.
    sources.until_equal(&server);
    sources.reflecting.stop();
}
