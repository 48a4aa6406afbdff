//! Pushed requests over `kill -9`, and where their secret is not.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::harness::blocking::Message;
use crate::harness::private_file::private_file;
use crate::harness::receiver::Receiver;
use crate::harness::server::{Spawned, Store};
use crate::harness::waiting::until;

const KEY: &str = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const QUEUE: &str = "/v1/queues/q";

/// A settings file that permits receivers on this machine.
fn settings(folder: &Path) -> PathBuf {
    let secret = private_file(folder, "secret", &format!("whsec_{KEY}\n"));
    let file = folder.join("deltaq.toml");
    let text = format!(
        "[push]\nallow = [\"http://127.0.0.1:*\"]\nallow_networks = [\"127.0.0.1\"]\n\
         [push.secrets.shop]\nfile = {:?}\nqueues = [\"*\"]\n",
        secret.to_str().expect("a path")
    );
    fs::write(&file, text).expect("a file");
    file
}

fn start(store: &Store, file: &Path) -> Spawned {
    Spawned::start_with(store, |command| {
        command.arg("--config").arg(file).args(["--log-level", "debug"]);
    })
}

fn ok(server: &Spawned, message: &Message) -> Value {
    let (status, body) = server.call(message);
    assert!((200..300).contains(&status), "{status}: {body}");
    serde_json::from_str(&body).unwrap_or_default()
}

/// All bytes of the files in a folder.
fn bytes_in(folder: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            all.extend(bytes_in(&path));
        } else {
            all.extend(fs::read(&path).unwrap_or_default());
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_without_an_answer_comes_again_after_kill_nine() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, file) = (Store::folder("push"), settings(folder.path()));
    let mut receiver = Receiver::start().await;
    let server = start(&store, &file);
    let push = json!({"push": {"url": receiver.url("/"), "secrets": ["shop"], "timeout": "1s"}});
    ok(&server, &Message::put(QUEUE.to_owned(), &push));
    ok(&server, &Message::post(format!("{QUEUE}/add"), &json!({"key": "a"})));
    let first = receiver.next().await;
    let (id, token) = (first.header("webhook-id").to_owned(), first.number("deltaq-token"));
    let signature = first.header("webhook-signature").to_owned();
    let mut logs = server.process.log();
    drop(server);

    // The setting was in the journal, and the lease of the first request ends in the new process.
    let server = start(&store, &file);
    let again = receiver.next().await;
    assert_eq!(again.header("webhook-id"), id);
    assert!(again.number("deltaq-token") > token);
    assert_ne!(again.header("webhook-signature"), signature, "each attempt is signed anew");
    drop(first);
    again.answer(200, "").await;
    until("the key is acknowledged", || ok(&server, &Message::get(QUEUE.to_owned()))["status"]["known"] == 1);

    logs += &server.process.log();
    let export = ok(&server, &Message::get(format!("{QUEUE}/settings")));
    assert_eq!(export["push"]["secrets"], json!(["shop"]));
    logs += &server.stop();
    let found = |bytes: &[u8]| bytes.windows(KEY.len()).any(|window| window == KEY.as_bytes());
    assert!(!found(logs.as_bytes()) && !found(&bytes_in(store.path())) && !export.to_string().contains(KEY));

    // Without its destination the queue keeps its keys and says what is missing.
    fs::write(&file, "").expect("a file");
    let server = start(&store, &file);
    ok(&server, &Message::post(format!("{QUEUE}/update"), &json!({"key": "a", "n": 1})));
    until("the sender is refused", || {
        let push = ok(&server, &Message::get(QUEUE.to_owned()))["status"]["push"].take();
        push["state"] == "refused"
            && push["last_error"].as_str().is_some_and(|why| why.contains("push.allow is empty"))
    });
    assert!(receiver.is_silent());
}
