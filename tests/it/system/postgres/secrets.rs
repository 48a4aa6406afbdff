//! A password of the database appears in no output.

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::harness::blocking::{Connection, Message};
use crate::harness::process::{deltaq, finished};
use crate::harness::server::{Spawned, Store};

const PASSWORD: &str = "correct-horse";
const WRONG: &str = "battery-staple";

/// A server that asks the role deltaq for its password.
fn locked() -> Cluster {
    let cluster = Cluster::start();
    cluster.sql(&format!("ALTER ROLE deltaq PASSWORD '{PASSWORD}'"));
    cluster.authenticate("local all deltaq scram-sha-256");
    cluster
}

const SERVE: &[&str] = &["serve", "--listen", "127.0.0.1:0", "--metrics-listen="];
/// The offline tools.
const TOOLS: [&[&str]; 4] =
    [&["check"], &["backup", "--to", "never"], &["export", "--queue", "q"], &["import", "--queue", "q"]];

/// Runs a command that must fail, and returns all of its output.
fn failing(command_line: &[&str], url: &str) -> String {
    let mut command = deltaq(command_line);
    command.args(["--store", url]).env("RUST_LOG", "trace").env("PGPASSWORD", WRONG);
    let run = finished(command, "");
    let text = run.stdout + &run.stderr;
    assert_ne!(run.code, Some(0), "{text}");
    text
}

#[test]
fn a_wrong_password_is_refused_and_not_shown() {
    let cluster = locked();
    let text = failing(SERVE, &cluster.url());
    assert!(text.contains("password authentication failed for user \"deltaq\""), "{text}");
    assert!(!text.contains(WRONG), "{text}");
    for url in [
        cluster.url().replace("deltaq@", &format!("deltaq:{WRONG}@")),
        format!("postgres://deltaq:{WRONG}@localhost:notaport/deltaq"),
        format!("postgres://deltaq@localhost/deltaq?password={WRONG}"),
        format!("mysql://deltaq:{WRONG}@localhost/deltaq"),
    ] {
        for command_line in TOOLS.into_iter().chain([SERVE]) {
            let text = failing(command_line, &url);
            assert!(!text.contains(WRONG), "{command_line:?} {url}: {text}");
        }
    }
    for command_line in TOOLS {
        let text = failing(command_line, &cluster.url());
        assert!(
            text.contains("password authentication") != (command_line[0] == "backup"),
            "{command_line:?}: {text}"
        );
        assert!(!text.contains(WRONG), "{command_line:?}: {text}");
    }
}

/// The secret of the nodes and the password of the database are in no log, reply or metric of two nodes, also when calls fail.
#[test]
fn no_output_of_nodes_contains_their_secrets() {
    let mut cluster = locked();
    let secret = cluster.folder().join("secret");
    std::fs::write(&secret, super::nodes::SECRET).expect("a file");
    let start = |name: &str| {
        Spawned::start_with(&Store::Url(cluster.url()), |command| {
            command.args(["--node-name", name, "--advertise", "http://127.0.0.1:0", "--log-level", "trace"]);
            command.env("DELTAQ_CLUSTER__SECRET_FILE", &secret).env("PGPASSWORD", PASSWORD);
        })
    };
    let nodes = [start("a"), start("b")];
    let mut output = String::new();
    let call = |node: &Spawned, message: &Message, lines: &[&str]| {
        let reply = Connection::open(node.api).and_then(|mut own| own.call_with(message, lines));
        let reply = reply.expect("a reply");
        reply.head + &String::from_utf8(reply.body).expect("text")
    };
    let forged = ["deltaq-forwarded: b", "deltaq-node-secret: 0123456789abcdef0123456789abcdee"];
    for round in 0..2 {
        for node in &nodes {
            for number in 0..12 {
                let path = format!("/v1/queues/q{number}/add");
                output += &call(node, &Message::post(path, &json!({"key": "a"})), &[]);
            }
            let refused = call(node, &Message::get("/v1/queues/q0".to_owned()), &forged);
            assert!(refused.contains("forbidden"), "{refused}");
            output += &refused;
            for path in ["/v1/info", "/readyz", "/v1/queues", "/metrics", "/openapi.json"] {
                output += &call(node, &Message::get(path.to_owned()), &[]);
            }
            output += &node.process.log();
        }
        if round == 0 {
            // Errors of a database that is down are in the log and in replies.
            cluster.end(rustix::process::Signal::INT);
        }
    }
    for node in nodes {
        output += &node.process.log();
    }
    assert!(
        output.contains("deltaq-owner") && output.contains("\"node\":{\"name\":\"b\""),
        "calls are forwarded"
    );
    for hidden in [PASSWORD, super::nodes::SECRET] {
        let shown = output.lines().find(|line| line.contains(hidden));
        assert_eq!(shown, None);
    }
}

#[test]
fn no_output_of_a_server_contains_the_password() {
    let mut cluster = locked();
    let server = Spawned::start_with(&Store::Url(cluster.url()), |command| {
        command.env("RUST_LOG", "trace").env("PGPASSWORD", PASSWORD);
    });
    let add = || Message::post("/v1/queues/q/add".to_owned(), &json!({"key": "a"}));
    let mut output = server.call(&add()).1;
    // The errors of a database that is down are in the log and in replies.
    cluster.end(rustix::process::Signal::INT);
    output += &server.call(&add()).1;
    for path in ["/v1/info", "/readyz", "/v1/queues/q", "/metrics"] {
        output += &server.call(&Message::get(path.to_owned())).1;
    }
    assert!(output.contains("journal-unavailable"), "{output}");
    std::thread::sleep(Duration::from_secs(1));
    cluster.restart();
    server.signal("TERM");
    let mut process = server.process;
    process.ended();
    output += &process.log();
    assert!(output.contains("the journal failed"), "{output}");
    assert!(
        !output.contains(PASSWORD),
        "{}",
        output.lines().find(|line| line.contains(PASSWORD)).unwrap_or_default()
    );
}
