//! Deliveries of webhooks over `kill -9`: what was answered is there, and nothing is applied twice.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use serde_json::{Value, json};

use crate::harness::blocking::{Connection, Message};
use crate::harness::private_file::private_file;
use crate::harness::server::{Spawned, Store};

const QUEUE: &str = "/v1/queues/q";
const SECRET: &str = "a-secret-of-gitlab";
/// Number of kills.
const ROUNDS: usize = 4;
/// Number of deliveries that are answered before a kill.
const ANSWERED: usize = 40;

fn start(store: &Store, secret: &Path) -> Spawned {
    Spawned::start_with(store, |command| {
        command.env("DELTAQ_HOOKS__SECRETS__GITLAB__FILE", secret);
        command.env("DELTAQ_HOOKS__SECRETS__GITLAB__QUEUES", "[\"q\"]");
        command.env("DELTAQ_HOOKS__MAX_PER_SECOND", "1000000");
    })
}

/// The answer to a delivery; `None` if the server has ended.
fn deliver(connection: &mut Connection, id: &str, body: &str) -> Option<Value> {
    let head = format!(
        "POST /v1/hooks/q HTTP/1.1\r\nhost: localhost\r\nx-gitlab-token: {SECRET}\r\nidempotency-key: {id}"
    );
    let request = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    connection.send(request.as_bytes()).ok()?;
    let answer = connection.receive().ok()?;
    assert_eq!(answer.status(), Some(202));
    serde_json::from_slice(&answer.body).ok()
}

fn body(id: &str) -> String {
    json!({ "key": id }).to_string()
}

/// Delivers until the server ends. Returns the number of answered deliveries.
fn deliver_all(server: SocketAddr, round: usize, enough: &SyncSender<()>) -> usize {
    let mut connection = Connection::open(server).expect("the server listens");
    for number in 0.. {
        let id = format!("{round}-{number}");
        match deliver(&mut connection, &id, &body(&id)) {
            None => return number,
            Some(answer) => assert_eq!(answer["duplicate"], false, "{id}"),
        }
        if number == ANSWERED {
            // Nobody waits any more after the first message.
            let _heard = enough.send(());
        }
    }
    0
}

#[test]
fn each_delivery_is_applied_once_over_kill_nine() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, secret) = (Store::folder("hooks"), private_file(folder.path(), "secret", SECRET));
    let mut server = start(&store, &secret);
    let settings = json!({"mode": "events", "hook": {"scheme": "gitlab", "secrets": ["gitlab"]}});
    let (status, text) = server.call(&Message::put(QUEUE.to_owned(), &settings));
    assert_eq!(status, 201, "{text}");
    let mut sent = 0;
    for round in 0..ROUNDS {
        let mut connection = Connection::open(server.api).expect("the server listens");
        let keyless = deliver(&mut connection, &format!("keyless-{round}"), "{}").expect("an answer");
        assert_eq!(keyless["reason"], "no_key");
        let (enough, heard) = sync_channel(1);
        let address = server.api;
        let sender = thread::spawn(move || deliver_all(address, round, &enough));
        heard.recv().expect("deliveries are answered");
        drop(server);
        let answered = sender.join().expect("the sender ends");

        server = start(&store, &secret);
        let mut connection = Connection::open(server.api).expect("the server listens");
        for number in 0..=answered {
            let id = format!("{round}-{number}");
            let again = deliver(&mut connection, &id, &body(&id)).expect("an answer");
            // The last one had no answer, so it may have been applied or not.
            assert!(number == answered || again["duplicate"] == true, "{id}: {again}");
        }
        sent += answered + 1;
    }
    let read = |path: String| -> Value {
        let (status, text) = server.call(&Message::get(path));
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).expect("JSON")
    };
    let status = read(format!("{QUEUE}/status"));
    assert_eq!((&status["ready"], &status["hook"]["kept"]), (&json!(sent), &json!(ROUNDS)));
    let mut next = String::new();
    loop {
        let page = read(format!("{QUEUE}/items?limit=1000&fields=key,deltas{next}"));
        for item in page["items"].as_array().expect("items") {
            assert_eq!(item["deltas"].as_array().map(Vec::len), Some(1), "{item}");
        }
        match page["continue"].as_str() {
            Some(token) => next = format!("&continue={token}"),
            None => break,
        }
    }
}
